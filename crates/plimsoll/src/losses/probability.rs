//! Losses between distributions.

use super::{EPSILON, Loss, clip, matched, mean_last, sum_last};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// `sum(y_true * ln(y_true / y_pred))` over the last axis, where both are kept between 1e-7 and 1: how much is lost by
/// taking the distribution `y_pred` for `y_true`.
///
/// ```
/// use plimsoll::{Tensor, losses::{KlDivergence, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[0.5f32, 0.5])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[0.25f32, 0.75])?;
/// let expected = 0.5 * 2f64.ln() + 0.5 * (2f64 / 3.0).ln();
/// assert!((evaluate(&KlDivergence, &y_true, &y_pred, None)? - expected).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KlDivergence;

/// `mean(y_pred - y_true * ln(y_pred + 1e-7))`: for counts `y_true` and their expected numbers `y_pred`.
///
/// ```
/// use plimsoll::{Tensor, losses::{Poisson, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[1.0f32, 3.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[1.0f32, 2.0])?;
/// let expected = (1.0 + 2.0 - 3.0 * 2f64.ln()) / 2.0;
/// assert!((evaluate(&Poisson, &y_true, &y_pred, None)? - expected).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Poisson;

impl Loss for KlDivergence {
    fn name(&self) -> &str {
        "kl_divergence"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched(t, self.name(), y_true, y_pred)?;
        let y_true = clip(t, y_true, EPSILON, 1.0)?;
        let y_pred = clip(t, y_pred, EPSILON, 1.0)?;
        let ratio = t.div(y_true, y_pred)?;
        let log = t.log(ratio)?;
        let loss = t.mul(y_true, log)?;
        sum_last(t, loss)
    }
}

impl Loss for Poisson {
    fn name(&self) -> &str {
        "poisson"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched(t, self.name(), y_true, y_pred)?;
        let log = t.shift(y_pred, EPSILON)?;
        let log = t.log(log)?;
        let gain = t.mul(y_true, log)?;
        let loss = t.sub(y_pred, gain)?;
        mean_last(t, loss)
    }
}
