//! From a data set to the inputs of a step: every batch is put together in the engine's memory. Next: `fit.rs`.

use super::Trainer;
use super::compile::{StepKey, input_name};
use crate::data::{self, BatchSizes, Cardinality, Component, Dataset, Feed, Field, FieldKind, Iter, Options, Report};
use crate::error::Error;
use crate::session::INPUT;
use crate::trace::Mode;
use plimsoll_budget::{Bytes, Reservation};
use plimsoll_exec::{Engine, ProgramId};
use std::time::{Duration, Instant};

/// What is left to a pipeline with elements of the user's making whose sizes nobody knows: so much, and some of its batches.
const UNKNOWN: Bytes = Bytes::mib(1);

/// A data set on its way into the steps of one kind.
pub(super) struct Feeder {
    dataset: Dataset,
    /// The steps that its batches are for: whole ones first, then the last, or whatever has fewer rows.
    keys: Vec<StepKey>,
    /// Which input of the steps each component is.
    names: Vec<Option<String>>,
    /// The bytes of one row of each.
    row_bytes: Vec<usize>,
    /// The components that the steps have no input for: they are made and dropped.
    dropped: Vec<String>,
    sizes: BatchSizes,
    /// The memory of a batch of fewer rows than expected, while it is on its way to the step for it: so that it is there, it is held for the whole pass.
    copy: Option<Reservation>,
    iter: Option<Iter>,
    report: Report,
    waited: Duration,
}

impl Feeder {
    pub fn new(
        trainer: &Trainer,
        mode: Mode,
        data: &dyn Feed,
        batch_size: Option<usize>,
        shuffle: bool,
    ) -> Result<Feeder, Error> {
        let dataset = data.batches(batch_size, shuffle.then_some(trainer.seed))?;
        if dataset.cardinality()? == Cardinality::Known(0) {
            return Err(nothing());
        }
        let spec = dataset.spec()?;
        let Some(sizes) = dataset.batch_sizes()?.filter(|sizes| sizes.most > 0) else {
            let message = format!("has elements {spec}, which are no batches of a known size: end it with `batch`");
            return Err(Error::config("data", message));
        };
        let fields = data::fields(&spec, &trainer.model)?;
        let names = fields.iter().map(|f| f.as_ref().map(input_name)).collect();
        let row_bytes = fields.iter().map(|f| f.as_ref().map_or(0, |f| f.ty.bytes())).collect();
        let is_used = |field: &Field| mode != Mode::Predict || field.kind == FieldKind::Input;
        let dropped = spec.components().iter().zip(&fields).filter(|(_, field)| !field.as_ref().is_some_and(is_used));
        let dropped = dropped.map(|(component, _)| component.name.clone()).collect();
        let fields: Vec<Field> = fields.into_iter().flatten().collect();
        let key = |batch: usize, fewer: bool| StepKey { mode, batch, fewer, fields: fields.clone() };
        let mut keys = vec![key(sizes.most, false)];
        match sizes.last {
            Some(last) if last != sizes.most => keys.push(key(last, false)),
            None if sizes.most > 1 => keys.push(key(sizes.most, true)),
            _ => {}
        }
        Ok(Feeder {
            dataset,
            keys,
            names,
            row_bytes,
            dropped,
            sizes,
            copy: None,
            iter: None,
            report: Report::default(),
            waited: Duration::ZERO,
        })
    }

    /// The steps that are known to be needed.
    pub fn keys(&self) -> &[StepKey] {
        &self.keys
    }

    /// The rows of most batches.
    pub fn batch_size(&self) -> usize {
        self.sizes.most
    }

    /// How many batches a pass has, where it is known.
    pub fn n_batches(&self) -> Result<Option<u64>, Error> {
        Ok(self.dataset.cardinality()?.known())
    }

    /// Whether a pass never ends.
    pub fn is_endless(&self) -> Result<bool, Error> {
        Ok(self.dataset.cardinality()? == Cardinality::Infinite)
    }

    /// Fails when a pass never ends.
    pub fn expect_end(&self, who: &str) -> Result<(), Error> {
        match self.is_endless()? {
            true => Err(Error::config("data", format!("never ends, but {who} needs an end: `take` a part of it"))),
            false => Ok(()),
        }
    }

    /// Whether a pass is under way.
    pub fn is_open(&self) -> bool {
        self.iter.is_some()
    }

    /// How many rows a pass has, where it is known.
    pub fn n_rows(&self) -> Result<Option<usize>, Error> {
        let rows = |n: u64| Some((n as usize - 1) * self.sizes.most + self.sizes.last?);
        Ok(self.n_batches()?.and_then(rows))
    }

    /// The memory without which the pipeline cannot work.
    pub fn least_memory(&self) -> Result<Bytes, Error> {
        let is_given = |component: &Component| !self.dropped.contains(&component.name);
        let unknown = UNKNOWN + self.whole_batch() * 4;
        Ok(self.dataset.least_memory_into(is_given)?.unwrap_or(unknown) + self.copy_bytes()?)
    }

    /// The bytes of a whole batch.
    fn whole_batch(&self) -> Bytes {
        Bytes::from(self.row_bytes.iter().sum::<usize>() * self.sizes.most)
    }

    /// What a batch of fewer rows that is not expected takes on its way to the step for it, at most.
    fn copy_bytes(&self) -> Result<Bytes, Error> {
        let is_expected = self.keys.len() == 1 || self.sizes.last.is_some() && self.n_batches()?.is_some();
        Ok(if is_expected { Bytes::ZERO } else { self.whole_batch() })
    }

    /// Begins a pass, in an order of its own; or goes on where an earlier one was when `position` was saved.
    pub fn begin(&mut self, trainer: &Trainer, pass: u64, position: Option<&[u8]>) -> Result<(), Error> {
        self.end();
        let input = trainer.terms.budget.account(INPUT);
        self.copy = Some(input.reserve(self.copy_bytes()?).map_err(data::DataError::from)?);
        let options = Options::new(&trainer.terms.budget).account(INPUT).epoch(pass).threads(trainer.terms.threads);
        self.iter = Some(match position {
            None => self.dataset.iter_with(&options)?,
            Some(position) => self.dataset.resume(position, &options)?,
        });
        Ok(())
    }

    /// Ends a pass: its memory is given back.
    pub fn end(&mut self) {
        if let Some(iter) = self.iter.take() {
            self.report.add(&iter.report());
        }
        self.copy = None;
    }

    /// Where the pass is, for going on there.
    pub fn position(&self) -> Option<Vec<u8>> {
        self.iter.as_ref().map(Iter::save)
    }

    /// How long was waited for batches so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Where the time of all passes went. Waiting is all of the time in which a step could have run.
    pub fn report(&self) -> Report {
        let mut report = self.report.clone();
        report.add(&self.iter.as_ref().map(Iter::report).unwrap_or_default());
        Report { waited: self.waited, ..report }
    }

    /// Puts the next batch into the inputs of the step for it and says which that is and how many rows it has; `None` at the
    /// end of the pass.
    pub fn next(&mut self, trainer: &mut Trainer) -> Result<Option<(ProgramId, usize)>, Error> {
        let start = Instant::now();
        let Some(iter) = &mut self.iter else { return Ok(None) };
        let expected = match (self.dataset.cardinality()?, self.sizes.last) {
            (Cardinality::Known(n), Some(last)) if iter.given() + 1 == n => last,
            _ => self.sizes.most,
        };
        let is_it = |k: &&StepKey| k.batch == expected && !k.fewer;
        let key = self.keys.iter().find(is_it).expect("its step was known from the beginning");
        let compiled = trainer.compiled.as_mut().expect("compiled before");
        let program = compiled.find(key).expect("compiled before");
        let mut memory = inputs(&mut compiled.engine, program, &self.names);
        let shapes = iter.next_into(&mut memory)?;
        self.waited += start.elapsed();
        let Some(shapes) = shapes else { return Ok(None) };
        let used = shapes.iter().zip(&self.names).filter(|(_, name)| name.is_some());
        let mut rows = used.map(|(shape, _)| shape.dims().first().copied().unwrap_or(1));
        let n = rows.next().unwrap_or(expected);
        if let Some(other) = rows.find(|rows| *rows != n) {
            let message = format!("batch {} has {n} rows of one component, but {other} of another", iter.given());
            return Err(Error::config("data", message));
        }
        match n {
            0 => Err(Error::config("data", format!("batch {} has no rows", iter.given()))),
            n if n == expected => Ok(Some((program, n))),
            n => Ok(Some((self.move_to(trainer, program, n)?, n))),
        }
    }

    /// Moves a batch of fewer rows than expected to the step for so many, which may have to be made.
    fn move_to(&mut self, trainer: &mut Trainer, from: ProgramId, rows: usize) -> Result<ProgramId, Error> {
        let bytes = Bytes::from(self.row_bytes.iter().sum::<usize>() * rows);
        let missing = bytes.saturating_sub(self.copy.as_ref().map_or(Bytes::ZERO, Reservation::bytes));
        let _held = trainer.terms.budget.account(INPUT).reserve(missing).map_err(data::DataError::from)?;
        let engine = &mut trainer.compiled.as_mut().expect("compiled before").engine;
        let copy = |(memory, size): (Option<&mut [u8]>, &usize)| memory.map(|memory| memory[..rows * size].to_vec());
        let copies: Vec<Option<Vec<u8>>> =
            inputs(engine, from, &self.names).into_iter().zip(&self.row_bytes).map(copy).collect();
        let program = trainer.step_for(rows, self.keys.last().expect("that of whole batches at least"))?;
        let engine = &mut trainer.compiled.as_mut().expect("compiled above").engine;
        for (memory, copy) in inputs(engine, program, &self.names).into_iter().zip(copies) {
            if let (Some(memory), Some(copy)) = (memory, copy) {
                memory.copy_from_slice(&copy);
            }
        }
        Ok(program)
    }
}

/// The memory of the inputs of a step; a step that does not use a field has no input for it.
fn inputs<'a>(engine: &'a mut Engine, program: ProgramId, names: &'a [Option<String>]) -> Vec<Option<&'a mut [u8]>> {
    engine.inputs_bytes_mut(program, names.iter().map(Option::as_deref))
}

/// There is no batch at all.
pub(super) fn nothing() -> Error {
    Error::config("data", "is empty: there is nothing to run on")
}
