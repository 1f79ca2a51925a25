//! The fully connected layer.

use super::{Activation, Layer, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// `y = activation(x W + b)` over the last axis.
///
/// # Shapes
/// - input `[batch, .., in]`, output `[batch, .., units]`
/// - weights `kernel [in, units]`, `bias [units]`
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    units: usize,
    activation: Activation,
    bias: bool,
    kernel_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

impl Dense {
    /// A layer with this many outputs, no activation and a bias.
    pub fn new(units: usize) -> Dense {
        Dense {
            units,
            activation: Activation::Linear,
            bias: true,
            kernel_init: Initializer::GlorotUniform,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    /// With this activation.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Dense {
        Dense { activation, ..self }
    }

    /// Without a bias.
    #[must_use]
    pub fn no_bias(self) -> Dense {
        Dense { bias: false, ..self }
    }

    /// With these initial values of the kernel.
    #[must_use]
    pub fn kernel_init(self, kernel_init: Initializer) -> Dense {
        Dense { kernel_init, ..self }
    }

    /// With these initial values of the bias.
    #[must_use]
    pub fn bias_init(self, bias_init: Initializer) -> Dense {
        Dense { bias_init, ..self }
    }

    /// With this name.
    #[must_use]
    pub fn named(self, name: &str) -> Dense {
        Dense { name: Some(name.into()), ..self }
    }
}

impl Layer for Dense {
    fn kind(&self) -> &'static str {
        "dense"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single("dense", inputs)?;
        let shape = t.shape(x);
        let Some((&inner, true)) = shape.dims().last().map(|n| (n, shape.rank() >= 2)) else {
            return Err(Error::config("dense", format!("takes [batch, .., features], got {shape}")));
        };
        let kernel = t.weight("kernel", [inner, self.units], self.kernel_init.clone())?;
        let mut y = t.matmul(x, kernel)?;
        if self.bias {
            let bias = t.weight("bias", [self.units], self.bias_init.clone())?;
            y = t.add(y, bias)?;
        }
        self.activation.apply(t, y)
    }
}
