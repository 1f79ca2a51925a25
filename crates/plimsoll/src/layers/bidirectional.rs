//! A sequence read both ways.

use super::recurrent::{Recurrent, Sequence};
use super::{Layer, refuse};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use std::sync::Arc;

/// How [`Bidirectional`] joins the outputs of both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MergeMode {
    /// Side by side: `2 units` features.
    #[default]
    Concat,
    /// Their sum.
    Sum,
    /// Their product.
    Mul,
    /// Their mean.
    Average,
}

/// Goes over a sequence with two copies of a recurrent layer, one forwards and one backwards, and joins their outputs.
///
/// # Shapes
/// - inputs as the inner layer's; initial states, if any, are those of the forward copy, then those of the backward one
/// - output `[batch, 2 units]` or `[batch, steps, 2 units]`; `units` instead of `2 units` unless the mode is `Concat`
/// - weights those of the inner layer, twice: `forward/kernel`, .., `backward/kernel`, ..
///
/// With a mask, outputs of all steps are zero at steps that do not count.
///
/// ```
/// use plimsoll::layers::{Bidirectional, LSTM, MergeMode};
/// let layer = Bidirectional::new(LSTM::new(32).return_sequences()).merge_mode(MergeMode::Sum);
/// ```
#[derive(Clone)]
pub struct Bidirectional {
    inner: Arc<dyn Recurrent>,
    merge_mode: MergeMode,
    name: Option<String>,
}

impl Bidirectional {
    /// The layer with two copies of this one.
    pub fn new(inner: impl Recurrent + 'static) -> Bidirectional {
        Bidirectional { inner: Arc::new(inner), merge_mode: MergeMode::Concat, name: None }
    }

    settings! {
        /// With the outputs joined in this way.
        merge_mode: MergeMode;
    }
}

impl Layer for Bidirectional {
    identity!("bidirectional");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let all = Sequence::from_inputs(t, "bidirectional", inputs)?;
        if all.initial.len() % 2 != 0 {
            let message = format!("takes initial states for both ways, got {}", all.initial.len());
            return Err(refuse(t, "bidirectional", message));
        }
        let sequences = self.inner.gives_sequences();
        let (for_forward, for_backward) = all.initial.split_at(all.initial.len() / 2);
        let forward = Sequence { initial: for_forward.to_vec(), zero_masked: sequences, ..all };
        let backward = Sequence { initial: for_backward.to_vec(), reverse: true, ..forward.clone() };
        let a = t.scope("forward", |t| self.inner.run(t, &forward))?.output;
        let mut b = t.scope("backward", |t| self.inner.run(t, &backward))?.output;
        if sequences {
            b = t.flip(b, &[1])?;
        }
        Ok(match self.merge_mode {
            MergeMode::Concat => {
                let last = t.shape(a).rank() - 1;
                t.concat(&[a, b], last)?
            }
            MergeMode::Sum => t.add(a, b)?,
            MergeMode::Mul => t.mul(a, b)?,
            MergeMode::Average => {
                let sum = t.add(a, b)?;
                t.scale(sum, 0.5)?
            }
        })
    }
}
