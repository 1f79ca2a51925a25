//! What the library for matrix products really takes, as the kernel counts it, is within the bound: one process per product.

#![cfg(target_os = "linux")]

use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::{self, Into, Mat, MatMut, Packing};
use std::process::Command;

const VARIABLE: &str = "PLIMSOLL_TEST_PRODUCT";

/// Sizes, threads, whether operands are transposed, and whether products are made inside tasks.
type Product = (usize, usize, usize, usize, bool, bool, bool);

const PRODUCTS: [Product; 12] = [
    (32, 784, 128, 1, false, false, false),
    (256, 256, 256, 1, false, false, false),
    (1024, 256, 256, 1, false, false, false),
    (4096, 2048, 1000, 1, false, false, false),
    (4096, 2048, 1000, 2, false, true, false),
    (300, 4096, 200, 2, true, false, false),
    (1238, 230, 107, 1, false, true, false),
    (1200, 700, 1300, 1, true, true, true),
    (48, 512, 256, 2, false, false, true),
    (256, 64, 64, 1, true, false, true),
    (65, 65, 65, 1, false, false, true),
    (2000, 3, 2000, 1, false, false, true),
];

#[test]
fn child() {
    let Ok(at) = std::env::var(VARIABLE) else { return };
    let (m, k, n, threads, ta, tb, here) = PRODUCTS[at.parse::<usize>().unwrap()];
    let (a, b, mut c) = (vec![1.0f32; m * k], vec![1.0f32; k * n], vec![1.0f32; m * n]);
    let pool = Pool::new(threads);
    let mut product = |m: usize, k: usize, n: usize| {
        let left = if ta { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
        let right = if tb { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
        let out = MatMut::new(&mut c, m, n);
        match here {
            true => gemm::matmul_here(left, right, out, Into::Overwrite),
            false => gemm::matmul(&pool, left, right, out, Into::Overwrite, usize::MAX),
        }
    };
    // Code is read and the library looks at the processor.
    product(2, 3, 2);
    let packing = if here { Packing::here::<f32>(m, k, n) } else { Packing::matmul::<f32>(m, k, n, usize::MAX) };
    packing.prepare();
    gemm::settle_heap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, code_before) = (kib("VmRSS:"), kib("RssFile:"));
    // Smaller products first: their buffers must not stand beside the larger ones.
    for part in [16, 4, 2, 1, 1] {
        product((m / part).max(1), (k / part).max(1), (n / part).max(1));
    }
    let code = kib("RssFile:") - code_before;
    println!("\nTOOK {} {}", kib("VmHWM:") - before - code, packing.bytes(threads) / 1024);
}

/// A figure of this process in KiB.
fn kib(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn bounds_hold() {
    for (at, product) in PRODUCTS.iter().enumerate() {
        let this = std::env::current_exe().unwrap();
        let output = Command::new(this)
            .args(["--exact", "child", "--nocapture"])
            .env(VARIABLE, at.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|l| l.strip_prefix("TOOK ")).unwrap_or_else(|| panic!("{text}"));
        let (took, bound) = line.split_once(' ').unwrap();
        println!("{product:?}: {took} KiB of {bound}");
        let (took, bound): (usize, usize) = (took.parse().unwrap(), bound.parse().unwrap());
        // Stacks that are touched for the first time, up to what the kernel's counting resolves.
        assert!(took <= bound + 64, "{product:?}: {took} KiB, the bound is {bound}");
    }
}
