//! A sum over the batch that goes on where it stopped: an op on one slice, added to the slices before it.

use super::{Backward, Cost, Io, OpAttrs, OpDef, Reference, Types, find_attr};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use plimsoll_tensor::TensorType;
use std::sync::Arc;

/// An op that [adds](OpDef::adds), with some of its outputs added to sums that are given.
///
/// Takes what the op takes, then one sum so far for each partial output, of that output's type; gives what the op gives.
/// With slices of the batch that the op calls [exact](OpDef::exact_part), the last sum has the bits of the whole batch's.
///
/// ```
/// use plimsoll_graph::op::{OpDef, adding::Adding, contraction::MatMul};
/// use plimsoll_tensor::{DType, TensorType};
/// use std::sync::Arc;
/// // The gradient of a weight `[3, 2]` from 64 more rows.
/// let op = Adding::new(Arc::new(MatMul { transpose_a: true, transpose_b: false }), vec![0]);
/// let [x, dy, sum] = [[64, 3], [64, 2], [3, 2]].map(|shape| TensorType::new(DType::F32, shape));
/// assert_eq!(op.infer(&[x, dy, sum]).unwrap(), [sum]);
/// ```
#[derive(Clone, Debug)]
pub struct Adding {
    op: Arc<dyn OpDef>,
    partial: Vec<usize>,
}

impl Adding {
    /// The op with these outputs added to sums so far.
    ///
    /// # Panics
    /// When the op cannot add.
    pub fn new(op: Arc<dyn OpDef>, partial: Vec<usize>) -> Adding {
        assert!(op.adds(), "{} cannot go on with a sum", op.name());
        Adding { op, partial }
    }

    /// The types as the op itself sees them.
    fn inner<'a>(&self, types: &Types<'a>) -> Types<'a> {
        Types { inputs: &types.inputs[..types.inputs.len() - self.partial.len()], outputs: types.outputs }
    }
}

impl OpAttrs for Adding {
    fn attrs(&self) -> Attrs {
        let own = vec![("adds_op", Attr::Text(self.op.name().into())), ("adds_to", self.partial.to_attr())];
        [own, self.op.attrs()].concat()
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Adding, String>> {
        let read = || {
            let (inner, partial): (String, Vec<usize>) = (find_attr(attrs, "adds_op")?, find_attr(attrs, "adds_to")?);
            let op = super::parse(&inner, attrs)?;
            if op.adds() { Ok(Adding { op, partial }) } else { Err(format!("'{inner}' cannot go on with a sum")) }
        };
        (name == "adding").then(read)
    }
}

impl OpDef for Adding {
    fn name(&self) -> &'static str {
        "adding"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let n = inputs.len().checked_sub(self.partial.len());
        let n = n.ok_or_else(|| format!("takes {} sums, got {} inputs in all", self.partial.len(), inputs.len()))?;
        let outputs = self.op.infer(&inputs[..n])?;
        for (&o, sum) in self.partial.iter().zip(&inputs[n..]) {
            let output = outputs.get(o).ok_or_else(|| format!("output {o} of {}", outputs.len()))?;
            if output != sum {
                return Err(format!("output {o} is {output}, its sum so far {sum}"));
            }
        }
        Ok(outputs)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (layer, message) = (b.graph.layer().to_owned(), "gradients are taken before the batch is cut".into());
        Err(GraphError::NoGradient { layer, op: "adding", message })
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        let inner = self.op.cost(&self.inner(types));
        let sums = &types.inputs[types.inputs.len() - self.partial.len()..];
        let elements: usize = sums.iter().map(TensorType::elements).sum();
        let bytes: usize = sums.iter().map(TensorType::bytes).sum();
        Cost { flops: inner.flops + elements as u64, bytes: inner.bytes + bytes as u64 }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        self.op.workspace(&self.inner(types), threads)
    }

    fn repeats(&self) -> bool {
        false
    }

    fn may_overwrite(&self, input: usize, output: usize, types: &Types<'_>) -> bool {
        let inner = self.inner(types);
        match input.checked_sub(inner.inputs.len()) {
            Some(sum) => self.partial[sum] == output,
            // The sum so far stands in a partial output before the op reads its inputs.
            None => !self.partial.contains(&output) && self.op.may_overwrite(input, output, &inner),
        }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let n = io.inputs().len() - self.partial.len();
        for (&o, sum) in self.partial.iter().zip(&io.inputs()[n..]) {
            let output = &io.outputs()[o];
            if output.ptr != sum.ptr {
                // SAFETY: both hold the type's bytes, and an output that is not the input is apart from it.
                unsafe { std::ptr::copy_nonoverlapping(sum.ptr, output.ptr, output.ty.bytes()) };
            }
        }
        self.op.run(&io.adding(n))
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let (inputs, sums) = inputs.split_at(inputs.len() - self.partial.len());
        let mut results = self.op.reference(inputs, outputs)?;
        for (&o, sum) in self.partial.iter().zip(sums) {
            results[o].data.iter_mut().zip(&sum.data).for_each(|(y, s)| *y += s);
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::check_values;
    use crate::op::contraction::MatMul;
    use crate::op::norm::LayerNormGrad;
    use crate::op::reduce::{Kind, Reduce};
    use plimsoll_tensor::DType::{BF16, F32, F64, I64};

    fn adding(op: impl OpDef, partial: &[usize]) -> Adding {
        Adding::new(Arc::new(op), partial.to_vec())
    }

    #[test]
    fn goes_on_with_the_sum() {
        let product = MatMul { transpose_a: true, transpose_b: false };
        for dtype in [F32, F64, BF16] {
            check_values(adding(product.clone(), &[0]), &[(dtype, &[70, 3]), (dtype, &[70, 2]), (dtype, &[3, 2])]);
        }
        for dtype in [F32, BF16, I64] {
            let sum = Reduce { kind: Kind::Sum, axes: vec![0], keep: false };
            check_values(adding(sum, &[0]), &[(dtype, &[70, 3]), (dtype, &[3])]);
        }
        let norm = LayerNormGrad { centred: false, scale: true, offset: false };
        let [x, row, columns] = [&[5, 3][..], &[5], &[3]];
        check_values(adding(norm, &[1]), &[(F32, x), (F32, columns), (F32, row), (F32, x), (F32, columns)]);
    }

    #[test]
    fn sums_have_the_outputs_type() {
        let op = adding(MatMul { transpose_a: true, transpose_b: false }, &[0]);
        let types = [[4, 3], [4, 2], [2, 3]].map(|shape| TensorType::new(F32, shape));
        assert_eq!(op.infer(&types).unwrap_err(), "output 0 is f32[3,2], its sum so far f32[2,3]");
    }
}
