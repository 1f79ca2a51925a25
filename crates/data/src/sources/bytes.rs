//! Bytes of a file from front to back, compressed or not, in a counted buffer.

use super::files::{Files, Readable};
use super::measure::{self, Found};
use crate::dataset::{Node, Total};
use crate::flow::{Flow, InTurn, Open, Stage};
use crate::least::fixed_bytes;
use crate::memory::Counted;
use crate::{Cardinality, Error, Place, Spec};
use plimsoll_budget::Reservation;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// zlib, which TensorFlow's record files can use.
    Zlib,
}

/// The part of a file that is being looked at.
pub(crate) struct Window {
    pub(crate) path: PathBuf,
    open: Open,
    from: From,
    buffer: Counted<u8>,
    start: usize,
    end: usize,
    /// The place of `start` among the (unpacked) bytes.
    offset: u64,
    ended: bool,
    _held: Reservation,
}

enum From {
    Plain(Readable, u64),
    Packed(Box<dyn Read + Send>),
}

struct Sequential(Readable, u64);

impl Read for Sequential {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read_some(self.1, out).map_err(std::io::Error::other)?;
        self.1 += n as u64;
        Ok(n)
    }
}

impl Window {
    /// Bytes read at a time.
    const STEP: usize = 64 << 10;

    pub(crate) fn open(path: &Path, compression: Compression, open: &Open) -> Result<Window, Error> {
        let file = Readable::open(path)?;
        // No more than a small file has, and a byte in which its end is seen.
        let first = match compression {
            Compression::None => {
                usize::try_from(file.len).map_or(Window::STEP, |n| Window::STEP.min(n.saturating_add(1)))
            }
            _ => Window::STEP,
        };
        // A decompressor keeps its last 32 KiB and its tables.
        let (from, held): (From, u64) = match compression {
            Compression::None => (From::Plain(file, 0), 0),
            Compression::Gzip => {
                (From::Packed(Box::new(flate2::read::MultiGzDecoder::new(Sequential(file, 0)))), 96 << 10)
            }
            Compression::Zlib => {
                (From::Packed(Box::new(flate2::read::ZlibDecoder::new(Sequential(file, 0)))), 96 << 10)
            }
        };
        let _held = open.account.reserve(held.into())?;
        let mut buffer = Counted::new(&open.account)?;
        buffer.grow(first, 0)?;
        Ok(Window {
            path: path.into(),
            open: open.clone(),
            from,
            buffer,
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            _held,
        })
    }

    /// By how much a full buffer grows: as little as keeps the copying in bounds.
    fn step(len: usize) -> usize {
        (len / 4).clamp(Window::STEP / 4, 16 * Window::STEP)
    }

    /// What the buffer takes at the most for so many bytes at hand: its last two places, while it moves from one to the other.
    pub(crate) fn bytes_for(n: u64) -> u64 {
        let (mut before, mut len) = (0, Window::STEP);
        while (len as u64) < n {
            (before, len) = (len, len + Window::step(len));
        }
        (before + len) as u64
    }

    /// The bytes at hand.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Notes that a record of so many bytes begins at an offset.
    pub(crate) fn met(&self, offset: u64, bytes: u64) {
        self.open.met(bytes, || Place::Offset(self.path.clone(), offset));
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes that the file still has beyond those at hand, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match &self.from {
            From::Plain(file, at) => Some(file.len.saturating_sub(*at)),
            From::Packed(_) => None,
        }
    }

    /// Counts `n` of the bytes at hand as used.
    pub(crate) fn advance(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
    }

    /// Makes at least `n` bytes available; false when the file ends before.
    pub(crate) fn need(&mut self, n: usize) -> Result<bool, Error> {
        while self.end - self.start < n {
            if !self.more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads on; false at the end. The bytes at hand stay, so the buffer grows by what is really there, never by what a header claims.
    pub(crate) fn more(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 && (self.start == self.end || self.end == self.buffer.len()) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            self.buffer.grow(Window::step(self.end), 0)?;
        }
        let out = &mut self.buffer[self.end..];
        let n = match &mut self.from {
            From::Plain(file, at) => {
                let n = file.read_some(*at, out)?;
                *at += n as u64;
                n
            }
            From::Packed(stream) => loop {
                match stream.read(out) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.ended = true;
                        let at = self.offset + (self.end - self.start) as u64;
                        return Err(Error::at_offset(&self.path, at, format!("cannot be unpacked further: {error}")));
                    }
                    Ok(n) => break n,
                }
            },
        };
        self.end += n;
        self.ended = n == 0;
        Ok(n > 0)
    }
}

/// What is in files that are read from front to back.
pub(crate) trait Format: Send + Sync {
    fn describe(&self) -> String;

    fn spec(&self) -> &Arc<Spec>;

    /// The elements of one file.
    fn open(&self, path: &Path, open: &Open) -> Result<Box<dyn Stage>, Error>;

    /// What tells how a file is read, besides which it is.
    fn key(&self) -> String {
        self.describe()
    }

    /// Finds out how large the elements of a file are, by a look at about so many bytes of them; `None` when it cannot be read.
    fn look(&self, path: &Path, most: u64) -> Option<Found>
    where
        Self: Sized,
    {
        measure::read(self, path, most)
    }

    /// What reading the files takes besides the elements, where that is in the files' headers.
    fn working_bytes(&self, files: &Files) -> Option<u64> {
        let _ = files;
        None
    }

    /// How many elements all files have together, where that is known.
    fn rows(&self) -> Option<u64> {
        None
    }
}

/// Files of one format, one after another.
pub(crate) struct Sequence<F> {
    files: Files,
    format: Arc<F>,
    /// What a look through the files found, once it has been asked for.
    found: OnceLock<Option<Found>>,
}

impl<F: Format> Sequence<F> {
    pub(crate) fn new(files: Files, format: F) -> Sequence<F> {
        Sequence { files, format: Arc::new(format), found: OnceLock::new() }
    }

    fn found(&self) -> Option<Found> {
        *self.found.get_or_init(|| measure::look(&*self.format, &self.files))
    }
}

impl<F: Format + 'static> Node for Sequence<F> {
    fn describe(&self) -> String {
        format!("{}: {}", self.format.describe(), self.files.words())
    }

    fn spec(&self) -> &Arc<Spec> {
        self.format.spec()
    }

    fn cardinality(&self) -> Cardinality {
        self.format.rows().map_or(Cardinality::Unknown, Cardinality::Known)
    }

    fn is_lookup(&self) -> bool {
        false
    }

    fn working_bytes(&self, _rows: usize) -> Option<u64> {
        self.format.working_bytes(&self.files).or_else(|| Some(self.found()?.working))
    }

    fn largest(&self) -> Option<u64> {
        // An element is no larger than what it takes to read it.
        let largest = || self.found().map(|found| found.largest).or_else(|| self.format.working_bytes(&self.files));
        fixed_bytes(self.spec()).or_else(largest)
    }

    fn record_bytes(&self) -> Option<u64> {
        // Not looked for now: what there was no room for should not be read again.
        self.found.get().copied().flatten().map(|found| found.longest)
    }

    fn counted(&self) -> Option<u64> {
        self.format.rows().or_else(|| self.found()?.count())
    }

    fn total(&self) -> Option<Total> {
        if let (Some(rows), Some(size)) = (self.format.rows(), fixed_bytes(self.spec())) {
            return Total::of(rows, size);
        }
        let found = self.found()?;
        match self.format.rows() {
            _ if found.is_all => Some(Total { elements: found.elements, bytes: found.bytes }),
            rows => Total::of(rows?, found.largest),
        }
    }

    fn stage(&self, open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let (files, format, size, open) = (self.files.clone(), self.format.clone(), open.size(self), open.clone());
        let mut next = 0;
        Ok(Box::new(InTurn::new(move |_| {
            let path = files.paths().get(next)?;
            next += 1;
            let flow = |stage| Flow::new(stage, format.spec().clone(), &open, "decode").of_size(size);
            Some(format.open(path, &open).map(flow))
        })))
    }
}
