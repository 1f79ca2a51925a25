//! Convolution in one, two or three spatial dimensions, with both of its gradients.
//!
//! Layout: images are `[batch, depth, height, width, channels]`, filters `[depth, height, width,
//! in_channels / groups, out_channels]`; fewer spatial dimensions have leading axes of size 1
//! ([`Axis::POINT`]). The output is
//!
//! ```text
//! y[n, o, c] = sum over k, i of x[n, o * stride + k * dilation - pad, i] * filter[k, i, c]
//! ```
//!
//! where cells outside the image are 0 and `i` runs over the channels of `c`'s group. The sum is linear
//! in the image and in the filter, so [`grad_input`] and [`grad_filter`] are the same sum solved for
//! another factor, and each of the three is the gradient of the other two. A transposed convolution is
//! [`grad_input`].
//!
//! There is no im2col of an image. A register tile (`tile`) reads the image where it lies; the copies are a band of rows
//! with its margin of zeros, when there is a margin, the filter in panels of register width, for images of a few
//! pixels alone, their `patches`, and for the filter gradient of many channels some of them at a time. Layers like those of small image networks run at 80 to 95% of the rate of a large matrix
//! product.
//!
//! Reading order: `walk` says which cells meet which; `band` lays out what a block of results reads, `panels` the filter;
//! `gather` is the forward pass and the input gradient; `filter` is the filter gradient; `depthwise` holds the tiles for
//! one channel per group, `dots` those for a few result channels.
//!
//! Every output of `forward` and `grad_input` is one sum in a fixed order, so a sample's result depends
//! neither on the other samples nor on the threads. `grad_filter` adds up [`chunk_samples`] samples at a time,
//! from left to right.

mod band;
mod depthwise;
mod dots;
mod filter;
mod gather;
mod lanes;
pub mod naive;
mod panels;
mod patches;
#[cfg(test)]
mod tests;
mod tile;
mod walk;

pub use filter::{chunk_samples, grad_filter, grad_filter_packing, grad_filter_scratch};
pub use gather::{forward, forward_scratch, grad_input, grad_input_scratch};

/// One spatial axis of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Cells of the image.
    pub input: usize,
    /// Cells of the output.
    pub output: usize,
    /// Cells of the filter.
    pub kernel: usize,
    /// Image cells from one output to the next.
    pub stride: usize,
    /// Image cells from one filter cell to the next.
    pub dilation: usize,
    /// Zeros before the image; those behind it follow from the sizes.
    pub pad: usize,
}

impl Axis {
    /// An axis that is not there.
    pub const POINT: Axis = Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, pad: 0 };

    /// Whether output and image cells correspond one to one.
    fn is_pointwise(&self) -> bool {
        self.kernel == 1 && self.stride == 1 && self.pad == 0 && self.input == self.output
    }
}

/// The sizes of a convolution.
///
/// ```
/// use plimsoll_kernels::conv::{self, Axis, Geometry};
/// use plimsoll_kernels::Pool;
/// // The moving sum of three neighbours, zeros beyond the ends.
/// let axis = Axis { input: 4, output: 4, kernel: 3, stride: 1, dilation: 1, pad: 1 };
/// let sizes = Geometry { batch: 1, in_channels: 1, out_channels: 1, groups: 1, axes: [Axis::POINT, Axis::POINT, axis] };
/// let pool = Pool::new(1);
/// let mut scratch = vec![0.0f32; conv::forward_scratch::<f32>(&sizes, pool.threads())];
/// let mut y = [0.0f32; 4];
/// conv::forward(&pool, &sizes, &[1.0, 2.0, 3.0, 4.0], &[1.0, 1.0, 1.0], &mut y, &mut scratch);
/// assert_eq!(y, [3.0, 6.0, 9.0, 7.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Images.
    pub batch: usize,
    /// Channels of the image.
    pub in_channels: usize,
    /// Channels of the output.
    pub out_channels: usize,
    /// Groups of channels that do not see each other; divides both numbers of channels.
    pub groups: usize,
    /// Depth, height and width.
    pub axes: [Axis; 3],
}

impl Geometry {
    /// Elements of the image tensor.
    pub fn input_len(&self) -> usize {
        self.batch * self.axes.iter().map(|a| a.input).product::<usize>() * self.in_channels
    }

    /// Elements of the output tensor.
    pub fn output_len(&self) -> usize {
        self.batch * self.outputs() * self.out_channels
    }

    /// Elements of the filter.
    pub fn filter_len(&self) -> usize {
        self.taps() * (self.in_channels / self.groups.max(1)) * self.out_channels
    }

    /// Floating-point operations of the convolution, and of each of its gradients: a product and a sum for
    /// each term, those that meet the margin included.
    pub fn flops(&self) -> usize {
        2 * self.batch * self.outputs() * self.filter_len()
    }

    /// Output cells of one image.
    fn outputs(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    /// Cells of the filter.
    fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.kernel).product()
    }

    /// Each channel by itself.
    fn is_depthwise(&self) -> bool {
        self.groups == self.in_channels && self.groups == self.out_channels
    }

    /// Whether every output sees exactly the one cell at its own place.
    fn is_pointwise(&self) -> bool {
        self.axes.iter().all(Axis::is_pointwise)
    }

    #[track_caller]
    fn check(&self, input: usize, filter: usize, output: usize) {
        assert!(
            self.groups > 0
                && self.in_channels.is_multiple_of(self.groups)
                && self.out_channels.is_multiple_of(self.groups),
            "{self:?}"
        );
        assert!(self.axes.iter().all(|a| a.kernel > 0 && a.stride > 0 && a.dilation > 0), "{self:?}");
        assert_eq!((input, filter, output), (self.input_len(), self.filter_len(), self.output_len()), "{self:?}");
    }
}
