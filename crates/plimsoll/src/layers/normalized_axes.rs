//! Axes that are normalised, brought to the end, where the ops want them.

use super::{axis_of, refuse};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::Shape;

/// Some axes of a value, which were brought to the end.
pub(super) struct AxesLast {
    /// The value with those axes last.
    pub value: Value,
    /// The sizes of those axes.
    pub sizes: Vec<usize>,
    /// The order of the axes, if it was changed.
    order: Option<Vec<usize>>,
}

impl AxesLast {
    /// Brings these axes of `x`, in rising order, to its end. The batch is not among them.
    pub(super) fn new(t: &mut Trace<'_>, kind: &str, x: Value, axes: &[isize]) -> Result<AxesLast, Error> {
        let shape = t.shape(x);
        let mut last = Vec::new();
        for &axis in axes {
            last.push(axis_of(t, kind, axis, &shape)?);
        }
        last.sort_unstable();
        if last.is_empty() || last.windows(2).any(|w| w[0] == w[1]) || last.contains(&0) {
            let message = format!("axes {axes:?} of an input {shape}: one or more, each once, without the batch");
            return Err(refuse(t, kind, message));
        }
        let sizes: Vec<usize> = last.iter().map(|&a| shape[a]).collect();
        if sizes.contains(&0) {
            return Err(refuse(t, kind, format!("takes one element or more along axes {axes:?}, got {shape}")));
        }
        let order: Vec<usize> = (0..shape.rank()).filter(|a| !last.contains(a)).chain(last.iter().copied()).collect();
        if order.is_sorted() {
            return Ok(AxesLast { value: x, sizes, order: None });
        }
        Ok(AxesLast { value: t.transpose(x, &order)?, sizes, order: Some(order) })
    }

    /// The sizes of those axes as a shape: that of the weights.
    pub(super) fn shape(&self) -> Shape {
        Shape::new(&self.sizes)
    }

    /// The number of elements along those axes together.
    pub(super) fn elements(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The value's shape with those axes joined into one.
    pub(super) fn joined(&self, t: &Trace<'_>) -> Shape {
        let shape = t.shape(self.value);
        let kept = &shape.dims()[..shape.rank() - self.sizes.len()];
        Shape::new(&[kept, &[self.elements()]].concat())
    }

    /// A value of the same shape with the axes where they were.
    pub(super) fn back(&self, t: &mut Trace<'_>, y: Value) -> Result<Value, Error> {
        let Some(order) = &self.order else { return Ok(y) };
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        Ok(t.transpose(y, &inverse)?)
    }
}
