//! Looks for the smallest arena with a search that, given enough work, is exact.
//!
//! [`Fill`] answers whether the items fit in an arena of one size. Here the sizes are chosen, by halving the gap between what is
//! reached and what is not, and the search is restarted often with other preferences: half of the time a simple order, half
//! of the time the order of the smallest placement known, both more or less disturbed. Restarts with what was learnt about
//! the hard steps, and the known placement as a guide, reached with the same work a third of the gap that was left without.

use super::fill::{Fill, Outcome};
use super::greedy::{Packer, Solution};
use super::random::Random;
use super::{Goal, Item, Problem, live_sums};

/// Lowers a solution as far as `work` allows, until the goal is reached.
pub(super) fn improve(packer: &mut Packer, best: &mut Solution, goal: &Goal, work: u64) {
    let problem = packer.problem;
    let n = problem.items.len() as u64;
    // A single descent takes about this much; with less than a few of them there is nothing to be learnt.
    if 2 * n * n > work {
        return;
    }
    let (large, small) = by_size(problem);
    let items: Vec<Item> = large.iter().map(|&index| problem.items[index as usize]).collect();
    let guide = large.iter().map(|&index| best.offsets[index as usize]).collect();
    let mut search = Search { fill: Fill::new(&items, problem.n_steps), guide, random: Random::new(1) };

    let mut reached = best.height;
    // Nothing below this is worth trying: it would be better than needed, or is proven impossible.
    let mut possible = goal.height;
    let mut share = (work / 30).max(6 * n * n);
    while reached > possible + goal.tolerance && search.work() < work {
        let mut untried = possible;
        let mut target = possible;
        while reached > untried + goal.tolerance && search.work() < work {
            match search.attempt(target, work.min(search.work() + share)) {
                Outcome::Found => {
                    let height = packer.pack_around(&large, &search.guide, &small);
                    if height < best.height {
                        *best = Solution::new(packer.offsets.clone(), height);
                    }
                    reached = height.min(target);
                }
                Outcome::Impossible => {
                    possible = target + 1;
                    untried = target + 1;
                }
                Outcome::Unknown => untried = target + 1,
            }
            target = untried + reached.saturating_sub(untried) / 2;
        }
        share *= 3;
    }
}

/// The items that decide, and those so small that they hardly add to the height; these fill gaps afterwards, longest first.
///
/// Leaving them out makes the search faster and, since losing a few bytes here and there is then no choice, better.
fn by_size(problem: &Problem) -> (Vec<u32>, Vec<u32>) {
    let mut largest_small = 0;
    for shift in (4..40).rev() {
        let below = problem.lower_bound >> shift;
        let small: Vec<Item> = problem.items.iter().copied().filter(|item| item.size < below).collect();
        let live = live_sums(&small, problem.n_steps).into_iter().max().unwrap_or(0);
        if live > problem.lower_bound / 2000 {
            break;
        }
        largest_small = below;
    }
    let is_large = |&index: &u32| problem.items[index as usize].size >= largest_small;
    let (large, mut small): (Vec<u32>, Vec<u32>) = (0..problem.items.len() as u32).partition(is_large);
    small.sort_by_key(|&index| std::cmp::Reverse(problem.items[index as usize].duration()));
    (large, small)
}

struct Search<'a> {
    fill: Fill<'a>,
    /// The offsets of the smallest placement known.
    guide: Vec<u64>,
    random: Random,
}

impl Search<'_> {
    /// Operations so far.
    fn work(&self) -> u64 {
        self.fill.floors.work
    }

    /// Looks for a placement in an arena of this size; if there is one it becomes the guide.
    fn attempt(&mut self, capacity: u64, until: u64) -> Outcome {
        self.fill.set_capacity(capacity);
        let mut n_nodes = 20.0 + 1.2 * self.guide.len() as f64;
        for round in 0.. {
            self.set_preferences(round, capacity);
            match self.fill.search(n_nodes as u64, until) {
                Outcome::Unknown if self.work() < until => (),
                outcome => {
                    if outcome == Outcome::Found {
                        self.guide.clone_from(&self.fill.floors.offsets);
                    }
                    return outcome;
                }
            }
            if round % 4 == 3 {
                n_nodes *= 1.1;
            }
        }
        unreachable!("rounds end when the work is done")
    }

    fn set_preferences(&mut self, round: u64, capacity: u64) {
        let kind = (round / 2 % 4) as usize;
        let is_guided = round % 2 == 1;
        let disturbance = match (is_guided, round / 8) {
            (true, _) => [0.0, 0.01, 0.05, 0.2][kind] * capacity as f64,
            (false, 0) => 0.0,
            (false, _) => 0.3,
        };
        for (index, item) in self.fill.floors.items.iter().enumerate() {
            let (size, duration) = (item.size as f64, item.duration() as f64);
            let chance = disturbance * self.random.signed();
            self.fill.preference[index] = if is_guided {
                chance - self.guide[index] as f64
            } else {
                // Longest first (the size tips the scales), largest area, largest size, and between the first two.
                let rank = [duration * 1e9 + size * 1e-3, duration * size, size, duration * duration * size][kind];
                rank * (1.0 + chance)
            };
        }
    }
}
