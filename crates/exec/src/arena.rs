//! The arena: one mapping, touched before step 1.

use plimsoll_budget::{Bytes, OverBudget, Reservation};

/// Memory for everything a step needs, in one piece.
pub struct Arena {
    ptr: *mut u8,
    bytes: usize,
    _reservation: Reservation,
}

/// Why there is no arena.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The budget says no.
    #[error(transparent)]
    Budget(#[from] OverBudget),
    /// The system says no.
    #[error("the system does not give {bytes} for the arena: {cause}")]
    System {
        /// What was asked for.
        bytes: Bytes,
        /// What it said.
        cause: std::io::Error,
    },
}

// SAFETY: the arena owns its mapping; access goes through `&self`/`&mut self` of its owner.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps as many bytes as are reserved and touches every page. Pages are large where the system has large ones: the
    /// rows of a matrix are often further apart than a small page, and looking up pages then costs a few per cent of a
    /// matrix product.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(reservation: Reservation) -> Result<Arena, ArenaError> {
        let bytes = reservation.bytes().to_usize();
        if bytes == 0 {
            return Ok(Arena { ptr: std::ptr::dangling_mut::<[u64; 8]>().cast(), bytes, _reservation: reservation });
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(ArenaError::System { bytes: reservation.bytes(), cause: std::io::Error::last_os_error() });
        }
        let arena = Arena { ptr: ptr.cast(), bytes, _reservation: reservation };
        arena.touch();
        Ok(arena)
    }

    /// Makes every page resident.
    fn touch(&self) {
        #[cfg(target_os = "linux")]
        {
            // A wish, which a kernel without large pages refuses. Large pages lie inside the mapping: it does not grow.
            // SAFETY: advice about a mapping of ours; it changes no contents.
            let _ = unsafe { libc::madvise(self.ptr.cast(), self.bytes, libc::MADV_HUGEPAGE) };
            // SAFETY: as above.
            if unsafe { libc::madvise(self.ptr.cast(), self.bytes, libc::MADV_POPULATE_WRITE) } == 0 {
                return;
            }
        }
        for at in (0..self.bytes).step_by(4096) {
            // SAFETY: inside the mapping, which nobody else knows yet.
            unsafe { self.ptr.add(at).write_volatile(0) };
        }
    }

    /// The first byte; aligned to a page.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping, if there is one, is ours and nobody refers to it any more.
        let _ = self.bytes > 0 && unsafe { libc::munmap(self.ptr.cast(), self.bytes) } == 0;
    }
}
