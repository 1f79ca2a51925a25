//! The simple recurrent layer: tanh of the projection and the product with the state.

use super::lstm::start;
use super::{Backward, Forward, Sizes, StateGradients, kernel_gradient, walk, walk_back};
use crate::gemm::Into;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

/// Where the gradients go.
pub struct SimpleGradients<'a, T> {
    /// Of the projections: `[batch, steps, units]`.
    pub projections: &'a mut [T],
    /// Of the recurrent kernel: `[units, units]`.
    pub kernel: &'a mut [T],
    /// Of the first state: `[batch, units]`.
    pub h0: &'a mut [T],
    /// Whether the gradients of the weights are written or added to what is there.
    pub into: Into,
}

/// The simple recurrent layer: `h[t] = tanh(x W + b + h[t-1] U)`.
///
/// `h` holds the projections `x W + b` and becomes the state after every step, `[batch, steps, units]`; `kernel` is
/// U, `[units, units]`; `h0` the first state, `[batch, units]`; where `mask` (`[batch, steps]`) is false the state is
/// carried through. `scratch` has [`forward_scratch`](super::forward_scratch) elements for 1 gate.
///
/// # Panics
/// When the lengths disagree.
pub fn simple_forward<T: Float>(
    pool: &Pool,
    s: Sizes,
    kernel: &[T],
    h0: &[T],
    mask: Option<&[bool]>,
    h: &mut [T],
    h_last: &mut [T],
    scratch: &mut [T],
) {
    assert_eq!(h.len(), s.sequence(s.units), "states of another size");
    let h = SharedSlice::new(h);
    walk(pool, s, kernel, h0, mask, &Cell { s, x: &h }, &h, h_last, scratch);
}

struct Cell<'a, T> {
    s: Sizes,
    x: &'a SharedSlice<T>,
}

impl<T: Float> Forward<T> for Cell<'_, T> {
    const GATES: usize = 1;

    fn step(&self, b: usize, t: usize, unit: usize, z: &mut [T], _: &[T], h: &mut [T]) {
        // SAFETY: the caller has this sample and these units to itself.
        let x = unsafe { self.x.slice((b * self.s.steps + t) * self.s.units + unit, h.len()) };
        open(x, z, h);
    }
}

/// The simple layer backwards: from the gradients of the states to those of the projections, kernel and first state.
///
/// `h` is the states after every step. `scratch` has [`simple_backward_scratch`] elements.
///
/// # Panics
/// When the lengths disagree.
pub fn simple_backward<T: Float>(
    pool: &Pool,
    s: Sizes,
    kernel: &[T],
    h: &[T],
    h0: &[T],
    mask: Option<&[bool]>,
    given: StateGradients<'_, T>,
    out: SimpleGradients<'_, T>,
    scratch: &mut [T],
) {
    assert_eq!(out.projections.len(), s.sequence(s.units), "gradient of another size");
    start(out.h0, given.h_last);
    let cell = Back { s, h, dx: SharedSlice::new(out.projections) };
    walk_back(pool, s, kernel, mask, &cell, given.h, out.h0, scratch);
    let dx = Some(&*out.projections);
    kernel_gradient(pool, s, s.units, h, h0, dx, &|_, _, _| (), &mut |_| (), out.kernel, out.into, scratch);
}

/// Scratch of [`simple_backward`] in elements.
pub fn simple_backward_scratch(s: Sizes, threads: usize) -> usize {
    super::walk_back_scratch(s, 1, threads).max(super::kernel_gradient_scratch(s, 0))
}

struct Back<'a, T> {
    s: Sizes,
    h: &'a [T],
    dx: SharedSlice<T>,
}

impl<T: Float> Backward<T> for Back<'_, T> {
    const GATES: usize = 1;

    fn step(&self, b: usize, t: usize, unit: usize, dh: &mut [T], dz: &mut [T]) {
        let place = (b * self.s.steps + t) * self.s.units + unit;
        close(&self.h[place..place + dh.len()], dh, dz);
        // SAFETY: the caller has this sample and these units to itself.
        unsafe { self.dx.slice(place, dz.len()) }.copy_from_slice(dz);
    }

    fn skip(&self, b: usize, t: usize, unit: usize, units: usize) {
        let place = (b * self.s.steps + t) * self.s.units + unit;
        // SAFETY: the caller has this sample and these units to itself.
        unsafe { self.dx.slice(place, units) }.fill(T::ZERO);
    }
}

simd! {
    fn open[T: Float](x: &[T], z: &[T], h: &mut [T]) {
        for ((&x, &z), h) in x.iter().zip(z).zip(h) {
            *h = (x + z).tanh();
        }
    }

    fn close[T: Float](h: &[T], dh: &mut [T], dz: &mut [T]) {
        for ((&h, dh), dz) in h.iter().zip(dh).zip(dz) {
            *dz = *dh * (T::ONE - h * h);
            *dh = T::ZERO;
        }
    }
}
