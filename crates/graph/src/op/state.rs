//! Changing state: the ops that write over what is kept from step to step.

use super::{Backward, Io, OpDef, Reference, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op_attrs;
use plimsoll_tensor::TensorType;

/// Writes the second input over the first, which is a state.
#[derive(Clone, Debug, PartialEq)]
pub struct Assign;

op_attrs!(Assign = "assign" {});

impl OpDef for Assign {
    fn name(&self) -> &'static str {
        "assign"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        if inputs[0] != inputs[1] {
            return Err(format!("the state is {}, the new value {}", inputs[0], inputs[1]));
        }
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None; b.inputs.len()])
    }

    fn mutates(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let (from, to) = (&io.inputs()[1], &io.outputs()[0]);
        // SAFETY: both are valid and of one type; they may be the same place, which `copy` allows.
        unsafe { std::ptr::copy(from.ptr, to.ptr, to.ty.bytes()) };
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![inputs[1].clone()])
    }
}

impl Graph {
    /// Writes `value` over `state`; the result is the state's new value.
    ///
    /// # Errors
    /// When the types differ.
    pub fn assign(&mut self, state: Value, value: Value) -> Result<Value, GraphError> {
        self.push1(Assign, &[state, value])
    }
}
