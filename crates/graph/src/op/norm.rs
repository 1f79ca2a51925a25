//! Normalisations: of rows (layer norm, RMS norm), of groups of channels, of channels over the batch.
//!
//! Each saves its statistics as further outputs: two numbers for a row, a group or a channel. The gradient needs them and
//! the input, nothing else. Statistics have gradients too, by formula, should anybody use them.

mod batch;
mod group;
mod layer;

pub use batch::{BatchNorm, BatchNormGrad, BatchStats};
pub use group::{GroupNorm, GroupNormGrad};
pub use layer::{LayerNorm, LayerNormGrad};

use super::softmax::last_axis;
use super::{Reference, expect_floats, expect_inputs};
use crate::error::GraphError;
use crate::graph::{Graph, Value};
use crate::split::Split;
use plimsoll_tensor::{Shape, TensorType};

/// What is common to the ops of this file: where the optional scale and offset stand among the inputs.
#[derive(Clone, Copy)]
struct Parameters {
    scale: bool,
    offset: bool,
}

impl Parameters {
    /// How many there are.
    fn count(self) -> usize {
        self.scale as usize + self.offset as usize
    }

    /// Places of scale and offset when the first of them stands at `first`.
    fn places(self, first: usize) -> [Option<usize>; 2] {
        [self.scale.then_some(first), self.offset.then_some(first + self.scale as usize)]
    }

    /// A message unless the inputs after the first are such parameters of `x`.
    fn expect(self, inputs: &[TensorType]) -> Result<(), String> {
        expect_inputs(inputs, 1 + self.count())?;
        expect_floats(inputs)?;
        expect_channels(&inputs[0], &inputs[1..])
    }
}

/// A message unless each of `parameters` has one element for each channel of `x`.
fn expect_channels(x: &TensorType, parameters: &[TensorType]) -> Result<(), String> {
    let channels = last_axis(x)?;
    match parameters.iter().find(|ty| ty.dims() != [channels]) {
        Some(other) => Err(format!("{} wants parameters [{channels}], got {}", x.shape, other.shape)),
        None => Ok(()),
    }
}

/// A message unless each of `others` has the shape `want`.
fn expect_shape(x: &TensorType, others: &[TensorType], want: Shape) -> Result<(), String> {
    match others.iter().find(|ty| ty.shape != want) {
        Some(other) => Err(format!("{} wants statistics {want}, got {}", x.shape, other.shape)),
        None => Ok(()),
    }
}

/// `n * scale + offset`, of what there is.
fn with_parameters(g: &mut Graph, n: Value, [scale, offset]: [Option<Value>; 2]) -> Result<Value, GraphError> {
    let scaled = scale.map_or(Ok(n), |scale| g.mul(n, scale))?;
    offset.map_or(Ok(scaled), |offset| g.add(scaled, offset))
}

/// The sums over all axes but the last.
fn sum_rows(g: &mut Graph, x: Value) -> Result<Value, GraphError> {
    let rows = g.rows(x)?;
    g.sum(rows, &[0], false)
}

/// `rstd * (g - mean of g - n * mean of g * n)` over some axes; without the first mean when not `centred`.
fn normal_gradient(
    g: &mut Graph,
    dn: Value,
    n: Value,
    rstd: Value,
    axes: &[usize],
    centred: bool,
) -> Result<Value, GraphError> {
    let products = g.mul(dn, n)?;
    let mean_product = g.mean(products, axes, true)?;
    let along = g.mul(n, mean_product)?;
    let mut rest = g.sub(dn, along)?;
    if centred {
        let mean = g.mean(dn, axes, true)?;
        rest = g.sub(rest, mean)?;
    }
    g.mul(rest, rstd)
}

/// The outputs of a gradient op: `dx` and those sums that there is an output for.
fn gradients(dx: Reference, ds: Vec<f64>, do_: Vec<f64>, which: Parameters, outputs: &[TensorType]) -> Vec<Reference> {
    let mut all = vec![dx];
    all.extend(which.scale.then(|| Reference { ty: outputs[1], data: ds }));
    all.extend(which.offset.then(|| Reference { ty: outputs[outputs.len() - 1], data: do_ }));
    all
}

/// The relations of `dx` and of the parameters' gradients, which are sums over the rows.
fn split_sums(rows: Split, scale: Option<Split>, n: usize) -> Vec<Split> {
    let rows = if scale.is_none_or(|s| s == Split::Whole) { rows } else { Split::Mixed };
    let sums = if let Split::Axis(_) = rows { Split::Partial } else { rows };
    (0..n).map(|i| if i == 0 { rows } else { sums }).collect()
}

impl Graph {
    /// Layer norm over the last axis, with scale and offset `[channels]` or without.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn layer_norm(
        &mut self,
        x: Value,
        scale: Option<Value>,
        offset: Option<Value>,
        epsilon: f64,
    ) -> Result<Value, GraphError> {
        let op = LayerNorm { epsilon, centred: true, scale: scale.is_some(), offset: offset.is_some() };
        self.push1(op, &with_optional(x, [scale, offset]))
    }

    /// RMS norm over the last axis, with a scale `[channels]` or without.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn rms_norm(&mut self, x: Value, scale: Option<Value>, epsilon: f64) -> Result<Value, GraphError> {
        let op = LayerNorm { epsilon, centred: false, scale: scale.is_some(), offset: false };
        self.push1(op, &with_optional(x, [scale, None]))
    }

    /// Group norm of `[samples, .., channels]`, with scale and offset `[channels]` or without.
    ///
    /// # Errors
    /// When shapes or types do not fit, or the groups do not divide the channels.
    pub fn group_norm(
        &mut self,
        x: Value,
        groups: usize,
        scale: Option<Value>,
        offset: Option<Value>,
        epsilon: f64,
    ) -> Result<Value, GraphError> {
        let op = GroupNorm { groups, epsilon, scale: scale.is_some(), offset: offset.is_some() };
        self.push1(op, &with_optional(x, [scale, offset]))
    }

    /// Batch norm with the batch's statistics: the result, and each channel's mean and variance.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn batch_norm(
        &mut self,
        x: Value,
        scale: Option<Value>,
        offset: Option<Value>,
        epsilon: f64,
    ) -> Result<[Value; 3], GraphError> {
        let [mean, variance] = self.batch_stats(x)?;
        let y = self.batch_norm_with(x, [mean, variance], scale, offset, epsilon)?;
        Ok([y, mean, variance])
    }

    /// Mean and variance of each channel over all other axes.
    ///
    /// # Errors
    /// When there is no row or no channel.
    pub fn batch_stats(&mut self, x: Value) -> Result<[Value; 2], GraphError> {
        let outputs = self.push(BatchStats, &[x])?;
        Ok([outputs[0], outputs[1]])
    }

    /// Batch norm with the mean and variance of `x` that [`Graph::batch_stats`] has found.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn batch_norm_with(
        &mut self,
        x: Value,
        [mean, variance]: [Value; 2],
        scale: Option<Value>,
        offset: Option<Value>,
        epsilon: f64,
    ) -> Result<Value, GraphError> {
        let op = BatchNorm { epsilon, scale: scale.is_some(), offset: offset.is_some() };
        let y = op.formula(self, x, [mean, variance], [scale, offset])?;
        let mut inputs = vec![y, x, mean, variance];
        inputs.extend([scale, offset].into_iter().flatten());
        self.push1(op, &inputs)
    }
}

/// The inputs of an op with optional parameters.
fn with_optional(x: Value, parameters: [Option<Value>; 2]) -> Vec<Value> {
    [x].into_iter().chain(parameters.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests;
