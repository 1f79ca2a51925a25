//! The file for what memory has no room for, as plans see it. How it is read and written is in `spill.rs`.

use super::program::Program;
use super::{Engine, ExecError, reserve};
use crate::spill::{PIECE, SpillError, SpillFile};
use plimsoll_budget::Bytes;
use plimsoll_graph::op::spill::{Spill, Transfer};
use plimsoll_plan::{Plan, StateLayout};
use std::path::PathBuf;

impl Engine {
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
}

/// The file as a program sees it: slots of its plan, which lie elsewhere.
pub(super) struct Moved<'a> {
    pub(super) file: &'a SpillFile,
    pub(super) program: &'a Program,
    /// Where values lie that do not outlive a run.
    pub(super) passing: u64,
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
