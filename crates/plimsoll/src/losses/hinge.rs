//! Losses of margins.

use super::{Loss, constant, matched, matched_classes, mean_last, sum_last};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::reduce::Kind;

/// `mean(max(1 - y_true * y_pred, 0))`. Labels are -1 and 1; a label of 0 means -1.
///
/// ```
/// use plimsoll::{Tensor, losses::{Hinge, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[1.0f32, 0.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[0.5f32, 1.0])?;
/// // (0.5 + 2) / 2.
/// assert_eq!(evaluate(&Hinge, &y_true, &y_pred, None)?, 1.25);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hinge;

/// `mean(max(1 - y_true * y_pred, 0)^2)`. Labels are -1 and 1; a label of 0 means -1.
///
/// ```
/// use plimsoll::{Tensor, losses::{SquaredHinge, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 2], &[1.0f32, -1.0])?;
/// let y_pred = Tensor::from_slice(&[1, 2], &[0.5f32, 1.0])?;
/// // (0.25 + 4) / 2.
/// assert_eq!(evaluate(&SquaredHinge, &y_true, &y_pred, None)?, 2.125);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SquaredHinge;

/// `max(1 + max((1 - y_true) * y_pred) - sum(y_true * y_pred), 0)` over the last axis: the right class is to be ahead of
/// the best wrong one by 1. Labels are 0 and 1, one 1 per row.
///
/// ```
/// use plimsoll::{Tensor, losses::{CategoricalHinge, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 3], &[0.0f32, 1.0, 0.0])?;
/// let y_pred = Tensor::from_slice(&[1, 3], &[0.5f32, 0.75, 0.25])?;
/// assert_eq!(evaluate(&CategoricalHinge, &y_true, &y_pred, None)?, 0.75);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoricalHinge;

/// `max(1 - y_true * y_pred, 0)`, labels of 0 being taken for -1.
///
/// Keras asks whether all labels of the batch are 0 or 1 before it changes any. Asking each alone is the same for labels
/// that mean anything, and leaves samples independent of each other.
fn shortfall(t: &mut Trace<'_>, what: &str, y_true: Value, y_pred: Value) -> Result<Value, Error> {
    let (y_true, y_pred) = matched(t, what, y_true, y_pred)?;
    let zero = constant(t, y_true, 0.0)?;
    let minus = constant(t, y_true, -1.0)?;
    let off = t.eq(y_true, zero)?;
    let sign = t.select(off, minus, y_true)?;
    let margin = t.mul(sign, y_pred)?;
    let missing = t.neg(margin)?;
    let missing = t.shift(missing, 1.0)?;
    Ok(t.relu(missing)?)
}

impl Loss for Hinge {
    fn name(&self) -> &str {
        "hinge"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let missing = shortfall(t, self.name(), y_true, y_pred)?;
        mean_last(t, missing)
    }
}

impl Loss for SquaredHinge {
    fn name(&self) -> &str {
        "squared_hinge"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let missing = shortfall(t, self.name(), y_true, y_pred)?;
        let square = t.square(missing)?;
        mean_last(t, square)
    }
}

impl Loss for CategoricalHinge {
    fn name(&self) -> &str {
        "categorical_hinge"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched_classes(t, self.name(), y_true, y_pred)?;
        let right = t.mul(y_true, y_pred)?;
        let wrong = t.sub(y_pred, right)?;
        let right = sum_last(t, right)?;
        let last = t.shape(wrong).rank() - 1;
        let wrong = t.reduce(Kind::Max, wrong, &[last], false)?;
        let lead = t.sub(wrong, right)?;
        let lead = t.shift(lead, 1.0)?;
        Ok(t.relu(lead)?)
    }
}
