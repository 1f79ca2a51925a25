//! Callbacks that watch a figure.

use super::{Callback, Logs, Memory, Recalled, Training};
use crate::error::Error;
use plimsoll_tensor::Tensor;
use std::borrow::Cow;
use std::ops::ControlFlow;

/// Which way a figure gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A loss.
    Smaller,
    /// An accuracy.
    Larger,
}

impl Better {
    /// By the figure's name: losses and errors smaller, everything else larger.
    fn of(name: &str) -> Better {
        let small = ["loss", "error", "mse", "mae", "rmse", "hinge", "entropy", "divergence"];
        if small.iter().any(|s| name.contains(s)) { Better::Smaller } else { Better::Larger }
    }

    fn improves(self, new: f64, best: f64, by: f64) -> bool {
        match self {
            Better::Smaller => new < best - by,
            Better::Larger => new > best + by,
        }
    }

    fn worst(self) -> f64 {
        if self == Better::Smaller { f64::INFINITY } else { f64::NEG_INFINITY }
    }
}

/// Follows a figure: the best so far and how long ago that was.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    monitor: String,
    better: Better,
    min_delta: f64,
    best: f64,
    waited: usize,
}

impl Watch {
    pub fn new(monitor: &str) -> Watch {
        let better = Better::of(monitor);
        Watch { monitor: monitor.into(), better, min_delta: 0.0, best: better.worst(), waited: 0 }
    }

    /// Whether this epoch is the best so far.
    pub fn see(&mut self, logs: &Logs) -> Result<bool, Error> {
        let names = || logs.iter().map(|(n, _)| n).collect::<Vec<_>>().join(", ");
        let Some(value) = logs.get(&self.monitor) else {
            return Err(Error::config(
                "callback",
                format!("there is no figure '{}'; there are {}", self.monitor, names()),
            ));
        };
        let improved = self.better.improves(value, self.best, self.min_delta);
        if improved {
            self.best = value;
            self.waited = 0;
        } else {
            self.waited += 1;
        }
        Ok(improved)
    }

    fn name(&self, what: &str) -> String {
        format!("{}.{what}", self.monitor)
    }

    pub fn memory(&self) -> Memory<'_> {
        vec![
            (self.name("best"), Cow::Owned(Tensor::scalar(self.best))),
            (self.name("waited"), Cow::Owned(Tensor::scalar(self.waited as i64))),
        ]
    }

    pub fn recall(&mut self, memory: &Recalled<'_>) -> Result<(), Error> {
        if let (Some(best), Some(waited)) = (memory.get(&self.name("best"))?, memory.get(&self.name("waited"))?) {
            (self.best, self.waited) = (best.as_slice::<f64>()?[0], waited.as_slice::<i64>()?[0] as usize);
        }
        Ok(())
    }
}

/// Stops when a figure has not improved for some epochs.
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    watch: Watch,
    patience: usize,
    restore_best: bool,
    best_weights: Vec<(String, Tensor)>,
}

impl EarlyStopping {
    /// Watches a figure (`val_loss`, say) with patience 0.
    pub fn new(monitor: &str) -> EarlyStopping {
        EarlyStopping { watch: Watch::new(monitor), patience: 0, restore_best: false, best_weights: Vec::new() }
    }

    /// Waits for so many epochs without improvement.
    #[must_use]
    pub fn patience(self, patience: usize) -> EarlyStopping {
        EarlyStopping { patience, ..self }
    }

    /// Counts as an improvement only what is better by more than this.
    #[must_use]
    pub fn min_delta(mut self, min_delta: f64) -> EarlyStopping {
        self.watch.min_delta = min_delta.abs();
        self
    }

    /// Says which way the figure gets better, where its name does not tell.
    #[must_use]
    pub fn better(mut self, better: Better) -> EarlyStopping {
        self.watch.better = better;
        self.watch.best = better.worst();
        self
    }

    /// Goes back to the best epoch's weights at the end. Keeps a copy of them meanwhile.
    #[must_use]
    pub fn restore_best(self) -> EarlyStopping {
        EarlyStopping { restore_best: true, ..self }
    }
}

/// What the names of the best weights begin with in its memory.
const BEST: &str = "weights ";

impl EarlyStopping {
    fn verdict(&self) -> ControlFlow<()> {
        if self.watch.waited > self.patience { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Callback for EarlyStopping {
    fn copies_of_weights(&self) -> usize {
        self.restore_best as usize
    }

    fn on_epoch_end(&mut self, training: &mut dyn Training, _: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        if self.watch.see(logs)? && self.restore_best {
            // The old ones go first, so that there are never two copies.
            self.best_weights.clear();
            self.best_weights = training.current_weights()?;
        }
        Ok(self.verdict())
    }

    fn memory(&self) -> Memory<'_> {
        let mut memory = self.watch.memory();
        memory.extend(self.best_weights.iter().map(|(name, tensor)| (format!("{BEST}{name}"), Cow::Borrowed(tensor))));
        memory
    }

    fn recall(&mut self, memory: &Recalled<'_>) -> Result<ControlFlow<()>, Error> {
        self.watch.recall(memory)?;
        self.best_weights.clear();
        if self.restore_best {
            for name in memory.names().filter_map(|name| name.strip_prefix(BEST)) {
                let tensor = memory.get(&format!("{BEST}{name}"))?.expect("it is named");
                self.best_weights.push((name.to_owned(), tensor));
            }
        }
        Ok(self.verdict())
    }

    fn on_train_end(&mut self, training: &mut dyn Training) -> Result<(), Error> {
        if self.best_weights.is_empty() { Ok(()) } else { training.replace_weights(&self.best_weights) }
    }
}

/// Lowers the learning rate when a figure has not improved for some epochs.
#[derive(Clone, Debug)]
pub struct ReduceOnPlateau {
    watch: Watch,
    factor: f64,
    patience: usize,
    min_rate: f64,
}

impl ReduceOnPlateau {
    /// Watches a figure; multiplies the rate by 0.1 after 10 epochs without improvement.
    pub fn new(monitor: &str) -> ReduceOnPlateau {
        let mut watch = Watch::new(monitor);
        watch.min_delta = 1e-4;
        ReduceOnPlateau { watch, factor: 0.1, patience: 10, min_rate: 0.0 }
    }

    /// The factor.
    #[must_use]
    pub fn factor(self, factor: f64) -> ReduceOnPlateau {
        ReduceOnPlateau { factor, ..self }
    }

    /// Epochs to wait.
    #[must_use]
    pub fn patience(self, patience: usize) -> ReduceOnPlateau {
        ReduceOnPlateau { patience, ..self }
    }

    /// Never below this.
    #[must_use]
    pub fn min_rate(self, min_rate: f64) -> ReduceOnPlateau {
        ReduceOnPlateau { min_rate, ..self }
    }
}

impl Callback for ReduceOnPlateau {
    fn memory(&self) -> Memory<'_> {
        self.watch.memory()
    }

    fn recall(&mut self, memory: &Recalled<'_>) -> Result<ControlFlow<()>, Error> {
        self.watch.recall(memory)?;
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, training: &mut dyn Training, _: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        self.watch.see(logs)?;
        if self.watch.waited >= self.patience.max(1) {
            let rate = (training.learning_rate() * self.factor).max(self.min_rate);
            training.set_learning_rate(rate);
            self.watch.waited = 0;
        }
        Ok(ControlFlow::Continue(()))
    }
}
