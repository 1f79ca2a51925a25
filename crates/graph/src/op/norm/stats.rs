//! Batch norm in two parts, for those who look at the statistics before they normalise.

use super::batch::{BatchNormGrad, batch_sizes};
use super::{Parameters, expect_channels};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use crate::op::{Backward, Cost, Io, OpDef, Reference, Types, expect_floats, expect_inputs};
use crate::{match_float, op_attrs};
use plimsoll_kernels::channel_norm;
use plimsoll_tensor::TensorType;

/// Mean and variance `[channels]` of each channel (last axis), taken over all other axes.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchStats;

op_attrs!(BatchStats = "batch_stats" {});

impl OpDef for BatchStats {
    fn name(&self) -> &'static str {
        "batch_stats"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        expect_floats(inputs)?;
        let (_, channels) = batch_sizes(&inputs[0])?;
        Ok(vec![TensorType::new(inputs[0].dtype, [channels]); 2])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        b.by_formula(|g, inputs| {
            let axes: Vec<usize> = (0..g.shape(inputs[0]).rank() - 1).collect();
            let mean = g.mean(inputs[0], &axes, false)?;
            let centred = g.sub(inputs[0], mean)?;
            let squares = g.square(centred)?;
            Ok(vec![mean, g.mean(squares, &axes, false)?])
        })
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 4 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        let (rows, channels) = batch_sizes(&types.inputs[0]).expect("checked by `infer`");
        channel_norm::batch_norm_scratch(rows, channels) * types.inputs[0].dtype.size()
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(io.in_ty(0).dtype, T => {
            let (mean, variance) = (io.output::<T>(0), io.output::<T>(1));
            channel_norm::batch_stats(io.pool(), io.input(0), mean, variance, io.workspace());
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let [mut mean, mut variance] = [0, 1].map(|i| Reference::zeros(outputs[i]));
        channel_norm::batch_stats_naive(&inputs[0].data, &mut mean.data, &mut variance.data);
        Ok(vec![mean, variance])
    }
}

/// [`BatchNorm`](super::BatchNorm) with statistics that [`BatchStats`] has found: takes `x`, its mean and variance, and those of
/// scale and offset that there are; gives `y`.
///
/// They are functions of `x`: the gradient of `x` is the whole of it, by way of the statistics too, and these have none of their
/// own from here.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormWith {
    /// Added to the variance.
    pub epsilon: f64,
    /// There is a scale.
    pub scale: bool,
    /// There is an offset.
    pub offset: bool,
}

op_attrs!(BatchNormWith = "batch_norm_with" { epsilon, scale, offset });

/// Where the parameters stand: after `x`, mean and variance.
const PARAMETERS: usize = 3;

impl BatchNormWith {
    fn parameters(&self) -> Parameters {
        Parameters { scale: self.scale, offset: self.offset }
    }
}

impl OpDef for BatchNormWith {
    fn name(&self) -> &'static str {
        "batch_norm_with"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, PARAMETERS + self.parameters().count())?;
        expect_floats(inputs)?;
        batch_sizes(&inputs[0])?;
        expect_channels(&inputs[0], &inputs[1..])?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let op = BatchNormGrad { epsilon: self.epsilon, scale: self.scale };
        let mut inputs = vec![b.inputs[0]];
        inputs.extend(self.scale.then(|| b.inputs[PARAMETERS]));
        inputs.extend([b.inputs[1], b.inputs[2], b.dy()]);
        let [dx, dscale, doffset] = b.graph.push(op, &inputs)?[..] else { unreachable!("it has three outputs") };
        let mut grads = vec![Some(dx), None, None];
        grads.extend(self.scale.then_some(Some(dscale)));
        grads.extend(self.offset.then_some(Some(doffset)));
        Ok(grads)
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 4 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        let (rows, channels) = batch_sizes(&types.inputs[0]).expect("checked by `infer`");
        channel_norm::batch_norm_scratch(rows, channels) * types.inputs[0].dtype.size()
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        (input, output) == (0, 0)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(io.in_ty(0).dtype, T => {
            let [scale, offset] = self.parameters().places(PARAMETERS).map(|place| place.map(|i| io.input::<T>(i)));
            let (x, mean, variance) = (io.source::<T>(0, 0), io.input::<T>(1), io.input::<T>(2));
            let (y, scratch) = (io.output::<T>(0), io.workspace());
            channel_norm::batch_norm(io.pool(), x, mean, variance, self.epsilon, scale, offset, y, scratch);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let [scale, offset] = self.parameters().places(PARAMETERS).map(|place| place.map(|i| &inputs[i].data[..]));
        let mut y = Reference::zeros(outputs[0]);
        let (x, mean, variance) = (&inputs[0].data, &inputs[1].data, &inputs[2].data);
        channel_norm::batch_norm_naive(x, mean, variance, self.epsilon, scale, offset, &mut y.data);
        Ok(vec![y])
    }
}
