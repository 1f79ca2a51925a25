//! Errors, and what they are in Python.

use plimsoll_exec::{ArenaError, ExecError};
use plimsoll_graph::GraphError;
use plimsoll_plan::PlanError;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

pyo3::create_exception!(
    plimsoll._engine,
    UntraceableError,
    pyo3::exceptions::PyRuntimeError,
    "A value was looked at that is only known when the traced function runs."
);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Operands do not suit an operation.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Running failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// A caller's mistake.
    #[error("{0}")]
    Value(String),
    /// A value of a trace was looked at.
    #[error("{0}")]
    Untraceable(String),
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        let text = error.to_string();
        match error {
            Error::Graph(_) | Error::Value(_) | Error::Exec(ExecError::Run { .. }) => PyValueError::new_err(text),
            Error::Memory(_) | Error::Exec(ExecError::Arena(_)) => PyMemoryError::new_err(text),
            Error::Exec(ExecError::Spill(_)) => PyOSError::new_err(text),
            Error::Untraceable(_) => UntraceableError::new_err(text),
            _ => PyRuntimeError::new_err(text),
        }
    }
}
