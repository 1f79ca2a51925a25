//! Random numbers as a pure function of (seed, op, step, element index).
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", 2011): a keyed mixing of a 128-bit counter into 128 random bits. There is no state. Element
//! `e` of a stream is the same number whoever asks for it, alone or in a block, first time or in a replay,
//! on one thread or on many; so a dropout mask is drawn again in the backward pass instead of being kept.
//!
//! A [`Key`] names one tensor of random numbers; [`fill_block`] writes any stretch of it and [`fill`] does so
//! on all threads. What f64 draws refines what f32 draws: the leading bits are the same, so the two agree
//! to f32 rounding.
//!
//! ```
//! use plimsoll_kernels::random::{Distribution, Key, fill_block};
//! let key = Key { seed: 42, step: 0, stream: 7 };
//! let mut whole = [0.0f32; 100];
//! fill_block(Distribution::Normal, key, 0, &mut whole);
//! let mut part = [0.0f32; 30];
//! fill_block(Distribution::Normal, key, 55, &mut part);
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

/// Names one tensor of random numbers: all that its elements depend on besides their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The user's seed: the generator's key.
    pub seed: u64,
    /// The training step; the lower 48 bits count.
    pub step: u64,
    /// The random op.
    pub stream: u32,
}

impl Key {
    /// The counter of a block: 48 bits of block number, 32 of stream, 48 of step, so that no two tensors of
    /// one seed share a block. The highest bit of the block number marks the bits that only f64 needs.
    #[inline(always)]
    const fn counter(self, block: u64, refine: bool) -> u128 {
        let block = block | (refine as u64) << 47;
        (block as u128) | (self.stream as u128) << 48 | (self.step as u128) << 80
    }
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Uniform in [0, 1).
    Uniform,
    /// Standard normal.
    Normal,
    /// Standard normal, cut at two standard deviations.
    TruncatedNormal,
}

/// Fills `out` with the elements of the key's tensor from `start`, on all threads of the pool.
pub fn fill<T: Draw>(pool: &Pool, distribution: Distribution, key: Key, start: u64, out: &mut [T]) {
    let len = out.len();
    let shared = SharedSlice::new(out);
    pool.run_sized(len.div_ceil(TASK), len, &|task, _| {
        let begin = task * TASK;
        // SAFETY: tasks write stretches that do not overlap.
        let part = unsafe { shared.slice(begin, TASK.min(len - begin)) };
        fill_block(distribution, key, start + begin as u64, part);
    });
}

/// Fills `out` with the elements of the key's tensor from `start`, in the calling thread.
pub fn fill_block<T: Draw>(distribution: Distribution, key: Key, start: u64, out: &mut [T]) {
    match distribution {
        Distribution::Uniform => uniform_block(key, start, out),
        Distribution::Normal => normal_block(key, start, out),
        Distribution::TruncatedNormal => truncated_block(key, start, out),
    }
}

/// [`fill_block`] for f32.
pub fn fill_f32(distribution: Distribution, key: Key, start: u64, out: &mut [f32]) {
    fill_block(distribution, key, start, out);
}

/// [`fill_block`] for f64.
pub fn fill_f64(distribution: Distribution, key: Key, start: u64, out: &mut [f64]) {
    fill_block(distribution, key, start, out);
}

/// Fills `out` with integers from `low` up to but not including `high`, elements of the key's tensor from `start`.
///
/// An element comes from 64 random bits by multiplication, so no value is preferred by more than the
/// number of values over 2^64.
///
/// # Panics
/// When `high` is not above `low`.
pub fn integers_block<I: Integer>(low: i64, high: i64, key: Key, start: u64, out: &mut [I]) {
    assert!(low < high, "no integer from {low} up to {high}");
    draw_integers(key, start, low, high.wrapping_sub(low) as u64, out);
}

/// As [`integers_block`], on all threads of the pool.
pub fn integers<I: Integer>(pool: &Pool, low: i64, high: i64, key: Key, start: u64, out: &mut [I]) {
    let len = out.len();
    let shared = SharedSlice::new(out);
    pool.run_sized(len.div_ceil(TASK), len * 2, &|task, _| {
        let begin = task * TASK;
        // SAFETY: tasks write stretches that do not overlap.
        let part = unsafe { shared.slice(begin, TASK.min(len - begin)) };
        integers_block(low, high, key, start + begin as u64, part);
    });
}

/// A float that can be drawn: f32 from one word of the generator, f64 from two.
pub trait Draw: Float {
    /// Whether the second word is looked at.
    const REFINED: bool;

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

simd! {
    fn uniform_block[T: Draw](key: Key, start: u64, out: &mut [T]) {
        draw(key, start, out, T::REFINED, #[inline(always)] |word, extra| T::uniform(word, extra));
    }

    fn normal_block[T: Draw](key: Key, start: u64, out: &mut [T]) {
        draw(key, start, out, T::REFINED, #[inline(always)] |word, extra| T::normal(word, extra));
    }

    fn truncated_block[T: Draw](key: Key, start: u64, out: &mut [T]) {
        draw(key, start, out, T::REFINED, #[inline(always)] |word, extra| T::truncated(word, extra));
    }

    fn draw_integers[I: Integer](key: Key, start: u64, low: i64, count: u64, out: &mut [I]) {
        draw(key, start, out, true, #[inline(always)] |word, extra| {
            let scaled = (join(word, extra) as u128 * count as u128) >> 64;
            I::truncate(low.wrapping_add(scaled as i64))
        });
    }
}

/// How many elements from `start` lie before the first whole group.
#[inline(always)]
fn head(start: u64, len: usize) -> usize {
    ((GROUP as u64 - start % GROUP as u64) as usize % GROUP).min(len)
}

/// Writes `map(word, extra)` for the elements from `start`.
#[inline(always)]
fn draw<R: Copy + Default>(key: Key, start: u64, out: &mut [R], refined: bool, map: impl Fn(u32, u32) -> R) {
    let (front, rest) = out.split_at_mut(head(start, out.len()));
    if !front.is_empty() {
        let mut all = [R::default(); GROUP];
        draw_group(key, start / GROUP as u64, &mut all, refined, &map);
        let offset = (start % GROUP as u64) as usize;
        front.copy_from_slice(&all[offset..offset + front.len()]);
    }
    let first = (start + front.len() as u64) / GROUP as u64;
    let mut groups = rest.chunks_exact_mut(GROUP);
    let mut number = first;
    for out in &mut groups {
        draw_group(key, number, out.try_into().expect("a whole group"), refined, &map);
        number += 1;
    }
    let back = groups.into_remainder();
    if !back.is_empty() {
        let mut all = [R::default(); GROUP];
        draw_group(key, number, &mut all, refined, &map);
        back.copy_from_slice(&all[..back.len()]);
    }
}

#[inline(always)]
fn draw_group<R: Copy>(key: Key, number: u64, out: &mut [R; GROUP], refined: bool, map: &impl Fn(u32, u32) -> R) {
    let words = group(key, number, false);
    let extra = if refined { group(key, number, true) } else { [[0; LANES]; 4] };
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
fn group(key: Key, number: u64, refine: bool) -> [[u32; LANES]; 4] {
    let counter = key.counter(number * LANES as u64, refine);
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
    let mut round_key = [key.seed as u32, (key.seed >> 32) as u32];
    for _ in 0..ROUNDS {
        for lane in 0..LANES {
            let p = MULTIPLIER[0] as u64 * (a[lane] & LOW);
            let q = MULTIPLIER[1] as u64 * (c[lane] & LOW);
            a[lane] = q >> 32 ^ b[lane] ^ round_key[0] as u64;
            c[lane] = p >> 32 ^ d[lane] ^ round_key[1] as u64;
            b[lane] = q;
            d[lane] = p;
        }
        round_key = [round_key[0].wrapping_add(WEYL[0]), round_key[1].wrapping_add(WEYL[1])];
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
/// f32 looks at the upper half only.
pub fn element_bits(key: Key, element: u64) -> u64 {
    let block = element / 64 * 16 + element % 16;
    let word = (element / 16 % 4) as usize;
    join(bits(key.seed, key.counter(block, false))[word], bits(key.seed, key.counter(block, true))[word])
}

/// Element by element, the naive twin of [`fill_block`].
pub fn fill_naive(distribution: Distribution, key: Key, start: u64, out: &mut [f64]) {
    for (element, out) in (start..).zip(out) {
        let u = (element_bits(key, element) as f64 + 0.5) / 18_446_744_073_709_551_616.0;
        *out = match distribution {
            Distribution::Uniform => u,
            Distribution::Normal => normal_quantile(u),
            Distribution::TruncatedNormal => normal_quantile(0.5 + (u - 0.5) * normal::WITHIN_TWO),
        };
    }
}

/// Element by element, the naive twin of [`integers_block`].
pub fn integers_naive(low: i64, high: i64, key: Key, start: u64, out: &mut [i64]) {
    for (element, out) in (start..).zip(out) {
        let count = (high as i128 - low as i128) as u128;
        *out = (low as i128 + ((element_bits(key, element) as u128 * count) >> 64) as i128) as i64;
    }
}

#[cfg(test)]
mod tests;
