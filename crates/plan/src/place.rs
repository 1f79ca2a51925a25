//! Packs lifetimes into the arena: gives every buffer an offset.

/// A byte range that is needed from step `first` to step `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Size in bytes; may be zero.
    pub bytes: u64,
    /// The first step at which it holds something.
    pub first: u32,
    /// The last step at which it is needed; not before `first`.
    pub last: u32,
}

/// Where every buffer lies in the arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The offset in bytes of each buffer, in the order in which they were given.
    pub offsets: Vec<u64>,
    /// The size of the arena in bytes.
    pub height: u64,
    /// The largest number of bytes that are live at one step: no arena can be smaller.
    pub lower_bound: u64,
}

/// How much work to put into a placement beyond the fixed set of simple orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effort {
    /// How many single buffers the local search may place.
    pub search: u64,
    /// How many nodes the exact search may visit.
    pub exact: u64,
}

/// Gives every buffer an offset.
pub fn place(buffers: &[Buffer], _: Effort) -> Placement {
    let size = |b: &Buffer| b.bytes.next_multiple_of(64);
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(size(&buffers[i])));
    let mut offsets = vec![0; buffers.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut height = 0;
    for i in order {
        let b = &buffers[i];
        let mut at = 0;
        for &p in &placed {
            let q = &buffers[p];
            if q.first <= b.last && b.first <= q.last {
                if offsets[p] >= at + size(b) {
                    break;
                }
                at = at.max(offsets[p] + size(q));
            }
        }
        offsets[i] = at;
        height = height.max(at + size(b));
        let pos = placed.partition_point(|&p| offsets[p] < at);
        placed.insert(pos, i);
    }
    let end = buffers.iter().map(|b| b.last + 1).max().unwrap_or(0) as usize;
    let mut change = vec![0i64; end + 1];
    for b in buffers {
        change[b.first as usize] += size(b) as i64;
        change[b.last as usize + 1] -= size(b) as i64;
    }
    let mut live = 0;
    let lower_bound = change
        .iter()
        .map(|c| {
            live += c;
            live as u64
        })
        .max()
        .unwrap_or(0);
    Placement { offsets, height, lower_bound }
}
