//! Large memory: whole pages of a pipeline's own, counted as such and used again.
//!
//! What is freed to the heap stays with the process, up to megabytes in the part of every thread, and nobody counts it. So large
//! blocks are mapped. Since a new mapping costs a fault for every page, the blocks that a pipeline has done with wait for their
//! next use, reserved as before, and go when memory is needed for something else or the pipeline ends.

use crate::Error;
use plimsoll_budget::{Account, Bytes, Reservation};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is smaller is the heap's.
pub(crate) const LARGE: usize = 16 << 10;

const PAGE: usize = 4096;

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

/// The blocks of an account that wait, and how many pipelines of it are open.
struct Pool {
    account: Account,
    open: usize,
    waiting: Vec<Pages>,
}

static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());

fn pools() -> MutexGuard<'static, Vec<Pool>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it is there, blocks of an account wait for their next use.
pub(crate) struct Reuse(Account);

impl Reuse {
    pub(crate) fn new(account: &Account) -> Reuse {
        let mut pools = pools();
        match pools.iter_mut().find(|pool| pool.account == *account) {
            Some(pool) => pool.open += 1,
            None => pools.push(Pool { account: account.clone(), open: 1, waiting: Vec::new() }),
        }
        Reuse(account.clone())
    }
}

impl Drop for Reuse {
    fn drop(&mut self) {
        let mut pools = pools();
        let Some(at) = pools.iter().position(|pool| pool.account == self.0) else { return };
        pools[at].open -= 1;
        if pools[at].open == 0 {
            let pool = pools.swap_remove(at);
            drop(pools);
            pool.waiting.into_iter().for_each(Pages::unmap);
        }
    }
}

/// What an account may still take: what is left in the budget, and what waits.
pub(crate) fn left(account: &Account) -> u64 {
    let Some(left) = account.budget().left() else { return u64::MAX };
    let waiting = |pool: &Pool| pool.waiting.iter().map(|pages| pages.bytes as u64).sum::<u64>();
    left.0 + pools().iter().find(|pool| pool.account == *account).map_or(0, waiting)
}

/// Gives back what waits in the budget of an account.
pub(crate) fn release(account: &Account) {
    let mut all = Vec::new();
    pools().iter_mut().filter(|p| p.account.is_beside(account)).for_each(|pool| all.append(&mut pool.waiting));
    all.into_iter().for_each(Pages::unmap);
}

impl Pages {
    /// At least so many bytes, of unspecified value.
    pub(crate) fn new(account: &Account, bytes: usize) -> Result<Pages, Error> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(|| refused(account, bytes))?;
        if let Some(pages) = Pages::waiting(account, bytes) {
            return Ok(pages);
        }
        let held = account.reserve(Bytes::from(bytes)).or_else(|_| {
            release(account);
            account.reserve(Bytes::from(bytes))
        })?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        let start = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        Ok(Pages { start: start.ok_or_else(|| refused(account, bytes))?, bytes, held: Some(held) })
    }

    /// The smallest block that waits and is not much too large.
    fn waiting(account: &Account, bytes: usize) -> Option<Pages> {
        let mut pools = pools();
        let waiting = &mut pools.iter_mut().find(|pool| pool.account == *account)?.waiting;
        let fits = |(_, pages): &(usize, &Pages)| pages.bytes >= bytes && pages.bytes / 2 <= bytes;
        let (at, _) = waiting.iter().enumerate().filter(fits).min_by_key(|(_, pages)| pages.bytes)?;
        Some(waiting.swap_remove(at))
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
        let mut pools = pools();
        if let Some(pool) = pools.iter_mut().find(|p| p.account == *account && p.waiting.len() < MOST) {
            pool.waiting.push(Pages { start: self.start, bytes: self.bytes, held: self.held.take() });
            return;
        }
        drop(pools);
        self.give_back();
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
