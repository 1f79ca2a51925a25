//! The loop over instructions. Next: the ops themselves.

use super::file::Moved;
use super::program::{Call, Program};
use super::{Engine, ExecError, ProgramId};
use crate::arena::ArenaError;
use crate::spill::SpillFile;
use plimsoll_budget::Bytes;
use plimsoll_graph::op::spill::{Spill, Transfer};
use plimsoll_graph::{NodeId, Operand};
use plimsoll_kernels::gemm;
use plimsoll_tensor::{DType, Element, F8E4M3, F8E5M2, bf16, f16};
use std::time::{Duration, Instant};

/// How long a node took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The node.
    pub node: NodeId,
    /// Its time.
    pub time: Duration,
}

/// Where a value that is not finite came from first.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// A state, the data, or the result of an op of a layer.
    pub what: String,
}

impl Engine {
    /// Runs a plan once, on the inputs set before.
    ///
    /// # Errors
    /// When an op meets values it cannot compute with, or a transfer fails; states changed before it stay changed.
    pub fn run(&mut self, program: ProgramId) -> Result<(), ExecError> {
        self.settle_if_large();
        let program = self.program(program)?;
        let _settled = Settled(self.spill.as_ref());
        for call in &program.calls {
            if self.poison {
                program.poison(call);
            }
            self.call(program, call)?;
        }
        Ok(())
    }

    fn program(&self, id: ProgramId) -> Result<&Program, ExecError> {
        let program = self.programs[id].as_ref().expect("a program that is there");
        if program.plan.arena_bytes > self.scratch.bytes() as u64 {
            let needed = Bytes(program.plan.arena_bytes);
            let cause = std::io::Error::other("the arena was given back");
            return Err(ArenaError::System { bytes: needed, cause }.into());
        }
        let in_memory = program.states.iter().find(|s| s.ptr.is_null()).map(|s| &s.name);
        match in_memory.or_else(|| program.filed.iter().find(|f| f.to.is_none()).map(|f| &f.name)) {
            Some(name) => {
                let message = "is bound to nothing".into();
                Err(ExecError::Value { what: "state", name: name.clone(), message })
            }
            None => Ok(program),
        }
    }

    /// The same between runs whose products pack a lot: they take so long that this does not matter, and other work in this thread,
    /// the caller's too, may have changed the heap since.
    fn settle_if_large(&self) {
        const LARGE: Bytes = Bytes::mib(1);
        if self.library.bytes() >= LARGE {
            gemm::settle_heap();
        }
    }

    fn call(&self, program: &Program, call: &Call) -> Result<(), ExecError> {
        let file = self.spill.as_ref().map(|file| Moved { file, program, passing: self.homes.passing().start });
        // SAFETY: the plan was checked: operands are inside the arena and apart as `Io::new` asks.
        let run = unsafe { program.run(call, &self.pool, file.as_ref().map(|f| f as &dyn Spill)) };
        run.map_err(|cause| ExecError::Run { place: program.plan.graph.describe(call.node), cause })
    }

    /// Runs a plan until an output is known, and stops there if it holds a value that is not finite: before anything that
    /// depends on it ran. Gives back whether it was finite; if not, which node first made such a value.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_guarded(&mut self, program: ProgramId, guard: &str) -> Result<Option<NonFinite>, ExecError> {
        self.settle_if_large();
        let watched = self.find_output(program, guard)?;
        let program = self.program(program)?;
        let maker = program.maker(guard);
        let _settled = Settled(self.spill.as_ref());
        for call in &program.calls {
            self.call(program, call)?;
            if Some(call.node) == maker && !is_finite(&watched) {
                return self.blame(program, call.node).map(Some);
            }
        }
        Ok(None)
    }

    /// Runs again up to a node and finds the first one whose output is not finite.
    fn blame(&self, program: &Program, last: NodeId) -> Result<NonFinite, ExecError> {
        // What the run that was broken off began is over before anything is written again.
        drop(Settled(self.spill.as_ref()));
        if let Some(name) = self.state_that_is_not_finite()? {
            return Ok(NonFinite { what: format!("'{name}'") });
        }
        for call in &program.calls {
            let what = program.plan.graph.describe(call.node);
            // Values that are being read hold nothing yet: `end_read` has them first.
            let transfer = call.op.transfer();
            let (begins, ends) =
                (matches!(transfer, Some(Transfer::BeginRead(_))), matches!(transfer, Some(Transfer::EndRead(_))));
            let inputs_fine = ends || program.operands[call.inputs.clone()].iter().all(is_finite);
            // The inputs may have been overwritten: then they are blamed.
            if !inputs_fine {
                return Ok(NonFinite { what: format!("the data that {what} reads") });
            }
            let failed = self.call(program, call).is_err();
            let outputs_fine = begins || program.operands[call.outputs.clone()].iter().all(is_finite);
            if failed || !outputs_fine || call.node == last {
                return Ok(NonFinite { what: format!("the result of {what}") });
            }
        }
        unreachable!("the last node was reached before")
    }

    /// As [`Engine::run`], with the time of every node.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_timed(&mut self, program: ProgramId) -> Result<Vec<Timing>, ExecError> {
        let program = self.program(program)?;
        let _settled = Settled(self.spill.as_ref());
        let mut timings = Vec::with_capacity(program.calls.len());
        for call in &program.calls {
            let start = Instant::now();
            self.call(program, call)?;
            timings.push(Timing { node: call.node, time: start.elapsed() });
        }
        Ok(timings)
    }
}

/// Waits for all transfers when a run is over, however it ends: then no thread uses the engine's memory any more.
struct Settled<'a>(Option<&'a SpillFile>);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            file.settle();
        }
    }
}

pub(crate) fn is_finite(operand: &Operand) -> bool {
    fn all<T: Element>(operand: &Operand) -> bool {
        // SAFETY: the operand is valid memory of its type.
        let values = unsafe { std::slice::from_raw_parts(operand.ptr.cast::<T>(), operand.ty.elements()) };
        values.iter().all(|v| v.to_f64().is_finite())
    }
    match operand.ty.dtype {
        DType::F32 => all::<f32>(operand),
        DType::F64 => all::<f64>(operand),
        DType::F16 => all::<f16>(operand),
        DType::BF16 => all::<bf16>(operand),
        DType::F8E4M3 => all::<F8E4M3>(operand),
        DType::F8E5M2 => all::<F8E5M2>(operand),
        _ => true,
    }
}
