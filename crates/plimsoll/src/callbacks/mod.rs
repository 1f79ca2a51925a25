//! Callbacks: what happens between the steps and epochs of `fit`.

mod save;
mod watch;

pub use save::{Checkpoint, CsvLog, SaveWeights};
pub use watch::{Better, EarlyStopping, ReduceOnPlateau};

use crate::error::Error;
use crate::trainer::Trainer;
use crate::weights::Reader;
use plimsoll_tensor::Tensor;
use std::borrow::Cow;
use std::ops::ControlFlow;

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
    /// The trainer itself, where there is one: its plans, its ledger and what went through the spill file.
    fn trainer(&self) -> Option<&Trainer> {
        None
    }
}

/// What a callback remembers from epoch to epoch, by name: it goes into checkpoints.
pub type Memory<'a> = Vec<(String, Cow<'a, Tensor>)>;

/// What a callback remembered when a checkpoint was written.
pub struct Recalled<'a> {
    file: &'a Reader,
    prefix: String,
}

impl<'a> Recalled<'a> {
    /// What the callback of this number gave.
    pub(crate) fn of(file: &'a Reader, callback: usize) -> Recalled<'a> {
        Recalled { file, prefix: memory_name(callback, "") }
    }

    /// The names of it all.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        self.file.names().filter_map(|name| name.strip_prefix(self.prefix.as_str()))
    }

    /// The tensor of this name, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>, Error> {
        let name = format!("{}{name}", self.prefix);
        let Some(ty) = self.file.ty(&name) else { return Ok(None) };
        let mut tensor = Tensor::zeros(ty.dtype, ty.shape);
        self.file.read(&name, 0, tensor.bytes_mut())?;
        Ok(Some(tensor))
    }
}

/// What names in a checkpoint begin with that are not states of the model.
pub(crate) const MEMORY: &str = "callback ";

/// The name in a checkpoint of what a callback remembers.
pub(crate) fn memory_name(callback: usize, name: &str) -> String {
    format!("{MEMORY}{callback}: {name}")
}

/// Something that is told about the progress of `fit`, and can stop it.
pub trait Callback {
    /// How many copies of all weights and statistics it keeps: their memory is reserved before training.
    fn copies_of_weights(&self) -> usize {
        0
    }

    /// Whether it writes checkpoints: then it is called after the others, and what they remember is in the checkpoint.
    fn writes_checkpoints(&self) -> bool {
        false
    }

    /// What it must know to go on in another process as if training had not stopped. Names need differ only within a callback.
    fn memory(&self) -> Memory<'_> {
        Memory::new()
    }

    /// Training goes on from a checkpoint: takes over what [`Callback::memory`] gave when that was written by the callback at this
    /// place among the callbacks. Comes before [`Callback::on_train_begin`]. `Break` when it had ended training.
    ///
    /// # Errors
    /// See [`Callback::on_train_begin`].
    fn recall(&mut self, _memory: &Recalled<'_>) -> Result<ControlFlow<()>, Error> {
        Ok(ControlFlow::Continue(()))
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

    /// Training ends, for whatever reason but an error. Callbacks are told in the reverse of their order, so that a last checkpoint
    /// holds the weights of the last step, whatever the others do with them.
    ///
    /// # Errors
    /// See [`Callback::on_train_begin`].
    fn on_train_end(&mut self, _training: &mut dyn Training) -> Result<(), Error> {
        Ok(())
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
