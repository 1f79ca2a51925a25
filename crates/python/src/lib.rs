//! `plimsoll._engine`: the engine as a Python module. A door: what is computed is a graph of `plimsoll-graph`, what runs is a plan.
//!
//! Operations on tensors are recorded (`record.rs`) and run when somebody looks at a value (`run.rs`): the record is cut
//! into a graph of what is wanted (`extract.rs`), planned, and run without the interpreter's lock.

mod array;
mod buffer;
mod data;
mod dlpack;
mod error;
mod extract;
mod fork;
mod function;
mod mapped;
mod memory;
mod network;
mod operand;
mod ops;
mod pick;
mod record;
mod run;
mod steps;
mod tensor;
mod variable;

use pyo3::prelude::*;

/// The engine.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<tensor::PyTensor>()?;
    module.add_class::<tensor::PyVariable>()?;
    let py = module.py();
    module.add("UntraceableError", py.get_type::<error::UntraceableError>())?;
    module.add("ResourceExhaustedError", py.get_type::<error::ResourceExhaustedError>())?;
    module.add("WouldNotFitError", error::would_not_fit_type(py)?)?;
    ops::register(module)?;
    pick::register(module)?;
    network::register(module)?;
    data::register(module)?;
    function::register(module)?;
    memory::register(module)?;
    dlpack::register(module)?;
    steps::register(module)?;
    fork::register(module)
}
