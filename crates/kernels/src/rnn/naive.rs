//! The recurrent layers once more, one number at a time: naive twins for tests and for the reference interpreter.

use super::{Sizes, StateGradients};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn real(s: Sizes, mask: Option<&[bool]>, b: usize, t: usize) -> bool {
    mask.is_none_or(|mask| mask[b * s.steps + t])
}

/// `sum over k of h[k] * kernel[k, column]`.
fn product(h: &[f64], kernel: &[f64], column: usize) -> f64 {
    let width = kernel.len() / h.len();
    h.iter().enumerate().map(|(k, h)| h * kernel[k * width + column]).sum()
}

/// The naive twin of [`lstm_forward`](super::lstm_forward): states, cell states (both for every step) and gates.
pub fn lstm_naive(
    s: Sizes,
    x: &[f64],
    kernel: &[f64],
    h0: &[f64],
    c0: &[f64],
    mask: Option<&[bool]>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let n = s.units;
    let (mut h, mut c, mut gates) = (vec![0.0; s.sequence(n)], vec![0.0; s.sequence(n)], x.to_vec());
    for b in 0..s.batch {
        for t in (0..s.steps).map(|turn| s.time(turn)) {
            let (h_before, c_before) = (s.state_before(&h, h0, b, t).to_vec(), s.state_before(&c, c0, b, t).to_vec());
            for j in 0..n {
                let at = (b * s.steps + t) * n + j;
                if !real(s, mask, b, t) {
                    (h[at], c[at]) = (h_before[j], c_before[j]);
                    continue;
                }
                let place = |gate: usize| (b * s.steps + t) * 4 * n + gate * n + j;
                let z = [0, 1, 2, 3].map(|gate| x[place(gate)] + product(&h_before, kernel, gate * n + j));
                let value = [sigmoid(z[0]), sigmoid(z[1]), z[2].tanh(), sigmoid(z[3])];
                (0..4).for_each(|gate| gates[place(gate)] = value[gate]);
                c[at] = value[1] * c_before[j] + value[0] * value[2];
                h[at] = value[3] * c[at].tanh();
            }
        }
    }
    (h, c, gates)
}

/// The naive twin of [`lstm_backward`](super::lstm_backward): gradients of projections, kernel and first states.
pub fn lstm_backward_naive(
    s: Sizes,
    gates: &[f64],
    kernel: &[f64],
    (h, c): (&[f64], &[f64]),
    (h0, c0): (&[f64], &[f64]),
    mask: Option<&[bool]>,
    given: StateGradients<'_, f64>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) {
    let n = s.units;
    let (mut dx, mut dkernel) = (vec![0.0; gates.len()], vec![0.0; kernel.len()]);
    let (mut dh0, mut dc0) = (first(s, given.h_last), first(s, given.c_last));
    for b in 0..s.batch {
        for t in (0..s.steps).rev().map(|turn| s.time(turn)) {
            let (dh, dc) = (&mut dh0[b * n..(b + 1) * n], &mut dc0[b * n..(b + 1) * n]);
            receive(s, dh, given.h, b, t);
            if !real(s, mask, b, t) {
                continue;
            }
            let (h_before, c_before) = (s.state_before(h, h0, b, t), s.state_before(c, c0, b, t));
            let step = (b * s.steps + t) * 4 * n;
            for j in 0..n {
                let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates[step + gate * n + j]);
                let tanh_c = c[(b * s.steps + t) * n + j].tanh();
                let d = dc[j] + dh[j] * o * (1.0 - tanh_c * tanh_c);
                dx[step + j] = d * g * i * (1.0 - i);
                dx[step + n + j] = d * c_before[j] * f * (1.0 - f);
                dx[step + 2 * n + j] = d * i * (1.0 - g * g);
                dx[step + 3 * n + j] = dh[j] * tanh_c * o * (1.0 - o);
                dc[j] = d * f;
                dh[j] = 0.0;
            }
            send(&dx[step..step + 4 * n], kernel, h_before, dh, &mut dkernel);
        }
    }
    (dx, dkernel, dh0, dc0)
}

/// The naive twin of [`gru_forward`](super::gru_forward): the state after every step, and the gates.
pub fn gru_naive(
    s: Sizes,
    x: &[f64],
    (kernel, bias): (&[f64], &[f64]),
    h0: &[f64],
    mask: Option<&[bool]>,
) -> (Vec<f64>, Vec<f64>) {
    let n = s.units;
    let (mut h, mut gates) = (vec![0.0; s.sequence(n)], vec![0.0; s.sequence(4 * n)]);
    for b in 0..s.batch {
        for t in (0..s.steps).map(|turn| s.time(turn)) {
            let h_before = s.state_before(&h, h0, b, t).to_vec();
            let step = b * s.steps + t;
            for j in 0..n {
                if !real(s, mask, b, t) {
                    h[step * n + j] = h_before[j];
                    continue;
                }
                let x = |gate: usize| x[(step * 3 + gate) * n + j];
                let r = |gate: usize| product(&h_before, kernel, gate * n + j) + bias[gate * n + j];
                let (update, reset) = (sigmoid(x(0) + r(0)), sigmoid(x(1) + r(1)));
                let candidate = (x(2) + reset * r(2)).tanh();
                for (gate, value) in [update, reset, candidate, r(2)].into_iter().enumerate() {
                    gates[(step * 4 + gate) * n + j] = value;
                }
                h[step * n + j] = update * h_before[j] + (1.0 - update) * candidate;
            }
        }
    }
    (h, gates)
}

/// The naive twin of [`gru_backward`](super::gru_backward): gradients of projections, kernel, bias and first state.
pub fn gru_backward_naive(
    s: Sizes,
    gates: &[f64],
    kernel: &[f64],
    h: &[f64],
    h0: &[f64],
    mask: Option<&[bool]>,
    given: StateGradients<'_, f64>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) {
    let n = s.units;
    let (mut dx, mut dkernel) = (vec![0.0; s.sequence(3 * n)], vec![0.0; kernel.len()]);
    let (mut dbias, mut dh0) = (vec![0.0; 3 * n], first(s, given.h_last));
    for b in 0..s.batch {
        for t in (0..s.steps).rev().map(|turn| s.time(turn)) {
            let dh = &mut dh0[b * n..(b + 1) * n];
            receive(s, dh, given.h, b, t);
            if !real(s, mask, b, t) {
                continue;
            }
            let h_before = s.state_before(h, h0, b, t);
            let step = b * s.steps + t;
            let mut dz = vec![0.0; 3 * n];
            for j in 0..n {
                let [u, r, g, p] = [0, 1, 2, 3].map(|gate| gates[(step * 4 + gate) * n + j]);
                let candidate = dh[j] * (1.0 - u) * (1.0 - g * g);
                dz[j] = dh[j] * (h_before[j] - g) * u * (1.0 - u);
                dz[n + j] = candidate * p * r * (1.0 - r);
                dz[2 * n + j] = candidate * r;
                let to = &mut dx[step * 3 * n..];
                (to[j], to[n + j], to[2 * n + j]) = (dz[j], dz[n + j], candidate);
                dh[j] *= u;
            }
            dbias.iter_mut().zip(&dz).for_each(|(sum, dz)| *sum += dz);
            send(&dz, kernel, h_before, dh, &mut dkernel);
        }
    }
    (dx, dkernel, dbias, dh0)
}

/// The naive twin of [`simple_forward`](super::simple_forward): the state after every step.
pub fn simple_naive(s: Sizes, x: &[f64], kernel: &[f64], h0: &[f64], mask: Option<&[bool]>) -> Vec<f64> {
    let n = s.units;
    let mut h = vec![0.0; s.sequence(n)];
    for b in 0..s.batch {
        for t in (0..s.steps).map(|turn| s.time(turn)) {
            let h_before = s.state_before(&h, h0, b, t).to_vec();
            for j in 0..n {
                let at = (b * s.steps + t) * n + j;
                let next = (x[at] + product(&h_before, kernel, j)).tanh();
                h[at] = if real(s, mask, b, t) { next } else { h_before[j] };
            }
        }
    }
    h
}

/// The naive twin of [`simple_backward`](super::simple_backward): gradients of projections, kernel and first state.
pub fn simple_backward_naive(
    s: Sizes,
    kernel: &[f64],
    h: &[f64],
    h0: &[f64],
    mask: Option<&[bool]>,
    given: StateGradients<'_, f64>,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let n = s.units;
    let (mut dx, mut dkernel, mut dh0) = (vec![0.0; h.len()], vec![0.0; kernel.len()], first(s, given.h_last));
    for b in 0..s.batch {
        for t in (0..s.steps).rev().map(|turn| s.time(turn)) {
            let dh = &mut dh0[b * n..(b + 1) * n];
            receive(s, dh, given.h, b, t);
            if !real(s, mask, b, t) {
                continue;
            }
            let step = (b * s.steps + t) * n;
            for j in 0..n {
                dx[step + j] = dh[j] * (1.0 - h[step + j] * h[step + j]);
                dh[j] = 0.0;
            }
            send(&dx[step..step + n], kernel, s.state_before(h, h0, b, t), dh, &mut dkernel);
        }
    }
    (dx, dkernel, dh0)
}

fn first(s: Sizes, given: Option<&[f64]>) -> Vec<f64> {
    given.map_or(vec![0.0; s.state()], <[f64]>::to_vec)
}

/// Adds what flows into a step's state from outside.
fn receive(s: Sizes, dh: &mut [f64], given: Option<&[f64]>, b: usize, t: usize) {
    if let Some(given) = given {
        let from = (b * s.steps + t) * s.units;
        dh.iter_mut().zip(&given[from..]).for_each(|(dh, given)| *dh += given);
    }
}

/// Sends the gradient of a step's products on to the state before and to the kernel.
fn send(dz: &[f64], kernel: &[f64], h_before: &[f64], dh: &mut [f64], dkernel: &mut [f64]) {
    for k in 0..h_before.len() {
        for (q, dz) in dz.iter().enumerate() {
            dh[k] += dz * kernel[k * dz_len(kernel, h_before) + q];
            dkernel[k * dz_len(kernel, h_before) + q] += h_before[k] * dz;
        }
    }
}

fn dz_len(kernel: &[f64], h: &[f64]) -> usize {
    kernel.len() / h.len()
}
