//! Placements are safe, deterministic and close to the bound: on random, synthetic and recomputing steps.
//!
//! `cargo test --release --test placing -- --nocapture` prints gaps and times.

use plimsoll_plan::place::{ALIGNMENT, Buffer, Effort, Placement, place, place_within};
use std::time::Instant;

/// Checks a placement by comparing every buffer with every other.
#[track_caller]
fn check(buffers: &[Buffer], placement: &Placement) {
    let size = |buffer: &Buffer| buffer.bytes.next_multiple_of(ALIGNMENT);
    assert_eq!(placement.offsets.len(), buffers.len());
    let mut height = 0;
    for (i, (a, &at)) in buffers.iter().zip(&placement.offsets).enumerate() {
        assert_eq!(at % ALIGNMENT, 0);
        if a.bytes > 0 {
            height = height.max(at + size(a));
        }
        for (j, (b, &bt)) in buffers.iter().zip(&placement.offsets).enumerate().take(i) {
            let share_a_step = a.first <= b.last && b.first <= a.last;
            let share_a_byte = at < bt + size(b) && bt < at + size(a);
            assert!(!(share_a_step && share_a_byte), "buffers {i} and {j} overlap");
        }
    }
    assert_eq!(placement.height, height);
    let alive_at = |step| buffers.iter().filter(|b| b.first <= step && step <= b.last).map(size).sum::<u64>();
    let bound = buffers.iter().map(|buffer| alive_at(buffer.first)).max().unwrap_or(0);
    assert_eq!(placement.lower_bound, bound);
    assert!(placement.height >= placement.lower_bound);
}

struct Random(u64);

impl Random {
    /// A number from `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) % (high - low + 1)
    }

    fn buffers(&mut self, n: usize, n_steps: u64, most: u64) -> Vec<Buffer> {
        let buffer = |_| {
            let (a, b) = (self.between(0, n_steps - 1) as u32, self.between(0, n_steps - 1) as u32);
            Buffer { bytes: self.between(0, most), first: a.min(b), last: a.max(b) }
        };
        (0..n).map(buffer).collect()
    }
}

/// The smallest height of all: in some order, placing each buffer in the lowest gap gives it.
fn smallest_height(buffers: &[Buffer], offsets: &mut Vec<Option<u64>>, height: u64, best: &mut u64) {
    if height >= *best {
        return;
    }
    if offsets.iter().all(Option::is_some) {
        *best = height;
        return;
    }
    for i in 0..buffers.len() {
        if offsets[i].is_some() {
            continue;
        }
        let a = &buffers[i];
        let size = a.bytes.next_multiple_of(ALIGNMENT);
        let mut taken: Vec<(u64, u64)> = (0..buffers.len())
            .filter(|&j| a.first <= buffers[j].last && buffers[j].first <= a.last)
            .filter_map(|j| offsets[j].map(|at| (at, at + buffers[j].bytes.next_multiple_of(ALIGNMENT))))
            .collect();
        taken.sort_unstable();
        let mut at = 0;
        for (begin, end) in taken {
            if begin >= at + size {
                break;
            }
            at = at.max(end);
        }
        offsets[i] = Some(at);
        smallest_height(buffers, offsets, height.max(at + size), best);
        offsets[i] = None;
    }
}

#[test]
fn small_steps_are_placed_as_well_as_can_be() {
    let mut random = Random(1);
    let mut n_above_the_bound = 0;
    for round in 0..3000 {
        let buffers = if round % 4 == 0 { random.buffers(8, 6, 500) } else { full_step(&mut random) };
        if buffers.len() > 8 {
            continue;
        }
        let placement = place(&buffers, Effort::NORMAL);
        check(&buffers, &placement);
        if placement.height > placement.lower_bound {
            n_above_the_bound += 1;
            let mut best = placement.height;
            smallest_height(&buffers, &mut vec![None; buffers.len()], 0, &mut best);
            assert_eq!(placement.height, best, "{buffers:?}");
        }
    }
    println!("{n_above_the_bound} small steps need more than what is alive at once");
    // A step known to need 8 units, with 7 alive at all times.
    let lives = [(6, 0, 0), (1, 0, 2), (2, 1, 1), (4, 1, 3), (1, 2, 2), (1, 2, 4), (2, 3, 3), (6, 4, 4)];
    let buffers = lives.map(|(size, first, last)| Buffer { bytes: size * 64, first, last });
    let placement = place(&buffers, Effort::NORMAL);
    assert_eq!((placement.height, placement.lower_bound), (8 * 64, 7 * 64));
    let mut best = u64::MAX;
    smallest_height(&buffers, &mut vec![None; buffers.len()], 0, &mut best);
    assert_eq!(best, 8 * 64);
}

/// A step with the same number of bytes alive at all times, which are the hardest to place.
fn full_step(random: &mut Random) -> Vec<Buffer> {
    let height = random.between(3, 8);
    let mut buffers: Vec<Buffer> = Vec::new();
    for step in 0..random.between(3, 5) as u32 {
        let mut room = height;
        for buffer in buffers.iter_mut().filter(|buffer| buffer.last + 1 == step) {
            if random.between(0, 1) == 0 {
                buffer.last = step;
                room -= buffer.bytes / ALIGNMENT;
            }
        }
        while room > 0 {
            let size = random.between(1, room);
            buffers.push(Buffer { bytes: size * ALIGNMENT, first: step, last: step });
            room -= size;
        }
    }
    buffers
}

#[test]
fn random_steps_are_placed_safely() {
    let mut random = Random(2);
    let effort = Effort { work: 3_000_000 };
    for round in 0..60u64 {
        let (n, n_steps, most) = (random.between(0, 150), random.between(1, 120), 1 << random.between(1, 24));
        let buffers = random.buffers(n as usize, n_steps, most);
        for effort in [Effort::QUICK, effort] {
            let placement = place(&buffers, effort);
            check(&buffers, &placement);
            assert_eq!(placement, place(&buffers, effort), "round {round}");
        }
    }
}

#[test]
fn the_order_of_the_buffers_does_not_matter() {
    let mut random = Random(3);
    for _ in 0..10 {
        let mut buffers = random.buffers(80, 60, 1 << 20);
        let effort = Effort { work: 1_000_000 };
        let height = place(&buffers, effort).height;
        for i in (1..buffers.len()).rev() {
            buffers.swap(i, random.between(0, i as u64) as usize);
        }
        assert_eq!(place(&buffers, effort).height, height);
        let larger: Vec<Buffer> =
            buffers.iter().map(|b| Buffer { bytes: b.bytes.next_multiple_of(64) * 2, ..*b }).collect();
        assert_eq!(place(&larger, effort).lower_bound, 2 * place(&buffers, effort).lower_bound);
    }
}

#[test]
fn nothing_small_things_and_whole_steps() {
    assert_eq!(place(&[], Effort::NORMAL), Placement { offsets: vec![], height: 0, lower_bound: 0 });
    let empty = [Buffer { bytes: 0, first: 3, last: 9 }];
    assert_eq!(place(&empty, Effort::NORMAL).height, 0);
    let buffers = [
        Buffer { bytes: 1, first: 0, last: 9 },
        Buffer { bytes: 0, first: 0, last: 9 },
        Buffer { bytes: 65, first: 5, last: 5 },
        Buffer { bytes: 64, first: 0, last: 9 },
        Buffer { bytes: 10, first: 6, last: u32::MAX },
    ];
    let placement = place(&buffers, Effort::NORMAL);
    check(&buffers, &placement);
    assert_eq!(placement.height, 256);
}

#[test]
#[should_panic(expected = "buffer 0 ends at step 1, before it begins at step 2")]
fn a_life_that_ends_before_it_begins() {
    place(&[Buffer { bytes: 1, first: 2, last: 1 }], Effort::NORMAL);
}

#[test]
fn a_limit_that_is_kept_ends_the_search() {
    let buffers = recomputing_step(9, 40, 0.35);
    let best = place(&buffers, Effort::NORMAL);
    let limit = best.lower_bound + best.lower_bound / 20;
    let placement = place_within(&buffers, limit, Effort::NORMAL);
    check(&buffers, &placement);
    assert!(placement.height <= limit);
}

/// A step that trains a chain of layers: activations kept for the way back, workspaces, gradients that live until
/// the end or are used up at once.
fn training_step(n_layers: u32, seed: u64) -> Vec<Buffer> {
    let mut random = Random(seed);
    let mut buffers = Vec::new();
    let n_forward = n_layers * 5;
    let n_steps = n_forward + n_layers * 6;
    for layer in 0..n_layers {
        let base = 1 << random.between(10, 17);
        let mut size = || base * random.between(4, 32) / 8;
        let backward = n_forward + (n_layers - 1 - layer) * 6;
        for op in 0..5 {
            let step = layer * 5 + op;
            let is_kept = op == 0 || op == 3;
            let last = if is_kept { backward + op } else { step + 1 + op % 2 };
            buffers.push(Buffer { bytes: size(), first: step, last });
            buffers.push(Buffer { bytes: size() / 3, first: step, last: step });
        }
        for op in 0..6 {
            let step = backward + op;
            buffers.push(Buffer { bytes: size(), first: step, last: step + 1 + op % 3 });
        }
        let gradient_end = if layer % 3 == 0 { n_steps } else { backward + 5 };
        buffers.push(Buffer { bytes: size(), first: backward + 2, last: gradient_end });
    }
    buffers
}

fn gap(placement: &Placement) -> f64 {
    100.0 * (placement.height as f64 / placement.lower_bound as f64 - 1.0)
}

#[track_caller]
fn check_gap(name: &str, buffers: &[Buffer], effort: Effort, most: f64) -> f64 {
    let begin = Instant::now();
    let placement = place(buffers, effort);
    let seconds = begin.elapsed().as_secs_f64();
    if buffers.len() < 5000 {
        check(buffers, &placement);
    }
    println!("{name:<24} {:>6} buffers  {:>7.3} %  {seconds:.3} s", buffers.len(), gap(&placement));
    assert!(gap(&placement) <= most, "{name}: {} %", gap(&placement));
    gap(&placement)
}

#[test]
fn training_steps_come_within_a_hundredth() {
    for (n_layers, seed) in [(5, 1), (10, 2), (20, 3), (40, 4), (60, 5), (60, 6), (120, 7)] {
        check_gap(&format!("training, {n_layers} layers"), &training_step(n_layers, seed), Effort::NORMAL, 1.0);
    }
}

#[test]
fn large_steps_take_seconds_at_most() {
    for n_layers in [60, 600, 3600] {
        check_gap(&format!("training, {n_layers} layers"), &training_step(n_layers, 1), Effort::QUICK, 2.0);
    }
    // Nothing nests here, as it does in training.
    let buffers = Random(5).buffers(3_000, 6_000, 1 << 24);
    check_gap("random", &buffers, Effort::QUICK, 20.0);
}

/// A branching network, trained in so little memory that activations are dropped and computed again.
///
/// Forward ops make one value each from one to three earlier ones; backward ops make the gradient of each value from the
/// value, the gradients of its users and the inputs. Under the limit (a share of what the plain step needs) the values
/// that are used last are dropped first. Where that would run ops more than twice on average, the limit is raised.
fn recomputing_step(seed: u64, n_ops: usize, share: f64) -> Vec<Buffer> {
    let mut random = Random(seed);
    let mut inputs: Vec<Vec<usize>> = vec![vec![]];
    let mut sizes = vec![1 << 20];
    for op in 1..n_ops {
        let n_inputs = [1, 1, 1, 2, 3][random.between(0, 4) as usize];
        let reach = op.min(8) as u64;
        let mut from: Vec<usize> = (0..n_inputs).map(|_| op - random.between(1, reach) as usize).collect();
        from[0] = op - 1;
        from.sort_unstable();
        from.dedup();
        inputs.push(from);
        sizes.push(random.between(3, 40) << (14 + random.between(0, 3)));
    }
    // Values 0..n_ops are activations, n_ops + i is the gradient of activation i.
    let mut ops: Vec<(Vec<usize>, usize)> = (0..n_ops).map(|op| (inputs[op].clone(), op)).collect();
    for op in (0..n_ops).rev() {
        let users = (op + 1..n_ops).filter(|&user| inputs[user].contains(&op));
        let mut needs: Vec<usize> = users.flat_map(|user| [n_ops + user, user]).collect();
        needs.push(op);
        ops.push((needs, n_ops + op));
    }
    let size = |value: usize| sizes[value % n_ops];
    let whole = simulate(&ops, &size, u64::MAX).expect("without a limit every step can be made").1;
    let mut limit = (whole as f64 * share) as u64;
    loop {
        if let Some((buffers, _)) = simulate(&ops, &size, limit) {
            return buffers;
        }
        limit += whole / 50;
    }
}

/// The buffers of a step in which each op reads and makes values, and the most bytes alive; `None` if they exceed the limit.
fn simulate(ops: &[(Vec<usize>, usize)], size: &dyn Fn(usize) -> u64, limit: u64) -> Option<(Vec<Buffer>, u64)> {
    struct Run<'a> {
        ops: &'a [(Vec<usize>, usize)],
        size: &'a dyn Fn(usize) -> u64,
        limit: u64,
        /// For every value the buffer that holds it, if one does.
        held: Vec<Option<usize>>,
        locked: Vec<u32>,
        buffers: Vec<Buffer>,
        used: u64,
        peak: u64,
    }
    impl Run<'_> {
        fn next_use(&self, value: usize, now: usize) -> usize {
            (now..self.ops.len()).find(|&op| self.ops[op].0.contains(&value)).unwrap_or(usize::MAX)
        }

        fn drop_value(&mut self, value: usize) {
            self.held[value] = None;
            self.used -= (self.size)(value);
        }

        /// Runs an op, after the ops whose values it lacks.
        fn run(&mut self, op: usize, now: usize, depth: usize) -> Option<()> {
            if depth > 200 || self.buffers.len() > 2 * self.ops.len() {
                return None;
            }
            let (needs, makes) = self.ops[op].clone();
            for &need in &needs {
                if self.held[need].is_none() {
                    let maker = self.ops.iter().position(|op| op.1 == need)?;
                    self.run(maker, now, depth + 1)?;
                }
                self.locked[need] += 1;
            }
            while self.used + (self.size)(makes) > self.limit {
                let free = |&value: &usize| self.held[value].is_some() && self.locked[value] == 0;
                let victim =
                    (0..self.held.len()).filter(free).max_by_key(|&value| (self.next_use(value, now), value))?;
                self.drop_value(victim);
            }
            let step = self.buffers.last().map_or(0, |buffer| buffer.first + 1);
            self.used += (self.size)(makes);
            self.peak = self.peak.max(self.used);
            self.held[makes] = Some(self.buffers.len());
            self.buffers.push(Buffer { bytes: (self.size)(makes), first: step, last: step });
            for &need in &needs {
                self.locked[need] -= 1;
                let buffer = self.held[need].expect("locked values stay");
                self.buffers[buffer].last = step;
            }
            Some(())
        }
    }
    let held = vec![None; ops.len()];
    let locked = vec![0; ops.len()];
    let mut run = Run { ops, size, limit, held, locked, buffers: Vec::new(), used: 0, peak: 0 };
    for now in 0..ops.len() {
        if run.held[ops[now].1].is_none() {
            run.run(now, now, 0)?;
        }
        for value in 0..ops.len() {
            if run.held[value].is_some() && run.next_use(value, now + 1) == usize::MAX {
                run.drop_value(value);
            }
        }
    }
    Some((run.buffers, run.peak))
}

#[test]
fn recomputing_steps_come_within_a_fiftieth() {
    let mut gaps = Vec::new();
    for (seed, n_ops) in [(1, 12), (2, 20), (3, 30), (4, 45), (5, 60), (6, 80), (7, 100)] {
        for share in [1.0, 0.7, 0.5, 0.35, 0.25] {
            let buffers = recomputing_step(seed, n_ops, share);
            gaps.push(check_gap(&format!("{n_ops} ops in {share}"), &buffers, Effort::NORMAL, 2.0));
        }
    }
    gaps.sort_by(f64::total_cmp);
    let median = gaps[gaps.len() / 2];
    println!("median {median:.3} %, worst {:.3} %", gaps[gaps.len() - 1]);
    assert!(median <= 0.5);
}
