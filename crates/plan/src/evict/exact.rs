//! The best run of a small problem: a shortest path over what has run and what is in memory.
//!
//! Units leave as late as they can, just before a task that needs their room, and never more of them than it takes: any run can be
//! turned into one like that, so that nothing is lost by looking at no others. What has to run yet at least says which states are worth
//! going on from (A*).

use super::problem::{Problem, Start};
use super::simulate::{Event, Run};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Units are bits of a number.
const MOST_UNITS: usize = 64;

/// What it takes to reach a state, in looks at units.
const REACH: u64 = 8;

/// What a search came to.
pub(super) enum Outcome {
    /// The best run there is.
    Best(Run),
    /// There is none that takes less time than was asked for.
    Nothing,
    /// The work allowed did not suffice.
    Unknown,
}

/// Whether a problem is small enough to be tried. Transfers, which go on beside the tasks, are no part of this.
pub(super) fn is_small(problem: &Problem) -> bool {
    let in_file = problem.spill || problem.units.iter().any(|u| u.slot.is_some() || u.start == Start::File);
    !in_file && problem.units.len() <= MOST_UNITS
}

/// The best run that takes less than `below` seconds, if `allowed` work and so many remembered states suffice to find it; with the work
/// that was done.
pub(super) fn best_run(problem: &Problem, limit: u64, below: f64, allowed: u64, states: usize) -> (Outcome, u64) {
    let mut search = Search::new(problem, limit, below, allowed, states);
    let outcome = search.run();
    (outcome, search.work)
}

/// What has run for the first time, what is in memory, and how it came to that.
#[derive(Clone, Copy)]
struct State {
    next: u32,
    memory: u64,
    seconds: f64,
    from: u32,
    task: u32,
}

struct Search<'a> {
    problem: &'a Problem,
    limit: u64,
    below: f64,
    allowed: u64,
    most_states: usize,
    work: u64,
    /// By task: what it reads, what it makes.
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    /// By the number of tasks that have run: seconds of those that have not, and what can still be of use.
    rest: Vec<f64>,
    useful: Vec<u64>,
    states: Vec<State>,
    known: HashMap<(u32, u64), u32>,
    /// Seconds with those of the rest, as bits, which are in the order of the numbers when these are not negative; of equal ones the
    /// state that has come furthest first.
    queue: BinaryHeap<(Reverse<u64>, u32, Reverse<u32>)>,
}

fn mask(units: &[usize]) -> u64 {
    units.iter().fold(0, |mask, u| mask | 1u64 << u)
}

fn each_bit(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(bit)
    })
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, limit: u64, below: f64, allowed: u64, most_states: usize) -> Search<'a> {
        let n = problem.tasks.len();
        let inputs: Vec<u64> = problem.tasks.iter().map(|t| mask(&t.inputs)).collect();
        let outputs: Vec<u64> = problem.tasks.iter().map(|t| mask(&t.outputs)).collect();
        let (mut rest, mut useful) = (vec![0.0; n + 1], vec![0; n + 1]);
        for next in (0..n).rev() {
            rest[next] = rest[next + 1] + problem.tasks[next].seconds;
        }
        for next in 0..=n {
            let mut of_use = inputs[next..].iter().fold(0, |all, inputs| all | inputs);
            for task in (0..next).rev().filter(|_| problem.recompute) {
                if problem.tasks[task].is_repeatable(next) && outputs[task] & of_use != 0 {
                    of_use |= inputs[task];
                }
            }
            useful[next] = of_use;
        }
        Search {
            problem,
            limit,
            below,
            allowed,
            most_states,
            work: n as u64,
            inputs,
            outputs,
            rest,
            useful,
            states: Vec::new(),
            known: HashMap::new(),
            queue: BinaryHeap::new(),
        }
    }

    fn bytes(&self, units: u64) -> u64 {
        each_bit(units).map(|u| self.problem.units[u].bytes).sum()
    }

    fn reach(&mut self, state: State) {
        let state = State { memory: state.memory & self.useful[state.next as usize], ..state };
        let least = state.seconds + self.rest[state.next as usize];
        self.work += REACH;
        if least >= self.below {
            return;
        }
        let at = *self.known.entry((state.next, state.memory)).or_insert(self.states.len() as u32);
        match self.states.get_mut(at as usize) {
            Some(known) if known.seconds <= state.seconds => return,
            Some(known) => *known = state,
            None => self.states.push(state),
        }
        self.queue.push((Reverse(least.to_bits()), state.next, Reverse(at)));
    }

    fn run(&mut self) -> Outcome {
        let n_tasks = self.problem.tasks.len();
        let given = (0..self.problem.units.len()).filter(|&u| self.problem.units[u].start == Start::Memory);
        let given = mask(&given.collect::<Vec<_>>());
        if self.bytes(given) > self.limit {
            return Outcome::Nothing;
        }
        self.reach(State { next: 0, memory: given, seconds: 0.0, from: u32::MAX, task: 0 });
        while let Some((Reverse(least), _, Reverse(at))) = self.queue.pop() {
            let state = self.states[at as usize];
            let next = state.next as usize;
            if f64::from_bits(least) > state.seconds + self.rest[next] {
                continue;
            }
            if next == n_tasks {
                return Outcome::Best(self.retrace(at));
            }
            self.work += n_tasks as u64 / 4;
            for task in 0..=next {
                let again = self.problem.recompute
                    && self.problem.tasks[task].is_repeatable(next)
                    && self.outputs[task] & self.useful[next] & !state.memory != 0;
                if (task == next || again) && self.inputs[task] & !state.memory == 0 {
                    self.run_task(task, at, &state);
                }
            }
            if self.work > self.allowed || self.states.len() > self.most_states {
                return Outcome::Unknown;
            }
        }
        Outcome::Nothing
    }

    /// All ways to run a task: which of the inputs that it may write over die here, and which units leave before.
    fn run_task(&mut self, task: usize, at: u32, state: &State) {
        let t = &self.problem.tasks[task];
        let next = state.next + u32::from(task == state.next as usize);
        let step = State { next, memory: 0, seconds: state.seconds + t.seconds, from: at, task: task as u32 };
        let dying = t.overwrites.iter().fold(0, |mask, (from, _)| mask | 1u64 << from);
        let held = self.bytes(state.memory | self.outputs[task]) + t.workspace;
        let mut dead = dying;
        loop {
            let mut taken = self.outputs[task] & state.memory;
            let (mut saved, mut over) = (0, 0u64);
            for &(from, to) in &t.overwrites {
                if dead >> from & 1 == 1 && over >> from & 1 == 0 && taken >> to & 1 == 0 {
                    (over, taken) = (over | 1 << from, taken | 1 << to);
                    saved += self.problem.units[from].bytes;
                }
            }
            if over == dead {
                let kept = self.inputs[task] | self.outputs[task];
                let step = State { memory: (state.memory | kept) & !dead, ..step };
                let sizes: Vec<(usize, u64)> =
                    each_bit(state.memory & !kept).map(|u| (u, self.problem.units[u].bytes)).collect();
                let left: u64 = sizes.iter().map(|s| s.1).sum();
                self.make_room(&sizes, (held - saved).saturating_sub(self.limit), left, u64::MAX, step);
            }
            if dead == 0 {
                break;
            }
            dead = (dead - 1) & dying;
        }
    }

    /// All sets of these units that free so many bytes, none of which could stay.
    fn make_room(&mut self, units: &[(usize, u64)], needed: u64, left: u64, least: u64, step: State) {
        self.work += 1;
        if needed == 0 {
            self.reach(step);
            return;
        }
        let Some((&(unit, bytes), rest)) = units.split_first().filter(|_| left >= needed && self.work <= self.allowed)
        else {
            return;
        };
        let least_of = least.min(bytes);
        // With it, more may leave than is needed, but less than the smallest of those that leave.
        if bytes >= needed && bytes - needed >= least_of {
            self.make_room(rest, needed, left - bytes, least, step);
            return;
        }
        let without = State { memory: step.memory & !(1 << unit), ..step };
        self.make_room(rest, needed.saturating_sub(bytes), left - bytes, least_of, without);
        self.make_room(rest, needed, left - bytes, least, step);
    }

    fn retrace(&self, at: u32) -> Run {
        let mut state = &self.states[at as usize];
        let seconds = state.seconds;
        let mut events = Vec::new();
        while state.from != u32::MAX {
            events.push(Event::Run(state.task as usize));
            state = &self.states[state.from as usize];
        }
        events.reverse();
        Run { events, seconds, score: seconds }
    }
}
