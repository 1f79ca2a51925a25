//! Fills an arena of a given size from below, trying everything that could matter until it works out.
//!
//! Look at a [`Valley`] of the floor and at one of its steps. Either one of the items that can be put down there stands on
//! the floor at that step, or the space above the floor is lost at that step, up to the lowest height at which an item
//! can come to stand. Trying these in turn is complete: it finds a placement or proves that there is none.
//!
//! What makes it fast is that a step can lose only as much space as the arena is larger than what is alive then. Where
//! nothing can be put down, space is lost at once. Where one item can be put down and no space can be lost, it is
//! put down at once. Where there is a choice, the step with the fewest choices comes first, and steps where the search has
//! failed before come earlier still. The idea of filling from below with a bound per step is that of MiniMalloc (Moffitt,
//! 2023); valleys in place of one rising line keep the choices local.

use super::Item;
use super::floors::{Floors, Valley};

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Every item has its offset.
    Found,
    /// There is no placement.
    Impossible,
    /// The work allowed did not suffice.
    Unknown,
}

/// A search for placements of the same items, one after another.
pub(super) struct Fill<'a> {
    pub(super) floors: Floors<'a>,
    capacity: u64,
    /// Of several items that can be put down, the one with the highest preference is tried first.
    pub(super) preference: Vec<f64>,
    /// What can happen at each step, as of when it was last settled.
    outlooks: Vec<Outlook>,
    n_failures: Vec<f64>,
    /// Falls from 1 towards 0 as failures add up.
    ease: Vec<f64>,
    // Scratch, by step.
    n_firm: Vec<u32>,
    n_more_items: Vec<i32>,
    before: Vec<u64>,
    after: Vec<u64>,
}

/// What can happen at one step of a valley.
#[derive(Clone, Copy)]
struct Outlook {
    /// How many items can be put down, and one more if space can be lost; zero outside valleys.
    n_choices: u32,
    /// How high the floor is when nothing is put down on it; `None` if the arena is too small for that.
    raised: Option<u64>,
}

const NOT_IN_A_VALLEY: Outlook = Outlook { n_choices: 0, raised: None };

/// A choice that was made and can be made differently.
struct Choice {
    step: usize,
    /// The items that can still be put down, the preferred one last.
    items: Vec<u32>,
    /// What remains when all items have failed.
    raised: Option<u64>,
    /// How many changes there were before.
    n_changes: usize,
}

/// Some step can lose no more space, and yet nothing can be put down there.
struct DeadEnd;

/// The size of no item.
const NONE: u64 = u64::MAX;

impl<'a> Fill<'a> {
    /// A search among placements of items sorted by their first step, then last step, then size.
    pub(super) fn new(items: &'a [Item], n_steps: u32) -> Fill<'a> {
        let n = n_steps as usize;
        Fill {
            floors: Floors::new(items, n_steps),
            capacity: 0,
            preference: vec![0.0; items.len()],
            outlooks: vec![NOT_IN_A_VALLEY; n],
            n_failures: vec![0.0; n],
            ease: vec![1.0; n],
            n_firm: vec![0; n + 1],
            n_more_items: vec![0; n + 1],
            before: vec![0; n],
            after: vec![0; n],
        }
    }

    /// Prepares for an arena of another size, which is no smaller than what is alive at any step.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.n_failures.fill(0.0);
        self.ease.fill(1.0);
        self.floors.undo(0);
        self.floors.mark_all_stale();
    }

    /// Searches from an empty arena until `n_nodes` choices and dead ends were met or the floors have done `until` work.
    pub(super) fn search(&mut self, n_nodes: u64, until: u64) -> Outcome {
        self.floors.undo(0);
        let mut choices = Vec::new();
        for _ in 0..n_nodes {
            if self.settle().is_ok() {
                if self.floors.n_left == 0 {
                    return Outcome::Found;
                }
                let choice = self.choice();
                choices.push(choice);
            }
            if !self.choose(&mut choices) {
                return Outcome::Impossible;
            }
            if self.floors.work >= until {
                break;
            }
        }
        Outcome::Unknown
    }

    /// Does what there is no choice about, everywhere, and finds out what choices there are.
    fn settle(&mut self) -> Result<(), DeadEnd> {
        while let Some(step) = self.floors.next_stale() {
            let steps = self.floors.level_around(step);
            self.floors.mark_settled(steps.clone());
            self.outlooks[steps.clone()].fill(NOT_IN_A_VALLEY);
            if let Some(valley) = self.floors.valley(steps) {
                self.settle_valley(&valley)?;
            }
        }
        Ok(())
    }

    fn settle_valley(&mut self, valley: &Valley) -> Result<(), DeadEnd> {
        self.look_out(valley);
        let mut has_raised = false;
        let mut forced = None;
        for step in valley.steps.clone() {
            match self.outlooks[step] {
                Outlook { n_choices: 0, .. } => {
                    self.note_failure(step);
                    self.floors.mark_stale(valley.steps.clone());
                    return Err(DeadEnd);
                }
                Outlook { n_choices: 1, raised: Some(raised) } => {
                    self.floors.raise(step, raised);
                    has_raised = true;
                }
                Outlook { n_choices: 1, raised: None } if forced.is_none() => forced = Some(step),
                _ => (),
            }
        }
        // Raising has changed what can be put down; the valley is stale and will be settled again.
        if let Some(step) = forced
            && !has_raised
        {
            let index = self.ready_at(valley, step)[0];
            self.floors.put(index as usize);
        }
        Ok(())
    }

    /// Finds out what can happen at each step of a valley.
    fn look_out(&mut self, valley: &Valley) {
        let Fill { floors, capacity, outlooks, n_firm, n_more_items, before, after, .. } = self;
        let (first, last) = (*valley.steps.start(), *valley.steps.end());
        // The items at a step are those at the step before and these, the smallest item that ends or begins there.
        n_more_items[first..=last + 1].fill(0);
        before[first..=last].fill(NONE);
        after[first..=last].fill(NONE);
        floors.each_ready(valley, n_firm, |_, item| {
            let (first, last) = (item.first as usize, item.last as usize);
            n_more_items[first] += 1;
            n_more_items[last + 1] -= 1;
            before[last] = before[last].min(item.size);
            after[first] = after[first].min(item.size);
        });
        let mut smallest = NONE;
        for step in valley.steps.clone().rev() {
            let here = std::mem::replace(&mut after[step], smallest);
            smallest = smallest.min(here);
        }
        let (mut n_items, mut smallest) = (0, NONE);
        for step in valley.steps.clone() {
            n_items += n_more_items[step];
            // If nothing at this step stands on the floor, then the lowest item there stands on a side of the valley, or
            // at least as high as the smallest item is that stands on the floor beside this step.
            let beside = smallest.min(after[step]);
            let above_beside = (beside != NONE).then(|| valley.floor + beside);
            let lowest = valley.side.into_iter().chain(above_beside).min();
            let raised = lowest.filter(|height| height + floors.rest[step] <= *capacity);
            outlooks[step] = Outlook { n_choices: n_items as u32 + raised.is_some() as u32, raised };
            smallest = smallest.min(before[step]);
        }
    }

    fn note_failure(&mut self, step: usize) {
        self.n_failures[step] += 1.0;
        self.ease[step] = 1.0 / (1.0 + self.n_failures[step].sqrt());
    }

    /// The items that can be put down in a valley and cover a step.
    fn ready_at(&mut self, valley: &Valley, step: usize) -> Vec<u32> {
        let mut ready = Vec::new();
        self.floors.each_ready(valley, &mut self.n_firm, |index, item| {
            if item.steps().contains(&step) {
                ready.push(index as u32);
            }
        });
        ready
    }

    /// The next choice to make, when all is settled.
    fn choice(&mut self) -> Choice {
        let step = self.hardest_step();
        let steps = self.floors.level_around(step);
        let valley = self.floors.valley(steps).expect("choices are in valleys");
        let mut items = self.ready_at(&valley, step);
        // The list is sorted by lifetime, so equal preferences are no matter of chance.
        items.sort_by(|&a, &b| self.preference[a as usize].total_cmp(&self.preference[b as usize]));
        Choice { step, items, raised: self.outlooks[step].raised, n_changes: self.floors.n_changes() }
    }

    /// The step with the fewest choices, weighed by failures; of equals the one that can lose the least space.
    fn hardest_step(&mut self) -> usize {
        self.floors.work += self.outlooks.len() as u64 / 4;
        let mut hardest = (f64::MAX, u64::MAX, 0);
        for (step, outlook) in self.outlooks.iter().enumerate().filter(|(_, outlook)| outlook.n_choices > 0) {
            let choices = outlook.n_choices as f64 * self.ease[step];
            let slack = self.capacity - self.floors.floor[step] - self.floors.rest[step];
            if (choices, slack) < (hardest.0, hardest.1) {
                hardest = (choices, slack, step);
            }
        }
        hardest.2
    }

    /// Takes the next way at the last choice that has one left; `false` if none has.
    fn choose(&mut self, choices: &mut Vec<Choice>) -> bool {
        while let Some(choice) = choices.last_mut() {
            self.floors.undo(choice.n_changes);
            if let Some(index) = choice.items.pop() {
                self.floors.put(index as usize);
                return true;
            }
            if let Some(raised) = choice.raised.take() {
                self.floors.raise(choice.step, raised);
                return true;
            }
            choices.pop();
        }
        false
    }
}
