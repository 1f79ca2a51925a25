//! Reading and adding by index: embedding lookup, gathers along an axis, their gradients.
//!
//! Indices are checked before anything is written; a bad one is reported as an [`IndexError`] and the
//! output is left as it was. Where several updates meet in one place they are added in the order of their
//! positions, whatever the number of threads: tasks divide the output, never the updates.

use crate::axis::Axis;
use crate::gemm::Into;
use crate::pool::{Pool, SharedSlice};
use crate::simd;
use std::error::Error;
use std::fmt;

/// Elements that one task moves.
const TASK: usize = 16 * 1024;

/// Columns per task where the columns are divided.
const COLUMNS: usize = 128;

/// How many tasks divide the rows of the output by the index's remainder; a power of two.
const REMAINDERS: usize = 8;

/// An integer type of indices.
pub trait Index: Copy + Default + Send + Sync + fmt::Debug + 'static {
    /// Widens.
    fn to_i64(self) -> i64;
    /// From a position that is known to fit.
    fn from_usize(position: usize) -> Self;

    /// The index as a position, which only makes sense after a check; a negative one becomes huge.
    #[inline(always)]
    fn position(self) -> usize {
        self.to_i64() as usize
    }
}

impl Index for i32 {
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self as i64
    }
    #[inline(always)]
    fn from_usize(position: usize) -> i32 {
        position as i32
    }
}

impl Index for i64 {
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self
    }
    #[inline(always)]
    fn from_usize(position: usize) -> i64 {
        position as i64
    }
}

/// An index that points outside its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexError {
    /// Where the index stands among the indices.
    pub position: usize,
    /// The index.
    pub index: i64,
    /// The size of the axis it should lie in.
    pub size: usize,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IndexError { position, index, size } = self;
        write!(f, "index {index} at position {position} is not in [0, {size})")
    }
}

impl Error for IndexError {}

/// Checks that every index lies in `[0, size)`.
///
/// # Errors
/// The first index that does not.
pub fn check_indices<I: Index>(indices: &[I], size: usize) -> Result<(), IndexError> {
    // Blocks without a way out in the middle are vectorised.
    for (block, part) in indices.chunks(1024).enumerate() {
        if !all_below(part, size) {
            let inside = |i: &I| i.position() < size;
            let offset = part.iter().position(|i| !inside(i)).expect("one is outside");
            return Err(IndexError { position: block * 1024 + offset, index: part[offset].to_i64(), size });
        }
    }
    Ok(())
}

simd! {
    fn all_below[I: Index](indices: &[I], size: usize) -> bool {
        indices.iter().fold(true, |all, i| all & (i.position() < size))
    }
}

/// Picks slices along an axis: `out[o, j, i] = data[o, indices[j], i]`.
///
/// `data` is `[outer, size, inner]` as `axis` says, `out` is `[outer, indices, inner]`. With the first axis
/// this is an embedding lookup.
///
/// # Errors
/// When an index is outside the axis.
///
/// # Panics
/// When the lengths disagree.
///
/// ```
/// use plimsoll_kernels::{Pool, axis::Axis, gather::gather};
/// let table = [0.0, 0.1, 1.0, 1.1, 2.0, 2.1];
/// let mut rows = [0.0; 4];
/// gather(&Pool::new(1), &table, Axis::new(&[3, 2], 0), &[2, 0], &mut rows).unwrap();
/// assert_eq!(rows, [2.0, 2.1, 0.0, 0.1]);
/// ```
pub fn gather<T, I>(pool: &Pool, data: &[T], axis: Axis, indices: &[I], out: &mut [T]) -> Result<(), IndexError>
where
    T: Copy + Send + Sync,
    I: Index,
{
    let Axis { outer, size, inner } = axis;
    let n = indices.len();
    assert_eq!(data.len(), axis.len(), "data has another size");
    assert_eq!(out.len(), axis.with_size(n).len(), "output has another size");
    check_indices(indices, size)?;
    let rows = outer * n;
    let rows_per_task = (TASK / inner.max(1)).max(1);
    let out = SharedSlice::new(out);
    pool.run_sized(rows.div_ceil(rows_per_task), rows * (inner / 2 + 2), &|task, _| {
        let first = task * rows_per_task;
        let count = rows_per_task.min(rows - first);
        // SAFETY: tasks write rows of their own.
        let part = unsafe { out.slice(first * inner, count * inner) };
        if inner == 1 {
            for (row, out) in (first..).zip(part) {
                *out = data[row / n * size + indices[row % n].position()];
            }
        } else if inner > 0 {
            for (row, out) in (first..).zip(part.chunks_exact_mut(inner)) {
                let from = (row / n * size + indices[row % n].position()) * inner;
                out.copy_from_slice(&data[from..from + inner]);
            }
        }
    });
    Ok(())
}

/// What is added up at places.
pub trait Addable: Copy + Send + Sync + 'static {
    /// 0.
    const ZERO: Self;
    /// The sum; whole numbers wrap around.
    fn plus(self, other: Self) -> Self;
}

macro_rules! addable {
    ($($T:ty: $zero:expr, $plus:expr);*) => {$(
        impl Addable for $T {
            const ZERO: $T = $zero;

            #[inline(always)]
            fn plus(self, other: $T) -> $T {
                let plus: fn($T, $T) -> $T = $plus;
                plus(self, other)
            }
        }
    )*};
}

addable!(f32: 0.0, |a, b| a + b; f64: 0.0, |a, b| a + b; i32: 0, i32::wrapping_add; i64: 0, i64::wrapping_add);

/// The gradient of [`gather`]: `out[o, indices[j], i] += updates[o, j, i]`, in the order of j.
///
/// With [`Into::Overwrite`] the output starts from zero. Adding up a batch in slices with [`Into::Add`]
/// gives the same bits as adding it up at once.
///
/// # Errors
/// When an index is outside the axis.
///
/// # Panics
/// When the lengths disagree.
pub fn scatter_add<T: Addable, I: Index>(
    pool: &Pool,
    axis: Axis,
    indices: &[I],
    updates: &[T],
    out: &mut [T],
    into: Into,
) -> Result<(), IndexError> {
    let Axis { outer, size, inner } = axis;
    let n = indices.len();
    assert_eq!(updates.len(), axis.with_size(n).len(), "updates have another size");
    assert_eq!(out.len(), axis.len(), "output has another size");
    check_indices(indices, size)?;
    if into == Into::Overwrite {
        zero(pool, out);
    }
    if updates.is_empty() {
        return Ok(());
    }
    let work = updates.len();
    let out = SharedSlice::new(out);
    if outer >= REMAINDERS {
        // Every outer part has its own stretch of the output.
        pool.run_sized(outer, work, &|o, _| {
            // SAFETY: tasks write stretches that do not overlap.
            let part = unsafe { out.slice(o * size * inner, size * inner) };
            let updates = &updates[o * n * inner..(o + 1) * n * inner];
            add_rows(indices, updates, inner, part);
        });
    } else if inner >= 2 * COLUMNS {
        // Wide rows: a task takes some columns of all of them, so a frequent index is shared by all tasks.
        let blocks = inner.div_ceil(COLUMNS);
        pool.run_sized(outer * blocks, work, &|task, _| {
            let (o, column) = (task / blocks, task % blocks * COLUMNS);
            let width = COLUMNS.min(inner - column);
            for (j, i) in indices.iter().enumerate() {
                let from = (o * n + j) * inner + column;
                // SAFETY: tasks write columns of their own.
                let row = unsafe { out.slice((o * size + i.position()) * inner + column, width) };
                add(row, &updates[from..from + width]);
            }
        });
    } else {
        // Narrow rows: a task takes the indices with one remainder.
        pool.run_sized(outer * REMAINDERS, work, &|task, _| {
            let (o, remainder) = (task / REMAINDERS, task % REMAINDERS);
            for (j, i) in indices.iter().enumerate() {
                if i.position() % REMAINDERS == remainder {
                    let from = (o * n + j) * inner;
                    // SAFETY: tasks write rows of their own.
                    let row = unsafe { out.slice((o * size + i.position()) * inner, inner) };
                    add(row, &updates[from..from + inner]);
                }
            }
        });
    }
    Ok(())
}

/// Picks elements along an axis: `out[o, j, i] = data[o, indices[o, j, i], i]`.
///
/// `data` is `[outer, size, inner]`; `indices` and `out` are `[outer, n, inner]`.
///
/// # Errors
/// When an index is outside the axis.
///
/// # Panics
/// When the lengths disagree.
pub fn take_along_axis<T, I>(
    pool: &Pool,
    data: &[T],
    axis: Axis,
    indices: &[I],
    out: &mut [T],
) -> Result<(), IndexError>
where
    T: Copy + Send + Sync,
    I: Index,
{
    let Axis { outer, size, inner } = axis;
    assert_eq!(data.len(), axis.len(), "data has another size");
    assert_eq!(out.len(), indices.len(), "output has another size");
    let n = picks(axis, indices.len());
    check_indices(indices, size)?;
    let per_task = (TASK / (n * inner).max(1)).max(1);
    let out = SharedSlice::new(out);
    pool.run_sized(outer.div_ceil(per_task), indices.len() * 2, &|task, _| {
        for o in task * per_task..(task * per_task + per_task).min(outer) {
            // SAFETY: tasks write stretches that do not overlap.
            let out = unsafe { out.slice(o * n * inner, n * inner) };
            let data = &data[o * size * inner..(o + 1) * size * inner];
            let indices = &indices[o * n * inner..(o + 1) * n * inner];
            if inner == 1 {
                for (out, index) in out.iter_mut().zip(indices) {
                    *out = data[index.position()];
                }
            } else {
                for (place, (out, index)) in out.iter_mut().zip(indices).enumerate() {
                    *out = data[index.position() * inner + place % inner];
                }
            }
        }
    });
    Ok(())
}

/// The gradient of [`take_along_axis`]: `out[o, indices[o, j, i], i] += updates[o, j, i]`, in the order of j.
///
/// # Errors
/// When an index is outside the axis.
///
/// # Panics
/// When the lengths disagree.
pub fn scatter_add_along_axis<T: Addable, I: Index>(
    pool: &Pool,
    axis: Axis,
    indices: &[I],
    updates: &[T],
    out: &mut [T],
    into: Into,
) -> Result<(), IndexError> {
    let Axis { outer, size, inner } = axis;
    assert_eq!(updates.len(), indices.len(), "updates have another size");
    assert_eq!(out.len(), axis.len(), "output has another size");
    let n = picks(axis, indices.len());
    check_indices(indices, size)?;
    let per_task = (TASK / (n.max(size) * inner).max(1)).max(1);
    let out = SharedSlice::new(out);
    pool.run_sized(outer.div_ceil(per_task), 2 * (indices.len() + axis.len() / 8), &|task, _| {
        for o in task * per_task..(task * per_task + per_task).min(outer) {
            // SAFETY: tasks write stretches that do not overlap.
            let out = unsafe { out.slice(o * size * inner, size * inner) };
            let updates = &updates[o * n * inner..(o + 1) * n * inner];
            let indices = &indices[o * n * inner..(o + 1) * n * inner];
            if into == Into::Overwrite {
                out.fill(T::ZERO);
            }
            for (place, (&update, index)) in updates.iter().zip(indices).enumerate() {
                let sum = &mut out[index.position() * inner + place % inner];
                *sum = sum.plus(update);
            }
        }
    });
    Ok(())
}

/// The number of indices along the axis.
fn picks(axis: Axis, indices: usize) -> usize {
    let n = indices / (axis.outer * axis.inner).max(1);
    assert_eq!(axis.with_size(n).len(), indices, "indices have another size");
    n
}

fn zero<T: Addable>(pool: &Pool, out: &mut [T]) {
    let len = out.len();
    let out = SharedSlice::new(out);
    pool.run_sized(len.div_ceil(4 * TASK), len / 4, &|task, _| {
        let begin = task * 4 * TASK;
        // SAFETY: tasks write stretches that do not overlap.
        unsafe { out.slice(begin, (4 * TASK).min(len - begin)) }.fill(T::ZERO);
    });
}

simd! {
    fn add[T: Addable](row: &mut [T], update: &[T]) {
        for (row, &update) in row.iter_mut().zip(update) {
            *row = row.plus(update);
        }
    }

    fn add_rows[T: Addable, I: Index](indices: &[I], updates: &[T], inner: usize, out: &mut [T]) {
        for (i, update) in indices.iter().zip(updates.chunks_exact(inner)) {
            let row = &mut out[i.position() * inner..(i.position() + 1) * inner];
            for (row, &update) in row.iter_mut().zip(update) {
                *row = row.plus(update);
            }
        }
    }
}

/// The naive twin of [`gather`].
pub fn gather_naive(data: &[f64], axis: Axis, indices: &[i64], out: &mut [f64]) {
    let n = indices.len();
    for o in 0..axis.outer {
        for j in 0..n {
            for i in 0..axis.inner {
                out[(o * n + j) * axis.inner + i] = data[(o * axis.size + indices[j] as usize) * axis.inner + i];
            }
        }
    }
}

/// The naive twin of [`scatter_add`]; adds to what is there.
pub fn scatter_add_naive(axis: Axis, indices: &[i64], updates: &[f64], out: &mut [f64]) {
    let n = indices.len();
    for o in 0..axis.outer {
        for j in 0..n {
            for i in 0..axis.inner {
                out[(o * axis.size + indices[j] as usize) * axis.inner + i] += updates[(o * n + j) * axis.inner + i];
            }
        }
    }
}

/// The naive twin of [`take_along_axis`].
pub fn take_along_axis_naive(data: &[f64], axis: Axis, indices: &[i64], out: &mut [f64]) {
    let Axis { outer, size, inner } = axis;
    let n = picks(axis, indices.len());
    for (o, j, i) in places(outer, n, inner) {
        let at = (o * n + j) * inner + i;
        out[at] = data[(o * size + indices[at] as usize) * inner + i];
    }
}

/// The naive twin of [`scatter_add_along_axis`]; adds to what is there.
pub fn scatter_add_along_axis_naive(axis: Axis, indices: &[i64], updates: &[f64], out: &mut [f64]) {
    let Axis { outer, size, inner } = axis;
    let n = picks(axis, indices.len());
    for (o, j, i) in places(outer, n, inner) {
        let at = (o * n + j) * inner + i;
        out[(o * size + indices[at] as usize) * inner + i] += updates[at];
    }
}

fn places(outer: usize, n: usize, inner: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..outer).flat_map(move |o| (0..n).flat_map(move |j| (0..inner).map(move |i| (o, j, i))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Distribution, Key, fill_block, integers_block};

    fn floats(n: usize) -> Vec<f32> {
        let mut out = vec![0.0; n];
        fill_block(Distribution::Normal, Key { seed: 1, step: 1, stream: 1 }, 0, &mut out);
        out
    }

    fn indices(n: usize, size: usize) -> Vec<i64> {
        let mut out = vec![0; n];
        integers_block(0, size as i64, Key { seed: 2, step: 2, stream: 2 }, 0, &mut out);
        out
    }

    fn wide(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| x as f64).collect()
    }

    #[track_caller]
    fn close(got: &[f32], want: &[f64]) {
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert!((*got as f64 - want).abs() < 1e-4, "at {i}: {got} and {want}");
        }
    }

    /// The same bits from 1, 2 and 3 threads.
    #[track_caller]
    fn on_all_pools(len: usize, body: impl Fn(&Pool, &mut [f32])) -> Vec<f32> {
        let runs = [1, 2, 3].map(|threads| {
            let mut out = vec![7.0; len];
            body(&Pool::new(threads), &mut out);
            out
        });
        assert!(runs[0] == runs[1] && runs[0] == runs[2], "bits depend on the threads");
        runs.into_iter().next().expect("three runs")
    }

    #[test]
    fn gather_and_its_gradient_agree_with_the_twins() {
        for (outer, size, inner, n) in [
            (1, 50, 64, 300),
            (1, 7, 300, 1000),
            (20, 9, 3, 40),
            (3, 5, 1, 4),
            (2, 4, 700, 9),
            (1, 3, 2, 0),
            (2, 3, 0, 4),
        ] {
            let axis = Axis { outer, size, inner };
            let (data, updates, at) = (floats(axis.len()), floats(outer * n * inner), indices(n, size));
            let at32: Vec<i32> = at.iter().map(|&i| i as i32).collect();

            let got = on_all_pools(updates.len(), |pool, out| gather(pool, &data, axis, &at32, out).unwrap());
            let mut want = vec![0.0; updates.len()];
            gather_naive(&wide(&data), axis, &at, &mut want);
            close(&got, &want);

            for into in [Into::Overwrite, Into::Add] {
                let got = on_all_pools(axis.len(), |pool, out| {
                    scatter_add(pool, axis, &at32, &updates, out, into).unwrap();
                });
                let mut want = vec![if into == Into::Add { 7.0 } else { 0.0 }; axis.len()];
                scatter_add_naive(axis, &at, &wide(&updates), &mut want);
                close(&got, &want);
            }
        }
    }

    #[test]
    fn slices_add_up_to_the_same_bits() {
        let (axis, n) = (Axis { outer: 1, size: 10, inner: 40 }, 500);
        let (updates, at) = (floats(n * 40), indices(n, 10));
        let pool = Pool::new(2);
        let (mut whole, mut parts) = (vec![0.0; 400], vec![0.0; 400]);
        scatter_add(&pool, axis, &at, &updates, &mut whole, Into::Overwrite).unwrap();
        for part in 0..4 {
            let (from, to) = (part * 125, part * 125 + 125);
            scatter_add(&pool, axis, &at[from..to], &updates[from * 40..to * 40], &mut parts, Into::Add).unwrap();
        }
        assert_eq!(whole, parts);
    }

    #[test]
    fn along_an_axis() {
        for (outer, size, inner, n) in [(1, 50, 1, 30), (2000, 12, 1, 5), (30, 9, 13, 4), (1, 5, 1000, 7), (4, 3, 2, 0)]
        {
            let axis = Axis { outer, size, inner };
            let len = outer * n * inner;
            let (data, updates, at) = (floats(axis.len()), floats(len), indices(len, size));

            let got = on_all_pools(len, |pool, out| take_along_axis(pool, &data, axis, &at, out).unwrap());
            let mut want = vec![0.0; len];
            take_along_axis_naive(&wide(&data), axis, &at, &mut want);
            close(&got, &want);

            let got = on_all_pools(axis.len(), |pool, out| {
                scatter_add_along_axis(pool, axis, &at, &updates, out, Into::Overwrite).unwrap();
            });
            let mut want = vec![0.0; axis.len()];
            scatter_add_along_axis_naive(axis, &at, &wide(&updates), &mut want);
            close(&got, &want);
        }
    }

    #[test]
    fn bad_indices_are_reported_and_nothing_is_written() {
        let (pool, axis) = (Pool::new(2), Axis { outer: 1, size: 3, inner: 2 });
        let data = floats(6);
        let mut out = vec![7.0; 4];
        let error = gather(&pool, &data, axis, &[1, 3], &mut out).unwrap_err();
        assert_eq!(error, IndexError { position: 1, index: 3, size: 3 });
        assert_eq!(error.to_string(), "index 3 at position 1 is not in [0, 3)");
        assert_eq!(out, [7.0; 4]);
        let error = scatter_add(&pool, axis, &[-1i64, 0], &[0.0; 4], &mut [0.0; 6], Into::Add).unwrap_err();
        assert_eq!(error.index, -1);
        let mut at = vec![0i32; 3000];
        at[2500] = i32::MIN;
        assert_eq!(check_indices(&at, 1).unwrap_err().position, 2500);
        assert!(check_indices(&[0], 0).is_err());
    }
}
