//! Keeping a memory limit: which techniques may be used, what they cost on this machine, and which are chosen.

use super::Trainer;
use super::compile::{StepKey, input_name};
use super::limit::{GRAIN, HEAP_OF_A_NODE, Room};
use crate::error::Error;
use crate::trace::{Mode, Role, Variables};
use plimsoll_budget::Bytes;
use plimsoll_exec::{SpillFile, calibrate};
use plimsoll_graph::Graph;
use plimsoll_kernels::Pool;
use plimsoll_plan::choose::{Refusal, State};
use plimsoll_plan::evict::Effort;
use plimsoll_plan::split::{Batch, Cut, Splitter, candidates};
use plimsoll_plan::{Choice, Chooser, CostModel, Options, Plan, PlanError, Step, fuse};
use std::path::PathBuf;
use std::time::Duration;

/// What may be done to keep a memory limit. None of it changes a result, only how long a step takes.
///
/// ```
/// use plimsoll::trainer::Techniques;
/// let no_disk = Techniques { spill: false, ..Techniques::ALL };
/// assert!(no_disk.split && no_disk.recompute);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// Running a batch in slices whose gradients are added up.
    pub split: bool,
    /// Computing values again instead of keeping them.
    pub recompute: bool,
    /// Moving values, weights and the optimizer's state to a file.
    pub spill: bool,
}

impl Techniques {
    /// All of them.
    pub const ALL: Techniques = Techniques { split: true, recompute: true, spill: true };
    /// None: what does not fit plainly is refused.
    pub const NONE: Techniques = Techniques { split: false, recompute: false, spill: false };
}

impl Default for Techniques {
    fn default() -> Techniques {
        Techniques::ALL
    }
}

/// How long the ops of a model are measured before the first plan that has to choose.
const CALIBRATION: Duration = Duration::from_millis(600);

/// How hard to look for a cheaper plan, once it is known that there is one: about a second for a thousand ops.
const SEARCH: Effort = Effort { base: 60_000_000, per_task: 40_000 };

/// States below this size never go to the file: the way there takes longer than it is worth.
const MOVABLE: usize = 64 << 10;

impl Trainer {
    /// With these ways to keep a memory limit instead of all.
    #[must_use]
    pub fn techniques(mut self, techniques: Techniques) -> Trainer {
        self.techniques = techniques;
        self
    }

    /// With the spill file in this directory instead of the one for temporary files. The file has no name there and goes when
    /// the trainer does, however it ends.
    #[must_use]
    pub fn spill_to(mut self, directory: impl Into<PathBuf>) -> Trainer {
        self.spill_dir = Some(directory.into());
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

    /// The plans of the steps that are ready to run.
    pub fn planned(&self) -> Vec<&Plan> {
        self.compiled.as_ref().map_or_else(Vec::new, |c| c.plans())
    }

    /// Where a spill file may be made; `None` when none may.
    pub(super) fn spill_dir(&self) -> Option<PathBuf> {
        self.techniques.spill.then(|| self.spill_dir.clone().unwrap_or_else(std::env::temp_dir))
    }

    /// Where states are and how the steps run, within the limit if there is one; the memory for it is reserved.
    pub(super) fn choose(&mut self, keys: &[StepKey], graphs: &[Graph], room: &Room) -> Result<Choice, Error> {
        let choice = self.choice(keys, graphs, room)?;
        self.take(room, &choice)?;
        Ok(choice)
    }

    fn choice(&mut self, keys: &[StepKey], graphs: &[Graph], room: &Room) -> Result<Choice, Error> {
        let states = states(&self.variables);
        let steps = self.steps(keys, graphs);
        let Techniques { split, recompute, spill } = self.techniques;
        let plain = Options {
            threads: self.threads,
            node_bytes: HEAP_OF_A_NODE.0,
            search: SEARCH,
            split: false,
            recompute: false,
            spill: false,
            ..Options::default()
        };
        let whole = Chooser::new(&steps, &states, &plain)?.unlimited()?;
        let Some(limit) = room.limit else { return Ok(whole) };
        let space = room.fixed.space_within(limit).0;
        let needed = whole.bytes(plain.node_bytes);
        if needed <= space {
            return Ok(whole);
        }
        let overhead = spill_overhead(needed).0;
        let less = space.saturating_sub(overhead);
        // Whether there is a way at all does not depend on what it costs.
        let in_memory = Options { split, recompute, ..plain.clone() };
        let with_file = Options { spill: true, ..in_memory.clone() };
        let choosers = (Chooser::new(&steps, &states, &in_memory)?, Chooser::new(&steps, &states, &with_file)?);
        let fits =
            |space: u64| Ok(choosers.0.exists(space)? || spill && choosers.1.exists(space.saturating_sub(overhead))?);
        if !room.fixed.may_search(limit) || !fits(space)? {
            let mut refusal = choosers.0.refusal(space)?;
            if spill {
                let filed = choosers.1.refusal(space)?;
                let filed = Refusal { smallest: filed.smallest + overhead, ..filed };
                refusal = if filed.smallest < refusal.smallest { filed } else { refusal };
            }
            return Err(room.refusal(limit, tried(refusal, fits)?));
        }
        drop(choosers);
        let costs = self.measured(&steps, Bytes(space));
        let in_memory = Options { costs: costs.clone(), ..in_memory };
        let in_memory = Chooser::new(&steps, &states, &in_memory)?;
        let found = in_memory.within(space)?;
        if let Some(choice) = found.as_ref().filter(|choice| !spill || is_cheap(choice)) {
            return Ok(in_memory.finish(choice.clone(), space)?);
        }
        let with_file = Options { costs, ..with_file };
        let with_file = Chooser::new(&steps, &states, &with_file)?;
        match (found, with_file.within(less)?) {
            (Some(a), Some(b)) if b.seconds() < a.seconds() => Ok(with_file.finish(b, less)?),
            (Some(a), _) => Ok(in_memory.finish(a, space)?),
            (None, Some(b)) => Ok(with_file.finish(b, less)?),
            (None, None) => unreachable!("a way was found before, by a search that costs do not change"),
        }
    }

    /// The steps as the planner sees them.
    pub(super) fn steps<'g>(&self, keys: &[StepKey], graphs: &'g [Graph]) -> Vec<Step<'g>> {
        let step = |(key, graph): (&StepKey, &'g Graph)| Step {
            graph,
            batch: Some(Batch { entries: key.batch, inputs: key.fields.iter().map(input_name).collect() }),
            slices: self.slices.filter(|_| key.mode == Mode::Train),
        };
        keys.iter().zip(graphs).map(step).collect()
    }

    /// What the ops of these steps cost on this machine: from earlier runs, and measured where nothing is known.
    fn measured(&mut self, steps: &[Step<'_>], room: Bytes) -> CostModel {
        let path = calibrate::cache_path(self.threads);
        let mut model = self.costs.take().unwrap_or_else(|| {
            let mut model = CostModel::default();
            if let Some(path) = &path {
                calibrate::load(&mut model, path);
            }
            model
        });
        let mut graphs: Vec<Graph> = Vec::new();
        for step in steps {
            let Ok(fused) = fuse::fuse(step.graph) else { continue };
            if let Some(batch) = &step.batch
                && let Some(entries) = a_few_slices(&fused, batch)
                && let Ok(split) = Splitter::new(&fused, batch, Cut { entries, exact: true }).build()
            {
                graphs.push(split.graph);
            }
            graphs.push(fused);
        }
        let graphs: Vec<&Graph> = graphs.iter().collect();
        let pool = Pool::new(self.threads);
        let room = Bytes(room.0 / 2);
        if calibrate::calibrate(&mut model, &graphs, &pool, room, CALIBRATION)
            && let Some(path) = &path
        {
            calibrate::save(&model, path);
        }
        self.costs = Some(model.clone());
        model
    }
}

/// Slices on which the ops of a step take long enough to be timed and not much longer.
fn a_few_slices(graph: &Graph, batch: &Batch) -> Option<usize> {
    candidates(graph, batch).into_iter().min_by_key(|entries| entries.abs_diff(batch.entries / 8))
}

/// The states of a model, with the order in which they go to the file: what is used least often first.
fn states(variables: &Variables) -> Vec<State> {
    let rank = |role: Role| match role {
        Role::Moment => Some(0),
        Role::Weight => Some(1),
        Role::Statistic | Role::Metric => None,
    };
    let state = |v: &crate::trace::Variable| State {
        name: v.name.clone(),
        ty: v.ty,
        rank: rank(v.role).filter(|_| v.ty.bytes() >= MOVABLE),
    };
    variables.iter().map(state).collect()
}

/// A refusal whose smallest room was tried, and so was a [`GRAIN`] less.
///
/// Choosing is a search, so what was found for some room may not be found again for a little more, or for a little less be found
/// after all. What is told must be true in the next process, which asks for that room.
fn tried(mut refusal: Refusal, fits: impl Fn(u64) -> Result<bool, PlanError>) -> Result<Refusal, PlanError> {
    const TRIES: u64 = 16;
    let mut grains = refusal.smallest.min(refusal.unlimited).div_ceil(GRAIN.0);
    let (least, most) = (grains.saturating_sub(TRIES), grains + TRIES);
    while grains < most && !fits(grains * GRAIN.0)? {
        grains += 1;
    }
    while grains > least && fits((grains - 1) * GRAIN.0)? {
        grains -= 1;
    }
    refusal.smallest = grains * GRAIN.0;
    Ok(refusal)
}

/// Whether keeping the limit costs so little that nothing else need be tried.
fn is_cheap(choice: &Choice) -> bool {
    choice.extra_seconds() <= 0.02 * choice.seconds()
}

/// Memory that a spill file takes for its buffers and checksums, at most, for a model of so many bytes.
fn spill_overhead(bytes: u64) -> Bytes {
    const CHECKSUM: u64 = 64;
    // A state that lives in the file is read and set through one more piece.
    SpillFile::FIXED_MEMORY
        + Bytes(plimsoll_exec::PIECE as u64)
        + Bytes((2 * bytes).div_ceil(plimsoll_exec::PIECE as u64) * CHECKSUM)
        + Bytes::kib(64)
}
