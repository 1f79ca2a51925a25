//! Losses of directions.

use super::{EPSILON, Loss, constant, matched, sum_last};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// `-sum(y_true / |y_true| * y_pred / |y_pred|)` over the last axis: from -1 for the same direction to 1 for the
/// opposite one; 0 when either is all zeros.
///
/// ```
/// use plimsoll::{Tensor, losses::{CosineSimilarity, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2, 2], &[3.0f32, 4.0, 1.0, 0.0])?;
/// let y_pred = Tensor::from_slice(&[2, 2], &[6.0f32, 8.0, 0.0, 0.0])?;
/// assert!((evaluate(&CosineSimilarity, &y_true, &y_pred, None)? + 0.5).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CosineSimilarity;

impl Loss for CosineSimilarity {
    fn name(&self) -> &str {
        "cosine_similarity"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched(t, self.name(), y_true, y_pred)?;
        // The lengths divide the product's sum and not each vector: two values of full size fewer.
        let product = t.mul(y_true, y_pred)?;
        let product = sum_last(t, product)?;
        let a = inverse_length(t, y_true)?;
        let b = inverse_length(t, y_pred)?;
        let cosine = t.mul(product, a)?;
        let cosine = t.mul(cosine, b)?;
        Ok(t.neg(cosine)?)
    }
}

/// `1 / |x|` over the last axis, at most 1e7.
fn inverse_length(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    let square = t.square(x)?;
    let square = sum_last(t, square)?;
    let least = constant(t, x, EPSILON * EPSILON)?;
    let square = t.maximum(square, least)?;
    Ok(t.rsqrt(square)?)
}
