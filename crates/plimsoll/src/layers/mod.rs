//! Layers: the parts of a model. One kind, one file.
//!
//! Names, defaults, layouts and the names of weights are Keras's: images are `[batch, height, width, channels]`,
//! matrices `[in, out]`. Settings are given by builder methods:
//! `Conv2D::new(32, 3).strides(2).activation(Activation::Relu)`.

#[macro_use]
mod settings;
mod sizes;

mod activation;
mod dense;

mod padding;

mod conv;
mod conv_transpose;
mod depthwise_conv;
mod separable_conv;

mod global_pooling;
mod pooling;

mod normalized_axes;

mod batch_norm;
mod group_norm;
mod layer_norm;
mod rms_norm;

mod dropout;
mod gaussian_noise;

mod attention;
mod embedding;

mod recurrent;

mod bidirectional;
mod gru;
mod lstm;
mod simple_rnn;
mod time_distributed;

mod concatenate;
mod cropping;
mod flatten;
mod merge;
mod permute;
mod repeat_vector;
mod rescaling;
mod reshape;
mod up_sampling;
mod zero_padding;

mod chain;
mod function;
mod residual;

pub use activation::Activation;
pub use attention::MultiHeadAttention;
pub use batch_norm::BatchNorm;
pub use bidirectional::{Bidirectional, MergeMode};
pub use chain::Chain;
pub use concatenate::Concatenate;
pub use conv::{Conv, Conv1D, Conv2D, Conv3D};
pub use conv_transpose::{Conv1DTranspose, Conv2DTranspose, Conv3DTranspose, ConvTranspose};
pub use cropping::{Cropping, Cropping1D, Cropping2D, Cropping3D};
pub use dense::Dense;
pub use depthwise_conv::{DepthwiseConv, DepthwiseConv1D, DepthwiseConv2D};
pub use dropout::{Dropout, SpatialDropout, SpatialDropout1D, SpatialDropout2D, SpatialDropout3D};
pub use embedding::Embedding;
pub use flatten::Flatten;
pub use function::Function;
pub use gaussian_noise::GaussianNoise;
pub use global_pooling::{
    GlobalAvgPool, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D, GlobalMaxPool, GlobalMaxPool1D, GlobalMaxPool2D,
    GlobalMaxPool3D,
};
pub use group_norm::GroupNorm;
pub use gru::GRU;
pub use layer_norm::LayerNorm;
pub use lstm::LSTM;
pub use merge::{Add, Average, Maximum, Minimum, Multiply, Subtract};
pub use padding::Padding;
pub use permute::Permute;
pub use pooling::{AvgPool, AvgPool1D, AvgPool2D, AvgPool3D, MaxPool, MaxPool1D, MaxPool2D, MaxPool3D};
pub use recurrent::{Recurrent, Run, Sequence};
pub use repeat_vector::RepeatVector;
pub use rescaling::Rescaling;
pub use reshape::Reshape;
pub use residual::Residual;
pub use rms_norm::RmsNorm;
pub use separable_conv::{SeparableConv, SeparableConv1D, SeparableConv2D};
pub use simple_rnn::SimpleRNN;
pub use sizes::{Margins, Sizes};
pub use time_distributed::TimeDistributed;
pub use up_sampling::{UpSampling, UpSampling1D, UpSampling2D, UpSampling3D};
pub use zero_padding::{ZeroPadding, ZeroPadding1D, ZeroPadding2D, ZeroPadding3D};

use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::Shape;
use std::sync::Arc;

/// A part of a model: writes itself into the step being traced.
///
/// A layer holds its settings only; its weights are variables of the trace, made on first use from the shapes of the
/// inputs. Values have the batch as their first axis.
///
/// ```
/// use plimsoll::layers::{Layer, Dense};
/// use plimsoll::{Error, Trace, Value};
///
/// /// Adds its input to what another layer makes of it.
/// struct Residual(Dense);
///
/// impl Layer for Residual {
///     fn kind(&self) -> &'static str { "residual" }
///     fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
///         let h = t.scope("inner", |t| self.0.call(t, inputs))?;
///         Ok(t.add(inputs[0], h)?)
///     }
/// }
/// ```
pub trait Layer: Send + Sync {
    /// The kind's name, from which a layer's own name is made (`dense`, `dense_1`).
    fn kind(&self) -> &'static str;

    /// Traces the layer: makes its weights and gives its output.
    ///
    /// # Errors
    /// When the inputs do not suit the layer; the message names both facts.
    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error>;

    /// The name the user gave, if any.
    fn name(&self) -> Option<&str> {
        None
    }
}

/// A layer chosen at run time is a layer.
impl Layer for Arc<dyn Layer> {
    fn kind(&self) -> &'static str {
        (**self).kind()
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        (**self).call(t, inputs)
    }

    fn name(&self) -> Option<&str> {
        (**self).name()
    }
}

/// The single input of a layer that takes one.
///
/// # Errors
/// When there are several or none.
pub fn single(t: &Trace<'_>, kind: &str, inputs: &[Value]) -> Result<Value, Error> {
    match inputs {
        [x] => Ok(*x),
        _ => Err(refuse(t, kind, format!("takes one input, got {}", inputs.len()))),
    }
}

/// An error that names the kind of layer, and the layer itself when it has another name.
fn refuse(t: &Trace<'_>, kind: &str, message: impl Into<String>) -> Error {
    match t.layer() {
        layer if layer.is_empty() || layer == kind => Error::config(kind, message),
        layer => Error::config(format!("{kind} '{layer}'"), message),
    }
}

/// The shape of an input that must have as many axes as `takes` names.
fn shape_like(t: &Trace<'_>, kind: &str, x: Value, takes: &[&str]) -> Result<Shape, Error> {
    let shape = t.shape(x);
    if shape.rank() == takes.len() {
        return Ok(shape);
    }
    Err(refuse(t, kind, format!("takes [{}], got {shape}", takes.join(", "))))
}

/// The names of the axes of a value with `n` spatial axes, for messages.
fn image_axes(n: usize) -> &'static [&'static str] {
    match n {
        1 => &["batch", "steps", "channels"],
        2 => &["batch", "height", "width", "channels"],
        _ => &["batch", "depth", "height", "width", "channels"],
    }
}

/// Says so when a setting that must be positive is 0.
fn positive(t: &Trace<'_>, kind: &str, setting: &str, size: usize) -> Result<(), Error> {
    if size > 0 { Ok(()) } else { Err(refuse(t, kind, format!("{setting} must be positive, got 0"))) }
}

/// An axis counted from the first (0 is the batch) or, if negative, from the last.
fn axis_of(t: &Trace<'_>, kind: &str, axis: isize, shape: &Shape) -> Result<usize, Error> {
    let rank = shape.rank() as isize;
    if (-rank..rank).contains(&axis) {
        return Ok(if axis < 0 { axis + rank } else { axis } as usize);
    }
    Err(refuse(t, kind, format!("axis {axis} of an input {shape}, which has {rank} axes")))
}
