//! Long short-term memory.

use super::recurrent::{Recurrent, Run, Sequence, StateDropout, Walk, drop_features, extent, unroll};
use super::{Activation, Layer, positive};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Shape, Tensor};

/// Long short-term memory (Hochreiter and Schmidhuber, 1997), step by step, with the gates side by side in the order
/// i, f, g, o:
///
/// ```text
/// [i, f, g, o] = x W + h R + b
/// c' = sigmoid(f) c + sigmoid(i) tanh(g)
/// h' = sigmoid(o) tanh(c')
/// ```
///
/// The output is `h'`; the states are `h` and `c`.
///
/// # Shapes
/// - inputs `x [batch, steps, features]` and, optionally, states `h, c [batch, units]` and a bool mask `[batch, steps]`
/// - output `[batch, units]`, or `[batch, steps, units]` with [`LSTM::return_sequences`]
/// - weights `kernel [features, 4 units]`, `recurrent_kernel [units, 4 units]`, `bias [4 units]`
///
/// ```
/// use plimsoll::layers::{Dense, LSTM};
/// use plimsoll::model::Model;
/// let model = Model::sequential([100, 8]).layer(LSTM::new(32).return_sequences()).layer(LSTM::new(32)).layer(Dense::new(1));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LSTM {
    units: usize,
    activation: Activation,
    recurrent_activation: Activation,
    bias: bool,
    return_sequences: bool,
    go_backwards: bool,
    dropout: f64,
    recurrent_dropout: f64,
    kernel_init: Initializer,
    recurrent_init: Initializer,
    bias_init: Option<Initializer>,
    name: Option<String>,
}

impl LSTM {
    /// A layer with this many units. The bias of the forget gate starts at 1, the others at 0.
    pub fn new(units: usize) -> LSTM {
        LSTM {
            units,
            activation: Activation::Tanh,
            recurrent_activation: Activation::Sigmoid,
            bias: true,
            return_sequences: false,
            go_backwards: false,
            dropout: 0.0,
            recurrent_dropout: 0.0,
            kernel_init: Initializer::GlorotUniform,
            recurrent_init: Initializer::Orthogonal,
            bias_init: None,
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

    /// Zeros, but ones for the forget gate: at first everything is remembered.
    fn forget_ones(&self) -> Initializer {
        let values: Vec<f64> = (0..4 * self.units).map(|i| (i / self.units == 1) as u8 as f64).collect();
        let tensor = Tensor::from_f64(DType::F32, [4 * self.units], &values);
        Initializer::Values(tensor.expect("as many values as the shape says"))
    }
}

impl Recurrent for LSTM {
    fn run(&self, t: &mut Trace<'_>, sequence: &Sequence) -> Result<Run, Error> {
        let (kind, units) = ("lstm", self.units);
        positive(t, kind, "units", units)?;
        let extent = extent(t, kind, sequence, units, 2)?;
        let kernel = t.weight("kernel", [extent.features, 4 * units], self.kernel_init.clone())?;
        let recurrent = t.weight("recurrent_kernel", [units, 4 * units], self.recurrent_init.clone())?;
        let x = drop_features(t, kind, sequence.x, self.dropout)?;
        let mut inputs = t.matmul(x, kernel)?;
        if self.bias {
            let init = self.bias_init.clone().unwrap_or_else(|| self.forget_ones());
            let bias = t.weight("bias", [4 * units], init)?;
            inputs = t.add(inputs, bias)?;
        }
        let drop = StateDropout::new(t, kind, self.recurrent_dropout, Shape::new(&[extent.batch, units]))?;
        let backwards = self.go_backwards != sequence.reverse;
        let walk = Walk { sequence, extent, backwards, give_sequences: self.return_sequences };
        unroll(t, &walk, inputs, |t, x, states| {
            let sums = match states {
                None => x,
                Some(states) => {
                    let h = drop.apply(t, states[0])?;
                    let h = t.matmul(h, recurrent)?;
                    t.add(x, h)?
                }
            };
            let gates = t.split(sums, 1, 4)?;
            let i = self.recurrent_activation.apply(t, gates[0])?;
            let g = self.activation.apply(t, gates[2])?;
            let mut c = t.mul(i, g)?;
            if let Some(states) = states {
                let f = self.recurrent_activation.apply(t, gates[1])?;
                let kept = t.mul(f, states[1])?;
                c = t.add(kept, c)?;
            }
            let o = self.recurrent_activation.apply(t, gates[3])?;
            let h = self.activation.apply(t, c)?;
            Ok(vec![t.mul(o, h)?, c])
        })
    }

    fn gives_sequences(&self) -> bool {
        self.return_sequences
    }
}

impl Layer for LSTM {
    identity!("lstm");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let sequence = Sequence::from_inputs(t, "lstm", inputs)?;
        Ok(self.run(t, &sequence)?.output)
    }
}
