//! Convolution by its definition: what the fast kernels are compared with.

use super::Geometry;

/// The convolution `y` of the image `x` with the filter.
pub fn forward_naive(sizes: &Geometry, x: &[f64], filter: &[f64], y: &mut [f64]) {
    y.fill(0.0);
    for_each_term(sizes, |i, k, o| y[o] += x[i] * filter[k]);
}

/// The gradient with respect to the image, from the output's gradient `dy`.
pub fn grad_input_naive(sizes: &Geometry, filter: &[f64], dy: &[f64], dx: &mut [f64]) {
    dx.fill(0.0);
    for_each_term(sizes, |i, k, o| dx[i] += filter[k] * dy[o]);
}

/// The gradient with respect to the filter, from the output's gradient `dy`.
pub fn grad_filter_naive(sizes: &Geometry, x: &[f64], dy: &[f64], dfilter: &mut [f64]) {
    dfilter.fill(0.0);
    for_each_term(sizes, |i, k, o| dfilter[k] += x[i] * dy[o]);
}

/// Calls `term(image, filter, output)` with the places of every product of the convolution.
fn for_each_term(sizes: &Geometry, mut term: impl FnMut(usize, usize, usize)) {
    let [depth, height, width] = sizes.axes;
    let (group_in, group_out) = (sizes.in_channels / sizes.groups, sizes.out_channels / sizes.groups);
    // The image cell that an output cell sees through a filter cell, if it is inside the image.
    let cell = |axis: super::Axis, out: usize, tap: usize| {
        (out * axis.stride + tap * axis.dilation).checked_sub(axis.pad).filter(|&cell| cell < axis.input)
    };
    for n in 0..sizes.batch {
        for (od, oh, ow) in cells(depth.output, height.output, width.output) {
            for (kd, kh, kw) in cells(depth.kernel, height.kernel, width.kernel) {
                let (Some(id), Some(ih), Some(iw)) = (cell(depth, od, kd), cell(height, oh, kh), cell(width, ow, kw))
                else {
                    continue;
                };
                let input = ((n * depth.input + id) * height.input + ih) * width.input + iw;
                let output = ((n * depth.output + od) * height.output + oh) * width.output + ow;
                let tap = (kd * height.kernel + kh) * width.kernel + kw;
                for co in 0..sizes.out_channels {
                    for ci in 0..group_in {
                        term(
                            input * sizes.in_channels + co / group_out * group_in + ci,
                            (tap * group_in + ci) * sizes.out_channels + co,
                            output * sizes.out_channels + co,
                        );
                    }
                }
            }
        }
    }
}

fn cells(depth: usize, height: usize, width: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..depth).flat_map(move |d| (0..height).flat_map(move |h| (0..width).map(move |w| (d, h, w))))
}
