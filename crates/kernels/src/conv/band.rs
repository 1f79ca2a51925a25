//! Bands: the part of a source image that a block of results reads, with its margin.
//!
//! Above, below, before and behind the image, taps that miss it are left out of the sums. To the left and right
//! that would make every result of a row a case of its own, so there the rows are copied between zeros. An image
//! without such a margin is read where it lies.

use super::walk::{Direction, span};
use super::{Axis, Geometry};
use crate::math::Float;
use std::ops::Range;

/// Elements left free between columns or rows of a copy: a whole number of pages from one to the next would put them all into a few
/// sets of the first-level cache. Columns of a multiple of so many channels have it.
pub(super) const GAP: usize = 16;
const ALIGNED: usize = 256;

/// How the sources of a convolution's results are read.
#[derive(Clone, Copy)]
pub(super) struct Bands {
    axes: [Axis; 3],
    direction: Direction,
    channels: usize,
    /// Elements from one column of a copy to the next.
    pitch: usize,
    has_margin: bool,
}

/// The results of one sample that are computed together: one slice in depth, some rows and columns.
pub(super) struct Block {
    pub sample: usize,
    pub depth: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

/// Where a block's source cells lie.
///
/// The cell at `row` and `column` that the block's results see through depth tap `slice_taps.start + m` stands at
/// `m * slice + (row - first_row) * row_pitch + (column - first_column) * pitch`.
pub(super) struct View<T> {
    pub start: *const T,
    pub slice: usize,
    pub row_pitch: usize,
    pub pitch: usize,
    pub first_row: isize,
    pub first_column: isize,
    pub slice_taps: Range<usize>,
}

impl Bands {
    pub fn new(sizes: &Geometry, direction: Direction) -> Bands {
        let width = &sizes.axes[2];
        let span = span(width, direction, &(0..width.results(direction)));
        let has_margin = span.start < 0 || span.end > width.sources(direction) as isize;
        let channels = match direction {
            Direction::Forward => sizes.in_channels,
            Direction::Backward => sizes.out_channels,
        };
        Bands { axes: sizes.axes, direction, channels, pitch: channels, has_margin }
    }

    /// The same, with a gap between columns of copies where they would drive each other out of the cache.
    pub fn apart(self) -> Bands {
        let gap = if self.channels.is_multiple_of(ALIGNED) { GAP } else { 0 };
        Bands { pitch: self.channels + gap, ..self }
    }

    /// Cells that a block of so many rows and columns reads, with its margin.
    pub fn cells(&self, rows: usize, columns: usize) -> usize {
        let [depth, height, width] = self.axes;
        let rows = height.window(self.direction, rows).min(height.sources(self.direction));
        depth.kernel * rows * width.window(self.direction, columns)
    }

    /// Elements of these.
    pub fn len(&self, rows: usize, columns: usize) -> usize {
        self.cells(rows, columns) * self.pitch
    }

    /// Elements of scratch for [`Bands::view`] of such a block: none if there is no margin to add.
    pub fn scratch(&self, rows: usize, columns: usize) -> usize {
        if self.has_margin { self.len(rows, columns) } else { 0 }
    }

    /// What a block reads, copied to `scratch` if there is a margin.
    pub fn view<T: Float>(&self, source: &[T], block: &Block, scratch: &mut [T]) -> View<T> {
        let pitch = if self.has_margin { self.pitch } else { self.channels };
        self.view_of(source, block, &(0..self.channels), pitch, scratch)
    }

    /// What a block reads of some channels, `pitch` elements from one column to the next; copied to `scratch` unless it is all there is and without a
    /// margin.
    pub fn view_of<T: Float>(
        &self,
        source: &[T],
        block: &Block,
        channels: &Range<usize>,
        pitch: usize,
        scratch: &mut [T],
    ) -> View<T> {
        let [depth, height, width] = self.axes.map(|axis| axis.sources(self.direction));
        let axis = &self.axes[0];
        let walk = axis.walk(self.direction, block.depth % axis.phases(self.direction));
        let number = block.depth / walk.step;
        let slice_taps = walk.taps_inside(number, depth);
        let first_slice = walk.source(number) + (slice_taps.start * walk.tap_step) as isize;
        let rows = clip(&span(&self.axes[1], self.direction, &block.rows), height);
        let columns = span(&self.axes[2], self.direction, &block.columns);
        // Without taps there is no slice to read, and none is read.
        let first_slice = if slice_taps.is_empty() { 0 } else { first_slice as usize };
        let slice = |i: usize| (block.sample * depth + first_slice + i * walk.tap_step) * height;
        let pixel = |slice: usize, row: usize, column: usize| ((slice + row) * width + column) * self.channels;
        let is_all = channels.len() == self.channels && pitch == self.channels;
        if !self.has_margin && is_all {
            return View {
                start: source[pixel(slice(0), 0, 0)..].as_ptr(),
                slice: walk.tap_step * height * width * self.channels,
                row_pitch: width * self.channels,
                pitch: self.channels,
                first_row: 0,
                first_column: 0,
                slice_taps,
            };
        }
        let row_pitch = columns.len() * pitch;
        let inside = clip(&columns, width);
        let before = ((inside.start as isize - columns.start).max(0) as usize * pitch).min(row_pitch);
        let mut band = scratch.chunks_exact_mut(row_pitch.max(1));
        for i in 0..slice_taps.len() {
            for (row, to) in rows.clone().zip(&mut band) {
                let (left, to) = to.split_at_mut(before);
                let (middle, right) = to.split_at_mut(inside.len() * pitch);
                let from = &source[pixel(slice(i), row, inside.start)..][..inside.len() * self.channels];
                left.fill(T::ZERO);
                match is_all {
                    true => middle.copy_from_slice(from),
                    false => {
                        for (to, from) in middle.chunks_exact_mut(pitch).zip(from.chunks_exact(self.channels)) {
                            to[..channels.len()].copy_from_slice(&from[channels.clone()]);
                        }
                    }
                }
                right.fill(T::ZERO);
            }
        }
        View {
            start: scratch.as_ptr(),
            slice: rows.len() * row_pitch,
            row_pitch,
            pitch,
            first_row: rows.start as isize,
            first_column: columns.start,
            slice_taps,
        }
    }
}

fn clip(span: &Range<isize>, len: usize) -> Range<usize> {
    let bound = |i: isize| i.clamp(0, len as isize) as usize;
    bound(span.start)..bound(span.end)
}
