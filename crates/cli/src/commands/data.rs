//! `plimsoll data`: look at data files, turn them into others, measure how fast they are read.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::{Code, diagnose_data};
use crate::out::Out;
use crate::text::{grouped, seconds};
use clap::{Args, Subcommand};
use plimsoll::{Budget, Bytes};
use plimsoll_data::{AUTOTUNE, Component, Dataset, FileFormat, Files, Images, Kind};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Look at data files, turn them into others, measure how fast they are read.
#[derive(Subcommand)]
pub enum Command {
    Inspect(Inspect),
    Convert(Convert),
    Bench(BenchOptions),
}

/// Columns, rows, bytes per element, and what a shuffle will cost.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll data inspect people.csv
  plimsoll data inspect 'shard-*.parquet' --json
  plimsoll data inspect photos/              a folder of folders of images")]
pub struct Inspect {
    /// The files, all of one format: csv, npy, npz, parquet, arrow, tfrecord, idx, txt, or a folder of images.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Rows to look at for figures of columns; all with 0.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    rows: u64,
}

/// Write data in another format.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll data convert people.csv people.npy      one file per column where there are several
  plimsoll data convert 'shard-*.csv' all.parquet
  plimsoll data convert old.tfrecord table.csv")]
pub struct Convert {
    /// The files to read.
    #[arg(required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// The file to write: .npy, .npz, .csv, .parquet, .arrow, .feather or .tfrecord.
    output: PathBuf,
    /// Memory for reading, at most.
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    memory_limit: Bytes,
}

/// How fast data is read, shuffled and batched.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  plimsoll data bench train.npy --batch-size 256 --shuffle\n  plimsoll data bench people.csv --memory-limit 16MiB"
)]
pub struct BenchOptions {
    /// The files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Elements in a batch.
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch_size: usize,
    /// In random order; streams through a buffer of 1000 elements.
    #[arg(long)]
    shuffle: bool,
    /// Memory of the pipeline, at most.
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    memory_limit: Bytes,
    /// How long to measure, at most.
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "5s")]
    time: std::time::Duration,
}

/// `plimsoll data inspect --json`.
#[derive(Serialize, JsonSchema)]
pub struct Inspection {
    /// The files.
    files: Vec<String>,
    /// Their size in bytes.
    bytes: u64,
    /// Their format: by the first bytes where they tell, else by the name.
    format: String,
    /// How many elements there are.
    elements: u64,
    /// Bytes of an element; null where they differ.
    bytes_per_element: Option<usize>,
    /// Whether elements can be found by number, so that a complete shuffle needs no memory.
    indexable: bool,
    /// The least memory with which a pass can work; null where only running tells.
    least_memory: Option<u64>,
    /// What a shuffle through a buffer of 1000 elements holds; null where a complete shuffle is free.
    shuffle_1000: Option<u64>,
    /// The columns or arrays.
    columns: Vec<ColumnFacts>,
    /// Elements that the figures of columns come from.
    looked_at: u64,
    /// How many of those cannot be read.
    errors: u64,
    /// What is wrong with the first of them.
    first_error: Option<String>,
    /// The folders of a folder of images, in the order of their labels.
    classes: Vec<String>,
}

/// A column or array.
#[derive(Serialize, JsonSchema)]
struct ColumnFacts {
    /// Its name.
    name: String,
    /// Its type: `f32`, `i64`, `bytes`, ...
    kind: String,
    /// Its sizes; null where they differ.
    shape: Vec<Option<usize>>,
    /// The smallest number; null for texts.
    min: Option<f64>,
    /// The largest number.
    max: Option<f64>,
    /// The mean.
    mean: Option<f64>,
    /// How many are missing: NaN, or empty text.
    missing: u64,
    /// How many different values there are; null where they are more than 1000.
    distinct: Option<usize>,
    /// Some of them.
    examples: Vec<String>,
}

/// `plimsoll data convert --json`.
#[derive(Serialize, JsonSchema)]
pub struct Converted {
    /// The files written.
    files: Vec<String>,
    /// Elements in each.
    elements: u64,
}

/// `plimsoll data bench --json`.
#[derive(Serialize, JsonSchema)]
pub struct BenchReport {
    /// Elements that were read.
    elements: u64,
    /// Seconds that it took.
    seconds: f64,
    /// Elements a second.
    elements_per_second: f64,
    /// Bytes of elements a second; null where their sizes differ.
    bytes_per_second: Option<f64>,
    /// The most memory that the pipeline held, in bytes.
    peak: u64,
    /// The stage that took most time.
    slowest: Option<String>,
}

pub fn run(command: &Command, out: &Out) -> Outcome {
    match command {
        Command::Inspect(options) => inspect(options, out),
        Command::Convert(options) => convert(options, out),
        Command::Bench(options) => bench(options, out),
    }
}

fn bad(error: plimsoll_data::Error) -> Diagnostic {
    diagnose_data(&error, None)
}

/// Opens files of one format; a name that is no file is a pattern.
pub fn open(files: &[PathBuf]) -> Result<(Dataset, FileFormat), Diagnostic> {
    let paths = resolve(files)?;
    let format = FileFormat::of(&paths[0]).map_err(bad)?;
    for other in &paths[1..] {
        let found = FileFormat::of(other).map_err(bad)?;
        if found != format {
            let title = format!("{} is {format}, but {} is {found}", paths[0].display(), other.display());
            return Err(Diagnostic::new(Code::BadData, title).note("do", "give files of one format"));
        }
    }
    let data = format.open(&paths).map_err(bad)?;
    data.spec().map_err(bad)?;
    Ok((data, format))
}

fn resolve(files: &[PathBuf]) -> Result<Vec<PathBuf>, Diagnostic> {
    let mut paths = Vec::new();
    for file in files {
        if file.exists() {
            paths.push(file.clone());
            continue;
        }
        let found = Files::glob(&file.to_string_lossy()).map_err(bad)?;
        if found.paths().is_empty() {
            let title = format!("there is no file '{}'", file.display());
            return Err(Diagnostic::new(Code::DataUnreadable, title));
        }
        paths.extend(found.paths().iter().cloned());
    }
    Ok(paths)
}

/// Memory for looking at data: room for elements far larger than any that are trained on.
const FOR_LOOKING: Bytes = Bytes::mib(256);

/// Looks at data.
pub fn look(files: &[PathBuf], most: u64) -> Result<Inspection, Diagnostic> {
    let (data, format) = open(files)?;
    let spec = data.spec().map_err(bad)?;
    let budget = Budget::new(FOR_LOOKING);
    let mut columns: Vec<Column> = spec.components().iter().map(|c| Column::new(&c.name)).collect();
    let mut elements = 0;
    let known = data.cardinality().map_err(bad)?.known();
    let (mut errors, mut first_error) = (0, None);
    for element in data.iter(&budget).map_err(bad)? {
        match element {
            // Elements that are not what they should be are counted; the rest is looked at all the same.
            Err(error) if error.is_data() => {
                errors += 1;
                first_error.get_or_insert(error.to_string());
            }
            Err(error) => return Err(bad(error)),
            Ok(_) if most != 0 && elements >= most => {
                if known.is_some() {
                    break;
                }
            }
            Ok(element) => {
                for (column, component) in columns.iter_mut().zip(spec.components()) {
                    column.see(&element.row(), component.kind).map_err(bad)?;
                }
            }
        }
        elements += 1;
    }
    let looked_at = if most == 0 { elements } else { elements.min(most) };
    let indexable = data.is_indexable().map_err(bad)?;
    let facts = |(column, component): (Column, &plimsoll_data::Component)| column.facts(component);
    Ok(Inspection {
        files: files.iter().map(|f| f.display().to_string()).collect(),
        bytes: resolve(files)?.iter().map(|f| size_of(f)).sum(),
        format: format.to_string(),
        elements: known.unwrap_or(elements),
        bytes_per_element: spec.bytes(),
        indexable,
        least_memory: data.least_memory().map_err(bad)?.map(|b| b.0),
        shuffle_1000: spec.bytes().filter(|_| !indexable).map(|b| 1000 * b as u64),
        columns: columns.into_iter().zip(spec.components()).map(facts).collect(),
        looked_at,
        errors,
        first_error,
        classes: match format {
            FileFormat::ImageFolder => Dataset::image_classes(&files[0]).map_err(bad)?,
            _ => Vec::new(),
        },
    })
}

/// The bytes of a file, or of all files below a folder.
fn size_of(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|e| size_of(&e.path())).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |m| m.len()),
    }
}

impl Inspection {
    /// What `init` wants to know of a column: name, kind, distinct values, examples.
    pub fn column_facts(&self) -> impl Iterator<Item = (&str, &str, Option<usize>, u64)> {
        self.columns.iter().map(|c| (c.name.as_str(), c.kind.as_str(), c.distinct, c.missing))
    }

    /// How many elements there are.
    pub fn elements(&self) -> u64 {
        self.elements
    }
}

fn inspect(options: &Inspect, out: &Out) -> Outcome {
    let found = look(&options.files, options.rows)?;
    if out.json {
        out.json_page(&found);
        return Ok(0);
    }
    out.data(format!("{}: {}, {}", found.files.join(", "), found.format, Bytes(found.bytes)));
    let each = found.bytes_per_element.map_or("of different sizes".into(), |b| format!("of {b} bytes"));
    out.data(format!("{} elements {each}", grouped(found.elements)));
    match found.shuffle_1000 {
        _ if found.indexable => out.data("elements can be found by number: a complete shuffle takes no memory"),
        Some(bytes) => out.data(format!(
            "a stream: shuffle(1000) holds {}; a complete shuffle goes through a file on disk",
            Bytes(bytes)
        )),
        None => out.data("a stream of elements of different sizes: a complete shuffle goes through a file on disk"),
    }
    let width = found.columns.iter().map(|c| c.name.len()).max().unwrap_or(0).max(6);
    out.data(format!(
        "\n{:<width$}  {:<8} {:<12} {:>12} {:>12} {:>12} {:>8}  values",
        "column", "type", "shape", "min", "mean", "max", "missing"
    ));
    for c in &found.columns {
        let shape: Vec<String> = c.shape.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
        let number = |v: Option<f64>| v.map_or(String::new(), crate::progress::short);
        let values = match c.distinct {
            Some(n) if n <= 12 => format!("{n}: {}", c.examples.join(", ")),
            Some(n) => format!("{n} different"),
            None => "many".into(),
        };
        out.data(format!(
            "{:<width$}  {:<8} {:<12} {:>12} {:>12} {:>12} {:>8}  {values}",
            c.name,
            c.kind,
            format!("[{}]", shape.join(",")),
            number(c.min),
            number(c.mean),
            number(c.max),
            c.missing
        ));
    }
    if !found.classes.is_empty() {
        out.data(format!("\n{} classes: {}", found.classes.len(), found.classes.join(", ")));
    }
    if let Some(error) = &found.first_error {
        out.talk(format!("warning: {} elements cannot be read; the first: {error}", grouped(found.errors)));
    }
    if found.looked_at < found.elements {
        out.talk(format!("figures of columns from the first {} elements (--rows)", grouped(found.looked_at)));
    }
    Ok(0)
}

/// The most different values that are counted.
const MOST: usize = 1000;

struct Column {
    name: String,
    n: f64,
    sum: f64,
    min: f64,
    max: f64,
    missing: u64,
    values: BTreeSet<String>,
    many: bool,
}

impl Column {
    fn new(name: &str) -> Column {
        Column {
            name: name.into(),
            n: 0.0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            missing: 0,
            values: BTreeSet::new(),
            many: false,
        }
    }

    fn see(&mut self, row: &plimsoll_data::Row<'_>, kind: Kind) -> Result<(), plimsoll_data::Error> {
        if kind == Kind::Bytes {
            for text in row.strings(&self.name)? {
                self.missing += text.is_empty() as u64;
                self.note(String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned());
            }
            return Ok(());
        }
        let single = row.shape(&self.name)?.elements() == 1;
        for value in crate::job::data::numbers(row, &self.name)? {
            if value.is_nan() {
                self.missing += 1;
                continue;
            }
            self.n += 1.0;
            self.sum += value;
            (self.min, self.max) = (self.min.min(value), self.max.max(value));
            if single && !self.many {
                self.note(value.to_string());
            }
        }
        self.many |= !single;
        Ok(())
    }

    fn note(&mut self, value: String) {
        if !self.many {
            self.values.insert(value);
            self.many = self.values.len() > MOST;
        }
    }

    fn facts(self, component: &plimsoll_data::Component) -> ColumnFacts {
        let numbers = self.n > 0.0;
        ColumnFacts {
            name: self.name,
            kind: component.kind.to_string(),
            shape: component.dims.clone().unwrap_or_default(),
            min: numbers.then_some(self.min),
            max: numbers.then_some(self.max),
            mean: numbers.then_some(self.sum / self.n),
            missing: self.missing,
            distinct: (!self.many).then_some(self.values.len()),
            examples: self.values.into_iter().take(12).collect(),
        }
    }
}

fn convert(options: &Convert, out: &Out) -> Outcome {
    let (data, _) = open(&options.files)?;
    let spec = data.spec().map_err(bad)?;
    let budget = Budget::new(options.memory_limit);
    let target = FileFormat::by_name(&options.output).map_err(bad)?;
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let own = real(&options.output);
    if own.is_some() && resolve(&options.files)?.iter().any(|file| real(file) == own) {
        let title = format!("'{}' would be written over itself", options.output.display());
        return Err(Diagnostic::new(Code::WrongValue, title).note("do", "give another name for the result"));
    }
    // An array has one column: several go to a file each.
    let (files, elements) = match spec.components() {
        columns if target == FileFormat::Npy && columns.len() > 1 => {
            let one = |c: &Component| {
                let path = column_file(&options.output, &c.name);
                data.write_npy(&c.name, &path, &budget).map(|n| (path, n)).map_err(bad)
            };
            let written: Vec<(PathBuf, u64)> = columns.iter().map(one).collect::<Result<_, _>>()?;
            let elements = written.first().map_or(0, |(_, n)| *n);
            (written.into_iter().map(|(path, _)| path).collect(), elements)
        }
        _ => (vec![options.output.clone()], plimsoll_data::write(&data, &options.output, &budget).map_err(bad)?),
    };
    let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    match out.json {
        true => out.json_line(&Converted { files, elements }),
        false => {
            out.talk(format!("{} elements", grouped(elements)));
            files.iter().for_each(|file| out.data(file));
        }
    }
    Ok(0)
}

/// `people.npy` and column `age` give `people.age.npy`.
pub fn column_file(output: &Path, column: &str) -> PathBuf {
    let safe: String = column.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    output.with_extension(format!("{safe}.npy"))
}

fn bench(options: &BenchOptions, out: &Out) -> Outcome {
    let (mut data, format) = open(&options.files)?;
    if format == FileFormat::ImageFolder {
        // Batches have images of one size.
        data = Dataset::from_image_folder(&options.files[0], Images::resized(64, 64)).select(&["image", "label"]);
    }
    let each = data.spec().map_err(bad)?.bytes();
    let data = match (options.shuffle, data.is_indexable().map_err(bad)?) {
        (false, _) => data,
        (true, true) => data.shuffle(None, 1),
        (true, false) => data.shuffle(1000, 1),
    };
    let batch = options.batch_size.max(1);
    let batches = data.batch(batch).prefetch(AUTOTUNE);
    let budget = Budget::new(options.memory_limit);
    let start = Instant::now();
    let mut iter = batches.iter(&budget).map_err(bad)?;
    let mut elements = 0u64;
    for batch in iter.by_ref() {
        let batch = batch.map_err(bad)?;
        let first = &batch.spec().components()[0].name;
        elements += batch.shape(first).map_err(bad)?.dims().first().copied().unwrap_or(1) as u64;
        if start.elapsed() > options.time {
            break;
        }
    }
    let time = start.elapsed().as_secs_f64();
    let report = iter.report();
    let rate = elements as f64 / time;
    let found = BenchReport {
        elements,
        seconds: time,
        elements_per_second: rate,
        bytes_per_second: each.map(|b| b as f64 * rate),
        peak: budget.peak().0,
        slowest: report.slowest().map(|s| s.name.clone()),
    };
    if out.json {
        out.json_line(&found);
        return Ok(0);
    }
    let bytes = found.bytes_per_second.map_or(String::new(), |b| format!(", {:.1} MB/s", b / 1e6));
    out.data(format!("{} elements in {}: {:.0} a second{bytes}", grouped(elements), seconds(time), rate));
    out.data(format!("the pipeline held {} at most", Bytes(found.peak)));
    out.talk(report);
    Ok(0)
}
