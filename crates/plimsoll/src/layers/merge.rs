//! Several inputs made into one, element by element.

use super::{Layer, refuse};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// A layer without settings over two or more inputs.
macro_rules! merge {
    ($($(#[$meta:meta])* $layer:ident,)*) => {$(
        $(#[$meta])*
        ///
        /// # Shapes
        /// All inputs and the output `[batch, ..]`; sizes of 1 are broadcast.
        #[derive(Clone, Debug, PartialEq, Default)]
        pub struct $layer {
            name: Option<String>,
        }

        impl $layer {
            /// The layer; it has no settings.
            pub fn new() -> $layer {
                $layer::default()
            }

            settings! {}
        }
    )*};
}

merge! {
    /// The sum of all inputs.
    Add,
    /// The first input less the second.
    Subtract,
    /// The product of all inputs.
    Multiply,
    /// The mean of all inputs.
    Average,
    /// The largest of all inputs.
    Maximum,
    /// The smallest of all inputs.
    Minimum,
}

/// Joins the inputs from the first to the last.
fn fold(
    t: &mut Trace<'_>,
    kind: &str,
    inputs: &[Value],
    mut join: impl FnMut(&mut Trace<'_>, Value, Value) -> Result<Value, Error>,
) -> Result<Value, Error> {
    match *inputs {
        [first, ref rest @ ..] if !rest.is_empty() => rest.iter().try_fold(first, |sum, &x| join(t, sum, x)),
        _ => Err(refuse(t, kind, format!("takes two inputs or more, got {}", inputs.len()))),
    }
}

impl Layer for Add {
    identity!("add");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        fold(t, "add", inputs, |t, a, b| Ok(t.add(a, b)?))
    }
}

impl Layer for Subtract {
    identity!("subtract");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        match *inputs {
            [a, b] => Ok(t.sub(a, b)?),
            _ => Err(refuse(t, "subtract", format!("takes two inputs, got {}", inputs.len()))),
        }
    }
}

impl Layer for Multiply {
    identity!("multiply");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        fold(t, "multiply", inputs, |t, a, b| Ok(t.mul(a, b)?))
    }
}

impl Layer for Average {
    identity!("average");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let sum = fold(t, "average", inputs, |t, a, b| Ok(t.add(a, b)?))?;
        Ok(t.scale(sum, 1.0 / inputs.len() as f64)?)
    }
}

impl Layer for Maximum {
    identity!("maximum");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        fold(t, "maximum", inputs, |t, a, b| Ok(t.maximum(a, b)?))
    }
}

impl Layer for Minimum {
    identity!("minimum");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        fold(t, "minimum", inputs, |t, a, b| Ok(t.minimum(a, b)?))
    }
}
