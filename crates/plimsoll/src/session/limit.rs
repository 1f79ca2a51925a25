//! The memory limit of the whole process: where it comes from, what of it is taken, what of it is left for a step.
//!
//! [`Terms::limits`] finds the limit. What the process holds already (code, heap, the caller's arrays) is measured; what it
//! will come to hold besides the step's arena (states, what the library for matrix products packs, stacks, plans) is
//! known or bounded. The rest is the arena's, and the planner keeps it. All of it stands in the budget's ledger under names, and
//! its sum is what the limit is compared with.
//!
//! A refusal names the smallest limit that would do, and that must hold in another process. So nothing that differs from run to
//! run is in the sum, up to a few pages: programs count whole instead of what the page cache happened to have
//! ([`Footprint`](measure::Footprint)), and the heap is trimmed before it is measured. [`GRAIN`] covers the rest.

use super::Terms;
use crate::error::Error;
use plimsoll_budget::limits::{Host, Limits, Source};
use plimsoll_budget::{Budget, Bytes, Ledger, Limit, Reservation, measure};
use plimsoll_exec::{ArenaError, Engine, Sounding, sound};
use plimsoll_graph::Graph;
use plimsoll_kernels::gemm::Packing;
use plimsoll_kernels::pool::STACK_BYTES;
use plimsoll_plan::choose::{Choice, Refusal};
use plimsoll_plan::{Chooser, Explanation, Reserve, Step};
use std::fmt;

/// Stack and heap memory that a thread touches by being there.
const THREAD: Bytes = Bytes::kib(64);

/// Heap memory of histories, logs and messages.
const HEAP: Bytes = Bytes::kib(256);

/// Heap memory of a node of a plan, with room for some that run twice.
pub(crate) const HEAP_OF_A_NODE: Bytes = Bytes(2 << 10);

/// What is left of tracing a node, in a heap that never gives back all that was freed.
const HEAP_OF_TRACING: Bytes = Bytes(1 << 10);

/// Heap memory that planning takes for a while, before there is an arena: so much for a traced node.
const PLANNING_OF_A_NODE: Bytes = Bytes::kib(6);

/// The same for looking for a way to keep a limit: so much for a traced node, for one of the largest graph that is looked at, which may have
/// a node for every slice of a batch, and again for the first few hundred of these, which are looked through more thoroughly. Of what this comes
/// to, 0.66 were measured for DenseNet-121 (4,136 nodes traced, 5,712 in slices), 0.75 for ResNet-50, 0.8 for U-Net and GPT-2 small, W5 and W6.
const SEARCH_OF_A_TRACED_NODE: Bytes = Bytes::kib(2);
const SEARCH_OF_A_NODE: Bytes = Bytes::kib(4);
const FEW_NODES: usize = 256;

/// What the search takes at least.
const SEARCH_OF_A_SMALL_STEP: Bytes = Bytes::mib(1);

/// What the kernel holds for a thread (its stack), and for a core (memory it takes ahead of need). A control group counts
/// both.
const KERNEL_OF_A_THREAD: Bytes = Bytes::kib(16);
const KERNEL_OF_A_CORE: Bytes = Bytes::kib(256);

/// Page tables that are there for any process.
const TABLES: Bytes = Bytes::kib(128);

/// The arena is planned in steps of this size. Two processes that do the same differ by a few pages, measured 4 to 8 KiB; a
/// refusal names a limit in the middle between two steps, so that up to 32 KiB lead to the same plan.
pub(crate) const GRAIN: Bytes = Bytes::kib(64);

/// How close foreign memory may come to the limit during training.
pub(super) const RESERVE: Bytes = Bytes::kib(128);

/// Memory is touched ahead of the first step only where it is a large part of what the host has.
const SOUND_FROM: Bytes = Bytes::mib(64);

const PAGE: u64 = 4096;

/// Pages that a page table leads to.
const ENTRIES: u64 = 512;

/// Address space that a thread takes without touching it: its stack, and its part of the allocator.
const ADDRESSES_OF_A_THREAD: Bytes = Bytes(STACK_BYTES as u64 + (64 << 20));

/// The account of input pipelines.
pub(crate) const INPUT: &str = "input";

/// What is kept besides steps and states.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Besides {
    /// Predictions, and copies of weights.
    pub results: Bytes,
    /// The least with which the input pipelines can work.
    pub input: Bytes,
}

/// The parts of a limit that are taken before states and arena get any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fixed {
    /// What the process holds already, without what is reserved: code, heap, the caller's data.
    pub process: Bytes,
    /// What matrix products pack, at most.
    pub library: Bytes,
    /// Stacks, the heap of plans and histories, page tables, and what the kernel holds for the process.
    pub runtime: Bytes,
    /// Predictions, and copies of weights that callbacks keep.
    pub results: Bytes,
    /// The least with which the input pipelines can work.
    pub input: Bytes,
    /// What others hold in the same budget.
    pub others: Bytes,
    /// What planning takes, before there are states and an arena: not in the sum, but a limit must have room for it.
    pub planning: Bytes,
}

impl Fixed {
    /// The sum.
    pub fn total(&self) -> Bytes {
        self.process + self.library + self.runtime + self.results + self.input + self.others
    }

    /// What is left for states and arena under a limit, in whole [`GRAIN`]s.
    pub(crate) fn space_within(&self, limit: Bytes) -> Bytes {
        if limit < self.process + self.others + self.planning {
            return Bytes::ZERO;
        }
        // Two mappings, each of which may begin and end inside a page table and a page.
        let pages = (limit.saturating_sub(self.total()).0 / PAGE).saturating_sub(4);
        let space = pages * ENTRIES / (ENTRIES + 1) * PAGE;
        Bytes(space / GRAIN.0 * GRAIN.0)
    }

    /// Whether a limit has room for looking for a way to keep it, which takes so much.
    pub(crate) fn may_search(&self, limit: Bytes, search: Bytes) -> bool {
        limit >= self.process + self.others + search
    }

    /// The limit under which so many bytes are left for states and arena, here and in another process.
    ///
    /// Planning, with so much memory of its own, comes before.
    fn limit_for(&self, space: Bytes, planning: Bytes) -> Bytes {
        let space = Bytes(space.0.next_multiple_of(GRAIN.0));
        (self.process + self.others + planning).max(self.total() + with_tables(space) + Bytes(3 * PAGE))
            + Bytes(GRAIN.0 / 2)
    }
}

/// What it takes to look for a way to keep a limit that the plain plans do not keep.
pub(crate) fn search_bytes(steps: &[Step<'_>], chooser: &Chooser<'_>) -> Bytes {
    let traced: usize = steps.iter().map(|s| s.graph.nodes().len()).sum();
    let nodes = chooser.most_nodes();
    let counted = nodes + nodes.min(FEW_NODES);
    let search = SEARCH_OF_A_TRACED_NODE.0 * traced as u64 + SEARCH_OF_A_NODE.0 * counted as u64;
    HEAP + SEARCH_OF_A_SMALL_STEP.max(Bytes(search))
}

/// Nodes that a plan may have more than the one in whose place it comes, of a step of so many nodes that may go through so many slices more: its search may end
/// elsewhere, and products have two nodes more in a slice of one row.
pub(crate) fn nodes_besides(n_nodes: usize, slices: usize) -> usize {
    8 + n_nodes / 4 + n_nodes * slices
}

/// What it takes to plan steps of so many nodes plainly.
fn planning_bytes(n_nodes: usize) -> Bytes {
    HEAP + Bytes(PLANNING_OF_A_NODE.0 * n_nodes as u64)
}

/// Whole pages, and the page tables that lead to them: one for so many entries, and one more since a mapping begins anywhere.
pub(crate) fn with_tables(bytes: Bytes) -> Bytes {
    let pages = bytes.0.div_ceil(PAGE);
    Bytes(if pages == 0 { 0 } else { (pages + pages.div_ceil(ENTRIES) + 1) * PAGE })
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fixed { process, library, runtime, results, input, others, .. } = self;
        write!(f, "the process so far {process}, matrix products {library}, runtime {runtime}")?;
        for (what, bytes) in [("results", results), ("input pipelines", input), ("others in this budget", others)] {
            if *bytes > Bytes::ZERO {
                write!(f, ", {what} {bytes}")?;
            }
        }
        Ok(())
    }
}

/// Why a limit cannot be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct WouldNotFit {
    /// The limit.
    pub limit: Bytes,
    /// Where the limit comes from, when the user did not set it: its value, its kind and its file.
    pub source: Option<String>,
    /// What the user asked for, when the host does not allow it.
    pub asked: Option<Bytes>,
    /// The smallest limit for which a plan was found.
    pub smallest: Bytes,
    /// What the plain plan would take.
    pub unlimited: Bytes,
    /// What is taken before states and arena get any.
    pub fixed: Fixed,
    /// Weights, moments, statistics and metrics.
    pub states: Bytes,
    /// What one op needs of the arena, whatever is done.
    pub floor: Bytes,
    /// That op, and its layer.
    pub floor_op: String,
    /// What no way can do without: what is taken before states and arena get any, states that stay in memory, that op's
    /// operands, and the buffers of a spill file if there is one.
    pub unavoidable: Bytes,
    /// What is alive when the plain plan needs most.
    pub peak: Explanation,
    /// What was tried to need less.
    pub tried: String,
    /// What would do besides a larger limit; each was planned and keeps this one.
    pub remedies: Vec<String>,
}

impl fmt::Display for WouldNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded up, so that the number printed is one that works.
        let kib = |b: Bytes| format!("{}KiB", b.0.div_ceil(1024));
        writeln!(
            f,
            "this step does not fit in {}; the smallest limit that would do is {}",
            self.limit,
            kib(self.smallest)
        )?;
        match (&self.source, self.asked) {
            (Some(source), Some(asked)) => writeln!(f, "  limited by   {source}; {asked} were asked for")?,
            (Some(source), None) => writeln!(f, "  limited by   {source}")?,
            (None, _) => (),
        }
        writeln!(
            f,
            "  needed       {} without a limit, of which {} weights, optimizer and statistics",
            self.unlimited, self.states
        )?;
        writeln!(f, "  besides      {}", self.fixed)?;
        let largest: Vec<String> =
            self.peak.tenants.iter().take(3).map(|t| format!("{} {}", t.what, Bytes(t.bytes))).collect();
        writeln!(
            f,
            "  at the peak  {} (op {} of {}: {})",
            largest.join(", "),
            self.peak.step + 1,
            self.peak.n_steps,
            self.peak.op
        )?;
        if !self.floor_op.is_empty() {
            writeln!(
                f,
                "  at least     {} for {} alone, whatever is done; {} with what must stand beside it",
                self.floor, self.floor_op, self.unavoidable
            )?;
        }
        writeln!(f, "  tried        {}", self.tried)?;
        write!(f, "  to fit       a limit of {}", kib(self.smallest))?;
        self.remedies.iter().try_for_each(|remedy| write!(f, ", or {remedy}"))
    }
}

/// Memory that should be there is not: found out before the first step.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "this host does not give the {needed} that the step needs besides the {held} held already: {found}. The limit that \
     was to be kept is {limit}{}; a smaller limit plans with less",
    from_text(from)
)]
pub struct HostTooSmall {
    /// Memory that was to be taken.
    pub needed: Bytes,
    /// What the process holds already.
    pub held: Bytes,
    /// The limit.
    pub limit: Bytes,
    /// Where the limit comes from: its value, its kind and its file.
    pub from: Option<String>,
    /// How it was found out.
    pub found: Sounding,
}

fn from_text(from: &Option<String>) -> String {
    from.as_ref().map_or(String::new(), |from| format!(", from {from}"))
}

/// Memory that is not the trainer's grew during training, up to the limit. Training was stopped before the limit was passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "after epoch {epoch} the process holds {measured} of {limit}, {} more than was planned for: something else in this \
     process took memory during training. Training stopped; the weights are as after this epoch",
    measured.saturating_sub(*planned)
)]
pub struct MemoryGrew {
    /// Counted from 1.
    pub epoch: usize,
    /// The limit.
    pub limit: Bytes,
    /// What the process holds.
    pub measured: Bytes,
    /// What it would hold at most, as planned.
    pub planned: Bytes,
}

/// The limit that the steps at hand were planned for.
#[derive(Clone, Debug)]
pub(crate) struct LoadLine {
    limit: Bytes,
    /// The limit of the budget then.
    of_budget: Option<Bytes>,
    /// What the process's files take, as planned.
    files: Bytes,
    /// What was measured after the epoch before.
    measured: Bytes,
}

/// What the limit is for a compilation, and what of it is taken.
#[derive(Clone)]
pub(crate) struct Room {
    pub limits: Limits,
    pub limit: Option<Bytes>,
    pub fixed: Fixed,
    pub files: Bytes,
    /// Steps that will be planned again while the states are there, when their batches come: nobody knows before how many rows these have.
    pub planned_again: Vec<usize>,
    /// What that takes of the arena's room, if nothing has to be done to keep the limit.
    pub again: Reserve,
    /// Of the runtime, for nodes that they may have more then.
    pub besides: Bytes,
}

impl Room {
    /// With steps that will be planned again while the states are there, these and no others, each with the slices that it may have more then.
    pub fn planning_again(mut self, steps: impl Iterator<Item = (usize, usize)>, graphs: &[Graph]) -> Room {
        let (steps, more): (Vec<usize>, Vec<usize>) = steps.unzip();
        let nodes = || steps.iter().map(|&i| graphs[i].nodes().len());
        let least = nodes().map(planning_bytes).max().unwrap_or_default().0;
        self.again = Reserve { least, spare: !steps.is_empty() };
        let besides: usize = nodes().zip(more).map(|(nodes, slices)| nodes_besides(nodes, slices)).sum();
        let besides = Bytes(HEAP_OF_A_NODE.0 * besides as u64);
        self.planned_again = steps;
        self.fixed.runtime = self.fixed.runtime - std::mem::replace(&mut self.besides, besides) + besides;
        self
    }

    /// The refusal of a limit.
    ///
    /// `beside` is what must stand in states and arena beside the largest op, `search` what it takes to look for a way.
    pub fn refusal(&self, limit: Bytes, refusal: Refusal, beside: Bytes, search: Bytes) -> Error {
        let by_host = self.limits.binding().filter(|b| b.source != Source::User);
        let unlimited = self.fixed.limit_for(Bytes(refusal.unlimited), self.fixed.planning);
        Error::WouldNotFit(Box::new(WouldNotFit {
            limit,
            source: by_host.map(ToString::to_string),
            asked: self.limits.wanted.filter(|_| self.limits.shortfall() > Bytes::ZERO),
            smallest: self.fixed.limit_for(Bytes(refusal.smallest), self.fixed.planning.max(search)).min(unlimited),
            unlimited,
            states: Bytes(refusal.states),
            fixed: self.fixed.clone(),
            unavoidable: self.fixed.total() + with_tables(Bytes(refusal.floor) + beside),
            floor: Bytes(refusal.floor),
            floor_op: refusal.floor_op,
            peak: refusal.peak,
            tried: String::new(),
            remedies: Vec::new(),
        }))
    }
}

impl Terms {
    /// The memory limit as found now, with every bound that was looked at.
    ///
    /// It is what the user set (or a [`Budget`] with a limit), else the environment variable
    /// `PLIMSOLL_MEMORY_LIMIT`, else the lowest of what the host allows (control groups, `ulimit`, Slurm, free memory) less a
    /// margin. What is asked for is granted as far as the host allows it.
    ///
    /// # Errors
    /// When the limit or the variable cannot be understood.
    pub fn limits(&self) -> Result<Limits, Error> {
        let asked = match &self.limit {
            Err(message) => return Err(Error::config("memory limit", message.clone())),
            Ok(asked) => *asked,
        };
        let of_budget = if self.shared_budget { self.budget.limit().map(Limit::Bytes) } else { None };
        let mut limits =
            Host::this().limits(of_budget.or(asked)).map_err(|e| Error::config("memory limit", e.to_string()))?;
        // Threads take addresses that they never touch, and only these limits count those.
        let addresses = Bytes(ADDRESSES_OF_A_THREAD.0 * (self.threads as u64 - 1));
        let lower = limits.bounds.iter().filter(|b| b.source == Source::AddressSpace);
        if let Some(lower) = lower.map(|b| b.usable.saturating_sub(addresses)).min()
            && limits.limit.is_some_and(|limit| limit > lower)
        {
            limits.limit = Some(lower);
        }
        Ok(limits)
    }

    /// Where the memory limit comes from, in words: `256 MiB (cgroup v1, /sys/fs/cgroup/memory/x/memory.limit_in_bytes)`.
    ///
    /// # Errors
    /// As [`Terms::limits`].
    pub fn limit_source(&self) -> Result<String, Error> {
        Ok(self.limits()?.binding().map_or_else(|| "no limit".to_owned(), ToString::to_string))
    }

    /// Who holds how much of the limit: `state`, `arena`, `gemm`, `runtime`, `results` and the rest of the `process`.
    pub fn ledger(&self) -> Ledger {
        self.budget.ledger()
    }

    /// The limit and what of it is taken, with the arena of earlier steps given back.
    ///
    /// `engine` is what runs them, if it is there already; `besides` is what is kept besides.
    pub(crate) fn room(&mut self, graphs: &[Graph], engine: Option<&Engine>, besides: Besides) -> Result<Room, Error> {
        let limits = self.limits()?;
        let limit = limits.limit;
        if !self.shared_budget {
            self.budget.set_limit(limit);
        }
        (self.results, self.line) = (None, None);
        give_back_heap();
        let footprint = match (measure::footprint(), limit) {
            (Ok(footprint), _) => footprint,
            (Err(_), None) => measure::Footprint::default(),
            (Err(e), Some(_)) => return Err(Error::config("memory limit", format!("/proc/self/smaps: {e}"))),
        };
        let files = footprint.program + footprint.files;
        let process = files + unreserved(&self.budget, files, footprint.anonymous);
        self.runtime = None;
        self.budget.account("process").note(process);

        let packing = graphs.iter().map(Graph::packing).fold(Packing::NONE, Packing::max);
        let library = Bytes::from(packing.bytes(self.threads)).max(engine.map_or(Bytes::ZERO, |e| e.library_bytes()));
        let own = engine.map_or(Bytes::ZERO, |e| e.bytes() + e.library_bytes());
        // Pipelines that are open hold more than the least, if there is more; they are counted once.
        let open = self.budget.account(INPUT).held();
        // What they hold only because it is left over comes back when a plan needs it.
        let needed = open.saturating_sub(self.budget.spare());
        let (results, input) = (besides.results, besides.input.max(needed));
        let others = self.budget.held().saturating_sub(process).saturating_sub(own).saturating_sub(open);
        let n_nodes: usize = graphs.iter().map(|g| g.nodes().count()).sum();
        let threads = self.threads as u64;
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let runtime = HEAP
            + Bytes(HEAP_OF_TRACING.0 * n_nodes as u64)
            + Bytes((THREAD.0 + KERNEL_OF_A_THREAD.0) * threads)
            + Bytes(KERNEL_OF_A_CORE.0 * n_cores.min(threads + 1))
            + TABLES
            + Bytes(process.0 / 512);
        let planning = planning_bytes(n_nodes);
        // Planning takes its memory for a while and without a reservation.
        self.budget.make_room(planning);
        let fixed = Fixed { process, library, runtime, results, input, others, planning };
        Ok(Room {
            limits,
            limit,
            fixed,
            files,
            planned_again: Vec::new(),
            again: Reserve::default(),
            besides: Bytes::ZERO,
        })
    }

    /// Reserves the memory of results and copies that are to be kept, if it can be.
    pub(crate) fn keep(&mut self, besides: Besides) -> bool {
        self.results = None;
        self.results = self.budget.account("results").reserve(besides.results).ok();
        self.results.is_some() && self.budget.available().is_none_or(|left| left >= besides.input)
    }

    /// Reserves what these plans take besides states, arena and library, once it is known that the memory is there.
    ///
    /// `mapped` is there already.
    pub(crate) fn take(&mut self, room: &Room, choice: &Choice, mapped: Bytes) -> Result<(), Error> {
        give_back_heap();
        let Some(limit) = room.limit else { return Ok(()) };
        let space = Bytes(choice.bytes(0));
        self.sound(room, limit, (space + room.fixed.library).saturating_sub(mapped))?;
        let tables = with_tables(space).saturating_sub(space);
        let nodes: usize = choice.plans.iter().map(|p| p.graph.nodes().len()).sum();
        let plans = Bytes(HEAP_OF_A_NODE.0 * nodes as u64);
        // What the arena's room has besides stays free.
        let arena = choice.plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0);
        let free = Bytes(choice.arena_bytes() - arena);
        let reserve = |name: &str, bytes: Bytes| {
            self.budget.account(name).reserve(bytes).map_err(|e| Error::Exec(ArenaError::from(e).into()))
        };
        self.runtime = Some(reserve("runtime", room.fixed.runtime + tables + plans + free)?);
        self.results = Some(reserve("results", room.fixed.results)?);
        let of_budget = self.budget.limit();
        self.line = Some(LoadLine { limit, of_budget, files: room.files, measured: Bytes::ZERO });
        Ok(())
    }

    /// Touches in a child process what is about to be taken, where it is a large part of what the host has.
    fn sound(&self, room: &Room, limit: Bytes, needed: Bytes) -> Result<(), Error> {
        let held = room.fixed.process + room.fixed.others;
        let there = room.limits.bounds.iter().filter(|b| !matches!(b.source, Source::User | Source::Variable));
        let there = there.map(|b| b.usable).min().unwrap_or(Bytes::MAX).saturating_sub(held);
        if !self.sounding || needed < SOUND_FROM || needed < there.percent(50.0) {
            return Ok(());
        }
        match sound(needed, Bytes::mib(32)) {
            Sounding::Found | Sounding::Unknown => Ok(()),
            found => {
                let from = room.limits.binding().map(ToString::to_string);
                Err(Error::HostTooSmall(Box::new(HostTooSmall { needed, held, limit, from, found })))
            }
        }
    }

    /// Leaves so much of what stayed free to an arena that becomes larger.
    pub(crate) fn leave_to_arena(&mut self, bytes: Bytes) {
        self.runtime.iter_mut().for_each(|held| held.shrink(bytes));
    }

    /// Reserves the heap of one plan more, if pipelines, which need so much in all, can do without.
    pub(crate) fn reserve_beside(&self, heap: Bytes, input: Bytes) -> Option<Reservation> {
        let owed = input.saturating_sub(self.budget.account(INPUT).held());
        let has_room = self.budget.available().is_none_or(|left| left >= heap + owed);
        if has_room { self.budget.account("plans").reserve(heap).ok() } else { None }
    }

    /// What looking for room forgets, and what a plan that stays still needs: see [`Terms::put_back`].
    pub(super) fn taken(&self) -> (Bytes, Option<LoadLine>) {
        (self.runtime.as_ref().map_or(Bytes::ZERO, |r| r.bytes()), self.line.clone())
    }

    /// Reserves again what was taken before room was looked for.
    pub(super) fn put_back(&mut self, (runtime, line): (Bytes, Option<LoadLine>)) {
        (self.runtime, self.line) = (self.budget.account("runtime").reserve(runtime).ok(), line);
    }

    /// What the process's files take, as last planned.
    pub(super) fn files(&self) -> Bytes {
        self.line.as_ref().map_or(Bytes::ZERO, |line| line.files)
    }

    /// Compares what the process holds with what was planned, after an epoch. Gives a warning when something else grew.
    pub(crate) fn watch_memory(&mut self, epoch: usize) -> Result<Option<String>, Error> {
        // What pipelines gave back may still lie in the heap.
        let input = self.budget.account(INPUT);
        let planned = self.budget.held() + input.peak().saturating_sub(input.held());
        self.follow_budget()?;
        let (Some(line), Ok(usage)) = (&mut self.line, measure::usage()) else { return Ok(None) };
        let measured = usage.anonymous + line.files;
        let before = std::mem::replace(&mut line.measured, measured);
        if measured <= planned {
            return Ok(None);
        }
        // Who grew by so much in this epoch may do so in the next one.
        let next = measured + measured.saturating_sub(before.max(planned));
        let (epoch, limit) = (epoch + 1, line.limit);
        if next + RESERVE > limit {
            return Err(Error::MemoryGrew(Box::new(MemoryGrew { epoch, limit, measured, planned })));
        }
        let more = measured - planned;
        Ok(Some(format!(
            "after epoch {epoch} the process holds {measured} of {limit}, {more} more than planned: something else takes memory"
        )))
    }
}

impl Terms {
    /// Looks for the limit again when others have given the budget another one since the steps were planned.
    fn follow_budget(&mut self) -> Result<(), Error> {
        let of_budget = self.budget.limit();
        if self.shared_budget && self.line.as_ref().is_some_and(|line| line.of_budget != of_budget) {
            let limit = self.limits()?.limit.unwrap_or(Bytes::MAX);
            self.line.iter_mut().for_each(|line| (line.limit, line.of_budget) = (limit, of_budget));
        }
        Ok(())
    }
}

/// The anonymous memory of the process that nobody reserved.
///
/// States, arenas and tensors are there in full, since they are touched when they are mapped. Of stacks and packed matrices only a bound is
/// known, so what nobody reserved lies between two figures; the one that was noted earlier decides.
fn unreserved(budget: &Budget, files: Bytes, anonymous: Bytes) -> Bytes {
    let held = |name: &str| budget.account(name).held();
    let most = anonymous.saturating_sub(held("state") + held("arena") + held("tensors"));
    let least = most.saturating_sub(held("gemm") + held("runtime") + held("results") + held("spill") + held(INPUT));
    held("process").saturating_sub(files).clamp(least, most)
}

/// Gives free heap memory back to the system, so that what tracing and planning took for a while does not stand beside
/// the arena.
pub(crate) fn give_back_heap() {
    // SAFETY: may be called at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_budget_that_is_given_another_limit_moves_the_line() {
        // The process holds more than nothing, which is what was planned.
        let (little, much) = (Bytes::kib(64), Bytes::gib(4));
        let budget = Budget::new(little);
        let mut terms = Terms { shared_budget: true, ..Terms::on(&budget) };
        let line = LoadLine { limit: little, of_budget: Some(little), files: Bytes::ZERO, measured: Bytes::ZERO };
        terms.line = Some(line);
        let Err(Error::MemoryGrew(grew)) = terms.watch_memory(0) else { panic!("more is held than the limit") };
        assert_eq!(grew.limit, little);
        budget.set_limit(Some(much));
        assert!(terms.watch_memory(1).expect("the limit was raised").is_some());
        budget.set_limit(Some(little));
        assert!(matches!(terms.watch_memory(2), Err(Error::MemoryGrew(_))));
    }
}
