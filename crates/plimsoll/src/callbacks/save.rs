//! Callbacks that write files: figures, weights, checkpoints.

use super::watch::Watch;
use super::{Callback, Logs, Memory, Recalled, Training};
use crate::error::Error;
use crate::trainer::{checkpoint_name, checkpoints, remove_unfinished};
use plimsoll_tensor::Tensor;
use std::borrow::Cow;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Writes the figures of every epoch to a CSV file.
pub struct CsvLog {
    path: PathBuf,
    file: Option<std::fs::File>,
}

impl CsvLog {
    /// To this file, which is made anew; after a checkpoint, lines are added to it.
    pub fn new(path: impl Into<PathBuf>) -> CsvLog {
        CsvLog { path: path.into(), file: None }
    }
}

impl Callback for CsvLog {
    fn memory(&self) -> Memory<'_> {
        let length = self.file.as_ref().and_then(|file| file.metadata().ok()).map(|file| file.len() as i64);
        length.map(|length| ("length".to_owned(), Cow::Owned(Tensor::scalar(length)))).into_iter().collect()
    }

    /// What was written after the checkpoint will be written again.
    fn recall(&mut self, memory: &Recalled<'_>) -> Result<ControlFlow<()>, Error> {
        let failed = |e: std::io::Error| Error::file(&self.path, e.to_string());
        if let Some(length) = memory.get("length")?
            && self.path.exists()
        {
            let length = length.as_slice::<i64>()?[0] as u64;
            let file = std::fs::OpenOptions::new().append(true).open(&self.path).map_err(failed)?;
            if file.metadata().map_err(failed)?.len() > length {
                file.set_len(length).map_err(failed)?;
            }
            self.file = Some(file);
        }
        Ok(ControlFlow::Continue(()))
    }

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
    fn memory(&self) -> Memory<'_> {
        self.watch.as_ref().map(Watch::memory).unwrap_or_default()
    }

    fn recall(&mut self, memory: &Recalled<'_>) -> Result<ControlFlow<()>, Error> {
        self.watch.as_mut().map_or(Ok(()), |watch| watch.recall(memory))?;
        Ok(ControlFlow::Continue(()))
    }

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
    /// Whether the last one is of this very moment.
    is_new: bool,
}

enum Every {
    Steps(u64),
    Epochs(usize),
}

impl Checkpoint {
    /// After every so many steps.
    pub fn every_steps(folder: impl Into<PathBuf>, steps: u64) -> Checkpoint {
        Checkpoint { folder: folder.into(), every: Every::Steps(steps.max(1)), keep: 3, is_new: true }
    }

    /// After every so many epochs.
    pub fn every_epochs(folder: impl Into<PathBuf>, epochs: usize) -> Checkpoint {
        Checkpoint { folder: folder.into(), every: Every::Epochs(epochs.max(1)), keep: 3, is_new: true }
    }

    /// Keeps the last so many instead of 3, at least one.
    #[must_use]
    pub fn keep(mut self, keep: usize) -> Checkpoint {
        self.keep = keep.max(1);
        self
    }

    fn write(&mut self, training: &dyn Training) -> Result<(), Error> {
        let step = training.steps_done();
        training.write_checkpoint(&self.folder.join(checkpoint_name(step)))?;
        // Those of a longer run in the same folder are somebody else's.
        let mut ours = checkpoints(&self.folder)?;
        ours.retain(|(of, _)| *of <= step);
        for (_, path) in ours.iter().rev().skip(self.keep) {
            std::fs::remove_file(path).map_err(|e| Error::file(path, e.to_string()))?;
        }
        self.is_new = true;
        Ok(())
    }
}

impl Callback for Checkpoint {
    fn writes_checkpoints(&self) -> bool {
        true
    }

    fn on_train_begin(&mut self, _: &mut dyn Training, _: usize, _: usize) -> Result<(), Error> {
        std::fs::create_dir_all(&self.folder).map_err(|e| Error::file(&self.folder, e.to_string()))?;
        remove_unfinished(&self.folder)
    }

    fn on_step_end(&mut self, training: &mut dyn Training, _: usize, _: f64) -> Result<ControlFlow<()>, Error> {
        self.is_new = false;
        if let Every::Steps(n) = self.every
            && training.steps_done().is_multiple_of(n)
        {
            self.write(training)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, training: &mut dyn Training, epoch: usize, _: &Logs) -> Result<ControlFlow<()>, Error> {
        self.is_new = false;
        if let Every::Epochs(n) = self.every
            && (epoch + 1).is_multiple_of(n)
        {
            self.write(training)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// What was done since the last one is kept too, whoever stopped training.
    fn on_train_end(&mut self, training: &mut dyn Training) -> Result<(), Error> {
        if self.is_new { Ok(()) } else { self.write(training) }
    }
}
