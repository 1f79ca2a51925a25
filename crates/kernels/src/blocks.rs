//! Loops over one row in blocks of fixed width, which the compiler keeps in vector registers.
//!
//! Every function here is `#[inline(always)]` and meant to be called from inside [`simd!`](crate::simd!).
//! Sums keep one partial sum per lane and fold them pairwise, in an order set by the length of the row
//! alone: the same bits on every instruction set and for any number of rows. The end of a row that fills no
//! block is taken as a block that overlaps the one before: that is several times faster than going on element
//! by element.

use crate::math::Float;

/// The width of a block.
const LANES: usize = 32;

/// What a kernel reads its elements from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a, T> {
    /// A slice of its own.
    Slice(&'a [T]),
    /// The old contents of what the kernel writes.
    InPlace,
}

impl<'a, T> Source<'a, T> {
    /// The `len` elements from `start`.
    #[inline(always)]
    pub(crate) fn part(&self, start: usize, len: usize) -> Source<'a, T> {
        match self {
            Source::Slice(x) => Source::Slice(&x[start..start + len]),
            Source::InPlace => Source::InPlace,
        }
    }

    /// The elements themselves, given what the kernel writes.
    #[inline(always)]
    pub fn read<'b>(&self, out: &'b [T]) -> &'b [T]
    where
        'a: 'b,
    {
        match self {
            Source::Slice(x) => x,
            Source::InPlace => out,
        }
    }

    /// Checks the length of a slice.
    #[track_caller]
    pub(crate) fn check_len(&self, len: usize) {
        if let Source::Slice(x) = self {
            assert_eq!(x.len(), len, "the source has another length");
        }
    }
}

/// The largest element, negative infinity if there is none. A NaN is passed over.
#[inline(always)]
pub(crate) fn largest<T: Float>(x: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    if x.len() < LANES {
        return x.iter().fold(T::NEG_INFINITY, |a, &b| larger(a, b));
    }
    let mut lanes = [T::NEG_INFINITY; LANES];
    for start in (0..x.len() / LANES).map(|i| i * LANES).chain([x.len() - LANES]) {
        let block = block(x, start);
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], block[i]);
        }
    }
    fold(lanes, larger)
}

/// The sums of `f`'s results over the elements of `rows`, which have one length.
#[inline(always)]
pub(crate) fn sums<T: Float, const N: usize, const M: usize>(rows: [&[T]; N], f: impl Fn([T; N]) -> [T; M]) -> [T; M] {
    let len = rows[0].len();
    let rows = rows.map(|row| &row[..len]);
    if len < LANES {
        let mut total = [T::ZERO; M];
        for i in 0..len {
            let terms = f(rows.map(|row| row[i]));
            for j in 0..M {
                total[j] += terms[j];
            }
        }
        return total;
    }
    let mut lanes = [[T::ZERO; LANES]; M];
    let rest = len % LANES;
    let mut start = 0;
    while start < len - rest {
        let blocks = rows.map(|row| block(row, start));
        for i in 0..LANES {
            let terms = f(blocks.map(|block| block[i]));
            for j in 0..M {
                lanes[j][i] += terms[j];
            }
        }
        start += LANES;
    }
    if rest > 0 {
        let blocks = rows.map(|row| block(row, len - LANES));
        for i in 0..LANES {
            let terms = f(blocks.map(|block| block[i]));
            for j in 0..M {
                lanes[j][i] += if i >= LANES - rest { terms[j] } else { T::ZERO };
            }
        }
    }
    lanes.map(|lanes| fold(lanes, |a, b| a + b))
}

/// `out = f(source, rows)`, element by element.
#[inline(always)]
pub(crate) fn apply<T: Float, const N: usize>(
    out: &mut [T],
    source: Source<'_, T>,
    rows: [&[T]; N],
    f: impl Fn(T, [T; N]) -> T,
) {
    apply_sum(out, source, rows, |old, values| (f(old, values), T::ZERO));
}

/// As [`apply`] with the first part of `f`'s result; returns the sum of the second.
#[inline(always)]
pub(crate) fn apply_sum<T: Float, const N: usize>(
    out: &mut [T],
    source: Source<'_, T>,
    rows: [&[T]; N],
    f: impl Fn(T, [T; N]) -> (T, T),
) -> T {
    let len = out.len();
    let source = source.part(0, len);
    let rows = rows.map(|row| &row[..len]);
    if len < LANES {
        let mut sum = T::ZERO;
        for i in 0..len {
            let (new, term) = f(source.read(out)[i], rows.map(|row| row[i]));
            out[i] = new;
            sum += term;
        }
        return sum;
    }
    let rest = len % LANES;
    // Read before the loop writes over part of it; what both write is then the same.
    let last = *block(source.read(out), len - LANES);
    let mut lanes = [T::ZERO; LANES];
    let mut start = 0;
    while start < len - rest {
        let blocks = rows.map(|row| block(row, start));
        let old = *block(source.read(out), start);
        let out = block_mut(out, start);
        for i in 0..LANES {
            let (new, term) = f(old[i], blocks.map(|block| block[i]));
            out[i] = new;
            lanes[i] += term;
        }
        start += LANES;
    }
    if rest > 0 {
        let blocks = rows.map(|row| block(row, len - LANES));
        let out = block_mut(out, len - LANES);
        for i in 0..LANES {
            let (new, term) = f(last[i], blocks.map(|block| block[i]));
            out[i] = new;
            lanes[i] += if i >= LANES - rest { term } else { T::ZERO };
        }
    }
    fold(lanes, |a, b| a + b)
}

#[inline(always)]
fn block<T>(row: &[T], start: usize) -> &[T; LANES] {
    row[start..start + LANES].try_into().expect("a whole block")
}

#[inline(always)]
fn block_mut<T>(row: &mut [T], start: usize) -> &mut [T; LANES] {
    (&mut row[start..start + LANES]).try_into().expect("a whole block")
}

/// Folds the lanes pairwise.
#[inline(always)]
fn fold<T: Float>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = f(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}
