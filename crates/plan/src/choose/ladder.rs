//! The ladder: the rooms of a model for which there are choices.
//!
//! For every rung there is one choice, whoever asks, and a room gets the cheapest of those at and below it. So a larger room is not slower than a
//! smaller one: it has all of the smaller one's choices. Rungs are looked at from the room downwards, as long as one may still be cheaper, which its
//! first plan tells; the nearest are looked at in any case where that takes little. Of models with large graphs, or with many, only the nearest are looked
//! at, and large ones have rungs further apart: a choice takes longer there, and luck decides less.
//!
//! What a choice takes is not all of its rung. So a room may be kept by those of the next rungs above it, when they are packed as tightly as can be, and
//! they count too: what is faster and needs less is not only found by those who have more.

use super::step::{Prepared, Size};
use super::{Choice, Chooser, GRAIN, hasty};
use crate::limit::{self, Outcome};
use crate::{Plan, PlanError};

/// Two rungs are this part of what the steps take without a limit apart. Near the floor they are closer: by this part of what is above it, down to the
/// last part of the whole.
const APART: u64 = 96;
const NEAR_FLOOR: u64 = 4;
const LEAST_APART: u64 = 512;

/// Graphs up to so many nodes are small. Larger ones have fewer rungs.
const SMALL: usize = 1000;
const LARGE: usize = 2000;
const LARGEST: usize = 4000;
const EVERY: usize = 2;

/// So many nodes, of all graphs with every layout of the states, are looked at whatever others were found: those of the nearest rungs, up to so many.
const NODES_ANYWAY: usize = 16_000;
const MOST_ANYWAY: usize = 8;

/// Of so many rungs above the room for each one with a choice that is looked at.
const OF_THEM: usize = 3;

/// Where so many rungs in a row have no choice, those below have none.
const MISSES: usize = 3;

/// Parts of the states that may go to the file which are tried there.
const LAYOUTS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Where keeping the limit takes no larger part of the time, nothing else is tried.
const CHEAP: f64 = 0.02;

/// For a smaller part of the time nothing cheaper is looked for.
const NEGLIGIBLE: f64 = 1e-3;

/// What costs so many times more at first is not made cheaper than what is known by a longer search, nor what takes so many times longer in all.
const HOPELESS: f64 = 2.5;
const HOPELESS_IN_ALL: f64 = 1.25;

/// How far is looked, by the size of the graphs.
struct Reach {
    /// How many rungs, once there is a choice.
    nearest: usize,
    /// How many whatever was found at others.
    anyway: usize,
    /// How many above the room.
    above: usize,
}

/// What was found for a room.
enum Rung {
    Choice(Choice),
    /// It takes longer by far than what is known.
    TooSlow,
    /// Nothing that keeps within it.
    Nothing,
}

/// The rooms for which a small graph has choices, from what is needed without a limit down to the floor: the nearer to that the closer together.
fn rungs(unlimited: u64, floor: u64) -> impl Iterator<Item = u64> {
    let below = move |rung: &u64| {
        let apart = (rung.saturating_sub(floor) / NEAR_FLOOR).min(unlimited / APART);
        rung.checked_sub(apart.max(unlimited / LEAST_APART).max(GRAIN)).filter(|next| *next >= floor)
    };
    std::iter::successors(Some(unlimited), below).skip(1)
}

impl Chooser<'_> {
    /// The cheapest of the choices for a room, if it takes less than `known` seconds or these are infinite.
    pub(super) fn cheapest(&self, room: u64, known: f64) -> Result<Option<Choice>, PlanError> {
        if self.unlimited_bytes()? <= room {
            return Ok(Some(self.whole()?));
        }
        if self.floor()? > room {
            return Ok(None);
        }
        let mut best: Option<Choice> = None;
        let seconds = |best: &Option<Choice>| best.as_ref().map_or(known, |b| b.seconds().min(known));
        let is_enough = |best: &Option<Choice>| seconds(best) <= self.least_seconds() * (1.0 + NEGLIGIBLE);
        let reach = self.reach();
        let every = if self.most_nodes() > SMALL { EVERY } else { 1 };
        let rungs: Vec<u64> = rungs(self.unlimited_bytes()?, self.floor()?).step_by(every).collect();
        let (above, below) = rungs.split_at(rungs.partition_point(|rung| *rung > room));
        let (mut missed, mut ends) = (0, true);
        for (looked, &rung) in below.iter().enumerate() {
            if looked >= reach.nearest && best.is_some() || is_enough(&best) {
                // Where the nearest have none, the last one is near.
                ends = missed > 0 && !is_enough(&best);
                break;
            }
            let than = if looked < reach.anyway { known } else { seconds(&best) };
            match self.at_rung(rung, self.hopeless(than))? {
                Rung::Choice(choice) => {
                    self.keep_better(&mut best, choice);
                    missed = 0;
                }
                // Those below it are so even more.
                Rung::TooSlow => {
                    ends = false;
                    break;
                }
                Rung::Nothing if missed + 1 == MISSES => break,
                Rung::Nothing => missed += 1,
            }
        }
        if ends && let Some(choice) = self.at_least(room, seconds(&best), known)? {
            self.keep_better(&mut best, choice);
        }
        // Rungs without a choice are soon looked at.
        let mut left = reach.above;
        for &rung in above.iter().rev().take(OF_THEM * reach.above) {
            if left == 0 || is_enough(&best) {
                break;
            }
            if let Rung::Choice(choice) = self.at_rung(rung, self.hopeless(seconds(&best)))? {
                left -= 1;
                if let Some(choice) = self.tightened(choice, room, seconds(&best)) {
                    self.keep_better(&mut best, choice);
                }
            }
        }
        Ok(best)
    }

    /// A choice for a larger room that takes no more than `seconds`, packed so that it keeps within this one, if that does.
    fn tightened(&self, mut choice: Choice, room: u64, seconds: f64) -> Option<Choice> {
        let node_bytes = self.options.node_bytes;
        if choice.seconds() > seconds || choice.alive_bytes(node_bytes) > room {
            return None;
        }
        if choice.bytes(node_bytes) > room {
            choice.plans.iter_mut().for_each(limit::tighten);
        }
        Some(choice).filter(|choice| choice.bytes(node_bytes) <= room)
    }

    /// How far to look: the dearer a rung is, the less far.
    fn reach(&self) -> Reach {
        let nodes = self.most_nodes();
        let looked_at: usize = self.steps.iter().map(Prepared::all_nodes).sum::<usize>() * self.layouts().len();
        let anyway = (NODES_ANYWAY / looked_at.max(1)).clamp(1, MOST_ANYWAY);
        let (nearest, above) = match nodes {
            _ if nodes > LARGEST => (2, 0),
            _ if nodes > LARGE => (3, 0),
            _ if nodes > SMALL => (3, 1),
            // There are many ways to cut it.
            _ if anyway == 1 => (4, 2),
            _ => (usize::MAX, 4),
        };
        Reach { nearest, anyway, above }
    }

    /// Seconds of a first plan from which on a longer search is not expected to come below what is known.
    fn hopeless(&self, known: f64) -> f64 {
        let plain = self.sum_of(|seconds| seconds[0]);
        (plain + HOPELESS * (known - plain)).min(HOPELESS_IN_ALL * known)
    }

    /// How many of the states are tried in the file.
    fn layouts(&self) -> Vec<usize> {
        let movable = self.movable.len() as f64;
        let mut layouts: Vec<usize> = LAYOUTS.iter().map(|part| (movable * part).round() as usize).collect();
        layouts.dedup();
        layouts
    }

    /// The choice of the last rung, of the smallest room for which there is one, if it may be cheaper than the best so far. Where others know something
    /// faster, a plan that is only known to be there is not made.
    fn at_least(&self, room: u64, best: f64, known: f64) -> Result<Option<Choice>, PlanError> {
        let (least, n, _) = self.least_room()?;
        if least <= room {
            return match self.at_rung(least, self.hopeless(best))? {
                Rung::Choice(choice) => Ok(Some(choice)),
                Rung::TooSlow => Ok(None),
                Rung::Nothing if known < f64::INFINITY => Ok(None),
                Rung::Nothing => self.feasible(n, least)?.map(|way| self.finish(way, least)).transpose(),
            };
        }
        // The search that decides whether there is a way may find one for less.
        for n in [0, self.movable.len()].into_iter().filter(|_| best == f64::INFINITY) {
            if let Some(way) = self.feasible(n, room)? {
                return self.finish(way, room).map(Some);
            }
        }
        Ok(None)
    }

    fn keep_better(&self, best: &mut Option<Choice>, choice: Choice) {
        if best.as_ref().is_none_or(|b| choice.is_better_than(b, self.options.node_bytes)) {
            *best = Some(choice);
        }
    }

    /// Seconds that no choice is below.
    fn least_seconds(&self) -> f64 {
        self.sum_of(|seconds| seconds.iter().copied().fold(f64::INFINITY, f64::min))
    }

    /// The choice of a rung, if its first plan takes less than `most` seconds.
    fn at_rung(&self, room: u64, most: f64) -> Result<Rung, PlanError> {
        // Few states in the file first: reading and writing them costs more than what they make room for, mostly.
        let mut best = Rung::Nothing;
        for n in self.layouts() {
            let below = match &best {
                Rung::Choice(b) if b.extra_seconds() <= CHEAP * b.seconds() => break,
                Rung::Choice(b) => b.seconds(),
                _ => most,
            };
            // With ever more of them there it becomes cheaper up to some point, mostly, and then dearer.
            match (&best, self.quick(n, room, below)?) {
                (_, Rung::Choice(choice)) => best = Rung::Choice(choice),
                (Rung::Choice(_), _) => break,
                (_, Rung::TooSlow) => best = Rung::TooSlow,
                (_, Rung::Nothing) => {}
            }
        }
        match best {
            Rung::Choice(found) => Ok(Rung::Choice(self.finish(found, room)?)),
            none => Ok(none),
        }
    }

    /// The cheapest way that is found at once with `n` states in the file, if it takes less than `below` seconds.
    fn quick(&self, n: usize, room: u64, below: f64) -> Result<Rung, PlanError> {
        let layout = self.layout(n);
        let options = hasty(&self.options);
        let Some(space) = room.checked_sub(layout.bytes()) else { return Ok(Rung::Nothing) };
        // What steps that are not planned yet take at least counts too.
        let spare = below - self.sum_of(|seconds| seconds[0]);
        let (mut left, mut too_slow) = (spare, false);
        let plans = self.each_within(space, Size::of, |i, limit| {
            if i == 0 {
                left = spare;
            }
            let times = self.steps[i].times as f64;
            let most = left / times + self.seconds[i][0];
            let outcome = self.step(i, &options).quick_within(&layout, limit, most)?;
            too_slow = matches!(outcome, Outcome::TooSlow(_));
            let Outcome::Plan(plan) = outcome else { return Ok(None) };
            left -= (plan.recomputed.seconds - self.seconds[i][0]) * times;
            Ok(Some(*plan))
        })?;
        Ok(match plans {
            Some(plans) => Rung::Choice(self.choice(layout, plans)),
            None if too_slow => Rung::TooSlow,
            None => Rung::Nothing,
        })
    }

    /// The same choice after a longer search for cheaper plans with its layout.
    fn finish(&self, choice: Choice, room: u64) -> Result<Choice, PlanError> {
        let mut best = choice;
        for i in 0..self.steps.len() {
            let places: Vec<usize> = (0..self.which.len()).filter(|&place| self.which[place] == i).collect();
            let known = best.plans[places[0]].clone();
            let nodes = self.node_bytes(i) * Size::of(&known).nodes;
            let others = best.bytes(self.options.node_bytes) - best.bytes(0) - nodes;
            let limit = self.options.reserve.within(room.saturating_sub(best.layout.bytes() + others));
            let plan = self.step(i, &self.options).cheapest_within(&best.layout, limit, known)?;
            let put = |best: &mut Choice, plan: Plan| {
                places[1..].iter().for_each(|&place| best.plans[place] = plan.clone());
                std::mem::replace(&mut best.plans[places[0]], plan)
            };
            let before = put(&mut best, plan);
            if best.bytes(self.options.node_bytes) > room {
                put(&mut best, before);
            }
        }
        Ok(best)
    }
}
