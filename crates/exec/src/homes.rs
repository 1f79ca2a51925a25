//! Where things are in the spill file: states, each with a home of its own, and a place for values that do not outlive a run.
//!
//! A plan has slots of its own, states first. When it runs they are looked up here, so that one plan serves different states, and
//! states can come and go without any plan being made anew.

use crate::engine::{ExecError, wrong_type};
use plimsoll_plan::{FILE_ALIGNMENT, StateLayout};
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::ops::Range;

/// The places in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    states: BTreeMap<String, (u64, TensorType)>,
    passing: Range<u64>,
}

impl Homes {
    /// The homes that a layout gives, with the other values behind them.
    pub fn of(layout: &StateLayout) -> Homes {
        let states = layout.iter_file().map(|(name, slot, ty)| (name.to_owned(), (slot, ty))).collect();
        Homes { states, passing: layout.file_bytes()..layout.file_bytes() }
    }

    /// Slot and type of a state that lives in the file.
    pub fn get(&self, name: &str) -> Option<(u64, TensorType)> {
        self.states.get(name).copied()
    }

    /// Whether no state lives in the file.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The bytes of all states in the file.
    pub fn bytes(&self) -> u64 {
        self.states.values().map(|(_, ty)| ty.bytes() as u64).sum()
    }

    /// A home for one more state: the first place that is large enough.
    pub fn add(&mut self, name: &str, ty: TensorType) -> u64 {
        let slot = self.gap(rounded(ty.bytes() as u64));
        self.states.insert(name.to_owned(), (slot, ty));
        slot
    }

    /// A state leaves the file.
    pub fn remove(&mut self, name: &str) {
        self.states.remove(name);
    }

    /// Where values are that do not outlive a run.
    pub fn passing(&self) -> &Range<u64> {
        &self.passing
    }

    /// Makes so much room for them: where they are, or elsewhere.
    pub fn fit_passing(&mut self, bytes: u64) {
        let bytes = rounded(bytes);
        let at = self.passing.start;
        let follows = self.states.values().any(|(slot, _)| *slot >= at);
        if bytes <= self.passing.end - at && follows {
            return;
        }
        self.passing = at..at;
        // The last in the file grows and shrinks where it is.
        let at = if follows { self.gap(bytes) } else { at };
        self.passing = at..at + bytes;
    }

    /// The size of the file.
    pub fn end(&self) -> u64 {
        self.taken().last().map_or(0, |range| range.end)
    }

    /// All states: slot and bytes.
    pub fn slots(&self) -> Vec<(u64, u64)> {
        self.states.values().map(|(slot, ty)| (*slot, ty.bytes() as u64)).collect()
    }

    /// What is taken, in order.
    fn taken(&self) -> Vec<Range<u64>> {
        let states = self.states.values().map(|(slot, ty)| *slot..*slot + rounded(ty.bytes() as u64));
        let mut taken: Vec<Range<u64>> = states.chain([self.passing.clone()]).filter(|r| !r.is_empty()).collect();
        taken.sort_by_key(|range| range.start);
        taken
    }

    /// Where so many bytes are free.
    fn gap(&self, bytes: u64) -> u64 {
        let mut at = 0;
        for range in self.taken() {
            if range.start - at >= bytes {
                break;
            }
            at = range.end;
        }
        at
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(FILE_ALIGNMENT)
}

/// A state that a plan wants in the file.
pub(crate) struct FileUse {
    pub name: String,
    /// Its slot in the plan.
    pub at: u64,
    ty: TensorType,
    /// Where it is; `None` while it is bound to nothing.
    pub to: Option<u64>,
    bound: Option<String>,
}

impl FileUse {
    /// The states that a plan wants in the file, by slot; those of the same name that are there are bound.
    pub fn of(layout: &StateLayout, homes: &Homes) -> Vec<FileUse> {
        let used = |(name, at, ty): (&str, u64, TensorType)| {
            let to = homes.get(name).filter(|(_, found)| *found == ty).map(|(slot, _)| slot);
            FileUse { name: name.to_owned(), at, ty, to, bound: to.map(|_| name.to_owned()) }
        };
        let mut all: Vec<FileUse> = layout.iter_file().map(used).collect();
        all.sort_by_key(|f| f.at);
        all
    }

    /// Binds it to a state in the file.
    pub fn bind(&mut self, name: &str, (slot, ty): (u64, TensorType)) -> Result<(), ExecError> {
        if ty != self.ty {
            return Err(wrong_type("state", &self.name, self.ty, ty));
        }
        if self.to != Some(slot) || self.bound.as_deref() != Some(name) {
            (self.to, self.bound) = (Some(slot), Some(name.to_owned()));
        }
        Ok(())
    }

    /// Forgets where it is if it was bound to this state.
    pub fn unbind(&mut self, name: &str) {
        if self.bound.as_deref() == Some(name) {
            (self.to, self.bound) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tensor::DType;

    fn floats(n: usize) -> TensorType {
        TensorType::new(DType::F32, [n])
    }

    #[test]
    fn nothing_overlaps_while_states_come_and_go() {
        let mut homes = Homes::default();
        let mut random = 7u64;
        let mut next = |n: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % n
        };
        for i in 0..500 {
            match next(4) {
                0 => homes.remove(&next(i + 1).to_string()),
                1 => {
                    let bytes = next(100_000);
                    homes.fit_passing(bytes);
                    assert!(homes.passing().end - homes.passing().start >= bytes);
                }
                _ => {
                    let before = homes.states.clone();
                    homes.add(&i.to_string(), floats(next(20_000) as usize + 1));
                    assert!(before.iter().all(|(name, home)| homes.get(name) == Some(*home)), "the others stay");
                }
            }
            let taken = homes.taken();
            assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start), "{taken:?}");
        }
        assert!(homes.end() < 4 * homes.bytes() + 400_000, "places are used again");
    }
}
