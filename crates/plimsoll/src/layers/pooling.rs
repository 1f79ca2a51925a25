//! The largest or the mean of every window.

use super::padding::Window;
use super::{Layer, Padding, Sizes, image_axes, refuse, shape_like, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_graph::op::pooling::PoolOptions;

/// A pooling layer and its names for one to three spatial axes.
macro_rules! pooling {
    ($(#[$meta:meta])* $layer:ident, [$one:ident $kind1:literal, $two:ident $kind2:literal, $three:ident $kind3:literal], $op:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $layer<const N: usize> {
            windows: Windows<N>,
            name: Option<String>,
        }

        #[doc = concat!("[`", stringify!($layer), "`] of `[batch, steps, channels]`.")]
        pub type $one = $layer<1>;
        #[doc = concat!("[`", stringify!($layer), "`] of `[batch, height, width, channels]`.")]
        pub type $two = $layer<2>;
        #[doc = concat!("[`", stringify!($layer), "`] of `[batch, depth, height, width, channels]`.")]
        pub type $three = $layer<3>;

        impl<const N: usize> $layer<N> {
            /// A layer with windows of this size, side by side, without padding.
            pub fn new(pool_size: impl Into<Sizes<N>>) -> $layer<N> {
                $layer { windows: Windows::new(pool_size.into()), name: None }
            }

            /// With so many cells from one window to the next.
            #[must_use]
            pub fn strides(self, strides: impl Into<Sizes<N>>) -> $layer<N> {
                $layer { windows: Windows { strides: strides.into(), ..self.windows }, ..self }
            }

            /// With this padding, which counts for nothing.
            #[must_use]
            pub fn padding(self, padding: Padding) -> $layer<N> {
                $layer { windows: Windows { padding, ..self.windows }, ..self }
            }

            /// With windows that may reach over the edge, so that no cell is left out.
            #[must_use]
            pub fn same(self) -> $layer<N> {
                self.padding(Padding::Same)
            }

            settings! {}
        }

        impl<const N: usize> Layer for $layer<N> {
            identity!(match N {
                1 => $kind1,
                2 => $kind2,
                _ => $kind3,
            });

            fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
                let x = single(t, self.kind(), inputs)?;
                let options = self.windows.options(t, self.kind(), x)?;
                Ok(t.$op(x, &options)?)
            }
        }
    };
}

pooling! {
    /// The largest cell of every window, channel by channel.
    ///
    /// # Shapes
    /// Input `[batch, s.., channels]`, output `[batch, o.., channels]`, where `o` is `(s - size) / stride + 1` rounded down,
    /// with padding same `s / stride` rounded up.
    MaxPool, [MaxPool1D "max_pooling1d", MaxPool2D "max_pooling2d", MaxPool3D "max_pooling3d"], max_pool
}

pooling! {
    /// The mean of every window, channel by channel; cells of the padding are not counted.
    ///
    /// # Shapes
    /// Input `[batch, s.., channels]`, output `[batch, o.., channels]`, where `o` is `(s - size) / stride + 1` rounded down,
    /// with padding same `s / stride` rounded up.
    AvgPool, [AvgPool1D "average_pooling1d", AvgPool2D "average_pooling2d", AvgPool3D "average_pooling3d"], avg_pool
}

/// The windows of a pooling layer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Windows<const N: usize> {
    pool_size: Sizes<N>,
    strides: Sizes<N>,
    padding: Padding,
}

impl<const N: usize> Windows<N> {
    fn new(pool_size: Sizes<N>) -> Windows<N> {
        Windows { pool_size, strides: pool_size, padding: Padding::Valid }
    }

    /// The op's constants for this image.
    fn options(&self, t: &Trace<'_>, kind: &str, x: Value) -> Result<PoolOptions, Error> {
        let shape = shape_like(t, kind, x, image_axes(N))?;
        if self.padding == Padding::Causal {
            return Err(refuse(t, kind, "has no padding causal; use valid or same"));
        }
        let mut padding = Vec::new();
        for i in 0..N {
            let axis = image_axes(N)[i + 1];
            let (size, stride) = (self.pool_size.0[i], self.strides.0[i]);
            let window = Window { input: shape[i + 1], size, stride, dilation: 1 };
            let fit = self.padding.fit(t, kind, axis, window)?;
            if fit.output == 0 {
                return Err(refuse(t, kind, format!("takes one cell or more along {axis}, got {shape}")));
            }
            padding.extend([fit.before, fit.after]);
        }
        Ok(PoolOptions { window: self.pool_size.0.to_vec(), strides: self.strides.0.to_vec(), padding })
    }
}
