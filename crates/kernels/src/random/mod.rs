//! Random numbers as a pure function of (seed, op, step, element index).
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", 2011): a keyed mixing of a 128-bit counter into 128 random bits. There is no state. Element
//! `e` of a stream is the same number whoever asks for it, alone or in a block, first time or in a replay,
//! on one thread or on many; so a dropout mask is drawn again in the backward pass instead of being kept.
//!
//! A [`Stream`] names one tensor of random numbers; [`fill_block`] writes any stretch of it and [`fill`]
//! does so on all threads. What f64 draws refines what f32 draws: the leading bits are the same, so the
//! two agree to f32 rounding.
//!
//! ```
//! use plimsoll_kernels::random::{Distribution, Stream, fill_block};
//! let stream = Stream::new(42, 7, 0);
//! let mut whole = [0.0f32; 100];
//! fill_block(stream, Distribution::NORMAL, 0, &mut whole);
//! let mut part = [0.0f32; 30];
//! fill_block(stream, Distribution::NORMAL, 55, &mut part);
//! assert_eq!(part, whole[55..85]);
//! ```

mod normal;

use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;

pub use normal::normal_quantile;

/// Blocks of the generator that are computed side by side, and the length of a run of one word.
const LANES: usize = 16;

/// Elements of one group: four words of [`LANES`] blocks.
const GROUP: usize = 4 * LANES;

/// Elements per parallel task.
const TASK: usize = 256 * GROUP;

/// One tensor of random numbers: all that its elements depend on besides their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The user's seed: the generator's key.
    pub seed: u64,
    /// Which random op of the program this is.
    pub op: u32,
    /// Which step of the training; the lower 48 bits count.
    pub step: u64,
}

impl Stream {
    /// The stream of `op` at `step` under `seed`.
    pub const fn new(seed: u64, op: u32, step: u64) -> Stream {
        Stream { seed, op, step }
    }

    /// The counter of a block: 48 bits of block number, 32 of op, 48 of step, so that no two streams of
    /// one seed share a block. The highest bit of the block number marks the bits that only f64 needs.
    #[inline(always)]
    const fn counter(self, block: u64, refine: bool) -> u128 {
        let block = block | (refine as u64) << 47;
        (block as u128) | (self.op as u128) << 48 | (self.step as u128) << 80
    }
}

/// What the elements are distributed as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Evenly from `low` up to but not including `high`.
    Uniform {
        /// The smallest value.
        low: f64,
        /// The bound above all values.
        high: f64,
    },
    /// Gaussian.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        stddev: f64,
    },
    /// Gaussian without what lies more than two standard deviations from the mean.
    TruncatedNormal {
        /// The mean.
        mean: f64,
        /// The standard deviation before the tails are cut.
        stddev: f64,
    },
    /// 1 with the given probability, otherwise 0.
    Bernoulli {
        /// The probability of 1.
        probability: f64,
    },
}

impl Distribution {
    /// Evenly from [0, 1).
    pub const UNIT: Distribution = Distribution::Uniform { low: 0.0, high: 1.0 };
    /// Mean 0, standard deviation 1.
    pub const NORMAL: Distribution = Distribution::Normal { mean: 0.0, stddev: 1.0 };
}

/// Fills `out` with the elements of the stream from `start`, on all threads of the pool.
pub fn fill<T: Draw>(pool: &Pool, stream: Stream, distribution: Distribution, start: u64, out: &mut [T]) {
    let len = out.len();
    let shared = SharedSlice::new(out);
    pool.run_sized(len.div_ceil(TASK), len, &|task, _| {
        let begin = task * TASK;
        // SAFETY: tasks write stretches that do not overlap.
        let part = unsafe { shared.slice(begin, TASK.min(len - begin)) };
        fill_block(stream, distribution, start + begin as u64, part);
    });
}

/// Fills `out` with the elements of the stream from `start`, in the calling thread.
pub fn fill_block<T: Draw>(stream: Stream, distribution: Distribution, start: u64, out: &mut [T]) {
    match distribution {
        Distribution::Uniform { low, high } => {
            let (low, high) = (T::from_f64(low), T::from_f64(high));
            uniform_block(stream, start, low, high - low, high.below().maximum(low), out);
        }
        Distribution::Normal { mean, stddev } => {
            normal_block(stream, start, T::from_f64(mean), T::from_f64(stddev), out);
        }
        Distribution::TruncatedNormal { mean, stddev } => {
            truncated_block(stream, start, T::from_f64(mean), T::from_f64(stddev), out);
        }
        Distribution::Bernoulli { probability } => match threshold(probability) {
            Threshold::Always => out.fill(T::ONE),
            Threshold::Below(bound) => bernoulli_block(stream, start, bound, out),
        },
    }
}

/// Fills `out` with integers from `low` up to but not including `high`, elements of the stream from `start`.
///
/// An element comes from 64 random bits by multiplication, so no value is preferred by more than the
/// number of values over 2^64.
///
/// # Panics
/// When `high` is not above `low`.
pub fn integers_block<I: Integer>(stream: Stream, low: i64, high: i64, start: u64, out: &mut [I]) {
    assert!(low < high, "no integer from {low} up to {high}");
    integers(stream, start, low, high.wrapping_sub(low) as u64, out);
}

/// As [`integers_block`], on all threads of the pool.
pub fn integers_fill<I: Integer>(pool: &Pool, stream: Stream, low: i64, high: i64, start: u64, out: &mut [I]) {
    let len = out.len();
    let shared = SharedSlice::new(out);
    pool.run_sized(len.div_ceil(TASK), len * 2, &|task, _| {
        let begin = task * TASK;
        // SAFETY: tasks write stretches that do not overlap.
        let part = unsafe { shared.slice(begin, TASK.min(len - begin)) };
        integers_block(stream, low, high, start + begin as u64, part);
    });
}

/// Fills `out` with 1 where dropout keeps the element and 0 where it drops it.
pub fn keep_mask_block(stream: Stream, keep: f64, start: u64, out: &mut [u8]) {
    match threshold(keep) {
        Threshold::Always => out.fill(1),
        Threshold::Below(bound) => mask_block(stream, start, bound, out),
    }
}

/// Dropout: `y[i] = x[i] / (1 - rate)` where element `start + i` of the stream keeps it, otherwise 0.
///
/// The same call on the gradient of `y` gives the gradient of `x`: the mask is drawn again.
///
/// # Panics
/// When the lengths differ.
pub fn dropout_block<T: Draw>(stream: Stream, rate: f64, start: u64, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "dropout keeps the length");
    match threshold(1.0 - rate) {
        Threshold::Always => y.copy_from_slice(x),
        Threshold::Below(bound) => drop_block(stream, start, bound, T::from_f64(1.0 / (1.0 - rate)), x, y),
    }
}

/// As [`dropout_block`] on all threads of the pool.
pub fn dropout<T: Draw>(pool: &Pool, stream: Stream, rate: f64, start: u64, x: &[T], y: &mut [T]) {
    let len = x.len();
    assert_eq!(len, y.len(), "dropout keeps the length");
    let shared = SharedSlice::new(y);
    pool.run_sized(len.div_ceil(TASK), len, &|task, _| {
        let begin = task * TASK;
        let size = TASK.min(len - begin);
        // SAFETY: tasks write stretches that do not overlap.
        let part = unsafe { shared.slice(begin, size) };
        dropout_block(stream, rate, start + begin as u64, &x[begin..begin + size], part);
    });
}

/// A float that can be drawn: f32 from one word of the generator, f64 from two.
pub trait Draw: Float {
    /// Whether the second word is looked at.
    const REFINED: bool;

    /// The largest value below this one.
    fn below(self) -> Self;
    /// Evenly from [0, 1), with all the digits the type has there.
    fn uniform(word: u32, extra: u32) -> Self;
    /// Standard normal.
    fn normal(word: u32, extra: u32) -> Self;
    /// Standard normal within two standard deviations.
    fn truncated(word: u32, extra: u32) -> Self;
}

/// An integer that can be drawn.
pub trait Integer: Copy + Default + Send + Sync + 'static {
    /// The low bits.
    fn truncate(value: i64) -> Self;
}

macro_rules! integer {
    ($($ty:ty)*) => {$(
        impl Integer for $ty {
            #[inline(always)]
            fn truncate(value: i64) -> $ty { value as $ty }
        }
    )*};
}

integer! { i32 i64 u8 }

impl Draw for f32 {
    const REFINED: bool = false;
    #[inline(always)]
    fn below(self) -> f32 {
        self.next_down()
    }
    #[inline(always)]
    fn uniform(word: u32, _: u32) -> f32 {
        (word >> 8) as i32 as f32 * (1.0 / (1 << 24) as f32)
    }
    #[inline(always)]
    fn normal(word: u32, _: u32) -> f32 {
        normal::normal_f32(word)
    }
    #[inline(always)]
    fn truncated(word: u32, _: u32) -> f32 {
        normal::truncated_f32(word)
    }
}

impl Draw for f64 {
    const REFINED: bool = true;
    #[inline(always)]
    fn below(self) -> f64 {
        self.next_down()
    }
    #[inline(always)]
    fn uniform(word: u32, extra: u32) -> f64 {
        (join(word, extra) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
    #[inline(always)]
    fn normal(word: u32, extra: u32) -> f64 {
        normal::normal_f64(join(word, extra))
    }
    #[inline(always)]
    fn truncated(word: u32, extra: u32) -> f64 {
        normal::truncated_f64(join(word, extra))
    }
}

#[inline(always)]
fn join(word: u32, extra: u32) -> u64 {
    (word as u64) << 32 | extra as u64
}

/// A word is chosen with the given probability when it lies below a bound.
enum Threshold {
    Always,
    Below(u32),
}

fn threshold(probability: f64) -> Threshold {
    let bound = (probability * 4_294_967_296.0).round();
    if bound >= 4_294_967_296.0 { Threshold::Always } else { Threshold::Below(bound.max(0.0) as u32) }
}

simd! {
    fn uniform_block[T: Draw](stream: Stream, start: u64, low: T, span: T, last: T, out: &mut [T]) {
        draw(stream, start, out, T::REFINED, #[inline(always)] |word, extra| {
            // The product can round up to the excluded bound.
            let x = low + span * T::uniform(word, extra);
            if x > last { last } else { x }
        });
    }

    fn normal_block[T: Draw](stream: Stream, start: u64, mean: T, stddev: T, out: &mut [T]) {
        draw(stream, start, out, T::REFINED, #[inline(always)] |word, extra| mean + stddev * T::normal(word, extra));
    }

    fn truncated_block[T: Draw](stream: Stream, start: u64, mean: T, stddev: T, out: &mut [T]) {
        draw(stream, start, out, T::REFINED, #[inline(always)] |word, extra| mean + stddev * T::truncated(word, extra));
    }

    fn bernoulli_block[T: Draw](stream: Stream, start: u64, bound: u32, out: &mut [T]) {
        draw(stream, start, out, false, #[inline(always)] |word, _| if word < bound { T::ONE } else { T::ZERO });
    }

    fn mask_block(stream: Stream, start: u64, bound: u32, out: &mut [u8]) {
        draw(stream, start, out, false, #[inline(always)] |word, _| (word < bound) as u8);
    }

    fn integers[I: Integer](stream: Stream, start: u64, low: i64, count: u64, out: &mut [I]) {
        draw(stream, start, out, true, #[inline(always)] |word, extra| {
            let scaled = (join(word, extra) as u128 * count as u128) >> 64;
            I::truncate(low.wrapping_add(scaled as i64))
        });
    }

    fn drop_block[T: Draw](stream: Stream, start: u64, bound: u32, scale: T, x: &[T], y: &mut [T]) {
        let head = head(start, x.len());
        let (x_head, x_rest) = x.split_at(head);
        let (y_head, y_rest) = y.split_at_mut(head);
        let mut mask = [0u32; GROUP];
        words_at(stream, start, &mut mask[..head]);
        drop_words(&mask, bound, scale, x_head, y_head);
        let first = (start + head as u64) / GROUP as u64;
        for (g, (x, y)) in x_rest.chunks(GROUP).zip(y_rest.chunks_mut(GROUP)).enumerate() {
            let words = group(stream, first + g as u64, false);
            drop_words(words.as_flattened(), bound, scale, x, y);
        }
    }
}

#[inline(always)]
fn drop_words<T: Draw>(words: &[u32], bound: u32, scale: T, x: &[T], y: &mut [T]) {
    for ((&word, &x), y) in words.iter().zip(x).zip(y) {
        *y = if word < bound { x * scale } else { T::ZERO };
    }
}

/// How many elements from `start` lie before the first whole group.
#[inline(always)]
fn head(start: u64, len: usize) -> usize {
    ((GROUP as u64 - start % GROUP as u64) as usize % GROUP).min(len)
}

/// The words of a few elements inside one group.
#[inline(always)]
fn words_at(stream: Stream, start: u64, out: &mut [u32]) {
    if !out.is_empty() {
        let words = group(stream, start / GROUP as u64, false);
        let offset = (start % GROUP as u64) as usize;
        out.copy_from_slice(&words.as_flattened()[offset..offset + out.len()]);
    }
}

/// Writes `map(word, extra)` for the elements from `start`.
#[inline(always)]
fn draw<R: Copy + Default>(stream: Stream, start: u64, out: &mut [R], refined: bool, map: impl Fn(u32, u32) -> R) {
    let (front, rest) = out.split_at_mut(head(start, out.len()));
    if !front.is_empty() {
        let mut all = [R::default(); GROUP];
        draw_group(stream, start / GROUP as u64, &mut all, refined, &map);
        let offset = (start % GROUP as u64) as usize;
        front.copy_from_slice(&all[offset..offset + front.len()]);
    }
    let first = (start + front.len() as u64) / GROUP as u64;
    let mut groups = rest.chunks_exact_mut(GROUP);
    let mut number = first;
    for out in &mut groups {
        draw_group(stream, number, out.try_into().expect("a whole group"), refined, &map);
        number += 1;
    }
    let back = groups.into_remainder();
    if !back.is_empty() {
        let mut all = [R::default(); GROUP];
        draw_group(stream, number, &mut all, refined, &map);
        back.copy_from_slice(&all[..back.len()]);
    }
}

#[inline(always)]
fn draw_group<R: Copy>(stream: Stream, number: u64, out: &mut [R; GROUP], refined: bool, map: &impl Fn(u32, u32) -> R) {
    let words = group(stream, number, false);
    let extra = if refined { group(stream, number, true) } else { [[0; LANES]; 4] };
    for ((out, &word), &extra) in out.iter_mut().zip(words.as_flattened()).zip(extra.as_flattened()) {
        *out = map(word, extra);
    }
}

const MULTIPLIER: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const LOW: u64 = 0xffff_ffff;
const ROUNDS: usize = 10;

/// The words of group `number`: word `w` of block `16 * number + lane` is element `64 * number + 16 * w + lane`.
///
/// The blocks stand side by side in lanes, so that a round is a few vector instructions, and the order of
/// the elements is chosen so that nothing has to be transposed.
#[inline(always)]
fn group(stream: Stream, number: u64, refine: bool) -> [[u32; LANES]; 4] {
    let counter = stream.counter(number * LANES as u64, refine);
    // Words are kept in the lower halves of u64, whatever the upper halves hold: then a product is one
    // instruction per eight lanes and nothing has to be shuffled between the rounds.
    let mut a = [0; LANES];
    for lane in 0..LANES {
        // The first block's number is a multiple of the lanes, so this cannot carry.
        a[lane] = counter as u64 + lane as u64;
    }
    let mut b = [(counter >> 32) as u64; LANES];
    let mut c = [(counter >> 64) as u64; LANES];
    let mut d = [(counter >> 96) as u64; LANES];
    let mut key = [stream.seed as u32, (stream.seed >> 32) as u32];
    for _ in 0..ROUNDS {
        for lane in 0..LANES {
            let p = MULTIPLIER[0] as u64 * (a[lane] & LOW);
            let q = MULTIPLIER[1] as u64 * (c[lane] & LOW);
            a[lane] = q >> 32 ^ b[lane] ^ key[0] as u64;
            c[lane] = p >> 32 ^ d[lane] ^ key[1] as u64;
            b[lane] = q;
            d[lane] = p;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    // Plain loops: the closures of `map` would be compiled without the wide instructions.
    let mut words = [[0; LANES]; 4];
    for (words, wide) in words.iter_mut().zip([&a, &b, &c, &d]) {
        for lane in 0..LANES {
            words[lane] = wide[lane] as u32;
        }
    }
    words
}

/// Philox4x32-10: the four random words of one counter under one key, lowest words first.
///
/// ```
/// use plimsoll_kernels::random::bits;
/// assert_eq!(bits(0, 0), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
pub fn bits(key: u64, counter: u128) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = [0, 32, 64, 96].map(|shift| (counter >> shift) as u32);
    let mut key = [key as u32, (key >> 32) as u32];
    for _ in 0..ROUNDS {
        let p = MULTIPLIER[0] as u64 * a as u64;
        let q = MULTIPLIER[1] as u64 * c as u64;
        (a, b, c, d) = ((q >> 32) as u32 ^ b ^ key[0], q as u32, (p >> 32) as u32 ^ d ^ key[1], p as u32);
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    [a, b, c, d]
}

/// The 64 bits behind one element, by the definition: the naive twin of the block loops.
///
/// f32 and masks look at the upper half only.
pub fn element_bits(stream: Stream, element: u64) -> u64 {
    let block = element / 64 * 16 + element % 16;
    let word = (element / 16 % 4) as usize;
    join(bits(stream.seed, stream.counter(block, false))[word], bits(stream.seed, stream.counter(block, true))[word])
}

/// Element by element, the naive twin of [`fill_block`].
pub fn fill_naive(stream: Stream, distribution: Distribution, start: u64, out: &mut [f64]) {
    for (element, out) in (start..).zip(out) {
        let u = (element_bits(stream, element) as f64 + 0.5) / 18_446_744_073_709_551_616.0;
        *out = match distribution {
            Distribution::Uniform { low, high } => low + (high - low) * u,
            Distribution::Normal { mean, stddev } => mean + stddev * normal_quantile(u),
            Distribution::TruncatedNormal { mean, stddev } => {
                mean + stddev * normal_quantile(0.5 + (u - 0.5) * normal::WITHIN_TWO)
            }
            Distribution::Bernoulli { probability } => (u < probability) as u8 as f64,
        };
    }
}

/// Element by element, the naive twin of [`integers_block`].
pub fn integers_naive(stream: Stream, low: i64, high: i64, start: u64, out: &mut [i64]) {
    for (element, out) in (start..).zip(out) {
        let count = (high as i128 - low as i128) as u128;
        *out = (low as i128 + ((element_bits(stream, element) as u128 * count) >> 64) as i128) as i64;
    }
}

/// Element by element, the naive twin of [`dropout_block`].
pub fn dropout_naive(stream: Stream, rate: f64, start: u64, x: &[f64], y: &mut [f64]) {
    fill_naive(stream, Distribution::Bernoulli { probability: 1.0 - rate }, start, y);
    for (y, x) in y.iter_mut().zip(x) {
        *y = if *y == 1.0 { x / (1.0 - rate) } else { 0.0 };
    }
}

#[cfg(test)]
mod tests;
