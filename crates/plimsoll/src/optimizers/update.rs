//! The update of all weights: what is the same for every optimizer.

use super::{Change, Hyper, Optimizer, Range};
use crate::error::Error;
use crate::init::Initializer;
use crate::losses::{cast_as, clip, constant};
use crate::trace::{Role, Trace};
use plimsoll_graph::Value;
use plimsoll_kernels::pointwise::Binary;
use plimsoll_tensor::DType;
use std::fmt;
use std::sync::Arc;

/// What happens to gradients before the update, and to weights beside it. By default nothing.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Sgd, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[2], &[1.0f32, 1.0])?;
/// let gradient = Tensor::from_slice(&[2], &[3.0f32, 4.0])?;
/// // The gradient has length 5, and is cut to 1.
/// let options = UpdateOptions::new().clip_norm(1.0);
/// let after = evaluate(&Sgd::new(1.0), &options, &weight, &[gradient])?[0].to_f64();
/// assert!((after[0] - 0.4).abs() < 1e-6 && (after[1] - 0.2).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct UpdateOptions {
    /// How large gradients are cut.
    pub clip: Clip,
    /// Before the update, `learning_rate * weight_decay` times itself is taken from a weight; `None` leaves the decay to
    /// the optimizer ([`Optimizer::weight_decay`]).
    pub weight_decay: Option<f64>,
    /// Which weights decay, by name; `None` for all.
    pub decays: Option<Arc<dyn Fn(&str) -> bool + Send + Sync>>,
    /// Moving averages of the weights.
    pub ema: Option<Ema>,
    /// A scalar of the step being traced that all gradients are divided by first: see
    /// [`losses::fraction`](crate::losses::fraction).
    pub gradient_divisor: Option<Value>,
}

/// How large gradients are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Clip {
    /// Not at all.
    #[default]
    None,
    /// Each element between minus and plus this.
    Value(f64),
    /// Each weight's gradient shortened to this length, if it is longer.
    Norm(f64),
    /// All gradients together, as one vector, shortened to this length, if it is longer. For this all gradients must
    /// exist at once.
    GlobalNorm(f64),
}

/// Moving averages of weights: `a = momentum * a + (1 - momentum) * w` after each update, and `a = w` after the first.
///
/// The averages are variables with [`Role::Moment`], named as in `adam/dense/kernel/average`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// The part of the average that is kept.
    pub momentum: f64,
    /// Every so many steps the averages are written over the weights; `None` for never.
    pub overwrite_every: Option<u64>,
}

/// What [`apply`] has traced.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The weights after the update, by name, in the order of the gradients.
    pub weights: Vec<(String, Value)>,
    /// The length of all gradients together before it was cut, an f32 scalar; only with [`Clip::GlobalNorm`].
    pub global_norm: Option<Value>,
}

impl UpdateOptions {
    /// Nothing but the optimizer's own update.
    pub fn new() -> UpdateOptions {
        UpdateOptions::default()
    }

    /// Cuts each element of a gradient between minus and plus this.
    #[must_use]
    pub fn clip_value(self, limit: f64) -> UpdateOptions {
        UpdateOptions { clip: Clip::Value(limit), ..self }
    }

    /// Shortens each weight's gradient to this length.
    #[must_use]
    pub fn clip_norm(self, limit: f64) -> UpdateOptions {
        UpdateOptions { clip: Clip::Norm(limit), ..self }
    }

    /// Shortens all gradients together to this length.
    #[must_use]
    pub fn clip_global_norm(self, limit: f64) -> UpdateOptions {
        UpdateOptions { clip: Clip::GlobalNorm(limit), ..self }
    }

    /// Takes `learning_rate * weight_decay` times itself from a weight before its update.
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> UpdateOptions {
        UpdateOptions { weight_decay: Some(weight_decay), ..self }
    }

    /// Lets only those weights decay whose name the function says yes to.
    ///
    /// ```
    /// use plimsoll::optimizers::UpdateOptions;
    /// let options = UpdateOptions::new().weight_decay(0.01).decay_only(|name| name.ends_with("/kernel"));
    /// assert!(options.decays.unwrap()("dense/kernel"));
    /// ```
    #[must_use]
    pub fn decay_only(self, decays: impl Fn(&str) -> bool + Send + Sync + 'static) -> UpdateOptions {
        UpdateOptions { decays: Some(Arc::new(decays)), ..self }
    }

    /// Keeps moving averages of the weights.
    #[must_use]
    pub fn ema(self, momentum: f64) -> UpdateOptions {
        UpdateOptions { ema: Some(Ema { momentum, overwrite_every: None }), ..self }
    }

    /// Keeps moving averages of the weights, and writes them over the weights every so many steps.
    #[must_use]
    pub fn ema_overwriting(self, momentum: f64, every: u64) -> UpdateOptions {
        UpdateOptions { ema: Some(Ema { momentum, overwrite_every: Some(every) }), ..self }
    }

    /// Says what is wrong with the settings, if anything is.
    ///
    /// # Errors
    /// With the setting and its value.
    pub fn check(&self) -> Result<(), Error> {
        let (Clip::Value(limit) | Clip::Norm(limit) | Clip::GlobalNorm(limit)) = self.clip else {
            return self.check_rest();
        };
        if !(limit > 0.0 && limit.is_finite()) {
            let message = format!("gradients are to be cut to {limit}; it must be a number above 0");
            return Err(Error::config("optimizer", message));
        }
        self.check_rest()
    }

    fn check_rest(&self) -> Result<(), Error> {
        if let Some(decay) = self.weight_decay {
            Range::Positive.check("optimizer", "weight_decay", decay)?;
        }
        let Some(ema) = self.ema else { return Ok(()) };
        Range::Part.check("optimizer", "the momentum of the moving averages", ema.momentum)?;
        if ema.overwrite_every == Some(0) {
            let message = "averages are to be written over the weights every 0 steps; it must be at least 1";
            return Err(Error::config("optimizer", message));
        }
        Ok(())
    }

    fn decay_of(&self, optimizer: &dyn Optimizer, weight: &str) -> f64 {
        match &self.decays {
            Some(decays) if !decays(weight) => 0.0,
            _ => self.weight_decay.unwrap_or(optimizer.weight_decay()),
        }
    }
}

impl fmt::Debug for UpdateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateOptions")
            .field("clip", &self.clip)
            .field("weight_decay", &self.weight_decay)
            .field("decays", &self.decays.as_ref().map(|_| "by name"))
            .field("ema", &self.ema)
            .field("gradient_divisor", &self.gradient_divisor)
            .finish()
    }
}

/// Traces the update of all weights, given as (name, current value, gradient). To be called outside of any scope, so that
/// variables are named after the weights.
///
/// # Errors
/// When a setting is wrong, or a gradient does not suit its weight.
pub fn apply(
    optimizer: &dyn Optimizer,
    t: &mut Trace<'_>,
    gradients: &[(String, Value, Value)],
    hyper: &Hyper,
    options: &UpdateOptions,
) -> Result<Applied, Error> {
    optimizer.check()?;
    options.check()?;
    let divisor = options.gradient_divisor;
    let (mut shared_scale, mut global_norm) = (None, None);
    match options.clip {
        Clip::GlobalNorm(limit) => {
            let norm = norm(t, gradients.iter().map(|(_, _, gradient)| *gradient))?;
            shared_scale = Some(scale_to(t, norm, limit, divisor)?);
            global_norm = Some(divided(t, norm, divisor)?);
        }
        Clip::None | Clip::Value(_) => shared_scale = divisor.map(|divisor| inverse(t, divisor)).transpose()?,
        Clip::Norm(_) => (),
    }
    let mut weights = Vec::new();
    for (name, weight, gradient) in gradients {
        let weight_decay = options.decay_of(optimizer, name);
        let (weight, gradient) = (*weight, *gradient);
        let mut change = Change { name, weight, gradient, gradient_scale: shared_scale, weight_decay };
        match options.clip {
            Clip::Norm(limit) => {
                let norm = norm(t, [gradient])?;
                change.gradient_scale = Some(scale_to(t, norm, limit, divisor)?);
            }
            Clip::Value(limit) => {
                let gradient = change.scaled_gradient(t)?;
                change.gradient = clip(t, gradient, -limit, limit)?;
                change.gradient_scale = None;
            }
            Clip::None | Clip::GlobalNorm(_) => (),
        }
        let mut new = optimizer.update(t, &change, hyper)?;
        if let Some(ema) = &options.ema {
            new = ema.update(t, optimizer.name(), name, new, hyper.step)?;
        }
        weights.push((name.clone(), new));
    }
    Ok(Applied { weights, global_norm })
}

impl Ema {
    /// Updates the average of a weight, and the weight when its turn has come.
    fn update(
        &self,
        t: &mut Trace<'_>,
        optimizer: &str,
        name: &str,
        weight: Value,
        step: Value,
    ) -> Result<Value, Error> {
        let ty = *t.ty(weight);
        let average = t.variable(&format!("{optimizer}/{name}/average"), ty, Initializer::Zeros, Role::Moment)?;
        let one = t.constant(1.0, DType::F32)?;
        let first = t.le(step, one)?;
        let old = t.scale(average, self.momentum)?;
        let own = t.scale(weight, 1.0 - self.momentum)?;
        let mixed = t.add(old, own)?;
        let mixed = t.select(first, weight, mixed)?;
        let average = t.update(average, mixed)?;
        let Some(every) = self.overwrite_every else { return Ok(weight) };
        let every = t.constant(every as f64, DType::F32)?;
        let rest = t.binary(Binary::Rem, step, every)?;
        let zero = t.constant(0.0, DType::F32)?;
        let now = t.eq(rest, zero)?;
        let new = t.select(now, average, weight)?;
        t.update(weight, new)
    }
}

/// The length of gradients taken together, an f32 scalar.
fn norm(t: &mut Trace<'_>, gradients: impl IntoIterator<Item = Value>) -> Result<Value, Error> {
    let mut sum = None;
    for gradient in gradients {
        let gradient = match t.dtype(gradient) {
            DType::F16 | DType::BF16 => t.cast(gradient, DType::F32)?,
            _ => gradient,
        };
        let square = t.square(gradient)?;
        let square = t.sum_all(square)?;
        let square = t.cast(square, DType::F32)?;
        sum = Some(match sum {
            None => square,
            Some(sum) => t.add(sum, square)?,
        });
    }
    match sum {
        None => Ok(t.constant(0.0, DType::F32)?),
        Some(sum) => Ok(t.sqrt(sum)?),
    }
}

/// What gradients of this length, still to be divided by the divisor, are multiplied with so that their length is at most
/// the limit: `limit / max(norm, limit * divisor)`, which without a cut is `1 / divisor`.
fn scale_to(t: &mut Trace<'_>, norm: Value, limit: f64, divisor: Option<Value>) -> Result<Value, Error> {
    let limit = constant(t, norm, limit)?;
    let least = match divisor {
        None => limit,
        Some(divisor) => {
            let divisor = cast_as(t, divisor, norm)?;
            t.mul(limit, divisor)?
        }
    };
    let length = t.maximum(norm, least)?;
    Ok(t.div(limit, length)?)
}

fn divided(t: &mut Trace<'_>, x: Value, divisor: Option<Value>) -> Result<Value, Error> {
    let Some(divisor) = divisor else { return Ok(x) };
    let divisor = cast_as(t, divisor, x)?;
    Ok(t.div(x, divisor)?)
}

fn inverse(t: &mut Trace<'_>, divisor: Value) -> Result<Value, Error> {
    let divisor = t.cast(divisor, DType::F32)?;
    Ok(t.reciprocal(divisor)?)
}
