//! `.npy` and `.npz` files.

use super::files::{Files, Readable};
use super::npy_header::{Header, LONGEST};
use super::numbers::Encoding;
use super::rows::{Segment, Series, append, dataset};
use crate::builder::Builder;
use crate::dataset::Node;
use crate::flow::{Open, Stage};
use crate::memory::Counted;
use crate::{Cardinality, Component, Dataset, Error, Place, Spec};
use plimsoll_tensor::Shape;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Dataset {
    /// The rows of `.npy` files, one file after another, as a component `x`.
    ///
    /// Rows are read at their places: the files may be of any size. Under a memory limit, blocks of the files stay in memory from their
    /// first use on, as far as it is left over, and give way when anything else needs it. Types that we do not have become the next wider one (`u16` becomes `i32`,
    /// `u32` becomes `i64`), byte order is turned where necessary.
    pub fn from_npy(files: impl Into<Files>) -> Dataset {
        Dataset::from_npy_named([("x", files.into())])
    }

    /// The rows of `.npy` files side by side, one component for each name.
    pub fn from_npy_named<N: Into<String>>(components: impl IntoIterator<Item = (N, Files)>) -> Dataset {
        Dataset::from_result((|| {
            let mut series = Vec::new();
            let mut words = Vec::new();
            for (name, files) in components {
                let name = name.into();
                words.push(files.words());
                let mut all = None;
                for path in files.expect_some("npy")? {
                    let file = Arc::new(Readable::open(path)?);
                    Series::join(&mut all, Array::read(&file, 0, file.len)?.series(&name, file))?;
                }
                series.extend(all);
            }
            dataset("npy", words.join(", "), series)
        })())
    }

    /// The rows of the arrays in `.npz` files, one component for each array, one file after another.
    ///
    /// Arrays written without compression (`np.savez`) are read at their places; compressed ones (`np.savez_compressed`) go from front to
    /// back, so that elements cannot be found by number: cache or shuffle them on disk.
    pub fn from_npz(files: impl Into<Files>) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            let mut parts: Vec<Dataset> = Vec::new();
            for path in files.expect_some("npz")? {
                let part = npz(path)?;
                if let Some(first) = parts.first()
                    && first.spec()? != part.spec()?
                {
                    let message = format!("holds rows {}, but the files before it {}", part.spec()?, first.spec()?);
                    return Err(Error::in_file(path, message));
                }
                parts.push(part);
            }
            Ok(match parts.len() {
                1 => parts.remove(0),
                _ => Dataset::concatenate_all(&parts),
            })
        })())
    }
}

/// What the header of an array says, checked against the bytes that are there.
struct Array {
    encoding: Encoding,
    rows: u64,
    dims: Vec<usize>,
    /// Where the first row is in the file.
    start: u64,
}

impl Array {
    fn series(self, name: &str, file: Arc<Readable>) -> Series {
        let Array { encoding, rows, dims, start } = self;
        Series { name: name.into(), encoding, dims, segments: vec![Segment { file, start, rows }] }
    }

    /// Reads the header of an array that lies in `len` bytes from `start` on.
    fn read(file: &Readable, start: u64, len: u64) -> Result<Array, Error> {
        let mut head = [0; LONGEST];
        let n = file.read_some(start, &mut head[..LONGEST.min(usize::try_from(len).unwrap_or(LONGEST))])?;
        let at = |message: String| Error::at_offset(&file.path, start, message);
        let header = Header::read(&head[..n]).map_err(at)?;
        let (encoding, (rows, dims)) = (header.encoding, header.rows().map_err(at)?);
        let needed = Series::row_bytes(encoding, &dims).and_then(|n| n.checked_mul(rows));
        let present = len.saturating_sub(header.bytes as u64);
        match needed {
            Some(needed) if needed <= present => Ok(Array { encoding, rows, dims, start: start + header.bytes as u64 }),
            _ => {
                let needed = needed.map_or("more bytes than there are numbers for".into(), |n| format!("{n} bytes"));
                let message = format!(
                    "the header says shape {:?} of '{}', which takes {needed}, but {present} follow it",
                    header.shape, header.descr
                );
                Err(at(message))
            }
        }
    }
}

fn npz(path: &Path) -> Result<Dataset, Error> {
    let file = Arc::new(Readable::open(path)?);
    let bad = |error: zip::result::ZipError| Error::in_file(path, format!("is not a readable .npz archive: {error}"));
    let mut archive = zip::ZipArchive::new(file.try_clone()?).map_err(bad)?;
    let mut members = Vec::new();
    for i in 0..archive.len() {
        let member = archive.by_index(i).map_err(bad)?;
        let name = member.name().map_err(bad)?.into_owned();
        let Some(name) = name.strip_suffix(".npy").map(str::to_string) else { continue };
        let stored = member.compression() == zip::CompressionMethod::Stored && !member.encrypted();
        let (start, size) = (member.data_start(), member.size());
        members.push((i, name, stored.then_some(start).flatten(), size));
    }
    if members.is_empty() {
        return Err(Error::in_file(path, "holds no .npy arrays"));
    }
    if members.iter().all(|(_, _, start, _)| start.is_some()) {
        let mut series = Vec::new();
        for (_, name, start, size) in members {
            let start = start.unwrap_or(0);
            if start.checked_add(size).is_none_or(|end| end > file.len) {
                let message = format!("array '{name}' claims {size} bytes from here on, but the file has {}", file.len);
                return Err(Error::at_offset(path, start, message));
            }
            series.push(Array::read(&file, start, size)?.series(&name, file.clone()));
        }
        return dataset("npz", path.display().to_string(), series);
    }
    compressed(path, archive, members)
}

/// A member: its number, name, place (if not compressed) and size.
type Member = (usize, String, Option<u64>, u64);

fn compressed(
    path: &Path,
    mut archive: zip::ZipArchive<std::fs::File>,
    members: Vec<Member>,
) -> Result<Dataset, Error> {
    let mut columns = Vec::new();
    let mut len: Option<(u64, String)> = None;
    for (index, name, _, size) in members {
        let at = |message: String| Error::in_file(path, format!("array '{name}': {message}"));
        let mut member = archive.by_index(index).map_err(|e| at(e.to_string()))?;
        let mut head = vec![0; LONGEST];
        let mut n = 0;
        while n < LONGEST {
            match member.read(&mut head[n..]).map_err(|e| at(e.to_string()))? {
                0 => break,
                more => n += more,
            }
        }
        let header = Header::read(&head[..n]).map_err(at)?;
        let (encoding, start, (rows, dims)) = (header.encoding, header.bytes, header.rows().map_err(at)?);
        let needed = Series::row_bytes(encoding, &dims)
            .and_then(|n| n.checked_mul(rows))
            .and_then(|n| n.checked_add(start as u64));
        if needed.is_none_or(|needed| needed > size) {
            return Err(at(format!("the header says shape {:?}, but the archive says {size} bytes", header.shape)));
        }
        if let Some((first, other)) = &len
            && *first != rows
        {
            return Err(at(format!("has {rows} rows, but '{other}' has {first}")));
        }
        len = Some((rows, name.clone()));
        columns.push(Packed { index, name, encoding, dims, start });
    }
    let spec = Spec::new(columns.iter().map(|c| Component::new(&c.name, c.encoding.kind(), &c.dims)))?;
    let rows = len.map_or(0, |(n, _)| n);
    Ok(Dataset::new(Compressed { path: path.into(), spec: Arc::new(spec), rows, columns: Arc::new(columns) }))
}

struct Packed {
    index: usize,
    name: String,
    encoding: Encoding,
    dims: Vec<usize>,
    start: usize,
}

struct Compressed {
    path: PathBuf,
    spec: Arc<Spec>,
    rows: u64,
    columns: Arc<Vec<Packed>>,
}

impl Node for Compressed {
    fn describe(&self) -> String {
        format!("npz, compressed: {}, {} rows {}", self.path.display(), self.rows, self.spec)
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        Cardinality::Known(self.rows)
    }

    fn is_lookup(&self) -> bool {
        false
    }

    fn largest(&self) -> Option<u64> {
        self.columns.iter().map(|c| c.encoding.largest(&Shape::new(&c.dims))).sum()
    }

    fn working_bytes(&self, _rows: usize) -> Option<u64> {
        let raw = self.columns.iter().map(|c| c.encoding.raw_bytes(&Shape::new(&c.dims), 1)).max()?;
        raw.checked_add(UNPACKER * self.columns.len() as u64)
    }

    fn stage(&self, open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        // Every array is unpacked at its own pace, each through a handle and a decompressor of its own.
        let held = open.account.reserve((UNPACKER * self.columns.len() as u64).into())?;
        let mut streams = Vec::new();
        for column in self.columns.iter() {
            streams.push(self.unpack(column)?);
        }
        let (path, columns) = (self.path.clone(), self.columns.clone());
        let raw = self.columns.iter().map(|c| c.encoding.raw_bytes(&Shape::new(&c.dims), 1)).max().unwrap_or(0);
        let at_a_time = if raw == 0 { usize::MAX } else { open.block(Some(raw), 64 << 10) };
        Ok(Box::new(CompressedStage { path, columns, streams, rows: self.rows, next: 0, at_a_time, _held: held }))
    }
}

/// What unpacking an array takes: a buffer of 32 KiB of the file, the last 32 KiB that came out, and tables.
const UNPACKER: u64 = 96 << 10;

/// A decompressor over the bytes of one member, and the checksum of what came out of it.
struct Unpacker {
    stream: Box<dyn Read + Send>,
    sum: flate2::Crc,
    expected: u32,
}

impl Unpacker {
    fn read_exact(&mut self, out: &mut [u8]) -> std::io::Result<()> {
        self.stream.read_exact(out)?;
        self.sum.update(out);
        Ok(())
    }

    /// Reads what is left and compares the checksums.
    fn finish(&mut self) -> Result<(), String> {
        let mut rest = [0; 512];
        loop {
            match self.stream.read(&mut rest).map_err(|e| e.to_string())? {
                0 => break,
                n => self.sum.update(&rest[..n]),
            }
        }
        match self.sum.sum() == self.expected {
            true => Ok(()),
            false => Err(format!("checksum {:08x}, but the archive says {:08x}", self.sum.sum(), self.expected)),
        }
    }
}

impl Compressed {
    fn unpack(&self, column: &Packed) -> Result<Unpacker, Error> {
        let bad = |message: String| Error::in_file(&self.path, format!("array '{}': {message}", column.name));
        let file = Readable::open(&self.path)?;
        let mut archive = zip::ZipArchive::new(file.try_clone()?).map_err(|e| bad(e.to_string()))?;
        let member = archive.by_index(column.index).map_err(|e| bad(e.to_string()))?;
        let (start, size) = (member.data_start().unwrap_or(0), member.compressed_size());
        let (method, expected) = (member.compression(), member.crc32());
        drop(member);
        let part = Part { at: start, end: start.saturating_add(size).min(file.len), file };
        let stream: Box<dyn Read + Send> = match method {
            zip::CompressionMethod::Stored => Box::new(part),
            zip::CompressionMethod::Deflated => Box::new(flate2::read::DeflateDecoder::new(part)),
            other => return Err(bad(format!("compression {other:?} is not supported"))),
        };
        let mut unpacker = Unpacker { stream, sum: flate2::Crc::new(), expected };
        let mut head = [0; 512];
        let mut left = column.start;
        while left > 0 {
            let n = left.min(head.len());
            unpacker.read_exact(&mut head[..n]).map_err(|e| bad(e.to_string()))?;
            left -= n;
        }
        Ok(unpacker)
    }
}

/// Some bytes of a file, read from front to back.
struct Part {
    file: Readable,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = (self.end - self.at).min(out.len() as u64) as usize;
        let n = self.file.read_some(self.at, &mut out[..n]).map_err(std::io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

struct CompressedStage {
    path: PathBuf,
    columns: Arc<Vec<Packed>>,
    streams: Vec<Unpacker>,
    rows: u64,
    next: u64,
    /// How many rows to unpack at a time, where their raw form needs a place.
    at_a_time: usize,
    _held: plimsoll_budget::Reservation,
}

impl Stage for CompressedStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let n = (self.rows - self.next).min(want.min(self.at_a_time) as u64) as usize;
        if n == 0 {
            return Ok(false);
        }
        for (i, column) in self.columns.iter().enumerate() {
            let shape = Shape::new(&column.dims);
            let row = Series::row_bytes(column.encoding, &column.dims).expect("checked when opened") as usize;
            let place = Place::Row(self.path.clone(), self.next);
            let fail = |e: std::io::Error| Error::data(place.clone(), format!("array '{}': {e}", column.name));
            // A broken stream cannot be taken up again.
            let rows = self.rows;
            let next = &mut self.next;
            if column.encoding.is_plain() {
                let to = out.columns[i].add(&shape, n)?;
                self.streams[i].read_exact(to).map_err(fail).inspect_err(|_| *next = rows)?;
                continue;
            }
            let account = out.account().clone();
            let mut raw = Counted::<u8>::new(&account)?;
            let raw = raw.grow(row * n, 0)?;
            self.streams[i].read_exact(raw).map_err(fail).inspect_err(|_| *next = rows)?;
            let place = |row: usize| Place::Row(self.path.clone(), *next + row as u64);
            append(column.encoding, &shape, raw, n, &account, &mut out.columns[i], place)?;
        }
        self.next += n as u64;
        out.commit_rows(n);
        if self.next == self.rows {
            for (column, stream) in self.columns.iter().zip(&mut self.streams) {
                let message = |e: String| Error::in_file(&self.path, format!("array '{}': {e}", column.name));
                stream.finish().map_err(message)?;
            }
        }
        Ok(true)
    }
}
