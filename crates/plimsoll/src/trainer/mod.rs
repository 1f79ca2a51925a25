//! Training: a model, a loss and an optimizer become planned steps, and `fit` runs them.
//!
//! [`Trainer`] holds what is to be trained and the engine it runs in. The life of a batch goes on in `compile.rs` (model,
//! loss, metrics and optimizer become one graph, the graph a plan) and `fit.rs` (rows become inputs, steps run, figures are
//! read).

mod checkpoint;
mod compile;
mod feed;
mod fit;
mod forecast;
mod interrupt;
mod limit;
mod observe;
mod profile;
mod summary;

pub use crate::session::{Fixed, HostTooSmall, Kept, MemoryGrew, Techniques, WouldNotFit};
pub use checkpoint::{Loaded, verify_checkpoint};
pub(crate) use checkpoint::{checkpoint_name, checkpoints, remove_unfinished};
pub use fit::{Fit, History};
pub use forecast::Forecast;
pub use limit::SweepPoint;
pub use profile::{OpTime, Profile};
pub use summary::{LayerSummary, Summary};

use crate::callbacks::Logs;
use crate::data::Feed;
use crate::error::Error;
use crate::losses::Loss;
use crate::metrics::Metric;
use crate::model::Model;
use crate::optimizers::{Optimizer, UpdateOptions};
use crate::session::Terms;
use crate::trace::{Mode, Variables};
use compile::Compiled;
use limit::Keeps;
use plimsoll_budget::{Budget, Limit};
use plimsoll_plan::Plan;
use plimsoll_tensor::Tensor;
use std::path::Path;
use std::sync::Arc;

/// An output's loss with its weight in the total.
#[derive(Clone)]
pub(crate) struct OutputLoss {
    output: String,
    loss: Arc<dyn Loss>,
    weight: f64,
}

/// A metric of an output.
#[derive(Clone)]
pub(crate) struct OutputMetric {
    output: String,
    metric: Arc<dyn Metric>,
    /// The names of its accumulators, known once it has been traced.
    sums: Vec<String>,
}

/// A model in training.
///
/// ```
/// use plimsoll::data::Arrays;
/// use plimsoll::layers::{Activation, Dense};
/// use plimsoll::losses::MeanSquaredError;
/// use plimsoll::model::Model;
/// use plimsoll::optimizers::Adam;
/// use plimsoll::trainer::{Fit, Trainer};
/// use plimsoll::Tensor;
/// # fn main() -> Result<(), plimsoll::Error> {
/// let x = Tensor::from_slice(&[4, 2], &[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
/// let y = Tensor::from_slice(&[4, 1], &[0.0f32, 1.0, 1.0, 0.0])?;
/// let model = Model::sequential([2]).layer(Dense::new(8).activation(Activation::Tanh)).layer(Dense::new(1));
/// let mut trainer = Trainer::new(model, MeanSquaredError, Adam::new(0.05))?;
/// let history = trainer.fit(&Arrays::new(x, y)?, Fit::epochs(200).batch_size(4))?;
/// assert!(history.last("loss").unwrap() < 0.05);
/// # Ok(())
/// # }
/// ```
pub struct Trainer {
    model: Model,
    losses: Vec<OutputLoss>,
    metrics: Vec<OutputMetric>,
    optimizer: Arc<dyn Optimizer>,
    updates: UpdateOptions,
    seed: u64,
    /// What steps are planned under.
    terms: Terms,
    /// Slices of a batch that the user asked for.
    slices: Option<usize>,
    variables: Variables,
    compiled: Option<Compiled>,
    /// What the steps at hand were planned to leave room for.
    keeps: Keeps,
    /// Training steps done.
    step: u64,
    /// Passes over training data that were begun and ended: each has its own order.
    pass: u64,
    /// How far the last `fit` is, and where the next one begins if it goes on with another.
    progress: fit::Progress,
    resume: Option<fit::Progress>,
    /// The checkpoint that states begin with when their steps are made.
    restored: Option<crate::weights::Reader>,
    /// A rate set by hand, which overrides the schedule.
    rate: Option<f64>,
    /// Where the time of the training data went.
    input: crate::data::Report,
}

impl Trainer {
    /// A model with one output, or one loss for all outputs.
    ///
    /// # Errors
    /// When the model has no output.
    pub fn new(model: Model, loss: impl Loss + 'static, optimizer: impl Optimizer + 'static) -> Result<Trainer, Error> {
        Trainer::shared(model, Arc::new(loss), Arc::new(optimizer))
    }

    /// As [`Trainer::new`], with a loss and an optimizer chosen at run time.
    ///
    /// # Errors
    /// When the model has no output.
    pub fn shared(model: Model, loss: Arc<dyn Loss>, optimizer: Arc<dyn Optimizer>) -> Result<Trainer, Error> {
        if model.outputs().is_empty() {
            return Err(Error::config("model", "has no output; name one with `output`"));
        }
        let per_output = |name: &&str| OutputLoss { output: (*name).to_owned(), loss: loss.clone(), weight: 1.0 };
        Ok(Trainer {
            losses: model.outputs().iter().map(per_output).collect(),
            metrics: Vec::new(),
            optimizer,
            updates: UpdateOptions::default(),
            seed: 0,
            terms: Terms::default(),
            slices: None,
            variables: Variables::new(),
            compiled: None,
            keeps: Keeps::default(),
            step: 0,
            pass: 0,
            progress: fit::Progress::default(),
            resume: None,
            restored: None,
            rate: None,
            input: crate::data::Report::default(),
            model,
        })
    }

    /// With a loss of its own for one output, and its weight in the total.
    ///
    /// # Errors
    /// When the model has no such output.
    pub fn output_loss(mut self, output: &str, loss: impl Loss + 'static, weight: f64) -> Result<Trainer, Error> {
        let Some(entry) = self.losses.iter_mut().find(|l| l.output == output) else {
            return Err(self.no_output(output));
        };
        entry.loss = Arc::new(loss);
        entry.weight = weight;
        Ok(self)
    }

    /// With a metric of the (first) output.
    #[must_use]
    pub fn metric(mut self, metric: impl Metric + 'static) -> Trainer {
        let output = self.model.outputs()[0].to_owned();
        self.metrics.push(OutputMetric { output, metric: Arc::new(metric), sums: Vec::new() });
        self
    }

    /// With a metric of one of several outputs.
    ///
    /// # Errors
    /// When the model has no such output.
    pub fn output_metric(mut self, output: &str, metric: impl Metric + 'static) -> Result<Trainer, Error> {
        if !self.model.outputs().contains(&output) {
            return Err(self.no_output(output));
        }
        self.metrics.push(OutputMetric { output: output.into(), metric: Arc::new(metric), sums: Vec::new() });
        Ok(self)
    }

    fn no_output(&self, output: &str) -> Error {
        Error::config("model", format!("has no output '{output}'; it has {}", self.model.outputs().join(", ")))
    }

    /// With clipping, weight decay or averaging of weights.
    #[must_use]
    pub fn updates(mut self, updates: UpdateOptions) -> Trainer {
        self.updates = updates;
        self
    }

    /// With another seed than 0: initial weights, dropout and the order of samples follow from it alone.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Trainer {
        self.seed = seed;
        self
    }

    /// With this many threads instead of one per core. Results do not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Trainer {
        self.terms.threads = threads.max(1);
        self
    }

    /// Keeps the resident memory of the whole process below this, by the cheapest mix of [`Techniques`]; or says before the first
    /// step that it cannot be kept, and which limit could ([`Error::WouldNotFit`]).
    ///
    /// Takes [`Bytes`](crate::Bytes), a [`Limit`], or text such as `"512MiB"`, `"2GB"`, `"50%"` (of what the host allows) and
    /// `"none"`; text that cannot be understood is an error of the first run. Without this the environment variable
    /// `PLIMSOLL_MEMORY_LIMIT` counts, and without that what the host allows ([`Trainer::limits`]).
    ///
    /// What the process holds when the step is planned counts in full; memory that the caller takes afterwards is noticed at the
    /// end of an epoch ([`Error::MemoryGrew`]).
    #[must_use]
    pub fn memory_limit<L: TryInto<Limit, Error: std::fmt::Display>>(mut self, limit: L) -> Trainer {
        self.terms.set_limit(limit);
        self
    }

    /// With memory from this budget, which several trainers may share: what one holds, the others do without. Its limit, if
    /// it has one, is that of the whole process.
    ///
    /// ```
    /// # use plimsoll::{Bytes, layers::Dense, losses::MeanSquaredError, model::Model, optimizers::Sgd, trainer::Trainer};
    /// use plimsoll::Budget;
    /// # fn main() -> Result<(), plimsoll::Error> {
    /// # let new = || Trainer::new(Model::sequential([2]).layer(Dense::new(1)), MeanSquaredError, Sgd::new(0.1));
    /// let budget = Budget::new(Bytes::mib(512));
    /// let (first, second) = (new()?.budget(&budget), new()?.budget(&budget));
    /// # let _ = (first, second);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: &Budget) -> Trainer {
        self.terms.budget = budget.clone();
        self.terms.shared_budget = true;
        self
    }

    /// Without touching memory ahead of the first step.
    ///
    /// Otherwise, where a step needs a large part of what the host has, a child process touches that much first, to find out
    /// whether it is really there ([`Error::HostTooSmall`]).
    #[must_use]
    pub fn no_sounding(mut self) -> Trainer {
        self.terms.sounding = false;
        self
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Training steps done so far.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// Copies of all weights and statistics; of a model that has not run yet, its initial ones.
    ///
    /// # Errors
    /// When the model cannot be traced.
    pub fn weights(&mut self) -> Result<Vec<(String, Tensor)>, Error> {
        self.ensure_states()?;
        self.compiled.as_ref().expect("made above").weights(&self.variables)
    }

    /// Sets weights and statistics by name; those that are not named stay.
    ///
    /// # Errors
    /// When a name does not exist or a type differs.
    pub fn set_weights(&mut self, weights: &[(String, Tensor)]) -> Result<(), Error> {
        self.ensure_states()?;
        self.compiled.as_mut().expect("made above").set_weights(&self.variables, weights)
    }

    /// Writes weights and statistics to a safetensors file: to a temporary name, synced, renamed. No copy of them is made in
    /// memory.
    ///
    /// # Errors
    /// When the file cannot be written; an old file is then still whole.
    pub fn save_weights(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.ensure_states()?;
        self.compiled.as_ref().expect("made above").save(&self.variables, path.as_ref())
    }

    /// Reads weights and statistics from a safetensors file. All must be there, with the right shapes.
    ///
    /// # Errors
    /// When the file is damaged or is of another model: the message names the file, the weight and both shapes, and nothing
    /// has changed. When the disk fails while weights are read, those before are new and the rest old.
    pub fn load_weights(&mut self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.ensure_states()?;
        self.compiled.as_mut().expect("made above").load(&self.variables, path.as_ref())
    }

    /// The figures on some data, without training: `loss` and metrics. Arrays are taken in batches of this size, 32 if there
    /// is none; a data set says its own (`None`).
    ///
    /// # Errors
    /// When the data does not suit the model.
    pub fn evaluate(&mut self, data: &dyn Feed, batch_size: impl Into<Option<usize>>) -> Result<Logs, Error> {
        fit::evaluate(self, data, batch_size.into())
    }

    /// The outputs for some data, in order, in batches as [`Trainer::evaluate`] takes them.
    ///
    /// # Errors
    /// When the data does not suit the model.
    pub fn predict(&mut self, data: &dyn Feed, batch_size: impl Into<Option<usize>>) -> Result<Vec<Tensor>, Error> {
        fit::predict(self, data, batch_size.into())
    }

    /// Gives away the outputs for some data batch by batch, in order: a tensor for each output of the model. What is held does
    /// not grow with the data.
    ///
    /// ```
    /// # use plimsoll::{Tensor, layers::Dense, losses::MeanSquaredError, model::Model, optimizers::Sgd, trainer::Trainer};
    /// # fn main() -> Result<(), plimsoll::Error> {
    /// # let mut trainer = Trainer::new(Model::sequential([2]).layer(Dense::new(1)), MeanSquaredError, Sgd::new(0.1))?;
    /// let data = plimsoll::data::Dataset::from_array("x", Tensor::zeros(plimsoll::DType::F32, [10, 2])).batch(4);
    /// let mut rows = Vec::new();
    /// trainer.predict_each(&data, None, |outputs: &[Tensor]| {
    ///     rows.push(outputs[0].shape()[0]);
    ///     Ok::<(), plimsoll::Error>(())
    /// })?;
    /// assert_eq!(rows, [4, 4, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the data does not suit the model, or the receiver gives an error: nothing more is computed then.
    pub fn predict_each<E: From<Error>>(
        &mut self,
        data: &dyn Feed,
        batch_size: impl Into<Option<usize>>,
        each: impl FnMut(&[Tensor]) -> Result<(), E>,
    ) -> Result<(), E> {
        fit::predict_each(self, data, batch_size.into(), each)
    }

    /// Trains, on arrays or on a [`Dataset`](crate::data::Dataset) of batches.
    ///
    /// ```
    /// # use plimsoll::{DType, layers::Dense, losses::MeanSquaredError, model::Model, optimizers::Sgd};
    /// use plimsoll::data::{AUTOTUNE, Component, Dataset};
    /// use plimsoll::trainer::{Fit, Trainer};
    /// # fn main() -> Result<(), plimsoll::Error> {
    /// // Numbers and their doubles, made as they are needed.
    /// let data = Dataset::range(0, 1000, 1)
    ///     .map([Component::new("x", DType::F32, &[1]), Component::new("y", DType::F32, &[1])], |row, out| {
    ///         let x = row.get::<i64>("value")?[0] as f32 / 1000.0;
    ///         out.set("x", &[1], &[x])?;
    ///         out.set("y", &[1], &[2.0 * x])
    ///     })
    ///     .shuffle(None, 7)
    ///     .batch(50)
    ///     .prefetch(AUTOTUNE);
    /// let mut trainer = Trainer::new(Model::sequential([1]).layer(Dense::new(1)), MeanSquaredError, Sgd::new(0.3))?;
    /// let history = trainer.fit(&data, Fit::epochs(10))?;
    /// assert!(history.last("loss").unwrap() < 1e-3);
    /// println!("{}", history.input);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the data does not suit the model, a step cannot be planned, or the loss stops being a number.
    pub fn fit(&mut self, data: &dyn Feed, options: Fit<'_>) -> Result<History, Error> {
        fit::fit(self, data, options)
    }

    /// The plan of the training step on data like this, without running anything.
    ///
    /// # Errors
    /// When the data does not suit the model.
    pub fn plan(&mut self, data: &dyn Feed, batch_size: impl Into<Option<usize>>) -> Result<Plan, Error> {
        let feeder = feed::Feeder::new(self, Mode::Train, data, batch_size.into(), false)?;
        compile::plan_training(self, &feeder.keys()[0].fields, feeder.batch_size())
    }

    /// Trains for some steps, on the first batches in order, and says how long each op took.
    ///
    /// # Errors
    /// As [`Trainer::fit`].
    pub fn profile(
        &mut self,
        data: &dyn Feed,
        batch_size: impl Into<Option<usize>>,
        steps: usize,
    ) -> Result<Profile, Error> {
        profile::profile(self, data, batch_size.into(), steps)
    }

    /// The layers with their parameters and bytes, for a batch of this size.
    ///
    /// # Errors
    /// When the model cannot be traced.
    pub fn summary(&mut self, batch_size: usize) -> Result<Summary, Error> {
        summary::summary(self, batch_size)
    }
}
