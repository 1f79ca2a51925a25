//! `plimsoll train`: plan, sound, train; resumes by itself.

use super::{JobOptions, duration};
use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::job::session::{Session, fit_options, write_fitted};
use crate::out::Out;
use crate::progress::{Progress, TrainLine, figures};
use clap::Args;
use plimsoll::callbacks::{Callback, Checkpoint, Logs, Training};
use plimsoll::trainer::History;
use plimsoll::{Error, measure};
use plimsoll_run::{EventKind, RunLog, Times};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Train a job inside its memory limit.
///
/// Everything is planned before the first step: what does not fit is refused with exit code 3, the smallest limit that would do,
/// and other remedies. The run directory (`runs/NAME` beside the job file) gets the log, the plan, checkpoints and the weights;
/// the same command goes on from the last checkpoint. Ctrl-C saves and ends with exit code 130.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll train examples/tabular.toml
  plimsoll train job.toml --memory-limit 512MiB --epochs 3
  plimsoll train job.toml --json | jq 'select(.event == \"epoch\").figures'
  plimsoll train job.toml --fresh --set optimizer.learning_rate=0.01")]
pub struct Options {
    #[command(flatten)]
    pub job: JobOptions,
    /// Begin again: leave out the checkpoints and the log of an earlier run.
    #[arg(long)]
    pub fresh: bool,
    /// Plan and show what it would take; train nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Where there is no terminal: a line every so often, besides one per epoch.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub log_every: Option<Duration>,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let session = Session::open(options.job.load()?)?;
    if options.dry_run {
        return super::plan::show(session, &super::plan::Options::of(options.job.clone()), out);
    }
    train(session, options.fresh, options.log_every, out)
}

/// The files of a run.
pub struct RunFiles {
    pub folder: PathBuf,
}

impl RunFiles {
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    pub fn weights(&self) -> PathBuf {
        self.folder.join("weights.safetensors")
    }

    /// Removes what an earlier run left.
    fn clear(&self) -> std::io::Result<()> {
        let gone = |result: std::io::Result<()>| match result {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        gone(std::fs::remove_dir_all(self.checkpoints()))?;
        gone(std::fs::remove_dir_all(self.folder.join("tensorboard")))?;
        for file in
            ["log.jsonl", "plan.json", "times.json", "sweep.json", "trace.json", "weights.safetensors", "report.html"]
        {
            gone(std::fs::remove_file(self.folder.join(file)))?;
        }
        Ok(())
    }
}

/// Trains a job that is open.
pub fn train(mut session: Session, fresh: bool, log_every: Option<Duration>, out: &Out) -> Outcome {
    let files = RunFiles { folder: session.job.run_directory() };
    let disk = |path: &Path, e: std::io::Error| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display()));
    std::fs::create_dir_all(&files.folder).map_err(|e| disk(&files.folder, e))?;
    if fresh {
        files.clear().map_err(|e| disk(&files.folder, e))?;
    }
    session.make_cache()?;
    write_fitted(&files.folder, &session.fitted)?;
    let copy = files.folder.join("job.toml");
    std::fs::write(&copy, session.job.tree.to_document()).map_err(|e| disk(&copy, e))?;

    let resumed = session.trainer.load_latest_checkpoint(files.checkpoints()).map_err(|e| {
        Diagnostic::new(Code::CheckpointUnusable, e.to_string())
            .note("why", "the checkpoints of an earlier run do not suit the job as it is now")
            .note("do", "--fresh begins again; --run DIRECTORY keeps the earlier run")
    })?;
    if let Some(loaded) = &resumed {
        for error in &loaded.damaged {
            out.talk(format!("warning: passed over a damaged checkpoint: {error}"));
        }
        let steps = session.trainer.steps_done();
        out.talk(format!("going on after step {steps}, from {} (--fresh begins again)", loaded.path.display()));
    }
    let limit = session.trainer.limit_source().map_err(|e| session.error(&e))?;
    out.talk(format!("memory limit: {limit}"));

    let run_error = |e: plimsoll_run::RunError| Diagnostic::new(Code::RunUnusable, e.to_string());
    let mut log = RunLog::create(&files.folder, &session.job.name).map_err(run_error)?;
    if session.job.table.training.tensorboard {
        log = log.tensorboard(files.folder.join("tensorboard")).map_err(run_error)?;
    }
    let reached = Rc::new(Cell::new(None));
    let result = fit(&mut session, &files, &log, log_every, &reached, out);
    let history = match result {
        Ok(history) => history,
        Err(error) => {
            // The log says why; whether it can be written does not matter any more.
            let _ = log.failed(&error);
            return Err(session.error(&error));
        }
    };
    session.trainer.save_weights(files.weights()).map_err(|e| session.error(&e))?;
    if let Some(warning) = &history.warning {
        let _ = log.event(EventKind::Warning, warning.clone());
        out.talk(format!("warning: {warning}"));
    }
    let traced = session.job.table.training.trace && !history.interrupted;
    let times = if traced { measure_step(&mut session, &files)? } else { None };
    let code = finish(&session, &files, &history, reached.get(), out)?;
    // Pictures are made when the arena is gone: they take no more than training did.
    drop(session);
    if traced {
        write_trace(&files, times.as_ref())?;
    }
    let page = files.folder.join("report.html");
    super::pictures::write_page(&files.folder, &page)?;
    out.talk(format!("report: {}", page.display()));
    Ok(code)
}

fn fit(
    session: &mut Session,
    files: &RunFiles,
    log: &RunLog,
    log_every: Option<Duration>,
    reached: &Rc<Cell<Option<usize>>>,
    out: &Out,
) -> Result<History, Error> {
    let table = &session.job.table;
    let mut fit = fit_options(table, session.validation.as_ref());
    let checkpoint = &table.training.checkpoint;
    let saver = match checkpoint.every_steps {
        Some(steps) => Checkpoint::every_steps(files.checkpoints(), steps),
        None => Checkpoint::every_epochs(files.checkpoints(), checkpoint.every_epochs),
    };
    fit = fit.callback(saver.keep(checkpoint.keep)).callback(log.clone());
    fit = fit.callback(Begin {
        out: *out,
        job: session.job.name.clone(),
        run: files.folder.display().to_string(),
        reached: reached.clone(),
    });
    fit = fit.callback(Progress::new(out, log_every));
    session.trainer.fit(&session.training, fit)
}

/// Says what is about to run, once it is planned.
struct Begin {
    out: Out,
    job: String,
    run: String,
    /// Epochs done in all, once one is.
    reached: Rc<Cell<Option<usize>>>,
}

impl Callback for Begin {
    fn on_train_begin(&mut self, training: &mut dyn Training, epochs: usize, steps: usize) -> Result<(), Error> {
        let Some(trainer) = training.trainer() else { return Ok(()) };
        let ledger = trainer.ledger();
        let kept = trainer.kept().filter(|kept| !kept.is_plain()).map(|kept| kept.to_string());
        if let Some(kept) = &kept {
            self.out.talk(format!("to keep the limit: {kept}"));
        }
        if self.out.verbose {
            self.out.talk(&ledger);
        }
        if self.out.json {
            self.out.json_line(&TrainLine::Begin {
                job: self.job.clone(),
                run: self.run.clone(),
                epochs,
                steps_per_epoch: steps,
                steps_before: trainer.steps_done(),
                memory_limit: ledger.limit.map(|b| b.0),
                planned: ledger.held.0,
                kept,
            });
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &mut dyn Training, epoch: usize, _: &Logs) -> Result<ControlFlow<()>, Error> {
        self.reached.set(Some(epoch + 1));
        Ok(ControlFlow::Continue(()))
    }
}

/// Steps that are timed for a trace; the shortest time of each op counts.
const TIMED: usize = 3;

/// Times the ops of some more steps, when the weights are safe already; the report shows them too.
fn measure_step(session: &mut Session, files: &RunFiles) -> Result<Option<Times>, Diagnostic> {
    let data = session.training.clone();
    let profile = session.trainer.profile(&data, None, TIMED).map_err(|e| session.error(&e))?;
    let times = session.trainer.planned().first().and_then(|plan| Times::of(plan, &profile));
    if let Some(times) = &times {
        let failed = |e: plimsoll_run::RunError| Diagnostic::new(Code::Disk, e.to_string());
        plimsoll_run::write_times(&files.folder, times).map_err(failed)?;
    }
    Ok(times)
}

/// The picture of a step for Perfetto.
fn write_trace(files: &RunFiles, times: Option<&Times>) -> Result<(), Diagnostic> {
    let path = files.folder.join("trace.json");
    let plan = plimsoll_run::read_plan(files.folder.join(plimsoll_run::PLAN))
        .map_err(|e| Diagnostic::new(Code::RunUnusable, e.to_string()))?;
    let disk = |e: std::io::Error| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display()));
    let file = std::fs::File::create(&path).map_err(disk)?;
    plimsoll_run::trace::write(&plan, times, std::io::BufWriter::new(file)).map_err(disk)
}

fn finish(session: &Session, files: &RunFiles, history: &History, reached: Option<usize>, out: &Out) -> Outcome {
    let names: Vec<&str> = history.names().collect();
    let last: Vec<(&str, f64)> = names.iter().filter_map(|n| Some((*n, history.last(n)?))).collect();
    let done = reached.is_none_or(|epochs| epochs == session.job.table.training.epochs);
    let reason = match (history.interrupted, done) {
        (true, _) => "interrupted",
        (false, true) => "done",
        (false, false) => "stopped",
    };
    let peak = measure::usage().unwrap_or_default().peak;
    let steps = session.trainer.steps_done();
    if out.json {
        out.json_line(&TrainLine::End {
            reason: reason.into(),
            steps,
            figures: figures(last.iter().copied()),
            run: files.folder.display().to_string(),
            weights: files.weights().display().to_string(),
            peak: peak.0,
        });
    }
    let code = history.signal.map_or(0, |signal| (128 + signal) as u8);
    if history.interrupted {
        out.talk(format!("stopped after step {steps}; saved to {}; the same command goes on", files.folder.display()));
        return Ok(code);
    }
    if last.is_empty() {
        out.talk("all epochs were done before; more with --epochs, again with --fresh");
    }
    let limit = session.trainer.ledger().limit.map_or(String::new(), |limit| format!(" of {limit}"));
    out.talk(format!("peak resident memory: {peak}{limit}"));
    out.talk(format!("weights: {}", files.weights().display()));
    if !out.json && !last.is_empty() {
        let line: Vec<String> = last.iter().map(|(n, v)| format!("{n}={}", crate::progress::short(*v))).collect();
        out.data(line.join(" "));
    }
    Ok(code)
}
