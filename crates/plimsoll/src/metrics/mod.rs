//! Metrics: what is reported about predictions, over an epoch.
//!
//! A [`Metric`] adds something up over the batches of an epoch, inside the step and in variables of its own (see
//! [`Metric::update`]); at the end the sums become one number on the host ([`Metric::result`]). Sums are kept in f64, so
//! that counts stay exact however long an epoch is. Definitions, names and defaults are those of Keras 3.
//!
//! Any loss is a metric too: `Mean::of(losses::MeanSquaredError)`.
//!
//! ```
//! use plimsoll::Tensor;
//! use plimsoll::metrics::{Accuracy, evaluate};
//! # fn main() -> Result<(), plimsoll::Error> {
//! // Class numbers and scores of three classes: the first two are right.
//! let y_true = Tensor::from_slice(&[3], &[2i32, 0, 1])?;
//! let y_pred = Tensor::from_slice(&[3, 3], &[0.1f32, 0.2, 0.7, 0.9, 0.1, 0.0, 0.5, 0.3, 0.2])?;
//! assert_eq!(evaluate(&Accuracy::new(), &y_true, &y_pred, None)?, 2.0 / 3.0);
//! # Ok(())
//! # }
//! ```

/// Makes metrics of types with a `name` and a method `hits` that gives a number per sample or position: its mean.
macro_rules! mean_of_hits {
    ($($metric:ident),*) => {$(
        impl $crate::metrics::Metric for $metric {
            fn name(&self) -> &str {
                &self.name
            }

            fn additions(
                &self,
                t: &mut $crate::Trace<'_>,
                y_true: $crate::Value,
                y_pred: $crate::Value,
                weights: Option<$crate::Value>,
            ) -> Result<Vec<(&'static str, $crate::Value)>, $crate::Error> {
                let hits = self.hits(t, y_true, y_pred)?;
                $crate::metrics::mean_of(t, &self.name, hits, weights, None)
            }

            fn result(&self, state: &[$crate::Tensor]) -> f64 {
                $crate::metrics::mean_result(state)
            }
        }
    )*};
}

mod accuracy;
mod auc;
mod confusion;
mod mean;
mod top_k;

pub use accuracy::{Accuracy, BinaryAccuracy, CategoricalAccuracy, SparseCategoricalAccuracy};
pub use auc::{Auc, Curve, Summation};
pub use confusion::{Average, F1Score, Precision, Recall};
pub use mean::{Mean, MeanLoss, RootMeanSquaredError};
pub use top_k::{SparseTopKCategoricalAccuracy, TopKCategoricalAccuracy};

use crate::by_definition::Run;
use crate::error::Error;
use crate::init::Initializer;
use crate::losses::factors;
use crate::trace::{Mode, Role, Trace};
use plimsoll_graph::{Source, Value};
use plimsoll_tensor::{DType, Tensor, TensorType};
use std::sync::Arc;

/// Something that is reported about predictions, over all batches of an epoch.
///
/// ```
/// use plimsoll::metrics::{Metric, evaluate};
/// use plimsoll::{Error, Tensor, Trace, Value};
///
/// /// The mean of the predictions themselves.
/// struct MeanPrediction;
///
/// impl Metric for MeanPrediction {
///     fn name(&self) -> &str { "mean_prediction" }
///     fn additions(
///         &self, t: &mut Trace<'_>, _y_true: Value, y_pred: Value, _weights: Option<Value>,
///     ) -> Result<Vec<(&'static str, Value)>, Error> {
///         let count = t.shape(y_pred).elements() as f64;
///         Ok(vec![("total", t.sum_all(y_pred)?), ("count", t.constant(count, plimsoll::DType::F32)?)])
///     }
///     fn result(&self, state: &[Tensor]) -> f64 {
///         state[0].to_f64()[0] / state[1].to_f64()[0]
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let y_pred = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(evaluate(&MeanPrediction, &y_pred, &y_pred, None)?, 2.5);
/// # Ok(())
/// # }
/// ```
pub trait Metric: Send + Sync {
    /// The name in reports.
    fn name(&self) -> &str;

    /// Traces what this batch adds to each sum, with the sums' names. Weights are one per sample (`[batch]`) or one per
    /// position.
    ///
    /// # Errors
    /// When labels, predictions and weights do not suit each other (the message names both), or a setting is wrong.
    fn additions(
        &self,
        t: &mut Trace<'_>,
        y_true: Value,
        y_pred: Value,
        weights: Option<Value>,
    ) -> Result<Vec<(&'static str, Value)>, Error>;

    /// The number to report, from the sums in the order of [`Metric::additions`].
    fn result(&self, state: &[Tensor]) -> f64;

    /// All numbers, for a metric that has several: one per threshold or class. Otherwise the one.
    fn results(&self, state: &[Tensor]) -> Vec<f64> {
        vec![self.result(state)]
    }

    /// Traces the update: makes a variable for each sum ([`Role::Metric`], f64, at first zeros) and adds to it. Gives
    /// the variables' names, in the order that [`Metric::result`] takes their values.
    ///
    /// # Errors
    /// As [`Metric::additions`].
    fn update(
        &self,
        t: &mut Trace<'_>,
        y_true: Value,
        y_pred: Value,
        weights: Option<Value>,
    ) -> Result<Vec<String>, Error> {
        let additions = self.additions(t, y_true, y_pred, weights)?;
        accumulate(t, self.name(), &additions)
    }
}

/// A metric chosen at run time is a metric.
impl Metric for Arc<dyn Metric> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn additions(
        &self,
        t: &mut Trace<'_>,
        y_true: Value,
        y_pred: Value,
        weights: Option<Value>,
    ) -> Result<Vec<(&'static str, Value)>, Error> {
        (**self).additions(t, y_true, y_pred, weights)
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        (**self).result(state)
    }

    fn results(&self, state: &[Tensor]) -> Vec<f64> {
        (**self).results(state)
    }

    fn update(
        &self,
        t: &mut Trace<'_>,
        y_true: Value,
        y_pred: Value,
        weights: Option<Value>,
    ) -> Result<Vec<String>, Error> {
        (**self).update(t, y_true, y_pred, weights)
    }
}

/// Adds values to variables named `metric/sum`, which begin as zeros, and gives the variables' full names.
///
/// # Errors
/// When a name is taken by a variable of another shape or role.
pub fn accumulate(t: &mut Trace<'_>, metric: &str, additions: &[(&'static str, Value)]) -> Result<Vec<String>, Error> {
    t.scope(metric, |t| {
        additions.iter().map(|(name, value)| add_to_variable(t, name, *value)).collect::<Result<Vec<String>, Error>>()
    })
}

fn add_to_variable(t: &mut Trace<'_>, name: &str, value: Value) -> Result<String, Error> {
    let ty = TensorType::new(DType::F64, t.shape(value));
    let variable = t.variable(name, ty, Initializer::Zeros, Role::Metric)?;
    let value = t.cast(value, DType::F64)?;
    let sum = t.add(variable, value)?;
    t.update(variable, sum)?;
    let state = t.state_of(variable).expect("variables are states");
    match &t.value(state).source {
        Source::State { name } => Ok(name.clone()),
        _ => unreachable!("`state_of` gives states"),
    }
}

/// `total` and `count` of values `[batch, ..]`, weighted: what a mean over the epoch adds up.
pub(crate) fn mean_of(
    t: &mut Trace<'_>,
    what: &str,
    values: Value,
    weights: Option<Value>,
    mask: Option<Value>,
) -> Result<Vec<(&'static str, Value)>, Error> {
    let shape = t.shape(values);
    let (total, count) = match factors(t, what, values, weights, mask)? {
        None => (t.sum_all(values)?, t.constant(shape.elements() as f64, DType::F64)?),
        Some(factors) => {
            let weighted = t.mul(values, factors)?;
            let factors = t.broadcast(factors, shape)?;
            (t.sum_all(weighted)?, t.sum_all(factors)?)
        }
    };
    Ok(vec![("total", total), ("count", count)])
}

/// The quotient of two sums; 0 when nothing was counted.
pub(crate) fn quotient(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { 0.0 } else { numerator / denominator }
}

/// The mean from its `total` and `count`.
pub(crate) fn mean_result(state: &[Tensor]) -> f64 {
    quotient(state[0].to_f64()[0], state[1].to_f64()[0])
}

/// The result of a metric over one batch by the plain definitions of the ops, over f64: for looking at numbers.
///
/// # Errors
/// As [`Metric::update`].
pub fn evaluate(metric: &dyn Metric, y_true: &Tensor, y_pred: &Tensor, weights: Option<&Tensor>) -> Result<f64, Error> {
    let mut inputs = vec![("y_true", y_true.clone()), ("y_pred", y_pred.clone())];
    inputs.extend(weights.map(|w| ("weights", w.clone())));
    let (mut run, mut names) = (Run::new(), Vec::new());
    run.step(Mode::Evaluate, &inputs, |t| {
        let (labels, predictions) = (t.input("y_true", *y_true.ty()), t.input("y_pred", *y_pred.ty()));
        let weights = weights.map(|w| t.input("weights", *w.ty()));
        names = metric.update(t, labels, predictions, weights)?;
        Ok(())
    })?;
    let state: Vec<Tensor> = names.iter().map(|n| run.get(n).expect("updated in the step").clone()).collect();
    Ok(metric.result(&state))
}

#[cfg(test)]
mod tests;
