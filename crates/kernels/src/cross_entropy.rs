//! Cross-entropy of softmax, straight from the logits: the probabilities are never stored.
//!
//! The forward kernels give each row's loss and its log-sum-exp. From the latter the gradient kernels get the
//! probabilities back, in one pass that may write over the logits, the largest buffer of a language model.

use crate::Source;
use crate::blocks::{apply, sums};
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;
use crate::softmax::{log_sum_exp, rows_per_task};

/// An integer type for class labels.
pub trait Label: Copy + Send + Sync + 'static {
    /// The label as a number.
    fn number(self) -> i64;
}

impl Label for i32 {
    #[inline(always)]
    fn number(self) -> i64 {
        self as i64
    }
}

impl Label for i64 {
    #[inline(always)]
    fn number(self) -> i64 {
        self
    }
}

/// What one label means.
enum Class {
    /// Column of the right class.
    At(usize),
    /// The row counts for nothing.
    Ignored,
    /// No such class.
    Wrong,
}

#[inline(always)]
fn class(label: impl Label, columns: usize, ignore: Option<i64>) -> Class {
    let label = label.number();
    if Some(label) == ignore {
        Class::Ignored
    } else if label >= 0 && (label as u64) < columns as u64 {
        Class::At(label as usize)
    } else {
        Class::Wrong
    }
}

/// `loss[r] = lse[r] - x[r, labels[r]]` with `lse[r] = ln(sum over c of e^x[r, c])`.
///
/// The logits `x` are `[rows, columns]`, all others `[rows]`. A row whose label is `ignore` has loss 0; a row
/// whose label is neither that nor a column has loss NaN, which marks the error.
///
/// ```
/// use plimsoll_kernels::{Pool, cross_entropy::sparse_cross_entropy};
/// let (mut loss, mut lse) = ([0.0f32; 3], [0.0; 3]);
/// let x = [0.0, 3f32.ln(), 0.0, 0.0, 0.0, 0.0];
/// sparse_cross_entropy(&Pool::new(1), &x, &[1i32, -1, 2], Some(-1), &mut loss, &mut lse);
/// assert!((loss[0] - (4.0f32 / 3.0).ln()).abs() < 1e-6);
/// assert!(loss[1] == 0.0 && loss[2].is_nan());
/// assert!((lse[0] - 4f32.ln()).abs() < 1e-6);
/// ```
///
/// # Panics
/// When the sizes disagree.
pub fn sparse_cross_entropy<T: Float, L: Label>(
    pool: &Pool,
    x: &[T],
    labels: &[L],
    ignore: Option<i64>,
    loss: &mut [T],
    lse: &mut [T],
) {
    assert_eq!(labels.len(), loss.len(), "labels and losses differ in number");
    for_rows(pool, x, loss, lse, |row, columns, x, loss, lse| {
        let labels = &labels[row..row + loss.len()];
        sparse_rows(x, labels, ignore, columns, loss, lse);
    });
}

/// The gradient of [`sparse_cross_entropy`] in the logits:
/// `dx[r, c] = dy[r] * (e^(x[r, c] - lse[r]) - (1 if c is labels[r] else 0))`.
///
/// It may write over the logits. Ignored rows get zeros, rows with a wrong label NaN.
///
/// # Panics
/// When the sizes disagree.
pub fn sparse_cross_entropy_grad<T: Float, L: Label>(
    pool: &Pool,
    x: Source<'_, T>,
    labels: &[L],
    ignore: Option<i64>,
    lse: &[T],
    dy: &[T],
    dx: &mut [T],
) {
    assert_eq!(labels.len(), lse.len(), "labels and rows differ in number");
    for_rows_grad(pool, x, lse, dy, dx, |row, rows, x, dx| {
        let rows = row..row + rows;
        sparse_grad_rows(x, &labels[rows.clone()], ignore, &lse[rows.clone()], &dy[rows], dx);
    });
}

/// `loss[r] = sum over c of targets[r, c] * (lse[r] - x[r, c])` with `lse[r] = ln(sum over c of e^x[r, c])`.
///
/// Logits and targets are `[rows, columns]`; the targets of a row need not add up to 1.
///
/// # Panics
/// When the sizes disagree.
pub fn cross_entropy<T: Float>(pool: &Pool, x: &[T], targets: &[T], loss: &mut [T], lse: &mut [T]) {
    assert_eq!(x.len(), targets.len(), "logits and targets differ in length");
    for_rows(pool, x, loss, lse, |row, columns, x, loss, lse| {
        let targets = &targets[row * columns..][..x.len()];
        dense_rows(x, targets, columns, loss, lse);
    });
}

/// The gradient of [`cross_entropy`] in the logits:
/// `dx[r, c] = dy[r] * (e^(x[r, c] - lse[r]) * sum of targets[r] - targets[r, c])`.
///
/// It may write over the logits.
///
/// # Panics
/// When the sizes disagree.
pub fn cross_entropy_grad<T: Float>(pool: &Pool, x: Source<'_, T>, targets: &[T], lse: &[T], dy: &[T], dx: &mut [T]) {
    assert_eq!(targets.len(), dx.len(), "targets and logits differ in length");
    for_rows_grad(pool, x, lse, dy, dx, |row, rows, x, dx| {
        let targets = &targets[row * (dx.len() / rows)..][..dx.len()];
        let rows = row..row + rows;
        dense_grad_rows(x, targets, &lse[rows.clone()], &dy[rows], dx);
    });
}

/// Runs `body(first row, columns, x, loss, lse)` for blocks of rows.
fn for_rows<T: Float>(
    pool: &Pool,
    x: &[T],
    loss: &mut [T],
    lse: &mut [T],
    body: impl Fn(usize, usize, &[T], &mut [T], &mut [T]) + Sync,
) {
    let rows = loss.len();
    assert_eq!(rows, lse.len(), "losses and log-sum-exps differ in number");
    if rows == 0 {
        return assert!(x.is_empty(), "logits without rows");
    }
    let columns = x.len() / rows;
    assert_eq!(columns * rows, x.len(), "the rows of logits are not whole");
    let part = rows_per_task(columns);
    let (loss, lse) = (SharedSlice::new(loss), SharedSlice::new(lse));
    pool.run_sized(rows.div_ceil(part), x.len() / 3, &|task, _| {
        let row = task * part;
        let n = part.min(rows - row);
        // SAFETY: tasks own disjoint blocks of rows.
        let (loss, lse) = unsafe { (loss.slice(row, n), lse.slice(row, n)) };
        body(row, columns, &x[row * columns..(row + n) * columns], loss, lse);
    });
}

/// Runs `body(first row, rows, x, dx)` for blocks of rows.
fn for_rows_grad<T: Float>(
    pool: &Pool,
    x: Source<'_, T>,
    lse: &[T],
    dy: &[T],
    dx: &mut [T],
    body: impl Fn(usize, usize, Source<'_, T>, &mut [T]) + Sync,
) {
    let rows = lse.len();
    assert_eq!(rows, dy.len(), "gradients and log-sum-exps differ in number");
    x.check_len(dx.len());
    if rows == 0 {
        return assert!(dx.is_empty(), "logits without rows");
    }
    let columns = dx.len() / rows;
    assert_eq!(columns * rows, dx.len(), "the rows of logits are not whole");
    let part = rows_per_task(columns);
    let total = dx.len();
    let dx = SharedSlice::new(dx);
    pool.run_sized(rows.div_ceil(part), total / 2, &|task, _| {
        let row = task * part;
        let n = part.min(rows - row);
        let (start, len) = (row * columns, n * columns);
        // SAFETY: tasks own disjoint blocks of rows.
        body(row, n, x.part(start, len), unsafe { dx.slice(start, len) });
    });
}

simd! {
    fn sparse_rows[T: Float, L: Label](
        x: &[T],
        labels: &[L],
        ignore: Option<i64>,
        columns: usize,
        loss: &mut [T],
        lse: &mut [T],
    ) {
        for (row, &label) in labels.iter().enumerate() {
            let x = &x[row * columns..][..columns];
            lse[row] = log_sum_exp(x);
            loss[row] = match class(label, columns, ignore) {
                Class::At(column) => lse[row] - x[column],
                Class::Ignored => T::ZERO,
                Class::Wrong => nan(),
            };
        }
    }

    fn sparse_grad_rows[T: Float, L: Label](
        x: Source<'_, T>,
        labels: &[L],
        ignore: Option<i64>,
        lse: &[T],
        dy: &[T],
        dx: &mut [T],
    ) {
        let columns = dx.len() / labels.len();
        for (row, &label) in labels.iter().enumerate() {
            let dx = &mut dx[row * columns..][..columns];
            let (lse, dy) = (lse[row], dy[row]);
            match class(label, columns, ignore) {
                Class::At(column) => {
                    let x = x.part(row * columns, columns);
                    apply(dx, x, [], |x, []| (x - lse).exp_nonpositive() * dy);
                    dx[column] -= dy;
                }
                Class::Ignored => dx.fill(T::ZERO),
                Class::Wrong => dx.fill(nan()),
            }
        }
    }

    fn dense_rows[T: Float](x: &[T], targets: &[T], columns: usize, loss: &mut [T], lse: &mut [T]) {
        for row in 0..loss.len() {
            let (x, t) = (&x[row * columns..][..columns], &targets[row * columns..][..columns]);
            let l = log_sum_exp(x);
            lse[row] = l;
            [loss[row]] = sums([x, t], |[x, t]| [t * (l - x)]);
        }
    }

    fn dense_grad_rows[T: Float](x: Source<'_, T>, targets: &[T], lse: &[T], dy: &[T], dx: &mut [T]) {
        let columns = dx.len() / lse.len();
        for row in 0..lse.len() {
            let (dx, t) = (&mut dx[row * columns..][..columns], &targets[row * columns..][..columns]);
            let (lse, dy) = (lse[row], dy[row]);
            let [weight] = sums([t], |[t]| [t]);
            let x = x.part(row * columns, columns);
            apply(dx, x, [t], |x, [t]| dy * ((x - lse).exp_nonpositive() * weight - t));
        }
    }
}

#[inline(always)]
fn nan<T: Float>() -> T {
    T::from_f64(f64::NAN)
}

/// [`sparse_cross_entropy`] in the plainest way.
pub fn sparse_cross_entropy_naive(x: &[f64], labels: &[i64], ignore: Option<i64>, loss: &mut [f64], lse: &mut [f64]) {
    let columns = x.len() / labels.len().max(1);
    for (row, &label) in labels.iter().enumerate() {
        let x = &x[row * columns..][..columns];
        lse[row] = log_sum_exp_naive(x);
        loss[row] = match class(label, columns, ignore) {
            Class::At(column) => lse[row] - x[column],
            Class::Ignored => 0.0,
            Class::Wrong => f64::NAN,
        };
    }
}

/// [`sparse_cross_entropy_grad`] in the plainest way.
pub fn sparse_cross_entropy_grad_naive(
    x: &[f64],
    labels: &[i64],
    ignore: Option<i64>,
    lse: &[f64],
    dy: &[f64],
    dx: &mut [f64],
) {
    let columns = x.len() / labels.len().max(1);
    for (i, (x, dx)) in x.iter().zip(dx).enumerate() {
        let (row, column) = (i / columns, i % columns);
        *dx = match class(labels[row], columns, ignore) {
            Class::At(right) => dy[row] * ((x - lse[row]).exp() - (column == right) as u8 as f64),
            Class::Ignored => 0.0,
            Class::Wrong => f64::NAN,
        };
    }
}

/// [`cross_entropy`] in the plainest way.
pub fn cross_entropy_naive(x: &[f64], targets: &[f64], loss: &mut [f64], lse: &mut [f64]) {
    let columns = x.len() / loss.len().max(1);
    for row in 0..loss.len() {
        let x = &x[row * columns..][..columns];
        lse[row] = log_sum_exp_naive(x);
        loss[row] = x.iter().zip(&targets[row * columns..]).map(|(x, t)| t * (lse[row] - x)).sum();
    }
}

/// [`cross_entropy_grad`] in the plainest way.
pub fn cross_entropy_grad_naive(x: &[f64], targets: &[f64], lse: &[f64], dy: &[f64], dx: &mut [f64]) {
    let columns = x.len() / lse.len().max(1);
    for (i, (x, dx)) in x.iter().zip(dx).enumerate() {
        let row = i / columns;
        let weight: f64 = targets[row * columns..][..columns].iter().sum();
        *dx = dy[row] * ((x - lse[row]).exp() * weight - targets[i]);
    }
}

fn log_sum_exp_naive(x: &[f64]) -> f64 {
    let max = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    max + x.iter().map(|v| (v - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_close, numbers, on_any_threads, wide};

    #[track_caller]
    fn check_sparse<T: Float>(rows: usize, columns: usize, tolerance: f64) {
        let x: Vec<T> = numbers(rows * columns, 1).iter().map(|&x: &T| x * T::from_f64(10.0)).collect();
        let dy: Vec<T> = numbers(rows, 2);
        // Every fifth label is ignored, and now and then one is wrong.
        let label = |row: usize| match row {
            _ if row % 5 == 4 => -100,
            _ if row % 23 == 7 => columns as i64,
            _ if row % 23 == 9 => -1,
            _ => (row * 7 % columns) as i64,
        };
        let labels: Vec<i64> = (0..rows).map(label).collect();
        let narrow: Vec<i32> = labels.iter().map(|&l| l as i32).collect();
        let (mut loss, mut lse, mut dx) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; x.len()]);
        sparse_cross_entropy_naive(&wide(&x), &labels, Some(-100), &mut loss, &mut lse);
        sparse_cross_entropy_grad_naive(&wide(&x), &labels, Some(-100), &lse, &wide(&dy), &mut dx);

        let got = on_any_threads(|pool| {
            let [mut loss, mut loss32, mut lse] = [0, 1, 2].map(|_| vec![T::ZERO; rows]);
            sparse_cross_entropy(pool, &x, &narrow, Some(-100), &mut loss32, &mut lse);
            sparse_cross_entropy(pool, &x, &labels, Some(-100), &mut loss, &mut lse);
            let mut dx = vec![T::ZERO; x.len()];
            sparse_cross_entropy_grad(pool, Source::Slice(&x), &labels, Some(-100), &lse, &dy, &mut dx);
            let mut in_place = x.clone();
            sparse_cross_entropy_grad(pool, Source::InPlace, &narrow, Some(-100), &lse, &dy, &mut in_place);
            // NaN marks wrong labels; it equals nothing, so compare what it is made of.
            [loss, loss32, lse, dx, in_place].map(|v| v.iter().map(|x| x.to_f64().to_bits()).collect::<Vec<_>>())
        });
        assert!(got[0] == got[1] && got[3] == got[4]);
        let [got_loss, _, got_lse, got_dx, _] = got.map(|v| v.into_iter().map(f64::from_bits).collect::<Vec<f64>>());
        check_close("loss", &got_loss, &loss, tolerance);
        check_close("lse", &got_lse, &lse, tolerance);
        check_close("dx", &got_dx, &dx, tolerance);
    }

    #[track_caller]
    fn check_dense<T: Float>(rows: usize, columns: usize, tolerance: f64) {
        let x: Vec<T> = numbers(rows * columns, 1).iter().map(|&x: &T| x * T::from_f64(10.0)).collect();
        let targets: Vec<T> = numbers(rows * columns, 2);
        let dy: Vec<T> = numbers(rows, 3);
        let (mut loss, mut lse, mut dx) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; x.len()]);
        cross_entropy_naive(&wide(&x), &wide(&targets), &mut loss, &mut lse);
        cross_entropy_grad_naive(&wide(&x), &wide(&targets), &lse, &wide(&dy), &mut dx);
        let (got_loss, got_lse, got_dx) = on_any_threads(|pool| {
            let [mut loss, mut lse] = [0, 1].map(|_| vec![T::ZERO; rows]);
            cross_entropy(pool, &x, &targets, &mut loss, &mut lse);
            let mut dx = vec![T::ZERO; x.len()];
            cross_entropy_grad(pool, Source::Slice(&x), &targets, &lse, &dy, &mut dx);
            let mut in_place = x.clone();
            cross_entropy_grad(pool, Source::InPlace, &targets, &lse, &dy, &mut in_place);
            assert!(dx == in_place, "in place");
            (loss, lse, dx)
        });
        check_close("loss", &got_loss, &loss, tolerance * columns as f64);
        check_close("lse", &got_lse, &lse, tolerance);
        check_close("dx", &got_dx, &dx, tolerance * 10.0);
    }

    #[test]
    fn agrees_with_the_naive_version() {
        for (rows, columns) in [(1, 1), (30, 10), (50, 33), (200, 1000), (3, 20_000), (0, 4)] {
            check_sparse::<f32>(rows, columns, 3e-6);
            check_sparse::<f64>(rows, columns, 1e-13);
            check_dense::<f32>(rows, columns, 3e-6);
            check_dense::<f64>(rows, columns, 1e-13);
        }
    }

    #[test]
    fn gradient_agrees_with_differences() {
        let (rows, columns) = (3, 5);
        let (x, targets): (Vec<f64>, Vec<f64>) = (numbers(15, 1), numbers(15, 2));
        let dy = [0.7, -0.2, 1.1];
        let loss = |x: &[f64]| {
            let (mut loss, mut lse) = ([0.0; 3], [0.0; 3]);
            cross_entropy_naive(x, &targets, &mut loss, &mut lse);
            loss.iter().zip(dy).map(|(l, d)| l * d).sum::<f64>()
        };
        let (mut loss_rows, mut lse, mut dx) = ([0.0; 3], [0.0; 3], [0.0; 15]);
        cross_entropy_naive(&x, &targets, &mut loss_rows, &mut lse);
        cross_entropy_grad_naive(&x, &targets, &lse, &dy, &mut dx);
        for i in 0..rows * columns {
            let nudged = |by: f64| {
                loss(&x.iter().enumerate().map(|(j, x)| if i == j { x + by } else { *x }).collect::<Vec<_>>())
            };
            assert!((dx[i] - (nudged(1e-5) - nudged(-1e-5)) / 2e-5).abs() < 1e-8);
        }
    }

    #[test]
    fn an_ignored_label_may_be_a_class() {
        let (mut loss, mut lse) = ([1.0f32; 2], [0.0; 2]);
        sparse_cross_entropy(&Pool::new(1), &[0.0, 1.0, 0.0, 1.0], &[0i32, 1], Some(0), &mut loss, &mut lse);
        assert!(loss[0] == 0.0 && loss[1] > 0.0);
    }
}
