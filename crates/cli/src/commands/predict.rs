//! `plimsoll predict`: what a trained job says about new rows.

use super::JobOptions;
use super::eval::{Trained, here, trained};
use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::{Code, diagnose};
use crate::job::data::{ColumnFit, Fitted, ahead, prepare_with};
use crate::job::model::TargetInfo;
use crate::out::Out;
use clap::{Args, ValueEnum};
use plimsoll::{Budget, Tensor};
use plimsoll_data::Dataset;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The results of a trained job for rows of data.
///
/// Rows come from files like those of the job; a label column need not be there. Classes are told by name with the score of each.
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
    /// Where to; standard output if not given. `.csv`, `.npy` and `.json` choose the format.
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
    /// A NumPy array of what the model gives.
    Npy,
    /// A JSON object per line.
    Json,
}

/// A line of `plimsoll predict --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Prediction {
    /// The row, counted from 0.
    row: usize,
    /// The output of the model; left out where it has only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    /// The class by name, or the numbers.
    prediction: serde_json::Value,
    /// The score of every class, in order; left out for numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    scores: Option<Vec<f64>>,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let Trained { job, mut trainer, fitted, places } = trained(&options.job, options.weights.as_ref())?;
    let paths = here(&options.files);
    let instead = (!paths.is_empty()).then_some(paths.as_slice());
    let rows = prepare_with(&job.table.data, &job.folder, &fitted, instead, false)?;
    let batches = ahead(&job.table.data, rows.batch(job.table.training.batch_size.value.max(1)));
    let results = trainer.predict(&batches, None).map_err(|e| diagnose(&e, &places))?;
    let outputs: Vec<String> = trainer.model().outputs().into_iter().map(str::to_owned).collect();
    let by_name = options.output.as_ref().and_then(|p| match p.extension()?.to_str()? {
        "npy" => Some(Format::Npy),
        "json" | "jsonl" => Some(Format::Json),
        _ => Some(Format::Csv),
    });
    let format = options.format.or(by_name).unwrap_or(if out.json { Format::Json } else { Format::Csv });
    if format == Format::Npy {
        return write_npy(options, &results);
    }
    let mut text = String::new();
    for (k, (name, result)) in outputs.iter().zip(&results).enumerate() {
        let target = fitted.info.targets.iter().find(|t| t.name == *name).or(fitted.info.targets.first());
        let shown = Shown::of(target, &fitted, &job.table.data, result);
        let only = outputs.len() == 1;
        match format {
            Format::Json => shown.json(&mut text, (!only).then_some(name)),
            _ => shown.csv(&mut text, (!only).then_some(name), k == 0),
        }
    }
    match &options.output {
        Some(path) => {
            std::fs::write(path, text).map_err(|e| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display())))?
        }
        None => out.data(text.trim_end()),
    }
    Ok(0)
}

fn write_npy(options: &Options, results: &[Tensor]) -> Outcome {
    let Some(path) = &options.output else {
        let title = "a NumPy array goes to a file";
        return Err(Diagnostic::new(Code::WrongValue, title).note("do", "--output predictions.npy"));
    };
    let bad = |e: plimsoll_data::Error| crate::errors::diagnose_data(&e, None);
    for (i, result) in results.iter().enumerate() {
        let path = if i == 0 { path.clone() } else { path.with_extension(format!("{i}.npy")) };
        Dataset::from_array("x", result.clone()).write_npy("x", &path, &Budget::unlimited()).map_err(bad)?;
    }
    Ok(0)
}

/// Predictions as people read them.
struct Shown<'a> {
    values: Vec<f64>,
    rows: usize,
    /// Numbers of one row.
    units: usize,
    classes: Option<Vec<String>>,
    /// Tokens are told as text.
    alphabet: Option<&'a [u8]>,
}

impl<'a> Shown<'a> {
    fn of(
        target: Option<&TargetInfo>,
        fitted: &'a Fitted,
        data: &crate::job::data::DataTable,
        result: &Tensor,
    ) -> Shown<'a> {
        let rows = result.shape().dims().first().copied().unwrap_or(0);
        let values = result.to_f64();
        let units = values.len() / rows.max(1);
        let column = target.and_then(|t| label_column(t, fitted));
        let classes = target.and_then(|t| t.classes).filter(|&n| fitted.alphabet.is_none() && n == units).map(|n| {
            let names = column.and_then(|c| c.categories.clone());
            names.unwrap_or_else(|| (0..n).map(|i| i.to_string()).collect())
        });
        let mut shown = Shown { values, rows, units, classes, alphabet: fitted.alphabet.as_deref() };
        if shown.classes.is_some() {
            shown.scores();
        } else if let (Some(c), true) = (column, data.common.window.is_some()) {
            // In the units of the data again.
            let back = |v: &mut f64| *v = if c.scale == 0.0 { c.shift } else { *v / c.scale + c.shift };
            shown.values.iter_mut().for_each(back);
        }
        shown
    }

    /// Turns logits into parts that add up to 1; what adds up already stays.
    fn scores(&mut self) {
        for row in self.values.chunks_mut(self.units.max(1)) {
            let sum: f64 = row.iter().sum();
            if (sum - 1.0).abs() < 1e-3 && row.iter().all(|v| (0.0..=1.0).contains(v)) {
                continue;
            }
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter_mut().for_each(|v| *v = (*v - most).exp());
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= sum);
        }
    }

    fn best(row: &[f64]) -> usize {
        (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0)
    }

    /// The most likely bytes at every place of a window.
    fn text(&self, row: &[f64]) -> Option<String> {
        let alphabet = self.alphabet?;
        let bytes: Vec<u8> = row.chunks(alphabet.len()).map(|scores| alphabet[Shown::best(scores)]).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn json(&self, out: &mut String, output: Option<&String>) {
        for row in 0..self.rows {
            let values = &self.values[row * self.units..(row + 1) * self.units];
            let (prediction, scores) = match (&self.classes, self.text(values)) {
                (Some(classes), _) => (serde_json::json!(classes[Shown::best(values)]), Some(values.to_vec())),
                (None, Some(text)) => (serde_json::json!(text), None),
                (None, None) if self.units == 1 => (serde_json::json!(values[0]), None),
                (None, None) => (serde_json::json!(values), None),
            };
            let line = Prediction { row, output: output.cloned(), prediction, scores };
            let _ = writeln!(out, "{}", serde_json::to_string(&line).expect("plain data"));
        }
    }

    fn csv(&self, out: &mut String, output: Option<&String>, head: bool) {
        if head {
            out.push_str("row");
            if output.is_some() {
                out.push_str(",output");
            }
            match (&self.classes, self.alphabet) {
                (Some(classes), _) => {
                    out.push_str(",prediction");
                    classes.iter().for_each(|c| _ = write!(out, ",{}", quoted(&format!("score {c}"))));
                }
                (None, None) if self.units > 1 => (0..self.units).for_each(|i| _ = write!(out, ",prediction_{i}")),
                _ => out.push_str(",prediction"),
            }
            out.push('\n');
        }
        for row in 0..self.rows {
            let values = &self.values[row * self.units..(row + 1) * self.units];
            let _ = write!(out, "{row}");
            if let Some(name) = output {
                let _ = write!(out, ",{}", quoted(name));
            }
            if let Some(classes) = &self.classes {
                let _ = write!(out, ",{}", quoted(&classes[Shown::best(values)]));
            }
            match self.text(values) {
                Some(text) => _ = write!(out, ",{}", quoted(&text)),
                None => values.iter().for_each(|v| _ = write!(out, ",{v}")),
            }
            out.push('\n');
        }
    }
}

/// What was learned about the column of a target.
fn label_column<'a>(target: &TargetInfo, fitted: &'a Fitted) -> Option<&'a ColumnFit> {
    let (_, column) = fitted.roles.labels.iter().find(|(name, _)| *name == target.name)?;
    fitted.column(column)
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
