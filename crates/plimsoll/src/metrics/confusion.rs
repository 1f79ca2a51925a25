//! Precision, recall and F1: counts of what was said and what was so.

use super::{Metric, quotient};
use crate::error::Error;
use crate::losses::{constant, matched, spread};
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::reduce::Kind;
use plimsoll_tensor::Tensor;

/// The part of the predictions above the threshold whose label is 1: `tp / (tp + fp)`, 0 when there are none.
///
/// ```
/// use plimsoll::{Tensor, metrics::{Precision, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[4, 1], &[0.0f32, 1.0, 1.0, 1.0])?;
/// let y_pred = Tensor::from_slice(&[4, 1], &[0.9f32, 0.1, 0.8, 0.7])?;
/// assert_eq!(evaluate(&Precision::new(), &y_true, &y_pred, None)?, 2.0 / 3.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Precision {
    name: String,
    thresholds: Vec<f64>,
}

/// The part of the labels 1 whose prediction is above the threshold: `tp / (tp + fn)`, 0 when there are none.
///
/// ```
/// use plimsoll::{Tensor, metrics::{Recall, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[4, 1], &[0.0f32, 1.0, 1.0, 1.0])?;
/// let y_pred = Tensor::from_slice(&[4, 1], &[0.9f32, 0.1, 0.8, 0.3])?;
/// assert_eq!(evaluate(&Recall::new(), &y_true, &y_pred, None)?, 1.0 / 3.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Recall {
    name: String,
    thresholds: Vec<f64>,
}

/// `2 p r / (p + r)` with precision `p` and recall `r`, class by class and then averaged.
///
/// # Shapes
/// - labels and predictions `[batch, .., classes]`
///
/// ```
/// use plimsoll::{Tensor, metrics::{Average, F1Score, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[3, 2], &[1.0f32, 0.0, 1.0, 0.0, 0.0, 1.0])?;
/// let y_pred = Tensor::from_slice(&[3, 2], &[0.9f32, 0.1, 0.4, 0.6, 0.2, 0.8])?;
/// // Both classes: 1 hit, and 1 miss or 1 false alarm: 2 / 3 each.
/// let f1 = evaluate(&F1Score::new(Average::Macro), &y_true, &y_pred, None)?;
/// assert!((f1 - 2.0 / 3.0).abs() < 1e-12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct F1Score {
    name: String,
    average: Average,
    threshold: Option<f64>,
}

/// How the scores of classes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Average {
    /// The score of all classes' counts together.
    Micro,
    /// The mean of the classes' scores.
    Macro,
    /// The mean of the classes' scores, each weighted with how often its label is 1.
    Weighted,
}

macro_rules! thresholds {
    ($metric:ident, $name:literal) => {
        impl $metric {
            #[doc = concat!("With threshold 1/2, under the name `", $name, "`.")]
            pub fn new() -> $metric {
                $metric { name: $name.into(), thresholds: vec![0.5] }
            }

            /// With another threshold: predictions above it mean 1.
            #[must_use]
            pub fn threshold(self, threshold: f64) -> $metric {
                self.thresholds(&[threshold])
            }

            /// With several thresholds: [`Metric::results`] gives the result of each, [`Metric::result`] the first.
            #[must_use]
            pub fn thresholds(self, thresholds: &[f64]) -> $metric {
                $metric { thresholds: thresholds.to_vec(), ..self }
            }

            /// Under another name.
            #[must_use]
            pub fn named(self, name: &str) -> $metric {
                $metric { name: name.into(), ..self }
            }
        }

        impl Default for $metric {
            fn default() -> $metric {
                $metric::new()
            }
        }
    };
}

thresholds!(Precision, "precision");
thresholds!(Recall, "recall");

/// Labels and predictions, and the weights of those with label 1 and with label 0, all of one shape.
pub(super) struct Weighed {
    pub y_pred: Value,
    pub positive: Value,
    pub negative: Value,
}

/// Weighs every prediction by its sample's weight, on the side of its label. Labels are 0 and 1.
pub(super) fn weigh(
    t: &mut Trace<'_>,
    what: &str,
    y_true: Value,
    y_pred: Value,
    weights: Option<Value>,
) -> Result<Weighed, Error> {
    let (y_true, y_pred) = matched(t, what, y_true, y_pred)?;
    let minus = t.neg(y_true)?;
    let other = t.shift(minus, 1.0)?;
    let (positive, negative) = match weights {
        None => (y_true, other),
        Some(weights) => {
            let weights = spread(t, what, weights, y_pred)?;
            (t.mul(y_true, weights)?, t.mul(other, weights)?)
        }
    };
    Ok(Weighed { y_pred, positive, negative })
}

/// For each threshold the sum of `values` where the prediction is above it: `[thresholds]`.
fn sums_above(t: &mut Trace<'_>, y_pred: Value, values: Value, thresholds: &[f64]) -> Result<Value, Error> {
    let zero = constant(t, values, 0.0)?;
    let mut sums = Vec::new();
    for &threshold in thresholds {
        let threshold = constant(t, y_pred, threshold)?;
        let above = t.gt(y_pred, threshold)?;
        let counted = t.select(above, values, zero)?;
        let sum = t.sum_all(counted)?;
        sums.push(t.reshape(sum, [1])?);
    }
    Ok(t.concat(&sums, 0)?)
}

fn expect_thresholds(what: &str, thresholds: &[f64]) -> Result<(), Error> {
    if thresholds.is_empty() || thresholds.iter().any(|v| v.is_nan()) {
        return Err(Error::config(what, format!("the thresholds are {thresholds:?}; at least one number is needed")));
    }
    Ok(())
}

impl Metric for Precision {
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
        expect_thresholds(&self.name, &self.thresholds)?;
        let w = weigh(t, &self.name, y_true, y_pred, weights)?;
        let right = sums_above(t, w.y_pred, w.positive, &self.thresholds)?;
        let wrong = sums_above(t, w.y_pred, w.negative, &self.thresholds)?;
        Ok(vec![("true_positives", right), ("false_positives", wrong)])
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        self.results(state)[0]
    }

    fn results(&self, state: &[Tensor]) -> Vec<f64> {
        let (right, wrong) = (state[0].to_f64(), state[1].to_f64());
        right.iter().zip(wrong).map(|(r, w)| quotient(*r, r + w)).collect()
    }
}

impl Metric for Recall {
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
        expect_thresholds(&self.name, &self.thresholds)?;
        let w = weigh(t, &self.name, y_true, y_pred, weights)?;
        let right = sums_above(t, w.y_pred, w.positive, &self.thresholds)?;
        Ok(vec![("true_positives", right), ("positives", t.sum_all(w.positive)?)])
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        self.results(state)[0]
    }

    fn results(&self, state: &[Tensor]) -> Vec<f64> {
        let all = state[1].to_f64()[0];
        state[0].to_f64().iter().map(|r| quotient(*r, all)).collect()
    }
}

impl F1Score {
    /// A prediction means 1 where it is the largest of its row; under the name `f1_score`.
    pub fn new(average: Average) -> F1Score {
        F1Score { name: "f1_score".into(), average, threshold: None }
    }

    /// A prediction means 1 where it is above this threshold, however many there are in a row.
    #[must_use]
    pub fn threshold(self, threshold: f64) -> F1Score {
        F1Score { threshold: Some(threshold), ..self }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> F1Score {
        F1Score { name: name.into(), ..self }
    }

    /// Which predictions mean 1.
    fn said(&self, t: &mut Trace<'_>, y_pred: Value) -> Result<Value, Error> {
        match self.threshold {
            Some(threshold) => {
                let threshold = constant(t, y_pred, threshold)?;
                Ok(t.gt(y_pred, threshold)?)
            }
            None => {
                let last = t.shape(y_pred).rank() - 1;
                let largest = t.reduce(Kind::Max, y_pred, &[last], true)?;
                Ok(t.eq(y_pred, largest)?)
            }
        }
    }
}

impl Metric for F1Score {
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
        let w = weigh(t, &self.name, y_true, y_pred, weights)?;
        let rank = t.shape(w.y_pred).rank();
        if rank < 2 {
            let shape = t.shape(w.y_pred);
            return Err(Error::config(&self.name, format!("takes predictions [batch, .., classes], got {shape}")));
        }
        let rows: Vec<usize> = (0..rank - 1).collect();
        let said = self.said(t, w.y_pred)?;
        let zero = constant(t, w.y_pred, 0.0)?;
        let right = t.select(said, w.positive, zero)?;
        let wrong = t.select(said, w.negative, zero)?;
        let sums = [("true_positives", right), ("false_positives", wrong), ("positives", w.positive)];
        sums.into_iter().map(|(name, values)| Ok((name, t.sum(values, &rows, false)?))).collect()
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        let [right, wrong, all] = [0, 1, 2].map(|i| state[i].to_f64());
        let sum = |values: &[f64]| values.iter().sum::<f64>();
        match self.average {
            Average::Micro => f1(sum(&right), sum(&wrong), sum(&all)),
            Average::Macro => quotient(sum(&self.results(state)), right.len() as f64),
            Average::Weighted => {
                let weighted = self.results(state).iter().zip(&all).map(|(score, n)| score * n).sum();
                quotient(weighted, sum(&all))
            }
        }
    }

    /// The score of each class.
    fn results(&self, state: &[Tensor]) -> Vec<f64> {
        let [right, wrong, all] = [0, 1, 2].map(|i| state[i].to_f64());
        (0..right.len()).map(|c| f1(right[c], wrong[c], all[c])).collect()
    }
}

/// `2 p r / (p + r)` is `2 tp / (tp + fp + tp + fn)`.
fn f1(true_positives: f64, false_positives: f64, positives: f64) -> f64 {
    quotient(2.0 * true_positives, true_positives + false_positives + positives)
}
