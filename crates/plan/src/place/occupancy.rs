//! Which addresses are taken when: finds the gap for a buffer, and takes it.
//!
//! A segment tree over time. A buffer is recorded at the few nodes that together make up its lifetime, and every
//! node keeps two sets of addresses: those taken during *all* of its steps by buffers recorded there, and those
//! taken during *any* of its steps by buffers recorded there or below. What is taken during a lifetime is then the
//! union of the second set over the lifetime's own nodes and of the first over the nodes above them: at most four
//! sets per level. Packed buffers leave few gaps, so the sets are short lists of ranges, and the cost of a question
//! hardly depends on the number of buffers.

use super::Item;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// How a gap is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    /// The lowest gap that is large enough.
    First,
    /// The smallest gap that is large enough; the lowest of equals.
    Best,
}

/// The addresses taken, by time.
pub(super) struct Occupancy {
    /// Number of leaves, a power of two. Node 1 is the root, node `v` has the children `2 v` and `2 v + 1`.
    n_leaves: u32,
    /// Taken during all of the node's steps, by buffers recorded at the node.
    throughout: Vec<AddressSet>,
    /// Taken during any of the node's steps, by buffers recorded at the node or below it.
    anywhere: Vec<AddressSet>,
    /// The nodes of the lifetime in question and those above them.
    nodes: Vec<Node>,
    /// The sets that have to be avoided and are not yet passed, the one whose next range begins lowest on top.
    cursors: BinaryHeap<Cursor>,
    /// Ranges looked at since all was forgotten.
    pub(super) n_looks: u64,
}

/// A node that a lifetime overlaps.
#[derive(Clone, Copy)]
struct Node {
    index: u32,
    /// Whether it is one of the nodes that make up the lifetime, rather than above one.
    own: bool,
}

/// A place in a set of addresses: its next range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    begin: Reverse<u64>,
    set: Reverse<SetId>,
    at: usize,
}

/// Where a set is: at which node, and which of its two.
type SetId = (u32, bool);

impl Occupancy {
    /// Nothing taken at any of `n_steps` steps.
    pub(super) fn new(n_steps: u32) -> Occupancy {
        let n_leaves = n_steps.max(1).next_power_of_two();
        let sets = vec![AddressSet::default(); 2 * n_leaves as usize];
        Occupancy {
            n_leaves,
            throughout: sets.clone(),
            anywhere: sets,
            nodes: Vec::new(),
            cursors: BinaryHeap::new(),
            n_looks: 0,
        }
    }

    /// Forgets every buffer.
    pub(super) fn clear(&mut self) {
        for set in self.throughout.iter_mut().chain(&mut self.anywhere) {
            set.0.clear();
        }
        self.n_looks = 0;
    }

    /// Finds free addresses for an item, takes them, and returns the first.
    pub(super) fn place(&mut self, item: &Item, fit: Fit) -> u64 {
        self.look_at(item);
        let begin = match fit {
            Fit::First => self.next_gap(0, item.size),
            Fit::Best => self.smallest_gap(item.size),
        };
        self.record(begin, item.size);
        begin
    }

    /// Makes `nodes` and `cursors` those of a lifetime.
    fn look_at(&mut self, item: &Item) {
        self.nodes.clear();
        collect_nodes(&mut self.nodes, (item.first, item.last), 1, (0, self.n_leaves - 1));
        let mut cursors = std::mem::take(&mut self.cursors).into_vec();
        cursors.clear();
        for node in &self.nodes {
            let set = (node.index, node.own);
            if let Some(range) = self.set(set).0.first() {
                cursors.push(Cursor { begin: Reverse(range.begin), set: Reverse(set), at: 0 });
            }
        }
        self.cursors = cursors.into();
    }

    /// The addresses at a node that a lifetime has to avoid: anywhere in its own nodes, throughout those above.
    fn set(&self, (node, own): SetId) -> &AddressSet {
        let sets = if own { &self.anywhere } else { &self.throughout };
        &sets[node as usize]
    }

    /// The lowest address from `from` on at which `size` addresses are free; the cursors move up to it.
    fn next_gap(&mut self, from: u64, size: u64) -> u64 {
        let mut begin = from;
        let mut cursors = std::mem::take(&mut self.cursors);
        while let Some(mut cursor) = cursors.peek_mut() {
            self.n_looks += 1;
            if cursor.begin.0 >= begin + size {
                break;
            }
            let ranges = &self.set(cursor.set.0).0;
            begin = begin.max(ranges[cursor.at].end);
            // Ranges that end below the address are in nobody's way.
            let rest = &ranges[cursor.at + 1..];
            let n_passed = if rest.first().is_none_or(|range| range.end > begin) {
                0
            } else {
                rest.partition_point(|range| range.end <= begin)
            };
            match rest.get(n_passed) {
                Some(range) => {
                    cursor.at += 1 + n_passed;
                    cursor.begin = Reverse(range.begin);
                }
                None => drop(PeekMut::pop(cursor)),
            }
        }
        self.cursors = cursors;
        begin
    }

    fn smallest_gap(&mut self, size: u64) -> u64 {
        let mut smallest: Option<(u64, u64)> = None;
        let mut begin = self.next_gap(0, size);
        while let Some(cursor) = self.cursors.peek() {
            let end = cursor.begin.0;
            if smallest.is_none_or(|(room, _)| end - begin < room) {
                smallest = Some((end - begin, begin));
            }
            begin = self.next_gap(end, size);
        }
        // The gap above everything has no end; it is the last resort.
        smallest.map_or(begin, |(_, begin)| begin)
    }

    /// Records addresses for the lifetime looked at.
    fn record(&mut self, begin: u64, size: u64) {
        let range = Range { begin, end: begin + size };
        for node in &self.nodes {
            self.anywhere[node.index as usize].insert(range);
            if node.own {
                self.throughout[node.index as usize].insert(range);
            }
        }
    }
}

/// Visits the nodes below `node`, which spans `span`, that make up the lifetime, and those above these.
fn collect_nodes(nodes: &mut Vec<Node>, lifetime: (u32, u32), node: u32, span: (u32, u32)) {
    let own = lifetime.0 <= span.0 && span.1 <= lifetime.1;
    nodes.push(Node { index: node, own });
    if own {
        return;
    }
    let middle = span.0 + (span.1 - span.0) / 2;
    if lifetime.0 <= middle {
        collect_nodes(nodes, lifetime, 2 * node, (span.0, middle));
    }
    if lifetime.1 > middle {
        collect_nodes(nodes, lifetime, 2 * node + 1, (middle + 1, span.1));
    }
}

/// Addresses from `begin` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    begin: u64,
    end: u64,
}

/// A set of addresses: ranges in rising order that neither overlap nor touch.
#[derive(Clone, Debug, Default)]
struct AddressSet(Vec<Range>);

impl AddressSet {
    /// Adds a range, joining it with those that it overlaps or touches.
    fn insert(&mut self, Range { begin, end }: Range) {
        let from = self.0.partition_point(|range| range.end < begin);
        let n_joined = self.0[from..].iter().take_while(|range| range.begin <= end).count();
        if n_joined == 0 {
            self.0.insert(from, Range { begin, end });
            return;
        }
        let joined_end = self.0[from + n_joined - 1].end;
        self.0[from] = Range { begin: begin.min(self.0[from].begin), end: end.max(joined_end) };
        self.0.drain(from + 1..from + n_joined);
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::super::shelf::Shelf;
    use super::*;

    #[test]
    fn finds_the_gaps_that_a_look_at_every_buffer_finds() {
        let mut random = Random::new(3);
        let mut shelf = Shelf::default();
        for round in 0..300 {
            let n_steps = 1 + random.below(40);
            let mut occupancy = Occupancy::new(n_steps as u32);
            for fit in [Fit::First, Fit::Best] {
                occupancy.clear();
                shelf.clear();
                for buffer in 0..60 {
                    let (a, b) = (random.below(n_steps) as u32, random.below(n_steps) as u32);
                    let item = Item { first: a.min(b), last: a.max(b), size: 1 + random.below(9), buffer };
                    assert_eq!(occupancy.place(&item, fit), shelf.place(&item, fit), "round {round}, {fit:?}");
                }
            }
        }
    }
}
