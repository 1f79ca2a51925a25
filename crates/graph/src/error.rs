//! What can go wrong while a graph is built, read or run.

use plimsoll_tensor::TensorType;

/// A graph that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// An op's shape rule says no.
    #[error("{}{op}: {message} (inputs: {})", in_layer(.layer), list(.inputs))]
    Shape {
        /// The layer that was being traced; empty outside layers.
        layer: String,
        /// The op's name.
        op: &'static str,
        /// What disagrees.
        message: String,
        /// The types of the inputs.
        inputs: Vec<TensorType>,
    },
    /// A derivative that does not exist.
    #[error("{}{op} has no gradient: {message}", in_layer(.layer))]
    NoGradient {
        /// The layer of the op.
        layer: String,
        /// The op's name.
        op: &'static str,
        /// Why.
        message: String,
    },
    /// Text that is not a graph.
    #[error("line {line}: {message}")]
    Text {
        /// Counted from 1.
        line: usize,
        /// What was expected and found.
        message: String,
    },
    /// A graph that breaks its own rules.
    #[error("the graph is broken: {0}")]
    Broken(String),
    /// A value that was not given, or is of another type.
    #[error("input '{name}': {message}")]
    Input {
        /// The input's name.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// An op that failed while running.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// An op that met values it cannot compute with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{op}: {message}")]
pub struct RunError {
    /// The op's name.
    pub op: &'static str,
    /// What is wrong, with the offending value.
    pub message: String,
}

fn in_layer(layer: &str) -> String {
    if layer.is_empty() { String::new() } else { format!("layer '{layer}': ") }
}

fn list(types: &[TensorType]) -> String {
    let texts: Vec<String> = types.iter().map(TensorType::to_string).collect();
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}
