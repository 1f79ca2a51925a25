//! W1: a small network over a data set that is larger than anything else here: 1000 numbers in, one hidden layer of 128, one
//! yes or no out, in batches of 32.
//!
//!     cargo run --release -p plimsoll --example w1_mlp -- [--data DIR] [--rows 200000] [--steps 1000] [--json]
//!
//! With `--data`, rows come from `DIR/x.npy` and `DIR/y.npy` (float32; `benches/peers/data.py` makes them) by positional
//! reads; otherwise they are drawn as they are needed, with random labels. Either way the data set is never in memory.
//!
//! Expect about 0.2 ms a step on two cores and a process of about 10 MiB, whatever the number of rows. On the files the
//! loss falls below 0.2 within the 6250 steps of an epoch; on drawn rows it has nothing to learn and stays at 0.7.

mod workloads;

use plimsoll::data::AUTOTUNE;
use workloads::data::{noise_with_answers, npy_rows};
use workloads::measure::{Args, Measure};
use workloads::models::Mlp;

fn main() -> Result<(), plimsoll::Error> {
    let mut args = Args::new("W1: a small network over a large data set");
    let measure = Measure::new(&mut args, "W1", 100, 1000);
    let batch = args.number("--batch", 32);
    let hidden = args.number("--hidden", Mlp::FULL.hidden);
    let rows = args.number("--rows", 200_000);
    let directory = args.text("--data");
    args.finish();
    match directory {
        Some(directory) => {
            let (rows, features) = npy_rows(directory.as_ref())?;
            let mlp = Mlp { features, hidden };
            measure.run(mlp.trainer()?, &rows.batch(batch).prefetch(AUTOTUNE))
        }
        None => {
            let mlp = Mlp { hidden, ..Mlp::FULL };
            measure.run(mlp.trainer()?, &noise_with_answers(rows, mlp.features).batch(batch))
        }
    }
}
