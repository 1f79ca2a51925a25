//! Run-time choice of the instruction set.
//!
//! A function wrapped in [`simd!`](crate::simd!) is compiled for AVX-512, for AVX2 with FMA and for the
//! baseline (on other architectures the baseline alone, which on AArch64 has NEON); the call picks what
//! the processor has. Everything the function calls in its inner loops must be `#[inline(always)]`.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// What every processor of the architecture has.
    Baseline = 1,
    /// AVX2, FMA and F16C.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The best instruction set of this processor.
///
/// `PLIMSOLL_SIMD=baseline` or `avx2` lowers it, for tests of the fallbacks.
#[inline(always)]
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        1 => Level::Baseline,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    let found = {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx512, avx2) {
            (true, _) => Level::Avx512,
            (_, true) => Level::Avx2,
            _ => Level::Baseline,
        }
    };
    #[cfg(not(target_arch = "x86_64"))]
    let found = Level::Baseline;
    let asked = match std::env::var("PLIMSOLL_SIMD").as_deref() {
        Ok("baseline") => Level::Baseline,
        Ok("avx2") => Level::Avx2,
        _ => Level::Avx512,
    };
    let level = found.min(asked);
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

/// Compiles a function once per instruction set and picks one at run time.
///
/// Generic parameters stand in square brackets with one bound each.
///
/// ```
/// use plimsoll_kernels::{math::Float, simd};
/// simd! {
///     /// Adds `x` to every element.
///     pub fn shift[T: Float](values: &mut [T], x: T) {
///         for v in values {
///             *v = *v + x;
///         }
///     }
/// }
/// let mut v = [1.0f32, 2.0];
/// shift(&mut v, 0.5);
/// assert_eq!(v, [1.5, 2.5]);
/// ```
#[macro_export]
macro_rules! simd {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident $([$($g:ident : $bound:path),*])? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[inline]
        $vis fn $name $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2 $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512 $(<$($g: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }

            match $crate::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the level says that the processor has these features.
                $crate::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    )*};
}
