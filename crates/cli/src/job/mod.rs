//! Jobs: what to train, on what, within which limit, as a TOML file.
//!
//! [`Job::load`] puts together the file, `PLIMSOLL_*` variables and flags into one tree in which every value knows its origin, and reads
//! it; [`Session`] is the job with its data opened and its trainer made.

pub mod data;
pub mod docs;
pub mod layers;
pub mod losses;
pub mod model;
pub mod optimizer;
pub mod read;
pub mod session;
pub mod tree;

pub use session::Session;

use crate::diagnostic::{Diagnostic, Origin, Source};
use crate::errors::Code;
use data::DataTable;
use losses::{LossTable, MetricTable};
use model::ModelTable;
use optimizer::OptimizerTable;
use plimsoll::Limit;
use read::{At, Read, names, table};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::{Node, Value};

table! {
    /// How a memory limit may be kept. None of it changes a result.
    pub struct LimitTable {
        /// Whether batches may run in slices whose gradients are added up.
        split: bool = true,
        /// Whether values may be computed again instead of being kept.
        recompute: bool = true,
        /// Whether values, weights and optimizer state may be moved to a file.
        spill: bool = true,
        /// The directory of that file, on a disk. If not given, the first on a disk of the run directory, the one for temporary files, `/var/tmp` and the current one.
        spill_dir: Option<PathBuf> = none,
        /// Whether memory is touched ahead of the first step to find out whether it is there.
        sounding: bool = true,
        /// Runs every batch in so many slices, whatever the limit.
        accumulate: Option<usize> = none,
    }
}

names! {
    /// Which way a figure gets better.
    pub enum Direction, a "direction" { "smaller" => Smaller, "larger" => Larger, }
}

table! {
    /// Stops when a figure has not improved for some epochs.
    pub struct EarlyStopping {
        /// The figure: `val_loss`, `loss`, a metric.
        monitor: String = "val_loss",
        /// Epochs to wait.
        patience: usize = 3,
        /// What counts as an improvement.
        min_delta: f64 = 0.0,
        /// Whether the best epoch's weights are taken at the end. Keeps a copy of them.
        restore_best: bool = false,
        /// Which way the figure gets better, where its name does not tell.
        better: Option<Direction> = none,
    }
}

table! {
    /// Lowers the learning rate when a figure has not improved for some epochs.
    pub struct ReduceOnPlateau {
        /// The figure.
        monitor: String = "val_loss",
        /// The factor.
        factor: f64 = 0.1,
        /// Epochs to wait.
        patience: usize = 10,
        /// Never below this.
        min_rate: f64 = 0.0,
    }
}

table! {
    /// Checkpoints, from which training goes on by itself.
    pub struct CheckpointTable {
        /// Epochs from one to the next.
        every_epochs: usize = 1,
        /// Steps from one to the next, instead of epochs.
        every_steps: Option<u64> = none,
        /// How many are kept.
        keep: usize = 3,
    }
}

table! {
    /// How to train.
    pub struct Training {
        /// Passes over the data.
        epochs: usize = 10,
        /// Samples per step.
        batch_size: At<usize> = 32,
        /// Steps of an epoch, where an epoch is not a whole pass.
        steps_per_epoch: Option<usize> = none,
        /// What is made smaller; by the kind of labels if not given.
        loss: Option<LossTable> = none,
        /// Figures that are told beside the loss; the usual one for the loss if not given.
        metrics: Option<Vec<MetricTable>> = none,
        /// Initial weights, dropout and the order of samples follow from it.
        seed: u64 = 0,
        /// Threads; results do not depend on their number. One per core if not given.
        threads: Option<usize> = none,
        /// Stops early.
        early_stopping: Option<EarlyStopping> = none,
        /// Lowers the learning rate.
        reduce_on_plateau: Option<ReduceOnPlateau> = none,
        /// When checkpoints are written.
        checkpoint: CheckpointTable = {},
        /// Where the run is written: log, plan, checkpoints, weights. Beside the job file if not given: `runs/NAME`.
        run: Option<PathBuf> = none,
        /// Whether event files for TensorBoard are written too.
        tensorboard: bool = false,
        /// Whether a trace of a step for Perfetto or Chrome is written too (`trace.json`); its times are measured in three more steps, when
        /// the weights are written already.
        trace: bool = false,
    }
}

table! {
    /// What to train, on what, within which limit.
    pub struct JobTable {
        /// What the run is called; the name of the file if not given.
        name: Option<String> = none,
        /// Resident memory of the whole process, at most. What the host allows if not given.
        memory_limit: Option<At<Limit>> = none,
        /// The model.
        model: At<ModelTable>,
        /// The data.
        data: DataTable,
        /// The optimizer.
        optimizer: OptimizerTable = {},
        /// How to train.
        training: Training = {},
        /// How the memory limit may be kept.
        limit: LimitTable = {},
    }
}

/// A job, read.
pub struct Job {
    pub table: JobTable,
    /// All values with their origins.
    pub tree: Node,
    pub name: String,
    /// The folder of the job file, from which paths are taken.
    pub folder: PathBuf,
}

/// A value from the command line for a key of the job.
#[derive(Clone, Debug)]
pub struct Override {
    /// The dotted path: `training.epochs`.
    pub path: String,
    pub value: String,
    /// The flag as written.
    pub flag: String,
}

impl Job {
    /// Reads a job file, with environment variables and flags over it.
    ///
    /// # Errors
    /// When the file cannot be read, or has keys or values that do not exist.
    pub fn load(path: &Path, flags: &[Override]) -> Result<Job, Diagnostic> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            let note = "plimsoll init DATA.csv writes a job for your data; examples/ has some";
            Diagnostic::new(Code::JobUnreadable, format!("{}: {e}", path.display())).note("do", note)
        })?;
        let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Job::from_text(&path.display().to_string(), text, path, variables, flags)
    }

    /// Reads a job from text.
    ///
    /// # Errors
    /// As [`Job::load`].
    pub fn from_text(
        name: &str,
        text: String,
        path: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: &[Override],
    ) -> Result<Job, Diagnostic> {
        let source = Arc::new(Source { name: name.to_owned(), text });
        let mut tree = Node::parse(source)?;
        let Value::Table(table) = &mut tree.value else { unreachable!("a file is a table") };
        for (path, value, origin) in from_environment(variables) {
            table.set(&path, Node::parse_value(&value, &origin));
        }
        for flag in flags {
            table.set(&flag.path, Node::parse_value(&flag.value, &Origin::Flag(flag.flag.clone())));
        }
        let table = JobTable::read(&tree)?;
        let stem = path.file_stem().map_or("job".into(), |s| s.to_string_lossy().into_owned());
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        Ok(Job { name: table.name.clone().unwrap_or(stem), table, tree, folder })
    }

    /// The run directory.
    pub fn run_directory(&self) -> PathBuf {
        match &self.table.training.run {
            Some(run) => self.folder.join(run),
            None => self.folder.join("runs").join(&self.name),
        }
    }
}

/// The variables that stand for keys: `PLIMSOLL_MEMORY_LIMIT`, and `PLIMSOLL_TRAINING_EPOCHS` for `training.epochs`.
fn from_environment(variables: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String, Origin)> {
    let sections: [(&str, Vec<&'static str>); 4] = [
        ("training", keys_of::<Training>()),
        ("limit", keys_of::<LimitTable>()),
        ("optimizer", keys_of::<optimizer::OptimizerCommon>()),
        ("data", keys_of::<data::DataCommon>()),
    ];
    let mut found = Vec::new();
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix("PLIMSOLL_") else { continue };
        let rest = rest.to_lowercase();
        let origin = Origin::Variable(format!("{name}={value}"));
        if rest == "memory_limit" {
            found.push((rest, value, origin));
            continue;
        }
        for (section, keys) in &sections {
            if let Some(key) = rest.strip_prefix(section).and_then(|r| r.strip_prefix('_'))
                && keys.contains(&key)
            {
                found.push((format!("{section}.{key}"), value.clone(), origin.clone()));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn keys_of<T: read::Fields>() -> Vec<&'static str> {
    T::fields().iter().map(|f| f.name).collect()
}

/// A setting in effect and where it comes from.
#[derive(Clone, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Setting {
    /// The dotted path of the key.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// The file with line and column, the flag, the environment variable, or `default`.
    pub origin: String,
}

/// All settings of a job with their origins; `None` defaults are left out.
pub fn settings(job: &Job) -> Vec<Setting> {
    let mut out = Vec::new();
    let doc = JobTable::table().expect("a table");
    walk(&doc, &job.tree, "", &mut out);
    out
}

fn walk(doc: &read::TableDoc, node: &Node, prefix: &str, out: &mut Vec<Setting>) {
    let empty = tree::Table::default();
    let table = if let Value::Table(table) = &node.value { table } else { &empty };
    let mut fields = doc.fields.clone();
    if let Some((tag, choices)) = &doc.choices {
        let word = match (&node.value, table.get(tag)) {
            (Value::Text(word), _) => Some(word.clone()),
            (_, Some(entry)) => entry.node.to_toml().trim_matches('"').to_owned().into(),
            _ => doc.fields[0].default.map(|d| d.trim_matches('"').to_owned()),
        };
        let choice = word.and_then(|word| choices.iter().find(|(name, _)| *name == word));
        fields.extend(choice.map(|(_, c)| c.fields.clone()).unwrap_or_default());
    }
    for field in &fields {
        let key = if prefix.is_empty() { field.name.to_owned() } else { format!("{prefix}.{}", field.name) };
        let inner = (field.table)();
        match (table.get(field.name), field.default) {
            (Some(entry), _) => match (&entry.node.value, inner) {
                (Value::Table(_), Some(doc)) => walk(&doc, &entry.node, &key, out),
                _ => out.push(Setting { key, value: entry.node.to_toml(), origin: entry.node.origin.to_string() }),
            },
            (None, Some("none") | None) => (),
            (None, Some(default)) => match inner.filter(|_| default == "{}") {
                Some(doc) => walk(&doc, &Node::parse_value("{}", &Origin::Default), &key, out),
                None => out.push(Setting { key, value: default.to_owned(), origin: "default".into() }),
            },
        }
    }
}

#[cfg(test)]
mod tests;
