//! Optimizer updates: parameters and optimizer state changed in place, in one pass over memory.
//!
//! A [`Rule`] is an optimizer with its constants; [`update`] applies it once. The definitions are those of
//! Keras 3. Where PyTorch puts epsilon elsewhere, [`EpsilonForm`] chooses, so that numbers can be compared
//! with either.
//!
//! What changes from step to step comes in a [`Step`]. Everything that depends on the step alone (bias
//! corrections and the like) is computed once in f64 and rounded; the loops see a few factors, and do
//! element by element the same operations whatever the number of threads.
//!
//! ```
//! use plimsoll_kernels::{Pool, optimizer::{Rule, Sgd, Step, update}};
//! let rule = Rule::Sgd(Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 });
//! let (mut parameter, mut velocity) = ([1.0f32], [0.0f32]);
//! for number in 1..=2 {
//!     let step = Step::new(number as f64, 0.1);
//!     update(&Pool::new(1), &rule, step, &mut parameter, &[1.0], &mut [&mut velocity]);
//! }
//! assert_eq!(velocity, [-0.19]);
//! assert_eq!(parameter, [0.71]);
//! ```

mod adaptive;
mod momentum;
mod naive;

use crate::math::Float;
use crate::pool::{Pool, SharedSlice};

pub use adaptive::{Adadelta, Adagrad, Adam, Adamax, Nadam, RmsProp};
pub use momentum::{Lion, Sgd};
pub use naive::update_naive;

/// Elements per task: with Adam's four arrays 256 KiB of f32.
const TASK: usize = 16 * 1024;

/// An optimizer with its constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Gradient descent, plain or with momentum.
    Sgd(Sgd),
    /// Adam; with weight decay, AdamW.
    Adam(Adam),
    /// RMSprop.
    RmsProp(RmsProp),
    /// Adagrad.
    Adagrad(Adagrad),
    /// Adadelta.
    Adadelta(Adadelta),
    /// Adamax: Adam with the infinity norm.
    Adamax(Adamax),
    /// Nadam: Adam with Nesterov's momentum.
    Nadam(Nadam),
    /// Lion: the sign of an interpolated momentum.
    Lion(Lion),
}

impl Rule {
    /// The names of the state arrays, each of the parameter's size, in the order [`update`] takes them.
    pub fn state(&self) -> &'static [&'static str] {
        match self {
            Rule::Sgd(r) if r.momentum == 0.0 => &[],
            Rule::Sgd(_) | Rule::Lion(_) => &["momentum"],
            Rule::Adam(r) if r.amsgrad => &["momentum", "velocity", "velocity_hat"],
            Rule::Adam(_) | Rule::Nadam(_) => &["momentum", "velocity"],
            Rule::RmsProp(r) => match (r.momentum != 0.0, r.centered) {
                (false, false) => &["velocity"],
                (true, false) => &["velocity", "momentum"],
                (false, true) => &["velocity", "average_gradient"],
                (true, true) => &["velocity", "momentum", "average_gradient"],
            },
            Rule::Adagrad(_) => &["accumulator"],
            Rule::Adadelta(_) => &["accumulated_gradient", "accumulated_delta"],
            Rule::Adamax(_) => &["momentum", "norm"],
        }
    }

    /// What every state array is filled with before the first step.
    pub fn initial_state(&self) -> f64 {
        match self {
            Rule::Adagrad(r) => r.initial_accumulator,
            _ => 0.0,
        }
    }

    /// Floating-point operations per parameter, roughly; divisions and roots count as one.
    pub fn operations(&self) -> usize {
        match self {
            Rule::Sgd(_) => 5,
            Rule::Lion(_) => 9,
            Rule::Adagrad(_) => 8,
            Rule::RmsProp(_) | Rule::Adamax(_) => 12,
            Rule::Adam(_) | Rule::Adadelta(_) => 14,
            Rule::Nadam(_) => 16,
        }
    }
}

/// Where epsilon stands in the denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EpsilonForm {
    /// As in Keras: `sqrt(v) + epsilon` before Adam's bias correction, `sqrt(v + epsilon)` in RMSprop and
    /// Adagrad, `u + epsilon` in Adamax.
    #[default]
    Keras,
    /// As in PyTorch: `sqrt(v) + epsilon` after Adam's bias correction and in RMSprop and Adagrad;
    /// `max(beta_2 * u, |g| + epsilon)` in Adamax.
    PyTorch,
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The number of this step, from 1.
    pub number: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// What every gradient is multiplied with first: for clipping by global norm or undoing a loss scale.
    pub gradient_scale: f64,
}

impl Step {
    /// A step that takes gradients as they are.
    pub fn new(number: f64, learning_rate: f64) -> Step {
        Step { number, learning_rate, gradient_scale: 1.0 }
    }
}

/// One step: changes `parameter` and the `state` arrays in place.
///
/// # Panics
/// When there are not as many state arrays as [`Rule::state`] says, or the lengths disagree.
pub fn update<T: Float>(
    pool: &Pool,
    rule: &Rule,
    step: Step,
    parameter: &mut [T],
    gradient: &[T],
    state: &mut [&mut [T]],
) {
    assert_eq!(state.len(), rule.state().len(), "number of state arrays");
    match rule {
        Rule::Sgd(r) => r.update(pool, step, parameter, gradient, state),
        Rule::Adam(r) => r.update(pool, step, parameter, gradient, state),
        Rule::RmsProp(r) => r.update(pool, step, parameter, gradient, state),
        Rule::Adagrad(r) => r.update(pool, step, parameter, gradient, state),
        Rule::Adadelta(r) => r.update(pool, step, parameter, gradient, state),
        Rule::Adamax(r) => r.update(pool, step, parameter, gradient, state),
        Rule::Nadam(r) => r.update(pool, step, parameter, gradient, state),
        Rule::Lion(r) => r.update(pool, step, parameter, gradient, state),
    }
}

/// Runs `body(parameter, gradient, state)` on blocks of fixed size.
fn blocks<T: Float, const N: usize>(
    pool: &Pool,
    parameter: &mut [T],
    gradient: &[T],
    state: &mut [&mut [T]],
    body: impl Fn(&mut [T], &[T], [&mut [T]; N]) + Sync,
) {
    let n = parameter.len();
    assert_eq!(gradient.len(), n, "gradient of another size");
    assert!(state.iter().all(|s| s.len() == n), "state of another size");
    let parameter = SharedSlice::new(parameter);
    let mut arrays = state.iter_mut();
    let state: [_; N] = std::array::from_fn(|_| SharedSlice::new(arrays.next().expect("as many as the rule has")));
    pool.run_sized(n.div_ceil(TASK), n * (N + 2) / 4, &|task, _| {
        let (from, len) = (task * TASK, TASK.min(n - task * TASK));
        // SAFETY: tasks write blocks of their own.
        let parameter = unsafe { parameter.slice(from, len) };
        // SAFETY: as above.
        let state = std::array::from_fn(|i| unsafe { state[i].slice(from, len) });
        body(parameter, &gradient[from..from + len], state);
    });
}

#[cfg(test)]
mod tests;
