//! Measures how fast random numbers are drawn: `cargo run --release --example rates_random`.

use plimsoll_kernels::Pool;
use plimsoll_kernels::random::{Distribution, Key, fill};
use std::time::Instant;

fn main() {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        for n in [1 << 16, 1 << 24] {
            let mut out = vec![0.0f32; n];
            for (name, distribution) in [
                ("uniform", Distribution::Uniform),
                ("normal", Distribution::Normal),
                ("truncated", Distribution::TruncatedNormal),
            ] {
                let key = Key { seed: 1, step: 2, stream: 3 };
                report(name, threads, n, 4 * n, || fill(&pool, distribution, key, 0, &mut out));
            }
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
