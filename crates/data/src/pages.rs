//! Large memory: whole pages of a pipeline's own, counted as such and used again.
//!
//! What is freed to the heap stays with the process, up to megabytes in the part of every thread, and nobody counts it. So large
//! blocks are mapped. Since a new mapping costs a fault for every page, the blocks that a pipeline has done with wait for their
//! next use, reserved as before, and go when memory is needed for something else or the pipeline ends.

use crate::Error;
use plimsoll_budget::{Account, Bytes, Reservation, Spare};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What is smaller is the heap's.
pub(crate) const LARGE: usize = 16 << 10;

pub(crate) const PAGE: usize = 4096;

/// The most blocks of an account that wait.
const MOST: usize = 64;

/// A block of memory, from the beginning of a page on.
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    /// `None` once the block has a new owner.
    held: Option<Reservation>,
}

// SAFETY: the block is memory that its owner alone has access to.
unsafe impl Send for Pages {}
// SAFETY: access goes through `&self` and `&mut self` of the owner.
unsafe impl Sync for Pages {}

/// The blocks of an account that wait, for as long as a pipeline of it is open.
struct Pool {
    account: Account,
    waiting: Mutex<Vec<Pages>>,
}

impl Pool {
    fn waiting(&self) -> MutexGuard<'_, Vec<Pages>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare for Pool {
    fn bytes(&self) -> Bytes {
        self.waiting().iter().map(|pages| Bytes::from(pages.bytes)).sum()
    }

    fn give_back(&self, bytes: Bytes) {
        let mut given = 0;
        while given < bytes.0 {
            let Some(pages) = self.waiting().pop() else { return };
            given += pages.bytes as u64;
            pages.unmap();
        }
    }
}

static POOLS: Mutex<Vec<Weak<Pool>>> = Mutex::new(Vec::new());

fn pools() -> MutexGuard<'static, Vec<Weak<Pool>>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pool of an account, where a pipeline of it is open.
fn pool(account: &Account) -> Option<Arc<Pool>> {
    let open: Vec<Arc<Pool>> = pools().iter().filter_map(Weak::upgrade).collect();
    open.into_iter().find(|pool| pool.account == *account)
}

/// While it is there, blocks of an account wait for their next use.
pub(crate) struct Reuse(#[expect(dead_code, reason = "held, not read")] Arc<Pool>);

impl Reuse {
    pub(crate) fn new(account: &Account) -> Reuse {
        Reuse(pool(account).unwrap_or_else(|| {
            let pool = Arc::new(Pool { account: account.clone(), waiting: Mutex::default() });
            account.budget().lend(&pool);
            let mut pools = pools();
            pools.retain(|known| known.strong_count() > 0);
            pools.push(Arc::downgrade(&pool));
            pool
        }))
    }
}

/// What a pipeline may still take: what is left in the budget, and what is held there only because nobody needed it.
pub(crate) fn left(account: &Account) -> u64 {
    account.budget().available().map_or(u64::MAX, |left| left.0)
}

impl Pages {
    /// At least so many bytes, of unspecified value.
    pub(crate) fn new(account: &Account, bytes: usize) -> Result<Pages, Error> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| refused(account, bytes))?;
        if let Some(pages) = Pages::waiting(account, bytes) {
            return Ok(pages);
        }
        let held = account.reserve(Bytes::from(bytes))?;
        Ok(Pages { start: map(bytes, 0).ok_or_else(|| refused(account, bytes))?, bytes, held: Some(held) })
    }

    /// The smallest block that waits and is not much too large.
    fn waiting(account: &Account, bytes: usize) -> Option<Pages> {
        let pool = pool(account)?;
        let mut waiting = pool.waiting();
        let fits = |(_, pages): &(usize, &Pages)| pages.bytes >= bytes && pages.bytes / 2 <= bytes;
        // Of equals the last that came, which may still be in a cache.
        let (at, _) = waiting.iter().enumerate().rev().filter(fits).min_by_key(|(_, pages)| pages.bytes)?;
        let mut pages = waiting.remove(at);
        drop(waiting);
        // Where there is much, a tail that nobody needs costs less than mapping another block some day.
        if left(account) / 64 < bytes as u64 {
            pages.cut(bytes);
        }
        Some(pages)
    }

    /// Gives all but the first so many bytes back, a whole number of pages.
    fn cut(&mut self, bytes: usize) {
        let Some(held) = self.held.as_mut().filter(|_| bytes < self.bytes) else { return };
        // SAFETY: the end of a mapping that is ours, to which nobody refers.
        unsafe { libc::munmap(self.start.add(bytes).as_ptr().cast(), self.bytes - bytes) };
        held.shrink(Bytes::from(self.bytes - bytes));
        self.bytes = bytes;
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn unmap(mut self) {
        self.give_back();
    }

    fn give_back(&mut self) {
        if self.held.is_some() {
            // SAFETY: the mapping is ours, and nobody refers to it any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
            self.held = None;
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(account) = self.held.as_ref().map(Reservation::account) else { return };
        if let Some(pool) = pool(account) {
            let mut waiting = pool.waiting();
            if waiting.len() < MOST {
                waiting.push(Pages { start: self.start, bytes: self.bytes, held: self.held.take() });
                return;
            }
        }
        self.give_back();
    }
}

/// Maps so many bytes of anonymous memory, with these flags besides.
fn map(bytes: usize, flags: libc::c_int) -> Option<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: an anonymous private mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind | flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

/// Addresses for memory that is taken and given back piece by piece. Who uses a piece has reserved it.
pub(crate) struct Addresses {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: mere addresses; what happens at them is up to who uses them.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

/// The size of the pages in which large memory is found faster.
pub(crate) const HUGE: usize = 2 << 20;

impl Addresses {
    /// So many bytes of addresses, of which pieces of `piece` bytes will be taken; `None` when the system has none.
    pub(crate) fn new(bytes: usize, piece: usize) -> Option<Addresses> {
        let mapped_bytes = bytes.checked_add(HUGE)?.checked_next_multiple_of(PAGE)?;
        let mapped = map(mapped_bytes, libc::MAP_NORESERVE)?;
        let offset = mapped.as_ptr().align_offset(HUGE);
        // SAFETY: at most `HUGE` behind the beginning, and so many more were mapped.
        let start = unsafe { mapped.add(offset) };
        // A huge page is there as a whole, so only pieces that are whole ones may consist of them.
        #[cfg(target_os = "linux")]
        let advice = if piece.is_multiple_of(HUGE) { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: advice on our own mapping. Without it, it is only slower.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(start.as_ptr().cast(), bytes, advice)
        };
        Some(Addresses { mapped, mapped_bytes, start, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has the system give the memory of a piece before somebody writes there. Where it does not, it does so then.
    pub(crate) fn take(&self, piece: std::ops::Range<usize>) {
        debug_assert!(piece.end <= self.bytes);
        // SAFETY: inside the mapping; what is there stays as it is.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(self.start.add(piece.start).as_ptr().cast(), piece.len(), libc::MADV_POPULATE_WRITE)
        };
    }

    /// Gives the memory of a piece back to the system.
    ///
    /// # Safety
    /// The piece begins at a page, and nobody refers to what is in it.
    pub(crate) unsafe fn give_back(&self, piece: std::ops::Range<usize>) {
        debug_assert!(piece.end <= self.bytes);
        // SAFETY: inside the mapping, and nobody's, as the caller says.
        unsafe { libc::madvise(self.start.add(piece.start).as_ptr().cast(), piece.len(), libc::MADV_DONTNEED) };
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its owner goes.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn refused(account: &Account, bytes: usize) -> Error {
    Error::pipeline(account.name(), format!("the system has no memory for {}", Bytes::from(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_budget::Budget;

    #[test]
    fn blocks_wait_while_a_pipeline_is_open() {
        let budget = Budget::new(Bytes::kib(200));
        let account = budget.account("a");
        drop(Pages::new(&account, 64 << 10).unwrap());
        assert_eq!(budget.held(), Bytes::ZERO, "nobody keeps it");
        let reuse = Reuse::new(&account);
        let first = Pages::new(&account, 64 << 10).unwrap();
        let start = first.start();
        drop(first);
        assert_eq!((budget.held(), left(&account)), (Bytes::kib(64), 200 << 10));
        let again = Pages::new(&account, 60_000).unwrap();
        assert_eq!(again.start(), start);
        drop(again);
        // A much smaller one is another block; when memory is short, what waits is given back.
        let small = Pages::new(&account, 8192).unwrap();
        assert_ne!(small.start(), start);
        let large = Pages::new(&budget.account("b"), 180 << 10).unwrap();
        assert_eq!(budget.held(), Bytes::kib(188));
        assert!(Pages::new(&account, 16384).is_err());
        drop(small);
        drop(reuse);
        drop(large);
        assert_eq!(budget.held(), Bytes::ZERO);
    }
}
