//! The forward pass and the input gradient: results that gather their terms from a source image.
//!
//! Results are cut into blocks of rows by the sizes alone; a task computes a block of a few samples. Every panel
//! of result channels goes over the block's rows, each row of a phase with one [`product`]. A filter that does not fit the cache is
//! read for as many results at once as a larger band allows; where that leaves few blocks, its panels are shared out, too.

use super::band::{Bands, Block, GAP, View};
use super::depthwise::{self, Channelwise};
use super::dots::dots;
use super::panels::{Layout, Panel, Panels};
use super::patches::{PATCHES_LEN, Patches};
use super::tile::{Ahead, Loop, Product, Target, product};
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

/// Filters above this many elements are worth reading for so many results at once, whose band may be so large.
const LARGE_FILTER: usize = 128 * 1024;
const LARGE_RESULTS: usize = 192;
const LARGE_BAND_LEN: usize = 256 * 1024;

/// A gather with its way of cutting the results into blocks.
struct Gather {
    sizes: Geometry,
    direction: Direction,
    bands: Bands,
    filter: Panels,
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

impl Gather {
    fn new<T: Float>(sizes: &Geometry, direction: Direction) -> Gather {
        let mut sizes = *sizes;
        if sizes.is_pointwise() {
            // Pixels that see themselves alone may as well stand in one row.
            let pixels = sizes.batch * sizes.outputs();
            let row = Axis { input: pixels, output: pixels, ..Axis::POINT };
            sizes = Geometry { batch: 1, axes: [Axis::POINT, Axis::POINT, row], ..sizes };
        }
        let mut gather = Gather {
            sizes,
            direction,
            bands: Bands::new(&sizes, direction).apart(),
            filter: Panels::new::<T>(&sizes, direction),
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
        self.panel_parts = TASKS.div_ceil(batch.div_ceil(self.samples)).min(self.filter.count()).max(1);
    }

    /// Blocks of about [`TASK_FLOPS`] whose source fits [`BAND_LEN`], where the sizes allow.
    fn choose_block(&mut self) {
        let [_, height, width] = self.results().map(|n| n.max(1));
        let flops = |results: usize| {
            (self.sizes.flops() / self.sizes.batch.max(1)) * results / self.results().iter().product::<usize>().max(1)
        };
        let is_large = self.sizes.filter_len() > LARGE_FILTER;
        let band_len = if is_large { LARGE_BAND_LEN } else { BAND_LEN };
        let fits = |rows, columns| self.bands.len(rows, columns) <= band_len;
        let mut columns = width;
        // A segment of a row is as long as a few tiles at least, and longer where it has to be worth reading the filter.
        let shortest = if is_large { LARGE_RESULTS } else { 96 };
        while columns > shortest && (flops(columns) > 2 * TASK_FLOPS || !fits(1, columns)) {
            columns = columns.div_ceil(2).next_multiple_of(12);
        }
        let mut rows = (TASK_FLOPS / flops(columns).max(1)).clamp(1, height);
        if is_large {
            rows = rows.max(LARGE_RESULTS.div_ceil(columns)).min(height);
        }
        while rows > 1 && !fits(rows, columns) {
            rows -= 1;
        }
        // Blocks of nearly equal height.
        rows = height.div_ceil(height.div_ceil(rows));
        let mut samples = 1;
        if rows == height && columns == width {
            samples = TASK_FLOPS / flops(rows * columns).max(1);
        }
        if is_large {
            samples = samples.max(LARGE_RESULTS.div_ceil(rows * columns));
        }
        samples = samples.min(band_len / self.bands.len(rows, columns).max(1)).clamp(1, self.sizes.batch.max(1));
        (self.samples, self.rows, self.columns) = (samples, rows, columns);
        if is_large {
            let tasks = self.sizes.batch.div_ceil(samples) * self.blocks().iter().product::<usize>();
            self.panel_parts = TASKS.div_ceil(tasks.max(1)).min(self.filter.count()).max(1);
        }
    }

    /// Blocks of one sample along its axes.
    fn blocks(&self) -> [usize; 3] {
        let [depth, height, width] = self.results();
        [depth, height.div_ceil(self.rows), width.div_ceil(self.columns)]
    }

    fn results(&self) -> [usize; 3] {
        self.sizes.axes.map(|axis| axis.results(self.direction))
    }

    fn source_channels(&self) -> usize {
        self.filter.source_group * self.sizes.groups
    }

    fn result_channels(&self) -> usize {
        self.filter.result_group * self.sizes.groups
    }

    /// Elements of scratch for one thread's bands or patches.
    fn bands_len(&self) -> usize {
        if let Some(patches) = &self.patches {
            return self.samples * patches.results() * (self.tap_rows * patches.row_len() + GAP);
        }
        self.samples * self.bands.scratch(self.rows, self.columns)
    }

    fn scratch(&self, threads: usize) -> usize {
        self.filter.scratch() + threads * self.bands_len()
    }

    fn run<T: Float>(&self, pool: &Pool, source: &[T], filter: &[T], result: &mut [T], scratch: &mut [T]) {
        if result.is_empty() {
            return;
        }
        if source.is_empty() || filter.is_empty() {
            return result.fill(T::ZERO);
        }
        let [_, height, width] = self.results();
        let (packed, bands) = scratch.split_at_mut(self.filter.scratch());
        let filter = self.filter.pack(pool, filter, packed);
        let (bands, result) = (SharedSlice::new(bands), Target::new(result));
        let parts = self.panel_parts;
        let panels = |part: usize| self.filter.count() * part / parts..self.filter.count() * (part + 1) / parts;
        let [depth, row_blocks, column_blocks] = if self.patches.is_some() { [1; 3] } else { self.blocks() };
        let tasks = self.sizes.batch.div_ceil(self.samples) * depth * row_blocks * column_blocks * parts;
        pool.run_sized(tasks, self.sizes.flops() / 128, &|task, worker| {
            let (task, panels) = (task / parts, panels(task % parts));
            let (task, column) = (task / column_blocks, task % column_blocks * self.columns);
            let (task, row) = (task / row_blocks, task % row_blocks * self.rows);
            let sample = task / depth * self.samples;
            let samples = sample..(sample + self.samples).min(self.sizes.batch);
            // SAFETY: tasks of the same worker run one after the other.
            let band = unsafe { bands.slice(worker * self.bands_len(), self.bands_len()) };
            if let Some(patches) = &self.patches {
                return self.compute_patches(patches, samples, panels, source, filter, &result, band);
            }
            let block = Block {
                sample,
                depth: task % depth,
                rows: row..(row + self.rows).min(height),
                columns: column..(column + self.columns).min(width),
            };
            let ahead = self.ahead(&block, source, pool.threads());
            self.compute(block, samples, panels, source, filter, &result, band, ahead);
        });
    }

    /// What this thread will probably read next: the source of the task that is as many tasks away as there are threads.
    ///
    /// The copy of a band waits for memory as long as an eighth of the sums take, if nobody fetched it.
    fn ahead<T>(&self, block: &Block, source: &[T], threads: usize) -> Ahead<T> {
        let [depth, height, width] = self.sizes.axes.map(|axis| axis.sources(self.direction));
        let row = width * self.source_channels();
        let results = self.results();
        if depth > 1 || self.columns < results[2] || self.panel_parts > 1 {
            return Ahead::NOTHING;
        }
        let source_row = |row: usize| row * height / results[1];
        let start = (block.sample * height + source_row(block.rows.start)) * row;
        let len = match self.samples {
            1 => source_row(self.rows) * row,
            samples => samples * height * row,
        };
        let start = start + threads * len;
        Ahead { start: source.as_ptr().wrapping_add(start), len: len.min(source.len().saturating_sub(start)) }
    }

    /// Computes some panels of channels for a block of some samples.
    fn compute<T: Float>(
        &self,
        mut block: Block,
        samples: Range<usize>,
        panels: Range<usize>,
        source: &[T],
        filter: &[T],
        result: &Target<T>,
        band: &mut [T],
        ahead: Ahead<T>,
    ) {
        const AT_ONCE: usize = 16;
        let len = self.bands.scratch(self.rows, self.columns);
        let Range { start, end } = samples;
        while block.sample < end {
            let samples = AT_ONCE.min(end - block.sample);
            let first = block.sample;
            let views: [Option<View<T>>; AT_ONCE] = std::array::from_fn(|i| {
                block.sample = first + i;
                (i < samples).then(|| self.bands.view(source, &block, &mut band[i * len..][..len]))
            });
            for index in panels.clone() {
                let panel = self.filter.get(filter, index);
                for (i, view) in views.iter().flatten().enumerate() {
                    block.sample = first + i;
                    let ahead = if index == panels.start {
                        ahead.part(block.sample - start, end - start)
                    } else {
                        Ahead::NOTHING
                    };
                    self.panel_of_block(&block, view, &panel, result, ahead);
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
            let taps = tap_rows.len() * row_of_taps;
            let pitch = taps * source_channels + GAP;
            patches.fill(source, samples.clone(), &tap_rows, pitch, matrix);
            for panel in panels.clone().map(|i| self.filter.get(filter, i)) {
                let merges = self.sizes.groups == 1;
                let all = Product {
                    a: matrix[panel.channel / self.filter.result_group * self.filter.source_group..].as_ptr(),
                    a_row: pitch,
                    a_depth: 1,
                    b: panel.start.wrapping_add(first * row_of_taps * panel.tap),
                    b_depth: panel.row,
                    c: result.at(samples.start * patches.results() * result_channels + panel.channel),
                    c_row: result_channels,
                    rows: samples.len() * patches.results(),
                    columns: panel.width,
                    depth: self.filter.source_group * if merges { taps } else { 1 },
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
                    ahead: Ahead::NOTHING,
                };
                // SAFETY: the matrix has a row for every result, which belongs to this task; the panel has the taps.
                unsafe { product(&all) };
            }
        }
    }

    /// The walk of one phase of an axis, with the kernel's cells in the order of the filter as it is read.
    fn walk(&self, axis: &Axis, phase: usize) -> Walk {
        let walk = axis.walk(self.direction, phase);
        match self.filter.is_reversed() {
            true => Walk { kernel: axis.kernel - 1 - walk.kernel, kernel_step: -walk.kernel_step, ..walk },
            false => walk,
        }
    }

    /// Computes the channels of one panel for one sample of a block.
    fn panel_of_block<T: Float>(
        &self,
        block: &Block,
        view: &View<T>,
        panel: &Panel<T>,
        result: &Target<T>,
        ahead: Ahead<T>,
    ) {
        let [depth_axis, height_axis, width_axis] = &self.sizes.axes;
        let [depth, height, width] = self.results();
        let (source_channels, result_channels) = (self.source_channels(), self.result_channels());
        let first_source = panel.channel / self.filter.result_group * self.filter.source_group;
        let layout = self.filter.layout;
        let tap = panel.tap as isize;
        let (tap_row, tap_slice) =
            (width_axis.kernel as isize * tap, (height_axis.kernel * width_axis.kernel) as isize * tap);
        let through = self.walk(depth_axis, block.depth % depth_axis.phases(self.direction));
        for phase in 0..width_axis.phases(self.direction) {
            let across = self.walk(width_axis, phase);
            let numbers = across.within(&block.columns);
            let (kernel, kernel_step) = (across.kernel as isize, across.kernel_step);
            // Neighbouring taps that meet neighbouring cells make one longer sum.
            let merges = kernel_step == 1
                && view.pitch == source_channels
                && across.tap_step == 1
                && self.sizes.groups == 1
                && layout != Layout::Depthwise
                && across.taps > 0;
            let across_taps = match merges {
                true => Loop::ONCE,
                false => Loop { count: across.taps, a: (across.tap_step * view.pitch) as isize, b: kernel_step * tap },
            };
            let column = across.source(numbers.start) - view.first_column;
            for row_phase in 0..height_axis.phases(self.direction) {
                let down = self.walk(height_axis, row_phase);
                for number in down.within(&block.rows) {
                    let taps = down.taps_inside(number, height_axis.sources(self.direction));
                    let source_row = down.source(number) + (taps.start * down.tap_step) as isize - view.first_row;
                    let row = down.first + number * down.step;
                    let pixel = ((block.sample * depth + block.depth) * height + row) * width
                        + across.first
                        + numbers.start * across.step;
                    let a = source_row * view.row_pitch as isize + column * view.pitch as isize + first_source as isize;
                    let b = through.kernel(view.slice_taps.start) * tap_slice
                        + down.kernel(taps.start) * tap_row
                        + kernel * tap;
                    let all = Product {
                        a: view.start.wrapping_offset(a),
                        a_row: across.source_step * view.pitch,
                        a_depth: 1,
                        b: panel.start.wrapping_offset(b),
                        b_depth: panel.row,
                        c: result.at(pixel * result_channels + panel.channel),
                        c_row: across.step * result_channels,
                        rows: numbers.len(),
                        columns: panel.width,
                        depth: self.filter.source_group * if merges { across.taps } else { 1 },
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
                        ahead: if phase == 0 {
                            ahead.part(row - block.rows.start, block.rows.len())
                        } else {
                            Ahead::NOTHING
                        },
                    };
                    // SAFETY: the slices and rows lie inside the source by `taps_inside`, the columns inside it or its
                    // copy by `span`; the results belong to this block.
                    unsafe {
                        match layout {
                            Layout::Depthwise => depthwise::gather(&Channelwise::from(all)),
                            Layout::Transposed => dots(&all),
                            Layout::InPlace | Layout::Packed => product(&all),
                        }
                    }
                }
            }
        }
    }
}
