//! The gradient of batch norm.

use super::{expect_channels, normal_gradient, sum_rows};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use crate::op::softmax::last_axis;
use crate::op::{Backward, Cost, Io, OpDef, Reference, Types, expect_floats, expect_inputs};
use crate::{match_float, op_attrs};
use plimsoll_kernels::channel_norm;
use plimsoll_tensor::TensorType;

/// Rows and channels.
pub(super) fn batch_sizes(x: &TensorType) -> Result<(usize, usize), String> {
    let channels = last_axis(x)?;
    match x.elements() / channels {
        0 => Err(format!("{} has no rows", x.shape)),
        rows => Ok((rows, channels)),
    }
}

/// The gradient of [`BatchNorm`](super::BatchNorm): takes `x`, the scale if there is one, mean, variance and `dy`; gives `dx` and the
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
