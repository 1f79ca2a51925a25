//! The search for the cheapest run: fixed settings, then keys of single units varied at random.

use super::Effort;
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

/// How many ways are improved further.
const POOL: usize = 4;

/// A way to run the step.
#[derive(Clone, Debug)]
struct Way {
    setting: Setting,
    keys: Vec<f64>,
    run: Run,
}

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

    /// The best run found within a limit. An effort of 0 takes the first run that is found.
    pub fn at(&mut self, limit: u64, effort: Effort) -> Option<Run> {
        let bound = self.problem.bound(limit);
        if self.problem.floor().bytes > limit || bound == f64::INFINITY {
            return None;
        }
        let bound = bound * (1.0 + 1e-9);
        self.work = 0;
        let allowed = effort.base + effort.per_task * self.problem.tasks.len() as u64;
        let old = std::mem::take(&mut self.pool);
        for way in old {
            self.try_way(limit, way.setting, way.keys, f64::INFINITY);
        }
        let done = |s: &Self| s.best() <= bound || allowed == 0 && !s.pool.is_empty();
        for setting in self.settings() {
            if done(self) || self.work > allowed / 2 && !self.pool.is_empty() {
                break;
            }
            let keys = vec![1.0; self.problem.units.len()];
            self.try_way(limit, setting, keys, self.best() * 1.1);
        }
        if self.problem.spill && !done(self) && !self.pool.is_empty() {
            self.vary_transfers(limit, allowed);
        }
        if allowed > 0 {
            self.climb(limit, bound, allowed);
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
        self.pool.first().map_or(f64::INFINITY, |way| way.run.seconds)
    }

    /// Simulates, and keeps the run if it is among the best.
    fn try_way(&mut self, limit: u64, setting: Setting, keys: Vec<f64>, within: f64) {
        let worst = if self.pool.len() < POOL { f64::INFINITY } else { self.pool[POOL - 1].run.seconds };
        let unbounded = 20.0 * self.problem.seconds + 1e9 * f64::from(u8::from(self.problem.spill));
        let bounds = Bounds { limit, seconds: within.min(worst).min(unbounded) };
        let (run, work) = simulate(self.problem, setting, &keys, bounds);
        self.work += work;
        let Some(run) = run else { return };
        if self.pool.iter().any(|way| way.run == run) {
            return;
        }
        let at = self.pool.partition_point(|way| way.run.seconds <= run.seconds);
        self.pool.insert(at, Way { setting, keys, run });
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
            for _ in 0..1 + self.roll(3 + units.len() / 40) {
                let unit = units[self.roll(units.len())];
                let factor = (3.0 * (self.chance() + self.chance() - 1.0)).exp();
                keys[unit] = if self.chance() < 0.3 { 1.0 } else { keys[unit] * factor };
            }
            let (setting, seconds) = (self.pool[at].setting, self.pool[at].run.seconds);
            let bounds = Bounds { limit, seconds: seconds * (1.0 + 1e-9) };
            let (run, work) = simulate(self.problem, setting, &keys, bounds);
            self.work += work + 1;
            if let Some(run) = run.filter(|run| run.seconds <= seconds) {
                self.pool[at] = Way { setting, keys, run };
                self.pool.sort_by(|a, b| a.run.seconds.total_cmp(&b.run.seconds));
            }
        }
    }
}
