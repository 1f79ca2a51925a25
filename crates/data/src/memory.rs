//! Growing memory that is counted: every byte is reserved before it is allocated.

use crate::Error;
use plimsoll_budget::{Account, Bytes, Reservation};
use plimsoll_tensor::Element;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A growing list whose capacity is reserved from an account.
pub(crate) struct Counted<T> {
    items: Vec<T>,
    held: Reservation,
}

impl<T: Clone> Counted<T> {
    pub(crate) fn new(account: &Account) -> Result<Counted<T>, Error> {
        Ok(Counted { items: Vec::new(), held: account.reserve(Bytes::ZERO)? })
    }

    /// At most `n` items.
    pub(crate) fn collect(
        account: &Account,
        n: usize,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Counted<T>, Error> {
        let mut list = Counted::new(account)?;
        list.reserve(n)?;
        list.items.extend(items.into_iter().take(n));
        Ok(list)
    }

    /// Room for `more` items, exactly so when the list was empty, else at least doubling while the budget allows it.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let needed = self.items.len().saturating_add(more);
        if needed <= self.items.capacity() {
            return Ok(());
        }
        let account = self.held.account().clone();
        let reserve = |capacity: usize| {
            account.reserve(Bytes::from(capacity.saturating_mul(size_of::<T>()))).map(|held| (capacity, held))
        };
        // While the list moves, the old and the new place exist side by side, so both stay reserved.
        let (capacity, held) = reserve(needed.max(self.items.len().saturating_mul(2))).or_else(|_| reserve(needed))?;
        let mut items = Vec::new();
        items.try_reserve_exact(capacity).map_err(|_| self.refused(capacity))?;
        items.extend_from_slice(&self.items);
        self.items = items;
        self.held = held;
        Ok(())
    }

    pub(crate) fn push(&mut self, item: T) -> Result<(), Error> {
        self.reserve(1)?;
        self.items.push(item);
        Ok(())
    }

    /// Appends `n` copies of `item` and gives access to them.
    pub(crate) fn grow(&mut self, n: usize, item: T) -> Result<&mut [T], Error> {
        self.reserve(n)?;
        let old = self.items.len();
        self.items.resize(old + n, item);
        Ok(&mut self.items[old..])
    }

    pub(crate) fn truncate(&mut self, n: usize) {
        self.items.truncate(n);
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }

    fn refused(&self, capacity: usize) -> Error {
        let message = format!("the system has no memory for {}", Bytes::from(capacity * size_of::<T>()));
        Error::pipeline(self.held.account().name(), message)
    }
}

impl<T> std::ops::Deref for Counted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> std::ops::DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

/// Where columns get their memory: an account, and stretches that were used before and are kept for the next block.
///
/// The pages of a fresh stretch are faulted in and cleared one by one, which costs as much as filling them: with stretches used
/// again rows of 4000 bytes come from memory twice as fast. What is kept stays reserved, and is given back when it is in the way.
#[derive(Clone)]
pub(crate) struct Heap {
    account: Account,
    kept: Arc<Kept>,
}

type Kept = Mutex<Vec<Counted<u64>>>;

impl Heap {
    /// Smaller stretches the allocator hands out again without the kernel.
    const SMALLEST: usize = 64 << 10;

    /// The most stretches kept: as many as are in flight between a few threads.
    const MOST: usize = 16;

    pub(crate) fn new(account: &Account) -> Heap {
        Heap { account: account.clone(), kept: Arc::default() }
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    pub(crate) fn memory(&self) -> Result<Memory, Error> {
        Ok(Memory { words: Counted::new(&self.account)?, len: 0, home: Arc::downgrade(&self.kept) })
    }
}

fn lock(kept: &Kept) -> std::sync::MutexGuard<'_, Vec<Counted<u64>>> {
    // Nothing that could panic is done under the lock.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counted bytes that begin at a multiple of 8, so that numbers of every type can lie in them.
pub(crate) struct Memory {
    words: Counted<u64>,
    len: usize,
    /// Where the words go when they are no longer needed. Elements can outlive their pipeline, and then keep nothing but themselves.
    home: Weak<Kept>,
}

impl Memory {
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let needed = self.len.saturating_add(more).div_ceil(8);
        if needed <= self.words.items.capacity() {
            return Ok(());
        }
        let home = self.home.upgrade();
        if let Some(home) = &home
            && needed >= Heap::SMALLEST / 8
        {
            let mut kept = lock(home);
            let fits = |words: &Counted<u64>| (needed..=needed.saturating_mul(2)).contains(&words.items.capacity());
            if let Some(i) = kept.iter().rposition(fits) {
                let mut words = kept.swap_remove(i);
                let used = self.len.div_ceil(8);
                words.items.resize(used.max(words.items.len()), 0);
                words.items[..used].copy_from_slice(&self.words.items[..used]);
                self.words = words;
                return Ok(());
            }
        }
        let result = self.words.reserve(needed - self.words.len());
        match (&result, home) {
            // What is kept is in the way.
            (Err(_), Some(home)) if !std::mem::take(&mut *lock(&home)).is_empty() => {
                self.words.reserve(needed - self.words.len())
            }
            _ => result,
        }
    }

    /// Appends `n` bytes of unspecified value and gives access to them.
    pub(crate) fn grow(&mut self, n: usize) -> Result<&mut [u8], Error> {
        self.reserve(n)?;
        let (old, new) = (self.len, self.len + n);
        let words = new.div_ceil(8);
        if words > self.words.len() {
            self.words.grow(words - self.words.len(), 0)?;
        }
        self.len = new;
        Ok(&mut self.bytes_mut()[old..])
    }

    pub(crate) fn truncate(&mut self, n: usize) {
        self.len = self.len.min(n);
    }

    /// The bytes allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.words.items.capacity() * 8
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.capacity() < Heap::SMALLEST {
            return;
        }
        let Some(home) = self.home.upgrade() else { return };
        let account = self.words.held.account().clone();
        let mut kept = lock(&home);
        // No more than a sixteenth of what is left, so that what is kept is never what others lack.
        let left = account.budget().left().unwrap_or(Bytes::MAX).0;
        let held: usize = kept.iter().map(|words| words.items.capacity() * 8).sum();
        if let Ok(empty) = Counted::new(&account)
            && kept.len() < Heap::MOST
            && (held + self.capacity()) as u64 <= left / 16
        {
            kept.push(std::mem::replace(&mut self.words, empty));
        }
    }
}

/// The bytes as numbers; `None` when they are not aligned or not whole numbers.
pub(crate) fn as_numbers<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    if bytes.is_empty() {
        return Some(&[]);
    }
    let aligned =
        (bytes.as_ptr() as usize).is_multiple_of(align_of::<T>()) && bytes.len().is_multiple_of(size_of::<T>());
    // SAFETY: aligned and in whole numbers, as just checked; `Element`s are plain data, and every writer of `bool`
    // components in this crate writes 0 or 1 only.
    aligned.then(|| unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
}

/// The bytes as numbers to be changed; `None` when they are not aligned or not whole numbers.
pub(crate) fn as_numbers_mut<T: Element>(bytes: &mut [u8]) -> Option<&mut [T]> {
    if bytes.is_empty() {
        return Some(&mut []);
    }
    let aligned =
        (bytes.as_ptr() as usize).is_multiple_of(align_of::<T>()) && bytes.len().is_multiple_of(size_of::<T>());
    // SAFETY: as in `as_numbers`, and the borrow is exclusive.
    aligned.then(|| unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>()) })
}

/// The numbers as bytes.
pub(crate) fn as_bytes<T: Element>(numbers: &[T]) -> &[u8] {
    // SAFETY: `Element`s are plain data without padding.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

#[cfg(test)]
mod tests {
    use super::Heap;
    use plimsoll_budget::{Budget, Bytes};

    const STRETCH: usize = 128 << 10;

    #[test]
    fn a_stretch_is_used_again_with_what_was_there() {
        let budget = Budget::new(Bytes::mib(16));
        let heap = Heap::new(&budget.account("test"));
        let mut first = heap.memory().unwrap();
        first.grow(STRETCH).unwrap().fill(1);
        drop(first);
        assert_eq!(budget.held(), Bytes::from(STRETCH), "kept, and counted");
        // A growing one moves there, and keeps its bytes.
        let mut second = heap.memory().unwrap();
        second.grow(1000).unwrap().fill(2);
        second.grow(STRETCH - 1000).unwrap().fill(3);
        assert_eq!(budget.held(), Bytes::from(STRETCH), "no other was taken");
        assert!(second.bytes()[..1000].iter().all(|b| *b == 2) && second.bytes()[1000..].iter().all(|b| *b == 3));
        // One of twice the size and more is none that fits.
        let mut third = heap.memory().unwrap();
        drop(second);
        third.grow(3 * STRETCH).unwrap();
        assert_eq!(budget.held(), Bytes::from(4 * STRETCH));
        // What outlives the heap keeps nothing but itself.
        drop(heap);
        assert_eq!(budget.held(), Bytes::from(3 * STRETCH));
        drop(third);
        assert_eq!(budget.held(), Bytes::ZERO);
    }

    #[test]
    fn what_is_kept_gives_way() {
        let budget = Budget::new(Bytes::from(20 * STRETCH));
        let heap = Heap::new(&budget.account("test"));
        let mut small = heap.memory().unwrap();
        small.grow(STRETCH).unwrap();
        drop(small);
        assert_eq!(budget.held(), Bytes::from(STRETCH));
        let mut large = heap.memory().unwrap();
        large.grow(20 * STRETCH).unwrap();
        assert_eq!(budget.held(), Bytes::from(20 * STRETCH));
        drop(large);
        assert_eq!(budget.held(), Bytes::ZERO, "too large to be kept");
    }
}
