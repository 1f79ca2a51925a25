//! Batch norm in two parts: the statistics, and what is done with them.

use super::{Parameters, expect_channels, normal_gradient, sum_rows};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op::softmax::last_axis;
use crate::op::{Backward, Cost, Io, OpDef, Reference, Types, expect_floats, expect_inputs};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::channel_norm;
use plimsoll_tensor::TensorType;

/// Rows and channels.
fn batch_sizes(x: &TensorType) -> Result<(usize, usize), String> {
    let channels = last_axis(x)?;
    match x.elements() / channels {
        0 => Err(format!("{} has no rows", x.shape)),
        rows => Ok((rows, channels)),
    }
}

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

/// The result of batch norm, which was computed element by element from `x` and its statistics, with the gradient of the whole.
///
/// Takes `y`, `x`, the mean and the variance that [`BatchStats`] has found of it, and those of scale and offset that there are; gives `y`.
/// The statistics are functions of `x`: the gradient of `x` is the whole of it, by way of the statistics too, and these have none of
/// their own from here. What is planned has the element-wise ops alone: they are fused with what follows, and when `y` is computed
/// again its statistics are not.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub epsilon: f64,
    /// There is a scale.
    pub scale: bool,
    /// There is an offset.
    pub offset: bool,
}

op_attrs!(BatchNorm = "batch_norm" { epsilon, scale, offset });

/// Where the parameters stand: after `y`, `x`, mean and variance.
const PARAMETERS: usize = 4;

impl BatchNorm {
    /// `y`, of `x`, its mean and variance, and scale and offset.
    pub(super) fn formula(
        &self,
        g: &mut Graph,
        x: Value,
        [mean, variance]: [Value; 2],
        [scale, offset]: [Option<Value>; 2],
    ) -> Result<Value, GraphError> {
        let shifted = g.shift(variance, self.epsilon)?;
        let rstd = g.rsqrt(shifted)?;
        let slope = scale.map_or(Ok(rstd), |scale| g.mul(rstd, scale))?;
        let centred = g.sub(x, mean)?;
        let scaled = g.mul(centred, slope)?;
        offset.map_or(Ok(scaled), |offset| g.add(scaled, offset))
    }
}

impl OpDef for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let parameters = Parameters { scale: self.scale, offset: self.offset };
        expect_inputs(inputs, PARAMETERS + parameters.count())?;
        expect_floats(inputs)?;
        let (y, x) = (&inputs[0], &inputs[1]);
        if y.shape != x.shape {
            return Err(format!("shapes differ: {} and {}", y.shape, x.shape));
        }
        batch_sizes(x)?;
        expect_channels(x, &inputs[2..])?;
        Ok(vec![*y])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let op = BatchNormGrad { epsilon: self.epsilon, scale: self.scale };
        let mut inputs = vec![b.inputs[1]];
        inputs.extend(self.scale.then(|| b.inputs[PARAMETERS]));
        inputs.extend([b.inputs[2], b.inputs[3], b.dy()]);
        let [dx, dscale, doffset] = b.graph.push(op, &inputs)?[..] else { unreachable!("it has three outputs") };
        let mut grads = vec![None, Some(dx), None, None];
        grads.extend(self.scale.then_some(Some(dscale)));
        grads.extend(self.offset.then_some(Some(doffset)));
        Ok(grads)
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        inputs[..1].to_vec()
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        io.pass_on();
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![inputs[0].clone()])
    }
}

/// The gradient of [`BatchNorm`]: takes `x`, the scale if there is one, mean, variance and `dy`; gives `dx` and the
/// gradients of scale and offset, which it needs itself.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormGrad {
    /// Added to the variance.
    pub epsilon: f64,
    /// There is a scale.
    pub scale: bool,
}

op_attrs!(BatchNormGrad = "batch_norm_grad" { epsilon, scale });

impl BatchNormGrad {
    /// Places of mean, variance and dy among the inputs.
    fn places(&self) -> (usize, usize, usize) {
        let first = 1 + self.scale as usize;
        (first, first + 1, first + 2)
    }
}

impl OpDef for BatchNormGrad {
    fn name(&self) -> &'static str {
        "batch_norm_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let dy = self.places().2;
        expect_inputs(inputs, dy + 1)?;
        expect_floats(inputs)?;
        let x = &inputs[0];
        let (_, channels) = batch_sizes(x)?;
        expect_channels(x, &inputs[1..dy])?;
        if inputs[dy].shape != x.shape {
            return Err(format!("shapes differ: {} and {}", x.shape, inputs[dy].shape));
        }
        let parameter = TensorType::new(x.dtype, [channels]);
        Ok(vec![*x, parameter, parameter])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (mean, variance, dy) = self.places();
        b.by_formula(|g, inputs| {
            let axes: Vec<usize> = (0..g.shape(inputs[0]).rank() - 1).collect();
            let centred = g.sub(inputs[0], inputs[mean])?;
            let shifted = g.shift(inputs[variance], self.epsilon)?;
            let rstd = g.rsqrt(shifted)?;
            let n = g.mul(centred, rstd)?;
            let dn = if self.scale { g.mul(inputs[dy], inputs[1])? } else { inputs[dy] };
            let dx = normal_gradient(g, dn, n, rstd, &axes, true)?;
            let products = g.mul(inputs[dy], n)?;
            Ok(vec![dx, sum_rows(g, products)?, sum_rows(g, inputs[dy])?])
        })
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost {
            flops: 14 * types.inputs[0].elements() as u64,
            bytes: types.bytes() + 2 * types.inputs[0].bytes() as u64,
        }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        let (rows, channels) = batch_sizes(&types.inputs[0]).expect("checked by `infer`");
        channel_norm::batch_norm_scratch(rows, channels) * types.inputs[0].dtype.size()
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        (input, output) == (self.places().2, 0)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let (mean, variance, dy) = self.places();
        match_float!(io.in_ty(0).dtype, T => {
            let scale = self.scale.then(|| io.input::<T>(1));
            let (pool, x, mean, variance) = (io.pool(), io.input(0), io.input(mean), io.input(variance));
            let (dy, dx, ds, do_) = (io.source(dy, 0), io.output(0), io.output(1), io.output(2));
            let (epsilon, scratch) = (self.epsilon, io.workspace());
            channel_norm::batch_norm_grad(pool, x, mean, variance, epsilon, scale, dy, dx, ds, do_, scratch);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let (mean, variance, dy) = self.places();
        let scale = self.scale.then(|| &inputs[1].data[..]);
        let (x, mean, variance, dy) = (&inputs[0].data, &inputs[mean].data, &inputs[variance].data, &inputs[dy].data);
        let [mut dx, mut ds, mut do_] = [0, 1, 2].map(|i| Reference::zeros(outputs[i]));
        let out = (&mut dx.data, &mut ds.data, &mut do_.data);
        channel_norm::batch_norm_grad_naive(x, mean, variance, self.epsilon, scale, dy, out.0, out.1, out.2);
        Ok(vec![dx, ds, do_])
    }
}
