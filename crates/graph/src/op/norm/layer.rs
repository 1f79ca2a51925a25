//! Layer norm and RMS norm.

use super::{
    Parameters, expect_channels, expect_shape, gradients, normal_gradient, split_sums, sum_rows, with_parameters,
};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op::softmax::{last_axis, rows_of, split_rows};
use crate::op::{
    Backward, Cost, Exact, Io, OpDef, Reference, Types, expect_floats, expect_inputs, is_outermost, whole_chunks,
};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::norm;
use plimsoll_tensor::TensorType;

/// Layer norm `y = (x - mean) * rstd * scale + offset` over the last axis, or RMS norm, which does not subtract the mean.
///
/// Takes `x` and those of scale and offset that there are; gives `y`, the rows' means (layer norm only) and `rstd`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub epsilon: f64,
    /// The mean is subtracted: layer norm, not RMS norm.
    pub centred: bool,
    /// There is a scale.
    pub scale: bool,
    /// There is an offset (layer norm only).
    pub offset: bool,
}

op_attrs!(LayerNorm = "layer_norm" { epsilon, centred, scale, offset });

impl LayerNorm {
    fn parameters(&self) -> Parameters {
        Parameters { scale: self.scale, offset: self.offset }
    }

    fn formula(&self, g: &mut Graph, inputs: &[Value]) -> Result<Vec<Value>, GraphError> {
        let x = inputs[0];
        let shape = g.shape(x);
        let (last, rows) = ([shape.rank() - 1], rows_of(&shape));
        let mut outputs = Vec::new();
        let mut centred = x;
        if self.centred {
            let mean = g.mean(x, &last, true)?;
            centred = g.sub(x, mean)?;
            outputs.push(g.reshape(mean, rows)?);
        }
        let squares = g.square(centred)?;
        let variance = g.mean(squares, &last, true)?;
        let shifted = g.shift(variance, self.epsilon)?;
        let rstd = g.rsqrt(shifted)?;
        outputs.push(g.reshape(rstd, rows)?);
        let n = g.mul(centred, rstd)?;
        let parameters = self.parameters().places(1).map(|place| place.map(|i| inputs[i]));
        outputs.insert(0, with_parameters(g, n, parameters)?);
        Ok(outputs)
    }
}

impl OpDef for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        if self.offset && !self.centred {
            return Err("has no offset when not centred".into());
        }
        self.parameters().expect(inputs)?;
        let statistic = TensorType::new(inputs[0].dtype, rows_of(&inputs[0].shape));
        Ok([vec![inputs[0]], vec![statistic; 1 + self.centred as usize]].concat())
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        if b.grads[1..].iter().any(Option::is_some) {
            return b.by_formula(|g, inputs| self.formula(g, inputs));
        }
        let op = LayerNormGrad { centred: self.centred, scale: self.scale, offset: self.offset };
        let mut inputs = vec![b.inputs[0]];
        inputs.extend(self.scale.then(|| b.inputs[1]));
        inputs.extend(&b.outputs[1..]);
        inputs.push(b.dy());
        Ok(b.graph.push(op, &inputs)?.into_iter().map(Some).collect())
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let rows = split_rows(&inputs[..1], types.inputs[0].shape.rank() - 1);
        let parameters = inputs[1..].iter().all(|s| *s == Split::Whole);
        vec![if parameters { rows } else { Split::Mixed }; types.outputs.len()]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 8 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        (input, output) == (0, 0)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let [scale, offset] = self.parameters().places(1);
        match_float!(io.in_ty(0).dtype, T => {
            let [scale, offset] = [scale, offset].map(|place| place.map(|i| io.input::<T>(i)));
            let (pool, x, y) = (io.pool(), io.source::<T>(0, 0), io.output(0));
            if self.centred {
                norm::layer_norm(pool, x, scale, offset, self.epsilon, y, io.output(1), io.output(2));
            } else {
                norm::rms_norm(pool, x, scale, self.epsilon, y, io.output(1));
            }
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let [scale, offset] = self.parameters().places(1).map(|place| place.map(|i| &inputs[i].data[..]));
        let mut out: Vec<Reference> = outputs.iter().map(|&ty| Reference::zeros(ty)).collect();
        let x = &inputs[0].data;
        match &mut out[..] {
            [y, mean, rstd] => {
                let (y, mean, rstd) = (&mut y.data, &mut mean.data, &mut rstd.data);
                norm::layer_norm_naive(x, scale, offset, self.epsilon, y, mean, rstd);
            }
            [y, rrms] => norm::rms_norm_naive(x, scale, self.epsilon, &mut y.data, &mut rrms.data),
            _ => unreachable!("`infer` gives two or three outputs"),
        }
        Ok(out)
    }
}

/// The gradient of [`LayerNorm`]: takes `x`, the scale if there is one, the statistics and `dy`; gives `dx` and the
/// gradients of those of scale and offset that there are.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormGrad {
    /// Of layer norm, not RMS norm.
    pub centred: bool,
    /// There is a scale.
    pub scale: bool,
    /// There is an offset.
    pub offset: bool,
}

op_attrs!(LayerNormGrad = "layer_norm_grad" { centred, scale, offset });

impl LayerNormGrad {
    /// Places of scale, mean, rstd and dy among the inputs.
    fn places(&self) -> (Option<usize>, Option<usize>, usize, usize) {
        let first = 1 + self.scale as usize;
        let rstd = first + self.centred as usize;
        (self.scale.then_some(1), self.centred.then_some(first), rstd, rstd + 1)
    }

    fn outputs(&self) -> Parameters {
        Parameters { scale: self.scale, offset: self.offset }
    }
}

impl OpDef for LayerNormGrad {
    fn name(&self) -> &'static str {
        "layer_norm_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let (scale, _, rstd, dy) = self.places();
        expect_inputs(inputs, dy + 1)?;
        expect_floats(inputs)?;
        let x = &inputs[0];
        let parameter = TensorType::new(x.dtype, [last_axis(x)?]);
        expect_channels(x, &scale.map_or(vec![], |i| vec![inputs[i]]))?;
        expect_shape(x, &inputs[1 + self.scale as usize..=rstd], rows_of(&x.shape))?;
        if inputs[dy].shape != x.shape {
            return Err(format!("shapes differ: {} and {}", x.shape, inputs[dy].shape));
        }
        Ok([vec![*x], vec![parameter; self.outputs().count()]].concat())
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (scale, mean, rstd, dy) = self.places();
        b.by_formula(|g, inputs| {
            let x = inputs[0];
            let shape = g.shape(x);
            let last = shape.rank() - 1;
            let mut column = shape;
            column.dims_mut()[last] = 1;
            let (rstd, dy) = (g.reshape(inputs[rstd], column)?, inputs[dy]);
            let mut n = x;
            if let Some(mean) = mean {
                let mean = g.reshape(inputs[mean], column)?;
                n = g.sub(x, mean)?;
            }
            n = g.mul(n, rstd)?;
            let dn = scale.map_or(Ok(dy), |scale| g.mul(dy, inputs[scale]))?;
            let mut outputs = vec![normal_gradient(g, dn, n, rstd, &[last], self.centred)?];
            if self.scale {
                let products = g.mul(dy, n)?;
                outputs.push(sum_rows(g, products)?);
            }
            if self.offset {
                outputs.push(sum_rows(g, dy)?);
            }
            Ok(outputs)
        })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let scale = self.places().0;
        let of_rows: Vec<Split> = (0..inputs.len()).filter(|&i| Some(i) != scale).map(|i| inputs[i]).collect();
        let rows = split_rows(&of_rows, types.inputs[0].shape.rank() - 1);
        split_sums(rows, scale.map(|i| inputs[i]), types.outputs.len())
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, batch: usize) -> Exact {
        let rows = types.inputs[self.places().2].elements();
        match inputs[0] {
            Split::Axis(axis) if types.outputs.len() > 1 => match is_outermost(&types.inputs[0].shape, axis) {
                true => whole_chunks(norm::CHUNK_ROWS, rows / batch),
                false => Exact::NONE,
            },
            _ => Exact::ANY,
        }
    }

    fn adds(&self) -> bool {
        true
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 14 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        let (x, rows) = (&types.inputs[0], types.inputs[self.places().2].elements());
        norm::layer_norm_grad_scratch(rows, last_axis(x).expect("checked by `infer`")) * x.dtype.size()
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        (input, output) == (self.places().3, 0)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let (scale, mean, rstd, dy) = self.places();
        let [dscale, doffset] = self.outputs().places(1);
        match_float!(io.in_ty(0).dtype, T => {
            let [scale, mean] = [scale, mean].map(|place| place.map(|i| io.input::<T>(i)));
            let [dscale, doffset] = [dscale, doffset].map(|place| place.map(|i| io.output::<T>(i)));
            let (pool, x, rstd, scratch) = (io.pool(), io.input(0), io.input(rstd), io.workspace());
            let (dy, dx, into) = (io.source(dy, 0), io.output(0), io.into());
            match mean {
                Some(mean) => norm::layer_norm_grad(pool, x, scale, mean, rstd, dy, dx, dscale, doffset, into, scratch),
                None => norm::rms_norm_grad(pool, x, scale, rstd, dy, dx, dscale, into, scratch),
            }
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let (scale, mean, rstd, dy) = self.places();
        let [scale, mean] = [scale, mean].map(|place| place.map(|i| &inputs[i].data[..]));
        let (x, rstd, dy) = (&inputs[0].data, &inputs[rstd].data, &inputs[dy].data);
        let channels = last_axis(&outputs[0]).expect("checked by `infer`");
        let (mut dx, mut ds, mut do_) = (Reference::zeros(outputs[0]), vec![0.0; channels], vec![0.0; channels]);
        match mean {
            Some(mean) => norm::layer_norm_grad_naive(x, scale, mean, rstd, dy, &mut dx.data, &mut ds, &mut do_),
            None => norm::rms_norm_grad_naive(x, scale, rstd, dy, &mut dx.data, &mut ds),
        }
        Ok(gradients(dx, ds, do_, self.outputs(), outputs))
    }
}
