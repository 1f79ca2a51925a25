//! The area under a curve of two rates, over all thresholds.

use super::confusion::{Weighed, weigh};
use super::{Metric, quotient};
use crate::error::Error;
use crate::losses::clip;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_kernels::pointwise::Unary;
use plimsoll_tensor::{DType, Tensor};

/// The area under the ROC or precision-recall curve, approximated by thresholds from 0 to 1 at equal distances (200
/// unless told otherwise).
///
/// Predictions are probabilities; labels are 0 and 1, of the same shape. The sums are histograms of the predictions by
/// threshold, one of positives and one of negatives: they take two numbers a threshold, however large the batch.
///
/// ```
/// use plimsoll::{Tensor, metrics::{Auc, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[4, 1], &[0.0f32, 0.0, 1.0, 1.0])?;
/// let y_pred = Tensor::from_slice(&[4, 1], &[0.1f32, 0.5, 0.3, 0.9])?;
/// // Of the four pairs of a positive and a negative, three are in the right order.
/// assert_eq!(evaluate(&Auc::roc(), &y_true, &y_pred, None)?, 0.75);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Auc {
    name: String,
    curve: Curve,
    thresholds: usize,
    summation: Summation,
    logits: bool,
}

/// Which curve the area is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// True positive rate over false positive rate.
    Roc,
    /// Precision over recall.
    PrecisionRecall,
}

/// How the area between two thresholds is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Summation {
    /// A trapezoid; under the precision-recall curve, where the line between two points is no line, by the formula of Davis
    /// and Goadrich (2006).
    #[default]
    Interpolation,
    /// The lower of the two heights: a lower bound.
    Minoring,
    /// The higher of the two heights: an upper bound.
    Majoring,
}

impl Auc {
    /// The area under the ROC curve, under the name `auc`.
    pub fn roc() -> Auc {
        let (curve, summation) = (Curve::Roc, Summation::Interpolation);
        Auc { name: "auc".into(), curve, thresholds: 200, summation, logits: false }
    }

    /// The area under the precision-recall curve, under the name `auc`.
    pub fn precision_recall() -> Auc {
        Auc { curve: Curve::PrecisionRecall, ..Auc::roc() }
    }

    /// With this many thresholds, 0 and 1 among them.
    #[must_use]
    pub fn thresholds(self, thresholds: usize) -> Auc {
        Auc { thresholds, ..self }
    }

    /// With this way of taking the area between two thresholds.
    #[must_use]
    pub fn summation(self, summation: Summation) -> Auc {
        Auc { summation, ..self }
    }

    /// Predictions are logits, of which the sigmoid is taken first.
    #[must_use]
    pub fn of_logits(self) -> Auc {
        Auc { logits: true, ..self }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Auc {
        Auc { name: name.into(), ..self }
    }
}

impl Metric for Auc {
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
        if self.thresholds < 2 {
            let message = format!("{} thresholds; at least 2 are needed, for 0 and 1", self.thresholds);
            return Err(Error::config(&self.name, message));
        }
        let Weighed { y_pred, positive, negative } = weigh(t, &self.name, y_true, y_pred, weights)?;
        let y_pred = if self.logits { t.sigmoid(y_pred)? } else { y_pred };
        let bucket = self.bucket(t, y_pred)?;
        let [positive, negative] = [positive, negative].map(|values| t.scatter_add(bucket, values, 0, self.thresholds));
        Ok(vec![("positives", positive?), ("negatives", negative?)])
    }

    fn result(&self, state: &[Tensor]) -> f64 {
        let (tp, fp) = (from_threshold_on(&state[0].to_f64()), from_threshold_on(&state[1].to_f64()));
        match (self.curve, self.summation) {
            (Curve::PrecisionRecall, Summation::Interpolation) => interpolated_precision_recall(&tp, &fp),
            (Curve::PrecisionRecall, _) => {
                let recall: Vec<f64> = tp.iter().map(|v| quotient(*v, tp[0])).collect();
                let precision: Vec<f64> = tp.iter().zip(&fp).map(|(t, f)| quotient(*t, t + f)).collect();
                self.area(&recall, &precision)
            }
            (Curve::Roc, _) => {
                let recall: Vec<f64> = tp.iter().map(|v| quotient(*v, tp[0])).collect();
                let alarms: Vec<f64> = fp.iter().map(|v| quotient(*v, fp[0])).collect();
                self.area(&alarms, &recall)
            }
        }
    }
}

impl Auc {
    /// The number of the highest threshold below each prediction, as i32: threshold `i` is `i / (thresholds - 1)`, and a
    /// prediction of 0 counts as above threshold 0.
    fn bucket(&self, t: &mut Trace<'_>, y_pred: Value) -> Result<Value, Error> {
        let last = (self.thresholds - 1) as f64;
        let place = t.scale(y_pred, last)?;
        let place = t.unary(Unary::Ceil, place)?;
        let place = t.shift(place, -1.0)?;
        let place = clip(t, place, 0.0, last)?;
        Ok(t.cast(place, DType::I32)?)
    }

    /// The area of the curve through these points, `x` falling.
    fn area(&self, x: &[f64], y: &[f64]) -> f64 {
        let height = |a: f64, b: f64| match self.summation {
            Summation::Interpolation => (a + b) / 2.0,
            Summation::Minoring => a.min(b),
            Summation::Majoring => a.max(b),
        };
        (1..x.len()).map(|i| (x[i - 1] - x[i]) * height(y[i - 1], y[i])).sum()
    }
}

/// For each threshold the weight of all predictions above it.
fn from_threshold_on(histogram: &[f64]) -> Vec<f64> {
    let mut sums = histogram.to_vec();
    for i in (1..sums.len()).rev() {
        sums[i - 1] += sums[i];
    }
    sums
}

/// Between two thresholds the true positives grow in proportion to the positive predictions `p`, so that precision is
/// `slope + intercept / p` there, and its integral over recall has a logarithm.
fn interpolated_precision_recall(tp: &[f64], fp: &[f64]) -> f64 {
    let all = tp[0];
    (1..tp.len())
        .map(|i| {
            let (p_more, p) = (tp[i - 1] + fp[i - 1], tp[i] + fp[i]);
            let gained = tp[i - 1] - tp[i];
            let slope = quotient(gained, p_more - p);
            let intercept = tp[i] - slope * p;
            let ratio = if p_more > 0.0 && p > 0.0 { p_more / p } else { 1.0 };
            quotient(slope * (gained + intercept * ratio.ln()), all)
        })
        .sum()
}
