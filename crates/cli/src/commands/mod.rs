//! The commands, one file each.

pub mod bench;
pub mod ckpt;
pub mod config;
pub mod data;
pub mod demo;
pub mod doctor;
pub mod eval;
pub mod explain;
pub mod init;
pub mod pictures;
pub mod plan;
pub mod predict;
pub mod run;
pub mod schema;
pub mod shell;
pub mod train;
pub mod version;

use crate::diagnostic::Diagnostic;
use crate::job::{Job, Override};
use clap::Args;
use std::path::PathBuf;

/// A job and what is set over its file.
#[derive(Args, Clone, Debug)]
pub struct JobOptions {
    /// The job file (TOML); docs/jobs.md describes it.
    pub job: PathBuf,
    /// Resident memory of the whole process, at most: 512MiB, 2GB, 50% (of what the host allows), none.
    ///
    /// Without it the environment variable PLIMSOLL_MEMORY_LIMIT counts, then the job file, then what the host allows. 512M is 512 MiB.
    #[arg(long, value_name = "BYTES", help_heading = "Over the job file")]
    pub memory_limit: Option<String>,
    /// Threads; results do not depend on their number.
    #[arg(long, value_name = "N", help_heading = "Over the job file")]
    pub threads: Option<usize>,
    /// Passes over the data.
    #[arg(long, value_name = "N", help_heading = "Over the job file")]
    pub epochs: Option<usize>,
    /// Samples per step.
    #[arg(long, value_name = "N", help_heading = "Over the job file")]
    pub batch_size: Option<usize>,
    /// Initial weights, dropout and the order of samples follow from it.
    #[arg(long, value_name = "N", help_heading = "Over the job file")]
    pub seed: Option<u64>,
    /// The run directory.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Over the job file")]
    pub run: Option<PathBuf>,
    /// Do not touch memory ahead of the first step.
    #[arg(long, help_heading = "Over the job file")]
    pub no_sounding: bool,
    /// Any other key: --set optimizer.learning_rate=0.01.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Over the job file")]
    pub set: Vec<String>,
}

impl JobOptions {
    /// The job with flags and environment over its file.
    ///
    /// # Errors
    /// When the job is not what it should be.
    pub fn load(&self) -> Result<Job, Diagnostic> {
        Job::load(&self.job, &self.overrides()?)
    }

    fn overrides(&self) -> Result<Vec<Override>, Diagnostic> {
        let mut all = Vec::new();
        let mut add = |path: &str, flag: &str, value: Option<String>| {
            if let Some(value) = value {
                all.push(Override { path: path.into(), flag: format!("{flag} {value}"), value });
            }
        };
        add("memory_limit", "--memory-limit", self.memory_limit.clone());
        add("training.threads", "--threads", self.threads.map(|n| n.to_string()));
        add("training.epochs", "--epochs", self.epochs.map(|n| n.to_string()));
        add("training.batch_size", "--batch-size", self.batch_size.map(|n| n.to_string()));
        add("training.seed", "--seed", self.seed.map(|n| n.to_string()));
        // Paths on the command line are taken from where the user stands, not from the job's folder.
        let here = |path: &PathBuf| std::path::absolute(path).unwrap_or(path.clone()).display().to_string();
        add("training.run", "--run", self.run.as_ref().map(here));
        if self.no_sounding {
            all.push(Override { path: "limit.sounding".into(), flag: "--no-sounding".into(), value: "false".into() });
        }
        for set in &self.set {
            all.push(assignment(set)?);
        }
        Ok(all)
    }
}

/// What `--set KEY=VALUE` sets.
///
/// # Errors
/// When there is no `=`.
pub fn assignment(set: &str) -> Result<Override, Diagnostic> {
    let Some((path, value)) = set.split_once('=') else {
        let title = format!("--set takes KEY=VALUE, got '{set}'");
        return Err(Diagnostic::new(crate::errors::Code::WrongValue, title));
    };
    Ok(Override { path: path.trim().into(), flag: format!("--set {set}"), value: value.trim().into() })
}

/// A time such as `30s`, `2m`, `500ms`, or seconds.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("'{other}' is no unit of time: ms, s, m or h")),
    };
    let n: f64 = text[..digits].parse().map_err(|_| format!("'{text}' is no time: 30s, 2m, 500ms"))?;
    std::time::Duration::try_from_secs_f64(n * unit).map_err(|e| e.to_string())
}
