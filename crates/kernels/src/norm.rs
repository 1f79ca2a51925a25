//! Layer norm and RMS norm: each row of `[rows, columns]` is normalised by its own statistics.
//!
//! The forward kernels save two numbers a row (one for RMS norm), the gradients need nothing else beside the
//! input. The gradients of scale and offset are sums over the rows: each chunk of [`CHUNK_ROWS`] rows is summed
//! by itself, and the chunks are added from left to right, so that a batch summed in slices of whole chunks
//! gives the same bits as one summed at once.

use crate::Source;
use crate::blocks::{apply, sums};
use crate::gemm::Into;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

/// Rows whose contributions to a sum over rows are added up by themselves.
pub const CHUNK_ROWS: usize = 64;

/// `y = (x - mean) * rstd * scale + offset` with each row's `mean` and `rstd = 1 / sqrt(variance + epsilon)`.
///
/// `x` and `y` are `[rows, columns]`, scale and offset `[columns]`, mean and rstd `[rows]`.
///
/// ```
/// use plimsoll_kernels::{Pool, Source, norm::layer_norm};
/// let x = [1.0f32, 3.0, -5.0, 5.0];
/// let (mut y, mut mean, mut rstd) = ([0.0; 4], [0.0; 2], [0.0; 2]);
/// layer_norm(&Pool::new(1), Source::Slice(&x), Some(&[1.0, 2.0]), None, 0.0, &mut y, &mut mean, &mut rstd);
/// assert_eq!((mean, rstd), ([2.0, 0.0], [1.0, 0.2]));
/// assert_eq!(y, [-1.0, 2.0, -1.0, 2.0]);
/// ```
///
/// # Panics
/// When the sizes disagree.
pub fn layer_norm<T: Float>(
    pool: &Pool,
    x: Source<'_, T>,
    scale: Option<&[T]>,
    offset: Option<&[T]>,
    epsilon: f64,
    y: &mut [T],
    mean: &mut [T],
    rstd: &mut [T],
) {
    assert_eq!(mean.len(), rstd.len(), "means and deviations differ in number");
    forward(pool, x, scale, offset, epsilon, y, Some(mean), rstd);
}

/// `y = x * rrms * scale` with each row's `rrms = 1 / sqrt(mean of x^2 + epsilon)`; shapes as in [`layer_norm`].
///
/// # Panics
/// When the sizes disagree.
pub fn rms_norm<T: Float>(
    pool: &Pool,
    x: Source<'_, T>,
    scale: Option<&[T]>,
    epsilon: f64,
    y: &mut [T],
    rrms: &mut [T],
) {
    forward(pool, x, scale, None, epsilon, y, None, rrms);
}

fn forward<T: Float>(
    pool: &Pool,
    x: Source<'_, T>,
    scale: Option<&[T]>,
    offset: Option<&[T]>,
    epsilon: f64,
    y: &mut [T],
    mean: Option<&mut [T]>,
    rstd: &mut [T],
) {
    let (total, rows) = (y.len(), rstd.len());
    x.check_len(total);
    if total == 0 {
        return;
    }
    let columns = total / rows;
    assert_eq!(columns * rows, total, "the rows are not whole");
    for parameter in [scale, offset].into_iter().flatten() {
        assert_eq!(parameter.len(), columns, "a parameter has another width than the rows");
    }
    let part = crate::softmax::rows_per_task(columns);
    let (y, rstd, mean) = (SharedSlice::new(y), SharedSlice::new(rstd), mean.map(SharedSlice::new));
    pool.run_sized(rows.div_ceil(part), total / 4, &|task, _| {
        let row = task * part;
        let n = part.min(rows - row);
        let (start, len) = (row * columns, n * columns);
        // SAFETY: tasks own disjoint blocks of rows.
        unsafe {
            let mean = mean.as_ref().map(|mean| mean.slice(row, n));
            forward_rows(x.part(start, len), scale, offset, epsilon, y.slice(start, len), mean, rstd.slice(row, n));
        }
    });
}

simd! {
    fn forward_rows[T: Float](
        x: Source<'_, T>,
        scale: Option<&[T]>,
        offset: Option<&[T]>,
        epsilon: f64,
        y: &mut [T],
        mean: Option<&mut [T]>,
        rstd: &mut [T],
    ) {
        let columns = y.len() / rstd.len();
        let (n, epsilon) = (T::from_f64(columns as f64), T::from_f64(epsilon));
        let mut mean = mean;
        for row in 0..rstd.len() {
            let y = &mut y[row * columns..][..columns];
            let x = x.part(row * columns, columns);
            let m = match &mut mean {
                Some(mean) => {
                    let [sum] = sums([x.read(y)], |[x]| [x]);
                    mean[row] = sum / n;
                    mean[row]
                }
                None => T::ZERO,
            };
            let [squares] = sums([x.read(y)], |[x]| [(x - m) * (x - m)]);
            let r = T::ONE / (squares / n + epsilon).sqrt();
            rstd[row] = r;
            match (scale, offset) {
                (Some(scale), Some(offset)) => apply(y, x, [scale, offset], |x, [s, o]| (x - m) * r * s + o),
                (Some(scale), None) => apply(y, x, [scale], |x, [s]| (x - m) * r * s),
                (None, Some(offset)) => apply(y, x, [offset], |x, [o]| (x - m) * r + o),
                (None, None) => apply(y, x, [], |x, []| (x - m) * r),
            }
        }
    }
}

/// Elements of scratch that [`layer_norm_grad`] and [`rms_norm_grad`] need.
pub fn layer_norm_grad_scratch(rows: usize, columns: usize) -> usize {
    2 * rows.div_ceil(CHUNK_ROWS) * columns
}

/// The gradients of [`layer_norm`].
///
/// With `g = dy * scale` and `n = (x - mean) * rstd`: `dx = rstd * (g - mean of g - n * mean of g * n)`, the means
/// taken over the row; `dscale = sum of dy * n` and `doffset = sum of dy`, the sums taken over the rows. The sums
/// go where `into` says. `dx` may be written over `dy`.
///
/// # Panics
/// When the sizes disagree.
pub fn layer_norm_grad<T: Float>(
    pool: &Pool,
    x: &[T],
    scale: Option<&[T]>,
    mean: &[T],
    rstd: &[T],
    dy: Source<'_, T>,
    dx: &mut [T],
    dscale: Option<&mut [T]>,
    doffset: Option<&mut [T]>,
    into: Into,
    scratch: &mut [T],
) {
    assert_eq!(mean.len(), rstd.len(), "means and deviations differ in number");
    backward(pool, x, scale, Some(mean), rstd, dy, dx, [dscale, doffset], into, scratch);
}

/// The gradients of [`rms_norm`]: as [`layer_norm_grad`] with `n = x * rrms` and no mean of `g`.
///
/// # Panics
/// When the sizes disagree.
pub fn rms_norm_grad<T: Float>(
    pool: &Pool,
    x: &[T],
    scale: Option<&[T]>,
    rrms: &[T],
    dy: Source<'_, T>,
    dx: &mut [T],
    dscale: Option<&mut [T]>,
    into: Into,
    scratch: &mut [T],
) {
    backward(pool, x, scale, None, rrms, dy, dx, [dscale, None], into, scratch);
}

fn backward<T: Float>(
    pool: &Pool,
    x: &[T],
    scale: Option<&[T]>,
    mean: Option<&[T]>,
    rstd: &[T],
    dy: Source<'_, T>,
    dx: &mut [T],
    parameters: [Option<&mut [T]>; 2],
    into: Into,
    scratch: &mut [T],
) {
    let (total, rows) = (dx.len(), rstd.len());
    assert_eq!(x.len(), total, "x and dx differ in length");
    dy.check_len(total);
    let columns = total.checked_div(rows).unwrap_or(0);
    assert_eq!(columns * rows, total, "the rows are not whole");
    let chunks = rows.div_ceil(CHUNK_ROWS);
    let wanted = parameters.each_ref().map(Option::is_some);
    let out = SharedSlice::new(dx);
    let partial = SharedSlice::new(&mut scratch[..layer_norm_grad_scratch(rows, columns)]);
    pool.run_sized(chunks, total, &|chunk, _| {
        let row = chunk * CHUNK_ROWS;
        let n = CHUNK_ROWS.min(rows - row);
        let (start, len) = (row * columns, n * columns);
        // SAFETY: each chunk owns its rows and its partial sums.
        let (dx, partial) = unsafe { (out.slice(start, len), partial.slice(2 * chunk * columns, 2 * columns)) };
        let (dscale, doffset) = partial.split_at_mut(columns);
        let (mean, rstd) = (mean.map(|mean| &mean[row..row + n]), &rstd[row..row + n]);
        let dy = dy.part(start, len);
        backward_rows(&x[start..start + len], scale, mean, rstd, dy, dx, [dscale, doffset], wanted);
    });
    for (which, target) in parameters.into_iter().enumerate() {
        if let Some(target) = target {
            assert!(rows == 0 || target.len() == columns, "a parameter has another width than the rows");
            let partials = scratch.chunks_exact(columns.max(1)).skip(which).step_by(2).take(chunks);
            add_chunks(target, partials, into);
        }
    }
}

/// Adds partial sums from left to right.
pub(crate) fn add_chunks<'a, T: Float>(target: &mut [T], chunks: impl Iterator<Item = &'a [T]>, into: Into) {
    if into == Into::Overwrite {
        target.fill(T::ZERO);
    }
    chunks.for_each(|chunk| add_to(target, chunk));
}

simd! {
    fn add_to[T: Float](target: &mut [T], terms: &[T]) {
        apply(target, Source::InPlace, [terms], |sum, [term]| sum + term);
    }

    fn backward_rows[T: Float](
        x: &[T],
        scale: Option<&[T]>,
        mean: Option<&[T]>,
        rstd: &[T],
        dy: Source<'_, T>,
        dx: &mut [T],
        partial: [&mut [T]; 2],
        wanted: [bool; 2],
    ) {
        let columns = dx.len() / rstd.len();
        let n = T::from_f64(columns as f64);
        let [dscale, doffset] = partial;
        dscale.fill(T::ZERO);
        doffset.fill(T::ZERO);
        for row in 0..rstd.len() {
            let (x, dx) = (&x[row * columns..][..columns], &mut dx[row * columns..][..columns]);
            let dy = dy.part(row * columns, columns);
            let (m, r) = (mean.map_or(T::ZERO, |mean| mean[row]), rstd[row]);
            if wanted[0] {
                apply(dscale, Source::InPlace, [x, dy.read(dx)], |sum, [x, dy]| sum + dy * ((x - m) * r));
            }
            if wanted[1] {
                apply(doffset, Source::InPlace, [dy.read(dx)], |sum, [dy]| sum + dy);
            }
            let [g, gn] = match scale {
                Some(scale) => sums([x, dy.read(dx), scale], |[x, dy, s]| [dy * s, dy * s * ((x - m) * r)]),
                None => sums([x, dy.read(dx)], |[x, dy]| [dy, dy * ((x - m) * r)]),
            };
            let g = if mean.is_some() { g / n } else { T::ZERO };
            let gn = gn / n;
            match scale {
                Some(scale) => apply(dx, dy, [x, scale], |dy, [x, s]| r * (dy * s - g - (x - m) * r * gn)),
                None => apply(dx, dy, [x], |dy, [x]| r * (dy - g - (x - m) * r * gn)),
            }
        }
    }
}

/// [`layer_norm`] in the plainest way.
pub fn layer_norm_naive(
    x: &[f64],
    scale: Option<&[f64]>,
    offset: Option<&[f64]>,
    epsilon: f64,
    y: &mut [f64],
    mean: &mut [f64],
    rstd: &mut [f64],
) {
    let columns = x.len() / mean.len().max(1);
    for (row, x) in x.chunks(columns.max(1)).enumerate() {
        mean[row] = x.iter().sum::<f64>() / columns as f64;
        let variance = x.iter().map(|x| (x - mean[row]).powi(2)).sum::<f64>() / columns as f64;
        rstd[row] = 1.0 / (variance + epsilon).sqrt();
        for c in 0..columns {
            let n = (x[c] - mean[row]) * rstd[row];
            y[row * columns + c] = n * scale.map_or(1.0, |s| s[c]) + offset.map_or(0.0, |o| o[c]);
        }
    }
}

/// [`rms_norm`] in the plainest way.
pub fn rms_norm_naive(x: &[f64], scale: Option<&[f64]>, epsilon: f64, y: &mut [f64], rrms: &mut [f64]) {
    let columns = x.len() / rrms.len().max(1);
    for (row, x) in x.chunks(columns.max(1)).enumerate() {
        rrms[row] = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / columns as f64 + epsilon).sqrt();
        for c in 0..columns {
            y[row * columns + c] = x[c] * rrms[row] * scale.map_or(1.0, |s| s[c]);
        }
    }
}

/// [`layer_norm_grad`] in the plainest way, the gradients of scale and offset always given.
pub fn layer_norm_grad_naive(
    x: &[f64],
    scale: Option<&[f64]>,
    mean: &[f64],
    rstd: &[f64],
    dy: &[f64],
    dx: &mut [f64],
    dscale: &mut [f64],
    doffset: &mut [f64],
) {
    dscale.fill(0.0);
    doffset.fill(0.0);
    let columns = dscale.len();
    for row in 0..mean.len() {
        let at = |c: usize| row * columns + c;
        let n = |c: usize| (x[at(c)] - mean[row]) * rstd[row];
        let g = |c: usize| dy[at(c)] * scale.map_or(1.0, |s| s[c]);
        let mean_g = (0..columns).map(g).sum::<f64>() / columns as f64;
        let mean_gn = (0..columns).map(|c| g(c) * n(c)).sum::<f64>() / columns as f64;
        for c in 0..columns {
            dx[at(c)] = rstd[row] * (g(c) - mean_g - n(c) * mean_gn);
            dscale[c] += dy[at(c)] * n(c);
            doffset[c] += dy[at(c)];
        }
    }
}

/// [`rms_norm_grad`] in the plainest way, the gradient of the scale always given.
pub fn rms_norm_grad_naive(
    x: &[f64],
    scale: Option<&[f64]>,
    rrms: &[f64],
    dy: &[f64],
    dx: &mut [f64],
    dscale: &mut [f64],
) {
    dscale.fill(0.0);
    let columns = dscale.len();
    for row in 0..rrms.len() {
        let at = |c: usize| row * columns + c;
        let n = |c: usize| x[at(c)] * rrms[row];
        let g = |c: usize| dy[at(c)] * scale.map_or(1.0, |s| s[c]);
        let mean_gn = (0..columns).map(|c| g(c) * n(c)).sum::<f64>() / columns as f64;
        for c in 0..columns {
            dx[at(c)] = rrms[row] * (g(c) - n(c) * mean_gn);
            dscale[c] += dy[at(c)] * n(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_close, numbers, on_any_threads, wide};

    const EPSILON: f64 = 1e-5;

    #[track_caller]
    fn check<T: Float>(rows: usize, columns: usize, with_scale: bool, with_offset: bool, tolerance: f64) {
        let x: Vec<T> = numbers(rows * columns, 1).iter().map(|&x: &T| x + T::from_f64(3.0)).collect();
        let (s, o, dy): (Vec<T>, Vec<T>, Vec<T>) = (numbers(columns, 2), numbers(columns, 3), numbers(x.len(), 4));
        let (scale, offset) = (with_scale.then_some(&s[..]), with_offset.then_some(&o[..]));
        let (wide_s, wide_o) = (wide(&s), wide(&o));
        let (wide_scale, wide_offset) = (with_scale.then_some(&wide_s[..]), with_offset.then_some(&wide_o[..]));
        let zeros = |n: usize| vec![T::ZERO; n];

        let [mut want_y, mut want_dx] = [0, 1].map(|_| vec![0.0; x.len()]);
        let [mut want_mean, mut want_rstd] = [0, 1].map(|_| vec![0.0; rows]);
        let [mut want_dscale, mut want_doffset] = [0, 1].map(|_| vec![0.0; columns]);
        for centred in [true, false] {
            let got = on_any_threads(|pool| {
                let (mut y, mut mean, mut rstd, mut in_place) = (zeros(x.len()), zeros(rows), zeros(rows), x.clone());
                for (x, y) in [(Source::Slice(&x[..]), &mut y), (Source::InPlace, &mut in_place)] {
                    if centred {
                        layer_norm(pool, x, scale, offset, EPSILON, y, &mut mean, &mut rstd);
                    } else {
                        rms_norm(pool, x, scale, EPSILON, y, &mut rstd);
                    }
                }
                assert!(y == in_place, "in place");
                let (mut dx, mut in_place) = (zeros(x.len()), dy.clone());
                let (mut ds, mut do_) = (zeros(columns), zeros(columns));
                let mut scratch = numbers(layer_norm_grad_scratch(rows, columns), 9);
                let into = Into::Overwrite;
                for (dy, dx) in [(Source::Slice(&dy[..]), &mut dx), (Source::InPlace, &mut in_place)] {
                    let (ds, do_) = (Some(&mut ds[..]), Some(&mut do_[..]));
                    if centred {
                        layer_norm_grad(pool, &x, scale, &mean, &rstd, dy, dx, ds, do_, into, &mut scratch);
                    } else {
                        rms_norm_grad(pool, &x, scale, &rstd, dy, dx, ds, into, &mut scratch);
                    }
                }
                assert!(dx == in_place, "in place");
                [y, mean, rstd, dx, ds, do_]
            });
            let (wx, wdy) = (wide(&x), wide(&dy));
            if centred {
                layer_norm_naive(&wx, wide_scale, wide_offset, EPSILON, &mut want_y, &mut want_mean, &mut want_rstd);
                let (dx, ds, do_) = (&mut want_dx, &mut want_dscale, &mut want_doffset);
                layer_norm_grad_naive(&wx, wide_scale, &want_mean, &want_rstd, &wdy, dx, ds, do_);
            } else {
                rms_norm_naive(&wx, wide_scale, EPSILON, &mut want_y, &mut want_rstd);
                rms_norm_grad_naive(&wx, wide_scale, &want_rstd, &wdy, &mut want_dx, &mut want_dscale);
                want_mean.fill(0.0);
                want_doffset.fill(0.0);
            }
            // One element a row has no spread; what is left of it is rounding.
            let tolerance = if columns == 1 { tolerance * 1e4 } else { tolerance };
            check_close("y", &got[0], &want_y, tolerance);
            check_close("mean", &got[1], &want_mean, tolerance);
            check_close("rstd", &got[2], &want_rstd, tolerance);
            check_close("dx", &got[3], &want_dx, tolerance * 10.0);
            check_close("dscale", &got[4], &want_dscale, tolerance * rows as f64);
            check_close("doffset", &got[5], &want_doffset, tolerance * rows as f64);
        }
    }

    #[test]
    fn agrees_with_the_naive_version() {
        for (rows, columns) in [(1, 1), (5, 3), (70, 32), (200, 100), (3, 4000), (130, 256), (0, 8)] {
            for (scale, offset) in [(true, true), (true, false), (false, true), (false, false)] {
                check::<f32>(rows, columns, scale, offset, 4e-6);
                check::<f64>(rows, columns, scale, offset, 1e-12);
            }
        }
    }

    #[test]
    fn slices_of_whole_chunks_add_up_to_the_same_bits() {
        let pool = Pool::new(2);
        let (rows, columns) = (5 * CHUNK_ROWS + 17, 40);
        let (x, dy): (Vec<f32>, Vec<f32>) = (numbers(rows * columns, 1), numbers(rows * columns, 2));
        let (mean, rstd): (Vec<f32>, Vec<f32>) = (numbers(rows, 3), numbers(rows, 4));
        let mut scratch = vec![0.0; layer_norm_grad_scratch(rows, columns)];
        let mut run = |cuts: &[usize]| {
            let (mut dx, mut ds, mut do_) = (vec![0.0; x.len()], vec![0.0; columns], vec![0.0; columns]);
            for (i, cut) in cuts.windows(2).enumerate() {
                let (part, r) = (cut[0] * columns..cut[1] * columns, cut[0]..cut[1]);
                let into = if i == 0 { Into::Overwrite } else { Into::Add };
                let (mean, rstd, dy) = (&mean[r.clone()], &rstd[r], Source::Slice(&dy[part.clone()]));
                let (ds, do_) = (Some(&mut ds[..]), Some(&mut do_[..]));
                layer_norm_grad(
                    &pool,
                    &x[part.clone()],
                    None,
                    mean,
                    rstd,
                    dy,
                    &mut dx[part],
                    ds,
                    do_,
                    into,
                    &mut scratch,
                );
            }
            (dx, ds, do_)
        };
        let whole = run(&[0, rows]);
        assert!(whole == run(&[0, CHUNK_ROWS, 4 * CHUNK_ROWS, rows]));
    }

    #[test]
    fn gradient_agrees_with_differences() {
        let (x, s, dy): (Vec<f64>, Vec<f64>, Vec<f64>) = (numbers(10, 1), numbers(5, 2), numbers(10, 3));
        let loss = |x: &[f64]| {
            let (mut y, mut m, mut r) = ([0.0; 10], [0.0; 2], [0.0; 2]);
            layer_norm_naive(x, Some(&s), None, EPSILON, &mut y, &mut m, &mut r);
            y.iter().zip(&dy).map(|(y, d)| y * d).sum::<f64>()
        };
        let (mut y, mut m, mut r) = ([0.0; 10], [0.0; 2], [0.0; 2]);
        layer_norm_naive(&x, Some(&s), None, EPSILON, &mut y, &mut m, &mut r);
        let (mut dx, mut ds, mut do_) = ([0.0; 10], [0.0; 5], [0.0; 5]);
        layer_norm_grad_naive(&x, Some(&s), &m, &r, &dy, &mut dx, &mut ds, &mut do_);
        for i in 0..10 {
            let nudged = |by: f64| {
                loss(&x.iter().enumerate().map(|(j, x)| if i == j { x + by } else { *x }).collect::<Vec<_>>())
            };
            assert!((dx[i] - (nudged(1e-5) - nudged(-1e-5)) / 2e-5).abs() < 1e-7);
        }
    }
}
