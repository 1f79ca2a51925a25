//! Convolution in two steps: in space, then across channels.

use super::conv::{Moves, finish, kernel_shape};
use super::depthwise_conv::depthwise;
use super::{Activation, Layer, Padding, Sizes, positive, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::conv::ConvOptions;

/// A [`DepthwiseConv`](super::DepthwiseConv) followed by a product over the channels, without anything in between: a convolution with far fewer
/// weights.
///
/// # Shapes
/// - input `[batch, s.., in]`, output `[batch, o.., filters]`, with `o` as in [`Conv`](super::Conv)
/// - weights `depthwise_kernel [size.., in, depth_multiplier]`, `pointwise_kernel [1.., in * depth_multiplier, filters]`,
///   `bias [filters]`
#[derive(Clone, Debug, PartialEq)]
pub struct SeparableConv<const N: usize> {
    filters: usize,
    kernel_size: Sizes<N>,
    strides: Sizes<N>,
    padding: Padding,
    dilation: Sizes<N>,
    depth_multiplier: usize,
    activation: Activation,
    bias: bool,
    depthwise_init: Initializer,
    pointwise_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

/// [`SeparableConv`] of `[batch, steps, channels]`.
pub type SeparableConv1D = SeparableConv<1>;
/// [`SeparableConv`] of `[batch, height, width, channels]`.
pub type SeparableConv2D = SeparableConv<2>;

impl<const N: usize> SeparableConv<N> {
    /// A layer with this many output channels and this size of the window: stride 1, no padding, no activation, a bias.
    pub fn new(filters: usize, kernel_size: impl Into<Sizes<N>>) -> SeparableConv<N> {
        SeparableConv {
            filters,
            kernel_size: kernel_size.into(),
            strides: Sizes([1; N]),
            padding: Padding::Valid,
            dilation: Sizes([1; N]),
            depth_multiplier: 1,
            activation: Activation::Linear,
            bias: true,
            depthwise_init: Initializer::GlorotUniform,
            pointwise_init: Initializer::GlorotUniform,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With so many intermediate channels for each input channel.
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
        /// With these initial values of the first kernel.
        depthwise_init: Initializer;
        /// With these initial values of the second kernel.
        pointwise_init: Initializer;
        /// With these initial values of the bias.
        bias_init: Initializer;
    }
}

impl<const N: usize> Layer for SeparableConv<N> {
    identity!(match N {
        1 => "separable_conv1d",
        2 => "separable_conv2d",
        _ => "separable_conv3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, self.kind(), inputs)?;
        positive(t, self.kind(), "filters", self.filters)?;
        let moves = Moves { kernel_size: self.kernel_size, strides: self.strides, dilation: self.dilation };
        let (init, name) = (&self.depthwise_init, "depthwise_kernel");
        let y = depthwise(t, self.kind(), x, name, init, &moves, self.padding, self.depth_multiplier)?;
        let filter = kernel_shape(Sizes([1; N]), t.shape(y)[N + 1], self.filters);
        let kernel = t.weight("pointwise_kernel", filter, self.pointwise_init.clone())?;
        let y = t.conv(y, kernel, &ConvOptions::new(N))?;
        let bias = self.bias.then_some(&self.bias_init);
        finish(t, y, bias, self.activation)
    }
}
