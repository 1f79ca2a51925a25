//! The engine: states and plans in one arena, and the loop over instructions.

use crate::arena::{Arena, ArenaError};
use plimsoll_budget::{Budget, Bytes};
use plimsoll_graph::{Io, NodeId, OpDef, Operand, RunError, Value};
use plimsoll_kernels::Pool;
use plimsoll_plan::{Place, Plan, StateLayout};
use plimsoll_tensor::{Element, Tensor, TensorType};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which of an engine's plans.
pub type ProgramId = usize;

/// What can go wrong while running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// There is no memory to run in.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// An op met values it cannot compute with.
    #[error("{place}: {cause}")]
    Run {
        /// The op and its layer.
        place: String,
        /// What is wrong.
        cause: RunError,
    },
    /// A name that does not exist, or a tensor of another type.
    #[error("{what} '{name}': {message}")]
    Value {
        /// Input, output or state.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// How long a node took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The node.
    pub node: NodeId,
    /// Its time.
    pub time: Duration,
}

/// Plans ready to run, with the states they share.
pub struct Engine {
    arena: Arena,
    state: StateLayout,
    programs: Vec<Program>,
    pool: Pool,
    poison: bool,
}

/// A plan with its addresses.
struct Program {
    plan: Plan,
    calls: Vec<Call>,
    operands: Vec<Operand>,
    /// Where the arena of this plan begins.
    base: usize,
}

struct Call {
    op: Arc<dyn OpDef>,
    node: NodeId,
    inputs: Range<usize>,
    outputs: Range<usize>,
    workspace: *mut u8,
    workspace_bytes: usize,
}

// SAFETY: the pointers lead into the arena that the engine owns.
unsafe impl Send for Program {}
// SAFETY: as above; running needs `&mut Engine`.
unsafe impl Sync for Program {}

impl Engine {
    /// Reserves and touches the memory for these plans, which share the states and, one after another, the rest.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory.
    pub fn open(budget: &Budget, state: &StateLayout, plans: Vec<Plan>, threads: usize) -> Result<Engine, ExecError> {
        let state_bytes = state.bytes().next_multiple_of(64);
        let scratch = plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0);
        let reservation = budget.account("arena").reserve(Bytes(state_bytes + scratch)).map_err(ArenaError::from)?;
        let arena = Arena::new(reservation)?;
        let base = state_bytes as usize;
        let programs = plans.into_iter().map(|plan| Program::new(plan, &arena, base)).collect();
        Ok(Engine { arena, state: state.clone(), programs, pool: Pool::new(threads), poison: false })
    }

    /// Fills every output and workspace with a pattern that reads as NaN before the node that writes it runs, so that
    /// reading memory that was not written shows in the result. For tests.
    pub fn set_poison(&mut self, poison: bool) {
        self.poison = poison;
    }

    /// The bytes of the arena: all states and the largest plan.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.arena.bytes() as u64)
    }

    /// The plan of a program.
    pub fn plan(&self, program: ProgramId) -> &Plan {
        &self.programs[program].plan
    }

    /// The threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs a plan once, on the inputs set before.
    ///
    /// # Errors
    /// When an op meets values it cannot compute with; states changed before it stay changed.
    pub fn run(&mut self, program: ProgramId) -> Result<(), ExecError> {
        let program = &self.programs[program];
        for call in &program.calls {
            if self.poison {
                program.poison(call);
            }
            // SAFETY: the plan was checked: operands are inside the arena and apart as `Io::new` asks.
            let run = unsafe { program.run(call, &self.pool) };
            run.map_err(|cause| ExecError::Run { place: program.plan.graph.describe(call.node), cause })?;
        }
        Ok(())
    }

    /// As [`Engine::run`], with the time of every node.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_timed(&mut self, program: ProgramId) -> Result<Vec<Timing>, ExecError> {
        let program = &self.programs[program];
        let mut timings = Vec::with_capacity(program.calls.len());
        for call in &program.calls {
            let start = Instant::now();
            // SAFETY: as in `run`.
            let run = unsafe { program.run(call, &self.pool) };
            run.map_err(|cause| ExecError::Run { place: program.plan.graph.describe(call.node), cause })?;
            timings.push(Timing { node: call.node, time: start.elapsed() });
        }
        Ok(timings)
    }

    /// The memory of an input, to be filled before a run.
    ///
    /// # Errors
    /// When there is no such input or it has another type.
    pub fn input_mut<T: Element>(&mut self, program: ProgramId, name: &str) -> Result<&mut [T], ExecError> {
        let value = self.find_input(program, name)?;
        let operand = self.programs[program].operand(value, &self.arena);
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        unsafe { slice_mut("input", name, operand) }
    }

    /// Copies a tensor into an input.
    ///
    /// # Errors
    /// When there is no such input or the tensor has another type.
    pub fn set_input(&mut self, program: ProgramId, name: &str, tensor: &Tensor) -> Result<(), ExecError> {
        let value = self.find_input(program, name)?;
        let operand = self.programs[program].operand(value, &self.arena);
        copy_in("input", name, tensor, operand)
    }

    /// The elements of an output after a run.
    ///
    /// # Errors
    /// When there is no such output or it has another type.
    pub fn output_slice<T: Element>(&self, program: ProgramId, name: &str) -> Result<&[T], ExecError> {
        let operand = self.find_output(program, name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        unsafe { slice_mut("output", name, operand).map(|s| &*s) }
    }

    /// A copy of an output after a run.
    ///
    /// # Errors
    /// When there is no such output.
    pub fn output(&self, program: ProgramId, name: &str) -> Result<Tensor, ExecError> {
        Ok(copy_out(self.find_output(program, name)?))
    }

    /// A copy of a state.
    ///
    /// # Errors
    /// When there is no such state.
    pub fn state(&self, name: &str) -> Result<Tensor, ExecError> {
        Ok(copy_out(self.find_state(name)?))
    }

    /// The memory of a state.
    ///
    /// # Errors
    /// When there is no such state or it has another type.
    pub fn state_mut<T: Element>(&mut self, name: &str) -> Result<&mut [T], ExecError> {
        let operand = self.find_state(name)?;
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        unsafe { slice_mut("state", name, operand) }
    }

    /// The memory of a state, to be read.
    ///
    /// # Errors
    /// When there is no such state or it has another type.
    pub fn state_slice<T: Element>(&self, name: &str) -> Result<&[T], ExecError> {
        let operand = self.find_state(name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        unsafe { slice_mut("state", name, operand).map(|s| &*s) }
    }

    /// Copies a tensor into a state.
    ///
    /// # Errors
    /// When there is no such state or the tensor has another type.
    pub fn set_state(&mut self, name: &str, tensor: &Tensor) -> Result<(), ExecError> {
        copy_in("state", name, tensor, self.find_state(name)?)
    }

    fn find_input(&self, program: ProgramId, name: &str) -> Result<Value, ExecError> {
        let graph = &self.programs[program].plan.graph;
        graph.inputs().find(|(_, n)| *n == name).map(|(v, _)| v).ok_or_else(|| missing("input", name))
    }

    fn find_output(&self, program: ProgramId, name: &str) -> Result<Operand, ExecError> {
        let program = &self.programs[program];
        let output = program.plan.graph.outputs().iter().find(|o| o.name == name).ok_or_else(|| missing("output", name))?;
        Ok(program.operand(output.value, &self.arena))
    }

    fn find_state(&self, name: &str) -> Result<Operand, ExecError> {
        let (offset, ty) = self.state.get(name).ok_or_else(|| missing("state", name))?;
        // SAFETY: the states stand at the beginning of the arena.
        Ok(Operand { ptr: unsafe { self.arena.ptr().add(offset as usize) }, ty })
    }
}

impl Program {
    fn new(plan: Plan, arena: &Arena, base: usize) -> Program {
        let mut program = Program { calls: Vec::new(), operands: Vec::new(), base, plan };
        for i in 0..program.plan.instructions.len() {
            let instruction = program.plan.instructions[i].clone();
            let node = program.plan.graph.node(instruction.node).clone();
            if node.op.is_view() {
                continue;
            }
            let mut range = |values: &[Value]| {
                let start = program.operands.len();
                for &v in values {
                    let operand = program.operand(v, arena);
                    program.operands.push(operand);
                }
                start..program.operands.len()
            };
            let (inputs, outputs) = (range(&node.inputs), range(&node.outputs));
            let at = instruction.workspace.clone().unwrap_or(0..0);
            // SAFETY: the checker proved that the workspace is inside the arena.
            let workspace = unsafe { arena.ptr().add(base + at.start as usize) };
            let workspace_bytes = (at.end - at.start) as usize;
            program.calls.push(Call { op: node.op, node: instruction.node, inputs, outputs, workspace, workspace_bytes });
        }
        program
    }

    fn operand(&self, value: Value, arena: &Arena) -> Operand {
        let offset = match self.plan.places[value.0 as usize].expect("the checker proved that values have places") {
            Place::State(offset) => offset as usize,
            Place::Arena(offset) => self.base + offset as usize,
        };
        debug_assert!(offset + self.plan.graph.ty(value).bytes() <= arena.bytes());
        // SAFETY: the checker proved that the value is inside the arena.
        Operand { ptr: unsafe { arena.ptr().add(offset) }, ty: *self.plan.graph.ty(value) }
    }

    /// # Safety
    /// The plan was proved safe and nobody else uses the arena.
    unsafe fn run(&self, call: &Call, pool: &Pool) -> Result<(), RunError> {
        let (inputs, outputs) = (&self.operands[call.inputs.clone()], &self.operands[call.outputs.clone()]);
        // SAFETY: the caller's promise.
        let io = unsafe { Io::new(inputs, outputs, call.workspace, call.workspace_bytes, pool) };
        call.op.run(&io)
    }

    fn poison(&self, call: &Call) {
        let inputs = &self.operands[call.inputs.clone()];
        for output in &self.operands[call.outputs.clone()] {
            if inputs.iter().all(|i| i.ptr != output.ptr) {
                // SAFETY: the output is about to be written and holds nothing that is needed.
                unsafe { std::ptr::write_bytes(output.ptr, 0xff, output.ty.bytes()) };
            }
        }
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(call.workspace, 0xff, call.workspace_bytes) };
    }
}

fn missing(what: &'static str, name: &str) -> ExecError {
    ExecError::Value { what, name: name.to_owned(), message: "does not exist".into() }
}

fn wrong_type(what: &'static str, name: &str, expected: impl ToString, found: impl ToString) -> ExecError {
    let message = format!("is {}, not {}", expected.to_string(), found.to_string());
    ExecError::Value { what, name: name.to_owned(), message }
}

/// # Safety
/// The operand is valid for the lifetime and, if written, exclusive.
unsafe fn slice_mut<'a, T: Element>(what: &'static str, name: &str, operand: Operand) -> Result<&'a mut [T], ExecError> {
    if operand.ty.dtype != T::DTYPE {
        return Err(wrong_type(what, name, operand.ty.dtype, T::DTYPE));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(operand.ptr.cast(), operand.ty.elements()) })
}

fn copy_in(what: &'static str, name: &str, tensor: &Tensor, operand: Operand) -> Result<(), ExecError> {
    let ty: TensorType = *tensor.ty();
    if ty != operand.ty {
        return Err(wrong_type(what, name, operand.ty, ty));
    }
    // SAFETY: the operand has as many bytes as the tensor, which is elsewhere.
    unsafe { std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), operand.ptr, ty.bytes()) };
    Ok(())
}

fn copy_out(operand: Operand) -> Tensor {
    let mut tensor = Tensor::zeros(operand.ty.dtype, operand.ty.shape);
    // SAFETY: as in `copy_in`.
    unsafe { std::ptr::copy_nonoverlapping(operand.ptr, tensor.bytes_mut().as_mut_ptr(), operand.ty.bytes()) };
    tensor
}
