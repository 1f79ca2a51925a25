//! What it takes to decode the columns of a Parquet row group: read off the headers of their pages, before a page is unpacked.

use super::columnar::guarded;
use super::files::Readable;
use super::thrift::{PAGE_HEADER, Thrift, varint};
use crate::Error;
use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page as Unpacked, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use plimsoll_budget::{Account, Bytes};
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

/// A column of a row group.
pub(super) struct Leaf {
    column: ColumnChunkMetaData,
    /// Whether strings stay in their dictionary when they are decoded, and whether all of them are in it.
    keeps_dictionary: bool,
    all_in_dictionary: bool,
    /// Whether strings may begin as the ones before them.
    has_prefixes: bool,
    /// The values and the unpacked bytes of each page.
    pages: Vec<(u64, u64)>,
    /// The most that a page takes, packed and unpacked, and what the dictionary takes.
    largest: u64,
    dictionary: u64,
    /// The most bytes that one string can have which takes hardly any in its page: it refers to the dictionary, or to the one before.
    referred: u64,
    /// The most values of a row, where rows are lists.
    longest: u64,
}

/// The encodings of values that refer to a dictionary, and of strings that begin as the one before, as the format numbers them.
const IN_DICTIONARY: [i64; 2] = [2, 8];
const BEHIND_ANOTHER: i64 = 7;

/// Up to here lists and strings need not be measured.
const SHORT: u64 = 4 << 10;

impl Leaf {
    pub(super) fn new(column: &ColumnChunkMetaData, keeps_dictionary: bool) -> Leaf {
        Leaf {
            column: column.clone(),
            keeps_dictionary,
            all_in_dictionary: true,
            has_prefixes: false,
            pages: Vec::new(),
            largest: 0,
            dictionary: 0,
            referred: 0,
            longest: 1,
        }
    }

    fn is_list(&self) -> bool {
        self.column.column_descr().max_rep_level() > 0
    }

    fn n_values(&self) -> u64 {
        self.pages.iter().map(|(values, _)| *values).fold(0, u64::saturating_add)
    }

    /// Reads the headers of the pages, which lie in these bytes of the file.
    pub(super) fn read(&mut self, file: &Readable, bytes: Range<u64>) -> Result<(), Error> {
        let mut at = bytes.start;
        while at < bytes.end {
            let mut head = [0; 1024];
            let n = file.read_some(at, &mut head[..1024.min((bytes.end - at) as usize)])?;
            let Some(page) = Page::parse(&head[..n]) else {
                return Err(Error::at_offset(&file.path, at, "expected the header of a page"));
            };
            let body = at + page.header..(at + page.header).saturating_add(page.packed);
            if body.end > bytes.end {
                let message = format!("a page claims {} bytes, but its column ends at {}", page.packed, bytes.end);
                return Err(Error::at_offset(&file.path, at, message));
            }
            let unpacked = self.unpacked(file, &page, body.clone())?;
            let taken = page.packed.saturating_add(unpacked.saturating_mul(2));
            if page.is_dictionary {
                (self.dictionary, self.referred) = (taken, self.referred.max(page.unpacked));
            } else {
                self.largest = self.largest.max(taken);
                self.pages.push((page.values, page.unpacked));
                self.all_in_dictionary &= IN_DICTIONARY.contains(&page.encoding);
                if page.encoding == BEHIND_ANOTHER {
                    self.has_prefixes = true;
                    self.referred = self.referred.max(page.unpacked);
                }
            }
            at = body.end;
        }
        if self.is_list() {
            self.longest = self.n_values();
        }
        Ok(())
    }

    /// What unpacking a page takes at the most. Most codecs are held to what its header says; with two of them a page unpacks to
    /// whatever is in it, so that is looked at before.
    fn unpacked(&self, file: &Readable, page: &Page, body: Range<u64>) -> Result<u64, Error> {
        let start = body.start.saturating_add(page.levels);
        let mut packed = Bounded { file, at: start.min(body.end), end: body.end };
        match self.column.compression() {
            Compression::GZIP(_) if page.is_packed => {
                let expected = page.unpacked.saturating_sub(page.levels);
                let (mut stream, mut found, mut piece) = (MultiGzDecoder::new(packed), 0, [0; 4096]);
                // What is broken says so when it is read.
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    found += n as u64;
                    if found > expected {
                        let message = format!("a page claims to unpack to {expected} bytes, but there are more");
                        return Err(Error::at_offset(&file.path, body.start, message));
                    }
                }
                Ok(page.unpacked)
            }
            Compression::LZ4 if page.is_packed => {
                let mut magic = [0; 4];
                let is_frame = packed.read_exact(&mut magic).is_ok() && magic == 0x184d_2204u32.to_le_bytes();
                // At most 255 bytes come out of one.
                Ok(if is_frame { page.unpacked.max(page.packed.saturating_mul(255)) } else { page.unpacked })
            }
            _ => Ok(page.unpacked),
        }
    }

    fn holds_strings(&self) -> bool {
        self.column.column_descr().physical_type() == Type::BYTE_ARRAY
    }

    /// Whether what is decoded has a copy of a string for every reference to it.
    fn copies_strings(&self) -> bool {
        self.holds_strings() && !(self.keeps_dictionary && self.all_in_dictionary)
    }

    /// Unpacks the dictionary and looks through lists where their sizes matter and the headers say only that they may be large.
    pub(super) fn look_closer(&mut self, file: &Readable, account: &Account) -> Result<(), Error> {
        let lists = self.longest > SHORT && self.column.column_descr().max_rep_level() == 1;
        let strings = self.referred > SHORT && self.dictionary > 0 && self.copies_strings();
        if !lists && !strings {
            return Ok(());
        }
        let _held = account.reserve(Bytes(self.largest.saturating_add(self.dictionary)))?;
        let handle = Arc::new(file.try_clone()?);
        let mut found = Lists::default();
        let longest = guarded(&file.path, 0, || {
            let mut pages = SerializedPageReader::new(handle, &self.column, usize::MAX, None)?;
            let mut longest = None;
            while let Some(page) = pages.get_next_page()? {
                let (levels, n) = match &page {
                    Unpacked::DictionaryPage { buf, .. } => {
                        longest = longest_string(buf);
                        continue;
                    }
                    _ if !lists => break,
                    Unpacked::DataPage { rep_level_encoding: Encoding::RLE, buf, num_values, .. } => {
                        let (length, rest) = buf.split_at_checked(4).unwrap_or_default();
                        let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
                        (rest.get(..length), *num_values)
                    }
                    Unpacked::DataPageV2 { buf, num_values, rep_levels_byte_len, .. } => {
                        (buf.get(..*rep_levels_byte_len as usize), *num_values)
                    }
                    Unpacked::DataPage { .. } => (None, 0),
                };
                if levels.and_then(|levels| found.add(levels, n as u64)).is_none() {
                    // As long as all of them together, then; what is wrong is told by who decodes it.
                    found.longest = self.longest;
                    break;
                }
            }
            Ok::<_, parquet::errors::ParquetError>(longest)
        })?;
        if lists {
            self.longest = found.longest.clamp(1, self.longest);
        }
        if let Some(longest) = longest.filter(|_| strings) {
            let behind = self.pages.iter().map(|(_, unpacked)| *unpacked).max().unwrap_or(0);
            self.referred = if self.has_prefixes { behind.max(longest) } else { longest };
        }
        Ok(())
    }

    /// What it takes to read `rows` rows at a time: a page, the dictionary, and the values.
    pub(super) fn bytes(&self, rows: u64) -> u64 {
        let values = rows.saturating_mul(self.longest).min(self.n_values());
        let descr = self.column.column_descr();
        let bytes = match descr.physical_type() {
            Type::BYTE_ARRAY if self.copies_strings() => {
                self.widest(values).saturating_add(values.saturating_mul(self.referred))
            }
            Type::BYTE_ARRAY => values.saturating_mul(8),
            Type::FIXED_LEN_BYTE_ARRAY => values.saturating_mul(descr.type_length().max(0) as u64),
            Type::INT96 => values.saturating_mul(12),
            _ => values.saturating_mul(8),
        };
        // Levels, places of strings and what marks the missing ones; a list that grows has two places while it moves.
        let beside = values.saturating_mul(16);
        let decoded = bytes.saturating_add(beside).saturating_mul(2);
        self.largest.saturating_add(self.dictionary).saturating_add(decoded)
    }

    /// The most bytes of so many values in a row, whatever they refer to left aside: those of the pages that they lie in.
    fn widest(&self, values: u64) -> u64 {
        let (mut widest, mut sum, mut inside, mut first) = (0u64, 0u64, 0u64, 0);
        for (i, (n, unpacked)) in self.pages.iter().enumerate() {
            sum += unpacked;
            // The first and the last page may give one value each; those between them give all.
            while i > first && inside.saturating_add(2) > values {
                sum -= self.pages[first].1;
                first += 1;
                inside = inside.saturating_sub(self.pages.get(first).map_or(0, |page| page.0));
            }
            widest = widest.max(sum);
            if i > first {
                inside += n;
            }
        }
        widest
    }
}

/// Bytes of a file, up to a place.
struct Bounded<'a> {
    file: &'a Readable,
    at: u64,
    end: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = (self.end - self.at).min(out.len() as u64) as usize;
        let n = self.file.read_some(self.at, &mut out[..n]).map_err(std::io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The bytes of the longest of the strings that follow their lengths; `None` when that is not what they are.
fn longest_string(mut bytes: &[u8]) -> Option<u64> {
    let mut longest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(length as u64);
        bytes = rest.get(length as usize..)?;
    }
    Some(longest)
}

/// How long lists are, from the levels that say where one begins.
#[derive(Default)]
struct Lists {
    current: u64,
    longest: u64,
}

impl Lists {
    /// Takes in the levels of `n` values, in runs and groups of eight bits; `None` when they are broken.
    fn add(&mut self, mut levels: &[u8], mut n: u64) -> Option<()> {
        while n > 0 {
            let head = varint(&mut levels)?;
            if head & 1 == 0 {
                let run = (head >> 1).min(n);
                let level = *levels.split_off_first()?;
                match level {
                    0 => (self.current, self.longest) = (1, self.longest.max(self.current).max(1)),
                    _ => self.current += run,
                }
                n -= run;
                if run == 0 {
                    return None;
                }
            } else {
                let groups = usize::try_from(head >> 1).ok()?;
                for byte in levels.split_off(..groups)? {
                    for bit in 0..n.min(8) {
                        match byte >> bit & 1 {
                            0 => (self.current, self.longest) = (1, self.longest.max(self.current)),
                            _ => self.current += 1,
                        }
                    }
                    n -= n.min(8);
                }
                if groups == 0 {
                    return None;
                }
            }
        }
        self.longest = self.longest.max(self.current);
        Some(())
    }
}

/// What the header of a page says.
#[derive(Debug, PartialEq)]
struct Page {
    header: u64,
    is_dictionary: bool,
    packed: u64,
    unpacked: u64,
    values: u64,
    encoding: i64,
    /// The bytes in front that are never packed, and whether the rest is.
    levels: u64,
    is_packed: bool,
}

impl Page {
    /// Reads a header in Thrift's compact form; fields that do not matter are passed over.
    fn parse(bytes: &[u8]) -> Option<Page> {
        let mut thrift = Thrift(bytes);
        let (mut kind, mut unpacked, mut packed, mut values) = (None, None, None, 0);
        let (mut encoding, mut levels, mut is_packed) = (-1, 0i64, true);
        thrift.fields(PAGE_HEADER, 0, 0, &mut |parent, id, value| match (parent, id) {
            (0, 1) => kind = Some(value),
            (0, 2) => unpacked = Some(value),
            (0, 3) => packed = Some(value),
            (5 | 7 | 8, 1) => values = value,
            (5, 2) | (8, 4) => encoding = value,
            (8, 5 | 6) => levels = levels.saturating_add(value.max(0)),
            (8, 7) => is_packed = value != 0,
            _ => {}
        })?;
        let size = |n: i64| i32::try_from(n).ok().and_then(|n| u64::try_from(n).ok());
        Some(Page {
            header: (bytes.len() - thrift.0.len()) as u64,
            is_dictionary: kind? == 2,
            packed: size(packed?)?,
            unpacked: size(unpacked?)?,
            values: size(values)?,
            encoding,
            levels: levels as u64,
            is_packed,
        })
    }
}
