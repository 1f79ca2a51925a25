//! Checkpoints: all that training needs to go on as if it had never stopped.
//!
//! A checkpoint is one safetensors file: weights, statistics, the optimizer's moments, the sums of metrics and what callbacks remember
//! as tensors; steps, epoch, place in the data and seed as JSON in the file's metadata. Random numbers are functions of (seed, step), so there is
//! no other state. It is written piece by piece to a temporary name, synced and renamed, with a digest of its contents, so that
//! a file by its name is complete, and one that was damaged later is noticed.

use super::Trainer;
use super::compile::{StepKey, write_states};
use super::fit::Progress;
use super::summary::natural_fields;
use crate::callbacks::{MEMORY, Memory};
use crate::error::Error;
use crate::trace::{Mode, Role, Variables};
use crate::weights::{self, NO_DIGEST, Reader};
use plimsoll_tensor::TensorType;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// What is in a checkpoint besides tensors.
#[derive(Clone, Debug, PartialEq)]
struct About {
    digest: String,
    step: u64,
    seed: u64,
    /// A learning rate set by hand.
    rate: Option<f64>,
    progress: Progress,
}

impl About {
    fn to_json(&self) -> String {
        let Progress { epoch, step, pass, position } = &self.progress;
        let hex = |bytes: &Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        json!({
            "checkpoint": 1,
            "digest": self.digest,
            "step": self.step,
            "seed": self.seed,
            // Its bits, so that it comes back exactly.
            "rate": self.rate.map(f64::to_bits),
            "epoch": epoch,
            "step of epoch": step,
            "pass": pass,
            "position": position.as_ref().map(hex),
        })
        .to_string()
    }

    fn parse(file: &Reader) -> Result<About, Error> {
        let fail = |message: &str| Error::file(file.path(), message);
        let Some(text) = file.about() else {
            return Err(fail(
                "has tensors but no place in a training: it is no checkpoint (`load_weights` reads weights)",
            ));
        };
        let json: Value = serde_json::from_str(text).map_err(|e| fail(&format!("is a damaged checkpoint: {e}")))?;
        let number = |name: &str| {
            json[name].as_u64().ok_or_else(|| fail(&format!("is a damaged checkpoint: it does not say '{name}'")))
        };
        match number("checkpoint")? {
            1 => (),
            n => return Err(fail(&format!("is a checkpoint of version {n}, this program knows version 1"))),
        }
        let position = match &json["position"] {
            Value::Null => None,
            other => Some(
                other
                    .as_str()
                    .and_then(from_hex)
                    .ok_or_else(|| fail("is a damaged checkpoint: no place in the data"))?,
            ),
        };
        let progress = Progress {
            epoch: number("epoch")? as usize,
            step: number("step of epoch")? as usize,
            pass: number("pass")?,
            position,
        };
        Ok(About {
            digest: json["digest"].as_str().unwrap_or_default().to_owned(),
            step: number("step")?,
            seed: number("seed")?,
            rate: json["rate"].as_u64().map(f64::from_bits),
            progress,
        })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()).collect()
}

/// What [`Trainer::load_latest_checkpoint`] did.
#[derive(Debug)]
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    /// Later ones that could not be used, and why.
    pub damaged: Vec<Error>,
}

impl Trainer {
    /// Writes everything that training needs to go on to one file: to a temporary name, synced, renamed. No copy of the states
    /// is made in memory. From inside `fit` the [`Checkpoint`](crate::callbacks::Checkpoint) callback does this.
    ///
    /// # Errors
    /// When the file cannot be written; an old file is then still whole.
    pub fn save_checkpoint(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.ensure_states()?;
        self.write_checkpoint(path.as_ref(), &Memory::new())
    }

    /// With what callbacks remember.
    pub(super) fn write_checkpoint(&self, path: &Path, memory: &Memory<'_>) -> Result<(), Error> {
        let engine = &self.compiled.as_ref().expect("made before").engine;
        let here = |name: &str| engine.state_type(name).is_some();
        let states = self.variables.iter().filter(|v| here(&v.name)).map(|v| (v.name.as_str(), v.ty));
        let mut tensors: Vec<(&str, TensorType)> = states.collect();
        // States of steps that have not been made since the last checkpoint was loaded, and what callbacks have yet to recall.
        if let Some(file) = &self.restored {
            let kept = |name: &&str| if name.starts_with(MEMORY) { self.resume.is_some() } else { !here(name) };
            tensors.extend(file.names().filter(kept).map(|n| (n, file.ty(n).expect("it is named"))));
        }
        tensors.extend(memory.iter().map(|(name, tensor)| (name.as_str(), *tensor.ty())));
        let remembered = |name: &str| memory.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor);
        let progress = self.resume.as_ref().unwrap_or(&self.progress).clone();
        let progress =
            Progress { pass: if progress.position.is_some() { progress.pass } else { self.pass }, ..progress };
        let about =
            About { digest: NO_DIGEST.into(), step: self.step, seed: self.seed, rate: self.rate, progress }.to_json();
        weights::write_with(path, &tensors, Some(&about), |name, write| match (&self.restored, remembered(name)) {
            (_, Some(tensor)) => write(tensor.bytes()),
            (Some(file), _) if !here(name) => copy(file, name, write),
            _ => engine.read_state(name, write),
        })
    }

    /// Goes on where a checkpoint was written, in this process or another: the next [`Trainer::fit`] continues with the next step,
    /// in the middle of an epoch if need be, and its results are the same bits as without a stop. Its data, seed, model and
    /// optimizer must be those of the run that wrote it (the seed is taken from the checkpoint), and epochs that were done count.
    ///
    /// ```
    /// # use plimsoll::{Tensor, data::Arrays, layers::Dense, losses::MeanSquaredError, model::Model, optimizers::Adam};
    /// # use plimsoll::trainer::{Fit, Trainer};
    /// use plimsoll::callbacks::Checkpoint;
    /// # fn main() -> Result<(), plimsoll::Error> {
    /// # let x: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    /// # let data = Arrays::new(Tensor::from_slice([64, 1], &x)?, Tensor::from_slice([64, 1], &x)?)?;
    /// # let new = || Trainer::new(Model::sequential([1]).layer(Dense::new(1)), MeanSquaredError, Adam::new(0.1));
    /// # let folder = std::env::temp_dir().join(format!("plimsoll-doc-checkpoint-{}", std::process::id()));
    /// let mut trainer = new()?;
    /// trainer.load_latest_checkpoint(&folder)?; // nothing there: from the beginning
    /// trainer.fit(&data, Fit::epochs(3).callback(Checkpoint::every_steps(&folder, 2)))?;
    /// // The same program, started again, goes on from there.
    /// let mut again = new()?;
    /// assert!(again.load_latest_checkpoint(&folder)?.is_some());
    /// assert_eq!(again.weights()?, trainer.weights()?);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the file is damaged or is of another model or optimizer: the message says what differs, and nothing has changed. When
    /// the disk fails while states are read, those before are new and the rest old.
    pub fn load_checkpoint(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        let file = Reader::open(path.as_ref())?;
        let about = About::parse(&file)?;
        file.verify(&about.digest)?;
        self.expect_states(&file, about.step)?;
        if let Some(compiled) = &mut self.compiled {
            let engine = &mut compiled.engine;
            let there: Vec<String> =
                self.variables.iter().map(|v| v.name.clone()).filter(|n| engine.state_type(n).is_some()).collect();
            write_states(engine, &self.variables, about.seed, Some(&file), |name| there.iter().any(|n| n == name))?;
        }
        (self.step, self.seed, self.rate) = (about.step, about.seed, about.rate);
        self.pass = about.progress.pass;
        (self.resume, self.progress) = (Some(about.progress.clone()), about.progress);
        self.restored = Some(file);
        Ok(())
    }

    /// Loads the last checkpoint in a folder that [`Checkpoint`](crate::callbacks::Checkpoint) writes to; one that is damaged is
    /// passed over for the one before it. `None` when there is none.
    ///
    /// # Errors
    /// When there are checkpoints, but none can be used: what is wrong with the last.
    pub fn load_latest_checkpoint(&mut self, folder: impl AsRef<Path>) -> Result<Option<Loaded>, Error> {
        let mut damaged = Vec::new();
        for (_, path) in checkpoints(folder.as_ref())?.into_iter().rev() {
            match self.load_checkpoint(&path) {
                Ok(()) => return Ok(Some(Loaded { path, damaged })),
                Err(error) => damaged.push(error),
            }
        }
        if damaged.is_empty() { Ok(None) } else { Err(damaged.remove(0)) }
    }

    /// Compares what a checkpoint holds with what training has.
    fn expect_states(&mut self, file: &Reader, step: u64) -> Result<(), Error> {
        // Tracing finds out which states there are; those of steps that nobody runs shall not take memory.
        let before = self.variables.clone();
        let all = (|| {
            let fields = natural_fields(self, 1)?;
            self.trace(&StepKey { mode: Mode::Train, batch: 1, fewer: false, fields })?;
            Ok::<Variables, Error>(self.variables.clone())
        })();
        self.variables = before;
        let all = all?;
        let fail = |message: String| Err(Error::file(file.path(), message));
        for variable in all.iter() {
            let (name, ty) = (&variable.name, variable.ty);
            match file.ty(name) {
                // A model that was never trained has no more.
                None if step == 0 && matches!(variable.role, Role::Moment | Role::Metric) => (),
                None => return fail(format!("has no '{name}', which this model and optimizer have")),
                Some(found) if found != ty => return fail(format!("'{name}' is {found}, but it is {ty} here")),
                Some(_) => (),
            }
        }
        match file.names().find(|name| all.get(name).is_none() && !name.starts_with(MEMORY)) {
            Some(name) => fail(format!("has '{name}', which this model and optimizer do not have")),
            None => Ok(()),
        }
    }
}

/// Passes on a tensor of a file in pieces.
fn copy(file: &Reader, name: &str, write: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let bytes = file.ty(name).map_or(0, |ty| ty.bytes());
    let mut buffer = vec![0; bytes.min(64 << 10)];
    let mut at = 0;
    while at < bytes {
        let piece = &mut buffer[..(bytes - at).min(64 << 10)];
        file.read(name, at, piece)?;
        write(piece)?;
        at += piece.len();
    }
    Ok(())
}

/// Reads a checkpoint whole and compares it with its digest; gives how many tensors it has.
///
/// # Errors
/// When it is damaged, or no checkpoint.
pub fn verify_checkpoint(path: impl AsRef<Path>) -> Result<usize, Error> {
    let file = Reader::open(path.as_ref())?;
    file.verify(&About::parse(&file)?.digest)?;
    Ok(file.names().count())
}

/// The name of the checkpoint after so many steps.
pub(crate) fn checkpoint_name(step: u64) -> String {
    format!("step-{step:012}.safetensors")
}

/// The checkpoints in a folder, by step; none where there is no such folder.
pub(crate) fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let mut found = Vec::new();
    for (name, path) in entries(folder)? {
        let step = name.strip_prefix("step-").and_then(|name| name.strip_suffix(".safetensors"));
        if let Some(step) = step.and_then(|step| step.parse().ok()) {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes what a process that was killed in the middle of writing left behind.
pub(crate) fn remove_unfinished(folder: &Path) -> Result<(), Error> {
    for (name, path) in entries(folder)? {
        if name.starts_with("step-") && name.ends_with(".tmp") {
            fs::remove_file(&path).map_err(|e| Error::file(&path, e.to_string()))?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let failed = |e: std::io::Error| Error::file(folder, e.to_string());
    let list = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.map_err(failed)?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    };
    list.map(entry).collect()
}
