//! Parquet files: row group by row group, page by page, only the columns asked for.

use super::bytes::{Format, Sequence};
use super::columnar::{Batches, Table, guarded, wanted};
use super::files::{Files, Readable};
use crate::flow::{Open, Stage};
use crate::{Dataset, Error, Spec};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use plimsoll_budget::{Bytes, Reservation};
use std::path::Path;
use std::sync::Arc;

impl Dataset {
    /// The rows of Parquet files, one component for each column, one file after another; `columns` chooses some of them.
    ///
    /// Files are read page by page, row group by row group; what the largest pages unpack to is reserved before they are read. Null is NaN
    /// in columns of floats, the empty string in those of text, and an error in others.
    pub fn from_parquet(files: impl Into<Files>, columns: Option<&[&str]>) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            let columns: Option<Vec<String>> = columns.map(|c| c.iter().map(|c| c.to_string()).collect());
            let mut all: Option<Parquet> = None;
            for path in files.expect_some("parquet")? {
                let file = File::open(path, columns.as_deref())?;
                match &mut all {
                    None => all = Some(Parquet { spec: file.spec, columns: columns.clone(), rows: file.rows }),
                    Some(all) if all.spec == file.spec => all.rows += file.rows,
                    Some(all) => {
                        let message = format!("has columns {}, but the files before it {}", file.spec, all.spec);
                        return Err(Error::in_file(path, message));
                    }
                }
            }
            let format = all.ok_or_else(|| Error::pipeline("parquet", "there are no files"))?;
            Ok(Dataset::new(Sequence { files, format: Arc::new(format) }))
        })())
    }
}

struct Parquet {
    spec: Arc<Spec>,
    columns: Option<Vec<String>>,
    rows: u64,
}

impl Format for Parquet {
    fn describe(&self) -> String {
        format!("parquet {}", self.spec)
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn open(&self, path: &Path, open: &Open) -> Result<Box<dyn Stage>, Error> {
        let file = File::open(path, self.columns.as_deref())?;
        if file.spec != self.spec {
            return Err(Error::in_file(path, format!("has columns {}, not {} any more", file.spec, self.spec)));
        }
        let spec = file.spec.clone();
        Ok(Box::new(Table::new(Groups { file, open: open.clone(), next: 0, skip: 0, group: None }, spec)))
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }
}

/// A file whose metadata has been read.
struct File {
    readable: Readable,
    metadata: ArrowReaderMetadata,
    spec: Arc<Spec>,
    rows: u64,
    /// Which columns of the file are wanted.
    roots: Vec<usize>,
}

impl File {
    fn open(path: &Path, columns: Option<&[String]>) -> Result<File, Error> {
        let readable = Readable::open(path)?;
        let handle = readable.try_clone()?;
        let metadata = guarded(path, 0, || ArrowReaderMetadata::load(&handle, ArrowReaderOptions::new()))?;
        let schema = metadata.schema().clone();
        let (roots, spec) = wanted(&schema, columns, path)?;
        let rows = metadata.metadata().file_metadata().num_rows().max(0) as u64;
        // Strings stay in their dictionaries until they are appended: a page of one long string and many references to it would
        // else unpack to any size.
        let fields: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| match field.data_type() {
                ty @ (DataType::Utf8 | DataType::Binary) => {
                    let ty = DataType::Dictionary(Box::new(DataType::Int32), Box::new(ty.clone()));
                    Arc::new(field.as_ref().clone().with_data_type(ty))
                }
                _ => field.clone(),
            })
            .collect();
        let options = ArrowReaderOptions::new()
            .with_schema(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())));
        let again = metadata.metadata().clone();
        let metadata = guarded(path, 0, || ArrowReaderMetadata::try_new(again, options)).unwrap_or(metadata);
        Ok(File { readable, metadata, spec, rows, roots })
    }

    /// What reading a row group holds at a time: a page of each column, packed and unpacked, and its dictionary.
    fn group_bytes(&self, group: usize) -> Result<u64, Error> {
        let group = self.metadata.metadata().row_group(group);
        let schema = self.metadata.parquet_schema();
        let mut sum = 0u64;
        for (leaf, column) in group.columns().iter().enumerate() {
            if !self.roots.contains(&schema.get_column_root_idx(leaf)) {
                continue;
            }
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let (start, length) = (start as u64, column.compressed_size());
            let end = u64::try_from(length).ok().and_then(|length| start.checked_add(length));
            let Some(end) = end.filter(|end| *end <= self.readable.len) else {
                let message = format!(
                    "column '{}' claims {length} bytes, but the file has {}",
                    column.column_path(),
                    self.readable.len
                );
                return Err(Error::at_offset(&self.readable.path, start, message));
            };
            sum = sum.saturating_add(self.column_bytes(start, end)?);
        }
        Ok(sum)
    }

    fn column_bytes(&self, start: u64, end: u64) -> Result<u64, Error> {
        let (mut at, mut largest, mut dictionary) = (start, 0, 0);
        while at < end {
            let mut head = [0; 1024];
            let n = self.readable.read_some(at, &mut head[..1024.min((end - at) as usize)])?;
            let page = Page::parse(&head[..n]).filter(|p| p.packed >= 0 && p.unpacked >= 0);
            let Some(page) = page else {
                return Err(Error::at_offset(&self.readable.path, at, "expected the header of a page"));
            };
            let bytes = page.packed as u64 + 2 * page.unpacked as u64;
            if page.is_dictionary {
                dictionary = bytes;
            } else {
                largest = largest.max(bytes);
            }
            at += page.header as u64 + page.packed as u64;
        }
        Ok(largest + dictionary)
    }
}

/// The first fields of a page's header.
struct Page {
    header: usize,
    is_dictionary: bool,
    unpacked: i32,
    packed: i32,
}

impl Page {
    /// Reads a header in Thrift's compact form: of the fields only numbers 1 to 3 matter, the others are passed over.
    fn parse(bytes: &[u8]) -> Option<Page> {
        let mut thrift = Thrift(bytes);
        let (mut kind, mut unpacked, mut packed) = (None, None, None);
        thrift.fields(0, &mut |id, value| match id {
            1 => kind = value,
            2 => unpacked = value,
            3 => packed = value,
            _ => {}
        })?;
        Some(Page {
            header: bytes.len() - thrift.0.len(),
            is_dictionary: kind? == 2,
            unpacked: i32::try_from(unpacked?).ok()?,
            packed: i32::try_from(packed?).ok()?,
        })
    }
}

struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.split_off_first()?;
            value |= ((byte & 0x7f) as u64) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn fields(&mut self, depth: u32, each: &mut dyn FnMut(i64, Option<i64>)) -> Option<()> {
        if depth > 8 {
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
                0 => zigzag(self.varint()?),
                delta => id + delta as i64,
            };
            let value = self.value(head & 15, depth)?;
            each(id, value.map(zigzag));
        }
    }

    /// Passes over a value; whole numbers are given back.
    fn value(&mut self, kind: u8, depth: u32) -> Option<Option<u64>> {
        match kind {
            1 | 2 => {}
            3 => drop(self.0.split_off_first()?),
            4..=6 => return self.varint().map(Some),
            7 => drop(self.0.split_off(..8)?),
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.0.split_off(..length)?;
            }
            9 | 10 => {
                let head = *self.0.split_off_first()?;
                let n = if head >> 4 == 15 { self.varint()? } else { (head >> 4) as u64 };
                for _ in 0..n {
                    // Booleans in lists have a byte each.
                    match head & 15 {
                        1 | 2 => drop(self.0.split_off_first()?),
                        kind => drop(self.value(kind, depth + 1)?),
                    }
                }
            }
            12 => self.fields(depth + 1, &mut |_, _| {})?,
            _ => return None,
        }
        Some(None)
    }
}

/// A row group being read.
struct Group {
    reader: ParquetRecordBatchReader,
    _held: Reservation,
}

struct Groups {
    file: File,
    open: Open,
    /// The next row group.
    next: usize,
    /// Rows to pass over before the next one.
    skip: u64,
    group: Option<Group>,
}

impl Groups {
    /// Opens the next row group that has rows left; false at the end.
    fn open_group(&mut self, want: usize, row: u64) -> Result<bool, Error> {
        let metadata = self.file.metadata.metadata().clone();
        loop {
            let Some(group) = metadata.row_groups().get(self.next) else { return Ok(false) };
            let rows = group.num_rows().max(0) as u64;
            self.next += 1;
            if self.skip >= rows {
                self.skip -= rows;
                continue;
            }
            let bytes = self.file.group_bytes(self.next - 1)?;
            let _held = self.open.account.reserve(Bytes(bytes))?;
            let offset = std::mem::take(&mut self.skip) as usize;
            let handle = self.file.readable.try_clone()?;
            let mask = ProjectionMask::roots(self.file.metadata.parquet_schema(), self.file.roots.iter().copied());
            let (meta, number) = (self.file.metadata.clone(), self.next - 1);
            let reader = guarded(&self.file.readable.path, row, || {
                ParquetRecordBatchReaderBuilder::new_with_metadata(handle, meta)
                    .with_row_groups(vec![number])
                    .with_projection(mask)
                    .with_batch_size(want.clamp(16, 1024))
                    .with_offset(offset)
                    .build()
            })?;
            self.group = Some(Group { reader, _held });
            return Ok(true);
        }
    }
}

impl Batches for Groups {
    fn path(&self) -> &Path {
        &self.file.readable.path
    }

    fn next(&mut self, want: usize, row: u64) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(mut group) = self.group.take()
                // Behind a page that cannot be decoded the group cannot be read on.
                && let Some(batch) = guarded(self.path(), row, || group.reader.next().transpose())?
            {
                self.group = Some(group);
                return Ok(Some(batch));
            }
            if !self.open_group(want, row)? {
                return Ok(None);
            }
        }
    }

    fn skip(&mut self, n: u64, row: u64) -> Option<u64> {
        if self.group.is_some() {
            return None;
        }
        let n = n.min(self.file.rows.saturating_sub(row));
        self.skip += n;
        Some(n)
    }
}
