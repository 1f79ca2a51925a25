//! The loops: `fit`, `evaluate`, `predict`.

use super::Trainer;
use super::compile::{Compiled, KEY, LOSS, LOSS_COUNT, LOSS_SUM, RATE, STEP, StepKey, write_states};
use super::feed::{Feeder, nothing};
use super::interrupt::Watcher;
use super::limit::Keeps;
use crate::callbacks::{Callback, Logs, Memory, Recalled, Training, memory_name};
use crate::data::{DataError, Feed, Report};
use crate::error::Error;
use crate::trace::{Mode, Role, Variables};
use crate::weights;
use plimsoll_budget::{Budget, Bytes, Reservation};
use plimsoll_exec::ProgramId;
use plimsoll_tensor::{Shape, Tensor};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// How to train.
pub struct Fit<'a> {
    epochs: usize,
    batch_size: Option<usize>,
    steps_per_epoch: Option<usize>,
    shuffle: bool,
    validation: Option<&'a dyn Feed>,
    callbacks: Vec<Box<dyn Callback + 'a>>,
    handle_interrupt: bool,
}

impl<'a> Fit<'a> {
    /// This many passes over the data: over a data set as it is, over arrays in batches of 32 and in a new order each time.
    ///
    /// After [`Trainer::load_checkpoint`] the epochs before the checkpoint count as done.
    pub fn epochs(epochs: usize) -> Fit<'a> {
        Fit {
            epochs,
            batch_size: None,
            steps_per_epoch: None,
            shuffle: true,
            validation: None,
            callbacks: Vec::new(),
            handle_interrupt: true,
        }
    }

    /// Arrays in batches of this size; the last one of an epoch has what is left. A data set says its own.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Fit<'a> {
        self.batch_size = Some(batch_size);
        self
    }

    /// Every epoch has so many steps: for data that never ends (`repeat`) or whose epochs would be too long. The next epoch goes on
    /// where the one before ended; data that ends is begun again.
    #[must_use]
    pub fn steps_per_epoch(mut self, steps: usize) -> Fit<'a> {
        self.steps_per_epoch = Some(steps);
        self
    }

    /// Arrays in their own order. A data set has its own anyway.
    #[must_use]
    pub fn in_order(mut self) -> Fit<'a> {
        self.shuffle = false;
        self
    }

    /// Evaluating on this data after every epoch: figures with `val_` before their names.
    #[must_use]
    pub fn validation(mut self, data: &'a dyn Feed) -> Fit<'a> {
        self.validation = Some(data);
        self
    }

    /// With a callback; several are called in order.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'a) -> Fit<'a> {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Leaves Ctrl-C and SIGTERM alone. Otherwise the first one ends training after the step that runs.
    #[must_use]
    pub fn ignore_interrupt(mut self) -> Fit<'a> {
        self.handle_interrupt = false;
        self
    }

    /// The data, and that for validation, on their way into steps, and what callbacks keep besides.
    pub(super) fn feeders(&self, trainer: &Trainer, data: &dyn Feed) -> Result<(Feeder, Option<Feeder>, Keeps), Error> {
        let feeder = Feeder::new(trainer, Mode::Train, data, self.batch_size, self.shuffle)?;
        let validation = self.validation.map(|v| Feeder::new(trainer, Mode::Evaluate, v, self.batch_size, false));
        let copies_of_weights = self.callbacks.iter().map(|c| c.copies_of_weights()).sum();
        Ok((feeder, validation.transpose()?, Keeps { copies_of_weights, ..Keeps::default() }))
    }
}

/// The figures of every epoch, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    figures: BTreeMap<String, Vec<f64>>,
    /// Whether Ctrl-C or SIGTERM ended training early.
    pub interrupted: bool,
    /// The number of that signal.
    pub signal: Option<i32>,
    /// Said when memory that is not the trainer's grew beyond what was planned for, the first time.
    pub warning: Option<String>,
    /// How long steps waited for their batches, and where that time and the time of other threads went.
    pub input: Report,
}

impl History {
    /// A figure of every epoch.
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.figures.get(name).map(Vec::as_slice)
    }

    /// A figure of the last epoch.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.get(name)?.last().copied()
    }

    /// The names of the figures.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.figures.keys().map(String::as_str)
    }

    fn push(&mut self, logs: &Logs) {
        for (name, value) in logs.iter() {
            self.figures.entry(name.to_owned()).or_default().push(value);
        }
    }
}

/// How far a `fit` is: what a checkpoint keeps besides the states.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// Epochs that are done.
    pub epoch: usize,
    /// Steps of the next one that are done.
    pub step: usize,
    /// The pass over the data, and the place in it; `None` at its beginning.
    pub pass: u64,
    pub position: Option<Vec<u8>>,
}

pub(super) fn fit(trainer: &mut Trainer, data: &dyn Feed, mut options: Fit<'_>) -> Result<History, Error> {
    let (mut feeder, mut validation, keeps) = options.feeders(trainer, data)?;
    let n_batches = match (options.steps_per_epoch, feeder.n_batches()?) {
        (Some(0), _) => return Err(Error::config("steps per epoch", "is 0; it must be at least 1")),
        (None, _) if feeder.is_endless()? => {
            return Err(Error::config("data", "never ends: say with `steps_per_epoch` how long an epoch is"));
        }
        // Only the end tells.
        (steps, known) => steps.or(known.map(|n| n as usize)).unwrap_or(0),
    };
    compile(trainer, std::iter::once(&feeder).chain(&validation), keeps)?;
    let _watcher = if options.handle_interrupt { Watcher::start() } else { None };
    let mut history = History::default();
    let mut go_on = true;
    trainer.input = Report::default();

    // Those who write checkpoints come last: what the others remember goes into them.
    options.callbacks.sort_by_key(|callback| callback.writes_checkpoints());
    let callbacks = &mut options.callbacks;
    if let (Some(_), Some(file)) = (&trainer.resume, &trainer.restored) {
        for (i, callback) in callbacks.iter_mut().enumerate() {
            go_on &= callback.recall(&Recalled::of(file, i))?.is_continue();
        }
    }
    tell(trainer, callbacks, |callback, at| {
        callback.on_train_begin(at, options.epochs, n_batches).map(ControlFlow::Continue)
    })?;
    let begin = trainer.resume.take().unwrap_or_default();
    let mut position = begin.position;
    for epoch in begin.epoch..options.epochs {
        if !go_on {
            break;
        }
        tell(trainer, callbacks, |callback, at| callback.on_epoch_begin(at, epoch).map(ControlFlow::Continue))?;
        let mut step = if epoch == begin.epoch { begin.step } else { 0 };
        if step == 0 {
            trainer.reset_metrics()?;
        }
        trainer.settle();
        if !feeder.is_open() {
            feeder.begin(trainer, trainer.pass, position.take().as_deref())?;
        }
        let mut new_pass = false;
        while go_on && options.steps_per_epoch.is_none_or(|n| step < n) {
            let Some((program, _)) = feeder.next(trainer)? else {
                feeder.end();
                trainer.pass += 1;
                if options.steps_per_epoch.is_none() {
                    break;
                }
                if std::mem::replace(&mut new_pass, true) {
                    return Err(nothing());
                }
                feeder.begin(trainer, trainer.pass, None)?;
                continue;
            };
            new_pass = false;
            let loss = trainer.train_step(program, (epoch, step))?;
            trainer.input.waited = feeder.waited();
            trainer.progress = Progress { epoch, step: step + 1, pass: trainer.pass, position: feeder.position() };
            go_on &= tell(trainer, callbacks, |callback, at| callback.on_step_end(at, step, loss))?;
            step += 1;
            history.signal = history.signal.or(Watcher::signal());
            history.interrupted |= history.signal.is_some();
            go_on &= !history.interrupted;
        }
        if step == 0 {
            return Err(nothing());
        }
        let mut logs = trainer.read_metrics("")?;
        if history.interrupted {
            // The epoch is not over, a later run may go on with it: its callbacks are told then.
            history.push(&logs);
            break;
        }
        if go_on {
            trainer.progress = Progress { epoch: epoch + 1, step: 0, pass: trainer.pass, position: feeder.position() };
        }
        if let Some(feeder) = &mut validation {
            trainer.reset_metrics()?;
            trainer.evaluation(feeder)?;
            trainer.read_metrics("val_")?.iter().for_each(|(n, v)| logs.push(n, v));
        }
        history.push(&logs);
        let warning = trainer.terms.watch_memory(epoch)?;
        history.warning = history.warning.or(warning);
        trainer.input = feeder.report();
        go_on &= tell(trainer, callbacks, |callback, at| callback.on_epoch_end(at, epoch, &logs))?;
    }
    // Who trains on begins a new pass, wherever this one was left.
    trainer.pass += feeder.is_open() as u64;
    history.input = feeder.report();
    for i in (0..callbacks.len()).rev() {
        let (others, here) = callbacks.split_at_mut(i);
        here[0].on_train_end(&mut At { trainer, others })?;
    }
    Ok(history)
}

/// Tells callbacks something, one after another; whether all want to go on.
fn tell<'a>(
    trainer: &mut Trainer,
    callbacks: &mut [Box<dyn Callback + 'a>],
    mut event: impl FnMut(&mut dyn Callback, &mut dyn Training) -> Result<ControlFlow<()>, Error>,
) -> Result<bool, Error> {
    let mut go_on = true;
    for i in 0..callbacks.len() {
        let (others, here) = callbacks.split_at_mut(i);
        go_on &= event(here[0].as_mut(), &mut At { trainer, others })?.is_continue();
    }
    Ok(go_on)
}

/// Training as a callback sees it: the trainer, and the callbacks before it, whose memory goes into checkpoints.
struct At<'t, 'a> {
    trainer: &'t mut Trainer,
    others: &'t [Box<dyn Callback + 'a>],
}

/// Compiles the steps of several data sets at once, so that all plans are made before anything runs, and leaves all pipelines the
/// memory they need.
pub(super) fn compile<'f>(
    trainer: &mut Trainer,
    feeders: impl IntoIterator<Item = &'f Feeder>,
    keeps: Keeps,
) -> Result<(), Error> {
    let (keys, keeps) = steps_of(feeders, keeps)?;
    trainer.compile(&keys, keeps)
}

/// The steps of several data sets, and what is kept besides with the memory that the pipelines need.
pub(super) fn steps_of<'f>(
    feeders: impl IntoIterator<Item = &'f Feeder>,
    mut keeps: Keeps,
) -> Result<(Vec<StepKey>, Keeps), Error> {
    let mut keys: Vec<StepKey> = Vec::new();
    for feeder in feeders {
        keeps.input += feeder.least_memory()?;
        keys.extend_from_slice(feeder.keys());
    }
    Ok((keys, keeps))
}

pub(super) fn evaluate(trainer: &mut Trainer, data: &dyn Feed, batch_size: Option<usize>) -> Result<Logs, Error> {
    let mut feeder = Feeder::new(trainer, Mode::Evaluate, data, batch_size, false)?;
    compile(trainer, [&feeder], Keeps::default())?;
    trainer.reset_metrics()?;
    trainer.evaluation(&mut feeder)?;
    trainer.read_metrics("")
}

pub(super) fn predict(trainer: &mut Trainer, data: &dyn Feed, batch_size: Option<usize>) -> Result<Vec<Tensor>, Error> {
    let feeder = prediction_feeder(trainer, data, batch_size)?;
    let rows = feeder.n_rows()?;
    compile(trainer, [&feeder], Keeps { rows_of_results: Some(rows.unwrap_or(0)), ..Keeps::default() })?;
    let mut results: Vec<Rows> = trainer.model.outputs().iter().map(|_| Rows::new(rows)).collect();
    let budget = trainer.terms.budget.clone();
    predictions(trainer, feeder, |outputs| {
        results.iter_mut().zip(outputs).try_for_each(|(rows, part)| rows.push(part, &budget))
    })?;
    results.into_iter().map(Rows::finish).collect()
}

pub(super) fn predict_each<E: From<Error>>(
    trainer: &mut Trainer,
    data: &dyn Feed,
    batch_size: Option<usize>,
    mut each: impl FnMut(&[Tensor]) -> Result<(), E>,
) -> Result<(), E> {
    let feeder = prediction_feeder(trainer, data, batch_size)?;
    compile(trainer, [&feeder], Keeps { rows_of_results: Some(0), ..Keeps::default() })?;
    predictions(trainer, feeder, |outputs| each(&outputs))
}

fn prediction_feeder(trainer: &mut Trainer, data: &dyn Feed, batch_size: Option<usize>) -> Result<Feeder, Error> {
    let feeder = Feeder::new(trainer, Mode::Predict, data, batch_size, false)?;
    feeder.expect_end("predict")?;
    Ok(feeder)
}

/// Runs the prediction step, which is compiled, on every batch, and gives away the outputs.
fn predictions<E: From<Error>>(
    trainer: &mut Trainer,
    mut feeder: Feeder,
    mut each: impl FnMut(Vec<Tensor>) -> Result<(), E>,
) -> Result<(), E> {
    let names: Vec<String> = trainer.model.outputs().into_iter().map(str::to_owned).collect();
    trainer.settle();
    feeder.begin(trainer, 0, None)?;
    while let Some((program, _)) = feeder.next(trainer)? {
        let key = trainer.key();
        let compiled = trainer.compiled.as_mut().expect("compiled before");
        set_key(compiled, program, key);
        compiled.engine.run(program).map_err(Error::from)?;
        let outputs = names.iter().map(|name| compiled.engine.output(program, name)).collect::<Result<_, _>>();
        each(outputs.map_err(Error::from)?)?;
    }
    feeder.end();
    Ok(())
}

/// The rows of an output, batch after batch.
struct Rows {
    /// All of them, where their number is known: the first so many are there.
    whole: Option<Tensor>,
    expected: Option<usize>,
    filled: usize,
    /// Where it is not known, the batches, with the memory of both them and the whole.
    parts: Vec<(Tensor, Reservation)>,
}

impl Rows {
    fn new(expected: Option<usize>) -> Rows {
        Rows { whole: None, expected, filled: 0, parts: Vec::new() }
    }

    fn push(&mut self, part: Tensor, budget: &Budget) -> Result<(), Error> {
        let n = part.shape()[0];
        let Some(expected) = self.expected.filter(|expected| self.filled + n <= *expected) else {
            let bytes = Bytes::from(2 * part.bytes().len());
            let held = budget.account("results").reserve(bytes).map_err(DataError::from)?;
            self.parts.push((part, held));
            return Ok(());
        };
        let whole = self.whole.get_or_insert_with(|| Tensor::zeros(part.dtype(), with_rows(&part, expected)));
        let row = part.bytes().len() / n;
        whole.bytes_mut()[self.filled * row..][..n * row].copy_from_slice(part.bytes());
        self.filled += n;
        Ok(())
    }

    fn finish(self) -> Result<Tensor, Error> {
        if self.expected == Some(self.filled) && self.parts.is_empty() {
            return self.whole.ok_or_else(nothing);
        }
        let rest = self.parts.iter().map(|(part, _)| part);
        let Some(like) = self.whole.as_ref().or(self.parts.first().map(|(part, _)| part)) else {
            return Err(nothing());
        };
        let n = self.filled + rest.clone().map(|part| part.shape()[0]).sum::<usize>();
        let mut all = Tensor::zeros(like.dtype(), with_rows(like, n));
        let row = all.bytes().len() / n;
        let filled = self.whole.as_ref().map_or(&[][..], |whole| &whole.bytes()[..self.filled * row]);
        let mut to = all.bytes_mut();
        for bytes in [filled].into_iter().chain(rest.map(Tensor::bytes)) {
            let (here, behind) = to.split_at_mut(bytes.len());
            here.copy_from_slice(bytes);
            to = behind;
        }
        Ok(all)
    }
}

fn with_rows(tensor: &Tensor, rows: usize) -> Shape {
    let mut shape = *tensor.shape();
    shape.dims_mut()[0] = rows;
    shape
}

fn set_key(compiled: &mut Compiled, program: ProgramId, key: [i64; 2]) {
    if let Ok(slot) = compiled.engine.input_mut::<i64>(program, KEY) {
        slot.copy_from_slice(&key);
    }
}

impl Trainer {
    fn settle(&self) {
        self.compiled.as_ref().expect("compiled before").engine.settle();
    }

    fn key(&self) -> [i64; 2] {
        [self.seed as i64, self.step as i64]
    }

    /// Sets the inputs of a training step that are not data.
    pub(super) fn prepare(&mut self, program: ProgramId) -> Result<(), Error> {
        let (key, rate) = (self.key(), self.rate_now());
        let compiled = self.compiled.as_mut().expect("compiled before");
        set_key(compiled, program, key);
        compiled.engine.input_mut::<f32>(program, RATE)?[0] = rate as f32;
        // Optimizers without bias corrections do not read the step.
        if let Ok(slot) = compiled.engine.input_mut::<f32>(program, STEP) {
            slot[0] = (self.step + 1) as f32;
        }
        Ok(())
    }

    fn train_step(&mut self, program: ProgramId, (epoch, i): (usize, usize)) -> Result<f64, Error> {
        self.prepare(program)?;
        let compiled = self.compiled.as_mut().expect("compiled before");
        let broken = compiled.engine.run_guarded(program, LOSS)?;
        let loss = compiled.engine.output_slice::<f32>(program, LOSS)?[0] as f64;
        if let Some(broken) = broken {
            return Err(Error::Diverged { epoch: epoch + 1, step: i + 1, loss, source_of_it: broken.what });
        }
        self.step += 1;
        Ok(loss)
    }

    fn rate_now(&self) -> f64 {
        self.rate.unwrap_or_else(|| self.optimizer.learning_rate().at(self.step))
    }

    fn evaluation(&mut self, feeder: &mut Feeder) -> Result<(), Error> {
        feeder.expect_end("evaluate")?;
        self.settle();
        feeder.begin(self, 0, None)?;
        while let Some((program, _)) = feeder.next(self)? {
            let key = self.key();
            let compiled = self.compiled.as_mut().expect("compiled before");
            set_key(compiled, program, key);
            compiled.engine.run(program)?;
        }
        feeder.end();
        Ok(())
    }

    fn reset_metrics(&mut self) -> Result<(), Error> {
        let is_metric = |variables: &Variables, name: &str| variables.get(name).is_some_and(|v| v.role == Role::Metric);
        let engine = &mut self.compiled.as_mut().expect("compiled before").engine;
        write_states(engine, &self.variables, self.seed, None, |name| is_metric(&self.variables, name))
    }

    fn read_metrics(&self, prefix: &str) -> Result<Logs, Error> {
        let engine = &self.compiled.as_ref().expect("compiled before").engine;
        let mut logs = Logs::new();
        let (sum, count) = (engine.state(LOSS_SUM)?.to_f64()[0], engine.state(LOSS_COUNT)?.to_f64()[0]);
        logs.push(format!("{prefix}loss"), sum / count.max(1.0));
        for entry in &self.metrics {
            let sums = entry.sums.iter().map(|name| Ok(engine.state(name)?)).collect::<Result<Vec<Tensor>, Error>>()?;
            let value = entry.metric.result(&sums);
            let name = match self.model.outputs().len() {
                1 => entry.metric.name().to_owned(),
                _ => format!("{}_{}", entry.output, entry.metric.name()),
            };
            logs.push(format!("{prefix}{name}"), value);
        }
        Ok(logs)
    }
}

impl Training for At<'_, '_> {
    fn learning_rate(&self) -> f64 {
        self.trainer.rate_now()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.trainer.rate = Some(rate);
    }

    fn current_weights(&self) -> Result<Vec<(String, Tensor)>, Error> {
        self.trainer.compiled.as_ref().map_or(Ok(Vec::new()), |c| c.weights(&self.trainer.variables))
    }

    fn replace_weights(&mut self, weights: &[(String, Tensor)]) -> Result<(), Error> {
        self.trainer.set_weights(weights)
    }

    fn write_weights(&self, path: &Path) -> Result<(), Error> {
        let compiled = self.trainer.compiled.as_ref();
        compiled.map_or_else(|| weights::save(path, &[]), |c| c.save(&self.trainer.variables, path))
    }

    fn write_checkpoint(&self, path: &Path) -> Result<(), Error> {
        let mut memory = Memory::new();
        for (i, callback) in self.others.iter().enumerate() {
            memory.extend(callback.memory().into_iter().map(|(name, tensor)| (memory_name(i, &name), tensor)));
        }
        self.trainer.write_checkpoint(path, &memory)
    }

    fn steps_done(&self) -> u64 {
        self.trainer.step
    }

    fn engine_bytes(&self) -> u64 {
        self.trainer.compiled.as_ref().map_or(0, |c| c.engine.bytes().0)
    }

    fn trainer(&self) -> Option<&Trainer> {
        Some(self.trainer)
    }
}
