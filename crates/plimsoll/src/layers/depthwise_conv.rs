//! Convolution of each channel by itself.

use super::conv::{Moves, finish, kernel_shape};
use super::{Activation, Layer, Padding, Sizes, image_axes, positive, refuse, shape_like, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Convolution of each channel by itself, `depth_multiplier` times with different weights. Output channel `i * multiplier + m`
/// comes from input channel `i`.
///
/// # Shapes
/// - input `[batch, s.., in]`, output `[batch, o.., in * depth_multiplier]`, with `o` as in [`Conv`](super::Conv)
/// - weights `kernel [size.., in, depth_multiplier]`, `bias [in * depth_multiplier]`
#[derive(Clone, Debug, PartialEq)]
pub struct DepthwiseConv<const N: usize> {
    kernel_size: Sizes<N>,
    strides: Sizes<N>,
    padding: Padding,
    dilation: Sizes<N>,
    depth_multiplier: usize,
    activation: Activation,
    bias: bool,
    kernel_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

/// [`DepthwiseConv`] of `[batch, steps, channels]`.
pub type DepthwiseConv1D = DepthwiseConv<1>;
/// [`DepthwiseConv`] of `[batch, height, width, channels]`.
pub type DepthwiseConv2D = DepthwiseConv<2>;

impl<const N: usize> DepthwiseConv<N> {
    /// A layer with this size of the window: one output for each channel, stride 1, no padding, no activation, a bias.
    pub fn new(kernel_size: impl Into<Sizes<N>>) -> DepthwiseConv<N> {
        DepthwiseConv {
            kernel_size: kernel_size.into(),
            strides: Sizes([1; N]),
            padding: Padding::Valid,
            dilation: Sizes([1; N]),
            depth_multiplier: 1,
            activation: Activation::Linear,
            bias: true,
            kernel_init: Initializer::GlorotUniform,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With so many outputs for each input channel.
        depth_multiplier: usize;
        /// With so many cells from one output to the next.
        strides: impl Into<Sizes<N>>;
        /// With this padding.
        padding: Padding;
        /// With as much padding as keeps the size at stride 1.
        same => padding = Padding::Same;
        /// With so many cells from one weight of the window to the next.
        dilation: impl Into<Sizes<N>>;
        /// With this activation.
        activation: Activation;
        /// Without a bias.
        no_bias => bias = false;
        /// With these initial values of the kernel.
        kernel_init: Initializer;
        /// With these initial values of the bias.
        bias_init: Initializer;
    }
}

impl<const N: usize> Layer for DepthwiseConv<N> {
    identity!(match N {
        1 => "depthwise_conv1d",
        2 => "depthwise_conv2d",
        _ => "depthwise_conv3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, self.kind(), inputs)?;
        let moves = Moves { kernel_size: self.kernel_size, strides: self.strides, dilation: self.dilation };
        let init = &self.kernel_init;
        let y = depthwise(t, self.kind(), x, "kernel", init, &moves, self.padding, self.depth_multiplier)?;
        let bias = self.bias.then_some(&self.bias_init);
        finish(t, y, bias, self.activation)
    }
}

/// The convolution with a weight `[size.., in, multiplier]` of this name.
pub(super) fn depthwise<const N: usize>(
    t: &mut Trace<'_>,
    kind: &str,
    x: Value,
    name: &str,
    init: &Initializer,
    moves: &Moves<N>,
    padding: Padding,
    multiplier: usize,
) -> Result<Value, Error> {
    positive(t, kind, "depth_multiplier", multiplier)?;
    let shape = shape_like(t, kind, x, image_axes(N))?;
    let channels = shape[N + 1];
    if channels == 0 {
        return Err(refuse(t, kind, format!("takes one channel or more, got {shape}")));
    }
    let options = moves.options(t, kind, &shape, padding, channels)?;
    let kernel = t.weight(name, kernel_shape(moves.kernel_size, channels, multiplier), init.clone())?;
    // As many groups as channels: the same numbers under another shape.
    let filter = t.reshape(kernel, kernel_shape(moves.kernel_size, 1, channels * multiplier))?;
    Ok(t.conv(x, filter, &options)?)
}
