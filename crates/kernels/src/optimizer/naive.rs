//! The rules once more, one parameter at a time and straight from their definitions.

use super::{EpsilonForm, Rule, Step};

/// The naive twin of [`update`](super::update).
pub fn update_naive(rule: &Rule, step: Step, parameter: &mut [f64], gradient: &[f64], state: &mut [&mut [f64]]) {
    let Step { number: t, learning_rate: lr, gradient_scale } = step;
    for (i, p) in parameter.iter_mut().enumerate() {
        let g = gradient[i] * gradient_scale;
        let decay = |weight_decay: f64, p: f64| p - lr * weight_decay * p;
        match rule {
            Rule::Sgd(r) => {
                *p = decay(r.weight_decay, *p);
                if r.momentum == 0.0 {
                    *p -= lr * g;
                } else {
                    let m = r.momentum * state[0][i] - lr * g;
                    state[0][i] = m;
                    *p += if r.nesterov { r.momentum * m - lr * g } else { m };
                }
            }
            Rule::Lion(r) => {
                *p = decay(r.weight_decay, *p);
                let m = &mut state[0][i];
                let direction = r.beta_1 * *m + (1.0 - r.beta_1) * g;
                *p -= if direction == 0.0 { 0.0 } else { lr * direction.signum() };
                *m = r.beta_2 * *m + (1.0 - r.beta_2) * g;
            }
            Rule::Adam(r) => {
                *p = decay(r.weight_decay, *p);
                let m = r.beta_1 * state[0][i] + (1.0 - r.beta_1) * g;
                let mut v = r.beta_2 * state[1][i] + (1.0 - r.beta_2) * g * g;
                (state[0][i], state[1][i]) = (m, v);
                if r.amsgrad {
                    v = v.max(state[2][i]);
                    state[2][i] = v;
                }
                let (c1, c2) = (1.0 - r.beta_1.powf(t), 1.0 - r.beta_2.powf(t));
                *p -= match r.epsilon_form {
                    EpsilonForm::Keras => lr * c2.sqrt() / c1 * m / (v.sqrt() + r.epsilon),
                    EpsilonForm::PyTorch => lr * (m / c1) / ((v / c2).sqrt() + r.epsilon),
                };
            }
            Rule::RmsProp(r) => {
                *p = decay(r.weight_decay, *p);
                let v = r.rho * state[0][i] + (1.0 - r.rho) * g * g;
                state[0][i] = v;
                let mut variance = v;
                if r.centered {
                    let average = state.last_mut().expect("the average gradient");
                    average[i] = r.rho * average[i] + (1.0 - r.rho) * g;
                    variance -= average[i] * average[i];
                }
                let mut change = lr * g / denominator(variance, r.epsilon, r.epsilon_form);
                if r.momentum != 0.0 {
                    change += r.momentum * state[1][i];
                    state[1][i] = change;
                }
                *p -= change;
            }
            Rule::Adagrad(r) => {
                *p = decay(r.weight_decay, *p);
                state[0][i] += g * g;
                *p -= lr * g / denominator(state[0][i], r.epsilon, r.epsilon_form);
            }
            Rule::Adadelta(r) => {
                *p = decay(r.weight_decay, *p);
                state[0][i] = r.rho * state[0][i] + (1.0 - r.rho) * g * g;
                let change = ((state[1][i] + r.epsilon) / (state[0][i] + r.epsilon)).sqrt() * g;
                state[1][i] = r.rho * state[1][i] + (1.0 - r.rho) * change * change;
                *p -= lr * change;
            }
            Rule::Adamax(r) => {
                *p = decay(r.weight_decay, *p);
                let m = r.beta_1 * state[0][i] + (1.0 - r.beta_1) * g;
                let u = match r.epsilon_form {
                    EpsilonForm::Keras => (r.beta_2 * state[1][i]).max(g.abs()),
                    EpsilonForm::PyTorch => (r.beta_2 * state[1][i]).max(g.abs() + r.epsilon),
                };
                (state[0][i], state[1][i]) = (m, u);
                let epsilon = if r.epsilon_form == EpsilonForm::Keras { r.epsilon } else { 0.0 };
                *p -= lr / (1.0 - r.beta_1.powf(t)) * m / (u + epsilon);
            }
            Rule::Nadam(r) => {
                *p = decay(r.weight_decay, *p);
                let m = r.beta_1 * state[0][i] + (1.0 - r.beta_1) * g;
                let v = r.beta_2 * state[1][i] + (1.0 - r.beta_2) * g * g;
                (state[0][i], state[1][i]) = (m, v);
                let (now, next) = (r.momentum_at(t), r.momentum_at(t + 1.0));
                let product: f64 = (1..=t as u64).map(|i| r.momentum_at(i as f64)).product();
                let m_hat = next * m / (1.0 - product * next) + (1.0 - now) * g / (1.0 - product);
                let v_hat = v / (1.0 - r.beta_2.powf(t));
                *p -= lr * m_hat / (v_hat.sqrt() + r.epsilon);
            }
        }
    }
}

fn denominator(square: f64, epsilon: f64, form: EpsilonForm) -> f64 {
    match form {
        EpsilonForm::Keras => (square + epsilon).sqrt(),
        EpsilonForm::PyTorch => square.sqrt() + epsilon,
    }
}
