//! A layer from a function.

use super::Layer;
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use std::sync::Arc;

type Body = dyn Fn(&mut Trace<'_>, &[Value]) -> Result<Value, Error> + Send + Sync;

/// A layer that does what a function does: any ops of the graph, weights included.
///
/// ```
/// use plimsoll::init::Initializer;
/// use plimsoll::layers::Function;
/// // The squares of the input:
/// let squares = Function::new(|t, inputs| Ok(t.square(inputs[0])?));
/// // One learned factor for each feature:
/// let scale = Function::new(|t, inputs| {
///     let features = *t.shape(inputs[0]).dims().last().expect("an axis");
///     let factor = t.weight("factor", [features], Initializer::Ones)?;
///     Ok(t.mul(inputs[0], factor)?)
/// });
/// ```
#[derive(Clone)]
pub struct Function {
    body: Arc<Body>,
    name: Option<String>,
}

impl Function {
    /// The layer that does this with its inputs.
    pub fn new(body: impl Fn(&mut Trace<'_>, &[Value]) -> Result<Value, Error> + Send + Sync + 'static) -> Function {
        Function { body: Arc::new(body), name: None }
    }

    settings! {}
}

impl Layer for Function {
    identity!("function");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        (self.body)(t, inputs)
    }
}
