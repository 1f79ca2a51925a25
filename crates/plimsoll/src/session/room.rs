//! Room for a session's states: those that the limit has no room for live in a file, and come to memory when a program needs them.
//!
//! A state goes to the file when it is made and memory is short, when a plan wants it there, or when another program would not fit
//! beside it. What a plan has moved stays, so that programs which take turns do not move it to and fro.

use super::Session;
use super::limit::RESERVE;
use crate::error::Error;
use plimsoll_budget::{Bytes, measure};
use plimsoll_exec::{ArenaError, Engine, ExecError, PIECE, SpillError, SpillFile};
use plimsoll_graph::Graph;
use plimsoll_plan::choose::State;
use plimsoll_plan::split::Batch;
use plimsoll_plan::{StateLayout, Step};
use plimsoll_tensor::TensorType;
use std::time::{Duration, Instant};

/// States below this size never go to the file: the way there takes longer than it is worth.
pub(crate) const MOVABLE: usize = 64 << 10;

/// States take memory as long as so many times their size is left.
const KEPT_FREE: u64 = 3;

/// What checksums of a file take, with room for large ones.
const CHECKSUMS: Bytes = Bytes::mib(1);

/// So far below the limit nothing has to be counted exactly.
const FAR: Bytes = Bytes::mib(256);

/// How often the process is looked at, for memory that grew elsewhere: ever less often, up to the second figure, where plans had to be made anew.
const WATCHED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(16));

/// When the process is looked at.
pub(super) struct Watch {
    last: Instant,
    every: Duration,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { last: Instant::now(), every: WATCHED.0 }
    }
}

/// A graph to be planned, and what it works on.
pub(super) struct Work<'a> {
    graph: &'a Graph,
    batch: Option<Batch>,
    bound: &'a [(&'a str, &'a str)],
    /// Where the graph's states are now.
    pub layout: StateLayout,
    /// What the chooser may do with them.
    pub states: Vec<State>,
    /// Bytes of states that are the caller's memory.
    pub lent: Bytes,
    /// Bytes of the session's states that it works on, in memory.
    pub own: Bytes,
}

impl<'a> Work<'a> {
    pub fn new(graph: &'a Graph, batch: Option<Batch>, bound: &'a [(&'a str, &'a str)], engine: &Engine) -> Work<'a> {
        let find = |name: &str| bound.iter().find(|(state, _)| *state == name).map(|(_, name)| *name);
        let is_filed = |name: &str| find(name).is_some_and(|name| engine.is_in_file(name));
        let (mut lent, mut own) = (Bytes::ZERO, Bytes::ZERO);
        let mut states = Vec::new();
        for (value, name) in graph.states() {
            let ty = *graph.ty(value);
            let filed = is_filed(name);
            let counted = if find(name).is_some() { &mut own } else { &mut lent };
            if !filed {
                *counted += Bytes::from(ty.bytes().next_multiple_of(64));
            }
            // What is used least often goes first: slots of optimizers before weights.
            let uses = graph.nodes().filter(|(_, node)| node.inputs.contains(&value)).count() as u32;
            let rank = find(name).filter(|_| ty.bytes() >= MOVABLE).map(|_| uses);
            states.push(State { name: name.to_owned(), ty, rank, filed });
        }
        let layout = StateLayout::with_file(states.iter().map(|s| (s.name.as_str(), s.ty)), is_filed);
        Work { graph, batch, bound, layout, states, lent, own }
    }

    /// What is to be planned.
    pub fn step(&self) -> Step<'_> {
        Step { graph: self.graph, batch: self.batch.clone(), cut: None }
    }

    /// The session's state that one of the graph is bound to.
    pub fn bound_to(&self, state: &str) -> Option<&'a str> {
        self.bound.iter().find(|(name, _)| *name == state).map(|(_, name)| *name)
    }
}

impl Session {
    /// Adds a state of zeros: in memory, or in the file where the limit leaves too little.
    ///
    /// # Errors
    /// When there is no room for it, or such a state exists.
    pub fn add_state(&mut self, name: &str, ty: TensorType) -> Result<(), Error> {
        let bytes = Bytes::from(ty.bytes());
        if self.may_move(&ty) && !self.has_room(bytes) {
            return self.add_filed_state(name, ty);
        }
        self.left = self.left.map(|(at, left)| (at, left.saturating_sub(bytes)));
        match self.engine.add_state(name, ty) {
            Err(ExecError::Arena(ArenaError::Budget(_))) if self.may_move(&ty) => self.add_filed_state(name, ty),
            made => Ok(made?),
        }
    }

    /// The same in the file, for whose own buffers the arena may have to make room.
    fn add_filed_state(&mut self, name: &str, ty: TensorType) -> Result<(), Error> {
        match self.engine.add_filed_state(name, ty) {
            Err(ExecError::Spill(SpillError::Memory(ArenaError::Budget(over)))) if self.make_room(over.asked)? => {
                Ok(self.engine.add_filed_state(name, ty)?)
            }
            made => Ok(made?),
        }
    }

    /// Fills a state as [`Engine::write_state`] does, with room for a piece on its way to the file.
    ///
    /// # Errors
    /// When there is no such state, or it cannot be written.
    pub fn write_state(&mut self, name: &str, mut fill: impl FnMut(&mut [u8])) -> Result<(), Error> {
        if let Some(ty) = self.engine.state_type(name).filter(|_| self.engine.is_in_file(name)) {
            self.make_room(Bytes::from(ty.bytes().min(PIECE)))?;
        }
        Ok(self.engine.write_state(name, |piece| {
            fill(piece);
            Ok::<(), ExecError>(())
        })?)
    }

    /// Brings states to memory that are in the file for want of room, if there is room now and no plan wants them there.
    pub(super) fn bring_back(&mut self, bound: &[(&str, &str)]) -> Result<(), Error> {
        if !self.engine.has_filed_states() {
            return Ok(());
        }
        for (_, name) in bound {
            let Some(ty) = self.engine.state_type(name).filter(|_| self.engine.is_in_file(name)) else { continue };
            if !self.moved.contains(*name) && self.has_room(Bytes::from(ty.bytes())) {
                self.left = None;
                self.engine.move_to_memory(name)?;
            }
        }
        Ok(())
    }

    /// Whether a state can be in memory, and as much is left besides, for the file's buffers too.
    fn has_room(&self, bytes: Bytes) -> bool {
        let Some(limit) = self.terms.budget.limit() else { return true };
        let wanted = Bytes(bytes.0 * KEPT_FREE) + SpillFile::FIXED_MEMORY + CHECKSUMS;
        let held = self.terms.budget.held();
        // Looking at every mapping takes a while: only where the answer is near.
        let resident = measure::usage().map_or(Bytes::ZERO, |usage| usage.resident);
        if resident.max(held) + wanted + FAR <= limit {
            return true;
        }
        // Programs count whole, as they will when the next step is planned.
        let counted = measure::footprint().map_or(resident, |footprint| footprint.total());
        counted.max(held) + wanted <= limit
    }

    /// Makes room for memory of the caller's, until so many more bytes of the budget are free; gives back whether they are.
    ///
    /// The arena shrinks first, by no more than is needed. It is as large as the largest program's, so the programs that are larger than what remains of
    /// it go, whenever they were last used; they are planned anew with what is left then. Then go the plans of others, those first that were not
    /// used for longest, and then states move to the file, the largest first.
    ///
    /// # Errors
    /// When the file has no room.
    pub fn make_room(&mut self, bytes: Bytes) -> Result<bool, Error> {
        let missing =
            |session: &Session| session.terms.budget.left().map_or(Bytes::ZERO, |left| bytes.saturating_sub(left));
        let is_free = |session: &Session| missing(session) == Bytes::ZERO;
        if is_free(self) {
            return Ok(true);
        }
        self.left = None;
        self.shrink_arena(self.engine.arena_bytes().saturating_sub(missing(self)))?;
        while !is_free(self) && self.forget_oldest()? {}
        let mut states: Vec<(String, Bytes)> = self.movable().collect();
        states.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for (name, _) in states {
            if is_free(self) {
                break;
            }
            match self.move_to_file([name]) {
                // Not even the file's own buffers have room.
                Err(Error::Exec(ExecError::Spill(SpillError::Memory(_)))) => return Ok(false),
                moved => moved?,
            }
        }
        Ok(is_free(self))
    }

    /// What counts besides a program, its own states and its arena: all other states, and the file's buffers.
    pub(super) fn fixed_besides(&self, work: &Work<'_>) -> Bytes {
        let engine = &self.engine;
        let buffers = engine.bytes().saturating_sub(engine.states_bytes() + engine.arena_bytes());
        engine.states_bytes().saturating_sub(work.own) + buffers
    }

    /// Moves states to the file.
    pub(super) fn move_to_file(&mut self, names: impl IntoIterator<Item = String>) -> Result<(), Error> {
        Ok(names.into_iter().try_for_each(|name| self.engine.move_to_file(&name))?)
    }

    /// Moves all states to the file that a program does not work on; gives back whether there were any.
    pub(super) fn move_others_to_file(&mut self, work: &Work<'_>) -> Result<bool, Error> {
        let others: Vec<String> =
            self.movable().map(|(name, _)| name).filter(|n| work.bound.iter().all(|(_, bound)| bound != n)).collect();
        let any = !others.is_empty();
        self.move_to_file(others)?;
        Ok(any)
    }

    /// The states in memory that may go to the file.
    fn movable(&self) -> impl Iterator<Item = (String, Bytes)> {
        let states = self.engine.stored_states().filter(|(_, ty)| self.may_move(ty));
        states.map(|(name, ty)| (name.to_owned(), Bytes::from(ty.bytes()))).collect::<Vec<_>>().into_iter()
    }

    fn may_move(&self, ty: &TensorType) -> bool {
        self.terms.techniques.spill && ty.bytes() >= MOVABLE
    }

    /// Looks at the process from time to time: all programs are planned anew when something else in it took so much memory that the limit would be
    /// passed.
    pub(super) fn watch(&mut self) -> Result<(), Error> {
        if self.watch.last.elapsed() < self.watch.every {
            return Ok(());
        }
        self.watch.last = Instant::now();
        let Some(limit) = self.terms.budget.limit() else { return Ok(()) };
        let Ok(usage) = measure::usage() else { return Ok(()) };
        let measured = usage.anonymous + self.terms.files();
        if measured > self.terms.budget.held() + RESERVE && measured + RESERVE > limit {
            self.watch.every = (self.watch.every * 2).min(WATCHED.1);
            self.clear()?;
        }
        Ok(())
    }
}
