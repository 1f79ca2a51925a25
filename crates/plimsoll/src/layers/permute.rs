//! The axes of a sample in another order.

use super::{Layer, refuse, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// The axes of each sample in another order; they are counted from 1, the batch being 0 and staying first.
///
/// # Shapes
/// Input `[batch, s1, s2, ..]`, output `[batch, s(axes[0]), s(axes[1]), ..]`: `Permute::new([2, 1])` makes `[batch, 10, 64]`
/// into `[batch, 64, 10]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Permute {
    axes: Vec<usize>,
    name: Option<String>,
}

impl Permute {
    /// The layer that puts the axes in this order.
    pub fn new(axes: impl Into<Vec<usize>>) -> Permute {
        Permute { axes: axes.into(), name: None }
    }

    settings! {}
}

impl Layer for Permute {
    identity!("permute");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "permute", inputs)?;
        let shape = t.shape(x);
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if shape.rank() == 0 || !sorted.iter().copied().eq(1..shape.rank()) {
            let message = format!("{:?} is not an order of the axes 1 .. of an input {shape}", self.axes);
            return Err(refuse(t, "permute", message));
        }
        let axes: Vec<usize> = std::iter::once(0).chain(self.axes.iter().copied()).collect();
        Ok(t.transpose(x, &axes)?)
    }
}
