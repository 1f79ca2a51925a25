//! A log of any length in bounded memory: neighbours become one line that stands for all of them.
//!
//! Lines are taken one after another. Where there are more of a kind than are wanted, every two neighbours become one; from then
//! on each line stands for twice as many. So the log of a month is as large as that of an hour, sums stay as they are, and what is
//! drawn is coarser than a screen could show anyway only by a factor of two.

use plimsoll_run::{AccountLine, Epoch, Line, StageWait, Step};
use std::collections::VecDeque;

/// Most lines for steps.
const STEPS: usize = 1500;

/// Most lines for epochs: each has figures and a ledger.
const EPOCHS: usize = 1000;

/// Most other lines (starts, events, ends); the oldest go first.
const OTHERS: usize = 1000;

/// A log that is being thinned.
pub(crate) struct Thinner {
    /// Lines taken so far.
    n: u64,
    steps: Joined<Step>,
    epochs: Joined<Epoch>,
    others: VecDeque<(u64, Line)>,
}

impl Thinner {
    pub fn new() -> Thinner {
        let (steps, epochs) = (Joined::new(STEPS, join_steps), Joined::new(EPOCHS, join_epochs));
        Thinner { n: 0, steps, epochs, others: VecDeque::new() }
    }

    /// Takes the next line.
    pub fn take(&mut self, line: Line) {
        self.n += 1;
        match line {
            Line::Step(step) => self.steps.push(self.n, step),
            Line::Epoch(epoch) => self.epochs.push(self.n, *epoch),
            other => {
                if self.others.len() == OTHERS {
                    self.others.pop_front();
                }
                self.others.push_back((self.n, other));
            }
        }
    }

    /// What is left, in the order of the log.
    pub fn finish(self) -> Vec<Line> {
        let steps = self.steps.all.into_iter().map(|(n, step)| (n, Line::Step(step)));
        let epochs = self.epochs.all.into_iter().map(|(n, epoch)| (n, Line::Epoch(Box::new(epoch))));
        let mut all: Vec<(u64, Line)> = steps.chain(epochs).chain(self.others).collect();
        all.sort_by_key(|(n, _)| *n);
        all.into_iter().map(|(_, line)| line).collect()
    }
}

/// Items of which at most so many stay, each with the number of the last line that it stands for.
struct Joined<T> {
    most: usize,
    join: fn(&mut T, T),
    all: Vec<(u64, T)>,
    /// How many lines an item stands for, and how many the last one stands for so far.
    group: u64,
    in_last: u64,
}

impl<T> Joined<T> {
    fn new(most: usize, join: fn(&mut T, T)) -> Joined<T> {
        Joined { most, join, all: Vec::new(), group: 1, in_last: 0 }
    }

    fn push(&mut self, n: u64, item: T) {
        match self.all.last_mut() {
            Some((last, items)) if self.in_last < self.group => {
                (self.join)(items, item);
                *last = n;
                self.in_last += 1;
            }
            _ => {
                self.all.push((n, item));
                self.in_last = 1;
            }
        }
        if self.all.len() > self.most {
            self.halve();
        }
    }

    /// Makes one of every two neighbours.
    fn halve(&mut self) {
        let paired = self.all.len().is_multiple_of(2);
        let mut half: Vec<(u64, T)> = Vec::with_capacity(self.most + 1);
        for (i, (n, item)) in std::mem::take(&mut self.all).into_iter().enumerate() {
            match half.last_mut() {
                Some((last, items)) if i % 2 == 1 => {
                    (self.join)(items, item);
                    *last = n;
                }
                _ => half.push((n, item)),
            }
        }
        self.all = half;
        // The last item stands for its own lines, and for those of its neighbour where it had one.
        self.in_last += if paired { self.group } else { 0 };
        self.group *= 2;
    }
}

fn join_steps(a: &mut Step, b: Step) {
    let (n, m) = (a.steps as f64, b.steps as f64);
    let mean = |x: f64, y: f64| (x * n + y * m) / (n + m).max(1.0);
    *a = Step {
        steps: a.steps + b.steps,
        loss: a.loss.zip(b.loss).map(|(x, y)| mean(x, y)),
        seconds: mean(a.seconds, b.seconds),
        resident: a.resident.max(b.resident),
        input_wait: a.input_wait + b.input_wait,
        disk_wait: a.disk_wait + b.disk_wait,
        ..b
    };
}

/// Figures are those of the later epoch; what adds up is added up.
fn join_epochs(a: &mut Epoch, mut b: Epoch) {
    let merged = |mut stages: Vec<StageWait>, more: &[StageWait]| {
        for stage in more {
            match stages.iter_mut().find(|s| s.name == stage.name) {
                Some(same) => {
                    (same.seconds, same.elements) = (same.seconds + stage.seconds, same.elements + stage.elements)
                }
                None => stages.push(stage.clone()),
            }
        }
        stages
    };
    let ledger: Vec<AccountLine> = std::mem::take(&mut b.ledger);
    let mut memory = b.memory;
    memory.peak = memory.peak.max(a.memory.peak);
    *a = Epoch {
        steps: a.steps + b.steps,
        seconds: a.seconds + b.seconds,
        input_wait: a.input_wait + b.input_wait,
        stages: merged(std::mem::take(&mut a.stages), &b.stages),
        disk_wait: a.disk_wait + b.disk_wait,
        disk_written: a.disk_written + b.disk_written,
        disk_read: a.disk_read + b.disk_read,
        memory,
        ledger,
        ..b
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_run::{Event, EventKind};

    fn thinned(n: u64, line: impl Fn(u64) -> Line) -> Vec<Line> {
        let mut thinner = Thinner::new();
        (0..n).for_each(|i| thinner.take(line(i)));
        thinner.finish()
    }

    #[test]
    fn thinning_keeps_sums_and_the_order() {
        let step = |i: u64| {
            Line::Step(Step { step: i + 1, steps: 1, loss: Some(i as f64), input_wait: 0.5, ..Step::default() })
        };
        for n in [1, STEPS as u64, STEPS as u64 + 1, 4000, 100_001] {
            let lines = thinned(n, step);
            assert!(lines.len() <= STEPS && (n < 2 || lines.len() >= (n as usize).min(STEPS / 2)), "{}", lines.len());
            let steps: Vec<&Step> = lines.iter().map(|l| if let Line::Step(s) = l { s } else { panic!() }).collect();
            assert_eq!(steps.iter().map(|s| s.steps).sum::<u64>(), n);
            assert_eq!(steps.iter().map(|s| s.input_wait).sum::<f64>(), n as f64 / 2.0);
            assert!(steps.windows(2).all(|w| w[0].step < w[1].step && w[0].loss < w[1].loss));
            // All but the last stand for as many steps.
            assert!(steps.iter().rev().skip(1).all(|s| s.steps == steps[0].steps));
            let mean = steps.iter().map(|s| s.loss.unwrap() * s.steps as f64).sum::<f64>() / n as f64;
            assert!((mean - (n - 1) as f64 / 2.0).abs() < 1e-6 * n as f64, "{mean} of {n}");
        }
    }

    #[test]
    fn many_epochs_and_events_are_bounded_too() {
        let line = |i: u64| match i % 3 {
            0 => Line::Step(Step { step: i, steps: 1, ..Step::default() }),
            1 => Line::Epoch(Box::new(Epoch { epoch: i / 3 + 1, steps: 1, seconds: 2.0, ..Epoch::default() })),
            _ => Line::Event(Event { at: i as f64, kind: EventKind::Checkpoint, message: String::new() }),
        };
        let lines = thinned(30_000, line);
        assert!(lines.len() <= STEPS + EPOCHS + OTHERS, "{}", lines.len());
        let epochs: Vec<&Epoch> =
            lines.iter().filter_map(|l| if let Line::Epoch(e) = l { Some(&**e) } else { None }).collect();
        assert_eq!(epochs.iter().map(|e| e.seconds).sum::<f64>(), 20_000.0);
        assert_eq!(epochs.last().unwrap().epoch, 10_000);
        // The newest event stays where it was: last.
        assert!(matches!(lines.last(), Some(Line::Event(e)) if e.at == 29_999.0));
    }
}
