//! Measures sorting, the k largest, gathers, scatters and scans: `cargo run --release --example rates_index`.

use plimsoll_kernels::Pool;
use plimsoll_kernels::axis::Axis;
use plimsoll_kernels::gather::{gather, scatter_add};
use plimsoll_kernels::gemm::Into;
use plimsoll_kernels::random::{Distribution, Key, fill, integers};
use plimsoll_kernels::scan::{self, Scan, cumsum};
use plimsoll_kernels::sort::{Order, Sorted, sort, sort_scratch, top_k, top_k_scratch};
use std::time::Instant;

fn main() {
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let n = 1 << 22;
        let mut x = vec![0.0f32; n];
        fill(&pool, Distribution::Normal, Key { seed: 1, step: 1, stream: 1 }, 0, &mut x);
        let (mut values, mut positions) = (vec![0.0f32; n], vec![0i32; n]);
        for row in [16, 256, 1024, 2048, 4096, 65536, 1 << 20] {
            let mut scratch = vec![0u64; sort_scratch(row, threads)];
            let seconds = best(|| {
                let out = Sorted { values: Some(&mut values), positions: Some(&mut positions) };
                sort(&pool, &x, row, Order::Ascending, out, &mut scratch);
            });
            println!("sort  {threads} threads  rows of {row:7}: {:6.1} M elements/s", n as f64 / seconds / 1e6);
        }
        for (row, k) in [(1024, 1), (1024, 8), (65536, 10), (65536, 1000)] {
            let mut scratch = vec![0u64; top_k_scratch(row, k, threads)];
            let rows = n / row;
            let seconds = best(|| {
                let out = Sorted { values: Some(&mut values[..rows * k]), positions: Some(&mut positions[..rows * k]) };
                top_k(&pool, &x, row, k, out, &mut scratch);
            });
            println!("top_k {threads} threads  {k} of {row}: {:6.1} M elements/s", n as f64 / seconds / 1e6);
        }
        for (vocabulary, width, tokens) in [(50_000, 64, 65536), (50_000, 512, 8192), (1000, 16, 65536)] {
            let mut table = vec![1.0f32; vocabulary * width];
            let mut indices = vec![0i32; tokens];
            integers(&pool, 0, vocabulary as i64, Key { seed: 1, step: 2, stream: 1 }, 0, &mut indices);
            let axis = Axis::new(&[vocabulary, width], 0);
            let rows = &mut values[..tokens * width];
            let bytes = 8.0 * rows.len() as f64;
            let seconds = best(|| gather(&pool, &table, axis, &indices, rows).expect("indices are inside"));
            println!(
                "gather {threads} threads  {tokens} of {vocabulary} x {width}: {:5.1} GB/s",
                bytes / seconds / 1e9
            );
            let add = |into, table: &mut [f32]| scatter_add(&pool, axis, &indices, rows, table, into).expect("inside");
            let seconds = best(|| add(Into::Add, &mut table));
            println!("scatter_add {threads} threads: {:5.1} GB/s", 1.5 * bytes / seconds / 1e9);
        }
        for (outer, size, inner) in [(4096, 1024, 1), (1, n, 1), (64, 1024, 64)] {
            let axis = Axis { outer, size, inner };
            let mut scratch = vec![0.0; scan::scratch(axis)];
            let seconds = best(|| cumsum(&pool, &x, axis, Scan::default(), &mut values, &mut scratch));
            println!("cumsum {threads} threads {axis:?}: {:5.1} GB/s", 8.0 * n as f64 / seconds / 1e9);
        }
    }
}

/// The best of several runs: other programs share the machine.
fn best(mut body: impl FnMut()) -> f64 {
    let runs = (0..8).map(|_| {
        let start = Instant::now();
        body();
        start.elapsed().as_secs_f64()
    });
    runs.fold(f64::INFINITY, f64::min)
}
