//! Batch norm.

use super::{Parameters, expect_channels, normal_gradient, sum_rows, with_parameters};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op::softmax::last_axis;
use crate::op::{Backward, Cost, Io, OpDef, Reference, Types, expect_floats, expect_inputs};
use crate::{match_float, op_attrs};
use plimsoll_kernels::channel_norm;
use plimsoll_tensor::TensorType;

/// Batch norm with the batch's own statistics: `y = (x - mean) / sqrt(variance + epsilon) * scale + offset` for each
/// channel (last axis), mean and variance taken over all other axes.
///
/// Takes `x` and those of scale and offset that there are; gives `y`, and mean and variance `[channels]`, from which a layer
/// brings its running statistics up to date. It needs the whole batch at once, and says so in its split rule.
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

/// Rows and channels.
pub(super) fn batch_sizes(x: &TensorType) -> Result<(usize, usize), String> {
    let channels = last_axis(x)?;
    match x.elements() / channels {
        0 => Err(format!("{} has no rows", x.shape)),
        rows => Ok((rows, channels)),
    }
}

impl BatchNorm {
    fn parameters(&self) -> Parameters {
        Parameters { scale: self.scale, offset: self.offset }
    }

    fn formula(&self, g: &mut Graph, inputs: &[Value]) -> Result<Vec<Value>, GraphError> {
        let x = inputs[0];
        let axes: Vec<usize> = (0..g.shape(x).rank() - 1).collect();
        let mean = g.mean(x, &axes, false)?;
        let centred = g.sub(x, mean)?;
        let squares = g.square(centred)?;
        let variance = g.mean(squares, &axes, false)?;
        let shifted = g.shift(variance, self.epsilon)?;
        let rstd = g.rsqrt(shifted)?;
        let n = g.mul(centred, rstd)?;
        let parameters = self.parameters().places(1).map(|place| place.map(|i| inputs[i]));
        Ok(vec![with_parameters(g, n, parameters)?, mean, variance])
    }
}

impl OpDef for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        self.parameters().expect(inputs)?;
        let (_, channels) = batch_sizes(&inputs[0])?;
        let statistic = TensorType::new(inputs[0].dtype, [channels]);
        Ok(vec![inputs[0], statistic, statistic])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        if b.grads[1..].iter().any(Option::is_some) {
            return b.by_formula(|g, inputs| self.formula(g, inputs));
        }
        let op = BatchNormGrad { epsilon: self.epsilon, scale: self.scale };
        let mut inputs = vec![b.inputs[0]];
        inputs.extend(self.scale.then(|| b.inputs[1]));
        inputs.extend([b.outputs[1], b.outputs[2], b.dy()]);
        let [dx, dscale, doffset] = b.graph.push(op, &inputs)?[..] else { unreachable!("it has three outputs") };
        let mut grads = vec![Some(dx)];
        grads.extend(self.scale.then_some(Some(dscale)));
        grads.extend(self.offset.then_some(Some(doffset)));
        Ok(grads)
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 8 * types.inputs[0].elements() as u64, bytes: types.bytes() + types.inputs[0].bytes() as u64 }
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
            let [scale, offset] = self.parameters().places(1).map(|place| place.map(|i| io.input::<T>(i)));
            let (pool, y, mean, variance) = (io.pool(), io.output::<T>(0), io.output::<T>(1), io.output::<T>(2));
            let (x, scratch) = (io.source::<T>(0, 0), io.workspace());
            channel_norm::batch_stats(pool, x.read(y), mean, variance, scratch);
            channel_norm::batch_norm(pool, x, mean, variance, self.epsilon, scale, offset, y, scratch);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let [scale, offset] = self.parameters().places(1).map(|place| place.map(|i| &inputs[i].data[..]));
        let [mut y, mut mean, mut variance] = [0, 1, 2].map(|i| Reference::zeros(outputs[i]));
        let x = &inputs[0].data;
        channel_norm::batch_stats_naive(x, &mut mean.data, &mut variance.data);
        let epsilon = self.epsilon;
        channel_norm::batch_norm_naive(x, &mean.data, &variance.data, epsilon, scale, offset, &mut y.data);
        Ok(vec![y, mean, variance])
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
