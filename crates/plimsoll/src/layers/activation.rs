//! Activation functions, on their own or inside another layer.

use super::{Layer, single};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// An element-wise function (softmax: over the last axis) between layers, as Keras names and defines them.
///
/// # Shapes
/// Input and output `[batch, ..]`.
///
/// ```
/// use plimsoll::layers::{Activation, Dense};
/// let layer = Dense::new(10).activation(Activation::Softmax);
/// assert_eq!(Activation::from_name("swish")?, Activation::Silu);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[non_exhaustive]
pub enum Activation {
    /// The input itself.
    #[default]
    Linear,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x` where positive, elsewhere the slope times `x`. By name the slope is 0.2.
    LeakyRelu(f64),
    /// `x` where positive, elsewhere `alpha (e^x - 1)`. By name `alpha` is 1.
    Elu(f64),
    /// Elu with the constants (alpha 1.673, all times 1.051) that keep mean 0 and variance 1.
    Selu,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `relu6(x + 3) / 6`.
    HardSigmoid,
    /// `ln(1 / (1 + e^-x))`.
    LogSigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `x P(X < x)` for a normal `X`: `x (1 + erf(x / sqrt 2)) / 2`.
    Gelu,
    /// Gelu in its approximate form, `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `x sigmoid(x)`, also called swish.
    Silu,
    /// `x hard_sigmoid(x)`, also called hard swish.
    HardSilu,
    /// `x tanh(softplus(x))`.
    Mish,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
    /// `e^x`.
    Exponential,
    /// `e^x` over its sum along the last axis.
    Softmax,
    /// The logarithm of softmax.
    LogSoftmax,
}

/// The constants of Klambauer et al., "Self-Normalizing Neural Networks", 2017.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

impl Activation {
    /// All names that [`Activation::from_name`] knows.
    pub const NAMES: &'static [&'static str] = &[
        "linear",
        "relu",
        "relu6",
        "leaky_relu",
        "elu",
        "selu",
        "sigmoid",
        "hard_sigmoid",
        "log_sigmoid",
        "tanh",
        "gelu",
        "gelu_tanh",
        "silu",
        "swish",
        "hard_silu",
        "hard_swish",
        "mish",
        "softplus",
        "softsign",
        "exponential",
        "softmax",
        "log_softmax",
    ];

    /// The function that Keras calls so; `gelu_tanh` is gelu in its approximate form.
    ///
    /// # Errors
    /// When there is none.
    pub fn from_name(name: &str) -> Result<Activation, Error> {
        Ok(match name {
            "linear" => Activation::Linear,
            "relu" => Activation::Relu,
            "relu6" => Activation::Relu6,
            "leaky_relu" => Activation::LeakyRelu(0.2),
            "elu" => Activation::Elu(1.0),
            "selu" => Activation::Selu,
            "sigmoid" => Activation::Sigmoid,
            "hard_sigmoid" => Activation::HardSigmoid,
            "log_sigmoid" => Activation::LogSigmoid,
            "tanh" => Activation::Tanh,
            "gelu" | "gelu_erf" => Activation::Gelu,
            "gelu_tanh" => Activation::GeluTanh,
            "silu" | "swish" => Activation::Silu,
            "hard_silu" | "hard_swish" => Activation::HardSilu,
            "mish" => Activation::Mish,
            "softplus" => Activation::Softplus,
            "softsign" => Activation::Softsign,
            "exponential" => Activation::Exponential,
            "softmax" => Activation::Softmax,
            "log_softmax" => Activation::LogSoftmax,
            _ => {
                let message = format!("no function is called '{name}'; there are {}", Activation::NAMES.join(", "));
                return Err(Error::config("activation", message));
            }
        })
    }

    /// Applies the function.
    ///
    /// # Errors
    /// When the value is not floating-point.
    pub fn apply(self, t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
        Ok(match self {
            Activation::Linear => x,
            Activation::Relu => t.relu(x)?,
            Activation::Relu6 => relu6(t, x)?,
            Activation::LeakyRelu(slope) => {
                let below = negative_part(t, x)?;
                let below = t.scale(below, slope)?;
                let above = t.relu(x)?;
                t.add(above, below)?
            }
            Activation::Elu(alpha) => elu(t, x, alpha)?,
            Activation::Selu => {
                let y = elu(t, x, SELU_ALPHA)?;
                t.scale(y, SELU_SCALE)?
            }
            Activation::Sigmoid => t.sigmoid(x)?,
            Activation::HardSigmoid => hard_sigmoid(t, x)?,
            Activation::LogSigmoid => {
                let minus = t.neg(x)?;
                let y = t.softplus(minus)?;
                t.neg(y)?
            }
            Activation::Tanh => t.tanh(x)?,
            Activation::Gelu => {
                let z = t.scale(x, std::f64::consts::FRAC_1_SQRT_2)?;
                let e = t.erf(z)?;
                gated(t, x, e)?
            }
            Activation::GeluTanh => {
                let square = t.square(x)?;
                let factor = t.scale(square, 0.044715)?;
                let factor = t.shift(factor, 1.0)?;
                let z = t.mul(x, factor)?;
                let z = t.scale(z, (2.0 / std::f64::consts::PI).sqrt())?;
                let e = t.tanh(z)?;
                gated(t, x, e)?
            }
            Activation::Silu => {
                let s = t.sigmoid(x)?;
                t.mul(x, s)?
            }
            Activation::HardSilu => {
                let s = hard_sigmoid(t, x)?;
                t.mul(x, s)?
            }
            Activation::Mish => {
                let s = t.softplus(x)?;
                let s = t.tanh(s)?;
                t.mul(x, s)?
            }
            Activation::Softplus => t.softplus(x)?,
            Activation::Softsign => {
                let size = t.abs(x)?;
                let size = t.shift(size, 1.0)?;
                t.div(x, size)?
            }
            Activation::Exponential => t.exp(x)?,
            Activation::Softmax => {
                let last = last_axis(t, x);
                t.softmax(x, last)?
            }
            Activation::LogSoftmax => {
                let last = last_axis(t, x);
                t.log_softmax(x, last)?
            }
        })
    }
}

/// `min(x, 0)`.
fn negative_part(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    let dtype = t.dtype(x);
    let zero = t.constant(0.0, dtype)?;
    Ok(t.minimum(x, zero)?)
}

fn relu6(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    let y = t.relu(x)?;
    let dtype = t.dtype(x);
    let six = t.constant(6.0, dtype)?;
    Ok(t.minimum(y, six)?)
}

fn hard_sigmoid(t: &mut Trace<'_>, x: Value) -> Result<Value, Error> {
    let y = t.shift(x, 3.0)?;
    let y = relu6(t, y)?;
    Ok(t.scale(y, 1.0 / 6.0)?)
}

/// The exponential sees the negative part only: of a large number it would be infinite, and its gradient not a number.
fn elu(t: &mut Trace<'_>, x: Value, alpha: f64) -> Result<Value, Error> {
    let below = negative_part(t, x)?;
    let below = t.expm1(below)?;
    let below = if alpha == 1.0 { below } else { t.scale(below, alpha)? };
    let above = t.relu(x)?;
    Ok(t.add(above, below)?)
}

/// `x (1 + e) / 2`.
fn gated(t: &mut Trace<'_>, x: Value, e: Value) -> Result<Value, Error> {
    let e = t.shift(e, 1.0)?;
    let e = t.scale(e, 0.5)?;
    Ok(t.mul(x, e)?)
}

/// The last axis; an op says so when there is none.
fn last_axis(t: &Trace<'_>, x: Value) -> usize {
    t.shape(x).rank().saturating_sub(1)
}

impl Layer for Activation {
    fn kind(&self) -> &'static str {
        "activation"
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        self.apply(t, single(t, "activation", inputs)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known() {
        for name in Activation::NAMES {
            Activation::from_name(name).unwrap();
        }
        let error = Activation::from_name("relo").unwrap_err().to_string();
        assert!(error.starts_with("activation: no function is called 'relo'; there are linear, relu,"), "{error}");
    }
}
