//! Transposed convolution: images made larger.

use super::conv::{Moves, finish, kernel_shape};
use super::{Activation, Layer, Padding, Sizes, image_axes, positive, refuse, shape_like, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Transposed convolution: what the gradient of a convolution does to its output, as a layer. Every input cell adds
/// a window of weights to the output, `stride` cells after the one before.
///
/// # Shapes
/// - input `[batch, s.., in]`, output `[batch, o.., filters]`, where `o` is `s * stride` with padding same and
///   `s * stride + max(reach - stride, 0)` with padding valid (`reach = (size - 1) * dilation + 1`)
/// - weights `kernel [size.., filters, in]`, `bias [filters]`
///
/// ```
/// use plimsoll::layers::Conv2DTranspose;
/// // Twice the height and width:
/// let layer = Conv2DTranspose::new(32, 4).strides(2).same();
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose<const N: usize> {
    filters: usize,
    kernel_size: Sizes<N>,
    strides: Sizes<N>,
    padding: Padding,
    dilation: Sizes<N>,
    activation: Activation,
    bias: bool,
    kernel_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

/// [`ConvTranspose`] of `[batch, steps, channels]`.
pub type Conv1DTranspose = ConvTranspose<1>;
/// [`ConvTranspose`] of `[batch, height, width, channels]`.
pub type Conv2DTranspose = ConvTranspose<2>;
/// [`ConvTranspose`] of `[batch, depth, height, width, channels]`.
pub type Conv3DTranspose = ConvTranspose<3>;

impl<const N: usize> ConvTranspose<N> {
    /// A layer with this many output channels and this size of the window: stride 1, no padding, no activation, a bias.
    pub fn new(filters: usize, kernel_size: impl Into<Sizes<N>>) -> ConvTranspose<N> {
        ConvTranspose {
            filters,
            kernel_size: kernel_size.into(),
            strides: Sizes([1; N]),
            padding: Padding::Valid,
            dilation: Sizes([1; N]),
            activation: Activation::Linear,
            bias: true,
            kernel_init: Initializer::GlorotUniform,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With so many cells from one input's window to the next.
        strides: impl Into<Sizes<N>>;
        /// With this padding of the convolution that this one undoes.
        padding: Padding;
        /// With so much cut off that the size is that of the input times the stride.
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

    /// The size of the output along one spatial axis.
    fn output(&self, axis: usize, input: usize) -> Option<usize> {
        let (size, stride, dilation) = (self.kernel_size.0[axis], self.strides.0[axis], self.dilation.0[axis]);
        let reach = size.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
        let beyond = if self.padding == Padding::Valid { reach.saturating_sub(stride) } else { 0 };
        input.checked_mul(stride)?.checked_add(beyond).filter(|_| stride > 0 && dilation > 0)
    }
}

impl<const N: usize> Layer for ConvTranspose<N> {
    identity!(match N {
        1 => "conv1d_transpose",
        2 => "conv2d_transpose",
        _ => "conv3d_transpose",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let kind = self.kind();
        let x = single(t, kind, inputs)?;
        positive(t, kind, "filters", self.filters)?;
        let shape = shape_like(t, kind, x, image_axes(N))?;
        if self.padding == Padding::Causal {
            return Err(refuse(t, kind, "has no padding causal; use valid or same"));
        }
        // The convolution that this one undoes goes from an image of the output's shape to the input's.
        let mut large = shape;
        for i in 0..N {
            let Some(output) = self.output(i, shape[i + 1]) else {
                let (size, stride, dilation) = (self.kernel_size.0[i], self.strides.0[i], self.dilation.0[i]);
                let axis = image_axes(N)[i + 1];
                let message = format!(
                    "a window of {size} with stride {stride} and dilation {dilation} along {axis} {}: each must be positive, and not too large",
                    shape[i + 1]
                );
                return Err(refuse(t, kind, message));
            };
            large.dims_mut()[i + 1] = output;
        }
        let moves = Moves { kernel_size: self.kernel_size, strides: self.strides, dilation: self.dilation };
        let options = moves.options(t, kind, &large, self.padding, 1)?;
        let filter = kernel_shape(self.kernel_size, self.filters, shape[N + 1]);
        let kernel = t.weight("kernel", filter, self.kernel_init.clone())?;
        let y = t.conv_transpose(x, kernel, &options, &large.dims()[1..=N])?;
        let bias = self.bias.then_some(&self.bias_init);
        finish(t, y, bias, self.activation)
    }
}
