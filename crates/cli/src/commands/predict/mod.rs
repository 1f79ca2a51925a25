//! `plimsoll predict`: what a trained job says about new rows.

mod told;
mod write;

pub use told::Prediction;

use super::JobOptions;
use super::eval::{Trained, here, trained};
use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::{Code, diagnose};
use crate::job::data::{ahead, prepare_with};
use crate::out::Out;
use clap::{Args, ValueEnum};
use plimsoll::Tensor;
use std::path::{Path, PathBuf};
use told::Told;
use write::Writer;

/// The results of a trained job for rows of data.
///
/// Rows come from files like those of the job; a label column need not be there. Classes are told by name with the score of each.
/// Results are written as they are computed: however many there are, they take no memory.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll predict job.toml new.csv > predictions.csv
  plimsoll predict job.toml new.csv --output predictions.npy
  plimsoll predict job.toml new.csv --json | jq .prediction")]
pub struct Options {
    #[command(flatten)]
    job: JobOptions,
    /// Files to predict for; the job's own data if not given.
    files: Vec<PathBuf>,
    /// Where to; standard output if not given. `.csv`, `.npy`, `.json` and `.jsonl` choose the format.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The format, where the file's name does not tell.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Weights instead of those of the run.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
}

/// How predictions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line per row, with a header.
    Csv,
    /// A NumPy array of what the model gives; a file for each output where there are several.
    Npy,
    /// A JSON object per line.
    Json,
}

impl Format {
    /// The format that a file's name tells.
    fn of(path: &Path) -> Result<Format, Diagnostic> {
        match path.extension().and_then(|e| e.to_str()).unwrap_or_default() {
            "csv" | "txt" | "" => Ok(Format::Csv),
            "npy" => Ok(Format::Npy),
            "json" | "jsonl" | "ndjson" => Ok(Format::Json),
            other => {
                let title = format!("predictions are not written as '.{other}'");
                let remedy = ".csv, .npy, .json or .jsonl; --format for other names; plimsoll data convert afterwards";
                Err(Diagnostic::new(Code::WrongValue, title).note("names", remedy))
            }
        }
    }
}

/// Why predicting ended early.
enum Failed {
    Library(plimsoll::Error),
    Output(Diagnostic),
}

impl From<plimsoll::Error> for Failed {
    fn from(error: plimsoll::Error) -> Failed {
        Failed::Library(error)
    }
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let format = match (options.format, &options.output) {
        (Some(format), _) => format,
        (None, Some(path)) => Format::of(path)?,
        (None, None) if out.json => Format::Json,
        (None, None) => Format::Csv,
    };
    if format == Format::Npy && options.output.is_none() {
        let title = "a NumPy array goes to a file";
        return Err(Diagnostic::new(Code::WrongValue, title).note("do", "--output predictions.npy"));
    }
    let Trained { job, mut trainer, fitted, places } = trained(&options.job, options.weights.as_ref())?;
    let paths = here(&options.files);
    let instead = (!paths.is_empty()).then_some(paths.as_slice());
    let rows = prepare_with(&job.table.data, &job.folder, &fitted, instead, false)?;
    let batches = ahead(&job.table.data, rows.batch(job.table.training.batch_size.value.max(1)));
    let names: Vec<String> = trainer.model().outputs().into_iter().map(str::to_owned).collect();
    let mut writer: Option<Writer> = None;
    let done = trainer.predict_each(&batches, None, |outputs: &[Tensor]| {
        if writer.is_none() {
            let told = names.iter().zip(outputs).map(|(name, t)| Told::new(name, &fitted, &job.table.data, t));
            writer = Some(Writer::create(format, options.output.as_deref(), told.collect(), outputs)?);
        }
        writer.as_mut().expect("made above").batch(outputs)
    });
    match done {
        Err(Failed::Library(error)) => Err(diagnose(&error, &places)),
        Err(Failed::Output(error)) => Err(error),
        Ok(()) => match writer {
            Some(writer) => writer.finish().map(|_| 0),
            None => Err(Diagnostic::new(Code::BadData, "there are no rows to predict for")),
        },
    }
}
