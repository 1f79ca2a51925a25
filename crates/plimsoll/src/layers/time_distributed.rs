//! A layer applied to every step.

use super::{Layer, refuse, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::Shape;
use std::sync::Arc;

/// Applies a layer to every step of a sequence, with the same weights: the steps are treated as samples.
///
/// # Shapes
/// Input `[batch, steps, ..]`, of which the inner layer sees `[batch * steps, ..]`; output `[batch, steps, what it gives..]`.
///
/// ```
/// use plimsoll::layers::{Flatten, TimeDistributed};
/// // [batch, frames, 8, 8, 3] becomes [batch, frames, 192].
/// let layer = TimeDistributed::new(Flatten::new());
/// ```
#[derive(Clone)]
pub struct TimeDistributed {
    inner: Arc<dyn Layer>,
    name: Option<String>,
}

impl TimeDistributed {
    /// The layer that applies this one to every step.
    pub fn new(inner: impl Layer + 'static) -> TimeDistributed {
        TimeDistributed { inner: Arc::new(inner), name: None }
    }

    settings! {}
}

impl Layer for TimeDistributed {
    identity!("time_distributed");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "time_distributed", inputs)?;
        let shape = t.shape(x);
        let [batch, steps, ref rest @ ..] = *shape.dims() else {
            return Err(refuse(t, "time_distributed", format!("takes [batch, steps, ..], got {shape}")));
        };
        let samples = Shape::new(rest).insert(0, batch * steps);
        let x = t.reshape(x, samples)?;
        let y = self.inner.call(t, &[x])?;
        let given = t.shape(y);
        let apart = match *given.dims() {
            [n, ref rest @ ..] if n == batch * steps => Shape::try_new(&[&[batch, steps], rest].concat()),
            _ => None,
        };
        let Some(apart) = apart else {
            let message =
                format!("the inner layer made {samples} into {given}, which cannot be cut into {steps} steps");
            return Err(refuse(t, "time_distributed", message));
        };
        Ok(t.reshape(y, apart)?)
    }
}
