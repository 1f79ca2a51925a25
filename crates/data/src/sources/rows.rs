//! Rows of one size in files: what `.npy`, uncompressed `.npz` and IDX files have in common once their headers are read.

use super::blocks::Blocks;
use super::files::{Readable, Scatter};
use super::numbers::Encoding;
use crate::builder::{Builder, ColumnBuilder};
use crate::dataset::Node;
use crate::flow::{Lookup, Open, Stage};
use crate::least::list_bytes;
use crate::memory::Counted;
use crate::{Cardinality, Component, Dataset, Error, Kind, Place, Spec};
use plimsoll_budget::Account;
use plimsoll_tensor::Shape;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows one after another in a file, from a place on.
pub(crate) struct Segment {
    pub(crate) file: Arc<Readable>,
    pub(crate) start: u64,
    pub(crate) rows: u64,
}

/// One component: its rows, over several files.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    pub(crate) dims: Vec<usize>,
    pub(crate) segments: Vec<Segment>,
}

impl Series {
    /// The bytes of a row in the file; `None` when they cannot be counted.
    pub(crate) fn row_bytes(encoding: Encoding, dims: &[usize]) -> Option<u64> {
        // What is too much to be counted is so beside an axis of no length and with values of no size, too.
        let whole = dims.iter().try_fold(encoding.size().max(1), |n, d| n.checked_mul((*d).max(1)))?;
        let is_empty = encoding.size() == 0 || dims.contains(&0);
        Some(if is_empty { 0 } else { whole as u64 })
    }

    fn len(&self) -> u64 {
        self.segments.iter().map(|s| s.rows).sum()
    }

    /// Adds the rows of another file to those of the files before it, which must be of the same kind.
    pub(crate) fn join(all: &mut Option<Series>, file: Series) -> Result<(), Error> {
        let Some(all) = all else {
            *all = Some(file);
            return Ok(());
        };
        if (all.encoding, &all.dims) != (file.encoding, &file.dims) {
            let message = format!(
                "holds rows {:?} of {:?}, but the files before it {:?} of {:?}",
                file.dims, file.encoding.raw, all.dims, all.encoding.raw
            );
            return Err(Error::in_file(&file.segments[0].file.path, message));
        }
        all.segments.extend(file.segments);
        Ok(())
    }
}

/// A data set of rows in files.
pub(crate) fn dataset(what: &str, words: String, series: Vec<Series>) -> Result<Dataset, Error> {
    let Some(first) = series.first() else { return Err(Error::pipeline(what, "there are no arrays")) };
    let len = first.len();
    for s in &series {
        if s.len() != len {
            let message = format!("{words}: '{}' has {} rows, but '{}' has {len}", s.name, s.len(), first.name);
            return Err(Error::pipeline(what, message));
        }
    }
    let spec = Spec::new(series.iter().map(|s| Component::new(&s.name, s.encoding.kind(), &s.dims)))?;
    let columns = series.into_iter().map(Column::new).collect();
    let describe = format!("{what}: {words}, {len} rows {spec}");
    let (spec, columns, blocks) = (Arc::new(spec), Arc::new(columns), Mutex::default());
    Ok(Dataset::new(Rows { spec, len, describe, columns, blocks }))
}

struct Rows {
    spec: Arc<Spec>,
    len: u64,
    describe: String,
    columns: Arc<Vec<Column>>,
    /// What of each column is kept in memory from pass to pass.
    blocks: Mutex<Arc<Kept>>,
}

/// The blocks of each column, where there are any.
type Kept = Vec<Option<Arc<Blocks>>>;

impl Rows {
    /// The blocks kept in the budget of an account: those of earlier passes, or new ones.
    fn blocks(&self, account: &Account) -> Arc<Kept> {
        let mut kept = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().flatten().any(|blocks| blocks.belong_to(account)) {
            // Passes under another budget may still go on with the old ones.
            *kept = Arc::new(self.columns.iter().map(|column| Blocks::new(column.bytes(), account)).collect());
        }
        kept.iter().flatten().for_each(|blocks| blocks.begin());
        kept.clone()
    }
}

impl Node for Rows {
    fn describe(&self) -> String {
        self.describe.clone()
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        Cardinality::Known(self.len)
    }

    fn is_lookup(&self) -> bool {
        true
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let (columns, blocks) = (self.columns.clone(), self.blocks(&open.account));
        Ok(Some(Arc::new(RowsLookup { len: self.len, columns, blocks })))
    }

    fn largest(&self) -> Option<u64> {
        self.columns.iter().map(|c| c.encoding.largest(&c.shape)).sum()
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        // The raw form of elements, and a list of places.
        let raw = self.columns.iter().map(|c| c.encoding.raw_bytes(&c.shape, rows)).max()?;
        raw.checked_add(list_bytes((rows * size_of::<(u64, u32)>()) as u64))
    }

    fn stage(&self, _open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        unreachable!("rows in files are read by number")
    }
}

struct Column {
    encoding: Encoding,
    shape: Shape,
    /// Bytes of a row in the file.
    size: usize,
    segments: Vec<Segment>,
    /// Rows up to the end of each segment.
    ends: Vec<u64>,
}

impl Column {
    fn new(series: Series) -> Column {
        let size = Series::row_bytes(series.encoding, &series.dims).expect("readers check it") as usize;
        let mut end = 0;
        let ends = series.segments.iter().map(|s| {
            end += s.rows;
            end
        });
        let (ends, shape) = (ends.collect(), Shape::new(&series.dims));
        Column { encoding: series.encoding, shape, size, segments: series.segments, ends }
    }

    /// Whether a request costs so much that it comes from a disk or a network.
    fn is_slow(&self) -> bool {
        self.segments.iter().any(|segment| segment.file.is_slow())
    }

    /// The bytes of all rows.
    fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0) * self.size as u64
    }

    /// The segment of a row, and the number of the segment's first row.
    fn segment(&self, row: u64) -> (&Segment, u64) {
        let s = self.ends.partition_point(|end| *end <= row);
        (&self.segments[s], self.ends[s] - self.segments[s].rows)
    }

    /// Reads the rows of these numbers to `out`: from blocks that are in memory, the others from the files.
    fn read(&self, at: &[u64], blocks: Option<&Blocks>, account: &Account, out: &mut [u8]) -> Result<(), Error> {
        if self.size == 0 {
            return Ok(());
        }
        let all = at.iter().zip(0..).map(|(row, place)| (*row, place));
        let Some(blocks) = blocks else {
            return self.read_scattered(&mut Counted::collect(account, at.len(), all)?, account, out);
        };
        // A few times as many bytes as were asked for; where a request is dear, everything at once.
        let most = if self.is_slow() { usize::MAX } else { at.len() * self.size * 4 };
        blocks.fetch(at, self.size, self.bytes(), most, |offset, memory| self.read_stretch(offset, memory));
        // As long as it can become: while rows are copied nothing is reserved.
        let mut missing = Counted::<(u64, u32)>::new(account)?;
        let missing = missing.grow(at.len(), (0, 0))?;
        let mut n = 0;
        blocks.copy(at, self.size, out, |row, place| {
            missing[n] = (row, place as u32);
            n += 1;
        });
        self.read_scattered(&mut missing[..n], account, out)
    }

    /// Reads rows to their places in `out`, those of each file in ascending order.
    fn read_scattered(&self, wanted: &mut [(u64, u32)], account: &Account, out: &mut [u8]) -> Result<(), Error> {
        wanted.sort_unstable();
        let mut rest = wanted;
        while let Some((first, _)) = rest.first() {
            let (segment, start) = self.segment(*first);
            let n = rest.partition_point(|(row, _)| *row < start + segment.rows);
            let (these, others) = rest.split_at_mut(n);
            for (row, _) in these.iter_mut() {
                *row = segment.start + (*row - start) * self.size as u64;
            }
            let to = |row: usize| row * self.size..(row + 1) * self.size;
            Scatter { file: &segment.file, account }.read(these, out, to)?;
            rest = others;
        }
        Ok(())
    }

    /// Reads the bytes from an offset on, counted over the rows of all files.
    fn read_stretch(&self, mut offset: u64, mut memory: &mut [u8]) -> Result<(), Error> {
        while !memory.is_empty() {
            let (segment, start) = self.segment(offset / self.size as u64);
            let within = offset - start * self.size as u64;
            let n = memory.len().min(usize::try_from(segment.rows * self.size as u64 - within).unwrap_or(usize::MAX));
            let (now, rest) = memory.split_at_mut(n);
            segment.file.read(segment.start + within, now)?;
            (memory, offset) = (rest, offset + n as u64);
        }
        Ok(())
    }

    fn place(&self, number: u64) -> Place {
        let (segment, start) = self.segment(number);
        Place::Row(segment.file.path.clone(), number - start)
    }
}

/// Appends `n` rows that are not in memory as they are in the file; `place` says where a bad one is.
pub(crate) fn append(
    encoding: Encoding,
    shape: &Shape,
    raw: &[u8],
    n: usize,
    account: &Account,
    to: &mut ColumnBuilder<'_>,
    place: impl Fn(usize) -> Place,
) -> Result<(), Error> {
    let values = shape.elements();
    if let Kind::Number(_) = encoding.kind() {
        let decoded = encoding.decode(raw, to.add(shape, n)?);
        return decoded.map_err(|(bad, message)| Error::data(place(bad / values.max(1)), message));
    }
    // The strings of a row, at most twice as long as they may become by doubling.
    let (width, size) = (encoding.size(), encoding.size() * values);
    let _held = account.reserve(encoding.strings_bytes(shape).into())?;
    let mut strings = vec![Vec::new(); values];
    for row in 0..n {
        let raw = &raw[row * size..(row + 1) * size];
        for (v, string) in strings.iter_mut().enumerate() {
            let result = encoding.string(&raw[v * width..(v + 1) * width], string);
            result.map_err(|e| Error::data(place(row), e.to_string()))?;
        }
        to.add_strings(shape, strings.iter().map(|s| &s[..]))?;
    }
    Ok(())
}

struct RowsLookup {
    len: u64,
    columns: Arc<Vec<Column>>,
    blocks: Arc<Kept>,
}

impl Lookup for RowsLookup {
    fn len(&self) -> u64 {
        self.len
    }

    fn gather(&self, _epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let account = out.account().clone();
        for ((column, blocks), to) in self.columns.iter().zip(&*self.blocks).zip(&mut out.columns) {
            let blocks = blocks.as_deref();
            if column.encoding.is_plain() {
                column.read(at, blocks, &account, to.add(&column.shape, at.len())?)?;
                continue;
            }
            let mut raw = Counted::<u8>::new(&account)?;
            let raw = raw.grow(column.size * at.len(), 0)?;
            column.read(at, blocks, &account, raw)?;
            append(column.encoding, &column.shape, raw, at.len(), &account, to, |row| column.place(at[row]))?;
        }
        out.commit_rows(at.len());
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        let has_all = |(column, blocks): (&Column, &Option<Arc<Blocks>>)| {
            blocks.as_ref().is_some_and(|blocks| blocks.has_all(column.bytes()))
        };
        if self.columns.iter().zip(&*self.blocks).all(has_all) {
            return 256 << 10;
        }
        // Where requests are dear, many at a time: they are made in the order of places, and more neighbours meet in one.
        if self.columns.iter().any(Column::is_slow) { 8 << 20 } else { 512 << 10 }
    }
}
