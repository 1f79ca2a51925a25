//! Windows over images: how much padding, how many outputs. Shared by convolution and pooling.

use plimsoll_kernels::conv::Axis;
use plimsoll_tensor::{Shape, TensorType};

/// How much is put around an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Nothing: the filter stays inside the image.
    Valid,
    /// So much that the output has `ceil(image / stride)` cells; of an odd number of cells, the larger half is behind.
    Same,
    /// This many cells before and behind, for each axis.
    Cells(Vec<(usize, usize)>),
}

impl Padding {
    /// The cells before and behind the image, in turn, as the options of convolutions and poolings take them.
    pub fn cells(&self, image: &[usize], kernel: &[usize], strides: &[usize], dilations: &[usize]) -> Vec<usize> {
        let axes = image.iter().zip(kernel).zip(strides).zip(dilations);
        match self {
            Padding::Valid => vec![0; 2 * image.len()],
            Padding::Same => axes
                .flat_map(|(((&image, &kernel), &stride), &dilation)| same_padding(image, kernel, stride, dilation))
                .collect(),
            Padding::Cells(cells) => cells.iter().flat_map(|&(before, behind)| [before, behind]).collect(),
        }
    }

    /// The size of the image that a transposed convolution makes of `cells` cells on one axis: the largest multiple
    /// of the stride that gives so many outputs under [`Padding::Same`], and the smallest image that does for others, but
    /// at least as many cells as strides under [`Padding::Valid`].
    pub fn transposed(&self, axis: usize, cells: usize, kernel: usize, stride: usize, dilation: usize) -> usize {
        let reach = kernel.saturating_sub(1) * dilation + 1;
        match self {
            Padding::Same => cells * stride,
            Padding::Valid => cells * stride + reach.saturating_sub(stride),
            Padding::Cells(padding) => {
                let (before, behind) = padding.get(axis).copied().unwrap_or((0, 0));
                (cells.saturating_sub(1) * stride + reach).saturating_sub(before + behind)
            }
        }
    }
}

/// The cells before and behind one axis with which the output has `ceil(image / stride)` cells.
pub fn same_padding(image: usize, kernel: usize, stride: usize, dilation: usize) -> [usize; 2] {
    let stride = stride.max(1);
    let reach = kernel.saturating_sub(1) * dilation + 1;
    let total = (image.div_ceil(stride).saturating_sub(1) * stride + reach).saturating_sub(image);
    [total / 2, total - total / 2]
}

/// The spatial axes of windows over an image, missing ones in front; or what does not fit.
pub(super) fn spatial_axes(
    image: &[usize],
    kernel: &[usize],
    strides: &[usize],
    padding: &[usize],
    dilations: &[usize],
) -> Result<[Axis; 3], String> {
    /// Beyond this, sums of sizes could overflow.
    const LARGEST: usize = 1 << 31;
    let rank = image.len();
    for (what, list, len) in
        [("strides", strides, rank), ("padding", padding, 2 * rank), ("dilations", dilations, rank)]
    {
        if list.len() != len {
            return Err(format!("{what} has {} entries for {rank} spatial axes, takes {len}", list.len()));
        }
        if let Some(large) = list.iter().find(|&&n| n > LARGEST) {
            return Err(format!("{what} of {large} is beyond the largest possible, {LARGEST}"));
        }
    }
    let mut axes = [Axis::POINT; 3];
    for i in 0..rank {
        let (before, behind) = (padding[2 * i], padding[2 * i + 1]);
        if strides[i] == 0 || dilations[i] == 0 || kernel[i] == 0 {
            return Err(format!(
                "stride {}, dilation {} and kernel size {} of spatial axis {i} must be at least 1",
                strides[i], dilations[i], kernel[i]
            ));
        }
        let (padded, reach) = (image[i] + before + behind, (kernel[i] - 1) * dilations[i] + 1);
        if padded < reach {
            return Err(format!(
                "on spatial axis {i} the window reaches over {reach} cells, the padded image has {padded}"
            ));
        }
        axes[3 - rank + i] = Axis {
            input: image[i],
            output: (padded - reach) / strides[i] + 1,
            kernel: kernel[i],
            stride: strides[i],
            dilation: dilations[i],
            pad: before,
        };
    }
    Ok(axes)
}

/// The number of spatial axes of an image, and its type's fitness; or what is wrong with it.
pub(super) fn expect_image(ty: &TensorType) -> Result<usize, String> {
    if !ty.dtype.is_float() || ty.dtype.is_float8() {
        return Err(format!("takes floating-point images of at least 16 bits, got {}", ty.dtype));
    }
    match ty.shape.rank() {
        rank @ 3..=5 => Ok(rank - 2),
        rank => Err(format!("takes images [batch, 1 to 3 spatial axes, channels], got {rank} axes: {}", ty.shape)),
    }
}

/// The shape `[first, spatial.., last]`.
pub(super) fn image_shape(batch: usize, spatial: &[usize], channels: usize) -> Shape {
    let mut dims = [0; 5];
    dims[0] = batch;
    dims[1..=spatial.len()].copy_from_slice(spatial);
    dims[spatial.len() + 1] = channels;
    Shape::new(&dims[..spatial.len() + 2])
}

/// The output sizes of the last axes.
pub(super) fn outputs(axes: &[Axis; 3], rank: usize) -> [usize; 3] {
    let mut sizes = [1; 3];
    for (size, axis) in sizes.iter_mut().zip(&axes[3 - rank..]) {
        *size = axis.output;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_is_tensorflows() {
        // Cells before and behind from TensorFlow's formula: max((ceil(n/s)-1)*s + (k-1)*d + 1 - n, 0), the smaller half first.
        for ((image, kernel, stride, dilation), want) in [
            ((32, 3, 1, 1), [1, 1]),
            ((224, 7, 2, 1), [2, 3]),
            ((5, 2, 2, 1), [0, 1]),
            ((5, 4, 1, 2), [3, 3]),
            ((6, 1, 3, 1), [0, 0]),
            ((7, 3, 2, 1), [1, 1]),
        ] {
            assert_eq!(same_padding(image, kernel, stride, dilation), want, "{image} {kernel} {stride} {dilation}");
        }
    }
}
