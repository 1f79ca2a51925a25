//! The standard normal distribution by inversion: one uniform number in, one normal number out.
//!
//! Inversion needs no pairs and no rejection, so an element depends on its own bits alone. With
//! `x = 2u - 1` the quantile is `x * g(w)`, `w = -ln(1 - x^2)`, where `g` is smooth: a polynomial near the
//! middle and another in `sqrt(w)` in the tails. 1 - |x| is taken from the integer, not from the rounded
//! x, so that the tails keep their digits and reach beyond six standard deviations.

use crate::math::Float;

/// The probability of lying within two standard deviations: erf(sqrt 2).
pub(super) const WITHIN_TWO: f64 = 0.954_499_736_103_641_6;

/// `g` for w below 5, in powers of w - 2.5, highest first; relative error below 1e-7. The coefficients of
/// both are minimax fits made with Remez's exchange in 40 digits.
const MIDDLE: [f32; 9] = [
    4.035_445_8e-8,
    4.861_039e-7,
    -4.990_561_6e-6,
    -6.217_994e-6,
    3.091_501_7e-4,
    -1.773_010_1e-3,
    -5.908_170_7e-3,
    0.348_802_66,
    2.123_313_7,
];

/// `g` for w from 5 to 22.9, in powers of sqrt(w) - 3.5, highest first; relative error below 1.4e-7.
const TAIL: [f32; 10] = [
    4.653_252_5e-5,
    1.202_171_5e-5,
    -4.128_625_4e-4,
    7.535_203e-4,
    -8.832_259_3e-4,
    1.463_628e-3,
    -2.945_685e-3,
    4.650_467e-3,
    1.424_637_6,
    4.717_088_7,
];

#[inline(always)]
pub(super) fn normal_f32(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / (1u32 << 31) as f32;
    let centred = (word ^ 0x8000_0000) as i32;
    let sign = centred >> 31;
    let magnitude = centred ^ sign;
    let x = (magnitude as f32 + 0.5) * UNIT;
    let rest = ((magnitude ^ 0x7fff_ffff) as f32 + 0.5) * UNIT;
    let w = -Float::ln(rest * (2.0 - rest));
    let middle = horner(&MIDDLE, w - 2.5);
    let tail = horner(&TAIL, w.sqrt() - 3.5);
    let z = x * if w < 5.0 { middle } else { tail };
    f32::from_bits(z.to_bits() ^ (sign as u32 & 0x8000_0000))
}

#[inline(always)]
pub(super) fn truncated_f32(word: u32) -> f32 {
    const UNIT: f32 = WITHIN_TWO as f32 / (1u32 << 31) as f32;
    let x = ((word ^ 0x8000_0000) as i32 as f32 + 0.5) * UNIT;
    let z = x * horner(&MIDDLE, -Float::ln(1.0 - x * x) - 2.5);
    let z = if z > 2.0 { 2.0 } else { z };
    if z < -2.0 { -2.0 } else { z }
}

#[inline(always)]
fn horner<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut p = coefficients[0];
    for &c in &coefficients[1..] {
        p = p * x + c;
    }
    p
}

pub(super) fn normal_f64(bits: u64) -> f64 {
    const UNIT: f64 = 1.0 / (1u64 << 63) as f64;
    let centred = (bits ^ 1 << 63) as i64;
    let sign = centred >> 63;
    let magnitude = centred ^ sign;
    let half_x = (magnitude as f64 + 0.5) * UNIT * 0.5;
    let tail = ((magnitude ^ i64::MAX) as f64 + 0.5) * UNIT * 0.5;
    let z = upper_quantile(half_x, tail);
    if sign < 0 { -z } else { z }
}

pub(super) fn truncated_f64(bits: u64) -> f64 {
    let half_x = ((bits ^ 1 << 63) as i64 as f64 + 0.5) * (0.5 * WITHIN_TWO / (1u64 << 63) as f64);
    let z = upper_quantile(half_x.abs(), 0.5 - half_x.abs());
    z.min(2.0).copysign(half_x)
}

/// The standard normal quantile: the z that a normal number stays below with probability `p`.
///
/// Wichura's algorithm AS 241 (PPND16), good to about 16 digits.
///
/// ```
/// use plimsoll_kernels::random::normal_quantile;
/// assert_eq!(normal_quantile(0.5), 0.0);
/// assert!((normal_quantile(0.975) - 1.959963984540054).abs() < 1e-15);
/// ```
pub fn normal_quantile(p: f64) -> f64 {
    let q = p - 0.5;
    let z = upper_quantile(q.abs(), p.min(1.0 - p));
    if q < 0.0 { -z } else { z }
}

/// The quantile at `1/2 + q`, given also `tail = 1/2 - q`.
fn upper_quantile(q: f64, tail: f64) -> f64 {
    if q <= 0.425 {
        let r = 0.180625 - q * q;
        return q * ratio(&A, &B, r);
    }
    let r = (-tail.ln()).sqrt();
    if r <= 5.0 { ratio(&C, &D, r - 1.6) } else { ratio(&E, &F, r - 5.0) }
}

fn ratio(above: &[f64; 8], below: &[f64; 8], r: f64) -> f64 {
    let value = |c: &[f64; 8]| c.iter().rev().fold(0.0, |p, c| p * r + c);
    value(above) / value(below)
}

/// Coefficients of AS 241, lowest power first.
const A: [f64; 8] = [
    3.387_132_872_796_366_5,
    133.141_667_891_784_38,
    1_971.590_950_306_551_3,
    13_731.693_765_509_46,
    45_921.953_931_549_87,
    67_265.770_927_008_7,
    33_430.575_583_588_13,
    2_509.080_928_730_122_7,
];
const B: [f64; 8] = [
    1.0,
    42.313_330_701_600_91,
    687.187_007_492_057_9,
    5_394.196_021_424_751,
    21_213.794_301_586_597,
    39_307.895_800_092_71,
    28_729.085_735_721_943,
    5_226.495_278_852_854,
];
const C: [f64; 8] = [
    1.423_437_110_749_683_5,
    4.630_337_846_156_546,
    5.769_497_221_460_691,
    3.647_848_324_763_204_5,
    1.270_458_252_452_368_4,
    0.241_780_725_177_450_6,
    2.272_384_498_926_918_4e-2,
    7.745_450_142_783_414e-4,
];
const D: [f64; 8] = [
    1.0,
    2.053_191_626_637_759,
    1.676_384_830_183_803_8,
    0.689_767_334_985_1,
    0.148_103_976_427_480_08,
    1.519_866_656_361_645_7e-2,
    5.475_938_084_995_345e-4,
    1.050_750_071_644_416_9e-9,
];
const E: [f64; 8] = [
    6.657_904_643_501_103,
    5.463_784_911_164_114,
    1.784_826_539_917_291_3,
    0.296_560_571_828_504_87,
    2.653_218_952_657_612_4e-2,
    1.242_660_947_388_078_4e-3,
    2.711_555_568_743_487_6e-5,
    2.010_334_399_292_288_1e-7,
];
const F: [f64; 8] = [
    1.0,
    0.599_832_206_555_887_9,
    0.136_929_880_922_735_8,
    1.487_536_129_085_061_5e-2,
    7.868_691_311_456_132e-4,
    1.846_318_317_510_054_8e-5,
    1.421_511_758_316_446e-7,
    2.044_263_103_389_939_8e-15,
];
