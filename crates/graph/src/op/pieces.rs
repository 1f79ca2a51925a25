//! Cutting a value into pieces along an axis and putting pieces together. The planner adds these ops when it runs a step on
//! one slice of the batch after another.

use super::{Backward, Cost, Io, OpDef, Reference, Types, expect_axis, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use crate::op::reduce::around;
use crate::op_attrs;
use plimsoll_kernels::copy::{self, Layout};
use plimsoll_tensor::{DType, Shape, TensorType};

/// Some entries of the first axis: another name for a part of the input's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The first entry.
    pub start: usize,
    /// How many.
    pub len: usize,
}

/// Memory in which nothing is defined yet: what pieces are pasted into.
#[derive(Clone, Debug, PartialEq)]
pub struct Blank {
    /// Its type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
}

/// The first input with the second written over some entries of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Paste {
    /// The axis.
    pub axis: usize,
    /// The first entry.
    pub start: usize,
}

op_attrs!(Piece = "piece" { start, len });
op_attrs!(Blank = "blank" { dtype, shape });
op_attrs!(Paste = "paste" { axis, start });

impl Piece {
    /// Whether a piece of a value of this type begins where the arena's alignment allows a value to begin.
    pub fn is_aligned(ty: &TensorType, start: usize) -> bool {
        let row = ty.bytes().checked_div(ty.shape[0]).unwrap_or(0);
        (start * row).is_multiple_of(64)
    }
}

fn no_gradient(op: &'static str, b: &Backward<'_>) -> GraphError {
    let message = "gradients are taken before a step is cut into slices".into();
    GraphError::NoGradient { layer: b.graph.layer().to_owned(), op, message }
}

impl OpDef for Piece {
    fn name(&self) -> &'static str {
        "piece"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        expect_axis(&inputs[0], 0)?;
        if self.start.checked_add(self.len).is_none_or(|end| end > inputs[0].shape[0]) {
            return Err(format!("entries {} and {} more of {}", self.start, self.len, inputs[0]));
        }
        if !Piece::is_aligned(&inputs[0], self.start) {
            return Err(format!("entry {} of {} is not aligned", self.start, inputs[0]));
        }
        let mut ty = inputs[0];
        ty.shape.dims_mut()[0] = self.len;
        Ok(vec![ty])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        Err(no_gradient("piece", b))
    }

    fn cost(&self, _: &Types<'_>) -> Cost {
        Cost::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    fn view_offset(&self, types: &Types<'_>) -> usize {
        types.inputs[0].bytes().checked_div(types.inputs[0].shape[0]).unwrap_or(0) * self.start
    }

    fn run(&self, _: &Io<'_>) -> Result<(), RunError> {
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let row = inputs[0].data.len().checked_div(inputs[0].ty.shape[0]).unwrap_or(0);
        let data = inputs[0].data[self.start * row..(self.start + self.len) * row].to_vec();
        Ok(vec![Reference { ty: outputs[0], data }])
    }
}

impl OpDef for Blank {
    fn name(&self) -> &'static str {
        "blank"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 0)?;
        Ok(vec![TensorType::new(self.dtype, self.shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        Err(no_gradient("blank", b))
    }

    fn repeats(&self) -> bool {
        false
    }

    fn cost(&self, _: &Types<'_>) -> Cost {
        Cost::default()
    }

    fn run(&self, _: &Io<'_>) -> Result<(), RunError> {
        Ok(())
    }

    fn reference(&self, _: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![Reference::zeros(outputs[0])])
    }
}

impl OpDef for Paste {
    fn name(&self) -> &'static str {
        "paste"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        expect_axis(&inputs[0], self.axis)?;
        let mut room = inputs[0];
        let len = if inputs[1].shape.rank() == room.shape.rank() { inputs[1].shape[self.axis] } else { 0 };
        room.shape.dims_mut()[self.axis] = len;
        if room != inputs[1] || self.start.checked_add(len).is_none_or(|end| end > inputs[0].shape[self.axis]) {
            return Err(format!("{} does not fit into {} at {}", inputs[1], inputs[0], self.start));
        }
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        Err(no_gradient("paste", b))
    }

    fn repeats(&self) -> bool {
        false
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 0, bytes: 2 * types.inputs[1].bytes() as u64 }
    }

    fn may_overwrite(&self, input: usize, _: usize, _: &Types<'_>) -> bool {
        input == 0
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let (whole, piece, to) = (&io.inputs()[0], &io.inputs()[1], &io.outputs()[0]);
        if whole.ptr != to.ptr {
            // SAFETY: both are valid, of one type and apart.
            unsafe { std::ptr::copy_nonoverlapping(whole.ptr, to.ptr, to.ty.bytes()) };
        }
        let mut into = Layout::in_order(&to.ty.shape);
        into.offset = self.start as isize * into.strides[self.axis];
        let size = piece.ty.dtype.size();
        // SAFETY: the piece's entries lie inside the output, which is apart from it.
        unsafe {
            copy::strided(io.pool(), &piece.ty.shape, size, piece.ptr, Layout::in_order(&piece.ty.shape), to.ptr, into);
        }
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let mut whole = inputs[0].clone();
        let (outer, size, inner) = around(&whole.ty.shape, self.axis);
        let row = inputs[1].ty.shape[self.axis] * inner;
        for o in 0..outer {
            let at = (o * size + self.start) * inner;
            whole.data[at..at + row].copy_from_slice(&inputs[1].data[o * row..(o + 1) * row]);
        }
        Ok(vec![whole])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_rejects, check_values};

    #[test]
    fn pieces_are_cut_and_pasted() {
        check_values(Paste { axis: 0, start: 2 }, &[(DType::F32, &[7, 3]), (DType::F32, &[4, 3])]);
        check_values(Paste { axis: 1, start: 1 }, &[(DType::I64, &[3, 5, 2]), (DType::I64, &[3, 4, 2])]);
        check_rejects(Paste { axis: 0, start: 5 }, &[&[7, 3], &[4, 3]], "f32[4,3] does not fit into f32[7,3] at 5");
        check_rejects(Piece { start: 1, len: 2 }, &[&[4, 3]], "entry 1 of f32[4,3] is not aligned");
    }
}
