//! A model whose weights and optimizer state are four times the memory limit trains, to the same bits; weights that are made whole are
//! made within it.

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense, LSTM};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Error, Tensor, measure};
use std::process::Command;

const VARIABLE: &str = "PLIMSOLL_TEST_STATES_IN_FILE";
const LAYERS: usize = 20;
const WIDTH: usize = 1024;

/// Trains for two steps under the limit of the environment and says what it came to.
#[test]
fn child() {
    let Ok(limit) = std::env::var(VARIABLE) else { return };
    let mut model = Model::sequential([WIDTH]);
    for _ in 0..LAYERS {
        model = model.layer(Dense::new(WIDTH).activation(Activation::Tanh));
    }
    let ones = Tensor::from_slice([16, WIDTH], &[0.5f32; 16 * WIDTH]).unwrap();
    let data = Arrays::new(ones, Tensor::zeros(DType::F32, [16, WIDTH])).unwrap();
    let trainer = Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2);
    let mut trainer = trainer.memory_limit(limit.as_str());
    let history = trainer.fit(&data, Fit::epochs(3).batch_size(16).in_order()).unwrap();
    let loss: Vec<u64> = history.get("loss").unwrap().iter().map(|l| l.to_bits()).collect();
    let in_file = trainer.kept().unwrap().states_in_file;
    println!("\nRESULT {} {} {loss:?}", measure::usage().unwrap().peak.0, in_file.0);
}

const UNITS: usize = 640;

/// A model whose recurrent weights, made orthogonal, are by far the most of it.
fn recurrent() -> (Trainer, Arrays) {
    let model = Model::sequential([2, 4]).layer(LSTM::new(UNITS)).layer(Dense::new(1));
    let data = Arrays::new(Tensor::zeros(DType::F32, [2, 2, 4]), Tensor::zeros(DType::F32, [2, 1])).unwrap();
    (Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(1), data)
}

#[test]
fn recurrent_child() {
    let Ok(limit) = std::env::var(VARIABLE) else { return };
    let (trainer, data) = recurrent();
    let mut trainer = trainer.memory_limit(limit.as_str());
    match trainer.fit(&data, Fit::epochs(1).batch_size(2)) {
        Ok(_) => println!("\nRESULT {} 0 ran", measure::usage().unwrap().peak.0),
        Err(Error::WouldNotFit(refusal)) => println!("\nRESULT {} 0 refused", refusal.smallest.0),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn weights_that_are_made_whole_are_made_within_the_smallest_limit() {
    let (smallest, _, refused) = run_child("recurrent_child", "1MiB");
    let (peak, _, ran) = run_child("recurrent_child", &format!("{}KiB", smallest / 1024));
    println!("{} bytes of recurrent weights: a peak of {peak} within {smallest}", UNITS * UNITS * 4 * 4);
    assert_eq!((refused.as_str(), ran.as_str()), ("refused", "ran"));
    assert!(peak <= smallest, "{peak} of {smallest}");
}

fn run(limit: &str) -> (u64, u64, String) {
    run_child("child", limit)
}

fn run_child(name: &str, limit: &str) -> (u64, u64, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name, "--nocapture"]).env(VARIABLE, limit).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let mut words =
        result.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).splitn(3, ' ');
    let mut number = || words.next().unwrap().parse().unwrap();
    (number(), number(), words.next().unwrap().to_owned())
}

#[test]
fn a_model_four_times_the_limit_trains() {
    let states = (LAYERS * (WIDTH * WIDTH + WIDTH) * 3 * 4) as u64;
    let limit = states / 4;
    let (peak, in_file, loss) = run(&format!("{}KiB", limit / 1024));
    let (free_peak, none, free_loss) = run("2GiB");
    println!("{states} bytes of states: a peak of {peak} within {limit}, {in_file} in the file; {free_peak} without");
    assert!(peak <= limit, "{peak} of {limit}");
    assert!(in_file > 3 * limit && none == 0 && free_peak > states);
    assert_eq!(loss, free_loss);
}
