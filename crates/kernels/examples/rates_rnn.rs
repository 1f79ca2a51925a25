//! Measures the recurrent layers against the rate of matrix products: `cargo run --release --example rates_rnn`.

use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::{Into, Mat, MatMut, matmul};
use plimsoll_kernels::rnn::{
    GruGradients, LstmGradients, LstmStates, Projections, Sizes, StateGradients, forward_scratch, gru_backward,
    gru_backward_scratch, gru_forward, lstm_backward, lstm_backward_scratch, lstm_forward,
};
use std::time::Instant;

fn main() {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let n = 1024;
        let (a, b, mut c) = (vec![0.1f32; n * n], vec![0.1f32; n * n], vec![0.0f32; n * n]);
        let product = || {
            let c = MatMut::new(&mut c, n, n);
            matmul(&pool, Mat::new(&a, n, n), Mat::new(&b, n, n), c, Into::Overwrite, usize::MAX);
        };
        println!(
            "{threads} threads: matrix product {:.0} GFLOP/s",
            2.0 * (n * n * n) as f64 / best(&pool, product) / 1e9
        );
        for (batch, steps, units) in [(64, 128, 512), (32, 128, 128), (32, 50, 256), (128, 100, 64), (1, 100, 512)] {
            lstm(&pool, Sizes { batch, steps, units, reverse: false });
            gru(&pool, Sizes { batch, steps, units, reverse: false });
        }
    }
}

fn lstm(pool: &Pool, s: Sizes) {
    let (state, sequence) = (s.batch * s.units, s.batch * s.steps * s.units);
    let zeros = |n: usize| vec![0.0f32; n];
    let (x, kernel, first) = (vec![0.3f32; 4 * sequence], vec![0.01f32; 4 * s.units * s.units], zeros(state));
    let (mut h, mut c, mut h_last, mut c_last) = (zeros(sequence), zeros(sequence), zeros(state), zeros(state));
    let mut scratch = zeros(forward_scratch(s, 4, pool.threads()));
    let mut gates = x.clone();
    let forward = best(pool, || {
        let out = LstmStates { h: &mut h, c: Some(&mut c), h_last: &mut h_last, c_last: &mut c_last };
        lstm_forward(pool, s, Projections::Replace(&mut gates), &kernel, &first, &first, None, out, &mut scratch);
    });
    let dh = vec![0.1f32; sequence];
    let (mut dkernel, mut dh0, mut dc0) = (zeros(kernel.len()), zeros(state), zeros(state));
    let mut scratch = zeros(lstm_backward_scratch(s, pool.threads()));
    let backward = best(pool, || {
        let given = StateGradients { h: Some(&dh), ..Default::default() };
        let out = LstmGradients { kernel: &mut dkernel, h0: &mut dh0, c0: &mut dc0, into: Into::Overwrite };
        let (states, first) = ((&h[..], &c[..]), (&first[..], &first[..]));
        lstm_backward(pool, s, &mut gates, &kernel, states, first, None, given, out, &mut scratch);
    });
    report("lstm", s, 4, forward, backward);
}

fn gru(pool: &Pool, s: Sizes) {
    let (state, sequence) = (s.batch * s.units, s.batch * s.steps * s.units);
    let zeros = |n: usize| vec![0.0f32; n];
    let (x, kernel) = (vec![0.3f32; 3 * sequence], vec![0.01f32; 3 * s.units * s.units]);
    let (bias, first) = (zeros(3 * s.units), zeros(state));
    let (mut h, mut h_last, mut gates) = (zeros(sequence), zeros(state), zeros(4 * sequence));
    let mut scratch = zeros(forward_scratch(s, 3, pool.threads()));
    let forward = best(pool, || {
        let states = (&mut h[..], &mut h_last[..]);
        gru_forward(pool, s, &x, (&kernel, &bias), &first, None, states, Some(&mut gates), &mut scratch);
    });
    let dh = vec![0.1f32; sequence];
    let (mut dx, mut dkernel, mut dbias, mut dh0) =
        (zeros(x.len()), zeros(kernel.len()), zeros(bias.len()), zeros(state));
    let mut scratch = zeros(gru_backward_scratch(s, pool.threads()));
    let backward = best(pool, || {
        let given = StateGradients { h: Some(&dh), ..Default::default() };
        let out = GruGradients {
            projections: &mut dx,
            kernel: &mut dkernel,
            bias: &mut dbias,
            h0: &mut dh0,
            into: Into::Overwrite,
        };
        gru_backward(pool, s, &gates, &kernel, &h, &first, None, given, out, &mut scratch);
    });
    report("gru", s, 3, forward, backward);
}

fn report(name: &str, s: Sizes, gates: usize, forward: f64, backward: f64) {
    let flops = 2.0 * (s.batch * s.steps * gates * s.units * s.units) as f64;
    println!(
        "{name:4} {:3} x {:3} steps x {:3} units: forward {:7.2} ms {:4.0} GFLOP/s  backward {:7.2} ms {:4.0} GFLOP/s",
        s.batch,
        s.steps,
        s.units,
        forward * 1e3,
        flops / forward / 1e9,
        backward * 1e3,
        2.0 * flops / backward / 1e9,
    );
}

/// The best of several runs; alone, in time that the thread was running: other programs share the machine.
fn best(pool: &Pool, mut body: impl FnMut()) -> f64 {
    let clock = Instant::now();
    let now = || match std::fs::read_to_string("/proc/thread-self/schedstat") {
        Ok(text) if pool.threads() == 1 => text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0) * 1e-9,
        _ => clock.elapsed().as_secs_f64(),
    };
    let runs = (0..10).map(|_| {
        let start = now();
        body();
        now() - start
    });
    runs.fold(f64::INFINITY, f64::min)
}
