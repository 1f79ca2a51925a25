//! W3: the input pipeline alone, without a model: rows of floats, scaled, shuffled, batched, prefetched.
//!
//! Prints one line of JSON per run: rows a second (median of the passes after the first) and the process's peak. Without
//! options: 200,000 rows of 100 floats in memory, batches of 32, in the order map, shuffle, batch, prefetch; well over a million rows
//! a second.
//!
//!     cargo run --release -p plimsoll-data --example w3_rows -- [--cols N] [--rows N] [--batch N] [--passes N] [--data FILE.npy] [--limit MIB] [--buffer N]

use plimsoll_budget::{Budget, Bytes, measure};
use plimsoll_data::{AUTOTUNE, Dataset, Options};
use plimsoll_tensor::Tensor;
use std::time::Instant;

struct Args {
    rows: usize,
    cols: usize,
    batch: usize,
    passes: u64,
    data: Option<String>,
    buffer: Option<u64>,
    limit: u64,
}

fn args() -> Result<Args, String> {
    let mut args = Args { rows: 200_000, cols: 100, batch: 32, passes: 5, data: None, buffer: None, limit: 64 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--json" {
            continue;
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--rows" => args.rows = number()?,
            "--cols" => args.cols = number()?,
            "--batch" => args.batch = number()?,
            "--passes" => args.passes = number()? as u64,
            "--buffer" => args.buffer = Some(number()? as u64),
            "--limit" => args.limit = number()? as u64,
            "--data" => args.data = Some(value),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(args)
}

fn in_memory(args: &Args) -> Result<Dataset, Box<dyn std::error::Error>> {
    let mut x = Tensor::zeros(plimsoll_tensor::DType::F32, [args.rows, args.cols]);
    let mut state = 1u32;
    for v in x.as_mut_slice::<f32>()? {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *v = (state >> 8) as f32 / (1 << 24) as f32;
    }
    Ok(Dataset::from_array("x", x))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = args()?;
    let source = match &args.data {
        Some(path) => Dataset::from_npy(path.as_str()),
        None => in_memory(&args)?,
    };
    let rows = source.cardinality()?.known().unwrap_or(0);
    let data = source
        .map_in_place("x", |x: &mut [f32]| x.iter_mut().for_each(|v| *v = *v * 2.0 - 1.0))
        .shuffle(args.buffer, 1)
        .batch(args.batch)
        .prefetch(AUTOTUNE);
    let budget = Budget::new(Bytes::mib(args.limit));
    let mut times = Vec::new();
    let mut report = None;
    for epoch in 0..args.passes {
        let start = Instant::now();
        let mut iter = data.iter_with(&Options::new(&budget).epoch(epoch))?;
        let mut seen = 0;
        for batch in iter.by_ref() {
            seen += batch?.shape("x")?.dims()[0];
        }
        times.push(start.elapsed().as_secs_f64());
        report = Some(iter.report());
        assert_eq!(seen as u64, rows);
    }
    if let Some(report) = report {
        eprintln!("{report}");
    }
    let mut later = times[1.min(times.len() - 1)..].to_vec();
    later.sort_by(f64::total_cmp);
    let median = later[later.len() / 2];
    println!(
        "{{\"variant\": \"plimsoll\", \"rows_s\": {:.0}, \"rss_peak\": {:.1}, \"held_mib\": {:.2}, \"passes_s\": {times:.3?}}}",
        rows as f64 / median,
        measure::usage()?.peak.0 as f64 / (1 << 20) as f64,
        budget.peak().0 as f64 / (1 << 20) as f64,
    );
    Ok(())
}
