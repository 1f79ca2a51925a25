//! All axes of a sample in one.

use super::{Layer, refuse, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// The elements of each sample in one row. Moves nothing.
///
/// # Shapes
/// Input `[batch, ..]`, output `[batch, product of the others]`; of `[batch]`, `[batch, 1]`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Flatten {
    name: Option<String>,
}

impl Flatten {
    /// The layer; it has no settings.
    pub fn new() -> Flatten {
        Flatten::default()
    }

    settings! {}
}

impl Layer for Flatten {
    identity!("flatten");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "flatten", inputs)?;
        let shape = t.shape(x);
        let [batch, ref rest @ ..] = *shape.dims() else {
            return Err(refuse(t, "flatten", format!("takes [batch, ..], got {shape}")));
        };
        Ok(t.reshape(x, [batch, rest.iter().product()])?)
    }
}
