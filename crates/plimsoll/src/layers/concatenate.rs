//! Inputs side by side.

use super::{Layer, axis_of, refuse};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// The inputs one after another along an axis, by default the last.
///
/// # Shapes
/// Inputs that agree but for one axis; the output is as long there as all of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Concatenate {
    axis: isize,
    name: Option<String>,
}

impl Concatenate {
    /// The layer that joins along the last axis.
    pub fn new() -> Concatenate {
        Concatenate { axis: -1, name: None }
    }

    settings! {
        /// Along this axis; the batch is axis 0, and negative ones are counted from the last.
        axis: isize;
    }
}

impl Default for Concatenate {
    fn default() -> Concatenate {
        Concatenate::new()
    }
}

impl Layer for Concatenate {
    identity!("concatenate");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let Some(&first) = inputs.first() else {
            return Err(refuse(t, "concatenate", "takes one input or more, got none"));
        };
        let shape = t.shape(first);
        let axis = axis_of(t, "concatenate", self.axis, &shape)?;
        Ok(t.concat(inputs, axis)?)
    }
}
