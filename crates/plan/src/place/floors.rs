//! A half-filled arena: for every step, the floor on which the next item would stand.
//!
//! The arena is filled from below, so all that matters of the items already placed is how high they reach at each step.
//! Space can also be given up: the floor is raised and is then not *firm*. All changes can be taken back, last first.

use super::{Item, live_sums};
use std::ops::RangeInclusive;

/// Steps from the first to the second, both included.
pub(super) type Steps = RangeInclusive<usize>;

pub(super) struct Floors<'a> {
    pub(super) items: &'a [Item],
    /// The items that begin at step `s` are those from `begin_at[s]` up to `begin_at[s + 1]`.
    begin_at: Vec<usize>,
    /// Whether an equal item comes just before in the list. Of equal items the first is always placed first.
    is_twin: Vec<bool>,

    /// The lowest address that is still open, by step.
    pub(super) floor: Vec<u64>,
    /// Whether the floor is the ground or the top of an item, by step.
    firm: Vec<bool>,
    /// The sizes of the items still to come, added up, by step. At a step with none the arena is done: a wall.
    pub(super) rest: Vec<u64>,

    placed: Vec<bool>,
    pub(super) offsets: Vec<u64>,
    pub(super) n_left: usize,

    changes: Vec<Change>,
    /// What `firm` was at each step of each change.
    firm_before: Vec<bool>,
    /// Steps where something has changed, there or next to them, since they were last settled.
    stale: Vec<bool>,
    /// No step before this one is stale.
    stale_from: usize,
    /// Elementary operations so far.
    pub(super) work: u64,
}

enum Change {
    Put { index: u32 },
    Raise { step: u32, from: u64 },
}

/// A level part of the floor with higher ground or walls on both sides.
///
/// Only items that lie within it can be put down on its floor, since any other stands on one of the sides.
pub(super) struct Valley {
    pub(super) steps: Steps,
    pub(super) floor: u64,
    /// The height of its lower side; `None` between two walls.
    pub(super) side: Option<u64>,
}

impl<'a> Floors<'a> {
    /// An empty arena for items sorted by their first step, then last step, then size.
    pub(super) fn new(items: &'a [Item], n_steps: u32) -> Floors<'a> {
        let begin_at = (0..=n_steps).map(|step| items.partition_point(|item| item.first < step)).collect();
        let is_twin = (0..items.len()).map(|at| at > 0 && items[at].equals(&items[at - 1])).collect();
        let n_steps = n_steps as usize;
        Floors {
            items,
            begin_at,
            is_twin,
            floor: vec![0; n_steps],
            firm: vec![true; n_steps],
            rest: live_sums(items, n_steps as u32),
            placed: vec![false; items.len()],
            offsets: vec![0; items.len()],
            n_left: items.len(),
            changes: Vec::new(),
            firm_before: Vec::new(),
            stale: vec![true; n_steps],
            stale_from: 0,
            work: 0,
        }
    }

    /// Puts an item down on the floor, which is level there.
    pub(super) fn put(&mut self, index: usize) {
        let item = &self.items[index];
        self.offsets[index] = self.floor[item.first as usize];
        self.placed[index] = true;
        self.n_left -= 1;
        for step in item.steps() {
            self.floor[step] += item.size;
            self.rest[step] -= item.size;
            self.firm_before.push(self.firm[step]);
            self.firm[step] = true;
        }
        self.mark_stale(item.steps());
        self.changes.push(Change::Put { index: index as u32 });
    }

    /// Gives up the space between the floor and `to` at one step.
    pub(super) fn raise(&mut self, step: usize, to: u64) {
        self.changes.push(Change::Raise { step: step as u32, from: self.floor[step] });
        self.floor[step] = to;
        self.firm_before.push(self.firm[step]);
        self.firm[step] = false;
        self.mark_stale(step..=step);
    }

    /// How many changes have been made and not taken back.
    pub(super) fn n_changes(&self) -> usize {
        self.changes.len()
    }

    /// Takes back all but the first `n_kept` changes.
    pub(super) fn undo(&mut self, n_kept: usize) {
        while self.changes.len() > n_kept {
            let steps = match self.changes.pop().expect("there are more changes than are kept") {
                Change::Put { index } => {
                    let item = &self.items[index as usize];
                    self.placed[index as usize] = false;
                    self.n_left += 1;
                    for step in item.steps() {
                        self.floor[step] -= item.size;
                        self.rest[step] += item.size;
                    }
                    item.steps()
                }
                Change::Raise { step, from } => {
                    self.floor[step as usize] = from;
                    step as usize..=step as usize
                }
            };
            let kept = self.firm_before.len() - (steps.end() + 1 - steps.start());
            self.firm[steps.clone()].copy_from_slice(&self.firm_before[kept..]);
            self.firm_before.truncate(kept);
            self.mark_stale(steps);
        }
    }

    /// Notes that these steps, and the ones next to them, are to be settled anew.
    pub(super) fn mark_stale(&mut self, steps: Steps) {
        let first = steps.start().saturating_sub(1);
        // The level parts on both sides see another side now.
        let last = (steps.end() + 1).min(self.stale.len() - 1);
        self.stale[first..=last].fill(true);
        self.stale_from = self.stale_from.min(first);
        self.work += (last - first) as u64 / 2;
    }

    /// Notes that all is to be settled anew.
    pub(super) fn mark_all_stale(&mut self) {
        self.stale.fill(true);
        self.stale_from = 0;
    }

    /// A step to settle, if there is one.
    pub(super) fn next_stale(&mut self) -> Option<usize> {
        let ahead = self.stale[self.stale_from..].iter().position(|&stale| stale);
        self.stale_from = ahead.map_or(self.stale.len(), |ahead| self.stale_from + ahead);
        ahead.map(|_| self.stale_from)
    }

    /// Notes that these steps are settled as they now are.
    pub(super) fn mark_settled(&mut self, steps: Steps) {
        self.stale[steps].fill(false);
    }

    /// The level part of the floor around a step; a wall stands alone.
    pub(super) fn level_around(&mut self, step: usize) -> Steps {
        if self.rest[step] == 0 {
            return step..=step;
        }
        let (mut first, mut last) = (step, step);
        let level = |other: usize| self.floor[other] == self.floor[step] && self.rest[other] > 0;
        while first > 0 && level(first - 1) {
            first -= 1;
        }
        while last + 1 < self.floor.len() && level(last + 1) {
            last += 1;
        }
        self.work += (last - first) as u64 / 2 + 1;
        first..=last
    }

    /// The valley with this level floor; `None` if one of its sides is lower, or it is a wall.
    pub(super) fn valley(&self, steps: Steps) -> Option<Valley> {
        let is_open = |step: &usize| *step < self.rest.len() && self.rest[*step] > 0;
        let side = |step: Option<usize>| step.filter(is_open).map(|step| self.floor[step]);
        let sides = [side(steps.start().checked_sub(1)), side(Some(steps.end() + 1))];
        let floor = self.floor[*steps.start()];
        let is_valley = is_open(steps.start()) && sides.iter().flatten().all(|&side| side > floor);
        is_valley.then(|| Valley { steps, floor, side: sides.into_iter().flatten().min() })
    }

    /// Calls `each` for the items that can be put down in a valley.
    ///
    /// An item must stand on firm ground somewhere. If not, it could be lowered, and the arena with it lowered
    /// is found elsewhere in the search.
    pub(super) fn each_ready(&mut self, valley: &Valley, n_firm: &mut [u32], mut each: impl FnMut(usize, &Item)) {
        let (first, last) = (*valley.steps.start(), *valley.steps.end());
        n_firm[first] = 0;
        for step in first..=last {
            n_firm[step + 1] = n_firm[step] + self.firm[step] as u32;
        }
        let indices = self.begin_at[first]..self.begin_at[last + 1];
        self.work += (last - first + indices.len()) as u64 + 1;
        for index in indices {
            let item = &self.items[index];
            let waits = self.is_twin[index] && !self.placed[index - 1];
            let is_within = item.last as usize <= last && !self.placed[index] && !waits;
            if is_within && n_firm[item.last as usize + 1] > n_firm[item.first as usize] {
                each(index, item);
            }
        }
    }
}
