//! Blocks of a file that stay in memory while nobody else needs it.
//!
//! Rows in random order are one request each, and a request costs more than the row. So blocks are read whole when some of their
//! rows are wanted, as long as the budget has room for them, and their rows are copied from memory from then on. Not all at once: the
//! first rows of a shuffle lie in as many blocks, and nobody should wait for these. The
//! blocks are lent to the budget: whoever needs the room gets it, and what was asked back once is not taken
//! again, so that blocks do not come and go. Rows whose blocks are not here are read as if there were none.
//!
//! On some hosts new memory is dear: a virtual machine may get every page from its host only when it is first touched, at ten times the cost of reading the
//! file. There few blocks are taken, since nobody knows how often their rows will be wanted again.

use crate::Error;
use crate::pages::{Addresses, HUGE};
use plimsoll_budget::{Account, Bytes, Reservation, Spare};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The blocks of one component's rows, which are taken as one stretch of bytes: row after row, file after file.
pub(crate) struct Blocks {
    addresses: Addresses,
    /// The bytes of a block, as a power of two.
    shift: u32,
    states: Vec<AtomicU8>,
    /// Who copies rows holds it shared; who gives blocks back, alone.
    gate: RwLock<()>,
    held: Mutex<Reservation>,
    /// What must stay free when a block is taken.
    margin: AtomicU64,
    /// Whether there was no room for a block in this pass.
    full: AtomicBool,
    /// How many of the last blocks were dear, all in a row.
    dear: AtomicU8,
}

/// Not here; being read by somebody; here; cannot be read as a whole.
const ABSENT: u8 = 0;
const COMING: u8 = 1;
const HERE: u8 = 2;
const BROKEN: u8 = 3;

/// The blocks where the limit is small.
const SMALL: usize = 256 << 10;

/// A block is dear when its memory takes so many times longer to come than what is read into it. Measured in a virtual machine: 0.26 ms for 2 MiB that the
/// host had given before, 5.6 ms for others, and 0.3 ms to read as much from the page cache.
const DEAR: u32 = 8;

/// After so many dear blocks in a row the pass does without more.
const MOST_DEAR: u8 = 3;

impl Blocks {
    /// Room for blocks of the first of so many bytes, as many as the limit could hold; `None` where that is nothing, or no limit says
    /// how much may be kept.
    pub(crate) fn new(bytes: u64, account: &Account) -> Option<Arc<Blocks>> {
        let limit = account.budget().limit()?;
        let block = if limit.0 >= 32 * HUGE as u64 { HUGE } else { SMALL };
        // The last block may be shorter, but takes as much memory.
        let n = bytes.div_ceil(block as u64).min(limit.0 / block as u64);
        let n = usize::try_from(n).ok().filter(|n| *n > 0)?;
        let blocks = Arc::new(Blocks {
            addresses: Addresses::new(n * block, block)?,
            shift: block.trailing_zeros(),
            states: (0..n).map(|_| AtomicU8::new(ABSENT)).collect(),
            gate: RwLock::new(()),
            held: Mutex::new(account.account("blocks").reserve(Bytes::ZERO).ok()?),
            // What buffers need comes sooner or later; with some room they need not ask.
            margin: AtomicU64::new(limit.0 / 8),
            full: AtomicBool::new(false),
            dear: AtomicU8::new(0),
        });
        account.budget().lend(&blocks);
        Some(blocks)
    }

    /// Whether the blocks are counted in the budget of an account.
    pub(crate) fn belong_to(&self, account: &Account) -> bool {
        self.held().account().is_beside(account)
    }

    /// A pass begins: there may be room again.
    pub(crate) fn begin(&self) {
        self.full.store(false, Ordering::Relaxed);
    }

    /// Whether all of the first `bytes` bytes are here.
    pub(crate) fn has_all(&self, bytes: u64) -> bool {
        self.held().bytes().0 >= bytes && self.addresses.bytes() as u64 >= bytes
    }

    fn held(&self) -> MutexGuard<'_, Reservation> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads blocks of these rows of `size` bytes that are not here, as far as there is room, and no more than `most` bytes of
    /// them (one at least); `read` fills memory from an offset on.
    pub(crate) fn fetch(
        &self,
        at: &[u64],
        size: usize,
        end: u64,
        most: usize,
        read: impl Fn(u64, &mut [u8]) -> Result<(), Error>,
    ) {
        let mut left = (most >> self.shift).max(1);
        for row in at {
            let start = row * size as u64;
            for block in self.blocks(start, size) {
                if self.full.load(Ordering::Relaxed) || left == 0 {
                    return;
                }
                if self.states.get(block).is_some_and(|s| s.load(Ordering::Relaxed) == ABSENT) {
                    self.fetch_block(block, end, &read);
                    left -= 1;
                }
            }
        }
    }

    fn blocks(&self, start: u64, size: usize) -> std::ops::RangeInclusive<usize> {
        (start >> self.shift) as usize..=((start + size as u64 - 1) >> self.shift) as usize
    }

    fn fetch_block(&self, block: usize, end: u64, read: &impl Fn(u64, &mut [u8]) -> Result<(), Error>) {
        let state = &self.states[block];
        if state.compare_exchange(ABSENT, COMING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let bytes = 1usize << self.shift;
        let margin = Bytes(self.margin.load(Ordering::Relaxed));
        if !self.held().grow_leaving(Bytes::from(bytes), margin) {
            self.full.store(true, Ordering::Relaxed);
            state.store(ABSENT, Ordering::Release);
            return;
        }
        let start = block << self.shift;
        let len = bytes.min((end - start as u64) as usize);
        let begin = Instant::now();
        self.addresses.take(start..start + bytes);
        let taken = begin.elapsed();
        // SAFETY: inside the addresses; while the block is coming nobody but us reads, writes or gives it back, and
        // memory from the system is initialised.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.addresses.start().add(start).as_ptr(), len) };
        match read(start as u64, memory) {
            Ok(()) => {
                state.store(HERE, Ordering::Release);
                self.weigh(taken, begin.elapsed() - taken);
            }
            // Those of its rows that can be read are read one by one; the error is that of the row which cannot.
            Err(_) => {
                self.drop_block(block, BROKEN);
                self.held().shrink(Bytes::from(bytes));
            }
        }
    }

    /// Looks at how long a block's memory took to come, and how long reading into it. The next pass tries again with one block, since memory that the
    /// host has given may have become free. Small blocks are never many.
    fn weigh(&self, taken: Duration, read: Duration) {
        if 1 << self.shift < HUGE || taken < read * DEAR {
            self.dear.store(0, Ordering::Relaxed);
        } else if self.dear.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= MOST_DEAR {
            self.dear.store(MOST_DEAR, Ordering::Relaxed);
            self.full.store(true, Ordering::Relaxed);
        }
    }

    /// Gives the memory of a block back that nobody reads.
    fn drop_block(&self, block: usize, state: u8) {
        // SAFETY: blocks are whole pages, and nobody refers to this one: it is coming and ours, or the gate is.
        unsafe { self.addresses.give_back(block << self.shift..(block + 1) << self.shift) };
        self.states[block].store(state, Ordering::Release);
    }

    fn is_here(&self, start: u64, size: usize) -> bool {
        let here = |block: usize| self.states.get(block).is_some_and(|s| s.load(Ordering::Acquire) == HERE);
        self.blocks(start, size).all(here)
    }

    /// Copies the rows that are here to their places in `out` and gives the others to `missing`, with their places.
    ///
    /// `missing` must not reserve memory.
    pub(crate) fn copy(&self, at: &[u64], size: usize, out: &mut [u8], mut missing: impl FnMut(u64, usize)) {
        let _shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let start = self.addresses.start().as_ptr();
        for (place, (row, to)) in at.iter().zip(out.chunks_exact_mut(size)).enumerate() {
            if let Some(ahead) = at.get(place + super::arrays::AHEAD) {
                super::arrays::fetch(start.wrapping_add(*ahead as usize * size), size);
            }
            let from = row * size as u64;
            match self.is_here(from, size) {
                // SAFETY: the row's blocks are here, and nobody gives them back while we hold the gate.
                true => to.copy_from_slice(unsafe {
                    std::slice::from_raw_parts(start.add(from as usize).cast_const(), size)
                }),
                false => missing(*row, place),
            }
        }
    }
}

impl Spare for Blocks {
    fn bytes(&self) -> Bytes {
        self.held().bytes()
    }

    fn give_back(&self, bytes: Bytes) {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut given = Bytes::ZERO;
        for (block, state) in self.states.iter().enumerate().rev() {
            if given >= bytes {
                break;
            }
            if state.load(Ordering::Acquire) == HERE {
                self.drop_block(block, ABSENT);
                given += Bytes(1 << self.shift);
            }
        }
        let mut held = self.held();
        held.shrink(given);
        let left = held.account().budget().left().unwrap_or(Bytes::MAX);
        drop(held);
        // Whoever needed it may give it back and need it again, at once or with others together.
        self.margin.fetch_add(given.0, Ordering::Relaxed);
        self.margin.fetch_max(left.0, Ordering::Relaxed);
        self.full.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_budget::Budget;
    use std::cell::Cell;

    /// What a file of bytes counted up would give.
    fn content(offset: u64, memory: &mut [u8]) {
        memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = (((offset + i as u64) * 7) >> 3) as u8);
    }

    /// Looks rows up and says which were missing; the others are checked.
    #[track_caller]
    fn missing(blocks: &Blocks, at: &[u64], size: usize) -> Vec<u64> {
        let (mut out, mut expected) = (vec![0; at.len() * size], vec![0; size]);
        let mut missing = Vec::new();
        blocks.copy(at, size, &mut out, |row, place| {
            assert_eq!(at[place], row);
            missing.push(row);
        });
        for (row, found) in at.iter().zip(out.chunks(size)) {
            content(row * size as u64, &mut expected);
            assert!(missing.contains(row) || found == expected, "row {row}");
        }
        missing
    }

    #[test]
    fn blocks_are_read_once_and_given_back_when_asked_for() {
        // Eight blocks of 256 KiB, of which an eighth stays free; rows straddle them.
        let budget = Budget::new(Bytes::mib(2));
        let account = budget.account("pipeline");
        let (size, rows) = (1000, 1 << 10);
        let end = size as u64 * rows;
        let blocks = Blocks::new(end, &account).unwrap();
        let reads = Cell::new(0);
        let read = |offset: u64, memory: &mut [u8]| {
            reads.set(reads.get() + 1);
            content(offset, memory);
            Ok(())
        };
        let all: Vec<u64> = (0..rows).rev().collect();
        assert_eq!(missing(&blocks, &all, size).len(), rows as usize);
        // Not all at once: one at least, and as many as was said.
        blocks.fetch(&all, size, end, 0, read);
        assert_eq!((reads.get(), missing(&blocks, &all, size).len()), (1, 787));
        blocks.fetch(&all, size, end, 512 << 10, read);
        assert_eq!(reads.get(), 3);
        for _ in 0..2 {
            blocks.fetch(&all, size, end, usize::MAX, read);
            assert_eq!((reads.get(), missing(&blocks, &all, size)), (4, vec![]));
        }
        assert!(blocks.has_all(end));
        assert_eq!(budget.account("pipeline/blocks").held(), Bytes::mib(1));

        // Others come first, and what they took stays theirs even when they are gone.
        let arena = budget.account("arena").reserve(Bytes::kib(1400)).unwrap();
        assert_eq!(budget.spare(), Bytes::kib(512));
        let left_out = missing(&blocks, &all, size);
        assert!(left_out.iter().all(|row| *row >= 524) && left_out.len() == 1024 - 524, "{left_out:?}");
        drop(arena);
        blocks.begin();
        blocks.fetch(&all, size, end, usize::MAX, read);
        let arena = budget.account("arena").reserve(Bytes::kib(1400)).unwrap();
        assert_eq!((reads.get(), budget.spare()), (4, Bytes::kib(512)));
        drop(arena);
        let more = budget.account("arena").reserve(Bytes::kib(1600)).unwrap();
        drop(more);
        blocks.begin();
        blocks.fetch(&all, size, end, usize::MAX, read);
        assert_eq!((reads.get(), budget.spare()), (4, Bytes::kib(256)));
        drop(blocks);
        assert_eq!(budget.held(), Bytes::ZERO);
    }

    #[test]
    fn a_block_that_cannot_be_read_is_nobodys() {
        let budget = Budget::new(Bytes::mib(2));
        let blocks = Blocks::new(1 << 20, &budget.account("pipeline")).unwrap();
        let read = |offset: u64, memory: &mut [u8]| match offset {
            0 => Err(Error::pipeline("test", "broken")),
            _ => {
                content(offset, memory);
                Ok(())
            }
        };
        blocks.fetch(&[0, 1, 2], 256 << 10, 1 << 20, usize::MAX, read);
        assert_eq!(missing(&blocks, &[0, 1, 2, 3], 256 << 10), [0, 3]);
        assert_eq!(budget.held(), Bytes::kib(512));
    }

    #[test]
    fn where_memory_is_dear_few_blocks_are_taken() {
        let budget = Budget::new(Bytes::mib(64));
        let blocks = Blocks::new(64 << 20, &budget.account("pipeline")).unwrap();
        let (slow, quick) = (Duration::from_millis(8), Duration::from_millis(1));
        let is_full = || blocks.full.load(Ordering::Relaxed);
        // One that is not dear shows that the others were chance.
        [slow, slow, quick, slow, slow].iter().for_each(|taken| blocks.weigh(*taken, quick));
        assert!(!is_full());
        blocks.weigh(slow, quick);
        assert!(is_full());
        // One in each pass tells whether that is still so.
        blocks.begin();
        assert!(!is_full());
        blocks.weigh(slow, quick);
        assert!(is_full());
        blocks.begin();
        blocks.weigh(quick, quick);
        blocks.weigh(slow, quick);
        assert!(!is_full());
    }

    #[test]
    fn without_a_limit_nothing_is_kept() {
        assert!(Blocks::new(1 << 20, &Budget::unlimited().account("pipeline")).is_none());
        assert!(Blocks::new(1 << 20, &Budget::new(Bytes::kib(100)).account("pipeline")).is_none());
    }

    #[test]
    fn rows_are_whole_while_blocks_come_and_go() {
        let budget = Budget::new(Bytes::mib(2));
        let (size, rows) = (1000, 1 << 10);
        let end = size as u64 * rows;
        let blocks = Blocks::new(end, &budget.account("pipeline")).unwrap();
        let n_here = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (blocks, n_here) = (&blocks, &n_here);
                scope.spawn(move || {
                    for round in 0..200u64 {
                        let at: Vec<u64> = (0..64).map(|i| (i * 37 + round * 101 + thread * 511) % rows).collect();
                        blocks.begin();
                        blocks.fetch(&at, size, end, usize::MAX, |offset, memory| {
                            content(offset, memory);
                            Ok(())
                        });
                        n_here.fetch_add(64 - missing(blocks, &at, size).len() as u64, Ordering::Relaxed);
                    }
                });
            }
            let (arena, blocks) = (budget.account("arena"), &blocks);
            scope.spawn(move || {
                for round in 0..200u64 {
                    drop(arena.reserve(Bytes::kib(1200 + round % 800)));
                    // As if each were the first who asks.
                    blocks.margin.store(0, Ordering::Relaxed);
                }
            });
        });
        assert!(n_here.into_inner() > 0);
        assert!(budget.peak() <= Bytes::mib(2));
        assert_eq!(budget.held(), blocks.held().bytes());
    }
}
