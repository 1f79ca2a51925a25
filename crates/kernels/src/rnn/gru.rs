//! GRU as Keras has it by default: gates update, reset, candidate, the reset applied after the product.

use super::lstm::start;
use super::{Backward, Forward, Sizes, StateGradients, kernel_gradient, walk, walk_back};
use crate::gemm::Into;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

const GATES: usize = 3;

/// What is kept of a step: the three gates and the candidate's recurrent product.
const SAVED: usize = 4;

/// Where a GRU's gradients go.
pub struct GruGradients<'a, T> {
    /// Of the projections: `[batch, steps, 3 * units]`.
    pub projections: &'a mut [T],
    /// Of the recurrent kernel: `[units, 3 * units]`.
    pub kernel: &'a mut [T],
    /// Of the recurrent bias: `[3 * units]`.
    pub bias: &'a mut [T],
    /// Of the first state: `[batch, units]`.
    pub h0: &'a mut [T],
    /// Whether the gradients of the weights are written or added to what is there.
    pub into: Into,
}

/// GRU: with `x W + b` and `r = h[t-1] U + bias` cut into three, `z = sigmoid(x_z + r_z)`, `q = sigmoid(x_r + r_r)`,
/// `g = tanh(x_h + q * r_h)` and `h[t] = z * h[t-1] + (1 - z) * g`.
///
/// `projections` is `x W + b`, `[batch, steps, 3 * units]`; `kernel` is U, `[units, 3 * units]`; `bias` `[3 * units]`;
/// `h0` the first state, `[batch, units]`; where `mask` (`[batch, steps]`) is false the state is carried through.
/// `h` gets the state after every step, `gates` (`[batch, steps, 4 * units]`) what the backward pass needs. `scratch`
/// has [`forward_scratch`](super::forward_scratch) elements for 3 gates.
///
/// # Panics
/// When the lengths disagree.
pub fn gru_forward<T: Float>(
    pool: &Pool,
    s: Sizes,
    projections: &[T],
    (kernel, bias): (&[T], &[T]),
    h0: &[T],
    mask: Option<&[bool]>,
    (h, h_last): (&mut [T], &mut [T]),
    gates: Option<&mut [T]>,
    scratch: &mut [T],
) {
    let sequence = s.sequence(s.units);
    assert_eq!(projections.len(), GATES * sequence, "projections of another size");
    assert_eq!(bias.len(), GATES * s.units, "bias of another size");
    assert_eq!(h.len(), sequence, "states of another size");
    assert!(gates.as_ref().is_none_or(|g| g.len() == SAVED * sequence), "gates of another size");
    let cell = Cell { s, x: projections, bias, gates: gates.map(SharedSlice::new) };
    walk(pool, s, kernel, h0, mask, &cell, &SharedSlice::new(h), h_last, scratch);
}

struct Cell<'a, T> {
    s: Sizes,
    x: &'a [T],
    bias: &'a [T],
    gates: Option<SharedSlice<T>>,
}

impl<T: Float> Forward<T> for Cell<'_, T> {
    const GATES: usize = GATES;

    fn step(&self, b: usize, t: usize, unit: usize, z: &mut [T], h_before: &[T], h: &mut [T]) {
        let (n, units) = (self.s.units, h.len());
        let step = b * self.s.steps + t;
        let x = [0, 1, 2].map(|gate| &self.x[(step * GATES + gate) * n + unit..][..units]);
        let bias = [0, 1, 2].map(|gate| &self.bias[gate * n + unit..][..units]);
        let mut candidate = [T::ZERO; super::UNITS];
        let candidate = &mut candidate[..units];
        open(z, x, bias, h_before, candidate, h);
        if let Some(gates) = &self.gates {
            let (update, rest) = z.split_at(units);
            let (reset, product) = rest.split_at(units);
            for (gate, value) in [update, reset, candidate, product].into_iter().enumerate() {
                // SAFETY: the caller has this sample and these units to itself.
                unsafe { gates.slice((step * SAVED + gate) * n + unit, units) }.copy_from_slice(value);
            }
        }
    }

    fn skip(&self, b: usize, t: usize, unit: usize, units: usize) {
        if let Some(gates) = &self.gates {
            for gate in 0..SAVED {
                let place = ((b * self.s.steps + t) * SAVED + gate) * self.s.units + unit;
                // SAFETY: the caller has this sample and these units to itself.
                unsafe { gates.slice(place, units) }.fill(T::ZERO);
            }
        }
    }
}

/// GRU backwards: from the gradients of the states to those of the projections, kernel, bias and first state.
///
/// `gates` is what [`gru_forward`] left, `h` the states after every step. `scratch` has [`gru_backward_scratch`] elements.
///
/// # Panics
/// When the lengths disagree.
pub fn gru_backward<T: Float>(
    pool: &Pool,
    s: Sizes,
    gates: &[T],
    kernel: &[T],
    h: &[T],
    h0: &[T],
    mask: Option<&[bool]>,
    given: StateGradients<'_, T>,
    out: GruGradients<'_, T>,
    scratch: &mut [T],
) {
    let (n, sequence) = (s.units, s.sequence(s.units));
    let width = GATES * n;
    assert_eq!(gates.len(), SAVED * sequence, "gates of another size");
    assert_eq!(out.projections.len(), GATES * sequence, "gradient of another size");
    assert_eq!(out.bias.len(), width, "gradient of another size");
    start(out.h0, given.h_last);
    let cell = Back { s, gates, h, h0, dx: SharedSlice::new(out.projections) };
    walk_back(pool, s, kernel, mask, &cell, given.h, out.h0, scratch);
    // The candidate's product was multiplied by the reset gate; the other gradients are the projections'.
    let (dx, bias) = (&*out.projections, out.bias);
    let rows = |b: usize, t: usize, d: &mut [T]| {
        let step = b * s.steps + t;
        d.copy_from_slice(&dx[step * width..(step + 1) * width]);
        scale(&mut d[2 * n..], &gates[(step * SAVED + 1) * n..][..n]);
    };
    if out.into == Into::Overwrite {
        bias.fill(T::ZERO);
    }
    let mut sum = |d: &[T]| column_sums(pool, d, bias);
    kernel_gradient(pool, s, width, h, h0, None, &rows, &mut sum, out.kernel, out.into, scratch);
}

/// Adds the sums of the columns of `rows`, which are as long as `sums`.
fn column_sums<T: Float>(pool: &Pool, rows: &[T], sums: &mut [T]) {
    const COLUMNS: usize = 256;
    let width = sums.len();
    let shared = SharedSlice::new(sums);
    pool.run_sized(width.div_ceil(COLUMNS), rows.len() / 4, &|task, _| {
        let from = task * COLUMNS;
        let columns = COLUMNS.min(width - from);
        let mut part = [T::ZERO; COLUMNS];
        for row in rows.chunks_exact(width) {
            super::add(&mut part[..columns], &row[from..from + columns]);
        }
        // SAFETY: tasks write columns of their own.
        super::add(unsafe { shared.slice(from, columns) }, &part[..columns]);
    });
}

/// Scratch of [`gru_backward`] in elements.
pub fn gru_backward_scratch(s: Sizes, threads: usize) -> usize {
    super::walk_back_scratch(s, GATES, threads).max(super::kernel_gradient_scratch(s, GATES * s.units))
}

struct Back<'a, T> {
    s: Sizes,
    gates: &'a [T],
    h: &'a [T],
    h0: &'a [T],
    dx: SharedSlice<T>,
}

impl<T: Float> Backward<T> for Back<'_, T> {
    const GATES: usize = GATES;

    fn step(&self, b: usize, t: usize, unit: usize, dh: &mut [T], dz: &mut [T]) {
        let (n, units) = (self.s.units, dh.len());
        let step = b * self.s.steps + t;
        let gates = [0, 1, 2, 3].map(|gate| &self.gates[(step * SAVED + gate) * n + unit..][..units]);
        let h_before = &self.s.state_before(self.h, self.h0, b, t)[unit..unit + units];
        // SAFETY: the caller has this sample and these units to itself, and the gates do not overlap.
        let dx = [0, 1, 2].map(|gate| unsafe { self.dx.slice((step * GATES + gate) * n + unit, units) });
        close(gates, h_before, dh, dx, dz);
    }

    fn skip(&self, b: usize, t: usize, unit: usize, units: usize) {
        for gate in 0..GATES {
            let place = ((b * self.s.steps + t) * GATES + gate) * self.s.units + unit;
            // SAFETY: the caller has this sample and these units to itself.
            unsafe { self.dx.slice(place, units) }.fill(T::ZERO);
        }
    }
}

simd! {
    /// Turns the products `z` into the update gate, the reset gate and the candidate's product with its bias;
    /// writes the candidate and the state.
    fn open[T: Float](z: &mut [T], x: [&[T]; 3], bias: [&[T]; 3], h_before: &[T], candidate: &mut [T], h: &mut [T]) {
        let units = h.len();
        let (update, rest) = z.split_at_mut(units);
        let (reset, product) = rest.split_at_mut(units);
        let products = update.iter_mut().zip(reset).zip(product);
        let given = x[0].iter().zip(x[1]).zip(x[2]).zip(bias[0]).zip(bias[1]).zip(bias[2]);
        let states = h_before.iter().zip(candidate).zip(h);
        for ((((u, r), p), (((((&xu, &xr), &xp), &bu), &br), &bp)), ((&h_before, g), h)) in products.zip(given).zip(states) {
            *u = (xu + (*u + bu)).sigmoid();
            *r = (xr + (*r + br)).sigmoid();
            *p += bp;
            *g = (xp + *r * *p).tanh();
            *h = *u * h_before + (T::ONE - *u) * *g;
        }
    }

    fn close[T: Float](gates: [&[T]; 4], h_before: &[T], dh: &mut [T], dx: [&mut [T]; 3], dz: &mut [T]) {
        let units = dh.len();
        let (zu, rest) = dz.split_at_mut(units);
        let (zr, zp) = rest.split_at_mut(units);
        let [xu, xr, xp] = dx;
        let gates = gates[0].iter().zip(gates[1]).zip(gates[2]).zip(gates[3]);
        let states = h_before.iter().zip(dh);
        let products = zu.iter_mut().zip(zr).zip(zp).zip(xu).zip(xr).zip(xp);
        for (((((&u, &r), &g), &p), (&h_before, dh)), (((((zu, zr), zp), xu), xr), xp)) in gates.zip(states).zip(products) {
            let candidate = *dh * (T::ONE - u) * (T::ONE - g * g);
            *zu = *dh * (h_before - g) * u * (T::ONE - u);
            *zr = candidate * p * r * (T::ONE - r);
            *zp = candidate * r;
            (*xu, *xr, *xp) = (*zu, *zr, candidate);
            *dh *= u;
        }
    }

    fn scale[T: Float](to: &mut [T], by: &[T]) {
        for (to, &by) in to.iter_mut().zip(by) {
            *to *= by;
        }
    }
}
