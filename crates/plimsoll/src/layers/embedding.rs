//! Vectors for numbers.

use super::{Layer, positive, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::DType;

/// A learned vector for each of the numbers `0 .. input_dim`: words, say. `y[i] = embeddings[x[i]]`.
///
/// A number outside fails when the step runs, with its value and place.
///
/// # Shapes
/// - input `[batch, ..]` of integers (other types are converted), output `[batch, .., output_dim]`
/// - weight `embeddings [input_dim, output_dim]`
///
/// ```
/// use plimsoll::DType;
/// use plimsoll::layers::{Dense, Embedding, LSTM};
/// use plimsoll::model::Model;
/// // 20 token numbers below 1000 in, one number out.
/// let model = Model::sequential_of(DType::I32, [20]).layer(Embedding::new(1000, 16)).layer(LSTM::new(32)).layer(Dense::new(1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    input_dim: usize,
    output_dim: usize,
    init: Initializer,
    name: Option<String>,
}

impl Embedding {
    /// A layer with `input_dim` vectors of `output_dim` features, uniform within 0.05 at first.
    pub fn new(input_dim: usize, output_dim: usize) -> Embedding {
        Embedding { input_dim, output_dim, init: Initializer::Uniform { low: -0.05, high: 0.05 }, name: None }
    }

    settings! {
        /// With these initial values.
        init: Initializer;
    }
}

impl Layer for Embedding {
    identity!("embedding");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "embedding", inputs)?;
        positive(t, "embedding", "input_dim", self.input_dim)?;
        positive(t, "embedding", "output_dim", self.output_dim)?;
        let x = if matches!(t.dtype(x), DType::I32 | DType::I64) { x } else { t.cast(x, DType::I32)? };
        let embeddings = t.weight("embeddings", [self.input_dim, self.output_dim], self.init.clone())?;
        Ok(t.gather(embeddings, x, 0)?)
    }
}
