//! W6: memory. 24 layers of 2048 x 2048 with ReLU and a batch of 4096: 384 MiB of parameters and 768 MiB of activations, mean
//! squared error, gradient descent. One batch of normal numbers, drawn again for every step.
//!
//!     cargo run --release -p plimsoll --example w6_wall -- [--steps 1] [--repeats 3] [--json] [--profile]
//!
//! A step is 2.5 TFLOP: expect 8 to 10 s on two cores with AVX-512, and a loss that begins near 2.3 and falls quickly.

mod workloads;

use workloads::data::noise;
use workloads::measure::{Args, Measure};
use workloads::models::Wall;

fn main() -> Result<(), plimsoll::Error> {
    let mut args = Args::new("W6: activations dominate");
    let measure = Measure::new(&mut args, "W6", 1, 1);
    let batch = args.number("--batch", 4096);
    let wall =
        Wall { layers: args.number("--layers", Wall::FULL.layers), width: args.number("--width", Wall::FULL.width) };
    args.finish();
    measure.run(wall.trainer()?, &noise(batch, &[wall.width], &[wall.width]).batch(batch))
}
