//! Sessions: computations planned under one memory limit.
//!
//! [`Terms`] are what plans are made under: a budget, a limit of the whole process, the techniques that may be used to keep it.
//! They find what room there is (`limit.rs`) and choose how steps run in it (`choose.rs`). A [`Trainer`](crate::trainer::Trainer) plans the
//! few steps of one model under them; a [`Session`] plans programs one by one, while others are there already.

mod choose;
mod limit;
mod programs;
mod room;

pub use choose::{Kept, Techniques, usual_spill_dir};
pub(crate) use limit::{Besides, HEAP_OF_A_NODE, INPUT, Room, give_back_heap, nodes_besides, with_tables};
pub use limit::{Fixed, HostTooSmall, MemoryGrew, WouldNotFit};
pub use programs::Session;
pub(crate) use room::MOVABLE;

use limit::LoadLine;
use plimsoll_budget::{Budget, Limit, Reservation};
use plimsoll_plan::CostModel;
use std::path::PathBuf;

/// What plans are made under.
///
/// ```
/// use plimsoll::session::Terms;
/// let mut terms = Terms::default();
/// terms.set_limit("512MiB");
/// assert_eq!(terms.limits().unwrap().wanted, Some(plimsoll::Bytes::mib(512)));
/// ```
pub struct Terms {
    pub(crate) threads: usize,
    pub(crate) budget: Budget,
    /// Whether the budget came from outside.
    pub(crate) shared_budget: bool,
    /// What the user set, or why it cannot be understood.
    pub(crate) limit: Result<Option<Limit>, String>,
    pub(crate) sounding: bool,
    pub(crate) techniques: Techniques,
    /// Where the spill file is, if the user said so.
    pub(crate) spill_dir: Option<PathBuf>,
    /// Where it is otherwise, if that is on a disk: before the usual directories.
    pub(crate) spill_near: Option<PathBuf>,
    /// What ops cost on this machine, once it was measured.
    pub(crate) costs: Option<CostModel>,
    /// The directory whose disk was measured for them.
    timed_disk: Option<PathBuf>,
    /// What the steps at hand take besides states, arena and library.
    runtime: Option<Reservation>,
    /// Results and copies that are being made.
    results: Option<Reservation>,
    line: Option<LoadLine>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            budget: Budget::unlimited(),
            shared_budget: false,
            limit: Ok(None),
            sounding: true,
            techniques: Techniques::ALL,
            spill_dir: None,
            spill_near: None,
            costs: None,
            timed_disk: None,
            runtime: None,
            results: None,
            line: None,
        }
    }
}

impl Terms {
    /// Terms with memory from a budget, whose limit they set.
    pub fn on(budget: &Budget) -> Terms {
        Terms { budget: budget.clone(), ..Terms::default() }
    }

    /// Sets the limit of the whole process: [`Bytes`](crate::Bytes), a [`Limit`], or text such as `"512MiB"`. Text that cannot be understood is an
    /// error when the limit is looked for.
    pub fn set_limit<L: TryInto<Limit, Error: std::fmt::Display>>(&mut self, limit: L) {
        self.limit = limit.try_into().map(Some).map_err(|e| e.to_string());
    }

    /// Takes the limit from the environment and the host again.
    pub fn clear_limit(&mut self) {
        self.limit = Ok(None);
    }

    /// Sets what may be done to keep the limit.
    pub fn set_techniques(&mut self, techniques: Techniques) {
        self.techniques = techniques;
    }

    /// What ops cost on this machine; `None` until a limit made it worth measuring.
    pub fn costs(&self) -> Option<&CostModel> {
        self.costs.as_ref()
    }

    /// The budget that all memory comes from.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}
