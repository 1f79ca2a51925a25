//! Normalisation over the batch.

use super::normalized_axes::AxesLast;
use super::{Layer, refuse, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::{Role, Trace};
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, TensorType};

/// Batch normalisation (Ioffe and Szegedy, 2015): each channel is given mean 0 and variance 1 over the batch (and over the
/// cells of an image), then scaled and shifted,
///
/// ```text
/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta
/// ```
///
/// While training, mean and variance are those of the batch, and running ones are kept:
/// `moving = momentum moving + (1 - momentum) batch's`, with the variance divided by the number of elements. Otherwise the running ones
/// are used.
///
/// # Shapes
/// - input and output `[batch, .., channels]`
/// - weights `gamma`, `beta`, `moving_mean`, `moving_variance`, each `[channels]`; the latter two are not learned by gradients
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    axis: isize,
    momentum: f64,
    epsilon: f64,
    center: bool,
    scale: bool,
    gamma_init: Initializer,
    beta_init: Initializer,
    name: Option<String>,
}

impl BatchNorm {
    /// A layer over the last axis with momentum 0.99 and epsilon 0.001.
    pub fn new() -> BatchNorm {
        BatchNorm {
            axis: -1,
            momentum: 0.99,
            epsilon: 1e-3,
            center: true,
            scale: true,
            gamma_init: Initializer::Ones,
            beta_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With the channels along this axis; the batch is axis 0, and negative ones are counted from the last.
        axis: isize;
        /// With this part of the running statistics kept at each step.
        momentum: f64;
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

impl Default for BatchNorm {
    fn default() -> BatchNorm {
        BatchNorm::new()
    }
}

impl Layer for BatchNorm {
    identity!("batch_normalization");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let kind = "batch_normalization";
        let x = single(t, kind, inputs)?;
        let shape = t.shape(x);
        if shape.rank() < 2 || shape.elements() == 0 {
            return Err(refuse(t, kind, format!("takes [batch, .., channels] with an element or more, got {shape}")));
        }
        let moved = AxesLast::new(t, kind, x, &[self.axis])?;
        let channels = moved.sizes[0];
        let gamma = match self.scale {
            true => Some(t.weight("gamma", [channels], self.gamma_init.clone())?),
            false => None,
        };
        let beta = match self.center {
            true => Some(t.weight("beta", [channels], self.beta_init.clone())?),
            false => None,
        };
        let ty = TensorType::new(DType::F32, [channels]);
        let moving_mean = t.variable("moving_mean", ty, Initializer::Zeros, Role::Statistic)?;
        let moving_variance = t.variable("moving_variance", ty, Initializer::Ones, Role::Statistic)?;
        let y = if t.training() {
            let [y, mean, variance] = t.batch_norm(moved.value, gamma, beta, self.epsilon)?;
            self.keep(t, moving_mean, mean)?;
            self.keep(t, moving_variance, variance)?;
            y
        } else {
            self.normalize(t, moved.value, [moving_mean, moving_variance], gamma, beta)?
        };
        moved.back(t, y)
    }
}

impl BatchNorm {
    /// Normalises with given statistics.
    fn normalize(
        &self,
        t: &mut Trace<'_>,
        x: Value,
        [mean, variance]: [Value; 2],
        gamma: Option<Value>,
        beta: Option<Value>,
    ) -> Result<Value, Error> {
        let slope = t.shift(variance, self.epsilon)?;
        let mut slope = t.rsqrt(slope)?;
        if let Some(gamma) = gamma {
            slope = t.mul(slope, gamma)?;
        }
        let y = t.sub(x, mean)?;
        let y = t.mul(y, slope)?;
        Ok(match beta {
            Some(beta) => t.add(y, beta)?,
            None => y,
        })
    }

    /// Moves a running statistic towards the batch's.
    fn keep(&self, t: &mut Trace<'_>, moving: Value, now: Value) -> Result<(), Error> {
        let old = t.scale(moving, self.momentum)?;
        let part = t.scale(now, 1.0 - self.momentum)?;
        let new = t.add(old, part)?;
        t.update(moving, new)?;
        Ok(())
    }
}
