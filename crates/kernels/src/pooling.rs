//! Max and average pooling over windows in one, two or three spatial dimensions, with their gradients.
//!
//! Layout and axes are those of [`conv`](crate::conv), each channel by itself. Cells outside the image take part in
//! nothing: they are no candidates for the largest and are not counted in the mean.
//!
//! The gradient of max pooling finds the largest cell again from the image, instead of keeping its index from the forward
//! pass: the image is usually kept anyway for the layer before (a ReLU's gradient is read off its output), so an
//! index would be extra memory, and reading the image again costs less than the gradient that is written beside
//! it. The first of several equal cells gets the whole gradient.

use crate::conv::Axis;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use std::ops::Range;

/// The sizes of a pooling: windows of `kernel` cells on each axis (`dilation` is 1).
///
/// ```
/// use plimsoll_kernels::Pool;
/// use plimsoll_kernels::conv::Axis;
/// use plimsoll_kernels::pooling::{self, Windows};
/// let axis = Axis { input: 4, output: 2, kernel: 2, stride: 2, dilation: 1, pad: 0 };
/// let windows = Windows { batch: 1, channels: 1, axes: [Axis::POINT, Axis::POINT, axis] };
/// let mut y = [0.0f32; 2];
/// pooling::max(&Pool::new(1), &windows, &[1.0, 3.0, 2.0, -1.0], &mut y);
/// assert_eq!(y, [3.0, 2.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Windows {
    /// Images.
    pub batch: usize,
    /// Channels of image and output.
    pub channels: usize,
    /// Depth, height and width.
    pub axes: [Axis; 3],
}

/// Channels that a gradient's task works on at a time: whole cache lines, few enough for registers.
const BLOCK: usize = 64;

/// The largest cell of every window; NaN if there is one.
///
/// # Panics
/// When a length does not agree with the sizes, or a window has no cell inside the image.
pub fn max<T: Float>(pool: &Pool, windows: &Windows, x: &[T], y: &mut [T]) {
    windows.check(x.len(), y.len());
    windows.for_each_row(pool, y, |place, y| max_row(windows, place, x, y));
}

/// The gradient `dx` of [`max`] from the image and the output's gradient.
///
/// # Panics
/// As [`max`].
pub fn max_grad<T: Float>(pool: &Pool, windows: &Windows, x: &[T], dy: &[T], dx: &mut [T]) {
    windows.check(x.len(), dy.len());
    windows.for_each_image(pool, dx, |sample, channels, dx| max_grad_image(windows, sample, channels, x, dy, dx));
}

/// The mean of every window's cells inside the image.
///
/// # Panics
/// As [`max`].
pub fn average<T: Float>(pool: &Pool, windows: &Windows, x: &[T], y: &mut [T]) {
    windows.check(x.len(), y.len());
    windows.for_each_row(pool, y, |place, y| average_row(windows, place, x, y));
}

/// The gradient `dx` of [`average`] from the output's gradient.
///
/// # Panics
/// As [`max`].
pub fn average_grad<T: Float>(pool: &Pool, windows: &Windows, dy: &[T], dx: &mut [T]) {
    windows.check(dx.len(), dy.len());
    windows.for_each_image(pool, dx, |sample, channels, dx| average_grad_image(windows, sample, channels, dy, dx));
}

/// A row of the output: sample, depth and height.
type Place = (usize, usize, usize);

/// One image of a tensor, of which the caller may touch some channels.
struct Image<'a, T> {
    tensor: &'a SharedSlice<T>,
    start: usize,
}

impl<T> Image<'_, T> {
    /// `channels` of the image's cell.
    ///
    /// # Safety
    /// The channels must belong to the caller, who holds no other part that overlaps.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn cell(&self, windows: &Windows, cell: usize, channels: &Range<usize>) -> &mut [T] {
        // SAFETY: by the caller's promise.
        unsafe { self.tensor.slice(self.start + cell * windows.channels + channels.start, channels.len()) }
    }
}

impl Windows {
    /// Elements of the image tensor.
    pub fn input_len(&self) -> usize {
        self.batch * self.cells() * self.channels
    }

    /// Elements of the output tensor.
    pub fn output_len(&self) -> usize {
        self.batch * self.pixels() * self.channels
    }

    /// Cells of one image.
    fn cells(&self) -> usize {
        self.axes.iter().map(|a| a.input).product()
    }

    #[track_caller]
    fn check(&self, input: usize, output: usize) {
        assert_eq!((input, output), (self.input_len(), self.output_len()), "{self:?}");
        let has_cells = |a: &Axis| a.dilation == 1 && (0..a.output).all(|o| !inside(a, o).is_empty());
        assert!(output == 0 || self.axes.iter().all(has_cells), "a window outside the image: {self:?}");
    }

    /// Calls `each` with every row of the output.
    fn for_each_row<T: Float>(&self, pool: &Pool, y: &mut [T], each: impl Fn(Place, &mut [T]) + Sync) {
        let [depth, height, width] = self.axes.map(|a| a.output);
        let len = width * self.channels;
        let out = SharedSlice::new(y);
        let work = self.input_len();
        pool.run_sized(if len == 0 { 0 } else { self.batch * depth * height }, work, &|row, _| {
            // SAFETY: every task has its own row.
            let y = unsafe { out.slice(row * len, len) };
            each((row / (depth * height), row / height % depth, row % height), y);
        });
    }

    /// Calls `each` with every image and block of channels.
    fn for_each_image<T: Float>(
        &self,
        pool: &Pool,
        dx: &mut [T],
        each: impl Fn(usize, Range<usize>, &Image<'_, T>) + Sync,
    ) {
        let blocks = self.channels.div_ceil(BLOCK);
        let (work, out) = (2 * dx.len(), SharedSlice::new(dx));
        pool.run_sized(self.batch * blocks, work, &|task, _| {
            let (sample, first) = (task / blocks, task % blocks * BLOCK);
            let channels = first..(first + BLOCK).min(self.channels);
            each(sample, channels, &Image { tensor: &out, start: sample * self.cells() * self.channels });
        });
    }

    /// Output pixels of one image.
    fn pixels(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    /// The cells of the image that the window of an output pixel has.
    #[inline(always)]
    fn window(&self, pixel: usize) -> Window {
        let [depth, height, width] = &self.axes;
        let (row, w) = (pixel / width.output, pixel % width.output);
        [inside(depth, row / height.output), inside(height, row % height.output), inside(width, w)]
    }
}

/// The cells of a window on each axis.
type Window = [Range<usize>; 3];

/// The cells of the image that the window of output `o` has.
#[inline(always)]
fn inside(axis: &Axis, o: usize) -> Range<usize> {
    let start = o * axis.stride;
    start.saturating_sub(axis.pad)..(start + axis.kernel).saturating_sub(axis.pad).min(axis.input)
}

/// Whether `x` comes before `best` as the largest: larger, or the first NaN.
#[inline(always)]
fn beats<T: Float>(x: T, best: T) -> bool {
    let (x_is_nan, best_is_nan) = (x.partial_cmp(&x).is_none(), best.partial_cmp(&best).is_none());
    x > best || (x_is_nan & !best_is_nan)
}

/// Runs the body for every cell of a window, in order.
///
/// A macro, because a closure of some size is not inlined, and then not compiled for the instruction set.
macro_rules! for_each_cell {
    ($windows:ident, $window:expr, |$cell:ident| $body:block) => {
        let [depth, height, width] = $window;
        for d in depth.clone() {
            for h in height.clone() {
                let row = (d * $windows.axes[1].input + h) * $windows.axes[2].input;
                for $cell in row + width.start..row + width.end $body
            }
        }
    };
}

crate::simd! {
    fn max_row[T: Float](windows: &Windows, place: Place, x: &[T], y: &mut [T]) {
        let channels = windows.channels;
        let x = &x[place.0 * windows.cells() * channels..];
        let (d, h) = (inside(&windows.axes[0], place.1), inside(&windows.axes[1], place.2));
        for (w, y) in y.chunks_exact_mut(channels).enumerate() {
            y.fill(T::NEG_INFINITY);
            for_each_cell!(windows, &[d.clone(), h.clone(), inside(&windows.axes[2], w)], |cell| {
                for (y, &x) in y.iter_mut().zip(&x[cell * channels..][..channels]) {
                    *y = if beats(x, *y) { x } else { *y };
                }
            });
        }
    }

    fn average_row[T: Float](windows: &Windows, place: Place, x: &[T], y: &mut [T]) {
        let channels = windows.channels;
        let x = &x[place.0 * windows.cells() * channels..];
        let (d, h) = (inside(&windows.axes[0], place.1), inside(&windows.axes[1], place.2));
        for (w, y) in y.chunks_exact_mut(channels).enumerate() {
            let w = inside(&windows.axes[2], w);
            let count = T::from_f64((d.len() * h.len() * w.len()) as f64);
            y.fill(T::ZERO);
            for_each_cell!(windows, &[d.clone(), h.clone(), w], |cell| {
                for (y, &x) in y.iter_mut().zip(&x[cell * channels..][..channels]) {
                    *y += x;
                }
            });
            y.iter_mut().for_each(|y| *y /= count);
        }
    }

    fn max_grad_image[T: Float](windows: &Windows, sample: usize, channels: Range<usize>, x: &[T], dy: &[T], dx: &Image<'_, T>) {
        clear(windows, &channels, dx);
        let (pitch, pixels) = (windows.channels, windows.pixels());
        let x = &x[dx.start..][..windows.cells() * pitch];
        for (pixel, dy) in dy[sample * pixels * pitch..][..pixels * pitch].chunks_exact(pitch).enumerate() {
            let window = windows.window(pixel);
            let mut channel = channels.start;
            while channel + LANES <= channels.end {
                max_grad_window::<T, LANES>(windows, &window, channel, x, dy, dx);
                channel += LANES;
            }
            while channel < channels.end {
                max_grad_window::<T, 1>(windows, &window, channel, x, dy, dx);
                channel += 1;
            }
        }
    }

    fn average_grad_image[T: Float](windows: &Windows, sample: usize, channels: Range<usize>, dy: &[T], dx: &Image<'_, T>) {
        clear(windows, &channels, dx);
        let (pitch, pixels) = (windows.channels, windows.pixels());
        for (pixel, dy) in dy[sample * pixels * pitch..][..pixels * pitch].chunks_exact(pitch).enumerate() {
            let window = windows.window(pixel);
            let count = T::from_f64(window.iter().map(|axis| axis.len()).product::<usize>() as f64);
            for_each_cell!(windows, &window, |cell| {
                // SAFETY: these channels of the image belong to this task.
                let dx = unsafe { dx.cell(windows, cell, &channels) };
                for (dx, &dy) in dx.iter_mut().zip(&dy[channels.clone()]) {
                    *dx += dy / count;
                }
            });
        }
    }
}

/// Channels that are compared side by side.
const LANES: usize = 16;

/// The gradient of one window in `N` channels from `first`.
#[inline(always)]
fn max_grad_window<T: Float, const N: usize>(
    windows: &Windows,
    window: &Window,
    first: usize,
    x: &[T],
    dy: &[T],
    dx: &Image<'_, T>,
) {
    let lanes = |from: &[T]| -> [T; N] { std::array::from_fn(|i| from[i]) };
    // The number of the largest cell, kept as T so that the lanes of comparing and of choosing are the same.
    let (mut best, mut place) = ([T::NEG_INFINITY; N], [T::ZERO; N]);
    let mut number = T::ZERO;
    for_each_cell!(windows, window, |cell| {
        let x = lanes(&x[cell * windows.channels + first..][..N]);
        for i in 0..N {
            let wins = beats(x[i], best[i]);
            best[i] = if wins { x[i] } else { best[i] };
            place[i] = if wins { number } else { place[i] };
        }
        number += T::ONE;
    });
    let dy = lanes(&dy[first..][..N]);
    let mut number = T::ZERO;
    for_each_cell!(windows, window, |cell| {
        // SAFETY: these channels of the image belong to this task.
        let dx = unsafe { dx.cell(windows, cell, &(first..first + N)) };
        for i in 0..N {
            dx[i] += if place[i] == number { dy[i] } else { T::ZERO };
        }
        number += T::ONE;
    });
}

/// Sets some channels of an image to zero.
#[inline(always)]
fn clear<T: Float>(windows: &Windows, channels: &Range<usize>, dx: &Image<'_, T>) {
    for cell in 0..windows.cells() {
        // SAFETY: these channels of the image belong to this task.
        unsafe { dx.cell(windows, cell, channels) }.fill(T::ZERO);
    }
}

/// Pooling by its definition: what the fast kernels are compared with.
pub mod naive {
    use super::Windows;

    /// As [`max`](super::max).
    pub fn max_naive(windows: &Windows, x: &[f64], y: &mut [f64]) {
        for_each_window(windows, |o, cells| y[o] = x[largest(x, cells)]);
    }

    /// As [`max_grad`](super::max_grad).
    pub fn max_grad_naive(windows: &Windows, x: &[f64], dy: &[f64], dx: &mut [f64]) {
        dx.fill(0.0);
        for_each_window(windows, |o, cells| dx[largest(x, cells)] += dy[o]);
    }

    /// As [`average`](super::average).
    pub fn average_naive(windows: &Windows, x: &[f64], y: &mut [f64]) {
        for_each_window(windows, |o, cells| y[o] = cells.iter().map(|&i| x[i]).sum::<f64>() / cells.len() as f64);
    }

    /// As [`average_grad`](super::average_grad).
    pub fn average_grad_naive(windows: &Windows, dy: &[f64], dx: &mut [f64]) {
        dx.fill(0.0);
        for_each_window(windows, |o, cells| cells.iter().for_each(|&i| dx[i] += dy[o] / cells.len() as f64));
    }

    /// The first of the largest cells, or the first NaN.
    fn largest(x: &[f64], cells: &[usize]) -> usize {
        let first_nan = cells.iter().find(|&&i| x[i].is_nan());
        let larger = |best: usize, &i: &usize| if x[i] > x[best] { i } else { best };
        *first_nan.unwrap_or(&cells.iter().fold(cells[0], larger))
    }

    /// Calls `each` with the place of every output element and the places of its window's cells in the image.
    fn for_each_window(windows: &Windows, mut each: impl FnMut(usize, &[usize])) {
        let [depth, height, width] = windows.axes;
        let mut output = 0;
        let mut cells = Vec::new();
        for n in 0..windows.batch {
            for (od, oh, ow) in triples(depth.output, height.output, width.output) {
                for channel in 0..windows.channels {
                    cells.clear();
                    for (kd, kh, kw) in triples(depth.kernel, height.kernel, width.kernel) {
                        let cell = |axis: &crate::conv::Axis, o: usize, k: usize| {
                            (o * axis.stride + k).checked_sub(axis.pad).filter(|&i| i < axis.input)
                        };
                        if let (Some(d), Some(h), Some(w)) =
                            (cell(&depth, od, kd), cell(&height, oh, kh), cell(&width, ow, kw))
                        {
                            let pixel = ((n * depth.input + d) * height.input + h) * width.input + w;
                            cells.push(pixel * windows.channels + channel);
                        }
                    }
                    each(output, &cells);
                    output += 1;
                }
            }
        }
    }

    fn triples(a: usize, b: usize, c: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
    }
}

#[cfg(test)]
mod tests {
    use super::naive::*;
    use super::*;

    /// Small whole numbers, so that windows have ties.
    fn fill<T: Float>(n: usize, seed: u64) -> Vec<T> {
        let mut z = seed;
        let mut next = || {
            z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (z >> 61) as f64 - 4.0
        };
        (0..n).map(|_| T::from_f64(next())).collect()
    }

    fn axis(input: usize, kernel: usize, stride: usize, pad: usize, pad_after: usize) -> Axis {
        Axis { input, output: (input + pad + pad_after - kernel) / stride + 1, kernel, stride, dilation: 1, pad }
    }

    #[track_caller]
    fn check_type<T: Float>(batch: usize, channels: usize, axes: &[Axis]) {
        let mut all = [Axis::POINT; 3];
        all[3 - axes.len()..].copy_from_slice(axes);
        let windows = Windows { batch, channels, axes: all };
        let (x, dy) = (fill::<T>(windows.input_len(), 1), fill::<T>(windows.output_len(), 2));
        let wide = |v: &[T]| v.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
        let (wide_x, wide_dy) = (wide(&x), wide(&dy));
        let (mut y, mut dx) = (wide_dy.clone(), wide_x.clone());
        let close = |got: &[T], want: &[f64]| {
            got.iter().zip(want).all(|(g, w)| (g.to_f64() - w).abs() <= 1e-6 * w.abs().max(1.0))
        };
        for threads in 1..4 {
            let pool = Pool::new(threads);
            let (mut got_y, mut got_dx) = (dy.clone(), x.clone());
            max(&pool, &windows, &x, &mut got_y);
            max_naive(&windows, &wide_x, &mut y);
            assert!(close(&got_y, &y), "max {windows:?}");
            average(&pool, &windows, &x, &mut got_y);
            average_naive(&windows, &wide_x, &mut y);
            assert!(close(&got_y, &y), "average {windows:?}");
            max_grad(&pool, &windows, &x, &dy, &mut got_dx);
            max_grad_naive(&windows, &wide_x, &wide_dy, &mut dx);
            assert!(close(&got_dx, &dx), "max gradient {windows:?}");
            average_grad(&pool, &windows, &dy, &mut got_dx);
            average_grad_naive(&windows, &wide_dy, &mut dx);
            assert!(close(&got_dx, &dx), "average gradient {windows:?}");
        }
    }

    #[test]
    fn agrees_with_the_definition() {
        for (batch, channels, axes) in [
            (2, 3, &[axis(6, 2, 2, 0, 0), axis(8, 2, 2, 0, 0)][..]),
            (2, 70, &[axis(7, 3, 2, 1, 1), axis(6, 3, 2, 0, 1)]),
            (3, 16, &[axis(5, 3, 1, 1, 1), axis(5, 2, 1, 0, 1)]),
            (1, 130, &[axis(9, 4, 3, 1, 2)]),
            (2, 2, &[axis(4, 2, 2, 0, 0), axis(5, 3, 1, 1, 1), axis(3, 2, 2, 1, 0)]),
            (2, 5, &[axis(7, 2, 4, 0, 0), axis(1, 1, 1, 0, 0)]),
            (0, 5, &[axis(7, 2, 2, 0, 0)]),
            (2, 0, &[axis(7, 2, 2, 0, 0)]),
        ] {
            check_type::<f32>(batch, channels, axes);
            check_type::<f64>(batch, channels, axes);
        }
    }

    #[test]
    fn the_first_of_equal_cells_gets_the_gradient_and_a_nan_wins() {
        let windows = Windows { batch: 1, channels: 1, axes: [Axis::POINT, Axis::POINT, axis(6, 3, 3, 0, 0)] };
        let x = [1.0f32, 2.0, 2.0, 5.0, f32::NAN, f32::NAN];
        let (mut y, mut dx) = ([0.0; 2], [9.0; 6]);
        let pool = Pool::new(1);
        max(&pool, &windows, &x, &mut y);
        assert!(y[0] == 2.0 && y[1].is_nan());
        max_grad(&pool, &windows, &x, &[3.0, 4.0], &mut dx);
        assert_eq!(dx, [0.0, 3.0, 0.0, 0.0, 4.0, 0.0]);
    }
}
