//! `[optimizer]`: how gradients change weights.

use super::read::{Fields, Read, With, table, union, wrong_value};
use super::tree::{Node, Value};
use crate::diagnostic::Diagnostic;
use plimsoll::optimizers as o;
use plimsoll::optimizers::UpdateOptions;
use plimsoll::schedules::Schedule;
use std::sync::Arc;

table! {
    /// `initial * rate^(step / steps)`.
    pub struct Exponential {
        /// The rate at step 0.
        initial: f64,
        /// Steps that one factor takes.
        steps: u64,
        /// The factor.
        rate: f64,
    }
}

table! {
    /// A straight rise from `initial` to `peak`, then half a cosine down.
    pub struct Cosine {
        /// The rate from which the cosine falls.
        peak: f64,
        /// Steps of the fall.
        steps: u64,
        /// Steps of the rise before it.
        warmup: u64 = 0,
        /// The rate at step 0 where there is a rise.
        initial: f64 = 0.0,
        /// The rate after the fall, as a part of the peak.
        alpha: f64 = 0.0,
    }
}

table! {
    /// A cosine that falls over and over.
    pub struct CosineRestarts {
        /// The rate at step 0.
        initial: f64,
        /// Steps of the first fall.
        first_steps: u64,
        /// How much longer each fall is than the one before.
        t_mul: f64 = 2.0,
        /// How much lower each fall begins.
        m_mul: f64 = 1.0,
        /// The lowest rate, as a part of the first.
        alpha: f64 = 0.0,
    }
}

table! {
    /// `(initial - end) (1 - step / steps)^power + end`.
    pub struct Polynomial {
        /// The rate at step 0.
        initial: f64,
        /// Steps until the end.
        steps: u64,
        /// The rate at the end.
        end: f64 = 0.0001,
        /// 1 for a straight line.
        power: f64 = 1.0,
    }
}

table! {
    /// One value after another.
    pub struct Piecewise {
        /// The last step of each value but the last.
        boundaries: Vec<u64>,
        /// The rates; one more than boundaries.
        values: Vec<f64>,
    }
}

table! {
    /// `initial / (1 + rate step / steps)`.
    pub struct InverseTime {
        /// The rate at step 0.
        initial: f64,
        /// Steps after which the divisor has grown by `rate`.
        steps: u64,
        /// How fast the divisor grows.
        rate: f64,
    }
}

table! {
    /// Multiplied by a factor every so many steps.
    pub struct StepDecay {
        /// The rate at step 0.
        initial: f64,
        /// The factor.
        factor: f64,
        /// Steps between two changes.
        every: u64,
    }
}

union! {
    /// A learning rate that changes with the step.
    pub enum ScheduleTable by "schedule", a "schedule", with Vec::new();
    {
        "exponential" => Exponential(Exponential),
        "cosine" => Cosine(Cosine),
        "cosine_restarts" => CosineRestarts(CosineRestarts),
        "polynomial" => Polynomial(Polynomial),
        "piecewise" => Piecewise(Piecewise),
        "inverse_time" => InverseTime(InverseTime),
        "step_decay" => StepDecay(StepDecay),
    }
}

/// A learning rate: a number, or a schedule.
#[derive(Clone, Debug)]
pub struct LearningRate(pub Schedule);

impl Read for LearningRate {
    fn read(node: &Node) -> Result<LearningRate, Diagnostic> {
        let schedule = match &node.value {
            Value::Table(_) => match ScheduleTable::read(node)? {
                ScheduleTable::Exponential(s) => Schedule::exponential(s.initial, s.steps, s.rate),
                ScheduleTable::Cosine(s) if s.warmup > 0 => {
                    Schedule::cosine_with_warmup(s.initial, s.peak, s.warmup, s.steps, s.alpha)
                }
                ScheduleTable::Cosine(s) => Schedule::cosine(s.peak, s.steps, s.alpha),
                ScheduleTable::CosineRestarts(s) => {
                    Schedule::cosine_restarts(s.initial, s.first_steps, s.t_mul, s.m_mul, s.alpha)
                }
                ScheduleTable::Polynomial(s) => Schedule::polynomial(s.initial, s.end, s.steps, s.power),
                ScheduleTable::Piecewise(s) => Schedule::piecewise(&s.boundaries, &s.values),
                ScheduleTable::InverseTime(s) => Schedule::inverse_time(s.initial, s.steps, s.rate),
                ScheduleTable::StepDecay(s) => Schedule::step_decay(s.initial, s.factor, s.every),
            },
            _ => Schedule::constant(f64::read(node)?),
        };
        schedule.check().map_err(|e| wrong_value(&node.origin, e.to_string(), "this learning rate"))?;
        Ok(LearningRate(schedule))
    }
    fn takes() -> String {
        "number, or a table with `schedule`".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [{ "type": "number" }, ScheduleTable::schema()] })
    }
    fn table() -> Option<super::read::TableDoc> {
        ScheduleTable::table()
    }
}

table! {
    /// What every optimizer has.
    pub struct OptimizerCommon {
        /// How far a step goes; 0.01 for `sgd`, 0.0001 for `lion`, 0.001 for the others if not given.
        learning_rate: Option<LearningRate> = none,
        /// Cuts every number of a gradient between minus and plus this.
        clip_value: Option<f64> = none,
        /// Shortens every weight's gradient to this length.
        clip_norm: Option<f64> = none,
        /// Shortens all gradients together to this length. For this all must exist at once, which takes memory.
        clip_global_norm: Option<f64> = none,
        /// Takes this times the learning rate times itself from a weight before its update.
        weight_decay: Option<f64> = none,
        /// Keeps moving averages of the weights, with this momentum.
        ema: Option<f64> = none,
    }
}

table! {
    /// Gradient descent.
    pub struct Sgd {
        /// The part of the last change that is kept.
        momentum: f64 = 0.0,
        /// Whether the gradient is taken ahead, where the momentum leads.
        nesterov: bool = false,
    }
}

table! {
    /// Adam and its relatives.
    pub struct AdamLike {
        /// The part of the mean of gradients that is kept.
        beta_1: f64 = 0.9,
        /// The part of the mean of squares that is kept.
        beta_2: f64 = 0.999,
        /// Added to the divisor.
        epsilon: f64 = 0.0000001,
    }
}

table! {
    /// RMSprop.
    pub struct RmsProp {
        /// The part of the mean of squares that is kept.
        rho: f64 = 0.9,
        /// The part of the last change that is kept.
        momentum: f64 = 0.0,
        /// Whether the mean gradient is taken from the squares.
        centered: bool = false,
        /// Added to the divisor.
        epsilon: f64 = 0.0000001,
    }
}

table! {
    /// Adagrad.
    pub struct Adagrad {
        /// What the sum of squares begins with.
        initial_accumulator: f64 = 0.1,
        /// Added to the divisor.
        epsilon: f64 = 0.0000001,
    }
}

table! {
    /// Adadelta.
    pub struct Adadelta {
        /// The part of the means that is kept.
        rho: f64 = 0.95,
        /// Added to the divisor.
        epsilon: f64 = 0.0000001,
    }
}

table! {
    /// Lion: the sign of a mean of gradients.
    pub struct Lion {
        /// The part of the mean in the change.
        beta_1: f64 = 0.9,
        /// The part of the mean that is kept.
        beta_2: f64 = 0.99,
    }
}

union! {
    /// How gradients change weights.
    pub enum OptimizerKind by "name" or "adam", a "optimizer", with OptimizerCommon::fields();
    {
        "adam" => Adam(AdamLike),
        "adamw" => AdamW(AdamLike),
        "adamax" => Adamax(AdamLike),
        "nadam" => Nadam(AdamLike),
        "sgd" => Sgd(Sgd),
        "rmsprop" => RmsProp(RmsProp),
        "adagrad" => Adagrad(Adagrad),
        "adadelta" => Adadelta(Adadelta),
        "lion" => Lion(Lion),
    }
}

/// `[optimizer]`.
pub type OptimizerTable = With<OptimizerCommon, OptimizerKind>;

/// The optimizer and what surrounds its update.
pub fn build(table: &OptimizerTable) -> Result<(Arc<dyn o::Optimizer>, UpdateOptions), Diagnostic> {
    let common = &table.common;
    let rate = |default: f64| common.learning_rate.as_ref().map_or(Schedule::constant(default), |r| r.0.clone());
    macro_rules! adam {
        ($optimizer:ident, $s:expr) => {
            Arc::new(o::$optimizer::new(rate(1e-3)).beta_1($s.beta_1).beta_2($s.beta_2).epsilon($s.epsilon))
        };
    }
    let optimizer: Arc<dyn o::Optimizer> = match &table.kind {
        OptimizerKind::Adam(s) => adam!(Adam, s),
        OptimizerKind::AdamW(s) => adam!(AdamW, s),
        OptimizerKind::Adamax(s) => adam!(Adamax, s),
        OptimizerKind::Nadam(s) => adam!(Nadam, s),
        OptimizerKind::Sgd(s) => {
            let sgd = o::Sgd::new(rate(1e-2)).momentum(s.momentum);
            Arc::new(if s.nesterov { sgd.nesterov() } else { sgd })
        }
        OptimizerKind::RmsProp(s) => {
            let optimizer = o::RmsProp::new(rate(1e-3)).rho(s.rho).momentum(s.momentum).epsilon(s.epsilon);
            Arc::new(if s.centered { optimizer.centered() } else { optimizer })
        }
        OptimizerKind::Adagrad(s) => {
            Arc::new(o::Adagrad::new(rate(1e-3)).initial_accumulator(s.initial_accumulator).epsilon(s.epsilon))
        }
        OptimizerKind::Adadelta(s) => Arc::new(o::Adadelta::new(rate(1e-3)).rho(s.rho).epsilon(s.epsilon)),
        OptimizerKind::Lion(s) => Arc::new(o::Lion::new(rate(1e-4)).beta_1(s.beta_1).beta_2(s.beta_2)),
    };
    let mut updates = UpdateOptions::new();
    let clips = [common.clip_value, common.clip_norm, common.clip_global_norm];
    if clips.iter().flatten().count() > 1 {
        let title = "more than one way to clip";
        return Err(wrong_value(&table.origin, title, "of clip_value, clip_norm and clip_global_norm keep one"));
    }
    if let Some(limit) = common.clip_value {
        updates = updates.clip_value(limit);
    }
    if let Some(limit) = common.clip_norm {
        updates = updates.clip_norm(limit);
    }
    if let Some(limit) = common.clip_global_norm {
        updates = updates.clip_global_norm(limit);
    }
    if let Some(decay) = common.weight_decay {
        updates = updates.weight_decay(decay);
    }
    if let Some(momentum) = common.ema {
        updates = updates.ema(momentum);
    }
    updates.check().map_err(|e| wrong_value(&table.origin, e.to_string(), "this optimizer"))?;
    Ok((optimizer, updates))
}
