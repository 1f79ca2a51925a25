//! `plimsoll config show`: the settings of a job and where each comes from.

use super::JobOptions;
use crate::Outcome;
use crate::job::settings;
use crate::out::Out;
use clap::{Args, Subcommand};

/// Show what a job's settings are in the end.
#[derive(Subcommand)]
pub enum Command {
    Show(Show),
}

/// All settings of a job, flags over environment over file over defaults.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll config show job.toml
  PLIMSOLL_TRAINING_EPOCHS=3 plimsoll config show job.toml --origin --batch-size 16")]
pub struct Show {
    #[command(flatten)]
    job: JobOptions,
    /// With where each comes from: the file with line and column, a flag, an environment variable, or the default.
    #[arg(long)]
    origin: bool,
}

pub fn run(command: &Command, out: &Out) -> Outcome {
    let Command::Show(show) = command;
    let all = settings(&show.job.load()?);
    if out.json {
        all.iter().for_each(|setting| out.json_line(setting));
        return Ok(0);
    }
    let width = all.iter().map(|s| s.key.len() + s.value.len() + 3).max().unwrap_or(0).min(60);
    for setting in all {
        let text = format!("{} = {}", setting.key, setting.value);
        match show.origin {
            true => out.data(format!("{text:<width$}  # {}", setting.origin)),
            false => out.data(text),
        }
    }
    Ok(0)
}
