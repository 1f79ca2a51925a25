//! What a log of the run needs to know of a trainer besides its ledger and plans.

use super::Trainer;
use crate::data::Report;
use crate::trace::Role;
use plimsoll_exec::SpillStats;
use plimsoll_plan::CostModel;

impl Trainer {
    /// What went through the spill file so far, and how long was waited for it.
    pub fn spill_stats(&self) -> SpillStats {
        self.compiled.as_ref().map(|c| c.engine.spill_stats()).unwrap_or_default()
    }

    /// What a state of the steps is for; `None` when there is no state of this name.
    pub fn role_of(&self, state: &str) -> Option<Role> {
        self.variables.get(state).map(|variable| variable.role)
    }

    /// What ops cost on this machine; `None` until a limit made it worth measuring.
    pub fn costs(&self) -> Option<&CostModel> {
        self.terms.costs()
    }

    /// The number of threads that steps run on.
    pub fn n_threads(&self) -> usize {
        self.terms.threads
    }

    /// Where the time of the training data went so far, of the `fit` that runs or ran last; how long it was waited for is new after every
    /// step, the stages after every epoch.
    pub fn input_report(&self) -> &Report {
        &self.input
    }
}
