//! Killed at any step and started again, training gives the same bits as if it had never stopped.
//!
//! The runs are processes of their own: this test starts itself again and kills what it started with SIGKILL.

use plimsoll::callbacks::{Callback, Checkpoint, CsvLog, EarlyStopping, ReduceOnPlateau, Training};
use plimsoll::data::{AUTOTUNE, Arrays};
use plimsoll::layers::{Activation, BatchNorm, Dense, Dropout};
use plimsoll::losses::{MeanAbsoluteError, MeanSquaredError};
use plimsoll::metrics::Mean;
use plimsoll::model::Model;
use plimsoll::optimizers::{Adam, Sgd};
use plimsoll::schedules::Schedule;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{Error, Tensor};
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VARIABLE: &str = "PLIMSOLL_TEST_RESUME";

fn data() -> Arrays {
    let x: Vec<f32> = (0..123 * 4).map(|i| (i * 37 % 101) as f32 / 101.0).collect();
    let y: Vec<f32> = x.chunks(4).map(|x| x[0] * x[1] - x[2] + 0.5 * x[3]).collect();
    Arrays::new(Tensor::from_slice([123, 4], &x).unwrap(), Tensor::from_slice([123, 1], &y).unwrap()).unwrap()
}

fn model(width: usize) -> Model {
    Model::sequential([4])
        .layer(Dense::new(width).activation(Activation::Tanh))
        .layer(BatchNorm::new())
        .layer(Dropout::new(0.2))
        .layer(Dense::new(1))
}

fn trainer(width: usize) -> Trainer {
    let optimizer = Adam::new(Schedule::cosine(0.01, 100, 0.0));
    Trainer::new(model(width), MeanSquaredError, optimizer).unwrap().seed(3).metric(Mean::of(MeanAbsoluteError))
}

/// Says what every step and epoch came to.
struct Tell;

impl Callback for Tell {
    fn on_step_end(&mut self, training: &mut dyn Training, _: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        println!("\nSTEP {} {:016x}", training.steps_done(), loss.to_bits());
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(
        &mut self,
        _: &mut dyn Training,
        epoch: usize,
        logs: &plimsoll::callbacks::Logs,
    ) -> Result<ControlFlow<()>, Error> {
        let figures: Vec<String> = logs.iter().map(|(name, v)| format!("{name}={:016x}", v.to_bits())).collect();
        println!("\nEPOCH {epoch} {}", figures.join(","));
        Ok(ControlFlow::Continue(()))
    }
}

/// Trains one of several ways, from the last checkpoint of the folder on.
#[test]
fn child() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let (way, folder) = what.split_once(' ').unwrap();
    let arrays = data();
    let rows = arrays.dataset();
    let mut trainer = trainer(16).threads(1 + std::process::id() as usize % 2);
    trainer.load_latest_checkpoint(folder).unwrap();
    let mut fit = Fit::epochs(10).callback(Checkpoint::every_steps(folder, 3).keep(2));
    if way == "epochs" {
        fit = Fit::epochs(10).callback(Checkpoint::every_epochs(folder, 1));
    }
    let log = Path::new(folder).join("log.csv");
    if way == "watched" {
        // Out of the order that they are called in.
        fit = fit.callback(CsvLog::new(&log)).callback(ReduceOnPlateau::new("val_loss").patience(1).factor(0.3));
        fit = fit.callback(EarlyStopping::new("val_loss").patience(2).min_delta(0.05).restore_best());
    }
    let fit = fit.callback(Tell);
    let jumps = rows.map_in_place("0/input", |x: &mut [f32]| x[0] = 1.0 - x[0]).shuffle(None, 7).batch(10);
    let stream = rows.filter(|row| Ok(row.get::<f32>("0/input")?[0] < 0.8)).shuffle(30, 2).batch(10);
    match way {
        "arrays" | "watched" => trainer.fit(&arrays, fit.batch_size(10).validation(&arrays)),
        "jumps" | "epochs" => trainer.fit(&jumps.prefetch(AUTOTUNE), fit),
        "stream" => trainer.fit(&stream.prefetch(AUTOTUNE), fit),
        _ => trainer.fit(&jumps.repeat(None).prefetch(AUTOTUNE), fit.steps_per_epoch(9)),
    }
    .unwrap();
    let weights = trainer.weights().unwrap();
    let log = std::fs::read(log).unwrap_or_default();
    let bytes = weights.iter().flat_map(|(_, t)| t.bytes().to_vec()).chain(log);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3));
    println!("\nEND {hash:016x}");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("plimsoll-resume-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Folder(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a run said until it ended, or was killed after so many steps; whether it ended.
fn run(way: &str, folder: &Path, kill_after: Option<u64>) -> (Vec<String>, bool) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command.env(VARIABLE, format!("{way} {}", folder.display())).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let (mut said, mut steps, mut killed) = (Vec::new(), 0, false);
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if !["STEP ", "EPOCH ", "END "].iter().any(|word| line.starts_with(word)) {
            continue;
        }
        steps += line.starts_with("STEP ") as u64;
        said.push(line);
        if Some(steps) == kill_after {
            // It may have come to its end before this.
            process.kill().unwrap();
            killed = true;
            break;
        }
    }
    let ended = process.wait().unwrap().success();
    (said, ended && !killed)
}

fn check(way: &str) -> Vec<String> {
    let unbroken = Folder::new(&format!("{way}-whole"));
    let (expected, ended) = run(way, &unbroken.0, None);
    assert!(ended && expected.last().unwrap().starts_with("END"), "{expected:?}");
    let folder = Folder::new(way);
    let (mut kills, mut dice) = (0, 1u64);
    loop {
        dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // The first checkpoint comes after 3 steps or an epoch, so that every run gets further in the end.
        let least = if way == "epochs" { 14 } else { 4 };
        let (said, ended) = run(way, &folder.0, (kills < 18).then_some(least + (dice >> 33) % 6));
        // Steps after the last checkpoint are run again, and come to the same.
        for line in &said {
            assert!(expected.contains(line), "{way}, after {kills} kills: {line}");
        }
        if ended {
            assert_eq!(said.last(), expected.last(), "{way}");
            // Once more, and there is nothing left to do.
            assert_eq!(run(way, &folder.0, None), (vec![said.last().unwrap().clone()], true), "{way}");
            break;
        }
        kills += 1;
    }
    assert!(kills >= 6, "{way}: {kills} kills");
    println!("{way}: the same after {kills} kills");
    expected
}

#[test]
fn arrays() {
    check("arrays");
}

#[test]
fn a_pipeline_that_jumps() {
    check("jumps");
}

#[test]
fn a_pipeline_that_goes_through() {
    check("stream");
}

#[test]
fn epochs_of_so_many_steps() {
    check("steps");
}

#[test]
fn checkpoints_after_epochs() {
    check("epochs");
}

/// What callbacks wait for, the best weights so far and the log go on too.
#[test]
fn callbacks_that_watch() {
    let said = check("watched");
    let epochs = said.iter().filter(|line| line.starts_with("EPOCH")).count();
    assert!((4..10).contains(&epochs), "stopped early, after {epochs} epochs");
}

#[test]
fn damaged_checkpoints_are_told_and_passed_over() {
    let folder = Folder::new("damaged");
    let mut whole = trainer(16);
    whole.fit(&data(), Fit::epochs(2).batch_size(10).callback(Checkpoint::every_steps(&folder.0, 5).keep(2))).unwrap();
    let files = folder.files();
    let names: Vec<&str> = files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["step-000000000025.safetensors", "step-000000000026.safetensors"]);
    let good = std::fs::read(&files[1]).unwrap();
    let before = trainer(16).weights().unwrap();
    // Cut short, and a bit in every 97th byte.
    let cut = (0..good.len()).step_by(501).map(|n| good[..n].to_vec());
    let flipped = (0..good.len()).step_by(97).map(|at| {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        bad
    });
    for bad in cut.chain(flipped) {
        std::fs::write(&files[1], &bad).unwrap();
        let mut trainer = trainer(16);
        let error = trainer.load_checkpoint(&files[1]).unwrap_err().to_string();
        assert!(error.contains("step-000000000026.safetensors"), "{error}");
        assert_eq!((trainer.weights().unwrap(), trainer.steps_done()), (before.clone(), 0), "nothing has changed");
        let loaded = trainer.load_latest_checkpoint(&folder.0).unwrap().unwrap();
        assert_eq!((loaded.path, loaded.damaged.len()), (files[0].clone(), 1));
        assert_eq!(trainer.steps_done(), 25);
    }
    std::fs::write(&files[1], &good).unwrap();
    // A checkpoint of another model, another optimizer, and weights alone.
    let error = trainer(17).load_checkpoint(&files[1]).unwrap_err().to_string();
    assert!(error.contains("but it is f32[4,17] here"), "{error}");
    let mut other = Trainer::new(model(16), MeanSquaredError, Sgd::new(0.1)).unwrap();
    let error = other.load_checkpoint(&files[1]).unwrap_err().to_string();
    assert!(error.contains("which this model and optimizer do not have"), "{error}");
    whole.save_weights(&files[0]).unwrap();
    let error = trainer(16).load_checkpoint(&files[0]).unwrap_err().to_string();
    assert!(error.contains("it is no checkpoint"), "{error}");
}

/// Saved and loaded around everything that makes steps: nothing is lost.
#[test]
fn between_fits() {
    let folder = Folder::new("between");
    std::fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("c.safetensors");
    let arrays = data();
    let fit = |trainer: &mut Trainer, epochs: usize| trainer.fit(&arrays, Fit::epochs(epochs).batch_size(10)).unwrap();
    let mut unbroken = trainer(16);
    fit(&mut unbroken, 3);
    let mut first = trainer(16);
    first.save_checkpoint(&path).unwrap();
    let mut second = trainer(16).seed(99);
    second.load_checkpoint(&path).unwrap();
    fit(&mut second, 1);
    second.save_checkpoint(&path).unwrap();
    // Steps for prediction do not have the optimizer's states, which the next checkpoint has nevertheless.
    let mut third = trainer(16);
    third.load_checkpoint(&path).unwrap();
    third.predict(&arrays, 50).unwrap();
    third.save_checkpoint(&path).unwrap();
    let mut fourth = trainer(16);
    fit(&mut fourth, 2);
    fourth.load_checkpoint(&path).unwrap();
    fit(&mut fourth, 3);
    assert_eq!(fourth.weights().unwrap(), unbroken.weights().unwrap());
    assert_eq!(fourth.steps_done(), unbroken.steps_done());
    // Another data set is refused.
    let mut stopped = trainer(16);
    let mut seen = 0;
    let stop = StopAfter(5, &mut seen);
    stopped.fit(&arrays, Fit::epochs(3).batch_size(10).callback(stop)).unwrap();
    stopped.save_checkpoint(&path).unwrap();
    let mut other = trainer(16);
    other.load_checkpoint(&path).unwrap();
    let error = other.fit(&arrays.dataset().batch(10), Fit::epochs(3)).unwrap_err().to_string();
    assert!(error.contains("another pipeline"), "{error}");
    other.load_checkpoint(&path).unwrap();
    fit(&mut other, 3);
    assert_eq!(other.weights().unwrap(), unbroken.weights().unwrap(), "stopped in the middle of an epoch");
}

struct StopAfter<'a>(usize, &'a mut usize);

impl Callback for StopAfter<'_> {
    fn on_step_end(&mut self, _: &mut dyn Training, _: usize, _: f64) -> Result<ControlFlow<()>, Error> {
        *self.1 += 1;
        Ok(if *self.1 == self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
