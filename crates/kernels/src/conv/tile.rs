//! The register tile: the one inner loop behind convolutions and their gradients.
//!
//! [`product`] is a matrix product whose left operand is read where it lies: element by element, at any
//! strides, each one multiplied with a register of the right operand. So a patch of an image needs no
//! copy, whether the sum runs over the cells of a patch (forward, input gradient) or over the pixels of
//! an image (filter gradient). Every element of the result is one sum in a fixed order, whatever the tile
//! it falls in: results do not depend on how the work was cut.

use super::lanes::Lanes;
use super::lanes::Plain;
use crate::gemm::Into;
use crate::math::Float;
use crate::simd::{Level, level};
use std::any::TypeId;

/// An outer loop of the sum: how often, and how far the operands move each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub count: usize,
    pub a: isize,
    pub b: isize,
}

impl Loop {
    /// A loop that runs once.
    pub const ONCE: Loop = Loop { count: 1, a: 0, b: 0 };
}

/// The product `c[r, j] = sum over the loops and k of a[r, k] * b[k, j]`.
///
/// `a[r, k]` stands at `a + r * a_row + k * a_depth`, `b[k, j]` at `b + k * b_depth + j` and `c[r, j]` at
/// `c + r * c_row + j`, all moved on by the loops.
#[derive(Clone, Copy)]
pub(super) struct Product<T> {
    pub a: *const T,
    pub a_row: usize,
    pub a_depth: usize,
    pub b: *const T,
    pub b_depth: usize,
    pub c: *mut T,
    pub c_row: usize,
    pub rows: usize,
    /// At most [`panel`].
    pub columns: usize,
    pub depth: usize,
    pub loops: [Loop; 3],
    pub into: Into,
}

/// A tensor of which each task writes its own part.
pub(super) struct Target<T>(*mut T);

// SAFETY: it only hands out pointers; whoever writes through them promises that nobody else does.
unsafe impl<T: Send> Sync for Target<T> {}

impl<T> Target<T> {
    /// The whole of a tensor.
    pub fn new(tensor: &mut [T]) -> Target<T> {
        Target(tensor.as_mut_ptr())
    }

    /// The same tensor from its element `i` on.
    pub fn from(&self, i: usize) -> Target<T> {
        Target(self.at(i))
    }

    /// Where element `i` stands.
    pub fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// The most columns of one product: two vector registers.
pub(super) fn panel<T>() -> usize {
    2 * match level() {
        Level::Avx512 => 64 / size_of::<T>(),
        Level::Avx2 => 32 / size_of::<T>(),
        Level::Baseline => 4,
    }
}

/// Rows of the largest tile on this processor.
pub(super) fn tile_rows() -> usize {
    most_rows(if level() == Level::Avx512 { 32 } else { 16 })
}

/// Rows of the largest tile: the accumulators of two columns of registers leave room for the operands.
const fn most_rows(registers: usize) -> usize {
    if registers >= 32 { 12 } else { 6 }
}

/// Computes a product.
///
/// # Safety
/// Every element that the description reaches must be valid, and `c` must be written by nobody else.
pub(super) unsafe fn product<T: Float>(p: &Product<T>) {
    if p.rows == 0 || p.columns == 0 {
        return;
    }
    debug_assert!(p.columns <= panel::<T>());
    let single = TypeId::of::<T>() == TypeId::of::<f32>();
    // SAFETY: T is f32 or f64, as the type id says, so the casts change nothing; the level says what the
    // processor has.
    unsafe {
        match (level(), single) {
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, true) => avx512::product::<std::arch::x86_64::__m512>(p.cast()),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, false) => avx512::product::<std::arch::x86_64::__m512d>(p.cast()),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, true) => avx2::product::<std::arch::x86_64::__m256>(p.cast()),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, false) => avx2::product::<std::arch::x86_64::__m256d>(p.cast()),
            (_, true) => baseline::product::<Plain<f32>>(p.cast()),
            (_, false) => baseline::product::<Plain<f64>>(p.cast()),
        }
    }
}

impl<T> Product<T> {
    /// The same product under another name for its element type.
    unsafe fn cast<U>(&self) -> &Product<U> {
        assert!(size_of::<T>() == size_of::<U>());
        // SAFETY: the layout does not depend on what the pointers point to.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

/// One tile of `R` rows and `V` registers of columns, the last of them masked.
#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize, const V: usize>(p: &Product<L::Element>, row: usize) {
    // SAFETY: the caller of `product` vouches for every element reached.
    unsafe {
        let mask = L::first(p.columns - (V - 1) * L::LANES);
        let mut sums = [[L::zero(); V]; R];
        let [outer, middle, inner] = p.loops;
        for i in 0..outer.count as isize {
            for j in 0..middle.count as isize {
                for k in 0..inner.count as isize {
                    let mut a =
                        p.a.wrapping_add(row * p.a_row).wrapping_offset(i * outer.a + j * middle.a + k * inner.a);
                    let mut b = p.b.wrapping_offset(i * outer.b + j * middle.b + k * inner.b);
                    for _ in 0..p.depth {
                        let columns: [L; V] = std::array::from_fn(|v| match v + 1 < V {
                            true => L::load(b.add(v * L::LANES)),
                            false => L::load_masked(b.add(v * L::LANES), mask),
                        });
                        for r in 0..R {
                            let x = L::splat(a.add(r * p.a_row));
                            for v in 0..V {
                                sums[r][v] = sums[r][v].add_product(x, columns[v]);
                            }
                        }
                        a = a.wrapping_add(p.a_depth);
                        b = b.wrapping_add(p.b_depth);
                    }
                }
            }
        }
        for r in 0..R {
            let c = p.c.add((row + r) * p.c_row);
            for v in 0..V {
                let c = c.add(v * L::LANES);
                match (v + 1 < V, p.into) {
                    (true, Into::Overwrite) => sums[r][v].store(c),
                    (true, Into::Add) => L::load(c).add(sums[r][v]).store(c),
                    (false, Into::Overwrite) => sums[r][v].store_masked(c, mask),
                    (false, Into::Add) => L::load_masked(c, mask).add(sums[r][v]).store_masked(c, mask),
                }
            }
        }
    }
}

macro_rules! for_level {
    ($name:ident, $(#[$attribute:meta])*) => {
        mod $name {
            use super::*;

            // A function of its own, so that the registers are given out for this loop alone.
            $(#[$attribute])*
            #[inline(never)]
            unsafe fn tile<L: Lanes, const R: usize, const V: usize>(p: &Product<L::Element>, row: usize) {
                // SAFETY: as promised by the caller.
                unsafe { super::tile::<L, R, V>(p, row) }
            }

            $(#[$attribute])*
            pub(super) unsafe fn product<L: Lanes>(p: &Product<L::Element>) {
                // SAFETY: as promised by the caller.
                unsafe {
                    match p.columns <= L::LANES {
                        true => rows::<L, 1>(p),
                        false => rows::<L, 2>(p),
                    }
                }
            }

            /// Cuts the rows into tiles of nearly equal height.
            $(#[$attribute])*
            unsafe fn rows<L: Lanes, const V: usize>(p: &Product<L::Element>) {
                let tiles = p.rows.div_ceil(most_rows(L::REGISTERS));
                let mut row = 0;
                for left in (1..=tiles).rev() {
                    let height = (p.rows - row).div_ceil(left);
                    // SAFETY: as promised by the caller.
                    unsafe {
                        match height {
                            1 => tile::<L, 1, V>(p, row),
                            2 => tile::<L, 2, V>(p, row),
                            3 => tile::<L, 3, V>(p, row),
                            4 => tile::<L, 4, V>(p, row),
                            5 => tile::<L, 5, V>(p, row),
                            6 => tile::<L, 6, V>(p, row),
                            // Fewer registers never get here, and need not be compiled for it.
                            _ if const { most_rows(L::REGISTERS) } <= 6 => unreachable!("tiles have at most 6 rows"),
                            7 => tile::<L, 7, V>(p, row),
                            8 => tile::<L, 8, V>(p, row),
                            9 => tile::<L, 9, V>(p, row),
                            10 => tile::<L, 10, V>(p, row),
                            11 => tile::<L, 11, V>(p, row),
                            _ => tile::<L, 12, V>(p, row),
                        }
                    }
                    row += height;
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
