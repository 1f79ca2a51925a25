//! TFRecord files: read and written, compressed or not.
//!
//! A record is its length (8 bytes), a checksum of the length, the bytes, and a checksum of the bytes. The framing is ours; the checksum
//! (CRC-32C, rotated and shifted) comes from a library.

use super::bytes::{Compression, Format, Sequence, Window};
use super::files::{Files, Readable};
use super::measure::Found;
use crate::builder::Builder;
use crate::flow::{Open, Stage};
use crate::least::string_bytes;
use crate::{Component, Dataset, Error, Kind, Spec};
use plimsoll_budget::{Budget, Bytes};
use plimsoll_tensor::Shape;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Dataset {
    /// The records of TFRecord files, one file after another, as a component `record`; see [`Dataset::parse_example`].
    pub fn from_tfrecords(files: impl Into<Files>, compression: Compression) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            files.expect_some("tfrecord")?;
            let spec = Arc::new(Spec::new([Component::new("record", Kind::Bytes, &[])])?);
            Ok(Dataset::new(Sequence::new(files, Records { spec, compression })))
        })())
    }

    /// Writes every element as a `tf.train.Example` to a TFRecord file and says how many there were.
    ///
    /// Integers become `int64_list`, floats `float_list`, strings `bytes_list`, shapes are flattened. The file appears under its
    /// name when it is complete.
    ///
    /// # Errors
    /// When the elements cannot be made or the file cannot be written.
    pub fn write_tfrecords(
        &self,
        path: impl AsRef<Path>,
        compression: Compression,
        budget: &Budget,
    ) -> Result<u64, Error> {
        let mut writer = TfRecordWriter::create(path, compression)?;
        let mut n = 0;
        let mut bytes = Vec::new();
        for element in self.iter(budget)? {
            bytes.clear();
            super::example::encode(&element?.row(), &mut bytes)?;
            writer.write(&bytes)?;
            n += 1;
        }
        writer.finish()?;
        Ok(n)
    }
}

/// Writes a TFRecord file.
///
/// ```
/// use plimsoll_budget::{Budget, Bytes};
/// use plimsoll_data::{Compression, Dataset, TfRecordWriter};
/// let path = std::env::temp_dir().join(format!("plimsoll-doc-{}.tfrecord", std::process::id()));
/// let mut writer = TfRecordWriter::create(&path, Compression::Gzip)?;
/// writer.write(b"first")?;
/// writer.write(b"second")?;
/// writer.finish()?;
/// let records = Dataset::from_tfrecords(&path, Compression::Gzip);
/// let last = records.iter(&Budget::unlimited())?.last().unwrap()?;
/// assert_eq!(last.row().string("record")?, b"second");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TfRecordWriter {
    path: PathBuf,
    partial: PathBuf,
    to: Option<Sink>,
}

enum Sink {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zlib(flate2::write::ZlibEncoder<BufWriter<File>>),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Sink::Plain(to) => to.write_all(bytes),
            Sink::Gzip(to) => to.write_all(bytes),
            Sink::Zlib(to) => to.write_all(bytes),
        }
    }

    fn finish(self) -> std::io::Result<()> {
        let to = match self {
            Sink::Plain(to) => to,
            Sink::Gzip(to) => to.finish()?,
            Sink::Zlib(to) => to.finish()?,
        };
        to.into_inner().map_err(|e| e.into_error())?.sync_all()
    }
}

impl TfRecordWriter {
    /// Begins a file, which appears under its name when it is finished.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<TfRecordWriter, Error> {
        let path = path.as_ref().to_path_buf();
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = BufWriter::with_capacity(64 << 10, File::create(&partial).map_err(|e| Error::io(&partial, e))?);
        let level = flate2::Compression::default();
        let to = match compression {
            Compression::None => Sink::Plain(file),
            Compression::Gzip => Sink::Gzip(flate2::write::GzEncoder::new(file, level)),
            Compression::Zlib => Sink::Zlib(flate2::write::ZlibEncoder::new(file, level)),
        };
        Ok(TfRecordWriter { path, partial, to: Some(to) })
    }

    /// Writes one record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, record: &[u8]) -> Result<(), Error> {
        let length = (record.len() as u64).to_le_bytes();
        let Some(to) = &mut self.to else { return Ok(()) };
        let result = to
            .write_all(&length)
            .and_then(|()| to.write_all(&masked(&length).to_le_bytes()))
            .and_then(|()| to.write_all(record))
            .and_then(|()| to.write_all(&masked(record).to_le_bytes()));
        result.map_err(|e| Error::io(&self.partial, e))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<(), Error> {
        let Some(to) = self.to.take() else { return Ok(()) };
        to.finish().map_err(|e| Error::io(&self.partial, e))?;
        std::fs::rename(&self.partial, &self.path).map_err(|e| Error::io(&self.path, e))
    }
}

impl Drop for TfRecordWriter {
    fn drop(&mut self) {
        if self.to.take().is_some() {
            // Never finished, so nobody wants it.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

/// The checksum as the format stores it: rotated and shifted, so that a checksum of checksums is no special case.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

struct Records {
    spec: Arc<Spec>,
    compression: Compression,
}

impl Format for Records {
    fn describe(&self) -> String {
        "tfrecord".into()
    }

    fn key(&self) -> String {
        format!("tfrecord {:?}", self.compression)
    }

    fn look(&self, path: &Path, most: u64) -> Option<Found> {
        match self.compression {
            Compression::None => lengths(&Readable::open(path).ok()?),
            _ => self.unpacked_lengths(path, most),
        }
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn open(&self, path: &Path, open: &Open) -> Result<Box<dyn Stage>, Error> {
        Ok(Box::new(RecordsStage { window: Window::open(path, self.compression, open)?, broken: false }))
    }
}

impl Records {
    /// Finds the longest record of a compressed file, up to about so many bytes. Records are passed over, and never at hand.
    fn unpacked_lengths(&self, path: &Path, most: u64) -> Option<Found> {
        let account = Budget::new(Bytes::mib(1)).account("reading");
        let open = Open::beyond(account.clone(), 1, Some(u64::MAX));
        let window = Window::open(path, self.compression, &open).ok()?;
        let unpacking = account.held().0 - Window::bytes_for(0);
        let mut stage = RecordsStage { window, broken: false };
        let mut found = Found::default();
        while found.bytes + 64 * found.elements <= most {
            let length = match stage.header() {
                Ok(Some(length)) => {
                    count(&mut found, length);
                    length
                }
                Ok(None) => {
                    found.is_all = true;
                    break;
                }
                // Behind what is no record there are none.
                Err(error) if error.is_data() => {
                    (found.is_all, found.errors) = (true, 1);
                    break;
                }
                Err(_) => return None,
            };
            let mut left = length + 16;
            while left > 0 {
                let n = left.min(stage.window.bytes().len() as u64);
                stage.window.advance(n as usize);
                left -= n;
                if left > 0 && !stage.window.more().ok()? {
                    found.errors = 1;
                    break;
                }
            }
        }
        found.working = unpacking + Window::bytes_for(found.longest + 16);
        Some(found)
    }
}

/// The most pieces of a file that are read for the lengths of its records.
const PIECES: u64 = 1 << 20;

/// Counts a record of so many bytes.
fn count(found: &mut Found, length: u64) {
    let bytes = string_bytes(length as usize) as u64;
    (found.elements, found.bytes) = (found.elements + 1, found.bytes + bytes);
    (found.largest, found.longest) = (found.largest.max(bytes), found.longest.max(length));
}

/// Finds the longest record by the lengths in front of them, without a look at what they hold.
fn lengths(file: &Readable) -> Option<Found> {
    let mut piece = [0; 4096];
    let (mut start, mut there, mut at, mut pieces) = (0u64, 0usize, 0u64, 0);
    let mut found = Found { is_all: true, ..Found::default() };
    // Behind what is no record there are none.
    while at.checked_add(12).is_some_and(|end| end <= file.len) {
        if at + 12 > start + there as u64 {
            if pieces == PIECES {
                found.is_all = false;
                break;
            }
            (start, pieces) = (at, pieces + 1);
            there = file.read_some(at, &mut piece).ok()?;
            if there < 12 {
                break;
            }
        }
        let header = &piece[(at - start) as usize..][..12];
        let length = u64::from_le_bytes(header[..8].try_into().expect("8 bytes"));
        let is_right = masked(&header[..8]).to_le_bytes() == header[8..12];
        let next = length.checked_add(16).and_then(|bytes| at.checked_add(bytes)).filter(|next| *next <= file.len);
        let Some(next) = next.filter(|_| is_right) else { break };
        count(&mut found, length);
        at = next;
    }
    found.working = Window::bytes_for(found.longest + 16);
    // Behind the last one there is something else, which is none.
    found.errors = (at < file.len) as u64;
    Some(found)
}

struct RecordsStage {
    window: Window,
    /// Behind an error after which nobody knows where the next record begins.
    broken: bool,
}

impl RecordsStage {
    /// An error behind which the file cannot be read on.
    fn end<T>(&mut self, at: u64, message: String) -> Result<T, Error> {
        self.broken = true;
        Err(Error::at_offset(&self.window.path, at, message))
    }

    /// The length of the record at hand; `None` at the end of the file.
    fn header(&mut self) -> Result<Option<u64>, Error> {
        let at = self.window.offset();
        if !self.window.need(12)? {
            return match self.window.bytes().len() {
                0 => Ok(None),
                n => self.end(at, format!("the file ends {n} bytes into the 12 of a record's header")),
            };
        }
        let header = self.window.bytes();
        let length = u64::from_le_bytes(header[..8].try_into().expect("8 bytes"));
        let (stored, found) = (u32::from_le_bytes(header[8..12].try_into().expect("4 bytes")), masked(&header[..8]));
        if stored != found {
            let message = format!("the checksum of a record's length is {stored:08x}, but its bytes give {found:08x}");
            return self.end(at, message);
        }
        let there = self.window.left().map(|left| left + self.window.bytes().len() as u64 - 12);
        if there.is_some_and(|there| length.saturating_add(4) > there) || length > (1 << 40) {
            let there = there.unwrap_or(1 << 40);
            return self.end(at, format!("a record claims {length} bytes, but at most {there} follow"));
        }
        Ok(Some(length))
    }
}

impl Stage for RecordsStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        for _ in 0..want {
            if self.broken {
                return Ok(false);
            }
            let at = self.window.offset();
            let Some(length) = self.header()? else { return Ok(false) };
            self.window.met(at, length);
            let length = length as usize;
            if !self.window.need(16 + length)? {
                let there = self.window.bytes().len() - 12;
                return self
                    .end(at, format!("a record has {length} bytes and a checksum, but only {there} bytes follow"));
            }
            let record = &self.window.bytes()[12..12 + length];
            let stored = u32::from_le_bytes(self.window.bytes()[12 + length..16 + length].try_into().expect("4 bytes"));
            let found = masked(record);
            if stored != found {
                // The length is right, so the next record can be found.
                self.window.advance(16 + length);
                let message =
                    format!("the checksum of a record of {length} bytes is {stored:08x}, its bytes give {found:08x}");
                return Err(Error::at_offset(&self.window.path, at, message));
            }
            out.columns[0].add_strings(&Shape::scalar(), [record])?;
            out.commit_rows(1);
            self.window.advance(16 + length);
        }
        Ok(true)
    }
}
