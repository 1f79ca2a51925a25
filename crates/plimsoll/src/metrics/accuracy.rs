//! Accuracies: the part of the predictions that is right.

use crate::error::Error;
use crate::losses::{cast_as, constant, matched, matched_classes, matched_numbers, mean_last};
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::DType;

/// The accuracy that suits the shapes: binary when the predictions' last axis has size 1, sparse when the labels are
/// class numbers (one axis fewer than the predictions, or a last axis of size 1), categorical otherwise.
///
/// See the [module's example](super).
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    name: String,
}

/// How often a prediction is on the side of the threshold that its label (0 or 1) says.
///
/// ```
/// use plimsoll::{Tensor, metrics::{BinaryAccuracy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[4, 1], &[1.0f32, 1.0, 0.0, 0.0])?;
/// let y_pred = Tensor::from_slice(&[4, 1], &[0.9f32, 0.6, 0.3, 0.7])?;
/// assert_eq!(evaluate(&BinaryAccuracy::new(), &y_true, &y_pred, None)?, 0.75);
/// assert_eq!(evaluate(&BinaryAccuracy::new().threshold(0.8), &y_true, &y_pred, None)?, 0.75);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BinaryAccuracy {
    name: String,
    threshold: f64,
}

/// How often the largest prediction is at the place of the largest label; both are `[batch, .., classes]`.
///
/// ```
/// use plimsoll::{Tensor, metrics::{CategoricalAccuracy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2, 2], &[0.0f32, 1.0, 1.0, 0.0])?;
/// let y_pred = Tensor::from_slice(&[2, 2], &[0.2f32, 0.8, 0.4, 0.6])?;
/// assert_eq!(evaluate(&CategoricalAccuracy::new(), &y_true, &y_pred, None)?, 0.5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CategoricalAccuracy {
    name: String,
}

/// How often the largest prediction is that of the class that the label names; labels are `[batch, ..]`, predictions
/// `[batch, .., classes]`.
///
/// ```
/// use plimsoll::{Tensor, metrics::{SparseCategoricalAccuracy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2], &[1i32, 0])?;
/// let y_pred = Tensor::from_slice(&[2, 2], &[0.2f32, 0.8, 0.4, 0.6])?;
/// assert_eq!(evaluate(&SparseCategoricalAccuracy::new(), &y_true, &y_pred, None)?, 0.5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SparseCategoricalAccuracy {
    name: String,
}

/// Constructors of a metric without settings but its name.
macro_rules! named {
    ($($metric:ident = $name:literal),*) => {$(
        impl $metric {
            #[doc = concat!("Under the name `", $name, "`.")]
            pub fn new() -> $metric {
                $metric { name: $name.into() }
            }

            /// Under another name.
            #[must_use]
            pub fn named(self, name: &str) -> $metric {
                $metric { name: name.into() }
            }
        }

        impl Default for $metric {
            fn default() -> $metric {
                $metric::new()
            }
        }
    )*};
}

named! {
    Accuracy = "accuracy",
    CategoricalAccuracy = "categorical_accuracy",
    SparseCategoricalAccuracy = "sparse_categorical_accuracy"
}

impl BinaryAccuracy {
    /// With threshold 1/2, under the name `binary_accuracy`.
    pub fn new() -> BinaryAccuracy {
        BinaryAccuracy { name: "binary_accuracy".into(), threshold: 0.5 }
    }

    /// With another threshold: predictions above it mean 1. For logits it is 0.
    #[must_use]
    pub fn threshold(self, threshold: f64) -> BinaryAccuracy {
        BinaryAccuracy { threshold, ..self }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> BinaryAccuracy {
        BinaryAccuracy { name: name.into(), ..self }
    }
}

impl Default for BinaryAccuracy {
    fn default() -> BinaryAccuracy {
        BinaryAccuracy::new()
    }
}

/// Which predictions are right, 0 or 1 per sample or position (binary: the mean over the last axis).
type Hits = Result<Value, Error>;

fn binary_hits(t: &mut Trace<'_>, what: &str, y_true: Value, y_pred: Value, threshold: f64) -> Hits {
    let (y_true, y_pred) = matched(t, what, y_true, y_pred)?;
    let threshold = constant(t, y_pred, threshold)?;
    let yes = t.gt(y_pred, threshold)?;
    let yes = cast_as(t, yes, y_true)?;
    let right = t.eq(yes, y_true)?;
    let right = t.cast(right, DType::F32)?;
    mean_last(t, right)
}

fn categorical_hits(t: &mut Trace<'_>, what: &str, y_true: Value, y_pred: Value) -> Hits {
    let (y_true, y_pred) = matched_classes(t, what, y_true, y_pred)?;
    let last = t.shape(y_pred).rank() - 1;
    let (wanted, found) = (t.argmax(y_true, last)?, t.argmax(y_pred, last)?);
    let right = t.eq(found, wanted)?;
    Ok(t.cast(right, DType::F32)?)
}

fn sparse_hits(t: &mut Trace<'_>, what: &str, y_true: Value, y_pred: Value) -> Hits {
    let (y_true, y_pred) = matched_numbers(t, what, y_true, y_pred)?;
    let last = t.shape(y_pred).rank() - 1;
    let (wanted, found) = (t.cast(y_true, DType::I64)?, t.argmax(y_pred, last)?);
    let right = t.eq(found, wanted)?;
    Ok(t.cast(right, DType::F32)?)
}

impl Accuracy {
    fn hits(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Hits {
        let (labels, predictions) = (t.shape(y_true), t.shape(y_pred));
        let last = predictions.dims().last().copied().unwrap_or(1);
        if last == 1 || predictions.rank() == 1 {
            binary_hits(t, &self.name, y_true, y_pred, 0.5)
        } else if labels.rank() < predictions.rank() || labels.dims().last() == Some(&1) {
            sparse_hits(t, &self.name, y_true, y_pred)
        } else {
            categorical_hits(t, &self.name, y_true, y_pred)
        }
    }
}

impl BinaryAccuracy {
    fn hits(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Hits {
        binary_hits(t, &self.name, y_true, y_pred, self.threshold)
    }
}

impl CategoricalAccuracy {
    fn hits(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Hits {
        categorical_hits(t, &self.name, y_true, y_pred)
    }
}

impl SparseCategoricalAccuracy {
    fn hits(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Hits {
        sparse_hits(t, &self.name, y_true, y_pred)
    }
}

mean_of_hits!(Accuracy, BinaryAccuracy, CategoricalAccuracy, SparseCategoricalAccuracy);
