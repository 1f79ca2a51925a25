//! Thrift's compact form, as Parquet's metadata is written in it.
//!
//! The library that decodes Parquet reads a field that it knows as what the format says it is, whatever the bytes say, and takes the
//! elements of a list of truths for nothing. So a check that goes by the bytes alone can be led past a list of billions that the
//! library then goes through. This reader knows the format's types too, and refuses what does not agree with them.

/// The fields of a struct by their numbers, with what they hold; others may be there, too, and are passed over.
pub(super) type Fields = &'static [(i64, Holds)];

/// What a field holds.
pub(super) enum Holds {
    Truth,
    Byte,
    Whole,
    Float,
    Bytes,
    List(&'static Holds),
    Struct(Fields),
}

use Holds::{Byte, Bytes, Float, List, Struct, Truth, Whole};

const NOTHING: Holds = Struct(&[]);

const STATISTICS: Holds = Struct(&[
    (1, Bytes),
    (2, Bytes),
    (3, Whole),
    (4, Whole),
    (5, Bytes),
    (6, Bytes),
    (7, Truth),
    (8, Truth),
    (9, Whole),
]);

/// What stands in front of every page.
pub(super) const PAGE_HEADER: Fields = &[
    (1, Whole),
    (2, Whole),
    (3, Whole),
    (4, Whole),
    (5, Struct(&[(1, Whole), (2, Whole), (3, Whole), (4, Whole), (5, STATISTICS)])),
    (6, NOTHING),
    (7, Struct(&[(1, Whole), (2, Whole), (3, Truth)])),
    (8, Struct(&[(1, Whole), (2, Whole), (3, Whole), (4, Whole), (5, Whole), (6, Whole), (7, Truth), (8, STATISTICS)])),
];

const TIME: Holds = Struct(&[(1, Truth), (2, Struct(&[(1, NOTHING), (2, NOTHING), (3, NOTHING)]))]);

const LOGICAL_TYPE: Holds = Struct(&[
    (1, NOTHING),
    (2, NOTHING),
    (3, NOTHING),
    (4, NOTHING),
    (5, Struct(&[(1, Whole), (2, Whole)])),
    (6, NOTHING),
    (7, TIME),
    (8, TIME),
    (10, Struct(&[(1, Byte), (2, Truth)])),
    (11, NOTHING),
    (12, NOTHING),
    (13, NOTHING),
    (14, NOTHING),
    (15, NOTHING),
    (16, Struct(&[(1, Byte)])),
    (17, Struct(&[(1, Bytes)])),
    (18, Struct(&[(1, Bytes), (2, Whole)])),
]);

const SCHEMA_ELEMENT: Holds = Struct(&[
    (1, Whole),
    (2, Whole),
    (3, Whole),
    (4, Bytes),
    (5, Whole),
    (6, Whole),
    (7, Whole),
    (8, Whole),
    (9, Whole),
    (10, LOGICAL_TYPE),
]);

const KEY_VALUE: Holds = Struct(&[(1, Bytes), (2, Bytes)]);

const BOX: Holds =
    Struct(&[(1, Float), (2, Float), (3, Float), (4, Float), (5, Float), (6, Float), (7, Float), (8, Float)]);

const COLUMN_METADATA: Holds = Struct(&[
    (1, Whole),
    (2, List(&Whole)),
    (3, List(&Bytes)),
    (4, Whole),
    (5, Whole),
    (6, Whole),
    (7, Whole),
    (8, List(&KEY_VALUE)),
    (9, Whole),
    (10, Whole),
    (11, Whole),
    (12, STATISTICS),
    (13, List(&Struct(&[(1, Whole), (2, Whole), (3, Whole)]))),
    (14, Whole),
    (15, Whole),
    (16, Struct(&[(1, Whole), (2, List(&Whole)), (3, List(&Whole))])),
    (17, Struct(&[(1, BOX), (2, List(&Whole))])),
]);

const COLUMN_CHUNK: Holds = Struct(&[
    (1, Bytes),
    (2, Whole),
    (3, COLUMN_METADATA),
    (4, Whole),
    (5, Whole),
    (6, Whole),
    (7, Whole),
    (8, Struct(&[(1, NOTHING), (2, Struct(&[(1, List(&Bytes)), (2, Bytes)]))])),
    (9, Bytes),
]);

const ROW_GROUP: Holds = Struct(&[
    (1, List(&COLUMN_CHUNK)),
    (2, Whole),
    (3, Whole),
    (4, List(&Struct(&[(1, Whole), (2, Truth), (3, Truth)]))),
    (5, Whole),
    (6, Whole),
    (7, Whole),
]);

const CIPHER: Holds = Struct(&[(1, Bytes), (2, Bytes), (3, Truth)]);

/// What stands at the end of every file.
pub(super) const FOOTER: Fields = &[
    (1, Whole),
    (2, List(&SCHEMA_ELEMENT)),
    (3, Whole),
    (4, List(&ROW_GROUP)),
    (5, List(&KEY_VALUE)),
    (6, Bytes),
    (7, List(&Struct(&[(1, NOTHING), (2, NOTHING)]))),
    (8, Struct(&[(1, CIPHER), (2, CIPHER)])),
    (9, Bytes),
];

impl Holds {
    /// Whether bytes that call themselves this kind can be it.
    fn is(&self, kind: u8) -> bool {
        match self {
            Truth => matches!(kind, 1 | 2),
            Byte => kind == 3,
            // Of every width in the same form.
            Whole => matches!(kind, 4..=6),
            Float => kind == 7,
            Bytes => kind == 8,
            List(_) => kind == 9,
            Struct(_) => kind == 12,
        }
    }
}

/// Whether bytes begin with a struct of these fields, whose lists are no longer than the bytes that are there for them.
pub(super) fn is_thrift(bytes: &[u8], fields: Fields) -> bool {
    Thrift(bytes).fields(fields, 0, 0, &mut |_, _, _| {}).is_some()
}

pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= ((byte & 0x7f) as u64) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// As deep as structs and lists in a file's metadata go, and some more.
const DEEPEST: u32 = 16;

/// The bytes that have not been read.
pub(super) struct Thrift<'a>(pub(super) &'a [u8]);

impl Thrift<'_> {
    /// Reads a struct: `each` gets the number of the field that it is in, and the number and value of every whole number and truth.
    pub(super) fn fields(
        &mut self,
        known: Fields,
        depth: u32,
        parent: i64,
        each: &mut dyn FnMut(i64, i64, i64),
    ) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        let mut id = 0i64;
        loop {
            let head = *self.0.split_off_first()?;
            if head == 0 {
                return Some(());
            }
            let zigzag = |v: u64| (v >> 1) as i64 ^ -((v & 1) as i64);
            id = match head >> 4 {
                0 => zigzag(varint(&mut self.0)?),
                delta => id + delta as i64,
            };
            let (id, kind) = (i16::try_from(id).ok()? as i64, head & 15);
            let holds = known.iter().find(|(number, _)| *number == id).map(|(_, holds)| holds);
            if holds.is_some_and(|holds| !holds.is(kind)) {
                return None;
            }
            match kind {
                1 | 2 => each(parent, id, (kind == 1) as i64),
                4..=6 => each(parent, id, zigzag(varint(&mut self.0)?)),
                12 if depth == 0 => self.fields(Thrift::inner(holds), 1, id, each)?,
                _ => self.pass(kind, holds, depth)?,
            }
        }
    }

    fn inner(holds: Option<&Holds>) -> Fields {
        if let Some(Struct(fields)) = holds { fields } else { &[] }
    }

    /// Passes over a value.
    fn pass(&mut self, kind: u8, holds: Option<&Holds>, depth: u32) -> Option<()> {
        match kind {
            3 => drop(self.0.split_off_first()?),
            4..=6 => drop(varint(&mut self.0)?),
            7 => drop(self.0.split_off(..8)?),
            8 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                self.0.split_off(..length)?;
            }
            9 | 10 if depth <= DEEPEST => {
                let head = *self.0.split_off_first()?;
                let n = if head >> 4 == 15 { varint(&mut self.0)? } else { (head >> 4) as u64 };
                let element = if let Some(List(element)) = holds { Some(*element) } else { None };
                if n > 0 && element.is_some_and(|element| !element.is(head & 15)) {
                    return None;
                }
                for _ in 0..n {
                    self.pass(head & 15, element, depth + 1)?;
                }
            }
            12 => self.fields(Thrift::inner(holds), depth + 1, -1, &mut |_, _, _| {})?,
            // Truths have no bytes of their own, and lists of them have no place here.
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_format() {
        let check = |bytes: &[u8], expected: bool| assert_eq!(is_thrift(bytes, FOOTER), expected, "{bytes:x?}");
        check(&[0], true);
        check(&[], false);
        // Field 1 is a whole number of any width, and no truth.
        check(&[0x15, 2, 0], true);
        check(&[0x16, 2, 0], true);
        check(&[0x11, 0], false);
        // Field 20 is not known, and may hold whatever has an end.
        check(&[0x05, 40, 2, 0], true);
        check(&[0x09, 40, 0x28, 1, b'a', 0, 0], true);
        check(&[0x09, 40, 0xf8, 0xff, 0xff, 0xff, 0x7f, 0, 0], false);
        check(&[0x09, 40, 0xf1, 0xff, 0xff, 0xff, 0x7f, 0, 0], false);
        // A number that is field 1 only where numbers of fields have 16 bits.
        check(&[0x01, 0x82, 0x80, 8, 0], false);
        // A schema of two elements without names, and of two numbers.
        check(&[0x29, 0x2c, 0, 0, 0], true);
        check(&[0x29, 0x25, 0, 0, 0], false);
        // A column's path, inside a row group.
        check(&[0x49, 0x1c, 0x19, 0x1c, 0x3c, 0x39, 0x18, 1, b'a', 0, 0, 0, 0], true);
        check(&[0x49, 0x1c, 0x19, 0x1c, 0x3c, 0x31, 0x18, 1, b'a', 0, 0, 0, 0], false);
    }
}
