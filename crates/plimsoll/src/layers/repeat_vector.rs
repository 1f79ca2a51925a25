//! The same vector at every step.

use super::{Layer, positive, shape_like, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Repeats a vector along a new axis: the input of a decoder, say.
///
/// # Shapes
/// Input `[batch, features]`, output `[batch, n, features]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatVector {
    n: usize,
    name: Option<String>,
}

impl RepeatVector {
    /// The layer that repeats its input so many times.
    pub fn new(n: usize) -> RepeatVector {
        RepeatVector { n, name: None }
    }

    settings! {}
}

impl Layer for RepeatVector {
    identity!("repeat_vector");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "repeat_vector", inputs)?;
        positive(t, "repeat_vector", "n", self.n)?;
        let shape = shape_like(t, "repeat_vector", x, &["batch", "features"])?;
        let (batch, features) = (shape[0], shape[1]);
        let x = t.reshape(x, [batch, 1, features])?;
        Ok(t.broadcast(x, [batch, self.n, features])?)
    }
}
