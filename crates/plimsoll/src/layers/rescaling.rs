//! Another range of numbers.

use super::{Layer, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::DType;

/// `y = scale x + offset`; integers become f32. `Rescaling::new(1.0 / 255.0)` makes bytes of an image into numbers from 0 to 1.
///
/// # Shapes
/// Input and output `[batch, ..]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rescaling {
    scale: f64,
    offset: f64,
    name: Option<String>,
}

impl Rescaling {
    /// A layer that multiplies by this factor.
    pub fn new(scale: f64) -> Rescaling {
        Rescaling { scale, offset: 0.0, name: None }
    }

    settings! {
        /// With this term added.
        offset: f64;
    }
}

impl Layer for Rescaling {
    identity!("rescaling");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "rescaling", inputs)?;
        let x = if t.dtype(x).is_float() { x } else { t.cast(x, DType::F32)? };
        let y = t.scale(x, self.scale)?;
        Ok(if self.offset == 0.0 { y } else { t.shift(y, self.offset)? })
    }
}
