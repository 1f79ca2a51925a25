//! The best run of a problem so small that all states can be looked at: a shortest path over what has run and what is in memory.

use super::problem::{Problem, Start};
use super::simulate::{Event, Run};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most states that are looked at.
const STATES: usize = 1 << 17;

/// One way to come to a state.
#[derive(Clone, Copy)]
struct Step {
    seconds: f64,
    from: u32,
    /// What ran; `None` when a unit was dropped.
    task: Option<u32>,
}

/// The states: the next task in bits above those of the units in memory.
struct Paths {
    known: Vec<Step>,
    /// Seconds as bits, which are in the order of the numbers when these are not negative.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Paths {
    fn reach(&mut self, state: usize, step: Step) {
        if step.seconds < self.known[state].seconds {
            self.known[state] = step;
            self.queue.push(Reverse((step.seconds.to_bits(), state)));
        }
    }
}

/// Whether a problem is small enough. Transfers, which go on beside the tasks, are no part of this.
pub(super) fn is_small(problem: &Problem) -> bool {
    let n = problem.units.len();
    let in_file = problem.spill || problem.units.iter().any(|u| u.slot.is_some() || u.start == Start::File);
    !in_file && n < 17 && (problem.tasks.len() + 1) << n <= STATES
}

/// The best run of a small problem, or `None` when there is none; with the work that was done.
pub(super) fn best_run(problem: &Problem, limit: u64) -> (Option<Run>, u64) {
    let n = problem.units.len();
    let n_tasks = problem.tasks.len();
    let mask = |units: &[usize]| units.iter().fold(0, |mask, u| mask | 1usize << u);
    let mut bytes = vec![0u64; 1 << n];
    for units in 1..1usize << n {
        let lowest = units.trailing_zeros() as usize;
        bytes[units] = bytes[units & (units - 1)] + problem.units[lowest].bytes;
    }
    let given: Vec<usize> = (0..n).filter(|&u| problem.units[u].start == Start::Memory).collect();
    let unknown = Step { seconds: f64::INFINITY, from: 0, task: None };
    let mut paths = Paths { known: vec![unknown; (n_tasks + 1) << n], queue: BinaryHeap::new() };
    if bytes[mask(&given)] > limit {
        return (None, 1);
    }
    paths.reach(mask(&given), Step { seconds: 0.0, ..unknown });
    let mut work = 1 << n;
    while let Some(Reverse((seconds, state))) = paths.queue.pop() {
        let (next, memory) = (state >> n, state & ((1 << n) - 1));
        let seconds = f64::from_bits(seconds);
        if seconds > paths.known[state].seconds {
            continue;
        }
        if next == n_tasks {
            return (Some(retrace(&paths.known, state, seconds)), work);
        }
        work += (n + n_tasks) as u64;
        for unit in (0..n).filter(|u| memory >> u & 1 == 1) {
            paths.reach(state & !(1 << unit), Step { seconds, from: state as u32, task: None });
        }
        for task in 0..=next {
            let t = &problem.tasks[task];
            let may = task == next || problem.recompute && t.is_repeatable(next);
            if !may || mask(&t.inputs) & !memory != 0 {
                continue;
            }
            let step = Step { seconds: seconds + t.seconds, from: state as u32, task: Some(task as u32) };
            // Each set of inputs that die here: outputs may be written over them.
            let overwritable: Vec<usize> = t.overwrites.iter().map(|&(from, _)| from).collect();
            let dying = mask(&overwritable);
            let mut dead = dying;
            loop {
                let mut taken = mask(&t.outputs) & memory;
                let mut saved = 0;
                let mut over = 0;
                for &(from, to) in &t.overwrites {
                    if dead >> from & 1 == 1 && over >> from & 1 == 0 && taken >> to & 1 == 0 {
                        (over, taken) = (over | 1 << from, taken | 1 << to);
                        saved += problem.units[from].bytes;
                    }
                }
                let after = memory | mask(&t.outputs);
                if over == dead && bytes[after] + t.workspace - saved <= limit {
                    paths.reach((next + usize::from(task == next)) << n | after & !dead, step);
                }
                if dead == 0 {
                    break;
                }
                dead = (dead - 1) & dying;
            }
        }
    }
    (None, work)
}

fn retrace(known: &[Step], mut state: usize, seconds: f64) -> Run {
    let mut events = Vec::new();
    while known[state].seconds > 0.0 || known[state].task.is_some() {
        if let Some(task) = known[state].task {
            events.push(Event::Run(task as usize));
        }
        state = known[state].from as usize;
    }
    events.reverse();
    Run { events, seconds, score: seconds }
}
