//! `map`: a function of every element.

use super::{Inlet, Transform};
use crate::builder::Builder;
use crate::column::{Chunk, Row};
use crate::dataset::{Node, Total, expect_lookup, open_flow};
use crate::flow::{Lookup, Open, Stage};
use crate::least::{fixed_bytes, held_bytes};
use crate::memory::as_numbers_mut;
use crate::{BatchSizes, Cardinality, Component, Dataset, Error, Kind, Spec};
use plimsoll_budget::Reservation;
use plimsoll_tensor::{Element as Number, Shape, TensorType};
use std::ops::Range;
use std::sync::Arc;

impl Dataset {
    /// Every element replaced by what `function` writes, which has the given components.
    ///
    /// The function must depend on its element alone (and on [`Row::random`]): it is called in any order and from any thread.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Component, Dataset, Kind};
    /// use plimsoll_tensor::DType;
    /// let data = Dataset::range(0, 3, 1).map(
    ///     [Component::new("half", DType::F32, &[]), Component::new("name", Kind::Bytes, &[])],
    ///     |row, out| {
    ///         let value = row.get::<i64>("value")?[0];
    ///         out.set("half", &[], &[value as f32 / 2.0])?;
    ///         out.string("name", format!("number {value}").as_bytes())
    ///     },
    /// );
    /// let last = data.iter(&Budget::unlimited())?.last().unwrap()?;
    /// assert_eq!(last.get::<f32>("half")?, [1.0]);
    /// assert_eq!(last.row().string("name")?, b"number 2");
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn map<F>(&self, components: impl IntoIterator<Item = Component>, function: F) -> Dataset
    where
        F: Fn(&Row<'_>, &mut Writer<'_, '_>) -> Result<(), Error> + Send + Sync + 'static,
    {
        self.map_of_sizes(components, Sizes::unknown(), function)
    }

    /// As [`Dataset::map`], with a function of which more is known.
    pub(crate) fn map_of_sizes<F>(
        &self,
        components: impl IntoIterator<Item = Component>,
        sizes: Sizes,
        function: F,
    ) -> Dataset
    where
        F: Fn(&Row<'_>, &mut Writer<'_, '_>) -> Result<(), Error> + Send + Sync + 'static,
    {
        let spec = Spec::new(components);
        self.then(|input| {
            let spec = Arc::new(spec?);
            let transform = Write { input: input.spec().clone(), spec: spec.clone(), function, sizes };
            Ok(Map { input, spec, transform: Arc::new(transform), what: "map" })
        })
    }

    /// One component of every element changed where it is: the fastest map, without copies.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let data = Dataset::range(0, 3, 1).map_in_place("value", |v: &mut [i64]| v[0] *= 10);
    /// let values: Vec<i64> = data.iter(&Budget::unlimited())?.map(|e| e.unwrap().get("value").unwrap()[0]).collect();
    /// assert_eq!(values, [0, 10, 20]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn map_in_place<T: Number, F>(&self, name: &str, function: F) -> Dataset
    where
        F: Fn(&mut [T]) + Send + Sync + 'static,
    {
        self.then(|input| {
            let column = input.spec().expect("map", name)?;
            let found = input.spec().components()[column].kind;
            if found != Kind::Number(T::DTYPE) {
                let message = format!("component '{name}' holds {found}, but the function takes {}", T::DTYPE);
                return Err(Error::pipeline("map", message));
            }
            let spec = input.spec().clone();
            let transform = InPlace { column, function, number: std::marker::PhantomData };
            Ok(Map { input, spec, transform: Arc::new(transform), what: "map in place" })
        })
    }

    /// Only these components, in this order.
    pub fn select(&self, names: &[&str]) -> Dataset {
        self.rename(&names.iter().map(|name| (*name, *name)).collect::<Vec<_>>())
    }

    /// Only these components, in this order, under new names: `(old, new)`.
    pub fn rename(&self, names: &[(&str, &str)]) -> Dataset {
        self.then(|input| {
            let columns: Vec<usize> =
                names.iter().map(|(old, _)| input.spec().expect("select", old)).collect::<Result<_, _>>()?;
            let component = |(c, n): (&usize, &(&str, &str))| Component {
                name: n.1.into(),
                ..input.spec().components()[*c].clone()
            };
            let spec = Arc::new(Spec::new(columns.iter().zip(names).map(component))?);
            Ok(Map { input, spec, transform: Arc::new(Select { columns }), what: "select" })
        })
    }
}

/// Takes what a function given to [`Dataset::map`] makes of an element: every component once.
pub struct Writer<'a, 'b> {
    spec: &'a Spec,
    out: &'a mut Builder<'b>,
}

impl<'a, 'b> Writer<'a, 'b> {
    /// Appends one element.
    pub(crate) fn row(
        spec: &'a Spec,
        out: &'a mut Builder<'b>,
        write: impl FnOnce(&mut Writer<'_, 'b>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut writer = Writer { spec, out };
        let result = write(&mut writer).and_then(|()| writer.finish());
        if result.is_err() {
            writer.out.rollback();
        }
        result
    }

    /// Writes numbers.
    ///
    /// # Errors
    /// When there is no such component, it has another type or shape, or it has been written already.
    pub fn set<T: Number>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<(), Error> {
        let slot = self.slot::<T>(name, shape)?;
        if slot.len() != values.len() {
            let message = format!("shape {shape:?} has {} values, but {} were given", slot.len(), values.len());
            return Err(Error::element(format!("component '{name}': {message}")));
        }
        slot.copy_from_slice(values);
        Ok(())
    }

    /// The place of a component, to be filled with numbers; what is not written is unspecified.
    ///
    /// # Errors
    /// As [`Writer::set`].
    pub fn slot<T: Number>(&mut self, name: &str, shape: &[usize]) -> Result<&mut [T], Error> {
        let column = self.expect(name, Kind::Number(T::DTYPE), shape)?;
        self.out.columns[column].add_numbers(&Shape::new(shape))
    }

    /// Writes numbers of any type, given as bytes in memory order, for callers who have them from another tensor.
    ///
    /// # Errors
    /// As [`Writer::set`].
    pub fn raw(&mut self, name: &str, ty: &TensorType, bytes: &[u8]) -> Result<(), Error> {
        let column = self.expect(name, Kind::Number(ty.dtype), ty.dims())?;
        if bytes.len() != ty.bytes() {
            let message = format!("component '{name}': {ty} has {} bytes, but {} were given", ty.bytes(), bytes.len());
            return Err(Error::element(message));
        }
        self.out.columns[column].add(&ty.shape, 1)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Writes one string.
    ///
    /// # Errors
    /// As [`Writer::set`].
    pub fn string(&mut self, name: &str, string: &[u8]) -> Result<(), Error> {
        self.strings(name, &[], &[string])
    }

    /// Writes strings.
    ///
    /// # Errors
    /// As [`Writer::set`].
    pub fn strings(&mut self, name: &str, shape: &[usize], strings: &[&[u8]]) -> Result<(), Error> {
        if shape.iter().product::<usize>() != strings.len() {
            let n = shape.iter().product::<usize>();
            let message = format!("shape {shape:?} has {n} strings, but {} were given", strings.len());
            return Err(Error::element(format!("component '{name}': {message}")));
        }
        self.put_strings(name, shape, strings.iter().copied())
    }

    /// Writes as many strings as the shape has.
    pub(crate) fn put_strings<'s>(
        &mut self,
        name: &str,
        shape: &[usize],
        strings: impl Iterator<Item = &'s [u8]> + Clone,
    ) -> Result<(), Error> {
        let column = self.expect(name, Kind::Bytes, shape)?;
        self.out.columns[column].add_strings(&Shape::new(shape), strings)
    }

    /// Copies a component of the element that is read.
    ///
    /// # Errors
    /// As [`Writer::set`], and when the element has no component `from`.
    pub fn copy(&mut self, name: &str, row: &Row<'_>, from: &str) -> Result<(), Error> {
        let source = &row.chunk.columns[row.spec.expect("map", from)?];
        let column = self.expect(name, source.kind(), source.shape(row.row).dims())?;
        self.out.columns[column].append(source, row.row..row.row + 1)
    }

    /// Memory for work on the element, counted until it is dropped.
    ///
    /// # Errors
    /// When the budget does not have it.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Error> {
        Ok(self.out.account().reserve(bytes.into())?)
    }

    fn expect(&self, name: &str, kind: Kind, dims: &[usize]) -> Result<usize, Error> {
        let column = self.spec.expect("map", name)?;
        let component = &self.spec.components()[column];
        let shape = Shape::try_new(dims).ok_or_else(|| {
            Error::element(format!("component '{name}': more than {} axes", plimsoll_tensor::MAX_RANK))
        })?;
        if component.kind != kind || !component.admits(&shape) {
            return Err(Error::element(format!("a component {component} was declared, but {kind}{shape} is written")));
        }
        if self.out.columns[column].rows() > self.out.rows() {
            return Err(Error::element(format!("component '{name}' is written twice")));
        }
        Ok(column)
    }

    /// Takes the element in.
    fn finish(&mut self) -> Result<(), Error> {
        let missing = self.out.columns.iter().position(|c| c.rows() == self.out.rows());
        if let Some(missing) = missing {
            return Err(Error::element(format!(
                "component '{}' was not written",
                self.spec.components()[missing].name
            )));
        }
        self.out.commit_rows(1);
        Ok(())
    }
}

struct Write<F> {
    input: Arc<Spec>,
    spec: Arc<Spec>,
    function: F,
    sizes: Sizes,
}

/// What is known of a function that makes elements.
pub(crate) struct Sizes {
    /// The bytes of the largest element that it makes of one of so many bytes, where sizes are not in the components.
    pub(crate) largest: Box<dyn Fn(u64) -> Option<u64> + Send + Sync>,
    /// What it holds meanwhile.
    pub(crate) scratch: Box<dyn Fn(u64) -> Option<u64> + Send + Sync>,
    /// What all elements that it makes have together, where that is known.
    pub(crate) total: Box<dyn Fn() -> Option<Total> + Send + Sync>,
}

impl Sizes {
    /// What is known of a function of the user.
    fn unknown() -> Sizes {
        Sizes { largest: Box::new(|_| None), scratch: Box::new(|_| Some(0)), total: Box::new(|| None) }
    }
}

impl<F> Transform for Write<F>
where
    F: Fn(&Row<'_>, &mut Writer<'_, '_>) -> Result<(), Error> + Send + Sync,
{
    fn apply(
        &self,
        chunk: &Chunk,
        rows: Range<usize>,
        number: &dyn Fn(usize) -> u64,
        epoch: u64,
        out: &mut Builder<'_>,
    ) -> Result<(), (usize, Error)> {
        for row in rows {
            let view = Row { spec: &self.input, chunk, row, index: number(row), epoch };
            Writer::row(&self.spec, out, |writer| (self.function)(&view, writer))
                .map_err(|error| (row, error.for_element("map", number(row))))?;
        }
        Ok(())
    }

    fn largest(&self, input: u64) -> Option<u64> {
        (self.sizes.largest)(input)
    }

    fn scratch(&self, input: u64) -> Option<u64> {
        (self.sizes.scratch)(input)
    }

    fn total(&self) -> Option<Total> {
        (self.sizes.total)()
    }
}

struct InPlace<T, F> {
    column: usize,
    function: F,
    number: std::marker::PhantomData<fn(T)>,
}

impl<T: Number, F: Fn(&mut [T]) + Send + Sync> Transform for InPlace<T, F> {
    fn apply(
        &self,
        chunk: &Chunk,
        rows: Range<usize>,
        _number: &dyn Fn(usize) -> u64,
        _epoch: u64,
        out: &mut Builder<'_>,
    ) -> Result<(), (usize, Error)> {
        let before = out.rows();
        out.append(chunk, rows.clone()).map_err(|error| (rows.start, error))?;
        self.change(out, before..before + rows.len());
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        true
    }

    fn largest(&self, input: u64) -> Option<u64> {
        Some(input)
    }

    fn change(&self, out: &mut Builder<'_>, rows: Range<usize>) {
        let column = &mut out.columns[self.column];
        for row in rows {
            let bytes = column.bytes_mut(row..row + 1);
            (self.function)(as_numbers_mut(bytes).expect("columns are aligned"));
        }
    }
}

struct Select {
    columns: Vec<usize>,
}

impl Transform for Select {
    fn apply(
        &self,
        chunk: &Chunk,
        rows: Range<usize>,
        _number: &dyn Fn(usize) -> u64,
        _epoch: u64,
        out: &mut Builder<'_>,
    ) -> Result<(), (usize, Error)> {
        for (to, from) in self.columns.iter().enumerate() {
            out.columns[to].append(&chunk.columns[*from], rows.clone()).map_err(|error| (rows.start, error))?;
        }
        out.commit_rows(rows.len());
        Ok(())
    }

    fn largest(&self, input: u64) -> Option<u64> {
        // A component may be asked for under several names.
        let times = |column: &usize| self.columns.iter().filter(|c| *c == column).count() as u64;
        input.checked_mul(self.columns.iter().map(times).max()?)
    }
}

struct Map {
    input: Arc<dyn Node>,
    spec: Arc<Spec>,
    transform: Arc<dyn Transform>,
    what: &'static str,
}

impl Node for Map {
    fn describe(&self) -> String {
        format!("{} -> {}", self.what, self.spec)
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        self.input.cardinality()
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup()
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let input = expect_lookup(&self.input, open)?;
        let spec = self.input.spec().clone();
        Ok(Some(Arc::new(MapLookup { input, spec, transform: self.transform.clone() })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let input = Inlet::new(open_flow(&self.input, open, epoch)?);
        Ok(Box::new(MapStage { input, transform: self.transform.clone(), epoch }))
    }

    fn used(&self, given: u64) -> Option<u64> {
        Some(given)
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        let working = match self.is_lookup() {
            true if self.transform.is_in_place() => return self.input.working_bytes(rows),
            // Element by element, where there is no room for more.
            true => self.input.working_bytes(1)?.checked_add(held_bytes(&*self.input, 1)?)?,
            false => super::inlet_bytes(&*self.input)?,
        };
        // A function that has no use for the size of its input need not know it.
        working.checked_add(self.transform.scratch(self.input.largest().unwrap_or(u64::MAX))?)
    }

    fn batch_sizes(&self) -> Option<BatchSizes> {
        self.spec.batch_sizes(|| self.input.batch_sizes())
    }

    fn largest(&self) -> Option<u64> {
        fixed_bytes(&self.spec).or_else(|| self.transform.largest(self.input.largest()?))
    }

    fn counted(&self) -> Option<u64> {
        self.input.counted()
    }

    fn total(&self) -> Option<Total> {
        match self.transform.is_in_place() {
            true => self.input.total(),
            false => self.transform.total().or_else(|| Total::of(self.input.total()?.elements, self.largest()?)),
        }
    }

    fn transform(&self) -> Option<Arc<dyn Transform>> {
        Some(self.transform.clone())
    }
}

struct MapLookup {
    input: Arc<dyn Lookup>,
    spec: Arc<Spec>,
    transform: Arc<dyn Transform>,
}

impl Lookup for MapLookup {
    fn len(&self) -> u64 {
        self.input.len()
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let before = out.rows();
        if self.transform.is_in_place() {
            self.input.gather(epoch, at, out)?;
            self.transform.change(out, before..out.rows());
            return Ok(());
        }
        // Part by part, so that the input's elements are still in the cache when they are read; in smaller parts, down to single
        // elements, when there is no room for so many.
        let mut part = self.spec.bytes().map_or(at.len(), |element| (self.preferred_bytes() / element.max(1)).max(1));
        let mut rest = at;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(part.min(rest.len()));
            let before = out.rows();
            match self.gather_part(epoch, now, out) {
                Ok(()) => rest = later,
                Err(error) if error.is_over_budget() && now.len() > 1 => {
                    out.truncate(before);
                    part = now.len() / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

impl MapLookup {
    fn gather_part(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let mut input = Builder::new(out.account(), &self.spec)?;
        self.input.gather(epoch, at, &mut input)?;
        let chunk = input.finish();
        let result = self.transform.apply(&chunk, 0..chunk.rows, &|row| at[row], epoch, out);
        result.map_err(|(_, error)| error)
    }
}

struct MapStage {
    input: Inlet,
    transform: Arc<dyn Transform>,
    epoch: u64,
}

impl Stage for MapStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let Some((chunk, rows)) = self.input.peek(want)? else { return Ok(false) };
        let (chunk, rows) = (chunk.clone(), rows.start..rows.end.min(rows.start + want));
        let first = self.input.first();
        let result = self.transform.apply(&chunk, rows.clone(), &|row| first + row as u64, self.epoch, out);
        match result {
            Ok(()) => {
                self.input.advance(rows.len());
                Ok(true)
            }
            Err((bad, error)) => {
                self.input.advance(bad + 1 - rows.start);
                Err(error)
            }
        }
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        self.input.skip(n)
    }
}
