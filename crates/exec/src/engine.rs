//! The engine: states and plans in one arena. The loop over instructions is in `engine/run.rs`, how states are read and set in
//! `states.rs`, the file for what memory has no room for in `spill.rs`.

mod file;
mod io;
mod program;
mod run;

pub use file::spill_memory;
pub(crate) use io::{copy_in, copy_out, missing, slice_mut, wrong_type};
use program::Program;
pub(crate) use run::is_finite;
pub use run::{NonFinite, Timing};

use crate::arena::{Arena, ArenaError};
use crate::homes::Homes;
use crate::spill::{SpillError, SpillFile, SpillStats};
use crate::store::Store;
use plimsoll_budget::{Budget, Bytes, Reservation};
use plimsoll_graph::{Operand, RunError};
use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::{self, Packing};
use plimsoll_plan::{Plan, StateLayout};
use std::path::PathBuf;

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
        self.expect_products(plans.iter().map(|p| p.graph.packing()).fold(Packing::NONE, Packing::max))?;
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
        self.expect_products(plan.graph.packing())?;
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

    /// Reserves what the library packs for products that later plans may have.
    ///
    /// # Errors
    /// When the budget does not give the memory.
    pub fn expect_products(&mut self, packing: Packing) -> Result<(), ExecError> {
        let library = Bytes::from(packing.bytes(self.pool.threads()));
        // What the library has taken it keeps, whatever plans come next.
        self.library.resize(library.max(self.library.bytes())).map_err(ArenaError::from)?;
        packing.prepare();
        self.settle();
        Ok(())
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

    /// Gives the memory of the arena to others for a while: its room stays reserved, so that it is there again when it is wanted. No plan runs before
    /// [`Engine::occupy_arena`].
    pub fn vacate_arena(&mut self) {
        self.scratch.vacate();
    }

    /// Takes the memory of the arena again.
    pub fn occupy_arena(&mut self) {
        self.scratch.occupy();
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
}

pub(crate) fn map_arena(budget: &Budget, account: &str, bytes: u64) -> Result<Arena, ExecError> {
    Ok(Arena::new(reserve(budget, account, bytes)?)?)
}

fn reserve(budget: &Budget, account: &str, bytes: u64) -> Result<Reservation, ExecError> {
    Ok(budget.account(account).reserve(Bytes(bytes)).map_err(ArenaError::from)?)
}
