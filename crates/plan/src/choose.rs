//! Choosing: which mix of splitting, recomputing and moving to a file keeps a limit at the least cost.
//!
//! A model has several steps (training, evaluation, a ragged last batch), which share its states. The room that is left for
//! states and arena is given; out come the layout of the states and a plan for every step, or a refusal with the smallest room
//! that would do.
//!
//! Whether there is a way at all is decided by a search that looks neither at the room asked for nor at measured costs: the
//! number that a refusal tells is the same whoever asks, and planning with exactly that room succeeds. Only then measured costs
//! decide which way is the cheapest.
//!
//! That is chosen from a ladder of rooms that is the model's own: for every rung there is one choice, whoever asks, and a room gets the
//! cheapest of those below it. So a larger room is not slower, and a smaller one does not take more memory. Only the nearest rungs are
//! looked at, while one further down could still be cheaper: of 440 pairs of rooms for 40 random models, 5 were the wrong way round, by 5 % at most, and in
//! 3 the larger room was used less, by up to 1 % (`PLIMSOLL_CASES=40 cargo test -p plimsoll-plan --test ladder`).

mod step;

use crate::evict::Effort;
use crate::place;
use crate::predict::predict;
use crate::split::Batch;
use crate::{CostModel, Explanation, Options, Plan, PlanError, StateLayout, check, explain, limit};
use plimsoll_graph::Graph;
use plimsoll_tensor::TensorType;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;
use step::{Found, Need, Planning, Prepared};

/// By how much more is tried where a little too much was hoped for.
const GRAIN: u64 = 64 << 10;

/// Parts of the states that may go to the file which are tried there.
const LAYOUTS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Where keeping the limit takes no larger part of the time, nothing else is tried.
const CHEAP: f64 = 0.02;

/// Rungs of the ladder are no further apart than this part of what the steps take without a limit, and than this part of what is
/// above the floor.
const RUNGS: u64 = 160;
const NEAR_FLOOR: u64 = 8;

/// How many rungs are looked at for a room: at most so many, fewer where graphs are large, and least where even the whole batch's is. The more there
/// are, the less often a smaller room finds by chance what a larger one does not.
const NEAREST: usize = 12;
const NODES: usize = 2400;
const FEWEST: std::ops::RangeInclusive<usize> = 2..=3;
const NODES_OF_WHOLE: usize = 4500;

/// For a smaller part of the time nothing cheaper is looked for.
const NEGLIGIBLE: f64 = 1e-3;

/// What costs so many times more at first is not made cheaper than what is known by a longer search.
const HOPELESS: f64 = 2.0;

/// A step to be planned.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// What it computes.
    pub graph: &'a Graph,
    /// Its batch, if it has one: what can be cut into slices.
    pub batch: Option<Batch>,
    /// Slices that the user asked for, exact or not; the planner then cuts no further.
    pub slices: Option<usize>,
}

/// A state that the steps share.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: TensorType,
    /// When it goes to the file, should that be needed: lower numbers first; `None` for never.
    pub rank: Option<u32>,
    /// Whether it lives in the file already, and stays there.
    pub filed: bool,
}

/// What was chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Where the states are.
    pub layout: StateLayout,
    /// A plan for every step.
    pub plans: Vec<Plan>,
}

/// The steps of a model, looked at from all sides: made once, asked for one room after another.
pub struct Chooser<'a> {
    steps: Rc<Vec<Prepared>>,
    /// By step: what its variants take without a limit, by the costs.
    seconds: Vec<Vec<f64>>,
    states: &'a [State],
    /// The states that may go to the file, in the order they go.
    movable: Vec<usize>,
    options: Options,
    /// The same with costs that nobody measured.
    plain: Options,
    whole_bytes: OnceCell<u64>,
}

impl<'a> Chooser<'a> {
    /// Looks at the steps of a model. With `options.split` a step with a batch may be cut into slices, with
    /// `options.recompute` values may be computed again, with `options.spill` values and states may be moved to a file.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn new(steps: &[Step<'_>], states: &'a [State], options: &Options) -> Result<Chooser<'a>, PlanError> {
        let steps = steps.iter().map(|s| Prepared::new(s, options)).collect::<Result<Vec<_>, PlanError>>()?;
        Ok(Chooser::of(Rc::new(steps), states, options))
    }

    /// The same steps with other costs, or with other ways to keep a limit but for cutting them.
    pub fn with(&self, options: &Options) -> Chooser<'a> {
        debug_assert_eq!(self.options.split, options.split);
        Chooser::of(self.steps.clone(), self.states, options)
    }

    fn of(steps: Rc<Vec<Prepared>>, states: &'a [State], options: &Options) -> Chooser<'a> {
        let mut movable: Vec<usize> = Vec::new();
        if options.spill {
            movable.extend((0..states.len()).filter(|&i| states[i].rank.is_some() && !states[i].filed));
            movable.sort_by_key(|&i| (states[i].rank, std::cmp::Reverse(states[i].ty.bytes()), i));
        }
        let seconds = steps.iter().map(|step| step.seconds(&options.costs)).collect();
        let plain = Options { costs: CostModel::default(), ..hasty(options) };
        Chooser { steps, seconds, states, movable, options: options.clone(), plain, whole_bytes: OnceCell::new() }
    }

    /// The nodes of the largest graph that is looked at: what the search takes grows with it.
    pub fn most_nodes(&self) -> usize {
        self.steps.iter().map(Prepared::most_nodes).max().unwrap_or(0)
    }

    /// The steps when nothing is cut, computed again or moved; checked.
    ///
    /// # Errors
    /// When a graph breaks its own rules, or a plan is unsafe, which would be a bug.
    pub fn unlimited(&self) -> Result<Choice, PlanError> {
        let whole = self.whole()?;
        whole.check()?;
        Ok(whole)
    }

    fn whole(&self) -> Result<Choice, PlanError> {
        let layout = self.layout(0);
        let plan = |step: usize| self.step(step, &self.options).whole(&layout);
        Ok(Choice { plans: (0..self.steps.len()).map(plan).collect::<Result<_, _>>()?, layout })
    }

    /// What the steps take then, with all nodes.
    fn unlimited_bytes(&self) -> Result<u64, PlanError> {
        if let Some(bytes) = self.whole_bytes.get() {
            return Ok(*bytes);
        }
        let bytes = self.whole()?.bytes(self.options.node_bytes);
        Ok(*self.whole_bytes.get_or_init(|| bytes))
    }

    /// The cheapest way found to keep within `room` bytes of states and arena, if there is one, checked. Something that takes
    /// less than `known` seconds is looked for: what is slower may be left as it was found first, or be left out.
    ///
    /// # Errors
    /// When a graph breaks its own rules, or a plan is unsafe, which would be a bug.
    pub fn within(&self, room: u64, known: f64) -> Result<Option<Choice>, PlanError> {
        let mut best = self.cheapest(room, known)?;
        best.iter_mut().flat_map(|choice| &mut choice.plans).for_each(limit::tighten);
        best.iter().try_for_each(Choice::check)?;
        Ok(best)
    }

    fn cheapest(&self, room: u64, known: f64) -> Result<Option<Choice>, PlanError> {
        if self.unlimited_bytes()? <= room {
            return Ok(Some(self.whole()?));
        }
        if known <= self.least_seconds() * (1.0 + NEGLIGIBLE) {
            return Ok(None);
        }
        let mut best: Option<Choice> = None;
        let floor = self.floor()?;
        let whole = self.steps.iter().map(Prepared::nodes).max().unwrap_or(0);
        let fewest = (NODES_OF_WHOLE / whole.max(1)).clamp(*FEWEST.start(), *FEWEST.end());
        let nearest = (NODES / self.most_nodes().max(1)).clamp(fewest, NEAREST);
        for rung in rungs(self.unlimited_bytes()?, floor).filter(|rung| *rung <= room).take(nearest) {
            let beat = best.as_ref().map_or(known, |b| b.seconds().min(known));
            if best.is_some() && beat <= self.least_seconds() * (1.0 + NEGLIGIBLE) {
                break;
            }
            let Some(choice) = self.at_rung(rung, beat)? else { break };
            if best.as_ref().is_none_or(|b| choice.is_better_than(b, self.options.node_bytes)) {
                best = Some(choice);
            }
        }
        if best.is_some() || known < f64::INFINITY {
            return Ok(best);
        }
        // The search that decides whether there is a way looks further.
        for n in [0, self.movable.len()] {
            if let Some(way) = self.feasible(n, room)? {
                let way = self.improve(way, room, Effort::QUICK)?;
                return Ok(Some(self.finish(way, room)?));
            }
        }
        Ok(None)
    }

    /// Bytes of states and arena that no choice can do without.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn floor(&self) -> Result<u64, PlanError> {
        let layout = self.layout(self.movable.len());
        let mut most = 0;
        for step in 0..self.steps.len() {
            let floors = self.step(step, &self.options).floors(&layout)?;
            most = most.max(floors.first().map_or(0, |(floor, _)| *floor));
        }
        Ok(layout.bytes() + most)
    }

    /// Seconds that no choice is below.
    fn least_seconds(&self) -> f64 {
        self.seconds.iter().map(|s| s.iter().copied().fold(f64::INFINITY, f64::min)).sum()
    }

    /// The choice of a rung, if there is one that may be cheaper than what is known.
    fn at_rung(&self, room: u64, known: f64) -> Result<Option<Choice>, PlanError> {
        let plain: f64 = self.seconds.iter().map(|s| s[0]).sum();
        let most = plain + HOPELESS * (known - plain);
        // Few states in the file first: reading and writing them costs more than what they make room for, mostly.
        let mut best: Option<Choice> = None;
        let movable = self.movable.len() as f64;
        let mut layouts: Vec<usize> = LAYOUTS.iter().map(|part| (movable * part).round() as usize).collect();
        layouts.dedup();
        for n in layouts {
            if best.as_ref().is_some_and(|b| b.extra_seconds() <= CHEAP * b.seconds()) {
                break;
            }
            // With ever more of them there it becomes cheaper up to some point, mostly, and then dearer.
            match (&best, self.quick(n, room, best.as_ref().map_or(most, Choice::seconds))?) {
                (_, Some(choice)) => best = Some(choice),
                (Some(_), None) => break,
                (None, None) => {}
            }
        }
        best.map(|found| self.finish(found, room)).transpose()
    }

    /// The cheapest way that is found at once with `n` states in the file, if it takes less than `below` seconds.
    fn quick(&self, n: usize, room: u64, below: f64) -> Result<Option<Choice>, PlanError> {
        let layout = self.layout(n);
        let options = hasty(&self.options);
        let Some(space) = room.checked_sub(layout.bytes()) else { return Ok(None) };
        let mut plans: Vec<Plan> = Vec::with_capacity(self.steps.len());
        // What steps that are not planned yet take at least counts too.
        let mut left = below - self.seconds.iter().map(|s| s[0]).sum::<f64>();
        for i in 0..self.steps.len() {
            let limit = space.saturating_sub(self.nodes_of_others(i));
            let planning = self.step(i, &options);
            let plan = planning.cheapest_within(&layout, limit, None, left + self.seconds[i][0])?;
            let Some(plan) = plan else { return Ok(None) };
            left -= plan.recomputed.seconds - self.seconds[i][0];
            plans.push(plan);
        }
        let choice = Choice { layout, plans };
        Ok((choice.bytes(self.options.node_bytes) <= room).then_some(choice))
    }

    /// Whether there is a way to keep within `room` bytes: whether [`Chooser::within`] finds one.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn exists(&self, room: u64) -> Result<bool, PlanError> {
        Ok(self.unlimited_bytes()? <= room
            || self.found(0, room)?.is_some()
            || self.found(self.movable.len(), room)?.is_some())
    }

    /// The same choice after a longer search for cheaper plans.
    fn finish(&self, choice: Choice, room: u64) -> Result<Choice, PlanError> {
        if choice.plans.iter().all(|p| p.recomputed.nodes + p.recomputed.transfers == 0) {
            return Ok(choice);
        }
        self.improve(choice, room, self.options.search)
    }

    /// A step, to be planned with these options.
    fn step<'s>(&'s self, index: usize, options: &'s Options) -> Planning<'s> {
        Planning { step: &self.steps[index], seconds: &self.seconds[index], options }
    }

    /// A layout with the first `n` movable states in the file, besides those that live there.
    fn layout(&self, n: usize) -> StateLayout {
        let there = self.states.iter().filter(|s| s.filed).map(|s| s.name.as_str());
        let filed: HashSet<&str> =
            self.movable[..n].iter().map(|&i| self.states[i].name.as_str()).chain(there).collect();
        StateLayout::with_file(self.states.iter().map(|s| (s.name.as_str(), s.ty)), |name| filed.contains(name))
    }

    /// Some way to keep within the room with `n` states in the file.
    fn feasible(&self, n: usize, room: u64) -> Result<Option<Choice>, PlanError> {
        let Some(found) = self.found(n, room)? else { return Ok(None) };
        let layout = self.layout(n);
        let plans = found.into_iter().enumerate().map(|(i, found)| self.step(i, &self.plain).plan_of(found, &layout));
        Ok(Some(Choice { plans: plans.collect::<Result<_, _>>()?, layout }))
    }

    /// That there is one: what was found for every step.
    fn found(&self, n: usize, room: u64) -> Result<Option<Vec<Found>>, PlanError> {
        let layout = self.layout(n);
        let mut less = 0;
        // A step that is cut has more nodes than were left room for when the others were planned.
        for _ in 0..4 {
            let Some(space) = room.checked_sub(layout.bytes() + less) else { return Ok(None) };
            let mut all = Vec::with_capacity(self.steps.len());
            for i in 0..self.steps.len() {
                let Some(limit) = space.checked_sub(self.nodes_of_others(i)) else { return Ok(None) };
                let Some(found) = self.step(i, &self.plain).some_within(&layout, limit)? else { return Ok(None) };
                all.push(found);
            }
            let arena = all.iter().map(|f| f.size().arena).max().unwrap_or(0);
            let nodes: u64 = all.iter().map(|f| f.size().nodes).sum();
            match (layout.bytes() + arena + self.options.node_bytes * nodes).checked_sub(room) {
                None | Some(0) => return Ok(Some(all)),
                Some(over) => less += over + 4 * GRAIN,
            }
        }
        Ok(None)
    }

    /// Bytes that the nodes of all steps but one take, when they are not cut.
    fn nodes_of_others(&self, step: usize) -> u64 {
        let others = self.steps.iter().enumerate().filter(|(i, _)| *i != step);
        others.map(|(_, s)| s.overhead(0, &self.options)).sum()
    }

    /// The cheapest plans found with the same layout.
    fn improve(&self, way: Choice, room: u64, effort: Effort) -> Result<Choice, PlanError> {
        let mut best = way;
        let options = match effort {
            Effort::QUICK => hasty(&self.options),
            effort => Options { search: effort, ..self.options.clone() },
        };
        for i in 0..self.steps.len() {
            let nodes = |plan: &Plan| self.options.node_bytes * plan.graph.nodes().len() as u64;
            let others = best.bytes(self.options.node_bytes) - best.bytes(0) - nodes(&best.plans[i]);
            let limit = room.saturating_sub(best.layout.bytes() + others);
            if effort == Effort::QUICK {
                // It was found by costs that nobody measured.
                let plan = &mut best.plans[i];
                let time = predict(&plan.graph, plan.instructions.iter().map(|i| i.node), &options.costs);
                (plan.recomputed.seconds, plan.recomputed.score) = (time.seconds, time.score);
                plan.recomputed.extra_seconds = time.seconds - self.seconds[i][0];
            }
            let found = best.plans[i].clone();
            let plan = self.step(i, &options).cheapest_within(&best.layout, limit, Some(found), f64::INFINITY)?;
            let before = std::mem::replace(&mut best.plans[i], plan.expect("one was known"));
            if best.bytes(self.options.node_bytes) > room {
                best.plans[i] = before;
            }
        }
        Ok(best)
    }

    /// The refusal of a room, with the smallest that would do.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn refusal(&self, room: u64) -> Result<Refusal, PlanError> {
        let whole = self.whole()?;
        let mut least: Option<(u64, Need)> = None;
        let mut layouts = vec![self.movable.len(), 0];
        layouts.dedup();
        for n in layouts {
            let layout = self.layout(n);
            let mut floors = Vec::with_capacity(self.steps.len());
            for i in 0..self.steps.len() {
                let lowest = self.step(i, &self.plain).floors(&layout)?;
                floors.push((lowest.first().map_or(0, |(floor, _)| *floor) + self.nodes_of_others(i), i));
            }
            floors.sort_unstable_by(|a, b| b.cmp(a));
            if least.as_ref().is_some_and(|(bytes, _)| layout.bytes() + floors[0].0 >= *bytes) {
                continue;
            }
            // The room must do for all steps: the one that needs most decides, and the others need not be looked into.
            let (mut bytes, mut most) = (0, Need::default());
            for (_, i) in floors {
                let (step, others) = (self.step(i, &self.plain), self.nodes_of_others(i));
                if bytes > others && step.soon_within(&layout, bytes - others)?.is_some() {
                    continue;
                }
                let need = step.smallest(&layout)?;
                let needed = need.size.bytes(self.options.node_bytes) + others;
                if needed > bytes {
                    (bytes, most) = (needed, need);
                }
            }
            bytes += layout.bytes();
            // Told is what was tried.
            let (hoped, mut more) = (bytes, GRAIN);
            while self.found(n, bytes)?.is_none() && more <= self.unlimited_bytes()? {
                bytes = hoped + more;
                more *= 2;
            }
            if least.as_ref().is_none_or(|(least, _)| bytes < *least) {
                least = Some((bytes, most));
            }
        }
        let (smallest, Need { floor, floor_op, .. }) = least.unwrap_or_default();
        let largest = whole.plans.iter().max_by_key(|p| p.arena_bytes).expect("a model has a step");
        let unlimited = whole.bytes(self.options.node_bytes);
        Ok(Refusal { room, smallest, floor, floor_op, unlimited, states: whole.layout.bytes(), peak: explain(largest) })
    }
}

/// Why nothing can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// What there is for states and arena.
    pub room: u64,
    /// The smallest room for which a way was found; it does not depend on the room asked for.
    pub smallest: u64,
    /// What one op needs of it, whatever is done.
    pub floor: u64,
    /// That op, and its layer.
    pub floor_op: String,
    /// What the steps take when nothing is done to need less.
    pub unlimited: u64,
    /// Of which for states.
    pub states: u64,
    /// What is alive when the largest step needs most.
    pub peak: Explanation,
}

impl Choice {
    /// Bytes of states, the largest arena, and so many for every node of the plans, which are all there at once.
    pub fn bytes(&self, node_bytes: u64) -> u64 {
        let nodes: usize = self.plans.iter().map(|p| p.graph.nodes().len()).sum();
        let arena = self.plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0);
        self.layout.bytes() + arena + node_bytes * nodes as u64
    }

    /// Proves every plan safe: none runs before.
    fn check(&self) -> Result<(), PlanError> {
        self.plans.iter().try_for_each(|p| check(&p.graph, p)).map_err(PlanError::from)
    }

    /// Seconds of all steps once, as estimated.
    pub fn seconds(&self) -> f64 {
        self.plans.iter().map(|p| p.recomputed.seconds).sum()
    }

    /// Whether it takes less time than another, or as much and less memory.
    fn is_better_than(&self, other: &Choice, node_bytes: u64) -> bool {
        let of = |choice: &Choice| (choice.seconds(), choice.bytes(node_bytes));
        of(self).partial_cmp(&of(other)).is_some_and(|order| order.is_lt())
    }

    /// Of which for keeping the limit.
    pub fn extra_seconds(&self) -> f64 {
        self.plans.iter().map(|p| p.recomputed.extra_seconds).sum()
    }
}

/// The rooms for which there are choices, from what is needed without a limit down to the floor: the nearer to that the closer together.
fn rungs(unlimited: u64, floor: u64) -> impl Iterator<Item = u64> {
    let below = move |rung: &u64| {
        let apart = (rung.saturating_sub(floor) / NEAR_FLOOR).min(unlimited / RUNGS).max(GRAIN);
        rung.checked_sub(apart).filter(|next| *next >= floor)
    };
    std::iter::successors(Some(unlimited), below).skip(1)
}

/// The same options with the first run and the first packing that are found.
fn hasty(options: &Options) -> Options {
    Options { search: Effort::QUICK, effort: place::Effort::QUICK, ..options.clone() }
}
