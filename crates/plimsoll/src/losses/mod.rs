//! Losses: how far predictions are from labels, as one number to be made small.
//!
//! A [`Loss`] gives one number per sample (or per position of a sample: per word, per pixel); [`total`] makes one number
//! of them, with sample weights if there are any. Definitions, names and defaults are those of Keras 3.
//!
//! The mean over the batch is written as a sum times one constant. So the sums of slices of a batch add up to the loss
//! of the whole, and a step can be split to fit in less memory without changing what it computes.
//!
//! ```
//! use plimsoll::Tensor;
//! use plimsoll::losses::{MeanSquaredError, evaluate};
//! # fn main() -> Result<(), plimsoll::Error> {
//! let y_true = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
//! let y_pred = Tensor::from_slice(&[2, 2], &[1.0f32, 4.0, 3.0, 3.0])?;
//! // Per sample: (0 + 4) / 2 and (0 + 1) / 2.
//! assert_eq!(evaluate(&MeanSquaredError, &y_true, &y_pred, None)?, 1.25);
//! // Weights of samples multiply their losses; the divisor stays the number of samples.
//! let weights = Tensor::from_slice(&[2], &[1.0f32, 0.0])?;
//! assert_eq!(evaluate(&MeanSquaredError, &y_true, &y_pred, Some(&weights))?, 1.0);
//! # Ok(())
//! # }
//! ```

mod cross_entropy;
mod hinge;
mod labels;
mod probability;
mod regression;
mod similarity;

pub use cross_entropy::{BinaryCrossEntropy, CategoricalCrossEntropy, SparseCategoricalCrossEntropy};
pub use hinge::{CategoricalHinge, Hinge, SquaredHinge};
pub use probability::{KlDivergence, Poisson};
pub use regression::{
    Huber, LogCosh, MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredError, MeanSquaredLogarithmicError,
};
pub use similarity::CosineSimilarity;

pub(crate) use labels::{matched, matched_classes, matched_numbers, spread};

use crate::by_definition::Run;
use crate::error::Error;
use crate::trace::{Mode, Trace};
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Tensor, TensorType};
use std::sync::Arc;

/// Keras's small number: probabilities are kept this far from 0 and 1, divisors from 0.
pub const EPSILON: f64 = 1e-7;

/// How far predictions are from labels.
///
/// # Shapes
/// Predictions are `[batch, .., n]`; unless a loss says otherwise labels have the same shape (see
/// [`Loss::label_type`]), and the losses are `[batch, ..]`, the last axis being averaged. Predictions `[batch]` stand
/// for one number per sample.
///
/// ```
/// use plimsoll::losses::{Loss, evaluate};
/// use plimsoll::{Error, Tensor, Trace, Value};
/// use plimsoll_graph::op::reduce::Kind;
///
/// /// The largest error of a sample.
/// struct WorstError;
///
/// impl Loss for WorstError {
///     fn name(&self) -> &str { "worst_error" }
///     fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
///         let error = t.sub(y_true, y_pred)?;
///         let error = t.abs(error)?;
///         Ok(t.reduce(Kind::Max, error, &[1], false)?)
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let y_true = Tensor::zeros(plimsoll::DType::F32, [2, 3]);
/// let y_pred = Tensor::from_slice(&[2, 3], &[1.0f32, -3.0, 2.0, 0.0, 0.0, 1.0])?;
/// assert_eq!(evaluate(&WorstError, &y_true, &y_pred, None)?, 2.0);
/// # Ok(())
/// # }
/// ```
pub trait Loss: Send + Sync {
    /// The loss's name, as Keras writes it.
    fn name(&self) -> &str;

    /// Traces the losses: one per sample or position.
    ///
    /// # Errors
    /// When labels and predictions do not suit each other (the message names both), or a setting is wrong.
    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error>;

    /// What the labels look like for predictions of this type.
    fn label_type(&self, prediction: &TensorType) -> TensorType {
        TensorType::new(DType::F32, prediction.shape)
    }

    /// Which of the losses count, as bools of their shape; `None` when all do. Losses that do not count are left out of
    /// sums, and of the number that the sum is divided by.
    ///
    /// # Errors
    /// As [`Loss::call`].
    fn mask(&self, _t: &mut Trace<'_>, _y_true: Value, _y_pred: Value) -> Result<Option<Value>, Error> {
        Ok(None)
    }

    /// How the losses become one number.
    fn reduction(&self) -> Reduction {
        Reduction::SumOverBatchSize
    }

    /// This loss with another reduction.
    ///
    /// ```
    /// use plimsoll::losses::{Loss, MeanSquaredError, Reduction};
    /// let loss = MeanSquaredError.with_reduction(Reduction::Sum);
    /// assert_eq!(loss.reduction(), Reduction::Sum);
    /// ```
    fn with_reduction(self, reduction: Reduction) -> Reduced<Self>
    where
        Self: Sized,
    {
        Reduced { loss: self, reduction }
    }
}

/// A loss chosen at run time is a loss.
impl Loss for Arc<dyn Loss> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        (**self).call(t, y_true, y_pred)
    }

    fn label_type(&self, prediction: &TensorType) -> TensorType {
        (**self).label_type(prediction)
    }

    fn mask(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Option<Value>, Error> {
        (**self).mask(t, y_true, y_pred)
    }

    fn reduction(&self) -> Reduction {
        (**self).reduction()
    }
}

/// How losses become one number. `l` are the losses, `w` their weights (1 when there are none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// `sum(l * w) / n`, where `n` is the number of losses that count.
    #[default]
    SumOverBatchSize,
    /// `sum(l * w)`.
    Sum,
    /// `sum(l * w) / sum(w)`. With weights the divisor is known only when the whole batch has been seen.
    MeanWithSampleWeight,
}

/// A loss with another reduction: see [`Loss::with_reduction`].
#[derive(Clone, Debug, PartialEq)]
pub struct Reduced<L> {
    loss: L,
    reduction: Reduction,
}

impl<L: Loss> Loss for Reduced<L> {
    fn name(&self) -> &str {
        self.loss.name()
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        self.loss.call(t, y_true, y_pred)
    }

    fn label_type(&self, prediction: &TensorType) -> TensorType {
        self.loss.label_type(prediction)
    }

    fn mask(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Option<Value>, Error> {
        self.loss.mask(t, y_true, y_pred)
    }

    fn reduction(&self) -> Reduction {
        self.reduction
    }
}

/// The loss of a batch, a scalar. Weights are one per sample (`[batch]`) or one per loss.
///
/// # Errors
/// When labels, predictions or weights do not suit each other.
pub fn total(
    loss: &dyn Loss,
    t: &mut Trace<'_>,
    y_true: Value,
    y_pred: Value,
    weights: Option<Value>,
) -> Result<Value, Error> {
    let Fraction { sum, divisor } = fraction(loss, t, y_true, y_pred, weights)?;
    match divisor {
        None => Ok(sum),
        Some(divisor) => Ok(t.div(sum, divisor)?),
    }
}

/// The loss of a batch before it is divided by something that depends on the data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction {
    /// A scalar that the slices of a batch add up to. Divisors that are constant are in it already.
    pub sum: Value,
    /// How many losses count, or the sum of the weights, where that is to be divided by: a scalar.
    pub divisor: Option<Value>,
}

/// As [`total`], but without the division by what depends on the data.
///
/// The gradients of the loss are those of [`Fraction::sum`], divided by [`Fraction::divisor`]. Taken in this order (see
/// [`UpdateOptions::gradient_divisor`](crate::optimizers::UpdateOptions::gradient_divisor)) they can be added up over slices of the
/// batch even though the divisor depends on all of it.
///
/// # Errors
/// As [`total`].
pub fn fraction(
    loss: &dyn Loss,
    t: &mut Trace<'_>,
    y_true: Value,
    y_pred: Value,
    weights: Option<Value>,
) -> Result<Fraction, Error> {
    let losses = loss.call(t, y_true, y_pred)?;
    let mask = loss.mask(t, y_true, y_pred)?;
    reduce(t, loss.name(), losses, weights, mask, loss.reduction())
}

/// Makes one number of many losses. `what` stands in messages, the mask is as in [`Loss::mask`].
///
/// # Errors
/// When the weights do not suit the losses.
pub fn reduce(
    t: &mut Trace<'_>,
    what: &str,
    losses: Value,
    weights: Option<Value>,
    mask: Option<Value>,
    reduction: Reduction,
) -> Result<Fraction, Error> {
    let shape = t.shape(losses);
    let factors = factors(t, what, losses, weights, mask)?;
    let weighted = match factors {
        None => losses,
        Some(factors) => t.mul(losses, factors)?,
    };
    let sum = t.sum_all(weighted)?;
    Ok(match (reduction, factors, mask) {
        (Reduction::Sum, ..) => Fraction { sum, divisor: None },
        (Reduction::SumOverBatchSize, _, None) | (Reduction::MeanWithSampleWeight, None, _) => {
            let mean = t.scale(sum, 1.0 / shape.elements().max(1) as f64)?;
            Fraction { sum: mean, divisor: None }
        }
        (Reduction::SumOverBatchSize, _, Some(mask)) => {
            let ones = cast_as(t, mask, losses)?;
            let valid = t.sum_all(ones)?;
            // When nothing counts the sum is 0, and so is the loss.
            let one = constant(t, losses, 1.0)?;
            Fraction { sum, divisor: Some(t.maximum(valid, one)?) }
        }
        (Reduction::MeanWithSampleWeight, Some(factors), _) => {
            let all = t.broadcast(factors, shape)?;
            let all = t.sum_all(all)?;
            Fraction { sum, divisor: Some(t.shift(all, EPSILON)?) }
        }
    })
}

/// What values per sample or position are multiplied with before they are added up: weights and mask together, in a shape
/// that broadcasts to theirs. `None` when that is 1 everywhere.
pub(crate) fn factors(
    t: &mut Trace<'_>,
    what: &str,
    values: Value,
    weights: Option<Value>,
    mask: Option<Value>,
) -> Result<Option<Value>, Error> {
    let weights = weights.map(|weights| spread(t, what, weights, values)).transpose()?;
    let mask = mask.map(|mask| cast_as(t, mask, values)).transpose()?;
    Ok(match (weights, mask) {
        (Some(weights), Some(mask)) => Some(t.mul(weights, mask)?),
        (weights, mask) => weights.or(mask),
    })
}

/// A scalar constant of another value's type.
pub(crate) fn constant(t: &mut Trace<'_>, like: Value, value: f64) -> Result<Value, Error> {
    let dtype = t.dtype(like);
    Ok(t.constant(value, dtype)?)
}

/// A value converted to another one's type.
pub(crate) fn cast_as(t: &mut Trace<'_>, x: Value, like: Value) -> Result<Value, Error> {
    let dtype = t.dtype(like);
    Ok(t.cast(x, dtype)?)
}

/// The mean over the last axis. Values `[batch]` have no axis to spare: each is its own mean.
pub(crate) fn mean_last(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    match t.shape(x).rank() {
        0 | 1 => Ok(x),
        rank => Ok(t.mean(x, &[rank - 1], false)?),
    }
}

/// The sum over the last axis, as [`mean_last`].
pub(crate) fn sum_last(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    match t.shape(x).rank() {
        0 | 1 => Ok(x),
        rank => Ok(t.sum(x, &[rank - 1], false)?),
    }
}

/// `x` kept between two numbers; the gradient is 0 outside.
pub(crate) fn clip(t: &mut Trace<'_>, x: Value, low: f64, high: f64) -> Result<Value, Error> {
    let (low, high) = (constant(t, x, low)?, constant(t, x, high)?);
    let x = t.maximum(x, low)?;
    Ok(t.minimum(x, high)?)
}

/// The loss of one batch by the plain definitions of the ops, over f64: for looking at numbers.
///
/// # Errors
/// As [`total`].
pub fn evaluate(loss: &dyn Loss, y_true: &Tensor, y_pred: &Tensor, weights: Option<&Tensor>) -> Result<f64, Error> {
    let mut inputs = vec![("y_true", y_true.clone()), ("y_pred", y_pred.clone())];
    inputs.extend(weights.map(|w| ("weights", w.clone())));
    let results = Run::new().step(Mode::Evaluate, &inputs, |t| {
        let (labels, predictions) = (t.input("y_true", *y_true.ty()), t.input("y_pred", *y_pred.ty()));
        let weights = weights.map(|w| t.input("weights", *w.ty()));
        let value = total(loss, t, labels, predictions, weights)?;
        t.output("loss", value);
        Ok(())
    })?;
    Ok(results["loss"].to_f64()[0])
}

#[cfg(test)]
mod tests;
