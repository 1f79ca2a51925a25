//! What can go wrong, for the user.

use plimsoll_graph::GraphError;
use plimsoll_tensor::TensorError;

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
    /// A layer, loss, optimizer or metric that was set up wrongly.
    #[error("{what}: {message}")]
    Config {
        /// The layer, loss, optimizer, metric or argument.
        what: String,
        /// The two facts that disagree, and what to do.
        message: String,
    },
}

impl Error {
    /// A [`Error::Config`].
    pub fn config(what: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Config { what: what.into(), message: message.into() }
    }
}
