//! Programs that come and go: graphs compiled while others are there already, in one arena, over states that come and go too.

use super::limit::HEAP_OF_A_NODE;
use super::room::{Watch, Work};
use super::{Besides, Kept, Room, Terms, WouldNotFit};
use crate::error::Error;
use plimsoll_budget::{Bytes, Reservation};
use plimsoll_exec::{ArenaError, Engine, ExecError, ProgramId, Settings};
use plimsoll_graph::Graph;
use plimsoll_plan::split::Batch;
use plimsoll_plan::{Choice, Options, Plan, Reserve, StateLayout, plan};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

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
/// make room for others, and are compiled again when they are asked for. All share one arena, as large as the largest needs. A program's states are
/// bound to the session's when it runs ([`Engine::bind`]). Where the limit has no room for them, states move to a file (`room.rs`).
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
/// let program = session.prepare(1, &g, None, &[("w", "weights")])?;
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
    pub(super) terms: Terms,
    pub(super) engine: Engine,
    programs: HashMap<u128, Entry>,
    /// The heap of plans that were made since the process was last measured: of those before, the measurement knows.
    plans: Reservation,
    /// The heap of all plans.
    heap: Bytes,
    clock: u64,
    /// What was left of the limit when it was last measured, and when that was.
    pub(super) left: Option<(Instant, Bytes)>,
    /// When to look for memory that grew elsewhere.
    pub(super) watch: Watch,
    /// States in the file for which a plan was made there: they stay.
    pub(super) moved: HashSet<String>,
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
        if let (false, Ok(limits)) = (terms.shared_budget, terms.limits()) {
            terms.budget.set_limit(limits.limit);
        }
        let plans = terms.budget.account("plans").reserve(Bytes::ZERO).map_err(over)?;
        Ok(Session {
            terms,
            engine,
            programs: HashMap::new(),
            plans,
            heap: Bytes::ZERO,
            clock: 0,
            left: None,
            watch: Watch::default(),
            moved: HashSet::new(),
        })
    }

    /// What programs are planned under.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What programs are planned under, to be changed: all programs are planned anew when they are asked for. The budget has the new limit from now on.
    ///
    /// # Errors
    /// When the limit cannot be understood (the terms are then as before), or the spill file cannot move to where it may be now.
    pub fn set_terms(&mut self, change: impl FnOnce(&mut Terms)) -> Result<(), Error> {
        self.clear()?;
        self.moved.clear();
        let before = (self.terms.limit.clone(), self.terms.techniques);
        change(&mut self.terms);
        match self.terms.limits() {
            Ok(limits) if !self.terms.shared_budget => self.terms.budget.set_limit(limits.limit),
            Ok(_) => (),
            Err(error) => {
                (self.terms.limit, self.terms.techniques) = before;
                return Err(error);
            }
        }
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

    /// Removes a state.
    pub fn remove_state(&mut self, name: &str) {
        self.engine.remove_state(name);
        self.moved.remove(name);
    }

    /// How many programs are ready to run.
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// A program that is ready to run on these states of the session.
    ///
    /// From time to time the process is looked at: when something else in it took so much memory that the limit would be passed, all
    /// programs are planned anew.
    ///
    /// # Errors
    /// When the system does not give back memory.
    pub fn find<'a>(
        &mut self,
        key: u128,
        states: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<ProgramId>, Error> {
        self.watch()?;
        self.clock += 1;
        let key = self.key_on(key, states);
        let Some(entry) = self.programs.get_mut(&key) else { return Ok(None) };
        entry.used = self.clock;
        Ok(Some(entry.id))
    }

    /// What is done so that a program keeps the limit.
    pub fn kept(&self, program: ProgramId) -> Kept {
        Kept::of(self.engine.plan(program))
    }

    /// The program of this key, planned within the limit if it is not ready; `batch` says which inputs may be cut into slices, and `bound` which
    /// states of the session its states will be bound to.
    ///
    /// The session's states may move to the file, and stay there. The others are in memory of the caller's, and count there.
    ///
    /// # Errors
    /// When the limit cannot be kept ([`Error::WouldNotFit`]). What was ready is so still, or will be planned anew.
    pub fn prepare(
        &mut self,
        key: u128,
        graph: &Graph,
        batch: Option<Batch>,
        bound: &[(&str, &str)],
    ) -> Result<ProgramId, Error> {
        if let Some(id) = self.find(key, bound.iter().map(|(_, name)| *name))? {
            return Ok(id);
        }
        self.bring_back(bound)?;
        let plan = self.plan(graph, batch, bound)?;
        // Where the plan wants them, for as long as it may run.
        let filed = bound.iter().map(|(_, name)| *name).filter(|name| self.engine.is_in_file(name));
        self.moved.extend(filed.map(str::to_owned));
        let heap = heap_of(&plan);
        self.make_room_for_plan(heap);
        let id = self.engine.add_plan(plan)?;
        self.heap += heap;
        let key = self.key_on(key, bound.iter().map(|(_, name)| *name));
        self.programs.insert(key, Entry { id, used: self.clock, heap });
        Ok(id)
    }

    /// The smallest limit for which a plan of this graph is found, as things are now.
    ///
    /// # Errors
    /// When the graph is broken.
    pub fn smallest(
        &mut self,
        graph: &Graph,
        batch: Option<Batch>,
        bound: &[(&str, &str)],
    ) -> Result<Option<Bytes>, Error> {
        let work = Work::new(graph, batch, bound, &self.engine);
        let taken = self.terms.taken();
        let room = self.terms.room(std::slice::from_ref(graph), Some(&self.engine), Besides::default());
        self.terms.put_back(taken);
        let mut room = room?;
        room.fixed.others += self.fixed_besides(&work);
        room.limit = Some(work.lent);
        match self.terms.choice(&[work.step()], &work.states, &room) {
            Err(Error::WouldNotFit(refusal)) => Ok(Some(refusal.smallest.saturating_sub(work.lent))),
            Err(other) => Err(other),
            Ok(_) => Ok(None),
        }
    }

    /// The key of a program on these states: it differs by which of them are in the file.
    fn key_on<'a>(&self, key: u128, states: impl IntoIterator<Item = &'a str>) -> u128 {
        if !self.engine.has_filed_states() {
            return key;
        }
        let mut hash = Xxh3::with_seed(key as u64);
        for name in states {
            hash.update(&[self.engine.is_in_file(name) as u8]);
        }
        key ^ hash.digest128()
    }

    /// The plan of a graph, in an arena that the limit has room for.
    fn plan(&mut self, graph: &Graph, batch: Option<Batch>, bound: &[(&str, &str)]) -> Result<Plan, Error> {
        let work = Work::new(graph, batch, bound, &self.engine);
        let options = Options { threads: self.terms.threads, ..Options::default() };
        let plain = plan(graph, &work.layout, &options)?;
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
        // The planner sees the program's states; the other states, and memory of the caller's, count besides.
        room.fixed.others += self.fixed_besides(&work);
        room.limit = Some(limit + work.lent);
        let own = Bytes(work.layout.bytes());
        let for_arena = room.fixed.space_within(limit + work.lent).saturating_sub(own);
        self.left = Some((Instant::now(), for_arena.saturating_sub(Bytes(plain.arena_bytes))));
        if Bytes(plain.arena_bytes) + heap_of(&plain) <= for_arena {
            let choice = Choice { layout: work.layout, plans: vec![plain], reserve: Reserve::default() };
            self.terms.take(&room, &choice, own + self.engine.arena_bytes())?;
            self.shrink_arena(for_arena)?;
            return Ok(choice.plans.into_iter().next().expect("the one above"));
        }
        drop(plain);
        // The arena goes before the search, which needs memory of its own; the programs are still there.
        self.engine.release_arena()?;
        let chosen = self.choose(&work, room, limit);
        let most = chosen.as_ref().map_or(Bytes::ZERO, |plan| Bytes(plan.arena_bytes));
        self.shrink_arena(for_arena.max(most))?;
        chosen
    }

    /// A plan that keeps the limit. States that it wants in the file move there; if that is not enough, all others do.
    fn choose(&mut self, work: &Work<'_>, mut room: Room, limit: Bytes) -> Result<Plan, Error> {
        let mut chosen = self.terms.choice_or_remedies(&[work.step()], &work.states, &room);
        if matches!(chosen, Err(Error::WouldNotFit(_))) {
            let before = self.fixed_besides(work);
            if self.move_others_to_file(work)? {
                let after = self.fixed_besides(work);
                room.fixed.others = room.fixed.others.saturating_sub(before) + after;
                chosen = self.terms.choice_or_remedies(&[work.step()], &work.states, &room);
            }
        }
        let choice = chosen.map_err(|error| match error {
            Error::WouldNotFit(mut refusal) => {
                let WouldNotFit { smallest, unlimited, unavoidable, .. } = &mut *refusal;
                for bytes in [smallest, unlimited, unavoidable] {
                    *bytes = bytes.saturating_sub(work.lent);
                }
                refusal.limit = limit;
                refusal.fixed.others = refusal.fixed.others.saturating_sub(self.fixed_besides(work));
                refusal.states = self.engine.states_bytes() + self.engine.filed_bytes();
                Error::WouldNotFit(refusal)
            }
            other => other,
        })?;
        let goes: Vec<String> = choice
            .layout
            .iter_file()
            .filter_map(|(name, ..)| work.bound_to(name))
            .filter(|name| !self.engine.is_in_file(name))
            .map(str::to_owned)
            .collect();
        self.move_to_file(goes)?;
        self.terms.take(&room, &choice, Bytes(choice.layout.bytes()))?;
        Ok(choice.plans.into_iter().next().expect("a plan for the step"))
    }

    /// Forgets programs that an arena of this size has no room for: they were planned when there was more.
    pub(super) fn shrink_arena(&mut self, most: Bytes) -> Result<(), Error> {
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
            let Some(oldest) = self.oldest() else { break };
            self.forget(oldest);
        }
    }

    /// Forgets the program that was not used for longest, and gives back the room of its plan; whether there was one.
    pub(super) fn forget_oldest(&mut self) -> Result<bool, Error> {
        let Some(oldest) = self.oldest() else { return Ok(false) };
        self.forget(oldest);
        self.engine.fit_arena()?;
        let held = self.plans.bytes().min(self.heap);
        self.plans.resize(held).map_err(over)?;
        Ok(true)
    }

    fn oldest(&self) -> Option<u128> {
        self.programs.iter().min_by_key(|(_, e)| e.used).map(|(key, _)| *key)
    }

    /// Forgets a program.
    pub fn forget(&mut self, key: u128) {
        if let Some(entry) = self.programs.remove(&key) {
            self.engine.remove_plan(entry.id);
            self.heap = self.heap.saturating_sub(entry.heap);
        }
    }
}

/// The heap of a plan.
fn heap_of(plan: &Plan) -> Bytes {
    Bytes(HEAP_OF_A_NODE.0 * plan.graph.nodes().len() as u64)
}

fn over(error: plimsoll_budget::OverBudget) -> Error {
    Error::Exec(ExecError::from(ArenaError::from(error)))
}
