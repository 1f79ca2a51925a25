//! A plan with its addresses.

use super::ExecError;
use super::io::{missing, wrong_type};
use crate::arena::Arena;
use crate::homes::{FileUse, Homes};
use crate::store::Store;
use plimsoll_graph::op::spill::Spill;
use plimsoll_graph::{Io, NodeId, OpDef, Operand, RunError, Value};
use plimsoll_kernels::Pool;
use plimsoll_plan::{Place, Plan};
use plimsoll_tensor::TensorType;
use std::ops::Range;
use std::sync::Arc;

/// A plan with its addresses.
pub(crate) struct Program {
    pub(super) plan: Plan,
    pub(super) calls: Vec<Call>,
    pub(super) operands: Vec<Operand>,
    /// The values that the operands are.
    operand_values: Vec<Value>,
    pub(super) inputs: Vec<(String, Operand)>,
    /// The states in memory, by their offset in the plan's layout.
    pub(super) states: Vec<StateUse>,
    /// The states in the file, by their slot in the plan's layout.
    pub(super) filed: Vec<FileUse>,
}

/// A state of a plan, and which operands are in it.
pub(super) struct StateUse {
    pub(super) name: String,
    at: usize,
    ty: TensorType,
    /// Null while it is bound to nothing.
    pub(super) ptr: *mut u8,
    /// The engine's state that it was bound to.
    pub(super) bound: Option<String>,
    /// Operands, and where in the state they begin.
    pub(super) operands: Vec<(usize, usize)>,
}

impl StateUse {
    pub(super) fn unbind(&mut self) {
        (self.ptr, self.bound) = (std::ptr::null_mut(), None);
    }
}

/// The state that an offset of the layout lies in.
fn state_at(states: &[StateUse], offset: usize) -> usize {
    states.partition_point(|s| s.at <= offset) - 1
}

pub(super) struct Call {
    pub(super) op: Arc<dyn OpDef>,
    pub(super) node: NodeId,
    pub(super) inputs: Range<usize>,
    pub(super) outputs: Range<usize>,
    /// Where the workspace begins in the arena.
    at: usize,
    workspace: *mut u8,
    workspace_bytes: usize,
}

// SAFETY: the pointers lead into the arena that the engine owns.
unsafe impl Send for Program {}
// SAFETY: as above; running needs `&mut Engine`.
unsafe impl Sync for Program {}

impl Program {
    pub(super) fn new(plan: Plan, store: &Store, homes: &Homes, scratch: &Arena) -> Program {
        let mut states: Vec<StateUse> = plan
            .state
            .iter()
            .filter(|(.., ty)| ty.bytes() > 0)
            .map(|(name, at, ty)| {
                let ptr = store.get(name).filter(|o| o.ty == ty).map_or(std::ptr::null_mut(), |o| o.ptr);
                StateUse { name: name.to_owned(), at: at as usize, ty, ptr, bound: None, operands: Vec::new() }
            })
            .collect();
        states.sort_by_key(|s| s.at);
        let filed = FileUse::of(&plan.state, homes);
        let mut program = Program {
            calls: Vec::new(),
            operands: Vec::new(),
            operand_values: Vec::new(),
            inputs: Vec::new(),
            states,
            filed,
            plan,
        };
        for instruction in &program.plan.instructions {
            let node = program.plan.graph.node(instruction.node);
            if !node.op.runs() {
                continue;
            }
            let mut range = |values: &[Value]| {
                let start = program.operand_values.len();
                program.operand_values.extend_from_slice(values);
                start..program.operand_values.len()
            };
            let (inputs, outputs) = (range(&node.inputs), range(&node.outputs));
            let at = instruction.workspace.clone().unwrap_or(0..0);
            program.calls.push(Call {
                op: node.op.clone(),
                node: instruction.node,
                inputs,
                outputs,
                at: at.start as usize,
                workspace: std::ptr::null_mut(),
                workspace_bytes: (at.end - at.start) as usize,
            });
        }
        for (i, &value) in program.operand_values.iter().enumerate() {
            if let Some(Place::State(offset)) = program.plan.places[value.0 as usize]
                && program.plan.graph.ty(value).bytes() > 0
            {
                let state = state_at(&program.states, offset as usize);
                let inside = offset as usize - program.states[state].at;
                program.states[state].operands.push((i, inside));
            }
        }
        program.resolve(scratch);
        program
    }

    /// Finds all addresses for an arena.
    pub(super) fn resolve(&mut self, scratch: &Arena) {
        self.operands = self.operand_values.iter().map(|&v| self.operand(v, scratch)).collect();
        for call in &mut self.calls {
            // SAFETY: the checker proved that the workspace is inside the arena.
            call.workspace = unsafe { scratch.ptr().add(call.at) };
        }
        let inputs = self.plan.graph.inputs().map(|(value, name)| (name.to_owned(), self.operand(value, scratch)));
        self.inputs = inputs.collect();
    }

    /// Gives a state of the plan its memory.
    pub(super) fn bind(&mut self, name: &str, operand: Operand, bound: Option<&str>) -> Result<(), ExecError> {
        let Some(state) = self.states.iter_mut().find(|s| s.name == name) else {
            // A state without elements has no memory.
            return if operand.ty.bytes() == 0 { Ok(()) } else { Err(missing("state", name)) };
        };
        if state.ty != operand.ty {
            return Err(wrong_type("state", name, state.ty, operand.ty));
        }
        state.bound = bound.map(str::to_owned);
        if state.ptr != operand.ptr {
            state.ptr = operand.ptr;
            for &(i, inside) in &state.operands {
                // SAFETY: the checker proved that the operand is inside the state.
                self.operands[i].ptr = unsafe { operand.ptr.add(inside) };
            }
        }
        Ok(())
    }

    /// Whether the plan changes a state.
    pub(super) fn changes(&self, name: &str) -> bool {
        let graph = &self.plan.graph;
        let is_it = |v: Value| graph.states().any(|(s, n)| s == v && n == name);
        graph.nodes().any(|(_, node)| {
            node.op.mutates().iter().any(|(input, _)| graph.state_of(node.inputs[*input]).is_some_and(is_it))
        })
    }

    /// The node after which an output is known; `None` for an input or a state.
    pub(super) fn maker(&self, output: &str) -> Option<NodeId> {
        let graph = &self.plan.graph;
        let mut value = graph.outputs().iter().find(|o| o.name == output)?.value;
        loop {
            let id = graph.producer(value)?;
            if graph.node(id).op.runs() {
                return Some(id);
            }
            value = graph.node(id).inputs[0];
        }
    }

    pub(super) fn operand(&self, value: Value, scratch: &Arena) -> Operand {
        let ty = *self.plan.graph.ty(value);
        let ptr = match self.plan.places[value.0 as usize].expect("the checker proved that values have places") {
            // Nobody reads or writes what has no elements.
            Place::State(_) if ty.bytes() == 0 => std::ptr::dangling_mut::<[u64; 8]>().cast(),
            Place::State(offset) => {
                let state = &self.states[state_at(&self.states, offset as usize)];
                state.ptr.wrapping_add(offset as usize - state.at)
            }
            Place::Arena(offset) => {
                debug_assert!(offset as usize + ty.bytes() <= scratch.bytes());
                // SAFETY: the checker proved that the value is inside the arena.
                unsafe { scratch.ptr().add(offset as usize) }
            }
        };
        Operand { ptr, ty }
    }

    /// # Safety
    /// The plan was proved safe and nobody else uses the arena.
    pub(super) unsafe fn run(&self, call: &Call, pool: &Pool, spill: Option<&dyn Spill>) -> Result<(), RunError> {
        let (inputs, outputs) = (&self.operands[call.inputs.clone()], &self.operands[call.outputs.clone()]);
        // SAFETY: the caller's promise.
        let io = unsafe { Io::new(inputs, outputs, call.workspace, call.workspace_bytes, pool) };
        call.op.run(&io.with_spill(spill))
    }

    pub(super) fn poison(&self, call: &Call) {
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
