//! The filter as register tiles read it: in panels of a few result channels.

use super::Geometry;
use super::dots;
use super::tile::panel;
use super::walk::Direction;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};

/// How the elements of the filter lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// As given: a filter no wider than a panel.
    InPlace,
    /// As given, each channel by itself.
    Depthwise,
    /// Rearranged to `[panel][tap][source channel][result channel]`.
    Packed,
    /// Rearranged to `[result channel][tap][source channel]`, for [`dots`].
    Transposed,
}

/// The filter of a gather. Rearranged for the backward direction, its taps are reversed, so that ascending taps meet ascending
/// source cells.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    pub layout: Layout,
    direction: Direction,
    groups: usize,
    taps: usize,
    out_channels: usize,
    /// Channels of source and result in one group.
    pub source_group: usize,
    pub result_group: usize,
    /// Result channels of a panel.
    width: usize,
}

/// A panel of the filter.
pub(super) struct Panel<T> {
    pub start: *const T,
    /// Elements from one tap to the next.
    pub tap: usize,
    /// Elements from one source channel to the next; for [`dots`], from one result channel to the next.
    pub row: usize,
    /// The first result channel, and how many there are.
    pub channel: usize,
    pub width: usize,
}

impl Panels {
    pub fn new<T: Float>(sizes: &Geometry, direction: Direction) -> Panels {
        let (group_in, group_out) = (sizes.in_channels / sizes.groups, sizes.out_channels / sizes.groups);
        let (source_group, result_group) = match direction {
            Direction::Forward => (group_in, group_out),
            Direction::Backward => (group_out, group_in),
        };
        let width = panel::<T>();
        let width_axis = &sizes.axes[2];
        let row_of_taps = if sizes.groups == 1 && width_axis.dilation == 1 { width_axis.kernel } else { 1 };
        let layout = if sizes.is_depthwise() {
            Layout::Depthwise
        } else if result_group <= dots::MOST_COLUMNS && source_group * row_of_taps >= dots::shortest_sum::<T>() {
            Layout::Transposed
        } else if direction == Direction::Forward && sizes.out_channels <= width {
            Layout::InPlace
        } else {
            // Read in place, a wide filter would leave gaps between rows that cost half the rate.
            Layout::Packed
        };
        let (groups, taps, out_channels) = (sizes.groups, sizes.taps(), sizes.out_channels);
        Panels { layout, direction, groups, taps, out_channels, source_group, result_group, width }
    }

    /// Panels in all groups.
    pub fn count(&self) -> usize {
        match self.layout {
            Layout::Depthwise => 1,
            _ => self.groups * self.result_group.div_ceil(self.width),
        }
    }

    /// Whether the filter is rearranged.
    fn is_packed(&self) -> bool {
        matches!(self.layout, Layout::Packed | Layout::Transposed)
    }

    /// Whether the taps are in reverse order.
    pub fn is_reversed(&self) -> bool {
        self.is_packed() && self.direction == Direction::Backward
    }

    /// Elements of scratch for [`Panels::pack`].
    pub fn scratch(&self) -> usize {
        if self.is_packed() { self.taps * self.source_group * self.result_group * self.groups } else { 0 }
    }

    /// A panel of the filter as `pack` returned it.
    pub fn get<T>(&self, filter: &[T], index: usize) -> Panel<T> {
        if self.layout == Layout::Depthwise {
            let width = self.out_channels;
            return Panel { start: filter.as_ptr(), tap: width, row: width, channel: 0, width };
        }
        let (group, first) = self.place(index);
        let width = self.width.min(self.result_group - first);
        let channel = group * self.result_group + first;
        let packed = channel * self.taps * self.source_group;
        let (start, tap, row) = match self.layout {
            Layout::Packed => (packed, self.source_group * width, width),
            Layout::Transposed => (packed, self.source_group, self.taps * self.source_group),
            _ => (channel, self.source_group * self.out_channels, self.out_channels),
        };
        Panel { start: filter[start..].as_ptr(), tap, row, channel, width }
    }

    /// The group of a panel and its first result channel within that.
    fn place(&self, index: usize) -> (usize, usize) {
        let panels = self.result_group.div_ceil(self.width);
        (index / panels, index % panels * self.width)
    }

    /// The filter in its layout, in `scratch` unless that is as given.
    pub fn pack<'a, T: Float>(&self, pool: &Pool, filter: &'a [T], scratch: &'a mut [T]) -> &'a [T] {
        if !self.is_packed() {
            return filter;
        }
        let out = SharedSlice::new(scratch);
        pool.run_sized(self.count() * self.taps, filter.len(), &|task, _| {
            let ((group, first), tap) = (self.place(task / self.taps), task % self.taps);
            let width = self.width.min(self.result_group - first);
            let start = (group * self.result_group + first) * self.taps * self.source_group;
            // The tap's elements: those from one source channel and from one result channel to the next.
            let row = self.out_channels;
            let (from, source_step, result_step) = match self.direction {
                Direction::Forward => (tap * self.source_group * row + group * self.result_group + first, row, 1),
                Direction::Backward => {
                    (((self.taps - 1 - tap) * self.result_group + first) * row + group * self.source_group, 1, row)
                }
            };
            let from = &filter[from..];
            if self.layout == Layout::Transposed {
                for j in 0..width {
                    // SAFETY: result channels and taps do not overlap.
                    let to = unsafe { out.slice(start + (j * self.taps + tap) * self.source_group, self.source_group) };
                    copy_strided(&from[j * result_step..], source_step, to);
                }
                return;
            }
            // SAFETY: panels and taps do not overlap.
            let to = unsafe { out.slice(start + tap * self.source_group * width, self.source_group * width) };
            if result_step > 1 {
                return transpose(from, result_step, width, to);
            }
            for (i, to) in to.chunks_exact_mut(width).enumerate() {
                to.copy_from_slice(&from[i * source_step..][..width]);
            }
        });
        scratch
    }
}

/// `to[i] = from[i * step]`.
fn copy_strided<T: Copy>(from: &[T], step: usize, to: &mut [T]) {
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
    }
}

/// `to[i * width + j] = from[j * step + i]`, a cache line of `from` at a time.
fn transpose<T: Float>(from: &[T], step: usize, width: usize, to: &mut [T]) {
    const LINE: usize = 16;
    let mut lines = [[T::ZERO; LINE]; LINE];
    for (block, to) in to.chunks_mut(LINE * width).enumerate() {
        for first in (0..width).step_by(LINE) {
            let (columns, rows) = (LINE.min(width - first), to.len() / width);
            for (j, line) in lines[..columns].iter_mut().enumerate() {
                line[..rows].copy_from_slice(&from[(first + j) * step + block * LINE..][..rows]);
            }
            for (i, to) in to.chunks_exact_mut(width).enumerate() {
                for (to, line) in to[first..first + columns].iter_mut().zip(&lines) {
                    *to = line[i];
                }
            }
        }
    }
}
