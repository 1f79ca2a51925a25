//! One number for each channel of an image.

use super::{Layer, image_axes, refuse, shape_like, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::reduce::Kind;

/// The largest value of each channel.
///
/// # Shapes
/// Input `[batch, s.., channels]`, output `[batch, channels]`, or `[batch, 1.., channels]` with
/// [`GlobalMaxPool::keep_dims`].
#[derive(Clone, Debug, PartialEq, Default)]
pub struct GlobalMaxPool<const N: usize> {
    keep_dims: bool,
    name: Option<String>,
}

/// [`GlobalMaxPool`] of `[batch, steps, channels]`.
pub type GlobalMaxPool1D = GlobalMaxPool<1>;
/// [`GlobalMaxPool`] of `[batch, height, width, channels]`.
pub type GlobalMaxPool2D = GlobalMaxPool<2>;
/// [`GlobalMaxPool`] of `[batch, depth, height, width, channels]`.
pub type GlobalMaxPool3D = GlobalMaxPool<3>;

impl<const N: usize> GlobalMaxPool<N> {
    /// The layer without spatial axes in its output.
    pub fn new() -> GlobalMaxPool<N> {
        GlobalMaxPool::default()
    }

    settings! {
        /// With the spatial axes kept, as axes of size 1.
        keep_dims => keep_dims = true;
    }
}

impl<const N: usize> Layer for GlobalMaxPool<N> {
    identity!(match N {
        1 => "global_max_pooling1d",
        2 => "global_max_pooling2d",
        _ => "global_max_pooling3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        reduce::<N>(t, self.kind(), inputs, Kind::Max, self.keep_dims)
    }
}

/// The mean of each channel.
///
/// # Shapes
/// Input `[batch, s.., channels]`, output `[batch, channels]`, or `[batch, 1.., channels]` with
/// [`GlobalAvgPool::keep_dims`].
#[derive(Clone, Debug, PartialEq, Default)]
pub struct GlobalAvgPool<const N: usize> {
    keep_dims: bool,
    name: Option<String>,
}

/// [`GlobalAvgPool`] of `[batch, steps, channels]`.
pub type GlobalAvgPool1D = GlobalAvgPool<1>;
/// [`GlobalAvgPool`] of `[batch, height, width, channels]`.
pub type GlobalAvgPool2D = GlobalAvgPool<2>;
/// [`GlobalAvgPool`] of `[batch, depth, height, width, channels]`.
pub type GlobalAvgPool3D = GlobalAvgPool<3>;

impl<const N: usize> GlobalAvgPool<N> {
    /// The layer without spatial axes in its output.
    pub fn new() -> GlobalAvgPool<N> {
        GlobalAvgPool::default()
    }

    settings! {
        /// With the spatial axes kept, as axes of size 1.
        keep_dims => keep_dims = true;
    }
}

impl<const N: usize> Layer for GlobalAvgPool<N> {
    identity!(match N {
        1 => "global_average_pooling1d",
        2 => "global_average_pooling2d",
        _ => "global_average_pooling3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        reduce::<N>(t, self.kind(), inputs, Kind::Mean, self.keep_dims)
    }
}

fn reduce<const N: usize>(
    t: &mut Trace<'_>,
    kind: &str,
    inputs: &[Value],
    what: Kind,
    keep: bool,
) -> Result<Value, Error> {
    let x = single(t, kind, inputs)?;
    let shape = shape_like(t, kind, x, image_axes(N))?;
    let axes: Vec<usize> = (1..=N).collect();
    if axes.iter().any(|&a| shape[a] == 0) {
        return Err(refuse(t, kind, format!("takes an image with one cell or more, got {shape}")));
    }
    Ok(t.reduce(what, x, &axes, keep)?)
}
