//! A log costs a training step next to nothing, in memory and in time. Alone in its file: it measures the process.

use plimsoll::callbacks::{Callback, Logs, Training};
use plimsoll::{Error, Tensor};
use plimsoll_budget::{Bytes, measure};
use plimsoll_run::RunLog;
use std::path::Path;
use std::time::{Duration, Instant};

/// A training that does nothing.
struct Nothing;

impl Training for Nothing {
    fn learning_rate(&self) -> f64 {
        1e-3
    }
    fn set_learning_rate(&mut self, _: f64) {}
    fn current_weights(&self) -> Result<Vec<(String, Tensor)>, Error> {
        Ok(Vec::new())
    }
    fn replace_weights(&mut self, _: &[(String, Tensor)]) -> Result<(), Error> {
        Ok(())
    }
    fn write_weights(&self, _: &Path) -> Result<(), Error> {
        Ok(())
    }
    fn write_checkpoint(&self, _: &Path) -> Result<(), Error> {
        Ok(())
    }
    fn steps_done(&self) -> u64 {
        0
    }
    fn engine_bytes(&self) -> u64 {
        0
    }
}

fn train(log: &mut RunLog, epochs: usize, steps: usize) -> Duration {
    let begun = Instant::now();
    log.on_train_begin(&mut Nothing, epochs, steps).unwrap();
    for epoch in 0..epochs {
        log.on_epoch_begin(&mut Nothing, epoch).unwrap();
        for step in 0..steps {
            let _ = log.on_step_end(&mut Nothing, step, 1.0 / (step + 1) as f64).unwrap();
        }
        let mut logs = Logs::new();
        logs.push("loss", 0.5);
        let _ = log.on_epoch_end(&mut Nothing, epoch, &logs).unwrap();
    }
    log.on_train_end(&mut Nothing).unwrap();
    begun.elapsed()
}

#[test]
fn a_log_neither_grows_nor_slows_a_run() {
    let directory = std::env::temp_dir().join(format!("plimsoll-bounded-{}", std::process::id()));
    let before = measure::usage().unwrap().anonymous;
    let mut log = RunLog::create(&directory, "nothing").unwrap();
    train(&mut log, 2, 100);
    let opened = measure::usage().unwrap().anonymous;
    let time = train(&mut log, 200, 2000);
    // And with a line for every step: as many lines as a day of training has.
    let mut log = log.step_interval(Duration::ZERO);
    train(&mut log, 20, 2000);
    let after = measure::usage().unwrap().anonymous;
    let written = std::fs::metadata(directory.join(plimsoll_run::LOG)).unwrap().len();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(written > 4 << 20, "{written}");
    assert!(opened.saturating_sub(before) < Bytes::kib(768), "opened {before} to {opened}");
    assert!(after.saturating_sub(opened) < Bytes::kib(256), "grew {opened} to {after}");
    let each = time / 400_000;
    eprintln!("{each:?} a step, {written} bytes written, {before} before, {opened} opened, {after} after");
    assert!(each < Duration::from_micros(50), "{each:?}");
}
