//! A memory limit is kept by the whole process, as the kernel counts (VmHWM), and changes no result.
//!
//! Every run is a process of its own: this test starts itself again with a limit in the environment.

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{Bytes, Error, Tensor, measure};
use std::process::Command;

const VARIABLE: &str = "PLIMSOLL_TEST_LIMIT_KIB";

/// Trains a deep network, whose activations are most of its memory, under the limit of the environment.
#[test]
fn child() {
    let Ok(limit) = std::env::var(VARIABLE) else { return };
    let n = 4096;
    let numbers = |width: usize, salt: usize| -> Tensor {
        let data: Vec<f32> = (0..n * width).map(|i| ((i * 7919 + salt) % 1009) as f32 / 500.0 - 1.0).collect();
        Tensor::from_slice([n, width], &data).unwrap()
    };
    let mut model = Model::sequential([64]);
    for _ in 0..16 {
        model = model.layer(Dense::new(256).activation(Activation::Tanh));
    }
    let model = model.layer(Dense::new(4));
    let mut trainer = Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2);
    if limit != "none" {
        trainer = trainer.memory_limit(Bytes::kib(limit.parse().unwrap()));
    }
    let data = Arrays::new(numbers(64, 1), numbers(4, 2)).unwrap();
    match trainer.fit(&data, Fit::epochs(2).batch_size(n)) {
        Ok(history) => {
            let losses: Vec<u64> = history.get("loss").unwrap().iter().map(|l| l.to_bits()).collect();
            println!("\nRESULT {} {losses:?}", measure::usage().unwrap().peak.0 / 1024);
        }
        Err(Error::WouldNotFit(refusal)) => println!("\nREFUSED {} -", refusal.smallest.0.div_ceil(1024)),
        Err(other) => panic!("{other}"),
    }
}

/// What a child with this limit says: whether it ran, a number of KiB and its losses.
fn run(limit: &str) -> (bool, u64, String) {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).args(["--exact", "child", "--nocapture"]).env(VARIABLE, limit).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|l| l.starts_with("RESULT") || l.starts_with("REFUSED"));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let mut words = line.splitn(3, ' ');
    let ran = words.next() == Some("RESULT");
    let kib = words.next().unwrap().parse().unwrap();
    (ran, kib, words.next().unwrap().to_owned())
}

#[test]
fn limits_are_kept_or_refused() {
    let (_, free, losses) = run("none");
    let (ran, smallest, _) = run("20000");
    assert!(!ran, "20 MB are too few");
    println!("without a limit {free} KiB; the smallest limit is {smallest} KiB");
    assert!(smallest < free, "computing again saves memory: {smallest} of {free} KiB");
    // From the smallest limit to plenty.
    for limit in [smallest, (smallest + free) / 2, free, free * 2] {
        let (ran, peak, same) = run(&limit.to_string());
        println!(
            "limit {limit} KiB: {}",
            if ran { format!("peak {peak} KiB") } else { format!("refused, {peak} KiB would do") }
        );
        assert!(ran, "{limit} KiB are enough");
        assert!(peak <= limit, "{peak} KiB with a limit of {limit}");
        assert_eq!(same, losses, "the limit changes no result");
    }
}
