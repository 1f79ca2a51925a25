//! The filter gradient: a sum over all pixels of all samples.
//!
//! The batch is cut into chunks of [`chunk_samples`] samples. A filter of ordinary size has a partial sum for each of
//! some chunks, computed side by side and then added from left to right. A large filter would need too much memory for that;
//! its parts are shared out instead, and each task goes over the whole batch, adding block by block.

use super::band::{Bands, Block, GAP, View};
use super::depthwise::{FilterSums, filter_sums};
use super::patches::{PATCHES_LEN, Patches};
use super::tile::{Ahead, Loop, Product, Target, panel, product};
use super::walk::Direction;
use super::{Axis, Geometry};
use crate::gemm::{self, Into, Mat, MatMut, Packing};
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use std::ops::Range;

/// Elements of all partial sums that exist at a time.
const PARTIALS_LEN: usize = 1 << 20;

/// With fewer partial sums than this at a time, the filter is shared out instead.
const FEWEST_PARTIALS: usize = 4;

/// As many tasks for each thread as keep them evenly busy.
const TASKS: usize = 4;

/// Elements of the largest band of an image, and of the output's gradient, that share the second-level cache.
const BAND_LEN: usize = 96 * 1024;

/// An image of so many channels and elements is copied, up to so many channels and pixels at a time. What they add up stays in the cache
/// then, where all channels of a few pixels would go through the whole filter for each of them.
const MANY_CHANNELS: usize = 64;
const LARGE_IMAGE: usize = 32 * 1024;
const MOST_CHANNELS: usize = 128;
const MOST_PIXELS: usize = 512;

/// Elements that one task adds up from the partial sums.
const SUM_LEN: usize = 4096;

/// Images with fewer pixels than this under a 1x1 filter are summed by the matrix product across samples; so are those
/// under a filter of more elements than this, whose rows are so far apart that they should be packed.
const FEW_PIXELS: usize = 16;
const WIDE_FILTER: usize = 128 * 1024;

/// How many samples of the batch are summed at a time: a slice of the batch whose size is a multiple of this,
/// added to the sum of the slices before it, gives the same bits as the whole batch.
///
/// It is larger for small images, so that a chunk has enough pixels to be worth a partial sum.
pub fn chunk_samples(sizes: &Geometry) -> usize {
    (1024 / sizes.outputs().max(1)).clamp(1, 32)
}

/// The gradient `dfilter` with respect to the filter, from the image `x` and the output's gradient `dy`.
///
/// With [`Into::Add`] it is added to what `dfilter` holds, chunk by chunk. `scratch` has at least
/// [`grad_filter_scratch`] elements.
///
/// # Panics
/// When a length does not agree with the sizes.
pub fn grad_filter<T: Float>(
    pool: &Pool,
    sizes: &Geometry,
    x: &[T],
    dy: &[T],
    dfilter: &mut [T],
    into: Into,
    scratch: &mut [T],
) {
    sizes.check(x.len(), dfilter.len(), dy.len());
    if x.is_empty() || dy.is_empty() {
        if into == Into::Overwrite {
            dfilter.fill(T::ZERO);
        }
        return;
    }
    let pixels = sizes.outputs();
    if sizes.is_pointwise() && sizes.groups == 1 && (pixels < FEW_PIXELS || sizes.filter_len() > WIDE_FILTER) {
        let rows = sizes.batch * pixels;
        let (x, dy) = (Mat::new(x, rows, sizes.in_channels), Mat::new(dy, rows, sizes.out_channels));
        let out = MatMut::new(dfilter, sizes.in_channels, sizes.out_channels);
        return gemm::matmul(pool, x.t(), dy, out, into, chunk_samples(sizes) * pixels);
    }
    let all = FilterGradient::new::<T>(sizes, pool.threads());
    match all.partials {
        Some(partials) => all.run_partials(pool, partials, x, dy, dfilter, into, scratch),
        None => all.run_shared_out(pool, x, dy, dfilter, into, scratch),
    }
}

/// What the library packs for [`grad_filter`].
pub fn grad_filter_packing<T>(sizes: &Geometry) -> Packing {
    if !sizes.is_pointwise() || sizes.groups != 1 {
        return Packing::NONE;
    }
    let (rows, chunk) = (sizes.batch * sizes.outputs(), chunk_samples(sizes) * sizes.outputs());
    Packing::matmul::<T>(sizes.in_channels, rows, sizes.out_channels, chunk)
}

/// Elements of scratch that [`grad_filter`] needs.
pub fn grad_filter_scratch<T: Float>(sizes: &Geometry, threads: usize) -> usize {
    let all = FilterGradient::new::<T>(sizes, threads);
    all.partials.unwrap_or(0) * sizes.filter_len() + threads * all.band_len()
}

struct FilterGradient {
    sizes: Geometry,
    bands: Bands,
    chunk: usize,
    /// Output channels computed together.
    panel: usize,
    /// How many chunks have their sums at a time.
    partials: Option<usize>,
    /// Small images are summed over their patches instead of blocks: of so many samples at a time.
    patches: Option<Patches>,
    samples: usize,
    /// Rows and columns of a block of the output.
    rows: usize,
    columns: usize,
    /// An image of many channels is copied so many of them at a time, beside the panel of the output's gradient that they meet.
    channels: Option<usize>,
    /// Into how many parts the rows of filter cells, the input channels and the panels are shared out.
    row_parts: usize,
    channel_parts: usize,
    panel_parts: usize,
}

/// The output's gradient at the pixels of a block, in one panel of channels.
struct Gradient<T> {
    start: *const T,
    row: usize,
    pixel: usize,
}

/// A part of the filter: rows of filter cells (numbered through depth and height), input channels and panels of output channels.
struct Part {
    rows: Range<usize>,
    channels: Range<usize>,
    panels: Range<usize>,
}

impl FilterGradient {
    fn new<T: Float>(sizes: &Geometry, threads: usize) -> FilterGradient {
        let chunk = chunk_samples(sizes);
        let mut sizes = *sizes;
        if sizes.is_pointwise() {
            let pixels = sizes.outputs();
            let row = Axis { input: pixels, output: pixels, ..Axis::POINT };
            sizes.axes = [Axis::POINT, Axis::POINT, row];
        }
        let chunks = sizes.batch.div_ceil(chunk).max(1);
        // Which of the two ways decides about the order of the sum, so the size of the batch must have no say in it.
        let at_a_time = PARTIALS_LEN / sizes.filter_len().max(1);
        // Waves of nearly equal size.
        let partials = (at_a_time >= FEWEST_PARTIALS).then(|| chunks.div_ceil(chunks.div_ceil(at_a_time)));
        let mut all = FilterGradient {
            bands: Bands::new(&sizes, Direction::Forward),
            sizes,
            chunk,
            panel: panel::<T>(),
            partials,
            patches: Patches::new(&sizes, Direction::Forward),
            samples: 1,
            rows: 1,
            columns: 1,
            channels: None,
            row_parts: 1,
            channel_parts: 1,
            panel_parts: 1,
        };
        let is_large = sizes.in_channels >= MANY_CHANNELS && sizes.input_len() >= LARGE_IMAGE * sizes.batch;
        if is_large && sizes.groups == 1 && sizes.taps() > 1 && all.patches.is_none() {
            all.channels = Some(sizes.in_channels.div_ceil(sizes.in_channels.div_ceil(MOST_CHANNELS)));
        }
        all.choose_block();
        // How the filter is shared out has no say in its sums.
        let (side_by_side, tasks) = (partials.unwrap_or(1), TASKS * threads);
        if side_by_side < tasks {
            // What is copied serves all rows of filter cells.
            match all.channels {
                Some(channels) => all.channel_parts = sizes.in_channels.div_ceil(channels),
                None => all.row_parts = all.filter_rows(),
            }
            all.panel_parts = tasks.div_ceil(side_by_side * all.row_parts * all.channel_parts).min(all.panels());
        }
        if let Some(patches) = &all.patches {
            all.samples = (PATCHES_LEN / (patches.results() * patches.row_len()).max(1)).clamp(1, chunk);
        }
        all
    }

    /// Blocks of the output that fit the cache together with the part of the image they meet.
    fn choose_block(&mut self) {
        let [_, height, width] = self.sizes.axes.map(|axis| axis.output.max(1));
        let fits = |rows: usize, columns: usize| match self.channels {
            Some(_) => rows * columns <= MOST_PIXELS,
            None => self.bands.len(rows, columns) <= BAND_LEN && rows * columns * self.sizes.out_channels <= BAND_LEN,
        };
        let (mut rows, mut columns) = (height, width);
        while rows > 1 && !fits(rows, columns) {
            rows = rows.div_ceil(2);
        }
        while columns > 128 && !fits(1, columns) {
            columns = columns.div_ceil(2);
        }
        (self.rows, self.columns) = (rows, columns);
    }

    /// Rows of filter cells.
    fn filter_rows(&self) -> usize {
        self.sizes.axes[0].kernel * self.sizes.axes[1].kernel
    }

    /// Panels of output channels in all groups.
    fn panels(&self) -> usize {
        match self.sizes.is_depthwise() {
            true => 1,
            false => self.sizes.groups * (self.sizes.out_channels / self.sizes.groups).div_ceil(self.panel),
        }
    }

    /// Elements of scratch for one thread's band or patches.
    fn band_len(&self) -> usize {
        match &self.patches {
            Some(patches) => self.samples * patches.results() * (patches.row_len() + GAP + self.panel),
            None => match self.channels {
                Some(channels) => {
                    let gradient = self.rows * self.columns * self.panel;
                    self.bands.cells(self.rows, self.columns) * (channels + GAP) + gradient
                }
                None => self.bands.scratch(self.rows, self.columns),
            },
        }
    }

    fn parts(&self) -> usize {
        self.row_parts * self.channel_parts * self.panel_parts
    }

    fn part(&self, index: usize) -> Part {
        let share = |n: usize, parts: usize, i: usize| n * i / parts..n * (i + 1) / parts;
        let (block, panel) = (index / self.panel_parts, index % self.panel_parts);
        Part {
            rows: share(self.filter_rows(), self.row_parts, block / self.channel_parts),
            channels: share(self.sizes.in_channels, self.channel_parts, block % self.channel_parts),
            panels: share(self.panels(), self.panel_parts, panel),
        }
    }

    fn run_partials<T: Float>(
        &self,
        pool: &Pool,
        partials: usize,
        x: &[T],
        dy: &[T],
        dfilter: &mut [T],
        into: Into,
        scratch: &mut [T],
    ) {
        let len = dfilter.len();
        let chunks = self.sizes.batch.div_ceil(self.chunk);
        let band_len = self.band_len();
        let (sums, bands) = scratch.split_at_mut(partials * len);
        let bands = SharedSlice::new(bands);
        if into == Into::Overwrite {
            dfilter.fill(T::ZERO);
        }
        for first in (0..chunks).step_by(partials.max(1)) {
            let count = partials.min(chunks - first);
            let out = Target::new(sums);
            let work = self.sizes.flops() / 128 * count / chunks;
            pool.run_sized(count * self.parts(), work, &|task, worker| {
                let (index, part) = (task / self.parts(), self.part(task % self.parts()));
                let from = (first + index) * self.chunk;
                let samples = from..(from + self.chunk).min(self.sizes.batch);
                // SAFETY: tasks of the same worker run one after the other.
                let band = unsafe { bands.slice(worker * band_len, band_len) };
                let out = out.from(index * len);
                self.clear(&part, &out);
                self.add_samples(samples, &part, x, dy, &out, band);
            });
            let (sums, out) = (&sums[..count * len], SharedSlice::new(&mut *dfilter));
            pool.run_sized(len.div_ceil(SUM_LEN), count * len / 4, &|task, _| {
                let range = task * SUM_LEN..((task + 1) * SUM_LEN).min(len);
                // SAFETY: the ranges of tasks do not overlap.
                let out = unsafe { out.slice(range.start, range.len()) };
                for sum in sums.chunks_exact(len) {
                    add(out, &sum[range.clone()]);
                }
            });
        }
    }

    fn run_shared_out<T: Float>(
        &self,
        pool: &Pool,
        x: &[T],
        dy: &[T],
        dfilter: &mut [T],
        into: Into,
        scratch: &mut [T],
    ) {
        let band_len = self.band_len();
        let bands = SharedSlice::new(scratch);
        let out = Target::new(dfilter);
        pool.run_sized(self.parts(), self.sizes.flops() / 128, &|task, worker| {
            let part = self.part(task);
            // SAFETY: tasks of the same worker run one after the other.
            let band = unsafe { bands.slice(worker * band_len, band_len) };
            if into == Into::Overwrite {
                self.clear(&part, &out);
            }
            self.add_samples(0..self.sizes.batch, &part, x, dy, &out, band);
        });
    }

    /// Sets a part of the filter to zero.
    fn clear<T: Float>(&self, part: &Part, out: &Target<T>) {
        let Geometry { in_channels, out_channels, groups, axes, .. } = self.sizes;
        // With groups all channels are one part.
        let group_in = in_channels / groups;
        let channels = part.channels.start..part.channels.end.min(group_in);
        for panel in part.panels.clone() {
            let (channel, width) = self.channels(panel);
            for cell in part.rows.start * axes[2].kernel..part.rows.end * axes[2].kernel {
                for row in channels.clone().map(|i| cell * group_in + i) {
                    // SAFETY: inside the filter, in the part that belongs to this task.
                    (0..width).for_each(|i| unsafe { *out.at(row * out_channels + channel + i) = T::ZERO });
                }
            }
        }
    }

    /// The first channel of a panel, and how many it has.
    fn channels(&self, panel: usize) -> (usize, usize) {
        if self.sizes.is_depthwise() {
            return (0, self.sizes.out_channels);
        }
        let group_out = self.sizes.out_channels / self.sizes.groups;
        let panels = group_out.div_ceil(self.panel);
        let first = panel % panels * self.panel;
        (panel / panels * group_out + first, self.panel.min(group_out - first))
    }

    /// Adds the sums over some samples to a part of the filter, block by block.
    fn add_samples<T: Float>(
        &self,
        samples: Range<usize>,
        part: &Part,
        x: &[T],
        dy: &[T],
        out: &Target<T>,
        band: &mut [T],
    ) {
        if let Some(patches) = &self.patches {
            return self.add_patches(patches, samples, part, x, dy, out, band);
        }
        let [depth, height, width] = self.sizes.axes.map(|axis| axis.output);
        let chunk = self.channels.unwrap_or(self.sizes.in_channels).max(1);
        // What is added up for a few channels stays in the cache while it goes over all pixels.
        for first in part.channels.clone().step_by(chunk) {
            let channels = first..(first + chunk).min(part.channels.end);
            for sample in samples.clone() {
                for depth in 0..depth {
                    for row in (0..height).step_by(self.rows) {
                        for column in (0..width).step_by(self.columns) {
                            let block = Block {
                                sample,
                                depth,
                                rows: row..(row + self.rows).min(height),
                                columns: column..(column + self.columns).min(width),
                            };
                            self.add_block(&block, &channels, part, x, dy, out, band);
                        }
                    }
                }
            }
        }
    }

    /// Adds the sums over some samples to a part of the filter, from patches of a few samples at a time.
    fn add_patches<T: Float>(
        &self,
        patches: &Patches,
        samples: Range<usize>,
        part: &Part,
        x: &[T],
        dy: &[T],
        out: &Target<T>,
        matrix: &mut [T],
    ) {
        let Geometry { in_channels, out_channels, groups, .. } = self.sizes;
        let (group_in, row_of_taps) = (in_channels / groups, self.sizes.axes[2].kernel);
        let (taps, channels) = if groups == 1 { (1, row_of_taps * in_channels) } else { (row_of_taps, group_in) };
        let mut first = samples.start;
        while first < samples.end {
            // Never across the end of a chunk: where the batch was cut must not matter.
            let chunk_end = (first / self.chunk + 1) * self.chunk;
            let end = (first + self.samples).min(chunk_end).min(samples.end);
            let pixels = (end - first) * patches.results();
            let pitch = patches.row_len() + GAP;
            let (matrix, gradient) = matrix.split_at_mut(pixels * pitch);
            for row in part.rows.clone() {
                patches.fill(x, first..end, &(row..row + 1), pitch, matrix);
                for panel in part.panels.clone() {
                    let (channel, width) = self.channels(panel);
                    let first_in = channel / (out_channels / groups) * group_in;
                    let rows = dy[first * patches.results() * out_channels..].chunks_exact(out_channels);
                    for (to, from) in gradient.chunks_exact_mut(width).zip(rows).take(pixels) {
                        to.copy_from_slice(&from[channel..channel + width]);
                    }
                    for tap in 0..taps {
                        let all = Product {
                            a: matrix[tap * in_channels + first_in..].as_ptr(),
                            a_row: 1,
                            a_depth: pitch,
                            b: gradient.as_ptr(),
                            b_depth: width,
                            c: out.at((row * row_of_taps + tap) * group_in * out_channels + channel),
                            c_row: out_channels,
                            rows: channels,
                            columns: width,
                            depth: pixels,
                            loops: [Loop::ONCE; 3],
                            into: Into::Add,
                            ahead: Ahead::NOTHING,
                        };
                        // SAFETY: the matrix and the gradient have a row for every pixel; the filter cells belong to this
                        // task's part.
                        unsafe { product(&all) };
                    }
                }
            }
            first = end;
        }
    }

    /// Adds the sums over a block's pixels to what some channels have of a part of the filter.
    fn add_block<T: Float>(
        &self,
        block: &Block,
        channels: &Range<usize>,
        part: &Part,
        x: &[T],
        dy: &[T],
        out: &Target<T>,
        band: &mut [T],
    ) {
        let [depth_axis, height_axis, width_axis] = self.sizes.axes;
        let out_channels = self.sizes.out_channels;
        let slice = block.sample * depth_axis.output + block.depth;
        let pixel = |row: usize| (slice * height_axis.output + row) * width_axis.output + block.columns.start;
        let Some(chunk) = self.channels else {
            let view = self.bands.view(x, block, band);
            for panel in part.panels.clone() {
                let first = self.channels(panel).0;
                let dy = &dy[pixel(block.rows.start) * out_channels + first..];
                let gradient =
                    Gradient { start: dy.as_ptr(), row: width_axis.output * out_channels, pixel: out_channels };
                part.rows.clone().for_each(|row| self.add_row(block, &view, channels, row, panel, &gradient, out));
            }
            return;
        };
        let (band, gradient) = band.split_at_mut(self.bands.cells(self.rows, self.columns) * (chunk + GAP));
        let view = self.bands.view_of(x, block, channels, chunk + GAP, band);
        for panel in part.panels.clone() {
            let (first, width) = self.channels(panel);
            let mut to = gradient.chunks_exact_mut(width);
            for row in block.rows.clone() {
                let from = dy[pixel(row) * out_channels..].chunks_exact(out_channels).take(block.columns.len());
                for (from, to) in from.zip(&mut to) {
                    to.copy_from_slice(&from[first..first + width]);
                }
            }
            let gradient = Gradient { start: gradient.as_ptr(), row: block.columns.len() * width, pixel: width };
            part.rows.clone().for_each(|row| self.add_row(block, &view, channels, row, panel, &gradient, out));
        }
    }

    /// Adds the sums over a block's pixels to one row of filter cells, in one panel.
    fn add_row<T: Float>(
        &self,
        block: &Block,
        view: &View<T>,
        channels: &Range<usize>,
        filter_row: usize,
        panel: usize,
        gradient: &Gradient<T>,
        out: &Target<T>,
    ) {
        let [_, height_axis, width_axis] = &self.sizes.axes;
        let Geometry { in_channels, out_channels, groups, .. } = self.sizes;
        let (slice_tap, row_tap) = (filter_row / height_axis.kernel, filter_row % height_axis.kernel);
        if !view.slice_taps.contains(&slice_tap) {
            return;
        }
        let slice = slice_tap - view.slice_taps.start;
        let rows = rows_meeting(height_axis, row_tap, &block.rows);
        if rows.is_empty() {
            return;
        }
        let walk = width_axis.walk(Direction::Forward, 0);
        let image_row = (rows.start * height_axis.stride + row_tap * height_axis.dilation - height_axis.pad) as isize
            - view.first_row;
        let column = walk.source(block.columns.start) - view.first_column;
        let a =
            slice as isize * view.slice as isize + image_row * view.row_pitch as isize + column * view.pitch as isize;
        let (a_row, a_pixel) = (height_axis.stride * view.row_pitch, width_axis.stride * view.pitch);
        let b = gradient.start.wrapping_add((rows.start - block.rows.start) * gradient.row);
        let (channel, width) = self.channels(panel);
        if self.sizes.is_depthwise() {
            let sums = FilterSums {
                a: view.start.wrapping_offset(a),
                a_row,
                a_pixel,
                a_tap: width_axis.dilation * view.pitch,
                b,
                b_row: gradient.row,
                b_pixel: gradient.pixel,
                c: out.at(filter_row * width_axis.kernel * out_channels),
                c_tap: out_channels,
                rows: rows.len(),
                pixels: block.columns.len(),
                taps: width_axis.kernel,
                channels: width,
            };
            // SAFETY: the rows lie inside the image by `rows_meeting`, the columns inside it or its copy.
            return unsafe { filter_sums(&sums) };
        }
        let group_in = in_channels / groups;
        // Of all channels the cells of a row stand side by side.
        let merges = width_axis.dilation == 1 && groups == 1 && view.pitch == in_channels;
        let (taps, cells) = match merges {
            true => (1, width_axis.kernel * group_in),
            false => (width_axis.kernel, channels.len().min(group_in)),
        };
        let first_in = channel / (out_channels / groups) * group_in;
        for tap in 0..taps {
            let cell = (filter_row * width_axis.kernel + tap) * group_in + channels.start;
            let all = Product {
                a: view.start.wrapping_offset(a + (tap * width_axis.dilation * view.pitch + first_in) as isize),
                a_row: 1,
                a_depth: a_pixel,
                b,
                b_depth: gradient.pixel,
                c: out.at(cell * out_channels + channel),
                c_row: out_channels,
                rows: cells,
                columns: width,
                depth: block.columns.len(),
                loops: [
                    Loop::ONCE,
                    Loop::ONCE,
                    Loop { count: rows.len(), a: a_row as isize, b: gradient.row as isize },
                ],
                into: Into::Add,
                ahead: Ahead::NOTHING,
            };
            // SAFETY: as above; the filter cells belong to this task's part.
            unsafe { product(&all) };
        }
    }
}

/// The output rows of a range that see a row of the image through the filter's row `tap`.
fn rows_meeting(axis: &Axis, tap: usize, rows: &Range<usize>) -> Range<usize> {
    let reach = tap * axis.dilation;
    let first = axis.pad.saturating_sub(reach).div_ceil(axis.stride);
    let end = (axis.input + axis.pad).saturating_sub(reach).div_ceil(axis.stride);
    first.max(rows.start)..end.min(rows.end)
}

crate::simd! {
    fn add[T: Float](to: &mut [T], from: &[T]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }
}
