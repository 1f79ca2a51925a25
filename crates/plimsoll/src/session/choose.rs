//! Keeping a memory limit: which techniques may be used, what they cost on this machine, and which are chosen.

use super::Terms;
use super::limit::{Fixed, GRAIN, HEAP_OF_A_NODE, Room, search_bytes};
use crate::error::Error;
use plimsoll_budget::Bytes;
use plimsoll_exec::{ExecError, SpillFile, calibrate};
use plimsoll_graph::{Graph, NodeId};
use plimsoll_kernels::Pool;
use plimsoll_plan::choose::{Refusal, State};
use plimsoll_plan::evict::Effort;
use plimsoll_plan::split::{Batch, Cut, Splitter, candidates};
use plimsoll_plan::{Choice, Chooser, CostModel, Options, Plan, PlanError, Reserve, Step, fuse};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What may be done to keep a memory limit. None of it changes a result, only how long a step takes.
///
/// ```
/// use plimsoll::session::Techniques;
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

    /// The names of those that others do not have.
    fn without(self, others: Techniques) -> Vec<&'static str> {
        let all = [
            (self.split, others.split, "slices of the batch"),
            (self.recompute, others.recompute, "recomputing"),
            (self.spill, others.spill, "a spill file"),
        ];
        all.into_iter().filter(|(own, other, _)| *own && !other).map(|(.., name)| name).collect()
    }

    /// What was tried, for a refusal.
    fn tried(self) -> String {
        let tried = self.without(Techniques::NONE);
        if tried.is_empty() {
            "nothing: slices, recomputing and spilling are switched off".into()
        } else {
            tried.join(", ")
        }
    }
}

impl Default for Techniques {
    fn default() -> Techniques {
        Techniques::ALL
    }
}

/// What is done so that a step keeps its memory limit, and what that costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Slices in which a batch runs.
    pub slices: usize,
    /// Stretches of the step that run on all slices one after another, so that not all gradients are there at once; 1 mostly.
    pub stretches: usize,
    /// Whether the slices leave every bit as it is; only slices that were asked for may not.
    pub exact: bool,
    /// The op that needs the whole batch at once, and its layer, where that keeps slices from saving more.
    pub barrier: Option<String>,
    /// Ops that run again in a step.
    pub ops_again: usize,
    /// Bytes written to the spill file in a step.
    pub written: Bytes,
    /// Bytes read from it.
    pub read: Bytes,
    /// Weights and moments that live in the file.
    pub states_in_file: Bytes,
    /// Seconds of a step, as estimated.
    pub seconds: f64,
    /// Of which for keeping the limit.
    pub extra_seconds: f64,
}

impl Kept {
    /// What a plan does.
    pub fn of(plan: &Plan) -> Kept {
        let (split, cost) = (plan.split.as_ref(), plan.recomputed);
        Kept {
            slices: split.map_or(1, |s| s.slices),
            stretches: split.map_or(1, |s| s.stretches),
            exact: split.is_none_or(|s| s.exact),
            barrier: split.and_then(|s| s.barrier.clone()),
            ops_again: cost.nodes,
            written: Bytes(cost.written),
            read: Bytes(cost.read),
            states_in_file: Bytes(plan.state.file_bytes()),
            seconds: cost.seconds,
            extra_seconds: cost.extra_seconds,
        }
    }

    /// Whether nothing had to be done.
    pub fn is_plain(&self) -> bool {
        self.slices == 1 && self.ops_again == 0 && self.written == Bytes::ZERO && self.read == Bytes::ZERO
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.seconds - self.extra_seconds;
        match base > 1e-3 * self.extra_seconds {
            _ if self.is_plain() => f.write_str(&self.how()),
            true => write!(f, "{}; about {:+.0} % time", self.how(), 100.0 * self.extra_seconds / base),
            // Nothing of the rest was measured, so there is nothing to compare with.
            false => write!(f, "{}; about {:.2} s more a step", self.how(), self.extra_seconds),
        }
    }
}

impl Kept {
    /// What is done, in words, without what it costs.
    pub fn how(&self) -> String {
        if self.is_plain() {
            return "nothing had to be done".into();
        }
        let mut parts = Vec::new();
        if self.slices > 1 {
            let note = if self.exact { "" } else { ", finer than sums can follow bit for bit" };
            let stretches = match self.stretches {
                1 => String::new(),
                n => format!(" through {n} stretches of the step in turn"),
            };
            parts.push(format!("batches run in {} slices{stretches}{note}", self.slices));
        }
        if self.ops_again > 0 {
            parts.push(format!("{} ops run again", self.ops_again));
        }
        if self.written > Bytes::ZERO || self.read > Bytes::ZERO {
            parts.push(format!("{} written to a file and {} read a step", self.written, self.read));
        }
        if self.states_in_file > Bytes::ZERO {
            parts.push(format!("{} of weights and optimizer state live there", self.states_in_file));
        }
        let barrier = self.barrier.as_ref().filter(|_| self.slices > 1);
        parts.join(", ") + &barrier.map_or(String::new(), |op| format!(" ({op} needs whole batches)"))
    }
}

/// How long the ops of a model are measured before the first plan that has to choose.
const CALIBRATION: Duration = Duration::from_millis(900);

/// How long ops are measured again that are known, by every process that has to choose.
const REFRESH: Duration = Duration::from_millis(120);

/// How long the disk is, in every process that may use it: how fast it is depends on who else does.
const DISK_CALIBRATION: Duration = Duration::from_millis(60);

/// How hard to look for a cheaper plan at each of the rooms that are looked at, once it is known that there is one: about a tenth of a second for a
/// thousand ops. Seven times the base made plans no cheaper in the mean of 17 rooms for each of seven models, and planning twice as long.
const SEARCH: Effort = Effort { base: 1_000_000, per_task: 3_500, states: Effort::QUICK.states };

/// The steps of a model, with and without a file.
struct Choosers<'a> {
    in_memory: Chooser<'a>,
    with_file: Chooser<'a>,
    /// Memory that looking for a way takes.
    search: Bytes,
}

impl Terms {
    /// Where a spill file may be made; `None` when none may, or none of the usual directories is on a disk.
    pub(crate) fn spill_dir(&self) -> Option<PathBuf> {
        if !self.techniques.spill {
            return None;
        }
        let usual = || SpillFile::first_on_disk(self.spill_near.iter().cloned().chain(usual_directories()));
        self.spill_dir.clone().or_else(usual)
    }

    /// Whether there is a place for a spill file. One that the user named and that will not do is an error.
    fn may_spill(&self) -> Result<bool, Error> {
        let named = self.spill_dir.as_ref().filter(|_| self.techniques.spill);
        named.map_or(Ok(()), |named| SpillFile::try_directory(named)).map_err(ExecError::from)?;
        Ok(self.spill_dir().is_some())
    }

    /// As `choice`; a refusal says what was tried, and whether techniques that are not allowed would help.
    pub(crate) fn choice_or_remedies(
        &mut self,
        steps: &[Step<'_>],
        states: &[State],
        room: &Room,
    ) -> Result<Choice, Error> {
        self.choice(steps, states, room).map_err(|error| match error {
            Error::WouldNotFit(mut refusal) => {
                refusal.tried = self.tried();
                refusal.remedies = self.remedies(steps, states, room);
                Error::WouldNotFit(refusal)
            }
            other => other,
        })
    }

    /// What was tried, for a refusal.
    fn tried(&self) -> String {
        match self.spill_dir() {
            None if self.techniques.spill => {
                let others = Techniques { spill: false, ..self.techniques }.tried();
                format!("{others}; no spill file, since no usual directory for it is on a disk")
            }
            _ => self.techniques.tried(),
        }
    }

    /// Techniques that would keep the limit if they were allowed.
    fn remedies(&mut self, steps: &[Step<'_>], states: &[State], room: &Room) -> Vec<String> {
        let allowed = self.techniques;
        let missing = Techniques::ALL.without(allowed);
        if missing.is_empty() {
            return Vec::new();
        }
        self.techniques = Techniques::ALL;
        let helps = self.exists(steps, states, room);
        self.techniques = allowed;
        if helps { vec![format!("allowing {}", missing.join(" and "))] } else { Vec::new() }
    }

    /// Whether there is a way to keep the limit.
    pub(crate) fn exists(&self, steps: &[Step<'_>], states: &[State], room: &Room) -> bool {
        let Some(limit) = room.limit else { return false };
        let space = room.fixed.space_within(limit).0;
        let exists = || -> Result<bool, PlanError> {
            let Choosers { in_memory, with_file, search } = self.choosers(steps, states, room)?;
            if !room.fixed.may_search(limit, search) {
                return Ok(false);
            }
            if in_memory.exists(space)? {
                return Ok(true);
            }
            if !self.may_spill().unwrap_or(false) {
                return Ok(false);
            }
            let overhead = spill_overhead(in_memory.unlimited()?.bytes(HEAP_OF_A_NODE.0)).0;
            with_file.exists(space.saturating_sub(overhead))
        };
        exists().unwrap_or(false)
    }

    /// What the planner may do, with or without a file.
    fn options(&self, spill: bool) -> Options {
        let Techniques { split, recompute, .. } = self.techniques;
        let (threads, node_bytes) = (self.threads, HEAP_OF_A_NODE.0);
        Options { threads, node_bytes, search: SEARCH, split, recompute, spill, ..Options::default() }
    }

    /// The same when nothing is done to keep a limit.
    fn plainly(&self, reserve: Reserve) -> Options {
        let costs = self.costs.clone().unwrap_or_default();
        Options { split: false, recompute: false, costs, reserve, ..self.options(false) }
    }

    /// The steps, to be planned with all that may be done, by costs that nobody measured.
    fn choosers<'s>(&self, steps: &[Step<'_>], states: &'s [State], room: &Room) -> Result<Choosers<'s>, PlanError> {
        let chooser = Chooser::new(steps, states, &self.options(false))?;
        let search = search_bytes(steps, &chooser);
        // Those that are planned again are so one by one.
        let again = room.planned_again.iter().map(|&i| search_bytes(&steps[i..=i], &chooser)).max();
        let least = again.unwrap_or_default().0.max(room.again.least);
        let reserve = Reserve { least, ..room.again };
        let with = |spill: bool| chooser.with(&Options { reserve, ..self.options(spill) });
        Ok(Choosers { in_memory: with(false), with_file: with(true), search })
    }

    pub(crate) fn choice(&mut self, steps: &[Step<'_>], states: &[State], room: &Room) -> Result<Choice, Error> {
        let whole = Chooser::new(steps, states, &self.plainly(room.again))?.unlimited()?;
        let Some(limit) = room.limit else { return Ok(whole) };
        let mut space = room.fixed.space_within(limit).0;
        let needed = whole.bytes(HEAP_OF_A_NODE.0);
        if needed <= space {
            return Ok(whole);
        }
        let spill = self.may_spill()?;
        let overhead = spill_overhead(needed).0;
        // Whether there is a way at all does not depend on what it costs.
        let Choosers { in_memory, with_file, search } = self.choosers(steps, states, room)?;
        self.budget.make_room(search);
        let may_search = room.fixed.may_search(limit, search);
        let fits = |space: u64| {
            let less = space.saturating_sub(overhead);
            Ok(needed <= space || in_memory.exists(space)? || spill && with_file.exists(less)?)
        };
        if !may_search || !fits(space)? {
            // The smaller of the two is told; what is not smaller in any case is not looked for.
            let filed = spill.then(|| with_file.refusal(space)).transpose()?;
            let filed = filed.map(|r| Refusal { smallest: r.smallest + overhead, ..r });
            let may_be_less = |than: &Refusal| Ok::<_, PlanError>(in_memory.floor()? < than.smallest);
            let plain = match &filed {
                Some(filed) if !may_be_less(filed)? => None,
                _ => Some(in_memory.refusal(space)?),
            };
            let stay = states.iter().filter(|s| s.rank.is_none()).map(|s| s.ty.bytes() as u64).sum();
            let ways = plain.map(|r| (Bytes(r.states), r)).into_iter();
            let ways = ways.chain(filed.map(|r| (Bytes(stay) + Bytes(overhead), r)));
            let (beside, refusal) =
                ways.min_by_key(|(_, r)| r.smallest).expect("there is one without a file or one with it");
            let refusal = tried(Refusal { unlimited: needed, ..refusal }, fits)?;
            if !may_search || refusal.smallest > space {
                return Err(room.refusal(limit, refusal, beside, search));
            }
            // The search found nothing for this room, but for a smaller one: what does for less does here.
            space = refusal.smallest;
        }
        let less = space.saturating_sub(overhead);
        // The library packs while ops are timed, and half of what steps will have is theirs then, if the graphs that are looked at leave so much.
        let Fixed { process, others, library, .. } = room.fixed;
        let left = limit.saturating_sub(process + others + library);
        let costs = self.measured(steps, Bytes(space / 2), left, spill);
        let in_memory = (in_memory.at(&costs), space);
        let with_file = (with_file.at(&costs), less);
        // What the first finds tells the second what is not worth looking for. Where there is hardly room without a file, that is likely slow.
        let mut ways = vec![in_memory];
        if spill {
            let first = if ways[0].0.is_tight(space)? { 0 } else { 1 };
            ways.insert(first, with_file);
        }
        let mut cheapest: Option<Choice> = None;
        for (chooser, room) in ways {
            let known = cheapest.as_ref().map_or(f64::INFINITY, Choice::seconds);
            let found = chooser.within(room, known)?;
            cheapest = cheapest.into_iter().chain(found).min_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        }
        Ok(cheapest.expect("a way was found before, by a search that costs do not change"))
    }

    /// A plan for one step more, if one is found: on states that stay where they are, in an arena that is there already, with so many nodes at most, cut as the step says
    /// or not at all, in the order `like` others where it may; by costs that are known.
    pub(crate) fn plan_beside(
        &self,
        step: Step<'_>,
        states: &[State],
        (arena, nodes): (u64, usize),
        like: &[NodeId],
        may_spill: bool,
    ) -> Result<Option<Plan>, PlanError> {
        let costs = self.costs.clone().unwrap_or_default().settled();
        let options = Options { costs, split: step.cut.is_some(), ..self.options(may_spill) };
        Chooser::new(&[step], states, &options)?.in_arena(arena, nodes as u64, like)
    }

    /// What the ops of these steps cost on this machine: from earlier runs, and measured where nothing is known, in so much `room`, or what graphs leave.
    fn measured(&mut self, steps: &[Step<'_>], room: Bytes, left: Bytes, spill: bool) -> CostModel {
        let path = calibrate::cache_path(self.threads);
        // With how many slices the nodes of a graph stand for.
        let mut graphs: Vec<(Graph, usize)> = Vec::new();
        for (i, step) in steps.iter().enumerate() {
            let is_known = steps[..i].iter().any(|other| std::ptr::eq(other.graph, step.graph));
            let Some(fused) = fuse::fuse(step.graph).ok().filter(|_| !is_known) else { continue };
            let batch = step.batch.as_ref().filter(|_| self.techniques.split || step.cut.is_some());
            for (batch, entries) in
                batch.iter().flat_map(|batch| a_few_slices(&fused, batch).into_iter().map(move |e| (batch, e)))
            {
                let split = Splitter::new(&fused, batch, Cut::exact(entries)).sample();
                graphs.extend(split.map(|split| (split.graph, split.info.slices.div_ceil(3))));
            }
            graphs.push((fused, 1));
        }
        let nodes: usize = graphs.iter().map(|(graph, _)| graph.nodes().len()).sum();
        let room = room.min(left.saturating_sub(Bytes(HEAP_OF_A_NODE.0 * nodes as u64)));
        let graphs: Vec<&Graph> = graphs.iter().flat_map(|(graph, times)| std::iter::repeat_n(graph, *times)).collect();
        let is_first = self.costs.is_none();
        let mut model = self.costs.take().unwrap_or_default();
        if let Some(path) = &path {
            calibrate::load(&mut model, path, &graphs);
        }
        let pool = Pool::new(self.threads);
        let refreshed = is_first && calibrate::refresh(&mut model, &graphs, &pool, room, REFRESH);
        let calibrated = calibrate::calibrate(&mut model, &graphs, &pool, room, CALIBRATION);
        if let Some(path) = path.filter(|_| refreshed || calibrated) {
            calibrate::save(&model, &path);
        }
        let directory = self.spill_dir().filter(|_| spill);
        if let Some(directory) = directory.filter(|directory| self.timed_disk.as_ref() != Some(directory)) {
            calibrate::time_disk(&mut model, &directory, &pool, room, DISK_CALIBRATION);
            self.timed_disk = Some(directory);
        }
        self.costs = Some(model.clone());
        model.settled()
    }
}

/// Where a spill file is made if nobody says otherwise, the first that is on a disk.
fn usual_directories() -> [PathBuf; 3] {
    [std::env::temp_dir(), "/var/tmp".into(), ".".into()]
}

/// The directory in which a spill file is made if nobody says otherwise: the first on a disk of the one for temporary files, `/var/tmp` and
/// the current one, or the first of them.
pub fn usual_spill_dir() -> PathBuf {
    SpillFile::first_on_disk(usual_directories()).unwrap_or_else(std::env::temp_dir)
}

/// Slices on which the ops of a step are timed: a third and an eighth of the batch, or what is nearest, and the finest, on which some ops are
/// much less efficient. Between them time is taken to grow evenly.
fn a_few_slices(graph: &Graph, batch: &Batch) -> Vec<usize> {
    let all = candidates(graph, batch);
    let near = |part: usize| all.iter().copied().min_by_key(|entries| entries.abs_diff(batch.entries / part));
    let mut few: Vec<usize> = [near(3), near(8), all.last().copied()].into_iter().flatten().collect();
    few.dedup();
    few
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

/// Memory that a spill file takes for its buffers and checksums, at most, for a model of so many bytes.
fn spill_overhead(bytes: u64) -> Bytes {
    const CHECKSUM: u64 = 64;
    // A state that lives in the file is read and set through one more piece.
    SpillFile::FIXED_MEMORY
        + Bytes(plimsoll_exec::PIECE as u64)
        + Bytes((2 * bytes).div_ceil(plimsoll_exec::PIECE as u64) * CHECKSUM)
        + Bytes::kib(64)
}
