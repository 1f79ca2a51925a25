//! A job with its data opened and its trainer made.

use super::data::{DataKind, Fitted, Prepared, prepare};
use super::model::Built;
use super::{Direction, Job, JobTable};
use crate::diagnostic::{Diagnostic, Origin};
use crate::errors::{Code, Places, diagnose};
use plimsoll::callbacks::{Better, EarlyStopping, ReduceOnPlateau};
use plimsoll::limits::Host;
use plimsoll::losses::Loss;
use plimsoll::trainer::{Fit, Forecast, SweepPoint, Techniques, Trainer};
use plimsoll::{Budget, Bytes, measure};
use plimsoll_data::Dataset;
use plimsoll_run::WRITER_BYTES;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a run keeps besides weights: how data becomes inputs.
pub const FITTED: &str = "preprocessing.json";

/// A job, ready to plan or train.
pub struct Session {
    pub job: Job,
    pub trainer: Trainer,
    pub training: Dataset,
    pub validation: Option<Dataset>,
    pub fitted: Fitted,
    pub places: Places,
}

impl Session {
    /// Opens the data and looks through it, and makes the model and the trainer.
    ///
    /// # Errors
    /// When the data or the model is not what it should be.
    pub fn open(job: Job) -> Result<Session, Diagnostic> {
        let table = &job.table;
        let cache = job.run_directory().join("cache").join(digest(&job));
        let Prepared { training, validation, fitted } = {
            let budget = before_training(&job);
            prepare(&table.data, &job.folder, table.training.seed, &cache, &budget)?
        };
        let batch = |rows: Dataset| {
            let batches = rows.batch(table.training.batch_size.value.max(1));
            super::data::ahead(&table.data, batches)
        };
        if table.training.batch_size.value == 0 {
            let origin = &table.training.batch_size.origin;
            return Err(super::read::wrong_value(origin, "batch_size is 0", "at least 1"));
        }
        let (training, validation) = (batch(training), validation.map(batch));
        let (trainer, places) = trainer(&job, &fitted)?;
        Ok(Session { trainer, training, validation, fitted, places, job })
    }

    /// An error of the library, with the places of this job.
    pub fn error(&self, error: &plimsoll::Error) -> Diagnostic {
        diagnose(error, &self.places)
    }

    /// What training would take. As it does, this holds the buffer of the run's log, so that what is told is true for it.
    ///
    /// # Errors
    /// When the data does not suit the model, or the limit cannot be kept.
    pub fn forecast(&mut self) -> Result<Forecast, Diagnostic> {
        let _log = std::hint::black_box(vec![b' '; WRITER_BYTES]);
        let options = fit_options(&self.job.table, self.validation.as_ref());
        self.trainer.forecast(&self.training, &options).map_err(|e| diagnose(&e, &self.places))
    }

    /// What training would cost under `n` limits.
    ///
    /// # Errors
    /// When the data does not suit the model.
    pub fn sweep(&mut self, n: usize) -> Result<Vec<SweepPoint>, Diagnostic> {
        let options = fit_options(&self.job.table, self.validation.as_ref());
        self.trainer.sweep(&self.training, &options, n).map_err(|e| diagnose(&e, &self.places))
    }

    /// The folder in which data is kept for the next epoch, made anew if data or settings changed since the last run.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn make_cache(&self) -> Result<(), Diagnostic> {
        let all = self.job.run_directory().join("cache");
        let own = digest(&self.job);
        let disk = |e: std::io::Error| Diagnostic::new(Code::Disk, format!("{}: {e}", all.display()));
        if all.is_dir() {
            for entry in std::fs::read_dir(&all).map_err(disk)?.flatten() {
                if entry.file_name() != *own {
                    std::fs::remove_dir_all(entry.path()).map_err(disk)?;
                }
            }
        }
        std::fs::create_dir_all(all.join(own)).map_err(disk)
    }
}

/// How a job is trained, with the callbacks that it asks for.
pub fn fit_options<'a>(table: &JobTable, validation: Option<&'a Dataset>) -> Fit<'a> {
    let mut fit = Fit::epochs(table.training.epochs);
    if let Some(steps) = table.training.steps_per_epoch {
        fit = fit.steps_per_epoch(steps);
    }
    if let Some(validation) = validation {
        fit = fit.validation(validation);
    }
    if let Some(s) = &table.training.early_stopping {
        let mut callback = EarlyStopping::new(&s.monitor).patience(s.patience).min_delta(s.min_delta);
        if s.restore_best {
            callback = callback.restore_best();
        }
        callback = match s.better {
            Some(Direction::Smaller) => callback.better(Better::Smaller),
            Some(Direction::Larger) => callback.better(Better::Larger),
            None => callback,
        };
        fit = fit.callback(callback);
    }
    if let Some(s) = &table.training.reduce_on_plateau {
        let callback = ReduceOnPlateau::new(&s.monitor).factor(s.factor).patience(s.patience).min_rate(s.min_rate);
        fit = fit.callback(callback);
    }
    fit
}

/// Memory for looking through the data, before there is a trainer to ask: what the limit leaves.
fn before_training(job: &Job) -> Budget {
    let asked = job.table.memory_limit.as_ref().map(|limit| limit.value);
    // A limit that cannot be understood is the trainer's to tell.
    let Some(limit) = Host::this().limits(asked).ok().and_then(|found| found.limit) else {
        return Budget::unlimited();
    };
    // The allocator holds some more than it is asked for. A limit below what the process holds is refused with figures later on,
    // so the little that most formats need is there in any case.
    let held = measure::usage().unwrap_or_default().resident + Bytes::mib(1);
    Budget::new(limit.saturating_sub(held).max(Bytes::mib(2)))
}

/// A name for the data as it is now: its description, and the sizes and times of its files.
fn digest(job: &Job) -> String {
    let mut hasher = DefaultHasher::new();
    let super::tree::Value::Table(table) = &job.tree.value else { return String::new() };
    if let Some(data) = table.get("data") {
        data.node.to_toml().hash(&mut hasher);
    }
    job.table.training.seed.hash(&mut hasher);
    for path in files(job) {
        path.hash(&mut hasher);
        if let Ok(meta) = std::fs::metadata(&path) {
            (meta.len(), meta.modified().ok()).hash(&mut hasher);
        }
    }
    format!("{:016x}", hasher.finish())
}

/// The files that a job names, patterns resolved.
fn files(job: &Job) -> Vec<PathBuf> {
    let mut patterns: Vec<String> = Vec::new();
    match &job.table.data.kind {
        DataKind::Csv(s) => patterns.extend(s.files.0.clone()),
        DataKind::Npz(s) | DataKind::Parquet(s) | DataKind::Arrow(s) => patterns.extend(s.files.0.clone()),
        DataKind::TfRecord(s) => patterns.extend(s.files.0.clone()),
        DataKind::Text(s) => patterns.extend(s.files.0.clone()),
        DataKind::Npy(s) => patterns.extend(s.arrays.0.iter().flat_map(|(_, f)| f.0.clone())),
        DataKind::Idx(s) => patterns.extend(s.arrays.0.iter().flat_map(|(_, f)| f.0.clone())),
        DataKind::Images(s) => patterns.push(s.folder.value.clone()),
        DataKind::Generated(_) => (),
    }
    if let Some(files) = &job.table.data.common.validation_files {
        patterns.extend(files.0.clone());
    }
    let resolve = |pattern: String| {
        let path = job.folder.join(pattern);
        match plimsoll_data::Files::glob(&path.to_string_lossy()) {
            Ok(found) if !found.paths().is_empty() => found.paths().to_vec(),
            _ => vec![path],
        }
    };
    patterns.into_iter().flat_map(resolve).collect()
}

/// The trainer of a job for data as it was looked through.
///
/// # Errors
/// When the model does not fit together.
pub fn trainer(job: &Job, fitted: &Fitted) -> Result<(Trainer, Places), Diagnostic> {
    let table = &job.table;
    let places = Places {
        limit: table.memory_limit.as_ref().map(|l| l.origin.clone()),
        model: shown(&table.model.origin),
        data: shown(&table.data.origin),
    };
    let Built { model, outputs } = table.model.build(&fitted.info, &table.model.origin)?;
    let (optimizer, updates) = super::optimizer::build(&table.optimizer)?;
    let single = outputs.len() == 1;
    let training = &table.training;
    let loss_of = |i: usize| -> (super::losses::LossTable, Arc<dyn Loss>) {
        let output = &outputs[i];
        let loss = training.loss.clone().filter(|_| single).unwrap_or_else(|| output.loss.clone());
        let built = loss.build(output.logits);
        (loss, built)
    };
    let library = |e: plimsoll::Error| diagnose(&e, &places);
    let mut trainer =
        Trainer::shared(model, loss_of(0).1, optimizer).map_err(library)?.updates(updates).seed(training.seed);
    for (i, output) in outputs.iter().enumerate() {
        let (loss, built) = loss_of(i);
        if !single {
            trainer = trainer.output_loss(&output.name, built, output.weight).map_err(library)?;
        }
        let mut metrics = output.metrics.clone();
        if single && metrics.is_empty() {
            metrics = training.metrics.clone().unwrap_or_else(|| loss.usual_metric().into_iter().collect());
        }
        for metric in metrics {
            trainer = trainer.output_metric(&output.name, metric.build()).map_err(library)?;
        }
    }
    if let Some(threads) = training.threads {
        trainer = trainer.threads(threads);
    }
    if let Some(limit) = &table.memory_limit {
        trainer = trainer.memory_limit(limit.value);
    }
    let limit = &table.limit;
    trainer = trainer.techniques(Techniques { split: limit.split, recompute: limit.recompute, spill: limit.spill });
    trainer = match &limit.spill_dir {
        Some(folder) => trainer.spill_to(job.folder.join(folder)),
        None => trainer.spill_near(job.run_directory()),
    };
    if let Some(n) = limit.accumulate {
        trainer = trainer.accumulate(n);
    }
    if !limit.sounding {
        trainer = trainer.no_sounding();
    }
    Ok((trainer, places))
}

/// A place that helps: one in a file.
fn shown(origin: &Origin) -> Option<Origin> {
    matches!(origin, Origin::File(..)).then(|| origin.clone())
}

/// What a run learned from its data.
///
/// # Errors
/// When the run has none.
pub fn read_fitted(run: &Path) -> Result<Fitted, Diagnostic> {
    let path = run.join(FITTED);
    let unusable = |e: String| {
        Diagnostic::new(Code::RunUnusable, format!("{}: {e}", path.display()))
            .note("do", "plimsoll train JOB makes the run first")
    };
    let text = std::fs::read_to_string(&path).map_err(|e| unusable(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| unusable(e.to_string()))
}

/// Keeps what was learned from the data with the run.
///
/// # Errors
/// When the disk refuses.
pub fn write_fitted(run: &Path, fitted: &Fitted) -> Result<(), Diagnostic> {
    let path = run.join(FITTED);
    let text = serde_json::to_string_pretty(fitted).expect("plain data");
    let disk = |e: std::io::Error| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display()));
    let unfinished = path.with_extension("json.new");
    std::fs::write(&unfinished, text).map_err(disk)?;
    std::fs::rename(&unfinished, &path).map_err(disk)
}
