//! What operations are applied to: tensors, variables, Python's numbers, and whatever NumPy understands.

use crate::array;
use crate::error::Error;
use crate::record::{Handle, Record};
use crate::run::{self, Runtime, TRACES};
use crate::tensor::{PyTensor, PyVariable};
use crate::variable::Cell;
use plimsoll_graph::{Graph, GraphError, Value};
use plimsoll_tensor::DType;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt};
use std::sync::Arc;

/// An operand.
#[derive(Clone)]
pub enum Operand {
    /// A tensor.
    Tensor(Arc<Handle>),
    /// A variable: its newest value.
    Variable(Arc<Cell>),
    /// A number, which takes the type of the operands beside it.
    Number(f64, DType),
}

impl Operand {
    /// The operand that a Python object is.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Operand> {
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return Ok(Operand::Tensor(tensor.get().handle.clone()));
        }
        if let Ok(variable) = object.cast::<PyVariable>() {
            return Ok(Operand::Variable(variable.get().cell.clone()));
        }
        if object.is_exact_instance_of::<PyFloat>() {
            return Ok(Operand::Number(object.extract()?, DType::F32));
        }
        if object.is_exact_instance_of::<PyBool>() {
            return Ok(Operand::Number(f64::from(object.extract::<bool>()?), DType::Bool));
        }
        if object.is_exact_instance_of::<PyInt>()
            && let Ok(number) = object.extract::<i64>()
            && number.unsigned_abs() < 1 << 53
        {
            let dtype = if i32::try_from(number).is_ok() { DType::I32 } else { DType::I64 };
            return Ok(Operand::Number(number as f64, dtype));
        }
        Ok(Operand::Tensor(Handle::known(array::from_python(object, None)?)))
    }

    /// Its type, if it has one of its own.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Operand::Tensor(handle) => Some(handle.ty.dtype),
            Operand::Variable(cell) => Some(cell.ty().dtype),
            Operand::Number(..) => None,
        }
    }

    /// With a type: numbers take it, others have one.
    pub fn or_dtype(self, dtype: Option<DType>) -> Operand {
        match (self, dtype) {
            (Operand::Number(x, _), Some(dtype)) => Operand::Number(x, dtype),
            (other, _) => other,
        }
    }

    /// The operand as a value of a record.
    fn value(&self, record: &mut Record) -> Result<Value, Error> {
        match self {
            Operand::Number(x, dtype) => Ok(record.graph.constant(*x, *dtype)?),
            Operand::Variable(cell) => Ok(record.read(cell)),
            Operand::Tensor(handle) => {
                if let Some(value) = handle.place(record.id()) {
                    return Ok(value);
                }
                match (handle.buffer(), handle.failure()) {
                    (Some(buffer), _) => Ok(record.bind(&buffer)),
                    (None, Some(why)) => Err(Error::Value(format!("an operand could not be computed: {why}"))),
                    (None, None) => Err(Error::Value(
                        "this tensor belongs to a function that was traced: return it from the function to use it outside".into(),
                    )),
                }
            }
        }
    }
}

/// Works on the record that operations go to now: the innermost trace of this thread, or the process's record.
///
/// Tensors that an outer record has still to compute are computed first where a trace reads them.
pub fn on_record<T: Send>(
    py: Python<'_>,
    operands: &[&Operand],
    f: impl FnOnce(&mut Record, &[Value]) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let tracing = TRACES.with_borrow(|traces| traces.last().map(Record::id));
    match tracing {
        Some(id) => {
            let foreign =
                |o: &&Operand| matches!(o, Operand::Tensor(h) if h.place(id).is_none() && h.buffer().is_none());
            if operands.iter().any(foreign) {
                flush(py)?;
            }
            TRACES.with_borrow_mut(|traces| {
                let record = traces.last_mut().expect("a trace is open");
                let values = operands.iter().map(|o| o.value(record)).collect::<Result<Vec<Value>, Error>>()?;
                Ok(f(record, &values)?)
            })
        }
        None => {
            let stale = |record: &Record| {
                operands.iter().any(|o| matches!(o, Operand::Variable(cell) if record.is_changed_in_place(cell)))
            };
            if with_runtime(py, |runtime| stale(&runtime.record)) {
                flush(py)?;
            }
            let (result, long) = with_runtime(py, |runtime| {
                let values = operands.iter().map(|o| o.value(&mut runtime.record)).collect::<Result<Vec<_>, Error>>();
                let result = values.and_then(|values| f(&mut runtime.record, &values));
                (result, runtime.is_long())
            });
            if long {
                flush(py)?;
            }
            Ok(result?)
        }
    }
}

/// Works on the process's record.
pub fn with_runtime<T>(py: Python<'_>, f: impl FnOnce(&mut Runtime) -> T) -> T {
    f(&mut run::runtime(py))
}

/// Runs everything that somebody waits for.
pub fn flush(py: Python<'_>) -> PyResult<()> {
    Ok(py.detach(|| run::runtime_detached().flush())?)
}

/// Applies operations to operands.
pub fn apply(
    py: Python<'_>,
    operands: &[&Operand],
    f: impl FnOnce(&mut Graph, &[Value]) -> Result<Vec<Value>, GraphError> + Send,
) -> PyResult<Vec<Arc<Handle>>> {
    on_record(py, operands, |record, values| {
        let results = f(&mut record.graph, values)?;
        Ok(results.into_iter().map(|value| record.handle(value)).collect())
    })
}

/// As [`apply`], for one result.
pub fn apply1(
    py: Python<'_>,
    operands: &[&Operand],
    f: impl FnOnce(&mut Graph, &[Value]) -> Result<Value, GraphError> + Send,
) -> PyResult<PyTensor> {
    let handles = apply(py, operands, |graph, values| Ok(vec![f(graph, values)?]))?;
    Ok(PyTensor { handle: handles.into_iter().next().expect("one result") })
}
