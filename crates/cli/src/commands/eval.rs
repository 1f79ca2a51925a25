//! `plimsoll eval`: the figures of a trained job.

use super::JobOptions;
use super::train::RunFiles;
use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::{Code, Places, diagnose};
use crate::job::data::{ahead, prepare_with};
use crate::job::session::{Session, read_fitted, trainer};
use crate::job::{Job, data::Fitted};
use crate::out::Out;
use crate::progress::{figures, short};
use clap::Args;
use plimsoll::trainer::Trainer;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Loss and metrics of a trained job, without training.
///
/// On the validation data of the job, or on files like those it was trained on.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll eval examples/tabular.toml
  plimsoll eval job.toml --data test.csv --json")]
pub struct Options {
    #[command(flatten)]
    job: JobOptions,
    /// Files to evaluate on instead of the validation data.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    data: Vec<PathBuf>,
    /// Weights instead of those of the run.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
}

/// `plimsoll eval --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Evaluation {
    /// The job.
    job: String,
    /// What was evaluated on: files, or `validation` or `training`.
    data: String,
    /// Loss and metrics. Null where a figure is no number.
    figures: BTreeMap<String, Option<f64>>,
}

/// A trained job.
pub struct Trained {
    pub job: Job,
    pub trainer: Trainer,
    pub fitted: Fitted,
    pub places: Places,
}

/// A job with what it learned from data and with its weights.
///
/// # Errors
/// When the run or its weights cannot be used.
pub fn trained(options: &JobOptions, weights: Option<&PathBuf>) -> Result<Trained, Diagnostic> {
    let job = options.load()?;
    let files = RunFiles { folder: job.run_directory() };
    let fitted = read_fitted(&files.folder)?;
    let (mut trainer, places) = trainer(&job, &fitted)?;
    let path = weights.cloned().unwrap_or_else(|| files.weights());
    trainer.load_weights(&path).map_err(|e| {
        Diagnostic::new(Code::CheckpointUnusable, e.to_string()).note("do", "plimsoll train JOB makes the weights")
    })?;
    Ok(Trained { job, trainer, fitted, places })
}

/// Paths on the command line, from where the user stands.
pub fn here(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|p| std::path::absolute(p).unwrap_or(p.clone()).display().to_string()).collect()
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let Trained { job, mut trainer, fitted, places } = trained(&options.job, options.weights.as_ref())?;
    let (rows, what) = match &options.data[..] {
        [] => {
            let session = Session::open(options.job.load()?)?;
            session.make_cache()?;
            match session.validation {
                Some(validation) => (validation, "validation".to_owned()),
                None => (session.training, "training".to_owned()),
            }
        }
        files => {
            let paths = here(files);
            let rows = prepare_with(&job.table.data, &job.folder, &fitted, Some(&paths), true)?;
            let batches = rows.batch(job.table.training.batch_size.value.max(1));
            (ahead(&job.table.data, batches), paths.join(", "))
        }
    };
    let logs = trainer.evaluate(&rows, None).map_err(|e| diagnose(&e, &places))?;
    let found = figures(logs.iter());
    if out.json {
        out.json_line(&Evaluation { job: job.name, data: what, figures: found });
        return Ok(0);
    }
    out.talk(format!("on {what} data"));
    let line: Vec<String> = logs.iter().map(|(n, v)| format!("{n}={}", short(v))).collect();
    out.data(line.join(" "));
    Ok(0)
}
