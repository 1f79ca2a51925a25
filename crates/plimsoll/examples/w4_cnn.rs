//! W4: a convolutional network on small images: 32 x 32 x 3 in batches of 64, five convolutions with batch norm, ten classes,
//! Adam. 32 batches of noise with random labels are used in turn.
//!
//!     cargo run --release -p plimsoll --example w4_cnn -- [--steps 20] [--json] [--profile]
//!
//! Expect 60 to 100 ms a step on two cores and a loss that begins near 2.4 and falls slowly: there is nothing to learn but
//! the examples themselves.

mod workloads;

use plimsoll::Tensor;
use plimsoll::data::Arrays;
use plimsoll_kernels::random::{self, Distribution, Key};
use workloads::measure::{Args, Measure};
use workloads::models::Cnn;

fn main() -> Result<(), plimsoll::Error> {
    let mut args = Args::new("W4: a convolutional network on small images");
    let measure = Measure::new(&mut args, "W4", 3, 20);
    let batch = args.number("--batch", 64);
    let image = args.number("--image", 32);
    args.finish();
    let cnn = Cnn { image, ..Cnn::full() };
    let rows = 32 * batch;
    let mut pixels = Tensor::zeros(plimsoll::DType::F32, [rows, image, image, 3]);
    random::fill_f32(Distribution::Normal, Key { seed: 0, step: 0, stream: 0 }, 0, pixels.as_mut_slice()?);
    let labels: Vec<i32> =
        (0..rows as u64).map(|i| (workloads::data::scatter(i) % cnn.classes as u64) as i32).collect();
    let data = Arrays::new(pixels, Tensor::from_slice([rows], &labels)?)?;
    measure.run(cnn.trainer()?, &data.dataset().batch(batch))
}
