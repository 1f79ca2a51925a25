//! Recurrent layers over whole sequences: LSTM, GRU and the simple tanh layer.
//!
//! The projections of the inputs (`x W + b` for all steps) are one ordinary matrix product before, and their
//! gradients ordinary matrix products behind; what is left here is the recurrence. Sequences stand as
//! `[batch, steps, ..]`, and states are given for every step: `h[b, t]` is the state after step t. A mask says
//! which steps are real; at the others the state is carried through unchanged. Backwards in time
//! ([`Sizes::reverse`]) means that step t follows step t + 1; results keep their place, so nothing needs to be
//! flipped to be joined with a forward pass.
//!
//! # How it runs
//!
//! One step multiplies the state of all samples by the recurrent kernel and applies the gates. The product is
//! cut into tiles of some samples by [`UNITS`] units with all their gates, and the gates are applied while the tile is in the
//! cache. The recurrent kernel is copied once so that each tile's part stands together; that is worth a factor
//! of up to two. A small kernel stays in every core's cache, so then each task takes some samples through
//! all steps; a large one is divided among the threads, who meet after each step.
//!
//! The backward pass has the same form: the product carries gradients from the gates of a step to the state
//! before it, and the step before is differentiated while the tile is in the cache.

mod gru;
mod lstm;
mod naive;
mod simple;

use crate::gemm::{self, Into, Mat, MatMut, Packing};
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};

pub use gru::{GruGradients, gru_backward, gru_backward_scratch, gru_forward};
pub use lstm::{LstmGradients, LstmStates, Projections, lstm_backward, lstm_backward_scratch, lstm_forward};
pub use naive::{gru_backward_naive, gru_naive, lstm_backward_naive, lstm_naive, simple_backward_naive, simple_naive};
pub use simple::{SimpleGradients, simple_backward, simple_backward_scratch, simple_forward};

/// Units of one tile.
pub const UNITS: usize = 64;

/// Samples of one tile at most. Up to here the library multiplies by the kernel as it stands, without packing
/// it once more, and cuts the inner axis in the same way for any number of rows, so that a sample's bits do
/// not depend on its neighbours.
const SAMPLES: usize = 48;

/// Blocks of samples that one task takes one after another, while a part of the kernel is in its cache.
const RUN: usize = 4;

/// Elements of a recurrent kernel that stays in one core's cache beside the rest.
const SMALL: usize = 128 * 1024;

/// Rows of one matrix product that adds to the gradient of the recurrent kernel.
const GRADIENT_ROWS: usize = 256;

/// The sizes of a recurrent layer's sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Samples.
    pub batch: usize,
    /// Steps in time.
    pub steps: usize,
    /// Units of the state.
    pub units: usize,
    /// From the last step to the first.
    pub reverse: bool,
}

impl Sizes {
    /// Where in time the turn `s` is.
    #[inline(always)]
    fn time(&self, s: usize) -> usize {
        if self.reverse { self.steps - 1 - s } else { s }
    }

    /// The step before step `t`, or `None` at the beginning.
    #[inline(always)]
    fn before(&self, t: usize) -> Option<usize> {
        if self.reverse { Some(t + 1).filter(|&t| t < self.steps) } else { t.checked_sub(1) }
    }

    /// The elements of one state.
    fn state(&self) -> usize {
        self.batch * self.units
    }

    /// The elements of a sequence with `width` per step.
    fn sequence(&self, width: usize) -> usize {
        self.batch * self.steps * width
    }

    /// A step's state before it: a part of `h`, or of `h0` at the beginning.
    #[inline(always)]
    fn state_before<'a, T>(&self, h: &'a [T], h0: &'a [T], b: usize, t: usize) -> &'a [T] {
        match self.before(t) {
            Some(t) => &h[(b * self.steps + t) * self.units..][..self.units],
            None => &h0[b * self.units..][..self.units],
        }
    }
}

/// Gradients that flow back into the states; what is not given is zero.
#[derive(Clone, Copy, Default)]
pub struct StateGradients<'a, T> {
    /// Of the state after every step: `[batch, steps, units]`.
    pub h: Option<&'a [T]>,
    /// Of the last state: `[batch, units]`.
    pub h_last: Option<&'a [T]>,
    /// Of the last cell state: `[batch, units]`, LSTM only.
    pub c_last: Option<&'a [T]>,
}

/// How the work of one step is cut, by the sizes alone.
#[derive(Clone, Copy)]
struct Cut {
    samples: usize,
    blocks_of_samples: usize,
    blocks_of_units: usize,
    /// Each task takes its samples through all steps.
    alone: bool,
}

impl Cut {
    fn new(s: Sizes, gates: usize) -> Cut {
        let alone = gates * s.units * s.units <= SMALL;
        let samples = if alone { s.batch.div_ceil(4).clamp(16, SAMPLES) } else { SAMPLES };
        // At least two rows: products with one row take another path, with other roundings.
        let samples = samples.min(s.batch).max(2);
        let blocks_of_samples = s.batch.div_ceil(samples);
        Cut { samples, blocks_of_samples, blocks_of_units: s.units.div_ceil(UNITS), alone }
    }

    /// Rows of a buffer with room for whole blocks.
    fn rows(&self) -> usize {
        self.samples * self.blocks_of_samples
    }

    /// Tasks of one step when the kernel is divided.
    fn tasks(&self) -> usize {
        self.blocks_of_samples.div_ceil(RUN) * self.blocks_of_units
    }

    /// The tiles of one such task.
    fn tiles(self, s: Sizes, task: usize) -> impl Iterator<Item = Tile> {
        let (run, units) = (task / self.blocks_of_units, task % self.blocks_of_units);
        let blocks = run * RUN..(run * RUN + RUN).min(self.blocks_of_samples);
        blocks.map(move |samples| Tile::new(s, self, samples, units))
    }
}

/// A tile: some samples and some units.
#[derive(Clone, Copy)]
struct Tile {
    sample: usize,
    samples: usize,
    unit: usize,
    units: usize,
}

impl Tile {
    fn new(s: Sizes, cut: Cut, samples: usize, units: usize) -> Tile {
        let (sample, unit) = (samples * cut.samples, units * UNITS);
        Tile { sample, samples: cut.samples.min(s.batch - sample), unit, units: UNITS.min(s.units - unit) }
    }

    /// Rows of the product: at least two, see [`Cut::new`].
    fn rows(&self) -> usize {
        self.samples.max(2)
    }
}

/// The gates of one layer, forwards.
trait Forward<T>: Sync {
    /// Gates in the recurrent kernel.
    const GATES: usize;

    /// One step of one sample and some units, from the recurrent products `z` (gate after gate) and the state
    /// before to the state after it. `z` may be used as room.
    fn step(&self, b: usize, t: usize, unit: usize, z: &mut [T], h_before: &[T], h: &mut [T]);

    /// A masked step: writes what else there is to write.
    fn skip(&self, _b: usize, _t: usize, _unit: usize, _units: usize) {}
}

/// The gates of one layer, backwards.
trait Backward<T>: Sync {
    /// Gates in the recurrent kernel.
    const GATES: usize;

    /// From the gradient of a step's state to that of its recurrent products `dz` (gate after gate). What of
    /// the state's gradient goes to the state before without a product replaces `dh`.
    fn step(&self, b: usize, t: usize, unit: usize, dh: &mut [T], dz: &mut [T]);

    /// A masked step: writes what else there is to write.
    fn skip(&self, b: usize, t: usize, unit: usize, units: usize);
}

/// Elements of scratch that [`lstm_forward`], [`gru_forward`] and [`simple_forward`] need, with 4, 3 and 1 gates.
pub fn forward_scratch(s: Sizes, gates: usize, threads: usize) -> usize {
    let cut = Cut::new(s, gates);
    gates * s.units * s.units + 2 * cut.rows() * s.units + threads * cut.samples * gates * UNITS
}

/// What the library packs for the forward and the backward pass, with 4, 3 and 1 gates.
pub fn packing<T>(s: Sizes, gates: usize) -> Packing {
    let width = gates * s.units;
    let (forward, backward) =
        (Packing::here::<T>(SAMPLES, s.units, gates * UNITS), Packing::here::<T>(SAMPLES, width, UNITS));
    forward.max(backward).max(Packing::matmul::<T>(s.units, GRADIENT_ROWS, width, usize::MAX))
}

/// Walks forwards through the steps; writes the states `h[b, t]` and the last one.
fn walk<T: Float, C: Forward<T>>(
    pool: &Pool,
    s: Sizes,
    kernel: &[T],
    h0: &[T],
    mask: Option<&[bool]>,
    cell: &C,
    h: &SharedSlice<T>,
    h_last: &mut [T],
    scratch: &mut [T],
) {
    let (gates, n) = (C::GATES, s.units);
    assert_eq!(kernel.len(), n * gates * n, "recurrent kernel of another size");
    assert_eq!((h0.len(), h_last.len()), (s.state(), s.state()), "state of another size");
    assert!(mask.is_none_or(|m| m.len() == s.batch * s.steps), "mask of another size");
    let cut = Cut::new(s, gates);
    let (packed, rest) = scratch.split_at_mut(gates * n * n);
    let (mut before, rest) = rest.split_at_mut(cut.rows() * n);
    let (mut after, rest) = rest.split_at_mut(cut.rows() * n);
    let room = SharedSlice::new(rest);
    pack(pool, s, gates, kernel, packed);
    before[..h0.len()].copy_from_slice(h0);
    // Rows without a sample stay zero in both.
    before[h0.len()..].fill(T::ZERO);
    after.fill(T::ZERO);

    let tile = |task: Tile, t: usize, worker: usize, before: &[T], after: &SharedSlice<T>, base: usize| {
        let width = gates * task.units;
        // SAFETY: no two tasks of one worker run at once.
        let z = unsafe { room.slice(worker * cut.samples * gates * UNITS, task.rows() * width) };
        let from = Mat::new(&before[(task.sample - base) * n..], task.rows(), n);
        let by = Mat::new(&packed[task.unit * gates * n..], n, width);
        gemm::matmul_here(from, by, MatMut::new(z, task.rows(), width), Into::Overwrite);
        for (b, z) in (task.sample..task.sample + task.samples).zip(z.chunks_exact_mut(width)) {
            let place = (b - base) * n + task.unit;
            let h_before = &before[place..place + task.units];
            // SAFETY: tasks write samples and units of their own.
            let h_after = unsafe { after.slice(place, task.units) };
            if mask.is_some_and(|mask| !mask[b * s.steps + t]) {
                h_after.copy_from_slice(h_before);
                cell.skip(b, t, task.unit, task.units);
            } else {
                cell.step(b, t, task.unit, z, h_before, h_after);
            }
            // SAFETY: as above.
            unsafe { h.slice((b * s.steps + t) * n + task.unit, task.units) }.copy_from_slice(h_after);
        }
    };

    if cut.alone {
        let (all_before, all_after) = (SharedSlice::new(before), SharedSlice::new(after));
        let work = 2 * s.sequence(1) * n * (gates * n / 64 + 8);
        pool.run_sized(cut.blocks_of_samples, work, &|block, worker| {
            let base = block * cut.samples;
            // SAFETY: each task has the rows of its own samples.
            let mut before = unsafe { all_before.slice(base * n, cut.samples * n) };
            // SAFETY: as above.
            let mut after = unsafe { all_after.slice(base * n, cut.samples * n) };
            for step in 0..s.steps {
                let shared = SharedSlice::new(after);
                for units in 0..cut.blocks_of_units {
                    tile(Tile::new(s, cut, block, units), s.time(step), worker, before, &shared, base);
                }
                std::mem::swap(&mut before, &mut after);
            }
        });
        let last = if s.steps.is_multiple_of(2) { &all_before } else { &all_after };
        // SAFETY: the tasks have ended.
        h_last.copy_from_slice(unsafe { last.slice(0, s.state()) });
        return;
    }
    for step in 0..s.steps {
        let shared = SharedSlice::new(after);
        pool.run(cut.tasks(), &|task, worker| {
            cut.tiles(s, task).for_each(|part| tile(part, s.time(step), worker, before, &shared, 0));
        });
        std::mem::swap(&mut before, &mut after);
    }
    h_last.copy_from_slice(&before[..s.state()]);
}

/// Elements of scratch of [`walk_back`].
fn walk_back_scratch(s: Sizes, gates: usize, threads: usize) -> usize {
    let cut = Cut::new(s, gates);
    gates * s.units * s.units + 2 * cut.rows() * gates * s.units + threads * (cut.samples + gates) * UNITS
}

/// Walks backwards through the steps. `dh0` holds the gradient of the last state and in the end that of the first.
fn walk_back<T: Float, C: Backward<T>>(
    pool: &Pool,
    s: Sizes,
    kernel: &[T],
    mask: Option<&[bool]>,
    cell: &C,
    dh: Option<&[T]>,
    dh0: &mut [T],
    scratch: &mut [T],
) {
    let (gates, n) = (C::GATES, s.units);
    let width = gates * n;
    assert_eq!(kernel.len(), n * width, "recurrent kernel of another size");
    assert_eq!(dh0.len(), s.state(), "state of another size");
    assert!(dh.is_none_or(|dh| dh.len() == s.sequence(n)), "gradient of another size");
    assert!(mask.is_none_or(|m| m.len() == s.batch * s.steps), "mask of another size");
    let cut = Cut::new(s, gates);
    let (packed, rest) = scratch.split_at_mut(n * width);
    let (mut later, rest) = rest.split_at_mut(cut.rows() * width);
    let (mut here, rest) = rest.split_at_mut(cut.rows() * width);
    let room = SharedSlice::new(rest);
    pack_transposed(pool, s, gates, kernel, packed);
    later.fill(T::ZERO);
    here.fill(T::ZERO);
    let direct = SharedSlice::new(dh0);

    // `t` is the step whose state gets its gradient from the later step's products; `None` is the first state.
    let tile = |task: Tile, t: Option<usize>, worker: usize, later: &[T], here: &SharedSlice<T>, base: usize| {
        let size = (cut.samples + gates) * UNITS;
        // SAFETY: no two tasks of one worker run at once.
        let (carried, dz) = unsafe { room.slice(worker * size, size) }.split_at_mut(cut.samples * UNITS);
        let (carried, dz) = (&mut carried[..task.rows() * task.units], &mut dz[..gates * task.units]);
        let from = Mat::new(&later[(task.sample - base) * width..], task.rows(), width);
        let by = Mat::new(&packed[task.unit * width..], width, task.units);
        gemm::matmul_here(from, by, MatMut::new(carried, task.rows(), task.units), Into::Overwrite);
        for (b, carried) in (task.sample..task.sample + task.samples).zip(carried.chunks_exact(task.units)) {
            // SAFETY: tasks write samples and units of their own.
            let dh_here = unsafe { direct.slice(b * n + task.unit, task.units) };
            add(dh_here, carried);
            let Some(t) = t else { continue };
            if let Some(dh) = dh {
                add(dh_here, &dh[(b * s.steps + t) * n + task.unit..][..task.units]);
            }
            if mask.is_some_and(|mask| !mask[b * s.steps + t]) {
                dz.fill(T::ZERO);
                cell.skip(b, t, task.unit, task.units);
            } else {
                cell.step(b, t, task.unit, dh_here, dz);
            }
            for (gate, dz) in dz.chunks_exact(task.units).enumerate() {
                // SAFETY: as above.
                unsafe { here.slice((b - base) * width + gate * n + task.unit, task.units) }.copy_from_slice(dz);
            }
        }
    };

    let turns = (0..s.steps).rev().map(|step| Some(s.time(step))).chain([None]);
    if cut.alone {
        let (all_later, all_here) = (SharedSlice::new(later), SharedSlice::new(here));
        let work = 2 * s.sequence(1) * n * (width / 64 + 8);
        pool.run_sized(cut.blocks_of_samples, work, &|block, worker| {
            let base = block * cut.samples;
            // SAFETY: each task has the rows of its own samples.
            let mut later = unsafe { all_later.slice(base * width, cut.samples * width) };
            // SAFETY: as above.
            let mut here = unsafe { all_here.slice(base * width, cut.samples * width) };
            for turn in turns.clone() {
                let shared = SharedSlice::new(here);
                for units in 0..cut.blocks_of_units {
                    tile(Tile::new(s, cut, block, units), turn, worker, later, &shared, base);
                }
                std::mem::swap(&mut later, &mut here);
            }
        });
        return;
    }
    for turn in turns {
        let shared = SharedSlice::new(here);
        pool.run(cut.tasks(), &|task, worker| {
            cut.tiles(s, task).for_each(|part| tile(part, turn, worker, later, &shared, 0));
        });
        std::mem::swap(&mut later, &mut here);
    }
}

/// The recurrent kernel `[units, gates * units]` as blocks of units: `[units, gates, some units]` each.
fn pack<T: Float>(pool: &Pool, s: Sizes, gates: usize, kernel: &[T], packed: &mut [T]) {
    let n = s.units;
    let packed = SharedSlice::new(packed);
    pool.run_sized(n.div_ceil(UNITS), kernel.len() / 4, &|block, _| {
        let unit = block * UNITS;
        let units = UNITS.min(n - unit);
        // SAFETY: each task writes its own block.
        let block = unsafe { packed.slice(unit * gates * n, units * gates * n) };
        for (i, part) in block.chunks_exact_mut(units).enumerate() {
            part.copy_from_slice(&kernel[i * n + unit..][..units]);
        }
    });
}

/// The transposed recurrent kernel `[gates * units, units]` as blocks of its columns.
fn pack_transposed<T: Float>(pool: &Pool, s: Sizes, gates: usize, kernel: &[T], packed: &mut [T]) {
    const LINE: usize = 16;
    let (n, width) = (s.units, gates * s.units);
    let packed = SharedSlice::new(packed);
    pool.run_sized(n.div_ceil(UNITS), kernel.len(), &|block, _| {
        let unit = block * UNITS;
        let units = UNITS.min(n - unit);
        // SAFETY: each task writes its own block.
        let block = unsafe { packed.slice(unit * width, units * width) };
        for (lines, part) in block.chunks_mut(LINE * units).enumerate() {
            for j in 0..units {
                let row = &kernel[(unit + j) * width + lines * LINE..];
                for (&x, to) in row.iter().zip(part[j..].iter_mut().step_by(units)) {
                    *to = x;
                }
            }
        }
    });
}

/// Elements of scratch of [`kernel_gradient`]: states before, and `width` more per row.
fn kernel_gradient_scratch(s: Sizes, width: usize) -> usize {
    gradient_rows(s) * (s.units + width)
}

/// The most rows of one product: whole short samples, or a part of a long one.
fn gradient_rows(s: Sizes) -> usize {
    if s.steps >= GRADIENT_ROWS { GRADIENT_ROWS } else { chunk_samples(s.steps) * s.steps }
}

/// Samples of this many steps whose gradients of the weights are summed at a time: a slice of the batch whose size is a
/// multiple of this, added to the slices before it, gives the same bits as the whole batch.
pub fn chunk_samples(steps: usize) -> usize {
    (GRADIENT_ROWS / steps.max(1)).max(1)
}

/// The gradient of the recurrent kernel: the sum over all steps of (state before)^T times (gradient of the
/// recurrent products), over fixed groups of samples from left to right, to where `into` says.
///
/// `rows(b, t, d)` gives the gradients of the products of one step, writing them to `d` where they do not stand
/// ready: then `ready` is `None`. `also` sees every group's gradients.
fn kernel_gradient<T: Float>(
    pool: &Pool,
    s: Sizes,
    width: usize,
    h: &[T],
    h0: &[T],
    ready: Option<&[T]>,
    rows: &(dyn Fn(usize, usize, &mut [T]) + Sync),
    also: &mut dyn FnMut(&[T]),
    dkernel: &mut [T],
    into: Into,
    scratch: &mut [T],
) {
    let n = s.units;
    assert_eq!(h.len(), s.sequence(n), "states of another size");
    assert_eq!(h0.len(), s.state(), "first state of another size");
    assert_eq!(dkernel.len(), n * width, "gradient of another size");
    let total = s.batch * s.steps;
    let most = gradient_rows(s);
    let (before, made) = scratch.split_at_mut(most * n);
    let mut first = 0;
    let mut into = into;
    if total == 0 && into == Into::Overwrite {
        dkernel.fill(T::ZERO);
    }
    while first < total {
        // A group ends with a sample when samples are short, else it stays inside one.
        let inside = if s.steps >= GRADIENT_ROWS { s.steps - first % s.steps } else { total - first };
        let count = most.min(inside);
        let shared = SharedSlice::new(before);
        let made_rows = SharedSlice::new(made);
        pool.run_sized(count.div_ceil(16), count * (n + width) / 4, &|task, _| {
            for i in task * 16..(task * 16 + 16).min(count) {
                let (b, t) = ((first + i) / s.steps, (first + i) % s.steps);
                // SAFETY: each task writes its own rows.
                unsafe { shared.slice(i * n, n) }.copy_from_slice(s.state_before(h, h0, b, t));
                if ready.is_none() {
                    // SAFETY: as above.
                    rows(b, t, unsafe { made_rows.slice(i * width, width) });
                }
            }
        });
        let d = match ready {
            Some(ready) => &ready[first * width..(first + count) * width],
            None => &made[..count * width],
        };
        also(d);
        let product = MatMut::new(&mut *dkernel, n, width);
        gemm::matmul(pool, Mat::new(before, count, n).t(), Mat::new(d, count, width), product, into, usize::MAX);
        into = Into::Add;
        first += count;
    }
}

crate::simd! {
    fn add[T: Float](to: &mut [T], from: &[T]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }
}

#[cfg(test)]
mod tests;
