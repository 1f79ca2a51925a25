//! Trains a small model for a moment and writes event files for TensorBoard.
//!
//!     cargo run -p plimsoll-run --example events -- DIRECTORY
//!     python scripts/check_tensorboard.py DIRECTORY

use plimsoll::Tensor;
use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll_run::RunLog;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: events DIRECTORY")?;
    let x: Vec<f32> = (0..256).map(|i| i as f32 / 128.0 - 1.0).collect();
    let y: Vec<f32> = x.iter().map(|x| (3.0 * x).sin()).collect();
    let data = Arrays::new(Tensor::from_slice([256, 1], &x)?, Tensor::from_slice([256, 1], &y)?)?;
    let model = Model::sequential([1]).layer(Dense::new(32).activation(Activation::Tanh)).layer(Dense::new(1));
    let mut trainer = Trainer::new(model, MeanSquaredError, Adam::new(1e-2))?.memory_limit("64MiB");
    let log = RunLog::create(&directory, "a sine")?.step_interval(Duration::ZERO).tensorboard(&directory)?;
    let history = trainer.fit(&data, Fit::epochs(20).batch_size(64).callback(log))?;
    println!("20 epochs, loss {:.4}, in {directory}", history.last("loss").unwrap_or(f64::NAN));
    Ok(())
}
