//! The search for evictions against proven optima: exhaustive search, the recursion for chains, and a table of solved
//! integer programs.

use plimsoll_plan::evict::{Effort, Event, Problem, Run, Start, Task, Unit};
use std::collections::{BTreeMap, BinaryHeap};

/// A small generator of whole numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below
    }
}

/// Replays a run from the definition: what is read was made or read in before, tasks come in order, and what is in memory from
/// when it is made until it is last read never exceeds the limit. Gives its seconds without waiting.
#[track_caller]
fn replay(problem: &Problem, run: &Run, limit: u64) -> f64 {
    let n = problem.units.len();
    // By unit: the stays in memory, first and last event.
    let mut stays: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n];
    let mut extra = vec![0i64; run.events.len() + 2];
    let (mut order, mut seconds) = (0, 0.0);
    for (unit, u) in problem.units.iter().enumerate() {
        if u.start == Start::Memory {
            stays[unit].push((0, 0));
        }
    }
    let mut in_file: Vec<bool> = problem.units.iter().map(|u| u.start == Start::File).collect();
    for (at, &event) in run.events.iter().enumerate() {
        match event {
            Event::Run(task) => {
                let t = &problem.tasks[task];
                assert!(task <= order, "task {task} runs before task {order}");
                assert!(task == order || t.again_until.is_some_and(|until| order <= until), "task {task} runs again");
                order += usize::from(task == order);
                seconds += t.seconds;
                for &input in &t.inputs {
                    stays[input].last_mut().expect("what is read is in memory").1 = at;
                }
                for &output in &t.outputs {
                    stays[output].push((at, at));
                }
                extra[at] += t.workspace as i64;
                extra[at + 1] -= t.workspace as i64;
            }
            Event::BeginWrite(unit) => stays[unit].last_mut().expect("what is written is in memory").1 = at,
            Event::EndWrite(unit) => {
                stays[unit].last_mut().expect("what is written is in memory").1 = at;
                in_file[unit] = true;
            }
            Event::BeginRead(unit) => {
                assert!(in_file[unit], "unit {unit} is read before it is written");
                stays[unit].push((at, at));
            }
            Event::EndRead(unit) => stays[unit].last_mut().unwrap().1 = at,
        }
    }
    assert_eq!(order, problem.tasks.len(), "all tasks run");
    for (unit, stays) in stays.iter().enumerate() {
        for &(first, last) in stays {
            extra[first] += problem.units[unit].bytes as i64;
            extra[last + 1] -= problem.units[unit].bytes as i64;
        }
    }
    let mut level = 0;
    for change in extra {
        level += change;
        assert!(level as u64 <= limit, "{level} bytes in memory with a limit of {limit}");
    }
    seconds
}

/// The least seconds over all schedules, or `None` when there is none: a shortest path over (next task, what is in memory).
fn exhaustive(problem: &Problem, limit: u64) -> Option<f64> {
    let bytes = |mask: u32| -> u64 {
        problem.units.iter().enumerate().filter(|(u, _)| mask & 1 << u != 0).map(|(_, u)| u.bytes).sum()
    };
    let mask = |units: &[usize]| units.iter().fold(0u32, |m, u| m | 1 << u);
    let start = (0..problem.units.len()).filter(|&u| problem.units[u].start == Start::Memory).collect::<Vec<_>>();
    let fixed = mask(&start);
    // The cheapest first; seconds as whole thousandths.
    let mut queue = BinaryHeap::from([(std::cmp::Reverse(0u64), 0usize, fixed)]);
    let mut known: BTreeMap<(usize, u32), u64> = BTreeMap::from([((0, fixed), 0)]);
    while let Some((std::cmp::Reverse(cost), next, memory)) = queue.pop() {
        if known[&(next, memory)] < cost {
            continue;
        }
        if next == problem.tasks.len() {
            return Some(cost as f64 / 1000.0);
        }
        let mut go = |next: usize, memory: u32, cost: u64| {
            let best = known.entry((next, memory)).or_insert(u64::MAX);
            if cost < *best {
                *best = cost;
                queue.push((std::cmp::Reverse(cost), next, memory));
            }
        };
        for unit in (0..problem.units.len()).filter(|u| memory & 1 << u != 0) {
            go(next, memory & !(1 << unit), cost);
        }
        for task in 0..=next {
            let t = &problem.tasks[task];
            let after = memory | mask(&t.outputs);
            let again = task == next || t.again_until.is_some_and(|until| next <= until);
            if again && mask(&t.inputs) & !memory == 0 && bytes(after) + t.workspace <= limit {
                go(next + usize::from(task == next), after, cost + (t.seconds * 1000.0).round() as u64);
            }
        }
    }
    None
}

/// A random problem of at most 8 tasks, often with an end like a backward pass.
fn random_problem(dice: &mut Dice) -> Problem {
    let n = 4 + dice.roll(5);
    let mut units: Vec<Unit> = Vec::new();
    let mut tasks: Vec<Task> = Vec::new();
    for _ in 0..dice.roll(2) {
        units.push(Unit { start: Start::Memory, ..Unit::new(64 * (1 + dice.roll(3)) as u64) });
    }
    let mirrored = dice.roll(2) == 0;
    for step in 0..n {
        let mut inputs: Vec<usize> = Vec::new();
        if !units.is_empty() {
            let newest = units.len() - 1;
            inputs.push(newest - dice.roll(2.min(newest + 1)));
            if mirrored && step > n / 2 {
                inputs.push((n - 1 - step).min(newest));
            } else if dice.roll(2) == 0 {
                inputs.push(dice.roll(units.len()));
            }
        }
        inputs.sort_unstable();
        inputs.dedup();
        let mut outputs = Vec::new();
        for _ in 0..1 + usize::from(dice.roll(8) == 0) {
            units.push(Unit::new(64 * (1 + dice.roll(4)) as u64));
            outputs.push(units.len() - 1);
        }
        tasks.push(Task::new(&inputs, &outputs, (1 + dice.roll(9)) as f64));
    }
    Problem::new(units, tasks, true, false)
}

#[test]
fn small_problems_are_solved_to_the_optimum() {
    let mut dice = Dice(7);
    let (mut n_solved, mut n_infeasible, mut n_missed) = (0, 0, Vec::new());
    for case in 0..600 {
        let problem = random_problem(&mut dice);
        let floor = problem.floor().bytes;
        assert_eq!(exhaustive(&problem, floor - 64), None, "case {case}: less than the floor works");
        for more in 0..4 {
            let limit = floor + 64 * more;
            let want = exhaustive(&problem, limit);
            let found = problem.solve(limit, Effort { base: 200_000, per_task: 0 });
            if let Some(run) = &found {
                assert_eq!(replay(&problem, run, limit), run.seconds, "case {case}");
                assert!(problem.bound(limit) <= run.seconds * (1.0 + 1e-9), "case {case}");
            }
            match (want, found) {
                (None, None) => n_infeasible += 1,
                (Some(want), Some(run)) if (run.seconds - want).abs() < 1e-9 => n_solved += 1,
                (want, found) => n_missed.push((case, limit, want, found.map(|r| r.seconds))),
            }
            if let Some(want) = want {
                assert!(problem.bound(limit) <= want * (1.0 + 1e-9), "case {case}: the bound is above the optimum");
            }
        }
    }
    println!("{n_solved} solved, {n_infeasible} impossible, {} missed", n_missed.len());
    assert!(n_missed.is_empty(), "{} missed: {:?}", n_missed.len(), &n_missed[..n_missed.len().min(10)]);
}
