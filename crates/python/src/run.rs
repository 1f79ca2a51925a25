//! Running what was recorded: cut out of the record, planned once for each structure, run without the interpreter's lock.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::extract::{Extract, extract};
use crate::record::Record;
use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use plimsoll_plan::{Options, StateLayout, plan};
use plimsoll_tensor::Tensor;
use pyo3::Python;
use pyo3::sync::MutexExt;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A record of this many nodes is run even if nobody looks.
const LONG: usize = 4096;

/// What the process's operations share.
pub struct Runtime {
    /// What was asked for outside of traces and has not run.
    pub record: Record,
    /// The first node of the record whose changes of variables have not happened yet.
    from: usize,
    /// Tapes that may still ask for gradients of what is recorded.
    tapes: usize,
    engines: HashMap<u128, (u64, Engine)>,
    clock: u64,
}

/// Where the memory of known values is counted.
pub static BUDGET: LazyLock<Budget> = LazyLock::new(Budget::unlimited);

static RUNTIME: LazyLock<Mutex<Runtime>> = LazyLock::new(|| {
    Mutex::new(Runtime { record: Record::new(), from: 0, tapes: 0, engines: HashMap::new(), clock: 0 })
});

thread_local! {
    /// The traces of this thread, the innermost last.
    pub static TRACES: RefCell<Vec<Record>> = const { RefCell::new(Vec::new()) };
}

/// The most engines kept.
const ENGINES: usize = 64;

/// The process's record, for this thread alone until it is given back. While another thread has it, Python goes on.
pub fn runtime(py: Python<'_>) -> MutexGuard<'static, Runtime> {
    RUNTIME.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// As [`runtime`], for a thread that does not hold the interpreter's lock.
pub fn runtime_detached() -> MutexGuard<'static, Runtime> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Runtime {
    /// A tape begins or ends.
    pub fn tape(&mut self, begins: bool) {
        self.tapes = if begins { self.tapes + 1 } else { self.tapes.saturating_sub(1) };
    }

    /// Whether so much was recorded that it should run.
    pub fn is_long(&self) -> bool {
        self.tapes == 0 && self.record.graph.nodes().len() > LONG
    }

    /// Runs everything that somebody waits for, and all changes of variables.
    ///
    /// # Errors
    /// When it cannot be planned or run. Nothing is known then that was not before.
    pub fn flush(&mut self) -> Result<(), Error> {
        let mut wanted = self.record.wanted();
        let keep = self.tapes > 0;
        if keep {
            // Gradients may ask for what variables held before they changed.
            for seen in self.record.variables.values().filter(|seen| seen.now != seen.first) {
                for &version in &seen.read {
                    if !self.record.bound.contains_key(&version) && !wanted.iter().any(|(v, _)| *v == version) {
                        wanted.push((version, Vec::new()));
                    }
                }
            }
        }
        let changes = self.record.variables.values().any(|seen| seen.now != seen.first);
        if wanted.is_empty() && !changes {
            if !keep {
                self.reset();
            }
            return Ok(());
        }
        let values: Vec<_> = wanted.iter().map(|(v, _)| *v).collect();
        let known = self.record.known();
        let cut = extract(&self.record, &values, &known, self.from)?;
        let results = self.run(&cut)?;
        for ((_, handles), buffer) in wanted.iter().zip(&results) {
            self.record.know(handles, buffer);
        }
        if keep {
            self.from = self.record.graph.nodes().len();
            self.record.go_on(&wanted.iter().map(|(v, _)| *v).zip(results).collect());
        } else {
            self.reset();
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.record = Record::new();
        self.from = 0;
    }

    fn run(&mut self, cut: &Extract) -> Result<Vec<Arc<Buffer>>, Error> {
        self.clock += 1;
        if !self.engines.contains_key(&cut.key) {
            if self.engines.len() >= ENGINES {
                let oldest = self.engines.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
                oldest.map(|key| self.engines.remove(&key));
            }
            let states: Vec<(String, _)> =
                cut.variables.iter().enumerate().map(|(i, (cell, _))| (format!("v{i}"), *cell.ty())).collect();
            let layout = StateLayout::new(states.iter().map(|(name, ty)| (name.as_str(), *ty)));
            let options = Options { threads: threads(), ..Options::default() };
            let plan = plan(&cut.graph, &layout, &options)?;
            let engine = Engine::open(&BUDGET, &layout, vec![plan], threads())?;
            self.engines.insert(cut.key, (0, engine));
        }
        let (used, engine) = self.engines.get_mut(&cut.key).expect("made above");
        *used = self.clock;
        for (i, buffer) in cut.bound.iter().enumerate() {
            if let Some(to) = engine.input_bytes_mut(0, &format!("k{i}")) {
                to.copy_from_slice(buffer.bytes());
            }
        }
        for (i, (cell, _)) in cut.variables.iter().enumerate() {
            engine.set_state(&format!("v{i}"), &to_tensor(&cell.get()))?;
        }
        engine.run(0)?;
        let mut results = Vec::with_capacity(cut.graph.outputs().len());
        for output in cut.graph.outputs() {
            let tensor = engine.output(0, &output.name)?;
            results.push(Arc::new(Buffer::of_bytes(&BUDGET, *tensor.ty(), tensor.bytes())?));
        }
        for (i, (cell, _)) in cut.variables.iter().enumerate().filter(|(_, (_, changed))| *changed) {
            let tensor = engine.state(&format!("v{i}"))?;
            cell.set(Arc::new(Buffer::of_bytes(&BUDGET, *cell.ty(), tensor.bytes())?));
        }
        Ok(results)
    }
}

/// A copy as the engine takes it.
pub fn to_tensor(buffer: &Buffer) -> Tensor {
    let mut tensor = Tensor::zeros(buffer.ty().dtype, buffer.ty().shape);
    tensor.bytes_mut().copy_from_slice(buffer.bytes());
    tensor
}
