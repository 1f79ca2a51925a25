//! A trainer's memory limit: what its steps and states are to the [terms](crate::session::Terms) that they are planned under, and what
//! else would keep a limit.

use super::Trainer;
use super::compile::{StepKey, input_name};
use super::fit::Fit;
use crate::data::Feed;
use crate::error::Error;
use crate::session::{Besides, Kept, MOVABLE, Room, Techniques};
use crate::trace::{Mode, Role, Variables};
use plimsoll_budget::limits::Limits;
use plimsoll_budget::{Bytes, Ledger};
use plimsoll_exec::ProgramId;
use plimsoll_graph::Graph;
use plimsoll_plan::choose::State;
use plimsoll_plan::split::{Batch, Cut};
use plimsoll_plan::{Choice, Plan, Step};
use std::path::PathBuf;

/// What results take in whole pages.
const PAGE: usize = 4096;

/// What is kept besides the steps: the least that input needs, copies that callbacks make of the weights, and rows of results
/// besides those of one batch, if there are results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keeps {
    pub input: Bytes,
    pub copies_of_weights: usize,
    pub rows_of_results: Option<usize>,
}

/// What a training step costs under a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// The limit of the whole process.
    pub limit: Bytes,
    /// What is done to keep it.
    pub kept: Kept,
}

impl Trainer {
    /// With these ways to keep a memory limit instead of all.
    #[must_use]
    pub fn techniques(mut self, techniques: Techniques) -> Trainer {
        self.terms.techniques = techniques;
        self
    }

    /// With the spill file in this directory, which must be on a disk. Otherwise it is in the first that is on a disk of the directory for temporary
    /// files, `/var/tmp` and the current one. The file has no name there and goes when the trainer does, however it ends; one
    /// that is there already moves before the next step.
    #[must_use]
    pub fn spill_to(mut self, directory: impl Into<PathBuf>) -> Trainer {
        self.terms.spill_dir = Some(directory.into());
        self
    }

    /// With the spill file rather in this directory than in the usual ones, if it is on a disk.
    #[must_use]
    pub fn spill_near(mut self, directory: impl Into<PathBuf>) -> Trainer {
        self.terms.spill_near = Some(directory.into());
        self
    }

    /// Runs every training step on `n` slices of its batch, one after another, and adds up their gradients: the weights change
    /// once a batch, as without slices, and statistics are those of the whole batch. A memory limit does this by itself where
    /// it helps, on slices that leave every bit as it is; slices asked for here may be finer, and then sums are rounded
    /// differently.
    #[must_use]
    pub fn accumulate(mut self, n: usize) -> Trainer {
        self.slices = (n > 1).then_some(n);
        self
    }

    /// What is done so that training steps keep the memory limit; `None` before they are planned.
    pub fn kept(&self) -> Option<Kept> {
        self.planned().first().map(|plan| Kept::of(plan))
    }

    /// What a training step would cost under up to `n` limits, from the smallest that would do for all of [`Trainer::fit`] with these options, to the first
    /// one under which nothing has to be done: only that one, where the smallest is large enough. Nothing is run but what it takes to measure the model's ops.
    ///
    /// # Errors
    /// When the model cannot be traced.
    pub fn sweep(&mut self, data: &dyn Feed, options: &Fit<'_>, n: usize) -> Result<Vec<SweepPoint>, Error> {
        let (keys, graphs, room) = self.all_steps(data, options)?;
        let keys = &keys[..];
        let at = |limit: Bytes| Room { limit: Some(limit), ..room.clone() };
        let (smallest, unlimited) = match self.choice(keys, &graphs, &at(Bytes::ZERO)) {
            Err(Error::WouldNotFit(refusal)) => (refusal.smallest, refusal.unlimited),
            Err(other) => return Err(other),
            Ok(_) => return Ok(Vec::new()),
        };
        let mut points = Vec::with_capacity(n);
        for i in 0..n {
            // Equal ratios: what happens near the smallest is of most interest.
            let part = i as f64 / (n - 1).max(1) as f64;
            let ratio = unlimited.0 as f64 / smallest.0 as f64;
            let limit = Bytes((smallest.0 as f64 * ratio.powf(part)).ceil() as u64).clamp(smallest, unlimited);
            let choice = self.choice(keys, &graphs, &at(limit))?;
            points.push(SweepPoint { limit, kept: Kept::of(&choice.plans[0]) });
            if choice.plans.iter().all(|plan| Kept::of(plan).is_plain()) {
                break;
            }
        }
        // What keeps a smaller limit keeps a larger one: a larger limit is never slower.
        for i in 1..points.len() {
            if points[i - 1].kept.seconds < points[i].kept.seconds {
                points[i].kept = points[i - 1].kept.clone();
            }
        }
        Ok(points)
    }

    /// The plans of the steps that are ready to run.
    pub fn planned(&self) -> Vec<&Plan> {
        self.compiled.as_ref().map_or_else(Vec::new, |c| c.plans())
    }

    /// The memory limit as found now, with every bound that was looked at: what was asked for ([`Trainer::memory_limit`], or a budget with
    /// a limit), the environment variable `PLIMSOLL_MEMORY_LIMIT`, or what the host allows.
    ///
    /// # Errors
    /// When the limit or the variable cannot be understood.
    pub fn limits(&self) -> Result<Limits, Error> {
        self.terms.limits()
    }

    /// Where the memory limit comes from, in words: `256 MiB (cgroup v1, /sys/fs/cgroup/memory/x/memory.limit_in_bytes)`.
    ///
    /// # Errors
    /// As [`Trainer::limits`].
    pub fn limit_source(&self) -> Result<String, Error> {
        self.terms.limit_source()
    }

    /// Who holds how much of the limit: `state`, `arena`, `gemm`, `runtime`, `results` and the rest of the `process`.
    pub fn ledger(&self) -> Ledger {
        self.terms.ledger()
    }

    /// The limit and what of it is taken, with the arena of earlier steps given back.
    pub(super) fn room(&mut self, keys: &[StepKey], graphs: &[Graph], keeps: Keeps) -> Result<Room, Error> {
        let besides = Besides { results: self.results_bytes(graphs.first(), keeps), input: keeps.input };
        let room = self.terms.room(graphs, self.compiled.as_ref().map(|c| &c.engine), besides)?;
        Ok(self.planning_again(room, keys, graphs))
    }

    /// Whether steps that are there already do for what is to be kept now: its memory is reserved if it can be.
    pub(super) fn keep(&mut self, keeps: Keeps, programs: &[ProgramId]) -> bool {
        let compiled = self.compiled.as_ref().expect("steps are there");
        let graph = programs.first().map(|&program| &compiled.engine.plan(program).graph);
        self.terms.keep(Besides { results: self.results_bytes(graph, keeps), input: keeps.input })
    }

    /// The memory of what is kept, given a step that makes the results.
    fn results_bytes(&self, graph: Option<&Graph>, keeps: Keeps) -> Bytes {
        let kept = self.variables.iter().filter(|v| matches!(v.role, Role::Weight | Role::Statistic));
        let (n_kept, weights) = kept.fold((0, 0), |(n, bytes), v| (n + 1, bytes + v.ty.bytes()));
        // Every block of the allocator has a head, and large ones have whole pages.
        let mut bytes = (weights + n_kept * PAGE) * keeps.copies_of_weights;
        if let (Some(kept), Some(graph)) = (keeps.rows_of_results, graph) {
            for output in graph.outputs() {
                let ty = graph.ty(output.value);
                let rows = ty.dims().first().copied().unwrap_or(1).max(1);
                // All rows, and a copy of one batch.
                bytes += ty.bytes() / rows * kept + ty.bytes() + 4 * PAGE;
            }
        }
        Bytes::from(bytes)
    }

    /// Where states are and how the steps run, within the limit if there is one; the memory for it is reserved.
    pub(super) fn choose(&mut self, keys: &[StepKey], graphs: &[Graph], room: &Room) -> Result<Choice, Error> {
        let choice = self.choice_or_remedies(keys, graphs, room)?;
        let mapped = self.compiled.as_ref().map_or(Bytes::ZERO, |c| c.engine.bytes());
        self.terms.take(room, &choice, mapped)?;
        Ok(choice)
    }

    /// As `choice`; a refusal says what was tried and what would do.
    pub(super) fn choice_or_remedies(
        &mut self,
        keys: &[StepKey],
        graphs: &[Graph],
        room: &Room,
    ) -> Result<Choice, Error> {
        let (states, steps) = (states(&self.variables), self.steps(keys, graphs));
        self.terms.choice_or_remedies(&steps, &states, room).map_err(|error| match error {
            Error::WouldNotFit(mut refusal) => {
                refusal.remedies.extend(self.smaller_batch(keys, room));
                Error::WouldNotFit(refusal)
            }
            other => other,
        })
    }

    /// Where states would be and how the steps would run.
    pub(super) fn choice(&mut self, keys: &[StepKey], graphs: &[Graph], room: &Room) -> Result<Choice, Error> {
        let (states, steps) = (states(&self.variables), self.steps(keys, graphs));
        self.terms.choice(&steps, &states, room)
    }

    /// A smaller batch that would keep the limit; it is planned.
    fn smaller_batch(&mut self, keys: &[StepKey], room: &Room) -> Option<String> {
        let largest = keys.iter().map(|k| k.batch).max().unwrap_or(0);
        for parts in [2, 8, 32] {
            let batch = largest / parts;
            if batch == 0 {
                break;
            }
            let smaller = |k: &StepKey| StepKey { batch: k.batch.min(batch), ..k.clone() };
            let keys: Vec<StepKey> = keys.iter().map(smaller).filter(|k| !k.fewer || k.batch > 1).collect();
            let graphs = keys.iter().map(|key| self.trace(key)).collect::<Result<Vec<Graph>, Error>>().ok()?;
            let (states, steps) = (states(&self.variables), self.steps(&keys, &graphs));
            let room = self.planning_again(room.clone(), &keys, &graphs);
            if self.terms.exists(&steps, &states, &room) {
                return Some(format!("batches of {batch}"));
            }
        }
        None
    }

    /// The same room when these steps are planned, some of which are planned again when their batches come.
    fn planning_again(&self, room: Room, keys: &[StepKey], graphs: &[Graph]) -> Room {
        let again = keys.iter().enumerate().filter(|(_, key)| key.fewer);
        room.planning_again(again.map(|(i, key)| (i, self.slices_besides(key))), graphs)
    }

    /// Slices that a batch of fewer rows may have more: 9 rows go into 5 slices where 6 were asked for, of 2 rows and a last one of 1, but 6 rows into 6.
    pub(super) fn slices_besides(&self, key: &StepKey) -> usize {
        let Some(asked) = self.slices_of(key) else { return 0 };
        let slices = key.batch.div_ceil(key.batch.div_ceil(asked).max(1));
        asked.min(key.batch.saturating_sub(1)).saturating_sub(slices)
    }

    /// The slices that were asked for.
    fn slices_of(&self, key: &StepKey) -> Option<usize> {
        self.slices.filter(|_| key.mode == Mode::Train)
    }

    /// The steps as the planner sees them.
    pub(super) fn steps<'g>(&self, keys: &[StepKey], graphs: &'g [Graph]) -> Vec<Step<'g>> {
        // Batches of unknown size are planned for as whole ones, with the same plan.
        let whole = |key: &StepKey| keys.iter().position(|k| *k == StepKey { fewer: false, ..key.clone() });
        let step = |(key, graph): (&StepKey, &'g Graph)| Step {
            graph: whole(key).map_or(graph, |at| &graphs[at]),
            batch: Some(Batch { entries: key.batch, inputs: key.fields.iter().map(input_name).collect() }),
            cut: self.slices_of(key).map(|n| Cut::into_slices(n, key.batch)),
        };
        keys.iter().zip(graphs).map(step).collect()
    }
}

/// The states of a model, with the order in which they go to the file: what is used least often first.
pub(super) fn states(variables: &Variables) -> Vec<State> {
    let rank = |role: Role| match role {
        Role::Moment => Some(0),
        Role::Weight => Some(1),
        Role::Statistic | Role::Metric => None,
    };
    let state = |v: &crate::trace::Variable| State {
        name: v.name.clone(),
        ty: v.ty,
        rank: rank(v.role).filter(|_| v.ty.bytes() >= MOVABLE),
        filed: false,
    };
    variables.iter().map(state).collect()
}
