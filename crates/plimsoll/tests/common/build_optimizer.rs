//! Optimizers and schedules from the settings of a case.

use crate::common::Config;
use plimsoll::optimizers::*;
use plimsoll::schedules::Schedule;

/// The schedule that settings describe.
pub fn schedule(config: &Config) -> Schedule {
    let initial = || config.number("initial_learning_rate");
    let steps = |name: &str| config.size(name) as u64;
    match config.text("schedule") {
        "ExponentialDecay" => Schedule::Exponential {
            initial: initial(),
            steps: steps("decay_steps"),
            rate: config.number("decay_rate"),
            staircase: config.flag("staircase"),
        },
        "PiecewiseConstantDecay" => {
            let boundaries: Vec<u64> = config.sizes("boundaries").iter().map(|&b| b as u64).collect();
            let values = config.get("values").and_then(|v| v.as_array()).expect("a list").iter();
            Schedule::piecewise(&boundaries, &values.map(|v| v.as_f64().expect("a number")).collect::<Vec<f64>>())
        }
        "PolynomialDecay" => Schedule::Polynomial {
            initial: initial(),
            steps: steps("decay_steps"),
            end: config.number("end_learning_rate"),
            power: config.number("power"),
            cycle: config.flag("cycle"),
        },
        "CosineDecay" => match config.get("warmup_target").map(|v| v.as_f64().expect("a number")) {
            None => Schedule::cosine(initial(), steps("decay_steps"), config.number("alpha")),
            Some(peak) => Schedule::cosine_with_warmup(
                initial(),
                peak,
                steps("warmup_steps"),
                steps("decay_steps"),
                config.number("alpha"),
            ),
        },
        "CosineDecayRestarts" => Schedule::cosine_restarts(
            initial(),
            steps("first_decay_steps"),
            config.number("t_mul"),
            config.number("m_mul"),
            config.number("alpha"),
        ),
        "InverseTimeDecay" => Schedule::InverseTime {
            initial: initial(),
            steps: steps("decay_steps"),
            rate: config.number("decay_rate"),
            staircase: config.flag("staircase"),
        },
        other => panic!("unknown schedule {other}"),
    }
}

/// The optimizer that a case's settings describe.
pub fn optimizer(config: &Config) -> Box<dyn Optimizer> {
    let rate: Schedule = match config.get("learning_rate").expect("a rate") {
        number if number.is_number() => number.as_f64().expect("a number").into(),
        _ => schedule(&config.inner("learning_rate")),
    };
    let (beta_1, beta_2, epsilon) =
        (|| config.number("beta_1"), || config.number("beta_2"), || config.number("epsilon"));
    match config.text("optimizer") {
        "SGD" => {
            let sgd = Sgd::new(rate).momentum(config.number("momentum"));
            Box::new(if config.flag("nesterov") { sgd.nesterov() } else { sgd })
        }
        "Adam" => {
            let adam = Adam::new(rate).beta_1(beta_1()).beta_2(beta_2()).epsilon(epsilon());
            Box::new(if config.flag("amsgrad") { adam.amsgrad() } else { adam })
        }
        "AdamW" => {
            // Its decay is among the options.
            let adam = AdamW::new(rate).beta_1(beta_1()).beta_2(beta_2()).epsilon(epsilon());
            Box::new(if config.flag("amsgrad") { adam.amsgrad() } else { adam })
        }
        "RMSprop" => {
            let momentum = config.number("momentum");
            let rms = RmsProp::new(rate).rho(config.number("rho")).momentum(momentum).epsilon(epsilon());
            Box::new(if config.flag("centered") { rms.centered() } else { rms })
        }
        "Adagrad" => {
            let start = config.number("initial_accumulator_value");
            Box::new(Adagrad::new(rate).initial_accumulator(start).epsilon(epsilon()))
        }
        "Adadelta" => Box::new(Adadelta::new(rate).rho(config.number("rho")).epsilon(epsilon())),
        "Adamax" => Box::new(Adamax::new(rate).beta_1(beta_1()).beta_2(beta_2()).epsilon(epsilon())),
        "Nadam" => Box::new(Nadam::new(rate).beta_1(beta_1()).beta_2(beta_2()).epsilon(epsilon())),
        "Lion" => Box::new(Lion::new(rate).beta_1(beta_1()).beta_2(beta_2())),
        other => panic!("unknown optimizer {other}"),
    }
}

/// What the settings say besides the optimizer itself.
pub fn options(config: &Config) -> UpdateOptions {
    let number = |name: &str| config.get(name).map(|v| v.as_f64().expect("a number"));
    let clips = [
        number("clipvalue").map(Clip::Value),
        number("clipnorm").map(Clip::Norm),
        number("global_clipnorm").map(Clip::GlobalNorm),
    ];
    let ema = config.flag("use_ema").then(|| Ema {
        momentum: config.number("ema_momentum"),
        overwrite_every: config.get("ema_overwrite_frequency").map(|v| v.as_u64().expect("a number of steps")),
    });
    UpdateOptions {
        clip: clips.into_iter().flatten().next().unwrap_or_default(),
        weight_decay: number("weight_decay"),
        ema,
        ..UpdateOptions::new()
    }
}
