//! Growing memory that is counted: every byte is reserved before it is allocated.

use crate::Error;
use crate::pages::{LARGE, Pages};
use plimsoll_budget::{Account, Bytes, Reservation};
use plimsoll_tensor::Element;

/// A growing list whose capacity is reserved from an account: of the heap, or pages of its own when it is large.
pub(crate) struct Counted<T> {
    small: Vec<T>,
    held: Reservation,
    /// In place of `small`, with the number of items.
    large: Option<(Pages, usize)>,
}

impl<T: Copy> Counted<T> {
    pub(crate) fn new(account: &Account) -> Result<Counted<T>, Error> {
        Ok(Counted { small: Vec::new(), held: account.reserve(Bytes::ZERO)?, large: None })
    }

    /// At most `n` items.
    pub(crate) fn collect(
        account: &Account,
        n: usize,
        items: impl IntoIterator<Item = T>,
    ) -> Result<Counted<T>, Error> {
        let mut list = Counted::new(account)?;
        list.reserve(n)?;
        items.into_iter().take(n).try_for_each(|item| list.push(item))?;
        Ok(list)
    }

    fn capacity(&self) -> usize {
        match &self.large {
            Some((pages, _)) => pages.bytes() / size_of::<T>(),
            None => self.small.capacity(),
        }
    }

    /// Room for `more` items, exactly so when the list was empty, else at least doubling while the budget allows it.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let needed = self.len().saturating_add(more);
        if needed <= self.capacity() {
            return Ok(());
        }
        // While the list moves, the old and the new place exist side by side, so both stay reserved.
        self.move_to(needed.max(self.len().saturating_mul(2))).or_else(|_| self.move_to(needed))
    }

    fn move_to(&mut self, capacity: usize) -> Result<(), Error> {
        let account = self.held.account().clone();
        let bytes = capacity.saturating_mul(size_of::<T>());
        if bytes >= LARGE {
            let (pages, len) = (Pages::new(&account, bytes)?, self.len());
            // SAFETY: the pages have room for at least as many items, and are apart from where the items are.
            unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), pages.start().as_ptr().cast::<T>(), len) };
            *self = Counted { small: Vec::new(), held: account.reserve(Bytes::ZERO)?, large: Some((pages, len)) };
            return Ok(());
        }
        let held = account.reserve(Bytes::from(bytes))?;
        let mut small = Vec::new();
        if small.try_reserve_exact(capacity).is_err() {
            let message = format!("the system has no memory for {}", Bytes::from(bytes));
            return Err(Error::pipeline(account.name(), message));
        }
        small.extend_from_slice(self);
        *self = Counted { small, held, large: None };
        Ok(())
    }

    pub(crate) fn push(&mut self, item: T) -> Result<(), Error> {
        self.reserve(1)?;
        match &mut self.large {
            // SAFETY: there is room for it behind the last one.
            Some((pages, len)) => unsafe {
                pages.start().as_ptr().cast::<T>().add(*len).write(item);
                *len += 1;
            },
            None => self.small.push(item),
        }
        Ok(())
    }

    /// Appends `n` copies of `item` and gives access to them.
    pub(crate) fn grow(&mut self, n: usize, item: T) -> Result<&mut [T], Error> {
        self.reserve(n)?;
        let old = self.len();
        match &mut self.large {
            Some((pages, len)) => {
                // SAFETY: there is room for them behind the last one; what is written is a value of the type.
                unsafe {
                    let first = pages.start().as_ptr().cast::<T>().add(*len);
                    (0..n).for_each(|i| first.add(i).write(item));
                }
                *len += n;
            }
            None => self.small.resize(old + n, item),
        }
        Ok(&mut self[old..])
    }

    pub(crate) fn truncate(&mut self, n: usize) {
        match &mut self.large {
            Some((_, len)) => *len = (*len).min(n),
            None => self.small.truncate(n),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.truncate(0);
    }
}

impl<T> std::ops::Deref for Counted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.large {
            // SAFETY: so many items have been written, and pages are aligned for every type.
            Some((pages, len)) => unsafe { std::slice::from_raw_parts(pages.start().as_ptr().cast(), *len) },
            None => &self.small,
        }
    }
}

impl<T> std::ops::DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.large {
            // SAFETY: as above, and the borrow is exclusive.
            Some((pages, len)) => unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr().cast(), *len) },
            None => &mut self.small,
        }
    }
}

/// Counted bytes that begin at a multiple of 8, so that numbers of every type can lie in them.
pub(crate) struct Memory {
    words: Counted<u64>,
    len: usize,
}

impl Memory {
    pub(crate) fn new(account: &Account) -> Result<Memory, Error> {
        Ok(Memory { words: Counted::new(account)?, len: 0 })
    }

    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let words = self.len.saturating_add(more).div_ceil(8);
        self.words.reserve(words.saturating_sub(self.words.len()))
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

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
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
