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
pub(crate) use map::Sizes;
pub use map::Writer;

use crate::Error;
use crate::builder::Builder;
use crate::column::Chunk;
use crate::dataset::{Node, Total};
use crate::flow::Flow;
use crate::least::{flow_bytes, held_bytes};
use std::ops::Range;

/// The bytes of the elements that a stage has at hand, where there is room for them.
const BLOCK: usize = 256 << 10;

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

    /// What the function holds while it works on an element, from the bytes of the largest; `None` where only running tells.
    fn scratch(&self, input: u64) -> Option<u64> {
        let _ = input;
        Some(0)
    }

    /// What all elements have together that it makes; `None` where only running tells.
    fn total(&self) -> Option<Total> {
        None
    }

    /// For functions that change elements where they are: does so to some rows of `out`.
    fn change(&self, out: &mut Builder<'_>, rows: Range<usize>) {
        let _ = (out, rows);
    }
}

/// What the elements of a link take that come through an `Inlet`: one is at hand.
fn inlet_bytes(input: &dyn Node) -> Option<u64> {
    flow_bytes(input)?.checked_add(held_bytes(input, 1)?)
}

/// The elements of a stage's input, some of them at hand.
pub(crate) struct Inlet {
    flow: Flow,
    /// How many may be at hand.
    block: usize,
    chunk: Chunk,
    next: usize,
    /// The number of the chunk's first element.
    first: u64,
    follows: Result<bool, Error>,
}

impl Inlet {
    pub(crate) fn new(flow: Flow) -> Inlet {
        let block = flow.open.block(flow.size, BLOCK);
        Inlet { flow, block, chunk: Chunk { rows: 0, columns: Vec::new() }, next: 0, first: 0, follows: Ok(true) }
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
                    (self.chunk, self.follows) = self.flow.chunk(want.min(self.block));
                    if self.flow.spec.bytes().is_none() && self.chunk.rows > 0 {
                        self.block = self.flow.open.block_like(&self.chunk, self.flow.size, self.block, BLOCK);
                    }
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
