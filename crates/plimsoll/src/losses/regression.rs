//! Losses between numbers.

use super::{EPSILON, Loss, constant, matched, mean_last};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// `mean((y_pred - y_true)^2)`.
///
/// See the [module's example](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanSquaredError;

/// `mean(|y_pred - y_true|)`.
///
/// ```
/// use plimsoll::{Tensor, losses::{MeanAbsoluteError, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[1.0f32, 2.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[2.0f32, -1.0])?;
/// assert_eq!(evaluate(&MeanAbsoluteError, &y_true, &y_pred, None)?, 2.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanAbsoluteError;

/// `100 * mean(|y_pred - y_true| / max(|y_true|, 1e-7))`.
///
/// ```
/// use plimsoll::{Tensor, losses::{MeanAbsolutePercentageError, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[1.0f32, 4.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[2.0f32, 4.0])?;
/// assert_eq!(evaluate(&MeanAbsolutePercentageError, &y_true, &y_pred, None)?, 50.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanAbsolutePercentageError;

/// `mean((ln(1 + y_pred) - ln(1 + y_true))^2)`, where both are taken to be at least 1e-7.
///
/// ```
/// use plimsoll::{Tensor, losses::{MeanSquaredLogarithmicError, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[0.0f32, 3.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[1.0f32, 3.0])?;
/// let expected = 2f64.ln().powi(2) / 2.0;
/// assert!((evaluate(&MeanSquaredLogarithmicError, &y_true, &y_pred, None)? - expected).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanSquaredLogarithmicError;

/// `mean(h(y_pred - y_true))` with `h(e) = e^2 / 2` where `|e| <= delta` and `delta * |e| - delta^2 / 2` beyond: squared
/// for small errors, absolute for large ones.
///
/// ```
/// use plimsoll::{Tensor, losses::{Huber, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[0.0f32, 0.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[1.0f32, 4.0])?;
/// // (0.5 + 3.5) / 2.
/// assert_eq!(evaluate(&Huber::new(1.0), &y_true, &y_pred, None)?, 2.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Huber {
    delta: f64,
}

/// `mean(ln(cosh(y_pred - y_true)))`: about `e^2 / 2` for small errors and `|e| - ln 2` for large ones.
///
/// ```
/// use plimsoll::{Tensor, losses::{LogCosh, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[0.0f32, 0.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[1.0f32, 0.0])?;
/// let expected = 1f64.cosh().ln() / 2.0;
/// assert!((evaluate(&LogCosh, &y_true, &y_pred, None)? - expected).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCosh;

/// `y_pred - y_true`.
fn error(t: &mut Trace<'_>, what: &str, y_true: Value, y_pred: Value) -> Result<Value, Error> {
    let (y_true, y_pred) = matched(t, what, y_true, y_pred)?;
    Ok(t.sub(y_pred, y_true)?)
}

impl Loss for MeanSquaredError {
    fn name(&self) -> &str {
        "mean_squared_error"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let error = error(t, self.name(), y_true, y_pred)?;
        let square = t.square(error)?;
        mean_last(t, square)
    }
}

impl Loss for MeanAbsoluteError {
    fn name(&self) -> &str {
        "mean_absolute_error"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let error = error(t, self.name(), y_true, y_pred)?;
        let size = t.abs(error)?;
        mean_last(t, size)
    }
}

impl Loss for MeanAbsolutePercentageError {
    fn name(&self) -> &str {
        "mean_absolute_percentage_error"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched(t, self.name(), y_true, y_pred)?;
        let error = t.sub(y_pred, y_true)?;
        let least = constant(t, y_true, EPSILON)?;
        let size = t.abs(y_true)?;
        let size = t.maximum(size, least)?;
        let part = t.div(error, size)?;
        let part = t.abs(part)?;
        let mean = mean_last(t, part)?;
        Ok(t.scale(mean, 100.0)?)
    }
}

impl Loss for MeanSquaredLogarithmicError {
    fn name(&self) -> &str {
        "mean_squared_logarithmic_error"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched(t, self.name(), y_true, y_pred)?;
        let least = constant(t, y_pred, EPSILON)?;
        let mut log = |x: Value| {
            let x = t.maximum(x, least)?;
            t.log1p(x)
        };
        let (found, wanted) = (log(y_pred)?, log(y_true)?);
        let error = t.sub(found, wanted)?;
        let square = t.square(error)?;
        mean_last(t, square)
    }
}

impl Huber {
    /// Squared up to errors of this size, absolute beyond; Keras's default is 1.
    pub fn new(delta: f64) -> Huber {
        Huber { delta }
    }
}

impl Default for Huber {
    fn default() -> Huber {
        Huber::new(1.0)
    }
}

impl Loss for Huber {
    fn name(&self) -> &str {
        "huber"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let delta = self.delta;
        if !(delta > 0.0 && delta.is_finite()) {
            return Err(Error::config("huber", format!("delta is {delta}; it must be a number above 0")));
        }
        let error = error(t, self.name(), y_true, y_pred)?;
        let size = t.abs(error)?;
        let limit = constant(t, error, delta)?;
        let small = t.le(size, limit)?;
        let square = t.square(error)?;
        let half = t.scale(square, 0.5)?;
        let line = t.scale(size, delta)?;
        let line = t.shift(line, -0.5 * delta * delta)?;
        let loss = t.select(small, half, line)?;
        mean_last(t, loss)
    }
}

impl Loss for LogCosh {
    fn name(&self) -> &str {
        "log_cosh"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let error = error(t, self.name(), y_true, y_pred)?;
        // ln(cosh(e)) = e + ln(1 + exp(-2 e)) - ln 2, which does not overflow.
        let down = t.scale(error, -2.0)?;
        let soft = t.softplus(down)?;
        let sum = t.add(error, soft)?;
        let loss = t.shift(sum, -std::f64::consts::LN_2)?;
        mean_last(t, loss)
    }
}
