//! Bytes of a file from front to back, compressed or not, in a counted buffer.

use super::files::{Files, Readable};
use crate::dataset::Node;
use crate::flow::{Flow, InTurn, Open, Stage};
use crate::memory::Counted;
use crate::{Cardinality, Error, Spec};
use plimsoll_budget::Reservation;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
        // No more than a small file has, and a byte in which its end is seen; what is packed may be four times as long.
        let step = usize::try_from(file.len).map_or(Window::STEP, |n| n.saturating_mul(4).clamp(1, Window::STEP));
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
        buffer.grow(step, 0)?;
        Ok(Window { path: path.into(), from, buffer, start: 0, end: 0, offset: 0, ended: false, _held })
    }

    /// The bytes at hand.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
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
        if self.start > 0 && self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.buffer.len() {
            if self.start >= self.buffer.len() / 2 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                let step = self.buffer.len().clamp(Window::STEP, 16 * Window::STEP);
                self.buffer.grow(step, 0)?;
            }
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

    /// What reading the files takes besides the elements; `None` where only reading tells.
    fn least_bytes(&self, files: &Files) -> Option<u64> {
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
    pub(crate) files: Files,
    pub(crate) format: Arc<F>,
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

    fn own_bytes(&self) -> Option<u64> {
        // How long lines and records are only reading tells.
        self.largest()?.checked_mul(3)?.checked_add(8)?.checked_add(self.format.least_bytes(&self.files)?)
    }

    fn stage(&self, open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let (files, format, open) = (self.files.clone(), self.format.clone(), open.clone());
        let mut next = 0;
        Ok(Box::new(InTurn::new(move |_| {
            let path = files.paths().get(next)?;
            next += 1;
            let flow = |stage| Flow::new(stage, format.spec().clone(), &open, "decode");
            Some(format.open(path, &open).map(flow))
        })))
    }
}
