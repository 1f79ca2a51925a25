//! Normalisation of each sample, or each step, by itself.

use super::normalized_axes::AxesLast;
use super::{Layer, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Layer normalisation (Ba, Kiros and Hinton, 2016): the features are given mean 0 and variance 1, then scaled and
/// shifted,
///
/// ```text
/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta
/// ```
///
/// # Shapes
/// - input and output `[batch, .., features]`
/// - weights `gamma`, `beta`, each `[features]`, or of the sizes of all axes set with [`LayerNorm::axes`]
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    axes: Vec<isize>,
    epsilon: f64,
    center: bool,
    scale: bool,
    gamma_init: Initializer,
    beta_init: Initializer,
    name: Option<String>,
}

impl LayerNorm {
    /// A layer over the last axis with epsilon 0.001.
    pub fn new() -> LayerNorm {
        LayerNorm {
            axes: vec![-1],
            epsilon: 1e-3,
            center: true,
            scale: true,
            gamma_init: Initializer::Ones,
            beta_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// Over these axes; the batch is axis 0, and negative ones are counted from the last.
        axes: impl Into<Vec<isize>>;
        /// With this number added to the variance.
        epsilon: f64;
        /// Without `beta`.
        no_center => center = false;
        /// Without `gamma`.
        no_scale => scale = false;
        /// With these initial values of `gamma`.
        gamma_init: Initializer;
        /// With these initial values of `beta`.
        beta_init: Initializer;
    }
}

impl Default for LayerNorm {
    fn default() -> LayerNorm {
        LayerNorm::new()
    }
}

impl Layer for LayerNorm {
    identity!("layer_normalization");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "layer_normalization", inputs)?;
        let moved = AxesLast::new(t, "layer_normalization", x, &self.axes)?;
        let width = moved.elements();
        let mut weight = |name: &str, wanted: bool, init: &Initializer| {
            if !wanted {
                return Ok(None);
            }
            let weight = t.weight(name, moved.shape(), init.clone())?;
            Ok::<_, Error>(Some(t.reshape(weight, [width])?))
        };
        let gamma = weight("gamma", self.scale, &self.gamma_init)?;
        let beta = weight("beta", self.center, &self.beta_init)?;
        let shape = t.shape(moved.value);
        let joined = moved.joined(t);
        let rows = t.reshape(moved.value, joined)?;
        let y = t.layer_norm(rows, gamma, beta, self.epsilon)?;
        let y = t.reshape(y, shape)?;
        moved.back(t, y)
    }
}
