//! LSTM with Keras's order of gates: input, forget, cell, output.

use super::{Backward, Forward, Sizes, StateGradients, add, kernel_gradient, walk, walk_back};
use crate::gemm::Into;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

const GATES: usize = 4;

/// The projections `x W + b` of the inputs: `[batch, steps, 4 * units]`.
pub enum Projections<'a, T> {
    /// Read only.
    Keep(&'a [T]),
    /// Replaced by the values of the gates, which the backward pass needs.
    Replace(&'a mut [T]),
}

/// Where an LSTM's states go.
pub struct LstmStates<'a, T> {
    /// The state after every step: `[batch, steps, units]`.
    pub h: &'a mut [T],
    /// The cell state after every step, which the backward pass needs.
    pub c: Option<&'a mut [T]>,
    /// The last state: `[batch, units]`.
    pub h_last: &'a mut [T],
    /// The last cell state: `[batch, units]`.
    pub c_last: &'a mut [T],
}

/// Where an LSTM's gradients go.
pub struct LstmGradients<'a, T> {
    /// Of the recurrent kernel: `[units, 4 * units]`.
    pub kernel: &'a mut [T],
    /// Of the first state: `[batch, units]`.
    pub h0: &'a mut [T],
    /// Of the first cell state: `[batch, units]`.
    pub c0: &'a mut [T],
    /// Whether the gradients of the weights are written or added to what is there.
    pub into: Into,
}

/// LSTM: with `z = x W + b + h[t-1] U` cut into four,
/// `c[t] = sigmoid(z_f) * c[t-1] + sigmoid(z_i) * tanh(z_c)` and `h[t] = sigmoid(z_o) * tanh(c[t])`.
///
/// `kernel` is U, `[units, 4 * units]`; `h0` and `c0` are the first states, `[batch, units]`; where `mask`
/// (`[batch, steps]`) is false the states are carried through. `scratch` has
/// [`forward_scratch`](super::forward_scratch) elements for 4 gates.
///
/// # Panics
/// When the lengths disagree.
pub fn lstm_forward<T: Float>(
    pool: &Pool,
    s: Sizes,
    projections: Projections<'_, T>,
    kernel: &[T],
    h0: &[T],
    c0: &[T],
    mask: Option<&[bool]>,
    out: LstmStates<'_, T>,
    scratch: &mut [T],
) {
    let sequence = s.sequence(s.units);
    assert_eq!(out.h.len(), sequence, "states of another size");
    assert!(out.c.as_ref().is_none_or(|c| c.len() == sequence), "cell states of another size");
    out.c_last.copy_from_slice(c0);
    let (x, len) = match projections {
        Projections::Keep(x) => (Source::Apart(x), x.len()),
        Projections::Replace(x) => (Source::Shared(SharedSlice::new(x)), x.len()),
    };
    assert_eq!(len, GATES * sequence, "projections of another size");
    let cell = Cell { s, x, c: SharedSlice::new(out.c_last), c_all: out.c.map(SharedSlice::new) };
    walk(pool, s, kernel, h0, mask, &cell, &SharedSlice::new(out.h), out.h_last, scratch);
}

enum Source<'a, T> {
    Apart(&'a [T]),
    Shared(SharedSlice<T>),
}

struct Cell<'a, T> {
    s: Sizes,
    x: Source<'a, T>,
    /// The running cell state.
    c: SharedSlice<T>,
    c_all: Option<SharedSlice<T>>,
}

impl<T: Float> Forward<T> for Cell<'_, T> {
    const GATES: usize = GATES;

    fn step(&self, b: usize, t: usize, unit: usize, z: &mut [T], _: &[T], h: &mut [T]) {
        let (n, units) = (self.s.units, h.len());
        let place = |gate: usize| ((b * self.s.steps + t) * GATES + gate) * n + unit;
        for (gate, z) in z.chunks_exact_mut(units).enumerate() {
            match &self.x {
                Source::Apart(x) => add(z, &x[place(gate)..][..units]),
                // SAFETY: the caller has this sample and these units to itself.
                Source::Shared(x) => add(z, unsafe { x.slice(place(gate), units) }),
            }
        }
        // SAFETY: as above.
        let c = unsafe { self.c.slice(b * n + unit, units) };
        open(z, c, h);
        if let Source::Shared(x) = &self.x {
            for (gate, z) in z.chunks_exact(units).enumerate() {
                // SAFETY: as above.
                unsafe { x.slice(place(gate), units) }.copy_from_slice(z);
            }
        }
        self.skip(b, t, unit, units);
    }

    fn skip(&self, b: usize, t: usize, unit: usize, units: usize) {
        let n = self.s.units;
        if let Some(all) = &self.c_all {
            // SAFETY: the caller has this sample and these units to itself.
            unsafe {
                all.slice((b * self.s.steps + t) * n + unit, units).copy_from_slice(self.c.slice(b * n + unit, units));
            }
        }
    }
}

/// LSTM backwards: from the gradients of the states to those of the projections, the kernel and the first states.
///
/// `gates` holds what [`lstm_forward`] left there and becomes the gradient of the projections; `h` and `c` are the
/// states after every step. `scratch` has [`lstm_backward_scratch`] elements.
///
/// # Panics
/// When the lengths disagree.
pub fn lstm_backward<T: Float>(
    pool: &Pool,
    s: Sizes,
    gates: &mut [T],
    kernel: &[T],
    (h, c): (&[T], &[T]),
    (h0, c0): (&[T], &[T]),
    mask: Option<&[bool]>,
    given: StateGradients<'_, T>,
    out: LstmGradients<'_, T>,
    scratch: &mut [T],
) {
    let sequence = s.sequence(s.units);
    assert_eq!(gates.len(), GATES * sequence, "gates of another size");
    assert_eq!((c.len(), c0.len()), (sequence, s.state()), "cell states of another size");
    start(out.h0, given.h_last);
    start(out.c0, given.c_last);
    let cell = Back { s, gates: SharedSlice::new(gates), c, c0, dc: SharedSlice::new(out.c0) };
    walk_back(pool, s, kernel, mask, &cell, given.h, out.h0, scratch);
    let width = GATES * s.units;
    kernel_gradient(pool, s, width, h, h0, Some(gates), &|_, _, _| (), &mut |_| (), out.kernel, out.into, scratch);
}

/// Scratch of [`lstm_backward`] in elements.
pub fn lstm_backward_scratch(s: Sizes, threads: usize) -> usize {
    super::walk_back_scratch(s, GATES, threads).max(super::kernel_gradient_scratch(s, 0))
}

pub(super) fn start<T: Float>(to: &mut [T], from: Option<&[T]>) {
    match from {
        Some(from) => to.copy_from_slice(from),
        None => to.fill(T::ZERO),
    }
}

struct Back<'a, T> {
    s: Sizes,
    gates: SharedSlice<T>,
    c: &'a [T],
    c0: &'a [T],
    /// The running gradient of the cell state.
    dc: SharedSlice<T>,
}

impl<T: Float> Backward<T> for Back<'_, T> {
    const GATES: usize = GATES;

    fn step(&self, b: usize, t: usize, unit: usize, dh: &mut [T], dz: &mut [T]) {
        let (n, units) = (self.s.units, dh.len());
        let place = |gate: usize| ((b * self.s.steps + t) * GATES + gate) * n + unit;
        // SAFETY: the caller has this sample and these units to itself, and the four gates do not overlap.
        let gates = [0, 1, 2, 3].map(|gate| unsafe { self.gates.slice(place(gate), units) });
        let c = &self.c[(b * self.s.steps + t) * n + unit..][..units];
        let c_before = &self.s.state_before(self.c, self.c0, b, t)[unit..unit + units];
        // SAFETY: as above.
        let dc = unsafe { self.dc.slice(b * n + unit, units) };
        close(gates, c, c_before, dh, dc, dz);
    }

    fn skip(&self, b: usize, t: usize, unit: usize, units: usize) {
        for gate in 0..GATES {
            let place = ((b * self.s.steps + t) * GATES + gate) * self.s.units + unit;
            // SAFETY: the caller has this sample and these units to itself.
            unsafe { self.gates.slice(place, units) }.fill(T::ZERO);
        }
    }
}

simd! {
    /// Turns `z` into the gates' values, `c` into the next cell state, and writes the state.
    fn open[T: Float](z: &mut [T], c: &mut [T], h: &mut [T]) {
        let units = h.len();
        let (i, rest) = z.split_at_mut(units);
        let (f, rest) = rest.split_at_mut(units);
        let (g, o) = rest.split_at_mut(units);
        for (((((i, f), g), o), c), h) in i.iter_mut().zip(f).zip(g).zip(o).zip(c).zip(h) {
            *i = i.sigmoid();
            *f = f.sigmoid();
            *g = g.tanh();
            *o = o.sigmoid();
            *c = *f * *c + *i * *g;
            *h = *o * c.tanh();
        }
    }

    /// One step back: the gates become their gradients, which go to `dz` too; `dc` goes on to the step before;
    /// nothing of `dh` does without a product.
    fn close[T: Float](gates: [&mut [T]; 4], c: &[T], c_before: &[T], dh: &mut [T], dc: &mut [T], dz: &mut [T]) {
        let units = dh.len();
        let [i, f, g, o] = gates;
        let (zi, rest) = dz.split_at_mut(units);
        let (zf, rest) = rest.split_at_mut(units);
        let (zg, zo) = rest.split_at_mut(units);
        let gates = i.iter_mut().zip(f).zip(g).zip(o);
        let states = c.iter().zip(c_before).zip(dh).zip(dc);
        let products = zi.iter_mut().zip(zf).zip(zg).zip(zo);
        for (((((i, f), g), o), (((&c, &c_before), dh), dc)), (((zi, zf), zg), zo)) in gates.zip(states).zip(products) {
            let tanh_c = c.tanh();
            let d = *dc + *dh * *o * (T::ONE - tanh_c * tanh_c);
            *zo = *dh * tanh_c * *o * (T::ONE - *o);
            *zi = d * *g * *i * (T::ONE - *i);
            *zf = d * c_before * *f * (T::ONE - *f);
            *zg = d * *i * (T::ONE - *g * *g);
            *dc = d * *f;
            *dh = T::ZERO;
            (*i, *f, *g, *o) = (*zi, *zf, *zg, *zo);
        }
    }
}
