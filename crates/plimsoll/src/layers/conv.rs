//! Convolution of sequences, images and volumes.

use super::padding::Window;
use super::{Activation, Layer, Padding, Sizes, image_axes, positive, refuse, shape_like, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::conv::ConvOptions;
use plimsoll_tensor::Shape;

/// Convolution: every output is a sum over a window of the input, with the same weights at every place,
///
/// ```text
/// y[o, c] = activation(bias[c] + sum over k, i of x[o * stride + k * dilation - before, i] * kernel[k, i, c])
/// ```
///
/// where `before` cells of padding stand before the input. With groups, the channels are cut into as many groups that do not see each
/// other.
///
/// # Shapes
/// - input `[batch, s.., in]`, output `[batch, o.., filters]`, where `o` is `(s - reach) / stride + 1` rounded down with padding
///   valid (`reach = (size - 1) * dilation + 1`), and `s / stride` rounded up with padding same or causal
/// - weights `kernel [size.., in / groups, filters]`, `bias [filters]`
///
/// ```
/// use plimsoll::layers::{Activation, Conv2D, Flatten, MaxPool2D};
/// use plimsoll::model::Model;
/// let model = Model::sequential([32, 32, 3])
///     .layer(Conv2D::new(16, 3).same().activation(Activation::Relu))
///     .layer(MaxPool2D::new(2))
///     .layer(Conv2D::new(32, [3, 1]).strides(2))
///     .layer(Flatten::new());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Conv<const N: usize> {
    filters: usize,
    kernel_size: Sizes<N>,
    strides: Sizes<N>,
    padding: Padding,
    dilation: Sizes<N>,
    groups: usize,
    activation: Activation,
    bias: bool,
    kernel_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

/// [`Conv`] of `[batch, steps, channels]`.
pub type Conv1D = Conv<1>;
/// [`Conv`] of `[batch, height, width, channels]`.
pub type Conv2D = Conv<2>;
/// [`Conv`] of `[batch, depth, height, width, channels]`.
pub type Conv3D = Conv<3>;

impl<const N: usize> Conv<N> {
    /// A layer with this many output channels and this size of the window: stride 1, no padding, no activation, a bias.
    pub fn new(filters: usize, kernel_size: impl Into<Sizes<N>>) -> Conv<N> {
        Conv {
            filters,
            kernel_size: kernel_size.into(),
            strides: Sizes([1; N]),
            padding: Padding::Valid,
            dilation: Sizes([1; N]),
            groups: 1,
            activation: Activation::Linear,
            bias: true,
            kernel_init: Initializer::GlorotUniform,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With so many cells from one output to the next.
        strides: impl Into<Sizes<N>>;
        /// With this padding.
        padding: Padding;
        /// With as much padding as keeps the size at stride 1.
        same => padding = Padding::Same;
        /// With so many cells from one weight of the window to the next.
        dilation: impl Into<Sizes<N>>;
        /// With the channels in so many groups that do not see each other.
        groups: usize;
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

impl<const N: usize> Layer for Conv<N> {
    identity!(match N {
        1 => "conv1d",
        2 => "conv2d",
        _ => "conv3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let kind = self.kind();
        let x = single(t, kind, inputs)?;
        positive(t, kind, "filters", self.filters)?;
        positive(t, kind, "groups", self.groups)?;
        let shape = shape_like(t, kind, x, image_axes(N))?;
        let (channels, groups) = (shape[N + 1], self.groups);
        for (what, n) in [("input channels", channels), ("filters", self.filters)] {
            if n % groups != 0 {
                return Err(refuse(t, kind, format!("{n} {what} cannot be cut into {groups} groups")));
            }
        }
        let moves = Moves { kernel_size: self.kernel_size, strides: self.strides, dilation: self.dilation };
        let options = moves.options(t, kind, &shape, self.padding, groups)?;
        let filter = kernel_shape(self.kernel_size, channels / groups, self.filters);
        let kernel = t.weight("kernel", filter, self.kernel_init.clone())?;
        let y = t.conv(x, kernel, &options)?;
        let bias = self.bias.then_some(&self.bias_init);
        finish(t, y, bias, self.activation)
    }
}

/// How a window moves over an image.
pub(super) struct Moves<const N: usize> {
    pub kernel_size: Sizes<N>,
    pub strides: Sizes<N>,
    pub dilation: Sizes<N>,
}

impl<const N: usize> Moves<N> {
    /// The op's constants for an image of this shape.
    pub(super) fn options(
        &self,
        t: &Trace<'_>,
        kind: &str,
        shape: &Shape,
        padding: Padding,
        groups: usize,
    ) -> Result<ConvOptions, Error> {
        if padding == Padding::Causal && N != 1 {
            return Err(refuse(t, kind, "padding causal is for sequences; use valid or same"));
        }
        let mut around = Vec::new();
        for i in 0..N {
            let (size, stride, dilation) = (self.kernel_size.0[i], self.strides.0[i], self.dilation.0[i]);
            let window = Window { input: shape[i + 1], size, stride, dilation };
            let fit = padding.fit(t, kind, image_axes(N)[i + 1], window)?;
            around.extend([fit.before, fit.after]);
        }
        let (strides, dilations) = (self.strides.0.to_vec(), self.dilation.0.to_vec());
        Ok(ConvOptions { strides, padding: around, dilations, groups })
    }
}

/// `[size.., inner, outer]`.
pub(super) fn kernel_shape<const N: usize>(size: Sizes<N>, inner: usize, outer: usize) -> Shape {
    Shape::new(&[&size.0[..], &[inner, outer]].concat())
}

/// Adds the bias of each channel, if there is one, and applies the activation.
pub(super) fn finish(
    t: &mut Trace<'_>,
    mut y: Value,
    bias: Option<&Initializer>,
    activation: Activation,
) -> Result<Value, Error> {
    if let Some(init) = bias {
        let shape = t.shape(y);
        let bias = t.weight("bias", [shape[shape.rank() - 1]], init.clone())?;
        y = t.add(y, bias)?;
    }
    activation.apply(t, y)
}
