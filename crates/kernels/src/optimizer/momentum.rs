//! Gradient descent and Lion: rules without a second moment.

use super::{Step, blocks};
use crate::math::Float;
use crate::pool::Pool;
use crate::simd;

/// Gradient descent: `m = momentum * m - lr * g; p += m`, or `p += momentum * m - lr * g` with Nesterov.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    /// How much of the last change is kept; 0 needs no state.
    pub momentum: f64,
    /// Looks ahead along the momentum.
    pub nesterov: bool,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

/// Lion: `p -= lr * sign(beta_1 * m + (1 - beta_1) * g); m = beta_2 * m + (1 - beta_2) * g`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// Weight of the momentum in the direction.
    pub beta_1: f64,
    /// How much of the momentum is kept.
    pub beta_2: f64,
    /// Takes `lr * weight_decay` of the parameter away before the update.
    pub weight_decay: f64,
}

impl Sgd {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let rate = T::from_f64(at.learning_rate);
        let scale = T::from_f64(at.gradient_scale);
        let decay = T::from_f64(self.weight_decay * at.learning_rate);
        let momentum = T::from_f64(self.momentum);
        if self.momentum == 0.0 {
            blocks(pool, p, g, state, |p, g, []| plain(rate, scale, decay, p, g));
        } else if self.nesterov {
            blocks(pool, p, g, state, |p, g, [m]| nesterov(rate, scale, decay, momentum, p, g, m));
        } else {
            blocks(pool, p, g, state, |p, g, [m]| heavy_ball(rate, scale, decay, momentum, p, g, m));
        }
    }
}

impl Lion {
    pub(super) fn update<T: Float>(&self, pool: &Pool, at: Step, p: &mut [T], g: &[T], state: &mut [&mut [T]]) {
        let rate = T::from_f64(at.learning_rate);
        let scale = T::from_f64(at.gradient_scale);
        let decay = T::from_f64(self.weight_decay * at.learning_rate);
        let direction = (T::from_f64(self.beta_1), T::from_f64(1.0 - self.beta_1));
        let keep = (T::from_f64(self.beta_2), T::from_f64(1.0 - self.beta_2));
        blocks(pool, p, g, state, |p, g, [m]| lion(rate, scale, decay, direction, keep, p, g, m));
    }
}

simd! {
    fn plain[T: Float](rate: T, scale: T, decay: T, p: &mut [T], g: &[T]) {
        for (p, &g) in p.iter_mut().zip(g) {
            *p = *p - *p * decay - rate * (g * scale);
        }
    }

    fn heavy_ball[T: Float](rate: T, scale: T, decay: T, momentum: T, p: &mut [T], g: &[T], m: &mut [T]) {
        for ((p, &g), m) in p.iter_mut().zip(g).zip(m) {
            *m = momentum * *m - rate * (g * scale);
            *p = *p - *p * decay + *m;
        }
    }

    fn nesterov[T: Float](rate: T, scale: T, decay: T, momentum: T, p: &mut [T], g: &[T], m: &mut [T]) {
        for ((p, &g), m) in p.iter_mut().zip(g).zip(m) {
            let change = rate * (g * scale);
            *m = momentum * *m - change;
            *p = *p - *p * decay + (momentum * *m - change);
        }
    }

    fn lion[T: Float](rate: T, scale: T, decay: T, direction: (T, T), keep: (T, T), p: &mut [T], g: &[T], m: &mut [T]) {
        for ((p, &g), m) in p.iter_mut().zip(g).zip(m) {
            let g = g * scale;
            let d = direction.0 * *m + direction.1 * g;
            // Zero and NaN have no sign and pass through.
            let sign = if d > T::ZERO { T::ONE } else if d < T::ZERO { -T::ONE } else { d };
            *p = *p - *p * decay - rate * sign;
            *m = keep.0 * *m + keep.1 * g;
        }
    }
}
