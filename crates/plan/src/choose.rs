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
//! That is chosen from a ladder of rooms that is the model's own (`ladder.rs`); `step.rs` plans one step in one way.

mod ladder;
mod step;

use crate::evict::Effort;
use crate::place;
use crate::predict::predict;
use crate::split::{Batch, Cut, Splitter};
use crate::{
    CostModel, Explanation, Options, Plan, PlanError, Reserve, StateLayout, check, explain, fuse, limit, schedule,
};
use plimsoll_graph::{Graph, NodeId};
use plimsoll_tensor::TensorType;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;
use step::{Bounds, Found, Need, Planning, Prepared, Size};

/// By how much more is tried where a little too much was hoped for.
const GRAIN: u64 = 64 << 10;

/// How often steps are planned at most until they fit beside each other: a step that is cut has more nodes than were left room for when those before
/// it were planned.
const ROUNDS: usize = 4;

/// A room is tight up to this part of the floor above it.
const TIGHT: u64 = 4;

/// A step to be planned.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// What it computes.
    pub graph: &'a Graph,
    /// Its batch, if it has one: what can be cut into slices.
    pub batch: Option<Batch>,
    /// The only way in which it may be cut, if the planner is not to look for ways itself. One that is not exact was asked for: then it is not run whole.
    pub cut: Option<Cut>,
}

impl Step<'_> {
    /// The order in which its nodes run, cut as the step says.
    ///
    /// # Errors
    /// When the graph breaks its own rules.
    pub fn order(&self) -> Result<Vec<NodeId>, PlanError> {
        let fused = fuse::fuse(self.graph)?;
        let cut = self.batch.as_ref().zip(self.cut).filter(|(batch, cut)| cut.entries < batch.entries);
        let Some((batch, cut)) = cut else { return Ok(schedule::schedule(&fused)) };
        Ok(schedule::schedule(&Splitter::new(&fused, batch, cut).build()?.graph))
    }
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
    /// What the room of their arena is for besides.
    pub reserve: Reserve,
}

/// The steps of a model, looked at from all sides: made once, asked for one room after another.
pub struct Chooser<'a> {
    /// The different ones.
    steps: Rc<Vec<Prepared>>,
    /// By step as it was asked for: which of these it is.
    which: Rc<Vec<usize>>,
    /// By step: what its variants take without a limit, by the costs.
    seconds: Vec<Vec<f64>>,
    /// By step: what is known of the least that its variants take within limits, by the costs.
    bounds: Vec<Bounds>,
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
    /// `options.recompute` values may be computed again, with `options.spill` values and states may be moved to a file. A step on the same
    /// graph as an earlier one, in the same batch, gets a copy of its plan.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn new(steps: &[Step<'_>], states: &'a [State], options: &Options) -> Result<Chooser<'a>, PlanError> {
        let is_same =
            |a: &Step<'_>, b: &Step<'_>| std::ptr::eq(a.graph, b.graph) && (&a.batch, a.cut) == (&b.batch, b.cut);
        let (mut different, mut which): (Vec<&Step<'_>>, Vec<usize>) = Default::default();
        for step in steps {
            let known = different.iter().position(|other| is_same(step, other));
            which.push(known.unwrap_or(different.len()));
            different.extend(known.is_none().then_some(step));
        }
        let times = |i: usize| which.iter().filter(|&&step| step == i).count();
        let prepared = different.iter().enumerate().map(|(i, step)| Prepared::new(step, times(i), options));
        Ok(Chooser::of(Rc::new(prepared.collect::<Result<_, _>>()?), Rc::new(which), states, options))
    }

    /// The same steps with other costs, or with other ways to keep a limit but for cutting them.
    pub fn with(&self, options: &Options) -> Chooser<'a> {
        debug_assert_eq!(self.options.split, options.split);
        Chooser::of(self.steps.clone(), self.which.clone(), self.states, options)
    }

    /// The same with other costs.
    pub fn at(&self, costs: &CostModel) -> Chooser<'a> {
        self.with(&Options { costs: costs.clone(), ..self.options.clone() })
    }

    fn of(steps: Rc<Vec<Prepared>>, which: Rc<Vec<usize>>, states: &'a [State], options: &Options) -> Chooser<'a> {
        let mut movable: Vec<usize> = Vec::new();
        if options.spill {
            movable.extend((0..states.len()).filter(|&i| states[i].rank.is_some() && !states[i].filed));
            movable.sort_by_key(|&i| (states[i].rank, std::cmp::Reverse(states[i].ty.bytes()), i));
        }
        let seconds = steps.iter().map(|step| step.seconds(&options.costs)).collect();
        let bounds = steps.iter().map(|_| Bounds::default()).collect();
        let plain = Options { costs: CostModel::default(), ..hasty(options) };
        Chooser {
            steps,
            which,
            seconds,
            bounds,
            states,
            movable,
            options: options.clone(),
            plain,
            whole_bytes: OnceCell::new(),
        }
    }

    /// The nodes of the largest graph that is looked at: what the search takes grows with it.
    pub fn most_nodes(&self) -> usize {
        self.steps.iter().map(Prepared::most_nodes).max().unwrap_or(0)
    }

    /// Seconds of all steps, each as its variants tell.
    fn sum_of(&self, seconds: impl Fn(&[f64]) -> f64) -> f64 {
        self.which.iter().map(|&i| seconds(&self.seconds[i])).sum()
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
        let plans = (0..self.steps.len()).map(|i| self.step(i, &self.options).whole(&layout));
        let plans = plans.collect::<Result<_, _>>()?;
        Ok(self.choice(layout, plans))
    }

    /// The choice with these plans of the different steps.
    fn choice(&self, layout: StateLayout, plans: Vec<Plan>) -> Choice {
        let (mut all, mut different) = (Vec::<Plan>::with_capacity(self.which.len()), plans.into_iter());
        for (place, step) in self.which.iter().enumerate() {
            let known = self.which[..place].iter().position(|other| other == step).map(|same| all[same].clone());
            all.push(known.or_else(|| different.next()).expect("every step has a plan"));
        }
        Choice { layout, plans: all, reserve: self.options.reserve }
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

    /// The cheapest plan that is found soon for the first step, with all states where they are now, in an arena of so many bytes that is there already and with so many
    /// nodes at most; checked. Its nodes run in the order `like` others where they may.
    ///
    /// # Errors
    /// When a graph breaks its own rules, or a plan is unsafe, which would be a bug.
    pub fn in_arena(&self, arena: u64, nodes: u64, like: &[NodeId]) -> Result<Option<Plan>, PlanError> {
        let layout = self.layout(0);
        // Where hardly anything fits, it was found by costs that nobody measured, or after a longer search.
        let harder = |options: &Options| Options {
            search: Effort { states: Effort::QUICK.states, ..Effort::NORMAL },
            effort: place::Effort::NORMAL,
            ..options.clone()
        };
        let mut plan = None;
        for options in [self.options.clone(), self.plain.clone(), harder(&self.options), harder(&self.plain)] {
            plan = self.step(0, &options).in_arena(&layout, Size { arena, nodes }, like)?;
            if plan.is_some() {
                break;
            }
        }
        plan.iter_mut().for_each(limit::tighten);
        plan.iter().try_for_each(|plan| check(&plan.graph, plan))?;
        Ok(plan)
    }

    /// Bytes of states and arena that no choice can do without.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn floor(&self) -> Result<u64, PlanError> {
        let layout = self.layout(self.movable.len());
        let mut most = 0;
        for step in 0..self.steps.len() {
            most = most.max(self.step(step, &self.options).floor(&layout)?);
        }
        Ok(layout.bytes() + most)
    }

    /// Whether a room is not much larger than what no choice can do without: what keeps within it takes long, and long to find.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn is_tight(&self, room: u64) -> Result<bool, PlanError> {
        let floor = self.floor()?;
        Ok(room < floor + floor / TIGHT)
    }

    /// Whether there is a way to keep within `room` bytes: whether [`Chooser::within`] finds one.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn exists(&self, room: u64) -> Result<bool, PlanError> {
        Ok(self.unlimited_bytes()? <= room || self.is_found(0, room)? || self.is_found(self.movable.len(), room)?)
    }

    /// Whether [`Chooser::found`] finds something. What is known to keep within the room is not looked for again.
    fn is_found(&self, n: usize, room: u64) -> Result<bool, PlanError> {
        let layout = self.layout(n);
        let Some(space) = room.checked_sub(layout.bytes()) else { return Ok(false) };
        let is_known = (0..self.steps.len()).all(|i| self.step(i, &self.plain).known_smallest(&layout).is_some());
        Ok(is_known && self.least_of_all(&layout, space)?.is_some() || self.found(n, room)?.is_some())
    }

    /// A step, to be planned with these options.
    fn step<'s>(&'s self, index: usize, options: &'s Options) -> Planning<'s> {
        let step = &self.steps[index];
        Planning { step, seconds: &self.seconds[index], bounds: &self.bounds[index], options: step.options(options) }
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
        let plans = found.into_iter().enumerate().map(|(i, found)| {
            let mut plan = self.step(i, &self.plain).plan_of(found, &layout)?;
            // It was found by costs that nobody measured.
            let time = predict(&plan.graph, plan.instructions.iter().map(|i| i.node), &self.options.costs);
            (plan.recomputed.seconds, plan.recomputed.score) = (time.seconds, time.score);
            plan.recomputed.extra_seconds = time.seconds - self.seconds[i][0];
            Ok(plan)
        });
        let plans = plans.collect::<Result<_, PlanError>>()?;
        Ok(Some(self.choice(layout, plans)))
    }

    /// That there is one: what was found for every step.
    fn found(&self, n: usize, room: u64) -> Result<Option<Vec<Found>>, PlanError> {
        let layout = self.layout(n);
        let Some(space) = room.checked_sub(layout.bytes()) else { return Ok(None) };
        let soon =
            self.each_within(space, Found::size, |i, limit| self.step(i, &self.plain).some_within(&layout, limit))?;
        if soon.is_some() {
            return Ok(soon);
        }
        let least = |need: Need| Found::Least { variant: need.variant, size: need.size };
        Ok(self.least_of_all(&layout, space)?.map(|needs| needs.into_iter().map(least).collect()))
    }

    /// The least that every step needs, if all keep within the space then.
    fn least_of_all(&self, layout: &StateLayout, space: u64) -> Result<Option<Vec<Need>>, PlanError> {
        let (mut needs, mut arena, mut nodes) = (Vec::with_capacity(self.steps.len()), 0, 0);
        for i in 0..self.steps.len() {
            let below = (space - nodes).saturating_add(1);
            let Some(need) = self.step(i, &self.plain).smallest(layout, below)? else { return Ok(None) };
            (arena, nodes) = (need.size.arena.max(arena), nodes + self.node_bytes(i) * need.size.nodes);
            if self.options.reserve.of(arena) + nodes > space {
                return Ok(None);
            }
            needs.push(need);
        }
        Ok(Some(needs))
    }

    /// What a node of a step takes, wherever the step is.
    fn node_bytes(&self, step: usize) -> u64 {
        self.options.node_bytes * self.steps[step].times as u64
    }

    /// What `plan` gives for every step and a limit for its arena and nodes, so that all keep within the space: they share the arena, but the nodes of all
    /// are there at once. A step is planned beside the nodes of the others, which are known once these are planned.
    fn each_within<T>(
        &self,
        space: u64,
        size: impl Fn(&T) -> Size,
        mut plan: impl FnMut(usize, u64) -> Result<Option<T>, PlanError>,
    ) -> Result<Option<Vec<T>>, PlanError> {
        let mut nodes: Vec<u64> = (0..self.steps.len()).map(|i| self.step(i, &self.options).overhead(0)).collect();
        for _ in 0..ROUNDS {
            let (mut all, mut arena) = (Vec::<T>::with_capacity(self.steps.len()), 0);
            for i in 0..self.steps.len() {
                let others = nodes.iter().sum::<u64>() - nodes[i];
                let Some(limit) = space.checked_sub(others).map(|space| self.options.reserve.within(space)) else {
                    return Ok(None);
                };
                let Some(found) = plan(i, limit)? else { return Ok(None) };
                let size = size(&found);
                (nodes[i], arena) = (self.node_bytes(i) * size.nodes, arena.max(size.arena));
                all.push(found);
            }
            if self.options.reserve.of(arena) + nodes.iter().sum::<u64>() <= space {
                return Ok(Some(all));
            }
        }
        Ok(None)
    }

    /// The smallest room for which a way is found, with how many states in the file, and what it is needed for.
    fn least_room(&self) -> Result<(u64, usize, Need), PlanError> {
        let mut least: Option<(u64, usize, Need)> = None;
        let mut layouts = vec![self.movable.len(), 0];
        layouts.dedup();
        for n in layouts {
            let layout = self.layout(n);
            let below = least.as_ref().map_or(u64::MAX, |(bytes, ..)| bytes - 1);
            let Some(space) = below.checked_sub(layout.bytes()) else { continue };
            let Some(needs) = self.least_of_all(&layout, space)? else { continue };
            let arena = self.options.reserve.of(needs.iter().map(|need| need.size.arena).max().unwrap_or(0));
            let nodes: u64 = needs.iter().enumerate().map(|(i, need)| self.node_bytes(i) * need.size.nodes).sum();
            let most = needs.into_iter().max_by_key(|need| need.size.bytes(self.options.node_bytes));
            let bytes = layout.bytes() + arena + nodes;
            least = Some((bytes, n, most.unwrap_or_default()));
        }
        Ok(least.unwrap_or_default())
    }

    /// The refusal of a room, with the smallest that would do.
    ///
    /// # Errors
    /// When a graph breaks its own rules.
    pub fn refusal(&self, room: u64) -> Result<Refusal, PlanError> {
        let whole = self.whole()?;
        let (smallest, _, Need { floor, floor_op, .. }) = self.least_room()?;
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
        self.layout.bytes() + self.arena_bytes() + node_bytes * nodes as u64
    }

    /// Bytes that the arena counts for: those of the largest plan's, or more where its room serves others, too.
    pub fn arena_bytes(&self) -> u64 {
        self.reserve.of(self.plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0))
    }

    /// The same with arenas that are no larger than what is alive in them.
    fn alive_bytes(&self, node_bytes: u64) -> u64 {
        let alive = self.reserve.of(self.plans.iter().map(|p| p.live_bytes).max().unwrap_or(0));
        self.bytes(node_bytes) - self.arena_bytes() + alive
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

/// The same options with the first run and the first packing that are found.
fn hasty(options: &Options) -> Options {
    Options { search: Effort::QUICK, effort: place::Effort::QUICK, ..options.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::SplitInfo;
    use plimsoll_graph::{Value, gradients};
    use plimsoll_tensor::DType;

    /// The loss of a chain of layers, and its states; with gradient descent if it is a training step.
    fn chain(rows: usize, layers: usize, trains: bool) -> (Graph, Vec<State>) {
        let mut g = Graph::new();
        let f32 = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let ty = f32(&[64, 64]);
        let names: Vec<String> = (0..layers).map(|i| format!("w{i}")).collect();
        let weights: Vec<Value> = names.iter().map(|name| g.state(name, ty)).collect();
        let mut h = g.input("x", f32(&[rows, 64]));
        for &weight in &weights {
            let y = g.matmul(h, weight).unwrap();
            h = g.tanh(y).unwrap();
        }
        let square = g.square(h).unwrap();
        let loss = g.mean_all(square).unwrap();
        g.output("loss", loss);
        if trains {
            let grads = gradients(&mut g, loss, &weights).unwrap();
            for (weight, grad) in weights.into_iter().zip(grads) {
                let step = g.scale(grad.unwrap(), -0.1).unwrap();
                let new = g.add(weight, step).unwrap();
                g.assign(weight, new).unwrap();
            }
        }
        (g, names.into_iter().map(|name| State { name, ty, rank: Some(0), filed: false }).collect())
    }

    /// However finely the training is cut: an evaluation beside it gets what its many nodes leave, not what they would leave if it were whole.
    #[test]
    fn steps_do_with_the_largest_arena_and_the_nodes_of_all() {
        let rows = 4096;
        let ((training, states), (evaluation, _)) = (chain(rows, 24, true), chain(rows, 24, false));
        let step = |graph| Step { graph, batch: Some(Batch { entries: rows, inputs: vec!["x".into()] }), cut: None };
        for (recompute, spill) in [(true, false), (false, true), (true, true)] {
            let options = Options { recompute, spill, split: true, node_bytes: 2048, ..Options::default() };
            let chooser = |steps: &[Step<'_>]| Chooser::new(steps, &states, &options).unwrap();
            let both = chooser(&[step(&training), step(&evaluation)]);
            let told = both.refusal(0).unwrap().smallest;
            let together = [0, both.movable.len()].map(|n| {
                let layout = both.layout(n);
                let alone = [&training, &evaluation].map(|graph| {
                    let alone = chooser(&[step(graph)]);
                    alone.step(0, &alone.plain).smallest(&layout, u64::MAX).unwrap().unwrap().size
                });
                let nodes: u64 = alone.iter().map(|size| size.nodes).sum();
                layout.bytes() + alone[0].arena.max(alone[1].arena) + options.node_bytes * nodes
            });
            println!("recompute {recompute}, spill {spill}: {told} told, {together:?} do");
            assert!(together.iter().all(|bytes| told <= *bytes), "{told} is told where {together:?} do");
            let choice = both.within(told, f64::INFINITY).unwrap().expect("the smallest room does");
            assert!(choice.bytes(options.node_bytes) <= told);
        }
    }

    /// Whatever the size of a batch turns out to be: where whole batches have room, in the same slices, so have smaller ones.
    #[test]
    fn batches_of_fewer_rows_fit_where_whole_ones_do() {
        let rows = 700;
        let (whole, states) = chain(rows, 8, true);
        let batch = |entries| Some(Batch { entries, inputs: vec!["x".into()] });
        let mut n_cut = 0;
        for [split, recompute, spill] in [[true, false, false], [false, true, false], [false, false, true], [true; 3]] {
            let options = Options { recompute, spill, split, node_bytes: 256, ..Options::default() };
            let step = Step { graph: &whole, batch: batch(rows), cut: None };
            let chooser = Chooser::new(&[step], &states, &options).unwrap();
            let told = chooser.refusal(0).unwrap().smallest;
            let choice = chooser.within(told, f64::INFINITY).unwrap().expect("the smallest room does");
            let plan = &choice.plans[0];
            let cut = plan.split.as_ref().map(SplitInfo::cut);
            n_cut += cut.is_some() as usize;
            let filed = |state: &State| State {
                rank: None,
                filed: choice.layout.in_file(&state.name).is_some(),
                ..state.clone()
            };
            let states: Vec<State> = states.iter().map(filed).collect();
            let nodes = plan.graph.nodes().len() + 8 + whole.nodes().len() / 4;
            let order = Step { graph: &whole, batch: batch(rows), cut }.order().unwrap();
            for fewer in [1, 2, 3, 63, 64, 65, 127, 129, 255, 256, 257, 383, 449, 511, 513, 577, 639, 641, 698, 699] {
                let graph = chain(fewer, 8, true).0;
                let cut = cut.map(|cut| cut.for_fewer(rows));
                let step = Step { graph: &graph, batch: batch(fewer), cut };
                let options = Options { split: cut.is_some(), ..options.clone() };
                let chooser = Chooser::new(&[step], &states, &options).unwrap();
                let room = Reserve { least: 0, spare: true }.of(plan.arena_bytes);
                let found = chooser.in_arena(room, nodes as u64, &order).unwrap();
                let found = found.unwrap_or_else(|| panic!("{fewer} of {rows} rows, {split} {recompute} {spill}"));
                assert!(found.arena_bytes <= room && found.graph.nodes().len() <= nodes);
            }
        }
        assert!(n_cut > 0, "no whole batch was cut");
    }
}
