//! Sorting along the last axis: values, positions, and the k largest.
//!
//! Sorting is stable: equal elements keep their order. NaN counts as larger than every number, so it comes
//! last in ascending order and first in descending order and among the largest; the two zeros are equal.
//!
//! An element and its position are packed into one integer whose order is the wanted one. No two of these
//! are equal, so every way of sorting them gives the same result, and the whole row is sorted as plain
//! integers: short rows by comparison, long ones by digits.

use crate::gather::Index;
use crate::pool::{Pool, SharedSlice};

/// Rows from this length on are sorted by digits; found by timing.
const BY_DIGITS: usize = 1024;

/// Ascending or descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
}

/// An element type with an order.
pub trait Sortable: Copy + Default + Send + Sync + 'static {
    /// An unsigned integer that holds a key and, below it, a position of 32 bits.
    type Packed: Packed;

    /// A key with the element's order, in the upper bits; NaN above all.
    fn key(self) -> Self::Packed;
}

/// The integers that are sorted in place of the elements.
pub trait Packed: Copy + Ord + Default + Send + Sync + 'static {
    /// Bits of the key.
    const KEY_BITS: u32;

    /// The key with its bits inverted, for descending order.
    #[must_use]
    fn inverted(self) -> Self;
    /// With the position in the lower 32 bits.
    #[must_use]
    fn with_position(self, position: u32) -> Self;
    /// The position.
    fn position(self) -> usize;
    /// A digit of the key, 11 bits wide.
    fn digit(self, digit: u32) -> usize;
}

const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;

macro_rules! packed {
    ($($ty:ty, $bits:expr;)*) => {$(
        impl Packed for $ty {
            const KEY_BITS: u32 = $bits;
            #[inline(always)]
            fn inverted(self) -> Self { !self & !0xffff_ffff }
            #[inline(always)]
            fn with_position(self, position: u32) -> Self { self | position as $ty }
            #[inline(always)]
            fn position(self) -> usize { self as u32 as usize }
            #[inline(always)]
            fn digit(self, digit: u32) -> usize {
                (self >> (32 + digit * DIGIT_BITS)) as usize % DIGITS
            }
        }
    )*};
}

packed! { u64, 32; u128, 64; }

impl Sortable for f32 {
    type Packed = u64;
    #[inline(always)]
    fn key(self) -> u64 {
        let bits = if self.is_nan() { f32::NAN.to_bits() } else { (self + 0.0).to_bits() };
        let ordered = if bits >> 31 == 0 { bits ^ 1 << 31 } else { !bits };
        (ordered as u64) << 32
    }
}

impl Sortable for f64 {
    type Packed = u128;
    #[inline(always)]
    fn key(self) -> u128 {
        let bits = if self.is_nan() { f64::NAN.to_bits() } else { (self + 0.0).to_bits() };
        let ordered = if bits >> 63 == 0 { bits ^ 1 << 63 } else { !bits };
        (ordered as u128) << 32
    }
}

impl Sortable for i32 {
    type Packed = u64;
    #[inline(always)]
    fn key(self) -> u64 {
        ((self as u32 ^ 1 << 31) as u64) << 32
    }
}

impl Sortable for i64 {
    type Packed = u128;
    #[inline(always)]
    fn key(self) -> u128 {
        ((self as u64 ^ 1 << 63) as u128) << 32
    }
}

impl Sortable for u8 {
    type Packed = u64;
    #[inline(always)]
    fn key(self) -> u64 {
        (self as u64) << 32
    }
}

/// Where sorted results go; either may be left out.
pub struct Sorted<'a, T, I> {
    /// The elements in order.
    pub values: Option<&'a mut [T]>,
    /// Where in its row each of them stood.
    pub positions: Option<&'a mut [I]>,
}

/// Sorts every row of `x`, which has `rows` rows of `n` elements.
///
/// `scratch` has [`sort_scratch`] elements.
///
/// # Panics
/// When the lengths disagree or a row has 2^32 elements or more.
///
/// ```
/// use plimsoll_kernels::{Pool, sort};
/// let (mut values, mut positions, mut scratch) = ([0.0f32; 3], [0i32; 3], [0; 6]);
/// let out = sort::Sorted { values: Some(&mut values), positions: Some(&mut positions) };
/// sort::sort(&Pool::new(1), &[2.0, 3.0, 1.0], 3, sort::Order::Ascending, out, &mut scratch);
/// assert_eq!(values, [1.0, 2.0, 3.0]);
/// assert_eq!(positions, [2, 0, 1]);
/// ```
pub fn sort<T: Sortable, I: Index>(
    pool: &Pool,
    x: &[T],
    n: usize,
    order: Order,
    out: Sorted<'_, T, I>,
    scratch: &mut [T::Packed],
) {
    let per_worker = 2 * n;
    each_row(pool, x, n, n, out, scratch, per_worker, &|row, scratch| {
        let (packed, spare) = scratch.split_at_mut(n);
        pack(row, order, packed);
        sort_packed(packed, spare);
        n
    });
}

/// Scratch of [`sort`] in packed elements.
pub fn sort_scratch(n: usize, threads: usize) -> usize {
    2 * n * threads
}

/// The k largest elements of every row in descending order; of equal ones the first come first.
///
/// `x` has rows of `n` elements, the results have rows of `k`; `scratch` has [`top_k_scratch`] elements.
///
/// # Panics
/// When the lengths disagree, k is larger than n, or a row has 2^32 elements or more.
pub fn top_k<T: Sortable, I: Index>(
    pool: &Pool,
    x: &[T],
    n: usize,
    k: usize,
    out: Sorted<'_, T, I>,
    scratch: &mut [T::Packed],
) {
    assert!(k <= n, "the {k} largest of {n}");
    each_row(pool, x, n, k, out, scratch, candidates(n, k), &|row, scratch| best(row, k, scratch));
}

/// Scratch of [`top_k`] in packed elements.
pub fn top_k_scratch(n: usize, k: usize, threads: usize) -> usize {
    candidates(n, k) * threads
}

/// Room for the best so far and as many new candidates again, at least a few.
fn candidates(n: usize, k: usize) -> usize {
    (2 * k + CHUNK).min(n)
}

/// Elements that are looked at before the candidates are counted.
const CHUNK: usize = 64;

/// Leaves the k best in order at the front of the scratch.
///
/// Candidates that beat the k-th best so far are collected; when there is no room for more, the best k of
/// them are kept and the bar is raised. Most elements of a long row are turned away by one comparison.
fn best<T: Sortable>(row: &[T], k: usize, found: &mut [T::Packed]) -> usize {
    if k == 0 {
        return 0;
    }
    if found.len() == row.len() {
        pack(row, Order::Descending, found);
        if k < found.len() {
            found.select_nth_unstable(k - 1);
        }
        found[..k].sort_unstable();
        return k;
    }
    let mut len = 0;
    let mut bar = None;
    for (chunk_idx, chunk) in row.chunks(CHUNK).enumerate() {
        if len + chunk.len() > found.len() {
            found[..len].select_nth_unstable(k - 1);
            bar = Some(found[k - 1]);
            len = k;
        }
        for (i, x) in chunk.iter().enumerate() {
            let packed = x.key().inverted().with_position((chunk_idx * CHUNK + i) as u32);
            // Without a branch: written always, kept if it beats the bar. There is room for all of the chunk.
            found[len] = packed;
            len += bar.is_none_or(|bar| packed < bar) as usize;
        }
    }
    if k < len {
        found[..len].select_nth_unstable(k - 1);
    }
    found[..k].sort_unstable();
    k
}

fn pack<T: Sortable>(row: &[T], order: Order, out: &mut [T::Packed]) {
    for (i, (x, out)) in row.iter().zip(out).enumerate() {
        let key = x.key();
        let key = if order == Order::Descending { key.inverted() } else { key };
        *out = key.with_position(i as u32);
    }
}

fn sort_packed<P: Packed>(packed: &mut [P], spare: &mut [P]) {
    if packed.len() < BY_DIGITS {
        return packed.sort_unstable();
    }
    let (mut from, mut to) = (packed, spare);
    let mut swapped = false;
    for digit in 0..P::KEY_BITS.div_ceil(DIGIT_BITS) {
        let mut starts = [0u32; DIGITS];
        for p in from.iter() {
            starts[p.digit(digit)] += 1;
        }
        // A digit that all keys share moves nothing; the upper ones of small integers, for example.
        if starts[from[0].digit(digit)] as usize == from.len() {
            continue;
        }
        let mut sum = 0;
        for start in &mut starts {
            (*start, sum) = (sum, sum + *start);
        }
        for &p in from.iter() {
            let place = &mut starts[p.digit(digit)];
            to[*place as usize] = p;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
        swapped = !swapped;
    }
    if swapped {
        to.copy_from_slice(from);
    }
}

/// Leaves a row's packed results at the front of the scratch and says how many they are.
type Body<'a, T> = &'a (dyn Fn(&[T], &mut [<T as Sortable>::Packed]) -> usize + Sync);

/// Runs `body` on every row and writes its results.
fn each_row<T: Sortable, I: Index>(
    pool: &Pool,
    x: &[T],
    n: usize,
    k: usize,
    out: Sorted<'_, T, I>,
    scratch: &mut [T::Packed],
    per_worker: usize,
    body: Body<'_, T>,
) {
    assert!(n < 1 << 32, "a row of {n} elements is too long to sort");
    let rows = x.len().checked_div(n).unwrap_or(0);
    assert_eq!(rows * n, x.len(), "rows of {n} do not fill {} elements", x.len());
    let check = |len: Option<usize>| assert!(len.is_none_or(|len| len == rows * k), "output has another size");
    check(out.values.as_ref().map(|v| v.len()));
    check(out.positions.as_ref().map(|p| p.len()));
    let values = out.values.map(SharedSlice::new);
    let positions = out.positions.map(SharedSlice::new);
    let scratch = SharedSlice::new(scratch);
    let rows_per_task = (4096 / n.max(1)).max(1);
    pool.run_sized(rows.div_ceil(rows_per_task), x.len() * 10, &|task, worker| {
        // SAFETY: no two tasks of one worker run at once.
        let scratch = unsafe { scratch.slice(worker * per_worker, per_worker) };
        for r in task * rows_per_task..(task * rows_per_task + rows_per_task).min(rows) {
            let row = &x[r * n..(r + 1) * n];
            let found = body(row, scratch);
            let sorted = &scratch[..found];
            if let Some(values) = &values {
                // SAFETY: tasks write rows of their own.
                let values = unsafe { values.slice(r * k, k) };
                values.iter_mut().zip(sorted).for_each(|(value, p)| *value = row[p.position()]);
            }
            if let Some(positions) = &positions {
                // SAFETY: as above.
                let positions = unsafe { positions.slice(r * k, k) };
                positions.iter_mut().zip(sorted).for_each(|(place, p)| *place = I::from_usize(p.position()));
            }
        }
    });
}

/// The naive twin of [`sort`]: the sorted positions of one row.
pub fn argsort_naive(row: &[f64], order: Order) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..row.len()).collect();
    positions.sort_by(|&a, &b| {
        let (a, b) = if order == Order::Ascending { (row[a], row[b]) } else { (row[b], row[a]) };
        a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    });
    positions
}

/// The naive twin of [`top_k`]: the positions of the k largest elements of one row.
pub fn top_k_naive(row: &[f64], k: usize) -> Vec<usize> {
    let mut positions = argsort_naive(row, Order::Descending);
    positions.truncate(k);
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Distribution, Key, fill_block};

    /// Numbers with repetitions, zeros of both signs, infinities and NaN.
    fn numbers(n: usize) -> Vec<f64> {
        let mut out = vec![0.0f64; n];
        fill_block(Distribution::Uniform, Key { seed: 1, step: 1, stream: 1 }, 0, &mut out);
        out.iter_mut().for_each(|x| *x = (*x * 400.0).round() / 4.0 - 50.0);
        let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, -f64::NAN];
        out.iter_mut().step_by(13).zip(special.into_iter().cycle()).for_each(|(x, s)| *x = s);
        out
    }

    fn run<T: Sortable>(x: &[T], n: usize, k: Option<usize>, order: Order, threads: usize) -> (Vec<T>, Vec<i64>) {
        let pool = Pool::new(threads);
        let len = x.len() / n * k.unwrap_or(n);
        let (mut values, mut positions) = (vec![T::default(); len], vec![0; len]);
        let out = Sorted { values: Some(&mut values), positions: Some(&mut positions) };
        match k {
            Some(k) => top_k(&pool, x, n, k, out, &mut vec![T::Packed::default(); top_k_scratch(n, k, threads)]),
            None => sort(&pool, x, n, order, out, &mut vec![T::Packed::default(); sort_scratch(n, threads)]),
        }
        (values, positions)
    }

    #[track_caller]
    fn check(rows: usize, n: usize) {
        let x = numbers(rows * n);
        let x32: Vec<f32> = x.iter().map(|&x| x as f32).collect();
        for order in [Order::Ascending, Order::Descending] {
            for threads in [1, 2, 3] {
                let (values, positions) = run(&x, n, None, order, threads);
                assert_eq!(positions, run(&x32, n, None, order, threads).1);
                for (r, row) in x.chunks_exact(n).enumerate() {
                    let want = argsort_naive(row, order);
                    for j in 0..n {
                        assert_eq!(positions[r * n + j] as usize, want[j], "row {r} at {j}");
                        assert_eq!(values[r * n + j].to_bits(), row[want[j]].to_bits());
                    }
                }
            }
        }
        for k in [0, 1, 5, n / 2, n].into_iter().filter(|&k| k <= n) {
            let (values, positions) = run(&x, n, Some(k), Order::Descending, 2);
            assert_eq!(positions, run(&x32, n, Some(k), Order::Descending, 3).1);
            for (r, row) in x.chunks_exact(n).enumerate() {
                for (j, place) in top_k_naive(row, k).into_iter().enumerate() {
                    assert_eq!(positions[r * k + j] as usize, place, "row {r} at {j} of {k}");
                    assert_eq!(values[r * k + j].to_bits(), row[place].to_bits());
                }
            }
        }
    }

    #[test]
    fn agrees_with_the_naive_twin() {
        check(1, 1);
        check(7, 10);
        check(300, 33);
        check(3, 1000);
        check(2, BY_DIGITS + 300);
    }

    #[test]
    fn nan_is_the_largest() {
        let x = [1.0f32, f32::NAN, -1.0, f32::INFINITY];
        assert_eq!(run(&x, 4, None, Order::Ascending, 1).1, [2, 0, 3, 1]);
        assert_eq!(run(&x, 4, None, Order::Descending, 1).1, [1, 3, 0, 2]);
        assert_eq!(run(&x, 4, Some(2), Order::Descending, 1).1, [1, 3]);
    }

    #[test]
    fn integers_sort_too() {
        let x = [3i32, -7, i32::MAX, i32::MIN, 0, 3];
        assert_eq!(run(&x, 6, None, Order::Ascending, 1).0, [i32::MIN, -7, 0, 3, 3, i32::MAX]);
        assert_eq!(run(&[i64::MAX, i64::MIN, -1], 3, None, Order::Ascending, 1).1, [1, 2, 0]);
        let long: Vec<i32> = (0..5000).map(|i| (i * 37) % 100 - 50).collect();
        assert!(run(&long, 5000, None, Order::Ascending, 1).0.is_sorted());
    }
}
