//! How fast values go to a spill file and come back, and what that takes from the computation beside it.

use crate::arena::Arena;
use crate::spill::{PIECE, SpillFile};
use plimsoll_budget::{Budget, Bytes};
use plimsoll_graph::op::spill::Spill;
use plimsoll_kernels::Pool;
use plimsoll_plan::CostModel;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most bytes that are moved at once.
const MOVED: u64 = 4 << 20;

/// How often that is timed at least.
const LEAST: usize = 3;

/// The size of a transfer that takes hardly longer than the disk's answer.
const SMALL: u64 = 64 << 10;

/// How many of them are timed.
const TIMES: u64 = 8;

/// Measures a disk by moving values to a spill file in this directory and back, while all threads compute: as in a step. Takes about
/// `time`, and at most `room` bytes; with less than two megabytes of it, and where no file can be made, the model stays as it is.
pub fn time_disk(model: &mut CostModel, directory: &Path, pool: &Pool, room: Bytes, time: Duration) {
    let bytes = MOVED.min((room - SpillFile::FIXED_MEMORY.min(room)).0) / PIECE as u64 * PIECE as u64;
    if bytes > 0 {
        // What goes wrong here goes wrong again when the file is needed, and is told then.
        let _ = measure(model, directory, pool, bytes, time);
    }
}

fn measure(model: &mut CostModel, directory: &Path, pool: &Pool, bytes: u64, time: Duration) -> Option<()> {
    let begin = Instant::now();
    let mut slots = vec![(0, bytes)];
    slots.extend((0..TIMES).map(|i| (bytes + i * SMALL, SMALL)));
    let budget = Budget::unlimited();
    let file = SpillFile::create(&budget, directory, bytes + TIMES * SMALL, &slots).ok()?;
    let arena = Arena::new(budget.account("calibration").reserve(Bytes(bytes)).ok()?).ok()?;
    // SAFETY: the arena's memory, which is ours until the file is settled.
    let words = unsafe { std::slice::from_raw_parts_mut(arena.ptr().cast::<u64>(), bytes as usize / 8) };
    // Zeros might be written faster.
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for word in words {
        x = (x ^ x >> 27).wrapping_mul(0x3c79_ac49_2ba7_b653) ^ x << 13;
        *word = x;
    }
    let moved = |slot: u64, n: u64, writes: bool| {
        // SAFETY: inside the arena, and used by nobody else until the slot is finished, which `file` waits for in any case.
        let begun = unsafe {
            match writes {
                true => file.write(slot, arena.ptr(), n as usize),
                false => file.read(slot, arena.ptr(), n as usize),
            }
        };
        begun.ok()
    };
    // What is written for the first time takes longer than ever after.
    moved(0, bytes, true)?;
    (0..TIMES).try_for_each(|i| moved(bytes + i * SMALL, SMALL, true))?;
    slots.iter().try_for_each(|(slot, _)| file.finish(*slot).ok())?;
    let mut unit = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        compute(pool);
        unit = unit.min(start.elapsed().as_secs_f64());
    }
    // For each way the times, and what they took from the computation.
    let mut times: [Vec<(f64, f64)>; 2] = Default::default();
    while times[0].len() < LEAST || begin.elapsed() < time {
        for (writes, times) in [true, false].into_iter().zip(&mut times) {
            let done = |file: &SpillFile| file.stats().written + file.stats().read;
            let (before, start, mut units) = (done(&file), Instant::now(), 0);
            moved(0, bytes, writes)?;
            while done(&file) < before + bytes {
                (!file.has_failed()).then_some(())?;
                compute(pool);
                units += 1;
            }
            file.finish(0).ok()?;
            let seconds = start.elapsed().as_secs_f64();
            times.push((seconds, (seconds - units as f64 * unit).max(0.0)));
        }
    }
    // Others use the disk, too, now and then.
    let middle = |times: &mut Vec<(f64, f64)>, of: fn(&(f64, f64)) -> f64| {
        times.sort_by(|a, b| of(a).total_cmp(&of(b)));
        of(&times[times.len() / 2])
    };
    let mut rate = |way: usize, of: fn(&(f64, f64)) -> f64| bytes as f64 / middle(&mut times[way], of).max(1e-9);
    (model.write, model.read) = (rate(0, |t| t.0), rate(1, |t| t.0));
    let (writing, reading) = (rate(0, |t| t.1), rate(1, |t| t.1));
    // What computes here needs no memory, for which transfers and most ops are in each other's way.
    model.beside = (2.0 / (1.0 / writing + 1.0 / reading)).min(CostModel::default().beside);
    let start = Instant::now();
    for (slot, _) in &slots[1..] {
        for writes in [true, false] {
            moved(*slot, SMALL, writes)?;
            file.finish(*slot).ok()?;
        }
    }
    let both = start.elapsed().as_secs_f64() / TIMES as f64;
    model.latency = (both - SMALL as f64 / model.write - SMALL as f64 / model.read).max(0.0) / 2.0;
    Some(())
}

/// Something for all threads to do, for about a tenth of a millisecond. Each has one part: as with most ops, all wait for the one that was held up.
fn compute(pool: &Pool) {
    pool.run(pool.threads(), &|task, _| (0..10).for_each(|_| super::spin(task)));
}
