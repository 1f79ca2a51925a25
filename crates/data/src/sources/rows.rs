//! Rows of one size in files: what `.npy`, uncompressed `.npz` and IDX files have in common once their headers are read.

use super::files::{Readable, Scatter};
use super::numbers::Encoding;
use crate::builder::Builder;
use crate::dataset::Node;
use crate::flow::{Lookup, Open, Stage};
use crate::memory::Counted;
use crate::{Cardinality, Component, Dataset, Error, Kind, Place, Spec};
use plimsoll_tensor::Shape;
use std::sync::Arc;

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
        dims.iter().try_fold(encoding.size() as u64, |n, d| n.checked_mul(*d as u64))
    }

    fn len(&self) -> u64 {
        self.segments.iter().map(|s| s.rows).sum()
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
    Ok(Dataset::new(Rows { spec: Arc::new(spec), len, describe, columns: Arc::new(columns) }))
}

struct Rows {
    spec: Arc<Spec>,
    len: u64,
    describe: String,
    columns: Arc<Vec<Column>>,
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

    fn lookup(&self, _open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        Ok(Some(Arc::new(RowsLookup { len: self.len, columns: self.columns.clone() })))
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

    /// Reads the rows of these numbers to `out`, the places in each file in ascending order.
    fn read(&self, at: &[u64], account: &plimsoll_budget::Account, out: &mut [u8]) -> Result<(), Error> {
        if self.size == 0 {
            return Ok(());
        }
        let mut wanted: Vec<(u64, u32)> = at.iter().enumerate().map(|(row, i)| (*i, row as u32)).collect();
        wanted.sort_unstable();
        let mut rest = &mut wanted[..];
        while let Some((first, _)) = rest.first() {
            let s = self.ends.partition_point(|end| end <= first);
            let start = if s == 0 { 0 } else { self.ends[s - 1] };
            let n = rest.partition_point(|(i, _)| *i < self.ends[s]);
            let (these, others) = rest.split_at_mut(n);
            let segment = &self.segments[s];
            for (i, _) in these.iter_mut() {
                *i = segment.start + (*i - start) * self.size as u64;
            }
            Scatter { file: &segment.file, size: self.size, account }.read(these, out)?;
            rest = others;
        }
        Ok(())
    }

    fn place(&self, number: u64) -> Place {
        let s = self.ends.partition_point(|end| *end <= number);
        let start = if s == 0 { 0 } else { self.ends[s - 1] };
        Place::Row(self.segments[s].file.path.clone(), number - start)
    }
}

struct RowsLookup {
    len: u64,
    columns: Arc<Vec<Column>>,
}

impl Lookup for RowsLookup {
    fn len(&self) -> u64 {
        self.len
    }

    fn gather(&self, _epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let account = out.account().clone();
        for (column, to) in self.columns.iter().zip(&mut out.columns) {
            if column.encoding.is_plain() {
                column.read(at, &account, to.add(&column.shape, at.len())?)?;
                continue;
            }
            let mut raw = Counted::<u8>::new(&account)?;
            let raw = raw.grow(column.size * at.len(), 0)?;
            column.read(at, &account, raw)?;
            if let Kind::Number(_) = column.encoding.kind() {
                let values = column.shape.elements().max(1);
                column
                    .encoding
                    .decode(raw, to.add(&column.shape, at.len())?)
                    .map_err(|(bad, message)| Error::data(column.place(at[bad / values]), message))?;
                continue;
            }
            let (mut string, width) = (Vec::new(), column.encoding.size());
            for (i, number) in at.iter().enumerate() {
                let row = &raw[i * column.size..(i + 1) * column.size];
                let mut strings = Vec::with_capacity(column.shape.elements());
                for v in 0..column.shape.elements() {
                    let result = column.encoding.string(&row[v * width..(v + 1) * width], &mut string);
                    result.map_err(|e| Error::data(column.place(*number), e.to_string()))?;
                    strings.push(string.clone());
                }
                to.add_strings(&column.shape, strings.iter().map(|s| &s[..]))?;
            }
        }
        out.commit_rows(at.len());
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        // Where requests are dear, many at a time: they are made in the order of places, and more neighbours meet in one.
        let slow = self.columns.iter().flat_map(|c| &c.segments).any(|s| s.file.is_slow());
        if slow { 8 << 20 } else { 512 << 10 }
    }
}
