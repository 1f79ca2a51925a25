//! Cross-entropy of softmax, from the logits: a loss for each row, and the row's log-sum-exp for the gradient.
//!
//! Neither probabilities nor their logarithms are stored, and the gradient may be written over the logits: the peak of a
//! model with many classes is one such value, not three.

use super::softmax::{last_axis, rows_of, split_rows};
use super::{Backward, Cost, Io, OpDef, Reference, Types, expect_floats, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::cross_entropy::{self as kernels, Label};
use plimsoll_tensor::{DType, Element, TensorType};

/// `loss = lse - x[label]` with `lse = ln(sum of e^x)`, over the last axis.
///
/// Takes logits `[.., classes]` and labels `[..]` (i32 or i64), gives loss `[..]` and lse `[..]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseCrossEntropy {
    /// A label whose rows have no loss and no gradient.
    pub ignore: Option<i64>,
}

op_attrs!(SparseCrossEntropy = "sparse_cross_entropy" { ignore });

/// A message unless these are logits and labels.
fn expect_labels(logits: &TensorType, labels: &TensorType) -> Result<(), String> {
    last_axis(logits)?;
    if !matches!(labels.dtype, DType::I32 | DType::I64) {
        return Err(format!("takes labels of type i32 or i64, got {}", labels.dtype));
    }
    if labels.shape != rows_of(&logits.shape) {
        return Err(format!("logits {} want labels {}, got {}", logits.shape, rows_of(&logits.shape), labels.shape));
    }
    Ok(())
}

impl SparseCrossEntropy {
    fn run_as<T: plimsoll_kernels::math::Float + Element, L: Label + Element>(
        &self,
        io: &Io<'_>,
    ) -> Result<(), RunError> {
        let labels = io.input::<L>(1);
        check_labels(labels.iter().map(|l| l.number()), io.in_ty(0), self.ignore)?;
        kernels::sparse_cross_entropy::<T, L>(io.pool(), io.input(0), labels, self.ignore, io.output(0), io.output(1));
        Ok(())
    }
}

/// An error that names the first label that is no class.
fn check_labels(labels: impl Iterator<Item = i64>, logits: &TensorType, ignore: Option<i64>) -> Result<(), RunError> {
    let classes = last_axis(logits).expect("checked by `infer`") as i64;
    let wrong = labels.enumerate().find(|&(_, l)| !(0..classes).contains(&l) && Some(l) != ignore);
    wrong.map_or(Ok(()), |(row, label)| {
        let message = format!("label {label} of row {row} is none of the {classes} classes");
        Err(RunError { op: "sparse_cross_entropy", message })
    })
}

impl OpDef for SparseCrossEntropy {
    fn name(&self) -> &'static str {
        "sparse_cross_entropy"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        expect_floats(&inputs[..1])?;
        expect_labels(&inputs[0], &inputs[1])?;
        Ok(vec![TensorType::new(inputs[0].dtype, inputs[1].shape); 2])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (x, labels, lse) = (b.inputs[0], b.inputs[1], b.outputs[1]);
        let through_loss = match b.grads[0] {
            Some(dy) => Some(b.graph.push1(SparseCrossEntropyGrad { ignore: self.ignore }, &[x, labels, lse, dy])?),
            None => None,
        };
        Ok(vec![add_lse_gradient(b, through_loss)?, None])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_rows(inputs, types.inputs[1].shape.rank()); 2]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 12 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let narrow = io.in_ty(1).dtype == DType::I32;
        match_float!(io.in_ty(0).dtype, T => {
            if narrow { self.run_as::<T, i32>(io) } else { self.run_as::<T, i64>(io) }
        }, else unreachable!("checked by `infer`"))
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let labels = as_labels(inputs[1]);
        check_labels(labels.iter().copied(), &inputs[0].ty, self.ignore)?;
        let (mut loss, mut lse) = (Reference::zeros(outputs[0]), Reference::zeros(outputs[1]));
        kernels::sparse_cross_entropy_naive(&inputs[0].data, &labels, self.ignore, &mut loss.data, &mut lse.data);
        Ok(vec![loss, lse])
    }
}

fn as_labels(value: &Reference) -> Vec<i64> {
    value.data.iter().map(|&l| l as i64).collect()
}

/// The logits' gradient through the log-sum-exp, if someone uses that, added to the one through the loss.
fn add_lse_gradient(b: &mut Backward<'_>, through_loss: Option<Value>) -> Result<Option<Value>, GraphError> {
    let (x, lse) = (b.inputs[0], b.outputs[1]);
    let Some(dlse) = b.grads[1] else { return Ok(through_loss) };
    let g = &mut *b.graph;
    let column = column_of(g, lse)?;
    let weights = weights(g, x, column)?;
    let dlse = column_of(g, dlse)?;
    let through_lse = g.mul(weights, dlse)?;
    Ok(Some(match through_loss {
        Some(other) => g.add(other, through_lse)?,
        None => through_lse,
    }))
}

/// `[..]` as `[.., 1]`.
fn column_of(g: &mut Graph, rows: Value) -> Result<Value, GraphError> {
    let shape = g.shape(rows);
    g.reshape(rows, shape.insert(shape.rank(), 1))
}

/// The softmax from logits and their log-sum-exp `[.., 1]`.
fn weights(g: &mut Graph, x: Value, lse: Value) -> Result<Value, GraphError> {
    let shifted = g.sub(x, lse)?;
    g.exp(shifted)
}

/// The gradient of [`SparseCrossEntropy`] in the logits: takes logits, labels, lse and the losses' gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct SparseCrossEntropyGrad {
    /// A label whose rows have no gradient.
    pub ignore: Option<i64>,
}

op_attrs!(SparseCrossEntropyGrad = "sparse_cross_entropy_grad" { ignore });

impl SparseCrossEntropyGrad {
    fn run_as<T: plimsoll_kernels::math::Float + Element, L: Label + Element>(&self, io: &Io<'_>) {
        let (labels, lse, dy) = (io.input::<L>(1), io.input::<T>(2), io.input::<T>(3));
        kernels::sparse_cross_entropy_grad(io.pool(), io.source(0, 0), labels, self.ignore, lse, dy, io.output(0));
    }
}

impl OpDef for SparseCrossEntropyGrad {
    fn name(&self) -> &'static str {
        "sparse_cross_entropy_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 4)?;
        expect_floats(&[inputs[0], inputs[2], inputs[3]])?;
        expect_labels(&inputs[0], &inputs[1])?;
        expect_rows(&inputs[0], &inputs[2..])?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let ignore = self.ignore;
        b.by_formula(|g, inputs| {
            let (x, labels, lse, dy) = (inputs[0], column_of(g, inputs[1])?, inputs[2], inputs[3]);
            let (shape, ty, kind) = (g.shape(x), *g.ty(x), g.dtype(labels));
            let index = g.index(shape, shape.rank() - 1, kind)?;
            let hit = g.eq(index, labels)?;
            let target = g.cast(hit, ty.dtype)?;
            let lse = column_of(g, lse)?;
            let weights = weights(g, x, lse)?;
            let difference = g.sub(weights, target)?;
            let mut dy = column_of(g, dy)?;
            if let Some(ignore) = ignore {
                let ignore = g.constant(ignore as f64, kind)?;
                let counts = g.ne(labels, ignore)?;
                let counts = g.cast(counts, ty.dtype)?;
                dy = g.mul(dy, counts)?;
            }
            Ok(vec![g.mul(difference, dy)?])
        })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_rows(inputs, types.inputs[1].shape.rank())]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 12 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn may_overwrite(&self, input: usize, _: usize, _: &Types<'_>) -> bool {
        input == 0
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let narrow = io.in_ty(1).dtype == DType::I32;
        match_float!(io.in_ty(0).dtype, T => {
            if narrow { self.run_as::<T, i32>(io) } else { self.run_as::<T, i64>(io) }
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let (x, lse, dy) = (&inputs[0].data, &inputs[2].data, &inputs[3].data);
        let mut dx = Reference::zeros(outputs[0]);
        kernels::sparse_cross_entropy_grad_naive(x, &as_labels(inputs[1]), self.ignore, lse, dy, &mut dx.data);
        Ok(vec![dx])
    }
}

/// A message unless all of `rows` have one element for each row of the logits.
fn expect_rows(logits: &TensorType, rows: &[TensorType]) -> Result<(), String> {
    let want = rows_of(&logits.shape);
    match rows.iter().find(|ty| ty.shape != want) {
        Some(other) => Err(format!("logits {} want rows {want}, got {}", logits.shape, other.shape)),
        None => Ok(()),
    }
}

/// `loss = sum of targets * (lse - x)` with `lse = ln(sum of e^x)`, over the last axis.
///
/// Takes logits and targets, both `[.., classes]`, gives loss `[..]` and lse `[..]`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CrossEntropy;

op_attrs!(CrossEntropy = "cross_entropy" {});

impl OpDef for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        expect_floats(inputs)?;
        last_axis(&inputs[0])?;
        if inputs[0].shape != inputs[1].shape {
            return Err(format!("logits {} want targets of that shape, got {}", inputs[0].shape, inputs[1].shape));
        }
        Ok(vec![TensorType::new(inputs[0].dtype, rows_of(&inputs[0].shape)); 2])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (x, targets, lse) = (b.inputs[0], b.inputs[1], b.outputs[1]);
        let (mut dx, mut dtargets) = (None, None);
        if let Some(dy) = b.grads[0] {
            dx = Some(b.graph.push1(CrossEntropyGrad, &[x, targets, lse, dy])?);
            if b.wanted[1] {
                let (lse, dy) = (column_of(b.graph, lse)?, column_of(b.graph, dy)?);
                let surprise = b.graph.sub(lse, x)?;
                dtargets = Some(b.graph.mul(surprise, dy)?);
            }
        }
        Ok(vec![add_lse_gradient(b, dx)?, dtargets])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_rows(inputs, types.inputs[0].shape.rank() - 1); 2]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 14 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(io.in_ty(0).dtype, T => {
            kernels::cross_entropy::<T>(io.pool(), io.input(0), io.input(1), io.output(0), io.output(1));
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let (mut loss, mut lse) = (Reference::zeros(outputs[0]), Reference::zeros(outputs[1]));
        kernels::cross_entropy_naive(&inputs[0].data, &inputs[1].data, &mut loss.data, &mut lse.data);
        Ok(vec![loss, lse])
    }
}

/// The gradient of [`CrossEntropy`] in the logits: takes logits, targets, lse and the losses' gradient.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CrossEntropyGrad;

op_attrs!(CrossEntropyGrad = "cross_entropy_grad" {});

impl OpDef for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 4)?;
        expect_floats(inputs)?;
        last_axis(&inputs[0])?;
        if inputs[0].shape != inputs[1].shape {
            return Err(format!("logits {} want targets of that shape, got {}", inputs[0].shape, inputs[1].shape));
        }
        expect_rows(&inputs[0], &inputs[2..])?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        b.by_formula(|g, inputs| {
            let (x, targets) = (inputs[0], inputs[1]);
            let (lse, dy) = (column_of(g, inputs[2])?, column_of(g, inputs[3])?);
            let weights = weights(g, x, lse)?;
            let total = g.sum(targets, &[g.shape(targets).rank() - 1], true)?;
            let share = g.mul(weights, total)?;
            let difference = g.sub(share, targets)?;
            Ok(vec![g.mul(difference, dy)?])
        })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_rows(inputs, types.inputs[0].shape.rank() - 1)]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 14 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn may_overwrite(&self, input: usize, _: usize, _: &Types<'_>) -> bool {
        input == 0
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(io.in_ty(0).dtype, T => {
            let (targets, lse, dy) = (io.input::<T>(1), io.input(2), io.input(3));
            kernels::cross_entropy_grad(io.pool(), io.source(0, 0), targets, lse, dy, io.output(0));
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let mut dx = Reference::zeros(outputs[0]);
        let [x, targets, lse, dy] = [0, 1, 2, 3].map(|i| &inputs[i].data[..]);
        kernels::cross_entropy_grad_naive(x, targets, lse, dy, &mut dx.data);
        Ok(vec![dx])
    }
}

impl Graph {
    /// The cross-entropy of each row of logits `[.., classes]` with labels `[..]` of type i32 or i64.
    ///
    /// Rows with the label `ignore` have loss 0. Any other label that is no class is an error at run time.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn sparse_cross_entropy(
        &mut self,
        logits: Value,
        labels: Value,
        ignore: Option<i64>,
    ) -> Result<Value, GraphError> {
        self.push1(SparseCrossEntropy { ignore }, &[logits, labels])
    }

    /// The cross-entropy of each row of logits `[.., classes]` with targets of the same shape.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn cross_entropy(&mut self, logits: Value, targets: Value) -> Result<Value, GraphError> {
        self.push1(CrossEntropy, &[logits, targets])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_on, check_op, check_rejects, random};
    use plimsoll_tensor::Tensor;

    fn labels(dtype: DType, shape: &[usize], classes: usize) -> Tensor {
        let n: usize = shape.iter().product();
        let data: Vec<f64> = (0..n).map(|i| if i % 5 == 3 { -1.0 } else { (i * 3 % classes) as f64 }).collect();
        Tensor::from_f64(dtype, shape, &data).unwrap()
    }

    #[test]
    fn labels_as_numbers() {
        let op = SparseCrossEntropy { ignore: Some(-1) };
        for (rows, classes) in [(&[4][..], 7), (&[2, 3], 100), (&[], 5), (&[0], 3)] {
            let shape = [rows, &[classes]].concat();
            for kind in [DType::I32, DType::I64] {
                check_on(op.clone(), &[random(DType::F32, &shape, 1), labels(kind, rows, classes)], false);
                check_on(op.clone(), &[random(DType::F64, &shape, 1), labels(kind, rows, classes)], true);
            }
            let grad = SparseCrossEntropyGrad { ignore: Some(-1) };
            let [lse, dy] = [2, 3].map(|salt| random(DType::F64, rows, salt));
            check_on(grad, &[random(DType::F64, &shape, 1), labels(DType::I64, rows, classes), lse, dy], true);
        }
        let all = Tensor::from_f64(DType::I32, [3], &[0.0, 2.0, 1.0]).unwrap();
        check_on(SparseCrossEntropy { ignore: None }, &[random(DType::F64, &[3, 3], 1), all], true);
    }

    #[test]
    fn targets_as_probabilities() {
        check_op(CrossEntropy, &[&[4, 6], &[4, 6]]);
        check_op(CrossEntropy, &[&[2, 2, 40], &[2, 2, 40]]);
        check_op(CrossEntropyGrad, &[&[4, 6], &[4, 6], &[4], &[4]]);
    }

    #[test]
    fn a_label_that_is_no_class_is_named() {
        let mut g = Graph::new();
        let x = g.input("x", TensorType::new(DType::F32, [2, 3]));
        let l = g.input("l", TensorType::new(DType::I32, [2]));
        let loss = g.sparse_cross_entropy(x, l, None).unwrap();
        g.output("loss", loss);
        let wrong = Tensor::from_f64(DType::I32, [2], &[1.0, 3.0]).unwrap();
        let error = crate::interpret(&g, &[("x", random(DType::F32, &[2, 3], 1)), ("l", wrong)]).unwrap_err();
        assert_eq!(error.to_string(), "sparse_cross_entropy: label 3 of row 1 is none of the 3 classes");
    }

    #[test]
    fn shapes_must_fit() {
        check_rejects(CrossEntropy, &[&[2, 3], &[3, 2]], "logits [2,3] want targets of that shape, got [3,2]");
        let ty = |dtype, shape: &[usize]| TensorType::new(dtype, shape);
        let op = SparseCrossEntropy { ignore: None };
        let message = op.infer(&[ty(DType::F32, &[4, 3]), ty(DType::I32, &[3])]).unwrap_err();
        assert_eq!(message, "logits [4,3] want labels [4], got [3]");
        let message = op.infer(&[ty(DType::F32, &[4, 3]), ty(DType::F32, &[4])]).unwrap_err();
        assert_eq!(message, "takes labels of type i32 or i64, got f32");
    }

    #[test]
    fn a_slice_of_the_batch_is_a_slice_of_the_losses() {
        let types = [TensorType::new(DType::F32, [4, 2, 3]), TensorType::new(DType::I32, [4, 2])];
        let op = SparseCrossEntropy { ignore: None };
        let outputs = op.infer(&types).unwrap();
        let types = Types { inputs: &types, outputs: &outputs };
        assert_eq!(op.split(&[Split::Axis(0); 2], &types), [Split::Axis(0); 2]);
        assert_eq!(op.split(&[Split::Axis(1); 2], &types), [Split::Axis(1); 2]);
        assert_eq!(op.split(&[Split::Axis(0), Split::Whole], &types), [Split::Mixed; 2]);
        assert_eq!(op.split(&[Split::Axis(2), Split::Whole], &types), [Split::Mixed; 2]);
    }
}
