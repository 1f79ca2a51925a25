//! Arrow IPC files (also called Feather): record batch by record batch, only the columns asked for.

use super::bytes::{Format, Sequence};
use super::columnar::{self, LONGEST_FOOTER, guarded, wanted};
use super::files::{Files, Readable};
use crate::flow::{Open, Stage};
use crate::guard::brief;
use crate::{Dataset, Error, Place, Spec};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, Message, root_as_footer, root_as_message};
use arrow_schema::SchemaRef;
use plimsoll_budget::{Bytes, Reservation};
use std::path::Path;
use std::sync::{Arc, OnceLock};

impl Dataset {
    /// The rows of Arrow IPC files, one component for each column, one file after another; `columns` chooses some of them.
    ///
    /// Looking at a footer takes a few times as much as is in it, which may be 16 MiB. A record batch is read at a time; its bytes, packed and unpacked, are reserved before they are read.
    pub fn from_arrow(files: impl Into<Files>, columns: Option<&[&str]>) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            let columns: Option<Vec<String>> = columns.map(|c| c.iter().map(|c| c.to_string()).collect());
            let (mut spec, mut rows): (Option<Arc<Spec>>, _) = (None, Some(0u64));
            for path in files.expect_some("arrow")? {
                let file = File::open(path, columns.as_deref())?;
                rows = rows.and_then(|rows| rows.checked_add(file.rows()?));
                let found = file.spec;
                match &spec {
                    None => spec = Some(found),
                    Some(spec) if *spec == found => {}
                    Some(spec) => {
                        let message = format!("has columns {found}, but the files before it {spec}");
                        return Err(Error::in_file(path, message));
                    }
                }
            }
            let spec = spec.ok_or_else(|| Error::pipeline("arrow", "there are no files"))?;
            Ok(Dataset::new(Sequence::new(files, Arrow { spec, columns, rows, least: OnceLock::new() })))
        })())
    }
}

struct Arrow {
    spec: Arc<Spec>,
    columns: Option<Vec<String>>,
    /// Those of all files, where their record batches tell.
    rows: Option<u64>,
    /// What reading takes, once it has been asked for: a look at the header of every record batch.
    least: OnceLock<Option<u64>>,
}

impl Format for Arrow {
    fn describe(&self) -> String {
        format!("arrow {}", self.spec)
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn rows(&self) -> Option<u64> {
        self.rows
    }

    fn key(&self) -> String {
        format!("{} {:?}", self.describe(), self.columns)
    }

    fn working_bytes(&self, files: &Files) -> Option<u64> {
        let of_file = |path| File::open(path, self.columns.as_deref()).and_then(|file| file.least_bytes()).ok();
        *self.least.get_or_init(|| files.paths().iter().map(|path| of_file(path)).try_fold(0, |a, b| Some(b?.max(a))))
    }

    fn open(&self, path: &Path, open: &Open) -> Result<Box<dyn Stage>, Error> {
        let file = File::open(path, self.columns.as_deref())?;
        if file.spec != self.spec {
            return Err(Error::in_file(path, format!("has columns {}, not {} any more", file.spec, self.spec)));
        }
        let spec = file.spec.clone();
        let lengths = file.lengths();
        let mut batches = Batches {
            file,
            open: open.clone(),
            lengths,
            next: 0,
            skip: 0,
            lost: None,
            batch: None,
            _dictionaries: Vec::new(),
        };
        for block in batches.file.dictionaries.clone() {
            let (buffer, held) = batches.file.read(&block, open, 0)?;
            batches._dictionaries.push(held);
            guarded(path, 0, || batches.file.decoder.read_dictionary(&block, &buffer))?;
        }
        Ok(Box::new(columnar::Table::new(batches, spec)))
    }
}

struct File {
    readable: Readable,
    decoder: FileDecoder,
    spec: Arc<Spec>,
    blocks: Vec<Block>,
    dictionaries: Vec<Block>,
}

impl File {
    fn open(path: &Path, columns: Option<&[String]>) -> Result<File, Error> {
        let readable = Readable::open(path)?;
        let bad = |message: String| Error::in_file(path, message);
        if readable.len < 18 {
            return Err(bad(format!("has {} bytes; no Arrow file is that short", readable.len)));
        }
        let mut tail = [0; 10];
        readable.read(readable.len - 10, &mut tail)?;
        let footer = guarded(path, 0, || arrow_ipc::reader::read_footer_length(tail))? as u64;
        if footer > readable.len - 10 {
            return Err(bad(format!("its footer claims {footer} bytes, but the file has {}", readable.len)));
        }
        if footer > LONGEST_FOOTER {
            let message = format!("a footer of {}; at most {} are read", Bytes(footer), Bytes(LONGEST_FOOTER));
            return Err(bad(message));
        }
        let mut bytes = vec![0; footer as usize];
        readable.read(readable.len - 10 - footer, &mut bytes)?;
        let footer = root_as_footer(&bytes).map_err(|e| bad(format!("its footer cannot be parsed: {}", brief(&e))))?;
        let schema = footer.schema().ok_or_else(|| bad("its footer has no schema".into()))?;
        let schema: SchemaRef = Arc::new(guarded(path, 0, || arrow_ipc::convert::try_fb_to_schema(schema))?);
        let (wanted, spec) = wanted(&schema, columns, path)?;
        let blocks =
            |list: Option<flatbuffers_blocks<'_>>| list.map_or(Vec::new(), |list| list.iter().copied().collect());
        let decoder = FileDecoder::new(schema.clone(), footer.version()).with_projection(wanted);
        let (record, dictionaries) = (blocks(footer.recordBatches()), blocks(footer.dictionaries()));
        Ok(File { readable, decoder, spec, blocks: record, dictionaries })
    }

    /// How many rows each record batch says that it has; none where its header is broken.
    fn lengths(&self) -> Vec<Option<u64>> {
        let length = |block: &Block| {
            let (offset, meta, _) = self.extent(block, 0).ok()?;
            let mut header = vec![0; meta];
            self.readable.read(offset, &mut header).ok()?;
            u64::try_from(message(&header)?.header_as_record_batch()?.length()).ok()
        };
        self.blocks.iter().map(length).collect()
    }

    /// How many rows there are, where all record batches say it.
    fn rows(&self) -> Option<u64> {
        sum(&self.lengths())
    }

    /// What the record batches and dictionaries take, the largest of the former and all of the latter.
    fn least_bytes(&self) -> Result<u64, Error> {
        let bytes = |block: &Block| {
            let (offset, meta, length) = self.extent(block, 0)?;
            if meta as u64 > LONGEST_FOOTER {
                return Err(self.broken(0));
            }
            let mut header = vec![0; meta];
            self.readable.read(offset, &mut header)?;
            let claimed = |at: usize| {
                let mut word = [0; 8];
                self.readable.read(offset + (meta + at) as u64, &mut word).ok()?;
                Some(word)
            };
            Ok(length as u64 + unpacked(&header, length - meta, claimed).ok_or_else(|| self.broken(0))?)
        };
        let all = |blocks: &[Block]| blocks.iter().map(bytes).collect::<Result<Vec<u64>, Error>>();
        let largest = all(&self.blocks)?.into_iter().max().unwrap_or(0);
        Ok(all(&self.dictionaries)?.into_iter().fold(largest, u64::saturating_add))
    }

    fn broken(&self, row: u64) -> Error {
        Error::data(Place::Row(self.readable.path.clone(), row), "the header of a record batch is broken")
    }

    /// Where a block lies in the file: its offset, the bytes of its header, and those of header and body.
    fn extent(&self, block: &Block, row: u64) -> Result<(u64, usize, usize), Error> {
        let (offset, meta, body) = (block.offset(), block.metaDataLength() as i64, block.bodyLength());
        let length = meta.checked_add(body).filter(|_| offset >= 0 && meta > 0 && body >= 0);
        let fits = |n: &i64| offset.checked_add(*n).is_some_and(|end| end as u64 <= self.readable.len);
        let length = length.filter(fits).ok_or_else(|| {
            let message =
                format!("a block claims {meta} and {body} bytes at {offset}, but the file has {}", self.readable.len);
            Error::data(Place::Row(self.readable.path.clone(), row), message)
        })?;
        Ok((offset as u64, meta as usize, length as usize))
    }

    /// Reads a block; what it takes, unpacked too, stays reserved as long as the reservation.
    fn read(&self, block: &Block, open: &Open, row: u64) -> Result<(Buffer, Reservation), Error> {
        let (offset, meta, length) = self.extent(block, row)?;
        let mut held = open.account.reserve(Bytes(length as u64))?;
        let mut bytes = vec![0; length];
        self.readable.read(offset, &mut bytes)?;
        let claimed = |at: usize| bytes[meta..].get(at..)?.first_chunk::<8>().copied();
        let unpacked = unpacked(&bytes[..meta], length - meta, claimed).ok_or_else(|| self.broken(row))?;
        held.grow(Bytes(unpacked))?;
        // Without a limit there is still one to what anybody means to have unpacked at a time.
        if unpacked > 1 << 36 {
            let message = format!("claims to unpack to {}", Bytes(unpacked));
            return Err(Error::data(Place::Row(self.readable.path.clone(), row), message));
        }
        Ok((Buffer::from_vec(bytes), held))
    }
}

#[allow(non_camel_case_types)]
type flatbuffers_blocks<'a> = flatbuffers::Vector<'a, Block>;

/// The rows of all record batches, where all are known.
fn sum(lengths: &[Option<u64>]) -> Option<u64> {
    lengths.iter().try_fold(0u64, |rows, length| rows.checked_add((*length)?))
}

/// The message in the header of a block; `None` when it is not one.
fn message(header: &[u8]) -> Option<Message<'_>> {
    // It begins behind a mark and its length, or (in old files) behind its length.
    let start = if header.starts_with(&[0xff; 4]) { 8 } else { 4 };
    root_as_message(header.get(start..)?).ok()
}

/// What the compressed buffers of a block claim to unpack to: the first 8 bytes of each say it, which `claimed` gives. `None` when
/// the header is not one, or the buffers do not lie in the `body` bytes behind it.
fn unpacked(header: &[u8], body: usize, claimed: impl Fn(usize) -> Option<[u8; 8]>) -> Option<u64> {
    let message = message(header)?;
    let batch = message.header_as_record_batch().or_else(|| message.header_as_dictionary_batch()?.data())?;
    let mut sum = 0u64;
    for buffer in batch.buffers()? {
        let at = usize::try_from(buffer.offset()).ok()?;
        let length = usize::try_from(buffer.length()).ok()?;
        if at.checked_add(length)? > body {
            return None;
        }
        if length == 0 || batch.compression().is_none() {
            continue;
        }
        // -1 says that the buffer is not compressed.
        sum = sum.checked_add(u64::try_from(i64::from_le_bytes(claimed(at)?).max(0)).ok()?)?;
    }
    Some(sum)
}

struct Batches {
    file: File,
    open: Open,
    /// The rows of each record batch, where they are known.
    lengths: Vec<Option<u64>>,
    next: usize,
    /// Rows to pass over before the next one.
    skip: u64,
    /// The rows of a record batch that cannot be read, each of them an error.
    lost: Option<(u64, Error)>,
    /// What the batch given out last takes.
    batch: Option<Reservation>,
    _dictionaries: Vec<Reservation>,
}

impl Batches {
    fn read(&mut self, number: usize, row: u64) -> Result<Option<RecordBatch>, Error> {
        let block = self.file.blocks[number];
        let (buffer, held) = self.file.read(&block, &self.open, row)?;
        let path = &self.file.readable.path;
        let batch = guarded(path, row, || self.file.decoder.read_record_batch(&block, &buffer))?;
        if let (Some(batch), Some(claimed)) = (&batch, self.lengths[number])
            && batch.num_rows() as u64 != claimed
        {
            let message = format!("a record batch claims {claimed} rows, but has {}", batch.num_rows());
            return Err(Error::data(Place::Row(path.clone(), row), message));
        }
        self.batch = Some(held);
        Ok(batch)
    }
}

impl columnar::Batches for Batches {
    fn path(&self) -> &Path {
        &self.file.readable.path
    }

    fn next(&mut self, _want: usize, row: u64) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some((rows, error)) = self.lost.take() {
                self.lost = (rows > 1).then(|| (rows - 1, error.clone()));
                return Err(error);
            }
            self.batch = None;
            let number = self.next;
            let Some(length) = self.lengths.get(number) else { return Ok(None) };
            // One whose length nobody knows is one bad row.
            let length = length.unwrap_or(1);
            self.next += 1;
            if self.skip >= length {
                self.skip -= length;
                continue;
            }
            let passed = std::mem::take(&mut self.skip);
            match self.read(number, row) {
                Ok(None) => {}
                Ok(Some(batch)) => return Ok(Some(batch.slice(passed as usize, batch.num_rows() - passed as usize))),
                Err(error) if error.is_data() => self.lost = Some((length - passed, error)),
                Err(error) => return Err(error),
            }
        }
    }

    fn skip(&mut self, n: u64, row: u64) -> Option<u64> {
        if self.batch.is_some() || self.lost.is_some() {
            return None;
        }
        let n = n.min(sum(&self.lengths)?.saturating_sub(row));
        self.skip += n;
        Some(n)
    }
}
