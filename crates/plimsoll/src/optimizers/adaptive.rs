//! Optimizers with a rate per weight, from the size of its gradients: RMSprop, Adagrad, Adadelta.

use super::{EpsilonForm, by_rule};
use crate::schedules::Schedule;
use plimsoll_kernels::optimizer as kernel;

/// RMSprop: `v = rho * v + (1 - rho) * g^2; w -= lr * g / sqrt(v + epsilon)`.
///
/// Centered, the square of the gradient's running mean is taken from `v` first; with momentum, the change is
/// `m = momentum * m + lr * g / sqrt(v + epsilon)`.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{RmsProp, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[1], &[1.0f32])?;
/// let gradient = Tensor::from_slice(&[1], &[4.0f32])?;
/// // v is 0.1 * 16 after the first step.
/// let after = evaluate(&RmsProp::new(0.1), &UpdateOptions::new(), &weight, &[gradient])?;
/// assert!((after[0].to_f64()[0] - (1.0 - 0.1 / 0.1f64.sqrt())).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RmsProp {
    learning_rate: Schedule,
    rule: kernel::RmsProp,
}

/// Adagrad: `a += g^2; w -= lr * g / sqrt(a + epsilon)`; weights whose gradients were rare move more.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Adagrad, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[1], &[1.0f32])?;
/// let gradient = Tensor::from_slice(&[1], &[2.0f32])?;
/// let after = evaluate(&Adagrad::new(0.1).initial_accumulator(0.0), &UpdateOptions::new(), &weight, &[gradient])?;
/// assert!((after[0].to_f64()[0] - 0.9).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Adagrad {
    learning_rate: Schedule,
    rule: kernel::Adagrad,
}

/// Adadelta: `a = rho * a + (1 - rho) * g^2; d = g * sqrt(b + epsilon) / sqrt(a + epsilon);
/// b = rho * b + (1 - rho) * d^2; w -= lr * d`. With a rate of 1 it is the paper's.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Adadelta, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[1], &[1.0f32])?;
/// let gradient = Tensor::from_slice(&[1], &[2.0f32])?;
/// let after = evaluate(&Adadelta::new(1.0), &UpdateOptions::new(), &weight, &[gradient])?;
/// let expected = 1.0 - 2.0 * (1e-7f64 / (0.05 * 4.0 + 1e-7)).sqrt();
/// assert!((after[0].to_f64()[0] - expected).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Adadelta {
    learning_rate: Schedule,
    rule: kernel::Adadelta,
}

impl RmsProp {
    /// With this rate, not centered and without momentum; Keras's default is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> RmsProp {
        let (epsilon_form, weight_decay) = (EpsilonForm::Keras, 0.0);
        let rule =
            kernel::RmsProp { rho: 0.9, momentum: 0.0, centered: false, epsilon: 1e-7, epsilon_form, weight_decay };
        RmsProp { learning_rate: learning_rate.into(), rule }
    }

    /// The part of the mean square that is kept; 0.9 unless set.
    #[must_use]
    pub fn rho(mut self, rho: f64) -> RmsProp {
        self.rule.rho = rho;
        self
    }

    /// Keeps this part of the last change.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> RmsProp {
        self.rule.momentum = momentum;
        self
    }

    /// Divides by the gradient's variance instead of its mean square.
    #[must_use]
    pub fn centered(mut self) -> RmsProp {
        self.rule.centered = true;
        self
    }

    /// Keeps the divisor from zero; 1e-7 unless set.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> RmsProp {
        self.rule.epsilon = epsilon;
        self
    }

    /// Where epsilon stands: inside the root as in Keras unless set, after it in PyTorch.
    #[must_use]
    pub fn epsilon_form(mut self, form: EpsilonForm) -> RmsProp {
        self.rule.epsilon_form = form;
        self
    }
}

impl Adagrad {
    /// With this rate; Keras's default is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> Adagrad {
        let (epsilon_form, weight_decay) = (EpsilonForm::Keras, 0.0);
        let rule = kernel::Adagrad { initial_accumulator: 0.1, epsilon: 1e-7, epsilon_form, weight_decay };
        Adagrad { learning_rate: learning_rate.into(), rule }
    }

    /// What the sums of squares begin with; 0.1 unless set.
    #[must_use]
    pub fn initial_accumulator(mut self, value: f64) -> Adagrad {
        self.rule.initial_accumulator = value;
        self
    }

    /// Keeps the divisor from zero; 1e-7 unless set.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> Adagrad {
        self.rule.epsilon = epsilon;
        self
    }

    /// Where epsilon stands: inside the root as in Keras unless set, after it in PyTorch.
    #[must_use]
    pub fn epsilon_form(mut self, form: EpsilonForm) -> Adagrad {
        self.rule.epsilon_form = form;
        self
    }
}

impl Adadelta {
    /// With this rate; Keras's default is 0.001, the paper's 1.
    pub fn new(learning_rate: impl Into<Schedule>) -> Adadelta {
        let rule = kernel::Adadelta { rho: 0.95, epsilon: 1e-7, weight_decay: 0.0 };
        Adadelta { learning_rate: learning_rate.into(), rule }
    }

    /// The part of the mean squares that is kept; 0.95 unless set.
    #[must_use]
    pub fn rho(mut self, rho: f64) -> Adadelta {
        self.rule.rho = rho;
        self
    }

    /// Keeps the divisor and the first changes from zero; 1e-7 unless set.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> Adadelta {
        self.rule.epsilon = epsilon;
        self
    }
}

macro_rules! defaults {
    ($($optimizer:ident),*) => {$(
        impl Default for $optimizer {
            fn default() -> $optimizer {
                $optimizer::new(0.001)
            }
        }
    )*};
}

defaults!(RmsProp, Adagrad, Adadelta);

by_rule! {
    RmsProp = RmsProp, "rmsprop", { rho: Part, momentum: Part, epsilon: Positive };
    Adagrad = Adagrad, "adagrad", { initial_accumulator: Positive, epsilon: Positive };
    Adadelta = Adadelta, "adadelta", { rho: Part, epsilon: Positive };
}
