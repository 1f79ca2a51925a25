//! Plans that keep a limit, and the smallest limit that can be kept.
//!
//! What is alive is kept under a target by `evict`; what is packed is a little higher, so the target is lowered until the packed
//! height keeps the limit. The smallest limit is found by a search that does not know which limit was asked for: so the number
//! told in a refusal is one that works, and the same for all who ask.

use crate::evict::{Effort, Evicted, Evictor, Problem};
use crate::lifetime::{Kind, lifetimes};
use crate::predict::predict;
use crate::windows::{self, Packing, Transfers, most_alive};
use crate::{Explanation, Options, Place, Plan, PlanError, Recompute, StateLayout, assemble, explain, place};
use plimsoll_graph::{Graph, NodeId};

/// More than anything takes.
const NO_LIMIT: u64 = u64::MAX / 4;

/// The smallest limit is found to within this many bytes, or a 128th of itself.
const GRAIN: u64 = 64 * 1024;

/// How hard to pack what needs least: nothing but the memory counts.
const LEAST: place::Effort = place::Effort { work: 40_000_000 };

/// How hard to pack a run at most: what is not packed soon is packed sooner when a little less is alive.
const PACKING: place::Effort = place::Effort { work: 15_000_000 };

/// How hard to pack the run that was chosen once more, until its arena is larger than what is alive by no more than this part of it.
const TIGHTENING: [(u64, place::Effort); 2] =
    [(200, place::Effort { work: 60_000_000 }), (60, place::Effort { work: 200_000_000 })];

/// How hard to look again when a run was packed too high.
const AGAIN: Effort = Effort { base: 200_000, per_task: 4_000, ..Effort::NORMAL };

/// A run that takes so many times longer when it is packed waits for transfers.
const WAITS: f64 = 1.005;

/// What is alive is not lowered by less than this part of it for the sake of packing.
const FINEST: u64 = 256;

/// Where packing fails again and again, what is alive is lowered by this part of it more each time.
const MORE: u64 = 64;

/// How often it is looked at again with less alive, where a run was packed too high and where transfers are waited for.
const ATTEMPTS: usize = 8;
const PACKED: usize = 3;

/// What was found within a limit.
pub(crate) enum Outcome {
    /// A plan.
    Plan(Box<Plan>),
    /// Plans that take too long: none takes less than these seconds, here or within a smaller limit.
    TooSlow(f64),
    /// Nothing that keeps the limit.
    Nothing,
}

/// A plan of a graph whose nodes run in this order, within the limit of the options, or the smallest limit that would do.
pub(crate) fn plan_within(
    graph: Graph,
    order: &[NodeId],
    state: &StateLayout,
    options: &Options,
) -> Result<Plan, PlanError> {
    let limit = options.limit.unwrap_or(u64::MAX);
    let problem = Problem::of(&graph, order, state, options);
    let limited = Limited { graph: &graph, problem: &problem, state, options };
    let whole = limited.whole(order)?;
    if whole.arena_bytes <= limit {
        return Ok(whole);
    }
    if let Outcome::Plan(mut plan) = limited.fastest(limit, f64::INFINITY)? {
        tighten(&mut plan);
        return Ok(*plan);
    }
    let mut least = limited.least(whole.clone(), u64::MAX)?.unwrap_or_else(|| whole.clone());
    if least.arena_bytes > limit {
        return Err(limited.refusal(limit, least.arena_bytes, &whole));
    }
    tighten(&mut least);
    Ok(least)
}

/// The plan with the smallest arena found, by a search that knows of no limit, and what no plan can do without. `None` where arena and nodes turn out to
/// take `below` bytes or more, which mostly shows before they are packed.
pub(crate) fn least_plan(
    graph: &Graph,
    order: &[NodeId],
    state: &StateLayout,
    options: &Options,
    below: u64,
) -> Result<Option<(Plan, u64, String)>, PlanError> {
    let problem = Problem::of(graph, order, state, options);
    let limited = Limited { graph, problem: &problem, state, options };
    let whole = limited.whole(order)?;
    let (floor, floor_op) = limited.floor();
    Ok(limited.least(whole, below)?.map(|plan| (plan, floor, floor_op)))
}

/// A plan within the limit of the options, if one is found soon that takes less than `below` seconds.
pub(crate) fn plan_soon(
    graph: &Graph,
    order: &[NodeId],
    state: &StateLayout,
    options: &Options,
    below: f64,
) -> Result<Outcome, PlanError> {
    let limit = options.limit.unwrap_or(u64::MAX);
    if !has_filed(graph, state) && alive_whole(graph, order, options.threads) <= limit {
        let whole = assemble(graph.clone(), order, state, options, Packing::new(limit, options.effort))?;
        if whole.arena_bytes <= limit {
            return Ok(Outcome::Plan(Box::new(whole)));
        }
    }
    let problem = Problem::of(graph, order, state, options);
    Limited { graph, problem: &problem, state, options }.fastest(limit, below)
}

/// The most bytes that are alive at once when a graph runs plainly in this order.
pub(crate) fn alive_whole(graph: &Graph, order: &[NodeId], threads: usize) -> u64 {
    let lives = lifetimes(graph, order, threads).buffers;
    most_alive(lives.iter().map(|b| place::Buffer { bytes: b.bytes, first: b.first, last: b.last }))
}

fn has_filed(graph: &Graph, state: &StateLayout) -> bool {
    graph.states().any(|(_, name)| state.in_file(name).is_some())
}

/// The plan of a run.
fn place_run(run: Evicted, state: &StateLayout, options: &Options, packing: Packing) -> Result<Plan, PlanError> {
    let plan = assemble(run.graph, &run.order, state, options, packing)?;
    // Transfers may have been moved for the sake of packing, so that the run's own time is no longer true.
    let time = predict(&plan.graph, plan.instructions.iter().map(|i| i.node), &options.costs);
    let recomputed = Recompute {
        nodes: run.repeats,
        seconds: time.seconds,
        extra_seconds: time.seconds - (run.seconds - run.extra_seconds),
        score: time.score,
        bound: run.bound,
        transfers: run.transfers,
        written: run.written,
        read: run.read,
    };
    Ok(Plan { recomputed, file_bytes: run.file_bytes, ..plan })
}

/// The same plan in a smaller arena, if one is found: packing stops at the limit, and what is alive may need less than that. What is then still free
/// is left to transfers.
pub(crate) fn tighten(plan: &mut Plan) {
    pack_again(plan);
    if plan.recomputed.transfers > 0 {
        windows::linger(plan);
    }
}

fn pack_again(plan: &mut Plan) {
    let sizes: Vec<place::Buffer> =
        plan.buffers.iter().map(|(b, _)| place::Buffer { bytes: b.bytes, first: b.first, last: b.last }).collect();
    let (mut height, mut offsets) = (plan.arena_bytes, None);
    for (part, effort) in TIGHTENING {
        let wished = plan.live_bytes + plan.live_bytes / part;
        if height > wished {
            let placement = place::place_within(&sizes, wished, effort);
            if placement.height < height {
                (height, offsets) = (placement.height, Some(placement.offsets));
            }
        }
    }
    let Some(offsets) = offsets else { return };
    for ((buffer, offset), &new) in plan.buffers.iter_mut().zip(&offsets) {
        for value in &buffer.values {
            if let Some(Place::Arena(at)) = &mut plan.places[value.0 as usize] {
                *at = *at - *offset + new;
            }
        }
        if buffer.kind == Kind::Workspace {
            plan.instructions[buffer.first as usize].workspace = Some(new..new + buffer.bytes);
        }
        *offset = new;
    }
    plan.arena_bytes = height;
}

/// A graph that does not fit without evictions.
struct Limited<'a> {
    graph: &'a Graph,
    problem: &'a Problem,
    state: &'a StateLayout,
    options: &'a Options,
}

impl Limited<'_> {
    /// The plan without a limit. States that live in the file are read with any.
    fn whole(&self, order: &[NodeId]) -> Result<Plan, PlanError> {
        if !has_filed(self.graph, self.state) {
            return assemble(self.graph.clone(), order, self.state, self.options, Packing::new(0, self.options.effort));
        }
        let plain = Evictor::new(self.graph, self.state, self.problem).at(NO_LIMIT, Effort::QUICK, f64::INFINITY)?;
        place_run(
            plain.expect("without a limit everything fits"),
            self.state,
            self.options,
            Packing::new(0, self.options.effort),
        )
    }

    /// Bytes that no plan can do without, and the op that needs them.
    fn floor(&self) -> (u64, String) {
        let floor = self.problem.floor();
        let node = self.problem.tasks[floor.task].node;
        (floor.bytes, node.map_or_else(|| "the end of the step".to_owned(), |id| self.graph.describe(id)))
    }

    fn refusal(&self, limit: u64, smallest: u64, whole: &Plan) -> PlanError {
        let (floor, floor_op) = self.floor();
        let peak: Box<Explanation> = Box::new(explain(whole));
        PlanError::DoesNotFit { limit, smallest, floor, floor_op, unlimited: whole.arena_bytes, peak }
    }

    /// The fastest plan found within a limit, if it takes less than `below` seconds.
    fn fastest(&self, limit: u64, below: f64) -> Result<Outcome, PlanError> {
        let effort = place::Effort { work: self.options.effort.work.min(PACKING.work) };
        // A first plan only shows what is worth a longer look.
        let most_packed = if self.options.search == Effort::QUICK { 0 } else { PACKED };
        let mut evictor = Evictor::new(self.graph, self.state, self.problem);
        let (mut target, floor) = (limit, self.problem.floor().bytes);
        let bound = self.problem.bound(limit);
        if bound >= below && bound < f64::INFINITY {
            return Ok(Outcome::TooSlow(bound));
        }
        let (mut best, mut packed, mut nothing): (Option<Plan>, usize, Outcome) = (None, 0, Outcome::Nothing);
        for attempt in 0..ATTEMPTS {
            // What is packed is never faster than it was simulated.
            let is_better = |run: &Evicted| {
                run.seconds < below && best.as_ref().is_none_or(|best| run.score < best.recomputed.score)
            };
            let search = if attempt == 0 { self.options.search } else { lesser(self.options.search, AGAIN) };
            let Some(run) = evictor.at(target, search, below)? else { break };
            if !is_better(&run) {
                nothing = Outcome::TooSlow(bound);
                break;
            }
            let hoped = run.score;
            let plan = place_run(run, self.state, self.options, Packing::new(limit, effort))?;
            if plan.arena_bytes > limit {
                // What is packed is a little higher than what is alive: the difference is taken off, as far as there is room below.
                // Where that does not help, ever more is.
                let over = (plan.arena_bytes - limit).max(target * attempt as u64 / MORE);
                let less = over.min((target - floor.min(target)) / 2);
                if less < target / FINEST {
                    break;
                }
                target -= less;
                continue;
            }
            let waits = plan.recomputed.score > WAITS * hoped;
            if best.as_ref().is_none_or(|best| plan.recomputed.score < best.recomputed.score) {
                best = Some(plan);
            }
            // It was packed at the cost of transfers that are waited for: with a little less alive they may not be.
            if !waits || packed == most_packed {
                break;
            }
            packed += 1;
            target -= target / 24;
        }
        Ok(best.map_or(nothing, |plan| Outcome::Plan(Box::new(plan))))
    }

    /// The plan found that needs least, its nodes included, if that is less than `below`.
    ///
    /// Where ever less is alive ever more runs again, and what runs again are nodes: the least of both may lie anywhere on the way down. And an arena that
    /// counts for more than it has in any case need not become smaller.
    fn least(&self, whole: Plan, below: u64) -> Result<Option<Plan>, PlanError> {
        let (mut works, mut fails) = (whole.live_bytes, self.problem.floor().bytes.saturating_sub(1));
        let grain = (works / 128).clamp(place::ALIGNMENT, GRAIN);
        let quick = |target: u64| Evictor::new(self.graph, self.state, self.problem).at_any_cost(target);
        let size = |arena: u64, graph: &Graph| self.options.size(arena, graph.nodes().len());
        let alive = |run: &Evicted| windows::least_alive(&run.graph, &run.order, self.options.threads);
        // What they have alive with their nodes, and their targets: of the run that has least, and of the last.
        let (mut least, mut last) = (None, None);
        while works > fails + grain {
            let middle = fails + (works - fails) / 2;
            let Some(run) = quick(middle)? else {
                fails = middle;
                continue;
            };
            works = middle;
            last = Some((size(alive(&run), &run.graph), middle));
            least = if least.is_none() { last } else { least.min(last) };
        }
        let mut plan = whole;
        let takes = |plan: &Plan| size(plan.arena_bytes, &plan.graph);
        for (hoped, target) in least.into_iter().chain(last.filter(|last| least != Some(*last))) {
            // What is alive takes no less when it is packed.
            if hoped < below.min(takes(&plan)) {
                let run = quick(target)?.expect("it was found before");
                let packing = Packing { limit: target, effort: LEAST, transfers: Transfers::Short };
                let packed = place_run(run, self.state, self.options, packing)?;
                if takes(&packed) < takes(&plan) {
                    plan = packed;
                }
            }
        }
        Ok((takes(&plan) < below).then_some(plan))
    }
}

fn lesser(a: Effort, b: Effort) -> Effort {
    Effort { base: a.base.min(b.base), per_task: a.per_task.min(b.per_task), states: a.states.min(b.states) }
}
