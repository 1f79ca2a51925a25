//! Rates of convolution and its gradients at the sizes of known networks, in GFLOP/s.
//!
//! `cargo run --release -p plimsoll-kernels --example conv_rates [threads [only layers with this in their name]]`; expect 80 to 95% of the rate of a large
//! matrix product for layers of 32 channels and more.

use plimsoll_kernels::Pool;
use plimsoll_kernels::conv::{self, Axis, Geometry};
use plimsoll_kernels::gemm::{self, Into, Mat, MatMut};
use plimsoll_kernels::pooling::{self, Windows};
use std::time::Instant;

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |s| s.parse().expect("a number of threads"));
    let pool = Pool::new(threads);
    println!("{threads} threads; matrix product of 1024: {:.0} GFLOP/s", gemm_rate(&pool));
    println!("{:28} {:>9} {:>20} {:>20} {:>20}", "layer", "GFLOP", "forward", "grad input", "grad filter");
    let mut total = 0.0;
    for (size, stride, kernel, from, to) in
        [(32, 1, 3, 3, 32), (32, 1, 3, 32, 32), (16, 1, 3, 32, 64), (16, 1, 3, 64, 64), (8, 1, 3, 64, 128)]
    {
        total += layer(&pool, 64, size, stride, kernel, from, to, 1);
    }
    println!("sum of the above (small image network, batch 64): {:.1} ms\n", total * 1e3);
    for (batch, size, stride, kernel, from, to) in [
        (8, 224, 2, 7, 3, 64),
        (8, 56, 1, 3, 64, 64),
        (8, 56, 1, 1, 64, 256),
        (8, 28, 1, 3, 128, 128),
        (8, 28, 2, 3, 128, 256),
        (8, 14, 1, 3, 256, 256),
        (8, 14, 1, 1, 1024, 256),
        (8, 7, 1, 3, 512, 512),
        (64, 4, 1, 3, 512, 512),
        (64, 2, 1, 3, 512, 512),
        (64, 1, 1, 1, 512, 512),
        (1, 56, 1, 3, 64, 64),
        (1, 7, 1, 3, 512, 512),
        (4, 160, 1, 3, 128, 64),
        (4, 80, 1, 3, 256, 128),
        (4, 40, 1, 3, 512, 256),
        (4, 20, 1, 3, 1024, 512),
        (4, 20, 1, 3, 512, 512),
        (4, 10, 1, 3, 512, 1024),
        (4, 13, 1, 3, 1024, 1024),
        (1, 13, 1, 3, 1024, 1024),
    ] {
        layer(&pool, batch, size, stride, kernel, from, to, 1);
    }
    layer(&pool, 8, 56, 1, 3, 128, 128, 128);
    layer(&pool, 8, 14, 1, 3, 512, 512, 512);
    layer(&pool, 8, 28, 1, 3, 128, 128, 32);
    pools(&pool, 64, 32, 2, 2, 32);
    pools(&pool, 64, 16, 2, 2, 64);
    pools(&pool, 8, 112, 3, 2, 64);
}

/// Times max and average pooling.
fn pools(pool: &Pool, batch: usize, size: usize, kernel: usize, stride: usize, channels: usize) {
    let output = (size - kernel) / stride + 1;
    let axis = Axis { input: size, output, kernel, stride, dilation: 1, pad: 0 };
    let windows = Windows { batch, channels, axes: [Axis::POINT, axis, axis] };
    let x: Vec<f32> = (0..windows.input_len()).map(|i| (i * 7919 % 1009) as f32).collect();
    let dy = vec![1.0f32; windows.output_len()];
    let (mut y, mut dx) = (dy.clone(), x.clone());
    let bytes = 4.0 * (x.len() + dy.len()) as f64;
    let rates = [
        (seconds(pool, || pooling::max(pool, &windows, &x, &mut y)), bytes),
        (seconds(pool, || pooling::max_grad(pool, &windows, &x, &dy, &mut dx)), bytes + 4.0 * x.len() as f64),
        (seconds(pool, || pooling::average(pool, &windows, &x, &mut y)), bytes),
        (seconds(pool, || pooling::average_grad(pool, &windows, &dy, &mut dx)), bytes),
    ];
    let [max, max_grad, average, average_grad] =
        rates.map(|(s, bytes)| format!("{:.3} ms ({:.1} GB/s)", s * 1e3, bytes / s * 1e-9));
    println!(
        "{batch}x{size}x{size}x{channels} windows {kernel}/{stride}: max {max}, gradient {max_grad}; average {average}, gradient {average_grad}"
    );
}

/// Times one layer with the margin that keeps the size; returns the seconds of all three passes.
fn layer(
    pool: &Pool,
    batch: usize,
    size: usize,
    stride: usize,
    kernel: usize,
    from: usize,
    to: usize,
    groups: usize,
) -> f64 {
    let output = size.div_ceil(stride);
    let pad = ((output - 1) * stride + kernel).saturating_sub(size) / 2;
    let axis = Axis { input: size, output, kernel, stride, dilation: 1, pad };
    let g = Geometry { batch, in_channels: from, out_channels: to, groups, axes: [Axis::POINT, axis, axis] };
    let name = format!("{batch}x{size}x{size} {kernel}x{kernel}/{stride} {from}->{to} g{groups}");
    if std::env::args().nth(2).is_some_and(|wanted| !name.contains(&wanted)) {
        return 0.0;
    }
    let x = vec![0.5f32; g.input_len()];
    let filter = vec![0.25f32; g.filter_len()];
    let dy = vec![0.125f32; g.output_len()];
    let (mut y, mut dx, mut dfilter) = (dy.clone(), x.clone(), filter.clone());
    let threads = pool.threads();
    let need = [conv::forward_scratch::<f32>, conv::grad_input_scratch::<f32>, conv::grad_filter_scratch::<f32>]
        .map(|f| f(&g, threads));
    let mut scratch = vec![0.0f32; need.into_iter().max().unwrap_or(0)];
    let forward = seconds(pool, || conv::forward(pool, &g, &x, &filter, &mut y, &mut scratch));
    let grad_input = seconds(pool, || conv::grad_input(pool, &g, &filter, &dy, &mut dx, &mut scratch));
    let grad_filter =
        seconds(pool, || conv::grad_filter(pool, &g, &x, &dy, &mut dfilter, Into::Overwrite, &mut scratch));
    let flops = g.flops() as f64;
    let show = |s: f64, need: usize| format!("{:8.3} ms {:4.0} {:5}K", s * 1e3, flops / s * 1e-9, need >> 10);
    println!(
        "{name:28} {:9.3} {:>20} {:>20} {:>20}",
        flops * 1e-9,
        show(forward, need[0]),
        show(grad_input, need[1]),
        show(grad_filter, need[2]),
    );
    forward + grad_input + grad_filter
}

fn gemm_rate(pool: &Pool) -> f64 {
    let n = 1024;
    let (a, b, mut c) = (vec![0.5f32; n * n], vec![0.5f32; n * n], vec![0.0f32; n * n]);
    let s = seconds(pool, || {
        gemm::matmul(
            pool,
            Mat::new(&a, n, n),
            Mat::new(&b, n, n),
            MatMut::new(&mut c, n, n),
            Into::Overwrite,
            usize::MAX,
        )
    });
    2e-9 * (n * n * n) as f64 / s
}

/// With one thread the mean processor time, else the shortest of repeated runs: others may be using the machine.
fn seconds(pool: &Pool, mut f: impl FnMut()) -> f64 {
    f();
    if let Some(start) = processor_time().filter(|_| pool.threads() == 1) {
        for count in 1.. {
            f();
            let time = processor_time().unwrap_or(f64::INFINITY) - start;
            if time > 0.15 {
                return time / count as f64;
            }
        }
    }
    let run = |_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..30).map(run).fold(f64::INFINITY, f64::min)
}

/// Seconds that this thread has run, where the system tells; it counts in steps of a few milliseconds.
fn processor_time() -> Option<f64> {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(schedule.split(' ').next()?.parse::<f64>().ok()? * 1e-9)
}
