//! The arena: one mapping, touched before step 1.

use plimsoll_budget::{Bytes, OverBudget, Reservation};
use std::ops::Range;

const PAGE: usize = 4096;

/// Memory for everything a step needs, in one piece.
pub struct Arena {
    ptr: *mut u8,
    bytes: usize,
    reservation: Reservation,
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
            return Ok(Arena { ptr: std::ptr::dangling_mut::<[u64; 8]>().cast(), bytes, reservation });
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(ArenaError::System { bytes: reservation.bytes(), cause: std::io::Error::last_os_error() });
        }
        let arena = Arena { ptr: ptr.cast(), bytes, reservation };
        arena.touch(0..bytes);
        Ok(arena)
    }

    /// Makes pages resident.
    fn touch(&self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        // SAFETY: inside the mapping.
        let first = unsafe { self.ptr.add(range.start) };
        #[cfg(target_os = "linux")]
        {
            // A wish, which a kernel without large pages refuses. Large pages lie inside the mapping: it does not grow.
            // SAFETY: advice about a mapping of ours; it changes no contents.
            let _ = unsafe { libc::madvise(first.cast(), range.len(), libc::MADV_HUGEPAGE) };
            // SAFETY: as above.
            if unsafe { libc::madvise(first.cast(), range.len(), libc::MADV_POPULATE_WRITE) } == 0 {
                return;
            }
        }
        for at in (0..range.len()).step_by(PAGE) {
            // SAFETY: inside the mapping; nobody needs what these pages hold.
            unsafe { first.add(at).write_volatile(0) };
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

    /// The bytes taken from the budget: the size, less what was released.
    pub(crate) fn held(&self) -> usize {
        self.reservation.bytes().to_usize()
    }

    /// Gives all pages back to the system, but not to the budget; what they held is gone. They come back with [`Arena::occupy`].
    pub(crate) fn vacate(&mut self) {
        // SAFETY: pages of this mapping, which nobody needs any more.
        let _ = self.bytes > 0 && unsafe { libc::madvise(self.ptr.cast(), self.bytes, libc::MADV_DONTNEED) } == 0;
    }

    /// Touches every page again.
    pub(crate) fn occupy(&mut self) {
        self.touch(0..self.bytes);
    }

    /// Gives whole pages back to the system and to the budget; what they held is gone.
    pub(crate) fn release(&mut self, pages: Range<usize>) {
        if pages.is_empty() {
            return;
        }
        debug_assert!(pages.start.is_multiple_of(PAGE) && pages.end.is_multiple_of(PAGE) && pages.end <= self.bytes);
        // SAFETY: pages of this mapping, which nobody needs any more.
        unsafe { libc::madvise(self.ptr.add(pages.start).cast(), pages.len(), libc::MADV_DONTNEED) };
        self.reservation.shrink(Bytes::from(pages.len()));
    }

    /// Takes released pages again.
    ///
    /// # Errors
    /// When the budget says no.
    pub(crate) fn restore(&mut self, pages: Range<usize>) -> Result<(), ArenaError> {
        self.reservation.grow(Bytes::from(pages.len()))?;
        self.touch(pages);
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping, if there is one, is ours and nobody refers to it any more.
        let _ = self.bytes > 0 && unsafe { libc::munmap(self.ptr.cast(), self.bytes) } == 0;
    }
}
