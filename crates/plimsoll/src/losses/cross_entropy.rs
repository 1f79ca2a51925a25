//! Cross-entropies: of yes and no, of classes as vectors, of classes as numbers.
//!
//! From logits they are computed in the forms that neither overflow nor lose small probabilities, so a model does best to
//! end without an activation. From probabilities the definitions are Keras's: kept between 1e-7 and 1 - 1e-7, and over
//! classes divided by their sum.

use super::{EPSILON, Loss, clip, constant, matched, matched_classes, matched_numbers, mean_last, sum_last};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, TensorType};

/// `mean(-y_true * ln(p) - (1 - y_true) * ln(1 - p))`: each output says yes (1) or no (0) to a question of its own.
///
/// `p` is the prediction, or from logits its sigmoid, computed as `softplus(x) - x * y_true`.
///
/// # Shapes
/// - predictions `[batch, .., n]`, labels the same (or without a last axis of size 1)
///
/// ```
/// use plimsoll::{Tensor, losses::{BinaryCrossEntropy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2, 1], &[1.0f32, 0.0])?;
/// let p = Tensor::from_slice(&[2, 1], &[0.5f32, 0.75])?;
/// let expected = (2f64.ln() + 4f64.ln()) / 2.0;
/// assert!((evaluate(&BinaryCrossEntropy::new(), &y_true, &p, None)? - expected).abs() < 1e-6);
/// // The same probabilities as logits: ln(p / (1 - p)).
/// let x = Tensor::from_slice(&[2, 1], &[0.0f32, 3f32.ln()])?;
/// assert!((evaluate(&BinaryCrossEntropy::from_logits(), &y_true, &x, None)? - expected).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BinaryCrossEntropy {
    logits: bool,
    label_smoothing: f64,
}

/// `-sum(y_true * ln(p))` over the last axis: one of several classes, the label being a vector with a 1 at the right one
/// (or any distribution over the classes).
///
/// `p` is the prediction divided by its sum, or from logits their softmax.
///
/// # Shapes
/// - predictions and labels `[batch, .., classes]`
///
/// ```
/// use plimsoll::{Tensor, losses::{CategoricalCrossEntropy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[1, 3], &[0.0f32, 1.0, 0.0])?;
/// let p = Tensor::from_slice(&[1, 3], &[0.25f32, 0.5, 0.25])?;
/// assert!((evaluate(&CategoricalCrossEntropy::new(), &y_true, &p, None)? - 2f64.ln()).abs() < 1e-6);
/// let x = Tensor::from_slice(&[1, 3], &[0.0f32, 2f32.ln(), 0.0])?;
/// assert!((evaluate(&CategoricalCrossEntropy::from_logits(), &y_true, &x, None)? - 2f64.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CategoricalCrossEntropy {
    logits: bool,
    label_smoothing: f64,
}

/// `-ln(p[y_true])`: as [`CategoricalCrossEntropy`], the label being the number of the right class.
///
/// # Shapes
/// - predictions `[batch, .., classes]`, labels `[batch, ..]` whole numbers
///
/// ```
/// use plimsoll::{Tensor, losses::{SparseCategoricalCrossEntropy, evaluate}};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let y_true = Tensor::from_slice(&[2], &[1i32, 0])?;
/// let x = Tensor::from_slice(&[2, 3], &[0.0f32, 2f32.ln(), 0.0, 7.0, -7.0, 9.0])?;
/// let loss = SparseCategoricalCrossEntropy::from_logits();
/// let weights = Tensor::from_slice(&[2], &[2.0f32, 0.0])?;
/// assert!((evaluate(&loss, &y_true, &x, Some(&weights))? - 2f64.ln()).abs() < 1e-6);
/// // Class 0 does not count: what remains is the first row alone.
/// assert!((evaluate(&loss.ignore_class(0), &y_true, &x, None)? - 2f64.ln()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparseCategoricalCrossEntropy {
    logits: bool,
    ignore_class: Option<i64>,
}

impl BinaryCrossEntropy {
    /// Over probabilities: for a model that ends with a sigmoid.
    pub fn new() -> BinaryCrossEntropy {
        BinaryCrossEntropy::default()
    }

    /// Over logits: for a model that ends without an activation.
    pub fn from_logits() -> BinaryCrossEntropy {
        BinaryCrossEntropy { logits: true, ..BinaryCrossEntropy::default() }
    }

    /// Labels are moved towards 1/2 by this part of the way: 0.1 makes 0.05 of 0 and 0.95 of 1.
    #[must_use]
    pub fn label_smoothing(self, label_smoothing: f64) -> BinaryCrossEntropy {
        BinaryCrossEntropy { label_smoothing, ..self }
    }
}

impl CategoricalCrossEntropy {
    /// Over probabilities: for a model that ends with a softmax.
    pub fn new() -> CategoricalCrossEntropy {
        CategoricalCrossEntropy::default()
    }

    /// Over logits: for a model that ends without an activation.
    pub fn from_logits() -> CategoricalCrossEntropy {
        CategoricalCrossEntropy { logits: true, ..CategoricalCrossEntropy::default() }
    }

    /// Labels are moved towards the same number for every class by this part of the way.
    #[must_use]
    pub fn label_smoothing(self, label_smoothing: f64) -> CategoricalCrossEntropy {
        CategoricalCrossEntropy { label_smoothing, ..self }
    }
}

impl SparseCategoricalCrossEntropy {
    /// Over probabilities: for a model that ends with a softmax.
    pub fn new() -> SparseCategoricalCrossEntropy {
        SparseCategoricalCrossEntropy::default()
    }

    /// Over logits: for a model that ends without an activation.
    pub fn from_logits() -> SparseCategoricalCrossEntropy {
        SparseCategoricalCrossEntropy { logits: true, ..SparseCategoricalCrossEntropy::default() }
    }

    /// Positions with this label (padding, say) do not count, neither in the sum nor in the number it is divided by. It
    /// need not be one of the classes.
    #[must_use]
    pub fn ignore_class(self, class: i64) -> SparseCategoricalCrossEntropy {
        SparseCategoricalCrossEntropy { ignore_class: Some(class), ..self }
    }
}

impl Loss for BinaryCrossEntropy {
    fn name(&self) -> &str {
        "binary_crossentropy"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched(t, self.name(), y_true, y_pred)?;
        let y_true = smoothed(t, self.name(), y_true, self.label_smoothing, 2)?;
        let loss = match self.logits {
            true => {
                // -y ln(s(x)) - (1 - y) ln(1 - s(x)) = ln(1 + e^x) - x y, and softplus does not overflow.
                let soft = t.softplus(y_pred)?;
                let gain = t.mul(y_pred, y_true)?;
                t.sub(soft, gain)?
            }
            false => {
                let yes = probability(t, y_pred)?;
                let no = complement(t, yes)?;
                let (yes, no) = (t.log(yes)?, t.log(no)?);
                let other = complement(t, y_true)?;
                let (yes, no) = (t.mul(y_true, yes)?, t.mul(other, no)?);
                let gain = t.add(yes, no)?;
                t.neg(gain)?
            }
        };
        mean_last(t, loss)
    }
}

impl Loss for CategoricalCrossEntropy {
    fn name(&self) -> &str {
        "categorical_crossentropy"
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched_classes(t, self.name(), y_true, y_pred)?;
        let last = t.shape(y_pred).rank() - 1;
        let classes = t.shape(y_pred)[last];
        let y_true = smoothed(t, self.name(), y_true, self.label_smoothing, classes)?;
        if self.logits {
            return Ok(t.cross_entropy(y_pred, y_true)?);
        }
        let sum = t.sum(y_pred, &[last], true)?;
        let p = t.div(y_pred, sum)?;
        let p = probability(t, p)?;
        let log = t.log(p)?;
        let gain = t.mul(y_true, log)?;
        let gain = sum_last(t, gain)?;
        Ok(t.neg(gain)?)
    }
}

impl Loss for SparseCategoricalCrossEntropy {
    fn name(&self) -> &str {
        "sparse_categorical_crossentropy"
    }

    fn label_type(&self, prediction: &TensorType) -> TensorType {
        let rank = prediction.shape.rank();
        let shape = if rank == 0 { prediction.shape } else { prediction.shape.remove(rank - 1) };
        TensorType::new(DType::I32, shape)
    }

    fn call(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Value, Error> {
        let (y_true, y_pred) = matched_numbers(t, self.name(), y_true, y_pred)?;
        let logits = match self.logits {
            true => y_pred,
            false => {
                // The softmax of logarithms divides by the sum.
                let p = probability(t, y_pred)?;
                t.log(p)?
            }
        };
        Ok(t.sparse_cross_entropy(logits, y_true, self.ignore_class)?)
    }

    fn mask(&self, t: &mut Trace<'_>, y_true: Value, y_pred: Value) -> Result<Option<Value>, Error> {
        let Some(class) = self.ignore_class else { return Ok(None) };
        let (y_true, _) = matched_numbers(t, self.name(), y_true, y_pred)?;
        let class = constant(t, y_true, class as f64)?;
        Ok(Some(t.ne(y_true, class)?))
    }
}

/// `y_true * (1 - smoothing) + smoothing / classes`.
fn smoothed(t: &mut Trace<'_>, what: &str, y_true: Value, smoothing: f64, classes: usize) -> Result<Value, Error> {
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(Error::config(what, format!("label smoothing is {smoothing}; it must be between 0 and 1")));
    }
    if smoothing == 0.0 {
        return Ok(y_true);
    }
    let rest = t.scale(y_true, 1.0 - smoothing)?;
    Ok(t.shift(rest, smoothing / classes as f64)?)
}

/// `1 - x`.
fn complement(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    let minus = t.neg(x)?;
    Ok(t.shift(minus, 1.0)?)
}

/// `x` kept between [`EPSILON`] and 1 - [`EPSILON`].
fn probability(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    // In f32 the upper end is 1 - 1.19e-7, the number next to 1 but one; said here so that every way of running a step,
    // whatever its precision, means the same number.
    let high = match t.dtype(x) {
        DType::F64 => 1.0 - EPSILON,
        _ => (1.0 - EPSILON as f32) as f64,
    };
    clip(t, x, EPSILON, high)
}
