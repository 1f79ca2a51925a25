//! Making, saving and loading a model's weights takes no second copy of them, as the kernel counts (VmHWM).
//!
//! The run is a process of its own: this test starts itself again.

use plimsoll::layers::Dense;
use plimsoll::losses::MeanSquaredError;
use plimsoll::measure;
use plimsoll::model::Model;
use plimsoll::optimizers::Sgd;
use plimsoll::trainer::Trainer;
use std::process::Command;

const VARIABLE: &str = "PLIMSOLL_TEST_WEIGHTS";

/// 64 MiB of weights.
const WIDTH: usize = 4096;

fn peak() -> u64 {
    measure::usage().unwrap().peak.0
}

#[test]
fn child() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let path = std::env::temp_dir().join(format!("plimsoll-pieces-{}.safetensors", std::process::id()));
    let trainer = |seed: u64| {
        let model = Model::sequential([WIDTH]).layer(Dense::new(WIDTH));
        Trainer::new(model, MeanSquaredError, Sgd::new(0.1)).unwrap().threads(1).seed(seed)
    };
    let start = peak();
    let mut one = trainer(1);
    one.save_weights(&path).unwrap();
    let saved = peak();
    let first = one.weights().unwrap();
    drop(one);
    measure::reset_peak().unwrap();
    let with_copy = peak();
    let mut other = trainer(2);
    other.load_weights(&path).unwrap();
    let loaded = peak();
    assert!(other.weights().unwrap() == first, "what was saved is loaded");
    other.save_checkpoint(&path).unwrap();
    drop(other);
    measure::reset_peak().unwrap();
    let between = peak();
    let mut third = trainer(3);
    third.load_checkpoint(&path).unwrap();
    third.save_checkpoint(&path).unwrap();
    let resumed = peak();
    assert!(third.weights().unwrap() == first, "what was saved is loaded");
    std::fs::remove_file(&path).unwrap();
    println!("\nRESULT {} {} {}", saved - start, loaded - with_copy, resumed - between);
}

#[test]
fn weights_are_made_saved_and_loaded_without_a_copy() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", "child", "--nocapture"]).env(VARIABLE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|l| l.starts_with("RESULT"));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let weights = (4 * WIDTH * (WIDTH + 1)) as u64;
    for (what, grown) in ["made and saved", "made and loaded", "loaded and saved as a checkpoint"]
        .into_iter()
        .zip(line.split(' ').skip(1))
    {
        let grown: u64 = grown.parse().unwrap();
        println!("{what}: {} KiB for {} KiB of weights", grown >> 10, weights >> 10);
        assert!(grown < weights + (8 << 20), "{what}: {grown} bytes for {weights} bytes of weights");
    }
}
