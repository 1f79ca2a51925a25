//! Choosing: which mix of splitting, recomputing and moving to a file keeps a limit at the least cost.
//!
//! A model has several steps (training, evaluation, a ragged last batch), which share its states. The room that is left for
//! states and arena is given; out come the layout of the states and a plan for every step, or a refusal with the smallest room
//! that would do.
//!
//! Whether there is a way at all is decided by a search that looks neither at the room asked for nor at measured costs: the
//! number that a refusal tells is the same whoever asks, and planning with exactly that room succeeds. Only then measured costs
//! decide which way is the cheapest.

use crate::evict::{Effort, Problem};
use crate::lifetime::lifetimes;
use crate::limit::Seek;
use crate::place;
use crate::predict::predict;
use crate::split::{self, Batch, Cut, SplitInfo, Splitter};
use crate::{CostModel, Explanation, Options, Plan, PlanError, StateLayout, check, explain, fuse, limit, schedule};
use plimsoll_graph::{Graph, NodeId};
use plimsoll_tensor::TensorType;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

/// By how much more is tried where a little too much was hoped for.
const GRAIN: u64 = 64 << 10;

/// Parts of the states that may go to the file which are tried there.
const LAYOUTS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Where keeping the limit takes no larger part of the time, nothing else is tried.
const CHEAP: f64 = 0.02;

/// How often a plan is made again when it has more nodes than there is room for.
const TRIES: usize = 2;

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
    steps: Vec<Prepared>,
    states: &'a [State],
    /// The states that may go to the file, in the order they go.
    movable: Vec<usize>,
    options: &'a Options,
    /// The same with costs that nobody measured.
    plain: Options,
    whole_bytes: OnceCell<u64>,
}

/// A step with the ways to cut it.
struct Prepared {
    fused: Graph,
    batch: Option<Batch>,
    /// The whole batch first, then ever smaller slices.
    variants: Vec<Variant>,
    /// How long the step takes when it is not cut.
    seconds: f64,
    /// What was found out about floors, by the size of the states in the file.
    floors: RefCell<HashMap<u64, Vec<(u64, usize)>>>,
}

/// A way to cut a step. Its graph can be large, so it is made when it is looked at and not kept.
struct Variant {
    cut: Option<Cut>,
    n_nodes: usize,
    /// How long it takes without a limit, by the measured costs.
    seconds: f64,
}

/// A variant's graph in its order.
struct Opened {
    graph: Graph,
    order: Vec<NodeId>,
    split: Option<SplitInfo>,
}

impl<'a> Chooser<'a> {
    /// Looks at the steps of a model. With `options.split` a step with a batch may be cut into slices, with
    /// `options.recompute` values may be computed again, with `options.spill` values and states may be moved to a file.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn new(steps: &[Step<'_>], states: &'a [State], options: &'a Options) -> Result<Chooser<'a>, PlanError> {
        let steps = steps.iter().map(|s| Prepared::new(s, options)).collect::<Result<Vec<_>, PlanError>>()?;
        let mut movable: Vec<usize> = Vec::new();
        if options.spill {
            movable.extend((0..states.len()).filter(|&i| states[i].rank.is_some() && !states[i].filed));
            movable.sort_by_key(|&i| (states[i].rank, std::cmp::Reverse(states[i].ty.bytes()), i));
        }
        let plain = Options { costs: CostModel::default(), ..hasty(options) };
        Ok(Chooser { steps, states, movable, options, plain, whole_bytes: OnceCell::new() })
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
        let plans = self.steps.iter().map(|s| s.plan(0, &layout, None, self.options, Seek::Smallest));
        Ok(Choice { plans: plans.collect::<Result<_, _>>()?, layout })
    }

    /// What the steps take then, with all nodes.
    fn unlimited_bytes(&self) -> Result<u64, PlanError> {
        if let Some(bytes) = self.whole_bytes.get() {
            return Ok(*bytes);
        }
        let bytes = self.whole()?.bytes(self.options.node_bytes);
        Ok(*self.whole_bytes.get_or_init(|| bytes))
    }

    /// The cheapest way found to keep within `room` bytes of states and arena, if there is one: to be
    /// [finished](Chooser::finish) before it runs.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn within(&self, room: u64) -> Result<Option<Choice>, PlanError> {
        if self.unlimited_bytes()? <= room {
            return Ok(Some(self.whole()?));
        }
        // Few states in the file first: reading and writing them costs more than what they make room for, mostly.
        let mut best: Option<Choice> = None;
        let most = self.movable.len();
        let mut layouts: Vec<usize> = LAYOUTS.iter().map(|part| (most as f64 * part).round() as usize).collect();
        layouts.dedup();
        for n in layouts {
            if best.as_ref().is_some_and(|b| b.extra_seconds() <= CHEAP * b.seconds()) {
                break;
            }
            if let Some(choice) = self.quick(n, room)?
                && best.as_ref().is_none_or(|b| choice.seconds() < b.seconds())
            {
                best = Some(choice);
            }
        }
        if best.is_some() {
            return Ok(best);
        }
        // The search that decides whether there is a way looks further.
        for n in [0, most] {
            if let Some(way) = self.feasible(n, room)? {
                return Ok(Some(self.improve(way, room, Effort::QUICK)?));
            }
        }
        Ok(None)
    }

    /// The cheapest way that is found at once with `n` states in the file.
    fn quick(&self, n: usize, room: u64) -> Result<Option<Choice>, PlanError> {
        let layout = self.layout(n);
        let options = hasty(self.options);
        let Some(space) = room.checked_sub(layout.bytes()) else { return Ok(None) };
        let mut plans = Vec::with_capacity(self.steps.len());
        for (i, step) in self.steps.iter().enumerate() {
            let limit = space.saturating_sub(self.nodes_of_others(i));
            let Some(plan) = step.cheapest_within(&layout, limit, &options, None)? else { return Ok(None) };
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
            || self.feasible(0, room)?.is_some()
            || self.feasible(self.movable.len(), room)?.is_some())
    }

    /// The same choice after a longer search for cheaper plans, checked.
    ///
    /// # Errors
    /// When a plan is unsafe, which would be a bug.
    pub fn finish(&self, choice: Choice, room: u64) -> Result<Choice, PlanError> {
        let mut best = choice;
        if best.plans.iter().any(|p| p.recomputed.nodes + p.recomputed.transfers > 0) {
            best = self.improve(best, room, self.options.search)?;
        }
        best.plans = best.plans.into_iter().map(|plan| limit::tighten(plan, limit::PACKING)).collect();
        best.check()?;
        Ok(best)
    }

    /// A layout with the first `n` movable states in the file, besides those that live there.
    fn layout(&self, n: usize) -> StateLayout {
        let there = self.states.iter().filter(|s| s.filed).map(|s| s.name.as_str());
        let filed: HashSet<&str> =
            self.movable[..n].iter().map(|&i| self.states[i].name.as_str()).chain(there).collect();
        StateLayout::with_file(self.states.iter().map(|s| (s.name.as_str(), s.ty)), |name| filed.contains(name))
    }

    /// Some way to keep within the room with `n` states in the file: the first found for every step.
    fn feasible(&self, n: usize, room: u64) -> Result<Option<Choice>, PlanError> {
        let layout = self.layout(n);
        let mut less = 0;
        // A step that is cut has more nodes than were left room for when the others were planned.
        for _ in 0..4 {
            let Some(space) = room.checked_sub(layout.bytes() + less) else { return Ok(None) };
            let mut plans = Vec::with_capacity(self.steps.len());
            for i in 0..self.steps.len() {
                let Some(limit) = space.checked_sub(self.nodes_of_others(i)) else { return Ok(None) };
                let Some(plan) = self.steps[i].some_within(&layout, limit, &self.plain)? else { return Ok(None) };
                plans.push(plan);
            }
            let choice = Choice { layout: layout.clone(), plans };
            match choice.bytes(self.options.node_bytes).checked_sub(room) {
                None | Some(0) => return Ok(Some(choice)),
                Some(over) => less += over + 4 * GRAIN,
            }
        }
        Ok(None)
    }

    /// Bytes that the nodes of all steps but one take, when they are not cut.
    fn nodes_of_others(&self, step: usize) -> u64 {
        let others = self.steps.iter().enumerate().filter(|(i, _)| *i != step);
        others.map(|(_, s)| s.overhead(0, self.options)).sum()
    }

    /// The cheapest plans found with the same layout.
    fn improve(&self, way: Choice, room: u64, effort: Effort) -> Result<Choice, PlanError> {
        let mut best = way;
        let options = match effort {
            Effort::QUICK => hasty(self.options),
            effort => Options { search: effort, ..self.options.clone() },
        };
        for i in 0..self.steps.len() {
            let nodes = |plan: &Plan| self.options.node_bytes * plan.graph.nodes().len() as u64;
            let others = best.bytes(self.options.node_bytes) - best.bytes(0) - nodes(&best.plans[i]);
            let limit = room.saturating_sub(best.layout.bytes() + others);
            if effort == Effort::QUICK {
                let plan = &mut best.plans[i];
                let order = plan.instructions.iter().map(|i| i.node);
                plan.recomputed.seconds = predict(&plan.graph, order, &options.costs).seconds;
            }
            let found = best.plans[i].clone();
            let plan = self.steps[i].cheapest_within(&best.layout, limit, &options, Some(found))?;
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
        let mut least: Option<Need> = None;
        let mut layouts = vec![self.movable.len(), 0];
        layouts.dedup();
        for n in layouts {
            let layout = self.layout(n);
            let mut floor = 0;
            for step in &self.steps {
                floor = floor.max(step.lowest(&layout, &self.plain)?.first().map_or(0, |(floor, _)| *floor));
            }
            if least.as_ref().is_some_and(|l| layout.bytes() + floor >= l.bytes) {
                continue;
            }
            // The room must do for all steps: the one that needs most decides.
            let mut most = Need::default();
            for (i, step) in self.steps.iter().enumerate() {
                let mut need = step.smallest(&layout, &self.plain)?;
                need.bytes += self.nodes_of_others(i);
                if need.bytes >= most.bytes {
                    most = need;
                }
            }
            most.bytes += layout.bytes();
            // Told is what was tried.
            let (hoped, mut more) = (most.bytes, GRAIN);
            while self.feasible(n, most.bytes)?.is_none() && more <= self.unlimited_bytes()? {
                most.bytes = hoped + more;
                more *= 2;
            }
            if least.as_ref().is_none_or(|l| most.bytes < l.bytes) {
                least = Some(most);
            }
        }
        let Need { bytes: smallest, floor, floor_op } = least.unwrap_or_default();
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

/// What a step needs at least, and why.
#[derive(Default)]
struct Need {
    bytes: u64,
    floor: u64,
    floor_op: String,
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

    /// Of which for keeping the limit.
    pub fn extra_seconds(&self) -> f64 {
        self.plans.iter().map(|p| p.recomputed.extra_seconds).sum()
    }
}

impl Prepared {
    fn new(step: &Step<'_>, options: &Options) -> Result<Prepared, PlanError> {
        step.graph.verify()?;
        let fused = fuse::fuse(step.graph)?;
        let mut cuts: Vec<Cut> = Vec::new();
        if let Some(batch) = &step.batch {
            match step.slices {
                Some(n) if n > 1 => cuts.push(Cut { entries: batch.entries.div_ceil(n), exact: false }),
                Some(_) => {}
                None if options.split => {
                    cuts.extend(
                        split::candidates(&fused, batch).into_iter().map(|entries| Cut { entries, exact: true }),
                    );
                }
                None => {}
            }
        }
        let seconds = seconds(&fused, options);
        let mut prepared =
            Prepared { fused, batch: step.batch.clone(), variants: Vec::new(), seconds, floors: RefCell::default() };
        if cuts.is_empty() || cuts[0].exact {
            prepared.variants.push(Variant { cut: None, n_nodes: prepared.fused.nodes().len(), seconds });
        }
        let live = live_bytes(&prepared.fused, options);
        for cut in cuts {
            // Nodes take memory too, and planning takes more of it: slices must be worth that.
            let slices = prepared.batch.as_ref().map_or(1, |b| b.entries.div_ceil(cut.entries));
            let nodes = (slices * prepared.fused.nodes().len()) as u64;
            if cut.exact && nodes * options.node_bytes > live / 8 {
                break;
            }
            let opened = prepared.open(Some(cut))?;
            if cut.exact && opened.split.as_ref().is_none_or(|s| s.cut_nodes == 0) {
                break;
            }
            let (n_nodes, seconds) = (opened.graph.nodes().len(), self::seconds(&opened.graph, options));
            prepared.variants.push(Variant { cut: Some(cut), n_nodes, seconds });
        }
        Ok(prepared)
    }

    fn open(&self, cut: Option<Cut>) -> Result<Opened, PlanError> {
        let (graph, split) = match (cut, &self.batch) {
            (Some(cut), Some(batch)) => {
                let split = Splitter::new(&self.fused, batch, cut).build()?;
                (split.graph, Some(split.info))
            }
            _ => (self.fused.clone(), None),
        };
        Ok(Opened { order: schedule::schedule(&graph), graph, split })
    }

    /// Memory outside the arena, with room for nodes that evictions add.
    fn overhead(&self, variant: usize, options: &Options) -> u64 {
        let nodes = self.variants[variant].n_nodes as u64;
        options.node_bytes * if options.recompute || options.spill { nodes + nodes / 2 } else { nodes }
    }

    /// A plan whose arena and nodes keep a limit. A refusal counts both too.
    fn plan(
        &self,
        variant: usize,
        layout: &StateLayout,
        limit: Option<u64>,
        options: &Options,
        seek: Seek,
    ) -> Result<Plan, PlanError> {
        let Opened { graph, order, split } = self.open(self.variants[variant].cut)?;
        let outside = self.overhead(variant, options);
        let mut options = Options { limit: limit.map(|limit| limit.saturating_sub(outside)), ..options.clone() };
        let mut plan = limit::plan_within(graph, &order, layout, &options, seek);
        // What keeps the limit may have more nodes than were left room for.
        for _ in 0..TRIES {
            let (Seek::Plan, Some(limit), Ok(made)) = (seek, limit, &plan) else { break };
            let bytes = made.arena_bytes + options.node_bytes * made.graph.nodes().len() as u64;
            let Some(over) = bytes.checked_sub(limit).filter(|over| *over > 0) else { break };
            options.limit = options.limit.map(|within| within.min(made.arena_bytes).saturating_sub(over + GRAIN));
            plan = limit::plan_within(self.open(self.variants[variant].cut)?.graph, &order, layout, &options, seek);
        }
        let mut plan = plan.map_err(|e| match e {
            PlanError::DoesNotFit { limit, smallest, floor, floor_op, unlimited, peak } => PlanError::DoesNotFit {
                limit: limit + outside,
                smallest: smallest + outside,
                floor: floor + outside,
                floor_op,
                unlimited: unlimited + outside,
                peak,
            },
            other => other,
        })?;
        plan.split = split;
        if plan.recomputed.seconds == 0.0 {
            plan.recomputed.seconds = self.variants[variant].seconds;
        }
        plan.recomputed.extra_seconds = plan.recomputed.seconds - self.seconds;
        Ok(plan)
    }

    /// A plan within the limit, the first that is found.
    fn some_within(&self, layout: &StateLayout, limit: u64, options: &Options) -> Result<Option<Plan>, PlanError> {
        for (floor, i) in self.lowest(layout, options)? {
            if floor <= limit
                && let Ok(plan) = fits(self.plan(i, layout, Some(limit), options, Seek::Smallest))?
            {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// What every variant cannot do without, least first.
    fn floors(&self, layout: &StateLayout, options: &Options) -> Result<Vec<(u64, usize)>, PlanError> {
        let key = layout.file_bytes();
        if let Some(known) = self.floors.borrow().get(&key) {
            return Ok(known.clone());
        }
        let mut floors = Vec::with_capacity(self.variants.len());
        for (i, variant) in self.variants.iter().enumerate() {
            let opened = self.open(variant.cut)?;
            let floor = Problem::of(&opened.graph, &opened.order, layout, options).floor().bytes;
            floors.push((self.overhead(i, options) + floor, i));
        }
        floors.sort_unstable();
        self.floors.borrow_mut().insert(key, floors.clone());
        Ok(floors)
    }

    /// The variant that needs least, and the whole batch: only these decide what is possible, since planning them all would
    /// take longer than a refusal may.
    fn lowest(&self, layout: &StateLayout, options: &Options) -> Result<Vec<(u64, usize)>, PlanError> {
        let mut floors = self.floors(layout, options)?;
        let mut seen = 0;
        floors.retain(|(_, i)| {
            seen += (*i != 0) as usize;
            *i == 0 || seen <= 1
        });
        Ok(floors)
    }

    /// The smallest limit for which a plan is found.
    fn smallest(&self, layout: &StateLayout, options: &Options) -> Result<Need, PlanError> {
        let mut least: Option<Need> = None;
        for (floor, i) in self.lowest(layout, options)? {
            if least.as_ref().is_some_and(|need| floor >= need.bytes) {
                break;
            }
            let need = match fits(self.plan(i, layout, Some(0), options, Seek::Smallest))? {
                Err(need) => need,
                Ok(_) => Need::default(),
            };
            if least.as_ref().is_none_or(|l| need.bytes < l.bytes) {
                least = Some(need);
            }
        }
        Ok(least.expect("a step has a variant"))
    }

    /// The cheapest plan found within the limit, starting from one that is known.
    fn cheapest_within(
        &self,
        layout: &StateLayout,
        limit: u64,
        options: &Options,
        found: Option<Plan>,
    ) -> Result<Option<Plan>, PlanError> {
        let quick = hasty(options);
        let floors = self.floors(layout, options)?;
        // What is known keeps the limit, whatever it costs.
        let entries = |plan: &Plan| plan.split.as_ref().map(|s| s.entries);
        let mut by = found.as_ref().map(|plan| (self.variant_of(entries(plan)), plan.recomputed.seconds));
        let mut cheapest = found;
        let is_searched = options.search != Effort::QUICK;
        for (i, variant) in self.variants.iter().enumerate() {
            let floor = floors.iter().find(|(_, v)| *v == i).map_or(u64::MAX, |f| f.0);
            // A variant is never faster than without a limit.
            let known = by.map_or(f64::INFINITY, |(_, seconds)| seconds);
            if variant.seconds >= known || floor > limit || is_searched && by.is_some_and(|(at, _)| at != i) {
                continue;
            }
            if let Ok(plan) =
                fits(self.plan(i, layout, Some(limit), if is_searched { options } else { &quick }, Seek::Plan))?
                && plan.recomputed.seconds < known
            {
                by = Some((i, plan.recomputed.seconds));
                cheapest = Some(plan);
            }
        }
        Ok(cheapest)
    }

    /// The variant with slices of so many entries.
    fn variant_of(&self, entries: Option<usize>) -> usize {
        self.variants.iter().position(|v| v.cut.map(|c| c.entries) == entries).unwrap_or(0)
    }
}

/// The most bytes that are alive at once when a graph runs plainly.
fn live_bytes(graph: &Graph, options: &Options) -> u64 {
    let lives = lifetimes(graph, &schedule::schedule(graph), options.threads);
    let mut change = vec![0i64; graph.nodes().len() + 2];
    for buffer in &lives.buffers {
        change[buffer.first as usize] += buffer.bytes as i64;
        change[buffer.last as usize + 1] -= buffer.bytes as i64;
    }
    let (mut live, mut most) = (0, 0);
    for c in change {
        live += c;
        most = most.max(live);
    }
    most as u64
}

/// Seconds of a graph whose nodes run in the order they stand in.
fn seconds(graph: &Graph, options: &Options) -> f64 {
    predict(graph, graph.nodes().map(|(id, _)| id), &options.costs).seconds
}

/// The same options with the first run and the first packing that are found.
fn hasty(options: &Options) -> Options {
    Options { search: Effort::QUICK, effort: place::Effort::QUICK, ..options.clone() }
}

/// A plan, or what it would need.
fn fits(plan: Result<Plan, PlanError>) -> Result<Result<Plan, Need>, PlanError> {
    match plan {
        Ok(plan) => Ok(Ok(plan)),
        Err(PlanError::DoesNotFit { smallest, floor, floor_op, .. }) => {
            Ok(Err(Need { bytes: smallest, floor, floor_op }))
        }
        Err(other) => Err(other),
    }
}
