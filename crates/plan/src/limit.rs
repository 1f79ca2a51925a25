//! Plans that keep a limit, and the smallest limit that can be kept.
//!
//! What is alive is kept under a target by `evict`; what is packed is a little higher, so the target is lowered until the packed
//! height keeps the limit. The smallest limit is found by a search that does not know which limit was asked for: so the number
//! told in a refusal is one that works, and the same for all who ask.

use crate::evict::{Effort, Evicted, Evictor, Problem};
use crate::lifetime::{Kind, lifetimes};
use crate::predict::predict;
use crate::windows::most_alive;
use crate::{Explanation, Options, Place, Plan, PlanError, Recompute, StateLayout, assemble, explain, place};
use plimsoll_graph::{Graph, NodeId};

/// The smallest limit is found to within this many bytes, or a 128th of itself.
const GRAIN: u64 = 64 * 1024;

/// How hard to look for a plan just below the smallest limit that is known to work.
const DESCENT: Effort = Effort { base: 200_000, per_task: 1_500 };

/// How hard to pack what is found there.
const DESCENT_PACKING: place::Effort = place::Effort { exact: 3_000_000, search: 3_000 };

/// How hard to pack a run at most: what is not packed soon is packed sooner when a little less is alive.
pub(crate) const PACKING: place::Effort = place::Effort { exact: 15_000_000, search: 20_000 };

/// How often to look there.
const DESCENTS: usize = 6;

/// How hard to look again when a run was packed too high.
const AGAIN: Effort = Effort { base: 200_000, per_task: 4_000 };

/// A run that takes so many times longer when it is packed is looked at again with less alive.
const WAITS: f64 = 1.005;

/// How often at most.
const PACKED: usize = 3;

/// A plan of a graph whose nodes run in this order, within the limit of the options, or the smallest limit that would do.
pub(crate) fn plan_within(
    graph: Graph,
    order: &[NodeId],
    state: &StateLayout,
    options: &Options,
) -> Result<Plan, PlanError> {
    let limit = options.limit.unwrap_or(u64::MAX);
    if !has_filed(&graph, state) {
        let whole = assemble(graph, order, state, options, 0, options.effort)?;
        if whole.arena_bytes <= limit {
            return Ok(whole);
        }
        let problem = Problem::of(&whole.graph, order, state, options);
        return Limited { graph: &whole.graph, problem: &problem, state, options }.plan(limit, &whole);
    }
    // States come from the file, so that transfers are needed with any limit.
    let problem = Problem::of(&graph, order, state, options);
    let plain = Evictor::new(&graph, state, &problem).at(u64::MAX / 4, Effort::QUICK)?;
    let plain = plain.expect("without a limit everything fits");
    let whole = place_run(plain, state, options, 0, options.effort)?;
    if whole.arena_bytes <= limit {
        return Ok(whole);
    }
    Limited { graph: &graph, problem: &problem, state, options }.plan(limit, &whole)
}

/// The same if one is found soon that takes less than `below` seconds.
pub(crate) fn plan_soon(
    graph: &Graph,
    order: &[NodeId],
    state: &StateLayout,
    options: &Options,
    below: f64,
) -> Result<Option<Plan>, PlanError> {
    let limit = options.limit.unwrap_or(u64::MAX);
    let problem = Problem::of(graph, order, state, options);
    if !has_filed(graph, state) {
        let lives = lifetimes(graph, order, options.threads).buffers;
        let sizes = lives.iter().map(|b| place::Buffer { bytes: b.bytes, first: b.first, last: b.last });
        if most_alive(sizes) <= limit {
            let whole = assemble(graph.clone(), order, state, options, limit, options.effort)?;
            if whole.arena_bytes <= limit {
                return Ok(Some(whole));
            }
        }
    }
    Limited { graph, problem: &problem, state, options }.fastest(limit, None, below)
}

fn has_filed(graph: &Graph, state: &StateLayout) -> bool {
    graph.states().any(|(_, name)| state.in_file(name).is_some())
}

/// The plan of a run.
fn place_run(
    run: Evicted,
    state: &StateLayout,
    options: &Options,
    limit: u64,
    effort: place::Effort,
) -> Result<Plan, PlanError> {
    let plan = assemble(run.graph, &run.order, state, options, limit, effort)?;
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

/// The same plan in a smaller arena, if one is found: packing stops at the limit, and what is alive may need less than that.
pub(crate) fn tighten(plan: &mut Plan, effort: place::Effort) {
    let sizes: Vec<place::Buffer> =
        plan.buffers.iter().map(|(b, _)| place::Buffer { bytes: b.bytes, first: b.first, last: b.last }).collect();
    if plan.arena_bytes <= plan.live_bytes + plan.live_bytes / 200 {
        return;
    }
    let placement = place::place(&sizes, effort);
    if placement.height >= plan.arena_bytes {
        return;
    }
    for ((buffer, offset), &new) in plan.buffers.iter_mut().zip(&placement.offsets) {
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
    plan.arena_bytes = placement.height;
}

/// A graph that does not fit without evictions.
struct Limited<'a> {
    graph: &'a Graph,
    problem: &'a Problem,
    state: &'a StateLayout,
    options: &'a Options,
}

impl Limited<'_> {
    /// The fastest plan found within a limit, or the refusal, given the plan without one.
    fn plan(&self, limit: u64, whole: &Plan) -> Result<Plan, PlanError> {
        let least = self.smallest(limit, whole)?;
        let smallest = least.as_ref().map_or(whole.arena_bytes, |plan| plan.arena_bytes);
        if smallest > limit {
            return Err(self.refusal(limit, smallest, whole));
        }
        let plan = self.fastest(limit, least, f64::INFINITY)?;
        plan.ok_or_else(|| self.refusal(limit, whole.arena_bytes, whole))
    }

    /// The fastest plan found, one that is known among them, if one takes less than `below` seconds.
    fn fastest(&self, limit: u64, known: Option<Plan>, below: f64) -> Result<Option<Plan>, PlanError> {
        let asked = self.options.effort;
        let packing = place::Effort { exact: asked.exact.min(PACKING.exact), search: asked.search.min(PACKING.search) };
        let fast = self.within(limit, self.options.search, packing, 8, below)?;
        let plans = known.into_iter().chain(fast);
        let mut plan = plans.min_by(|a, b| a.recomputed.score.total_cmp(&b.recomputed.score));
        if let Some(plan) = &mut plan {
            tighten(plan, packing);
        }
        Ok(plan)
    }

    fn refusal(&self, limit: u64, smallest: u64, whole: &Plan) -> PlanError {
        let floor = self.problem.floor();
        let node = self.problem.tasks[floor.task].node;
        let peak: Box<Explanation> = Box::new(explain(whole));
        PlanError::DoesNotFit {
            limit,
            smallest,
            floor: floor.bytes,
            floor_op: node.map_or_else(|| "the end of the step".to_owned(), |id| self.graph.describe(id)),
            unlimited: whole.arena_bytes,
            peak,
        }
    }

    /// A plan that keeps a limit and takes less than `below` seconds, if one is found.
    fn within(
        &self,
        limit: u64,
        effort: Effort,
        packing: place::Effort,
        attempts: usize,
        below: f64,
    ) -> Result<Option<Plan>, PlanError> {
        let mut evictor = Evictor::new(self.graph, self.state, self.problem);
        let mut target = limit;
        let (mut best, mut packed): (Option<Plan>, usize) = (None, 0);
        for attempt in 0..attempts {
            let effort = if attempt == 0 { effort } else { least(effort, AGAIN) };
            // What is packed is never faster than it was simulated.
            if self.problem.bound(target) >= below {
                break;
            }
            let Some(run) = evictor.at(target, effort)?.filter(|run| run.seconds < below) else { break };
            let hoped = run.score;
            let plan = place_run(run, self.state, self.options, limit, packing)?;
            if plan.arena_bytes > limit {
                // What is packed is a little higher than what is alive: the difference is taken off.
                target = target.saturating_sub(plan.arena_bytes - limit);
                continue;
            }
            let waits = plan.recomputed.score > WAITS * hoped;
            if best.as_ref().is_none_or(|best| plan.recomputed.score < best.recomputed.score) {
                best = Some(plan);
            }
            // It was packed at the cost of transfers that are waited for: with a little less alive they may not be.
            if !waits || packed == PACKED {
                break;
            }
            packed += 1;
            target -= target / 24;
        }
        Ok(best)
    }

    /// The plan with the smallest arena found, by a search that is the same for all limits, as far as it takes to know whether
    /// it is within this one. `None` when the plain plan is the smallest.
    fn smallest(&self, limit: u64, whole: &Plan) -> Result<Option<Plan>, PlanError> {
        let mut best: Option<Plan> = None;
        let mut last = None;
        let height = |best: &Option<Plan>| best.as_ref().map_or(whole.arena_bytes, |plan| plan.arena_bytes);
        let keep = |best: &mut Option<Plan>, plan: Plan| {
            if plan.arena_bytes < height(best) {
                *best = Some(plan);
            }
        };
        let (mut works, mut fails) = (whole.live_bytes, self.problem.floor().bytes.saturating_sub(1));
        let grain = (works / 128).clamp(place::ALIGNMENT, GRAIN);
        while works > fails + grain && height(&best) > limit {
            let middle = fails + (works - fails) / 2;
            let mut evictor = Evictor::new(self.graph, self.state, self.problem);
            match evictor.at(middle, Effort::QUICK)? {
                Some(run) => {
                    works = middle;
                    // Packed is what may be within the limit, and the last one.
                    match middle <= limit || works <= fails + grain {
                        true => {
                            keep(&mut best, place_run(run, self.state, self.options, middle, place::Effort::QUICK)?)
                        }
                        false => last = Some((run, middle)),
                    }
                }
                None => fails = middle,
            }
        }
        if let Some((run, target)) = last.filter(|_| height(&best) > limit) {
            keep(&mut best, place_run(run, self.state, self.options, target, place::Effort::QUICK)?);
        }
        // A few steps more: what is packed may be a little lower yet.
        let mut step = grain;
        for _ in 0..DESCENTS {
            if height(&best) <= limit {
                break;
            }
            let target = height(&best).saturating_sub(step);
            match self.within(target, DESCENT, DESCENT_PACKING, 3, f64::INFINITY)? {
                Some(plan) => {
                    keep(&mut best, plan);
                    step *= 2;
                }
                None if step == grain => break,
                None => step = grain,
            }
        }
        Ok(best)
    }
}

fn least(a: Effort, b: Effort) -> Effort {
    Effort { base: a.base.min(b.base), per_task: a.per_task.min(b.per_task) }
}
