//! Rules that divide by a running size of the gradient.

use super::{EpsilonForm, Step, blocks};
use crate::math::Float;
use crate::pool::Pool;
use crate::simd;

/// Adam: `m += (1 - beta_1) * (g - m); v += (1 - beta_2) * (g^2 - v); p -= alpha * m / (sqrt(v) + epsilon)`
/// with `alpha = lr * sqrt(1 - beta_2^t) / (1 - beta_1^t)`. With weight decay it is AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How much of the first moment is kept.
    pub beta_1: f64,
    /// How much of the second moment is kept.
    pub beta_2: f64,
    /// Keeps the denominator from zero.
    pub epsilon: f64,
    /// Where epsilon stands.
    pub epsilon_form: EpsilonForm,
    /// Divides by the largest second moment so far.
    pub amsgrad: bool,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

impl Default for Adam {
    fn default() -> Adam {
        let (epsilon_form, amsgrad, weight_decay) = (EpsilonForm::Keras, false, 0.0);
        Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, epsilon_form, amsgrad, weight_decay }
    }
}

/// RMSprop: `v = rho * v + (1 - rho) * g^2; p -= lr * g / sqrt(v + epsilon)`, the change smoothed by the
/// momentum if there is one, and the squared mean gradient taken off `v` if centered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// How much of the mean square is kept.
    pub rho: f64,
    /// How much of the last change is kept.
    pub momentum: f64,
    /// Divides by the variance instead of the mean square.
    pub centered: bool,
    /// Keeps the denominator from zero.
    pub epsilon: f64,
    /// Where epsilon stands.
    pub epsilon_form: EpsilonForm,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

/// Adagrad: `a += g^2; p -= lr * g / sqrt(a + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    /// What the accumulator starts from.
    pub initial_accumulator: f64,
    /// Keeps the denominator from zero.
    pub epsilon: f64,
    /// Where epsilon stands.
    pub epsilon_form: EpsilonForm,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

/// Adadelta: `a = rho * a + (1 - rho) * g^2; d = g * sqrt(b + epsilon) / sqrt(a + epsilon);
/// b = rho * b + (1 - rho) * d^2; p -= lr * d`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adadelta {
    /// How much of the mean squares is kept.
    pub rho: f64,
    /// Keeps the denominator from zero and the first change from it.
    pub epsilon: f64,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

/// Adamax: `m += (1 - beta_1) * (g - m); u = max(beta_2 * u, |g|); p -= lr / (1 - beta_1^t) * m / (u + epsilon)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adamax {
    /// How much of the first moment is kept.
    pub beta_1: f64,
    /// How much of the norm is kept.
    pub beta_2: f64,
    /// Keeps the denominator from zero.
    pub epsilon: f64,
    /// Where epsilon stands.
    pub epsilon_form: EpsilonForm,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

/// Nadam: Adam whose first moment is taken one step ahead, with the momentum
/// `u(t) = beta_1 * (1 - 0.96^(momentum_decay * t) / 2)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nadam {
    /// How much of the first moment is kept.
    pub beta_1: f64,
    /// How much of the second moment is kept.
    pub beta_2: f64,
    /// Keeps the denominator from zero.
    pub epsilon: f64,
    /// How fast the momentum rises to `beta_1`: 1 in Keras, 0.004 in PyTorch.
    pub momentum_decay: f64,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

/// The factors every loop needs, in the type of the parameters.
#[derive(Clone, Copy)]
struct Common<T> {
    rate: T,
    scale: T,
    decay: T,
}

impl<T: Float> Common<T> {
    fn new(at: Step, weight_decay: f64) -> Common<T> {
        Common {
            rate: T::from_f64(at.learning_rate),
            scale: T::from_f64(at.gradient_scale),
            decay: T::from_f64(weight_decay * at.learning_rate),
        }
    }
}

/// Epsilon under the root and behind it: `sqrt(v + inside) + outside`.
fn epsilons<T: Float>(epsilon: f64, form: EpsilonForm) -> (T, T) {
    match form {
        EpsilonForm::Keras => (T::from_f64(epsilon), T::ZERO),
        EpsilonForm::PyTorch => (T::ZERO, T::from_f64(epsilon)),
    }
}

impl Adam {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let correction_1 = 1.0 - self.beta_1.powf(at.number);
        let correction_2 = 1.0 - self.beta_2.powf(at.number);
        // Both forms are p -= rate * m / (root * sqrt(v) + epsilon).
        let (rate, root) = match self.epsilon_form {
            EpsilonForm::Keras => (at.learning_rate * correction_2.sqrt() / correction_1, 1.0),
            EpsilonForm::PyTorch => (at.learning_rate / correction_1, 1.0 / correction_2.sqrt()),
        };
        let common = Common { rate: T::from_f64(rate), ..Common::new(at, self.weight_decay) };
        let betas = (T::from_f64(1.0 - self.beta_1), T::from_f64(1.0 - self.beta_2));
        let (root, epsilon) = (T::from_f64(root), T::from_f64(self.epsilon));
        if self.amsgrad {
            blocks(pool, p, g, state, |p, g, [m, v, top]| amsgrad(common, betas, root, epsilon, p, g, m, v, top));
        } else {
            blocks(pool, p, g, state, |p, g, [m, v]| adam(common, betas, root, epsilon, p, g, m, v));
        }
    }
}

impl RmsProp {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let common = Common::new(at, self.weight_decay);
        let rho = (T::from_f64(self.rho), T::from_f64(1.0 - self.rho));
        let epsilon = epsilons(self.epsilon, self.epsilon_form);
        let momentum = T::from_f64(self.momentum);
        match (self.momentum != 0.0, self.centered) {
            (false, false) => blocks(pool, p, g, state, |p, g, [v]| rms(common, rho, epsilon, p, g, v)),
            (true, false) => {
                blocks(pool, p, g, state, |p, g, [v, m]| rms_momentum(common, rho, epsilon, momentum, p, g, v, m));
            }
            (false, true) => blocks(pool, p, g, state, |p, g, [v, a]| rms_centered(common, rho, epsilon, p, g, v, a)),
            (true, true) => blocks(pool, p, g, state, |p, g, [v, m, a]| {
                rms_centered_momentum(common, rho, epsilon, momentum, p, g, v, m, a);
            }),
        }
    }
}

impl Adagrad {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let common = Common::new(at, self.weight_decay);
        // RMSprop that forgets nothing.
        let (rho, epsilon) = ((T::ONE, T::ONE), epsilons(self.epsilon, self.epsilon_form));
        blocks(pool, p, g, state, |p, g, [a]| rms(common, rho, epsilon, p, g, a));
    }
}

impl Adadelta {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let common = Common::new(at, self.weight_decay);
        let rho = (T::from_f64(self.rho), T::from_f64(1.0 - self.rho));
        let epsilon = T::from_f64(self.epsilon);
        blocks(pool, p, g, state, |p, g, [a, b]| adadelta(common, rho, epsilon, p, g, a, b));
    }
}

impl Adamax {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let rate = at.learning_rate / (1.0 - self.beta_1.powf(at.number));
        let common = Common { rate: T::from_f64(rate), ..Common::new(at, self.weight_decay) };
        let betas = (T::from_f64(1.0 - self.beta_1), T::from_f64(self.beta_2));
        let (outside, inside) = epsilons(self.epsilon, self.epsilon_form);
        blocks(pool, p, g, state, |p, g, [m, u]| adamax(common, betas, (inside, outside), p, g, m, u));
    }
}

impl Nadam {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let (now, next) = (self.momentum_at(at.number), self.momentum_at(at.number + 1.0));
        let product = self.momentum_product(at.number);
        let common = Common::new(at, self.weight_decay);
        let betas = (T::from_f64(1.0 - self.beta_1), T::from_f64(1.0 - self.beta_2));
        let mix = (T::from_f64(next / (1.0 - product * next)), T::from_f64((1.0 - now) / (1.0 - product)));
        let root = T::from_f64(1.0 / (1.0 - self.beta_2.powf(at.number)).sqrt());
        let epsilon = T::from_f64(self.epsilon);
        blocks(pool, p, g, state, |p, g, [m, v]| nadam(common, betas, mix, root, epsilon, p, g, m, v));
    }

    /// The momentum of one step.
    pub(super) fn momentum_at(&self, number: f64) -> f64 {
        self.beta_1 * (1.0 - 0.5 * 0.96f64.powf(number * self.momentum_decay))
    }

    /// The product of the momenta up to a step.
    pub(super) fn momentum_product(&self, number: f64) -> f64 {
        let mut product = 1.0;
        let mut i = 1.0;
        // Once it is lost beside 1 the rest does not matter, however late the step.
        while i <= number && product > 1e-20 {
            product *= self.momentum_at(i);
            i += 1.0;
        }
        product
    }
}

simd! {
    fn adam[T: Float](c: Common<T>, betas: (T, T), root: T, epsilon: T, p: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * c.scale;
            *m += (g - *m) * betas.0;
            *v += (g * g - *v) * betas.1;
            *p = *p - *p * c.decay - *m * c.rate / (v.sqrt() * root + epsilon);
        }
    }

    fn amsgrad[T: Float](
        c: Common<T>,
        betas: (T, T),
        root: T,
        epsilon: T,
        p: &mut [T],
        g: &[T],
        m: &mut [T],
        v: &mut [T],
        top: &mut [T],
    ) {
        for ((((p, &g), m), v), top) in p.iter_mut().zip(g).zip(m).zip(v).zip(top) {
            let g = g * c.scale;
            *m += (g - *m) * betas.0;
            *v += (g * g - *v) * betas.1;
            *top = top.maximum(*v);
            *p = *p - *p * c.decay - *m * c.rate / (top.sqrt() * root + epsilon);
        }
    }

    fn rms[T: Float](c: Common<T>, rho: (T, T), epsilon: (T, T), p: &mut [T], g: &[T], v: &mut [T]) {
        for ((p, &g), v) in p.iter_mut().zip(g).zip(v) {
            let g = g * c.scale;
            *v = rho.0 * *v + rho.1 * (g * g);
            *p = *p - *p * c.decay - c.rate * g / ((*v + epsilon.0).sqrt() + epsilon.1);
        }
    }

    fn rms_momentum[T: Float](
        c: Common<T>,
        rho: (T, T),
        epsilon: (T, T),
        momentum: T,
        p: &mut [T],
        g: &[T],
        v: &mut [T],
        m: &mut [T],
    ) {
        for (((p, &g), v), m) in p.iter_mut().zip(g).zip(v).zip(m) {
            let g = g * c.scale;
            *v = rho.0 * *v + rho.1 * (g * g);
            *m = momentum * *m + c.rate * g / ((*v + epsilon.0).sqrt() + epsilon.1);
            *p = *p - *p * c.decay - *m;
        }
    }

    fn rms_centered[T: Float](c: Common<T>, rho: (T, T), epsilon: (T, T), p: &mut [T], g: &[T], v: &mut [T], a: &mut [T]) {
        for (((p, &g), v), a) in p.iter_mut().zip(g).zip(v).zip(a) {
            let g = g * c.scale;
            *v = rho.0 * *v + rho.1 * (g * g);
            *a = rho.0 * *a + rho.1 * g;
            *p = *p - *p * c.decay - c.rate * g / ((*v - *a * *a + epsilon.0).sqrt() + epsilon.1);
        }
    }

    fn rms_centered_momentum[T: Float](
        c: Common<T>,
        rho: (T, T),
        epsilon: (T, T),
        momentum: T,
        p: &mut [T],
        g: &[T],
        v: &mut [T],
        m: &mut [T],
        a: &mut [T],
    ) {
        for ((((p, &g), v), m), a) in p.iter_mut().zip(g).zip(v).zip(m).zip(a) {
            let g = g * c.scale;
            *v = rho.0 * *v + rho.1 * (g * g);
            *a = rho.0 * *a + rho.1 * g;
            *m = momentum * *m + c.rate * g / ((*v - *a * *a + epsilon.0).sqrt() + epsilon.1);
            *p = *p - *p * c.decay - *m;
        }
    }

    fn adadelta[T: Float](c: Common<T>, rho: (T, T), epsilon: T, p: &mut [T], g: &[T], a: &mut [T], b: &mut [T]) {
        for (((p, &g), a), b) in p.iter_mut().zip(g).zip(a).zip(b) {
            let g = g * c.scale;
            *a = rho.0 * *a + rho.1 * (g * g);
            let change = (*b + epsilon).sqrt() * g / (*a + epsilon).sqrt();
            *b = rho.0 * *b + rho.1 * (change * change);
            *p = *p - *p * c.decay - c.rate * change;
        }
    }

    fn adamax[T: Float](c: Common<T>, betas: (T, T), epsilon: (T, T), p: &mut [T], g: &[T], m: &mut [T], u: &mut [T]) {
        for (((p, &g), m), u) in p.iter_mut().zip(g).zip(m).zip(u) {
            let g = g * c.scale;
            *m += (g - *m) * betas.0;
            *u = (betas.1 * *u).maximum(g.abs() + epsilon.0);
            *p = *p - *p * c.decay - c.rate * *m / (*u + epsilon.1);
        }
    }

    fn nadam[T: Float](
        c: Common<T>,
        betas: (T, T),
        mix: (T, T),
        root: T,
        epsilon: T,
        p: &mut [T],
        g: &[T],
        m: &mut [T],
        v: &mut [T],
    ) {
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * c.scale;
            *m += (g - *m) * betas.0;
            *v += (g * g - *v) * betas.1;
            let ahead = mix.0 * *m + mix.1 * g;
            *p = *p - *p * c.decay - c.rate * ahead / (v.sqrt() * root + epsilon);
        }
    }
}
