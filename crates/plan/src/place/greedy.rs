//! Places items one by one in a given order, and the orders worth trying.

use super::occupancy::{Fit, Occupancy};
use super::shelf::Shelf;
use super::{Goal, Item, Problem, live_sums};
use std::cmp::Reverse;

/// Offsets for all items.
pub(super) struct Solution {
    pub(super) offsets: Vec<u64>,
    pub(super) height: u64,
}

/// Places the items of a problem, again and again.
pub(super) struct Packer<'a> {
    pub(super) problem: &'a Problem,
    occupancy: Occupancy,
    /// Takes over when the tree of `occupancy` turns out to be slower, with the same results.
    shelf: Option<Shelf>,
    /// The offsets that the last pass found.
    pub(super) offsets: Vec<u64>,
}

impl<'a> Packer<'a> {
    pub(super) fn new(problem: &'a Problem) -> Packer<'a> {
        let occupancy = Occupancy::new(problem.n_steps);
        Packer { problem, occupancy, shelf: None, offsets: vec![0; problem.items.len()] }
    }

    /// Places all items in this order and returns the height, or `None` as soon as it is `limit` or more.
    pub(super) fn pack(&mut self, order: &[u32], fit: Fit, limit: u64) -> Option<u64> {
        self.clear();
        let mut height = 0;
        for (at, &index) in order.iter().enumerate() {
            if self.shelf.is_none() && at % 256 == 255 {
                self.change_to_shelf_if_faster(&order[..at]);
            }
            height = height.max(self.place(index, fit));
            if height >= limit {
                return None;
            }
        }
        Some(height)
    }

    /// Places some items, which have offsets, no higher than these, then the rest in order, and returns the height.
    pub(super) fn pack_by_offset(&mut self, some: &[u32], offsets: &[u64], rest: &[u32]) -> u64 {
        // In the order of their offsets each goes to the lowest gap: what is in its way stands below, and no higher than it did.
        let mut order: Vec<(u64, u32)> = offsets.iter().copied().zip(some.iter().copied()).collect();
        order.sort_unstable();
        let order: Vec<u32> = order.into_iter().map(|(_, index)| index).chain(rest.iter().copied()).collect();
        self.pack(&order, Fit::First, u64::MAX).expect("no height is that large")
    }

    fn clear(&mut self) {
        match &mut self.shelf {
            Some(shelf) => shelf.clear(),
            None => self.occupancy.clear(),
        }
    }

    /// Places one item and returns its upper end.
    fn place(&mut self, index: u32, fit: Fit) -> u64 {
        let item = &self.problem.items[index as usize];
        let offset = match &mut self.shelf {
            Some(shelf) => shelf.place(item, fit),
            None => self.occupancy.place(item, fit),
        };
        self.offsets[index as usize] = offset;
        offset + item.size
    }

    /// Goes over to the shelf when a look at every item placed would take less time, over the whole pass.
    fn change_to_shelf_if_faster(&mut self, placed: &[u32]) {
        let n_items = self.problem.items.len() as u64;
        if self.occupancy.n_looks < placed.len() as u64 * n_items / (2 * LOOKS_AT_ITEMS_PER_RANGE) {
            return;
        }
        let mut shelf = Shelf::default();
        for &index in placed {
            shelf.take(&self.problem.items[index as usize], self.offsets[index as usize]);
        }
        self.shelf = Some(shelf);
    }
}

/// How many items of the shelf are looked at in the time that one range of the tree takes, roughly.
const LOOKS_AT_ITEMS_PER_RANGE: u64 = 12;

/// How many orders are tried again with the smallest gap in place of the lowest.
const BEST_FIT_ORDERS: usize = 4;

/// The best of several orders. No one of them wins everywhere. Where an exact search follows, the smallest gaps are not looked for: it finds
/// more.
pub(super) fn best_of_orders(packer: &mut Packer, goal: &Goal, smallest_gaps: bool) -> Solution {
    let mut best: Option<Solution> = None;
    let mut tried = Vec::new();
    for order in orders(packer.problem) {
        // What comes to more than the best so far is not looked at to its end.
        let bar = best.as_ref().map_or(u64::MAX, |best: &Solution| best.height);
        let Some(height) = packer.pack(&order, Fit::First, bar) else { continue };
        best = Some(Solution { offsets: packer.offsets.clone(), height });
        if goal.is_reached(height) {
            break;
        }
        tried.push((height, order));
    }
    let mut best = best.expect("there are orders");
    // Takes several times as long, since all gaps are looked at, so only where it promises most.
    tried.sort_by_key(|&(height, _)| height);
    for (_, order) in tried.into_iter().take(if smallest_gaps { BEST_FIT_ORDERS } else { 0 }) {
        if goal.is_reached(best.height) {
            break;
        }
        if let Some(height) = packer.pack(&order, Fit::Best, best.height) {
            best = Solution { offsets: packer.offsets.clone(), height };
        }
    }
    best
}

/// Orders in which to place the items, those that win most often first.
fn orders(problem: &Problem) -> Vec<Vec<u32>> {
    let crowds = crowds(problem);
    let sorted = |key: &dyn Fn(usize, &Item) -> (u64, u128)| {
        let mut order: Vec<u32> = (0..problem.items.len() as u32).collect();
        order.sort_by_cached_key(|&index| Reverse(key(index as usize, &problem.items[index as usize])));
        order
    };
    let area = |item: &Item| item.size as u128 * item.duration() as u128;
    vec![
        sorted(&|index, item| (crowds[index], by_duration(item))),
        sorted(&|_, item| (0, by_duration(item))),
        sorted(&|index, item| (crowds[index], item.size as u128)),
        sorted(&|_, item| (0, by_size(item))),
        sorted(&|_, item| (0, area(item))),
        sorted(&|_, item| (0, area(item).saturating_mul(item.size as u128))),
        sorted(&|_, item| (0, area(item).saturating_mul(item.duration() as u128))),
        sorted(&|_, item| (u64::MAX - item.first as u64, item.size as u128)),
    ]
}

fn by_duration(item: &Item) -> u128 {
    (item.duration() as u128) << 64 | item.size as u128
}

fn by_size(item: &Item) -> u128 {
    (item.size as u128) << 64 | item.duration() as u128
}

/// The most that is alive at any step of each item's life.
///
/// Items that meet the peak have the least freedom; placing them first is what keeps large graphs tight.
fn crowds(problem: &Problem) -> Vec<u64> {
    // Level `k` holds the largest of `2^k` neighbours from each step on.
    let mut levels = vec![live_sums(&problem.items, problem.n_steps)];
    while let Some(below) = levels.last()
        && below.len() > 1 << (levels.len() - 1)
    {
        let reach = 1 << (levels.len() - 1);
        let level = (0..below.len() - reach).map(|at| below[at].max(below[at + reach])).collect();
        levels.push(level);
    }
    let crowd = |item: &Item| {
        let level = item.duration().ilog2();
        let values = &levels[level as usize];
        values[item.first as usize].max(values[(item.last + 1 - (1 << level)) as usize])
    };
    problem.items.iter().map(crowd).collect()
}
