//! Which cells meet which: the index arithmetic of one axis, the same for both directions.
//!
//! Seen from the results, a convolution is a gather: result `t` of a walk reads source cells
//! `start + t * source_step + m * tap_step` for the taps `m`. Forward, one walk covers the axis. In the input
//! gradient with stride `s`, the image cells fall into `s` phases; those of one phase see the same filter
//! cells and their sources are neighbours, so each phase is a walk of its own, and no product with an
//! inserted zero is ever made.

use super::Axis;
use std::ops::Range;

/// The results of one phase of an axis, and the cells each of them reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Walk {
    /// The first result, and the distance to the next.
    pub first: usize,
    pub step: usize,
    /// The source cell that the first result sees through tap 0; negative before the source's beginning.
    pub start: isize,
    /// Source cells from one result to the next.
    pub source_step: usize,
    /// How many filter cells are seen, in ascending order of their source cells.
    pub taps: usize,
    /// Source cells from one tap to the next.
    pub tap_step: usize,
    /// The filter cell of tap 0, and the distance to that of the next tap.
    pub kernel: usize,
    pub kernel_step: isize,
}

/// The direction of a gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the image to the output.
    Forward,
    /// From the output's gradient to the image's.
    Backward,
}

impl Axis {
    /// How many walks cover the axis.
    pub(super) fn phases(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => 1,
            Direction::Backward => self.stride.min(self.input),
        }
    }

    /// Cells that are read.
    pub(super) fn sources(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => self.input,
            Direction::Backward => self.output,
        }
    }

    /// Cells that are written.
    pub(super) fn results(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => self.output,
            Direction::Backward => self.input,
        }
    }

    /// The most source cells between the ends of what `results` neighbouring results see.
    pub(super) fn window(&self, direction: Direction, results: usize) -> usize {
        let reach = self.kernel.saturating_sub(1) * self.dilation;
        match direction {
            Direction::Forward => (results - 1) * self.stride + reach + 1,
            Direction::Backward => (results - 1 + reach) / self.stride + 2,
        }
    }

    /// The walk of one phase.
    pub(super) fn walk(&self, direction: Direction, phase: usize) -> Walk {
        match direction {
            Direction::Forward => Walk {
                first: 0,
                step: 1,
                start: -(self.pad as isize),
                source_step: self.stride,
                taps: self.kernel,
                tap_step: self.dilation,
                kernel: 0,
                kernel_step: 1,
            },
            Direction::Backward => self.walk_back(phase),
        }
    }

    /// Image cell `i` meets output `o` through filter cell `k` when `o * stride = i + pad - k * dilation`.
    fn walk_back(&self, phase: usize) -> Walk {
        let Axis { kernel, stride, dilation, pad, .. } = *self;
        let common = gcd(stride, dilation);
        let step = stride / common;
        let meets = |k: &usize| (phase + pad) % stride == k * dilation % stride;
        let (kernel, taps) = match (0..step.min(kernel)).find(meets) {
            Some(least) => (least + (kernel - 1 - least) / step * step, (kernel - 1 - least) / step + 1),
            None => (0, 0),
        };
        Walk {
            first: phase,
            step: stride,
            start: (phase as isize + pad as isize - (kernel * dilation) as isize).div_euclid(stride as isize),
            source_step: 1,
            taps,
            tap_step: dilation / common,
            kernel,
            kernel_step: -(step as isize),
        }
    }
}

impl Walk {
    /// The results of this walk in a range of the axis, as numbers `t`.
    pub(super) fn within(&self, results: &Range<usize>) -> Range<usize> {
        let number = |i: usize| i.saturating_sub(self.first).div_ceil(self.step);
        number(results.start)..number(results.end)
    }

    /// The source cell of result `t` through tap 0.
    pub(super) fn source(&self, t: usize) -> isize {
        self.start + (t * self.source_step) as isize
    }

    /// The taps through which result `t` sees a cell inside the source.
    pub(super) fn taps_inside(&self, t: usize, sources: usize) -> Range<usize> {
        let source = self.source(t);
        let before = (-source).max(0) as usize;
        let inside = (sources as isize - source).max(0) as usize;
        let from = before.div_ceil(self.tap_step).min(self.taps);
        from..inside.div_ceil(self.tap_step).clamp(from, self.taps)
    }

    /// The filter cell of a tap.
    pub(super) fn kernel(&self, tap: usize) -> isize {
        self.kernel as isize + tap as isize * self.kernel_step
    }
}

/// The source cells between the ends of what a range of results sees, beyond the source's own ends included.
pub(super) fn span(axis: &Axis, direction: Direction, results: &Range<usize>) -> Range<isize> {
    let (mut start, mut end) = (isize::MAX, isize::MIN);
    for phase in 0..axis.phases(direction) {
        let walk = axis.walk(direction, phase);
        let numbers = walk.within(results);
        if walk.taps > 0 && !numbers.is_empty() {
            let last = walk.source(numbers.end - 1) + ((walk.taps - 1) * walk.tap_step) as isize;
            (start, end) = (start.min(walk.source(numbers.start)), end.max(last + 1));
        }
    }
    if start < end { start..end } else { 0..0 }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meetings(axis: &Axis, direction: Direction) -> Vec<(usize, usize, usize)> {
        let (sources, results) = (axis.sources(direction), axis.results(direction));
        let mut found = Vec::new();
        for phase in 0..axis.phases(direction) {
            let walk = axis.walk(direction, phase);
            for t in walk.within(&(0..results)) {
                for tap in walk.taps_inside(t, sources) {
                    let source = (walk.source(t) + (tap * walk.tap_step) as isize) as usize;
                    found.push((walk.first + t * walk.step, source, walk.kernel(tap) as usize));
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn both_directions_find_the_same_meetings() {
        for (kernel, stride, dilation, pad) in [
            (3, 1, 1, 1),
            (3, 2, 1, 0),
            (3, 2, 2, 2),
            (2, 3, 1, 1),
            (5, 2, 3, 4),
            (4, 6, 4, 3),
            (1, 2, 1, 0),
            (3, 1, 2, 5),
        ] {
            for (input, output) in [(9, 4), (7, 7), (1, 3), (12, 1)] {
                let axis = Axis { input, output, kernel, stride, dilation, pad };
                let mut defined = Vec::new();
                for (o, k) in (0..output).flat_map(|o| (0..kernel).map(move |k| (o, k))) {
                    let i = (o * stride + k * dilation) as isize - pad as isize;
                    if (0..input as isize).contains(&i) {
                        defined.push((o, i as usize, k));
                    }
                }
                defined.sort();
                assert_eq!(meetings(&axis, Direction::Forward), defined, "{axis:?}");
                let mut exchanged: Vec<_> = defined.iter().map(|&(o, i, k)| (i, o, k)).collect();
                exchanged.sort();
                assert_eq!(meetings(&axis, Direction::Backward), exchanged, "{axis:?}");
            }
        }
    }

    #[test]
    fn a_window_holds_every_span() {
        for (kernel, stride, dilation, pad) in [(3, 1, 1, 1), (3, 2, 1, 0), (5, 3, 2, 4), (1, 4, 1, 0), (2, 5, 3, 2)] {
            let axis = Axis { input: 23, output: 9, kernel, stride, dilation, pad };
            for direction in [Direction::Forward, Direction::Backward] {
                let results = axis.results(direction);
                for (from, to) in (0..results).flat_map(|a| (a + 1..=results).map(move |b| (a, b))) {
                    let span = span(&axis, direction, &(from..to));
                    assert!(
                        span.len() <= axis.window(direction, to - from),
                        "{axis:?} {direction:?} {from}..{to}: {span:?}"
                    );
                }
            }
        }
    }
}
