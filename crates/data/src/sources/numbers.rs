//! Numbers as files hold them: other widths, other byte orders, fixed-width strings.

use crate::least::{list_bytes, string_bytes};
use crate::{Error, Kind};
use plimsoll_tensor::{DType, Shape};

/// How a file stores a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// Bytes of this width, padded with zeros.
    Fixed(usize),
    /// So many characters of 4 bytes, padded with zeros.
    Wide(usize),
}

/// Type and byte order of the values in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) raw: Raw,
    pub(crate) big_endian: bool,
}

impl Encoding {
    /// Bytes per value in the file.
    pub(crate) fn size(self) -> usize {
        match self.raw {
            Raw::I8 | Raw::U8 | Raw::Bool => 1,
            Raw::F16 | Raw::I16 | Raw::U16 => 2,
            Raw::F32 | Raw::I32 | Raw::U32 => 4,
            Raw::F64 | Raw::I64 | Raw::U64 => 8,
            Raw::Fixed(n) => n,
            Raw::Wide(n) => n.saturating_mul(4),
        }
    }

    /// The most bytes that a row takes in memory; `None` when they cannot be counted.
    pub(crate) fn largest(self, shape: &Shape) -> Option<u64> {
        let values = shape.elements() as u64;
        match self.kind() {
            Kind::Number(dtype) => values.checked_mul(dtype.size() as u64)?.checked_next_multiple_of(8),
            Kind::Bytes => values.checked_mul(string_bytes(self.size()) as u64),
        }
    }

    /// What it takes to turn the bytes of so many rows into values.
    pub(crate) fn raw_bytes(self, shape: &Shape, rows: usize) -> u64 {
        match self.is_plain() {
            true => 0,
            false => {
                let raw = (self.size() as u64).saturating_mul(shape.elements() as u64).saturating_mul(rows as u64);
                list_bytes(raw).saturating_add(self.strings_bytes(shape))
            }
        }
    }

    /// The strings of a row on their way, each at most twice as long as it is, as it may become by doubling.
    pub(crate) fn strings_bytes(self, shape: &Shape) -> u64 {
        match self.kind() {
            Kind::Number(_) => 0,
            Kind::Bytes => {
                let each = (self.size() as u64).saturating_mul(2).saturating_add(size_of::<Vec<u8>>() as u64);
                each.saturating_mul(shape.elements() as u64)
            }
        }
    }

    /// What the values become: the narrowest of our types that holds them all.
    pub(crate) fn kind(self) -> Kind {
        Kind::Number(match self.raw {
            Raw::F16 => DType::F16,
            Raw::F32 => DType::F32,
            Raw::F64 => DType::F64,
            Raw::I8 | Raw::I16 | Raw::U16 | Raw::I32 => DType::I32,
            Raw::I64 | Raw::U32 | Raw::U64 => DType::I64,
            Raw::U8 => DType::U8,
            Raw::Bool => DType::Bool,
            Raw::Fixed(_) | Raw::Wide(_) => return Kind::Bytes,
        })
    }

    /// Whether the bytes in the file are the bytes in memory.
    pub(crate) fn is_plain(self) -> bool {
        let swapped = self.big_endian != cfg!(target_endian = "big") && self.size() > 1;
        !swapped && matches!(self.raw, Raw::F16 | Raw::F32 | Raw::F64 | Raw::I32 | Raw::I64 | Raw::U8)
    }

    /// Converts numbers; on failure the place of the value that does not fit, and why.
    pub(crate) fn decode(self, from: &[u8], to: &mut [u8]) -> Result<(), (usize, String)> {
        fn each<const N: usize, const M: usize>(from: &[u8], to: &mut [u8], big: bool, f: impl Fn([u8; N]) -> [u8; M]) {
            for (from, to) in from.as_chunks::<N>().0.iter().zip(to.as_chunks_mut::<M>().0) {
                let mut value = *from;
                if big != cfg!(target_endian = "big") {
                    value.reverse();
                }
                *to = f(value);
            }
        }
        let big = self.big_endian;
        match self.raw {
            _ if self.is_plain() => to.copy_from_slice(from),
            Raw::U8 => to.copy_from_slice(from),
            Raw::F16 => each::<2, 2>(from, to, big, |v| v),
            Raw::F32 | Raw::I32 => each::<4, 4>(from, to, big, |v| v),
            Raw::F64 | Raw::I64 => each::<8, 8>(from, to, big, |v| v),
            Raw::I8 => each::<1, 4>(from, to, big, |v| (i8::from_ne_bytes(v) as i32).to_ne_bytes()),
            Raw::I16 => each::<2, 4>(from, to, big, |v| (i16::from_ne_bytes(v) as i32).to_ne_bytes()),
            Raw::U16 => each::<2, 4>(from, to, big, |v| (u16::from_ne_bytes(v) as i32).to_ne_bytes()),
            Raw::U32 => each::<4, 8>(from, to, big, |v| (u32::from_ne_bytes(v) as i64).to_ne_bytes()),
            Raw::Bool => each::<1, 1>(from, to, big, |v| [(v[0] != 0) as u8]),
            Raw::U64 => {
                each::<8, 8>(from, to, big, |v| v);
                let top = if cfg!(target_endian = "big") { 0 } else { 7 };
                if let Some(bad) = to.chunks(8).position(|v| v[top] >= 0x80) {
                    return Err((bad, "a number above 2^63 - 1, which i64 does not hold".into()));
                }
            }
            Raw::Fixed(_) | Raw::Wide(_) => unreachable!("strings are not numbers"),
        }
        Ok(())
    }

    /// Converts a string.
    pub(crate) fn string(self, from: &[u8], to: &mut Vec<u8>) -> Result<(), Error> {
        to.clear();
        if let Raw::Fixed(_) = self.raw {
            let end = from.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
            to.extend_from_slice(&from[..end]);
            return Ok(());
        }
        let mut buffer = [0; 4];
        let mut zeros = 0;
        for raw in from.as_chunks::<4>().0 {
            let code = if self.big_endian { u32::from_be_bytes(*raw) } else { u32::from_le_bytes(*raw) };
            if code == 0 {
                zeros += 1;
                continue;
            }
            to.extend(std::iter::repeat_n(0, std::mem::take(&mut zeros)));
            let c = char::from_u32(code).ok_or_else(|| Error::element(format!("{code:#x} is not a character")))?;
            to.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        }
        Ok(())
    }
}
