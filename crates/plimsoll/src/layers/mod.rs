//! Layers: the parts of a model. One kind, one file.

mod activation;
mod dense;

pub use activation::Activation;
pub use dense::Dense;

use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// A part of a model: writes itself into the step being traced.
///
/// A layer holds its settings only; its weights are variables of the trace, made on first use from the shapes of the
/// inputs. Values have the batch as their first axis.
///
/// ```
/// use plimsoll::layers::{Layer, Dense};
/// use plimsoll::{Error, Trace, Value};
///
/// /// Adds its input to what another layer makes of it.
/// struct Residual(Dense);
///
/// impl Layer for Residual {
///     fn kind(&self) -> &'static str { "residual" }
///     fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
///         let h = t.scope("inner", |t| self.0.call(t, inputs))?;
///         Ok(t.add(inputs[0], h)?)
///     }
/// }
/// ```
pub trait Layer: Send + Sync {
    /// The kind's name, from which a layer's own name is made (`dense`, `dense_1`).
    fn kind(&self) -> &'static str;

    /// Traces the layer: makes its weights and gives its output.
    ///
    /// # Errors
    /// When the inputs do not suit the layer; the message names both facts.
    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error>;

    /// The name the user gave, if any.
    fn name(&self) -> Option<&str> {
        None
    }
}

/// The single input of a layer that takes one.
///
/// # Errors
/// When there are several or none.
pub fn single(kind: &str, inputs: &[Value]) -> Result<Value, Error> {
    match inputs {
        [x] => Ok(*x),
        _ => Err(Error::config(kind, format!("takes one input, got {}", inputs.len()))),
    }
}
