//! Layers with a way around them.

use super::{Activation, Chain, Layer, refuse, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use std::sync::Arc;

/// `y = activation(shortcut(x) + inner(x))`: layers and a way around them, which is the input itself unless a layer is set.
///
/// # Shapes
/// Input `[batch, ..]`; the output is what the inner layers give, and the shortcut must give the same.
///
/// ```
/// use plimsoll::layers::{Activation, BatchNorm, Conv2D, Residual};
/// // The block of a residual network that halves the image.
/// let block = Residual::new()
///     .layer(Conv2D::new(64, 3).strides(2).same().no_bias())
///     .layer(BatchNorm::new())
///     .layer(Activation::Relu)
///     .layer(Conv2D::new(64, 3).same().no_bias())
///     .layer(BatchNorm::new())
///     .shortcut(Conv2D::new(64, 1).strides(2))
///     .activation(Activation::Relu);
/// ```
#[derive(Clone, Default)]
pub struct Residual {
    inner: Chain,
    shortcut: Option<Arc<dyn Layer>>,
    activation: Activation,
    name: Option<String>,
}

impl Residual {
    /// A block without layers yet.
    pub fn new() -> Residual {
        Residual::default()
    }

    /// With one more inner layer at the end.
    #[must_use]
    pub fn layer(self, layer: impl Layer + 'static) -> Residual {
        Residual { inner: self.inner.layer(layer), ..self }
    }

    /// With this layer on the way around; needed when the inner layers change the shape.
    #[must_use]
    pub fn shortcut(self, layer: impl Layer + 'static) -> Residual {
        Residual { shortcut: Some(Arc::new(layer)), ..self }
    }

    settings! {
        /// With this activation of the sum.
        activation: Activation;
    }
}

impl Layer for Residual {
    identity!("residual");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "residual", inputs)?;
        let y = self.inner.call(t, &[x])?;
        let around = match &self.shortcut {
            Some(layer) => t.scope("shortcut", |t| layer.call(t, &[x]))?,
            None => x,
        };
        if t.ty(y) != t.ty(around) {
            let message = format!(
                "the inner layers give {}, the way around gives {}; set a shortcut that gives the same",
                t.ty(y),
                t.ty(around)
            );
            return Err(refuse(t, "residual", message));
        }
        let sum = t.add(y, around)?;
        self.activation.apply(t, sum)
    }
}
