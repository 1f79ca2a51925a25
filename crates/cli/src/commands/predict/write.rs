//! Predictions on their way out: a batch comes in, its rows go to the file, nothing stays.

use super::told::{Prediction, Said, Told};
use super::{Failed, Format};
use crate::commands::data::column_file;
use crate::diagnostic::Diagnostic;
use crate::errors::{Code, diagnose_data};
use plimsoll::Tensor;
use plimsoll_data::{NewFile, NpyWriter};
use std::io::{BufWriter, Stdout, Write};
use std::path::Path;

/// Writes batches in a format.
pub struct Writer {
    told: Vec<Told>,
    /// Rows written.
    rows: u64,
    to: Target,
    /// A row at a time, as numbers and as text.
    numbers: Vec<f64>,
    line: String,
}

enum Target {
    Csv(Sink),
    Json(Sink),
    /// A file for each output.
    Npy(Vec<NpyWriter>),
}

/// Standard output, or a file that appears when it is complete.
enum Sink {
    Out(BufWriter<Stdout>),
    File(NewFile),
}

fn bad(error: plimsoll_data::Error) -> Failed {
    Failed::Output(diagnose_data(&error, None))
}

impl Sink {
    fn create(path: Option<&Path>) -> Result<Sink, Failed> {
        match path {
            Some(path) => NewFile::create(path).map(Sink::File).map_err(bad),
            None => Ok(Sink::Out(BufWriter::with_capacity(64 << 10, std::io::stdout()))),
        }
    }

    fn put(&mut self, text: &str) -> Result<(), Failed> {
        let written = match self {
            Sink::Out(out) => out.write_all(text.as_bytes()),
            Sink::File(file) => file.write_all(text.as_bytes()),
        };
        written.map_err(|e| Failed::Output(refused(&e)))
    }

    fn finish(self) -> Result<(), Diagnostic> {
        match self {
            Sink::Out(mut out) => out.flush().map_err(|e| refused(&e)),
            Sink::File(file) => file.finish(b"").map_err(|e| diagnose_data(&e, None)),
        }
    }
}

/// A reader that has gone ends the program quietly, as everywhere.
fn refused(error: &std::io::Error) -> Diagnostic {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Diagnostic::new(Code::Disk, format!("predictions cannot be written: {error}"))
}

impl Writer {
    /// Opens the output for batches that look like this one.
    pub fn create(format: Format, path: Option<&Path>, told: Vec<Told>, like: &[Tensor]) -> Result<Writer, Failed> {
        let to = match format {
            Format::Csv => Target::Csv(Sink::create(path)?),
            Format::Json => Target::Json(Sink::create(path)?),
            Format::Npy => {
                let path = path.expect("checked before");
                let one = |(told, t): (&Told, &Tensor)| {
                    let path = if like.len() == 1 { path.to_owned() } else { column_file(path, &told.name) };
                    NpyWriter::create(path, t.dtype(), &t.shape().dims()[1..]).map_err(bad)
                };
                Target::Npy(told.iter().zip(like).map(one).collect::<Result<_, _>>()?)
            }
        };
        let mut writer = Writer { told, rows: 0, to, numbers: Vec::new(), line: String::new() };
        if let Target::Csv(sink) = &mut writer.to {
            sink.put(&header(&writer.told))?;
        }
        Ok(writer)
    }

    /// Writes a batch: a tensor for each output.
    pub fn batch(&mut self, outputs: &[Tensor]) -> Result<(), Failed> {
        if let Target::Npy(files) = &mut self.to {
            return files.iter_mut().zip(outputs).try_for_each(|(file, t)| file.put(t.bytes())).map_err(bad);
        }
        // Models give f32; anything else is turned into numbers once a batch.
        let other: Vec<Option<Vec<f64>>> =
            outputs.iter().map(|t| t.as_slice::<f32>().is_err().then(|| t.to_f64())).collect();
        for row in 0..outputs[0].shape()[0] {
            self.line.clear();
            if let Target::Csv(_) = self.to {
                self.line += &self.rows.to_string();
            }
            for ((told, output), other) in self.told.iter().zip(outputs).zip(&other) {
                let place = row * told.units..(row + 1) * told.units;
                self.numbers.clear();
                match (output.as_slice::<f32>(), other) {
                    (Ok(all), _) => self.numbers.extend(all[place].iter().map(|&v| f64::from(v))),
                    (Err(_), all) => self.numbers.extend(all.iter().flat_map(|all| &all[place.clone()])),
                }
                let said = told.said(&mut self.numbers);
                match self.to {
                    Target::Json(_) => {
                        json(&mut self.line, self.rows, (self.told.len() > 1).then_some(&told.name), said)
                    }
                    _ => csv(&mut self.line, said),
                }
            }
            match &mut self.to {
                Target::Csv(sink) => {
                    self.line.push('\n');
                    sink.put(&self.line)?;
                }
                Target::Json(sink) => sink.put(&self.line)?,
                Target::Npy(_) => unreachable!("written above"),
            }
            self.rows += 1;
        }
        Ok(())
    }

    /// Completes the output.
    pub fn finish(self) -> Result<(), Diagnostic> {
        match self.to {
            Target::Csv(sink) | Target::Json(sink) => sink.finish(),
            Target::Npy(files) => {
                files.into_iter().try_for_each(|f| f.finish().map(drop)).map_err(|e| diagnose_data(&e, None))
            }
        }
    }
}

/// The names of the columns: of `prediction` where there is one output, else of the outputs.
fn header(told: &[Told]) -> String {
    let mut line = String::from("row");
    for output in told {
        let (name, of) = match told.len() {
            1 => ("prediction", String::new()),
            _ => (output.name.as_str(), format!("{} ", output.name)),
        };
        match &output.classes {
            Some(classes) => {
                line += &format!(",{}", quoted(name));
                classes.iter().for_each(|c| line += &format!(",{}", quoted(&format!("{of}score {c}"))));
            }
            None if output.units > 1 && !output.is_text() => {
                (0..output.units).for_each(|i| line += &format!(",{}", quoted(&format!("{name}_{i}"))));
            }
            None => line += &format!(",{}", quoted(name)),
        }
    }
    line + "\n"
}

fn csv(line: &mut String, said: Said<'_>) {
    let numbers = |line: &mut String, all: &[f64]| all.iter().for_each(|v| *line += &format!(",{v}"));
    match said {
        Said::Class(name, scores) => {
            *line += &format!(",{}", quoted(name));
            numbers(line, scores);
        }
        Said::Text(text) => *line += &format!(",{}", quoted(&text)),
        Said::Numbers(all) => numbers(line, all),
    }
}

fn json(line: &mut String, row: u64, output: Option<&String>, said: Said<'_>) {
    let (prediction, scores) = match said {
        Said::Class(name, scores) => (serde_json::json!(name), Some(scores.to_vec())),
        Said::Text(text) => (serde_json::json!(text), None),
        Said::Numbers([one]) => (serde_json::json!(one), None),
        Said::Numbers(all) => (serde_json::json!(all), None),
    };
    let told = Prediction { row, output: output.cloned(), prediction, scores };
    *line += &serde_json::to_string(&told).expect("plain data");
    line.push('\n');
}

/// A field of a CSV file.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
