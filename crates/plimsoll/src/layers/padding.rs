//! What surrounds an image where a window reaches over its edge.

use super::refuse;
use crate::error::Error;
use crate::trace::Trace;

/// What surrounds an image where a window reaches over its edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Padding {
    /// Nothing: the window stays inside.
    #[default]
    Valid,
    /// As much on both sides (one more after than before if need be) as gives `input / stride` outputs, rounded up.
    Same,
    /// All of it before: an output sees no later input. Of one axis only.
    Causal,
}

impl Padding {
    /// The way that Keras calls so: `valid`, `same`, `causal`.
    ///
    /// # Errors
    /// When there is none.
    pub fn from_name(name: &str) -> Result<Padding, Error> {
        match name {
            "valid" => Ok(Padding::Valid),
            "same" => Ok(Padding::Same),
            "causal" => Ok(Padding::Causal),
            _ => Err(Error::config("padding", format!("'{name}' is not one of valid, same, causal"))),
        }
    }

    /// Where a window goes along one axis.
    pub(super) fn fit(self, t: &Trace<'_>, kind: &str, axis: &str, window: Window) -> Result<Fit, Error> {
        let Window { input, size, stride, dilation } = window;
        for (setting, value) in [("window size", size), ("stride", stride), ("dilation", dilation)] {
            if value == 0 {
                return Err(refuse(t, kind, format!("the {setting} along {axis} must be positive, got 0")));
            }
        }
        let Some(reach) = (size - 1).checked_mul(dilation).and_then(|n| n.checked_add(1)) else {
            return Err(refuse(
                t,
                kind,
                format!("a window of {size} along {axis} with dilation {dilation} is too large"),
            ));
        };
        match self {
            Padding::Valid if reach > input => {
                let dilated = if dilation == 1 { String::new() } else { format!(" (dilated by {dilation}: {reach})") };
                let message =
                    format!("a window of {size}{dilated} does not fit into {axis} {input}; pad or use padding same");
                Err(refuse(t, kind, message))
            }
            Padding::Valid => Ok(Fit { before: 0, after: 0, output: (input - reach) / stride + 1 }),
            Padding::Same => {
                let output = input.div_ceil(stride);
                let total = (output.saturating_sub(1) * stride + reach).saturating_sub(input);
                Ok(Fit { before: total / 2, after: total - total / 2, output })
            }
            Padding::Causal => Ok(Fit { before: reach - 1, after: 0, output: input.div_ceil(stride) }),
        }
    }
}

/// A window that moves along an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub input: usize,
    pub size: usize,
    pub stride: usize,
    pub dilation: usize,
}

/// What is added before and after an axis, and how many outputs there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub before: usize,
    pub after: usize,
    pub output: usize,
}
