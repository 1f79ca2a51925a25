//! Optimizers: how weights follow their gradients.
//!
//! An [`Optimizer`] writes the update of one weight into the step; [`apply`] does so for all weights of a model, with
//! what is the same for every optimizer: clipping of gradients, decay of weights, averages of weights
//! ([`UpdateOptions`]). What an optimizer remembers (momentum and the like) are variables named after the weight, such
//! as `adam/dense/kernel/momentum`. Definitions, names and defaults are those of Keras 3.
//!
//! Every weight has an update of its own that needs its own gradient and no other. So a weight can be updated, and its
//! gradient be forgotten, while other gradients are not yet computed; unless gradients are clipped by their global norm,
//! which needs all of them at once.
//!
//! The learning rate and the number of the step are inputs of the step: see [`Hyper`].
//!
//! ```
//! use plimsoll::Tensor;
//! use plimsoll::optimizers::{Sgd, UpdateOptions, evaluate};
//! # fn main() -> Result<(), plimsoll::Error> {
//! let weight = Tensor::from_slice(&[1], &[1.0f32])?;
//! let gradient = Tensor::from_slice(&[1], &[1.0f32])?;
//! // Two steps with the same gradient: by 0.1, then by 0.1 + 0.9 * 0.1.
//! let after = evaluate(&Sgd::new(0.1).momentum(0.9), &UpdateOptions::new(), &weight, &[gradient.clone(), gradient])?;
//! assert!((after[0].to_f64()[0] - 0.9).abs() < 1e-6);
//! assert!((after[1].to_f64()[0] - 0.71).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```

mod adam;
mod adaptive;
mod momentum;
mod update;

pub use adam::{Adam, AdamW, Adamax, Nadam};
pub use adaptive::{Adadelta, Adagrad, RmsProp};
pub use momentum::{Lion, Sgd};
pub use plimsoll_kernels::optimizer::EpsilonForm;
pub use update::{Applied, Clip, Ema, UpdateOptions, apply};

use crate::by_definition::Run;
use crate::error::Error;
use crate::init::Initializer;
use crate::losses::cast_as;
use crate::schedules::Schedule;
use crate::trace::{Mode, Role, Trace};
use plimsoll_graph::Value;
use plimsoll_graph::op::optimizer::StepValues;
use plimsoll_kernels::optimizer::Rule;
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};

/// How a weight follows its gradient.
///
/// ```
/// use plimsoll::optimizers::{Change, Hyper, Optimizer, UpdateOptions, evaluate};
/// use plimsoll::schedules::Schedule;
/// use plimsoll::{Error, Tensor, Trace, Value};
///
/// /// Steps of one length, whatever the gradient's.
/// struct SignDescent(Schedule);
///
/// impl Optimizer for SignDescent {
///     fn name(&self) -> &str { "sign_descent" }
///     fn learning_rate(&self) -> &Schedule { &self.0 }
///     fn update(&self, t: &mut Trace<'_>, change: &Change<'_>, hyper: &Hyper) -> Result<Value, Error> {
///         let weight = change.decayed_weight(t, hyper)?;
///         let gradient = change.scaled_gradient(t)?;
///         let sign = t.sign(gradient)?;
///         let step = t.mul(sign, hyper.learning_rate)?;
///         let new = t.sub(weight, step)?;
///         t.update(change.weight, new)
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let weight = Tensor::from_slice(&[2], &[1.0f32, 1.0])?;
/// let gradient = Tensor::from_slice(&[2], &[0.3f32, -7.0])?;
/// let after = evaluate(&SignDescent(0.5.into()), &UpdateOptions::new(), &weight, &[gradient])?;
/// assert_eq!(after[0].to_f64(), [0.5, 1.5]);
/// # Ok(())
/// # }
/// ```
pub trait Optimizer: Send + Sync {
    /// The name, which the names of its variables begin with.
    fn name(&self) -> &str;

    /// The learning rate over the steps.
    fn learning_rate(&self) -> &Schedule;

    /// Traces the update of one weight and gives its value afterwards.
    ///
    /// # Errors
    /// When weight and gradient do not suit each other.
    fn update(&self, t: &mut Trace<'_>, change: &Change<'_>, hyper: &Hyper) -> Result<Value, Error>;

    /// The decay of weights that belongs to this optimizer, unless [`UpdateOptions::weight_decay`] says otherwise.
    fn weight_decay(&self) -> f64 {
        0.0
    }

    /// Says what is wrong with the settings, if anything is.
    ///
    /// # Errors
    /// With the setting and its value.
    fn check(&self) -> Result<(), Error> {
        self.learning_rate().check()
    }
}

/// What changes from step to step: scalar inputs of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyper {
    /// The learning rate, f32: [`Schedule::at`] of the steps done before this one.
    pub learning_rate: Value,
    /// The number of this step, counted from 1, as f32.
    pub step: Value,
}

/// One weight and what is to become of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change<'a> {
    /// The weight's name.
    pub name: &'a str,
    /// Its value before the update.
    pub weight: Value,
    /// Its gradient.
    pub gradient: Value,
    /// What the gradient has still to be multiplied with, an f32 scalar: to cut its length, say. Done inside the update it
    /// saves a pass over the gradient.
    pub gradient_scale: Option<Value>,
    /// The decay of this weight: before the update, `learning_rate * weight_decay` times itself is taken from it.
    pub weight_decay: f64,
}

impl Change<'_> {
    /// The gradient times [`Change::gradient_scale`].
    ///
    /// # Errors
    /// None today.
    pub fn scaled_gradient(&self, t: &mut Trace<'_>) -> Result<Value, Error> {
        let Some(scale) = self.gradient_scale else { return Ok(self.gradient) };
        let scale = cast_as(t, scale, self.gradient)?;
        Ok(t.mul(self.gradient, scale)?)
    }

    /// The weight after its decay.
    ///
    /// # Errors
    /// None today.
    pub fn decayed_weight(&self, t: &mut Trace<'_>, hyper: &Hyper) -> Result<Value, Error> {
        if self.weight_decay == 0.0 {
            return Ok(self.weight);
        }
        let rate = cast_as(t, hyper.learning_rate, self.weight)?;
        let part = t.scale(rate, self.weight_decay)?;
        let loss = t.mul(self.weight, part)?;
        Ok(t.sub(self.weight, loss)?)
    }
}

/// Traces the update by one of the fused rules, with a variable for each array of its state.
fn update_by(
    t: &mut Trace<'_>,
    optimizer: &str,
    rule: Rule,
    change: &Change<'_>,
    hyper: &Hyper,
) -> Result<Value, Error> {
    let ty = *t.ty(change.weight);
    let init = match rule.initial_state() {
        0.0 => Initializer::Zeros,
        start => Initializer::Constant(start),
    };
    let mut arrays = vec![change.weight];
    for name in rule.state() {
        arrays.push(t.variable(&format!("{optimizer}/{}/{name}", change.name), ty, init.clone(), Role::Moment)?);
    }
    let gradient = cast_as(t, change.gradient, change.weight)?;
    let (learning_rate, number, gradient_scale) = (hyper.learning_rate, hyper.step, change.gradient_scale);
    let step = StepValues { learning_rate, number, gradient_scale };
    let new = t.optimize(rule, arrays[0], &arrays[1..], gradient, step)?;
    for (before, after) in arrays.into_iter().zip(&new) {
        t.replaced(before, *after);
    }
    Ok(new[0])
}

/// Implements [`Optimizer`] for types with a `learning_rate` and a `rule` of the kernels.
macro_rules! by_rule {
    ($($optimizer:ident = $rule:ident, $name:literal, { $($field:ident: $range:ident),* };)*) => {$(
        impl $crate::optimizers::Optimizer for $optimizer {
            fn name(&self) -> &str {
                $name
            }

            fn learning_rate(&self) -> &$crate::schedules::Schedule {
                &self.learning_rate
            }

            fn weight_decay(&self) -> f64 {
                self.rule.weight_decay
            }

            fn update(
                &self,
                t: &mut $crate::Trace<'_>,
                change: &$crate::optimizers::Change<'_>,
                hyper: &$crate::optimizers::Hyper,
            ) -> Result<$crate::Value, $crate::Error> {
                let rule = ::plimsoll_kernels::optimizer::$rule { weight_decay: change.weight_decay, ..self.rule };
                let rule = ::plimsoll_kernels::optimizer::Rule::$rule(rule);
                $crate::optimizers::update_by(t, $name, rule, change, hyper)
            }

            fn check(&self) -> Result<(), $crate::Error> {
                use $crate::optimizers::Range;
                self.learning_rate.check()?;
                $(Range::$range.check($name, stringify!($field), self.rule.$field)?;)*
                Range::Positive.check($name, "weight_decay", self.rule.weight_decay)
            }
        }
    )*};
}
use by_rule;

/// What values a setting can have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Range {
    /// 0 or more.
    Positive,
    /// From 0 to 1, 1 not included: a part that is kept from step to step.
    Part,
}

impl Range {
    fn check(self, what: &str, name: &str, value: f64) -> Result<(), Error> {
        let (fits, wanted) = match self {
            Range::Positive => (value >= 0.0 && value.is_finite(), "a number of at least 0"),
            Range::Part => ((0.0..1.0).contains(&value), "at least 0 and below 1"),
        };
        if fits { Ok(()) } else { Err(Error::config(what, format!("{name} is {value}; it must be {wanted}"))) }
    }
}

/// A weight after each step with these gradients, by the plain definitions of the ops, over f64: for looking at numbers.
///
/// # Errors
/// As [`apply`].
pub fn evaluate(
    optimizer: &dyn Optimizer,
    options: &UpdateOptions,
    weight: &Tensor,
    gradients: &[Tensor],
) -> Result<Vec<Tensor>, Error> {
    let mut run = Run::new();
    run.set("weight", weight.clone());
    let scalar = TensorType::new(DType::F32, Shape::scalar());
    let mut after = Vec::new();
    for (step, gradient) in gradients.iter().enumerate() {
        let rate = optimizer.learning_rate().at(step as u64) as f32;
        let (rate, number) = (Tensor::scalar(rate), Tensor::scalar((step + 1) as f32));
        run.step(Mode::Train, &[("gradient", gradient.clone()), ("rate", rate), ("step", number)], |t| {
            let value = t.variable("weight", *weight.ty(), Initializer::Zeros, Role::Weight)?;
            let gradient = t.input("gradient", *gradient.ty());
            let hyper = Hyper { learning_rate: t.input("rate", scalar), step: t.input("step", scalar) };
            apply(optimizer, t, &[("weight".into(), value, gradient)], &hyper, options)?;
            Ok(())
        })?;
        after.push(run.get("weight").expect("set above").clone());
    }
    Ok(after)
}

#[cfg(test)]
mod tests;
