//! Does training wait for its input? W1's network on rows that are mapped, shuffled, batched and prefetched: its steps alone, the
//! pipeline alone, and both together, in turns.
//!
//!     cargo run --release -p plimsoll --example waits -- [--files DIR] [--share 100] [--rows 20000] [--steps 2000] [--rounds 3]
//!
//! `--share` is how long the function of the map takes for one batch, in percent of a step on one core; 0 is a cheap one. With
//! `--files` rows come from `DIR/x.npy` and `DIR/y.npy`, which are written first where they are missing; else from memory.
//!
//! Prints one line of JSON: milliseconds a batch of wall time and of processor time for each, what the report says of the
//! waiting, and the stage that it names. Expect `together` near the larger of `step` and `pipeline`, as long as the cores have room for the
//! sum of their processor times.

mod workloads;

use plimsoll::Error;
use plimsoll::data::{AUTOTUNE, Dataset, Report};
use plimsoll::trainer::{Fit, Trainer};
use plimsoll_budget::Budget;
use std::path::Path;
use std::time::{Duration, Instant};
use workloads::data::noise_with_answers;
use workloads::measure::Args;
use workloads::models::Mlp;

const BATCH: usize = 32;

fn main() -> Result<(), Error> {
    let mut args = Args::new("Does training wait for its input?");
    let files = args.text("--files");
    let share = args.number("--share", 0) as f64 / 100.0;
    let rows = args.number("--rows", 20_000);
    let steps = args.number("--steps", 2000);
    let rounds = args.number("--rounds", 3).max(1);
    let threads = args.number("--threads", 0);
    let ahead = !args.flag("--no-prefetch");
    args.finish();

    let mlp = Mlp::FULL;
    let drawn = noise_with_answers(rows, mlp.features);
    let source = match &files {
        Some(directory) => in_files(&drawn, directory.as_ref())?,
        None => drawn.cache(),
    };
    let trainer = mlp.trainer()?;
    let mut trainer = if threads > 0 { trainer.threads(threads) } else { trainer };
    let one_batch = source.take(BATCH as u64).batch(BATCH).cache().repeat(None);
    let step = |trainer: &mut Trainer| fit(trainer, &one_batch, steps);
    // Some steps to warm up, and then what the function of the map is measured by.
    step(&mut trainer)?;
    let (alone, _) = step(&mut trainer)?;
    let passes = (share * alone.wall.as_secs_f64() / BATCH as f64 / pass_seconds(mlp.features)).round() as usize;
    let batches = source.map_in_place("x", move |x: &mut [f32]| (0..passes.max(1)).for_each(|_| pass(x)));
    let batches = batches.shuffle(None, 1).batch(BATCH);
    let batches = if ahead { batches.prefetch(AUTOTUNE) } else { batches }.repeat(None);

    let (mut alone, mut pipeline, mut together, mut reports) = (vec![], vec![], vec![], vec![]);
    let mut copied = Vec::new();
    for _ in 0..rounds {
        let (took, report) = step(&mut trainer)?;
        alone.push(took);
        copied.push(report.waited.as_secs_f64() * 1e3 / steps as f64);
        pipeline.push(read(&batches, steps)?);
        let (took, report) = fit(&mut trainer, &batches, steps)?;
        together.push(took);
        reports.push(report);
    }
    let waited: Vec<f64> = reports.iter().map(|r| r.waited.as_secs_f64() * 1e3 / steps as f64).collect();
    let report = reports.last().expect("a round at least");
    // The name of a stage without what distinguishes it.
    let name = report.slowest().map_or("", |stage| &stage.name);
    let stage = name.split(" -> ").next().and_then(|name| name.split([',', ':']).next()).unwrap_or(name);
    let [step, pipeline, together] = [alone, pipeline, together].map(|took| {
        let of = |time: fn(&Took) -> Duration| median(took.iter().map(|t| time(t).as_secs_f64() * 1e3));
        format!("{{\"wall\": {:.4}, \"cpu\": {:.4}}}", of(|t| t.wall), of(|t| t.cpu))
    });
    println!(
        "{{\"step\": {step}, \"pipeline\": {pipeline}, \"together\": {together}, \"copied\": {:.4}, \"waited\": {:.4}, \"stage\": \"{stage}\", \
         \"threads\": {}, \"depth\": {}, \"passes\": {passes}}}",
        median(copied),
        median(waited),
        report.threads,
        report.depth,
    );
    Ok(())
}

/// Rows in the files of a directory, which are written where they are missing.
fn in_files(rows: &Dataset, directory: &Path) -> Result<Dataset, Error> {
    let budget = Budget::unlimited();
    let mut parts = Vec::new();
    for name in ["x", "y"] {
        let path = directory.join(name).with_extension("npy");
        if !path.exists() {
            rows.write_npy(name, &path, &budget)?;
        }
        parts.push((name, path.into()));
    }
    Ok(Dataset::from_npy_named(parts))
}

/// What a batch took.
struct Took {
    wall: Duration,
    cpu: Duration,
}

impl Took {
    /// The share of one of `n` in what `work` takes.
    fn each<T>(n: usize, work: impl FnOnce() -> Result<T, Error>) -> Result<(Took, T), Error> {
        let (start, cpu) = (Instant::now(), cpu_time());
        let result = work()?;
        Ok((Took { wall: start.elapsed() / n as u32, cpu: (cpu_time() - cpu) / n as u32 }, result))
    }
}

/// The processor time of all threads of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a place of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn fit(trainer: &mut Trainer, data: &Dataset, steps: usize) -> Result<(Took, Report), Error> {
    let (took, history) = Took::each(steps, || trainer.fit(data, Fit::epochs(1).steps_per_epoch(steps)))?;
    Ok((took, history.input))
}

fn read(data: &Dataset, batches: usize) -> Result<Took, Error> {
    let mut iter = data.iter(&Budget::unlimited())?;
    let all = || iter.by_ref().take(batches).try_for_each(|batch| batch.map(drop)).map_err(Error::from);
    Ok(Took::each(batches, all)?.0)
}

/// What the map does to a row, again and again.
fn pass(x: &mut [f32]) {
    std::hint::black_box(&mut *x).iter_mut().for_each(|v| *v = *v * 0.9999 + 1e-5);
}

/// How long that takes, when nobody else is on the core.
fn pass_seconds(features: usize) -> f64 {
    let mut x = vec![1.0; features];
    let block = |_| {
        let start = Instant::now();
        (0..1000).for_each(|_| pass(&mut x));
        start.elapsed().as_secs_f64() / 1e3
    };
    (0..20).map(block).fold(f64::INFINITY, f64::min)
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
