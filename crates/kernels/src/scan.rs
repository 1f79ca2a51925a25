//! Cumulative sums and products along an axis.
//!
//! Along the last axis a long row is cut into blocks of [`BLOCK`] elements: a result is what came before
//! the block (the totals of the blocks, left to right) and the running value inside it. So one row can be
//! shared by all threads, rounding errors grow more slowly, and the bits depend on the sizes alone.

use crate::axis::Axis;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

/// Elements of a row that are run through in one go.
pub const BLOCK: usize = 4096;

/// Columns that are run through side by side where the axis is not the last one.
const STRIP: usize = 64;

/// How a scan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scan {
    /// An element's own value is left out: the first result is 0 for a sum, 1 for a product.
    pub exclusive: bool,
    /// From the end of the axis to its beginning.
    pub reverse: bool,
}

/// Cumulative sum: `out[j] = x[0] + ... + x[j]` along the axis.
///
/// `scratch` has [`scratch`] elements. The gradient of a cumulative sum is the cumulative sum of the
/// gradient in the other direction.
///
/// # Panics
/// When the lengths disagree.
///
/// ```
/// use plimsoll_kernels::{Pool, axis::Axis, scan};
/// let (x, mut y) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4]);
/// let exclusive = scan::Scan { exclusive: true, reverse: false };
/// scan::cumsum(&Pool::new(1), &x, Axis::new(&[4], 0), exclusive, &mut y, &mut []);
/// assert_eq!(y, [0.0, 1.0, 3.0, 6.0]);
/// ```
pub fn cumsum<T: Float>(pool: &Pool, x: &[T], axis: Axis, scan: Scan, out: &mut [T], scratch: &mut [T]) {
    run(Sum, pool, x, axis, scan, out, scratch);
}

/// Cumulative product: `out[j] = x[0] * ... * x[j]` along the axis.
///
/// `scratch` has [`scratch`] elements.
///
/// # Panics
/// When the lengths disagree.
pub fn cumprod<T: Float>(pool: &Pool, x: &[T], axis: Axis, scan: Scan, out: &mut [T], scratch: &mut [T]) {
    run(Product, pool, x, axis, scan, out, scratch);
}

/// Scratch of [`cumsum`] and [`cumprod`] in elements: a total per block of the long rows.
pub fn scratch(axis: Axis) -> usize {
    if axis.inner == 1 && axis.size > BLOCK { axis.outer * axis.size.div_ceil(BLOCK) } else { 0 }
}

/// The gradient of [`cumprod`]: from `x` and the gradient `dy` of its result to `dx`.
///
/// With `p[k]` the product of what comes before k and `s[k] = dy[k] + x[k+1] * s[k+1]`, the gradient is
/// `dx[k] = p[k] * s[k]`. Nothing is divided, so zeros in `x` do no harm.
///
/// # Panics
/// When the lengths disagree.
pub fn cumprod_grad<T: Float>(pool: &Pool, x: &[T], dy: &[T], axis: Axis, scan: Scan, dx: &mut [T]) {
    assert_eq!((x.len(), dy.len(), dx.len()), (axis.len(), axis.len(), axis.len()), "sizes differ");
    let dx = SharedSlice::new(dx);
    let strips = axis.inner.div_ceil(STRIP);
    pool.run_sized(axis.outer * strips, axis.len() * 3, &|task, _| {
        let (start, width) = strip(axis, task / strips.max(1), task % strips.max(1));
        // SAFETY: tasks write strips of their own.
        product_grad(x, dy, axis, scan, start, width, &|at| unsafe { dx.slice(at, width) });
    });
}

/// An operation to run along an axis.
trait Combine: Copy + Sync {
    fn start<T: Float>(self) -> T;
    fn combine<T: Float>(self, a: T, b: T) -> T;
}

#[derive(Clone, Copy)]
struct Sum;
#[derive(Clone, Copy)]
struct Product;

impl Combine for Sum {
    #[inline(always)]
    fn start<T: Float>(self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn combine<T: Float>(self, a: T, b: T) -> T {
        a + b
    }
}

impl Combine for Product {
    #[inline(always)]
    fn start<T: Float>(self) -> T {
        T::ONE
    }
    #[inline(always)]
    fn combine<T: Float>(self, a: T, b: T) -> T {
        a * b
    }
}

fn run<T: Float, C: Combine>(op: C, pool: &Pool, x: &[T], axis: Axis, scan: Scan, out: &mut [T], totals: &mut [T]) {
    assert_eq!((x.len(), out.len()), (axis.len(), axis.len()), "sizes differ");
    if axis.inner == 1 {
        return run_rows(op, pool, x, axis, scan, out, totals);
    }
    let out = SharedSlice::new(out);
    let strips = axis.inner.div_ceil(STRIP);
    pool.run_sized(axis.outer * strips, axis.len(), &|task, _| {
        let (start, width) = strip(axis, task / strips.max(1), task % strips.max(1));
        // SAFETY: tasks write strips of their own.
        run_strip(op, x, axis, scan, start, width, &|at| unsafe { out.slice(at, width) });
    });
}

/// The first element and the width of a strip of columns.
fn strip(axis: Axis, outer: usize, strip: usize) -> (usize, usize) {
    let column = strip * STRIP;
    (outer * axis.size * axis.inner + column, STRIP.min(axis.inner - column))
}

/// The step along the axis that comes at turn `j`.
#[inline(always)]
fn turn(axis: Axis, scan: Scan, j: usize) -> usize {
    if scan.reverse { axis.size - 1 - j } else { j }
}

fn run_strip<'a, T: Float, C: Combine>(
    op: C,
    x: &[T],
    axis: Axis,
    scan: Scan,
    start: usize,
    width: usize,
    out: &dyn Fn(usize) -> &'a mut [T],
) {
    let mut running = [op.start::<T>(); STRIP];
    for j in 0..axis.size {
        let at = start + turn(axis, scan, j) * axis.inner;
        row(op, &mut running[..width], &x[at..at + width], out(at), scan.exclusive);
    }
}

simd! {
    fn row[T: Float, C: Combine](op: C, running: &mut [T], x: &[T], out: &mut [T], exclusive: bool) {
        if exclusive {
            for ((running, &x), out) in running.iter_mut().zip(x).zip(out) {
                *out = *running;
                *running = op.combine(*running, x);
            }
        } else {
            for ((running, &x), out) in running.iter_mut().zip(x).zip(out) {
                *running = op.combine(*running, x);
                *out = *running;
            }
        }
    }
}

fn run_rows<T: Float, C: Combine>(
    op: C,
    pool: &Pool,
    x: &[T],
    axis: Axis,
    scan: Scan,
    out: &mut [T],
    totals: &mut [T],
) {
    let n = axis.size;
    let out = SharedSlice::new(out);
    if n <= BLOCK {
        let per_task = (BLOCK / n.max(1)).max(1);
        pool.run_sized(axis.outer.div_ceil(per_task), x.len() * 2, &|task, _| {
            for o in task * per_task..(task * per_task + per_task).min(axis.outer) {
                // SAFETY: tasks write rows of their own.
                let out = unsafe { out.slice(o * n, n) };
                run_block(op, op.start(), &x[o * n..(o + 1) * n], scan, out);
            }
        });
        return;
    }
    let blocks = n.div_ceil(BLOCK);
    let totals = &mut totals[..axis.outer * blocks];
    // Block b of a row holds the turns from b * BLOCK: counted from the end when running backwards.
    let extent = |b: usize| {
        let len = BLOCK.min(n - b * BLOCK);
        let from = if scan.reverse { n - b * BLOCK - len } else { b * BLOCK };
        (from, len)
    };
    let shared = SharedSlice::new(totals);
    pool.run(axis.outer * blocks, &|task, _| {
        let (from, len) = extent(task % blocks);
        let from = task / blocks * n + from;
        // SAFETY: each task writes its own total.
        unsafe { shared.slice(task, 1)[0] = total(op, &x[from..from + len]) };
    });
    for row in totals.chunks_exact_mut(blocks) {
        let mut before = op.start();
        for total in row {
            let after = op.combine(before, *total);
            *total = before;
            before = after;
        }
    }
    let before = &*totals;
    pool.run(axis.outer * blocks, &|task, _| {
        let (from, len) = extent(task % blocks);
        let from = task / blocks * n + from;
        // SAFETY: tasks write blocks of their own.
        let out = unsafe { out.slice(from, len) };
        run_block(op, before[task], &x[from..from + len], scan, out);
    });
}

/// The running value inside a block, combined with what came before it.
fn run_block<T: Float, C: Combine>(op: C, before: T, x: &[T], scan: Scan, out: &mut [T]) {
    let pairs = x.iter().zip(out);
    let mut running = op.start();
    let step = |(&x, out): (&T, &mut T)| {
        let after = op.combine(running, x);
        *out = op.combine(before, if scan.exclusive { running } else { after });
        running = after;
    };
    if scan.reverse { pairs.rev().for_each(step) } else { pairs.for_each(step) }
}

simd! {
    fn total[T: Float, C: Combine](op: C, x: &[T]) -> T {
        const LANES: usize = 32;
        let mut lanes = [op.start::<T>(); LANES];
        let chunks = x.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = op.combine(*lane, x);
            }
        }
        let all = lanes.iter().fold(op.start(), |a, &b| op.combine(a, b));
        rest.iter().fold(all, |a, &b| op.combine(a, b))
    }
}

fn product_grad<'a, T: Float>(
    x: &[T],
    dy: &[T],
    axis: Axis,
    scan: Scan,
    start: usize,
    width: usize,
    dx: &dyn Fn(usize) -> &'a mut [T],
) {
    let place = |j| start + turn(axis, scan, j) * axis.inner;
    let mut running = [T::ONE; STRIP];
    for j in 0..axis.size {
        let at = place(j);
        row(Product, &mut running[..width], &x[at..at + width], dx(at), true);
    }
    let mut later = [T::ZERO; STRIP];
    for j in (0..axis.size).rev() {
        let at = place(j);
        product_grad_row(&mut later[..width], &x[at..at + width], &dy[at..at + width], dx(at), scan.exclusive);
    }
}

simd! {
    fn product_grad_row[T: Float](later: &mut [T], x: &[T], dy: &[T], dx: &mut [T], exclusive: bool) {
        // `later` holds x[k+1] * s[k+1]; an exclusive product's results stand one turn later.
        for (((later, &x), &dy), dx) in later.iter_mut().zip(x).zip(dy).zip(dx) {
            let with_dy = *later + dy;
            *dx *= if exclusive { *later } else { with_dy };
            *later = if exclusive { dy + x * *later } else { x * with_dy };
        }
    }
}

/// The naive twin of [`cumsum`] (`product` false) and [`cumprod`] (true).
pub fn cumulate_naive(x: &[f64], axis: Axis, scan: Scan, product: bool, out: &mut [f64]) {
    let Axis { outer, size, inner } = axis;
    for o in 0..outer {
        for i in 0..inner {
            let place = |j: usize| (o * size + turn(axis, scan, j)) * inner + i;
            let mut running = if product { 1.0 } else { 0.0 };
            for j in 0..size {
                let before = running;
                running = if product { before * x[place(j)] } else { before + x[place(j)] };
                out[place(j)] = if scan.exclusive { before } else { running };
            }
        }
    }
}

/// The naive twin of [`cumprod_grad`]: the sum over all results that an element is a factor of.
pub fn cumprod_grad_naive(x: &[f64], dy: &[f64], axis: Axis, scan: Scan, dx: &mut [f64]) {
    let Axis { outer, size, inner } = axis;
    for o in 0..outer {
        for i in 0..inner {
            let place = |j: usize| (o * size + turn(axis, scan, j)) * inner + i;
            for k in 0..size {
                dx[place(k)] = 0.0;
                for j in 0..size {
                    let last = if scan.exclusive { j } else { j + 1 };
                    if k < last {
                        let others = (0..last).filter(|&l| l != k).map(|l| x[place(l)]);
                        dx[place(k)] += dy[place(j)] * others.product::<f64>();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Distribution, Key, fill_block};

    const MODES: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

    fn numbers(n: usize, op: u32) -> Vec<f64> {
        let mut out = vec![0.0; n];
        fill_block(Distribution::Uniform, Key { seed: 1, step: 1, stream: op }, 0, &mut out);
        out.iter_mut().for_each(|x| *x = 2.2 * *x - 1.1);
        // A zero now and then, where a division would go wrong.
        out.iter_mut().skip(3).step_by(7).for_each(|x| *x = 0.0);
        out
    }

    #[track_caller]
    fn check(outer: usize, size: usize, inner: usize) {
        let axis = Axis { outer, size, inner };
        let (x, dy) = (numbers(axis.len(), 1), numbers(axis.len(), 2));
        let x32: Vec<f32> = x.iter().map(|&x| x as f32).collect();
        for (exclusive, reverse) in MODES {
            let scan = Scan { exclusive, reverse };
            let mut want = vec![0.0; x.len()];
            for product in [false, true] {
                let f = if product { cumprod::<f32> } else { cumsum::<f32> };
                let runs = [1, 2, 3].map(|threads| {
                    let (mut out, mut spare) = (vec![7.0; x.len()], vec![0.0; scratch(axis)]);
                    f(&Pool::new(threads), &x32, axis, scan, &mut out, &mut spare);
                    out
                });
                assert!(runs[0] == runs[1] && runs[0] == runs[2], "bits depend on the threads");
                cumulate_naive(&x, axis, scan, product, &mut want);
                close(&runs[0].iter().map(|&x| x as f64).collect::<Vec<_>>(), &want, 1e-4);
            }
            if size < 100 {
                let mut got = vec![7.0; x.len()];
                cumprod_grad(&Pool::new(2), &x, &dy, axis, scan, &mut got);
                cumprod_grad_naive(&x, &dy, axis, scan, &mut want);
                close(&got, &want, 1e-12);
            }
        }
    }

    #[track_caller]
    fn close(got: &[f64], want: &[f64], tolerance: f64) {
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((got - want).abs() <= tolerance * (1.0 + want.abs()), "at {i}: {got} and {want}");
        }
    }

    #[test]
    fn agrees_with_the_naive_twins() {
        check(1, 1, 1);
        check(5, 17, 1);
        check(3, 10, 150);
        check(2, 9, 5);
        check(2, 2 * BLOCK + 5, 1);
        check(2, 0, 3);
        check(0, 3, 1);
    }
}
