//! Scalar mathematics written so that the compiler can vectorise it: no branches, no calls.
//!
//! The f32 versions of `exp`, `ln`, `tanh`, `erf`, `sin` and `cos` are within a few units in the last
//! place of the correctly rounded result (the tests say how many); f64 uses the standard library.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// f32 or f64, with the functions kernels need.
pub trait Float:
    Copy
    + Default
    + Debug
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + crate::gemm::Scalar
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The largest finite value's negative infinity: the neutral element of `max`.
    const NEG_INFINITY: Self;
    /// The neutral element of `min`.
    const INFINITY: Self;

    /// Rounds from f64.
    fn from_f64(x: f64) -> Self;
    /// Widens to f64.
    fn to_f64(self) -> f64;
    /// e^x.
    fn exp(self) -> Self;
    /// e^x for x at most 0, as softmax needs it: cheaper than [`Float::exp`], and what would be below the
    /// normal numbers becomes 0. Up to 80 it holds above 0 too.
    fn exp_nonpositive(self) -> Self;
    /// e^x - 1, accurate near 0.
    fn exp_m1(self) -> Self;
    /// Natural logarithm; NaN below 0, negative infinity at 0.
    fn ln(self) -> Self;
    /// ln(1 + x), accurate near 0.
    fn ln_1p(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// 1 / (1 + e^-x).
    fn sigmoid(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// Sine.
    fn sin(self) -> Self;
    /// Cosine.
    fn cos(self) -> Self;
    /// x^y.
    fn powf(self, y: Self) -> Self;
    /// |x|.
    fn abs(self) -> Self;
    /// Largest integer not above.
    fn floor(self) -> Self;
    /// Smallest integer not below.
    fn ceil(self) -> Self;
    /// Nearest integer, ties to even.
    fn round_even(self) -> Self;
    /// The larger one; NaN if either is NaN.
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        // With NaN in `self` both comparisons are false and the sum is NaN.
        if self >= other {
            self
        } else if self < other {
            other
        } else {
            self + other
        }
    }
    /// The smaller one; NaN if either is NaN.
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        if self <= other {
            self
        } else if self > other {
            other
        } else {
            self + other
        }
    }
}

impl Float for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;
    const INFINITY: f32 = f32::INFINITY;
    #[inline(always)]
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn exp(self) -> f32 {
        exp(self)
    }
    #[inline(always)]
    fn exp_nonpositive(self) -> f32 {
        exp_nonpositive(self)
    }
    #[inline(always)]
    fn exp_m1(self) -> f32 {
        exp_m1(self)
    }
    #[inline(always)]
    fn ln(self) -> f32 {
        ln(self)
    }
    #[inline(always)]
    fn ln_1p(self) -> f32 {
        ln_1p(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn tanh(self) -> f32 {
        tanh(self)
    }
    #[inline(always)]
    fn sigmoid(self) -> f32 {
        1.0 / (1.0 + exp(-self))
    }
    #[inline(always)]
    fn erf(self) -> f32 {
        erf(self)
    }
    #[inline(always)]
    fn sin(self) -> f32 {
        f32::sin(self)
    }
    #[inline(always)]
    fn cos(self) -> f32 {
        f32::cos(self)
    }
    #[inline(always)]
    fn powf(self, y: f32) -> f32 {
        f32::powf(self, y)
    }
    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    #[inline(always)]
    fn floor(self) -> f32 {
        f32::floor(self)
    }
    #[inline(always)]
    fn ceil(self) -> f32 {
        f32::ceil(self)
    }
    #[inline(always)]
    fn round_even(self) -> f32 {
        f32::round_ties_even(self)
    }
}

impl Float for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;
    const INFINITY: f64 = f64::INFINITY;
    #[inline(always)]
    fn from_f64(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn exp_nonpositive(self) -> f64 {
        f64::exp(self)
    }
    #[inline(always)]
    fn exp_m1(self) -> f64 {
        f64::exp_m1(self)
    }
    #[inline(always)]
    fn ln(self) -> f64 {
        f64::ln(self)
    }
    #[inline(always)]
    fn ln_1p(self) -> f64 {
        f64::ln_1p(self)
    }
    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn tanh(self) -> f64 {
        f64::tanh(self)
    }
    #[inline(always)]
    fn sigmoid(self) -> f64 {
        1.0 / (1.0 + f64::exp(-self))
    }
    #[inline(always)]
    fn erf(self) -> f64 {
        erf_f64(self)
    }
    #[inline(always)]
    fn sin(self) -> f64 {
        f64::sin(self)
    }
    #[inline(always)]
    fn cos(self) -> f64 {
        f64::cos(self)
    }
    #[inline(always)]
    fn powf(self, y: f64) -> f64 {
        f64::powf(self, y)
    }
    #[inline(always)]
    fn abs(self) -> f64 {
        f64::abs(self)
    }
    #[inline(always)]
    fn floor(self) -> f64 {
        f64::floor(self)
    }
    #[inline(always)]
    fn ceil(self) -> f64 {
        f64::ceil(self)
    }
    #[inline(always)]
    fn round_even(self) -> f64 {
        f64::round_ties_even(self)
    }
}

/// ln 2 in two parts: the first has few bits, so that its product with a small integer is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;

/// e^x by `2^n * e^r` with |r| <= ln 2 / 2 and a polynomial of degree 6 for e^r.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Beyond these the result is infinite or zero anyway; a NaN passes through both.
    let bounded = if x > 89.0 { 89.0 } else { x };
    let bounded = if bounded < -104.0 { -104.0 } else { bounded };
    let n = (bounded * std::f32::consts::LOG2_E).round_ties_even();
    let r = bounded - n * LN2_HI - n * LN2_LO;
    let p = exp_poly(r);
    // Two factors, because 2^n alone can leave the range of normal numbers although the result does not.
    let half = (n * 0.5).floor();
    (1.0 + r + r * r * p) * pow2(half) * pow2(n - half)
}

/// As [`exp`], with one factor 2^n, a polynomial of degree 5 (minimax, relative error 1.1e-7) and no upper
/// bound.
#[inline(always)]
fn exp_nonpositive(x: f32) -> f32 {
    // At -88, n is -127 and the "power of two" has no bits at all: 0. A NaN passes the bound.
    let bounded = if x < -88.0 { -88.0 } else { x };
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 more is the exponent's bias.
    const ROUND: f32 = 12_582_912.0 + 127.0;
    let rounded = bounded * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = bounded - n * LN2_HI - n * LN2_LO;
    let p = 8.312_501e-3;
    let p = p * r + 4.189_033e-2;
    let p = p * r + 1.666_711_6e-1;
    let p = p * r + 4.999_923e-1;
    (1.0 + (r + r * r * p)) * f32::from_bits(rounded.to_bits() << 23)
}

/// (e^r - 1 - r) / r^2.
#[inline(always)]
fn exp_poly(r: f32) -> f32 {
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    p * r + 0.5
}

/// 2^n for an integer n between -126 and 127; NaN gives garbage, which the caller multiplies with NaN.
#[inline(always)]
fn pow2(n: f32) -> f32 {
    // Adding 2^23 + 127 leaves n + 127 in the low bits of the mantissa.
    let bits = (n + (8_388_608.0 + 127.0)).to_bits();
    f32::from_bits(bits << 23)
}

#[inline(always)]
fn exp_m1(x: f32) -> f32 {
    let series = x * (1.0 + x * exp_poly(x));
    let direct = exp(x) - 1.0;
    if x.abs() < 0.35 { series } else { direct }
}

/// ln x by `x = 2^n * m`, m in [sqrt(1/2), sqrt 2), and the odd series in s = (m-1)/(m+1).
#[inline(always)]
fn ln(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    let offset = bits.wrapping_sub(0x3f35_04f3);
    let n = (offset >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let m = f32::from_bits(((offset & 0x007f_ffff) + 0x3f35_04f3) as u32);
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let p = 2.0 / 9.0;
    let p = p * z + 2.0 / 7.0;
    let p = p * z + 2.0 / 5.0;
    let p = p * z + 2.0 / 3.0;
    let half_square = 0.5 * f * f;
    let r = n * LN2_HI + (f - (half_square - (s * (half_square + z * p) + n * LN2_LO)));
    let r = if x == f32::INFINITY { x } else { r };
    let r = if x == 0.0 { f32::NEG_INFINITY } else { r };
    if x < 0.0 || x.is_nan() { f32::NAN } else { r }
}

#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    // The rounding error of 1 + x, made good by its first-order effect.
    let u = 1.0 + x;
    let correction = (x - (u - 1.0)) / u;
    let r = ln(u) + if u.is_finite() && u != 0.0 { correction } else { 0.0 };
    if u == 1.0 { x } else { r }
}

#[inline(always)]
fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let e = exp(-2.0 * a);
    let large = (1.0 - e) / (1.0 + e);
    let z = x * x;
    let p = -5.704_988_7e-3;
    let p = p * z + 2.063_909e-2;
    let p = p * z - 5.373_971_6e-2;
    let p = p * z + 1.333_144_2e-1;
    let p = p * z - 3.333_328e-1;
    let small = a + a * z * p;
    let r = if a < 0.625 { small } else { large };
    r.copysign(x)
}

/// erf x = x + x p(x^2) near 0 and 1 - e^q(|x|) further out, both polynomials minimax in the error of the result; from 4 on
/// it is 1 to the last digit.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let p = -6.222_421e-4;
    let p = p * z + 5.035_871_6e-3;
    let p = p * z - 2.679_395_5e-2;
    let p = p * z + 1.128_252_45e-1;
    let p = p * z - 3.761_255_7e-1;
    let p = p * z + 1.283_791_5e-1;
    let small = a + a * p;
    // A NaN passes the bound.
    let t = if a > 4.0 { 4.0 } else { a };
    let q = 2.009_973_5e-4;
    let q = q * t - 3.092_302_2e-3;
    let q = q * t + 2.242_025_4e-2;
    let q = q * t - 1.043_275_7e-1;
    let q = q * t - 6.367_372e-1;
    let q = q * t - 1.127_936_1;
    let q = q * t - 1.335_666_2e-4;
    let large = 1.0 - exp_nonpositive(q);
    let r = if a < 0.875 { small } else { large };
    r.copysign(x)
}

/// erf for f64: the series below 2.5, the continued fraction's asymptotic form above.
fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    let r = if a < 2.5 {
        // erf a = 2/sqrt(pi) * e^(-a^2) * sum 2^n a^(2n+1) / (1*3*..*(2n+1)): all terms positive.
        let mut term = a;
        let mut sum = a;
        for n in 1..60 {
            term *= 2.0 * a * a / (2 * n + 1) as f64;
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else if a < 6.0 {
        // erfc a = e^(-a^2) / sqrt(pi) * 1/(a + (1/2)/(a + 1/(a + (3/2)/(a + ...)))).
        let mut fraction = a;
        for n in (1..60).rev() {
            fraction = a + 0.5 * n as f64 / fraction;
        }
        1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    } else {
        1.0
    };
    r.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ulps(name: &str, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, from: f32, to: f32, bound: f64) {
        let mut worst = (0.0, 0.0);
        for i in 0..200_000 {
            let x = from + (to - from) * i as f32 / 200_000.0;
            let want = exact(x as f64);
            let ulp = ((want as f32).abs().max(f32::MIN_POSITIVE).next_up()
                - (want as f32).abs().max(f32::MIN_POSITIVE)) as f64;
            let error = (f(x) as f64 - want).abs() / ulp;
            if error > worst.0 {
                worst = (error, x);
            }
        }
        assert!(worst.0 <= bound, "{name}: {} ulps at {}", worst.0, worst.1);
    }

    #[test]
    fn close_to_the_exact_values() {
        check_ulps("exp", exp, f64::exp, -87.0, 88.0, 2.0);
        check_ulps("exp_nonpositive", exp_nonpositive, f64::exp, -87.0, 80.0, 2.5);
        check_ulps("exp_m1", exp_m1, f64::exp_m1, -10.0, 10.0, 4.0);
        check_ulps("ln", ln, f64::ln, 1e-6, 40.0, 2.0);
        check_ulps("ln_1p", ln_1p, f64::ln_1p, -0.99, 40.0, 3.0);
        check_ulps("tanh", tanh, f64::tanh, -12.0, 12.0, 4.0);
        check_ulps("sigmoid", Float::sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -80.0, 40.0, 4.0);
        check_ulps("erf", erf, erf_f64, -6.0, 6.0, 2.0);
    }

    #[test]
    fn edges() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp_nonpositive(0.0), 1.0);
        assert_eq!([-88.0, -1e9, f32::NEG_INFINITY].map(exp_nonpositive), [0.0; 3]);
        assert!(exp_nonpositive(f32::NAN).is_nan());
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert!(ln(-1.0).is_nan() && ln(f32::NAN).is_nan());
        assert_eq!(ln(f32::INFINITY), f32::INFINITY);
        assert_eq!([-1.0, 0.0, f32::INFINITY].map(ln_1p), [f32::NEG_INFINITY, 0.0, f32::INFINITY]);
        assert!(ln_1p(-1.5).is_nan() && ln_1p(f32::NAN).is_nan());
        assert!((ln(1e-40) - (1e-40f64).ln() as f32).abs() < 1e-3);
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert!(tanh(f32::NAN).is_nan());
        assert!(Float::maximum(f32::NAN, 1.0).is_nan() && Float::maximum(1.0, f32::NAN).is_nan());
        assert_eq!([0.0, f32::INFINITY, f32::NEG_INFINITY].map(erf), [0.0, 1.0, -1.0]);
        assert!(erf(f32::NAN).is_nan());
        // Values from Abramowitz and Stegun, table 7.1.
        assert!((erf_f64(0.5) - 0.520_499_877_8).abs() < 1e-10);
        assert!((erf_f64(2.0) - 0.995_322_265_0).abs() < 1e-10);
        assert!((erf_f64(3.0) - 0.999_977_909_5).abs() < 1e-10);
    }
}
