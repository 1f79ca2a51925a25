//! The scalar functions of element-wise programs, over blocks.
//!
//! Each function is defined twice: `eval` over f64, the plain definition that the reference interpreter and the
//! tests use, and the block loops below, which the compiler vectorises.

use super::{is_narrow, slice, slice_mut};
use crate::math::Float;
use crate::simd;
use half::{bf16, f16};
use plimsoll_tensor::{DType, Element, F8E4M3, F8E5M2};

macro_rules! functions {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every function.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Its name in text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The function of this name.
            pub fn from_name(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|f| f.name() == name)
            }
        }
    };
}

functions! {
    /// Functions of one argument.
    Unary {
        /// x itself.
        Identity = "identity",
        /// -x.
        Neg = "neg",
        /// |x|.
        Abs = "abs",
        /// -1, 0 or 1.
        Sign = "sign",
        /// x * x.
        Square = "square",
        /// Square root.
        Sqrt = "sqrt",
        /// 1 / sqrt(x).
        Rsqrt = "rsqrt",
        /// 1 / x.
        Reciprocal = "reciprocal",
        /// e^x.
        Exp = "exp",
        /// e^x - 1.
        ExpM1 = "expm1",
        /// Natural logarithm.
        Log = "log",
        /// ln(1 + x).
        Log1p = "log1p",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// Tangent.
        Tan = "tan",
        /// Inverse sine.
        Asin = "asin",
        /// Inverse cosine.
        Acos = "acos",
        /// Inverse tangent.
        Atan = "atan",
        /// Hyperbolic sine.
        Sinh = "sinh",
        /// Hyperbolic cosine.
        Cosh = "cosh",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// 1 / (1 + e^-x).
        Sigmoid = "sigmoid",
        /// ln(1 + e^x).
        Softplus = "softplus",
        /// The error function.
        Erf = "erf",
        /// max(x, 0).
        Relu = "relu",
        /// Largest integer not above.
        Floor = "floor",
        /// Smallest integer not below.
        Ceil = "ceil",
        /// Nearest integer, ties to even.
        Round = "round",
        /// Whether x is NaN.
        IsNan = "is_nan",
        /// Whether x is a number other than an infinity.
        IsFinite = "is_finite",
        /// Logical negation.
        Not = "not",
    }
}

functions! {
    /// Functions of two arguments of the same type.
    Binary {
        /// a + b.
        Add = "add",
        /// a - b.
        Sub = "sub",
        /// a * b.
        Mul = "mul",
        /// a / b; for integers rounded towards zero, and 0 where b is 0.
        Div = "div",
        /// floor(a / b); for integers 0 where b is 0.
        FloorDiv = "floor_div",
        /// a - b * floor(a / b); for integers 0 where b is 0.
        Rem = "rem",
        /// a to the power of b.
        Pow = "pow",
        /// The larger one; NaN if either is NaN.
        Max = "max",
        /// The smaller one; NaN if either is NaN.
        Min = "min",
        /// The angle of the point (b, a).
        Atan2 = "atan2",
        /// a == b.
        Eq = "eq",
        /// a != b.
        Ne = "ne",
        /// a < b.
        Lt = "lt",
        /// a <= b.
        Le = "le",
        /// a > b.
        Gt = "gt",
        /// a >= b.
        Ge = "ge",
        /// Both; on integers bit by bit.
        And = "and",
        /// Either; on integers bit by bit.
        Or = "or",
        /// One but not both; on integers bit by bit.
        Xor = "xor",
    }
}

impl Unary {
    /// The function over f64.
    pub fn eval(self, x: f64) -> f64 {
        match self {
            Unary::Identity => x,
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Sign => match x {
                x if x > 0.0 => 1.0,
                x if x < 0.0 => -1.0,
                x => x * 0.0,
            },
            Unary::Square => x * x,
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Reciprocal => 1.0 / x,
            Unary::Exp => x.exp(),
            Unary::ExpM1 => x.exp_m1(),
            Unary::Log => x.ln(),
            Unary::Log1p => x.ln_1p(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tan => x.tan(),
            Unary::Asin => x.asin(),
            Unary::Acos => x.acos(),
            Unary::Atan => x.atan(),
            Unary::Sinh => x.sinh(),
            Unary::Cosh => x.cosh(),
            Unary::Tanh => x.tanh(),
            Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Unary::Erf => Float::erf(x),
            Unary::Relu => Float::maximum(x, 0.0),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Round => x.round_ties_even(),
            Unary::IsNan => x.is_nan() as u8 as f64,
            Unary::IsFinite => x.is_finite() as u8 as f64,
            Unary::Not => (x == 0.0) as u8 as f64,
        }
    }

    /// Whether the result is a bool whatever the argument's type.
    pub fn is_test(self) -> bool {
        matches!(self, Unary::IsNan | Unary::IsFinite | Unary::Not)
    }

    /// Whether the function exists for integers.
    pub fn takes_integers(self) -> bool {
        matches!(self, Unary::Identity | Unary::Neg | Unary::Abs | Unary::Sign | Unary::Square | Unary::Relu)
    }

    /// About how many multiply-adds it costs.
    pub fn weight(self) -> u64 {
        match self {
            Unary::Exp | Unary::ExpM1 | Unary::Log | Unary::Log1p | Unary::Tanh | Unary::Sigmoid | Unary::Softplus => {
                12
            }
            Unary::Erf | Unary::Sin | Unary::Cos | Unary::Tan | Unary::Asin | Unary::Acos | Unary::Atan => 60,
            Unary::Sinh | Unary::Cosh => 60,
            Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => 4,
            _ => 1,
        }
    }
}

impl Binary {
    /// The function over f64, for values of type `dtype`.
    pub fn eval(self, a: f64, b: f64, dtype: DType) -> f64 {
        let truth = |t: bool| t as u8 as f64;
        let whole = !dtype.is_float();
        match self {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div if whole => {
                if b == 0.0 {
                    0.0
                } else {
                    (a / b).trunc()
                }
            }
            Binary::Div => a / b,
            Binary::FloorDiv if whole && b == 0.0 => 0.0,
            Binary::FloorDiv => (a / b).floor(),
            Binary::Rem if whole && b == 0.0 => 0.0,
            Binary::Rem => a - b * (a / b).floor(),
            Binary::Pow => a.powf(b),
            Binary::Max => Float::maximum(a, b),
            Binary::Min => Float::minimum(a, b),
            Binary::Atan2 => a.atan2(b),
            Binary::Eq => truth(a == b),
            Binary::Ne => truth(a != b),
            Binary::Lt => truth(a < b),
            Binary::Le => truth(a <= b),
            Binary::Gt => truth(a > b),
            Binary::Ge => truth(a >= b),
            Binary::And => (a as i64 & b as i64) as f64,
            Binary::Or => (a as i64 | b as i64) as f64,
            Binary::Xor => (a as i64 ^ b as i64) as f64,
        }
    }

    /// Whether the result is a bool whatever the arguments' type.
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
    }

    /// Whether the function is defined bit by bit, for integers and bools only.
    pub fn is_bitwise(self) -> bool {
        matches!(self, Binary::And | Binary::Or | Binary::Xor)
    }

    /// About how many multiply-adds it costs.
    pub fn weight(self) -> u64 {
        match self {
            Binary::Div | Binary::FloorDiv | Binary::Rem => 4,
            Binary::Pow | Binary::Atan2 => 60,
            _ => 1,
        }
    }
}

#[inline(always)]
fn map<A: Copy, R>(x: &[A], y: &mut [R], f: impl Fn(A) -> R) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x);
    }
}

#[inline(always)]
fn map2<A: Copy, R>(a: &[A], b: &[A], y: &mut [R], f: impl Fn(A, A) -> R) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(a, b);
    }
}

#[inline(always)]
fn softplus<T: Float>(x: T) -> T {
    x.maximum(T::ZERO) + (-x.abs()).exp().ln_1p()
}

#[inline(always)]
fn floor_rem<T: Float>(a: T, b: T) -> T {
    a - b * (a / b).floor()
}

simd! {
    fn unary_float[T: Float](f: Unary, x: &[T], y: &mut [T]) {
        match f {
            Unary::Identity => y.copy_from_slice(x),
            Unary::Neg => map(x, y, |v| -v),
            Unary::Abs => map(x, y, |v| v.abs()),
            Unary::Sign => map(x, y, |v| if v > T::ZERO { T::ONE } else if v < T::ZERO { -T::ONE } else { v * T::ZERO }),
            Unary::Square => map(x, y, |v| v * v),
            Unary::Sqrt => map(x, y, |v| v.sqrt()),
            Unary::Rsqrt => map(x, y, |v| T::ONE / v.sqrt()),
            Unary::Reciprocal => map(x, y, |v| T::ONE / v),
            Unary::Exp => map(x, y, |v| v.exp()),
            Unary::ExpM1 => map(x, y, |v| v.exp_m1()),
            Unary::Log => map(x, y, |v| v.ln()),
            Unary::Log1p => map(x, y, |v| v.ln_1p()),
            Unary::Sin => map(x, y, |v| v.sin()),
            Unary::Cos => map(x, y, |v| v.cos()),
            Unary::Tanh => map(x, y, |v| v.tanh()),
            Unary::Sigmoid => map(x, y, |v| v.sigmoid()),
            Unary::Softplus => map(x, y, softplus),
            Unary::Erf => map(x, y, |v| v.erf()),
            Unary::Relu => map(x, y, |v| v.maximum(T::ZERO)),
            Unary::Floor => map(x, y, |v| v.floor()),
            Unary::Ceil => map(x, y, |v| v.ceil()),
            Unary::Round => map(x, y, |v| v.round_even()),
            // Rare: through the definition.
            _ => map(x, y, |v| T::from_f64(f.eval(v.to_f64()))),
        }
    }

    fn binary_float[T: Float](f: Binary, a: &[T], b: &[T], y: &mut [T]) {
        match f {
            Binary::Add => map2(a, b, y, |a, b| a + b),
            Binary::Sub => map2(a, b, y, |a, b| a - b),
            Binary::Mul => map2(a, b, y, |a, b| a * b),
            Binary::Div => map2(a, b, y, |a, b| a / b),
            Binary::FloorDiv => map2(a, b, y, |a, b| (a / b).floor()),
            Binary::Rem => map2(a, b, y, floor_rem),
            Binary::Pow => map2(a, b, y, |a, b| a.powf(b)),
            Binary::Max => map2(a, b, y, |a, b| a.maximum(b)),
            Binary::Min => map2(a, b, y, |a, b| a.minimum(b)),
            _ => map2(a, b, y, |a, b| T::from_f64(f.eval(a.to_f64(), b.to_f64(), DType::F64))),
        }
    }

    fn compare[T: Comparable](f: Binary, a: &[T], b: &[T], y: &mut [u8]) {
        match f {
            Binary::Eq => map2(a, b, y, |a, b| (a == b) as u8),
            Binary::Ne => map2(a, b, y, |a, b| (a != b) as u8),
            Binary::Lt => map2(a, b, y, |a, b| (a < b) as u8),
            Binary::Le => map2(a, b, y, |a, b| (a <= b) as u8),
            Binary::Gt => map2(a, b, y, |a, b| (a > b) as u8),
            _ => map2(a, b, y, |a, b| (a >= b) as u8),
        }
    }

    fn binary_integer[T: Integer](f: Binary, a: &[T], b: &[T], y: &mut [T]) {
        match f {
            Binary::Add => map2(a, b, y, |a, b| a.add(b)),
            Binary::Sub => map2(a, b, y, |a, b| a.sub(b)),
            Binary::Mul => map2(a, b, y, |a, b| a.mul(b)),
            Binary::Div => map2(a, b, y, |a, b| a.div(b)),
            Binary::FloorDiv => map2(a, b, y, |a, b| a.floor_div(b)),
            Binary::Rem => map2(a, b, y, |a, b| a.rem(b)),
            Binary::Pow => map2(a, b, y, |a, b| a.pow(b)),
            Binary::Max => map2(a, b, y, |a, b| if a > b { a } else { b }),
            Binary::Min => map2(a, b, y, |a, b| if a < b { a } else { b }),
            Binary::And => map2(a, b, y, |a, b| a.and(b)),
            Binary::Or => map2(a, b, y, |a, b| a.or(b)),
            _ => map2(a, b, y, |a, b| a.xor(b)),
        }
    }

    fn select_words[T: Copy](c: &[u8], a: &[T], b: &[T], y: &mut [T]) {
        for (((y, &c), &a), &b) in y.iter_mut().zip(c).zip(a).zip(b) {
            *y = if c != 0 { a } else { b };
        }
    }

    fn f32_to_f64(x: &[f32], y: &mut [f64]) {
        map(x, y, |v| v as f64);
    }

    fn f64_to_f32(x: &[f64], y: &mut [f32]) {
        map(x, y, |v| v as f32);
    }

    fn bool_to_f32(x: &[u8], y: &mut [f32]) {
        map(x, y, |v| v as f32);
    }

    fn i32_to_f32(x: &[i32], y: &mut [f32]) {
        map(x, y, |v| v as f32);
    }
}

/// A type that comparisons exist for.
trait Comparable: Copy + PartialOrd {}
impl Comparable for f32 {}
impl Comparable for f64 {}
impl Comparable for i32 {}
impl Comparable for i64 {}
impl Comparable for u8 {}
impl Comparable for i8 {}
impl Comparable for i16 {}
impl Comparable for u16 {}
impl Comparable for u32 {}

/// Wrapping integer arithmetic with defined results for division by zero.
trait Integer: Comparable {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    fn floor_div(self, b: Self) -> Self;
    fn rem(self, b: Self) -> Self;
    fn pow(self, b: Self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
}

macro_rules! integer {
    ($($ty:ty),*) => {$(
        #[allow(unused_comparisons)]
        impl Integer for $ty {
            #[inline(always)]
            fn add(self, b: $ty) -> $ty { self.wrapping_add(b) }
            #[inline(always)]
            fn sub(self, b: $ty) -> $ty { self.wrapping_sub(b) }
            #[inline(always)]
            fn mul(self, b: $ty) -> $ty { self.wrapping_mul(b) }
            #[inline(always)]
            fn div(self, b: $ty) -> $ty { if b == 0 { 0 } else { self.wrapping_div(b) } }
            #[inline(always)]
            fn floor_div(self, b: $ty) -> $ty {
                if b == 0 { return 0; }
                let (q, r) = (self.wrapping_div(b), self.wrapping_rem(b));
                if r != 0 && ((r < 0) != (b < 0)) { q.wrapping_sub(1) } else { q }
            }
            #[inline(always)]
            fn rem(self, b: $ty) -> $ty {
                if b == 0 { return 0; }
                let r = self.wrapping_rem(b);
                if r != 0 && ((r < 0) != (b < 0)) { r.wrapping_add(b) } else { r }
            }
            #[inline(always)]
            fn pow(self, b: $ty) -> $ty {
                if b < 0 { return if self == 1 { 1 } else { 0 }; }
                self.wrapping_pow(b as u32)
            }
            #[inline(always)]
            fn and(self, b: $ty) -> $ty { self & b }
            #[inline(always)]
            fn or(self, b: $ty) -> $ty { self | b }
            #[inline(always)]
            fn xor(self, b: $ty) -> $ty { self ^ b }
        }
    )*};
}

integer!(i32, i64, u8, i8, i16, u16, u32);

/// `y = f(x)` for `len` elements of type `dtype`.
///
/// # Safety
/// Both point to `len` elements as registers hold them (narrow floats as f32), and do not overlap.
pub unsafe fn unary(f: Unary, dtype: DType, x: *const u8, y: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if f.is_test() {
            let y = slice_mut::<u8>(y, len);
            let test = |v: f64| f.eval(v) as u8;
            return match dtype {
                DType::F64 => map(slice::<f64>(x, len), y, test),
                DType::I32 => map(slice::<i32>(x, len), y, |v| test(v as f64)),
                DType::I64 => map(slice::<i64>(x, len), y, |v| test(v as f64)),
                DType::U8 | DType::Bool => map(slice::<u8>(x, len), y, |v| test(v as f64)),
                DType::I8 => map(slice::<i8>(x, len), y, |v| test(v as f64)),
                DType::I16 => map(slice::<i16>(x, len), y, |v| test(v as f64)),
                DType::U16 => map(slice::<u16>(x, len), y, |v| test(v as f64)),
                DType::U32 => map(slice::<u32>(x, len), y, |v| test(v as f64)),
                _ => map(slice::<f32>(x, len), y, |v| test(v as f64)),
            };
        }
        match dtype {
            DType::F64 => unary_float(f, slice::<f64>(x, len), slice_mut(y, len)),
            DType::I32 => map(slice::<i32>(x, len), slice_mut(y, len), |v| f.eval(v as f64) as i32),
            DType::I64 => map(slice::<i64>(x, len), slice_mut(y, len), |v| match f {
                Unary::Neg => v.wrapping_neg(),
                Unary::Abs => v.wrapping_abs(),
                Unary::Sign => v.signum(),
                Unary::Square => v.wrapping_mul(v),
                Unary::Relu => v.max(0),
                _ => v,
            }),
            DType::U8 | DType::Bool => map(slice::<u8>(x, len), slice_mut(y, len), |v| f.eval(v as f64) as u8),
            DType::I8 => map(slice::<i8>(x, len), slice_mut(y, len), |v| f.eval(v as f64) as i8),
            DType::I16 => map(slice::<i16>(x, len), slice_mut(y, len), |v| f.eval(v as f64) as i16),
            DType::U16 => map(slice::<u16>(x, len), slice_mut(y, len), |v| f.eval(v as f64) as u16),
            DType::U32 => map(slice::<u32>(x, len), slice_mut(y, len), |v| f.eval(v as f64) as u32),
            _ => unary_float(f, slice::<f32>(x, len), slice_mut(y, len)),
        }
    }
}

/// `y = f(a, b)` for `len` elements of type `dtype`.
///
/// # Safety
/// As [`unary`].
pub unsafe fn binary(f: Binary, dtype: DType, a: *const u8, b: *const u8, y: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if f.is_comparison() {
            let y = slice_mut(y, len);
            return match dtype {
                DType::F64 => compare::<f64>(f, slice(a, len), slice(b, len), y),
                DType::I32 => compare::<i32>(f, slice(a, len), slice(b, len), y),
                DType::I64 => compare::<i64>(f, slice(a, len), slice(b, len), y),
                DType::U8 | DType::Bool => compare::<u8>(f, slice(a, len), slice(b, len), y),
                DType::I8 => compare::<i8>(f, slice(a, len), slice(b, len), y),
                DType::I16 => compare::<i16>(f, slice(a, len), slice(b, len), y),
                DType::U16 => compare::<u16>(f, slice(a, len), slice(b, len), y),
                DType::U32 => compare::<u32>(f, slice(a, len), slice(b, len), y),
                _ => compare::<f32>(f, slice(a, len), slice(b, len), y),
            };
        }
        match dtype {
            DType::F64 => binary_float::<f64>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::I32 => binary_integer::<i32>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::I64 => binary_integer::<i64>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::U8 | DType::Bool => binary_integer::<u8>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::I8 => binary_integer::<i8>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::I16 => binary_integer::<i16>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::U16 => binary_integer::<u16>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            DType::U32 => binary_integer::<u32>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
            _ => binary_float::<f32>(f, slice(a, len), slice(b, len), slice_mut(y, len)),
        }
    }
}

/// `y = c ? a : b` for `len` elements of type `dtype`.
///
/// # Safety
/// As [`unary`]; `c` points to bools.
pub unsafe fn select(dtype: DType, c: *const u8, a: *const u8, b: *const u8, y: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match register_size(dtype) {
            8 => select_words::<u64>(slice(c, len), slice(a, len), slice(b, len), slice_mut(y, len)),
            4 => select_words::<u32>(slice(c, len), slice(a, len), slice(b, len), slice_mut(y, len)),
            2 => select_words::<u16>(slice(c, len), slice(a, len), slice(b, len), slice_mut(y, len)),
            _ => select_words::<u8>(slice(c, len), slice(a, len), slice(b, len), slice_mut(y, len)),
        }
    }
}

/// `y = x` converted from one type to another.
///
/// # Safety
/// As [`unary`].
pub unsafe fn cast(from: DType, to: DType, x: *const u8, y: *mut u8, len: usize) {
    // SAFETY: the caller's promise; registers hold narrow floats as f32.
    unsafe {
        match (register(from), register(to)) {
            (DType::F32, DType::F32) | (DType::Bool, DType::U8) => {
                std::ptr::copy_nonoverlapping(x, y, len * register_size(to))
            }
            (DType::F32, DType::F64) => f32_to_f64(slice(x, len), slice_mut(y, len)),
            (DType::F64, DType::F32) => f64_to_f32(slice(x, len), slice_mut(y, len)),
            (DType::Bool | DType::U8, DType::F32) => bool_to_f32(slice(x, len), slice_mut(y, len)),
            (DType::I32, DType::F32) => i32_to_f32(slice(x, len), slice_mut(y, len)),
            (DType::I32, DType::I64) => map(slice::<i32>(x, len), slice_mut(y, len), |v| v as i64),
            (DType::I64, DType::I32) => map(slice::<i64>(x, len), slice_mut(y, len), |v| v as i32),
            (a, b) => match a {
                DType::F32 => cast_from::<f32>(b, x, y, len),
                DType::F64 => cast_from::<f64>(b, x, y, len),
                DType::I32 => cast_from::<i32>(b, x, y, len),
                DType::I64 => cast_from::<i64>(b, x, y, len),
                DType::I8 => cast_from::<i8>(b, x, y, len),
                DType::I16 => cast_from::<i16>(b, x, y, len),
                DType::U16 => cast_from::<u16>(b, x, y, len),
                DType::U32 => cast_from::<u32>(b, x, y, len),
                _ => cast_from::<u8>(b, x, y, len),
            },
        }
    }
}

unsafe fn cast_from<A: Element>(to: DType, x: *const u8, y: *mut u8, len: usize) {
    // SAFETY: as `cast`.
    unsafe {
        let x = slice::<A>(x, len);
        match to {
            DType::F32 => map(x, slice_mut(y, len), |v| v.to_f64() as f32),
            DType::F64 => map(x, slice_mut(y, len), |v| v.to_f64()),
            DType::I32 => map(x, slice_mut(y, len), |v| v.to_f64() as i32),
            DType::I64 => map(x, slice_mut(y, len), |v| v.to_f64() as i64),
            DType::Bool => map(x, slice_mut(y, len), |v| (v.to_f64() != 0.0) as u8),
            DType::I8 => map(x, slice_mut(y, len), |v| v.to_f64() as i8),
            DType::I16 => map(x, slice_mut(y, len), |v| v.to_f64() as i16),
            DType::U16 => map(x, slice_mut(y, len), |v| v.to_f64() as u16),
            DType::U32 => map(x, slice_mut(y, len), |v| v.to_f64() as u32),
            _ => map(x, slice_mut(y, len), |v| v.to_f64() as u8),
        }
    }
}

/// Fills a block with one number.
///
/// # Safety
/// `y` points to `len` elements as registers hold them.
pub unsafe fn fill(dtype: DType, value: f64, y: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match register(dtype) {
            DType::F32 => slice_mut::<f32>(y, len).fill(value as f32),
            DType::F64 => slice_mut::<f64>(y, len).fill(value),
            DType::I32 => slice_mut::<i32>(y, len).fill(value as i32),
            DType::I64 => slice_mut::<i64>(y, len).fill(value as i64),
            DType::Bool => slice_mut::<u8>(y, len).fill((value != 0.0) as u8),
            DType::I8 => slice_mut::<i8>(y, len).fill(value as i8),
            DType::I16 => slice_mut::<i16>(y, len).fill(value as i16),
            DType::U16 => slice_mut::<u16>(y, len).fill(value as u16),
            DType::U32 => slice_mut::<u32>(y, len).fill(value as u32),
            _ => slice_mut::<u8>(y, len).fill(value as u8),
        }
    }
}

/// Fills a block with the index along one axis.
///
/// # Safety
/// As [`fill`].
pub unsafe fn index(dtype: DType, inner: usize, size: usize, y: *mut u8, start: usize, len: usize) {
    let at = |i: usize| (start + i) / inner % size;
    // SAFETY: the caller's promise.
    unsafe {
        match register(dtype) {
            DType::F32 => slice_mut::<f32>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as f32),
            DType::F64 => slice_mut::<f64>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as f64),
            DType::I32 => slice_mut::<i32>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as i32),
            DType::I64 => slice_mut::<i64>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as i64),
            DType::Bool => slice_mut::<u8>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = (at(i) != 0) as u8),
            DType::I8 => slice_mut::<i8>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as i8),
            DType::I16 => slice_mut::<i16>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as i16),
            DType::U16 => slice_mut::<u16>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as u16),
            DType::U32 => slice_mut::<u32>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as u32),
            _ => slice_mut::<u8>(y, len).iter_mut().enumerate().for_each(|(i, y)| *y = at(i) as u8),
        }
    }
}

/// The type that registers hold a value of this type as.
fn register(dtype: DType) -> DType {
    if is_narrow(dtype) { DType::F32 } else { dtype }
}

fn register_size(dtype: DType) -> usize {
    register(dtype).size()
}

/// The f64 `value` as a value of type `dtype` would hold it.
pub fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        DType::F8E4M3 => F8E4M3::from_f64(value).to_f64(),
        DType::F8E5M2 => F8E5M2::from_f64(value).to_f64(),
        DType::F32 => value as f32 as f64,
        DType::F64 => value,
        DType::I32 => value as i32 as f64,
        DType::I64 => value as i64 as f64,
        DType::U8 => value as u8 as f64,
        DType::I8 => value as i8 as f64,
        DType::I16 => value as i16 as f64,
        DType::U16 => value as u16 as f64,
        DType::U32 => value as u32 as f64,
        DType::Bool => (value != 0.0) as u8 as f64,
    }
}
