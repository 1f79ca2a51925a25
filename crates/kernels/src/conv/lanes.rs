//! Vector registers behind one small trait, so that a register tile is written once for all of them.
//!
//! The compiler vectorises most kernels by itself, but it neither fuses a product with a sum nor keeps a
//! tile of accumulators in registers reliably; here both decide the rate.

use std::ops::AddAssign;

/// A vector register of `LANES` elements.
///
/// # Safety
/// Every method may use the instruction set the type belongs to: callers run inside a function compiled
/// for it, on a processor that has it. Pointers must be valid for the elements that are touched.
pub(super) trait Lanes: Copy {
    /// The element type.
    type Element: Copy + Default + AddAssign;
    /// Elements per register.
    const LANES: usize;
    /// How many registers the processor has of this type.
    const REGISTERS: usize;
    /// Which lanes take part.
    type Mask: Copy;

    /// All zero.
    unsafe fn zero() -> Self;
    /// One element in every lane.
    unsafe fn splat(p: *const Self::Element) -> Self;
    /// A full register.
    unsafe fn load(p: *const Self::Element) -> Self;
    /// `self + a * b`.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;
    /// Writes a full register.
    unsafe fn store(self, p: *mut Self::Element);
    /// The mask of the first `n` lanes, `n <= LANES`.
    unsafe fn first(n: usize) -> Self::Mask;
    /// The lanes of the mask, zero in the others; memory behind the others is not touched.
    unsafe fn load_masked(p: *const Self::Element, mask: Self::Mask) -> Self;
    /// Writes the lanes of the mask.
    unsafe fn store_masked(self, p: *mut Self::Element, mask: Self::Mask);

    /// The sum of the lanes, halves added to halves.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Element {
        let mut lanes = [Self::Element::default(); 16];
        // SAFETY: no register has more than 16 lanes.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let mut half = Self::LANES / 2;
        while half > 0 {
            for i in 0..half {
                let other = lanes[half + i];
                lanes[i] += other;
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Calls `level::function::<register>(&description)` for the processor's instruction set and the element type `T`, which is
/// f32 or f64. The modules `avx512`, `avx2` and `baseline` are the caller's.
macro_rules! dispatch {
    ($function:ident, $T:ty, $description:expr) => {{
        use $crate::conv::lanes::Plain;
        use $crate::simd::{Level, level};
        let single = std::any::TypeId::of::<$T>() == std::any::TypeId::of::<f32>();
        let p = std::ptr::from_ref($description);
        match (level(), single) {
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, true) => avx512::$function::<std::arch::x86_64::__m512>(&*p.cast()),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, false) => avx512::$function::<std::arch::x86_64::__m512d>(&*p.cast()),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, true) => avx2::$function::<std::arch::x86_64::__m256>(&*p.cast()),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, false) => avx2::$function::<std::arch::x86_64::__m256d>(&*p.cast()),
            (_, true) => baseline::$function::<Plain<f32>>(&*p.cast()),
            (_, false) => baseline::$function::<Plain<f64>>(&*p.cast()),
        }
    }};
}
pub(super) use dispatch;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    /// Bits of which a window of `n` ones followed by zeros can be cut.
    static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    macro_rules! lanes {
        ($reg:ty, $element:ty, $lanes:literal, $registers:literal, $mask:ty, $zero:ident, $set1:ident, $loadu:ident, $fmadd:ident,
         $add:ident, $storeu:ident, |$n:ident| $first:expr, |$lp:ident, $lm:ident| $load_masked:expr,
         |$sp:ident, $sm:ident, $sv:ident| $store_masked:expr) => {
            // SAFETY: for all methods: the caller promises the instruction set and valid pointers.
            impl Lanes for $reg {
                type Element = $element;
                type Mask = $mask;
                const LANES: usize = $lanes;
                const REGISTERS: usize = $registers;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: see the trait.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn splat(p: *const $element) -> Self {
                    // SAFETY: see the trait.
                    unsafe { $set1(*p) }
                }
                #[inline(always)]
                unsafe fn load(p: *const $element) -> Self {
                    // SAFETY: see the trait.
                    unsafe { $loadu(p) }
                }
                #[inline(always)]
                unsafe fn add_product(self, a: Self, b: Self) -> Self {
                    // SAFETY: see the trait.
                    unsafe { $fmadd(a, b, self) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: see the trait.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $element) {
                    // SAFETY: see the trait.
                    unsafe { $storeu(p, self) }
                }
                #[inline(always)]
                unsafe fn first($n: usize) -> $mask {
                    // SAFETY: see the trait.
                    #[allow(unused_unsafe)]
                    unsafe {
                        $first
                    }
                }
                #[inline(always)]
                unsafe fn load_masked($lp: *const $element, $lm: $mask) -> Self {
                    // SAFETY: see the trait.
                    unsafe { $load_masked }
                }
                #[inline(always)]
                unsafe fn store_masked(self, $sp: *mut $element, $sm: $mask) {
                    let $sv = self;
                    // SAFETY: see the trait.
                    unsafe { $store_masked }
                }
            }
        };
    }

    lanes!(
        __m512,
        f32,
        16,
        32,
        __mmask16,
        _mm512_setzero_ps,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_storeu_ps,
        |n| ((1u32 << n) - 1) as __mmask16,
        |p, m| _mm512_maskz_loadu_ps(m, p),
        |p, m, v| _mm512_mask_storeu_ps(p, m, v)
    );
    lanes!(
        __m512d,
        f64,
        8,
        32,
        __mmask8,
        _mm512_setzero_pd,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_fmadd_pd,
        _mm512_add_pd,
        _mm512_storeu_pd,
        |n| ((1u32 << n) - 1) as __mmask8,
        |p, m| _mm512_maskz_loadu_pd(m, p),
        |p, m, v| _mm512_mask_storeu_pd(p, m, v)
    );
    lanes!(
        __m256,
        f32,
        8,
        16,
        __m256i,
        _mm256_setzero_ps,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_storeu_ps,
        |n| _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(8 - n).cast()),
        |p, m| _mm256_maskload_ps(p, m),
        |p, m, v| _mm256_maskstore_ps(p, m, v)
    );
    lanes!(
        __m256d,
        f64,
        4,
        16,
        __m256i,
        _mm256_setzero_pd,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_fmadd_pd,
        _mm256_add_pd,
        _mm256_storeu_pd,
        |n| _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(8 - 2 * n).cast()),
        |p, m| _mm256_maskload_pd(p, m),
        |p, m, v| _mm256_maskstore_pd(p, m, v)
    );
}

/// Four elements without a named instruction set: what the compiler makes of plain arithmetic.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>([T; 4]);

macro_rules! plain {
    ($element:ty) => {
        // SAFETY: for all methods: only pointers the caller vouches for are touched.
        impl Lanes for Plain<$element> {
            type Element = $element;
            type Mask = usize;
            const LANES: usize = 4;
            const REGISTERS: usize = 16;
            #[inline(always)]
            unsafe fn zero() -> Self {
                Plain([0.0; 4])
            }
            #[inline(always)]
            unsafe fn splat(p: *const $element) -> Self {
                // SAFETY: see the trait.
                Plain([unsafe { *p }; 4])
            }
            #[inline(always)]
            unsafe fn load(p: *const $element) -> Self {
                // SAFETY: see the trait.
                Plain(unsafe { p.cast::<[$element; 4]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn add_product(self, a: Self, b: Self) -> Self {
                // Every AArch64 processor fuses; the x86 baseline would call a function for it.
                Plain(std::array::from_fn(|i| match cfg!(target_arch = "aarch64") {
                    true => a.0[i].mul_add(b.0[i], self.0[i]),
                    false => self.0[i] + a.0[i] * b.0[i],
                }))
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Plain(std::array::from_fn(|i| self.0[i] + other.0[i]))
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $element) {
                // SAFETY: see the trait.
                unsafe { p.cast::<[$element; 4]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn first(n: usize) -> usize {
                n
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $element, mask: usize) -> Self {
                // SAFETY: see the trait.
                Plain(std::array::from_fn(|i| if i < mask { unsafe { *p.add(i) } } else { 0.0 }))
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $element, mask: usize) {
                for i in 0..mask.min(4) {
                    // SAFETY: see the trait.
                    unsafe { *p.add(i) = self.0[i] }
                }
            }
        }
    };
}

plain!(f32);
plain!(f64);
