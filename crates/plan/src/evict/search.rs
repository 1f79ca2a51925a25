//! The search for the cheapest run: fixed settings, then keys of single units varied at random.

use super::Effort;
use super::chain::Chain;
use super::exact::{self, Outcome};
use super::problem::Problem;
use super::simulate::{Bounds, Run, Setting, simulate};

/// Powers of cost, bytes and distance.
const POWERS: [(f64, f64, f64); 11] = [
    (1.0, 1.0, 1.0),
    (1.0, 1.0, 0.5),
    (1.0, 1.0, 2.0),
    (1.0, 1.0, 0.0),
    (0.5, 1.0, 1.0),
    (1.0, 0.5, 1.0),
    (0.5, 0.5, 2.0),
    (0.0, 0.0, 1.0),
    (1.0, 1.0, 0.25),
    (1.0, 1.0, 4.0),
    (2.0, 1.0, 1.0),
];

/// What is kept: (inherit, retain, hold).
const KEEPING: [(bool, bool, bool); 5] =
    [(true, false, true), (false, false, true), (true, true, true), (true, false, false), (true, true, false)];

/// What transfers count, and what is left to early reads.
const TRANSFERS: [(f64, f64); 8] =
    [(0.3, 0.05), (0.05, 0.0), (0.05, 0.05), (1.0, 0.0), (1.0, 0.1), (0.02, 0.15), (1000.0, 0.0), (1e-4, 0.02)];

/// Parts of the limit that are tried.
const PARTS: [f64; 6] = [1.0, 1.0, 0.98, 0.95, 0.9, 0.8];

/// Chains longer than this are left to the other ways: their recursion takes too long.
const LONGEST_CHAIN: usize = 160;
const MOST_CHECKPOINTS: usize = 48;

/// How many ways are improved further.
const POOL: usize = 4;

/// A way to run the step.
#[derive(Clone, Debug)]
struct Way {
    setting: Setting,
    keys: Vec<f64>,
    /// Of the limit, which the run was made for: what keeps a smaller limit keeps this one, and is sometimes faster.
    part: f64,
    run: Run,
}

/// How hard to look for the best run of a small problem, at least: also where the first run that is found would do, to know whether
/// there is one.
const EXACT: u64 = 400_000;

/// Settings that are tried where the first run that is found will do.
const QUICK_SETTINGS: usize = 6;

/// How many times its plain time a step may take: what is slower is of no use, and takes long to simulate.
const SLOWEST: f64 = 5.0;

/// A search, which remembers what worked for when it is asked with a smaller limit.
pub(super) struct Search<'a> {
    problem: &'a Problem,
    pool: Vec<Way>,
    dice: u64,
    work: u64,
}

impl<'a> Search<'a> {
    pub fn new(problem: &'a Problem) -> Search<'a> {
        Search { problem, pool: Vec::new(), dice: 0x2545_f491_4f6c_dd1d, work: 0 }
    }

    /// The best run found within a limit, of which none takes less than `bound` seconds. An effort of 0 takes the first run that is found.
    pub fn at(&mut self, limit: u64, bound: f64, effort: Effort) -> Option<Run> {
        if self.problem.floor().bytes > limit || bound == f64::INFINITY {
            return None;
        }
        // Close enough to what nothing can beat.
        let bound = bound * (1.0 + 1e-4);
        self.work = 0;
        let allowed = effort.base + effort.per_task * self.problem.tasks.len() as u64;
        let old = std::mem::take(&mut self.pool);
        for way in old {
            self.try_way((limit as f64 * way.part) as u64, way.setting, way.keys, f64::INFINITY);
        }
        let done = |s: &Self| s.best() <= bound || allowed == 0 && !s.pool.is_empty();
        if allowed > 0 && !done(self) {
            self.keep_checkpoints(limit, allowed);
        }
        let n_settings = if allowed == 0 { QUICK_SETTINGS } else { usize::MAX };
        for setting in self.settings().take(n_settings) {
            if done(self) || self.work > allowed / 2 && !self.pool.is_empty() {
                break;
            }
            let keys = vec![1.0; self.problem.units.len()];
            self.try_way(limit, setting, keys, self.best() * 1.1);
        }
        if self.problem.spill && !done(self) && !self.pool.is_empty() {
            self.vary_transfers(limit, allowed);
        }
        if allowed > 0 && !done(self) {
            self.climb(limit, bound, allowed);
        }
        if exact::is_small(self.problem) && !done(self) {
            let (outcome, work) = exact::best_run(self.problem, limit, self.best(), allowed.max(EXACT), effort.states);
            self.work += work;
            if let Outcome::Best(run) = outcome {
                return Some(run);
            }
        }
        self.pool.first().map(|way| way.run.clone())
    }

    /// A run within a limit for which transfers count nothing: what computing values again has no room for may be read all the same.
    pub fn at_any_cost(&mut self, limit: u64) -> Option<Run> {
        if self.problem.floor().bytes > limit {
            return None;
        }
        for setting in self.settings().take(QUICK_SETTINGS) {
            let keys = vec![1.0; self.problem.units.len()];
            self.try_way(limit, Setting { charge: 0.0, ..setting }, keys, f64::INFINITY);
            if !self.pool.is_empty() {
                break;
            }
        }
        self.pool.first().map(|way| way.run.clone())
    }

    fn settings(&self) -> impl Iterator<Item = Setting> + use<> {
        let combinations = POWERS.into_iter().flat_map(|powers| KEEPING.into_iter().map(move |k| (powers, k)));
        combinations.map(|((cost, bytes, distance), (inherit, retain, hold))| Setting {
            cost,
            bytes,
            distance,
            inherit,
            retain,
            hold,
            charge: 0.3,
            reserve: 0.0,
        })
    }

    /// Tries what is best on chains: the values that are alive at the peak, in the order they are made, are kept as checkpoints are.
    fn keep_checkpoints(&mut self, limit: u64, allowed: u64) {
        let (held, other) = self.problem.alive_at_peak();
        if held.len() < 4 || held.len() > LONGEST_CHAIN {
            return;
        }
        let mean = held.iter().map(|&u| self.problem.units[u].bytes).sum::<u64>() / held.len() as u64;
        let slots = (limit.saturating_sub(other) / mean.max(1)) as usize;
        let mut tried = vec![slots + 2, slots + 3, slots + 1, slots, slots + 4, slots * 3 / 4, slots + slots / 4];
        tried.retain(|slots| (2..=held.len().min(MOST_CHECKPOINTS)).contains(slots));
        let Some(&most) = tried.iter().max() else { return };
        // The last value of a chain is read at once.
        let chain = Chain::new(held.len() + 1, most);
        self.work += (held.len() * held.len() * most) as u64 / 4;
        for slots in tried {
            if self.work > allowed / 2 {
                break;
            }
            let Some(levels) = chain.levels(slots) else { continue };
            let mut keys = vec![1e-6; self.problem.units.len()];
            let deepest = levels.iter().max().copied().unwrap_or(0);
            for (&unit, &level) in held.iter().zip(&levels) {
                keys[unit] = 4f64.powi((deepest - level) as i32);
            }
            for (cost, bytes) in [(0.0, 0.0), (1.0, 1.0)] {
                let setting = Setting {
                    cost,
                    bytes,
                    distance: 0.0,
                    inherit: true,
                    retain: false,
                    hold: true,
                    charge: 0.3,
                    reserve: 0.0,
                };
                self.try_way(limit, setting, keys.clone(), f64::INFINITY);
            }
        }
    }

    /// Tries the best ways with other opinions of the disk.
    fn vary_transfers(&mut self, limit: u64, allowed: u64) {
        let best: Vec<Setting> = self.pool.iter().map(|way| way.setting).collect();
        for (charge, reserve) in TRANSFERS {
            for &setting in &best {
                if self.work > allowed * 3 / 4 {
                    return;
                }
                let keys = vec![1.0; self.problem.units.len()];
                self.try_way(limit, Setting { charge, reserve, ..setting }, keys, self.best() * 1.05);
            }
        }
    }

    fn best(&self) -> f64 {
        self.pool.first().map_or(f64::INFINITY, |way| way.run.score)
    }

    /// Simulates, and keeps the run if it is among the best.
    fn try_way(&mut self, limit: u64, setting: Setting, keys: Vec<f64>, within: f64) {
        let worst = if self.pool.len() < POOL { f64::INFINITY } else { self.pool[POOL - 1].run.score };
        let unbounded = SLOWEST * (self.problem.seconds + self.problem.transfer_seconds());
        let bounds = Bounds { limit, score: within.min(worst).min(unbounded) };
        let (run, work) = simulate(self.problem, setting, &keys, bounds);
        self.work += work;
        let Some(run) = run else { return };
        if self.pool.iter().any(|way| way.run == run) {
            return;
        }
        let at = self.pool.partition_point(|way| way.run.score <= run.score);
        self.pool.insert(at, Way { setting, keys, part: 1.0, run });
        self.pool.truncate(POOL);
    }

    fn roll(&mut self, below: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize % below
    }

    /// Between 0 and 1.
    fn chance(&mut self) -> f64 {
        self.roll(1 << 20) as f64 / (1 << 20) as f64
    }

    /// Varies some keys: of single units, of neighbours that change places, of a stretch.
    fn vary(&mut self, units: &[usize], keys: &mut [f64]) {
        let n = units.len();
        let at = self.roll(n);
        let factor = (3.0 * (self.chance() + self.chance() - 1.0)).exp();
        match self.roll(4) {
            0 => {
                let other = (at + 1 + self.roll(3)).min(n - 1);
                keys.swap(units[at], units[other]);
            }
            1 => {
                let end = (at + 2 + self.roll(2 + n / 8)).min(n);
                units[at..end].iter().for_each(|&unit| keys[unit] *= factor);
            }
            _ => {
                for _ in 0..1 + self.roll(3 + n / 40) {
                    let unit = units[self.roll(n)];
                    let factor = (3.0 * (self.chance() + self.chance() - 1.0)).exp();
                    keys[unit] = if self.chance() < 0.3 { 1.0 } else { keys[unit] * factor };
                }
            }
        }
    }

    /// Varies keys at random and keeps what is no worse.
    fn climb(&mut self, limit: u64, bound: f64, allowed: u64) {
        let units: Vec<usize> = (0..self.problem.units.len())
            .filter(|&u| self.problem.units[u].bytes > 0 && !self.problem.units[u].uses.is_empty())
            .collect();
        let mut trial = 0;
        while self.work < allowed && !self.pool.is_empty() && !units.is_empty() && self.best() > bound {
            let at = trial % self.pool.len();
            trial += 1;
            let mut keys = self.pool[at].keys.clone();
            self.vary(&units, &mut keys);
            let (setting, score) = (self.pool[at].setting, self.pool[at].run.score);
            let part = if self.roll(8) == 0 { PARTS[self.roll(PARTS.len())] } else { self.pool[at].part };
            let bounds = Bounds { limit: (limit as f64 * part) as u64, score: score * (1.0 + 1e-9) };
            let (run, work) = simulate(self.problem, setting, &keys, bounds);
            self.work += work + 1;
            if let Some(run) = run.filter(|run| run.score <= score) {
                self.pool[at] = Way { setting, keys, part, run };
                self.pool.sort_by(|a, b| a.run.score.total_cmp(&b.run.score));
            }
        }
    }
}
