//! Means over the epoch: of losses, and of the loss that is trained.

use super::{Metric, accumulate, mean_of, mean_result};
use crate::error::Error;
use crate::losses::{Loss, MeanSquaredError};
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Tensor};
use std::sync::Arc;

/// The mean of a loss over all samples, weighted: `sum(l * w) / sum(w)`.
///
/// ```
/// use plimsoll::{Tensor, losses::MeanAbsoluteError, metrics::{Mean, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2, 1], &[0.0f32, 0.0])?;
/// let y_pred = Tensor::from_slice(&[2, 1], &[1.0f32, 4.0])?;
/// let metric = Mean::of(MeanAbsoluteError);
/// assert_eq!(evaluate(&metric, &y_true, &y_pred, None)?, 2.5);
/// let weights = Tensor::from_slice(&[2], &[3.0f32, 1.0])?;
/// assert_eq!(evaluate(&metric, &y_true, &y_pred, Some(&weights))?, 1.75);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mean {
    name: String,
    loss: Arc<dyn Loss>,
}

/// `sqrt(mean((y_pred - y_true)^2))`, the mean being over all samples of the epoch.
///
/// ```
/// use plimsoll::{Tensor, metrics::{RootMeanSquaredError, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2, 1], &[0.0f32, 0.0])?;
/// let y_pred = Tensor::from_slice(&[2, 1], &[1.0f32, 7.0])?;
/// assert_eq!(evaluate(&RootMeanSquaredError::new(), &y_true, &y_pred, None)?, 5.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RootMeanSquaredError {
    mean: Mean,
}

/// The mean over the epoch of the loss that is trained, each step counting as often as it has samples.
///
/// It is no [`Metric`], because it takes the loss itself and not labels and predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanLoss;

impl Mean {
    /// The mean of a loss, under the loss's name.
    pub fn of(loss: impl Loss + 'static) -> Mean {
        Mean { name: loss.name().to_owned(), loss: Arc::new(loss) }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Mean {
        Mean { name: name.into(), ..self }
    }
}

impl Metric for Mean {
    fn name(&self) -> &str {
        &self.name
    }

    fn additions(
        &self,
        t: &mut Trace<'_>,
        y_true: Value,
        y_pred: Value,
        weights: Option<Value>,
    ) -> Result<Vec<(&'static str, Value)>, Error> {
        let losses = self.loss.call(t, y_true, y_pred)?;
        let mask = self.loss.mask(t, y_true, y_pred)?;
        mean_of(t, &self.name, losses, weights, mask)
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        mean_result(state)
    }
}

impl RootMeanSquaredError {
    /// Under the name `root_mean_squared_error`.
    pub fn new() -> RootMeanSquaredError {
        RootMeanSquaredError { mean: Mean::of(MeanSquaredError).named("root_mean_squared_error") }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> RootMeanSquaredError {
        RootMeanSquaredError { mean: self.mean.named(name) }
    }
}

impl Default for RootMeanSquaredError {
    fn default() -> RootMeanSquaredError {
        RootMeanSquaredError::new()
    }
}

impl Metric for RootMeanSquaredError {
    fn name(&self) -> &str {
        self.mean.name()
    }

    fn additions(
        &self,
        t: &mut Trace<'_>,
        y_true: Value,
        y_pred: Value,
        weights: Option<Value>,
    ) -> Result<Vec<(&'static str, Value)>, Error> {
        self.mean.additions(t, y_true, y_pred, weights)
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        mean_result(state).sqrt()
    }
}

impl MeanLoss {
    /// Traces the update with the loss of a batch (a scalar) of this many samples, and gives the variables' names.
    ///
    /// # Errors
    /// When a name is taken by a variable of another shape or role.
    pub fn update(&self, t: &mut Trace<'_>, loss: Value, batch: usize) -> Result<Vec<String>, Error> {
        let total = t.scale(loss, batch as f64)?;
        let count = t.constant(batch as f64, DType::F64)?;
        accumulate(t, "loss", &[("total", total), ("count", count)])
    }

    /// The mean, from the values of the variables.
    pub fn result(&self, state: &[Tensor]) -> f64 {
        mean_result(state)
    }
}
