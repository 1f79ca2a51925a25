//! Sums for a few result channels: the lanes of a register run along the sum instead of the results.
//!
//! With three result channels, as in an image decoder's last layer, a [`product`](super::tile::product) would leave most lanes
//! of a register empty. Here every lane adds up its share of a sum, and the lanes are added at the end, always in
//! the same order.

use super::lanes::{Lanes, dispatch};
use super::tile::Product;
use crate::math::Float;

/// The most result channels that this is better for.
pub(super) const MOST_COLUMNS: usize = 4;

/// Sums shorter than this leave lanes empty in their turn.
pub(super) fn shortest_sum<T>() -> usize {
    super::tile::panel::<T>() / 2
}

/// Computes a product whose right operand is transposed: `b[k, j]` stands at `b + j * b_depth + k`, moved on by the loops.
/// `a_depth` is 1.
///
/// # Safety
/// Every element that the description reaches must be valid, and `c` must be written by nobody else.
pub(super) unsafe fn dots<T: Float>(p: &Product<T>) {
    debug_assert!(p.columns <= MOST_COLUMNS && p.a_depth == 1);
    // SAFETY: T is f32 or f64, and the description's layout does not depend on which; the level says what the processor has.
    unsafe { dispatch!(dots, T, p) }
}

/// `R` rows of `C` columns.
#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize, const C: usize>(p: &Product<L::Element>, row: usize) {
    // SAFETY: the caller of `dots` vouches for every element reached.
    unsafe {
        let mut sums = [[L::zero(); C]; R];
        let [outer, middle, inner] = p.loops;
        let full = p.depth / L::LANES * L::LANES;
        let rest = L::first(p.depth - full);
        for i in 0..outer.count as isize {
            for j in 0..middle.count as isize {
                for k in 0..inner.count as isize {
                    let a = p.a.wrapping_add(row * p.a_row).wrapping_offset(i * outer.a + j * middle.a + k * inner.a);
                    let b = p.b.wrapping_offset(i * outer.b + j * middle.b + k * inner.b);
                    for at in (0..full).step_by(L::LANES) {
                        let b: [L; C] = std::array::from_fn(|c| L::load(b.wrapping_add(c * p.b_depth + at)));
                        for r in 0..R {
                            let a = L::load(a.wrapping_add(r * p.a_row + at));
                            for c in 0..C {
                                sums[r][c] = sums[r][c].add_product(a, b[c]);
                            }
                        }
                    }
                    if full < p.depth {
                        for r in 0..R {
                            let a = L::load_masked(a.wrapping_add(r * p.a_row + full), rest);
                            for c in 0..C {
                                let b = L::load_masked(b.wrapping_add(c * p.b_depth + full), rest);
                                sums[r][c] = sums[r][c].add_product(a, b);
                            }
                        }
                    }
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                *p.c.add((row + r) * p.c_row + c) = sums[r][c].sum();
            }
        }
    }
}

macro_rules! for_level {
    ($name:ident, $rows:literal, $(#[$attribute:meta])*) => {
        mod $name {
            use super::*;

            $(#[$attribute])*
            pub(super) unsafe fn dots<L: Lanes>(p: &Product<L::Element>) {
                // SAFETY: as promised by the caller.
                unsafe {
                    match p.columns {
                        0 => (),
                        1 => rows::<L, 1>(p),
                        2 => rows::<L, 2>(p),
                        3 => rows::<L, 3>(p),
                        _ => rows::<L, 4>(p),
                    }
                }
            }

            $(#[$attribute])*
            unsafe fn rows<L: Lanes, const C: usize>(p: &Product<L::Element>) {
                // SAFETY: as promised by the caller.
                unsafe {
                    let mut row = 0;
                    while row + $rows <= p.rows {
                        tile::<L, $rows, C>(p, row);
                        row += $rows;
                    }
                    while row < p.rows {
                        tile::<L, 1, C>(p, row);
                        row += 1;
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
for_level!(avx512, 4, #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]);
#[cfg(target_arch = "x86_64")]
for_level!(avx2, 2, #[target_feature(enable = "avx2,fma")]);
for_level!(baseline, 2,);
