//! The same question as in `occupancy`, answered by a plain list of the buffers placed, in the order of their addresses.
//!
//! Every question looks at all buffers up to the gap. That is slower for large steps whose lifetimes nest, as they do in
//! training, but not for steps in disorder, where the sets of the tree fall apart into many ranges.

use super::Item;
use super::occupancy::Fit;

/// The buffers placed, sorted by their first address.
#[derive(Default)]
pub(super) struct Shelf {
    placed: Vec<Placed>,
}

/// A buffer with its addresses.
#[derive(Clone, Copy)]
struct Placed {
    first: u32,
    last: u32,
    begin: u64,
    end: u64,
}

impl Shelf {
    /// Forgets every buffer.
    pub(super) fn clear(&mut self) {
        self.placed.clear();
    }

    /// Finds free addresses for an item, takes them, and returns the first.
    pub(super) fn place(&mut self, item: &Item, fit: Fit) -> u64 {
        let mut begin = 0;
        let mut best: Option<(u64, u64)> = None;
        for other in self.placed.iter().filter(|other| other.first <= item.last && item.first <= other.last) {
            if other.begin >= begin + item.size {
                let room = other.begin - begin;
                if best.is_none_or(|(best, _)| room < best) {
                    best = Some((room, begin));
                }
                if fit == Fit::First {
                    break;
                }
            }
            begin = begin.max(other.end);
        }
        let begin = best.map_or(begin, |(_, begin)| begin);
        self.take(item, begin);
        begin
    }

    /// Takes these addresses, whether or not they are free.
    pub(super) fn take(&mut self, item: &Item, begin: u64) {
        let at = self.placed.partition_point(|other| other.begin <= begin);
        let new = Placed { first: item.first, last: item.last, begin, end: begin + item.size };
        self.placed.insert(at, new);
    }
}
