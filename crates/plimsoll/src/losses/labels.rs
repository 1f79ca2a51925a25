//! Labels, predictions and weights brought to shapes and types that suit each other; or what is wrong with them.

use super::cast_as;
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Shape};

/// Labels and predictions of one floating-point type and one shape.
///
/// Labels may lack a last axis of size 1 that the predictions have, or have one too many. Predictions in half precision
/// become f32, because losses are sums of many small numbers.
///
/// # Errors
/// When the shapes differ otherwise.
pub(crate) fn matched(t: &mut Trace<'_>, what: &str, y_true: Value, y_pred: Value) -> Result<(Value, Value), Error> {
    let y_pred = full_precision(t, what, y_pred)?;
    let (labels, predictions) = (*t.ty(y_true), *t.ty(y_pred));
    if !equal_but_for_last(&labels.shape, &predictions.shape) {
        let message =
            format!("the labels are {labels}, but the predictions {predictions}; they must have the same shape");
        return Err(Error::config(what, message));
    }
    let y_true = t.cast(y_true, predictions.dtype)?;
    Ok((reshaped(t, y_true, predictions.shape)?, y_pred))
}

/// As [`matched`], where the last axis is over classes: the shapes are equal.
///
/// # Errors
/// When they are not, or when there is no such axis.
pub(crate) fn matched_classes(
    t: &mut Trace<'_>,
    what: &str,
    y_true: Value,
    y_pred: Value,
) -> Result<(Value, Value), Error> {
    expect_classes(t, what, y_pred)?;
    let (labels, predictions) = (t.ty(y_true), t.ty(y_pred));
    if labels.shape != predictions.shape {
        let hint = "they must have the same shape; for labels that are class numbers there are the sparse kinds";
        return Err(Error::config(what, format!("the labels are {labels}, but the predictions {predictions}; {hint}")));
    }
    matched(t, what, y_true, y_pred)
}

/// Labels that are class numbers, `[batch, ..]` of i32 or i64, for predictions `[batch, .., classes]`.
///
/// Labels may have a last axis of size 1 too many, and be of another type: class numbers often come as floats or bytes.
///
/// # Errors
/// When the shapes differ otherwise.
pub(crate) fn matched_numbers(
    t: &mut Trace<'_>,
    what: &str,
    y_true: Value,
    y_pred: Value,
) -> Result<(Value, Value), Error> {
    expect_classes(t, what, y_pred)?;
    let y_pred = full_precision(t, what, y_pred)?;
    let (labels, predictions) = (*t.ty(y_true), *t.ty(y_pred));
    let wanted = predictions.shape.remove(predictions.shape.rank() - 1);
    let fits = labels.shape == wanted || labels.shape == with_one(&wanted);
    if !fits {
        let message = format!("the labels are {labels}, but the predictions {predictions}; labels {wanted} are needed");
        return Err(Error::config(what, message));
    }
    let y_true = if labels.dtype == DType::I64 { y_true } else { t.cast(y_true, DType::I32)? };
    Ok((reshaped(t, y_true, wanted)?, y_pred))
}

/// Weights `[batch, ..]` of the values' type, with axes of size 1 added at the end so that they broadcast to the values.
///
/// # Errors
/// When they would not.
pub(crate) fn spread(t: &mut Trace<'_>, what: &str, weights: Value, values: Value) -> Result<Value, Error> {
    let (given, shape) = (t.shape(weights), t.shape(values));
    let mut dims = given.dims().to_vec();
    while dims.len() > shape.rank() && dims.last() == Some(&1) {
        dims.pop();
    }
    if dims.len() > shape.rank() || dims.iter().zip(shape.dims()).any(|(w, v)| w != v && *w != 1) {
        let message =
            format!("the sample weights are {given}, but the values to weigh {shape}; give one weight per sample");
        return Err(Error::config(what, message));
    }
    dims.resize(shape.rank(), 1);
    let weights = cast_as(t, weights, values)?;
    reshaped(t, weights, Shape::new(&dims))
}

fn expect_classes(t: &Trace<'_>, what: &str, y_pred: Value) -> Result<(), Error> {
    let shape = t.shape(y_pred);
    if shape.rank() >= 2 {
        return Ok(());
    }
    Err(Error::config(what, format!("takes predictions [batch, .., classes], got {shape}")))
}

fn full_precision(t: &mut Trace<'_>, what: &str, y_pred: Value) -> Result<Value, Error> {
    match t.dtype(y_pred) {
        DType::F32 | DType::F64 => Ok(y_pred),
        DType::F16 | DType::BF16 => Ok(t.cast(y_pred, DType::F32)?),
        other => Err(Error::config(what, format!("takes floating-point predictions, got {other}"))),
    }
}

fn equal_but_for_last(a: &Shape, b: &Shape) -> bool {
    a == b || with_one(a) == *b || *a == with_one(b)
}

/// The shape with one more axis, of size 1; the shape itself when it can have no more.
fn with_one(shape: &Shape) -> Shape {
    let dims: Vec<usize> = shape.dims().iter().copied().chain([1]).collect();
    Shape::try_new(&dims).unwrap_or(*shape)
}

fn reshaped(t: &mut Trace<'_>, x: Value, shape: Shape) -> Result<Value, Error> {
    if t.shape(x) == shape { Ok(x) } else { Ok(t.reshape(x, shape)?) }
}
