//! Learning-rate schedules: functions of the step, evaluated on the host before each step.
//!
//! Steps are counted from 0, as in Keras: the first update of a run is made with the rate of step 0. Wherever an
//! optimizer takes a rate, a plain number does too:
//!
//! ```
//! use plimsoll::schedules::Schedule;
//! let fixed: Schedule = 0.1.into();
//! assert_eq!(fixed.at(1000), 0.1);
//! let halved = Schedule::step_decay(0.1, 0.5, 10);
//! assert_eq!([halved.at(9), halved.at(10), halved.at(25)], [0.1, 0.05, 0.025]);
//! ```

use crate::error::Error;
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// A learning rate as a function of the step.
#[derive(Clone)]
#[non_exhaustive]
pub enum Schedule {
    /// The same rate always.
    Constant(f64),
    /// `initial * rate^(step / steps)`.
    Exponential {
        /// The rate at step 0.
        initial: f64,
        /// How many steps one factor `rate` takes.
        steps: u64,
        /// The factor.
        rate: f64,
        /// Whole factors only: the exponent is rounded down.
        staircase: bool,
    },
    /// `values[i]` up to and including step `boundaries[i]`, the last value after the last boundary.
    PiecewiseConstant {
        /// The last step of each value but the last, rising.
        boundaries: Vec<u64>,
        /// One more than boundaries.
        values: Vec<f64>,
    },
    /// `(initial - end) * (1 - step / steps)^power + end`, and `end` after that.
    Polynomial {
        /// The rate at step 0.
        initial: f64,
        /// The number of steps until `end`.
        steps: u64,
        /// The rate at the end.
        end: f64,
        /// 1 for a straight line.
        power: f64,
        /// Instead of staying at `end`, stretch the decay to the next multiple of `steps` that is not yet reached.
        cycle: bool,
    },
    /// A rise in a straight line from `initial` to `peak` during `warmup` steps, then half a wave of a cosine down to
    /// `alpha * peak` during `steps` steps: `peak * ((1 - alpha) * (1 + cos(pi * t)) / 2 + alpha)` with `t` from 0 to 1.
    Cosine {
        /// The rate at step 0, with warm-up.
        initial: f64,
        /// The rate from which the cosine falls; at step 0 without warm-up.
        peak: f64,
        /// The number of steps of the rise; 0 for none.
        warmup: u64,
        /// The number of steps of the fall.
        steps: u64,
        /// The rate after it, as a part of `peak`.
        alpha: f64,
    },
    /// Falls as [`Schedule::Cosine`] over and over: each fall is `t_mul` times as long as the one before and begins at
    /// `m_mul` times its rate.
    CosineRestarts {
        /// The rate at step 0.
        initial: f64,
        /// The length of the first fall.
        first_steps: u64,
        /// How much longer each fall is than the one before; at least 1.
        t_mul: f64,
        /// How much lower each fall begins than the one before.
        m_mul: f64,
        /// The lowest rate, as a part of `initial`.
        alpha: f64,
    },
    /// `initial / (1 + rate * step / steps)`.
    InverseTime {
        /// The rate at step 0.
        initial: f64,
        /// The steps after which the divisor has grown by `rate`.
        steps: u64,
        /// How fast the divisor grows.
        rate: f64,
        /// Whole multiples of `steps` only.
        staircase: bool,
    },
    /// A function of the user's.
    Custom(Arc<dyn Fn(u64) -> f64 + Send + Sync>),
}

impl Schedule {
    /// The same rate always.
    pub fn constant(rate: f64) -> Schedule {
        Schedule::Constant(rate)
    }

    /// `initial * rate^(step / steps)`.
    pub fn exponential(initial: f64, steps: u64, rate: f64) -> Schedule {
        Schedule::Exponential { initial, steps, rate, staircase: false }
    }

    /// `initial * factor^(step / every)`, the exponent rounded down: every so many steps the rate drops.
    pub fn step_decay(initial: f64, factor: f64, every: u64) -> Schedule {
        Schedule::Exponential { initial, steps: every, rate: factor, staircase: true }
    }

    /// `values[i]` up to and including step `boundaries[i]`, the last value after that.
    ///
    /// ```
    /// use plimsoll::schedules::Schedule;
    /// let s = Schedule::piecewise(&[100, 200], &[0.1, 0.01, 0.001]);
    /// assert_eq!([s.at(100), s.at(101), s.at(201)], [0.1, 0.01, 0.001]);
    /// ```
    pub fn piecewise(boundaries: &[u64], values: &[f64]) -> Schedule {
        Schedule::PiecewiseConstant { boundaries: boundaries.to_vec(), values: values.to_vec() }
    }

    /// From `initial` to `end` in `steps` steps along a curve of this power; 1 is a straight line.
    pub fn polynomial(initial: f64, end: f64, steps: u64, power: f64) -> Schedule {
        Schedule::Polynomial { initial, steps, end, power, cycle: false }
    }

    /// Half a wave of a cosine from `initial` down to `alpha * initial` in `steps` steps.
    ///
    /// ```
    /// use plimsoll::schedules::Schedule;
    /// let s = Schedule::cosine(0.1, 1000, 0.0);
    /// assert_eq!(s.at(0), 0.1);
    /// assert!((s.at(500) - 0.05).abs() < 1e-12);
    /// assert_eq!(s.at(5000), 0.0);
    /// ```
    pub fn cosine(initial: f64, steps: u64, alpha: f64) -> Schedule {
        Schedule::Cosine { initial, peak: initial, warmup: 0, steps, alpha }
    }

    /// A rise from `initial` to `peak` in `warmup` steps, then a cosine down to `alpha * peak` in `steps` steps.
    ///
    /// ```
    /// use plimsoll::schedules::Schedule;
    /// let s = Schedule::cosine_with_warmup(0.0, 0.1, 10, 100, 0.01);
    /// assert!((s.at(5) - 0.05).abs() < 1e-12);
    /// assert_eq!(s.at(10), 0.1);
    /// assert!((s.at(110) - 0.001).abs() < 1e-12);
    /// ```
    pub fn cosine_with_warmup(initial: f64, peak: f64, warmup: u64, steps: u64, alpha: f64) -> Schedule {
        Schedule::Cosine { initial, peak, warmup, steps, alpha }
    }

    /// Cosines one after another, of rising length and falling height.
    pub fn cosine_restarts(initial: f64, first_steps: u64, t_mul: f64, m_mul: f64, alpha: f64) -> Schedule {
        Schedule::CosineRestarts { initial, first_steps, t_mul, m_mul, alpha }
    }

    /// `initial / (1 + rate * step / steps)`.
    pub fn inverse_time(initial: f64, steps: u64, rate: f64) -> Schedule {
        Schedule::InverseTime { initial, steps, rate, staircase: false }
    }

    /// Any function of the step.
    ///
    /// ```
    /// use plimsoll::schedules::Schedule;
    /// // The schedule of the first transformer, for a width of 512 and 4000 steps of warm-up.
    /// let s = Schedule::custom(|step| {
    ///     let step = (step + 1) as f64;
    ///     512f64.powf(-0.5) * step.powf(-0.5).min(step * 4000f64.powf(-1.5))
    /// });
    /// assert!(s.at(3999) > s.at(100) && s.at(3999) > s.at(20_000));
    /// ```
    pub fn custom(f: impl Fn(u64) -> f64 + Send + Sync + 'static) -> Schedule {
        Schedule::Custom(Arc::new(f))
    }

    /// The rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        let part = |steps: u64| step as f64 / steps as f64;
        let stairs = |p: f64, staircase: bool| if staircase { p.floor() } else { p };
        match self {
            Schedule::Constant(rate) => *rate,
            Schedule::Exponential { initial, steps, rate, staircase } => {
                initial * rate.powf(stairs(part(*steps), *staircase))
            }
            Schedule::PiecewiseConstant { boundaries, values } => {
                // The values whose boundary is not yet passed begin at this index.
                let index = boundaries.iter().take_while(|&&b| step > b).count();
                values.get(index).copied().unwrap_or(f64::NAN)
            }
            Schedule::Polynomial { initial, steps, end, power, cycle } => {
                let decays = if *cycle { part(*steps).ceil().max(1.0) } else { 1.0 };
                let p = (part(*steps) / decays).min(1.0);
                (initial - end) * (1.0 - p).powf(*power) + end
            }
            Schedule::Cosine { initial, peak, warmup, .. } if step < *warmup => {
                (peak - initial) * part(*warmup) + initial
            }
            Schedule::Cosine { peak, warmup, steps, alpha, .. } => {
                let t = ((step - warmup) as f64 / *steps as f64).min(1.0);
                peak * cosine(t, 1.0, *alpha)
            }
            Schedule::CosineRestarts { initial, first_steps, t_mul, m_mul, alpha } => {
                let (t, height) = restart(part(*first_steps), *t_mul, *m_mul);
                initial * cosine(t, height, *alpha)
            }
            Schedule::InverseTime { initial, steps, rate, staircase } => {
                initial / (1.0 + rate * stairs(part(*steps), *staircase))
            }
            Schedule::Custom(f) => f(step),
        }
    }

    /// Says what is wrong with the settings, if anything is.
    ///
    /// # Errors
    /// When a rate is negative or not a number, or a number of steps is 0.
    pub fn check(&self) -> Result<(), Error> {
        let rate = |name: &str, value: f64| match value >= 0.0 && value.is_finite() {
            true => Ok(()),
            false => fail(format!("{name} is {value}; it must be a number of at least 0")),
        };
        let steps = |name: &str, value: u64| match value {
            0 => fail(format!("{name} is 0; it must be at least 1")),
            _ => Ok(()),
        };
        match self {
            Schedule::Constant(value) => rate("the rate", *value),
            Schedule::Exponential { initial, steps: n, rate: r, .. }
            | Schedule::InverseTime { initial, steps: n, rate: r, .. } => {
                rate("the initial rate", *initial)?;
                rate("the rate of decay", *r)?;
                steps("the number of decay steps", *n)
            }
            Schedule::PiecewiseConstant { boundaries, values } => {
                if values.len() != boundaries.len() + 1 {
                    let (b, v) = (boundaries.len(), values.len());
                    return fail(format!(
                        "{v} values for {b} boundaries; there must be one value more than boundaries"
                    ));
                }
                if !boundaries.is_sorted_by(|a, b| a < b) {
                    return fail(format!("the boundaries {boundaries:?} do not rise"));
                }
                values.iter().try_for_each(|v| rate("a value", *v))
            }
            Schedule::Polynomial { initial, steps: n, end, power, .. } => {
                rate("the initial rate", *initial)?;
                rate("the rate at the end", *end)?;
                rate("the power", *power)?;
                steps("the number of decay steps", *n)
            }
            Schedule::Cosine { initial, peak, steps: n, alpha, .. } => {
                rate("the initial rate", *initial)?;
                rate("the peak rate", *peak)?;
                rate("alpha", *alpha)?;
                steps("the number of decay steps", *n)
            }
            Schedule::CosineRestarts { initial, first_steps, t_mul, m_mul, alpha } => {
                rate("the initial rate", *initial)?;
                rate("m_mul", *m_mul)?;
                rate("alpha", *alpha)?;
                if !(*t_mul >= 1.0 && t_mul.is_finite()) {
                    return fail(format!(
                        "t_mul is {t_mul}; it must be at least 1, or the decays would shrink to nothing"
                    ));
                }
                steps("the number of steps of the first decay", *first_steps)
            }
            Schedule::Custom(_) => Ok(()),
        }
    }
}

fn fail(message: String) -> Result<(), Error> {
    Err(Error::config("schedule", message))
}

/// Half a wave of a cosine from `height` (at `t` = 0) to `alpha` (at `t` = 1).
fn cosine(t: f64, height: f64, alpha: f64) -> f64 {
    (1.0 - alpha) * 0.5 * height * (1.0 + (PI * t).cos()) + alpha
}

/// How far into its decay (0 to 1) and how high a restarted schedule is, after `p` times the length of the first decay.
fn restart(p: f64, t_mul: f64, m_mul: f64) -> (f64, f64) {
    if t_mul == 1.0 {
        return (p.fract(), m_mul.powf(p.floor()));
    }
    // One decay after another: lengths grow, so there are few; logarithms would be off by one at exact ends.
    let (mut rest, mut length, mut height) = (p, 1.0, 1.0);
    while rest >= length {
        rest -= length;
        length *= t_mul;
        height *= m_mul;
    }
    (rest / length, height)
}

impl From<f64> for Schedule {
    fn from(rate: f64) -> Schedule {
        Schedule::Constant(rate)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, after) = (self.at(0), self.at(1000));
        match self {
            Schedule::Constant(rate) => write!(f, "Schedule({rate})"),
            Schedule::Custom(_) => write!(f, "Schedule(custom: {first} at step 0, {after} at step 1000)"),
            _ => write!(f, "Schedule({first} at step 0, {after} at step 1000)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(schedule: Schedule, message: &str) {
        assert_eq!(schedule.check().unwrap_err().to_string(), format!("schedule: {message}"));
    }

    #[test]
    fn bad_settings_are_refused() {
        check_refused((-0.1).into(), "the rate is -0.1; it must be a number of at least 0");
        check_refused(f64::NAN.into(), "the rate is NaN; it must be a number of at least 0");
        check_refused(Schedule::exponential(0.1, 0, 0.5), "the number of decay steps is 0; it must be at least 1");
        check_refused(
            Schedule::piecewise(&[5], &[0.1]),
            "1 values for 1 boundaries; there must be one value more than boundaries",
        );
        check_refused(Schedule::piecewise(&[5, 5], &[0.1; 3]), "the boundaries [5, 5] do not rise");
        assert!(Schedule::cosine_restarts(0.1, 10, 0.5, 1.0, 0.0).check().is_err());
        assert!(Schedule::cosine_with_warmup(0.0, 0.1, 5, 10, 0.0).check().is_ok());
    }

    #[test]
    fn restarts_are_exact_at_the_ends_of_decays() {
        let s = Schedule::cosine_restarts(1.0, 10, 3.0, 0.5, 0.0);
        // Decays of 10, 30 and 90 steps.
        assert_eq!([s.at(0), s.at(10), s.at(40), s.at(130)], [1.0, 0.5, 0.25, 0.125]);
        assert!(s.at(39) < 0.002);
    }
}
