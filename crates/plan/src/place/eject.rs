//! Ejection: what finds no place drives out what is in its way, and that looks for another place.
//!
//! An arena of a given size is filled one item after another, the largest first. An item takes the lowest gap. Where there is
//! none it takes the place with the least resistance, and the items there wait to be placed again. The resistance of an item grows
//! each time it finds no gap, so that what is hard to place stays and what is easy moves, until all have a place or the
//! work is done. The idea is that of guided ejection search, which Nagata and Bräysy (2009) use to save vehicles.
//!
//! It proves nothing, and of tight arenas of few items it finds fewer than the exact search does. But it moves a few items at a time,
//! and where thousands of items leave the arena full at a few steps only, that is what is needed.

use super::Item;
use super::random::Random;

/// Of so many items that wait, the one of the largest area, times its resistance, is placed next.
const WAITING: usize = 64;

/// Where more would have to be remembered about which items meet, nothing is tried: planning takes memory too.
const MOST_MEETINGS: usize = 500_000;

/// Where something begins or ends and its resistance are kept in one number, which is soon sorted.
const RESISTANCE_BITS: u32 = 24;
const MOST_RESISTANCE: u64 = (1 << RESISTANCE_BITS) - 1;

/// The offset of an item that has no place.
const NOWHERE: u64 = u64::MAX;

/// Which items meet: for each step those that live on from the step before, and those that begin there.
struct Meetings {
    /// By step: where its items begin in `carried`, and one more.
    carried_at: Vec<u32>,
    carried: Vec<u32>,
    /// By step: the first item that begins there or later, and one more.
    begin_at: Vec<u32>,
}

impl Meetings {
    /// Of items that are sorted by their first step, unless there are too many.
    fn of(items: &[Item], n_steps: u32) -> Option<Meetings> {
        let total: usize = items.iter().map(|item| (item.last - item.first) as usize).sum();
        if total > MOST_MEETINGS {
            return None;
        }
        let (mut carried_at, mut carried, mut begin_at) = (vec![0], Vec::with_capacity(total), vec![0]);
        let (mut alive, mut next): (Vec<u32>, usize) = (Vec::new(), 0);
        for step in 0..n_steps {
            alive.retain(|&index| items[index as usize].last >= step);
            carried.extend(&alive);
            carried_at.push(carried.len() as u32);
            while next < items.len() && items[next].first == step {
                alive.push(next as u32);
                next += 1;
            }
            begin_at.push(next as u32);
        }
        Some(Meetings { carried_at, carried, begin_at })
    }

    /// The items that are alive at some step of an item's life, itself included.
    fn with(&self, item: &Item) -> impl Iterator<Item = u32> {
        let step = item.first as usize;
        let carried = &self.carried[self.carried_at[step] as usize..self.carried_at[step + 1] as usize];
        carried.iter().copied().chain(self.begin_at[step]..self.begin_at[item.last as usize + 1])
    }
}

/// A search for placements of the same items, one after another.
pub(super) struct Ejection<'a> {
    items: &'a [Item],
    meetings: Meetings,
    pub(super) offsets: Vec<u64>,
    areas: Vec<u128>,
    /// How hard it was to place each item so far.
    resistance: Vec<u64>,
    random: Random,
    pub(super) work: u64,
    // Scratch: the items that an item meets, where they begin and where they end, with their resistance.
    met: Vec<u32>,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl<'a> Ejection<'a> {
    /// A search among placements of items sorted by their first step, unless too many of them meet.
    pub(super) fn new(items: &'a [Item], n_steps: u32) -> Option<Ejection<'a>> {
        Some(Ejection {
            meetings: Meetings::of(items, n_steps)?,
            offsets: vec![NOWHERE; items.len()],
            areas: items.iter().map(|item| item.size as u128 * item.duration() as u128).collect(),
            resistance: vec![1; items.len()],
            random: Random::new(2),
            work: 0,
            met: Vec::new(),
            begins: Vec::new(),
            ends: Vec::new(),
            items,
        })
    }

    /// What it takes about to place every item once.
    pub(super) fn pass(&self) -> u64 {
        let met = |item: &Item| 16 + 4 * self.meetings.with(item).count() as u64;
        self.items.iter().map(met).sum()
    }

    /// Places all items in an arena of this size, from none, until that much work is done.
    pub(super) fn search(&mut self, capacity: u64, until: u64) -> bool {
        if capacity > u64::MAX >> RESISTANCE_BITS {
            return false;
        }
        self.offsets.fill(NOWHERE);
        self.resistance.fill(1);
        let mut waiting: Vec<u32> = (0..self.items.len() as u32).collect();
        waiting.sort_by_key(|&index| self.areas[index as usize]);
        while !waiting.is_empty() {
            let last = waiting.len() - 1;
            let weight = |at: &usize| {
                let index = waiting[*at] as usize;
                self.areas[index] * self.resistance[index] as u128
            };
            let next = (last.saturating_sub(WAITING - 1)..=last).max_by_key(weight);
            waiting.swap(next.expect("one waits"), last);
            let index = waiting.pop().expect("one waits") as usize;
            let item = self.items[index];
            if item.size > capacity || self.work > until {
                return false;
            }
            self.look_around(&item);
            let (place, resistance) = self.place_of_least_resistance(item.size, capacity);
            if resistance > 0 {
                self.resistance[index] += 1;
                for &other in &self.met {
                    let offset = self.offsets[other as usize];
                    if offset < place + item.size && place < offset + self.items[other as usize].size {
                        self.offsets[other as usize] = NOWHERE;
                        waiting.push(other);
                    }
                }
            }
            self.offsets[index] = place;
        }
        true
    }

    /// Finds out what has a place during an item's life.
    fn look_around(&mut self, item: &Item) {
        let Ejection { items, meetings, offsets, resistance, met, begins, ends, work, .. } = self;
        met.clear();
        begins.clear();
        ends.clear();
        for other in meetings.with(item) {
            let (index, offset) = (other as usize, offsets[other as usize]);
            *work += 1;
            if offset != NOWHERE {
                met.push(other);
                let resistance = resistance[index].min(MOST_RESISTANCE);
                begins.push(offset << RESISTANCE_BITS | resistance);
                ends.push((offset + items[index].size) << RESISTANCE_BITS | resistance);
            }
        }
        begins.sort_unstable();
        ends.sort_unstable();
        *work += 16 + 6 * met.len() as u64;
    }

    /// The place with the least resistance, the lowest of those without any.
    fn place_of_least_resistance(&mut self, size: u64, capacity: u64) -> (u64, u64) {
        let Ejection { begins, ends, random, .. } = self;
        let highest = capacity - size;
        let (address, resistance) = (|x: u64| x >> RESISTANCE_BITS, |x: u64| x & MOST_RESISTANCE);
        // What is next to nothing, nor at the bottom or the top, can as well be moved until it is: just below where something begins or where it ends.
        let mut under = begins.partition_point(|&x| address(x) < size);
        let mut over = 0;
        let (mut below, mut passed, mut sum) = (0, 0, 0);
        let (mut best, mut equals) = ((0, u64::MAX), 0);
        let mut at = 0;
        loop {
            while below < begins.len() && address(begins[below]) < at + size {
                sum += resistance(begins[below]);
                below += 1;
            }
            while passed < ends.len() && address(ends[passed]) <= at {
                sum -= resistance(ends[passed]);
                passed += 1;
            }
            if sum < best.1 {
                (best, equals) = ((at, sum), 1);
            } else if sum == best.1 {
                // Which of equals is a matter of chance: always the same would go round in circles.
                equals += 1;
                if random.below(equals) == 0 {
                    best.0 = at;
                }
            }
            if sum == 0 || at == highest {
                return best;
            }
            while under < begins.len() && address(begins[under]) - size <= at {
                under += 1;
            }
            while over < ends.len() && address(ends[over]) <= at {
                over += 1;
            }
            let next_under = begins.get(under).map_or(highest, |&x| address(x) - size);
            let next_over = ends.get(over).map_or(highest, |&x| address(x));
            at = next_under.min(next_over).min(highest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ALIGNMENT, Buffer, Problem};
    use super::*;

    /// Rows of items that change places at random, so that the same is alive at every step and the arena is full.
    fn full_rows(random: &mut Random, n_steps: u32, height: u64) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        let mut at = 0;
        while at < height {
            let size = (1 + random.below(5)).min(height - at);
            let mut first = 0;
            while first < n_steps {
                let last = (first + random.below(6) as u32).min(n_steps - 1);
                buffers.push(Buffer { bytes: size * ALIGNMENT, first, last });
                first = last + 1;
            }
            at += size;
        }
        buffers
    }

    #[test]
    fn what_is_found_is_a_placement() {
        let mut random = Random::new(3);
        let mut n_found = 0;
        for _ in 0..40 {
            let problem = Problem::new(&full_rows(&mut random, 60, 40));
            let mut search = Ejection::new(&problem.items, problem.n_steps).expect("these are few");
            let capacity = problem.lower_bound + problem.lower_bound / 20;
            if !search.search(capacity, 1_000_000) {
                continue;
            }
            n_found += 1;
            for (a, at) in problem.items.iter().zip(&search.offsets) {
                assert!(at + a.size <= capacity);
                for (b, other) in problem.items.iter().zip(&search.offsets) {
                    let meet = a.buffer != b.buffer && a.first <= b.last && b.first <= a.last;
                    assert!(!meet || at + a.size <= *other || other + b.size <= *at, "{a:?} at {at}, {b:?} at {other}");
                }
            }
        }
        assert!(n_found >= 38, "{n_found} of 40");
    }

    #[test]
    fn it_ends_where_there_is_no_placement() {
        // Seven units are alive at every step, and only an arena of eight has room for them (see `fill.rs`).
        let buffer = |(size, first, last)| Buffer { bytes: size * ALIGNMENT, first, last };
        let lives = [(6, 0, 0), (1, 0, 2), (2, 1, 1), (4, 1, 3), (1, 2, 2), (1, 2, 4), (2, 3, 3), (6, 4, 4)];
        let problem = Problem::new(&lives.map(buffer));
        let mut search = Ejection::new(&problem.items, problem.n_steps).expect("these are few");
        assert!(!search.search(7, 100_000));
        assert!(search.search(8, 200_000));
        assert!(!search.search(5, 300_000), "an item is larger than that");
        assert!(!search.search(u64::MAX, 400_000), "no arena is so large");
    }
}
