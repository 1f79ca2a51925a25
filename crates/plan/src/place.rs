//! Packs lifetimes into the arena: gives every buffer an offset.
//!
//! In: when each buffer is needed and how large it is. Out: offsets such that no two buffers that are needed at the same
//! step overlap, in an arena as small as can be found. No arena is smaller than the largest set of buffers alive at one step;
//! how close it comes is in the [`Placement`]. Finding the smallest is NP-hard, but training steps are mostly kind:
//!
//! 1. Buffers that live through the whole step are stacked at the bottom, out of the way.
//! 2. The others are placed one by one, each in the lowest gap, in several orders (`greedy.rs`). Often one of these reaches the
//!    bound. Steps with much recomputing, where the arena is full to the brim most of the time, are left 1 to 15 % above it.
//! 3. A search for the smallest arena (`exact.rs`) closes nearly all of that, for up to a few thousand buffers and the largest of more. Two ways to fill an
//!    arena of a given size take turns in it: one in which buffers drive each other out (`eject.rs`), and one that is exact (`fill.rs`).
//!
//! All of it is counted in operations and never in seconds, so that a placement is the same on every machine.

mod eject;
mod exact;
mod fill;
mod floors;
mod greedy;
mod occupancy;
mod random;
mod shelf;

use greedy::Packer;
use std::ops::RangeInclusive;

/// Offsets in the arena are multiples of this many bytes, the size of a cache line.
pub const ALIGNMENT: u64 = 64;

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
    /// The offset in bytes of each buffer, in the order in which they were given; multiples of [`ALIGNMENT`].
    pub offsets: Vec<u64>,
    /// The size of the arena in bytes.
    pub height: u64,
    /// The largest number of bytes that are alive at one step, every buffer rounded up to [`ALIGNMENT`]: no arena can be smaller.
    pub lower_bound: u64,
}

/// How much work to put into a placement beyond the fixed set of simple orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many operations the search may do; about 200 million take a second.
    pub work: u64,
}

impl Effort {
    /// Hardly more than the orders that an exact search begins with.
    pub(crate) const ORDERS: Effort = Effort { work: 1 };
    /// Simple orders alone.
    pub const QUICK: Effort = Effort { work: 0 };
    /// Up to about a second beyond the simple orders, mostly far less: what falls short of the bound by more than a thousandth
    /// after the simple orders takes some hundredths of a second to close.
    pub const NORMAL: Effort = Effort { work: 60_000_000 };
    /// Up to some ten seconds beyond the simple orders.
    pub const THOROUGH: Effort = Effort { work: 1_500_000_000 };
}

impl Default for Effort {
    fn default() -> Effort {
        Effort::NORMAL
    }
}

/// Gives every buffer an offset, in an arena as small as the effort allows.
///
/// ```
/// use plimsoll_plan::place::{Buffer, Effort, place};
/// let placement = place(
///     &[
///         Buffer { bytes: 1000, first: 0, last: 2 },
///         Buffer { bytes: 500, first: 1, last: 1 },
///         Buffer { bytes: 512, first: 2, last: 3 },
///     ],
///     Effort::default(),
/// );
/// // The second and the third buffer are never needed together.
/// assert_eq!(placement.offsets, [0, 1024, 1024]);
/// assert_eq!((placement.height, placement.lower_bound), (1536, 1536));
/// ```
///
/// # Panics
/// When a buffer's last step lies before its first.
pub fn place(buffers: &[Buffer], effort: Effort) -> Placement {
    place_within(buffers, 0, effort)
}

/// Gives every buffer an offset, in an arena of at most `limit` bytes if the effort allows, and stops as soon as it does.
///
/// # Panics
/// When a buffer's last step lies before its first.
pub fn place_within(buffers: &[Buffer], limit: u64, effort: Effort) -> Placement {
    let problem = Problem::new(buffers);
    let goal = Goal::new(&problem, limit);
    let mut packer = Packer::new(&problem);
    let mut best = greedy::best_of_orders(&mut packer, &goal, effort.work == 0);
    exact::improve(&mut packer, &mut best, &goal, effort.work);
    problem.placement(&best.offsets, buffers.len())
}

/// When to stop: heights in units of [`ALIGNMENT`], above the fixed buffers.
struct Goal {
    height: u64,
    /// A height this much above the goal is as good: a thousandth of the whole arena.
    tolerance: u64,
}

impl Goal {
    fn new(problem: &Problem, limit: u64) -> Goal {
        let limit = (limit / ALIGNMENT).saturating_sub(problem.base);
        let is_limited = limit > problem.lower_bound;
        let tolerance = if is_limited { 0 } else { (problem.base + problem.lower_bound) / 1000 };
        Goal { height: limit.max(problem.lower_bound), tolerance }
    }

    fn is_reached(&self, height: u64) -> bool {
        height <= self.height + self.tolerance
    }
}

/// What is left to solve: the buffers that have a size and do not live through the whole step.
struct Problem {
    /// Sorted by first step, last step and size, so that nothing depends on the order in which buffers were given.
    items: Vec<Item>,
    n_steps: u32,
    /// The largest live set of items, in units of [`ALIGNMENT`].
    lower_bound: u64,
    /// The buffers that live through the whole step, with their offsets at the bottom of the arena.
    fixed: Vec<(usize, u64)>,
    /// Where the arena begins for the items.
    base: u64,
}

/// A buffer to be placed.
#[derive(Clone, Copy, Debug)]
struct Item {
    first: u32,
    last: u32,
    /// In units of [`ALIGNMENT`].
    size: u64,
    /// Its place in the list of buffers.
    buffer: usize,
}

impl Item {
    fn steps(&self) -> RangeInclusive<usize> {
        self.first as usize..=self.last as usize
    }

    fn duration(&self) -> u32 {
        self.last - self.first + 1
    }

    fn equals(&self, other: &Item) -> bool {
        (self.first, self.last, self.size) == (other.first, other.last, other.size)
    }
}

impl Problem {
    fn new(buffers: &[Buffer]) -> Problem {
        let with_size = buffers.iter().filter(|buffer| buffer.bytes > 0);
        let clock = Clock::new(with_size.map(|buffer| (buffer.first, buffer.last)));
        let (mut items, mut fixed, mut base) = (Vec::new(), Vec::new(), 0);
        for (buffer, &Buffer { bytes, first, last }) in buffers.iter().enumerate() {
            assert!(first <= last, "buffer {buffer} ends at step {last}, before it begins at step {first}");
            if bytes == 0 {
                continue;
            }
            let (first, last) = (clock.at_or_after(first), clock.before_or_at(last));
            let item = Item { first, last, size: bytes.div_ceil(ALIGNMENT), buffer };
            if item.duration() == clock.n_steps() {
                fixed.push((buffer, base));
                base += item.size;
            } else {
                items.push(item);
            }
        }
        items.sort_by_key(|item| (item.first, item.last, item.size));
        let n_steps = clock.n_steps();
        let lower_bound = live_sums(&items, n_steps).into_iter().max().unwrap_or(0);
        Problem { items, n_steps, lower_bound, fixed, base }
    }

    fn placement(&self, item_offsets: &[u64], n_buffers: usize) -> Placement {
        let mut offsets = vec![0; n_buffers];
        let mut height = self.base;
        for &(buffer, offset) in &self.fixed {
            offsets[buffer] = offset * ALIGNMENT;
        }
        for (item, offset) in self.items.iter().zip(item_offsets) {
            let offset = self.base + offset;
            offsets[item.buffer] = offset * ALIGNMENT;
            height = height.max(offset + item.size);
        }
        Placement { offsets, height: height * ALIGNMENT, lower_bound: (self.base + self.lower_bound) * ALIGNMENT }
    }
}

/// The steps that matter, numbered anew: those at which some buffer ends, the first time after some buffer has begun.
///
/// What is alive at any other step is also alive at one of these, so that two buffers meet at one of them or not at all.
struct Clock {
    /// In rising order.
    steps: Vec<u32>,
}

impl Clock {
    /// For lifetimes from a first to a last step.
    fn new(lifetimes: impl Iterator<Item = (u32, u32)>) -> Clock {
        // At one step, beginnings come before ends.
        let mut events: Vec<(u32, bool)> = lifetimes.flat_map(|(first, last)| [(first, false), (last, true)]).collect();
        events.sort_unstable();
        let is_turn = |pair: &&[(u32, bool)]| !pair[0].1 && pair[1].1;
        Clock { steps: events.windows(2).filter(is_turn).map(|pair| pair[1].0).collect() }
    }

    fn n_steps(&self) -> u32 {
        self.steps.len() as u32
    }

    /// The first step that matters from `step` on.
    fn at_or_after(&self, step: u32) -> u32 {
        self.steps.partition_point(|&other| other < step) as u32
    }

    /// The last step that matters up to `step`.
    fn before_or_at(&self, step: u32) -> u32 {
        self.steps.partition_point(|&other| other <= step) as u32 - 1
    }
}

/// The sizes of all items alive, added up, at each step.
fn live_sums(items: &[Item], n_steps: u32) -> Vec<u64> {
    let mut sums = vec![0u64; n_steps as usize + 1];
    for item in items {
        sums[item.first as usize] = sums[item.first as usize].wrapping_add(item.size);
        sums[item.last as usize + 1] = sums[item.last as usize + 1].wrapping_sub(item.size);
    }
    let mut live = 0u64;
    for sum in &mut sums {
        live = live.wrapping_add(*sum);
        *sum = live;
    }
    sums.truncate(n_steps as usize);
    sums
}
