//! Group norm.

use super::{
    Parameters, expect_channels, expect_shape, gradients, normal_gradient, split_sums, sum_rows, with_parameters,
};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op::softmax::{last_axis, split_rows};
use crate::op::{Backward, Cost, Io, OpDef, Reference, Types, expect_floats, expect_inputs};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::channel_norm;
use plimsoll_tensor::{Shape, TensorType};

/// Group norm: the channels (last axis) of each sample (first axis) are normalised in groups of neighbours, over all axes
/// between: `y = (x - mean) * rstd * scale + offset`.
///
/// Takes `x` `[samples, .., channels]` and those of scale and offset that there are; gives `y`, and mean and rstd
/// `[samples, groups]`.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNorm {
    /// Number of groups.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f64,
    /// There is a scale.
    pub scale: bool,
    /// There is an offset.
    pub offset: bool,
}

op_attrs!(GroupNorm = "group_norm" { groups, epsilon, scale, offset });

/// The kernel's view of `x` `[samples, .., channels]`.
fn group_sizes(x: &TensorType, groups: usize) -> Result<channel_norm::GroupNorm, String> {
    let channels = last_axis(x)?;
    if x.shape.rank() < 2 {
        return Err(format!("takes [samples, .., channels], got {}", x.shape));
    }
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(format!("{channels} channels cannot be put into {groups} groups of one size"));
    }
    let dims = x.dims();
    let positions = dims[1..dims.len() - 1].iter().product();
    if positions == 0 {
        return Err(format!("{} has no positions", x.shape));
    }
    Ok(channel_norm::GroupNorm { samples: dims[0], positions, channels, groups })
}

/// `x` as `[samples, positions, groups, channels of a group]`.
fn by_groups(g: &mut Graph, x: Value, sizes: channel_norm::GroupNorm) -> Result<Value, GraphError> {
    g.reshape(x, [sizes.samples, sizes.positions, sizes.groups, sizes.channels / sizes.groups])
}

impl GroupNorm {
    fn parameters(&self) -> Parameters {
        Parameters { scale: self.scale, offset: self.offset }
    }

    fn formula(&self, g: &mut Graph, inputs: &[Value]) -> Result<Vec<Value>, GraphError> {
        let shape = g.shape(inputs[0]);
        let sizes = group_sizes(g.ty(inputs[0]), self.groups).expect("checked by `infer`");
        let x = by_groups(g, inputs[0], sizes)?;
        let mean = g.mean(x, &[1, 3], true)?;
        let centred = g.sub(x, mean)?;
        let squares = g.square(centred)?;
        let variance = g.mean(squares, &[1, 3], true)?;
        let shifted = g.shift(variance, self.epsilon)?;
        let rstd = g.rsqrt(shifted)?;
        let n = g.mul(centred, rstd)?;
        let n = g.reshape(n, shape)?;
        let parameters = self.parameters().places(1).map(|place| place.map(|i| inputs[i]));
        let statistics = [sizes.samples, sizes.groups];
        Ok(vec![with_parameters(g, n, parameters)?, g.reshape(mean, statistics)?, g.reshape(rstd, statistics)?])
    }
}

impl OpDef for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        self.parameters().expect(inputs)?;
        let sizes = group_sizes(&inputs[0], self.groups)?;
        let statistic = TensorType::new(inputs[0].dtype, [sizes.samples, sizes.groups]);
        Ok(vec![inputs[0], statistic, statistic])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        if b.grads[1..].iter().any(Option::is_some) {
            return b.by_formula(|g, inputs| self.formula(g, inputs));
        }
        let op = GroupNormGrad { groups: self.groups, scale: self.scale, offset: self.offset };
        let mut inputs = vec![b.inputs[0]];
        inputs.extend(self.scale.then(|| b.inputs[1]));
        inputs.extend([b.outputs[1], b.outputs[2], b.dy()]);
        Ok(b.graph.push(op, &inputs)?.into_iter().map(Some).collect())
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        // Samples alone may be cut: statistics run over the other axes.
        let samples = split_rows(&inputs[..1], 1);
        let parameters = inputs[1..].iter().all(|s| *s == Split::Whole);
        vec![if parameters { samples } else { Split::Mixed }; types.outputs.len()]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 8 * types.inputs[0].elements() as u64, bytes: types.bytes() + types.inputs[0].bytes() as u64 }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        let sizes = group_sizes(&types.inputs[0], self.groups).expect("checked by `infer`");
        sizes.scratch() * types.inputs[0].dtype.size()
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        (input, output) == (0, 0)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let sizes = group_sizes(io.in_ty(0), self.groups).expect("checked by `infer`");
        match_float!(io.in_ty(0).dtype, T => {
            let [scale, offset] = self.parameters().places(1).map(|place| place.map(|i| io.input::<T>(i)));
            let (x, y, mean, rstd) = (io.source(0, 0), io.output(0), io.output(1), io.output(2));
            channel_norm::group_norm(io.pool(), sizes, x, scale, offset, self.epsilon, y, mean, rstd, io.workspace());
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let sizes = group_sizes(&inputs[0].ty, self.groups).expect("checked by `infer`");
        let [scale, offset] = self.parameters().places(1).map(|place| place.map(|i| &inputs[i].data[..]));
        let [mut y, mut mean, mut rstd] = [0, 1, 2].map(|i| Reference::zeros(outputs[i]));
        let (x, epsilon) = (&inputs[0].data, self.epsilon);
        let out = (&mut y.data, &mut mean.data, &mut rstd.data);
        channel_norm::group_norm_naive(sizes, x, scale, offset, epsilon, out.0, out.1, out.2);
        Ok(vec![y, mean, rstd])
    }
}

/// The gradient of [`GroupNorm`]: takes `x`, the scale if there is one, mean, rstd and `dy`; gives `dx` and the gradients
/// of those of scale and offset that there are.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNormGrad {
    /// Number of groups.
    pub groups: usize,
    /// There is a scale.
    pub scale: bool,
    /// There is an offset.
    pub offset: bool,
}

op_attrs!(GroupNormGrad = "group_norm_grad" { groups, scale, offset });

impl GroupNormGrad {
    /// Places of mean, rstd and dy among the inputs.
    fn places(&self) -> (usize, usize, usize) {
        let first = 1 + self.scale as usize;
        (first, first + 1, first + 2)
    }

    fn outputs(&self) -> Parameters {
        Parameters { scale: self.scale, offset: self.offset }
    }
}

impl OpDef for GroupNormGrad {
    fn name(&self) -> &'static str {
        "group_norm_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let (mean, _, dy) = self.places();
        expect_inputs(inputs, dy + 1)?;
        expect_floats(inputs)?;
        let x = &inputs[0];
        let sizes = group_sizes(x, self.groups)?;
        expect_channels(x, &inputs[1..mean])?;
        expect_shape(x, &inputs[mean..dy], Shape::from([sizes.samples, sizes.groups]))?;
        if inputs[dy].shape != x.shape {
            return Err(format!("shapes differ: {} and {}", x.shape, inputs[dy].shape));
        }
        let parameter = TensorType::new(x.dtype, [sizes.channels]);
        Ok([vec![*x], vec![parameter; self.outputs().count()]].concat())
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (mean, rstd, dy) = self.places();
        b.by_formula(|g, inputs| {
            let shape = g.shape(inputs[0]);
            let sizes = group_sizes(g.ty(inputs[0]), self.groups).expect("checked by `infer`");
            let statistic = [sizes.samples, 1, sizes.groups, 1];
            let x = by_groups(g, inputs[0], sizes)?;
            let (mean, rstd) = (g.reshape(inputs[mean], statistic)?, g.reshape(inputs[rstd], statistic)?);
            let centred = g.sub(x, mean)?;
            let n = g.mul(centred, rstd)?;
            let dn = if self.scale { g.mul(inputs[dy], inputs[1])? } else { inputs[dy] };
            let dn = by_groups(g, dn, sizes)?;
            let dx = normal_gradient(g, dn, n, rstd, &[1, 3], true)?;
            let mut outputs = vec![g.reshape(dx, shape)?];
            if self.scale {
                let n = g.reshape(n, shape)?;
                let products = g.mul(inputs[dy], n)?;
                outputs.push(sum_rows(g, products)?);
            }
            if self.offset {
                outputs.push(sum_rows(g, inputs[dy])?);
            }
            Ok(outputs)
        })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let scale = self.scale.then(|| inputs[1]);
        let samples: Vec<Split> = (0..inputs.len()).filter(|&i| !(self.scale && i == 1)).map(|i| inputs[i]).collect();
        split_sums(split_rows(&samples, 1), scale, types.outputs.len())
    }

    fn adds(&self) -> bool {
        true
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost {
            flops: 14 * types.inputs[0].elements() as u64,
            bytes: types.bytes() + 2 * types.inputs[0].bytes() as u64,
        }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        let sizes = group_sizes(&types.inputs[0], self.groups).expect("checked by `infer`");
        sizes.scratch() * types.inputs[0].dtype.size()
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        (input, output) == (self.places().2, 0)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let sizes = group_sizes(io.in_ty(0), self.groups).expect("checked by `infer`");
        let (mean, rstd, dy) = self.places();
        match_float!(io.in_ty(0).dtype, T => {
            let scale = self.scale.then(|| io.input::<T>(1));
            let [dscale, doffset] = self.outputs().places(1).map(|place| place.map(|i| io.output::<T>(i)));
            let (pool, x, mean, rstd) = (io.pool(), io.input(0), io.input(mean), io.input(rstd));
            let (dy, dx, into, scratch) = (io.source(dy, 0), io.output(0), io.into(), io.workspace());
            channel_norm::group_norm_grad(pool, sizes, x, scale, mean, rstd, dy, dx, dscale, doffset, into, scratch);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let sizes = group_sizes(&inputs[0].ty, self.groups).expect("checked by `infer`");
        let (mean, rstd, dy) = self.places();
        let scale = self.scale.then(|| &inputs[1].data[..]);
        let (x, mean, rstd, dy) = (&inputs[0].data, &inputs[mean].data, &inputs[rstd].data, &inputs[dy].data);
        let mut dx = Reference::zeros(outputs[0]);
        let (mut ds, mut do_) = (vec![0.0; sizes.channels], vec![0.0; sizes.channels]);
        channel_norm::group_norm_grad_naive(sizes, x, scale, mean, rstd, dy, &mut dx.data, &mut ds, &mut do_);
        Ok(gradients(dx, ds, do_, self.outputs(), outputs))
    }
}
