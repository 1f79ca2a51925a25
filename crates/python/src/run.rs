//! Running what was recorded: cut out of the record, planned once for each structure, run without the interpreter's lock.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::extract::{Extract, extract, extract_constant};
use crate::record::{Handle, Record};
use crate::variable::{self, Cell};
use plimsoll::session::{Session, Terms};
use plimsoll::trainer::Profile;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_exec::{ArenaError, Engine, ProgramId};
use plimsoll_graph::{Operand, Value};
use plimsoll_tensor::TensorType;
use pyo3::Python;
use pyo3::sync::MutexExt;
use std::cell::RefCell;
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
    session: Session,
}

/// Where all memory is counted.
pub static BUDGET: LazyLock<Budget> = LazyLock::new(Budget::unlimited);

static RUNTIME: LazyLock<Mutex<Runtime>> = LazyLock::new(|| {
    let session = Session::new(Terms::on(&BUDGET)).expect("an empty session takes no memory");
    Mutex::new(Runtime { record: Record::new(), from: 0, tapes: 0, session })
});

thread_local! {
    /// The traces of this thread, the innermost last.
    pub static TRACES: RefCell<Vec<Record>> = const { RefCell::new(Vec::new()) };
}

/// The process's record, for this thread alone until it is given back. While another thread has it, Python goes on.
pub fn runtime(py: Python<'_>) -> MutexGuard<'static, Runtime> {
    RUNTIME.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

/// As [`runtime`], for a thread that does not hold the interpreter's lock.
pub fn runtime_detached() -> MutexGuard<'static, Runtime> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes something that needs memory of the budget; where there is none, the session makes room if nobody is at work in it.
///
/// # Errors
/// When there is no memory.
pub fn with_room<T>(make: impl Fn() -> Result<T, ArenaError>) -> Result<T, Error> {
    match make() {
        Err(ArenaError::Budget(over)) => {
            let free = match RUNTIME.try_lock() {
                Ok(mut runtime) => runtime.session().make_room(over.asked)?,
                Err(_) => false,
            };
            if free { Ok(make()?) } else { Err(ArenaError::Budget(over).into()) }
        }
        made => Ok(made?),
    }
}

/// A value of a trace that is open in this thread, where it depends on nothing but what is known: sizes above all, which a trace has as
/// constants and computes with.
///
/// # Errors
/// When it cannot be planned or run.
pub fn constant(py: Python<'_>, handle: &Handle) -> Result<Option<Arc<Buffer>>, Error> {
    let cut = TRACES.with_borrow(|traces| {
        let place = traces.iter().find_map(|record| Some((record, handle.place(record.id())?)));
        place.map_or(Ok(None), |(record, value)| extract_constant(record, value))
    })?;
    let Some(cut) = cut else { return Ok(None) };
    let results = py.detach(|| runtime_detached().run(&cut, &[]))?;
    handle.know(&results[0]);
    Ok(results.into_iter().next())
}

impl Runtime {
    /// The session, without the states of variables that went.
    pub fn session(&mut self) -> &mut Session {
        for name in variable::gone() {
            self.session.remove_state(&name);
        }
        &mut self.session
    }

    /// A tape begins or ends.
    pub fn tape(&mut self, begins: bool) {
        self.tapes = if begins { self.tapes + 1 } else { self.tapes.saturating_sub(1) };
    }

    /// Whether gradients may be asked of what is recorded.
    pub fn is_taped(&self) -> bool {
        self.tapes > 0
    }

    /// Whether so much was recorded that it should run.
    pub fn is_long(&self) -> bool {
        self.tapes == 0 && self.record.graph.nodes().len() > LONG
    }

    /// A variable that holds these bytes.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new_variable(&mut self, ty: TensorType, bytes: &[u8]) -> Result<Arc<Cell>, Error> {
        let session = self.session();
        let cell = Cell::new(ty);
        session.add_state(cell.state_name(), ty)?;
        let mut at = 0;
        session.write_state(cell.state_name(), |piece| {
            piece.copy_from_slice(&bytes[at..at + piece.len()]);
            at += piece.len();
        })?;
        Ok(cell)
    }

    /// Runs everything that somebody waits for, and all changes of variables.
    ///
    /// # Errors
    /// When it cannot be planned or run. What waited for it will never be known; everything else goes on.
    pub fn flush(&mut self) -> Result<(), Error> {
        let keep = self.tapes > 0;
        let mut wanted = self.record.wanted();
        let changes = self.record.variables.values().any(|seen| seen.now != seen.first);
        if keep {
            // Gradients may ask for what variables held before they changed.
            for seen in self.record.variables.values().filter(|seen| seen.now != seen.first) {
                for &version in &seen.read {
                    let there = self.record.bound.contains_key(&version);
                    if !there && !wanted.iter().any(|(v, _)| *v == version) {
                        wanted.push((version, Vec::new()));
                    }
                }
            }
        }
        if wanted.is_empty() && !changes {
            if !keep {
                self.reset();
            }
            return Ok(());
        }
        match self.run_wanted(&wanted) {
            Ok(results) => {
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
            Err(error) => {
                let why: Arc<str> = error.to_string().into();
                wanted.iter().flat_map(|(_, handles)| handles).for_each(|handle| handle.fail(&why));
                self.reset();
                Err(error)
            }
        }
    }

    fn reset(&mut self) {
        self.record = Record::new();
        self.from = 0;
    }

    fn run_wanted(&mut self, wanted: &[(Value, Vec<Arc<Handle>>)]) -> Result<Vec<Arc<Buffer>>, Error> {
        let values: Vec<Value> = wanted.iter().map(|(v, _)| *v).collect();
        let known = self.record.known();
        let cut = extract(&self.record, &values, &known, self.from, true)?;
        match self.run(&cut, &[]) {
            Err(Error::Plimsoll(plimsoll::Error::WouldNotFit(_))) if cut.bound.iter().any(|(_, stays)| *stays) => {
                // What is read in place cannot be cut into slices: as inputs it can.
                let cut = extract(&self.record, &values, &known, self.from, false)?;
                self.run(&cut, &[])
            }
            other => other,
        }
    }

    /// Runs a graph on these inputs.
    ///
    /// # Errors
    /// When it cannot be planned or run.
    pub fn run(&mut self, cut: &Extract, inputs: &[Arc<Buffer>]) -> Result<Vec<Arc<Buffer>>, Error> {
        // Before it is planned, so that it counts.
        let session = self.session();
        let mut results = match cut.new_results() {
            Err(ArenaError::Budget(over)) if session.make_room(over.asked)? => cut.new_results()?,
            results => results?,
        };
        self.run_into(cut, |i, to| to.copy_from_slice(inputs[i].bytes()), inputs.len(), &mut results)?;
        Ok(results.into_iter().map(Arc::new).collect())
    }

    /// As [`Runtime::run`]: `give(i, memory)` writes the inputs, of which there are `n`, and the results go where they are to be.
    ///
    /// # Errors
    /// When it cannot be planned or run.
    pub fn run_into(
        &mut self,
        cut: &Extract,
        give: impl FnMut(usize, &mut [u8]),
        n: usize,
        results: &mut [Buffer],
    ) -> Result<(), Error> {
        let session = self.session();
        let program = cut.prepare(session)?;
        cut.bind(session, program)?;
        let engine = session.engine_mut();
        fill_inputs(engine, program, give, n);
        engine.run(program)?;
        for (i, result) in results.iter_mut().enumerate() {
            result.bytes_mut().copy_from_slice(engine.output_bytes(program, &format!("o{i}"))?);
        }
        Ok(())
    }

    /// Runs a graph on these inputs some times and times every op.
    ///
    /// # Errors
    /// As [`Runtime::run`].
    pub fn profile(&mut self, cut: &Extract, inputs: &[Arc<Buffer>], steps: usize) -> Result<Profile, Error> {
        let session = self.session();
        let program = cut.prepare(session)?;
        cut.bind(session, program)?;
        let engine = session.engine_mut();
        let mut runs = Vec::with_capacity(steps);
        for _ in 0..steps {
            fill_inputs(engine, program, |i, to| to.copy_from_slice(inputs[i].bytes()), inputs.len());
            cut.fill(engine, program);
            runs.push(engine.run_timed(program)?);
        }
        Ok(Profile::of(engine.plan(program), &runs))
    }
}

/// Has the inputs of a call written where the program has them.
fn fill_inputs(engine: &mut Engine, program: ProgramId, mut give: impl FnMut(usize, &mut [u8]), n: usize) {
    for i in 0..n {
        if let Some(to) = engine.input_bytes_mut(program, &format!("i{i}")) {
            give(i, to);
        }
    }
}

impl Extract {
    /// Memory for the outputs.
    ///
    /// # Errors
    /// When there is none.
    pub fn new_results(&self) -> Result<Vec<Buffer>, ArenaError> {
        let types = self.graph.outputs().iter().map(|o| *self.graph.ty(o.value));
        types.map(|ty| Buffer::zeros(&BUDGET, ty)).collect()
    }

    /// The program, planned if it is not ready.
    pub fn prepare(&self, session: &mut Session) -> Result<ProgramId, Error> {
        match session.find(self.key, self.variables.iter().map(|(cell, _)| cell.state_name()))? {
            Some(program) => Ok(program),
            None => self.with_bound(|bound| Ok(session.prepare(self.key, &self.graph, self.batch(), bound)?)),
        }
    }

    /// The smallest limit of the process under which a plan is found.
    pub fn smallest(&self, session: &mut Session) -> Result<Option<Bytes>, Error> {
        self.with_bound(|bound| Ok(session.smallest(&self.graph, self.batch(), bound)?))
    }

    /// The graph's states that are variables, and the session's that they will be bound to.
    fn with_bound<T>(&self, then: impl FnOnce(&[(&str, &str)]) -> T) -> T {
        let names: Vec<String> = (0..self.variables.len()).map(|i| format!("v{i}")).collect();
        let pairs = names.iter().zip(&self.variables).map(|(name, (cell, _))| (name.as_str(), cell.state_name()));
        then(&pairs.collect::<Vec<_>>())
    }

    /// Gives the program its variables and known values.
    pub fn bind(&self, session: &mut Session, program: ProgramId) -> Result<(), Error> {
        let engine = session.engine_mut();
        for (i, (cell, _)) in self.variables.iter().enumerate() {
            engine.bind(program, &format!("v{i}"), cell.state_name())?;
        }
        for (i, (buffer, stays)) in self.bound.iter().enumerate() {
            let name = format!("k{i}");
            if *stays {
                let operand = Operand { ptr: buffer.ptr(), ty: *buffer.ty() };
                // SAFETY: aligned, never written while it is shared, and kept by this graph until the run is over; the next run
                // binds it again.
                unsafe { engine.bind_memory(program, &name, operand)? };
            }
        }
        self.fill(engine, program);
        Ok(())
    }

    /// Copies the known values that are inputs: before every run, which may write over them.
    pub fn fill(&self, engine: &mut Engine, program: ProgramId) {
        for (i, (buffer, stays)) in self.bound.iter().enumerate() {
            if !stays && let Some(to) = engine.input_bytes_mut(program, &format!("k{i}")) {
                to.copy_from_slice(buffer.bytes());
            }
        }
    }
}
