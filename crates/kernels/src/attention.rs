//! Scaled dot-product attention without a score matrix in memory.
//!
//! `y = softmax(scale * q k^T + mask) v` for each sample and head, computed in blocks of [`QUERY_BLOCK`] queries
//! by [`KEY_BLOCK`] keys: the maximum and the sum of a query's exponentials are brought up to date from block to
//! block (Milakov and Gimelshein 2018; Dao et al. 2022). Of all scores only each query's log-sum-exp is saved, from
//! which the gradient gets the weights back block by block.
//!
//! A block of scores is kept transposed, `[keys, queries]`: then a query is a lane of the vector registers, its
//! maximum and its sum need no sums across lanes, and both matrix products read their operands the way the
//! library likes them (145 GFLOP/s instead of 105 for the scores, on a core whose peak is 165).

mod backward;
mod forward;
mod naive;
mod scores;

pub use backward::{attention_grad, attention_grad_scratch};
pub use forward::{attention, attention_scratch};
pub use naive::{NaiveMask, attention_grad_naive, attention_naive};

use crate::gemm::Packing;
use crate::random::{Distribution, Key, fill_block};
use std::marker::PhantomData;

/// Queries of one block.
pub const QUERY_BLOCK: usize = 64;

/// Keys of one block.
pub const KEY_BLOCK: usize = 256;

/// What the library packs for [`attention`] and [`attention_grad`].
pub fn attention_packing<T>(shape: &Attention) -> Packing {
    let (queries, keys) = (QUERY_BLOCK.min(shape.queries), KEY_BLOCK.min(shape.keys));
    let depth = shape.depth.max(shape.value_depth);
    // Scores and their gradients, results, and the gradients of keys, values and queries.
    let (scores, results) = (Packing::here::<T>(keys, depth, queries), Packing::here::<T>(queries, keys, depth));
    scores.max(results).max(Packing::here::<T>(keys, queries, depth))
}

/// The sizes of an attention and what it may look at.
///
/// Query `i` sees key `j` unless the mask forbids it, or `causal` is set and `j > i`. With fewer heads for keys and
/// values than for queries, neighbouring query heads share one (`kv_heads` must divide `heads`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Number of samples.
    pub batch: usize,
    /// Queries of a sample.
    pub queries: usize,
    /// Keys (and values) of a sample.
    pub keys: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of the keys and values.
    pub kv_heads: usize,
    /// Length of a query and of a key.
    pub depth: usize,
    /// Length of a value.
    pub value_depth: usize,
    /// Factor of the scores, usually `1 / sqrt(depth)`.
    pub scale: f64,
    /// Whether a query sees only keys at its own place and before.
    pub causal: bool,
    /// Which weights are left out.
    pub dropout: Option<Dropout>,
}

/// Weights left out at random: each with probability `rate`, the others being multiplied with `1 / (1 - rate)`.
///
/// Nothing is stored; a weight's fate is a function of the key and its place in `[batch, heads, queries, keys]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability, below 1.
    pub rate: f64,
    /// Names the random numbers.
    pub key: Key,
    /// Place of the first sample in the whole batch.
    pub first_sample: usize,
}

impl Dropout {
    /// What the weights of one query from `key` on are multiplied with.
    fn factors(&self, shape: &Attention, [sample, head, query, key]: [usize; 4], factors: &mut [f32]) {
        let row = ((self.first_sample + sample) * shape.heads + head) * shape.queries + query;
        fill_block(Distribution::Uniform, self.key, (row * shape.keys + key) as u64, factors);
        let (rate, kept) = (self.rate as f32, (1.0 / (1.0 - self.rate)) as f32);
        factors.iter_mut().for_each(|u| *u = if *u >= rate { kept } else { 0.0 });
    }
}

impl Attention {
    /// Query heads that share a head of keys and values.
    fn group(&self) -> usize {
        assert!(
            self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads),
            "{} heads cannot share {}",
            self.heads,
            self.kv_heads
        );
        self.heads / self.kv_heads
    }

    fn query_blocks(&self) -> usize {
        self.queries.div_ceil(QUERY_BLOCK)
    }

    fn key_blocks(&self) -> usize {
        self.keys.div_ceil(KEY_BLOCK)
    }

    /// First query of a block and the number of its queries.
    fn query_block(&self, block: usize) -> (usize, usize) {
        let first = block * QUERY_BLOCK;
        (first, QUERY_BLOCK.min(self.queries - first))
    }

    /// First key of a block and how many of its keys the queries before `end` can see.
    fn key_block(&self, block: usize, end: usize) -> (usize, usize) {
        let first = block * KEY_BLOCK;
        let last = if self.causal { self.keys.min(end) } else { self.keys };
        (first, last.saturating_sub(first).min(KEY_BLOCK))
    }

    /// Multiplications and additions of one matrix product over all scores, for deciding what is worth sharing.
    fn work(&self) -> usize {
        self.batch * self.heads * self.queries * self.keys * (self.depth + self.value_depth) / 64
    }
}

/// `[batch, time, heads, depth]` inside a slice; the depth is contiguous, the other axes have strides.
#[derive(Clone, Copy)]
pub struct Heads<'a, T> {
    data: &'a [T],
    strides: [usize; 3],
}

impl<'a, T> Heads<'a, T> {
    /// A contiguous array.
    pub fn new(data: &'a [T], heads: usize, time: usize, depth: usize) -> Heads<'a, T> {
        Heads { data, strides: [time * heads * depth, heads * depth, depth] }
    }

    /// Queries, keys and values of one array `[batch, time, 3, heads, depth]`.
    pub fn packed(data: &'a [T], heads: usize, time: usize, depth: usize) -> [Heads<'a, T>; 3] {
        let row = heads * depth;
        let strides = [time * 3 * row, 3 * row, depth];
        [0, 1, 2].map(|i| Heads { data: &data[(i * row).min(data.len())..], strides })
    }

    /// One head of one sample from `time` on.
    #[inline(always)]
    fn at(&self, sample: usize, time: usize, head: usize) -> &'a [T] {
        let [s, t, h] = self.strides;
        &self.data[sample * s + time * t + head * h..]
    }

    /// The distance between one time and the next.
    fn time_stride(&self) -> usize {
        self.strides[1]
    }
}

/// As [`Heads`], to be written.
pub struct HeadsMut<'a, T> {
    ptr: *mut T,
    len: usize,
    strides: [usize; 3],
    data: PhantomData<&'a mut [T]>,
}

// SAFETY: rows are handed out by the unsafe `row`, whose callers promise that no two tasks hold the same one.
unsafe impl<T: Send> Sync for HeadsMut<'_, T> {}

impl<'a, T> HeadsMut<'a, T> {
    /// A contiguous array.
    pub fn new(data: &'a mut [T], heads: usize, time: usize, depth: usize) -> HeadsMut<'a, T> {
        let strides = [time * heads * depth, heads * depth, depth];
        HeadsMut { ptr: data.as_mut_ptr(), len: data.len(), strides, data: PhantomData }
    }

    /// Queries, keys and values of one array `[batch, time, 3, heads, depth]`.
    pub fn packed(data: &'a mut [T], heads: usize, time: usize, depth: usize) -> [HeadsMut<'a, T>; 3] {
        let row = heads * depth;
        let strides = [time * 3 * row, 3 * row, depth];
        let (ptr, len) = (data.as_mut_ptr(), data.len());
        // The three interleave and have no element in common: rows of one lie `3 * row` apart and reach over
        // `row` elements.
        [0, 1, 2].map(|i| {
            let skip = (i * row).min(len);
            HeadsMut { ptr: ptr.wrapping_add(skip), len: len - skip, strides, data: PhantomData }
        })
    }

    /// The `depth` elements of one head at one time.
    ///
    /// # Safety
    /// No two tasks that run at once may hold the same row.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn row(&self, sample: usize, time: usize, head: usize, depth: usize) -> &mut [T] {
        let [s, t, h] = self.strides;
        let start = sample * s + time * t + head * h;
        assert!(start + depth <= self.len, "a row reaches beyond its array");
        // SAFETY: inside the array by the check above, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), depth) }
    }
}

/// What is added to the scores or removed from them.
#[derive(Clone, Copy)]
pub enum Mask<'a, T> {
    /// Nothing.
    None,
    /// These numbers are added to the scaled scores.
    Add(MaskView<'a, T>),
    /// Scores where this is false are removed.
    Keep(MaskView<'a, bool>),
}

/// `[batch, heads, queries, keys]` inside a slice, where each of the first three axes can be 1 for all.
#[derive(Clone, Copy)]
pub struct MaskView<'a, M> {
    data: &'a [M],
    strides: [usize; 3],
}

impl<'a, M> MaskView<'a, M> {
    /// A contiguous array with one element to an axis where all share it.
    ///
    /// # Panics
    /// When the length of `data` is not that of the shape.
    pub fn new(data: &'a [M], [batch, heads, queries, keys]: [usize; 4]) -> MaskView<'a, M> {
        assert_eq!(data.len(), batch * heads * queries * keys, "the mask has another length than its shape");
        let stride = |size: usize, stride: usize| if size == 1 { 0 } else { stride };
        let strides = [stride(batch, heads * queries * keys), stride(heads, queries * keys), stride(queries, keys)];
        MaskView { data, strides }
    }

    /// The keys' elements for one query from `key` on.
    #[inline(always)]
    fn row(&self, sample: usize, head: usize, query: usize, key: usize) -> &'a [M] {
        let [s, h, q] = self.strides;
        &self.data[sample * s + head * h + query * q + key..]
    }

    /// Whether all queries share one row.
    fn same_for_queries(&self) -> bool {
        self.strides[2] == 0
    }
}

#[cfg(test)]
mod tests;
