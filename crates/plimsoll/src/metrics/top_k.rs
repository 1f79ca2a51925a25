//! Top-k accuracies: the right class is among the k best.

use crate::error::Error;
use crate::losses::{cast_as, constant, matched_classes, matched_numbers, sum_last};
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::reduce::Kind;
use plimsoll_tensor::DType;

/// How often the class of the largest label is among the `k` largest predictions; both are `[batch, .., classes]`.
///
/// A class that shares the last place with others is counted as among them.
///
/// ```
/// use plimsoll::{Tensor, metrics::{TopKCategoricalAccuracy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2, 3], &[0.0f32, 1.0, 0.0, 0.0, 0.0, 1.0])?;
/// let y_pred = Tensor::from_slice(&[2, 3], &[0.7f32, 0.2, 0.1, 0.7, 0.2, 0.1])?;
/// assert_eq!(evaluate(&TopKCategoricalAccuracy::new(2), &y_true, &y_pred, None)?, 0.5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TopKCategoricalAccuracy {
    name: String,
    k: usize,
}

/// As [`TopKCategoricalAccuracy`] with labels `[batch, ..]` that are class numbers.
///
/// ```
/// use plimsoll::{Tensor, metrics::{SparseTopKCategoricalAccuracy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2], &[1i32, 2])?;
/// let y_pred = Tensor::from_slice(&[2, 3], &[0.7f32, 0.2, 0.1, 0.7, 0.2, 0.1])?;
/// assert_eq!(evaluate(&SparseTopKCategoricalAccuracy::new(2), &y_true, &y_pred, None)?, 0.5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SparseTopKCategoricalAccuracy {
    name: String,
    k: usize,
}

impl TopKCategoricalAccuracy {
    /// Among the `k` largest, under the name `top_k_categorical_accuracy`. Keras's default is 5.
    pub fn new(k: usize) -> TopKCategoricalAccuracy {
        TopKCategoricalAccuracy { name: "top_k_categorical_accuracy".into(), k }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> TopKCategoricalAccuracy {
        TopKCategoricalAccuracy { name: name.into(), ..self }
    }

    fn hits(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched_classes(t, &self.name, y_true, y_pred)?;
        let last = t.shape(y_pred).rank() - 1;
        let class = t.argmax(y_true, last)?;
        among_best(t, &self.name, class, y_pred, self.k)
    }
}

impl SparseTopKCategoricalAccuracy {
    /// Among the `k` largest, under the name `sparse_top_k_categorical_accuracy`. Keras's default is 5.
    pub fn new(k: usize) -> SparseTopKCategoricalAccuracy {
        SparseTopKCategoricalAccuracy { name: "sparse_top_k_categorical_accuracy".into(), k }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> SparseTopKCategoricalAccuracy {
        SparseTopKCategoricalAccuracy { name: name.into(), ..self }
    }

    fn hits(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (class, y_pred) = matched_numbers(t, &self.name, y_true, y_pred)?;
        among_best(t, &self.name, class, y_pred, self.k)
    }
}

/// 1 where fewer than `k` predictions are larger than that of `class`, 0 elsewhere. No sorting, and one pass for each of
/// the two reductions.
fn among_best(t: &mut Trace<'_>, what: &str, class: Value, y_pred: Value, k: usize) -> Result<Value, Error> {
    if k == 0 {
        return Err(Error::config(what, "k is 0; it must be at least 1"));
    }
    let shape = t.shape(y_pred);
    let last = shape.rank() - 1;
    let (dtype, kept) = (t.dtype(class), t.shape(class).insert(last, 1));
    let class = t.reshape(class, kept)?;
    let index = t.index([shape[last]], 0, dtype)?;
    let own = t.eq(index, class)?;
    // A label that is no class has the lowest score there is, and is never among the best.
    let lowest = constant(t, y_pred, f32::MIN as f64)?;
    let score = t.select(own, y_pred, lowest)?;
    let score = t.reduce(Kind::Max, score, &[last], true)?;
    let better = t.gt(y_pred, score)?;
    let better = cast_as(t, better, y_pred)?;
    let better = sum_last(t, better)?;
    let limit = constant(t, y_pred, k as f64)?;
    let hit = t.lt(better, limit)?;
    Ok(t.cast(hit, DType::F32)?)
}

mean_of_hits!(TopKCategoricalAccuracy, SparseTopKCategoricalAccuracy);
