//! What no plan can do: memory below which nothing works, and seconds that every plan takes.

use super::problem::{Problem, Start};

/// The memory below which no plan exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Floor {
    /// Bytes.
    pub bytes: u64,
    /// The task that needs them.
    pub task: usize,
}

/// Over how many steps the bound on seconds is looked for: those with the most that does not fit.
const STEPS: usize = 48;

impl Problem {
    /// Bytes that a task works with: what it reads and makes, where nothing is written over anything that it need not.
    fn operands(&self, task: usize) -> u64 {
        let t = &self.tasks[task];
        let bytes = |units: &[usize]| -> u64 { units.iter().map(|&u| self.units[u].bytes).sum() };
        let mut saved: Vec<usize> = t.changes.iter().chain(&t.overwrites).map(|&(_, to)| to).collect();
        saved.sort_unstable();
        saved.dedup();
        t.workspace + bytes(&t.inputs) + bytes(&t.outputs) - bytes(&saved)
    }

    /// Calls `visit(unit, first, last, next)` for the steps between those at which a unit is made or read, with the step that
    /// needs it next.
    fn gaps(&self, mut visit: impl FnMut(usize, usize, usize, usize)) {
        for (index, unit) in self.units.iter().enumerate() {
            let mut from = match (unit.start, unit.maker) {
                (Start::Memory, _) => 0,
                (Start::Nowhere, Some(maker)) => maker + 1,
                _ => usize::MAX,
            };
            for &next in &unit.uses {
                if from < next {
                    visit(index, from, next - 1, next);
                }
                from = next + 1;
            }
        }
    }

    /// Whether a unit that is not in memory can be there again at a step.
    fn can_return(&self, unit: usize, step: usize) -> bool {
        let maker = self.units[unit].maker.filter(|_| self.recompute);
        self.can_spill(unit) || maker.is_some_and(|maker| self.tasks[maker].is_repeatable(step))
    }

    /// The units between their uses at the step with the most alive, in the order they are made, and what else is there.
    pub(super) fn alive_at_peak(&self) -> (Vec<usize>, u64) {
        let mut alive = vec![0i64; self.tasks.len() + 1];
        self.gaps(|unit, first, last, _| {
            alive[first] += self.units[unit].bytes as i64;
            alive[last + 1] -= self.units[unit].bytes as i64;
        });
        let (mut held, mut peak, mut at) = (0, 0, 0);
        for (task, change) in alive[..self.tasks.len()].iter().enumerate() {
            held += change;
            if held as u64 + self.operands(task) > peak {
                (peak, at) = (held as u64 + self.operands(task), task);
            }
        }
        let mut units = Vec::new();
        self.gaps(|unit, first, last, next| {
            if first <= at && at <= last && self.can_return(unit, next) {
                units.push(unit);
            }
        });
        units.sort_unstable_by_key(|&u| self.units[u].maker);
        let of_units: u64 = units.iter().map(|&u| self.units[u].bytes).sum();
        (units, peak - of_units)
    }

    /// The memory below which nothing can work: the largest set of what a task works with and what cannot leave.
    pub fn floor(&self) -> Floor {
        let mut pinned = vec![0i64; self.tasks.len() + 1];
        self.gaps(|unit, first, last, next| {
            if !self.can_return(unit, next) {
                pinned[first] += self.units[unit].bytes as i64;
                pinned[last + 1] -= self.units[unit].bytes as i64;
            }
        });
        let inputs = self.units.iter().filter(|u| u.start == Start::Memory).map(|u| u.bytes).sum();
        let mut floor = Floor { bytes: inputs, task: 0 };
        let mut held = 0;
        for (task, change) in pinned[..self.tasks.len()].iter().enumerate() {
            held += change;
            let bytes = self.operands(task) + held as u64;
            if bytes > floor.bytes {
                floor = Floor { bytes, task };
            }
        }
        floor
    }

    /// Seconds that every run within a limit takes.
    ///
    /// When a task runs first, what is alive and does not fit has to come back before it is read: each at the cost of running
    /// its maker once more, or of two transfers. The cheapest such choice, in fractions, is a bound.
    pub fn bound(&self, limit: u64) -> f64 {
        let mut alive = vec![0i64; self.tasks.len() + 1];
        let mut gaps = Vec::new();
        self.gaps(|unit, first, last, next| {
            alive[first] += self.units[unit].bytes as i64;
            alive[last + 1] -= self.units[unit].bytes as i64;
            gaps.push((unit, first, last, next));
        });
        let mut held = 0;
        let mut excess: Vec<(u64, usize)> = Vec::new();
        for task in 0..self.tasks.len() {
            held += alive[task];
            let bytes = self.operands(task) + held as u64;
            if bytes > limit {
                excess.push((bytes - limit, task));
            }
        }
        excess.sort_unstable_by(|a, b| b.cmp(a));
        excess.truncate(STEPS);
        let worst = excess.iter().map(|&(bytes, task)| self.cover(bytes as f64, task, &gaps)).fold(0.0, f64::max);
        self.seconds + worst
    }

    /// The least seconds that bring back `excess` bytes of what is alive at a task.
    fn cover(&self, excess: f64, task: usize, gaps: &[(usize, usize, usize, usize)]) -> f64 {
        // By maker: outputs of one task come back together.
        let mut groups: Vec<(usize, f64)> = Vec::new();
        let mut rate = f64::INFINITY;
        for &(unit, _, _, next) in gaps.iter().filter(|g| g.1 <= task && task <= g.2) {
            let u = &self.units[unit];
            if self.can_spill(unit) && u.bytes > 0 {
                rate = rate.min((u.write_seconds + u.read_seconds) / u.bytes as f64);
            }
            let maker = u.maker.filter(|_| self.recompute);
            if let Some(maker) = maker.filter(|&m| self.tasks[m].is_repeatable(next)) {
                groups.push((maker, u.bytes as f64));
            }
        }
        groups.sort_by_key(|g| g.0);
        groups.dedup_by(|next, kept| {
            next.0 == kept.0 && {
                kept.1 += next.1;
                true
            }
        });
        let mut items: Vec<(f64, f64)> =
            groups.iter().map(|&(m, bytes)| (self.tasks[m].seconds / bytes.max(1.0), bytes)).collect();
        items.sort_by(|a, b| a.0.total_cmp(&b.0));
        let recompute = |mut bytes: f64| {
            let mut seconds = 0.0;
            for &(rate, size) in &items {
                if bytes <= 0.0 {
                    break;
                }
                seconds += rate * size.min(bytes);
                bytes -= size;
            }
            if bytes > 0.5 { f64::INFINITY } else { seconds }
        };
        if rate == f64::INFINITY {
            return recompute(excess);
        }
        // Some of it goes through the disk, which works beside the computation.
        let (mut low, mut high) = (0.0, excess);
        for _ in 0..50 {
            let spilled = (low + high) / 2.0;
            if recompute(excess - spilled) > spilled * rate - self.seconds {
                low = spilled;
            } else {
                high = spilled;
            }
        }
        (high * rate - self.seconds).min(recompute(excess - low)).max(0.0)
    }
}
