//! Activation functions, on their own or inside another layer.

use super::{Layer, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// An element-wise function (softmax: over the last axis) between layers, as Keras names and defines them.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum Activation {
    /// The input itself.
    #[default]
    Linear,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// Applies the function.
    ///
    /// # Errors
    /// When the value is not floating-point.
    pub fn apply(self, t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
        Ok(match self {
            Activation::Linear => x,
            Activation::Relu => t.relu(x)?,
            Activation::Sigmoid => t.sigmoid(x)?,
            Activation::Tanh => t.tanh(x)?,
        })
    }
}

impl Layer for Activation {
    fn kind(&self) -> &'static str {
        "activation"
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        self.apply(t, single("activation", inputs)?)
    }
}
