//! Normalisation by the root of the mean square.

use super::normalized_axes::AxesLast;
use super::{Layer, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// RMS normalisation (Zhang and Sennrich, 2019): as [`LayerNorm`](super::LayerNorm), but without a mean,
///
/// ```text
/// y = scale x / sqrt(mean of x^2 + epsilon)
/// ```
///
/// # Shapes
/// - input and output `[batch, .., features]`
/// - weight `scale [features]`, or of the sizes of all axes set with [`RmsNorm::axes`]
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    axes: Vec<isize>,
    epsilon: f64,
    scale_init: Initializer,
    name: Option<String>,
}

impl RmsNorm {
    /// A layer over the last axis with epsilon 1e-6.
    pub fn new() -> RmsNorm {
        RmsNorm { axes: vec![-1], epsilon: 1e-6, scale_init: Initializer::Ones, name: None }
    }

    settings! {
        /// Over these axes; the batch is axis 0, and negative ones are counted from the last.
        axes: impl Into<Vec<isize>>;
        /// With this number added to the mean square.
        epsilon: f64;
        /// With these initial values of the scale.
        scale_init: Initializer;
    }
}

impl Default for RmsNorm {
    fn default() -> RmsNorm {
        RmsNorm::new()
    }
}

impl Layer for RmsNorm {
    identity!("rms_normalization");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "rms_normalization", inputs)?;
        let moved = AxesLast::new(t, "rms_normalization", x, &self.axes)?;
        let scale = t.weight("scale", moved.shape(), self.scale_init.clone())?;
        let scale = t.reshape(scale, [moved.elements()])?;
        let (shape, joined) = (t.shape(moved.value), moved.joined(t));
        let rows = t.reshape(moved.value, joined)?;
        let y = t.rms_norm(rows, Some(scale), self.epsilon)?;
        let y = t.reshape(y, shape)?;
        moved.back(t, y)
    }
}
