//! Parts of the input left out at random while training.

use super::{Layer, image_axes, refuse, shape_like, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Shape, TensorType};

/// Sets elements to 0 with the given probability and scales the others up, `y = x / (1 - rate)`, so that the expected value
/// stays; only while training.
///
/// No mask is stored: the random numbers are a function of the step and the element's place, computed anew where the
/// gradient needs them.
///
/// # Shapes
/// Input and output `[batch, ..]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    rate: f64,
    name: Option<String>,
}

impl Dropout {
    /// A layer that leaves out this part of the elements.
    pub fn new(rate: f64) -> Dropout {
        Dropout { rate, name: None }
    }

    settings! {}
}

impl Layer for Dropout {
    identity!("dropout");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, "dropout", inputs)?;
        let shape = t.shape(x);
        drop_out(t, "dropout", x, self.rate, shape)
    }
}

/// Leaves out whole channels: all steps or cells of a channel of a sample together, because neighbours tell nearly the
/// same; only while training.
///
/// # Shapes
/// Input and output `[batch, s.., channels]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SpatialDropout<const N: usize> {
    rate: f64,
    name: Option<String>,
}

/// [`SpatialDropout`] of `[batch, steps, channels]`.
pub type SpatialDropout1D = SpatialDropout<1>;
/// [`SpatialDropout`] of `[batch, height, width, channels]`.
pub type SpatialDropout2D = SpatialDropout<2>;
/// [`SpatialDropout`] of `[batch, depth, height, width, channels]`.
pub type SpatialDropout3D = SpatialDropout<3>;

impl<const N: usize> SpatialDropout<N> {
    /// A layer that leaves out this part of the channels.
    pub fn new(rate: f64) -> SpatialDropout<N> {
        SpatialDropout { rate, name: None }
    }

    settings! {}
}

impl<const N: usize> Layer for SpatialDropout<N> {
    identity!(match N {
        1 => "spatial_dropout1d",
        2 => "spatial_dropout2d",
        _ => "spatial_dropout3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, self.kind(), inputs)?;
        let mut shape = shape_like(t, self.kind(), x, image_axes(N))?;
        shape.dims_mut()[1..=N].fill(1);
        drop_out(t, self.kind(), x, self.rate, shape)
    }
}

/// Leaves out elements of `x` as a mask of this shape, broadcast to it, says.
pub(super) fn drop_out(t: &mut Trace<'_>, kind: &str, x: Value, rate: f64, mask: Shape) -> Result<Value, Error> {
    if !(0.0..=1.0).contains(&rate) {
        return Err(refuse(t, kind, format!("the rate is a probability from 0 to 1, got {rate}")));
    }
    if !t.training() || rate == 0.0 {
        return Ok(x);
    }
    let dtype = t.dtype(x);
    let zero = t.constant(0.0, dtype)?;
    if rate == 1.0 {
        return Ok(t.mul(x, zero)?);
    }
    let key = t.key();
    let keep = 1.0 - rate;
    let drawn = t.random(key, "uniform", TensorType::new(DType::F32, mask))?;
    let limit = t.constant(keep, DType::F32)?;
    let kept = t.lt(drawn, limit)?;
    let scaled = t.scale(x, 1.0 / keep)?;
    Ok(t.select(kept, scaled, zero)?)
}
