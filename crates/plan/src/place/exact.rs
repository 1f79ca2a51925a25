//! Looks for the smallest arena with a search that, given enough work, is exact.
//!
//! [`Ejection`] and [`Fill`] answer whether the items fit in an arena of one size, the first soon if they do, the second for certain. Here the sizes
//! are chosen, by halving the gap between what is reached and what is not, and the two take turns. `Fill` is
//! restarted often with other preferences: half of the time a simple order, half of the time the order of the smallest placement known,
//! both more or less disturbed. With that guide, the same work left half of the gap that it left without, on the hardest steps tried.

use super::eject::Ejection;
use super::fill::{Fill, Outcome};
use super::greedy::{Packer, Solution};
use super::random::Random;
use super::{Clock, Goal, Item, Problem, live_sums};

/// Small items are left aside as long as together they come to no more than this part of what is alive, first many, then fewer: a search of few
/// items is soon done, and the others mostly find gaps afterwards.
///
/// Of 74 steps with transfers and much recomputing that simple orders leave above what is alive (575 to 4,080 buffers, the same work), the exact search alone
/// packed 17 to within a thousandth leaving aside one 2000th, 54 this way. 27 that it then left 2.3 % above what is alive in the mean, and 9 % at most, are left at
/// 1.2 % and 5 % since it takes turns with ejection.
const ASIDE: [u64; 5] = [8, 24, 100, 500, 2000];

/// How often every item may be placed, at least, before a search by ejection is given up for a time.
const PASSES: u64 = 10;

/// Lowers a solution as far as `work` allows, until the goal is reached.
pub(super) fn improve(packer: &mut Packer, best: &mut Solution, goal: &Goal, work: u64) {
    // With less than a look at every item there is nothing to be learnt.
    if goal.is_reached(best.height) || work < packer.problem.items.len() as u64 {
        return;
    }
    let alive = alive_below(packer.problem);
    let (mut left, mut n_tried) = (work, 0);
    for part in ASIDE {
        let most = packer.problem.lower_bound / part;
        let size = alive.iter().take_while(|(_, alive)| *alive <= most).last().map_or(0, |(size, _)| *size);
        let (large, small) = by_size(packer.problem, size);
        if large.len() == n_tried {
            continue;
        }
        n_tried = large.len();
        let is_last = small.is_empty() || Some(&part) == ASIDE.last();
        let share = if is_last { left } else { left / 2 };
        left = left.saturating_sub(improve_large(packer, best, goal, share, large, &small));
        if goal.is_reached(best.height) || left == 0 {
            return;
        }
    }
}

/// As `improve`, with the small items left aside and put into gaps afterwards; returns the work done.
fn improve_large(
    packer: &mut Packer,
    best: &mut Solution,
    goal: &Goal,
    work: u64,
    mut large: Vec<u32>,
    small: &[u32],
) -> u64 {
    let n = large.len() as u64;
    let (items, n_steps) = among_themselves(packer.problem, &mut large);
    let eject = Ejection::new(&items, n_steps).filter(|eject| eject.pass() <= work);
    // A descent takes about this much.
    let may_fill = n * n / 2 <= work;
    if eject.is_none() && !may_fill {
        return 0;
    }
    let may_eject = eject.is_some();
    // What is tried at once, at least: some passes of the one, some descents of the other.
    let (passes, descents) = (eject.as_ref().map_or(0, |eject| PASSES * eject.pass()), 2 * n * n);
    let guide = large.iter().map(|&index| best.offsets[index as usize]).collect();
    let mut search = Search { fill: Fill::new(&items, n_steps), eject, guide, random: Random::new(1) };

    let mut reached = best.height;
    // Nothing below this is worth trying: it would be better than needed, or is proven impossible.
    let mut possible = goal.height;
    let mut times = 1;
    let mut turn = if may_fill { Turn::Goal } else { Turn::Eject };
    while reached > possible + goal.tolerance && search.work() < work {
        let mut untried = possible;
        // What drives each other out finds no arena without a gap; a little more soon.
        let mut target = if turn == Turn::Eject { possible + (reached - possible) / 4 } else { possible };
        let least = if turn == Turn::Eject { passes } else { descents };
        while reached > untried + goal.tolerance && search.work() < work {
            let most = (times * least.max(work / 30)).min(work - search.work());
            match if turn == Turn::Eject { search.eject(target, most) } else { search.fill(target, most) } {
                Outcome::Found => {
                    let height = packer.pack_by_offset(&large, &search.guide, small);
                    if height < best.height {
                        *best = Solution { offsets: packer.offsets.clone(), height };
                    }
                    reached = height.min(target);
                }
                Outcome::Impossible => {
                    possible = target + 1;
                    untried = target + 1;
                }
                Outcome::Unknown => untried = target + 1,
            }
            if turn == Turn::Goal {
                break;
            }
            target = untried + reached.saturating_sub(untried) / 2;
        }
        (turn, times) = match turn {
            Turn::Goal if may_eject => (Turn::Eject, times),
            Turn::Eject if may_fill => (Turn::Fill, times),
            Turn::Fill if may_eject => (Turn::Eject, 3 * times),
            Turn::Goal => (Turn::Fill, times),
            turn => (turn, 3 * times),
        };
    }
    search.work()
}

/// Whose turn it is to look for a smaller arena.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// The exact search's, for the one that is wished for alone.
    Goal,
    /// Ejection's.
    Eject,
    /// The exact search's.
    Fill,
}

/// Some of the items, with steps that are numbered anew so that only those remain that matter among them, in the order of these.
fn among_themselves(problem: &Problem, chosen: &mut [u32]) -> (Vec<Item>, u32) {
    let of = |index: u32| problem.items[index as usize];
    let clock = Clock::new(chosen.iter().map(|&index| (of(index).first, of(index).last)));
    let renumbered = |index: u32| Item {
        first: clock.at_or_after(of(index).first),
        last: clock.before_or_at(of(index).last),
        ..of(index)
    };
    chosen.sort_by_key(|&index| {
        let item = renumbered(index);
        (item.first, item.last, item.size)
    });
    (chosen.iter().map(|&index| renumbered(index)).collect(), clock.n_steps())
}

/// Sizes, and the most that smaller items come to at one step; both rise.
fn alive_below(problem: &Problem) -> Vec<(u64, u64)> {
    let of = |size: u64| {
        let small: Vec<Item> = problem.items.iter().copied().filter(|item| item.size < size).collect();
        (size, live_sums(&small, problem.n_steps).into_iter().max().unwrap_or(0))
    };
    (4..40).rev().map(|shift| of(problem.lower_bound >> shift)).collect()
}

/// The items that decide, and those below a size; these fill gaps afterwards, longest first.
///
/// Leaving them out makes the search faster and, since losing a few bytes here and there is then no choice, better.
fn by_size(problem: &Problem, size: u64) -> (Vec<u32>, Vec<u32>) {
    let is_large = |&index: &u32| problem.items[index as usize].size >= size;
    let (large, mut small): (Vec<u32>, Vec<u32>) = (0..problem.items.len() as u32).partition(is_large);
    small.sort_by_key(|&index| std::cmp::Reverse(problem.items[index as usize].duration()));
    (large, small)
}

struct Search<'a> {
    fill: Fill<'a>,
    /// Unless too many items meet.
    eject: Option<Ejection<'a>>,
    /// The offsets of the smallest placement known.
    guide: Vec<u64>,
    random: Random,
}

impl Search<'_> {
    /// Operations so far.
    fn work(&self) -> u64 {
        self.fill.floors.work + self.eject.as_ref().map_or(0, |eject| eject.work)
    }

    /// Looks for a placement in an arena of this size with that much work; if one is found it becomes the guide.
    fn eject(&mut self, capacity: u64, work: u64) -> Outcome {
        let Some(eject) = &mut self.eject else { return Outcome::Unknown };
        if !eject.search(capacity, eject.work + work) {
            return Outcome::Unknown;
        }
        self.guide.clone_from(&eject.offsets);
        Outcome::Found
    }

    /// The same by filling, which can also prove that there is none.
    fn fill(&mut self, capacity: u64, work: u64) -> Outcome {
        let until = self.fill.floors.work + work;
        self.fill.set_capacity(capacity);
        let mut n_nodes = 20.0 + 1.2 * self.guide.len() as f64;
        for round in 0.. {
            self.set_preferences(round, capacity);
            match self.fill.search(n_nodes as u64, until) {
                Outcome::Unknown if self.fill.floors.work < until => (),
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
