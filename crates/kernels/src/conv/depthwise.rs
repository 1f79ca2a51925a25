//! Tiles for depthwise convolution: each channel by itself, a register of channels at a time.

use super::lanes::{Lanes, dispatch};
use super::tile::{Loop, Product};
use crate::math::Float;

/// The sum `c[r, i] = sum over the loops of a[r, i] * b[i]` for every channel `i`.
#[derive(Clone, Copy)]
pub(super) struct Channelwise<T> {
    pub a: *const T,
    pub a_row: usize,
    pub b: *const T,
    pub c: *mut T,
    pub c_row: usize,
    pub rows: usize,
    pub channels: usize,
    pub loops: [Loop; 3],
}

impl<T> From<Product<T>> for Channelwise<T> {
    /// The description of a product, read channel by channel.
    fn from(p: Product<T>) -> Channelwise<T> {
        Channelwise {
            a: p.a,
            a_row: p.a_row,
            b: p.b,
            c: p.c,
            c_row: p.c_row,
            rows: p.rows,
            channels: p.columns,
            loops: p.loops,
        }
    }
}

/// The sums `c[m, i] += sum over rows and pixels of a[row, pixel + m, i] * b[row, pixel, i]` for every tap `m` and
/// channel `i`.
#[derive(Clone, Copy)]
pub(super) struct FilterSums<T> {
    pub a: *const T,
    pub a_row: usize,
    pub a_pixel: usize,
    pub a_tap: usize,
    pub b: *const T,
    pub b_row: usize,
    pub b_pixel: usize,
    pub c: *mut T,
    pub c_tap: usize,
    pub rows: usize,
    pub pixels: usize,
    pub taps: usize,
    pub channels: usize,
}

/// Pixels that share the loads of the filter.
const PIXELS: usize = 8;

/// Computes sums over the filter.
///
/// # Safety
/// Every element that the description reaches must be valid, and `c` must be written by nobody else.
pub(super) unsafe fn gather<T: Float>(p: &Channelwise<T>) {
    // SAFETY: T is f32 or f64, and the description's layout does not depend on which; the level says what the processor has.
    unsafe { dispatch!(gather, T, p) }
}

/// Adds sums over pixels.
///
/// # Safety
/// As [`gather`].
pub(super) unsafe fn filter_sums<T: Float>(p: &FilterSums<T>) {
    // SAFETY: T is f32 or f64, and the description's layout does not depend on which; the level says what the processor has.
    unsafe { dispatch!(filter_sums, T, p) }
}

/// `R` pixels of the channels from `first` that the mask has.
#[inline(always)]
unsafe fn pixels<L: Lanes, const R: usize>(p: &Channelwise<L::Element>, row: usize, first: usize, mask: L::Mask) {
    // SAFETY: the caller of `gather` vouches for every element reached.
    unsafe {
        let mut sums = [L::zero(); R];
        let [outer, middle, inner] = p.loops;
        let a = p.a.wrapping_add(row * p.a_row + first);
        let b = p.b.wrapping_add(first);
        for i in 0..outer.count as isize {
            for j in 0..middle.count as isize {
                for k in 0..inner.count as isize {
                    let a = a.wrapping_offset(i * outer.a + j * middle.a + k * inner.a);
                    let w = L::load_masked(b.wrapping_offset(i * outer.b + j * middle.b + k * inner.b), mask);
                    for r in 0..R {
                        sums[r] = sums[r].add_product(L::load_masked(a.wrapping_add(r * p.a_row), mask), w);
                    }
                }
            }
        }
        for r in 0..R {
            sums[r].store_masked(p.c.add((row + r) * p.c_row + first), mask);
        }
    }
}

/// `M` taps from `tap` on of the channels from `first` in `V` registers, the last of them masked.
#[inline(always)]
unsafe fn taps<L: Lanes, const M: usize, const V: usize>(
    p: &FilterSums<L::Element>,
    tap: usize,
    first: usize,
    last: usize,
) {
    // SAFETY: the caller of `filter_sums` vouches for every element reached.
    unsafe {
        let mask = L::first(last);
        let load = |at: *const L::Element, v: usize| match v + 1 < V {
            true => L::load(at.wrapping_add(v * L::LANES)),
            false => L::load_masked(at.wrapping_add(v * L::LANES), mask),
        };
        let mut sums = [[L::zero(); V]; M];
        for row in 0..p.rows {
            let mut a = p.a.wrapping_add(row * p.a_row + tap * p.a_tap + first);
            let mut b = p.b.wrapping_add(row * p.b_row + first);
            for _ in 0..p.pixels {
                let dy: [L; V] = std::array::from_fn(|v| load(b, v));
                for m in 0..M {
                    for v in 0..V {
                        sums[m][v] = sums[m][v].add_product(load(a.wrapping_add(m * p.a_tap), v), dy[v]);
                    }
                }
                a = a.wrapping_add(p.a_pixel);
                b = b.wrapping_add(p.b_pixel);
            }
        }
        for m in 0..M {
            let c = p.c.add((tap + m) * p.c_tap + first);
            for v in 0..V {
                let c = c.add(v * L::LANES);
                match v + 1 < V {
                    true => L::load(c).add(sums[m][v]).store(c),
                    false => L::load_masked(c, mask).add(sums[m][v]).store_masked(c, mask),
                }
            }
        }
    }
}

macro_rules! for_level {
    ($name:ident, $(#[$attribute:meta])*) => {
        mod $name {
            use super::*;

            $(#[$attribute])*
            pub(super) unsafe fn gather<L: Lanes>(p: &Channelwise<L::Element>) {
                // SAFETY: as promised by the caller.
                unsafe {
                    let mut row = 0;
                    while row < p.rows {
                        let height = PIXELS.min(p.rows - row);
                        for first in (0..p.channels).step_by(L::LANES) {
                            let mask = L::first(L::LANES.min(p.channels - first));
                            if height == PIXELS {
                                pixels::<L, PIXELS>(p, row, first, mask);
                                continue;
                            }
                            let mut r = 0;
                            while r + 4 <= height {
                                pixels::<L, 4>(p, row + r, first, mask);
                                r += 4;
                            }
                            while r < height {
                                pixels::<L, 1>(p, row + r, first, mask);
                                r += 1;
                            }
                        }
                        row += height;
                    }
                }
            }

            $(#[$attribute])*
            pub(super) unsafe fn filter_sums<L: Lanes>(p: &FilterSums<L::Element>) {
                let width = if L::REGISTERS >= 32 { 4 } else { 2 };
                let mut first = 0;
                while first < p.channels {
                    let registers = (p.channels - first).div_ceil(L::LANES).min(width);
                    let last = (p.channels - first - (registers - 1) * L::LANES).min(L::LANES);
                    let mut tap = 0;
                    while tap < p.taps {
                        let several = (p.taps - tap).min(3);
                        // SAFETY: as promised by the caller.
                        unsafe {
                            match (several, registers) {
                                (1, 1) => taps::<L, 1, 1>(p, tap, first, last),
                                (2, 1) => taps::<L, 2, 1>(p, tap, first, last),
                                (_, 1) => taps::<L, 3, 1>(p, tap, first, last),
                                (1, 2) => taps::<L, 1, 2>(p, tap, first, last),
                                (2, 2) => taps::<L, 2, 2>(p, tap, first, last),
                                (_, 2) => taps::<L, 3, 2>(p, tap, first, last),
                                (1, 3) => taps::<L, 1, 3>(p, tap, first, last),
                                (2, 3) => taps::<L, 2, 3>(p, tap, first, last),
                                (_, 3) => taps::<L, 3, 3>(p, tap, first, last),
                                (1, _) => taps::<L, 1, 4>(p, tap, first, last),
                                (2, _) => taps::<L, 2, 4>(p, tap, first, last),
                                _ => taps::<L, 3, 4>(p, tap, first, last),
                            }
                        }
                        tap += several;
                    }
                    first += (registers - 1) * L::LANES + last;
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
for_level!(avx512, #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]);
#[cfg(target_arch = "x86_64")]
for_level!(avx2, #[target_feature(enable = "avx2,fma")]);
for_level!(baseline,);
