//! Measures how fast random numbers are drawn: `cargo run --release --example rates_random`.

use plimsoll_kernels::Pool;
use plimsoll_kernels::random::{Distribution, Stream, dropout, fill};
use std::time::Instant;

fn main() {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        for n in [1 << 16, 1 << 24] {
            let mut out = vec![0.0f32; n];
            let x = vec![1.0f32; n];
            for (name, distribution) in [
                ("uniform", Distribution::UNIT),
                ("normal", Distribution::NORMAL),
                ("truncated", Distribution::TruncatedNormal { mean: 0.0, stddev: 1.0 }),
                ("bernoulli", Distribution::Bernoulli { probability: 0.5 }),
            ] {
                report(name, threads, n, 4 * n, || fill(&pool, Stream::new(1, 2, 3), distribution, 0, &mut out));
            }
            report("dropout", threads, n, 8 * n, || dropout(&pool, Stream::new(1, 2, 3), 0.1, 0, &x, &mut out));
        }
    }
}

fn report(name: &str, threads: usize, n: usize, bytes: usize, mut body: impl FnMut()) {
    // The best of many runs: other programs share the machine.
    let seconds = (0..(1 << 28) / n).map(|_| {
        let start = Instant::now();
        body();
        start.elapsed().as_secs_f64()
    });
    let seconds = seconds.fold(f64::INFINITY, f64::min);
    let (giga, rate) = (n as f64 / seconds / 1e9, bytes as f64 / seconds / 1e9);
    println!("{name:10} {threads} threads  n {n:9}  {giga:6.2} G elements/s  {rate:6.1} GB/s");
}
