//! What can go wrong, for the user.

use crate::session::{HostTooSmall, MemoryGrew, WouldNotFit};
use plimsoll_exec::ExecError;
use plimsoll_graph::GraphError;
use plimsoll_plan::PlanError;
use plimsoll_tensor::TensorError;
use std::path::{Path, PathBuf};

/// Any error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model whose parts do not fit together.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A tensor that is not what it should be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A step that could not be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A step that could not be run.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Data that could not be read.
    #[error(transparent)]
    Data(#[from] plimsoll_data::Error),
    /// A layer, loss, optimizer, metric, data set or argument that was set up wrongly.
    #[error("{what}: {message}")]
    Config {
        /// The layer, loss, optimizer, metric or argument.
        what: String,
        /// The two facts that disagree, and what to do.
        message: String,
    },
    /// The memory limit cannot be kept. Nothing was run.
    #[error("{0}")]
    WouldNotFit(Box<WouldNotFit>),
    /// The host does not have the memory that the limit allows. Nothing was run.
    #[error("{0}")]
    HostTooSmall(Box<HostTooSmall>),
    /// Something else in the process took memory, up to the limit.
    #[error("{0}")]
    MemoryGrew(Box<MemoryGrew>),
    /// The loss is no number any more.
    #[error(
        "the loss is {loss} at step {step} of epoch {epoch}; {source_of_it} is the first that is not finite. Nothing was \
         updated in this step; a smaller learning rate or clipped gradients may help, or look at the data"
    )]
    Diverged {
        /// Counted from 1.
        epoch: usize,
        /// Counted from 1 in the epoch.
        step: usize,
        /// NaN or an infinity.
        loss: f64,
        /// Where it came from.
        source_of_it: String,
    },
    /// A file that could not be read or written.
    #[error("{}: {message}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
}

impl Error {
    /// A [`Error::Config`].
    pub fn config(what: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Config { what: what.into(), message: message.into() }
    }

    /// A [`Error::File`].
    pub fn file(path: &Path, message: impl Into<String>) -> Error {
        Error::File { path: path.to_owned(), message: message.into() }
    }
}
