//! Another shape of a sample.

use super::{Layer, refuse, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{MAX_RANK, Shape};

/// The elements of each sample under another shape. Moves nothing.
///
/// # Shapes
/// Input `[batch, ..]`, output `[batch, shape..]`, where one size may be -1: what is left over.
///
/// ```
/// use plimsoll::layers::Reshape;
/// use plimsoll::model::Model;
/// let model = Model::sequential([28, 28]).layer(Reshape::new([28, 28, 1]));
/// let model = Model::sequential([28, 28]).layer(Reshape::new([4, -1]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reshape {
    shape: Vec<isize>,
    name: Option<String>,
}

impl Reshape {
    /// The layer that gives samples of this shape.
    pub fn new(shape: impl Into<Vec<isize>>) -> Reshape {
        Reshape { shape: shape.into(), name: None }
    }

    settings! {}

    /// The shape with the batch and with -1 replaced, if it can be.
    fn resolve(&self, from: &Shape) -> Option<Shape> {
        let (&batch, sample) = from.dims().split_first()?;
        let elements: usize = sample.iter().product();
        let open = self.shape.iter().filter(|&&n| n == -1).count();
        let known = self.shape.iter().filter(|&&n| n != -1);
        let known = known.map(|&n| usize::try_from(n).ok()).try_fold(1, |p: usize, n| p.checked_mul(n?))?;
        let rest = match open {
            0 if known == elements => 1,
            1 if known > 0 && elements % known == 0 => elements / known,
            _ => return None,
        };
        let sizes = self.shape.iter().map(|&n| usize::try_from(n).unwrap_or(rest));
        Shape::try_new(&std::iter::once(batch).chain(sizes).collect::<Vec<_>>())
    }
}

impl Layer for Reshape {
    identity!("reshape");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "reshape", inputs)?;
        let from = t.shape(x);
        if self.shape.len() >= MAX_RANK {
            let message = format!("{} axes; at most {MAX_RANK} are supported", self.shape.len() + 1);
            return Err(refuse(t, "reshape", message));
        }
        let Some(to) = self.resolve(&from) else {
            let sizes: String = self.shape.iter().map(|n| format!(", {n}")).collect();
            return Err(refuse(t, "reshape", format!("{from} cannot become [batch{sizes}]")));
        };
        Ok(t.reshape(x, to)?)
    }
}
