//! Reductions of `[outer, middle, inner]` over the middle axis.
//!
//! Sums run over fixed chunks of [`chunk_terms`] terms, each in a fixed pattern of lanes, and the chunks are added from
//! left to right: the result does not depend on the number of threads, nor on whether the middle axis came whole
//! or in slices of whole chunks, each added to those before it.

use crate::gemm::Into;
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

/// Terms of one chunk of a sum over `[outer, middle, inner]`: fewer where that costs little, so that a batch can be cut more
/// finely.
pub fn chunk_terms(inner: usize) -> usize {
    if inner == 1 { 256 } else { 64 }
}

/// What a reduction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The largest; NaN if there is one.
    Max,
    /// The smallest; NaN if there is one.
    Min,
}

impl Reduction {
    /// The value of an empty reduction.
    pub fn neutral<T: Float>(self) -> T {
        match self {
            Reduction::Sum => T::ZERO,
            Reduction::Prod => T::ONE,
            Reduction::Max => T::NEG_INFINITY,
            Reduction::Min => T::INFINITY,
        }
    }

    #[inline(always)]
    fn join<T: Float>(self, a: T, b: T) -> T {
        match self {
            Reduction::Sum => a + b,
            Reduction::Prod => a * b,
            Reduction::Max => a.maximum(b),
            Reduction::Min => a.minimum(b),
        }
    }
}

/// Columns that one task handles.
const COLUMNS: usize = 512;

/// Elements that one task handles.
const TASK: usize = 64 * 1024;

/// Scratch elements for [`reduce`]: a partial result per chunk, where there are several.
pub fn scratch(outer: usize, middle: usize, inner: usize) -> usize {
    match middle.div_ceil(chunk_terms(inner)) {
        0 | 1 => 0,
        n_chunks => outer * n_chunks * inner,
    }
}

/// `y[o, i] = scale * reduction over m of x[o, m, i]`; with [`Into::Add`] the reduction goes on from what `y` holds.
///
/// # Panics
/// When a slice is shorter than the sizes say.
pub fn reduce<T: Float>(
    pool: &Pool,
    reduction: Reduction,
    scale: T,
    x: &[T],
    (outer, middle, inner): (usize, usize, usize),
    y: &mut [T],
    into: Into,
    scratch: &mut [T],
) {
    let chunk = chunk_terms(inner);
    let n_chunks = middle.div_ceil(chunk).max(1);
    assert!(x.len() >= outer * middle * inner && y.len() >= outer * inner);
    if outer * inner == 0 {
        return;
    }
    let work = outer * middle * inner / 4;
    if n_chunks == 1 {
        return reduce_chunks(pool, work, reduction, scale, x, (outer, middle, inner), y, into);
    }
    assert!(scratch.len() >= outer * n_chunks * inner);
    let partials = SharedSlice::new(scratch);
    if inner == 1 {
        // Several chunks make one task.
        let rows_per_task = (TASK / 4 / middle.clamp(1, chunk)).max(1);
        let rows = outer * n_chunks;
        pool.run_sized(rows.div_ceil(rows_per_task), work, &|task, _| {
            for row in task * rows_per_task..rows.min((task + 1) * rows_per_task) {
                let (o, c) = (row / n_chunks, row % n_chunks);
                let terms = &x[o * middle + c * chunk..o * middle + middle.min((c + 1) * chunk)];
                // SAFETY: one element per row.
                unsafe { partials.slice(row, 1)[0] = fold_row(reduction, terms) };
            }
        });
    } else {
        let blocks = inner.div_ceil(COLUMNS);
        let chunks_per_task = (TASK / (chunk * inner.min(COLUMNS))).max(1);
        let groups = n_chunks.div_ceil(chunks_per_task);
        pool.run_sized(outer * groups * blocks, work, &|task, _| {
            let (o, first, b) = (task / blocks / groups, task / blocks % groups * chunks_per_task, task % blocks);
            let columns = b * COLUMNS..inner.min((b + 1) * COLUMNS);
            for c in first..n_chunks.min(first + chunks_per_task) {
                let rows = c * chunk..middle.min((c + 1) * chunk);
                // SAFETY: one block of columns of some chunks per task.
                let out = unsafe { partials.slice((o * n_chunks + c) * inner + columns.start, columns.len()) };
                fold_columns(reduction, &x[o * middle * inner..], inner, columns.start, rows.start, rows.end, out);
            }
        });
    }
    // SAFETY: the loop above has ended.
    let partials = unsafe { partials.slice(0, outer * n_chunks * inner) };
    for o in 0..outer {
        let y = &mut y[o * inner..(o + 1) * inner];
        join_chunks(reduction, scale, &partials[o * n_chunks * inner..(o + 1) * n_chunks * inner], y, into);
    }
}

/// The same where the middle axis is one chunk: nothing stands between `x` and `y`.
fn reduce_chunks<T: Float>(
    pool: &Pool,
    work: usize,
    reduction: Reduction,
    scale: T,
    x: &[T],
    (outer, middle, inner): (usize, usize, usize),
    y: &mut [T],
    into: Into,
) {
    let blocks = inner.div_ceil(COLUMNS);
    let per_task = (TASK / (middle.max(1) * inner.min(COLUMNS))).max(1);
    let y = SharedSlice::new(y);
    pool.run_sized((outer * blocks).div_ceil(per_task), work, &|task, _| {
        let mut results = [T::ZERO; COLUMNS];
        for block in task * per_task..(outer * blocks).min((task + 1) * per_task) {
            let (o, column) = (block / blocks, block % blocks * COLUMNS);
            let n = COLUMNS.min(inner - column);
            let (x, results) = (&x[o * middle * inner..(o + 1) * middle * inner], &mut results[..n]);
            match inner {
                1 => results[0] = fold_row(reduction, x),
                _ => fold_columns(reduction, x, inner, column, 0, middle, results),
            }
            // SAFETY: each block has its own columns of a row.
            let y = unsafe { y.slice(o * inner + column, n) };
            join_chunks(reduction, scale, results, y, into);
        }
    });
}

simd! {
    fn fold_row[T: Float](reduction: Reduction, x: &[T]) -> T {
        match reduction {
            Reduction::Sum => lanes(x, T::ZERO, |a, b| a + b),
            Reduction::Prod => lanes(x, T::ONE, |a, b| a * b),
            Reduction::Max => lanes(x, T::NEG_INFINITY, |a, b| a.maximum(b)),
            Reduction::Min => lanes(x, T::INFINITY, |a, b| a.minimum(b)),
        }
    }

    fn fold_columns[T: Float](reduction: Reduction, x: &[T], inner: usize, column: usize, from: usize, to: usize, out: &mut [T]) {
        match reduction {
            Reduction::Sum => columns(x, inner, column, from, to, out, T::ZERO, |a, b| a + b),
            Reduction::Prod => columns(x, inner, column, from, to, out, T::ONE, |a, b| a * b),
            Reduction::Max => columns(x, inner, column, from, to, out, T::NEG_INFINITY, |a, b| a.maximum(b)),
            Reduction::Min => columns(x, inner, column, from, to, out, T::INFINITY, |a, b| a.minimum(b)),
        }
    }

    fn join_chunks[T: Float](reduction: Reduction, scale: T, partials: &[T], y: &mut [T], into: Into) {
        let n = y.len();
        let mut rest = partials;
        if into == Into::Overwrite {
            y.copy_from_slice(&partials[..n]);
            rest = &partials[n..];
        }
        for chunk in rest.chunks_exact(n) {
            for (y, &p) in y.iter_mut().zip(chunk) {
                *y = reduction.join(*y, p);
            }
        }
        if scale != T::ONE {
            for y in y {
                *y *= scale;
            }
        }
    }
}

/// Sixteen lanes side by side, then joined pair by pair, then the rest one by one.
#[inline(always)]
fn lanes<T: Float>(x: &[T], neutral: T, join: impl Fn(T, T) -> T) -> T {
    let mut acc = [neutral; 16];
    let chunks = x.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (a, &v) in acc.iter_mut().zip(chunk) {
            *a = join(*a, v);
        }
    }
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            acc[i] = join(acc[i], acc[i + width]);
        }
        width /= 2;
    }
    rest.iter().fold(acc[0], |a, &v| join(a, v))
}

#[inline(always)]
fn columns<T: Float>(
    x: &[T],
    inner: usize,
    column: usize,
    from: usize,
    to: usize,
    out: &mut [T],
    neutral: T,
    join: impl Fn(T, T) -> T,
) {
    let n = out.len();
    out.fill(neutral);
    let row = |row: usize| &x[row * inner + column..][..n];
    let mut at = from;
    // Four rows for each time that the results are read and written.
    while at + 4 <= to {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| row(at + i));
        for i in 0..n {
            out[i] = join(join(join(join(out[i], a[i]), b[i]), c[i]), d[i]);
        }
        at += 4;
    }
    for at in at..to {
        for (o, &v) in out.iter_mut().zip(row(at)) {
            *o = join(*o, v);
        }
    }
}

/// `y[o, i]` = the place along the middle axis of the largest (or smallest) `x[o, m, i]`, the first of equals; a NaN
/// counts as larger (smaller) than any number.
pub fn arg<T: PartialOrd + Copy + Sync>(
    pool: &Pool,
    largest: bool,
    x: &[T],
    (outer, middle, inner): (usize, usize, usize),
    y: &mut [i64],
) {
    let out = SharedSlice::new(y);
    let better = |a: T, b: T| {
        let nan = |v: T| v.partial_cmp(&v).is_none();
        if nan(b) { false } else { nan(a) || if largest { a > b } else { a < b } }
    };
    pool.run_sized(outer, outer * middle * inner, &|o, _| {
        // SAFETY: each task writes its own row.
        let y = unsafe { out.slice(o * inner, inner) };
        for (i, y) in y.iter_mut().enumerate() {
            let at = |m: usize| x[(o * middle + m) * inner + i];
            let mut best = 0;
            for m in 1..middle {
                if better(at(m), at(best)) {
                    best = m;
                }
            }
            *y = best as i64;
        }
    });
}
