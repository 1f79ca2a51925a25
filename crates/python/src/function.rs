//! Traces, programs and gradients.
//!
//! A trace is a record of its own between `trace_begin` and `trace_end`: a program, which can be called with other inputs, or
//! written into another record. Gradients are more operations of the record that they are asked in.

use crate::array;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::extract::{Extract, extract};
use crate::operand::{Operand, apply, apply1, on_record, with_runtime};
use crate::record::{Handle, Record};
use crate::run::{self, TRACES};
use crate::tensor::{PyTensor, PyVariable, look};
use plimsoll_graph::op::OpAttrs;
use plimsoll_graph::op::optimizer::Optimize;
use plimsoll_graph::op::state::Assign;
use plimsoll_graph::{Attr, Graph, OpDef, Source, Value, gradients_from};
use plimsoll_tensor::{DType, TensorType};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use std::sync::Arc;

type Object<'py> = Bound<'py, PyAny>;

/// A traced computation: inputs to outputs, with the variables that it reads and changes.
#[pyclass(frozen, name = "Program", module = "plimsoll._engine", weakref)]
pub struct Program {
    pub record: Arc<Record>,
    pub outputs: Vec<Value>,
    /// What runs when it is called by itself.
    pub cut: Extract,
}

#[pymethods]
impl Program {
    /// Runs it on these inputs; under a tape and inside a trace it is written into the record.
    fn __call__(&self, py: Python<'_>, inputs: Vec<Object<'_>>) -> PyResult<Vec<PyTensor>> {
        if !TRACES.with_borrow(Vec::is_empty) || with_runtime(py, |runtime| runtime.is_taped()) {
            return inline_program(py, self, &inputs);
        }
        let inputs = self.known_inputs(py, &inputs)?;
        let results = py.detach(|| {
            let mut runtime = run::runtime_detached();
            // What was asked for before happens before.
            runtime.flush()?;
            runtime.run(&self.cut, &inputs)
        })?;
        Ok(results.into_iter().map(|buffer| PyTensor { handle: Handle::known(buffer) }).collect())
    }

    /// Runs it `steps` times on these inputs, variables change as ever, and says in a table how long every operation took at its
    /// best.
    #[pyo3(signature = (inputs, steps=5))]
    fn profile(&self, py: Python<'_>, inputs: Vec<Object<'_>>, steps: usize) -> PyResult<String> {
        let inputs = self.known_inputs(py, &inputs)?;
        Ok(py.detach(|| {
            let mut runtime = run::runtime_detached();
            runtime.flush()?;
            runtime.profile(&self.cut, &inputs, steps).map(|profile| profile.to_string())
        })?)
    }

    /// A digest of what it computes: equal for equal computations.
    #[getter]
    fn key(&self) -> String {
        format!("{:032x}", self.cut.key)
    }

    /// Shapes and types of the inputs.
    #[getter]
    fn input_types(&self) -> Vec<(Vec<usize>, &'static str)> {
        self.record.inputs.iter().map(|v| type_of(&self.record.graph, *v)).collect()
    }

    /// Shapes and types of the outputs.
    #[getter]
    fn output_types(&self) -> Vec<(Vec<usize>, &'static str)> {
        self.outputs.iter().map(|v| type_of(&self.record.graph, *v)).collect()
    }

    /// The number of operations.
    #[getter]
    fn nodes(&self) -> usize {
        self.record.graph.nodes().len()
    }

    /// The operations as text.
    fn __str__(&self) -> String {
        self.record.graph.to_string()
    }
}

impl Program {
    /// The bytes of inputs, which must have the program's types.
    fn known_inputs(&self, py: Python<'_>, inputs: &[Object<'_>]) -> PyResult<Vec<Arc<Buffer>>> {
        let types: Vec<TensorType> = self.record.inputs.iter().map(|v| *self.record.graph.ty(*v)).collect();
        if inputs.len() != types.len() {
            let (found, wanted) = (inputs.len(), types.len());
            return Err(PyTypeError::new_err(format!("{found} inputs for a program that takes {wanted}")));
        }
        let mut known = Vec::with_capacity(types.len());
        for (i, (input, ty)) in inputs.iter().zip(types).enumerate() {
            let buffer = known_value(py, input, Some(ty.dtype))?;
            if *buffer.ty() != ty {
                let found = buffer.ty();
                return Err(PyValueError::new_err(format!("input {i} is {found}, but the program takes {ty}")));
            }
            known.push(buffer);
        }
        Ok(known)
    }
}

/// The bytes of a tensor, a variable or anything that is a tensor; Python's numbers take the type.
pub fn known_value(py: Python<'_>, object: &Object<'_>, dtype: Option<DType>) -> PyResult<Arc<Buffer>> {
    match Operand::of(object)? {
        Operand::Tensor(handle) => look(py, &handle),
        Operand::Number(..) => array::from_python(object, dtype),
        other @ Operand::Variable(_) => apply1(py, &[&other], |_, v| Ok(v[0]))?.look(py),
    }
}

fn type_of(graph: &Graph, value: Value) -> (Vec<usize>, &'static str) {
    (graph.shape(value).dims().to_vec(), array::dtype_name(graph.dtype(value)))
}

/// Begins a trace: operations of this thread go to it until it ends. Gives back a tensor for each input.
#[pyfunction]
fn trace_begin(inputs: Vec<(Vec<usize>, String)>) -> PyResult<Vec<PyTensor>> {
    let types = inputs
        .iter()
        .map(|(sizes, name)| crate::ops::tensor_type(sizes, name))
        .collect::<PyResult<Vec<plimsoll_tensor::TensorType>>>()?;
    let mut record = Record::new();
    let tensors = types.into_iter().map(|ty| PyTensor { handle: record.input(ty) }).collect();
    TRACES.with_borrow_mut(|traces| traces.push(record));
    Ok(tensors)
}

/// Ends the innermost trace with these outputs.
#[pyfunction]
fn trace_end(py: Python<'_>, outputs: Vec<Object<'_>>) -> PyResult<Program> {
    if TRACES.with_borrow(Vec::is_empty) {
        return Err(PyRuntimeError::new_err("no trace is open"));
    }
    let operands = outputs.iter().map(Operand::of).collect::<PyResult<Vec<Operand>>>()?;
    let outputs = on_record(py, &operands.iter().collect::<Vec<_>>(), |_, values| Ok(values.to_vec()))?;
    let record = TRACES.with_borrow_mut(Vec::pop).expect("a trace is open");
    let cut = extract(&record, &outputs, &record.bound, 0, true).map_err(Error::from)?;
    Ok(Program { record: Arc::new(record), outputs, cut })
}

/// Gives up the innermost trace.
#[pyfunction]
fn trace_abort() {
    TRACES.with_borrow_mut(Vec::pop);
}

/// How many traces are open in this thread.
#[pyfunction]
fn trace_depth() -> usize {
    TRACES.with_borrow(Vec::len)
}

/// The traces of a thread, set aside.
#[pyclass(name = "Traces", module = "plimsoll._engine", unsendable)]
struct Traces(Vec<Record>);

/// Sets the traces of this thread aside: what follows is recorded outside of them until `trace_resume`.
#[pyfunction]
fn trace_pause() -> Traces {
    Traces(TRACES.with_borrow_mut(std::mem::take))
}

/// Goes on with traces that were set aside.
#[pyfunction]
fn trace_resume(mut traces: PyRefMut<'_, Traces>) {
    let records = std::mem::take(&mut traces.0);
    TRACES.with_borrow_mut(|now| *now = records);
}

/// Writes a program into the record that is open, with these inputs.
#[pyfunction]
fn inline(py: Python<'_>, program: &Bound<'_, Program>, inputs: Vec<Object<'_>>) -> PyResult<Vec<PyTensor>> {
    inline_program(py, program.get(), &inputs)
}

fn inline_program(py: Python<'_>, program: &Program, inputs: &[Object<'_>]) -> PyResult<Vec<PyTensor>> {
    let traced = &program.record;
    if inputs.len() != traced.inputs.len() {
        let (found, wanted) = (inputs.len(), traced.inputs.len());
        return Err(PyTypeError::new_err(format!("{found} inputs for a program that takes {wanted}")));
    }
    let operands = inputs.iter().map(Operand::of).collect::<PyResult<Vec<Operand>>>()?;
    let operands: Vec<Operand> =
        operands.into_iter().zip(&traced.inputs).map(|(o, v)| o.or_dtype(Some(traced.graph.dtype(*v)))).collect();
    let handles = on_record(py, &operands.iter().collect::<Vec<_>>(), |record, given| {
        let results = replay(record, traced, given, &program.outputs)?;
        Ok(results.into_iter().map(|value| record.handle(value)).collect::<Vec<_>>())
    })?;
    Ok(handles.into_iter().map(|handle| PyTensor { handle }).collect())
}

/// Appends a traced record's operations to another record.
fn replay(record: &mut Record, traced: &Record, given: &[Value], outputs: &[Value]) -> Result<Vec<Value>, Error> {
    let mut map: Vec<Option<Value>> = vec![None; traced.graph.values().len()];
    for (i, (&input, &value)) in traced.inputs.iter().zip(given).enumerate() {
        let (wanted, found) = (traced.graph.ty(input), *record.graph.ty(value));
        if *wanted != found {
            return Err(Error::Value(format!("input {i} is {found}, but the program takes {wanted}")));
        }
        map[input.0 as usize] = Some(value);
    }
    for (value, buffer) in &traced.bound {
        map[value.0 as usize] = Some(record.bind(buffer));
    }
    for seen in traced.variables.values() {
        map[seen.first.0 as usize] = Some(record.read(&seen.cell));
    }
    for (_, node) in traced.graph.nodes() {
        let mut inputs: Vec<Value> =
            node.inputs.iter().map(|v| map[v.0 as usize].expect("inputs come first")).collect();
        let changes = node.op.mutates().to_vec();
        let cells: Vec<_> = changes.iter().map(|(input, _)| cell_of(traced, node.inputs[*input])).collect();
        for ((input, _), cell) in changes.iter().zip(&cells) {
            inputs[*input] = record.read(cell);
        }
        let results = record.graph.push_shared(node.op.clone(), &inputs)?;
        let assigns = node.op.name() == OpDef::name(&Assign);
        for ((_, output), cell) in changes.iter().zip(&cells) {
            match assigns {
                true => record.changed(cell, results[*output]),
                false => record.changed_in_place(cell, results[*output]),
            }
        }
        for (from, to) in node.outputs.iter().zip(results) {
            map[from.0 as usize] = Some(to);
        }
    }
    Ok(outputs.iter().map(|v| map[v.0 as usize].expect("outputs were computed")).collect())
}

/// The variable whose version a value is.
fn cell_of(record: &Record, value: Value) -> Arc<crate::variable::Cell> {
    let root = record.graph.state_of(value).expect("only variables are changed");
    debug_assert!(matches!(record.graph.value(root).source, Source::State { .. }));
    let seen = record.variables.values().find(|seen| seen.first == root).expect("every state is a variable");
    seen.cell.clone()
}

/// A tape begins: what is recorded from now on is kept for gradients, also when values are looked at.
#[pyfunction]
fn tape_begin(py: Python<'_>) {
    with_runtime(py, |runtime| runtime.tape(true));
}

/// A tape asks for no more gradients.
#[pyfunction]
fn tape_end(py: Python<'_>) {
    with_runtime(py, |runtime| runtime.tape(false));
}

/// The gradients of the sum of the targets, each times its seed, with respect to tensors and variables; `None` where nothing
/// depends.
#[pyfunction(signature = (targets, sources, seeds=None))]
fn gradients(
    py: Python<'_>,
    targets: Vec<Object<'_>>,
    sources: Vec<Object<'_>>,
    seeds: Option<Vec<Option<Object<'_>>>>,
) -> PyResult<Vec<Option<PyTensor>>> {
    let seeds = seeds.unwrap_or_else(|| vec![None; targets.len()]);
    if seeds.len() != targets.len() {
        let (a, b) = (seeds.len(), targets.len());
        return Err(PyValueError::new_err(format!("{a} seeds for {b} targets")));
    }
    let of = |list: &[Object<'_>]| list.iter().map(Operand::of).collect::<PyResult<Vec<Operand>>>();
    let (targets, sources) = (of(&targets)?, of(&sources)?);
    let mut given = Vec::new();
    for (seed, target) in seeds.into_iter().zip(&targets) {
        given.push(seed.map(|s| Operand::of(&s).map(|o| o.or_dtype(target.dtype()))).transpose()?);
    }
    let has_seed: Vec<bool> = given.iter().map(Option::is_some).collect();
    let cells: Vec<Option<Arc<crate::variable::Cell>>> = sources
        .iter()
        .map(|s| match s {
            Operand::Variable(cell) => Some(cell.clone()),
            _ => None,
        })
        .collect();
    let mut operands: Vec<&Operand> = targets.iter().chain(&sources).collect();
    operands.extend(given.iter().flatten());
    let (n_targets, n_sources) = (targets.len(), sources.len());
    let handles = on_record(py, &operands, |record, values| {
        let mut next = values[n_targets + n_sources..].iter();
        let mut pairs = Vec::with_capacity(n_targets);
        for (&target, has) in values[..n_targets].iter().zip(&has_seed) {
            let ty = *record.graph.ty(target);
            if !ty.dtype.is_float() {
                return Err(Error::Value(format!("gradients are taken of floating-point values, got {ty}")));
            }
            let seed = match has {
                true => *next.next().expect("a seed for each that has one"),
                false => record.graph.constant(1.0, ty.dtype)?,
            };
            let seed =
                if record.graph.shape(seed) == ty.shape { seed } else { record.graph.broadcast(seed, ty.shape)? };
            pairs.push((target, seed));
        }
        // A variable stands for every value that was read from it.
        let mut wrt: Vec<Value> = Vec::new();
        let mut ends: Vec<usize> = Vec::new();
        for (&value, cell) in values[n_targets..n_targets + n_sources].iter().zip(&cells) {
            match cell {
                Some(cell) => wrt.extend(record.see(cell).read.iter().copied()),
                None => wrt.push(value),
            }
            ends.push(wrt.len());
        }
        let grads = gradients_from(&mut record.graph, &pairs, &wrt)?;
        let (mut out, mut start) = (Vec::with_capacity(n_sources), 0);
        for end in ends {
            let mut sum: Option<Value> = None;
            for grad in grads[start..end].iter().flatten() {
                sum = Some(match sum {
                    Some(sum) => record.graph.add(sum, *grad)?,
                    None => *grad,
                });
            }
            out.push(sum.map(|value| record.handle(value)));
            start = end;
        }
        Ok(out)
    })?;
    Ok(handles.into_iter().map(|handle| handle.map(|handle| PyTensor { handle })).collect())
}

/// The results with a gradient of the caller's: with respect to each argument `leaving` as it was computed from `arriving`, with the gradients of
/// the results in its place.
#[pyfunction]
fn with_gradient(
    py: Python<'_>,
    results: Vec<Object<'_>>,
    arguments: Vec<Object<'_>>,
    arriving: Vec<Object<'_>>,
    leaving: Vec<Object<'_>>,
) -> PyResult<Vec<PyTensor>> {
    let (m, n) = (results.len(), arguments.len());
    if arriving.len() != m || leaving.len() != n {
        let text = format!("{m} results and {n} arguments, but {} and {} gradients", arriving.len(), leaving.len());
        return Err(PyValueError::new_err(text));
    }
    let operands: Vec<Operand> =
        [results, arguments, arriving, leaving].iter().flatten().map(Operand::of).collect::<PyResult<_>>()?;
    let handles = apply(py, &operands.iter().collect::<Vec<_>>(), |graph, v| {
        graph.with_gradient(&v[..m], &v[m..m + n], &v[m + n..2 * m + n], &v[2 * m + n..])
    })?;
    Ok(handles.into_iter().map(|handle| PyTensor { handle }).collect())
}

/// Constants of the optimizers' rules that Python need not name.
const DEFAULTS: [(&str, f64); 10] = [
    ("momentum", 0.0),
    ("weight_decay", 0.0),
    ("beta_1", 0.9),
    ("beta_2", 0.999),
    ("epsilon", 1e-7),
    ("rho", 0.9),
    ("initial_accumulator", 0.1),
    ("momentum_decay", 0.004),
    ("learning_rate", 0.0),
    ("decay", 0.0),
];

/// One step of an optimizer (`sgd`, `adam`, `rmsprop`, `adagrad`, `adadelta`, `adamax`, `nadam`, `lion`) on a variable and its slots,
/// in place. `step` counts from 1.
#[pyfunction(signature = (rule, variable, slots, gradient, learning_rate, step, options=None, scale=None))]
fn optimize(
    py: Python<'_>,
    rule: &str,
    variable: &Bound<'_, PyVariable>,
    slots: Vec<Bound<'_, PyVariable>>,
    gradient: Object<'_>,
    learning_rate: Object<'_>,
    step: Object<'_>,
    options: Option<Bound<'_, PyDict>>,
    scale: Option<Object<'_>>,
) -> PyResult<()> {
    let mut attrs: Vec<(String, Attr)> = vec![("scaled".into(), Attr::Bool(scale.is_some()))];
    for (name, value) in DEFAULTS {
        attrs.push((name.into(), Attr::Float(value)));
    }
    for name in ["nesterov", "amsgrad", "centered"] {
        attrs.push((name.into(), Attr::Bool(false)));
    }
    attrs.push(("epsilon_form".into(), Attr::Text("keras".into())));
    for (name, value) in options.iter().flatten() {
        let name: String = name.extract()?;
        let Some(entry) = attrs.iter_mut().find(|(n, _)| *n == name) else {
            return Err(PyTypeError::new_err(format!("an optimizer has no constant '{name}'")));
        };
        entry.1 = if value.is_instance_of::<PyBool>() {
            Attr::Bool(value.extract()?)
        } else if let Ok(text) = value.extract::<String>() {
            Attr::Text(text)
        } else {
            Attr::Float(value.extract()?)
        };
    }
    let op = match Optimize::parse(rule, &attrs) {
        None => return Err(PyValueError::new_err(format!("there is no optimizer '{rule}'"))),
        Some(Err(message)) => return Err(PyValueError::new_err(message)),
        Some(Ok(op)) => op,
    };
    let number = |x: Object<'_>| Ok::<Operand, PyErr>(Operand::of(&x)?.or_dtype(Some(DType::F32)));
    let cells: Vec<_> =
        [variable.get().cell.clone()].into_iter().chain(slots.iter().map(|s| s.get().cell.clone())).collect();
    let mut operands: Vec<Operand> = cells.iter().map(|c| Operand::Variable(c.clone())).collect();
    operands.extend([Operand::of(&gradient)?, number(learning_rate)?, number(step)?]);
    if let Some(scale) = scale {
        operands.push(number(scale)?);
    }
    on_record(py, &operands.iter().collect::<Vec<_>>(), |record, values| {
        let mut values = values.to_vec();
        for value in &mut values[cells.len() + 1..] {
            *value = record.graph.cast(*value, DType::F32)?;
        }
        let results = record.graph.push(op, &values)?;
        for (cell, new) in cells.iter().zip(results) {
            record.changed_in_place(cell, new);
        }
        Ok(())
    })
}

/// Runs everything that somebody waits for.
#[pyfunction]
fn flush(py: Python<'_>) -> PyResult<()> {
    crate::operand::flush(py)
}

/// The tensor's value as an array if it is known, else `None`; nothing is computed.
#[pyfunction]
fn known_or_none<'py>(x: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match x.get().handle.buffer() {
        Some(_) => array::to_numpy(x.as_any(), x.get().handle.ty.dtype).map(Some),
        None => Ok(None),
    }
}

/// Adds traces, programs and gradients to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident),* $(,)?) => {$( module.add_function(wrap_pyfunction!($name, module)?)?; )*};
    }
    add!(
        trace_begin,
        trace_end,
        trace_abort,
        trace_depth,
        trace_pause,
        trace_resume,
        inline,
        tape_begin,
        tape_end,
        gradients,
        with_gradient,
        optimize,
        flush
    );
    add!(known_or_none);
    module.add_class::<Program>()
}
