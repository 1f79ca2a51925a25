//! `tf.data`: the pipelines of `plimsoll-data` as Python sees them.
//!
//! Components have no names here: Python flattens structures and puts them together again. A Python function in a pipeline is a
//! traced program where that is possible (`mapped.rs`), which runs without the interpreter's lock; else it is called.

use crate::array;
use crate::buffer::Buffer;
use crate::function::Program;
use crate::mapped::Mapped;
use crate::record::Handle;
use crate::run::{BUDGET, with_room};
use crate::tensor::PyTensor;
use plimsoll_data::{
    AUTOTUNE, Calls, Cardinality, Component, Compression, Csv, Dataset, Element, Files, Images, Iter, Kind, Options,
    Padding, Row, Shared, TfRecordWriter, Writer,
};
use plimsoll_tensor::{DType, TensorType};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

type Object<'py> = Bound<'py, PyAny>;
/// Type and sizes of a component, as Python says them.
type Described = (String, Option<Vec<Option<usize>>>);

/// What a Python function in a pipeline raised: the pipeline hands on words only, and the exception waits here.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

fn raised() -> std::sync::MutexGuard<'static, Option<PyErr>> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an exception for whoever asked for the element.
fn keep(py: Python<'_>, error: PyErr) -> plimsoll_data::Error {
    let text = error.value(py).to_string();
    *raised() = Some(error);
    plimsoll_data::Error::element(text)
}

/// What Python raises: the exception of a function in the pipeline itself, where that is the cause.
pub fn to_python(error: plimsoll_data::Error) -> PyErr {
    if let Some(original) = raised().take() {
        return original;
    }
    let text = error.to_string();
    match error {
        plimsoll_data::Error::Io { .. } => PyOSError::new_err(text),
        plimsoll_data::Error::OverBudget(_) => PyMemoryError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// An array of Python's, kept as long as it is read.
struct Borrowed {
    address: usize,
    bytes: usize,
    _array: Py<PyAny>,
}

impl Shared for Borrowed {
    fn bytes(&self) -> &[u8] {
        match self.bytes {
            0 => &[],
            // SAFETY: NumPy keeps a contiguous array of so many bytes here while the array lives, and this holds it.
            n => unsafe { std::slice::from_raw_parts(self.address as *const u8, n) },
        }
    }
}

fn kind(name: &str) -> PyResult<Kind> {
    match name {
        "string" => Ok(Kind::Bytes),
        other => Ok(Kind::Number(array::dtype(other)?)),
    }
}

fn components(described: Vec<Described>) -> PyResult<Vec<Component>> {
    described
        .into_iter()
        .enumerate()
        .map(|(i, (name, dims))| {
            let mut component = Component::ragged(i.to_string(), kind(&name)?, dims.as_deref().unwrap_or(&[]));
            if dims.is_none() {
                component.dims = None;
            }
            Ok(component)
        })
        .collect()
}

fn compression(name: Option<&str>) -> PyResult<Compression> {
    match name.unwrap_or("") {
        "" | "NONE" => Ok(Compression::None),
        "GZIP" => Ok(Compression::Gzip),
        "ZLIB" => Ok(Compression::Zlib),
        other => Err(PyValueError::new_err(format!("compression '{other}': it is '', 'GZIP' or 'ZLIB'"))),
    }
}

/// How many: -1 lets measuring decide.
fn calls(n: i64) -> Calls {
    usize::try_from(n).map_or(AUTOTUNE, Calls::Fixed)
}

/// One element as Python sees it: a tensor for each component, or sizes and strings.
pub fn element<'py>(py: Python<'py>, row: &Row<'_>) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for component in row.spec().components() {
        let name = &component.name;
        let sizes = row.shape(name).map_err(to_python)?;
        match component.kind {
            Kind::Number(dtype) => {
                let bytes = row.bytes(name).map_err(to_python)?;
                let buffer = with_room(|| Buffer::of_bytes(&BUDGET, TensorType::new(dtype, *sizes), bytes))?;
                list.append(Bound::new(py, PyTensor { handle: Handle::known(Arc::new(buffer)) })?)?;
            }
            Kind::Bytes => {
                let strings = row.strings(name).map_err(to_python)?;
                let strings = PyList::new(py, strings.map(|s| PyBytes::new(py, s)))?;
                list.append((PyTuple::new(py, sizes.dims())?, strings))?;
            }
        }
    }
    Ok(list)
}

/// Writes an element that Python made, flattened as [`element`] has it.
pub fn write(py: Python<'_>, made: &Object<'_>, out: &mut Writer<'_, '_>, n: usize) -> PyResult<()> {
    let parts: Vec<Object<'_>> = made.try_iter()?.collect::<PyResult<_>>()?;
    if parts.len() != n {
        return Err(PyValueError::new_err(format!(
            "the function made {} components, but {n} were expected",
            parts.len()
        )));
    }
    for (i, part) in parts.iter().enumerate() {
        let name = i.to_string();
        if let Ok(tensor) = part.cast::<PyTensor>() {
            let buffer = tensor.get().look(py)?;
            out.raw(&name, buffer.ty(), buffer.bytes()).map_err(to_python)?;
        } else {
            let (sizes, strings): (Vec<usize>, Vec<Bound<'_, PyBytes>>) = part.extract()?;
            let strings: Vec<&[u8]> = strings.iter().map(|s| s.as_bytes()).collect();
            out.strings(&name, &sizes, &strings).map_err(to_python)?;
        }
    }
    Ok(())
}

/// The sizes of the axes, as far as they and their number are known.
type Sizes = Option<Vec<Option<usize>>>;

/// A description of data: sources and what happens to their elements.
#[pyclass(frozen, name = "Dataset", module = "plimsoll._engine", subclass)]
pub struct PyDataset {
    inner: Dataset,
}

fn made(inner: Dataset) -> PyResult<PyDataset> {
    inner.spec().map_err(to_python)?;
    Ok(PyDataset { inner })
}

#[pymethods]
impl PyDataset {
    /// The rows of NumPy arrays, which are read where they are.
    #[staticmethod]
    fn from_arrays(arrays: Vec<Object<'_>>) -> PyResult<PyDataset> {
        let mut columns: Vec<(String, TensorType, Arc<dyn Shared>)> = Vec::new();
        for (i, given) in arrays.iter().enumerate() {
            let np = array::numpy(given.py())?;
            let array = np.call_method1("ascontiguousarray", (given,))?;
            let dtype = array::dtype(&array.getattr("dtype")?.getattr("name")?.extract::<String>()?)?;
            let sizes: Vec<usize> = array.getattr("shape")?.extract()?;
            let ty = TensorType::new(dtype, array::shape(&sizes)?);
            let (address, _): (usize, bool) = array.getattr("__array_interface__")?.get_item("data")?.extract()?;
            let memory = Borrowed { address, bytes: ty.bytes(), _array: array.unbind() };
            columns.push((i.to_string(), ty, Arc::new(memory)));
        }
        made(Dataset::from_shared(columns))
    }

    /// Strings.
    #[staticmethod]
    fn from_strings(strings: Vec<Bound<'_, PyBytes>>) -> PyResult<PyDataset> {
        made(Dataset::from_strings("0", strings.iter().map(|s| s.as_bytes())))
    }

    /// Numbers from `start` up to but without `end`.
    #[staticmethod]
    fn range(start: i64, end: i64, step: i64) -> PyResult<PyDataset> {
        made(Dataset::range(start, end, step))
    }

    /// The records of TFRecord files.
    #[staticmethod]
    #[pyo3(signature = (paths, kind=None))]
    fn from_tfrecords(paths: Vec<String>, kind: Option<&str>) -> PyResult<PyDataset> {
        made(Dataset::from_tfrecords(Files::list(paths), compression(kind)?))
    }

    /// The lines of text files.
    #[staticmethod]
    #[pyo3(signature = (paths, kind=None))]
    fn from_lines(paths: Vec<String>, kind: Option<&str>) -> PyResult<PyDataset> {
        made(Dataset::from_lines_with(Files::list(paths), compression(kind)?))
    }

    /// Columns of CSV files: name and type of each, and what stands for one that is missing.
    #[staticmethod]
    #[pyo3(signature = (paths, columns, delimiter=",", header=true, kind=None))]
    fn from_csv(
        paths: Vec<String>,
        columns: Vec<(String, String, Option<String>)>,
        delimiter: &str,
        header: bool,
        kind: Option<&str>,
    ) -> PyResult<PyDataset> {
        let mut csv =
            Csv::default().delimiter(delimiter.bytes().next().unwrap_or(b',')).compression(compression(kind)?);
        if !header {
            csv = csv.no_header();
        }
        for (name, dtype, missing) in &columns {
            csv = csv.column(name, self::kind(dtype)?);
            if let Some(missing) = missing {
                csv = csv.missing(name, missing);
            }
        }
        let names: Vec<&str> = columns.iter().map(|(name, ..)| name.as_str()).collect();
        if !names.is_empty() {
            csv = csv.select(&names);
        }
        made(Dataset::from_csv(Files::list(paths), csv))
    }

    /// What `start()` yields, an iterator of flattened elements.
    #[staticmethod]
    fn from_generator(start: Py<PyAny>, types: Vec<Described>) -> PyResult<PyDataset> {
        let components = components(types)?;
        let n = components.len();
        made(Dataset::from_iter(
            components,
            move |_epoch| Python::attach(|py| Yielding(start.call0(py))),
            move |item: PyResult<Py<PyAny>>, out| {
                Python::attach(|py| {
                    let write_it = || write(py, item?.bind(py), out, n);
                    write_it().map_err(|error| keep(py, error))
                })
            },
        ))
    }

    /// Elements of several data sets side by side.
    #[staticmethod]
    fn zip(parts: Vec<PyRef<'_, PyDataset>>) -> PyResult<PyDataset> {
        let parts: Vec<Dataset> = parts.iter().map(|p| p.inner.clone()).collect();
        made(Dataset::zip(&parts))
    }

    /// Type and sizes of each component.
    fn spec(&self) -> PyResult<Vec<(String, Sizes)>> {
        let spec = self.inner.spec().map_err(to_python)?;
        let name = |kind: Kind| match kind {
            Kind::Bytes => "string".to_string(),
            Kind::Number(dtype) => array::dtype_name(dtype).to_string(),
        };
        Ok(spec.components().iter().map(|c| (name(c.kind), c.dims.clone())).collect())
    }

    /// The names of the components, where a source has some.
    fn names(&self) -> PyResult<Vec<String>> {
        let spec = self.inner.spec().map_err(to_python)?;
        Ok(spec.components().iter().map(|c| c.name.clone()).collect())
    }

    /// How many elements; -1 when it never ends, -2 when only reading tells.
    fn cardinality(&self) -> PyResult<i64> {
        Ok(match self.inner.cardinality().map_err(to_python)? {
            Cardinality::Known(n) => n as i64,
            Cardinality::Infinite => -1,
            _ => -2,
        })
    }

    /// The stages, one per line.
    fn describe(&self) -> PyResult<String> {
        self.inner.describe().map_err(to_python)
    }

    /// The memory with which it can work, if that is known.
    fn least_memory(&self) -> PyResult<Option<u64>> {
        Ok(self.inner.least_memory().map_err(to_python)?.map(|b| b.0))
    }

    /// Every element replaced by what a program makes of it.
    fn map_program(&self, program: &Bound<'_, Program>) -> PyResult<PyDataset> {
        let mapped = Mapped::new(program.get())?;
        let components = mapped.components();
        made(self.inner.map(components, move |row, out| mapped.apply(row, out)))
    }

    /// Every element replaced by what a Python function makes of it.
    fn map_python(&self, function: Py<PyAny>, types: Vec<Described>) -> PyResult<PyDataset> {
        let components = components(types)?;
        let n = components.len();
        made(self.inner.map(components, move |row, out| {
            Python::attach(|py| {
                let mut apply = || write(py, &function.bind(py).call1((element(py, row)?,))?, out, n);
                apply().map_err(|error| keep(py, error))
            })
        }))
    }

    /// Only the elements for which a program gives true.
    fn filter_program(&self, program: &Bound<'_, Program>) -> PyResult<PyDataset> {
        let mapped = Mapped::new(program.get())?;
        made(self.inner.filter(move |row| mapped.test(row)))
    }

    /// Only the elements for which a Python function gives true.
    fn filter_python(&self, function: Py<PyAny>) -> PyResult<PyDataset> {
        made(self.inner.filter(move |row| {
            Python::attach(|py| {
                let test = || function.bind(py).call1((element(py, row)?,))?.is_truthy();
                test().map_err(|error| keep(py, error))
            })
        }))
    }

    /// The elements of the data sets that a Python function makes of the elements, `cycle` at a time by turns of `block`.
    fn interleave(
        &self,
        function: Py<PyAny>,
        types: Vec<Described>,
        cycle: usize,
        block: usize,
        parallel: bool,
    ) -> PyResult<PyDataset> {
        let make = move |row: &Row<'_>| {
            Python::attach(|py| {
                let apply = || {
                    let result = function.bind(py).call1((element(py, row)?,))?;
                    let dataset = result.cast::<PyDataset>()?;
                    numbered(&dataset.get().inner)
                };
                apply().map_err(|error| keep(py, error))
            })
        };
        made(self.inner.interleave(components(types)?, cycle, block, parallel, make))
    }

    /// The features of serialized examples.
    fn parse_example(&self, features: Vec<(String, String, Vec<Option<usize>>)>) -> PyResult<PyDataset> {
        let spec = self.inner.spec().map_err(to_python)?;
        let name = spec.components().first().map(|c| c.name.clone()).unwrap_or_default();
        let components = features
            .into_iter()
            .map(|(name, dtype, dims)| Ok(Component::ragged(name, kind(&dtype)?, &dims)))
            .collect::<PyResult<Vec<Component>>>()?;
        made(self.inner.parse_example(&name, components))
    }

    fn batch(&self, size: usize, drop_remainder: bool) -> PyResult<PyDataset> {
        made(if drop_remainder { self.inner.batch_exact(size) } else { self.inner.batch(size) })
    }

    fn padded_batch(
        &self,
        size: usize,
        sizes: Vec<Option<Vec<Option<usize>>>>,
        values: Vec<Option<f64>>,
        drop_remainder: bool,
    ) -> PyResult<PyDataset> {
        let spec = self.inner.spec().map_err(to_python)?;
        let mut padding = Padding::default();
        for (component, sizes) in spec.components().iter().zip(&sizes) {
            if let Some(sizes) = sizes {
                padding = padding.sizes(&component.name, sizes);
            }
        }
        for (component, value) in spec.components().iter().zip(&values) {
            if let (Some(value), Kind::Number(_)) = (value, component.kind) {
                padding = padding.value(&component.name, *value);
            }
        }
        if drop_remainder {
            padding = padding.drop_remainder();
        }
        made(self.inner.padded_batch(size, padding))
    }

    fn window(&self, size: usize, shift: usize, stride: usize, drop_remainder: bool) -> PyResult<PyDataset> {
        made(self.inner.window(size, shift, stride, drop_remainder))
    }

    fn unbatch(&self) -> PyResult<PyDataset> {
        made(self.inner.unbatch())
    }

    fn rebatch(&self, size: usize, drop_remainder: bool) -> PyResult<PyDataset> {
        made(self.inner.rebatch(size, drop_remainder))
    }

    fn shuffle(&self, buffer: u64, seed: u64, every_epoch: bool) -> PyResult<PyDataset> {
        made(if every_epoch { self.inner.shuffle(buffer, seed) } else { self.inner.shuffle_once(buffer, seed) })
    }

    #[pyo3(signature = (times=None))]
    fn repeat(&self, times: Option<u64>) -> PyResult<PyDataset> {
        made(self.inner.repeat(times))
    }

    fn take(&self, n: u64) -> PyResult<PyDataset> {
        made(self.inner.take(n))
    }

    fn skip(&self, n: u64) -> PyResult<PyDataset> {
        made(self.inner.skip(n))
    }

    fn shard(&self, n: u64, index: u64) -> PyResult<PyDataset> {
        made(self.inner.shard(n, index))
    }

    fn enumerate(&self, start: i64) -> PyResult<PyDataset> {
        made(self.inner.enumerate("number", start))
    }

    fn concatenate(&self, other: &PyDataset) -> PyResult<PyDataset> {
        made(numbered(&self.inner)?.concatenate(&numbered(&other.inner)?))
    }

    fn ignore_errors(&self) -> PyResult<PyDataset> {
        made(self.inner.ignore_errors())
    }

    #[pyo3(signature = (path=None))]
    fn cache(&self, path: Option<String>) -> PyResult<PyDataset> {
        made(match path {
            Some(path) => self.inner.cache_on_disk(path),
            None => self.inner.cache(),
        })
    }

    fn prefetch(&self, n: i64) -> PyResult<PyDataset> {
        made(self.inner.prefetch(calls(n)))
    }

    fn parallel(&self, n: i64, ordered: bool) -> PyResult<PyDataset> {
        made(if ordered { self.inner.parallel(calls(n)) } else { self.inner.parallel_unordered(calls(n)) })
    }

    /// Begins a pass over the elements.
    #[pyo3(signature = (epoch=0))]
    fn iterate(&self, py: Python<'_>, epoch: u64) -> PyResult<PyIterator> {
        let inner = self.inner.clone();
        let options = Options::new(&BUDGET).account("input").epoch(epoch);
        let iter = py.detach(move || inner.iter_with(&options)).map_err(to_python)?;
        Ok(PyIterator { iter: Mutex::new(Some(iter)), process: std::process::id() })
    }
}

/// The data set with components called by their place.
fn numbered(dataset: &Dataset) -> PyResult<Dataset> {
    let spec = dataset.spec().map_err(to_python)?;
    let names: Vec<(String, String)> =
        spec.components().iter().enumerate().map(|(i, c)| (c.name.clone(), i.to_string())).collect();
    if names.iter().all(|(old, new)| old == new) {
        return Ok(dataset.clone());
    }
    let pairs: Vec<(&str, &str)> = names.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
    Ok(dataset.rename(&pairs))
}

/// What a Python iterator yields, or what kept it from beginning.
struct Yielding(PyResult<Py<PyAny>>);

impl Iterator for Yielding {
    type Item = PyResult<Py<PyAny>>;

    fn next(&mut self) -> Option<PyResult<Py<PyAny>>> {
        Python::attach(|py| {
            match std::mem::replace(&mut self.0, Err(PyRuntimeError::new_err("the generator failed"))) {
                Ok(iterator) => {
                    let next = iterator.bind(py).try_iter().map(|mut i| i.next()).transpose();
                    self.0 = Ok(iterator);
                    next.map(|item| item.and_then(|i| i).map(Bound::unbind))
                }
                Err(error) => Some(Err(error)),
            }
        })
    }
}

/// The elements of a data set, one after another.
#[pyclass(frozen, name = "DatasetIterator", module = "plimsoll._engine")]
pub struct PyIterator {
    iter: Mutex<Option<Iter>>,
    /// The process that has its threads.
    process: u32,
}

#[pymethods]
impl PyIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The next element, flattened.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        match py.detach(|| self.next_element()) {
            None => Ok(None),
            Some(Err(error)) => Err(to_python(error)),
            Some(Ok(found)) => element(py, &found.row()).map(Some),
        }
    }
}

impl PyIterator {
    /// The next element, for a thread that does not hold the interpreter's lock.
    pub fn next_element(&self) -> Option<Result<Element, plimsoll_data::Error>> {
        if self.process != std::process::id() {
            return Some(Err(plimsoll_data::Error::element(
                "this iterator belongs to the process that this one was forked from, and so do its threads: make one of the data set here",
            )));
        }
        let mut iter = self.iter.lock().unwrap_or_else(PoisonError::into_inner);
        iter.as_mut().and_then(Iterator::next)
    }
}

impl Drop for PyIterator {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // There are no threads to wait for.
            std::mem::forget(std::mem::take(self.iter.get_mut().unwrap_or_else(PoisonError::into_inner)));
            return;
        }
        let iter = self.iter.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Its threads may wait for the interpreter's lock while this waits for them.
        Python::attach(|py| py.detach(|| drop(iter)));
    }
}

/// Writes a TFRecord file.
#[pyclass(frozen, name = "TFRecordWriter", module = "plimsoll._engine")]
pub struct PyRecords {
    writer: Mutex<Option<TfRecordWriter>>,
}

#[pymethods]
impl PyRecords {
    #[new]
    #[pyo3(signature = (path, kind=None))]
    fn new(path: &str, kind: Option<&str>) -> PyResult<PyRecords> {
        let writer = TfRecordWriter::create(path, compression(kind)?).map_err(to_python)?;
        Ok(PyRecords { writer: Mutex::new(Some(writer)) })
    }

    /// Appends a record.
    fn write(&self, record: &[u8]) -> PyResult<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = writer.as_mut().ok_or_else(|| PyTypeError::new_err("the file is closed"))?;
        writer.write(record).map_err(to_python)
    }

    /// Finishes the file.
    fn close(&self) -> PyResult<()> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        writer.map_or(Ok(()), |writer| writer.finish().map_err(to_python))
    }
}

/// Adds the pipelines to the module.
/// The picture in the bytes of a JPEG or PNG file, with so many channels; 0 for as many as it has.
#[pyfunction]
fn decode_image(py: Python<'_>, data: &[u8], channels: u32) -> PyResult<PyTensor> {
    let images = Images { channels, ..Images::default() };
    let decoded = py.detach(|| -> PyResult<Buffer> {
        let picture = images.decode(data, &BUDGET.account("input")).map_err(to_python)?;
        let ty = TensorType::new(DType::U8, array::shape(&picture.sizes())?);
        Ok(with_room(|| Buffer::of_bytes(&BUDGET, ty, picture.bytes()))?)
    })?;
    Ok(PyTensor { handle: Handle::known(Arc::new(decoded)) })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(decode_image, module)?)?;
    module.add_class::<PyDataset>()?;
    module.add_class::<PyIterator>()?;
    module.add_class::<PyRecords>()
}
