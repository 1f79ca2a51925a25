//! The engine: states and plans in one arena, and the loop over instructions. How states are read and set is in
//! `states.rs`, the file for what memory has no room for in `spill.rs`.

use crate::arena::{Arena, ArenaError};
use crate::homes::{FileUse, Homes};
use crate::spill::{PIECE, SpillError, SpillFile, SpillStats};
use crate::store::Store;
use plimsoll_budget::{Budget, Bytes, Reservation};
use plimsoll_graph::op::spill::{Spill, Transfer};
use plimsoll_graph::{Io, NodeId, OpDef, Operand, RunError, Value};
use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::{self, Packing};
use plimsoll_plan::{Place, Plan, StateLayout};
use plimsoll_tensor::{DType, Element, F8E4M3, F8E5M2, Tensor, TensorType, bf16, f16};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which of an engine's plans.
pub type ProgramId = usize;

/// What can go wrong while running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// There is no memory to run in.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// There is no file for what memory has no room for, or it failed.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// An op met values it cannot compute with.
    #[error("{place}: {}", cause.message)]
    Run {
        /// The op and its layer.
        place: String,
        /// What is wrong.
        cause: RunError,
    },
    /// A name that does not exist, or a tensor of another type.
    #[error("{what} '{name}': {message}")]
    Value {
        /// Input, output or state.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// How long a node took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The node.
    pub node: NodeId,
    /// Its time.
    pub time: Duration,
}

/// Where a value that is not finite came from first.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// A state, the data, or the result of an op of a layer.
    pub what: String,
}

/// How an engine runs. A number of threads is one, too.
///
/// ```
/// use plimsoll_exec::Settings;
/// let settings = Settings::from(2).spill_dir("/var/tmp");
/// assert_eq!(settings.threads, 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The number of threads.
    pub threads: usize,
    /// Where a file may be made for what memory has no room for; `None` when nowhere.
    pub spill_dir: Option<PathBuf>,
}

impl From<usize> for Settings {
    fn from(threads: usize) -> Settings {
        Settings { threads, spill_dir: None }
    }
}

impl Settings {
    /// With a directory for the spill file.
    #[must_use]
    pub fn spill_dir(self, directory: impl Into<PathBuf>) -> Settings {
        Settings { spill_dir: Some(directory.into()), ..self }
    }
}

/// Plans ready to run, with the states they share.
pub struct Engine {
    /// What memory has no room for. First, so that its threads end before the memory goes.
    pub(crate) spill: Option<SpillFile>,
    pub(crate) spill_dir: Option<PathBuf>,
    pub(crate) budget: Budget,
    pub(crate) state: StateLayout,
    /// Where states are in the file.
    pub(crate) homes: Homes,
    /// The states in memory, which stay when plans come and go.
    pub(crate) store: Store,
    /// Everything else, as large as the largest plan.
    pub(crate) scratch: Arena,
    /// Those that were removed leave their number to others.
    pub(crate) programs: Vec<Option<Program>>,
    pool: Pool,
    poison: bool,
    /// What the GEMM library packs inside a call: not in the arena, but known and bounded.
    library: Reservation,
}

/// A plan with its addresses.
pub(crate) struct Program {
    plan: Plan,
    calls: Vec<Call>,
    operands: Vec<Operand>,
    /// The values that the operands are.
    operand_values: Vec<Value>,
    inputs: Vec<(String, Operand)>,
    /// The states in memory, by their offset in the plan's layout.
    states: Vec<StateUse>,
    /// The states in the file, by their slot in the plan's layout.
    filed: Vec<FileUse>,
}

/// A state of a plan, and which operands are in it.
struct StateUse {
    name: String,
    at: usize,
    ty: TensorType,
    /// Null while it is bound to nothing.
    ptr: *mut u8,
    /// The engine's state that it was bound to.
    bound: Option<String>,
    /// Operands, and where in the state they begin.
    operands: Vec<(usize, usize)>,
}

impl StateUse {
    fn unbind(&mut self) {
        (self.ptr, self.bound) = (std::ptr::null_mut(), None);
    }
}

/// The state that an offset of the layout lies in.
fn state_at(states: &[StateUse], offset: usize) -> usize {
    states.partition_point(|s| s.at <= offset) - 1
}

struct Call {
    op: Arc<dyn OpDef>,
    node: NodeId,
    inputs: Range<usize>,
    outputs: Range<usize>,
    /// Where the workspace begins in the arena.
    at: usize,
    workspace: *mut u8,
    workspace_bytes: usize,
}

// SAFETY: the pointers lead into the arena that the engine owns.
unsafe impl Send for Program {}
// SAFETY: as above; running needs `&mut Engine`.
unsafe impl Sync for Program {}

impl Engine {
    /// Reserves and touches the memory for these plans, which share the states and, one after another, the rest; and
    /// reserves the file if one is needed. All states are zero.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory, or there is no room for the file.
    pub fn open(
        budget: &Budget,
        state: &StateLayout,
        plans: Vec<Plan>,
        settings: impl Into<Settings>,
    ) -> Result<Engine, ExecError> {
        let Settings { threads, spill_dir } = settings.into();
        let mut engine = Engine {
            spill: None,
            spill_dir,
            budget: budget.clone(),
            state: state.clone(),
            homes: Homes::of(state),
            store: Store::new(budget),
            scratch: map_arena(budget, "arena", 0)?,
            programs: Vec::new(),
            library: reserve(budget, "gemm", 0)?,
            pool: Pool::new(threads),
            poison: false,
        };
        engine.store.add(state.iter().map(|(name, _, ty)| (name, ty)))?;
        engine.set_plans(plans)?;
        Ok(engine)
    }

    /// Replaces the plans; the states stay as they are, in memory and in the file.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory, or there is no room for the file. The engine then has no
    /// plans.
    ///
    /// # Panics
    /// When a plan was made for other states.
    pub fn set_plans(&mut self, plans: Vec<Plan>) -> Result<(), ExecError> {
        assert!(plans.iter().all(|p| p.state == self.state), "plans are made for the engine's states");
        self.programs.clear();
        let bytes = plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0);
        let packing = plans.iter().map(|p| p.graph.packing()).fold(Packing::NONE, Packing::max);
        let library = Bytes::from(packing.bytes(self.pool.threads()));
        // What the library has taken it keeps, whatever plans come next.
        self.library.resize(library.max(self.library.bytes())).map_err(ArenaError::from)?;
        packing.prepare();
        self.settle();
        let fits = bytes == self.scratch.bytes() as u64;
        if !fits {
            // The old one goes first, so that both never stand side by side.
            self.scratch = map_arena(&self.budget, "arena", 0)?;
        }
        self.fit_file(&plans.iter().collect::<Vec<_>>())?;
        if !fits {
            self.scratch = map_arena(&self.budget, "arena", bytes)?;
        }
        let program = |plan| Some(Program::new(plan, &self.store, &self.homes, &self.scratch));
        self.programs = plans.into_iter().map(program).collect();
        Ok(())
    }

    /// Adds a plan to those that are there. The arena grows if it must.
    ///
    /// States of the plan that the engine has, in memory or in the file as the plan wants them, are bound to it; others must be
    /// [bound](Engine::bind) before it runs.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory, or there is no room for the file. The other plans are still there.
    pub fn add_plan(&mut self, plan: Plan) -> Result<ProgramId, ExecError> {
        let packing = plan.graph.packing();
        let library = Bytes::from(packing.bytes(self.pool.threads()));
        self.library.resize(library.max(self.library.bytes())).map_err(ArenaError::from)?;
        packing.prepare();
        self.settle();
        if plan.file_bytes > 0 {
            self.fit_file(&[&plan])?;
        }
        let needed = self.largest().max(plan.arena_bytes);
        if needed > self.scratch.bytes() as u64 {
            self.set_scratch(needed)?;
        }
        let program = Program::new(plan, &self.store, &self.homes, &self.scratch);
        let free = self.programs.iter().position(Option::is_none);
        let id = free.unwrap_or_else(|| {
            self.programs.push(None);
            self.programs.len() - 1
        });
        self.programs[id] = Some(program);
        Ok(id)
    }

    /// Removes a plan; its number may be given to another.
    pub fn remove_plan(&mut self, program: ProgramId) {
        self.programs[program] = None;
    }

    /// Makes the arena as large as the largest plan needs, and no larger.
    ///
    /// # Errors
    /// When the system does not give the memory.
    pub fn fit_arena(&mut self) -> Result<(), ExecError> {
        let bytes = self.largest();
        if bytes == self.scratch.bytes() as u64 { Ok(()) } else { self.set_scratch(bytes) }
    }

    /// Gives the arena back; the plans stay. They run again after [`Engine::fit_arena`].
    ///
    /// # Errors
    /// None that giving memory back can have.
    pub fn release_arena(&mut self) -> Result<(), ExecError> {
        self.scratch = map_arena(&self.budget, "arena", 0)?;
        Ok(())
    }

    /// The arena of the largest plan.
    fn largest(&self) -> u64 {
        self.programs.iter().flatten().map(|p| p.plan.arena_bytes).max().unwrap_or(0)
    }

    /// Another arena. Nothing in it outlives a run.
    fn set_scratch(&mut self, bytes: u64) -> Result<(), ExecError> {
        let before = self.scratch.bytes() as u64;
        // The old one goes first, so that both never stand side by side.
        self.scratch = map_arena(&self.budget, "arena", 0)?;
        let made = map_arena(&self.budget, "arena", bytes);
        let (arena, result) = match made {
            Ok(arena) => (arena, Ok(())),
            // What was there a moment ago is there again.
            Err(error) => (map_arena(&self.budget, "arena", before)?, Err(error)),
        };
        self.scratch = arena;
        let size = self.scratch.bytes() as u64;
        for program in self.programs.iter_mut().flatten().filter(|p| p.plan.arena_bytes <= size) {
            program.resolve(&self.scratch);
        }
        result
    }

    /// Binds a state of a plan to a state of the engine of the same type.
    ///
    /// # Errors
    /// When there is no such state, it has another type, or it is in memory where the plan wants it in the file or the other way round.
    pub fn bind(&mut self, program: ProgramId, state: &str, name: &str) -> Result<(), ExecError> {
        if let Some(home) = self.homes.get(name) {
            let program = self.programs[program].as_mut().expect("a program that is there");
            let Some(used) = program.filed.iter_mut().find(|f| f.name == state) else {
                let message = format!("is wanted in memory, but '{name}' is in the file");
                return Err(ExecError::Value { what: "state", name: state.to_owned(), message });
            };
            return used.bind(name, home);
        }
        let operand = self.store.get(name).ok_or_else(|| missing("state", name))?;
        let program = self.programs[program].as_mut().expect("a program that is there");
        program.bind(state, operand, Some(name))
    }

    /// Binds a state of a plan to memory of the caller's, which is read where it is.
    ///
    /// # Errors
    /// When the plan has no such state, or of another type, or changes it.
    ///
    /// # Safety
    /// `operand` is valid and aligned to 64 bytes, and nobody writes it, until the state is bound to something else or the program has run for the last
    /// time.
    pub unsafe fn bind_memory(&mut self, program: ProgramId, state: &str, operand: Operand) -> Result<(), ExecError> {
        let program = self.programs[program].as_mut().expect("a program that is there");
        if program.changes(state) {
            let message = "is changed by the plan, and so must be one of the engine's".into();
            return Err(ExecError::Value { what: "state", name: state.to_owned(), message });
        }
        program.bind(state, operand, None)
    }

    /// No program is bound to a state any more.
    pub(crate) fn unbind(&mut self, name: &str) {
        for program in self.programs.iter_mut().flatten() {
            program.states.iter_mut().filter(|s| s.bound.as_deref() == Some(name)).for_each(|s| s.unbind());
            program.filed.iter_mut().for_each(|f| f.unbind(name));
        }
    }

    fn program(&self, id: ProgramId) -> Result<&Program, ExecError> {
        let program = self.programs[id].as_ref().expect("a program that is there");
        if program.plan.arena_bytes > self.scratch.bytes() as u64 {
            let needed = Bytes(program.plan.arena_bytes);
            let cause = std::io::Error::other("the arena was given back");
            return Err(ArenaError::System { bytes: needed, cause }.into());
        }
        let in_memory = program.states.iter().find(|s| s.ptr.is_null()).map(|s| &s.name);
        match in_memory.or_else(|| program.filed.iter().find(|f| f.to.is_none()).map(|f| &f.name)) {
            Some(name) => {
                let message = "is bound to nothing".into();
                Err(ExecError::Value { what: "state", name: name.clone(), message })
            }
            None => Ok(program),
        }
    }

    /// Makes the file as large as the states in it, the programs, and these plans need. What the states hold stays.
    pub(crate) fn fit_file(&mut self, plans: &[&Plan]) -> Result<(), ExecError> {
        let all = || self.programs.iter().flatten().map(|p| &p.plan).chain(plans.iter().copied());
        let passing = all().map(|p| p.file_bytes.saturating_sub(p.state.file_bytes())).max().unwrap_or(0);
        let mut homes = self.homes.clone();
        homes.fit_passing(passing);
        let mut slots = homes.slots();
        all().for_each(|plan| slots.extend(passing_slots(plan).map(|(slot, n)| (homes.passing().start + slot, n))));
        let bytes = homes.end();
        match &mut self.spill {
            _ if bytes == 0 => self.spill = None,
            Some(file) => file.resize(bytes, &slots)?,
            None => self.spill = Some(self.new_file(&self.state, bytes, &slots)?),
        }
        self.homes = homes;
        Ok(())
    }

    /// A file in which all states of this layout are zero.
    pub(crate) fn new_file(
        &self,
        layout: &StateLayout,
        bytes: u64,
        slots: &[(u64, u64)],
    ) -> Result<SpillFile, SpillError> {
        let directory = self.spill_dir.as_deref().ok_or(SpillError::NotAllowed { needed: Bytes(bytes) })?;
        let mut file = SpillFile::create(&self.budget, directory, bytes, slots)?;
        for (_, slot, ty) in layout.iter_file() {
            file.clear(slot, ty.bytes() as u64)?;
        }
        Ok(file)
    }

    /// Makes spill files in this directory from now on; one that is there moves, with the states in it.
    ///
    /// # Errors
    /// When no file can be made there, or states are in a file and none may be made any more. The file then stays where it is.
    pub fn set_spill_dir(&mut self, directory: Option<PathBuf>) -> Result<(), ExecError> {
        if directory == self.spill_dir {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.spill_dir, directory);
        let Some(old) = &self.spill else { return Ok(()) };
        match self.moved(old) {
            Ok(new) => self.spill = Some(new),
            Err(error) => {
                self.spill_dir = before;
                return Err(error);
            }
        }
        Ok(())
    }

    /// A file in the directory for such files, with the states of another.
    fn moved(&self, old: &SpillFile) -> Result<SpillFile, ExecError> {
        let plans: Vec<&Plan> = self.programs.iter().flatten().map(|p| &p.plan).collect();
        let new = self.new_file(&self.state, old.bytes(), &slots(&self.state, &plans))?;
        let _reserved = reserve(&self.budget, "spill", PIECE as u64)?;
        let mut piece = vec![0; PIECE];
        for (_, slot, ty) in self.state.iter_file() {
            let bytes = ty.bytes();
            for at in (0..bytes).step_by(PIECE) {
                let piece = &mut piece[..PIECE.min(bytes - at)];
                old.fetch(slot + at as u64, piece)?;
                new.store(slot + at as u64, piece)?;
            }
        }
        Ok(new)
    }

    /// Fills every output and workspace with a pattern that reads as NaN before the node that writes it runs, so that
    /// reading memory that was not written shows in the result. For tests.
    pub fn set_poison(&mut self, poison: bool) {
        self.poison = poison;
    }

    /// The bytes in memory: all states there, the largest plan, and the buffers of the file.
    pub fn bytes(&self) -> Bytes {
        let buffers = self.spill.as_ref().map_or(Bytes::ZERO, SpillFile::memory_held);
        Bytes((self.store.bytes() + self.scratch.bytes()) as u64) + buffers
    }

    /// The bytes of the states in memory.
    pub fn states_bytes(&self) -> Bytes {
        Bytes::from(self.store.bytes())
    }

    /// Reserves memory beside that of the engine, in the same budget.
    ///
    /// # Errors
    /// When the budget does not give it.
    pub fn reserve(&self, account: &str, bytes: Bytes) -> Result<Reservation, ExecError> {
        reserve(&self.budget, account, bytes.0)
    }

    /// The bytes of the arena.
    pub fn arena_bytes(&self) -> Bytes {
        Bytes::from(self.scratch.bytes())
    }

    /// The size of the spill file; 0 without one.
    pub fn file_bytes(&self) -> Bytes {
        Bytes(self.spill.as_ref().map_or(0, SpillFile::bytes))
    }

    /// What went through the spill file so far, and how long was waited for it.
    pub fn spill_stats(&self) -> SpillStats {
        self.spill.as_ref().map(SpillFile::stats).unwrap_or_default()
    }

    /// What the library for matrix products may hold besides.
    pub fn library_bytes(&self) -> Bytes {
        self.library.bytes()
    }

    /// Prepares the calling thread's heap for a series of runs: to be called after other work in this thread that allocates
    /// and before the runs, so that what the library packs stays within [`Engine::library_bytes`].
    pub fn settle(&self) {
        if self.library.bytes() > Bytes::ZERO {
            gemm::settle_heap();
        }
    }

    /// The same between runs whose products pack a lot: they take so long that this does not matter, and other work in this thread,
    /// the caller's too, may have changed the heap since.
    fn settle_if_large(&self) {
        const LARGE: Bytes = Bytes::mib(1);
        if self.library.bytes() >= LARGE {
            gemm::settle_heap();
        }
    }

    /// The layout of the states.
    pub fn state_layout(&self) -> &StateLayout {
        &self.state
    }

    /// The plan of a program.
    ///
    /// # Panics
    /// When there is no such program.
    pub fn plan(&self, program: ProgramId) -> &Plan {
        &self.programs[program].as_ref().expect("a program that is there").plan
    }

    /// The threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs a plan once, on the inputs set before.
    ///
    /// # Errors
    /// When an op meets values it cannot compute with, or a transfer fails; states changed before it stay changed.
    pub fn run(&mut self, program: ProgramId) -> Result<(), ExecError> {
        self.settle_if_large();
        let program = self.program(program)?;
        let _settled = Settled(self.spill.as_ref());
        for call in &program.calls {
            if self.poison {
                program.poison(call);
            }
            self.call(program, call)?;
        }
        Ok(())
    }

    fn call(&self, program: &Program, call: &Call) -> Result<(), ExecError> {
        let file = self.spill.as_ref().map(|file| Moved { file, program, passing: self.homes.passing().start });
        // SAFETY: the plan was checked: operands are inside the arena and apart as `Io::new` asks.
        let run = unsafe { program.run(call, &self.pool, file.as_ref().map(|f| f as &dyn Spill)) };
        run.map_err(|cause| ExecError::Run { place: program.plan.graph.describe(call.node), cause })
    }

    /// Runs a plan until an output is known, and stops there if it holds a value that is not finite: before anything that
    /// depends on it ran. Gives back whether it was finite; if not, which node first made such a value.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_guarded(&mut self, program: ProgramId, guard: &str) -> Result<Option<NonFinite>, ExecError> {
        self.settle_if_large();
        let watched = self.find_output(program, guard)?;
        let program = self.program(program)?;
        let maker = program.maker(guard);
        let _settled = Settled(self.spill.as_ref());
        for call in &program.calls {
            self.call(program, call)?;
            if Some(call.node) == maker && !is_finite(&watched) {
                return self.blame(program, call.node).map(Some);
            }
        }
        Ok(None)
    }

    /// Runs again up to a node and finds the first one whose output is not finite.
    fn blame(&self, program: &Program, last: NodeId) -> Result<NonFinite, ExecError> {
        // What the run that was broken off began is over before anything is written again.
        drop(Settled(self.spill.as_ref()));
        if let Some(name) = self.state_that_is_not_finite()? {
            return Ok(NonFinite { what: format!("'{name}'") });
        }
        for call in &program.calls {
            let what = program.plan.graph.describe(call.node);
            // Values that are being read hold nothing yet: `end_read` has them first.
            let transfer = call.op.transfer();
            let (begins, ends) =
                (matches!(transfer, Some(Transfer::BeginRead(_))), matches!(transfer, Some(Transfer::EndRead(_))));
            let inputs_fine = ends || program.operands[call.inputs.clone()].iter().all(is_finite);
            // The inputs may have been overwritten: then they are blamed.
            if !inputs_fine {
                return Ok(NonFinite { what: format!("the data that {what} reads") });
            }
            let failed = self.call(program, call).is_err();
            let outputs_fine = begins || program.operands[call.outputs.clone()].iter().all(is_finite);
            if failed || !outputs_fine || call.node == last {
                return Ok(NonFinite { what: format!("the result of {what}") });
            }
        }
        unreachable!("the last node was reached before")
    }

    /// As [`Engine::run`], with the time of every node.
    ///
    /// # Errors
    /// As [`Engine::run`].
    pub fn run_timed(&mut self, program: ProgramId) -> Result<Vec<Timing>, ExecError> {
        let program = self.program(program)?;
        let _settled = Settled(self.spill.as_ref());
        let mut timings = Vec::with_capacity(program.calls.len());
        for call in &program.calls {
            let start = Instant::now();
            self.call(program, call)?;
            timings.push(Timing { node: call.node, time: start.elapsed() });
        }
        Ok(timings)
    }

    /// The memory of an input, to be filled before a run.
    ///
    /// # Errors
    /// When there is no such input or it has another type.
    pub fn input_mut<T: Element>(&mut self, program: ProgramId, name: &str) -> Result<&mut [T], ExecError> {
        let operand = self.find_input(program, name)?;
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        unsafe { slice_mut("input", name, operand) }
    }

    /// The memory of an input as bytes, to be filled before a run; `None` when there is no such input.
    ///
    /// The bytes written must be valid for the input's type (0 or 1 for `bool`).
    pub fn input_bytes_mut(&mut self, program: ProgramId, name: &str) -> Option<&mut [u8]> {
        let operand = self.find_input(program, name).ok()?;
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        Some(unsafe { std::slice::from_raw_parts_mut(operand.ptr, operand.ty.bytes()) })
    }

    /// The memory of several inputs as bytes, to be filled before a run: `None` where there is no such input, or it was named
    /// before.
    ///
    /// The bytes written must be valid for the inputs' types (0 or 1 for `bool`).
    pub fn inputs_bytes_mut<'a>(
        &'a mut self,
        program: ProgramId,
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Vec<Option<&'a mut [u8]>> {
        let mut found: Vec<Option<(usize, &'a mut [u8])>> = Vec::new();
        for name in names {
            let operand = name.and_then(|name| self.find_input(program, name).ok());
            let operand = operand.filter(|o| found.iter().flatten().all(|(start, _)| *start != o.ptr as usize));
            found.push(operand.map(|o| {
                // SAFETY: valid memory of the arena, exclusive through `&mut self`. All inputs of a step are alive when it
                // begins, so no two of them share a byte, and none is given twice.
                (o.ptr as usize, unsafe { std::slice::from_raw_parts_mut(o.ptr, o.ty.bytes()) })
            }));
        }
        found.into_iter().map(|entry| entry.map(|(_, bytes)| bytes)).collect()
    }

    /// Copies a tensor into an input.
    ///
    /// # Errors
    /// When there is no such input or the tensor has another type.
    pub fn set_input(&mut self, program: ProgramId, name: &str, tensor: &Tensor) -> Result<(), ExecError> {
        copy_in("input", name, tensor, self.find_input(program, name)?)
    }

    /// The elements of an output after a run.
    ///
    /// # Errors
    /// When there is no such output or it has another type.
    pub fn output_slice<T: Element>(&self, program: ProgramId, name: &str) -> Result<&[T], ExecError> {
        let operand = self.find_output(program, name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        unsafe { slice_mut("output", name, operand).map(|s| &*s) }
    }

    /// The bytes of an output after a run.
    ///
    /// # Errors
    /// When there is no such output.
    pub fn output_bytes(&self, program: ProgramId, name: &str) -> Result<&[u8], ExecError> {
        let operand = self.find_output(program, name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(operand.ptr, operand.ty.bytes()) })
    }

    /// A copy of an output after a run.
    ///
    /// # Errors
    /// When there is no such output.
    pub fn output(&self, program: ProgramId, name: &str) -> Result<Tensor, ExecError> {
        Ok(copy_out(self.find_output(program, name)?))
    }

    fn find_input(&self, program: ProgramId, name: &str) -> Result<Operand, ExecError> {
        let inputs = &self.programs[program].as_ref().expect("a program that is there").inputs;
        inputs.iter().find(|(n, _)| n == name).map(|(_, o)| *o).ok_or_else(|| missing("input", name))
    }

    fn find_output(&self, program: ProgramId, name: &str) -> Result<Operand, ExecError> {
        let program = self.programs[program].as_ref().expect("a program that is there");
        let outputs = program.plan.graph.outputs();
        let output = outputs.iter().find(|o| o.name == name).ok_or_else(|| missing("output", name))?;
        Ok(program.operand(output.value, &self.scratch))
    }
}

impl Program {
    fn new(plan: Plan, store: &Store, homes: &Homes, scratch: &Arena) -> Program {
        let mut states: Vec<StateUse> = plan
            .state
            .iter()
            .filter(|(.., ty)| ty.bytes() > 0)
            .map(|(name, at, ty)| {
                let ptr = store.get(name).filter(|o| o.ty == ty).map_or(std::ptr::null_mut(), |o| o.ptr);
                StateUse { name: name.to_owned(), at: at as usize, ty, ptr, bound: None, operands: Vec::new() }
            })
            .collect();
        states.sort_by_key(|s| s.at);
        let filed = FileUse::of(&plan.state, homes);
        let mut program = Program {
            calls: Vec::new(),
            operands: Vec::new(),
            operand_values: Vec::new(),
            inputs: Vec::new(),
            states,
            filed,
            plan,
        };
        for instruction in &program.plan.instructions {
            let node = program.plan.graph.node(instruction.node);
            if !node.op.runs() {
                continue;
            }
            let mut range = |values: &[Value]| {
                let start = program.operand_values.len();
                program.operand_values.extend_from_slice(values);
                start..program.operand_values.len()
            };
            let (inputs, outputs) = (range(&node.inputs), range(&node.outputs));
            let at = instruction.workspace.clone().unwrap_or(0..0);
            program.calls.push(Call {
                op: node.op.clone(),
                node: instruction.node,
                inputs,
                outputs,
                at: at.start as usize,
                workspace: std::ptr::null_mut(),
                workspace_bytes: (at.end - at.start) as usize,
            });
        }
        for (i, &value) in program.operand_values.iter().enumerate() {
            if let Some(Place::State(offset)) = program.plan.places[value.0 as usize]
                && program.plan.graph.ty(value).bytes() > 0
            {
                let state = state_at(&program.states, offset as usize);
                let inside = offset as usize - program.states[state].at;
                program.states[state].operands.push((i, inside));
            }
        }
        program.resolve(scratch);
        program
    }

    /// Finds all addresses for an arena.
    fn resolve(&mut self, scratch: &Arena) {
        self.operands = self.operand_values.iter().map(|&v| self.operand(v, scratch)).collect();
        for call in &mut self.calls {
            // SAFETY: the checker proved that the workspace is inside the arena.
            call.workspace = unsafe { scratch.ptr().add(call.at) };
        }
        let inputs = self.plan.graph.inputs().map(|(value, name)| (name.to_owned(), self.operand(value, scratch)));
        self.inputs = inputs.collect();
    }

    /// Gives a state of the plan its memory.
    fn bind(&mut self, name: &str, operand: Operand, bound: Option<&str>) -> Result<(), ExecError> {
        let Some(state) = self.states.iter_mut().find(|s| s.name == name) else {
            // A state without elements has no memory.
            return if operand.ty.bytes() == 0 { Ok(()) } else { Err(missing("state", name)) };
        };
        if state.ty != operand.ty {
            return Err(wrong_type("state", name, state.ty, operand.ty));
        }
        state.bound = bound.map(str::to_owned);
        if state.ptr != operand.ptr {
            state.ptr = operand.ptr;
            for &(i, inside) in &state.operands {
                // SAFETY: the checker proved that the operand is inside the state.
                self.operands[i].ptr = unsafe { operand.ptr.add(inside) };
            }
        }
        Ok(())
    }

    /// Whether the plan changes a state.
    fn changes(&self, name: &str) -> bool {
        let graph = &self.plan.graph;
        let is_it = |v: Value| graph.states().any(|(s, n)| s == v && n == name);
        graph.nodes().any(|(_, node)| {
            node.op.mutates().iter().any(|(input, _)| graph.state_of(node.inputs[*input]).is_some_and(is_it))
        })
    }

    /// The node after which an output is known; `None` for an input or a state.
    fn maker(&self, output: &str) -> Option<NodeId> {
        let graph = &self.plan.graph;
        let mut value = graph.outputs().iter().find(|o| o.name == output)?.value;
        loop {
            let id = graph.producer(value)?;
            if graph.node(id).op.runs() {
                return Some(id);
            }
            value = graph.node(id).inputs[0];
        }
    }

    fn operand(&self, value: Value, scratch: &Arena) -> Operand {
        let ty = *self.plan.graph.ty(value);
        let ptr = match self.plan.places[value.0 as usize].expect("the checker proved that values have places") {
            // Nobody reads or writes what has no elements.
            Place::State(_) if ty.bytes() == 0 => std::ptr::dangling_mut::<[u64; 8]>().cast(),
            Place::State(offset) => {
                let state = &self.states[state_at(&self.states, offset as usize)];
                state.ptr.wrapping_add(offset as usize - state.at)
            }
            Place::Arena(offset) => {
                debug_assert!(offset as usize + ty.bytes() <= scratch.bytes());
                // SAFETY: the checker proved that the value is inside the arena.
                unsafe { scratch.ptr().add(offset as usize) }
            }
        };
        Operand { ptr, ty }
    }

    /// # Safety
    /// The plan was proved safe and nobody else uses the arena.
    unsafe fn run(&self, call: &Call, pool: &Pool, spill: Option<&dyn Spill>) -> Result<(), RunError> {
        let (inputs, outputs) = (&self.operands[call.inputs.clone()], &self.operands[call.outputs.clone()]);
        // SAFETY: the caller's promise.
        let io = unsafe { Io::new(inputs, outputs, call.workspace, call.workspace_bytes, pool) };
        call.op.run(&io.with_spill(spill))
    }

    fn poison(&self, call: &Call) {
        let inputs = &self.operands[call.inputs.clone()];
        for output in &self.operands[call.outputs.clone()] {
            if inputs.iter().all(|i| i.ptr != output.ptr) {
                // SAFETY: the output is about to be written and holds nothing that is needed.
                unsafe { std::ptr::write_bytes(output.ptr, 0xff, output.ty.bytes()) };
            }
        }
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(call.workspace, 0xff, call.workspace_bytes) };
    }
}

/// The file as a program sees it: slots of its plan, which lie elsewhere.
struct Moved<'a> {
    file: &'a SpillFile,
    program: &'a Program,
    /// Where values lie that do not outlive a run.
    passing: u64,
}

impl Moved<'_> {
    fn place(&self, slot: u64) -> u64 {
        let states = self.program.plan.state.file_bytes();
        if slot >= states {
            return self.passing + (slot - states);
        }
        let filed = &self.program.filed;
        let used = &filed[filed.partition_point(|f| f.at <= slot) - 1];
        used.to.expect("all states are bound when a program runs") + (slot - used.at)
    }
}

impl Spill for Moved<'_> {
    unsafe fn write(&self, slot: u64, bytes: *const u8, n: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { self.file.write(self.place(slot), bytes, n) }
    }

    unsafe fn read(&self, slot: u64, bytes: *mut u8, n: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { self.file.read(self.place(slot), bytes, n) }
    }

    fn finish(&self, slot: u64) -> Result<(), String> {
        self.file.finish(self.place(slot))
    }
}

/// Waits for all transfers when a run is over, however it ends: then no thread uses the engine's memory any more.
struct Settled<'a>(Option<&'a SpillFile>);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            file.settle();
        }
    }
}

/// The memory that the spill file of these plans takes; 0 when they need none.
pub fn spill_memory(state: &StateLayout, plans: &[Plan]) -> Bytes {
    match state.file_bytes() > 0 || plans.iter().any(|p| p.file_bytes > 0) {
        true => SpillFile::memory(&slots(state, &plans.iter().collect::<Vec<_>>())),
        false => Bytes::ZERO,
    }
}

/// The slots of the file that states and plans use, with their sizes.
fn slots(state: &StateLayout, plans: &[&Plan]) -> Vec<(u64, u64)> {
    let mut slots: Vec<(u64, u64)> = state.iter_file().map(|(_, slot, ty)| (slot, ty.bytes() as u64)).collect();
    for plan in plans {
        slots.extend(passing_slots(plan).map(|(slot, n)| (state.file_bytes() + slot, n)));
    }
    slots
}

/// The slots of a plan for values that do not outlive a run, counted from the end of its states in the file, with their sizes.
fn passing_slots(plan: &Plan) -> impl Iterator<Item = (u64, u64)> {
    plan.graph.nodes().filter_map(|(_, node)| {
        let (slot, value) = match node.op.transfer() {
            Some(Transfer::BeginWrite(slot)) => (slot, node.inputs[0]),
            Some(Transfer::BeginRead(slot)) => (slot, node.outputs[0]),
            _ => return None,
        };
        Some((slot.checked_sub(plan.state.file_bytes())?, plan.graph.ty(value).bytes() as u64))
    })
}

pub(crate) fn map_arena(budget: &Budget, account: &str, bytes: u64) -> Result<Arena, ExecError> {
    Ok(Arena::new(reserve(budget, account, bytes)?)?)
}

fn reserve(budget: &Budget, account: &str, bytes: u64) -> Result<Reservation, ExecError> {
    Ok(budget.account(account).reserve(Bytes(bytes)).map_err(ArenaError::from)?)
}

pub(crate) fn is_finite(operand: &Operand) -> bool {
    fn all<T: Element>(operand: &Operand) -> bool {
        // SAFETY: the operand is valid memory of its type.
        let values = unsafe { std::slice::from_raw_parts(operand.ptr.cast::<T>(), operand.ty.elements()) };
        values.iter().all(|v| v.to_f64().is_finite())
    }
    match operand.ty.dtype {
        DType::F32 => all::<f32>(operand),
        DType::F64 => all::<f64>(operand),
        DType::F16 => all::<f16>(operand),
        DType::BF16 => all::<bf16>(operand),
        DType::F8E4M3 => all::<F8E4M3>(operand),
        DType::F8E5M2 => all::<F8E5M2>(operand),
        _ => true,
    }
}

pub(crate) fn missing(what: &'static str, name: &str) -> ExecError {
    ExecError::Value { what, name: name.to_owned(), message: "does not exist".into() }
}

pub(crate) fn wrong_type(what: &'static str, name: &str, expected: impl ToString, found: impl ToString) -> ExecError {
    let message = format!("is {}, not {}", expected.to_string(), found.to_string());
    ExecError::Value { what, name: name.to_owned(), message }
}

/// # Safety
/// The operand is valid for the lifetime and, if written, exclusive.
pub(crate) unsafe fn slice_mut<'a, T: Element>(
    what: &'static str,
    name: &str,
    operand: Operand,
) -> Result<&'a mut [T], ExecError> {
    if operand.ty.dtype != T::DTYPE {
        return Err(wrong_type(what, name, operand.ty.dtype, T::DTYPE));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(operand.ptr.cast(), operand.ty.elements()) })
}

pub(crate) fn copy_in(what: &'static str, name: &str, tensor: &Tensor, operand: Operand) -> Result<(), ExecError> {
    let ty: TensorType = *tensor.ty();
    if ty != operand.ty {
        return Err(wrong_type(what, name, operand.ty, ty));
    }
    // SAFETY: the operand has as many bytes as the tensor, which is elsewhere.
    unsafe { std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), operand.ptr, ty.bytes()) };
    Ok(())
}

pub(crate) fn copy_out(operand: Operand) -> Tensor {
    let mut tensor = Tensor::zeros(operand.ty.dtype, operand.ty.shape);
    // SAFETY: as in `copy_in`.
    unsafe { std::ptr::copy_nonoverlapping(operand.ptr, tensor.bytes_mut().as_mut_ptr(), operand.ty.bytes()) };
    tensor
}
