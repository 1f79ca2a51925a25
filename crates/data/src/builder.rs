//! Where elements are put together: growing columns, or memory that somebody gave.
//!
//! A stage appends rows to the [`Builder`] it is handed, so that the source writes where the last stage wants to have the rows:
//! the batch in the engine's memory, when training runs inside the engine.

use crate::column::{Body, Chunk, Column, Shapes};
use crate::memory::{Counted, Memory, as_numbers_mut};
use crate::{Component, Error, Kind, Spec};
use plimsoll_budget::Account;
use plimsoll_tensor::{Element as Number, Shape};
use std::ops::Range;
use std::sync::Arc;

enum Store<'a> {
    Owned(Memory),
    /// Memory of the caller, and how much of it is filled.
    Given(&'a mut [u8], usize),
}

impl Store<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Store::Owned(memory) => memory.bytes(),
            Store::Given(bytes, len) => &bytes[..*len],
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Store::Owned(memory) => memory.bytes_mut(),
            Store::Given(bytes, len) => &mut bytes[..*len],
        }
    }

    fn grow(&mut self, n: usize) -> Result<&mut [u8], Error> {
        match self {
            Store::Owned(memory) => memory.grow(n),
            Store::Given(bytes, len) => {
                if n > bytes.len() - *len {
                    let message = format!("an element needs {} bytes, but {} were given", *len + n, bytes.len());
                    return Err(Error::pipeline("next_into", message));
                }
                *len += n;
                Ok(&mut bytes[*len - n..*len])
            }
        }
    }

    fn truncate(&mut self, n: usize) {
        match self {
            Store::Owned(memory) => memory.truncate(n),
            Store::Given(_, len) => *len = (*len).min(n),
        }
    }
}

/// A column to which rows are appended.
pub(crate) struct ColumnBuilder<'a> {
    kind: Kind,
    shapes: Shapes,
    /// Whether `shapes` says something; with no rows it may be a mere placeholder.
    rows: usize,
    data: Store<'a>,
    ends: Counted<u64>,
    account: Account,
}

impl<'a> ColumnBuilder<'a> {
    fn new(account: &Account, component: &Component, data: Store<'a>) -> Result<ColumnBuilder<'a>, Error> {
        let shapes = Shapes::Same(component.shape().unwrap_or(Shape::scalar()));
        let ends = Counted::new(account)?;
        Ok(ColumnBuilder { kind: component.kind, shapes, rows: 0, data, ends, account: account.clone() })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Appends `n` rows of numbers of one shape and gives access to their bytes.
    ///
    /// # Panics
    /// When the column holds strings.
    pub(crate) fn add(&mut self, shape: &Shape, n: usize) -> Result<&mut [u8], Error> {
        let Kind::Number(dtype) = self.kind else { panic!("a column of strings has no numbers") };
        let bytes = shape.elements() * dtype.size() * n;
        self.note(shape, n)?;
        let grown = self.data.grow(bytes);
        if grown.is_ok() {
            self.rows += n;
        }
        grown
    }

    /// Makes room for `n` more rows of numbers of one shape, so that the column does not grow step by step. Without an effect where
    /// the memory is somebody's, or strings are held.
    pub(crate) fn reserve(&mut self, shape: &Shape, n: usize) -> Result<(), Error> {
        match (self.kind, &mut self.data) {
            (Kind::Number(dtype), Store::Owned(memory)) => memory.reserve(shape.elements() * dtype.size() * n),
            _ => Ok(()),
        }
    }

    /// Appends one row of numbers.
    pub(crate) fn add_numbers<T: Number>(&mut self, shape: &Shape) -> Result<&mut [T], Error> {
        let bytes = self.add(shape, 1)?;
        as_numbers_mut(bytes).ok_or_else(|| Error::pipeline("next_into", "the memory given is not aligned"))
    }

    /// Appends one row of strings.
    pub(crate) fn add_strings<'s>(
        &mut self,
        shape: &Shape,
        strings: impl IntoIterator<Item = &'s [u8], IntoIter: Clone>,
    ) -> Result<(), Error> {
        self.note(shape, 1)?;
        self.put_strings(strings.into_iter())?;
        self.rows += 1;
        debug_assert_eq!(self.ends.len(), self.n_values());
        Ok(())
    }

    /// Appends strings, with room for all of them made in one go.
    fn put_strings<'s>(&mut self, strings: impl Iterator<Item = &'s [u8]> + Clone) -> Result<(), Error> {
        let (n, bytes) = strings.clone().fold((0, 0), |(n, bytes), string| (n + 1, bytes + string.len()));
        self.ends.reserve(n)?;
        let mut end = self.data.bytes().len() as u64;
        self.data.grow(bytes)?;
        for string in strings {
            let start = end as usize;
            end += string.len() as u64;
            self.data.bytes_mut()[start..end as usize].copy_from_slice(string);
            self.ends.push(end)?;
        }
        Ok(())
    }

    /// Appends rows of a finished column.
    pub(crate) fn append(&mut self, from: &Column, rows: Range<usize>) -> Result<(), Error> {
        match from.same_shape() {
            Some(shape) => self.append_as(from, rows.clone(), shape, rows.len()),
            None => rows.into_iter().try_for_each(|row| self.append_as(from, row..row + 1, from.shape(row), 1)),
        }
    }

    /// Appends the values of some rows as `n` rows of another shape with as many values.
    pub(crate) fn append_as(
        &mut self,
        from: &Column,
        rows: Range<usize>,
        shape: &Shape,
        n: usize,
    ) -> Result<(), Error> {
        if let Kind::Number(_) = self.kind {
            let bytes = from.bytes(rows);
            self.add(shape, n)?.copy_from_slice(bytes);
            return Ok(());
        }
        self.note(shape, n)?;
        self.put_strings(from.values(rows).map(|value| from.string(value)))?;
        self.rows += n;
        Ok(())
    }

    /// Copies a row over another, both of numbers and of one shape.
    pub(crate) fn move_row(&mut self, from: usize, to: usize) {
        let size = self.bytes_mut(from..from + 1).len();
        let (from, to) = (from * size, to * size);
        self.data.bytes_mut().copy_within(from..from + size, to);
    }

    /// Appends some of the parts that one row of a finished column has along its first axis, as rows.
    pub(crate) fn append_part(&mut self, from: &Column, row: usize, parts: Range<usize>) -> Result<(), Error> {
        let shape = from.shape(row).remove(0);
        let (n, size) = (parts.len(), shape.elements());
        match self.kind {
            Kind::Number(dtype) => {
                let bytes = size * dtype.size();
                let part = &from.bytes(row..row + 1)[parts.start * bytes..parts.end * bytes];
                self.add(&shape, n)?.copy_from_slice(part);
                Ok(())
            }
            Kind::Bytes => {
                let first = from.values(row..row + 1).start;
                parts.into_iter().try_for_each(|part| {
                    let start = first + part * size;
                    self.add_strings(&shape, (start..start + size).map(|v| from.string(v)))
                })
            }
        }
    }

    /// Appends rows of another column that is being built.
    pub(crate) fn take_from(&mut self, from: &mut ColumnBuilder<'_>, rows: Range<usize>) -> Result<(), Error> {
        for row in rows {
            let shape = *from.shapes.shape(row);
            match self.kind {
                Kind::Number(_) => self.add(&shape, 1)?.copy_from_slice(from.bytes_mut(row..row + 1)),
                Kind::Bytes => {
                    let start = |v: usize| if v == 0 { 0 } else { from.ends[v - 1] as usize };
                    let string = |v: usize| &from.data.bytes()[start(v)..from.ends[v] as usize];
                    self.add_strings(&shape, from.shapes.values(row).map(string))?;
                }
            }
        }
        Ok(())
    }

    /// The shape of a row.
    pub(crate) fn shape(&self, row: usize) -> &Shape {
        self.shapes.shape(row)
    }

    /// The bytes of numbers of some rows, to be changed.
    pub(crate) fn bytes_mut(&mut self, rows: Range<usize>) -> &mut [u8] {
        let Kind::Number(dtype) = self.kind else { return &mut [] };
        if rows.is_empty() {
            return &mut [];
        }
        let start = self.shapes.values(rows.start).start * dtype.size();
        let end = self.shapes.values(rows.end - 1).end * dtype.size();
        &mut self.data.bytes_mut()[start..end]
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        if rows >= self.rows {
            // What a row left behind that was begun and not finished.
            let n_values = self.n_values();
            self.cut_values(n_values);
            return;
        }
        let n_values = self.shapes.values(rows).start;
        self.rows = rows;
        if let Shapes::Each(shapes, starts) = &mut self.shapes {
            shapes.truncate(rows);
            starts.truncate(rows);
        }
        self.cut_values(n_values);
    }

    fn cut_values(&mut self, n_values: usize) {
        match self.kind {
            Kind::Number(dtype) => self.data.truncate(n_values * dtype.size()),
            Kind::Bytes => {
                self.ends.truncate(n_values);
                self.data.truncate(self.ends.last().map_or(0, |end| *end as usize));
            }
        }
        if let Shapes::Each(shapes, starts) = &mut self.shapes {
            shapes.truncate(self.rows);
            starts.truncate(self.rows);
        }
    }

    fn n_values(&self) -> usize {
        if self.rows == 0 { 0 } else { self.shapes.values(self.rows - 1).end }
    }

    /// Makes `shapes` ready for `n` more rows of this shape.
    fn note(&mut self, shape: &Shape, n: usize) -> Result<(), Error> {
        if let Shapes::Same(same) = &self.shapes {
            if same == shape {
                return Ok(());
            }
            if self.rows == 0 {
                self.shapes = Shapes::Same(*shape);
                return Ok(());
            }
            let same = *same;
            let (mut shapes, mut starts) = (Counted::new(&self.account)?, Counted::new(&self.account)?);
            shapes.grow(self.rows, same)?;
            for row in 0..self.rows {
                starts.push((row * same.elements()) as u64)?;
            }
            self.shapes = Shapes::Each(shapes, starts);
        }
        let start = self.n_values();
        let Shapes::Each(shapes, starts) = &mut self.shapes else { unreachable!("made so above") };
        // Rows begun and given up may have left entries.
        shapes.truncate(self.rows);
        starts.truncate(self.rows);
        for i in 0..n {
            shapes.push(*shape)?;
            starts.push((start + i * shape.elements()) as u64)?;
        }
        Ok(())
    }

    /// Takes rows as parts of larger ones: `n` rows become one with one more axis. The rows have one shape.
    fn group(&mut self, n: usize) {
        let Shapes::Same(shape) = &self.shapes else { panic!("rows of different shapes cannot be grouped") };
        self.shapes = Shapes::Same(shape.insert(0, n));
        self.rows /= n;
    }

    fn ungroup(&mut self, n: usize) {
        if let Shapes::Same(shape) = &self.shapes {
            if self.rows > 0 || shape.rank() > 0 {
                self.shapes = Shapes::Same(shape.remove(0));
            }
            self.rows *= n;
        }
    }

    fn can_ungroup(&self, n: usize) -> bool {
        match &self.shapes {
            Shapes::Same(shape) => self.rows == 0 || shape.dims().first() == Some(&n),
            Shapes::Each(..) => false,
        }
    }

    fn finish(self) -> Column {
        let Store::Owned(data) = self.data else { panic!("only memory of its own can become a column") };
        let body = Body { kind: self.kind, shapes: self.shapes, data, ends: self.ends };
        Column { body: Arc::new(body), first: 0, rows: self.rows }
    }
}

/// Elements being put together.
pub(crate) struct Builder<'a> {
    pub(crate) columns: Vec<ColumnBuilder<'a>>,
    rows: usize,
    account: Account,
}

impl<'a> Builder<'a> {
    /// In memory of its own.
    pub(crate) fn new(account: &Account, spec: &Spec) -> Result<Builder<'static>, Error> {
        let column = |c: &Component| ColumnBuilder::new(account, c, Store::Owned(Memory::new(account)?));
        let columns = spec.components().iter().map(column).collect::<Result<_, Error>>()?;
        Ok(Builder { columns, rows: 0, account: account.clone() })
    }

    /// In memory of the caller, one stretch per component; in memory of its own for components that have none.
    pub(crate) fn given(
        account: &Account,
        spec: &Spec,
        memory: &'a mut [Option<&mut [u8]>],
    ) -> Result<Builder<'a>, Error> {
        let mut columns = Vec::with_capacity(memory.len());
        for (component, memory) in spec.components().iter().zip(memory) {
            let store = match memory {
                Some(memory) => Store::Given(memory, 0),
                None => Store::Owned(Memory::new(account)?),
            };
            columns.push(ColumnBuilder::new(account, component, store)?);
        }
        Ok(Builder { columns, rows: 0, account: account.clone() })
    }

    /// Where builders of what leads to these elements get their memory too.
    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// The elements that are complete.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Takes in `n` elements that have been appended to all columns.
    pub(crate) fn commit_rows(&mut self, n: usize) {
        self.rows += n;
        debug_assert!(self.columns.iter().all(|c| c.rows == self.rows), "columns of different lengths");
    }

    /// Removes what was appended since the last `commit`.
    pub(crate) fn rollback(&mut self) {
        self.truncate(self.rows);
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        for column in &mut self.columns {
            column.truncate(rows);
        }
    }

    /// Makes room for `n` more elements, where they all have one size.
    pub(crate) fn reserve(&mut self, spec: &Spec, n: usize) -> Result<(), Error> {
        for (column, component) in self.columns.iter_mut().zip(spec.components()) {
            if let Some(shape) = component.shape() {
                column.reserve(&shape, n)?;
            }
        }
        Ok(())
    }

    /// Appends elements of a chunk.
    pub(crate) fn append(&mut self, chunk: &Chunk, rows: Range<usize>) -> Result<(), Error> {
        let n = rows.len();
        for (column, from) in self.columns.iter_mut().zip(&chunk.columns) {
            column.append(from, rows.clone())?;
        }
        self.commit_rows(n);
        Ok(())
    }

    /// Takes rows as parts of larger ones; what is left over at the end must have been cut off before.
    pub(crate) fn group(&mut self, n: usize) {
        self.columns.iter_mut().for_each(|c| c.group(n));
        self.rows /= n;
    }

    /// The reverse of `group`, where all rows are of that kind.
    pub(crate) fn ungroup(&mut self, n: usize) -> bool {
        let can = self.columns.iter().all(|c| c.can_ungroup(n));
        if can {
            self.columns.iter_mut().for_each(|c| c.ungroup(n));
            self.rows *= n;
        }
        can
    }

    /// Parts with the columns from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Builder<'a> {
        Builder { columns: self.columns.split_off(at), rows: self.rows, account: self.account.clone() }
    }

    /// Takes the columns of another back, and as many rows as both have.
    pub(crate) fn join(&mut self, mut other: Builder<'a>) {
        let rows = self.rows.min(other.rows);
        self.truncate(rows);
        other.truncate(rows);
        self.columns.append(&mut other.columns);
    }

    pub(crate) fn finish(mut self) -> Chunk {
        self.rollback();
        Chunk { rows: self.rows, columns: self.columns.into_iter().map(ColumnBuilder::finish).collect() }
    }
}
