//! States, read and set from outside: those in memory and those whose home is the file, all alike.
//!
//! A state may be larger than the memory that is left, so that [`Engine::read_state`] and [`Engine::write_state`] give and
//! take it in pieces; whole copies are for small ones.

use crate::arena::Arena;
use crate::engine::{Engine, ExecError, copy_in, copy_out, is_finite, map_arena, missing, slice_mut, wrong_type};
use crate::homes::Homes;
use crate::spill::{PIECE, SpillFile};
use plimsoll_budget::Bytes;
use plimsoll_graph::Operand;
use plimsoll_plan::StateLayout;
use plimsoll_tensor::{Element, Tensor, TensorType};

/// Where a state is.
enum Home {
    Memory(Operand),
    File { slot: u64, ty: TensorType },
}

impl Engine {
    /// Adds a state that is not in the layout: zeros in memory, at an address that stays.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory, or there is such a state.
    pub fn add_state(&mut self, name: &str, ty: TensorType) -> Result<(), ExecError> {
        if self.state_type(name).is_some() {
            let message = "exists already".into();
            return Err(ExecError::Value { what: "state", name: name.to_owned(), message });
        }
        self.store.add_one(name, ty)
    }

    /// Adds a state that is not in the layout: zeros in the file.
    ///
    /// # Errors
    /// When there is no room for the file, or there is such a state.
    pub fn add_filed_state(&mut self, name: &str, ty: TensorType) -> Result<(), ExecError> {
        if self.state_type(name).is_some() {
            let message = "exists already".into();
            return Err(ExecError::Value { what: "state", name: name.to_owned(), message });
        }
        let slot = self.add_home(name, ty)?;
        if ty.bytes() > 0 {
            self.spill.as_mut().expect("made for the home above").clear(slot, ty.bytes() as u64)?;
        }
        Ok(())
    }

    /// Moves a state that is not in the layout from memory to the file. Programs that it was bound to must be bound again, and want it there.
    ///
    /// # Errors
    /// When there is no such state in memory, or no room for the file; it is then where it was.
    pub fn move_to_file(&mut self, name: &str) -> Result<(), ExecError> {
        let operand = self.store.get(name).filter(|_| self.state.get(name).is_none());
        let operand = operand.ok_or_else(|| missing("state", name))?;
        let slot = self.add_home(name, operand.ty)?;
        // SAFETY: valid memory of a state; writing needs `&mut self`.
        let bytes = unsafe { std::slice::from_raw_parts(operand.ptr, operand.ty.bytes()) };
        if let Err(error) = self.file().store(slot, bytes) {
            self.homes.remove(name);
            return Err(error.into());
        }
        self.unbind(name);
        self.store.remove(name);
        Ok(())
    }

    /// Moves a state that is not in the layout from the file to memory. Programs that it was bound to must be bound again, and want it there.
    ///
    /// # Errors
    /// When there is no such state in the file, or the budget or the system does not give the memory; it is then where it was.
    pub fn move_to_memory(&mut self, name: &str) -> Result<(), ExecError> {
        let home = self.homes.get(name).filter(|_| self.state.in_file(name).is_none());
        let (slot, ty) = home.ok_or_else(|| missing("state", name))?;
        self.store.add_one(name, ty)?;
        let to = self.store.get(name).expect("added above");
        // SAFETY: a state's memory, which nobody else uses.
        let to = unsafe { std::slice::from_raw_parts_mut(to.ptr, ty.bytes()) };
        if let Err(error) = self.file().fetch(slot, to) {
            self.store.remove(name);
            return Err(error.into());
        }
        self.unbind(name);
        self.homes.remove(name);
        Ok(())
    }

    /// Whether a state lives in the file.
    pub fn is_in_file(&self, name: &str) -> bool {
        self.homes.get(name).is_some()
    }

    /// The states in memory that are not in the layout.
    pub fn stored_states(&self) -> impl Iterator<Item = (&str, TensorType)> {
        self.store.iter().filter(|(name, _)| self.state.get(name).is_none())
    }

    /// Whether any state lives in the file.
    pub fn has_filed_states(&self) -> bool {
        !self.homes.is_empty()
    }

    /// The bytes of all states in the file.
    pub fn filed_bytes(&self) -> Bytes {
        Bytes(self.homes.bytes())
    }

    /// A home in the file, which grows if it must.
    fn add_home(&mut self, name: &str, ty: TensorType) -> Result<u64, ExecError> {
        let slot = self.homes.add(name, ty);
        if let Err(error) = self.fit_file(&[]) {
            self.homes.remove(name);
            return Err(error);
        }
        Ok(slot)
    }

    /// Removes a state that is not in the layout. Programs that it was bound to must be bound to another before they run.
    pub fn remove_state(&mut self, name: &str) {
        if self.state.get(name).is_none() && self.state.in_file(name).is_none() {
            self.unbind(name);
            self.store.remove(name);
            self.homes.remove(name);
        }
    }

    /// Changes to another layout of the states: those that both have keep their values, and those in memory their addresses,
    /// or they move between memory and the file; new ones are zero. The plans go.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory, or there is no room for the file. States that were on their way
    /// between memory and file are then still where they were.
    pub fn set_state_layout(&mut self, layout: &StateLayout) -> Result<(), ExecError> {
        self.programs.clear();
        self.scratch = map_arena(&self.budget, "arena", 0)?;
        let old = self.state.clone();
        let stays = old.iter_file().eq(layout.iter_file());
        let file = match layout.file_bytes() {
            bytes if stays || bytes == 0 => None,
            bytes => {
                let slots: Vec<(u64, u64)> =
                    layout.iter_file().map(|(_, slot, ty)| (slot, ty.bytes() as u64)).collect();
                Some(self.new_file(layout, bytes, &slots)?)
            }
        };
        if let Some(file) = &file {
            for (name, slot, ty) in layout.iter_file().filter(|(name, _, ty)| self.state_type(name) == Some(*ty)) {
                let mut at = slot;
                self.read_state(name, |piece| {
                    file.store(at, piece)?;
                    at += piece.len() as u64;
                    Ok::<(), ExecError>(())
                })?;
                debug_assert_eq!(at, slot + ty.bytes() as u64);
            }
        }
        // What went to the file, and what is not wanted any more, makes room for what comes.
        let kept = |name: &str, ty: TensorType| layout.get(name).is_some_and(|(_, wanted)| wanted == ty);
        for (name, ..) in old.iter().filter(|(name, _, ty)| !kept(name, *ty)) {
            self.store.remove(name);
        }
        let comes: Vec<(&str, TensorType)> =
            layout.iter().filter(|(name, ..)| self.store.get(name).is_none()).map(|(name, _, ty)| (name, ty)).collect();
        self.store.add(comes.iter().copied())?;
        for (name, ty) in comes {
            if let Some((slot, _)) = old.in_file(name).filter(|(_, from)| *from == ty) {
                let to = self.store.get(name).expect("added above");
                // SAFETY: a state's memory, which nobody else uses.
                let to = unsafe { std::slice::from_raw_parts_mut(to.ptr, ty.bytes()) };
                self.file().fetch(slot, to)?;
            }
        }
        if !stays {
            self.spill = file;
        }
        self.homes = Homes::of(layout);
        self.state = layout.clone();
        Ok(())
    }

    /// A copy of a state.
    ///
    /// # Errors
    /// When there is no such state, or it cannot be read from the file.
    pub fn state(&self, name: &str) -> Result<Tensor, ExecError> {
        match self.find_state(name)? {
            Home::Memory(operand) => Ok(copy_out(operand)),
            Home::File { slot, ty } => {
                let mut tensor = Tensor::zeros(ty.dtype, ty.shape);
                self.file().fetch(slot, tensor.bytes_mut())?;
                Ok(tensor)
            }
        }
    }

    /// Copies a tensor into a state.
    ///
    /// # Errors
    /// When there is no such state, the tensor has another type, or it cannot be written to the file.
    pub fn set_state(&mut self, name: &str, tensor: &Tensor) -> Result<(), ExecError> {
        match self.find_state(name)? {
            Home::Memory(operand) => copy_in("state", name, tensor, operand),
            Home::File { ty, .. } if ty != *tensor.ty() => Err(wrong_type("state", name, ty, tensor.ty())),
            Home::File { slot, .. } => Ok(self.file().store(slot, tensor.bytes())?),
        }
    }

    /// Gives the bytes of a state, a piece of at most [`PIECE`] after another, in order. Every piece but the last has
    /// [`PIECE`] bytes.
    ///
    /// # Errors
    /// When there is no such state, it cannot be read from the file, or `each` fails.
    pub fn read_state<E: From<ExecError>>(
        &self,
        name: &str,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.find_state(name)? {
            Home::Memory(operand) => {
                // SAFETY: valid memory of the arena; writing needs `&mut self`.
                let bytes = unsafe { std::slice::from_raw_parts(operand.ptr, operand.ty.bytes()) };
                bytes.chunks(PIECE).try_for_each(each)
            }
            Home::File { slot, ty } => {
                let staging = self.staging(&ty)?;
                for (at, n) in pieces(&ty) {
                    // SAFETY: a mapping of this function alone.
                    let piece = unsafe { std::slice::from_raw_parts_mut(staging.ptr(), n) };
                    self.file().fetch(slot + at, piece).map_err(ExecError::from)?;
                    each(piece)?;
                }
                Ok(())
            }
        }
    }

    /// Fills a state: `fill` writes every byte of a piece of at most [`PIECE`], one after another, in order. Every piece but
    /// the last has [`PIECE`] bytes. They must be valid for the state's type (0 or 1 for `bool`).
    ///
    /// # Errors
    /// When there is no such state, it cannot be written to the file, or `fill` fails. What was filled before stays.
    pub fn write_state<E: From<ExecError>>(
        &mut self,
        name: &str,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.find_state(name)? {
            Home::Memory(operand) => {
                // SAFETY: valid memory of the arena, exclusive through `&mut self`.
                let bytes = unsafe { std::slice::from_raw_parts_mut(operand.ptr, operand.ty.bytes()) };
                bytes.chunks_mut(PIECE).try_for_each(fill)
            }
            Home::File { slot, ty } => {
                let staging = self.staging(&ty)?;
                for (at, n) in pieces(&ty) {
                    // SAFETY: a mapping of this function alone.
                    let piece = unsafe { std::slice::from_raw_parts_mut(staging.ptr(), n) };
                    fill(piece)?;
                    self.file().store(slot + at, piece).map_err(ExecError::from)?;
                }
                Ok(())
            }
        }
    }

    /// The memory of a state that is in memory.
    ///
    /// # Errors
    /// When there is no such state, it has another type, or its home is the file.
    pub fn state_mut<T: Element>(&mut self, name: &str) -> Result<&mut [T], ExecError> {
        let operand = self.find_in_memory(name)?;
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        unsafe { slice_mut("state", name, operand) }
    }

    /// The memory of a state that is in memory, to be read.
    ///
    /// # Errors
    /// When there is no such state, it has another type, or its home is the file.
    pub fn state_slice<T: Element>(&self, name: &str) -> Result<&[T], ExecError> {
        let operand = self.find_in_memory(name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        unsafe { slice_mut("state", name, operand).map(|s| &*s) }
    }

    /// The type of a state, if there is one of this name.
    pub fn state_type(&self, name: &str) -> Option<TensorType> {
        let in_memory = self.store.get(name).map(|operand| operand.ty);
        in_memory.or(self.homes.get(name).map(|(_, ty)| ty))
    }

    /// A state with a value that is not finite.
    pub(crate) fn state_that_is_not_finite(&self) -> Result<Option<String>, ExecError> {
        let in_memory = self.state.iter().map(|(name, _, ty)| (name, ty));
        let in_file = self.state.iter_file().map(|(name, _, ty)| (name, ty));
        for (name, ty) in in_memory.chain(in_file) {
            let mut fine = true;
            self.read_state(name, |piece| {
                let shape = [piece.len() / ty.dtype.size()];
                let operand = Operand { ptr: piece.as_ptr().cast_mut(), ty: TensorType::new(ty.dtype, shape) };
                fine &= is_finite(&operand);
                Ok::<(), ExecError>(())
            })?;
            if !fine {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    fn find_state(&self, name: &str) -> Result<Home, ExecError> {
        if let Some((slot, ty)) = self.homes.get(name) {
            return Ok(Home::File { slot, ty });
        }
        self.store.get(name).map(Home::Memory).ok_or_else(|| missing("state", name))
    }

    fn find_in_memory(&self, name: &str) -> Result<Operand, ExecError> {
        match self.find_state(name)? {
            Home::Memory(operand) => Ok(operand),
            Home::File { .. } => {
                let message = "is in the spill file: read and write it in pieces".into();
                Err(ExecError::Value { what: "state", name: name.to_owned(), message })
            }
        }
    }

    fn file(&self) -> &SpillFile {
        self.spill.as_ref().expect("states in the file have one")
    }

    /// Memory for a piece of a state on its way between the file and a caller.
    fn staging(&self, ty: &TensorType) -> Result<Arena, ExecError> {
        map_arena(&self.budget, "spill", ty.bytes().min(PIECE) as u64)
    }
}

/// Where the pieces of a value begin, and their sizes.
fn pieces(ty: &TensorType) -> impl Iterator<Item = (u64, usize)> {
    let n = ty.bytes();
    (0..n).step_by(PIECE).map(move |at| (at as u64, PIECE.min(n - at)))
}
