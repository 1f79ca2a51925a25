//! Softmax and log-softmax over the last axis.

use super::{Backward, Cost, Io, OpDef, Reference, Types, expect_axis, expect_floats, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::softmax as kernels;
use plimsoll_tensor::{Shape, TensorType};

/// `y = e^x / sum of e^x` over the last axis, or the logarithm of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Softmax {
    /// The logarithm is wanted: `y = x - ln(sum of e^x)`.
    pub log: bool,
}

op_attrs!(Softmax = "softmax" { log });

/// The size of the last axis.
///
/// # Errors
/// When there is none, or nothing along it.
pub(super) fn last_axis(ty: &TensorType) -> Result<usize, String> {
    match ty.dims().last() {
        None => Err("takes a value with at least one axis, got a scalar".into()),
        Some(0) => Err("the last axis is empty".into()),
        Some(&n) => Ok(n),
    }
}

/// The shape without its last axis.
pub(super) fn rows_of(shape: &Shape) -> Shape {
    shape.remove(shape.rank() - 1)
}

/// How rows relate to the batch when what belongs to them relates to it like this; `last` is the axis inside a row.
pub(super) fn split_rows(rows: &[Split], last: usize) -> Split {
    match rows[0] {
        Split::Whole if rows.iter().all(|s| *s == Split::Whole) => Split::Whole,
        Split::Axis(axis) if axis < last && rows.iter().all(|s| *s == Split::Axis(axis)) => Split::Axis(axis),
        _ => Split::Mixed,
    }
}

impl OpDef for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        expect_floats(inputs)?;
        last_axis(&inputs[0])?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (y, dy) = (b.outputs[0], b.dy());
        Ok(vec![Some(b.graph.push1(SoftmaxGrad { log: self.log }, &[y, dy])?)])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_rows(inputs, types.inputs[0].shape.rank() - 1)]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 12 * types.outputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn may_overwrite(&self, _: usize, _: usize, _: &Types<'_>) -> bool {
        true
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let columns = last_axis(io.in_ty(0)).expect("checked by `infer`");
        match_float!(io.in_ty(0).dtype, T => {
            let kernel = if self.log { kernels::log_softmax::<T> } else { kernels::softmax::<T> };
            kernel(io.pool(), io.source(0, 0), io.output(0), columns);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let columns = last_axis(&outputs[0]).expect("checked by `infer`");
        let mut y = Reference::zeros(outputs[0]);
        let naive = if self.log { kernels::log_softmax_naive } else { kernels::softmax_naive };
        naive(&inputs[0].data, &mut y.data, columns);
        Ok(vec![y])
    }
}

/// The gradient of [`Softmax`] from its output: takes `y` and `dy`, gives `dx`.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftmaxGrad {
    /// Of the logarithm.
    pub log: bool,
}

op_attrs!(SoftmaxGrad = "softmax_grad" { log });

impl OpDef for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        expect_floats(inputs)?;
        last_axis(&inputs[0])?;
        if inputs[0].shape != inputs[1].shape {
            return Err(format!("shapes differ: {} and {}", inputs[0].shape, inputs[1].shape));
        }
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let log = self.log;
        b.by_formula(|g, inputs| {
            let (y, dy) = (inputs[0], inputs[1]);
            let last = [g.shape(y).rank() - 1];
            let dx = if log {
                let sum = g.sum(dy, &last, true)?;
                let weights = g.exp(y)?;
                let shared = g.mul(weights, sum)?;
                g.sub(dy, shared)?
            } else {
                let products = g.mul(y, dy)?;
                let sum = g.sum(products, &last, true)?;
                let centred = g.sub(dy, sum)?;
                g.mul(y, centred)?
            };
            Ok(vec![dx])
        })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_rows(inputs, types.inputs[0].shape.rank() - 1)]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: if self.log { 12 } else { 4 } * types.outputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn may_overwrite(&self, input: usize, _: usize, _: &Types<'_>) -> bool {
        input == 1
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let columns = last_axis(io.in_ty(0)).expect("checked by `infer`");
        match_float!(io.in_ty(0).dtype, T => {
            let kernel = if self.log { kernels::log_softmax_grad::<T> } else { kernels::softmax_grad::<T> };
            kernel(io.pool(), io.input(0), io.source(1, 0), io.output(0), columns);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let columns = last_axis(&outputs[0]).expect("checked by `infer`");
        let mut dx = Reference::zeros(outputs[0]);
        let naive = if self.log { kernels::log_softmax_grad_naive } else { kernels::softmax_grad_naive };
        naive(&inputs[0].data, &inputs[1].data, &mut dx.data, columns);
        Ok(vec![dx])
    }
}

impl Graph {
    /// Softmax along an axis.
    ///
    /// # Errors
    /// When the value is not of type f32 or f64 or has no such axis, or nothing along it.
    pub fn softmax(&mut self, x: Value, axis: usize) -> Result<Value, GraphError> {
        self.softmax_along(x, axis, false)
    }

    /// The logarithm of softmax along an axis.
    ///
    /// # Errors
    /// As [`Graph::softmax`].
    pub fn log_softmax(&mut self, x: Value, axis: usize) -> Result<Value, GraphError> {
        self.softmax_along(x, axis, true)
    }

    fn softmax_along(&mut self, x: Value, axis: usize, log: bool) -> Result<Value, GraphError> {
        let ty = *self.ty(x);
        let (rank, layer) = (ty.shape.rank(), self.layer().to_string());
        expect_axis(&ty, axis).map_err(|message| GraphError::Shape {
            layer,
            op: "softmax",
            message,
            inputs: vec![ty],
        })?;
        if axis + 1 == rank {
            return self.push1(Softmax { log }, &[x]);
        }
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(axis, rank - 1);
        let turned = self.transpose(x, &axes)?;
        let y = self.push1(Softmax { log }, &[turned])?;
        self.transpose(y, &axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_op, check_rejects};
    use plimsoll_tensor::DType;

    #[test]
    fn kernels_and_gradients() {
        for log in [false, true] {
            check_op(Softmax { log }, &[&[5]]);
            check_op(Softmax { log }, &[&[4, 3]]);
            check_op(Softmax { log }, &[&[2, 3, 100]]);
            check_op(Softmax { log }, &[&[0, 3]]);
            check_op(SoftmaxGrad { log }, &[&[4, 7], &[4, 7]]);
        }
    }

    #[test]
    fn refusals() {
        check_rejects(Softmax { log: false }, &[&[]], "takes a value with at least one axis, got a scalar");
        check_rejects(Softmax { log: false }, &[&[3, 0]], "the last axis is empty");
        check_rejects(SoftmaxGrad { log: true }, &[&[3, 2], &[2, 3]], "shapes differ: [3,2] and [2,3]");
        let half = [TensorType::new(DType::F16, [2])];
        assert_eq!(Softmax { log: false }.infer(&half).unwrap_err(), "takes f32 or f64 values, got f16");
    }

    #[test]
    fn along_any_axis() {
        let mut g = Graph::new();
        let x = g.input("x", TensorType::new(DType::F64, [2, 3, 4]));
        for axis in 0..3 {
            let y = g.softmax(x, axis).unwrap();
            let sum = g.sum(y, &[axis], false).unwrap();
            g.output(&format!("sum{axis}"), sum);
        }
        let message = g.softmax(x, 3).unwrap_err().to_string();
        assert_eq!(message, "softmax: axis 3 of a value with 3 axes (inputs: f64[2,3,4])");
        let input = crate::op::check::random(DType::F64, &[2, 3, 4], 1);
        for sums in crate::interpret(&g, &[("x", input)]).unwrap().values() {
            assert!(sums.to_f64().iter().all(|s| (s - 1.0).abs() < 1e-12));
        }
    }
}
