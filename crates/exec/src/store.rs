//! The store: states in memory, each at an address of its own that stays while it lives.
//!
//! States come and go one by one without the others being moved. They lie in chunks: mappings made for the states that came together.
//! Pages of a chunk that no state needs any more go back to the system and out of the budget, until another state takes them; a chunk
//! without states goes.

use crate::arena::Arena;
use crate::engine::{ExecError, map_arena};
use plimsoll_budget::Budget;
use plimsoll_graph::Operand;
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where states begin: what kernels ask for.
const ALIGNMENT: usize = 64;

/// A chunk for a single small state has room for more.
const CHUNK: usize = 64 << 10;

const PAGE: usize = 4096;

/// States in memory, by name.
pub(crate) struct Store {
    budget: Budget,
    chunks: Vec<Option<Chunk>>,
    places: BTreeMap<String, Stored>,
}

#[derive(Clone, Copy)]
struct Stored {
    chunk: usize,
    at: usize,
    ty: TensorType,
}

struct Chunk {
    arena: Arena,
    size: usize,
    /// What is taken: where it begins and where it ends, rounded up.
    taken: BTreeMap<usize, usize>,
}

impl Store {
    pub fn new(budget: &Budget) -> Store {
        Store { budget: budget.clone(), chunks: Vec::new(), places: BTreeMap::new() }
    }

    /// The bytes that are taken from the budget.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().flatten().map(|c| c.arena.held()).sum()
    }

    /// All states, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, TensorType)> {
        self.places.iter().map(|(name, place)| (name.as_str(), place.ty))
    }

    /// A state's memory.
    pub fn get(&self, name: &str) -> Option<Operand> {
        let place = self.places.get(name)?;
        if place.ty.bytes() == 0 {
            return Some(Operand { ptr: std::ptr::dangling_mut::<[u64; 8]>().cast(), ty: place.ty });
        }
        let chunk = self.chunks[place.chunk].as_ref().expect("a chunk with states is there");
        // SAFETY: inside the chunk.
        Some(Operand { ptr: unsafe { chunk.arena.ptr().add(place.at) }, ty: place.ty })
    }

    /// Adds states that come together, all zero; none when there is no memory for all.
    pub fn add<'a>(&mut self, states: impl IntoIterator<Item = (&'a str, TensorType)>) -> Result<(), ExecError> {
        self.add_with(states, 0)
    }

    /// Adds a state of zeros that others may follow: small ones share a chunk.
    pub fn add_one(&mut self, name: &str, ty: TensorType) -> Result<(), ExecError> {
        self.add_with([(name, ty)], CHUNK)
    }

    fn add_with<'a>(
        &mut self,
        states: impl IntoIterator<Item = (&'a str, TensorType)>,
        least: usize,
    ) -> Result<(), ExecError> {
        let states: Vec<(&str, TensorType)> = states.into_iter().collect();
        for (name, ty) in states.iter().filter(|(_, ty)| ty.bytes() == 0) {
            self.places.insert((*name).to_owned(), Stored { chunk: 0, at: 0, ty: *ty });
        }
        let states: Vec<(&str, TensorType)> = states.into_iter().filter(|(_, ty)| ty.bytes() > 0).collect();
        for (done, (name, ty)) in states.iter().enumerate() {
            let found = match self.reuse(ty) {
                Ok(found) => found,
                Err(error) => {
                    states[..done].iter().for_each(|(name, _)| self.remove(name));
                    return Err(error);
                }
            };
            if let Some((chunk, at)) = found {
                self.places.insert((*name).to_owned(), Stored { chunk, at, ty: *ty });
                continue;
            }
            // The rest lie side by side in a chunk of their own.
            let rest = &states[done..];
            let bytes: usize = rest.iter().map(|(_, ty)| rounded(ty)).sum();
            if let Err(error) = self.add_chunk(rest, bytes.max(least)) {
                states[..done].iter().for_each(|(name, _)| self.remove(name));
                return Err(error);
            }
            break;
        }
        Ok(())
    }

    fn add_chunk(&mut self, states: &[(&str, TensorType)], size: usize) -> Result<(), ExecError> {
        let mut chunk = Chunk { arena: map_arena(&self.budget, "state", size as u64)?, size, taken: BTreeMap::new() };
        let index = self.chunks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() - 1
        });
        let mut at = 0;
        for (name, ty) in states {
            chunk.taken.insert(at, at + rounded(ty));
            self.places.insert((*name).to_owned(), Stored { chunk: index, at, ty: *ty });
            at += rounded(ty);
        }
        chunk.arena.release(inner(at..size));
        self.chunks[index] = Some(chunk);
        Ok(())
    }

    /// A place for a state in a chunk that has room.
    fn reuse(&mut self, ty: &TensorType) -> Result<Option<(usize, usize)>, ExecError> {
        let bytes = rounded(ty);
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            let Some(chunk) = chunk else { continue };
            let Some(gap) = chunk.gaps().find(|gap| gap.len() >= bytes) else { continue };
            let (at, rest) = (gap.start, gap.start + bytes..gap.end);
            // Of the gap's pages those that the state touches come back.
            let (all, left) = (inner(gap), inner(rest));
            let end = if left.is_empty() { all.end } else { left.start };
            chunk.arena.restore(all.start..end.max(all.start)).map_err(ExecError::from)?;
            chunk.taken.insert(at, at + bytes);
            // SAFETY: inside the chunk, and nobody's.
            unsafe { std::ptr::write_bytes(chunk.arena.ptr().add(at), 0, bytes) };
            return Ok(Some((index, at)));
        }
        Ok(None)
    }

    /// Removes a state; its memory goes back, but for pages that it shares with others.
    pub fn remove(&mut self, name: &str) {
        let Some(place) = self.places.remove(name).filter(|p| p.ty.bytes() > 0) else { return };
        let chunk = self.chunks[place.chunk].as_mut().expect("a chunk with states is there");
        let end = chunk.taken.remove(&place.at).expect("what is stored is taken");
        if chunk.taken.is_empty() {
            self.chunks[place.chunk] = None;
            return;
        }
        let before = chunk.taken.range(..place.at).next_back().map_or(0, |(_, end)| *end);
        let after = chunk.taken.range(end..).next().map_or(chunk.size, |(start, _)| *start);
        let (all, left, right) = (inner(before..after), inner(before..place.at), inner(end..after));
        let start = if left.is_empty() { all.start } else { left.end };
        let stop = if right.is_empty() { all.end } else { right.start };
        chunk.arena.release(start..stop.max(start));
    }
}

impl Chunk {
    /// Where there is room.
    fn gaps(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = [0].into_iter().chain(self.taken.values().copied());
        let ends = self.taken.keys().copied().chain([self.size]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty())
    }
}

fn rounded(ty: &TensorType) -> usize {
    ty.bytes().next_multiple_of(ALIGNMENT)
}

/// The whole pages inside a range.
fn inner(range: Range<usize>) -> Range<usize> {
    let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tensor::DType;

    fn floats(n: usize) -> TensorType {
        TensorType::new(DType::F32, [n])
    }

    fn fill(store: &Store, name: &str, byte: u8) {
        let place = store.get(name).unwrap();
        // SAFETY: a state's memory.
        unsafe { std::ptr::write_bytes(place.ptr, byte, place.ty.bytes()) };
    }

    fn holds(store: &Store, name: &str, byte: u8) -> bool {
        let place = store.get(name).unwrap();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(place.ptr, place.ty.bytes()) }.iter().all(|b| *b == byte)
    }

    #[test]
    fn states_stay_where_they_are_while_others_come_and_go() {
        let budget = Budget::unlimited();
        let mut store = Store::new(&budget);
        let mut random = 12345u64;
        let mut next = |n: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % n
        };
        let mut alive: Vec<(String, u8, *mut u8)> = Vec::new();
        for i in 0..2000u64 {
            if alive.len() > 20 || next(3) == 0 && !alive.is_empty() {
                let (name, byte, ptr) = alive.swap_remove(next(alive.len() as u64) as usize);
                assert!(holds(&store, &name, byte));
                assert_eq!(store.get(&name).unwrap().ptr, ptr);
                store.remove(&name);
                assert!(store.get(&name).is_none());
            } else {
                let mut names: Vec<(String, TensorType)> = Vec::new();
                for k in 0..1 + next(3) {
                    let most = if next(4) == 0 { 40_000 } else { 300 };
                    names.push((format!("{i}.{k}"), floats(next(most) as usize)));
                }
                store.add(names.iter().map(|(n, t)| (n.as_str(), *t))).unwrap();
                for (name, _) in names {
                    assert!(holds(&store, &name, 0), "new states are zero");
                    fill(&store, &name, i as u8);
                    let ptr = store.get(&name).unwrap().ptr;
                    alive.push((name, i as u8, ptr));
                }
            }
            assert_eq!(store.bytes() as u64, budget.held().0);
        }
        alive.iter().for_each(|(name, byte, _)| assert!(holds(&store, name, *byte)));
        alive.iter().for_each(|(name, ..)| store.remove(name));
        assert_eq!(budget.held().0, 0);
    }

    #[test]
    fn pages_of_states_that_went_are_given_back() {
        let budget = Budget::unlimited();
        let mut store = Store::new(&budget);
        let ty = floats(1 << 18);
        store.add([("a", ty), ("b", ty), ("c", ty)]).unwrap();
        assert_eq!(budget.held().0, 3 << 20);
        store.remove("b");
        assert_eq!(budget.held().0, 2 << 20);
        // What comes next takes the room.
        store.add([("d", floats(1 << 17))]).unwrap();
        assert_eq!(budget.held().0, (2 << 20) + (1 << 19));
        assert!(holds(&store, "d", 0));
        store.remove("a");
        store.remove("c");
        assert_eq!(budget.held().0, 1 << 19);
    }

    #[test]
    fn all_or_none() {
        let budget = Budget::new(plimsoll_budget::Bytes::mib(1));
        let mut store = Store::new(&budget);
        store.add_one("a", floats(100)).unwrap();
        let held = budget.held();
        assert!(store.add([("b", floats(10)), ("c", floats(1 << 20))]).is_err());
        assert!(store.get("b").is_none() && store.get("a").is_some());
        assert_eq!(budget.held(), held);
    }
}
