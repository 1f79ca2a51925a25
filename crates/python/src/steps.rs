//! Many steps of a program in a row, without the interpreter's lock: the loop over an epoch's batches.

use crate::array::{self, dtype_name};
use crate::buffer::Buffer;
use crate::data::{self, PyIterator};
use crate::error::Error;
use crate::function::Program;
use crate::record::Handle;
use crate::run::{self, BUDGET, Runtime, with_room};
use crate::tensor::PyTensor;
use plimsoll_data::{Element, Kind, Permutation, Row};
use plimsoll_tensor::{Shape, TensorType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For so long steps run before Python is asked whether to go on.
const WITHOUT_PYTHON: Duration = Duration::from_millis(100);

/// What an input is filled with.
enum Feed {
    /// The same in every step.
    Whole(Arc<Buffer>),
    /// The rows of a batch.
    Rows(Rows),
}

/// Rows of an array in memory.
#[derive(Clone, Copy)]
struct Rows {
    address: usize,
    row: usize,
    n: usize,
}

impl Rows {
    /// The rows of a NumPy array, for an input of this type.
    fn of(array: &Bound<'_, PyAny>, i: usize, ty: &TensorType) -> PyResult<Rows> {
        let interface = array.getattr("__array_interface__")?;
        let dims: Vec<usize> = interface.get_item("shape")?.extract()?;
        let name: String = array.getattr("dtype")?.getattr("name")?.extract()?;
        if dims.is_empty() || ty.dims().is_empty() || dims[1..] != ty.dims()[1..] || name != dtype_name(ty.dtype) {
            return Err(PyValueError::new_err(format!(
                "feed {i} has rows of {name}{:?}, but the program takes {ty}",
                &dims[dims.len().min(1)..]
            )));
        }
        if !array.getattr("flags")?.get_item("C_CONTIGUOUS")?.is_truthy()? {
            return Err(PyValueError::new_err(format!(
                "feed {i} is not contiguous: make it so with numpy.ascontiguousarray"
            )));
        }
        let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
        let row = ty.bytes() / ty.dims()[0].max(1);
        Ok(Rows { address, row, n: dims[0] })
    }

    fn row(&self, at: usize) -> &[u8] {
        debug_assert!(at < self.n);
        // SAFETY: a row of the array, which is kept while steps run.
        unsafe { std::slice::from_raw_parts((self.address + at * self.row) as *const u8, self.row) }
    }
}

/// Which row comes when.
enum Order {
    /// As they are.
    Plain,
    /// A permutation of all rows.
    Shuffled(Permutation),
    /// As a list says.
    Listed(Vec<usize>),
}

impl Order {
    fn at(&self, i: usize) -> usize {
        match self {
            Order::Plain => i,
            Order::Shuffled(permutation) => permutation.at(i as u64) as usize,
            Order::Listed(rows) => rows[i],
        }
    }
}

/// Runs a program `steps` times. Each feed is a NumPy array, of which every step takes the next `batch` rows (from step `start` on; as a
/// permutation of all rows if `shuffle` is (seed, epoch)), or a tensor that is the same in every step. With `order`, the rows of the steps are those that it
/// lists. Gives back the outputs named in `collect`, those of all steps stacked. About ten times a second `callback(steps_done)` is called, and stops the loop by giving True; so does Ctrl-C.
#[pyfunction(signature = (program, feeds, batch, steps, start=0, shuffle=None, collect=vec![], callback=None, order=None))]
fn run_steps(
    py: Python<'_>,
    program: &Bound<'_, Program>,
    feeds: Vec<Bound<'_, PyAny>>,
    batch: usize,
    steps: usize,
    start: usize,
    shuffle: Option<(u64, u64)>,
    collect: Vec<usize>,
    callback: Option<Bound<'_, PyAny>>,
    order: Option<Vec<usize>>,
) -> PyResult<Vec<PyTensor>> {
    let program = program.get();
    let types: Vec<TensorType> = program.record.inputs.iter().map(|v| *program.record.graph.ty(*v)).collect();
    if feeds.len() != types.len() {
        return Err(PyTypeError::new_err(format!("{} feeds for a program with {} inputs", feeds.len(), types.len())));
    }
    let mut given = Vec::with_capacity(feeds.len());
    let mut n_rows = None;
    for (i, (feed, ty)) in feeds.iter().zip(&types).enumerate() {
        if feed.is_instance(&array::numpy(py)?.getattr("ndarray")?)? {
            let rows = Rows::of(feed, i, ty)?;
            if ty.dims()[0] != batch {
                return Err(PyValueError::new_err(format!("input {i} is {ty}, but a batch has {batch} rows")));
            }
            let needed = if order.is_some() { 0 } else { (start + steps) * batch };
            if *n_rows.get_or_insert(rows.n) != rows.n || rows.n < needed {
                let text =
                    format!("feed {i} has {} rows; all feeds have equally many, and {needed} are needed", rows.n);
                return Err(PyValueError::new_err(text));
            }
            given.push(Feed::Rows(rows));
        } else {
            let buffer = crate::function::known_value(py, feed, Some(ty.dtype))?;
            if buffer.ty() != ty {
                return Err(PyValueError::new_err(format!("feed {i} is {}, but the program takes {ty}", buffer.ty())));
            }
            given.push(Feed::Whole(buffer));
        }
    }
    let outputs = program.cut.graph.outputs();
    let mut results = Vec::with_capacity(collect.len());
    for &at in &collect {
        let Some(output) = outputs.get(at) else {
            return Err(PyValueError::new_err(format!("output {at} of a program with {}", outputs.len())));
        };
        let ty = program.cut.graph.ty(output.value);
        let shape = [steps].into_iter().chain(ty.dims().iter().copied()).collect::<Vec<usize>>();
        let Some(shape) = Shape::try_new(&shape) else { return Err(PyValueError::new_err("too many axes to stack")) };
        results.push(with_room(|| Buffer::zeros(&BUDGET, TensorType::new(ty.dtype, shape)))?);
    }
    let n_rows = n_rows.unwrap_or(0);
    if let Some(&beyond) = order.iter().flatten().find(|&&row| row >= n_rows) {
        return Err(PyValueError::new_err(format!("the order has row {beyond}, but the feeds have {n_rows} rows")));
    }
    let (order, start) = match (order, shuffle) {
        (Some(_), Some(_)) => return Err(PyTypeError::new_err("rows are shuffled or come in an order, not both")),
        (Some(rows), None) if rows.len() < steps * batch => {
            let text = format!("the order lists {} rows, and {} are needed", rows.len(), steps * batch);
            return Err(PyValueError::new_err(text));
        }
        (Some(rows), None) => (Order::Listed(rows), 0),
        (None, Some((seed, epoch))) => (Order::Shuffled(Permutation::new(n_rows as u64, seed, epoch)), start),
        (None, None) => (Order::Plain, start),
    };
    let mut done = 0;
    while done < steps {
        let lap = Lap { program, feeds: &given, batch, start, order: &order, collect: &collect };
        done = py.detach(|| lap.run(&mut run::runtime_detached(), done, steps, &mut results))?;
        py.check_signals()?;
        if let Some(callback) = &callback
            && callback.call1((done,))?.extract::<bool>().unwrap_or(false)
        {
            break;
        }
    }
    Ok(results.into_iter().map(|buffer| PyTensor { handle: Handle::known(Arc::new(buffer)) }).collect())
}

/// Some steps in a row.
struct Lap<'a> {
    program: &'a Program,
    feeds: &'a [Feed],
    batch: usize,
    start: usize,
    order: &'a Order,
    collect: &'a [usize],
}

impl Lap<'_> {
    /// Runs steps until all are done or Python is to be asked; gives back how many are done.
    fn run(&self, runtime: &mut Runtime, first: usize, steps: usize, results: &mut [Buffer]) -> Result<usize, Error> {
        runtime.flush()?;
        let cut = &self.program.cut;
        let session = runtime.session();
        let program = cut.prepare(session)?;
        cut.bind(session, program)?;
        let engine = session.engine_mut();
        engine.settle();
        let names: Vec<String> = (0..self.feeds.len()).map(|i| format!("i{i}")).collect();
        let outputs: Vec<String> = self.collect.iter().map(|i| format!("o{i}")).collect();
        let begun = Instant::now();
        for step in first..steps {
            for (name, feed) in names.iter().zip(self.feeds) {
                let Some(to) = engine.input_bytes_mut(program, name) else { continue };
                match feed {
                    Feed::Rows(rows) => {
                        let from = (self.start + step) * self.batch;
                        for (i, to) in to.chunks_exact_mut(rows.row.max(1)).enumerate() {
                            to.copy_from_slice(rows.row(self.order.at(from + i)));
                        }
                    }
                    Feed::Whole(buffer) => to.copy_from_slice(buffer.bytes()),
                }
            }
            // Known values that are inputs share the arena, which a step writes over.
            cut.fill(engine, program);
            engine.run(program)?;
            for (name, result) in outputs.iter().zip(results.iter_mut()) {
                let bytes = engine.output_bytes(program, name)?;
                let n = bytes.len();
                result.bytes_mut()[step * n..(step + 1) * n].copy_from_slice(bytes);
            }
            if begun.elapsed() > WITHOUT_PYTHON {
                return Ok(step + 1);
            }
        }
        Ok(steps)
    }
}

/// Why a stretch of elements is over.
enum Over {
    /// Python is to be asked, or all steps are done.
    Lap,
    /// There are no more elements.
    End,
    /// An element that the program is not for.
    Other(Element),
}

/// What went wrong in a stretch: in the pipeline, or in the program.
enum Wrong {
    Data(plimsoll_data::Error),
    Run(Error),
}

/// Runs a program on the next elements of a data set, at most `steps` of them and for about `seconds`: the outputs of the last step, how many steps
/// were run, and the element behind them, if the program is not for its shape.
#[pyfunction]
fn run_elements<'py>(
    py: Python<'py>,
    program: &Bound<'py, Program>,
    elements: &Bound<'py, PyIterator>,
    steps: usize,
    seconds: f64,
) -> PyResult<(Vec<PyTensor>, usize, Option<Bound<'py, PyList>>)> {
    let (program, elements) = (program.get(), elements.get());
    let types: Vec<TensorType> = program.record.inputs.iter().map(|v| *program.record.graph.ty(*v)).collect();
    let mut results = with_room(|| program.cut.new_results())?;
    let (begun, mut done) = (Instant::now(), 0);
    let other = loop {
        let over = py.detach(|| run_lap(program, elements, &types, steps, &mut done, &mut results));
        match over {
            Ok(Over::Lap) if done == steps || begun.elapsed().as_secs_f64() >= seconds => break None,
            Ok(Over::Lap) => py.check_signals()?,
            Ok(Over::End) => break None,
            Ok(Over::Other(element)) => break Some(data::element(py, &element.row())?),
            Err(Wrong::Data(error)) => return Err(data::to_python(error)),
            Err(Wrong::Run(error)) => return Err(error.into()),
        }
    };
    py.check_signals()?;
    let results = results.into_iter().map(|buffer| PyTensor { handle: Handle::known(Arc::new(buffer)) });
    Ok((if done > 0 { results.collect() } else { Vec::new() }, done, other))
}

/// The engine is held while a step runs, not while an element is made: a function in the pipeline may want it.
fn run_lap(
    program: &Program,
    elements: &PyIterator,
    types: &[TensorType],
    steps: usize,
    done: &mut usize,
    results: &mut [Buffer],
) -> Result<Over, Wrong> {
    let begun = Instant::now();
    while *done < steps && begun.elapsed() < WITHOUT_PYTHON {
        let Some(element) = elements.next_element() else { return Ok(Over::End) };
        let element = element.map_err(Wrong::Data)?;
        let Some(parts) = parts_of(&element.row(), types).map_err(Wrong::Data)? else {
            return Ok(Over::Other(element));
        };
        let mut runtime = run::runtime_detached();
        let give = |i: usize, to: &mut [u8]| to.copy_from_slice(parts[i]);
        runtime
            .flush()
            .and_then(|()| runtime.run_into(&program.cut, give, parts.len(), results))
            .map_err(Wrong::Run)?;
        *done += 1;
    }
    Ok(Over::Lap)
}

/// The bytes of an element's components; `None` unless they are of these types.
fn parts_of<'a>(row: &Row<'a>, types: &[TensorType]) -> Result<Option<Vec<&'a [u8]>>, plimsoll_data::Error> {
    let components = row.spec().components();
    if components.len() != types.len() {
        return Ok(None);
    }
    let mut parts = Vec::with_capacity(types.len());
    for (component, ty) in components.iter().zip(types) {
        if component.kind != Kind::Number(ty.dtype) || *row.shape(&component.name)? != ty.shape {
            return Ok(None);
        }
        parts.push(row.bytes(&component.name)?);
    }
    Ok(Some(parts))
}

/// Adds the loops to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_steps, module)?)?;
    module.add_function(wrap_pyfunction!(run_elements, module)?)
}
