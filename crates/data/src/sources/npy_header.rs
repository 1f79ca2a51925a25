//! The header of a `.npy` array: a Python dictionary of three known keys, read as that and nothing else.

use super::numbers::{Encoding, Raw};
use plimsoll_tensor::MAX_RANK;

/// What a header says.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    pub(super) encoding: Encoding,
    /// The type as it is written.
    pub(super) descr: String,
    pub(super) shape: Vec<u64>,
    /// The bytes of the header.
    pub(super) bytes: usize,
}

/// No header is longer: `numpy` itself writes less than 64 KiB for arrays without named fields.
pub(super) const LONGEST: usize = 64 << 10;

impl Header {
    /// Reads the header at the beginning of an array's bytes.
    pub(super) fn read(head: &[u8]) -> Result<Header, String> {
        let short = || format!("the file ends inside the header, after {} bytes", head.len());
        if !head.starts_with(b"\x93NUMPY") {
            let found = String::from_utf8_lossy(&head[..head.len().min(6)]).into_owned();
            return Err(format!("expected the magic bytes of a .npy file, found {found:?}"));
        }
        // Where the text begins, and how long it says that it is.
        let (start, length) = match head.get(6).ok_or_else(short)? {
            1 => (10, head.get(8..10).map(|b| u16::from_le_bytes([b[0], b[1]]) as usize)),
            2 | 3 => (12, head.get(8..12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)),
            version => return Err(format!("version {version} of the format; 1 to 3 are known")),
        };
        let bytes = length.ok_or_else(short)?.saturating_add(start);
        if bytes > LONGEST {
            return Err(format!("the header claims {bytes} bytes; no real one has more than {LONGEST}"));
        }
        let text = head.get(start..bytes).ok_or_else(short)?;
        Parser { text, at: 0 }.header(bytes)
    }

    /// How many rows there are, and the axes of each.
    pub(super) fn rows(&self) -> Result<(u64, Vec<usize>), String> {
        let axes: Vec<usize> =
            self.shape.iter().map(|d| usize::try_from(*d).map_err(|e| e.to_string())).collect::<Result<_, _>>()?;
        let Some((rows, rest)) = axes.split_first() else {
            return Err("holds a scalar; the first axis must count the rows".into());
        };
        Ok((*rows as u64, rest.to_vec()))
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn header(mut self, bytes: usize) -> Result<Header, String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.take(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            match key {
                b"descr" => descr = Some(self.descr()?),
                b"fortran_order" => fortran = Some(self.truth()?),
                b"shape" => shape = Some(self.tuple()?),
                other => return Err(format!("the header has an unknown key '{}'", String::from_utf8_lossy(other))),
            }
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.blank();
        if self.at < self.text.len() {
            return Err(self.wrong("the end of the header"));
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err("the header cannot be parsed: 'descr', 'fortran_order' and 'shape' must all be there".into());
        };
        if shape.len() > MAX_RANK {
            return Err(format!("has {} axes; at most {MAX_RANK} are supported", shape.len()));
        }
        if fortran && shape.len() > 1 && shape.iter().filter(|d| **d > 1).count() > 1 {
            return Err("is in Fortran order, so that its rows are scattered; save np.ascontiguousarray(x)".into());
        }
        Ok(Header { encoding: encoding(&descr)?, descr, shape, bytes })
    }

    fn blank(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// Takes a character if it is the next one.
    fn take(&mut self, wanted: u8) -> bool {
        self.blank();
        let found = self.text.get(self.at) == Some(&wanted);
        self.at += found as usize;
        found
    }

    fn expect(&mut self, wanted: u8) -> Result<(), String> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(self.wrong(&format!("'{}'", wanted as char))),
        }
    }

    fn wrong(&self, expected: &str) -> String {
        let rest = &self.text[self.at..];
        let found = String::from_utf8_lossy(&rest[..rest.len().min(20)]).into_owned();
        format!("the header cannot be parsed: expected {expected} at byte {} of it, found {found:?}", self.at)
    }

    /// The bytes up to where `end` says true.
    fn until(&mut self, end: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let n = rest.iter().position(|b| end(*b)).unwrap_or(rest.len());
        self.at += n;
        &rest[..n]
    }

    fn string(&mut self) -> Result<&'a [u8], String> {
        let quote = if self.take(b'"') { b'"' } else { b'\'' };
        if quote == b'\'' {
            self.expect(quote)?;
        }
        let string = self.until(|b| b == quote);
        self.expect(quote)?;
        Ok(string)
    }

    fn descr(&mut self) -> Result<String, String> {
        self.blank();
        if matches!(self.text.get(self.at), Some(b'[' | b'(')) {
            let rest = String::from_utf8_lossy(self.until(|b| matches!(b, b']' | b'\n'))).into_owned();
            let rest: String = rest.chars().take(60).collect();
            return Err(format!("arrays of {rest}...] are not supported; only plain numbers and strings are"));
        }
        self.string().map(|descr| String::from_utf8_lossy(descr).into_owned())
    }

    fn truth(&mut self) -> Result<bool, String> {
        self.blank();
        let start = self.at;
        match self.until(|b| !b.is_ascii_alphabetic()) {
            b"True" => Ok(true),
            b"False" => Ok(false),
            _ => {
                self.at = start;
                Err(self.wrong("True or False"))
            }
        }
    }

    fn tuple(&mut self) -> Result<Vec<u64>, String> {
        self.expect(b'(')?;
        let mut numbers = Vec::new();
        while !self.take(b')') {
            self.blank();
            let start = self.at;
            let digits = std::str::from_utf8(self.until(|b| !b.is_ascii_digit())).unwrap_or_default();
            let Ok(number) = digits.parse() else {
                self.at = start;
                return Err(self.wrong("a size"));
            };
            numbers.push(number);
            // As Python 2 wrote long numbers.
            self.take(b'L');
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(numbers)
    }
}

/// What a type such as `<f4` stands for.
fn encoding(descr: &str) -> Result<Encoding, String> {
    let unsupported = || format!("type {} is not supported", descr.chars().take(40).collect::<String>());
    let (order, rest) = descr.split_at_checked(1).ok_or_else(unsupported)?;
    let (kind, size) = rest.split_at_checked(1).ok_or_else(unsupported)?;
    if kind == "O" {
        return Err("arrays of Python objects are programs in disguise and never loaded".into());
    }
    let big_endian = match order {
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        "<" | "|" => false,
        _ => return Err(unsupported()),
    };
    let size: u64 = size.parse().map_err(|_| unsupported())?;
    let raw = match (kind, size) {
        ("f", 2) => Raw::F16,
        ("f", 4) => Raw::F32,
        ("f", 8) => Raw::F64,
        ("i", 1) => Raw::I8,
        ("i", 2) => Raw::I16,
        ("i", 4) => Raw::I32,
        ("i", 8) => Raw::I64,
        ("u", 1) => Raw::U8,
        ("u", 2) => Raw::U16,
        ("u", 4) => Raw::U32,
        ("u", 8) => Raw::U64,
        ("b", 1) => Raw::Bool,
        ("S" | "a", n @ 0..=0xffff_ffff) => Raw::Fixed(n as usize),
        ("U", n @ 0..=0xffff_ffff) => Raw::Wide(n as usize),
        _ => return Err(unsupported()),
    };
    Ok(Encoding { raw, big_endian })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Header, String> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        Header::read(&bytes)
    }

    #[test]
    fn what_numpy_and_others_write() {
        let header = read("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n").unwrap();
        assert_eq!((header.shape, header.encoding.raw, header.bytes), (vec![3, 4], Raw::F32, 73));
        let header = read("{\"shape\":(3L,),\"fortran_order\":True,\"descr\":\">u2\"}").unwrap();
        assert_eq!((header.shape, header.encoding), (vec![3], Encoding { raw: Raw::U16, big_endian: true }));
        assert_eq!(read("{'descr':'|S7','fortran_order':False,'shape':()}").unwrap().shape, []);
    }

    #[test]
    fn what_is_no_header_is_told_from_one() {
        let shape = |shape: &str| read(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"));
        for (shape, text) in [(shape("(-1,)"), "expected a size at byte 51"), (shape("(1 2)"), "expected ')'")] {
            assert!(shape.as_ref().unwrap_err().contains(text), "{shape:?}");
        }
        let all = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
        for n in 0..all.len() {
            assert!(read(&all[..n]).is_err(), "{n}");
        }
        assert!(read(&format!("{all}x")).unwrap_err().contains("the end of the header"));
        assert!(read("{'descr': '<f4', 'more': 1}").unwrap_err().contains("unknown key 'more'"));
        assert!(read("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (3,)}").unwrap_err().contains("<M8[ns]"));
        assert!(read("{'descr': 'é', 'fortran_order': False, 'shape': (3,)}").unwrap_err().contains("type é"));
        // However deep, at once.
        assert!(read(&"(".repeat(60_000)).unwrap_err().contains("expected '{'"));
        assert!(shape(&"(".repeat(60_000)).is_err());
    }
}
