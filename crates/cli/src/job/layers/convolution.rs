//! Convolutions and pooling.

use super::values::{Size, sizes};
use crate::diagnostic::Diagnostic;
use crate::job::read::table;
use plimsoll::init::Initializer;
use plimsoll::layers::{self as l, Activation, Padding};

table! {
    /// What all convolutions have.
    pub struct Moves {
        /// The size of the window.
        kernel_size: Size,
        /// Cells from one window to the next.
        strides: Size = 1,
        /// What happens at the edges.
        padding: Padding = "valid",
        /// Cells from one point of the window to the next.
        dilation: Size = 1,
        /// Applied to the result.
        activation: Activation = "linear",
        /// Whether a bias is added.
        bias: bool = true,
    }
}

/// The settings of [`Moves`] but the size of the window: the layers have them as methods of the same names.
macro_rules! moved {
    ($layer:expr, $moves:expr) => {{
        let m = &$moves;
        let layer = $layer.strides(sizes::<N>(&m.strides)?).dilation(sizes::<N>(&m.dilation)?);
        let layer = layer.padding(m.padding).activation(m.activation);
        if m.bias { layer } else { layer.no_bias() }
    }};
}

table! {
    /// A convolution over the spatial axes.
    pub struct Convolution with moves: Moves {
        /// How many channels come out.
        filters: usize,
        /// Into how many groups the channels are cut.
        groups: usize = 1,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

impl Convolution {
    pub fn build<const N: usize>(&self) -> Result<l::Conv<N>, Diagnostic> {
        let layer = l::Conv::<N>::new(self.filters, sizes::<N>(&self.moves.kernel_size)?).groups(self.groups);
        Ok(moved!(layer, self.moves).kernel_init(self.kernel_init.clone()))
    }
}

table! {
    /// A transposed convolution: makes its input larger.
    pub struct TransposedConvolution with moves: Moves {
        /// How many channels come out.
        filters: usize,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

impl TransposedConvolution {
    pub fn build<const N: usize>(&self) -> Result<l::ConvTranspose<N>, Diagnostic> {
        let layer = l::ConvTranspose::<N>::new(self.filters, sizes::<N>(&self.moves.kernel_size)?);
        Ok(moved!(layer, self.moves).kernel_init(self.kernel_init.clone()))
    }
}

table! {
    /// A convolution of every channel by itself.
    pub struct DepthwiseConvolution with moves: Moves {
        /// Outputs for each input channel.
        depth_multiplier: usize = 1,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

impl DepthwiseConvolution {
    pub fn build<const N: usize>(&self) -> Result<l::DepthwiseConv<N>, Diagnostic> {
        let layer = l::DepthwiseConv::<N>::new(sizes::<N>(&self.moves.kernel_size)?);
        let layer = moved!(layer.depth_multiplier(self.depth_multiplier), self.moves);
        Ok(layer.kernel_init(self.kernel_init.clone()))
    }
}

table! {
    /// A convolution of every channel by itself, then one of single cells that mixes channels.
    pub struct SeparableConvolution with moves: Moves {
        /// How many channels come out.
        filters: usize,
        /// Intermediate channels for each input channel.
        depth_multiplier: usize = 1,
    }
}

impl SeparableConvolution {
    pub fn build<const N: usize>(&self) -> Result<l::SeparableConv<N>, Diagnostic> {
        let layer = l::SeparableConv::<N>::new(self.filters, sizes::<N>(&self.moves.kernel_size)?);
        Ok(moved!(layer.depth_multiplier(self.depth_multiplier), self.moves))
    }
}

table! {
    /// The largest or mean number of every window.
    pub struct Pooling {
        /// The size of the window.
        pool_size: Size = 2,
        /// Cells from one window to the next; its own size if not given.
        strides: Option<Size> = none,
        /// What happens at the edges.
        padding: Padding = "valid",
    }
}

macro_rules! pooled {
    ($layer:ident, $s:expr) => {{
        let layer = l::$layer::<N>::new(sizes::<N>(&$s.pool_size)?).padding($s.padding);
        Ok(match &$s.strides {
            Some(strides) => layer.strides(sizes::<N>(strides)?),
            None => layer,
        })
    }};
}

impl Pooling {
    pub fn largest<const N: usize>(&self) -> Result<l::MaxPool<N>, Diagnostic> {
        pooled!(MaxPool, self)
    }

    pub fn mean<const N: usize>(&self) -> Result<l::AvgPool<N>, Diagnostic> {
        pooled!(AvgPool, self)
    }
}

table! {
    /// The largest or mean number over all spatial axes.
    pub struct GlobalPooling {
        /// Whether the spatial axes stay, with size 1.
        keep_dims: bool = false,
    }
}

impl GlobalPooling {
    pub fn largest<const N: usize>(&self) -> l::GlobalMaxPool<N> {
        let layer = l::GlobalMaxPool::new();
        if self.keep_dims { layer.keep_dims() } else { layer }
    }

    pub fn mean<const N: usize>(&self) -> l::GlobalAvgPool<N> {
        let layer = l::GlobalAvgPool::new();
        if self.keep_dims { layer.keep_dims() } else { layer }
    }
}
