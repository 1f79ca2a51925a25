//! A step of a model with the ways to cut it, and its plans within a limit.

use super::{GRAIN, Step, hasty};
use crate::cost::{Sizes, Work};
use crate::evict::Problem;
use crate::limit::{self, Outcome};
use crate::split::{self, Batch, Cut, SplitInfo, Splitter};
use crate::{CostModel, Options, Plan, PlanError, Reserve, StateLayout, fuse, schedule};
use plimsoll_graph::{Cost, Graph, NodeId};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// What slices cost at least, as a part of the time of the whole batch. Measured without such a floor on a busy machine: U-Net within 0.7 of its memory
/// ran in 4 slices, predicted to be 1 % faster than computing 25 ops again, and took a fifth longer.
const SLICING: f64 = 0.02;

/// A variant that costs so many times more at first may turn out cheaper.
const SIMILAR: f64 = 1.2;

/// How often a plan is made again when it has more nodes than there is room for.
const TRIES: usize = 2;

/// The part of a floor above it from which on there is ample room.
const AMPLE: u64 = 2;

/// By so many of these parts more is looked for where an arena is there already and nothing is found that keeps within it.
const ABOVE: u64 = 4;
const ABOVE_OF: u64 = 16;

/// Stretches that are tried with 2, 4 or 8 slices, where what these sum up is no less than this part of what the whole batch has alive. With 6 to 12 of them the
/// wide network of W6 is predicted to be as fast within half of its memory and without a file, to a hundredth.
const STRETCHES: usize = 6;
const FEW_SLICES: usize = 8;
const MUCH_SUMMED: u64 = 16;

/// A step with the ways to cut it.
pub(super) struct Prepared {
    fused: Graph,
    order: Vec<NodeId>,
    batch: Option<Batch>,
    /// How often it is there: its plan is the same, but every time has nodes of its own.
    pub times: usize,
    /// The whole batch first, then ever smaller slices.
    variants: Vec<Variant>,
    /// What was found out about floors.
    floors: RefCell<HashMap<Ways, Vec<(u64, usize)>>>,
    /// What was found out about the least that variants need.
    least: RefCell<HashMap<(Ways, usize), Least>>,
    /// And the least of these.
    smallest: RefCell<HashMap<Ways, Need>>,
}

/// What needs depend on: what may be done, the size of the states in the file, and what the arena's room is for besides.
type Ways = (bool, bool, u64, Reserve);

/// A way to cut a step. Its graph can be large, so it is made when it is looked at and not kept.
struct Variant {
    cut: Option<Cut>,
    n_nodes: usize,
    /// What runs, and how often.
    bill: Vec<(&'static str, Work, usize)>,
}

/// A variant's graph in its order.
struct Opened<'p> {
    graph: Cow<'p, Graph>,
    order: Cow<'p, [NodeId]>,
    split: Option<SplitInfo>,
}

/// What a plan takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub arena: u64,
    pub nodes: u64,
}

impl Size {
    pub fn of(plan: &Plan) -> Size {
        Size { arena: plan.arena_bytes, nodes: plan.graph.nodes().len() as u64 }
    }

    pub fn bytes(self, node_bytes: u64) -> u64 {
        self.arena + node_bytes * self.nodes
    }
}

/// A plan that keeps a limit.
#[derive(Clone)]
pub(super) enum Found {
    /// It was found soon.
    Plan(Box<Plan>),
    /// It is known to be there: the least of a variant, which is made again where it is wanted.
    Least { variant: usize, size: Size },
}

impl Found {
    pub fn size(&self) -> Size {
        match self {
            Found::Plan(plan) => Size::of(plan),
            Found::Least { size, .. } => *size,
        }
    }
}

/// What a step needs at least, and why.
#[derive(Clone, Default)]
pub(super) struct Need {
    pub variant: usize,
    pub size: Size,
    /// What one op needs of it, whatever is done.
    pub floor: u64,
    /// That op.
    pub floor_op: String,
}

/// What is known of that.
#[derive(Clone)]
enum Least {
    Need(Need),
    /// So many bytes at least.
    From(u64),
}

/// What is known of the seconds that every plan of a variant takes, with so many bytes of states in the file: found out once, since finding it out
/// takes longer than anything else about a variant that is of no use.
pub(super) type Bounds = RefCell<HashMap<(u64, usize), Bound>>;

/// Limits, and the seconds that every plan within them takes.
#[derive(Default)]
pub(super) struct Bound(Vec<(u64, f64)>);

impl Bound {
    /// Seconds that every plan within a limit takes: what a larger limit cannot do, a smaller one cannot.
    fn at(&self, limit: u64) -> f64 {
        self.0.iter().filter(|(larger, _)| *larger >= limit).map(|(_, least)| *least).fold(0.0, f64::max)
    }
}

/// A step that is planned with some options.
pub(super) struct Planning<'s> {
    pub step: &'s Prepared,
    /// What the variants take without a limit.
    pub seconds: &'s [f64],
    /// What they take within one at least.
    pub bounds: &'s Bounds,
    pub options: Cow<'s, Options>,
}

impl Prepared {
    /// The step, which is there so many times.
    pub fn new(step: &Step<'_>, times: usize, options: &Options) -> Result<Prepared, PlanError> {
        step.graph.verify()?;
        let fused = fuse::fuse(step.graph)?;
        let mut cuts: Vec<Cut> = Vec::new();
        if let Some(batch) = &step.batch {
            match step.cut {
                Some(cut) => cuts.extend(Some(cut).filter(|cut| cut.entries < batch.entries)),
                None if options.split => cuts.extend(split::candidates(&fused, batch).into_iter().map(Cut::exact)),
                None => {}
            }
        }
        let mut prepared = Prepared {
            order: schedule::schedule(&fused),
            fused,
            batch: step.batch.clone(),
            times,
            variants: Vec::new(),
            floors: RefCell::default(),
            least: RefCell::default(),
            smallest: RefCell::default(),
        };
        if cuts.is_empty() || cuts[0].exact {
            let bill = bill(&prepared.fused);
            prepared.variants.push(Variant { cut: None, n_nodes: prepared.fused.nodes().len(), bill });
        }
        let live = limit::alive_whole(&prepared.fused, &prepared.order, options.threads);
        for cut in cuts {
            // Nodes take memory too, and planning takes more of it: slices must be worth that.
            let slices = prepared.batch.as_ref().map_or(1, |b| b.entries.div_ceil(cut.entries));
            let nodes = (slices * prepared.fused.nodes().len()) as u64;
            if cut.exact && step.cut.is_none() && nodes * options.node_bytes > live / 8 {
                break;
            }
            let opened = prepared.open(Some(cut))?;
            if cut.exact && opened.split.as_ref().is_none_or(|s| s.cut_nodes == 0) {
                break;
            }
            let (n_nodes, bill) = (opened.graph.nodes().len(), bill(&opened.graph));
            let in_stretches = match step.cut {
                Some(cut) => cut.stretches > 1,
                None => cut.exact && opened.split.is_some_and(|s| gains_by_stretches(&s, live)),
            };
            let of = |stretches| Variant { cut: Some(Cut { stretches, ..cut }), n_nodes, bill: bill.clone() };
            // The same nodes in another order.
            let more = in_stretches.then(|| of(step.cut.map_or(STRETCHES, |cut| cut.stretches)));
            prepared.variants.extend([of(1)].into_iter().chain(more));
        }
        Ok(prepared)
    }

    fn open(&self, cut: Option<Cut>) -> Result<Opened<'_>, PlanError> {
        let (Some(cut), Some(batch)) = (cut, &self.batch) else {
            return Ok(Opened { graph: Cow::Borrowed(&self.fused), order: Cow::Borrowed(&self.order), split: None });
        };
        let split = Splitter::new(&self.fused, batch, cut).build()?;
        let order = Cow::Owned(schedule::schedule(&split.graph));
        Ok(Opened { graph: Cow::Owned(split.graph), order, split: Some(split.info) })
    }

    /// Nodes of all its graphs.
    pub fn all_nodes(&self) -> usize {
        self.variants.iter().map(|v| v.n_nodes).sum()
    }

    /// Nodes of the largest graph.
    pub fn most_nodes(&self) -> usize {
        self.variants.iter().map(|v| v.n_nodes).max().unwrap_or(0)
    }

    /// What the variants take without a limit. Slices are never said to cost less than [`SLICING`]: of many figures that were measured on a busy
    /// machine the lowest is low by chance.
    pub fn seconds(&self, costs: &CostModel) -> Vec<f64> {
        let of = |variant: &Variant| {
            let times = variant.bill.iter().map(|(op, work, times)| costs.seconds(op, work) * *times as f64);
            times.sum::<f64>()
        };
        let whole = of(&self.variants[0]);
        let slices = self.variants[1..].iter().map(|variant| of(variant).max(whole * (1.0 + SLICING)));
        std::iter::once(whole).chain(slices).collect()
    }

    /// Options by which a node takes as much as it does wherever the step is.
    pub fn options<'o>(&self, options: &'o Options) -> Cow<'o, Options> {
        match self.times {
            1 => Cow::Borrowed(options),
            times => Cow::Owned(Options { node_bytes: times as u64 * options.node_bytes, ..options.clone() }),
        }
    }
}

impl Planning<'_> {
    /// Memory outside the arena.
    fn nodes(&self, variant: usize) -> u64 {
        self.options.node_bytes * self.step.variants[variant].n_nodes as u64
    }

    /// The same with room for nodes that evictions add.
    pub fn overhead(&self, variant: usize) -> u64 {
        let nodes = self.nodes(variant);
        if self.options.recompute || self.options.spill { nodes + nodes / 2 } else { nodes }
    }

    /// The plan without a limit.
    pub fn whole(&self, layout: &StateLayout) -> Result<Plan, PlanError> {
        let Opened { graph, order, split } = self.step.open(self.step.variants[0].cut)?;
        let plan = limit::plan_within(
            graph.into_owned(),
            &order,
            layout,
            &Options { limit: None, ..(*self.options).clone() },
        )?;
        Ok(self.complete(plan, 0, split))
    }

    /// The plan of a variant that needs least, by a search that knows of no limit, if that is less than `below` bytes.
    fn least_plan(&self, variant: usize, layout: &StateLayout, below: u64) -> Result<Option<(Plan, Need)>, PlanError> {
        let Opened { graph, order, split } = self.step.open(self.step.variants[variant].cut)?;
        let least = limit::least_plan(&graph, &order, layout, &self.options, below)?;
        Ok(least.map(|(plan, floor, floor_op)| {
            let size = Size::of(&plan);
            let floor = floor + self.options.node_bytes * size.nodes;
            (self.complete(plan, variant, split), Need { variant, size, floor, floor_op })
        }))
    }

    /// What that comes to, found out once.
    fn least(&self, variant: usize, layout: &StateLayout, below: u64) -> Result<Option<Need>, PlanError> {
        let is_below = |need: &Need| self.bytes(need) < below;
        let key = (self.ways(layout), variant);
        match self.step.least.borrow().get(&key) {
            Some(Least::Need(need)) => return Ok(Some(need.clone()).filter(is_below)),
            Some(Least::From(bytes)) if *bytes >= below => return Ok(None),
            _ => {}
        }
        let need = self.least_plan(variant, layout, below)?.map(|(_, need)| need);
        let known = need.clone().map_or(Least::From(below), Least::Need);
        self.step.least.borrow_mut().insert(key, known);
        Ok(need)
    }

    fn ways(&self, layout: &StateLayout) -> Ways {
        (self.options.recompute, self.options.spill, layout.file_bytes(), self.options.reserve)
    }

    /// What a need counts for.
    fn bytes(&self, need: &Need) -> u64 {
        self.options.size(need.size.arena, need.size.nodes as usize)
    }

    /// A plan whose arena and nodes keep a limit and that takes less than `below` seconds, if one is found soon.
    fn plan_soon(&self, variant: usize, layout: &StateLayout, limit: u64, below: f64) -> Result<Outcome, PlanError> {
        let Opened { graph, order, split } = self.step.open(self.step.variants[variant].cut)?;
        let within = limit.saturating_sub(self.overhead(variant));
        let mut options = Options { limit: Some(within), ..(*self.options).clone() };
        for attempt in 0..=TRIES {
            let plan = match limit::plan_soon(&graph, &order, layout, &options, below)? {
                Outcome::Plan(plan) => plan,
                // What is known of a smaller limit says nothing of this one.
                Outcome::TooSlow(_) if attempt > 0 => return Ok(Outcome::TooSlow(self.seconds[variant])),
                none => return Ok(none),
            };
            let bytes = plan.arena_bytes + options.node_bytes * plan.graph.nodes().len() as u64;
            let Some(over) = bytes.checked_sub(limit).filter(|over| *over > 0) else {
                let plan = self.complete(*plan, variant, split);
                return Ok(match plan.recomputed.seconds < below {
                    true => Outcome::Plan(Box::new(plan)),
                    false => Outcome::TooSlow(self.seconds[variant]),
                });
            };
            // It has more nodes than were left room for.
            options.limit = options.limit.map(|within| within.min(plan.arena_bytes).saturating_sub(over + GRAIN));
        }
        Ok(Outcome::Nothing)
    }

    /// A plan with how it was cut and what that takes.
    fn complete(&self, mut plan: Plan, variant: usize, split: Option<SplitInfo>) -> Plan {
        plan.split = split;
        plan.recomputed.seconds = plan.recomputed.seconds.max(self.seconds[variant]);
        plan.recomputed.extra_seconds = plan.recomputed.seconds - self.seconds[0];
        plan
    }

    /// Some plan within the limit: one that is found soon where there is ample room, or the least there is.
    ///
    /// The least does not depend on the limit: one that has room for it is never refused.
    pub fn some_within(&self, layout: &StateLayout, limit: u64) -> Result<Option<Found>, PlanError> {
        if let Some(plan) = self.soon_within(layout, limit)? {
            return Ok(Some(Found::Plan(Box::new(plan))));
        }
        for (floor, variant) in self.lowest(layout)? {
            if floor <= limit
                && let Some(Need { size, .. }) = self.least(variant, layout, limit + 1)?
            {
                return Ok(Some(Found::Least { variant, size }));
            }
        }
        Ok(None)
    }

    /// A plan that is found soon, where the limit has ample room: not much above the floor it takes longer to find none than to find out
    /// what the least is.
    fn soon_within(&self, layout: &StateLayout, limit: u64) -> Result<Option<Plan>, PlanError> {
        for (floor, variant) in self.lowest(layout)? {
            if floor + floor / AMPLE <= limit
                && let Outcome::Plan(plan) = self.plan_soon(variant, layout, limit, f64::INFINITY)?
            {
                return Ok(Some(*plan));
            }
        }
        Ok(None)
    }

    /// The plan of what was found.
    pub fn plan_of(&self, found: Found, layout: &StateLayout) -> Result<Plan, PlanError> {
        match found {
            Found::Plan(plan) => Ok(*plan),
            Found::Least { variant, .. } => {
                let least = self.least_plan(variant, layout, u64::MAX)?;
                Ok(least.expect("no plan takes all memory there is").0)
            }
        }
    }

    /// What every variant cannot do without, least first.
    pub fn floors(&self, layout: &StateLayout) -> Result<Vec<(u64, usize)>, PlanError> {
        let key = self.ways(layout);
        if let Some(known) = self.step.floors.borrow().get(&key) {
            return Ok(known.clone());
        }
        let mut floors = Vec::with_capacity(self.step.variants.len());
        for (i, variant) in self.step.variants.iter().enumerate() {
            let opened = self.step.open(variant.cut)?;
            let floor = Problem::of(&opened.graph, &opened.order, layout, &self.options).floor().bytes;
            floors.push((self.nodes(i) + floor, i));
        }
        floors.sort_unstable();
        self.step.floors.borrow_mut().insert(key, floors.clone());
        Ok(floors)
    }

    /// What none of them can do without: nodes, and the room of an arena.
    pub fn floor(&self, layout: &StateLayout) -> Result<u64, PlanError> {
        let floors = self.floors(layout)?.into_iter().map(|(floor, variant)| {
            let nodes = self.nodes(variant);
            self.options.reserve.of(floor - nodes) + nodes
        });
        Ok(floors.min().unwrap_or(0))
    }

    /// The whole batch, and those variants in one stretch and in several that need least: only these decide what is possible, since planning them all
    /// would take longer than a refusal may.
    fn lowest(&self, layout: &StateLayout) -> Result<Vec<(u64, usize)>, PlanError> {
        let mut floors = self.floors(layout)?;
        floors.sort_by_key(|(floor, i)| floor - self.nodes(*i) + self.overhead(*i));
        let mut seen = Vec::new();
        floors.retain(|(_, i)| {
            let stretches = self.step.variants[*i].cut.map(|cut| cut.stretches);
            let is_first = !seen.contains(&stretches);
            seen.push(stretches);
            is_first
        });
        Ok(floors)
    }

    /// The least that any of these needs, if that is less than `below` bytes.
    pub fn smallest(&self, layout: &StateLayout, below: u64) -> Result<Option<Need>, PlanError> {
        if let Some(known) = self.known_smallest(layout) {
            return Ok(Some(known).filter(|need| self.bytes(need) < below));
        }
        let mut least: Option<Need> = None;
        for (floor, i) in self.lowest(layout)? {
            let below = least.as_ref().map_or(below, |need| self.bytes(need));
            if floor < below
                && let Some(need) = self.least(i, layout, below)?
            {
                least = Some(need);
            }
        }
        if let Some(least) = &least {
            self.step.smallest.borrow_mut().insert(self.ways(layout), least.clone());
        }
        Ok(least)
    }

    /// The same, if it was found out before.
    pub fn known_smallest(&self, layout: &StateLayout) -> Option<Need> {
        self.step.smallest.borrow().get(&self.ways(layout)).cloned()
    }

    /// The cheapest plan within the limit that is found soon, if it takes less than `below` seconds.
    pub fn quick_within(&self, layout: &StateLayout, limit: u64, below: f64) -> Result<Outcome, PlanError> {
        let (mut below, mut cheapest) = (below, Outcome::Nothing);
        for variant in 0..self.seconds.len() {
            match self.variant_within(variant, layout, limit, below)? {
                Outcome::Plan(plan) => {
                    below = plan.recomputed.seconds;
                    cheapest = Outcome::Plan(plan);
                }
                slow @ Outcome::TooSlow(_) if matches!(cheapest, Outcome::Nothing) => cheapest = slow,
                _ => {}
            }
        }
        Ok(cheapest)
    }

    /// The plan of a variant within the limit, if it takes less than `below` seconds.
    fn variant_within(
        &self,
        variant: usize,
        layout: &StateLayout,
        limit: u64,
        below: f64,
    ) -> Result<Outcome, PlanError> {
        // A variant is never faster than without a limit, or within a larger one.
        let key = (layout.file_bytes(), variant);
        let bounds = self.bounds.borrow().get(&key).map_or(0.0, |known| known.at(limit));
        let least = self.seconds[variant].max(bounds);
        if least >= below {
            return Ok(Outcome::TooSlow(least));
        }
        if self.floors(layout)?.iter().any(|(floor, v)| *v == variant && *floor > limit) {
            return Ok(Outcome::Nothing);
        }
        let outcome = self.plan_soon(variant, layout, limit, below)?;
        if let Outcome::TooSlow(least) = outcome {
            self.bounds.borrow_mut().entry(key).or_default().0.push((limit, least));
        }
        Ok(outcome)
    }

    /// The cheapest plan within the limit after a longer search, starting from one that is known: of its variant, and of others that may turn out
    /// to be cheaper.
    pub fn cheapest_within(&self, layout: &StateLayout, limit: u64, known: Plan) -> Result<Plan, PlanError> {
        let hasty = Planning { options: Cow::Owned(hasty(&self.options)), ..*self };
        let first = self.variant_of(known.split.as_ref());
        let most = self.seconds[0] + SIMILAR * (known.recomputed.seconds - self.seconds[0]);
        let mut cheapest = known;
        let others = (0..self.seconds.len()).filter(|&v| v != first);
        for variant in std::iter::once(first).chain(others) {
            let seconds = cheapest.recomputed.seconds;
            let may_be_cheaper = || -> Result<bool, PlanError> {
                Ok(self.seconds[variant] < seconds
                    && matches!(hasty.variant_within(variant, layout, limit, most)?, Outcome::Plan(_)))
            };
            if (variant == first || may_be_cheaper()?)
                && let Outcome::Plan(plan) = self.variant_within(variant, layout, limit, seconds)?
            {
                cheapest = *plan;
            }
        }
        Ok(cheapest)
    }

    /// The cheapest plan that is found soon in an arena that is no larger, and with no more nodes; where none is, the least of a variant. Nodes run in the order `like` others
    /// where they may and a plan is found so.
    pub fn in_arena(&self, layout: &StateLayout, room: Size, like: &[NodeId]) -> Result<Option<Plan>, PlanError> {
        let mut cheapest: Option<Plan> = None;
        for (i, variant) in self.step.variants.iter().enumerate() {
            let below = cheapest.as_ref().map_or(f64::INFINITY, |plan| plan.recomputed.seconds);
            if variant.n_nodes as u64 > room.nodes || self.seconds[i] >= below {
                continue;
            }
            let Opened { graph, order, split } = self.step.open(variant.cut)?;
            let orders = [Some(like).filter(|like| schedule::is_order(&graph, like)), Some(&*order)];
            let mut found = None;
            for order in orders.into_iter().flatten() {
                found = match cheapest {
                    None => self.any_in_arena(&graph, order, layout, room)?,
                    Some(_) => self.soon_in_arena(&graph, order, layout, room, (room.arena, below))?,
                };
                if found.is_some() || cheapest.is_some() {
                    break;
                }
            }
            let found = found.map(|plan| self.complete(plan, i, split));
            cheapest = found.filter(|plan| plan.recomputed.seconds < below).or(cheapest);
        }
        Ok(cheapest)
    }

    /// A plan in such an arena, if one is found.
    fn any_in_arena(
        &self,
        graph: &Graph,
        order: &[NodeId],
        layout: &StateLayout,
        room: Size,
    ) -> Result<Option<Plan>, PlanError> {
        // What is found for a little more may have less alive than was asked for.
        for part in 0..=ABOVE {
            let target = (room.arena + room.arena * part / ABOVE_OF, f64::INFINITY);
            if let Some(plan) = self.soon_in_arena(graph, order, layout, room, target)? {
                return Ok(Some(plan));
            }
        }
        // There is room for so many nodes as there are: the arena alone counts.
        let options = Options { node_bytes: 0, ..(*self.options).clone() };
        let least = limit::least_plan(graph, order, layout, &options, u64::MAX)?;
        Ok(least.and_then(|(plan, ..)| tightened(plan, room)))
    }

    /// The same, if it is found soon for a target, and takes less than so many seconds.
    fn soon_in_arena(
        &self,
        graph: &Graph,
        order: &[NodeId],
        layout: &StateLayout,
        room: Size,
        (target, below): (u64, f64),
    ) -> Result<Option<Plan>, PlanError> {
        let options = Options { limit: Some(target), ..(*self.options).clone() };
        Ok(match limit::plan_soon(graph, order, layout, &options, below)? {
            Outcome::Plan(plan) => tightened(*plan, room),
            _ => None,
        })
    }

    /// The variant that was cut so.
    fn variant_of(&self, split: Option<&SplitInfo>) -> usize {
        let wanted = split.map(|s| (s.entries, s.stretches));
        self.step.variants.iter().position(|v| v.cut.map(|c| (c.entries, c.stretches)) == wanted).unwrap_or(0)
    }
}

/// A plan, if it has no more nodes and finds room in such an arena.
fn tightened(mut plan: Plan, room: Size) -> Option<Plan> {
    if plan.live_bytes > room.arena || plan.graph.nodes().len() as u64 > room.nodes {
        return None;
    }
    if plan.arena_bytes > room.arena {
        limit::tighten(&mut plan);
    }
    Some(plan).filter(|plan| plan.arena_bytes <= room.arena)
}

/// Whether a step needs much less when not all of its sums are there at once.
fn gains_by_stretches(split: &SplitInfo, live: u64) -> bool {
    split.slices.is_power_of_two()
        && split.slices <= FEW_SLICES
        && split.rounds < STRETCHES
        && split.summed >= live / MUCH_SUMMED
}

/// What runs in a graph, and how often: seconds follow from it by any costs.
fn bill(graph: &Graph) -> Vec<(&'static str, Work, usize)> {
    let mut times: BTreeMap<(&'static str, Sizes, u64, u64), usize> = BTreeMap::new();
    for (_, node) in graph.nodes().filter(|(_, node)| node.op.runs()) {
        let Work { cost, sizes } = Work::of(graph, node);
        *times.entry((node.op.name(), sizes, cost.flops, cost.bytes)).or_default() += 1;
    }
    let line = |((op, sizes, flops, bytes), n)| (op, Work { cost: Cost { flops, bytes }, sizes }, n);
    times.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Sample;
    use plimsoll_tensor::{DType, TensorType};
    use std::sync::Arc;

    #[test]
    fn slices_cost_something_however_fast_they_were_measured() {
        let mut g = Graph::new();
        let f32 = |shape: &[usize]| TensorType::new(DType::F32, shape);
        let (x, w) = (g.input("x", f32(&[4096, 256])), g.state("w", f32(&[256, 256])));
        let y = g.matmul(x, w).unwrap();
        let square = g.square(y).unwrap();
        let loss = g.mean_all(square).unwrap();
        g.output("loss", loss);
        let batch = Some(Batch { entries: 4096, inputs: vec!["x".into()] });
        let step = Prepared::new(&Step { graph: &g, batch, cut: None }, 1, &Options::default()).unwrap();
        assert!(step.variants.len() > 2, "there is nothing to choose from");

        // By these figures the whole batch takes a second an op, and what runs on slices takes none, but for the finest, which take long.
        let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for (i, variant) in step.variants.iter().enumerate() {
            for (op, work, _) in &variant.bill {
                let seconds = if i == 0 {
                    1.0
                } else if i + 1 == step.variants.len() {
                    7.0
                } else {
                    1e-9
                };
                let known = samples.entry((*op).into()).or_default();
                if known.iter().all(|sample| sample.work != *work) {
                    known.push(Sample { work: work.clone(), seconds, runs: 1 });
                }
            }
        }
        let seconds = step.seconds(&CostModel { samples: Arc::new(samples), ..CostModel::default() });
        let (whole, finest) = (seconds[0], seconds[seconds.len() - 1]);
        assert_eq!(whole, step.variants[0].bill.iter().map(|(_, _, times)| *times as f64).sum::<f64>());
        assert!(seconds[1..seconds.len() - 1].iter().all(|s| *s == whole * (1.0 + SLICING)), "{seconds:?}");
        assert!(finest > 2.0 * whole, "what was measured to be slower stays so: {seconds:?}");
    }
}
