//! `plimsoll ckpt`: the checkpoints of a run.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::job::Job;
use crate::job::session::{read_fitted, trainer};
use crate::out::Out;
use crate::text::grouped;
use clap::{Args, Subcommand};
use plimsoll::trainer::verify_checkpoint;
use std::path::{Path, PathBuf};

/// List, check and copy the checkpoints of a run.
#[derive(Subcommand)]
pub enum Command {
    List(List),
    Verify(Verify),
    Export(Export),
}

/// The checkpoints of a run, oldest first.
#[derive(Args)]
#[command(after_help = "Examples:\n  plimsoll ckpt list runs/tabular")]
pub struct List {
    /// The run directory, or a folder of checkpoints.
    run: PathBuf,
}

/// Read checkpoints whole and say whether they are sound. Exit code 8 when one is not.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  plimsoll ckpt verify runs/tabular\n  plimsoll ckpt verify runs/tabular/checkpoints/step-000000000100.safetensors"
)]
pub struct Verify {
    /// The run directory, a folder of checkpoints, or one of them.
    run: PathBuf,
}

/// Copy the weights of a checkpoint, without optimizer state, to a safetensors file that other programs read.
#[derive(Args)]
#[command(after_help = "Examples:\n  plimsoll ckpt export runs/tabular weights.safetensors")]
pub struct Export {
    /// The run directory (its last checkpoint), or a checkpoint.
    run: PathBuf,
    /// The file to write.
    output: PathBuf,
}

/// A line of `plimsoll ckpt --json`.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct CheckpointLine {
    /// The file.
    file: String,
    /// Training steps done when it was written; null for weights alone.
    step: Option<u64>,
    /// Its size.
    bytes: u64,
    /// Tensors in it; null where it was not read.
    tensors: Option<usize>,
    /// Whether it is sound; null where it was not read.
    sound: Option<bool>,
    /// What is wrong with it.
    problem: Option<String>,
}

pub fn run(command: &Command, out: &Out) -> Outcome {
    match command {
        Command::List(list) => show(&list.run, false, out),
        Command::Verify(verify) => show(&verify.run, true, out),
        Command::Export(export) => copy(export, out),
    }
}

/// The checkpoints at a path, by step.
fn find(path: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let inside = path.join("checkpoints");
    let folder = if inside.is_dir() { inside } else { path.to_owned() };
    let none = |why: String| {
        Diagnostic::new(Code::RunUnusable, format!("{}: {why}", folder.display()))
            .note("do", "give the directory of a run: plimsoll train JOB makes it beside the job file")
    };
    let entries = std::fs::read_dir(&folder).map_err(|e| none(e.to_string()))?;
    let is_checkpoint = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("step-") && name.ends_with(".safetensors")
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_checkpoint).collect();
    files.sort();
    if files.is_empty() {
        return Err(none("there are no checkpoints".into()));
    }
    Ok(files)
}

fn step_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix("step-")?.parse().ok()
}

fn show(path: &Path, verify: bool, out: &Out) -> Outcome {
    let mut code = 0;
    for file in find(path)? {
        let bytes = std::fs::metadata(&file).map_or(0, |m| m.len());
        let checked = verify.then(|| verify_checkpoint(&file).map_err(|e| e.to_string()));
        let line = CheckpointLine {
            file: file.display().to_string(),
            step: step_of(&file),
            bytes,
            tensors: checked.as_ref().and_then(|c| c.as_ref().ok().copied()),
            sound: checked.as_ref().map(Result::is_ok),
            problem: checked.and_then(Result::err),
        };
        if line.sound == Some(false) {
            code = Code::CheckpointUnusable.exit();
        }
        if out.json {
            out.json_line(&line);
            continue;
        }
        let state = match (&line.sound, &line.problem) {
            (Some(true), _) => format!("  sound, {} tensors", line.tensors.unwrap_or(0)),
            (_, Some(problem)) => format!("  {}", out.paint("31", problem)),
            _ => String::new(),
        };
        out.data(format!("{}  {:>16} bytes{state}", line.file, grouped(bytes)));
    }
    Ok(code)
}

/// The run that a checkpoint belongs to says which tensors are the model's.
fn copy(export: &Export, out: &Out) -> Outcome {
    let file = find(&export.run)?.pop().expect("one at least");
    let run = if export.run.is_file() { file.parent().and_then(Path::parent) } else { Some(export.run.as_path()) };
    let run = run.unwrap_or(Path::new("."));
    let path = run.join("job.toml");
    let job = Job::load(&path, &[])?;
    let (mut trainer, places) = trainer(&job, &read_fitted(run)?)?;
    let unusable = |e: plimsoll::Error| Diagnostic::new(Code::CheckpointUnusable, e.to_string());
    trainer.load_checkpoint(&file).map_err(unusable)?;
    trainer.save_weights(&export.output).map_err(|e| crate::errors::diagnose(&e, &places))?;
    out.talk(format!("the weights of {}", file.display()));
    if out.json {
        let bytes = std::fs::metadata(&export.output).map_or(0, |m| m.len());
        let (step, file) = (step_of(&file), export.output.display().to_string());
        out.json_line(&CheckpointLine { file, step, bytes, tensors: None, sound: None, problem: None });
        return Ok(0);
    }
    out.data(export.output.display());
    Ok(0)
}
