//! Parquet files: row group by row group, page by page, only the columns asked for.

use super::bytes::{Format, Sequence};
use super::columnar::{Batches, LONGEST_FOOTER, Table, guarded, wanted};
use super::files::{Files, Readable};
use super::parquet_pages::Leaf;
use super::thrift::{FOOTER, is_thrift};
use crate::flow::{InUse, Open, Stage};
use crate::{Dataset, Error, Place, Spec};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use plimsoll_budget::{Account, Budget, Bytes, Reservation};
use std::path::Path;
use std::sync::{Arc, OnceLock};

impl Dataset {
    /// The rows of Parquet files, one component for each column, one file after another; `columns` chooses some of them.
    ///
    /// Looking at the footers takes a few times as much as is in one, which may be 16 MiB. Files are read page by page, row group by
    /// row group; what the largest pages unpack to is reserved before they are read. Null is NaN
    /// in columns of floats, the empty string in those of text, and an error in others.
    pub fn from_parquet(files: impl Into<Files>, columns: Option<&[&str]>) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            let columns: Option<Vec<String>> = columns.map(|c| c.iter().map(|c| c.to_string()).collect());
            let mut all: Option<Parquet> = None;
            for path in files.expect_some("parquet")? {
                let file = File::open(path, columns.as_deref())?;
                match &mut all {
                    None => {
                        let (columns, least) = (columns.clone(), OnceLock::new());
                        all = Some(Parquet { spec: file.spec, columns, rows: file.rows, least });
                    }
                    Some(all) if all.spec == file.spec => all.rows += file.rows,
                    Some(all) => {
                        let message = format!("has columns {}, but the files before it {}", file.spec, all.spec);
                        return Err(Error::in_file(path, message));
                    }
                }
            }
            let format = all.ok_or_else(|| Error::pipeline("parquet", "there are no files"))?;
            Ok(Dataset::new(Sequence::new(files, format)))
        })())
    }
}

struct Parquet {
    spec: Arc<Spec>,
    columns: Option<Vec<String>>,
    rows: u64,
    /// What reading takes, once it has been asked for: a look at the header of every page.
    least: OnceLock<Option<u64>>,
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
        let _metadata = open.account.reserve(file.metadata_bytes())?;
        let groups = Groups { file, open: open.clone(), next: 0, skip: 0, group: None, lost: None, _metadata };
        Ok(Box::new(Table::new(groups, spec)))
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn key(&self) -> String {
        format!("{} {:?}", self.describe(), self.columns)
    }

    fn working_bytes(&self, files: &Files) -> Option<u64> {
        let of_file = |path| File::open(path, self.columns.as_deref()).and_then(|file| file.least_bytes()).ok();
        *self.least.get_or_init(|| files.paths().iter().map(|path| of_file(path)).try_fold(0, |a, b| Some(b?.max(a))))
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
        check_footer(&readable)?;
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

    fn n_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    fn group_rows(&self, group: usize) -> u64 {
        self.metadata.metadata().row_group(group).num_rows().max(0) as u64
    }

    fn metadata_bytes(&self) -> Bytes {
        Bytes::from(self.metadata.metadata().memory_size())
    }

    /// The columns of a row group that are wanted, as their pages describe themselves.
    fn leaves(&self, group: usize, account: &Account) -> Result<Vec<Leaf>, Error> {
        let group = self.metadata.metadata().row_group(group);
        let schema = self.metadata.parquet_schema();
        let mut leaves = Vec::new();
        for (number, column) in group.columns().iter().enumerate() {
            let root = schema.get_column_root_idx(number);
            if !self.roots.contains(&root) {
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
            let keeps_dictionary = matches!(self.metadata.schema().field(root).data_type(), DataType::Dictionary(..));
            let mut leaf = Leaf::new(column, keeps_dictionary);
            leaf.read(&self.readable, start..end)?;
            match leaf.look_closer(&self.readable, account) {
                // What the headers say is true, too, only not as near.
                Err(error) if error.is_over_budget() => {}
                other => other?,
            }
            leaves.push(leaf);
        }
        Ok(leaves)
    }

    /// What it takes to read the file row by row.
    fn least_bytes(&self) -> Result<u64, Error> {
        let account = Budget::new(Bytes::mib(16)).account("parquet");
        let mut least = 0;
        for group in 0..self.n_groups() {
            let leaves = self.leaves(group, &account)?;
            // Looking closer takes no more than a column, which is a part of this.
            least = least.max(leaves.iter().map(|leaf| leaf.bytes(1)).fold(0, u64::saturating_add));
        }
        Ok(least.saturating_add(self.metadata_bytes().0))
    }
}

/// Looks through the footer, where there is one: a list that claims billions of values of no size would else be gone through.
fn check_footer(file: &Readable) -> Result<(), Error> {
    let mut tail = [0; 8];
    let Some(end) = file.len.checked_sub(8) else { return Ok(()) };
    file.read(end, &mut tail)?;
    let length = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]) as u64;
    let Some(start) = end.checked_sub(length).filter(|_| tail.ends_with(b"PAR1")) else { return Ok(()) };
    if length > LONGEST_FOOTER {
        let message = format!("a footer of {}; at most {} are read", Bytes(length), Bytes(LONGEST_FOOTER));
        return Err(Error::at_offset(&file.path, start, message));
    }
    let mut footer = vec![0; length as usize];
    file.read(start, &mut footer)?;
    match is_thrift(&footer, FOOTER) {
        true => Ok(()),
        false => Err(Error::at_offset(&file.path, start, "the footer is broken, or claims more than is in it")),
    }
}

/// A row group being read.
struct Group {
    reader: ParquetRecordBatchReader,
    number: usize,
    at_a_time: usize,
    /// How many rows have been read.
    row: u64,
    rows: u64,
    _held: (Reservation, InUse),
}

struct Groups {
    file: File,
    open: Open,
    /// The next row group.
    next: usize,
    /// Rows to pass over before the next one.
    skip: u64,
    group: Option<Group>,
    /// The rows of a group that cannot be read any more, each of them an error.
    lost: Option<(u64, Error)>,
    _metadata: Reservation,
}

impl Groups {
    /// How many rows to read at a time, at most `want`: as many as a part of what is extra has room for.
    fn rows_at_a_time(&self, leaves: &[Leaf], want: usize) -> (usize, u64) {
        let need = |rows: usize| leaves.iter().map(|leaf| leaf.bytes(rows as u64)).fold(0, u64::saturating_add);
        let (least, spare) = (need(1), self.open.spare() / 4);
        let mut rows = want.min(1024).next_power_of_two();
        while rows > 1 && need(rows) - least > spare {
            rows /= 2;
        }
        (rows, need(rows))
    }

    /// Opens a row group behind so many of its rows, to be read `want` rows at a time where there is room for it.
    fn open_group(&self, number: usize, from: u64, want: usize, row: u64) -> Result<Group, Error> {
        let leaves = self.file.leaves(number, &self.open.account)?;
        let (at_a_time, bytes) = self.rows_at_a_time(&leaves, want);
        let least = leaves.iter().map(|leaf| leaf.bytes(1)).fold(0, u64::saturating_add);
        let _held = (self.open.account.reserve(Bytes(bytes))?, self.open.use_extra(bytes.saturating_sub(least)));
        let handle = self.file.readable.try_clone()?;
        let mask = ProjectionMask::roots(self.file.metadata.parquet_schema(), self.file.roots.iter().copied());
        let meta = self.file.metadata.clone();
        let reader = guarded(&self.file.readable.path, row, || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(handle, meta)
                .with_row_groups(vec![number])
                .with_projection(mask)
                .with_batch_size(at_a_time)
                .with_offset(from as usize)
                .build()
        })?;
        Ok(Group { reader, number, at_a_time, row: from, rows: self.file.group_rows(number), _held })
    }

    /// The next rows of the group at hand; `None` at its end. `row` is the number in the file of the next row that is wanted.
    fn read(&mut self, row: u64) -> Result<Option<RecordBatch>, Error> {
        while let Some(group) = &mut self.group {
            let batch = guarded(&self.file.readable.path, row, || group.reader.next().transpose())?;
            let Some(batch) = batch else {
                let Group { number, row: found, rows, .. } = *group;
                if found < rows {
                    let message = format!("row group {number} claims {rows} rows, but has {found}");
                    return Err(Error::data(Place::Row(self.file.readable.path.clone(), row), message));
                }
                self.group = None;
                break;
            };
            let n = batch.num_rows();
            group.row += n as u64;
            // What lies before the place is read, too, so that a row behind one that cannot be is lost however it is reached.
            let passed = self.skip.min(n as u64) as usize;
            self.skip -= passed as u64;
            if passed < n {
                return Ok(Some(batch.slice(passed, n - passed)));
            }
        }
        Ok(None)
    }

    /// Makes errors of the rows of a group from `row` on.
    fn lose(&mut self, row: u64, rows: u64, error: Error) {
        let passed = self.skip.min(rows - row);
        self.skip -= passed;
        self.group = None;
        self.lost = Some((rows - row - passed, error)).filter(|(n, _)| *n > 0);
    }
}

impl Batches for Groups {
    fn path(&self) -> &Path {
        &self.file.readable.path
    }

    fn next(&mut self, want: usize, row: u64) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some((rows, error)) = self.lost.take() {
                self.lost = (rows > 1).then(|| (rows - 1, error.clone()));
                return Err(error);
            }
            if self.group.is_none() {
                if self.next == self.file.n_groups() {
                    return Ok(None);
                }
                let (number, rows) = (self.next, self.file.group_rows(self.next));
                self.next += 1;
                if self.skip >= rows {
                    self.skip -= rows;
                    continue;
                }
                match self.open_group(number, 0, want.max(16), row) {
                    Ok(group) => self.group = Some(group),
                    Err(error) if error.is_data() => {
                        self.lose(0, rows, error);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let error = match self.read(row) {
                Ok(None) => continue,
                Err(error) if error.is_data() => error,
                other => return other,
            };
            let Some(Group { number, at_a_time, row: at, rows, .. }) = self.group.take() else { return Err(error) };
            // Which of them cannot be read is found by reading them one by one; behind it the group cannot be read on.
            match self.open_group(number, at, 1, row) {
                Ok(group) if at_a_time > 1 => self.group = Some(group),
                Err(error) if !error.is_data() => return Err(error),
                _ => self.lose(at.min(rows), rows, error),
            }
        }
    }

    fn skip(&mut self, n: u64, row: u64) -> Option<u64> {
        if self.group.is_some() || self.lost.is_some() {
            return None;
        }
        let n = n.min(self.file.rows.saturating_sub(row));
        self.skip += n;
        Some(n)
    }
}
