//! Callbacks: what happens between the steps and epochs of `fit`.

use crate::error::Error;
use crate::trainer::{checkpoint_name, checkpoints, remove_unfinished};
use plimsoll_tensor::Tensor;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// The figures of a step or an epoch, by name: `loss`, metrics, and with validation data the same after `val_`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logs {
    entries: Vec<(String, f64)>,
}

impl Logs {
    /// No figures.
    pub fn new() -> Logs {
        Logs::default()
    }

    /// The figure of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.entries.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    /// Adds a figure.
    pub fn push(&mut self, name: impl Into<String>, value: f64) {
        self.entries.push((name.into(), value));
    }

    /// All figures, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.entries.iter().map(|(n, v)| (n.as_str(), *v))
    }
}

/// What a callback can see and change.
pub trait Training {
    /// The learning rate of the next step.
    fn learning_rate(&self) -> f64;
    /// Overrides the optimizer's schedule from the next step on.
    fn set_learning_rate(&mut self, rate: f64);
    /// Copies of all weights and statistics.
    ///
    /// # Errors
    /// When those that live in a file cannot be read.
    fn current_weights(&self) -> Result<Vec<(String, Tensor)>, Error>;
    /// Sets weights and statistics.
    ///
    /// # Errors
    /// When a name or type does not match.
    fn replace_weights(&mut self, weights: &[(String, Tensor)]) -> Result<(), Error>;
    /// Writes weights and statistics to a file.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn write_weights(&self, path: &std::path::Path) -> Result<(), Error>;
    /// Writes a checkpoint to a file: see [`Trainer::save_checkpoint`](crate::trainer::Trainer::save_checkpoint).
    ///
    /// # Errors
    /// When the file cannot be written.
    fn write_checkpoint(&self, path: &std::path::Path) -> Result<(), Error>;
    /// Training steps done so far.
    fn steps_done(&self) -> u64;
    /// Bytes that the engine holds: states and arena.
    fn engine_bytes(&self) -> u64;
}

/// Something that is told about the progress of `fit`, and can stop it.
pub trait Callback {
    /// How many copies of all weights and statistics it keeps: their memory is reserved before training.
    fn copies_of_weights(&self) -> usize {
        0
    }

    /// Training begins: so many epochs of so many steps.
    ///
    /// # Errors
    /// Ends training with this error, as in all other methods.
    fn on_train_begin(&mut self, _training: &mut dyn Training, _epochs: usize, _steps: usize) -> Result<(), Error> {
        Ok(())
    }

    /// An epoch begins (counted from 0).
    ///
    /// # Errors
    /// See [`Callback::on_train_begin`].
    fn on_epoch_begin(&mut self, _training: &mut dyn Training, _epoch: usize) -> Result<(), Error> {
        Ok(())
    }

    /// A step of the epoch (counted from 0) is done; `loss` is that of its batch.
    ///
    /// # Errors
    /// See [`Callback::on_train_begin`].
    fn on_step_end(
        &mut self,
        _training: &mut dyn Training,
        _step: usize,
        _loss: f64,
    ) -> Result<ControlFlow<()>, Error> {
        Ok(ControlFlow::Continue(()))
    }

    /// An epoch is done, validation included.
    ///
    /// # Errors
    /// See [`Callback::on_train_begin`].
    fn on_epoch_end(
        &mut self,
        _training: &mut dyn Training,
        _epoch: usize,
        _logs: &Logs,
    ) -> Result<ControlFlow<()>, Error> {
        Ok(ControlFlow::Continue(()))
    }

    /// Training ends, for whatever reason but an error.
    ///
    /// # Errors
    /// See [`Callback::on_train_begin`].
    fn on_train_end(&mut self, _training: &mut dyn Training) -> Result<(), Error> {
        Ok(())
    }
}

/// Which way a figure gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A loss.
    Smaller,
    /// An accuracy.
    Larger,
}

impl Better {
    /// By the figure's name: losses and errors smaller, everything else larger.
    fn of(name: &str) -> Better {
        let small = ["loss", "error", "mse", "mae", "rmse", "hinge", "entropy", "divergence"];
        if small.iter().any(|s| name.contains(s)) { Better::Smaller } else { Better::Larger }
    }

    fn improves(self, new: f64, best: f64, by: f64) -> bool {
        match self {
            Better::Smaller => new < best - by,
            Better::Larger => new > best + by,
        }
    }

    fn worst(self) -> f64 {
        if self == Better::Smaller { f64::INFINITY } else { f64::NEG_INFINITY }
    }
}

/// Follows a figure: the best so far and how long ago that was.
#[derive(Clone, Debug)]
struct Watch {
    monitor: String,
    better: Better,
    min_delta: f64,
    best: f64,
    waited: usize,
}

impl Watch {
    fn new(monitor: &str) -> Watch {
        let better = Better::of(monitor);
        Watch { monitor: monitor.into(), better, min_delta: 0.0, best: better.worst(), waited: 0 }
    }

    /// Whether this epoch is the best so far.
    fn see(&mut self, logs: &Logs) -> Result<bool, Error> {
        let names = || logs.iter().map(|(n, _)| n).collect::<Vec<_>>().join(", ");
        let Some(value) = logs.get(&self.monitor) else {
            return Err(Error::config(
                "callback",
                format!("there is no figure '{}'; there are {}", self.monitor, names()),
            ));
        };
        let improved = self.better.improves(value, self.best, self.min_delta);
        if improved {
            self.best = value;
            self.waited = 0;
        } else {
            self.waited += 1;
        }
        Ok(improved)
    }
}

/// Stops when a figure has not improved for some epochs.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    watch: Watch,
    patience: usize,
    restore_best: bool,
    best_weights: Vec<(String, Tensor)>,
}

impl EarlyStopping {
    /// Watches a figure (`val_loss`, say) with patience 0.
    pub fn new(monitor: &str) -> EarlyStopping {
        EarlyStopping { watch: Watch::new(monitor), patience: 0, restore_best: false, best_weights: Vec::new() }
    }

    /// Waits for so many epochs without improvement.
    #[must_use]
    pub fn patience(self, patience: usize) -> EarlyStopping {
        EarlyStopping { patience, ..self }
    }

    /// Counts as an improvement only what is better by more than this.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.watch.min_delta = min_delta.abs();
        self
    }

    /// Says which way the figure gets better, where its name does not tell.
    #[must_use]
    pub fn better(mut self, better: Better) -> EarlyStopping {
        self.watch.better = better;
        self.watch.best = better.worst();
        self
    }

    /// Goes back to the best epoch's weights at the end. Keeps a copy of them meanwhile.
    #[must_use]
    pub fn restore_best(self) -> EarlyStopping {
        EarlyStopping { restore_best: true, ..self }
    }
}

impl Callback for EarlyStopping {
    fn copies_of_weights(&self) -> usize {
        self.restore_best as usize
    }

    fn on_epoch_end(&mut self, training: &mut dyn Training, _: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        if self.watch.see(logs)? && self.restore_best {
            // The old ones go first, so that there are never two copies.
            self.best_weights.clear();
            self.best_weights = training.current_weights()?;
        }
        Ok(if self.watch.waited > self.patience { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn on_train_end(&mut self, training: &mut dyn Training) -> Result<(), Error> {
        if self.best_weights.is_empty() { Ok(()) } else { training.replace_weights(&self.best_weights) }
    }
}

/// Lowers the learning rate when a figure has not improved for some epochs.
#[derive(Clone, Debug)]
pub struct ReduceOnPlateau {
    watch: Watch,
    factor: f64,
    patience: usize,
    min_rate: f64,
}

impl ReduceOnPlateau {
    /// Watches a figure; multiplies the rate by 0.1 after 10 epochs without improvement.
    pub fn new(monitor: &str) -> ReduceOnPlateau {
        let mut watch = Watch::new(monitor);
        watch.min_delta = 1e-4;
        ReduceOnPlateau { watch, factor: 0.1, patience: 10, min_rate: 0.0 }
    }

    /// The factor.
    #[must_use]
    pub fn factor(self, factor: f64) -> ReduceOnPlateau {
        ReduceOnPlateau { factor, ..self }
    }

    /// Epochs to wait.
    #[must_use]
    pub fn patience(self, patience: usize) -> ReduceOnPlateau {
        ReduceOnPlateau { patience, ..self }
    }

    /// Never below this.
    #[must_use]
    pub fn min_rate(self, min_rate: f64) -> ReduceOnPlateau {
        ReduceOnPlateau { min_rate, ..self }
    }
}

impl Callback for ReduceOnPlateau {
    fn on_epoch_end(&mut self, training: &mut dyn Training, _: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        self.watch.see(logs)?;
        if self.watch.waited >= self.patience.max(1) {
            let rate = (training.learning_rate() * self.factor).max(self.min_rate);
            training.set_learning_rate(rate);
            self.watch.waited = 0;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Sets the learning rate at the beginning of each epoch: `rate(epoch, rate now)`.
pub struct RateSchedule<F>(pub F);

impl<F: FnMut(usize, f64) -> f64> Callback for RateSchedule<F> {
    fn on_epoch_begin(&mut self, training: &mut dyn Training, epoch: usize) -> Result<(), Error> {
        let rate = (self.0)(epoch, training.learning_rate());
        training.set_learning_rate(rate);
        Ok(())
    }
}

/// Calls a function at the end of every epoch; training goes on while it says so.
pub struct EveryEpoch<F>(pub F);

impl<F: FnMut(usize, &Logs) -> ControlFlow<()>> Callback for EveryEpoch<F> {
    fn on_epoch_end(&mut self, _: &mut dyn Training, epoch: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        Ok((self.0)(epoch, logs))
    }
}

/// Writes the figures of every epoch to a CSV file.
pub struct CsvLog {
    path: PathBuf,
    file: Option<std::fs::File>,
}

impl CsvLog {
    /// To this file, which is made anew.
    pub fn new(path: impl Into<PathBuf>) -> CsvLog {
        CsvLog { path: path.into(), file: None }
    }
}

impl Callback for CsvLog {
    fn on_epoch_end(&mut self, _: &mut dyn Training, epoch: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        let mut text = String::new();
        if self.file.is_none() {
            self.file = Some(std::fs::File::create(&self.path).map_err(|e| Error::file(&self.path, e.to_string()))?);
            text += "epoch";
            logs.iter().for_each(|(name, _)| text += &format!(",{name}"));
            text.push('\n');
        }
        text += &(epoch + 1).to_string();
        logs.iter().for_each(|(_, value)| text += &format!(",{value}"));
        text.push('\n');
        let file = self.file.as_mut().expect("opened above");
        file.write_all(text.as_bytes()).map_err(|e| Error::file(&self.path, e.to_string()))?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Saves the weights after every epoch, or only after the best ones.
pub struct SaveWeights {
    path: PathBuf,
    watch: Option<Watch>,
}

impl SaveWeights {
    /// To this file after every epoch; `{epoch}` in the name stands for its number, counted from 1.
    pub fn every_epoch(path: impl Into<PathBuf>) -> SaveWeights {
        SaveWeights { path: path.into(), watch: None }
    }

    /// To this file whenever a figure is the best so far.
    pub fn best(path: impl Into<PathBuf>, monitor: &str) -> SaveWeights {
        SaveWeights { path: path.into(), watch: Some(Watch::new(monitor)) }
    }
}

impl Callback for SaveWeights {
    fn on_epoch_end(
        &mut self,
        training: &mut dyn Training,
        epoch: usize,
        logs: &Logs,
    ) -> Result<ControlFlow<()>, Error> {
        let due = match &mut self.watch {
            None => true,
            Some(watch) => watch.see(logs)?,
        };
        if due {
            let path = self.path.to_string_lossy().replace("{epoch}", &(epoch + 1).to_string());
            training.write_weights(path.as_ref())?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Writes checkpoints to a folder, as files by the number of steps, and keeps the last few.
///
/// [`Trainer::load_latest_checkpoint`](crate::trainer::Trainer::load_latest_checkpoint) goes on from there, with an example.
pub struct Checkpoint {
    folder: PathBuf,
    every: Every,
    keep: usize,
}

enum Every {
    Steps(u64),
    Epochs(usize),
}

impl Checkpoint {
    /// After every so many steps.
    pub fn every_steps(folder: impl Into<PathBuf>, steps: u64) -> Checkpoint {
        Checkpoint { folder: folder.into(), every: Every::Steps(steps.max(1)), keep: 3 }
    }

    /// After every so many epochs.
    pub fn every_epochs(folder: impl Into<PathBuf>, epochs: usize) -> Checkpoint {
        Checkpoint { folder: folder.into(), every: Every::Epochs(epochs.max(1)), keep: 3 }
    }

    /// Keeps the last so many instead of 3, at least one.
    #[must_use]
    pub fn keep(mut self, keep: usize) -> Checkpoint {
        self.keep = keep.max(1);
        self
    }

    fn write(&self, training: &dyn Training) -> Result<(), Error> {
        let step = training.steps_done();
        training.write_checkpoint(&self.folder.join(checkpoint_name(step)))?;
        // Those of a longer run in the same folder are somebody else's.
        let mut ours = checkpoints(&self.folder)?;
        ours.retain(|(of, _)| *of <= step);
        for (_, path) in ours.iter().rev().skip(self.keep) {
            std::fs::remove_file(path).map_err(|e| Error::file(path, e.to_string()))?;
        }
        Ok(())
    }
}

impl Callback for Checkpoint {
    fn on_train_begin(&mut self, _: &mut dyn Training, _: usize, _: usize) -> Result<(), Error> {
        std::fs::create_dir_all(&self.folder).map_err(|e| Error::file(&self.folder, e.to_string()))?;
        remove_unfinished(&self.folder)
    }

    fn on_step_end(&mut self, training: &mut dyn Training, _: usize, _: f64) -> Result<ControlFlow<()>, Error> {
        if let Every::Steps(n) = self.every
            && training.steps_done().is_multiple_of(n)
        {
            self.write(training)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, training: &mut dyn Training, epoch: usize, _: &Logs) -> Result<ControlFlow<()>, Error> {
        if let Every::Epochs(n) = self.every
            && (epoch + 1).is_multiple_of(n)
        {
            self.write(training)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
