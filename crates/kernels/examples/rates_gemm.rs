//! Rates of matrix products in GFLOP/s: those of the workloads in `benches/`, forward and both gradients, on one thread and on all.
//!
//!     cargo run --release -p plimsoll-kernels --example rates_gemm [-- repeats]

use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::{Into, Mat, MatMut, chunk_terms, matmul};
use std::time::Instant;

/// Rows, inner size, columns.
const SIZES: [(&str, usize, usize, usize); 12] = [
    ("W6", 4096, 2048, 2048),
    ("W5 projections", 2048, 256, 768),
    ("W5 wide", 2048, 256, 1024),
    ("W5 narrow", 2048, 1024, 256),
    ("W5 logits", 2048, 256, 8192),
    ("W5 wide, 1/4", 512, 256, 1024),
    ("W5 narrow, 1/4", 512, 1024, 256),
    ("W5 logits, 1/4", 512, 256, 8192),
    ("W5 wide, 1/8", 256, 256, 1024),
    ("W5 logits, 1/8", 256, 256, 8192),
    ("GPT 384", 2048, 384, 1536),
    ("LSTM", 8192, 512, 2048),
];

fn main() {
    let repeats: usize = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repeats"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{:16} {:>18} {:>8} {:>8} {:>8} {:>8}", "", "m x k x n", "threads", "x w", "dy w'", "x' dy");
    for (name, m, k, n) in SIZES {
        for threads in [1, threads] {
            let pool = Pool::new(threads);
            let (x, w, dy) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0.125f32; m * n]);
            let (mut y, mut dx, mut dw) = (vec![0f32; m * n], vec![0f32; m * k], vec![0f32; k * n]);
            let flops = 2.0 * (m * k * n) as f64;
            let rate = |product: &mut dyn FnMut()| {
                product();
                let times = (0..repeats).map(|_| {
                    let begin = Instant::now();
                    product();
                    begin.elapsed().as_secs_f64()
                });
                flops / times.fold(f64::INFINITY, f64::min) * 1e-9
            };
            let forward = rate(&mut || {
                let out = MatMut::new(&mut y, m, n);
                matmul(&pool, Mat::new(&x, m, k), Mat::new(&w, k, n), out, Into::Overwrite, usize::MAX);
            });
            let data = rate(&mut || {
                let out = MatMut::new(&mut dx, m, k);
                matmul(&pool, Mat::new(&dy, m, n), Mat::new(&w, k, n).t(), out, Into::Overwrite, usize::MAX);
            });
            let weights = rate(&mut || {
                let (out, chunk) = (MatMut::new(&mut dw, k, n), chunk_terms(k, n));
                matmul(&pool, Mat::new(&x, m, k).t(), Mat::new(&dy, m, n), out, Into::Overwrite, chunk);
            });
            println!("{name:16} {m:6} x{k:5} x{n:5} {threads:8} {forward:8.1} {data:8.1} {weights:8.1}");
        }
    }
}
