//! Every optimizer and schedule of `tests/reference/optimizers.json`: the weights after each of ten steps, and the rates
//! of the first steps, as Keras computes them.

mod common;

use common::{Case, Config, cases};
use plimsoll::by_definition::Run;
use plimsoll::init::Initializer;
use plimsoll::optimizers::*;
use plimsoll::schedules::Schedule;
use plimsoll::trace::{Mode, Role};
use plimsoll::{DType, Tensor, TensorType};

#[test]
fn weights_after_each_step() {
    let cases = cases("optimizers");
    assert!(cases.len() >= 42, "the file has {} cases", cases.len());
    let check = |c: &Case| if c.config.get("schedule").is_some() { check_schedule(c) } else { check_optimizer(c) };
    let wrong: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn check_schedule(case: &Case) -> Result<(), String> {
    let schedule = schedule(&case.config);
    schedule.check().map_err(|e| e.to_string())?;
    let expected = case.expected("rate_at_step");
    let rates: Vec<f64> = (0..expected.values.len() as u64).map(|step| schedule.at(step)).collect();
    expected.compare(&Tensor::from_slice([rates.len()], &rates).expect("a vector"), 1e-5)
}

fn check_optimizer(case: &Case) -> Result<(), String> {
    let (optimizer, options) = (optimizer(&case.config), options(&case.config));
    let mut run = Run::new();
    case.weights.iter().for_each(|w| run.set(&w.name, w.tensor.clone()));
    let steps = case.inputs[0].tensor.shape()[0];
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); case.expected.len()];
    for step in 0..steps {
        let mut inputs: Vec<(&str, Tensor)> =
            case.inputs.iter().map(|a| (a.name.as_str(), slice(&a.tensor, step))).collect();
        inputs.push(("rate", Tensor::scalar(optimizer.learning_rate().at(step as u64) as f32)));
        inputs.push(("step", Tensor::scalar((step + 1) as f32)));
        run.step(Mode::Train, &inputs, |t| {
            let scalar = TensorType::new(DType::F32, []);
            let hyper = Hyper { learning_rate: t.input("rate", scalar), step: t.input("step", scalar) };
            let mut gradients = Vec::new();
            for weight in &case.weights {
                let ty = *weight.tensor.ty();
                let value = t.variable(&weight.name, ty, Initializer::Zeros, Role::Weight)?;
                gradients.push((weight.name.clone(), value, t.input(&format!("grad_{}", weight.name), ty)));
            }
            apply(&*optimizer, t, &gradients, &hyper, &options)?;
            Ok(())
        })
        .map_err(|e| e.to_string())?;
        for (found, expected) in found.iter_mut().zip(&case.expected) {
            // `a_after_step` is the weight `a`, `a_average_after_step` its moving average.
            let name = expected.name.strip_suffix("_after_step").expect("a name ending so");
            let variable = match name.strip_suffix("_average") {
                Some(weight) => format!("{}/{weight}/average", optimizer.name()),
                None => name.to_owned(),
            };
            found.extend(run.get(&variable).ok_or_else(|| format!("no variable '{variable}'"))?.to_f64());
        }
    }
    for (found, expected) in found.iter().zip(&case.expected) {
        expected.compare(&Tensor::from_slice(&expected.shape[..], found).map_err(|e| e.to_string())?, 1e-5)?;
    }
    Ok(())
}

/// Slice `k` along the first axis.
fn slice(tensor: &Tensor, k: usize) -> Tensor {
    let shape = tensor.shape().remove(0);
    let values = tensor.to_f64();
    Tensor::from_f64(tensor.dtype(), shape, &values[k * shape.elements()..][..shape.elements()]).expect("a slice")
}

/// The schedule that settings describe.
fn schedule(config: &Config) -> Schedule {
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
fn optimizer(config: &Config) -> Box<dyn Optimizer> {
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
fn options(config: &Config) -> UpdateOptions {
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
