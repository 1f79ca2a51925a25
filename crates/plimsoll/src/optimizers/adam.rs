//! Adam and its kin: steps measured by running means of the gradient and its square.

use super::{EpsilonForm, by_rule};
use crate::schedules::Schedule;
use plimsoll_kernels::optimizer as kernel;

/// Adam: `m = beta_1 * m + (1 - beta_1) * g; v = beta_2 * v + (1 - beta_2) * g^2;
/// w -= lr * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)`.
///
/// With [`EpsilonForm::PyTorch`] epsilon is added after the correction for the start:
/// `w -= lr * (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)`.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Adam, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[2], &[1.0f32, 1.0])?;
/// let gradient = Tensor::from_slice(&[2], &[5.0f32, -0.01])?;
/// // The first step is as long as the rate, whatever the gradient.
/// let after = evaluate(&Adam::new(0.25), &UpdateOptions::new(), &weight, &[gradient])?[0].to_f64();
/// assert!((after[0] - 0.75).abs() < 1e-6 && (after[1] - 1.25).abs() < 1e-3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Adam {
    learning_rate: Schedule,
    rule: kernel::Adam,
}

/// [`Adam`] with a decay of the weights beside the gradient: before the update, `w -= lr * weight_decay * w`.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{AdamW, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[1], &[8.0f32])?;
/// let gradient = Tensor::from_slice(&[1], &[0.0f32])?;
/// // Without a gradient there is the decay alone: 0.1 * 0.5 of the weight.
/// let after = evaluate(&AdamW::new(0.1).weight_decay(0.5), &UpdateOptions::new(), &weight, &[gradient])?;
/// assert!((after[0].to_f64()[0] - 7.6).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AdamW {
    learning_rate: Schedule,
    rule: kernel::Adam,
}

/// Adamax, Adam with the largest gradient instead of the mean square: `m = beta_1 * m + (1 - beta_1) * g;
/// u = max(beta_2 * u, |g|); w -= lr / (1 - beta_1^t) * m / (u + epsilon)`.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Adamax, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[1], &[1.0f32])?;
/// let gradient = Tensor::from_slice(&[1], &[4.0f32])?;
/// let after = evaluate(&Adamax::new(0.25), &UpdateOptions::new(), &weight, &[gradient])?;
/// assert!((after[0].to_f64()[0] - 0.75).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Adamax {
    learning_rate: Schedule,
    rule: kernel::Adamax,
}

/// Nadam, Adam with Nesterov's momentum: with `u(t) = beta_1 * (1 - 0.96^t / 2)` and `p(t)` the product of all `u` so
/// far, `w -= lr * (u(t+1) * m / (1 - p(t+1)) + (1 - u(t)) * g / (1 - p(t))) / (sqrt(v / (1 - beta_2^t)) + epsilon)`.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Nadam, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[1], &[1.0f32])?;
/// let gradient = Tensor::from_slice(&[1], &[4.0f32])?;
/// let after = evaluate(&Nadam::new(0.1), &UpdateOptions::new(), &weight, &[gradient])?;
/// let (u1, u2) = (0.9 * (1.0 - 0.5 * 0.96), 0.9 * (1.0 - 0.5 * 0.96f64.powi(2)));
/// let step = 0.1 * (u2 * 0.1 / (1.0 - u1 * u2) + (1.0 - u1) / (1.0 - u1));
/// assert!((after[0].to_f64()[0] - (1.0 - step)).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Nadam {
    learning_rate: Schedule,
    rule: kernel::Nadam,
}

/// The settings that all of them have.
macro_rules! betas {
    ($($optimizer:ident),*) => {$(
        impl $optimizer {
            /// The part of the gradient's running mean that is kept; 0.9 unless set.
            #[must_use]
            pub fn beta_1(mut self, beta_1: f64) -> $optimizer {
                self.rule.beta_1 = beta_1;
                self
            }

            /// The part of the running size of gradients that is kept; 0.999 unless set.
            #[must_use]
            pub fn beta_2(mut self, beta_2: f64) -> $optimizer {
                self.rule.beta_2 = beta_2;
                self
            }

            /// Keeps the divisor from zero; 1e-7 unless set.
            #[must_use]
            pub fn epsilon(mut self, epsilon: f64) -> $optimizer {
                self.rule.epsilon = epsilon;
                self
            }
        }

        impl Default for $optimizer {
            fn default() -> $optimizer {
                $optimizer::new(0.001)
            }
        }
    )*};
}

betas!(Adam, AdamW, Adamax, Nadam);

/// The settings of Adam alone.
macro_rules! adams {
    ($($optimizer:ident),*) => {$(
        impl $optimizer {
            /// Divides by the largest mean square so far.
            #[must_use]
            pub fn amsgrad(mut self) -> $optimizer {
                self.rule.amsgrad = true;
                self
            }

            /// Where epsilon stands: as in Keras unless set.
            #[must_use]
            pub fn epsilon_form(mut self, form: EpsilonForm) -> $optimizer {
                self.rule.epsilon_form = form;
                self
            }
        }
    )*};
}

adams!(Adam, AdamW);

impl Adam {
    /// With this rate; Keras's default is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> Adam {
        Adam { learning_rate: learning_rate.into(), rule: kernel::Adam::default() }
    }
}

impl AdamW {
    /// With this rate and a weight decay of 0.004; Keras's default rate is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> AdamW {
        let rule = kernel::Adam { weight_decay: 0.004, ..kernel::Adam::default() };
        AdamW { learning_rate: learning_rate.into(), rule }
    }

    /// With this decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> AdamW {
        self.rule.weight_decay = weight_decay;
        self
    }
}

impl Adamax {
    /// With this rate; Keras's default is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> Adamax {
        let (epsilon_form, weight_decay) = (EpsilonForm::Keras, 0.0);
        let rule = kernel::Adamax { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, epsilon_form, weight_decay };
        Adamax { learning_rate: learning_rate.into(), rule }
    }

    /// Where epsilon stands: as in Keras unless set.
    #[must_use]
    pub fn epsilon_form(mut self, form: EpsilonForm) -> Adamax {
        self.rule.epsilon_form = form;
        self
    }
}

impl Nadam {
    /// With this rate; Keras's default is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> Nadam {
        let (momentum_decay, weight_decay) = (1.0, 0.0);
        let rule = kernel::Nadam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, momentum_decay, weight_decay };
        Nadam { learning_rate: learning_rate.into(), rule }
    }

    /// How fast the momentum rises to `beta_1`: 1 as in Keras unless set, 0.004 in PyTorch.
    #[must_use]
    pub fn momentum_decay(mut self, momentum_decay: f64) -> Nadam {
        self.rule.momentum_decay = momentum_decay;
        self
    }
}

by_rule! {
    Adam = Adam, "adam", { beta_1: Part, beta_2: Part, epsilon: Positive };
    AdamW = Adam, "adamw", { beta_1: Part, beta_2: Part, epsilon: Positive };
    Adamax = Adamax, "adamax", { beta_1: Part, beta_2: Part, epsilon: Positive };
    Nadam = Nadam, "nadam", { beta_1: Part, beta_2: Part, epsilon: Positive, momentum_decay: Positive };
}
