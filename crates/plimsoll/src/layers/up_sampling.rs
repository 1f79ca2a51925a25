//! Enlarged images.

use super::{Layer, Sizes, image_axes, refuse, shape_like, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::Shape;

/// Repeats every cell along each spatial axis (nearest neighbour).
///
/// # Shapes
/// Input `[batch, s.., channels]`, output `[batch, size * s.., channels]`.
#[derive(Clone, Debug, PartialEq)]
pub struct UpSampling<const N: usize> {
    size: Sizes<N>,
    name: Option<String>,
}

/// [`UpSampling`] of `[batch, steps, channels]`.
pub type UpSampling1D = UpSampling<1>;
/// [`UpSampling`] of `[batch, height, width, channels]`.
pub type UpSampling2D = UpSampling<2>;
/// [`UpSampling`] of `[batch, depth, height, width, channels]`.
pub type UpSampling3D = UpSampling<3>;

impl<const N: usize> UpSampling<N> {
    /// The layer that enlarges by these factors.
    pub fn new(size: impl Into<Sizes<N>>) -> UpSampling<N> {
        UpSampling { size: size.into(), name: None }
    }

    settings! {}
}

impl<const N: usize> Layer for UpSampling<N> {
    identity!(match N {
        1 => "up_sampling1d",
        2 => "up_sampling2d",
        _ => "up_sampling3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, self.kind(), inputs)?;
        let shape = shape_like(t, self.kind(), x, image_axes(N))?;
        let (batch, channels) = (shape[0], shape[N + 1]);
        // Each spatial axis with one of size 1 after it, which is made as large as the factor and joined with it.
        let (mut apart, mut wide, mut joined) = (vec![batch], vec![batch], vec![batch]);
        for (axis, factor) in self.size.0.into_iter().enumerate() {
            let size = shape[axis + 1];
            let Some(large) = size.checked_mul(factor).filter(|_| factor > 0) else {
                return Err(refuse(t, self.kind(), format!("cannot enlarge {size} cells by a factor of {factor}")));
            };
            apart.extend([size, 1]);
            wide.extend([size, factor]);
            joined.push(large);
        }
        for sizes in [&mut apart, &mut wide, &mut joined] {
            sizes.push(channels);
        }
        let x = t.reshape(x, Shape::new(&apart))?;
        let x = t.broadcast(x, Shape::new(&wide))?;
        Ok(t.reshape(x, Shape::new(&joined))?)
    }
}
