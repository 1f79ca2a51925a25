//! Images with zeros around them, and images with their edges cut off.

use super::{Layer, Margins, image_axes, refuse, shape_like, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Zeros before and after along each spatial axis.
///
/// # Shapes
/// Input `[batch, s.., channels]`, output `[batch, before + s + after.., channels]`.
///
/// ```
/// use plimsoll::layers::ZeroPadding2D;
/// ZeroPadding2D::new(1); // on all four sides
/// ZeroPadding2D::new([1, 2]); // above and below, left and right
/// ZeroPadding2D::new([(0, 1), (0, 1)]); // (above, below), (left, right)
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ZeroPadding<const N: usize> {
    padding: Margins<N>,
    name: Option<String>,
}

/// [`ZeroPadding`] of `[batch, steps, channels]`.
pub type ZeroPadding1D = ZeroPadding<1>;
/// [`ZeroPadding`] of `[batch, height, width, channels]`.
pub type ZeroPadding2D = ZeroPadding<2>;
/// [`ZeroPadding`] of `[batch, depth, height, width, channels]`.
pub type ZeroPadding3D = ZeroPadding<3>;

impl<const N: usize> ZeroPadding<N> {
    /// The layer that adds so many zeros.
    pub fn new(padding: impl Into<Margins<N>>) -> ZeroPadding<N> {
        ZeroPadding { padding: padding.into(), name: None }
    }

    settings! {}
}

impl<const N: usize> Layer for ZeroPadding<N> {
    identity!(match N {
        1 => "zero_padding1d",
        2 => "zero_padding2d",
        _ => "zero_padding3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, self.kind(), inputs)?;
        let shape = shape_like(t, self.kind(), x, image_axes(N))?;
        let (mut before, mut after) = (vec![0; N + 2], vec![0; N + 2]);
        for (i, (b, a)) in self.padding.0.into_iter().enumerate() {
            if shape[i + 1].checked_add(b).and_then(|n| n.checked_add(a)).is_none() {
                return Err(refuse(t, self.kind(), format!("padding ({b}, {a}) is too large")));
            }
            (before[i + 1], after[i + 1]) = (b, a);
        }
        Ok(t.pad(x, &before, &after)?)
    }
}

/// Cuts off cells before and after along each spatial axis.
///
/// # Shapes
/// Input `[batch, s.., channels]`, output `[batch, s - before - after.., channels]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cropping<const N: usize> {
    cropping: Margins<N>,
    name: Option<String>,
}

/// [`Cropping`] of `[batch, steps, channels]`.
pub type Cropping1D = Cropping<1>;
/// [`Cropping`] of `[batch, height, width, channels]`.
pub type Cropping2D = Cropping<2>;
/// [`Cropping`] of `[batch, depth, height, width, channels]`.
pub type Cropping3D = Cropping<3>;

impl<const N: usize> Cropping<N> {
    /// The layer that cuts off so many cells.
    pub fn new(cropping: impl Into<Margins<N>>) -> Cropping<N> {
        Cropping { cropping: cropping.into(), name: None }
    }

    settings! {}
}

impl<const N: usize> Layer for Cropping<N> {
    identity!(match N {
        1 => "cropping1d",
        2 => "cropping2d",
        _ => "cropping3d",
    });

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = single(t, self.kind(), inputs)?;
        let shape = shape_like(t, self.kind(), x, image_axes(N))?;
        let (mut starts, mut sizes) = (vec![0; N + 2], shape.dims().to_vec());
        for (i, (before, after)) in self.cropping.0.into_iter().enumerate() {
            let name = image_axes(N)[i + 1];
            let left = sizes[i + 1].checked_sub(before).and_then(|n| n.checked_sub(after)).filter(|&n| n > 0);
            let Some(left) = left else {
                let message = format!("cutting ({before}, {after}) off leaves nothing of {name} {}", sizes[i + 1]);
                return Err(refuse(t, self.kind(), message));
            };
            (starts[i + 1], sizes[i + 1]) = (before, left);
        }
        Ok(t.slice(x, &starts, &sizes, &vec![1; N + 2])?)
    }
}
