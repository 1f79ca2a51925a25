//! The plain recurrent layer.

use super::recurrent::{Recurrent, Run, Sequence, StateDropout, Walk, extent, unroll};
use super::{Activation, Layer, positive};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::Shape;

/// `h' = activation(x W + h R + b)`, step by step; the output is `h'`.
///
/// # Shapes
/// - inputs `x [batch, steps, features]` and, optionally, a state `[batch, units]` and a bool mask `[batch, steps]`
/// - output `[batch, units]`, or `[batch, steps, units]` with [`SimpleRNN::return_sequences`]
/// - weights `kernel [features, units]`, `recurrent_kernel [units, units]`, `bias [units]`
#[derive(Clone, Debug, PartialEq)]
pub struct SimpleRNN {
    units: usize,
    activation: Activation,
    bias: bool,
    return_sequences: bool,
    go_backwards: bool,
    dropout: f64,
    recurrent_dropout: f64,
    kernel_init: Initializer,
    recurrent_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

impl SimpleRNN {
    /// A layer with this many units, whose activation is tanh.
    pub fn new(units: usize) -> SimpleRNN {
        SimpleRNN {
            units,
            activation: Activation::Tanh,
            bias: true,
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
        /// With this activation.
        activation: Activation;
        /// Without a bias.
        no_bias => bias = false;
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
}

impl Recurrent for SimpleRNN {
    fn run(&self, t: &mut Trace<'_>, sequence: &Sequence) -> Result<Run, Error> {
        let (kind, units) = ("simple_rnn", self.units);
        positive(t, kind, "units", units)?;
        let extent = extent(t, kind, sequence, units, 1)?;
        let kernel = t.weight("kernel", [extent.features, units], self.kernel_init.clone())?;
        let recurrent = t.weight("recurrent_kernel", [units, units], self.recurrent_init.clone())?;
        let x = super::recurrent::drop_features(t, kind, sequence.x, self.dropout)?;
        let mut inputs = t.matmul(x, kernel)?;
        if self.bias {
            let bias = t.weight("bias", [units], self.bias_init.clone())?;
            inputs = t.add(inputs, bias)?;
        }
        let drop = StateDropout::new(t, kind, self.recurrent_dropout, Shape::new(&[extent.batch, units]))?;
        let backwards = self.go_backwards != sequence.reverse;
        let walk = Walk { sequence, extent, backwards, give_sequences: self.return_sequences };
        unroll(t, &walk, inputs, |t, x, states| {
            let sum = match states {
                None => x,
                Some(states) => {
                    let h = drop.apply(t, states[0])?;
                    let h = t.matmul(h, recurrent)?;
                    t.add(x, h)?
                }
            };
            Ok(vec![self.activation.apply(t, sum)?])
        })
    }

    fn gives_sequences(&self) -> bool {
        self.return_sequences
    }
}

impl Layer for SimpleRNN {
    identity!("simple_rnn");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let sequence = Sequence::from_inputs(t, "simple_rnn", inputs)?;
        Ok(self.run(t, &sequence)?.output)
    }
}
