//! The fully connected layer.

use super::{Activation, Layer, positive, refuse, single};
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

    settings! {
        /// With this activation.
        activation: Activation;
        /// Without a bias.
        no_bias => bias = false;
        /// With these initial values of the kernel.
        kernel_init: Initializer;
        /// With these initial values of the bias.
        bias_init: Initializer;
    }
}

impl Layer for Dense {
    identity!("dense");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "dense", inputs)?;
        positive(t, "dense", "units", self.units)?;
        let shape = t.shape(x);
        let Some((&inner, true)) = shape.dims().last().map(|n| (n, shape.rank() >= 2)) else {
            return Err(refuse(t, "dense", format!("takes [batch, .., features], got {shape}")));
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
