//! Patches: for every result of a small image, all the cells it sees, side by side.
//!
//! Rows of a few pixels do not fill a register tile. For such images the cells are copied, so that the results of several
//! samples make one matrix; with as many channels as small images have in practice, the copy is a few percent
//! of the work.

use super::tile::tile_rows;
use super::walk::Direction;
use super::{Axis, Geometry};
use crate::math::Float;
use std::ops::Range;

/// Elements of a matrix of patches that shares the second-level cache with panels of the filter.
pub(super) const PATCHES_LEN: usize = 192 * 1024;

/// How the patches of an image are made.
#[derive(Clone, Copy)]
pub(super) struct Patches {
    axes: [Axis; 3],
    direction: Direction,
    channels: usize,
}

impl Patches {
    /// The patches of a convolution that is better computed from them; `None` if it is not.
    pub fn new(sizes: &Geometry, direction: Direction) -> Option<Patches> {
        let (channels, results) = match direction {
            Direction::Forward => (sizes.in_channels, sizes.out_channels),
            Direction::Backward => (sizes.out_channels, sizes.in_channels),
        };
        let [_, height, width] = sizes.axes.map(|axis| axis.results(direction));
        let short_rows = 3 * width < 2 * tile_rows() && height * width > 1;
        // With one phase per axis every result sees every tap.
        let one_phase = direction == Direction::Forward || sizes.axes.iter().all(|axis| axis.stride == 1);
        let worth_copying = results / sizes.groups >= 32 && sizes.taps() > 1;
        (short_rows && one_phase && worth_copying).then_some(Patches { axes: sizes.axes, direction, channels })
    }

    /// Results of one sample.
    pub fn results(&self) -> usize {
        self.axes.iter().map(|axis| axis.results(self.direction)).product()
    }

    /// Rows of filter cells, numbered through depth and height.
    pub fn tap_rows(&self) -> usize {
        self.axes[0].kernel * self.axes[1].kernel
    }

    /// Elements that one result sees through one row of filter cells.
    pub fn row_len(&self) -> usize {
        self.axes[2].kernel * self.channels
    }

    /// Copies what the results of some samples see through some rows of filter cells: one row of `to` per result.
    pub fn fill<T: Float>(&self, source: &[T], samples: Range<usize>, tap_rows: &Range<usize>, to: &mut [T]) {
        let [depth, height, width] = self.axes.map(|axis| axis.sources(self.direction));
        let [through, down, across] = self.axes.map(|axis| axis.walk(self.direction, 0));
        let [depths, rows, columns] = self.axes.map(|axis| axis.results(self.direction));
        let mut to = to.chunks_exact_mut(self.row_len());
        for (sample, d, h, w) in samples.flat_map(|n| {
            (0..depths).flat_map(move |d| (0..rows).flat_map(move |h| (0..columns).map(move |w| (n, d, h, w))))
        }) {
            let inside = across.taps_inside(w, width);
            for (tap, to) in tap_rows.clone().zip(&mut to) {
                let cell = |start: isize, tap: usize, step: usize, len: usize| {
                    usize::try_from(start + (tap * step) as isize).ok().filter(|&cell| cell < len)
                };
                let d = cell(through.source(d), tap / self.axes[1].kernel, through.tap_step, depth);
                let h = cell(down.source(h), tap % self.axes[1].kernel, down.tap_step, height);
                let (Some(d), Some(h)) = (d, h) else {
                    to.fill(T::ZERO);
                    continue;
                };
                let row =
                    &source[((sample * depth + d) * height + h) * width * self.channels..][..width * self.channels];
                let (before, to) = to.split_at_mut(inside.start * self.channels);
                let (to, behind) = to.split_at_mut(inside.len() * self.channels);
                before.fill(T::ZERO);
                behind.fill(T::ZERO);
                for (tap, to) in inside.clone().zip(to.chunks_exact_mut(self.channels)) {
                    let cell = (across.source(w) + (tap * across.tap_step) as isize) as usize;
                    to.copy_from_slice(&row[cell * self.channels..][..self.channels]);
                }
            }
        }
    }
}
