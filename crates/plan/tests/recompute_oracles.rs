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
            let found = problem.solve(limit, Effort { base: 200_000, per_task: 0, ..Effort::NORMAL });
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

/// A chain of `n` tasks and the way back: the gradient of task `i` reads the output of task `i - 1`. All sizes are one unit.
fn chain(n: usize, cost: f64, cost_back: f64) -> Problem {
    let units = vec![Unit::new(64); 2 * n];
    let mut tasks: Vec<Task> =
        (0..n).map(|i| Task::new(&if i == 0 { vec![] } else { vec![i - 1] }, &[i], cost)).collect();
    tasks.push(Task::new(&[n - 1], &[n], cost_back));
    // Back through task i, which read the output of i - 1.
    for i in (1..n).rev() {
        let made = tasks.len();
        tasks.push(Task::new(&[i - 1, made - 1], &[made], cost_back));
    }
    Problem::new(units, tasks, true, false)
}

/// The least number of forward runs of a chain of `n` tasks and its way back with `slots` units of memory, by the recursion over
/// where the first checkpoint is put. `None` when there are too few slots.
fn chain_optimum(n: usize, slots: usize) -> Option<u64> {
    // Three tables over (tasks after a checkpoint, slots beside it): `back`, with the last gradient there, to the gradient of the
    // checkpoint; `end`, the same where nothing comes before the first task, so that its gradient is the last; `first`, with
    // nothing there yet.
    let add = |j: usize, right: Option<u64>, left: Option<u64>| Some(j as u64 + right? + left?);
    let least = |options: Vec<Option<u64>>| options.into_iter().flatten().min();
    let passing = |j: usize| if j == 1 { 1 } else { 2 };
    let table = vec![vec![None; slots + 1]; n + 1];
    let (mut back, mut end, mut first, mut whole) = (table.clone(), table.clone(), table.clone(), table);
    for l in 0..=n {
        for s in 1..=slots {
            let splits = 1..l;
            let room = |j: &usize| passing(*j) < s;
            back[l][s] = match l {
                0 => Some(0),
                1 => (s >= 2).then_some(0),
                _ => least(splits.clone().filter(room).map(|j| add(j, back[l - j][s - 1], back[j][s])).collect()),
            };
            end[l][s] = match l {
                0 | 1 => Some(0),
                _ => least(splits.filter(room).map(|j| add(j, back[l - j][s - 1], end[j][s])).collect()),
            };
            let forward = |left: &[Vec<Option<u64>>]| {
                let splits = (1..=l).filter(|j| passing(*j) <= s);
                least(splits.map(|j| add(j, first[l - j][s - 1], left[j][s])).collect())
            };
            let all = if l == 0 { None } else { forward(&end) };
            let from = if l == 0 { Some(0) } else { forward(&back) };
            (whole[l][s], first[l][s]) = (all, from);
        }
    }
    whole[n][slots]
}

#[test]
fn chains_are_solved_to_the_optimum() {
    for n in [4, 6] {
        for slots in 1..=n + 2 {
            let problem = chain(n, 1.0, 1.0);
            let want = exhaustive(&problem, 64 * slots as u64);
            let runs = chain_optimum(n, slots);
            assert_eq!(runs.map(|r| (r as usize + n) as f64), want, "the recursion itself, n = {n}, {slots} slots");
        }
    }
    let problem = chain(64, 1.0, 1.0);
    let mut missed = Vec::new();
    for slots in [33, 24, 17, 12, 10, 8, 6, 5] {
        let want = chain_optimum(64, slots).map(|runs| (runs + 64) as f64);
        let found = problem.solve(64 * slots as u64, Effort { base: 30_000_000, per_task: 0, ..Effort::NORMAL });
        let found = found.map(|run| {
            assert_eq!(replay(&problem, &run, 64 * slots as u64), run.seconds);
            run.seconds
        });
        println!("chain of 64, {slots} slots: {found:?}, optimum {want:?}");
        missed.extend((found != want).then_some(slots));
    }
    assert!(missed.is_empty(), "{missed:?} slots");
}

/// The wall of `benches/` (24 layers, 384 MiB of weights, values of 32 MiB) within 640 MiB: beside the weights and the batch there is room
/// for 6 values, or for 7 if nothing else took any.
///
/// Slices would not do either. When the first weight changes, all rows have passed all layers: before that its gradient is not complete, after it
/// none can pass. By then what a layer was given is kept (32 MiB), or has gone into the layer's gradient (16 MiB), or will be computed again, row by row. Were
/// there nothing but the weights, 16 gradients would have room, and 8 products run again; beside batch and labels, 12 gradients, and at least 11 (the first
/// layer's input is the batch).
#[test]
fn the_wall_cannot_keep_640_mib_for_a_tenth_more() {
    // A step is 71 products of one size: forward, and two backward but for the first layer.
    let allowed = 71 / 10;
    assert!(24 - (640 - 384) / 16 > allowed);
    for (slots, again) in [(5, 38), (6, 28), (7, 21), (8, 17)] {
        let optimum = chain_optimum(24, slots).unwrap() - 24;
        assert_eq!(optimum, again, "{slots} slots");
        assert!(optimum > allowed);
        let found = chain(24, 1.0, 1.0)
            .solve(64 * slots as u64, Effort { base: 2_000_000, per_task: 0, ..Effort::NORMAL })
            .unwrap();
        assert_eq!(found.seconds, (24 + 24 + again) as f64, "{slots} slots");
    }
}

/// The table of solved integer programs, made by `scripts/reference/evictions.py`: (name, tasks, solved), where a task is
/// (inputs, size, cost) and makes the unit of its number, and what is solved is (limit, least cost or none).
type Entry = (String, Vec<(Vec<usize>, u64, f64)>, Vec<(u64, Option<f64>)>);

fn table() -> Vec<Entry> {
    let text = include_str!("data/evictions.json");
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let number = |v: &serde_json::Value| v.as_u64().unwrap();
    json.as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let tasks = entry["tasks"].as_array().unwrap().iter().map(|t| {
                let inputs = t[0].as_array().unwrap().iter().map(|i| number(i) as usize).collect();
                (inputs, number(&t[1]), number(&t[2]) as f64)
            });
            let solved = entry["solved"].as_array().unwrap().iter();
            let solved = solved.map(|s| (number(&s["limit"]), s["seconds"].as_f64()));
            (entry["name"].as_str().unwrap().to_owned(), tasks.collect(), solved.collect())
        })
        .collect()
}

#[test]
fn solved_integer_programs_are_matched() {
    let (mut n_equal, mut missed) = (0, Vec::new());
    for (name, tasks, solved) in table() {
        let units = tasks.iter().map(|t| Unit::new(64 * t.1)).collect();
        let tasks = tasks.iter().enumerate().map(|(i, t)| Task::new(&t.0, &[i], t.2)).collect();
        let problem = Problem::new(units, tasks, true, false);
        for (limit, want) in solved {
            let found = problem.solve(64 * limit, Effort { base: 3_000_000, per_task: 0, ..Effort::NORMAL });
            let found = found.map(|run| {
                assert_eq!(replay(&problem, &run, 64 * limit), run.seconds, "{name} at {limit}");
                run.seconds
            });
            // Between two first runs the integer program lets a task run only once, so that it can be beaten.
            if found == want || found.is_some_and(|found| want.is_none_or(|want| found < want)) {
                n_equal += 1;
            } else {
                missed.push((name.clone(), limit, want, found));
            }
        }
    }
    println!("{n_equal} as good as the integer program, {} missed", missed.len());
    assert!(missed.is_empty(), "{missed:?}");
}
