//! Softmax and log-softmax over the last axis, and their gradients from the outputs.
//!
//! A row is read twice, the second time from the cache: once for its maximum, once for the exponentials.
//! Nothing is kept but the output, and every kernel can write over one of its inputs ([`Source::InPlace`]).

use crate::blocks::{Source, apply, apply_sum, largest, sums};
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

/// `y[r, c] = e^x[r, c] / sum over j of e^x[r, j]`.
///
/// Both are `[rows, columns]`. A row of negative infinities gives NaN.
///
/// ```
/// use plimsoll_kernels::{Pool, Source, softmax};
/// let mut y = [0.0f32; 4];
/// let x = [1.0, 1.0, 0.0, 3f32.ln()];
/// softmax::softmax(&Pool::new(1), Source::Slice(&x), &mut y, 2);
/// assert_eq!(y[..2], [0.5, 0.5]);
/// assert!((y[3] - 0.75).abs() < 1e-6);
/// ```
///
/// # Panics
/// When the sizes disagree.
pub fn softmax<T: Float>(pool: &Pool, x: Source<'_, T>, y: &mut [T], columns: usize) {
    for_rows(pool, x, y, columns, |_, x, y| softmax_rows(x, y, columns));
}

/// `y[r, c] = x[r, c] - ln(sum over j of e^x[r, j])`; shapes as in [`softmax`].
///
/// # Panics
/// When the sizes disagree.
pub fn log_softmax<T: Float>(pool: &Pool, x: Source<'_, T>, y: &mut [T], columns: usize) {
    for_rows(pool, x, y, columns, |_, x, y| log_softmax_rows(x, y, columns));
}

/// The gradient of [`softmax`] from its output `y`: `dx = y * (dy - sum over the row of dy * y)`.
///
/// # Panics
/// When the sizes disagree.
pub fn softmax_grad<T: Float>(pool: &Pool, y: &[T], dy: Source<'_, T>, dx: &mut [T], columns: usize) {
    assert_eq!(y.len(), dx.len(), "y and dx differ in length");
    for_rows(pool, dy, dx, columns, |start, dy, dx| {
        softmax_grad_rows(&y[start..start + dx.len()], dy, dx, columns);
    });
}

/// The gradient of [`log_softmax`] from its output `y`: `dx = dy - e^y * sum over the row of dy`.
///
/// # Panics
/// When the sizes disagree.
pub fn log_softmax_grad<T: Float>(pool: &Pool, y: &[T], dy: Source<'_, T>, dx: &mut [T], columns: usize) {
    assert_eq!(y.len(), dx.len(), "y and dx differ in length");
    for_rows(pool, dy, dx, columns, |start, dy, dx| {
        log_softmax_grad_rows(&y[start..start + dx.len()], dy, dx, columns);
    });
}

/// Rows of a task: as many as make about 16 thousand elements, by the width alone.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    ((1 << 14) / columns.max(1)).max(1)
}

/// Runs `body(start, x, y)` for blocks of whole rows; `start` is the first element's place.
fn for_rows<T: Float>(
    pool: &Pool,
    x: Source<'_, T>,
    y: &mut [T],
    columns: usize,
    body: impl Fn(usize, Source<'_, T>, &mut [T]) + Sync,
) {
    let total = y.len();
    x.check_len(total);
    if total == 0 {
        return;
    }
    assert_eq!(total % columns, 0, "the rows are not whole");
    let part = rows_per_task(columns) * columns;
    let out = SharedSlice::new(y);
    pool.run_sized(total.div_ceil(part), total / 2, &|task, _| {
        let start = task * part;
        let len = part.min(total - start);
        // SAFETY: tasks own disjoint blocks of rows.
        body(start, x.part(start, len), unsafe { out.slice(start, len) });
    });
}

simd! {
    fn softmax_rows[T: Float](x: Source<'_, T>, y: &mut [T], columns: usize) {
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            let x = x.part(row * columns, columns);
            let max = largest(x.read(y));
            let sum = apply_sum(y, x, [], |x, []| {
                let e = (x - max).exp_nonpositive();
                (e, e)
            });
            let inverse = T::ONE / sum;
            apply(y, Source::InPlace, [], |e, []| e * inverse);
        }
    }

    fn log_softmax_rows[T: Float](x: Source<'_, T>, y: &mut [T], columns: usize) {
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            let x = x.part(row * columns, columns);
            let lse = log_sum_exp(x.read(y));
            apply(y, x, [], |x, []| x - lse);
        }
    }

    fn softmax_grad_rows[T: Float](y: &[T], dy: Source<'_, T>, dx: &mut [T], columns: usize) {
        for (row, (y, dx)) in y.chunks_exact(columns).zip(dx.chunks_exact_mut(columns)).enumerate() {
            let dy = dy.part(row * columns, columns);
            let [dot] = sums([y, dy.read(dx)], |[y, dy]| [y * dy]);
            apply(dx, dy, [y], |dy, [y]| y * (dy - dot));
        }
    }

    fn log_softmax_grad_rows[T: Float](y: &[T], dy: Source<'_, T>, dx: &mut [T], columns: usize) {
        for (row, (y, dx)) in y.chunks_exact(columns).zip(dx.chunks_exact_mut(columns)).enumerate() {
            let dy = dy.part(row * columns, columns);
            let [sum] = sums([dy.read(dx)], |[dy]| [dy]);
            apply(dx, dy, [y], |dy, [y]| dy - y.exp_nonpositive() * sum);
        }
    }
}

/// `ln(sum of e^x)` of one row.
///
/// Two passes, the second in cache, are faster than one that brings the maximum up to date block by block
/// (8.7 ms against 11.6 for 2048 rows of 8192).
#[inline(always)]
pub(crate) fn log_sum_exp<T: Float>(x: &[T]) -> T {
    let max = largest(x);
    let [sum] = sums([x], |[x]| [(x - max).exp_nonpositive()]);
    max + sum.ln()
}

/// [`softmax`] in the plainest way.
pub fn softmax_naive(x: &[f64], y: &mut [f64], columns: usize) {
    log_softmax_naive(x, y, columns);
    y.iter_mut().for_each(|y| *y = y.exp());
}

/// [`log_softmax`] in the plainest way.
pub fn log_softmax_naive(x: &[f64], y: &mut [f64], columns: usize) {
    for (x, y) in x.chunks(columns).zip(y.chunks_mut(columns)) {
        let max = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let lse = max + x.iter().map(|v| (v - max).exp()).sum::<f64>().ln();
        for (x, y) in x.iter().zip(y) {
            *y = x - lse;
        }
    }
}

/// [`softmax_grad`] in the plainest way.
pub fn softmax_grad_naive(y: &[f64], dy: &[f64], dx: &mut [f64], columns: usize) {
    for start in (0..y.len()).step_by(columns.max(1)) {
        let row = start..start + columns;
        let dot: f64 = row.clone().map(|i| y[i] * dy[i]).sum();
        row.for_each(|i| dx[i] = y[i] * (dy[i] - dot));
    }
}

/// [`log_softmax_grad`] in the plainest way.
pub fn log_softmax_grad_naive(y: &[f64], dy: &[f64], dx: &mut [f64], columns: usize) {
    for start in (0..y.len()).step_by(columns.max(1)) {
        let row = start..start + columns;
        let sum: f64 = dy[row.clone()].iter().sum();
        row.for_each(|i| dx[i] = dy[i] - y[i].exp() * sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_close, numbers, on_any_threads, wide};

    type Kernel<T> = fn(&Pool, Source<'_, T>, &mut [T], usize);
    type Naive = fn(&[f64], &mut [f64], usize);
    type GradKernel<T> = fn(&Pool, &[T], Source<'_, T>, &mut [T], usize);
    type GradNaive = fn(&[f64], &[f64], &mut [f64], usize);

    #[track_caller]
    fn check<T: Float>(rows: usize, columns: usize, tolerance: f64) {
        let forward: [(Kernel<T>, Naive); 2] = [(softmax, softmax_naive), (log_softmax, log_softmax_naive)];
        let backward: [(GradKernel<T>, GradNaive); 2] =
            [(softmax_grad, softmax_grad_naive), (log_softmax_grad, log_softmax_grad_naive)];
        let x: Vec<T> = numbers(rows * columns, 1).iter().map(|&x: &T| x * T::from_f64(20.0)).collect();
        let dy: Vec<T> = numbers(rows * columns, 2);
        for ((kernel, naive), (grad, grad_naive)) in forward.into_iter().zip(backward) {
            let y = on_any_threads(|pool| {
                let mut y = vec![T::ZERO; x.len()];
                kernel(pool, Source::Slice(&x), &mut y, columns);
                let mut in_place = x.clone();
                kernel(pool, Source::InPlace, &mut in_place, columns);
                assert!(y == in_place, "in place");
                y
            });
            let mut want = vec![0.0; x.len()];
            naive(&wide(&x), &mut want, columns);
            check_close("y", &y, &want, tolerance);

            let dx = on_any_threads(|pool| {
                let mut dx = vec![T::ZERO; x.len()];
                grad(pool, &y, Source::Slice(&dy), &mut dx, columns);
                let mut in_place = dy.clone();
                grad(pool, &y, Source::InPlace, &mut in_place, columns);
                assert!(dx == in_place, "in place");
                dx
            });
            grad_naive(&wide(&y), &wide(&dy), &mut want, columns);
            check_close("dx", &dx, &want, tolerance * 10.0);
        }
    }

    #[test]
    fn agrees_with_the_naive_version() {
        for (rows, columns) in [(1, 1), (7, 3), (3, 31), (5, 32), (300, 100), (40, 257), (9, 8192), (0, 5), (2, 20_000)]
        {
            check::<f32>(rows, columns, 2e-6);
            check::<f64>(rows, columns, 1e-13);
        }
    }

    #[test]
    fn extreme_logits() {
        let pool = Pool::new(1);
        let mut y = [1000.0f32, 0.0, -1000.0, f32::NEG_INFINITY, -1e30, -1e30];
        softmax(&pool, Source::InPlace, &mut y, 2);
        assert_eq!(y, [1.0, 0.0, 1.0, 0.0, 0.5, 0.5]);
        let mut y = [f32::NAN, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        softmax(&pool, Source::InPlace, &mut y, 2);
        assert!(y.iter().all(|y| y.is_nan()));
    }

    #[test]
    fn a_row_does_not_depend_on_the_others() {
        let pool = Pool::new(2);
        let x: Vec<f32> = numbers(500 * 77, 3);
        let mut whole = x.clone();
        softmax(&pool, Source::InPlace, &mut whole, 77);
        for row in [0, 13, 499] {
            let mut alone = x[row * 77..][..77].to_vec();
            softmax(&pool, Source::InPlace, &mut alone, 77);
            assert_eq!(alone, whole[row * 77..][..77]);
        }
    }
}
