//! Arrays in memory, and ranges of numbers.

use crate::builder::Builder;
use crate::dataset::Node;
use crate::flow::{Lookup, Open, Stage};
use crate::least::string_bytes;
use crate::{Cardinality, Component, Dataset, Error, Kind, Spec};
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
use std::sync::Arc;

impl Dataset {
    /// The slices of tensors along their first axis, which must be equally long: `from_tensor_slices`.
    ///
    /// The tensors are not copied, and may be shared (`Arc<Tensor>`). Names of nested maps and tuples are joined by `/`.
    pub fn from_arrays<N, T>(arrays: impl IntoIterator<Item = (N, T)>) -> Dataset
    where
        N: Into<String>,
        T: Into<Arc<Tensor>>,
    {
        Dataset::from_columns(arrays.into_iter().map(|(name, tensor)| (name.into(), Array::Numbers(tensor.into()))))
    }

    /// The slices of memory that belongs to somebody else, such as another language's arrays: read where it is, never copied whole.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Dataset, Shared};
    /// use plimsoll_tensor::{DType, TensorType};
    /// use std::sync::Arc;
    /// struct Bytes(Vec<u8>);
    /// impl Shared for Bytes {
    ///     fn bytes(&self) -> &[u8] {
    ///         &self.0
    ///     }
    /// }
    /// let memory: Arc<dyn Shared> = Arc::new(Bytes(vec![1, 2, 3, 4]));
    /// let data = Dataset::from_shared([("x", TensorType::new(DType::U8, [2, 2]), memory)]);
    /// let last = data.iter(&Budget::unlimited())?.last().unwrap()?;
    /// assert_eq!(last.get::<u8>("x")?, [3, 4]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn from_shared<N: Into<String>>(arrays: impl IntoIterator<Item = (N, TensorType, Arc<dyn Shared>)>) -> Dataset {
        let mut columns = Vec::new();
        for (name, ty, memory) in arrays {
            let name = name.into();
            let found = memory.bytes().len();
            if found != ty.bytes() {
                let message = format!("'{name}' is {ty}, which has {} bytes, but there are {found}", ty.bytes());
                return Dataset::from_result(Err(Error::pipeline("from_shared", message)));
            }
            columns.push((name, Array::Shared(ty, memory)));
        }
        Dataset::from_columns(columns)
    }

    /// Strings, as a component `name`.
    pub fn from_strings<S: AsRef<[u8]>>(name: &str, strings: impl IntoIterator<Item = S>) -> Dataset {
        let strings = strings.into_iter().map(|s| s.as_ref().to_vec()).collect();
        Dataset::from_columns([(name.to_string(), Array::Strings(strings))])
    }

    /// The slice of one tensor: a data set of a single component `name`.
    pub fn from_array(name: &str, tensor: Tensor) -> Dataset {
        Dataset::from_arrays([(name, tensor)])
    }

    fn from_columns(columns: impl IntoIterator<Item = (String, Array)>) -> Dataset {
        Dataset::from_result((|| {
            let mut components = Vec::new();
            let mut arrays = Vec::new();
            let mut len: Option<(u64, String)> = None;
            for (name, array) in columns {
                let Some((rows, component)) = array.component(&name) else {
                    let message = format!("'{name}' is a scalar; its first axis must count the elements");
                    return Err(Error::pipeline("from_arrays", message));
                };
                if let Some((first, first_name)) = &len
                    && *first != rows
                {
                    let message = format!("'{name}' has {rows} rows, but '{first_name}' has {first}");
                    return Err(Error::pipeline("from_arrays", message));
                }
                len = Some((rows, name));
                components.push(component);
                arrays.push(array);
            }
            let Some((len, _)) = len else { return Err(Error::pipeline("from_arrays", "there are no arrays")) };
            let spec = Arc::new(Spec::new(components)?);
            let largest = arrays.iter().map(Array::largest).sum();
            Ok(Dataset::new(Arrays { spec, len, largest, arrays: Arc::new(arrays) }))
        })())
    }

    /// The numbers from `start` up to but without `end`, every `step`-th, as a component `value`.
    pub fn range(start: i64, end: i64, step: i64) -> Dataset {
        if step == 0 {
            return Dataset::from_result(Err(Error::pipeline("range", "a step of 0 never ends")));
        }
        let span = if step > 0 { end as i128 - start as i128 } else { start as i128 - end as i128 };
        let len = (span.max(0) as u128).div_ceil(step.unsigned_abs() as u128) as u64;
        let spec = Spec::new([Component::new("value", DType::I64, &[])]).expect("one name");
        Dataset::new(Range { spec: Arc::new(spec), start, step, len })
    }
}

/// Memory of somebody else, which stays where it is and as it is for as long as this lives.
pub trait Shared: Send + Sync {
    /// The bytes, always the same ones.
    fn bytes(&self) -> &[u8];
}

enum Array {
    Numbers(Arc<Tensor>),
    Shared(TensorType, Arc<dyn Shared>),
    Strings(Vec<Vec<u8>>),
}

impl Array {
    fn component(&self, name: &str) -> Option<(u64, Component)> {
        let numbers = |ty: &TensorType| {
            let (rows, rest) = ty.dims().split_first()?;
            Some((*rows as u64, Component::new(name, ty.dtype, rest)))
        };
        match self {
            Array::Numbers(tensor) => numbers(tensor.ty()),
            Array::Shared(ty, _) => numbers(ty),
            Array::Strings(strings) => Some((strings.len() as u64, Component::new(name, Kind::Bytes, &[]))),
        }
    }

    /// The bytes of the largest row.
    fn largest(&self) -> u64 {
        let row = |ty: &TensorType| (ty.bytes() / ty.dims()[0].max(1)).next_multiple_of(8);
        let longest = match self {
            Array::Numbers(tensor) => row(tensor.ty()),
            Array::Shared(ty, _) => row(ty),
            Array::Strings(strings) => string_bytes(strings.iter().map(Vec::len).max().unwrap_or(0)),
        };
        longest as u64
    }
}

struct Arrays {
    spec: Arc<Spec>,
    len: u64,
    /// The bytes of the largest element.
    largest: u64,
    arrays: Arc<Vec<Array>>,
}

impl Node for Arrays {
    fn describe(&self) -> String {
        format!("{} elements in memory {}", self.len, self.spec)
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
        let shapes = self.spec.components().iter().map(|c| c.shape().unwrap_or(Shape::scalar())).collect();
        Ok(Some(Arc::new(ArraysLookup { len: self.len, arrays: self.arrays.clone(), shapes })))
    }

    fn largest(&self) -> Option<u64> {
        Some(self.largest)
    }

    fn stage(&self, _open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        unreachable!("arrays are read by number")
    }
}

struct ArraysLookup {
    len: u64,
    arrays: Arc<Vec<Array>>,
    shapes: Vec<Shape>,
}

impl Lookup for ArraysLookup {
    fn len(&self) -> u64 {
        self.len
    }

    fn gather(&self, _epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        for ((array, shape), column) in self.arrays.iter().zip(&self.shapes).zip(&mut out.columns) {
            match array {
                Array::Numbers(tensor) => {
                    let size = shape.elements() * tensor.dtype().size();
                    let to = column.add(shape, at.len())?;
                    copy_rows(tensor.bytes(), size, at, to);
                }
                Array::Shared(ty, memory) => {
                    let size = shape.elements() * ty.dtype.size();
                    let to = column.add(shape, at.len())?;
                    copy_rows(memory.bytes(), size, at, to);
                }
                Array::Strings(strings) => {
                    for i in at {
                        column.add_strings(shape, [&strings[*i as usize][..]])?;
                    }
                }
            }
        }
        out.commit_rows(at.len());
        Ok(())
    }
}

/// Copies rows of `size` bytes, asking for those a few ahead so that they arrive in time.
fn copy_rows(from: &[u8], size: usize, at: &[u64], to: &mut [u8]) {
    if size == 0 {
        return;
    }
    for (i, (row, to)) in at.iter().zip(to.chunks_exact_mut(size)).enumerate() {
        if let Some(ahead) = at.get(i + AHEAD) {
            fetch(from.as_ptr().wrapping_add(*ahead as usize * size), size);
        }
        let start = *row as usize * size;
        to.copy_from_slice(&from[start..start + size]);
    }
}

/// How many rows ahead to ask for one.
pub(super) const AHEAD: usize = 4;

/// Asks for memory that will be read soon. A permuted order is one that the processor cannot foresee.
#[inline(always)]
pub(super) fn fetch(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes.min(16 * 64)).step_by(64) {
        // SAFETY: prefetching reads nothing, so that the address does not matter.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(start.wrapping_add(line).cast())
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}

struct Range {
    spec: Arc<Spec>,
    start: i64,
    step: i64,
    len: u64,
}

impl Node for Range {
    fn describe(&self) -> String {
        format!("range of {} from {} by {}", self.len, self.start, self.step)
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
        Ok(Some(Arc::new(RangeLookup { start: self.start, step: self.step, len: self.len })))
    }

    fn stage(&self, _open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        unreachable!("ranges are read by number")
    }
}

struct RangeLookup {
    start: i64,
    step: i64,
    len: u64,
}

impl Lookup for RangeLookup {
    fn len(&self) -> u64 {
        self.len
    }

    fn gather(&self, _epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let to = out.columns[0].add(&Shape::scalar(), at.len())?;
        for (i, to) in at.iter().zip(to.chunks_exact_mut(8)) {
            let value = self.start.wrapping_add(self.step.wrapping_mul(*i as i64));
            to.copy_from_slice(&value.to_ne_bytes());
        }
        out.commit_rows(at.len());
        Ok(())
    }
}
