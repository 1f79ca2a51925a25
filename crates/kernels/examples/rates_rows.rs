//! Rates of softmax, cross-entropy, normalisations and attention: at the sizes of a small GPT (2048 tokens of width 256,
//! 8192 words, 4 heads) and of known image networks.
//!
//! `cargo run --release -p plimsoll-kernels --example rates_rows [threads]`; expect what is bound by memory to run at
//! half the rate of a copy or better (the exponentials of 8192 words cost as much as reading them), and attention at
//! two thirds of the rate of a large matrix product.

use plimsoll_kernels::attention::{self, Attention, Heads, HeadsMut, Mask, MaskView};
use plimsoll_kernels::channel_norm::{self, GroupNorm};
use plimsoll_kernels::gemm::Into;
use plimsoll_kernels::pool::{Pool, SharedSlice};
use plimsoll_kernels::{Source, cross_entropy, norm, softmax};
use std::time::Instant;

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |s| s.parse().expect("a number of threads"));
    let pool = Pool::new(threads);
    println!("{threads} threads");
    rows(&pool, 2048, 8192);
    rows(&pool, 2048, 256);
    rows(&pool, 20_000, 100);
    rows(&pool, 100_000, 10);
    channels(&pool, 32, 56 * 56, 64);
    channels(&pool, 32, 14 * 14, 256);
    channels(&pool, 128, 32 * 32, 16);
    for (batch, time, heads, depth, causal) in [
        (8, 256, 4, 64, true),
        (8, 256, 4, 64, false),
        (1, 2048, 4, 64, true),
        (2, 1024, 8, 128, false),
        (8, 128, 8, 32, false),
    ] {
        attend(&pool, batch, time, heads, depth, causal);
    }
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1009) as f32 / 504.0 - 1.0).collect()
}

/// The fastest of several runs: the machine has other things to do as well.
fn seconds(mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.4 {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn print(name: &str, amount: f64, unit: &str, run: impl FnMut()) {
    let s = seconds(run);
    println!("  {name:28} {:9.3} ms {:8.1} {unit}", s * 1e3, amount / s * 1e-9);
}

fn copy(pool: &Pool, x: &[f32], y: &mut [f32]) {
    let (part, out) = (x.len().div_ceil(64), SharedSlice::new(y));
    pool.run(64, &|task, _| {
        let (start, end) = ((task * part).min(x.len()), ((task + 1) * part).min(x.len()));
        // SAFETY: the tasks' parts do not overlap.
        unsafe { out.slice(start, end - start) }.copy_from_slice(&x[start..end]);
    });
}

fn rows(pool: &Pool, rows: usize, columns: usize) {
    println!("{rows} rows of {columns}");
    let x = numbers(rows * columns);
    let (mut y, mut dx, dy) = (x.clone(), x.clone(), x.clone());
    let (scale, offset) = (numbers(columns), numbers(columns));
    let (mut dscale, mut doffset) = (numbers(columns), numbers(columns));
    let (mut mean, mut rstd, drows) = (numbers(rows), numbers(rows), numbers(rows));
    let labels: Vec<i32> = (0..rows).map(|i| (i % columns) as i32).collect();
    let mut scratch = vec![0.0; norm::layer_norm_grad_scratch(rows, columns)];
    let bytes = 4.0 * x.len() as f64;
    let gb = "GB/s";
    print("copy", 2.0 * bytes, gb, || copy(pool, &x, &mut y));
    print("cross-entropy", bytes, gb, || {
        cross_entropy::sparse_cross_entropy(pool, &x, &labels, None, &mut mean, &mut rstd);
    });
    print("cross-entropy, gradient", 2.0 * bytes, gb, || {
        let x = Source::Slice(&x[..]);
        cross_entropy::sparse_cross_entropy_grad(pool, x, &labels, None, &rstd, &drows, &mut dx);
    });
    print("the same in place", 2.0 * bytes, gb, || {
        cross_entropy::sparse_cross_entropy_grad(pool, Source::InPlace, &labels, None, &rstd, &drows, &mut dx);
    });
    print("softmax", 2.0 * bytes, gb, || softmax::softmax(pool, Source::Slice(&x), &mut y, columns));
    print("softmax, gradient", 3.0 * bytes, gb, || {
        softmax::softmax_grad(pool, &y, Source::Slice(&dy), &mut dx, columns);
    });
    print("layer norm", 2.0 * bytes, gb, || {
        let (x, scale, offset) = (Source::Slice(&x[..]), Some(&scale[..]), Some(&offset[..]));
        norm::layer_norm(pool, x, scale, offset, 1e-5, &mut y, &mut mean, &mut rstd);
    });
    print("layer norm, gradient", 3.0 * bytes, gb, || {
        let (dy, scale, into) = (Source::Slice(&dy[..]), Some(&scale[..]), Into::Overwrite);
        let (ds, do_) = (Some(&mut dscale[..]), Some(&mut doffset[..]));
        norm::layer_norm_grad(pool, &x, scale, &mean, &rstd, dy, &mut dx, ds, do_, into, &mut scratch);
    });
}

fn channels(pool: &Pool, samples: usize, positions: usize, channels: usize) {
    println!("{samples} images of {positions} positions and {channels} channels");
    let x = numbers(samples * positions * channels);
    let (mut y, mut dx, dy) = (x.clone(), x.clone(), x.clone());
    let (scale, offset) = (numbers(channels), numbers(channels));
    let [mut mean, mut variance, mut dscale, mut doffset] = [0; 4].map(|_| numbers(channels));
    let shape = GroupNorm { samples, positions, channels, groups: 8 };
    let [mut means, mut rstds] = [0; 2].map(|_| numbers(samples * 8));
    let mut scratch = vec![0.0; shape.scratch().max(channel_norm::batch_norm_scratch(samples * positions, channels))];
    let scratch = &mut scratch[..];
    let bytes = 4.0 * x.len() as f64;
    let gb = "GB/s";
    let (scale, offset) = (Some(&scale[..]), Some(&offset[..]));
    print("copy", 2.0 * bytes, gb, || copy(pool, &x, &mut y));
    print("batch norm, statistics", bytes, gb, || {
        channel_norm::batch_stats(pool, &x, &mut mean, &mut variance, scratch);
    });
    print("batch norm, gradient", 5.0 * bytes, gb, || {
        let (dy, dx, ds, do_) = (Source::Slice(&dy[..]), &mut dx, &mut dscale, &mut doffset);
        channel_norm::batch_norm_grad(pool, &x, &mean, &variance, 1e-3, scale, dy, dx, ds, do_, scratch);
    });
    print("group norm", 3.0 * bytes, gb, || {
        let x = Source::Slice(&x[..]);
        channel_norm::group_norm(pool, shape, x, scale, offset, 1e-3, &mut y, &mut means, &mut rstds, scratch);
    });
    print("group norm, gradient", 5.0 * bytes, gb, || {
        let (dy, ds, do_) = (Source::Slice(&dy[..]), Some(&mut dscale[..]), Some(&mut doffset[..]));
        let (dx, into) = (&mut dx, Into::Overwrite);
        channel_norm::group_norm_grad(pool, shape, &x, scale, &means, &rstds, dy, dx, ds, do_, into, scratch);
    });
}

fn attend(pool: &Pool, batch: usize, time: usize, heads: usize, depth: usize, causal: bool) {
    println!(
        "attention, {batch} samples, {time} tokens, {heads} heads of {depth}{}",
        if causal { ", causal" } else { "" }
    );
    let shape = Attention {
        batch,
        queries: time,
        keys: time,
        heads,
        kv_heads: heads,
        depth,
        value_depth: depth,
        scale: 1.0 / (depth as f64).sqrt(),
        causal,
        dropout: None,
    };
    let qkv = numbers(batch * time * 3 * heads * depth);
    let mut grads = qkv.clone();
    let (mut y, dy) = (numbers(batch * time * heads * depth), numbers(batch * time * heads * depth));
    let mut lse = numbers(batch * heads * time);
    let added = numbers(time * time);
    let mut scratch = vec![0.0; attention::attention_scratch(&shape, pool.threads())];
    let [q, k, v] = Heads::packed(&qkv, heads, time, depth);
    // What is needed: half of the scores when causal.
    let product = 2.0 * (batch * heads * time * time * depth) as f64 * if causal { 0.5 } else { 1.0 };
    let gflops = "GFLOP/s";
    print("forward, additive mask", 2.0 * product, gflops, || {
        let (mask, y) =
            (Mask::Add(MaskView::new(&added, [1, 1, time, time])), HeadsMut::new(&mut y, heads, time, depth));
        attention::attention(pool, &shape, q, k, v, mask, y, &mut lse, &mut scratch);
    });
    print("forward", 2.0 * product, gflops, || {
        let y = HeadsMut::new(&mut y, heads, time, depth);
        attention::attention(pool, &shape, q, k, v, Mask::None, y, &mut lse, &mut scratch);
    });
    let mut scratch = vec![0.0; attention::attention_grad_scratch(&shape, pool.threads())];
    print("gradient", 5.0 * product, gflops, || {
        let (y, dy) = (Heads::new(&y, heads, time, depth), Heads::new(&dy, heads, time, depth));
        let [dq, dk, dv] = HeadsMut::packed(&mut grads, heads, time, depth);
        attention::attention_grad(pool, &shape, q, k, v, Mask::None, y, &lse, dy, None, dq, dk, dv, &mut scratch);
    });
}
