//! `plimsoll bench`: this host's arithmetic, memory and disk.

use super::doctor::try_disk;
use crate::Outcome;
use crate::out::Out;
use clap::Args;
use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::{Into, Mat, MatMut, matmul};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// How fast this host computes, moves memory and reaches its disk.
#[derive(Args)]
#[command(after_help = "Examples:\n  plimsoll bench\n  plimsoll bench --threads 1 --json")]
pub struct Options {
    /// Threads.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The directory whose disk is tried; the one for temporary files if not given.
    #[arg(long, value_name = "DIRECTORY")]
    spill_dir: Option<PathBuf>,
}

/// `plimsoll bench --json`.
#[derive(Serialize, JsonSchema)]
pub struct Bench {
    /// Threads.
    threads: usize,
    /// Floating-point operations a second in products of f32 matrices, by their size; the best of some.
    gflops: Vec<Product>,
    /// Bytes a second that a copy of 64 MiB reads and writes.
    copy: f64,
    /// Bytes a second to the disk; null where it cannot be used.
    disk_write: Option<f64>,
    /// Bytes a second from the disk.
    disk_read: Option<f64>,
    /// `direct`, `buffered` or `in memory`.
    disk_transfers: Option<String>,
}

/// A product of square matrices.
#[derive(Serialize, JsonSchema)]
struct Product {
    /// Rows and columns.
    size: usize,
    /// Billions of operations a second.
    gflops: f64,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let pool = Pool::new(threads);
    let gflops = [64, 256, 1024].map(|size| Product { size, gflops: product(&pool, size) }).into();
    let directory = options.spill_dir.clone().unwrap_or_else(plimsoll::session::usual_spill_dir);
    let disk = try_disk(&directory, 128 << 20);
    if let Err(problem) = &disk {
        out.talk(format!("{}: {problem}", directory.display()));
    }
    let (transfers, rates) = disk.map_or((None, None), |(way, rates)| (Some(way), rates));
    let found = Bench {
        threads,
        gflops,
        copy: copy(threads),
        disk_write: rates.map(|r| r.0),
        disk_read: rates.map(|r| r.1),
        disk_transfers: transfers,
    };
    if out.json {
        out.json_page(&found);
        return Ok(0);
    }
    out.data(format!("threads          {threads}"));
    for Product { size, gflops } in &found.gflops {
        out.data(format!("product {size:>5}^3  {gflops:>8.1} GFLOP/s"));
    }
    out.data(format!("memory copy      {:>8.1} GB/s", found.copy / 1e9));
    if let (Some(write), Some(read), Some(way)) = (found.disk_write, found.disk_read, &found.disk_transfers) {
        out.data(format!("disk write       {:>8.1} MB/s   {way}", write / 1e6));
        out.data(format!("disk read        {:>8.1} MB/s", read / 1e6));
    }
    Ok(0)
}

/// The best of about a third of a second.
fn product(pool: &Pool, n: usize) -> f64 {
    let a: Vec<f32> = (0..n * n).map(|i| (i % 13) as f32 - 6.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 11) as f32 - 5.0).collect();
    let mut c = vec![0f32; n * n];
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while best.is_infinite() || begin.elapsed().as_secs_f64() < 0.3 {
        let start = Instant::now();
        matmul(pool, Mat::new(&a, n, n), Mat::new(&b, n, n), MatMut::new(&mut c, n, n), Into::Overwrite, usize::MAX);
        best = best.min(start.elapsed().as_secs_f64());
    }
    2.0 * (n as f64).powi(3) / best / 1e9
}

/// Copies 64 MiB by all threads a few times; both directions count.
fn copy(threads: usize) -> f64 {
    const BYTES: usize = 64 << 20;
    let from = vec![1u8; BYTES];
    let mut to = vec![0u8; BYTES];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        let part = BYTES.div_ceil(threads);
        std::thread::scope(|scope| {
            for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                scope.spawn(move || to.copy_from_slice(from));
            }
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    std::hint::black_box(&to);
    2.0 * BYTES as f64 / best
}
