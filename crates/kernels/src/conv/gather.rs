//! The forward pass and the input gradient: results that gather their terms from a source image.
//!
//! Results are cut into blocks of rows by the sizes alone; a task computes a block of a few samples. Every panel
//! of result channels goes over the block's rows, each row of a phase with one [`product`].

use super::band::{Bands, Block, View};
use super::depthwise::{self, Channelwise};
use super::patches::{PATCHES_LEN, Patches};
use super::tile::{Loop, Product, Target, panel, product};
use super::walk::{Direction, Walk};
use super::{Axis, Geometry};
use crate::gemm::Into;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use std::ops::Range;

/// The convolution `y` of the image `x` with the filter.
///
/// `scratch` has at least [`forward_scratch`] elements.
///
/// # Panics
/// When a length does not agree with the sizes.
pub fn forward<T: Float>(pool: &Pool, sizes: &Geometry, x: &[T], filter: &[T], y: &mut [T], scratch: &mut [T]) {
    sizes.check(x.len(), filter.len(), y.len());
    Gather::new::<T>(sizes, Direction::Forward).run(pool, x, filter, y, scratch);
}

/// Elements of scratch that [`forward`] needs.
pub fn forward_scratch<T: Float>(sizes: &Geometry, threads: usize) -> usize {
    Gather::new::<T>(sizes, Direction::Forward).scratch(threads)
}

/// The gradient `dx` with respect to the image, from the output's gradient `dy`; also the transposed
/// convolution of `dy`.
///
/// `scratch` has at least [`grad_input_scratch`] elements.
///
/// # Panics
/// When a length does not agree with the sizes.
pub fn grad_input<T: Float>(pool: &Pool, sizes: &Geometry, filter: &[T], dy: &[T], dx: &mut [T], scratch: &mut [T]) {
    sizes.check(dx.len(), filter.len(), dy.len());
    Gather::new::<T>(sizes, Direction::Backward).run(pool, dy, filter, dx, scratch);
}

/// Elements of scratch that [`grad_input`] needs.
pub fn grad_input_scratch<T: Float>(sizes: &Geometry, threads: usize) -> usize {
    Gather::new::<T>(sizes, Direction::Backward).scratch(threads)
}

/// Floating-point operations worth a task of their own: some tens of microseconds.
const TASK_FLOPS: usize = 6_000_000;

/// Elements of the largest band that still shares the second-level cache with a panel of the filter.
const BAND_LEN: usize = 96 * 1024;

/// Patches whose products share the reading of the filter.
const PATCH_ROWS: usize = 128;

/// As many tasks as keep a few threads evenly busy.
const TASKS: usize = 8;

/// Filters above this many elements are worth reading for many results at once.
const LARGE_FILTER: usize = 128 * 1024;

/// A gather with its way of cutting the results into blocks.
struct Gather {
    sizes: Geometry,
    direction: Direction,
    bands: Bands,
    /// Channels of source and result in one group.
    source_group: usize,
    result_group: usize,
    /// Result channels computed together.
    panel: usize,
    /// Whether the filter is rearranged into panels first.
    packs_filter: bool,
    /// Samples of a task, rows and columns of a block.
    samples: usize,
    rows: usize,
    columns: usize,
    /// Small images are computed from their patches instead of blocks: so many rows of filter cells at a time, with the panels
    /// shared out in so many parts.
    patches: Option<Patches>,
    tap_rows: usize,
    panel_parts: usize,
}

/// A panel of the filter: elements from one tap to the next and from one source channel to the next.
struct Panel<T> {
    start: *const T,
    tap: usize,
    row: usize,
    /// Its first result channel, and how many it has.
    channel: usize,
    width: usize,
}

impl Gather {
    fn new<T: Float>(sizes: &Geometry, direction: Direction) -> Gather {
        let mut sizes = *sizes;
        if sizes.is_pointwise() {
            // Pixels that see themselves alone may as well stand in one row.
            let pixels = sizes.batch * sizes.outputs();
            let row = Axis { input: pixels, output: pixels, ..Axis::POINT };
            sizes = Geometry { batch: 1, axes: [Axis::POINT, Axis::POINT, row], ..sizes };
        }
        let (group_in, group_out) = (sizes.in_channels / sizes.groups, sizes.out_channels / sizes.groups);
        let (source_group, result_group) = match direction {
            Direction::Forward => (group_in, group_out),
            Direction::Backward => (group_out, group_in),
        };
        let panel = panel::<T>();
        // A narrow filter already is a panel; rows wider than that would leave gaps that cost half the rate.
        let needs_packing = direction == Direction::Backward || sizes.out_channels > panel;
        let mut gather = Gather {
            bands: Bands::new(&sizes, direction),
            packs_filter: needs_packing && !sizes.is_depthwise(),
            sizes,
            direction,
            source_group,
            result_group,
            panel,
            samples: 1,
            rows: 1,
            columns: 1,
            patches: Patches::new(&sizes, direction),
            tap_rows: 1,
            panel_parts: 1,
        };
        match gather.patches {
            Some(patches) => gather.choose_patches(&patches),
            None => gather.choose_block(),
        }
        gather
    }

    /// Matrices of about [`PATCH_ROWS`] patches that fit the cache.
    fn choose_patches(&mut self, patches: &Patches) {
        let batch = self.sizes.batch.max(1);
        let samples = PATCH_ROWS.div_ceil(patches.results().max(1));
        // The sum is cut here, so the size of the batch must have no say in it.
        let row_len = samples * patches.results() * patches.row_len();
        self.tap_rows = (PATCHES_LEN / row_len.max(1)).clamp(1, patches.tap_rows());
        self.samples = samples.min(batch);
        self.panel_parts = TASKS.div_ceil(batch.div_ceil(self.samples)).min(self.panels()).max(1);
    }

    /// Blocks of about [`TASK_FLOPS`] whose source fits [`BAND_LEN`], where the sizes allow.
    fn choose_block(&mut self) {
        let [_, height, width] = self.results().map(|n| n.max(1));
        let flops = |results: usize| {
            (self.sizes.flops() / self.sizes.batch.max(1)) * results / self.results().iter().product::<usize>().max(1)
        };
        let fits = |rows, columns| self.bands.len(rows, columns) <= BAND_LEN;
        let mut columns = width;
        // A segment of a row is as long as a few tiles at least.
        while columns > 96 && (flops(columns) > 2 * TASK_FLOPS || !fits(1, columns)) {
            columns = columns.div_ceil(2).next_multiple_of(12);
        }
        let mut rows = (TASK_FLOPS / flops(columns).max(1)).clamp(1, height);
        while rows > 1 && !fits(rows, columns) {
            rows = rows.div_ceil(2);
        }
        // Blocks of nearly equal height.
        rows = height.div_ceil(height.div_ceil(rows));
        let mut samples = 1;
        if rows == height && columns == width {
            samples = TASK_FLOPS / flops(rows * columns).max(1);
        }
        if self.sizes.filter_len() > LARGE_FILTER {
            samples = samples.max(128usize.div_ceil(rows * columns));
        }
        samples = samples.min(BAND_LEN / self.bands.len(rows, columns).max(1)).clamp(1, self.sizes.batch.max(1));
        (self.samples, self.rows, self.columns) = (samples, rows, columns);
    }

    fn results(&self) -> [usize; 3] {
        self.sizes.axes.map(|axis| axis.results(self.direction))
    }

    fn source_channels(&self) -> usize {
        self.source_group * self.sizes.groups
    }

    fn result_channels(&self) -> usize {
        self.result_group * self.sizes.groups
    }

    fn packed_len(&self) -> usize {
        if self.packs_filter { self.sizes.filter_len() } else { 0 }
    }

    /// Elements of scratch for one thread's bands or patches.
    fn bands_len(&self) -> usize {
        if let Some(patches) = &self.patches {
            return self.samples * patches.results() * self.tap_rows * patches.row_len();
        }
        self.samples * self.bands.scratch(self.rows, self.columns)
    }

    fn scratch(&self, threads: usize) -> usize {
        self.packed_len() + threads * self.bands_len()
    }

    fn run<T: Float>(&self, pool: &Pool, source: &[T], filter: &[T], result: &mut [T], scratch: &mut [T]) {
        if result.is_empty() {
            return;
        }
        if source.is_empty() || filter.is_empty() {
            return result.fill(T::ZERO);
        }
        let [depth, height, width] = self.results();
        let (packed, bands) = scratch.split_at_mut(self.packed_len());
        let filter = if self.packs_filter { self.pack(pool, filter, packed) } else { filter };
        let (bands, result) = (SharedSlice::new(bands), Target::new(result));
        if let Some(patches) = &self.patches {
            let tasks = self.sizes.batch.div_ceil(self.samples) * self.panel_parts;
            return pool.run_sized(tasks, self.sizes.flops() / 128, &|task, worker| {
                // SAFETY: tasks of the same worker run one after the other.
                let matrix = unsafe { bands.slice(worker * self.bands_len(), self.bands_len()) };
                let (first, part) = (task / self.panel_parts * self.samples, task % self.panel_parts);
                let samples = first..(first + self.samples).min(self.sizes.batch);
                let share = |i: usize| self.panels() * i / self.panel_parts;
                self.compute_patches(patches, samples, share(part)..share(part + 1), source, filter, &result, matrix);
            });
        }
        let (row_blocks, column_blocks) = (height.div_ceil(self.rows), width.div_ceil(self.columns));
        let tasks = self.sizes.batch.div_ceil(self.samples) * depth * row_blocks * column_blocks;
        pool.run_sized(tasks, self.sizes.flops() / 128, &|task, worker| {
            let (task, column) = (task / column_blocks, task % column_blocks * self.columns);
            let (task, row) = (task / row_blocks, task % row_blocks * self.rows);
            let block = Block {
                sample: task / depth * self.samples,
                depth: task % depth,
                rows: row..(row + self.rows).min(height),
                columns: column..(column + self.columns).min(width),
            };
            // SAFETY: tasks of the same worker run one after the other.
            let band = unsafe { bands.slice(worker * self.bands_len(), self.bands_len()) };
            self.compute(block, source, filter, &result, band);
        });
    }

    /// Computes a block of as many samples as a task has, beginning with the block's own.
    fn compute<T: Float>(&self, mut block: Block, source: &[T], filter: &[T], result: &Target<T>, band: &mut [T]) {
        const AT_ONCE: usize = 16;
        let len = self.bands.scratch(self.rows, self.columns);
        let end = (block.sample + self.samples).min(self.sizes.batch);
        while block.sample < end {
            let samples = AT_ONCE.min(end - block.sample);
            let first = block.sample;
            let views: [Option<View<T>>; AT_ONCE] = std::array::from_fn(|i| {
                block.sample = first + i;
                (i < samples).then(|| self.bands.view(source, &block, &mut band[i * len..][..len]))
            });
            for panel in (0..self.panels()).map(|i| self.panel(filter, i)) {
                for (i, view) in views.iter().flatten().enumerate() {
                    block.sample = first + i;
                    self.panel_of_block(&block, view, &panel, result);
                }
            }
            block.sample = first + samples;
        }
    }

    /// Computes some panels of channels for some samples from their patches.
    fn compute_patches<T: Float>(
        &self,
        patches: &Patches,
        samples: Range<usize>,
        panels: Range<usize>,
        source: &[T],
        filter: &[T],
        result: &Target<T>,
        matrix: &mut [T],
    ) {
        let (row_of_taps, source_channels) = (self.sizes.axes[2].kernel, self.source_channels());
        let result_channels = self.result_channels();
        for first in (0..patches.tap_rows()).step_by(self.tap_rows) {
            let tap_rows = first..(first + self.tap_rows).min(patches.tap_rows());
            patches.fill(source, samples.clone(), &tap_rows, matrix);
            let taps = tap_rows.len() * row_of_taps;
            for panel in panels.clone().map(|i| self.panel(filter, i)) {
                let merges = self.sizes.groups == 1;
                let all = Product {
                    a: matrix[panel.channel / self.result_group * self.source_group..].as_ptr(),
                    a_row: taps * source_channels,
                    a_depth: 1,
                    b: panel.start.wrapping_add(first * row_of_taps * panel.tap),
                    b_depth: panel.row,
                    c: result.at(samples.start * patches.results() * result_channels + panel.channel),
                    c_row: result_channels,
                    rows: samples.len() * patches.results(),
                    columns: panel.width,
                    depth: self.source_group * if merges { taps } else { 1 },
                    loops: [
                        Loop::ONCE,
                        Loop::ONCE,
                        Loop {
                            count: if merges { 1 } else { taps },
                            a: source_channels as isize,
                            b: panel.tap as isize,
                        },
                    ],
                    into: if first == 0 { Into::Overwrite } else { Into::Add },
                };
                // SAFETY: the matrix has a row for every result, which belongs to this task; the panel has the taps.
                unsafe { product(&all) };
            }
        }
    }

    /// Panels of result channels in all groups.
    fn panels(&self) -> usize {
        match self.sizes.is_depthwise() {
            true => 1,
            false => self.sizes.groups * self.result_group.div_ceil(self.panel),
        }
    }

    /// A panel of the filter.
    fn panel<T>(&self, filter: &[T], index: usize) -> Panel<T> {
        if self.sizes.is_depthwise() {
            let width = self.sizes.out_channels;
            return Panel { start: filter.as_ptr(), tap: width, row: width, channel: 0, width };
        }
        let panels = self.result_group.div_ceil(self.panel);
        let first = index % panels * self.panel;
        let width = self.panel.min(self.result_group - first);
        let channel = index / panels * self.result_group + first;
        let (start, row) = match self.packs_filter {
            true => (channel * self.sizes.taps() * self.source_group, width),
            false => (channel, self.sizes.out_channels),
        };
        Panel { start: filter[start..].as_ptr(), tap: self.source_group * row, row, channel, width }
    }

    /// The walk of one phase of an axis, with the kernel's cells in the order of the filter as it is read.
    fn walk(&self, axis: &Axis, phase: usize) -> Walk {
        let walk = axis.walk(self.direction, phase);
        match self.direction == Direction::Backward && self.packs_filter {
            true => Walk { kernel: axis.kernel - 1 - walk.kernel, kernel_step: -walk.kernel_step, ..walk },
            false => walk,
        }
    }

    /// Computes the channels of one panel for one sample of a block.
    fn panel_of_block<T: Float>(&self, block: &Block, view: &View<T>, panel: &Panel<T>, result: &Target<T>) {
        let [depth_axis, height_axis, width_axis] = &self.sizes.axes;
        let [depth, height, width] = self.results();
        let (source_channels, result_channels) = (self.source_channels(), self.result_channels());
        let first_source = panel.channel / self.result_group * self.source_group;
        let is_depthwise = self.sizes.is_depthwise();
        let tap = panel.tap as isize;
        let (tap_row, tap_slice) =
            (width_axis.kernel as isize * tap, (height_axis.kernel * width_axis.kernel) as isize * tap);
        let through = self.walk(depth_axis, block.depth % depth_axis.phases(self.direction));
        for phase in 0..width_axis.phases(self.direction) {
            let across = self.walk(width_axis, phase);
            let numbers = across.within(&block.columns);
            let (kernel, kernel_step) = (across.kernel as isize, across.kernel_step);
            // Neighbouring taps that meet neighbouring cells make one longer sum.
            let merges =
                kernel_step == 1 && across.tap_step == 1 && self.sizes.groups == 1 && !is_depthwise && across.taps > 0;
            let across_taps = match merges {
                true => Loop::ONCE,
                false => {
                    Loop { count: across.taps, a: (across.tap_step * source_channels) as isize, b: kernel_step * tap }
                }
            };
            let column = across.source(numbers.start) - view.first_column;
            for phase in 0..height_axis.phases(self.direction) {
                let down = self.walk(height_axis, phase);
                for number in down.within(&block.rows) {
                    let taps = down.taps_inside(number, height_axis.sources(self.direction));
                    let source_row = down.source(number) + (taps.start * down.tap_step) as isize - view.first_row;
                    let row = down.first + number * down.step;
                    let pixel = ((block.sample * depth + block.depth) * height + row) * width
                        + across.first
                        + numbers.start * across.step;
                    let a = source_row * view.row_pitch as isize
                        + column * source_channels as isize
                        + first_source as isize;
                    let b = through.kernel(view.slice_taps.start) * tap_slice
                        + down.kernel(taps.start) * tap_row
                        + kernel as isize * tap;
                    let all = Product {
                        a: view.start.wrapping_offset(a),
                        a_row: across.source_step * source_channels,
                        a_depth: 1,
                        b: panel.start.wrapping_offset(b),
                        b_depth: panel.row,
                        c: result.at(pixel * result_channels + panel.channel),
                        c_row: across.step * result_channels,
                        rows: numbers.len(),
                        columns: panel.width,
                        depth: self.source_group * if merges { across.taps } else { 1 },
                        loops: [
                            Loop {
                                count: view.slice_taps.len(),
                                a: view.slice as isize,
                                b: through.kernel_step * tap_slice,
                            },
                            Loop {
                                count: taps.len(),
                                a: (down.tap_step * view.row_pitch) as isize,
                                b: down.kernel_step * tap_row,
                            },
                            across_taps,
                        ],
                        into: Into::Overwrite,
                    };
                    // SAFETY: the slices and rows lie inside the source by `taps_inside`, the columns inside it or its
                    // copy by `span`; the results belong to this block.
                    unsafe {
                        if is_depthwise {
                            depthwise::gather(&Channelwise::from(all));
                        } else {
                            product(&all);
                        }
                    }
                }
            }
        }
    }

    /// Rearranges the filter into panels `[panel][tap][source channel][result channel]`; backward, the taps are
    /// reversed, so that ascending taps meet ascending cells.
    fn pack<'a, T: Float>(&self, pool: &Pool, filter: &[T], packed: &'a mut [T]) -> &'a [T] {
        let panels = self.result_group.div_ceil(self.panel);
        let taps = self.sizes.taps();
        let out = SharedSlice::new(packed);
        pool.run_sized(self.sizes.groups * panels * taps, filter.len(), &|task, _| {
            let (task, tap) = (task / taps, task % taps);
            let (group, first) = (task / panels, task % panels * self.panel);
            let width = self.panel.min(self.result_group - first);
            let size = self.source_group * width;
            let channel = group * self.result_group + first;
            // SAFETY: panels and taps do not overlap.
            let to = unsafe { out.slice(channel * taps * self.source_group + tap * size, size) };
            match self.direction {
                Direction::Forward => {
                    let from = &filter[tap * self.source_group * self.sizes.out_channels + channel..];
                    for (from, to) in from.chunks(self.sizes.out_channels).zip(to.chunks_exact_mut(width)) {
                        to.copy_from_slice(&from[..width]);
                    }
                }
                Direction::Backward => {
                    let tap = taps - 1 - tap;
                    let from = &filter
                        [(tap * self.result_group + first) * self.sizes.out_channels + group * self.source_group..];
                    transpose(from, self.sizes.out_channels, to, width);
                }
            }
        });
        packed
    }
}

/// `to[j, i] = from[i, j]`, where `to` has `width` columns and the rows of `from` are `pitch` apart.
fn transpose<T: Copy>(from: &[T], pitch: usize, to: &mut [T], width: usize) {
    for (j, to) in to.chunks_exact_mut(width).enumerate() {
        for (i, to) in to.iter_mut().enumerate() {
            *to = from[i * pitch + j];
        }
    }
}
