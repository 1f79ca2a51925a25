//! The memory limit of the whole process: what of it is left for a step.
//!
//! What the process holds already (code, heap, the user's arrays) is measured; what it will come to hold besides the step's
//! arena (states, the GEMM library, code that has not run yet, page tables, stacks) is known or bounded. The rest is the
//! arena's, and the planner keeps it, computing values again where it must.

use super::Trainer;
use crate::error::Error;
use plimsoll_budget::{Bytes, measure};
use plimsoll_kernels::gemm;
use plimsoll_plan::{Explanation, StateLayout};
use std::fmt;

/// Heap memory of planning, histories and messages.
const HEAP: Bytes = Bytes::mib(2);

/// Stack memory that a thread touches, with the kernel's own part.
const STACK: Bytes = Bytes::kib(96);

/// The parts of a limit that are taken before the arena gets any.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// Weights, moments, statistics and metrics.
    pub states: Bytes,
    /// What the process holds already, without the engine: code, heap, the caller's data.
    pub process: Bytes,
    /// What matrix products pack, at most.
    pub library: Bytes,
    /// Code that will be read, page tables, stacks, the heap of planning and reporting.
    pub runtime: Bytes,
}

impl Fixed {
    /// The sum.
    pub fn total(&self) -> Bytes {
        self.states + self.process + self.library + self.runtime
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fixed { states, process, library, runtime } = self;
        write!(f, "states {states}, the process so far {process}, matrix products {library}, runtime {runtime}")
    }
}

/// Why a limit cannot be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct WouldNotFit {
    /// The limit.
    pub limit: Bytes,
    /// The smallest limit for which a plan was found.
    pub smallest: Bytes,
    /// What the plain plan would take.
    pub unlimited: Bytes,
    /// What is taken before the arena gets any.
    pub fixed: Fixed,
    /// What is alive when the plain plan needs most.
    pub peak: Explanation,
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
        writeln!(f, "  fixed        {}", self.fixed)?;
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
        writeln!(f, "  tried        computing values again; without that it takes {}", self.unlimited)?;
        write!(f, "  to fit       a limit of {}, or a smaller batch", kib(self.smallest))
    }
}

impl Trainer {
    /// What is taken of the limit before the arena gets any.
    pub(super) fn fixed(&self, layout: &StateLayout) -> Result<Fixed, Error> {
        let usage = measure::usage().map_err(|e| Error::config("memory limit", format!("/proc/self/status: {e}")))?;
        let engine = self.compiled.as_ref().map_or(Bytes::ZERO, |c| c.engine.bytes());
        let unread = usage.code.saturating_sub(usage.file);
        let limit = self.limit.unwrap_or(Bytes::ZERO);
        Ok(Fixed {
            states: Bytes(layout.bytes()),
            process: usage.resident.saturating_sub(engine),
            library: Bytes(gemm::library_bytes(self.threads) as u64),
            runtime: unread + HEAP + usage.page_tables + Bytes(limit.0 / 512) + Bytes(STACK.0 * self.threads as u64),
        })
    }
}
