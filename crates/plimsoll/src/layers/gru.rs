//! Gated recurrent units.

use super::recurrent::{Recurrent, Run, Sequence, StateDropout, States, Walk, drop_features, extent, unroll};
use super::{Activation, Layer, positive};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::Shape;

/// Gated recurrent units (Cho et al., 2014), step by step, with the gates side by side in the order z, r, g:
///
/// ```text
/// [xz, xr, xg] = x W + b[0]        [hz, hr, hg] = h R + b[1]
/// z = sigmoid(xz + hz)             r = sigmoid(xr + hr)
/// g = tanh(xg + r hg)
/// h' = z h + (1 - z) g
/// ```
///
/// The output and the state are `h'`. With [`GRU::reset_before`] the reset gate acts before the product: `g = tanh(xg + (r h) Rg)`, and
/// there is one bias.
///
/// # Shapes
/// - inputs `x [batch, steps, features]` and, optionally, a state `[batch, units]` and a bool mask `[batch, steps]`
/// - output `[batch, units]`, or `[batch, steps, units]` with [`GRU::return_sequences`]
/// - weights `kernel [features, 3 units]`, `recurrent_kernel [units, 3 units]`, `bias [2, 3 units]` (reset before: `[3 units]`)
#[derive(Clone, Debug, PartialEq)]
pub struct GRU {
    units: usize,
    activation: Activation,
    recurrent_activation: Activation,
    bias: bool,
    reset_after: bool,
    return_sequences: bool,
    go_backwards: bool,
    dropout: f64,
    recurrent_dropout: f64,
    kernel_init: Initializer,
    recurrent_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

impl GRU {
    /// A layer with this many units.
    pub fn new(units: usize) -> GRU {
        GRU {
            units,
            activation: Activation::Tanh,
            recurrent_activation: Activation::Sigmoid,
            bias: true,
            reset_after: true,
            return_sequences: false,
            go_backwards: false,
            dropout: 0.0,
            recurrent_dropout: 0.0,
            kernel_init: Initializer::GlorotUniform,
            recurrent_init: Initializer::Orthogonal,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With this function in place of tanh.
        activation: Activation;
        /// With this function in place of the gates' sigmoid.
        recurrent_activation: Activation;
        /// Without a bias.
        no_bias => bias = false;
        /// With the reset gate acting on the state before the product with the recurrent kernel, as in the first paper.
        reset_before => reset_after = false;
        /// With the outputs of all steps.
        return_sequences => return_sequences = true;
        /// From the last step to the first; outputs of all steps come in that order too.
        go_backwards => go_backwards = true;
        /// With this part of the features left out while training, the same at every step.
        dropout: f64;
        /// With this part of the state left out while training, the same at every step.
        recurrent_dropout: f64;
        /// With these initial values of the kernel.
        kernel_init: Initializer;
        /// With these initial values of the recurrent kernel.
        recurrent_init: Initializer;
        /// With these initial values of the bias.
        bias_init: Initializer;
    }

    /// The biases of the inputs' and of the state's product.
    fn biases(&self, t: &mut Trace<'_>) -> Result<(Option<Value>, Option<Value>), Error> {
        let width = 3 * self.units;
        if !self.bias {
            return Ok((None, None));
        }
        if !self.reset_after {
            return Ok((Some(t.weight("bias", [width], self.bias_init.clone())?), None));
        }
        let both = t.weight("bias", [2, width], self.bias_init.clone())?;
        let mut row = |i| {
            let row = t.slice_axis(both, 0, i, 1)?;
            Ok::<_, Error>(t.reshape(row, [width])?)
        };
        Ok((Some(row(0)?), Some(row(1)?)))
    }

    /// The state after a step whose part of the gates that comes from the inputs is `x`.
    fn step(&self, t: &mut Trace<'_>, x: Value, states: &States, p: &Parts) -> Result<Value, Error> {
        let units = self.units;
        let gates = t.split(x, 1, 3)?;
        let state = match states {
            Some(states) => Some((states[0], p.drop.apply(t, states[0])?)),
            None => None,
        };
        // The product with those columns of the recurrent kernel that do not wait for the reset gate.
        let early = if self.reset_after { 3 * units } else { 2 * units };
        let mut product = None;
        if let Some((_, h)) = state {
            let kernel = if self.reset_after { p.recurrent } else { t.slice_axis(p.recurrent, 1, 0, early)? };
            product = Some(t.matmul(h, kernel)?);
        }
        if let Some(bias) = p.recurrent_bias {
            product = Some(match product {
                Some(product) => t.add(product, bias)?,
                None => t.reshape(bias, [1, early])?,
            });
        }
        let from_state = match product {
            Some(product) => t.split(product, 1, early / units)?.into_iter().map(Some).collect(),
            None => vec![None; 3],
        };
        let plus = |t: &mut Trace<'_>, x: Value, h: Option<Value>| match h {
            Some(h) => t.add(x, h),
            None => Ok(x),
        };
        let z = plus(t, gates[0], from_state[0])?;
        let z = self.recurrent_activation.apply(t, z)?;
        let r = plus(t, gates[1], from_state[1])?;
        let r = self.recurrent_activation.apply(t, r)?;
        let late = match (self.reset_after, state) {
            (true, _) => match from_state[2] {
                Some(g) => Some(t.mul(r, g)?),
                None => None,
            },
            (false, Some((_, h))) => {
                let reset = t.mul(r, h)?;
                let kernel = t.slice_axis(p.recurrent, 1, early, units)?;
                Some(t.matmul(reset, kernel)?)
            }
            (false, None) => None,
        };
        let g = plus(t, gates[2], late)?;
        let g = self.activation.apply(t, g)?;
        // z h + (1 - z) g
        Ok(match state {
            Some((h, _)) => {
                let difference = t.sub(h, g)?;
                let part = t.mul(z, difference)?;
                t.add(g, part)?
            }
            None => {
                let part = t.mul(z, g)?;
                t.sub(g, part)?
            }
        })
    }
}

/// What every step reads.
struct Parts {
    recurrent: Value,
    recurrent_bias: Option<Value>,
    drop: StateDropout,
}

impl Recurrent for GRU {
    fn run(&self, t: &mut Trace<'_>, sequence: &Sequence) -> Result<Run, Error> {
        let (kind, units) = ("gru", self.units);
        positive(t, kind, "units", units)?;
        let extent = extent(t, kind, sequence, units, 1)?;
        let kernel = t.weight("kernel", [extent.features, 3 * units], self.kernel_init.clone())?;
        let recurrent = t.weight("recurrent_kernel", [units, 3 * units], self.recurrent_init.clone())?;
        let (bias, recurrent_bias) = self.biases(t)?;
        let x = drop_features(t, kind, sequence.x, self.dropout)?;
        let mut inputs = t.matmul(x, kernel)?;
        if let Some(bias) = bias {
            inputs = t.add(inputs, bias)?;
        }
        let drop = StateDropout::new(t, kind, self.recurrent_dropout, Shape::new(&[extent.batch, units]))?;
        let parts = Parts { recurrent, recurrent_bias, drop };
        let backwards = self.go_backwards != sequence.reverse;
        let walk = Walk { sequence, extent, backwards, give_sequences: self.return_sequences };
        unroll(t, &walk, inputs, |t, x, states| Ok(vec![self.step(t, x, states, &parts)?]))
    }

    fn gives_sequences(&self) -> bool {
        self.return_sequences
    }
}

impl Layer for GRU {
    identity!("gru");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let sequence = Sequence::from_inputs(t, "gru", inputs)?;
        Ok(self.run(t, &sequence)?.output)
    }
}
