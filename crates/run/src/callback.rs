//! From `Trainer::fit` to the log: a callback.

use crate::RunError;
use crate::lines::{AccountLine, EndReason, Epoch, EventKind, Header, KeptLine, Line, Memory, SCHEMA_VERSION, Step};
use crate::plan::{PlanSource, write_plan};
use crate::tensorboard::EventFile;
use crate::writer::{RunWriter, now};
use plimsoll::Error;
use plimsoll::callbacks::{Callback, Logs, Training};
use plimsoll::trainer::Trainer;
use plimsoll_budget::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time of one stage of the input pipeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageWait {
    /// The stage.
    pub name: String,
    /// Its own seconds, over all threads.
    pub seconds: f64,
    /// Elements that it gave.
    pub elements: u64,
}

/// A callback that writes a run directory. Clones write to the same one.
///
/// ```
/// use plimsoll::data::Arrays;
/// use plimsoll::layers::Dense;
/// use plimsoll::losses::MeanSquaredError;
/// use plimsoll::model::Model;
/// use plimsoll::optimizers::Sgd;
/// use plimsoll::trainer::{Fit, Trainer};
/// use plimsoll::Tensor;
/// use plimsoll_run::{Line, RunLog, RunReader};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::env::temp_dir().join(format!("plimsoll-run-log-{}", std::process::id()));
/// let data = Arrays::new(Tensor::from_slice(&[2, 1], &[0.0f32, 1.0])?, Tensor::from_slice(&[2, 1], &[0.0f32, 2.0])?)?;
/// let mut trainer = Trainer::new(Model::sequential([1]).layer(Dense::new(1)), MeanSquaredError, Sgd::new(0.1))?;
/// let log = RunLog::create(&directory, "two points")?;
/// trainer.fit(&data, Fit::epochs(3).callback(log.clone()))?;
///
/// let lines = RunReader::open(&directory).read()?;
/// assert!(matches!(&lines[0], Line::Run(header) if header.job == "two points" && header.epochs == 3));
/// assert_eq!(lines.iter().filter(|line| matches!(line, Line::Epoch(_))).count(), 3);
/// # std::fs::remove_dir_all(directory)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RunLog {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    writer: RunWriter,
    job: String,
    step_interval: Duration,
    events: Option<EventFile>,
    limit: Option<Bytes>,
    epochs: usize,
    epochs_done: usize,
    steps_done: u64,
    /// Steps of the trainer before this start.
    steps_before: u64,
    epoch_began: Instant,
    epoch_steps: u64,
    /// Of the steps since the last line.
    since: Since,
    /// At the beginning of the epoch.
    epoch_marks: Marks,
}

/// Steps that no line stands for yet.
struct Since {
    line: Instant,
    steps: u64,
    loss: f64,
    marks: Marks,
}

/// Counters that only grow, as they stood at some moment.
#[derive(Clone, Debug, Default)]
struct Marks {
    input: Duration,
    stages: Vec<StageWait>,
    disk: Duration,
    written: u64,
    read: u64,
}

impl RunLog {
    /// Of this directory, under the name of the job.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn create(directory: impl AsRef<Path>, job: &str) -> Result<RunLog, RunError> {
        let now = Instant::now();
        let inner = Inner {
            writer: RunWriter::create(directory)?,
            job: job.into(),
            step_interval: Duration::from_millis(500),
            events: None,
            limit: None,
            epochs: 0,
            epochs_done: 0,
            steps_done: 0,
            steps_before: 0,
            epoch_began: now,
            epoch_steps: 0,
            since: Since { line: now, steps: 0, loss: 0.0, marks: Marks::default() },
            epoch_marks: Marks::default(),
        };
        Ok(RunLog { inner: Arc::new(Mutex::new(inner)) })
    }

    /// With a line for steps at most so often, instead of twice a second. With zero every step has one.
    #[must_use]
    pub fn step_interval(self, interval: Duration) -> RunLog {
        self.lock().step_interval = interval;
        self
    }

    /// With the figures in an event file for TensorBoard too, in this directory.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn tensorboard(self, directory: impl AsRef<Path>) -> Result<RunLog, RunError> {
        self.lock().events = Some(EventFile::create(directory)?);
        Ok(self)
    }

    /// Notes that something happened.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn event(&self, kind: EventKind, message: impl Into<String>) -> Result<(), RunError> {
        self.lock().writer.event(kind, message)
    }

    /// Notes that training ended with an error; [`Callback::on_train_end`] is not called then.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn failed(&self, error: impl ToString) -> Result<(), RunError> {
        self.lock().end(EndReason::Failed, error.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn marks(&self, training: &dyn Training) -> Marks {
        let Some(trainer) = training.trainer() else { return Marks::default() };
        let (input, disk) = (trainer.input_report(), trainer.spill_stats());
        let stage = |s: &plimsoll::data::StageReport| StageWait {
            name: s.name.clone(),
            seconds: s.own.as_secs_f64(),
            elements: s.elements,
        };
        Marks {
            input: input.waited,
            stages: input.stages.iter().map(stage).collect(),
            disk: disk.waited,
            written: disk.written,
            read: disk.read,
        }
    }

    fn begin(&mut self, training: &dyn Training, epochs: usize, steps: usize) -> Result<(), RunError> {
        (self.epochs, self.epochs_done, self.steps_done) = (epochs, 0, 0);
        let mut header = Header {
            schema: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION").into(),
            at: now(),
            pid: std::process::id(),
            job: self.job.clone(),
            epochs: epochs as u64,
            steps_per_epoch: steps as u64,
            ..Header::default()
        };
        if let Some(trainer) = training.trainer() {
            let ledger = trainer.ledger();
            self.limit = ledger.limit;
            self.steps_before = trainer.steps_done();
            header.steps_before = self.steps_before;
            header.threads = trainer.n_threads() as u64;
            header.limit = ledger.limit.map(|b| b.0);
            header.limit_source = trainer.limit_source().unwrap_or_default();
            header.planned = ledger.held.0;
            header.ledger = AccountLine::all(&ledger);
            header.kept = trainer.kept().as_ref().map(KeptLine::from);
            if let Some(plan) = trainer.planned().first() {
                (header.states, header.arena, header.live) = (plan.state.bytes(), plan.arena_bytes, plan.live_bytes);
            }
            if let Some(source) = PlanSource::of(&self.job, trainer) {
                write_plan(self.writer.directory(), &source)?;
            }
        }
        header.memory = Memory::now(self.limit);
        self.writer.line(&Line::Run(Box::new(header)))
    }

    fn begin_epoch(&mut self, training: &dyn Training) {
        let marks = self.marks(training);
        self.epoch_marks = marks.clone();
        self.epoch_began = Instant::now();
        self.epoch_steps = 0;
        self.since = Since { line: self.epoch_began, steps: 0, loss: 0.0, marks };
    }

    fn step(&mut self, training: &dyn Training, step: usize, loss: f64) -> Result<(), RunError> {
        self.steps_done += 1;
        self.epoch_steps += 1;
        self.since.steps += 1;
        self.since.loss += loss;
        let passed = self.since.line.elapsed();
        if passed < self.step_interval {
            return Ok(());
        }
        let marks = self.marks(training);
        let since = &self.since;
        let line = Step {
            at: now(),
            epoch: self.epochs_done as u64 + 1,
            step: step as u64 + 1,
            steps: since.steps,
            loss: finite(since.loss / since.steps as f64),
            seconds: passed.as_secs_f64() / since.steps as f64,
            rate: training.learning_rate(),
            resident: plimsoll_budget::measure::usage().unwrap_or_default().resident.0,
            input_wait: marks.input.saturating_sub(since.marks.input).as_secs_f64(),
            disk_wait: marks.disk.saturating_sub(since.marks.disk).as_secs_f64(),
        };
        if let Some(events) = &mut self.events {
            let at = self.steps_before + self.steps_done;
            let figures = [("step/loss", since.loss / since.steps as f64), ("step/seconds", line.seconds)];
            events.scalars(at, &figures)?;
            events.scalars(at, &[("learning_rate", line.rate), ("memory/resident_mib", mib(line.resident))])?;
        }
        self.since = Since { line: Instant::now(), steps: 0, loss: 0.0, marks };
        self.writer.line(&Line::Step(line))
    }

    fn end_epoch(&mut self, training: &dyn Training, epoch: usize, logs: &Logs) -> Result<(), RunError> {
        self.epochs_done = epoch + 1;
        let (marks, before) = (self.marks(training), std::mem::take(&mut self.epoch_marks));
        let ledger = training.trainer().map(Trainer::ledger);
        let line = Epoch {
            at: now(),
            epoch: epoch as u64 + 1,
            steps: self.epoch_steps,
            seconds: self.epoch_began.elapsed().as_secs_f64(),
            figures: logs.iter().map(|(n, v)| (n.to_owned(), finite(v))).collect::<BTreeMap<_, _>>(),
            rate: training.learning_rate(),
            input_wait: marks.input.saturating_sub(before.input).as_secs_f64(),
            stages: stages_since(&marks.stages, &before.stages),
            disk_wait: marks.disk.saturating_sub(before.disk).as_secs_f64(),
            disk_written: marks.written.saturating_sub(before.written),
            disk_read: marks.read.saturating_sub(before.read),
            memory: Memory::now(self.limit),
            ledger: ledger.as_ref().map(AccountLine::all).unwrap_or_default(),
        };
        if let Some(events) = &mut self.events {
            let at = self.steps_before + self.steps_done;
            logs.iter().try_for_each(|(name, value)| events.scalars(at, &[(&format!("epoch/{name}"), value)]))?;
            let memory = [
                ("memory/peak_mib", mib(line.memory.peak)),
                ("memory/planned_mib", mib(AccountLine::total(&line.ledger))),
                ("memory/limit_mib", self.limit.map_or(f64::NAN, |b| mib(b.0))),
                ("wait/input_seconds", line.input_wait),
                ("wait/disk_seconds", line.disk_wait),
            ];
            events.scalars(at, &memory)?;
        }
        self.writer.line(&Line::Epoch(Box::new(line)))
    }

    fn end(&mut self, reason: EndReason, message: String) -> Result<(), RunError> {
        self.writer.end(reason, message, self.steps_done, self.limit)
    }
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|v| v.is_finite())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn stages_since(now: &[StageWait], before: &[StageWait]) -> Vec<StageWait> {
    let since = |stage: &StageWait| {
        let (seconds, elements) =
            before.iter().find(|b| b.name == stage.name).map_or((0.0, 0), |b| (b.seconds, b.elements));
        StageWait {
            name: stage.name.clone(),
            seconds: (stage.seconds - seconds).max(0.0),
            elements: stage.elements.saturating_sub(elements),
        }
    };
    now.iter().map(since).collect()
}

impl Callback for RunLog {
    fn on_train_begin(&mut self, training: &mut dyn Training, epochs: usize, steps: usize) -> Result<(), Error> {
        self.lock().begin(training, epochs, steps).map_err(as_error)
    }

    fn on_epoch_begin(&mut self, training: &mut dyn Training, _: usize) -> Result<(), Error> {
        self.lock().begin_epoch(training);
        Ok(())
    }

    fn on_step_end(&mut self, training: &mut dyn Training, step: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        self.lock().step(training, step, loss).map_err(as_error)?;
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(
        &mut self,
        training: &mut dyn Training,
        epoch: usize,
        logs: &Logs,
    ) -> Result<ControlFlow<()>, Error> {
        self.lock().end_epoch(training, epoch, logs).map_err(as_error)?;
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, _: &mut dyn Training) -> Result<(), Error> {
        let mut inner = self.lock();
        let reason = if inner.epochs_done == inner.epochs { EndReason::Done } else { EndReason::Stopped };
        inner.end(reason, String::new()).map_err(as_error)
    }
}

fn as_error(error: RunError) -> Error {
    match error {
        RunError::Io { path, source } => Error::File { path, message: source.to_string() },
        other => Error::config("run directory", other.to_string()),
    }
}
