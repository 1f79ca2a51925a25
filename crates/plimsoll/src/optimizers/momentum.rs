//! Gradient descent with momentum, and Lion.

use super::by_rule;
use crate::schedules::Schedule;
use plimsoll_kernels::optimizer as kernel;

/// Gradient descent: `w -= lr * g`. With momentum `m = momentum * m - lr * g; w += m`; Nesterov's looks one step
/// ahead: `w += momentum * m - lr * g` with the new `m`.
///
/// See the [module's example](super).
#[derive(Clone, Debug)]
pub struct Sgd {
    learning_rate: Schedule,
    rule: kernel::Sgd,
}

/// Lion: `w -= lr * sign(beta_1 * m + (1 - beta_1) * g); m = beta_2 * m + (1 - beta_2) * g`. It remembers one number per
/// weight, and wants a rate 3 to 10 times smaller than Adam's.
///
/// ```
/// use plimsoll::Tensor;
/// use plimsoll::optimizers::{Lion, UpdateOptions, evaluate};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let weight = Tensor::from_slice(&[2], &[1.0f32, 1.0])?;
/// let gradient = Tensor::from_slice(&[2], &[5.0f32, -0.01])?;
/// let after = evaluate(&Lion::new(0.25), &UpdateOptions::new(), &weight, &[gradient])?;
/// assert_eq!(after[0].to_f64(), [0.75, 1.25]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Lion {
    learning_rate: Schedule,
    rule: kernel::Lion,
}

impl Sgd {
    /// With this rate and no momentum; Keras's default rate is 0.01.
    pub fn new(learning_rate: impl Into<Schedule>) -> Sgd {
        let rule = kernel::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
        Sgd { learning_rate: learning_rate.into(), rule }
    }

    /// Keeps this part of the last change.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> Sgd {
        self.rule.momentum = momentum;
        self
    }

    /// With Nesterov's momentum.
    #[must_use]
    pub fn nesterov(mut self) -> Sgd {
        self.rule.nesterov = true;
        self
    }
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd::new(0.01)
    }
}

impl Lion {
    /// With this rate, `beta_1` 0.9 and `beta_2` 0.99; Keras's default rate is 0.001.
    pub fn new(learning_rate: impl Into<Schedule>) -> Lion {
        let rule = kernel::Lion { beta_1: 0.9, beta_2: 0.99, weight_decay: 0.0 };
        Lion { learning_rate: learning_rate.into(), rule }
    }

    /// The weight of the momentum in the direction.
    #[must_use]
    pub fn beta_1(mut self, beta_1: f64) -> Lion {
        self.rule.beta_1 = beta_1;
        self
    }

    /// The part of the momentum that is kept.
    #[must_use]
    pub fn beta_2(mut self, beta_2: f64) -> Lion {
        self.rule.beta_2 = beta_2;
        self
    }
}

impl Default for Lion {
    fn default() -> Lion {
        Lion::new(0.001)
    }
}

by_rule! {
    Sgd = Sgd, "sgd", { momentum: Part };
    Lion = Lion, "lion", { beta_1: Part, beta_2: Part };
}
