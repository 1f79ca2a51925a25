//! Elements in columns: many elements at a time, one stretch of memory per component.
//!
//! A [`Chunk`] is what stages hand to each other. It cannot be changed any more, so slices of it share its memory.

use crate::memory::{Counted, Memory, as_numbers};
use crate::{Error, Kind, Spec};
use plimsoll_tensor::{DType, Element as Number, Shape, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// The shapes of a column's rows.
pub(crate) enum Shapes {
    Same(Shape),
    /// The shape of each row, and the number of values before it.
    Each(Counted<Shape>, Counted<u64>),
}

impl Shapes {
    pub(crate) fn shape(&self, row: usize) -> &Shape {
        match self {
            Shapes::Same(shape) => shape,
            Shapes::Each(shapes, _) => &shapes[row],
        }
    }

    /// Which values of the column are those of a row.
    pub(crate) fn values(&self, row: usize) -> Range<usize> {
        let (start, shape) = match self {
            Shapes::Same(shape) => (row * shape.elements(), shape),
            Shapes::Each(shapes, starts) => (starts[row] as usize, &shapes[row]),
        };
        start..start + shape.elements()
    }
}

pub(crate) struct Body {
    pub(crate) kind: Kind,
    pub(crate) shapes: Shapes,
    pub(crate) data: Memory,
    /// For strings: where each ends in `data`.
    pub(crate) ends: Counted<u64>,
}

/// One component of several elements.
#[derive(Clone)]
pub(crate) struct Column {
    pub(crate) body: Arc<Body>,
    pub(crate) first: usize,
    pub(crate) rows: usize,
}

impl Column {
    pub(crate) fn kind(&self) -> Kind {
        self.body.kind
    }

    pub(crate) fn shape(&self, row: usize) -> &Shape {
        self.body.shapes.shape(self.first + row)
    }

    /// The shape of every row, where it is stored as one.
    pub(crate) fn same_shape(&self) -> Option<&Shape> {
        match &self.body.shapes {
            Shapes::Same(shape) => Some(shape),
            Shapes::Each(..) => None,
        }
    }

    pub(crate) fn values(&self, rows: Range<usize>) -> Range<usize> {
        if rows.is_empty() {
            return 0..0;
        }
        let first = self.body.shapes.values(self.first + rows.start);
        let last = self.body.shapes.values(self.first + rows.end - 1);
        first.start..last.end
    }

    /// The bytes of numbers of several rows.
    pub(crate) fn bytes(&self, rows: Range<usize>) -> &[u8] {
        let size = match self.body.kind {
            Kind::Number(dtype) => dtype.size(),
            Kind::Bytes => return &[],
        };
        let values = self.values(rows);
        &self.body.data.bytes()[values.start * size..values.end * size]
    }

    /// One string of the column, counted from the column's first value.
    pub(crate) fn string(&self, value: usize) -> &[u8] {
        let start = if value == 0 { 0 } else { self.body.ends[value - 1] };
        &self.body.data.bytes()[start as usize..self.body.ends[value] as usize]
    }

    pub(crate) fn slice(&self, rows: Range<usize>) -> Column {
        Column { body: self.body.clone(), first: self.first + rows.start, rows: rows.len() }
    }

    /// The bytes held by some rows, for deciding how many to handle at a time.
    pub(crate) fn weight(&self) -> usize {
        let values = self.values(0..self.rows);
        match self.body.kind {
            Kind::Number(dtype) => values.len() * dtype.size(),
            Kind::Bytes => {
                let end = |v: usize| if v == 0 { 0 } else { self.body.ends[v - 1] as usize };
                end(values.end) - end(values.start) + values.len() * 8
            }
        }
    }
}

/// Several elements.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) rows: usize,
    pub(crate) columns: Vec<Column>,
}

impl Chunk {
    pub(crate) fn slice(&self, rows: Range<usize>) -> Chunk {
        debug_assert!(rows.end <= self.rows);
        Chunk { rows: rows.len(), columns: self.columns.iter().map(|c| c.slice(rows.clone())).collect() }
    }

    pub(crate) fn weight(&self) -> usize {
        self.columns.iter().map(Column::weight).sum()
    }
}

/// One element, as functions given to `map` and `filter` see it.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) chunk: &'a Chunk,
    pub(crate) row: usize,
    pub(crate) index: u64,
    pub(crate) epoch: u64,
}

impl<'a> Row<'a> {
    /// The number of the element where the function stands: of a source that can be indexed its row, else a count.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The pass over the data.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A random number that depends on the seed, the element and the epoch alone: for augmentation that does not change with
    /// threads or after a resume.
    pub fn random(&self, seed: u64) -> u64 {
        crate::permutation::mix(crate::permutation::mix(seed ^ self.epoch.rotate_left(40)) ^ self.index)
    }

    /// The components.
    pub fn spec(&self) -> &'a Spec {
        self.spec
    }

    /// The numbers of a component, in row-major order.
    ///
    /// # Errors
    /// When there is no such component or it has another type.
    pub fn get<T: Number>(&self, name: &str) -> Result<&'a [T], Error> {
        self.at(self.spec.expect("element", name)?)
    }

    /// The numbers of the component at a place.
    ///
    /// # Errors
    /// When it has another type.
    ///
    /// # Panics
    /// When there are fewer components.
    pub fn at<T: Number>(&self, component: usize) -> Result<&'a [T], Error> {
        let column = &self.chunk.columns[component];
        self.expect(component, Kind::Number(T::DTYPE))?;
        Ok(as_numbers(column.bytes(self.row..self.row + 1)).expect("columns are aligned"))
    }

    /// The strings of a component, in row-major order.
    ///
    /// # Errors
    /// When there is no such component or it does not hold strings.
    pub fn strings(&self, name: &str) -> Result<impl ExactSizeIterator<Item = &'a [u8]> + use<'a>, Error> {
        let component = self.spec.expect("element", name)?;
        self.expect(component, Kind::Bytes)?;
        let column = &self.chunk.columns[component];
        Ok(column.values(self.row..self.row + 1).map(|v| column.string(v)))
    }

    /// The string of a component that holds one.
    ///
    /// # Errors
    /// When there is no such component or it does not hold exactly one string.
    pub fn string(&self, name: &str) -> Result<&'a [u8], Error> {
        let mut strings = self.strings(name)?;
        match (strings.next(), strings.len()) {
            (Some(string), 0) => Ok(string),
            (first, more) => {
                let n = first.is_some() as usize + more;
                Err(Error::element(format!("component '{name}' holds {n} strings, one was asked for")))
            }
        }
    }

    /// The numbers of a component as bytes in memory order.
    ///
    /// # Errors
    /// When there is no such component or it holds strings.
    pub fn bytes(&self, name: &str) -> Result<&'a [u8], Error> {
        let component = self.spec.expect("element", name)?;
        match self.chunk.columns[component].kind() {
            Kind::Number(_) => Ok(self.chunk.columns[component].bytes(self.row..self.row + 1)),
            Kind::Bytes => Err(Error::pipeline("element", format!("component '{name}' holds strings, not numbers"))),
        }
    }

    /// The shape of a component.
    ///
    /// # Errors
    /// When there is no such component.
    pub fn shape(&self, name: &str) -> Result<&'a Shape, Error> {
        Ok(self.chunk.columns[self.spec.expect("element", name)?].shape(self.row))
    }

    /// A component as a tensor of its own.
    ///
    /// # Errors
    /// When there is no such component or it holds strings.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let bytes = self.bytes(name)?;
        let Kind::Number(dtype) = self.chunk.columns[self.spec.expect("element", name)?].kind() else {
            unreachable!("`bytes` refuses strings")
        };
        let mut tensor = Tensor::zeros(dtype, *self.shape(name)?);
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    fn expect(&self, component: usize, asked: Kind) -> Result<(), Error> {
        let found = self.chunk.columns[component].kind();
        match found == asked {
            true => Ok(()),
            false => {
                let name = &self.spec.components()[component].name;
                Err(Error::pipeline("element", format!("component '{name}' holds {found}, but {asked} was asked for")))
            }
        }
    }
}

/// One element that an iterator gave out. It shares the memory of its neighbours; copying is cheap.
#[derive(Clone)]
pub struct Element {
    pub(crate) spec: Arc<Spec>,
    pub(crate) chunk: Chunk,
    pub(crate) index: u64,
    pub(crate) epoch: u64,
}

impl Element {
    /// The element for reading.
    pub fn row(&self) -> Row<'_> {
        Row { spec: &self.spec, chunk: &self.chunk, row: 0, index: self.index, epoch: self.epoch }
    }

    /// The components.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The numbers of a component; see [`Row::get`].
    ///
    /// # Errors
    /// When there is no such component or it has another type.
    pub fn get<T: Number>(&self, name: &str) -> Result<&[T], Error> {
        self.row().get(name)
    }

    /// The shape of a component.
    ///
    /// # Errors
    /// When there is no such component.
    pub fn shape(&self, name: &str) -> Result<&Shape, Error> {
        self.row().shape(name)
    }

    /// The strings of a component; see [`Row::strings`].
    ///
    /// # Errors
    /// When there is no such component or it does not hold strings.
    pub fn strings(&self, name: &str) -> Result<impl ExactSizeIterator<Item = &[u8]>, Error> {
        self.row().strings(name)
    }

    /// A component as a tensor of its own.
    ///
    /// # Errors
    /// When there is no such component or it holds strings.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        self.row().tensor(name)
    }

    /// The names of the components, as a tree: what tuples and maps were flattened from.
    pub fn nest(&self) -> Nest {
        Nest::of(self.spec.components().iter().map(|c| c.name.as_str()))
    }
}

impl std::fmt::Debug for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let row = self.row();
        let mut map = f.debug_map();
        for c in self.spec.components() {
            match c.kind {
                Kind::Number(_) => map.entry(&c.name, &row.tensor(&c.name)),
                Kind::Bytes => {
                    let strings = row.strings(&c.name).into_iter().flatten();
                    map.entry(&c.name, &strings.map(String::from_utf8_lossy).collect::<Vec<_>>())
                }
            };
        }
        map.finish()
    }
}

/// How components are nested: read off their names, as `0`, `1/image`, `1/label`.
///
/// ```
/// use plimsoll_data::Nest;
/// let nest = Nest::of(["0", "1/image", "1/label"]);
/// assert_eq!(nest.to_string(), "(0, {image: 1/image, label: 1/label})");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nest {
    /// A component of this name.
    Leaf(String),
    /// Parts by place.
    Tuple(Vec<Nest>),
    /// Parts by name.
    Map(Vec<(String, Nest)>),
}

impl Nest {
    /// The tree of these names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Nest {
        let names: Vec<(&str, &str)> = names.into_iter().map(|name| (name, name)).collect();
        Nest::build(&names)
    }

    /// `names`: what is left of each name, and the whole name.
    fn build(names: &[(&str, &str)]) -> Nest {
        if let [("", whole)] = names {
            return Nest::Leaf(whole.to_string());
        }
        let mut groups: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
        for (rest, whole) in names {
            let (head, tail) = rest.split_once('/').unwrap_or((rest, ""));
            match groups.iter_mut().find(|(name, _)| *name == head) {
                Some((_, group)) => group.push((tail, whole)),
                None => groups.push((head, vec![(tail, whole)])),
            }
        }
        let is_tuple = groups.iter().enumerate().all(|(i, (name, _))| *name == i.to_string());
        if is_tuple {
            return Nest::Tuple(groups.iter().map(|(_, group)| Nest::build(group)).collect());
        }
        Nest::Map(groups.iter().map(|(name, group)| (name.to_string(), Nest::build(group))).collect())
    }
}

impl std::fmt::Display for Nest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Nest::Leaf(name) => write!(f, "{name}"),
            Nest::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|p| p.to_string()).collect();
                write!(f, "({})", parts.join(", "))
            }
            Nest::Map(parts) => {
                let parts: Vec<String> = parts.iter().map(|(name, p)| format!("{name}: {p}")).collect();
                write!(f, "{{{}}}", parts.join(", "))
            }
        }
    }
}

/// The type whose zero pads and whose size counts, for columns of numbers.
pub(crate) fn dtype(kind: Kind) -> Option<DType> {
    match kind {
        Kind::Number(dtype) => Some(dtype),
        Kind::Bytes => None,
    }
}
