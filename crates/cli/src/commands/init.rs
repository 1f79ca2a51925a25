//! `plimsoll init`: a job for the user's own table.

use crate::Outcome;
use crate::diagnostic::{Diagnostic, nearest};
use crate::errors::Code;
use crate::out::Out;
use clap::Args;
use std::path::PathBuf;

/// Write a job for your own table, by looking at it.
///
/// The last column is taken as the label unless told otherwise; columns of text that differ in nearly every row are left out. Read
/// the file it writes, change it, and train it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll init people.csv
  plimsoll init people.csv --label income
  plimsoll init sales.csv --window 24        predict a series from its past")]
pub struct Options {
    /// The CSV file.
    data: PathBuf,
    /// The column to predict; the last if not given.
    #[arg(long)]
    label: Option<String>,
    /// Rows in time: predict the next row from so many before it.
    #[arg(long, value_name = "ROWS")]
    window: Option<usize>,
    /// The job to write; beside the data under its name if not given.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write over a file that is there.
    #[arg(long)]
    force: bool,
}

/// `plimsoll init --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Written {
    /// The job.
    job: String,
    /// The column to predict.
    label: String,
    /// The columns that the model sees.
    features: Vec<String>,
    /// Columns that were left out.
    left_out: Vec<String>,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let found = super::data::look(std::slice::from_ref(&options.data), 100_000)?;
    let columns: Vec<(String, String, Option<usize>, u64)> =
        found.column_facts().map(|(n, k, d, m)| (n.to_owned(), k.to_owned(), d, m)).collect();
    let names: Vec<&str> = columns.iter().map(|(n, ..)| n.as_str()).collect();
    let label = match &options.label {
        None => names.last().copied().unwrap_or_default().to_owned(),
        Some(label) if names.contains(&label.as_str()) => label.clone(),
        Some(label) => {
            let hint =
                nearest(label, names.iter().copied()).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
            let title = format!("{} has no column '{label}'{hint}", options.data.display());
            return Err(Diagnostic::new(Code::WrongValue, title).note("names", names.join(", ")));
        }
    };
    let rows = found.elements().max(1);
    // Text that differs in nearly every row, such as names and identifiers, says nothing about other rows.
    let useless = |kind: &str, distinct: Option<usize>| {
        kind == "bytes" && distinct.is_none_or(|n| n > 50 && n as u64 > rows / 10)
    };
    let others = || columns.iter().filter(|(n, ..)| *n != label);
    let features: Vec<String> = others().filter(|(_, k, d, _)| !useless(k, *d)).map(|(n, ..)| n.clone()).collect();
    let left_out: Vec<String> = others().filter(|(_, k, d, _)| useless(k, *d)).map(|(n, ..)| n.clone()).collect();
    if features.is_empty() && options.window.is_none() {
        let title = format!("{} has no columns to predict '{label}' from", options.data.display());
        return Err(Diagnostic::new(Code::BadData, title));
    }
    let path = options.output.clone().unwrap_or_else(|| options.data.with_extension("toml"));
    if path.exists() && !options.force {
        let title = format!("{} is there already", path.display());
        return Err(Diagnostic::new(Code::Other, title).note("do", "--force writes over it, --output FILE elsewhere"));
    }
    let text = job(options, &label, &features, &left_out, rows, &path);
    std::fs::write(&path, text).map_err(|e| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display())))?;
    if out.json {
        out.json_line(&Written { job: path.display().to_string(), label, features, left_out });
        return Ok(0);
    }
    out.talk(format!("predicts '{label}' from {} columns", features.len()));
    if !left_out.is_empty() {
        out.talk(format!("left out, since nearly every row differs: {}", left_out.join(", ")));
    }
    out.talk(format!("next: plimsoll train {}", path.display()));
    out.data(path.display());
    Ok(0)
}

fn job(
    options: &Options,
    label: &str,
    features: &[String],
    left_out: &[String],
    rows: u64,
    path: &std::path::Path,
) -> String {
    let quote = |s: &str| toml::Value::String(s.to_owned()).to_string();
    let list = |all: &[String]| all.iter().map(|s| quote(s)).collect::<Vec<_>>().join(", ");
    let same_folder = options.data.parent() == path.parent();
    let file = match options.data.file_name() {
        Some(name) if same_folder => name.to_string_lossy().into_owned(),
        _ => std::path::absolute(&options.data).unwrap_or(options.data.clone()).display().to_string(),
    };
    let batch = (rows / 50).next_power_of_two().clamp(8, 256);
    let note = if left_out.is_empty() {
        String::new()
    } else {
        format!("# Left out, since nearly every row differs: {}\n", left_out.join(", "))
    };
    let (model, window, features) = match options.window {
        Some(size) => {
            let mut all: Vec<String> = features.to_vec();
            all.push(label.to_owned());
            ("architecture = \"lstm\"\nunits = [32]", format!("window = {{ size = {size}, horizon = 1 }}\n"), all)
        }
        None => ("architecture = \"mlp\"\nhidden = [64, 32]", String::new(), features.to_vec()),
    };
    format!(
        "# Predicts {} from {} columns of {file}; docs/jobs.md describes every key.\n\
         # plimsoll plan {shown}\n# plimsoll train {shown}\n\n\
         # Resident memory of the whole process, at most; what the host allows without it.\n\
         # memory_limit = \"256MiB\"\n\n\
         [model]\n{model}\n\n\
         [data]\nformat = \"csv\"\nfiles = {}\nlabel = {}\n{note}features = [{}]\nnormalize = \"standard\"\n{window}\
         validation_split = 0.2\n\n\
         [optimizer]\nname = \"adam\"\nlearning_rate = 0.001\n\n\
         [training]\nepochs = 20\nbatch_size = {batch}\nearly_stopping = {{ patience = 5 }}\n",
        quote(label),
        features.len(),
        quote(&file),
        quote(label),
        list(&features),
        shown = path.display(),
    )
}
