//! W5: a language model of 7.4 million parameters: vocabulary 8192, width 256, 4 blocks with 4 heads, context 256, in batches of
//! 8, AdamW. 8 batches of random tokens are used in turn.
//!
//!     cargo run --release -p plimsoll --example w5_gpt -- [--steps 4] [--json] [--profile]
//!
//! Expect 300 to 500 ms a step on two cores and a loss that begins at 9.03, the logarithm of 8192, and falls slowly.

mod workloads;

use plimsoll::Tensor;
use plimsoll::data::Arrays;
use workloads::measure::{Args, Measure};
use workloads::models::Gpt;

fn main() -> Result<(), plimsoll::Error> {
    let mut args = Args::new("W5: a language model");
    let measure = Measure::new(&mut args, "W5", 3, 4);
    let batch = args.number("--batch", 8);
    let gpt = Gpt {
        vocabulary: args.number("--vocabulary", Gpt::FULL.vocabulary),
        width: args.number("--width", Gpt::FULL.width),
        blocks: args.number("--blocks", Gpt::FULL.blocks),
        heads: args.number("--heads", Gpt::FULL.heads),
        context: args.number("--context", Gpt::FULL.context),
    };
    args.finish();
    let (rows, time) = (8 * batch, gpt.context);
    let token = |row: usize, at: usize| {
        let place = (row * (time + 1) + at) as u64;
        (workloads::data::scatter(place) % gpt.vocabulary as u64) as i32
    };
    let tokens = |shift: usize| -> Vec<i32> {
        (0..rows).flat_map(|row| (0..time).map(move |at| (row, at + shift))).map(|(row, at)| token(row, at)).collect()
    };
    let (inputs, labels) =
        (Tensor::from_slice([rows, time], &tokens(0))?, Tensor::from_slice([rows, time], &tokens(1))?);
    measure.run(gpt.trainer()?, &Arrays::new(inputs, labels)?.dataset().batch(batch))
}
