//! The loops: `fit`, `evaluate`, `predict`.

use super::Trainer;
use super::compile::{Compiled, KEY, LOSS, LOSS_COUNT, LOSS_SUM, RATE, STEP, StepKey, initialize, input_name};
use super::interrupt::Watcher;
use super::limit::Keeps;
use crate::callbacks::{Callback, Logs, Training};
use crate::data::{Permutation, Rows};
use crate::error::Error;
use crate::trace::{Mode, Role, Variables};
use crate::weights;
use plimsoll_exec::ProgramId;
use plimsoll_tensor::Tensor;
use std::collections::BTreeMap;
use std::path::Path;

/// How to train.
pub struct Fit<'a> {
    epochs: usize,
    batch_size: usize,
    shuffle: bool,
    validation: Option<&'a dyn Rows>,
    callbacks: Vec<Box<dyn Callback + 'a>>,
    handle_interrupt: bool,
}

impl<'a> Fit<'a> {
    /// This many passes over the data, in batches of 32, in a new order each time.
    pub fn epochs(epochs: usize) -> Fit<'a> {
        Fit { epochs, batch_size: 32, shuffle: true, validation: None, callbacks: Vec::new(), handle_interrupt: true }
    }

    /// In batches of this size; the last one of an epoch has what is left.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Fit<'a> {
        self.batch_size = batch_size;
        self
    }

    /// In the order of the data.
    #[must_use]
    pub fn in_order(mut self) -> Fit<'a> {
        self.shuffle = false;
        self
    }

    /// Evaluating on this data after every epoch: figures with `val_` before their names.
    #[must_use]
    pub fn validation(mut self, data: &'a dyn Rows) -> Fit<'a> {
        self.validation = Some(data);
        self
    }

    /// With a callback; several are called in order.
    #[must_use]
    pub fn callback(mut self, callback: impl Callback + 'a) -> Fit<'a> {
        self.callbacks.push(Box::new(callback));
        self
    }

    /// Leaves Ctrl-C alone. Otherwise the first one ends training after the step that runs.
    #[must_use]
    pub fn ignore_interrupt(mut self) -> Fit<'a> {
        self.handle_interrupt = false;
        self
    }
}

/// The figures of every epoch, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    figures: BTreeMap<String, Vec<f64>>,
    /// Whether Ctrl-C ended training early.
    pub interrupted: bool,
    /// Said when memory that is not the trainer's grew beyond what was planned for, the first time.
    pub warning: Option<String>,
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

/// The steps that a pass over some data needs: one for whole batches, one for what is left.
pub(super) struct Pass {
    whole: Option<(ProgramId, usize)>,
    rest: Option<(ProgramId, usize)>,
}

fn keys_for(mode: Mode, data: &dyn Rows, batch_size: usize) -> Result<(Option<StepKey>, Option<StepKey>), Error> {
    if batch_size == 0 {
        return Err(Error::config("batch size", "is 0; it must be at least 1"));
    }
    if data.is_empty() {
        return Err(Error::config("data", "is empty: there is nothing to run on"));
    }
    let key = |batch: usize| StepKey { mode, batch, fields: data.fields().to_vec() };
    let (whole, rest) = (data.len() / batch_size, data.len() % batch_size);
    Ok(((whole > 0).then(|| key(batch_size)), (rest > 0).then(|| key(rest))))
}

impl Pass {
    /// Compiles several passes at once, so that all their plans are made before anything runs.
    pub(super) fn compile(
        trainer: &mut Trainer,
        passes: &[(Mode, &dyn Rows, usize)],
        keeps: Keeps,
    ) -> Result<Vec<Pass>, Error> {
        let mut keys: Vec<StepKey> = Vec::new();
        let mut wanted = Vec::new();
        for &(mode, data, batch_size) in passes {
            let (whole, rest) = keys_for(mode, data, batch_size)?;
            let mut number = |key: Option<StepKey>| {
                let key = key?;
                let at = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                    keys.push(key.clone());
                    keys.len() - 1
                });
                Some((at, key.batch))
            };
            wanted.push((number(whole), number(rest)));
        }
        let programs = trainer.compile(&keys, keeps)?;
        let find = |slot: Option<(usize, usize)>| slot.map(|(at, batch)| (programs[at], batch));
        Ok(wanted.into_iter().map(|(whole, rest)| Pass { whole: find(whole), rest: find(rest) }).collect())
    }

    /// The program and the rows of batch `i` of data with `n` rows.
    pub(super) fn batch(&self, i: usize, n: usize) -> (ProgramId, std::ops::Range<usize>) {
        if let Some((program, size)) = self.whole
            && (i + 1) * size <= n
        {
            return (program, i * size..(i + 1) * size);
        }
        let (program, size) = self.rest.expect("a pass has a step for its last rows");
        (program, n - size..n)
    }

    pub(super) fn n_batches(&self, n: usize) -> usize {
        let whole = self.whole.map_or(0, |(_, size)| n / size);
        whole + self.rest.is_some() as usize
    }
}

/// What the loops need for feeding: the names of the fields and room for row numbers.
pub(super) struct Feeder<'a> {
    data: &'a dyn Rows,
    names: Vec<String>,
    rows: Vec<usize>,
}

impl<'a> Feeder<'a> {
    pub(super) fn new(data: &'a dyn Rows, batch_size: usize) -> Feeder<'a> {
        let names = data.fields().iter().map(input_name).collect();
        Feeder { data, names, rows: Vec::with_capacity(batch_size.min(data.len())) }
    }

    /// Reads rows into the inputs of a step.
    fn feed(
        &mut self,
        compiled: &mut Compiled,
        program: ProgramId,
        range: std::ops::Range<usize>,
        order: Option<&Permutation>,
    ) -> Result<(), Error> {
        self.rows.clear();
        self.rows.extend(range.map(|i| order.map_or(i, |p| p.at(i))));
        for (field, name) in self.names.iter().enumerate() {
            // A step that does not use a field has no input for it.
            if let Some(out) = compiled.engine.input_bytes_mut(program, name) {
                self.data.read(field, &self.rows, out)?;
            }
        }
        Ok(())
    }
}

pub(super) fn fit(trainer: &mut Trainer, data: &dyn Rows, mut options: Fit<'_>) -> Result<History, Error> {
    let batch_size = options.batch_size;
    let mut passes = vec![(Mode::Train, data, batch_size)];
    passes.extend(options.validation.map(|v| (Mode::Evaluate, v, batch_size)));
    let copies_of_weights = options.callbacks.iter().map(|c| c.copies_of_weights()).sum();
    let passes = Pass::compile(trainer, &passes, Keeps { copies_of_weights, ..Keeps::default() })?;
    let n_batches = passes[0].n_batches(data.len());
    let mut feeder = Feeder::new(data, batch_size);
    let mut validation = options.validation.map(|v| Feeder::new(v, batch_size));
    let _watcher = if options.handle_interrupt { Watcher::start() } else { None };
    let mut history = History::default();
    let mut go_on = true;

    for callback in &mut options.callbacks {
        callback.on_train_begin(trainer, options.epochs, n_batches)?;
    }
    for epoch in 0..options.epochs {
        for callback in &mut options.callbacks {
            callback.on_epoch_begin(trainer, epoch)?;
        }
        trainer.reset_metrics()?;
        trainer.settle();
        let order = options.shuffle.then(|| Permutation::new(data.len(), trainer.seed, trainer.epoch));
        for i in 0..n_batches {
            let (program, rows) = passes[0].batch(i, data.len());
            let loss = trainer.train_step(program, rows, &mut feeder, order.as_ref(), (epoch, i))?;
            for callback in &mut options.callbacks {
                go_on &= callback.on_step_end(trainer, i, loss)?.is_continue();
            }
            if Watcher::interrupted() {
                history.interrupted = true;
                go_on = false;
            }
            if !go_on {
                break;
            }
        }
        trainer.epoch += 1;
        let mut logs = trainer.read_metrics("")?;
        if let (Some(feeder), true) = (&mut validation, !history.interrupted) {
            trainer.reset_metrics()?;
            trainer.evaluation(&passes[1], feeder)?;
            trainer.read_metrics("val_")?.iter().for_each(|(n, v)| logs.push(n, v));
        }
        history.push(&logs);
        let warning = trainer.terms.watch_memory(epoch)?;
        history.warning = history.warning.or(warning);
        for callback in &mut options.callbacks {
            go_on &= callback.on_epoch_end(trainer, epoch, &logs)?.is_continue();
        }
        if !go_on {
            break;
        }
    }
    for callback in &mut options.callbacks {
        callback.on_train_end(trainer)?;
    }
    Ok(history)
}

pub(super) fn evaluate(trainer: &mut Trainer, data: &dyn Rows, batch_size: usize) -> Result<Logs, Error> {
    let passes = Pass::compile(trainer, &[(Mode::Evaluate, data, batch_size)], Keeps::default())?;
    trainer.reset_metrics()?;
    trainer.evaluation(&passes[0], &mut Feeder::new(data, batch_size))?;
    trainer.read_metrics("")
}

pub(super) fn predict(trainer: &mut Trainer, data: &dyn Rows, batch_size: usize) -> Result<Vec<Tensor>, Error> {
    let passes = Pass::compile(
        trainer,
        &[(Mode::Predict, data, batch_size)],
        Keeps { rows_of_results: data.len(), ..Keeps::default() },
    )?;
    let names: Vec<String> = trainer.model.outputs().into_iter().map(str::to_owned).collect();
    let mut feeder = Feeder::new(data, batch_size);
    let n = data.len();
    let mut results: Vec<Tensor> = Vec::new();
    trainer.settle();
    for i in 0..passes[0].n_batches(n) {
        let (program, rows) = passes[0].batch(i, n);
        let key = trainer.key();
        let compiled = trainer.compiled.as_mut().expect("compiled above");
        feeder.feed(compiled, program, rows.clone(), None)?;
        set_key(compiled, program, key);
        compiled.engine.run(program)?;
        for (k, name) in names.iter().enumerate() {
            let part = compiled.engine.output(program, name)?;
            if results.len() == k {
                let mut shape = *part.shape();
                shape.dims_mut()[0] = n;
                results.push(Tensor::zeros(part.dtype(), shape));
            }
            let row = part.bytes().len() / rows.len();
            results[k].bytes_mut()[rows.start * row..rows.end * row].copy_from_slice(part.bytes());
        }
    }
    Ok(results)
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

    /// Sets all inputs of a training step.
    pub(super) fn prepare(
        &mut self,
        program: ProgramId,
        rows: std::ops::Range<usize>,
        feeder: &mut Feeder<'_>,
        order: Option<&Permutation>,
    ) -> Result<(), Error> {
        let (key, rate) = (self.key(), self.rate_now());
        let compiled = self.compiled.as_mut().expect("compiled before");
        feeder.feed(compiled, program, rows, order)?;
        set_key(compiled, program, key);
        compiled.engine.input_mut::<f32>(program, RATE)?[0] = rate as f32;
        // Optimizers without bias corrections do not read the step.
        if let Ok(slot) = compiled.engine.input_mut::<f32>(program, STEP) {
            slot[0] = (self.step + 1) as f32;
        }
        Ok(())
    }

    fn train_step(
        &mut self,
        program: ProgramId,
        rows: std::ops::Range<usize>,
        feeder: &mut Feeder<'_>,
        order: Option<&Permutation>,
        (epoch, i): (usize, usize),
    ) -> Result<f64, Error> {
        self.prepare(program, rows, feeder, order)?;
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

    fn evaluation(&mut self, pass: &Pass, feeder: &mut Feeder<'_>) -> Result<(), Error> {
        let n = feeder.data.len();
        self.settle();
        for i in 0..pass.n_batches(n) {
            let (program, rows) = pass.batch(i, n);
            let key = self.key();
            let compiled = self.compiled.as_mut().expect("compiled before");
            feeder.feed(compiled, program, rows, None)?;
            set_key(compiled, program, key);
            compiled.engine.run(program)?;
        }
        Ok(())
    }

    fn reset_metrics(&mut self) -> Result<(), Error> {
        let is_metric = |variables: &Variables, name: &str| variables.get(name).is_some_and(|v| v.role == Role::Metric);
        let engine = &mut self.compiled.as_mut().expect("compiled before").engine;
        initialize(engine, &self.variables, self.seed, |name| is_metric(&self.variables, name))
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

impl Training for Trainer {
    fn learning_rate(&self) -> f64 {
        self.rate_now()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.rate = Some(rate);
    }

    fn current_weights(&self) -> Result<Vec<(String, Tensor)>, Error> {
        self.compiled.as_ref().map_or(Ok(Vec::new()), |c| c.weights(&self.variables))
    }

    fn replace_weights(&mut self, weights: &[(String, Tensor)]) -> Result<(), Error> {
        self.set_weights(weights)
    }

    fn write_weights(&self, path: &Path) -> Result<(), Error> {
        self.compiled.as_ref().map_or_else(|| weights::save(path, &[]), |c| c.save(&self.variables, path))
    }

    fn engine_bytes(&self) -> u64 {
        self.compiled.as_ref().map_or(0, |c| c.engine.bytes().0)
    }
}
