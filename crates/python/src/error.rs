//! Errors, and what they are in Python.

use plimsoll::session::WouldNotFit;
use plimsoll_exec::{ArenaError, ExecError, SpillError};
use plimsoll_graph::GraphError;
use pyo3::exceptions::{PyException, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

pyo3::create_exception!(
    plimsoll._engine,
    UntraceableError,
    pyo3::exceptions::PyRuntimeError,
    "A value was looked at that is only known when the traced function runs."
);

pyo3::create_exception!(
    plimsoll._engine,
    ResourceExhaustedError,
    PyException,
    "There is not enough of something, most often of memory."
);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Operands do not suit an operation.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Running failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// The limit cannot be kept, or a setting cannot be understood.
    #[error(transparent)]
    Plimsoll(#[from] plimsoll::Error),
    /// A caller's mistake.
    #[error("{0}")]
    Value(String),
    /// A value of a trace was looked at.
    #[error("{0}")]
    Untraceable(String),
}

/// `WouldNotFitError`: a `MemoryError` and a `ResourceExhaustedError`.
pub fn would_not_fit_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let bases = (py.get_type::<PyMemoryError>(), py.get_type::<ResourceExhaustedError>());
        let body = PyDict::new(py);
        body.set_item("__module__", "plimsoll._engine")?;
        body.set_item(
            "__doc__",
            "A memory limit cannot be kept; nothing was run. Bytes: limit, smallest (a limit that would do), needed (without a limit); remedies: what else would do.",
        )?;
        Ok::<_, PyErr>(
            py.get_type::<PyType>().call1(("WouldNotFitError", bases, body))?.cast_into::<PyType>()?.unbind(),
        )
    };
    Ok(TYPE.get_or_try_init(py, make)?.bind(py))
}

fn would_not_fit(py: Python<'_>, refusal: &WouldNotFit) -> PyErr {
    let build = || {
        let error = would_not_fit_type(py)?.call1((refusal.to_string(),))?;
        error.setattr("limit", refusal.limit.0)?;
        error.setattr("smallest", refusal.smallest.0)?;
        error.setattr("needed", refusal.unlimited.0)?;
        error.setattr("states", refusal.states.0)?;
        error.setattr("remedies", refusal.remedies.clone())?;
        Ok::<PyErr, PyErr>(PyErr::from_value(error))
    };
    build().unwrap_or_else(|error| error)
}

/// Memory that the budget or the host does not give.
fn no_memory(py: Python<'_>, error: &Error) -> PyErr {
    let over = match error {
        Error::Memory(ArenaError::Budget(over))
        | Error::Exec(ExecError::Arena(ArenaError::Budget(over)))
        | Error::Plimsoll(plimsoll::Error::Exec(ExecError::Arena(ArenaError::Budget(over)))) => Some(over),
        _ => None,
    };
    let build = || {
        let value = would_not_fit_type(py)?.call1((error.to_string(),))?;
        let needed = over.map(|over| (over.ledger.held + over.asked).0);
        value.setattr("limit", over.map(|over| over.limit.0))?;
        value.setattr("needed", needed)?;
        value.setattr("smallest", needed)?;
        value.setattr("remedies", Vec::<String>::new())?;
        Ok::<PyErr, PyErr>(PyErr::from_value(value))
    };
    build().unwrap_or_else(|error| error)
}

impl Error {
    /// Whether there is too little memory, and a larger limit may help.
    pub fn is_about_memory(&self) -> bool {
        use plimsoll::Error as Of;
        let exec = |e: &ExecError| matches!(e, ExecError::Arena(_) | ExecError::Spill(SpillError::Memory(_)));
        match self {
            Error::Memory(_) => true,
            Error::Exec(e) | Error::Plimsoll(Of::Exec(e)) => exec(e),
            Error::Plimsoll(e) => matches!(e, Of::WouldNotFit(_) | Of::HostTooSmall(_) | Of::MemoryGrew(_)),
            _ => false,
        }
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let text = error.to_string();
        match error {
            Error::Plimsoll(plimsoll::Error::WouldNotFit(refusal)) => Python::attach(|py| would_not_fit(py, &refusal)),
            error if error.is_about_memory() => Python::attach(|py| no_memory(py, &error)),
            Error::Graph(_)
            | Error::Value(_)
            | Error::Exec(ExecError::Run { .. })
            | Error::Plimsoll(plimsoll::Error::Config { .. } | plimsoll::Error::Exec(ExecError::Run { .. })) => {
                PyValueError::new_err(text)
            }
            Error::Exec(ExecError::Spill(_)) | Error::Plimsoll(plimsoll::Error::Exec(ExecError::Spill(_))) => {
                PyOSError::new_err(text)
            }
            Error::Untraceable(_) => UntraceableError::new_err(text),
            _ => PyRuntimeError::new_err(text),
        }
    }
}
