//! Programs that come and go: graphs compiled while others are there already, in one arena, over states that come and go too.

use super::limit::HEAP_OF_A_NODE;
use super::{Besides, Kept, Terms, WouldNotFit};
use crate::error::Error;
use plimsoll_budget::{Bytes, Reservation};
use plimsoll_exec::{ArenaError, Engine, ExecError, ProgramId, Settings};
use plimsoll_graph::Graph;
use plimsoll_plan::choose::State;
use plimsoll_plan::split::Batch;
use plimsoll_plan::{Choice, Options, Plan, StateLayout, Step, plan};
use plimsoll_tensor::TensorType;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most programs that are kept.
const PROGRAMS: usize = 512;

/// The most that the plans of all programs take of a limit: one part in so many.
const PART_OF_LIMIT: u64 = 16;

/// Plans of all programs take at most this much where there is no limit.
const PLANS: Bytes = Bytes::mib(256);

/// For so long a measurement of the room that was left is believed for programs that need little of it.
const BELIEVED: Duration = Duration::from_secs(1);

/// States, and programs that work on them, under one memory limit.
///
/// A program is known by a key of the caller's: the same key, the same computation. Programs that were not used for long
/// make room for others, and are compiled again when they are asked for. All share one arena, as large as the largest needs. A state keeps its
/// address while it lives. A program's states are bound to the session's when it runs ([`Engine::bind`]).
///
/// ```
/// use plimsoll::session::{Session, Terms};
/// use plimsoll::{DType, Graph, TensorType};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let mut session = Session::new(Terms::default())?;
/// let ty = TensorType::new(DType::F32, [2]);
/// session.add_state("weights", ty)?;
/// let mut g = Graph::new();
/// let w = g.state("w", ty);
/// let x = g.input("x", ty);
/// let sum = g.add(w, x)?;
/// g.assign(w, sum)?;
/// let program = session.prepare(1, &g, None)?;
/// let engine = session.engine_mut();
/// engine.bind(program, "w", "weights")?;
/// for _ in 0..3 {
///     engine.input_mut::<f32>(program, "x")?.copy_from_slice(&[1.0, 2.0]);
///     engine.run(program)?;
/// }
/// assert_eq!(engine.state("weights")?.to_f64(), [3.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    terms: Terms,
    engine: Engine,
    programs: HashMap<u128, Entry>,
    /// The heap of plans that were made since the process was last measured: of those before, the measurement knows.
    plans: Reservation,
    /// The heap of all plans.
    heap: Bytes,
    clock: u64,
    /// What was left of the limit when it was last measured, and when that was.
    left: Option<(Instant, Bytes)>,
}

struct Entry {
    id: ProgramId,
    used: u64,
    heap: Bytes,
}

impl Session {
    /// A session without states and programs.
    ///
    /// # Errors
    /// When the budget is spent already.
    pub fn new(terms: Terms) -> Result<Session, Error> {
        let settings = Settings { threads: terms.threads, spill_dir: terms.spill_dir() };
        let engine = Engine::open(&terms.budget, &StateLayout::default(), Vec::new(), settings)?;
        let plans = terms.budget.account("plans").reserve(Bytes::ZERO).map_err(over)?;
        Ok(Session { terms, engine, programs: HashMap::new(), plans, heap: Bytes::ZERO, clock: 0, left: None })
    }

    /// What programs are planned under.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What programs are planned under, to be changed: all programs are planned anew when they are asked for.
    ///
    /// # Errors
    /// When the system does not give back memory, or the spill file cannot move to where it may be now.
    pub fn set_terms(&mut self, change: impl FnOnce(&mut Terms)) -> Result<(), Error> {
        self.clear()?;
        change(&mut self.terms);
        Ok(self.engine.set_spill_dir(self.terms.spill_dir())?)
    }

    /// Forgets all programs; the states stay.
    ///
    /// # Errors
    /// None that a system without programs can have.
    pub fn clear(&mut self) -> Result<(), Error> {
        for (_, entry) in self.programs.drain() {
            self.engine.remove_plan(entry.id);
        }
        self.engine.fit_arena()?;
        self.plans.resize(Bytes::ZERO).map_err(over)?;
        (self.heap, self.left) = (Bytes::ZERO, None);
        Ok(())
    }

    /// What runs.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What runs: inputs, outputs and states are reached through it.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Adds a state of zeros.
    ///
    /// # Errors
    /// When there is no memory for it, or such a state exists.
    pub fn add_state(&mut self, name: &str, ty: TensorType) -> Result<(), Error> {
        self.left = self.left.map(|(at, left)| (at, left.saturating_sub(Bytes::from(ty.bytes()))));
        Ok(self.engine.add_state(name, ty)?)
    }

    /// Removes a state.
    pub fn remove_state(&mut self, name: &str) {
        self.engine.remove_state(name);
    }

    /// How many programs are ready to run.
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// A program that is ready to run.
    pub fn find(&mut self, key: u128) -> Option<ProgramId> {
        self.clock += 1;
        let entry = self.programs.get_mut(&key)?;
        entry.used = self.clock;
        Some(entry.id)
    }

    /// What is done so that a program keeps the limit; `None` when it is not ready.
    pub fn kept(&self, key: u128) -> Option<Kept> {
        self.programs.get(&key).map(|entry| Kept::of(self.engine.plan(entry.id)))
    }

    /// The program of this key, planned within the limit if it is not ready; `batch` says which inputs may be cut into slices.
    ///
    /// The program's states are in memory of their own, the session's or the caller's: they count there.
    ///
    /// # Errors
    /// When the limit cannot be kept ([`Error::WouldNotFit`]). What was ready is so still, or will be planned anew.
    pub fn prepare(&mut self, key: u128, graph: &Graph, batch: Option<Batch>) -> Result<ProgramId, Error> {
        if let Some(id) = self.find(key) {
            return Ok(id);
        }
        let plan = self.plan(graph, batch)?;
        let heap = heap_of(&plan);
        self.make_room_for_plan(heap);
        let id = self.engine.add_plan(plan)?;
        self.heap += heap;
        self.programs.insert(key, Entry { id, used: self.clock, heap });
        Ok(id)
    }

    /// The plan of a graph, in an arena that the limit has room for.
    fn plan(&mut self, graph: &Graph, batch: Option<Batch>) -> Result<Plan, Error> {
        let layout = StateLayout::new(graph.states().map(|(v, name)| (name, *graph.ty(v))));
        let options = Options { threads: self.terms.threads, ..Options::default() };
        let plain = plan(graph, &layout, &options)?;
        let more = Bytes(plain.arena_bytes).saturating_sub(self.engine.arena_bytes());
        if more == Bytes::ZERO || self.believed().is_some_and(|left| Bytes(more.0 * 8) <= left) {
            self.left = self.left.map(|(at, left)| (at, left.saturating_sub(more)));
            self.plans.grow(heap_of(&plain)).map_err(over)?;
            return Ok(plain);
        }
        let graphs = std::slice::from_ref(graph);
        self.plans.resize(Bytes::ZERO).map_err(over)?;
        let mut room = self.terms.room(graphs, Some(&self.engine), Besides::default())?;
        let Some(limit) = room.limit else { return Ok(plain) };
        // The planner sees the program's states; what counts are those of the session. Memory of the caller's counts elsewhere.
        let (own, all) = (Bytes(layout.bytes()), self.engine.states_bytes());
        room.fixed.others += all;
        room.limit = Some(limit + own);
        let for_arena = room.fixed.space_within(limit);
        self.left = Some((Instant::now(), for_arena.saturating_sub(Bytes(plain.arena_bytes))));
        if Bytes(plain.arena_bytes) + heap_of(&plain) <= for_arena {
            let choice = Choice { layout, plans: vec![plain] };
            self.terms.take(&room, &choice, own + self.engine.arena_bytes())?;
            self.shrink_arena(for_arena)?;
            return Ok(choice.plans.into_iter().next().expect("the one above"));
        }
        drop(plain);
        // The arena goes before the search, which needs memory of its own; the programs are still there.
        self.engine.release_arena()?;
        let state =
            |(v, name): (plimsoll_graph::Value, &str)| State { name: name.into(), ty: *graph.ty(v), rank: None };
        let states: Vec<State> = graph.states().map(state).collect();
        let step = Step { graph, batch, slices: None };
        let chosen = self.terms.choose(&[step], &states, &room, own);
        self.shrink_arena(for_arena)?;
        let Choice { plans, .. } = chosen.map_err(|error| match error {
            Error::WouldNotFit(mut refusal) => {
                let WouldNotFit { limit, smallest, unlimited, unavoidable, .. } = &mut *refusal;
                for bytes in [limit, smallest, unlimited, unavoidable] {
                    *bytes = bytes.saturating_sub(own);
                }
                refusal.fixed.others = refusal.fixed.others.saturating_sub(all);
                refusal.states = all;
                Error::WouldNotFit(refusal)
            }
            other => other,
        })?;
        Ok(plans.into_iter().next().expect("a plan for the step"))
    }

    /// Forgets programs that an arena of this size has no room for: they were planned when there was more.
    fn shrink_arena(&mut self, most: Bytes) -> Result<(), Error> {
        let engine = &self.engine;
        let large = |e: &Entry| Bytes(engine.plan(e.id).arena_bytes) > most;
        let gone: Vec<u128> = self.programs.iter().filter(|(_, e)| large(e)).map(|(key, _)| *key).collect();
        gone.into_iter().for_each(|key| self.forget(key));
        Ok(self.engine.fit_arena()?)
    }

    /// What was left of the limit a moment ago.
    fn believed(&self) -> Option<Bytes> {
        self.left.filter(|(at, _)| at.elapsed() < BELIEVED).map(|(_, left)| left)
    }

    /// Forgets programs that were not used for long until there is room for a plan.
    fn make_room_for_plan(&mut self, heap: Bytes) {
        let most = self.terms.budget.limit().map_or(PLANS, |limit| Bytes(limit.0 / PART_OF_LIMIT));
        while self.programs.len() >= PROGRAMS || self.heap + heap > most {
            let Some((&oldest, _)) = self.programs.iter().min_by_key(|(_, e)| e.used) else { break };
            self.forget(oldest);
        }
    }

    /// Forgets a program.
    pub fn forget(&mut self, key: u128) {
        if let Some(entry) = self.programs.remove(&key) {
            self.engine.remove_plan(entry.id);
            self.heap = self.heap.saturating_sub(entry.heap);
        }
    }

    /// Compares what the process holds with what was planned; gives a warning when something else grew.
    ///
    /// # Errors
    /// When it grew up to the limit.
    pub fn watch_memory(&mut self) -> Result<Option<String>, Error> {
        self.terms.watch_memory(0)
    }
}

/// The heap of a plan.
fn heap_of(plan: &Plan) -> Bytes {
    Bytes(HEAP_OF_A_NODE.0 * plan.graph.nodes().len() as u64)
}

fn over(error: plimsoll_budget::OverBudget) -> Error {
    Error::Exec(ExecError::from(ArenaError::from(error)))
}
