//! Noise added while training.

use super::{Layer, refuse, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Adds normal noise of mean 0; only while training.
///
/// # Shapes
/// Input and output `[batch, ..]`.
#[derive(Clone, Debug, PartialEq)]
pub struct GaussianNoise {
    stddev: f64,
    name: Option<String>,
}

impl GaussianNoise {
    /// A layer that adds noise of this standard deviation.
    pub fn new(stddev: f64) -> GaussianNoise {
        GaussianNoise { stddev, name: None }
    }

    settings! {}
}

impl Layer for GaussianNoise {
    identity!("gaussian_noise");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "gaussian_noise", inputs)?;
        if !(self.stddev >= 0.0 && self.stddev.is_finite()) {
            let message = format!("the standard deviation is a number from 0, got {}", self.stddev);
            return Err(refuse(t, "gaussian_noise", message));
        }
        if !t.training() || self.stddev == 0.0 {
            return Ok(x);
        }
        let (key, ty) = (t.key(), *t.ty(x));
        let noise = t.random(key, "normal", ty)?;
        let noise = t.scale(noise, self.stddev)?;
        Ok(t.add(x, noise)?)
    }
}
