//! Which addresses are taken when: finds the gap for a buffer, and takes it.
//!
//! A segment tree over time. A buffer is recorded at the few nodes that together make up its lifetime, and every
//! node keeps two sets of addresses: those taken during *all* of its steps by buffers recorded there, and those
//! taken during *any* of its steps by buffers recorded there or below. What is taken during a lifetime is then the
//! union of the second set over the lifetime's own nodes and of the first over the nodes above them: at most four
//! sets per level. Packed buffers leave few gaps, so the sets are short lists of ranges, and the cost of a question
//! hardly depends on the number of buffers.

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
    /// For each set that matters, the place of its first range not yet passed.
    cursors: Vec<Cursor>,
}

/// A node that a lifetime overlaps.
#[derive(Clone, Copy)]
struct Node {
    index: u32,
    /// Whether it is one of the nodes that make up the lifetime, rather than above one.
    own: bool,
}

#[derive(Clone, Copy)]
struct Cursor {
    node: Node,
    at: usize,
}

impl Occupancy {
    /// Nothing taken at any of `n_steps` steps.
    pub(super) fn new(n_steps: u32) -> Occupancy {
        let n_leaves = n_steps.max(1).next_power_of_two();
        let sets = vec![AddressSet::default(); 2 * n_leaves as usize];
        Occupancy { n_leaves, throughout: sets.clone(), anywhere: sets, nodes: Vec::new(), cursors: Vec::new() }
    }

    /// Forgets every buffer.
    pub(super) fn clear(&mut self) {
        for set in self.throughout.iter_mut().chain(&mut self.anywhere) {
            set.0.clear();
        }
    }

    /// Finds `size` free addresses in a row from step `first` to step `last`, takes them, and returns the first.
    pub(super) fn place(&mut self, first: u32, last: u32, size: u64, fit: Fit) -> u64 {
        self.look_at(first, last);
        let begin = match fit {
            Fit::First => self.next_gap(0, size),
            Fit::Best => self.smallest_gap(size),
        };
        self.record(begin, size);
        begin
    }

    /// Takes these addresses, whether or not they are free.
    pub(super) fn take(&mut self, first: u32, last: u32, begin: u64, size: u64) {
        self.look_at(first, last);
        self.record(begin, size);
    }

    /// Makes `nodes` and `cursors` those of a lifetime.
    fn look_at(&mut self, first: u32, last: u32) {
        self.nodes.clear();
        collect_nodes(&mut self.nodes, (first, last), 1, (0, self.n_leaves - 1));
        self.cursors.clear();
        for &node in &self.nodes {
            if !self.set(node).0.is_empty() {
                self.cursors.push(Cursor { node, at: 0 });
            }
        }
    }

    /// The addresses at a node that a lifetime has to avoid.
    fn set(&self, node: Node) -> &AddressSet {
        let sets = if node.own { &self.anywhere } else { &self.throughout };
        &sets[node.index as usize]
    }

    /// The lowest address from `from` on at which `size` addresses are free.
    ///
    /// Goes round the sets; each pushes the address past the range that is in the way, until none is. Cursors only
    /// move up, so a whole sweep is linear in the number of ranges.
    fn next_gap(&mut self, from: u64, size: u64) -> u64 {
        let mut begin = from;
        let mut n_content = 0;
        let mut turn = 0;
        while n_content < self.cursors.len() {
            let Cursor { node, at } = self.cursors[turn];
            let ranges = &self.set(node).0;
            let mut at = at;
            while at < ranges.len() && ranges[at].end <= begin {
                at += 1;
            }
            n_content += 1;
            while at < ranges.len() && ranges[at].begin < begin + size {
                begin = ranges[at].end;
                at += 1;
                n_content = 1;
            }
            self.cursors[turn].at = at;
            turn = if turn + 1 == self.cursors.len() { 0 } else { turn + 1 };
        }
        begin
    }

    fn smallest_gap(&mut self, size: u64) -> u64 {
        let (mut best, mut best_room) = (0, u64::MAX);
        let mut begin = self.next_gap(0, size);
        loop {
            // After a sweep every cursor stands at the first range above `begin`.
            let above = |cursor: &Cursor| self.set(cursor.node).0.get(cursor.at).map(|range| range.begin);
            let Some(end) = self.cursors.iter().filter_map(above).min() else {
                // The gap above everything has no end; it is the last resort.
                return if best_room == u64::MAX { begin } else { best };
            };
            if end - begin < best_room {
                (best, best_room) = (begin, end - begin);
            }
            begin = self.next_gap(end, size);
        }
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
    use super::*;

    /// The same question answered by looking at every buffer placed.
    fn gap(placed: &[(u32, u32, u64, u64)], first: u32, last: u32, size: u64, fit: Fit) -> u64 {
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|buffer| buffer.0 <= last && first <= buffer.1)
            .map(|buffer| (buffer.2, buffer.2 + buffer.3))
            .collect();
        taken.sort_unstable();
        let (mut begin, mut best) = (0, None::<(u64, u64)>);
        for (taken_begin, taken_end) in taken {
            if taken_begin >= begin + size
                && best.is_none_or(|(room, _)| fit == Fit::Best && taken_begin - begin < room)
            {
                best = Some((taken_begin - begin, begin));
            }
            begin = begin.max(taken_end);
        }
        best.map_or(begin, |(_, begin)| begin)
    }

    #[test]
    fn finds_the_gaps_that_a_look_at_every_buffer_finds() {
        let mut random = Random::new(3);
        for round in 0..300 {
            let n_steps = 1 + random.below(40) as u32;
            let mut occupancy = Occupancy::new(n_steps);
            for fit in [Fit::First, Fit::Best] {
                occupancy.clear();
                let mut placed = Vec::new();
                for _ in 0..60 {
                    let (a, b) = (random.below(n_steps as u64) as u32, random.below(n_steps as u64) as u32);
                    let (first, last, size) = (a.min(b), a.max(b), 1 + random.below(9));
                    let begin = occupancy.place(first, last, size, fit);
                    assert_eq!(begin, gap(&placed, first, last, size, fit), "round {round}, {fit:?}");
                    placed.push((first, last, begin, size));
                }
            }
        }
    }
}
