//! Element types.

use crate::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use std::fmt;
use std::str::FromStr;

/// The type of one element of a tensor.
///
/// ```
/// use plimsoll_tensor::DType;
/// assert_eq!(DType::F16.size(), 2);
/// assert_eq!("bf16".parse::<DType>().unwrap(), DType::BF16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 32-bit float, the default.
    F32,
    /// 64-bit float.
    F64,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// 8-bit float with four bits of exponent (`float8_e4m3fn`), for keeping numbers: see [`DType::is_float8`].
    F8E4M3,
    /// 8-bit float with five bits of exponent (`float8_e5m2`), likewise.
    F8E5M2,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Byte.
    U8,
    /// 8-bit signed integer.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// One byte holding 0 or 1.
    Bool,
}

impl DType {
    /// Every type, in a fixed order.
    pub const ALL: [DType; 14] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::I8,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::Bool,
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::U8 | DType::I8 | DType::Bool | DType::F8E4M3 | DType::F8E5M2 => 1,
        }
    }

    /// True for the floating-point types, the ones gradients flow through.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16) || self.is_float8()
    }

    /// True for the floats of 8 bits, which matrix products, convolutions and the like do not take.
    pub const fn is_float8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// The name used in text form and messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<DType, String> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| format!("unknown data type '{text}'"))
    }
}

/// A Rust type that can be an element of a tensor.
///
/// # Safety
/// The type is plain data: every bit pattern that the engine writes is valid, and it has no padding.
pub unsafe trait Element: Copy + Default + Send + Sync + fmt::Debug + PartialEq + 'static {
    /// The matching data type.
    const DTYPE: DType;

    /// The nearest f64.
    fn to_f64(self) -> f64;

    /// The nearest value of this type; for integers by truncation, for bool whether non-zero.
    fn from_f64(value: f64) -> Self;
}

macro_rules! element {
    ($($ty:ty, $dtype:ident, |$v:ident| $to:expr, |$x:ident| $from:expr;)*) => {$(
        // SAFETY: primitive numeric types are plain data.
        unsafe impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn to_f64(self) -> f64 { let $v = self; $to }
            #[inline(always)]
            fn from_f64($x: f64) -> Self { $from }
        }
    )*};
}

element! {
    f32, F32, |v| v as f64, |x| x as f32;
    f64, F64, |v| v, |x| x;
    f16, F16, |v| v.to_f64(), |x| f16::from_f64(x);
    bf16, BF16, |v| v.to_f64(), |x| bf16::from_f64(x);
    F8E4M3, F8E4M3, |v| v.to_f64(), |x| F8E4M3::from_f64(x);
    F8E5M2, F8E5M2, |v| v.to_f64(), |x| F8E5M2::from_f64(x);
    i32, I32, |v| v as f64, |x| x as i32;
    i64, I64, |v| v as f64, |x| x as i64;
    u8, U8, |v| v as f64, |x| x as u8;
    i8, I8, |v| v as f64, |x| x as i8;
    i16, I16, |v| v as f64, |x| x as i16;
    u16, U16, |v| v as f64, |x| x as u16;
    u32, U32, |v| v as f64, |x| x as u32;
    bool, Bool, |v| v as u8 as f64, |x| x != 0.0;
}
