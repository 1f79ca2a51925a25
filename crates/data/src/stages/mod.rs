//! What can happen to elements: one file per idea.

mod cache;
mod combine;
mod errors;
mod filter;
mod group;
mod interleave;
mod map;
mod order;
mod prefetch;
mod select;
mod ungroup;

pub(crate) use cache::nameless;
pub use group::Padding;
pub use map::Writer;

use crate::Error;
use crate::builder::Builder;
use crate::column::Chunk;
use crate::flow::Flow;
use std::ops::Range;

/// A function of single elements.
pub(crate) trait Transform: Send + Sync {
    /// Appends what becomes of some elements of a chunk; `number` is the number of each. On failure, the bad row, with those before
    /// it appended.
    fn apply(
        &self,
        chunk: &Chunk,
        rows: Range<usize>,
        number: &dyn Fn(usize) -> u64,
        epoch: u64,
        out: &mut Builder<'_>,
    ) -> Result<(), (usize, Error)>;

    /// Whether `change` does what `apply` does.
    fn is_in_place(&self) -> bool {
        false
    }

    /// The bytes of the largest element, from those of the input's; `None` where only running tells.
    fn largest(&self, input: u64) -> Option<u64> {
        let _ = input;
        None
    }

    /// For functions that change elements where they are: does so to some rows of `out`.
    fn change(&self, out: &mut Builder<'_>, rows: Range<usize>) {
        let _ = (out, rows);
    }
}

/// The elements of a stage's input, some of them at hand.
pub(crate) struct Inlet {
    flow: Flow,
    chunk: Chunk,
    next: usize,
    /// The number of the chunk's first element.
    first: u64,
    follows: Result<bool, Error>,
}

impl Inlet {
    pub(crate) fn new(flow: Flow) -> Inlet {
        Inlet { flow, chunk: Chunk { rows: 0, columns: Vec::new() }, next: 0, first: 0, follows: Ok(true) }
    }

    pub(crate) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// At least one element, when there are more: the chunk and the rows that have not been used.
    pub(crate) fn peek(&mut self, want: usize) -> Result<Option<(&Chunk, Range<usize>)>, Error> {
        while self.next == self.chunk.rows {
            match std::mem::replace(&mut self.follows, Ok(true)) {
                Ok(true) => {
                    self.first += self.chunk.rows as u64;
                    // The old elements go before the new ones come.
                    self.chunk = Chunk { rows: 0, columns: Vec::new() };
                    (self.chunk, self.follows) = self.flow.chunk(want);
                    self.next = 0;
                }
                Ok(false) => {
                    self.follows = Ok(false);
                    return Ok(None);
                }
                Err(error) => {
                    self.first += 1;
                    return Err(error);
                }
            }
        }
        Ok(Some((&self.chunk, self.next..self.chunk.rows)))
    }

    /// The number of the chunk's first element.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Counts `n` of the elements at hand as used.
    pub(crate) fn advance(&mut self, n: usize) {
        self.next += n;
    }

    /// How many elements have been used, errors included.
    pub(crate) fn used(&self) -> u64 {
        self.first + self.next as u64
    }

    /// Passes over elements, where none are at hand.
    pub(crate) fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.next < self.chunk.rows || !matches!(self.follows, Ok(true)) {
            return Ok(None);
        }
        let skipped = self.flow.skip(n)?;
        self.first += skipped;
        Ok(Some(skipped))
    }
}
