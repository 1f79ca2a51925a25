//! The record: operations that were asked for and have not run. A graph under construction, and who waits for which of its values.
//!
//! One record belongs to the process; it takes what runs outside of traces and is run when somebody looks at a value. A trace has
//! a record of its own, which becomes a program. Next: `run.rs`.

use crate::buffer::Buffer;
use crate::variable::Cell;
use plimsoll_graph::{Graph, GraphError, Value};
use plimsoll_tensor::TensorType;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A value that Python holds: known, or a value of a record, or both.
pub struct Handle {
    /// Type and shape.
    pub ty: TensorType,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    known: Option<Arc<Buffer>>,
    /// Why it will never be known.
    failed: Option<Arc<str>>,
    at: Option<(u64, Value)>,
}

impl Handle {
    /// A known value.
    pub fn known(buffer: Arc<Buffer>) -> Arc<Handle> {
        let ty = *buffer.ty();
        Arc::new(Handle { ty, inner: Mutex::new(Inner { known: Some(buffer), ..Inner::default() }) })
    }

    fn pending(ty: TensorType, record: u64, value: Value) -> Arc<Handle> {
        Arc::new(Handle { ty, inner: Mutex::new(Inner { at: Some((record, value)), ..Inner::default() }) })
    }

    /// The bytes, if they are known.
    pub fn buffer(&self) -> Option<Arc<Buffer>> {
        self.lock().known.clone()
    }

    /// It is known.
    pub fn know(&self, buffer: &Arc<Buffer>) {
        self.lock().known = Some(buffer.clone());
    }

    /// Why it will never be known.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.lock().failed.clone()
    }

    /// It will never be known.
    pub fn fail(&self, why: &Arc<str>) {
        self.lock().failed = Some(why.clone());
    }

    /// Where it stands in a record.
    pub fn place(&self, record: u64) -> Option<Value> {
        self.lock().at.filter(|(id, _)| *id == record).map(|(_, value)| value)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A variable as a record sees it.
pub struct Seen {
    /// The variable.
    pub cell: Arc<Cell>,
    /// The state as it was when the record began.
    pub first: Value,
    /// The newest value.
    pub now: Value,
    /// Every value that was read, for gradients.
    pub read: Vec<Value>,
}

/// Operations in the order they were asked for.
pub struct Record {
    id: u64,
    pub(crate) graph: Graph,
    /// Who waits for which value.
    waiting: Vec<(Value, Weak<Handle>)>,
    /// Known values that operations read.
    pub(crate) bound: HashMap<Value, Arc<Buffer>>,
    by_buffer: HashMap<usize, Value>,
    /// Variables by their number.
    pub(crate) variables: HashMap<u64, Seen>,
    /// Inputs of a trace.
    pub(crate) inputs: Vec<Value>,
    /// Variables that an operation changes where they are, in this record.
    in_place: HashSet<u64>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Record {
    /// An empty record.
    pub fn new() -> Record {
        Record {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            graph: Graph::new(),
            waiting: Vec::new(),
            bound: HashMap::new(),
            by_buffer: HashMap::new(),
            variables: HashMap::new(),
            inputs: Vec::new(),
            in_place: HashSet::new(),
        }
    }

    /// Tells records apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A value of this record for a known buffer.
    pub fn bind(&mut self, buffer: &Arc<Buffer>) -> Value {
        let address = Arc::as_ptr(buffer) as usize;
        if let Some(&value) = self.by_buffer.get(&address) {
            return value;
        }
        let value = self.graph.input(&format!("known {}", self.bound.len()), *buffer.ty());
        self.by_buffer.insert(address, value);
        self.bound.insert(value, buffer.clone());
        value
    }

    /// An input of a trace.
    pub fn input(&mut self, ty: TensorType) -> Arc<Handle> {
        let value = self.graph.input(&format!("input {}", self.inputs.len()), ty);
        self.inputs.push(value);
        self.handle(value)
    }

    /// A handle for a value.
    pub fn handle(&mut self, value: Value) -> Arc<Handle> {
        let handle = Handle::pending(*self.graph.ty(value), self.id, value);
        if self.waiting.len() == self.waiting.capacity() {
            // Those whom nobody holds any more make room.
            self.waiting.retain(|(_, handle)| handle.strong_count() > 0);
        }
        self.waiting.push((value, Arc::downgrade(&handle)));
        handle
    }

    /// How a record sees a variable.
    pub fn see(&mut self, cell: &Arc<Cell>) -> &mut Seen {
        let graph = &mut self.graph;
        self.variables.entry(cell.id()).or_insert_with(|| {
            let first = graph.state(cell.state_name(), *cell.ty());
            Seen { cell: cell.clone(), first, now: first, read: vec![first] }
        })
    }

    /// The newest value of a variable.
    pub fn read(&mut self, cell: &Arc<Cell>) -> Value {
        self.see(cell).now
    }

    /// Writes a value over a variable.
    ///
    /// # Errors
    /// When the types differ.
    pub fn assign(&mut self, cell: &Arc<Cell>, value: Value) -> Result<Value, GraphError> {
        let now = self.read(cell);
        let new = self.graph.assign(now, value)?;
        self.changed(cell, new);
        Ok(new)
    }

    /// A variable has a new version.
    pub fn changed(&mut self, cell: &Arc<Cell>, new: Value) {
        let seen = self.see(cell);
        seen.now = new;
        seen.read.push(new);
    }

    /// A variable has a new version, and the old one is gone once that is there.
    pub fn changed_in_place(&mut self, cell: &Arc<Cell>, new: Value) {
        self.in_place.insert(cell.id());
        self.changed(cell, new);
    }

    /// Whether a variable's newest version takes the place of one that others may still have to read: then what was recorded runs before the
    /// variable is read again.
    pub fn is_changed_in_place(&self, cell: &Cell) -> bool {
        self.in_place.contains(&cell.id())
    }

    /// Values that somebody waits for, each once.
    pub fn wanted(&mut self) -> Vec<(Value, Vec<Arc<Handle>>)> {
        let mut wanted: Vec<(Value, Vec<Arc<Handle>>)> = Vec::new();
        let mut at: HashMap<Value, usize> = HashMap::new();
        self.waiting.retain(|(value, handle)| {
            let Some(handle) = handle.upgrade() else { return false };
            let inner = handle.lock();
            let waits = inner.known.is_none() && inner.failed.is_none();
            drop(inner);
            if waits {
                let place = *at.entry(*value).or_insert_with(|| {
                    wanted.push((*value, Vec::new()));
                    wanted.len() - 1
                });
                wanted[place].1.push(handle);
            }
            true
        });
        wanted
    }

    /// Values became known.
    pub fn know(&mut self, handles: &[Arc<Handle>], buffer: &Arc<Buffer>) {
        handles.iter().for_each(|handle| handle.know(buffer));
    }

    /// The record goes on after all of it ran, since gradients of it may be asked for: variables that changed are read anew, and
    /// what they held is among the results.
    pub fn go_on(&mut self, results: &HashMap<Value, Arc<Buffer>>) {
        self.in_place.clear();
        for seen in self.variables.values_mut().filter(|seen| seen.now != seen.first) {
            for version in &seen.read {
                if let Some(buffer) = results.get(version) {
                    self.bound.insert(*version, buffer.clone());
                }
            }
            let name = format!("{}, version {}", seen.cell.state_name(), seen.read.len());
            let state = self.graph.state(&name, *seen.cell.ty());
            (seen.first, seen.now) = (state, state);
            seen.read.push(state);
        }
    }

    /// Known values that still have holders: a graph that goes on from here need not compute them again.
    pub fn known(&self) -> HashMap<Value, Arc<Buffer>> {
        let mut known = self.bound.clone();
        for (value, handle) in &self.waiting {
            if let Some(buffer) = handle.upgrade().and_then(|h| h.buffer()) {
                known.insert(*value, buffer);
            }
        }
        known
    }
}
