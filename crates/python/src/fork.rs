//! Forking, as `multiprocessing` does it: a child has the memory of its parent and one thread.
//!
//! The child may go on with the engine: loops of its thread pool get by without workers, and nobody is at work in it at the fork, because the fork
//! waits. What it may not go on with is an iterator of the parent's, whose threads make the elements (`data.rs`).

use crate::run::{self, Runtime};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::sync::MutexGuard;

thread_local! {
    /// The engine, held by the thread that forks.
    static HELD: RefCell<Option<MutexGuard<'static, Runtime>>> = const { RefCell::new(None) };
}

#[pyfunction]
fn before_fork(py: Python<'_>) {
    let runtime = run::runtime(py);
    HELD.set(Some(runtime));
}

#[pyfunction]
fn after_fork() {
    HELD.set(None);
}

/// Has Python call these around every fork.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let calls = PyDict::new(py);
    calls.set_item("before", wrap_pyfunction!(before_fork, module)?)?;
    calls.set_item("after_in_parent", wrap_pyfunction!(after_fork, module)?)?;
    calls.set_item("after_in_child", wrap_pyfunction!(after_fork, module)?)?;
    // Not on systems that cannot fork.
    if let Ok(register_at_fork) = py.import("os")?.getattr("register_at_fork") {
        register_at_fork.call((), Some(&calls))?;
    }
    Ok(())
}
