//! The two 8-bit floats: for keeping and moving numbers, not for computing with them.
//!
//! Both are what other libraries mean by these names. [`F8E4M3`] has four bits of exponent and three of mantissa, no infinities and one NaN of each
//! sign, so that its numbers reach 448; [`F8E5M2`] has five and two and is a small IEEE float: its numbers reach 57344, and what is larger is infinite.

/// An 8-bit float with four bits of exponent: `float8_e4m3fn`.
///
/// ```
/// use plimsoll_tensor::F8E4M3;
/// assert_eq!(F8E4M3::from_f64(0.3).to_f64(), 0.3125);
/// assert!(F8E4M3::from_f64(1000.0).to_f64().is_nan());
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F8E4M3(u8);

/// An 8-bit float with five bits of exponent: `float8_e5m2`.
///
/// ```
/// use plimsoll_tensor::F8E5M2;
/// assert_eq!(F8E5M2::from_f64(1000.0).to_f64(), 1024.0);
/// assert_eq!(F8E5M2::from_f64(-1e6).to_f64(), f64::NEG_INFINITY);
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F8E5M2(u8);

macro_rules! float8 {
    ($ty:ident, mantissa $mantissa:literal, bias $bias:literal, largest $largest:literal, beyond $beyond:literal, nan $nan:literal) => {
        impl $ty {
            /// The number with these bits.
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest number, of two equally near ones the even one. What rounds to more than the largest number is infinite, or NaN where the
            /// type has no infinity.
            pub fn from_f64(value: f64) -> Self {
                let sign = (value.is_sign_negative() as u8) << 7;
                if value.is_nan() {
                    return Self(sign | $nan);
                }
                // In units of the last place of numbers of this size, which is a power of two: only the rounding rounds.
                let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(1 - $bias);
                let units = (value.abs() * power_of_two($mantissa - exponent)).round_ties_even();
                let code = ((exponent + $bias - 1) << $mantissa) as f64 + units;
                Self(sign | if code > $largest as f64 { $beyond } else { code as u8 })
            }

            /// The number as an f64, which holds all of them.
            pub fn to_f64(self) -> f64 {
                let code = self.0 & 0x7f;
                let size = if code > $largest {
                    if code == $beyond && $beyond != $nan { f64::INFINITY } else { f64::NAN }
                } else {
                    let exponent = (code >> $mantissa).max(1) as i32;
                    let units = code as i32 - ((exponent - 1) << $mantissa);
                    units as f64 * power_of_two(exponent - $bias - $mantissa)
                };
                if self.0 >> 7 == 1 { -size } else { size }
            }
        }

        /// As the numbers compare: zeros are equal, NaNs are not.
        impl PartialEq for $ty {
            fn eq(&self, other: &Self) -> bool {
                self.to_f64() == other.to_f64()
            }
        }

        impl std::fmt::Debug for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.to_f64(), f)
            }
        }
    };
}

float8!(F8E4M3, mantissa 3, bias 7, largest 0x7e, beyond 0x7f, nan 0x7f);
float8!(F8E5M2, mantissa 2, bias 15, largest 0x7b, beyond 0x7c, nan 0x7e);

/// 2 to the power `n`, for `n` from -1022 to 1023.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All finite numbers of a type, as the definition gives them: sign, exponent, mantissa.
    fn numbers(mantissa: i32, bias: i32, largest: u8) -> Vec<f64> {
        let of = |code: u8| {
            let (e, m) = ((code >> mantissa) as i32, (code & ((1 << mantissa) - 1)) as f64);
            let fraction = m / 2f64.powi(mantissa);
            if e == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(e - bias) }
        };
        (0..=largest).map(of).collect()
    }

    #[test]
    fn every_code_is_the_number_of_the_definition_and_comes_back() {
        for (code, x) in numbers(3, 7, 0x7e).into_iter().enumerate() {
            for (bits, x) in [(code as u8, x), (code as u8 | 0x80, -x)] {
                assert_eq!(F8E4M3::from_bits(bits).to_f64(), x);
                assert_eq!(F8E4M3::from_f64(x).to_bits(), bits);
            }
        }
        for (code, x) in numbers(2, 15, 0x7b).into_iter().enumerate() {
            for (bits, x) in [(code as u8, x), (code as u8 | 0x80, -x)] {
                assert_eq!(F8E5M2::from_bits(bits).to_f64(), x);
                assert_eq!(F8E5M2::from_f64(x).to_bits(), bits);
            }
        }
        assert_eq!(F8E4M3::from_bits(0x7e).to_f64(), 448.0);
        assert_eq!(F8E5M2::from_bits(0x7b).to_f64(), 57344.0);
        assert_eq!(F8E5M2::from_bits(0xfc).to_f64(), f64::NEG_INFINITY);
        assert!(F8E4M3::from_bits(0xff).to_f64().is_nan());
        assert!((0x7d..=0x7f).all(|bits| F8E5M2::from_bits(bits).to_f64().is_nan()));
    }

    #[test]
    fn between_two_numbers_the_nearer_one_is_taken_and_of_equals_the_even_one() {
        fn check(numbers: &[f64], round: impl Fn(f64) -> u8) {
            for (code, pair) in numbers.windows(2).enumerate() {
                let middle = (pair[0] + pair[1]) / 2.0;
                let even = code + code % 2;
                assert_eq!(round(middle) as usize, even);
                assert_eq!(round(middle * (1.0 - 1e-12)) as usize, code);
                assert_eq!(round(middle * (1.0 + 1e-12)) as usize, code + 1);
            }
        }
        check(&numbers(3, 7, 0x7e), |x| F8E4M3::from_f64(x).to_bits());
        check(&numbers(2, 15, 0x7b), |x| F8E5M2::from_f64(x).to_bits());
    }

    #[test]
    fn what_is_too_large_is_nan_or_infinite() {
        let e4m3 = |x: f64| F8E4M3::from_f64(x).to_bits();
        let e5m2 = |x: f64| F8E5M2::from_f64(x).to_bits();
        assert_eq!([464.0, 464.1, 1e300, f64::INFINITY].map(e4m3), [0x7e, 0x7f, 0x7f, 0x7f]);
        assert_eq!([-464.1, f64::NEG_INFINITY, -f64::NAN].map(e4m3), [0xff; 3]);
        assert_eq!([61439.9, 61440.0, 1e300, f64::INFINITY].map(e5m2), [0x7b, 0x7c, 0x7c, 0x7c]);
        assert_eq!([f64::NAN, -1e-300, f64::MIN_POSITIVE / 2.0].map(e5m2), [0x7e, 0x80, 0]);
    }
}
