//! Every optimizer and schedule of `tests/reference/optimizers.json`: the weights after each of ten steps, and the rates
//! of the first steps, as Keras computes them.

#[path = "common/build_optimizer.rs"]
mod build_optimizer;
mod common;
mod ways;

use build_optimizer::{optimizer, options, schedule};
use common::{Case, cases};
use plimsoll::init::Initializer;
use plimsoll::optimizers::{Hyper, apply};
use plimsoll::trace::{Mode, Role};
use plimsoll::{DType, Tensor, TensorType};
use ways::Way;

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
    Way::both().into_iter().try_for_each(|mut way| check_way(case, &mut way).map_err(|e| way.said(e)))
}

fn check_way(case: &Case, way: &mut Way) -> Result<(), String> {
    let (optimizer, options) = (optimizer(&case.config), options(&case.config));
    case.weights.iter().for_each(|w| way.set(&w.name, w.tensor.clone()));
    let steps = case.inputs[0].tensor.shape()[0];
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); case.expected.len()];
    for step in 0..steps {
        let mut inputs: Vec<(&str, Tensor)> =
            case.inputs.iter().map(|a| (a.name.as_str(), slice(&a.tensor, step))).collect();
        inputs.push(("rate", Tensor::scalar(optimizer.learning_rate().at(step as u64) as f32)));
        inputs.push(("step", Tensor::scalar((step + 1) as f32)));
        way.step(Mode::Train, &inputs, |t| {
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
        })?;
        for (found, expected) in found.iter_mut().zip(&case.expected) {
            // `a_after_step` is the weight `a`, `a_average_after_step` its moving average.
            let name = expected.name.strip_suffix("_after_step").expect("a name ending so");
            let variable = match name.strip_suffix("_average") {
                Some(weight) => format!("{}/{weight}/average", optimizer.name()),
                None => name.to_owned(),
            };
            found.extend(way.get(&variable).ok_or_else(|| format!("no variable '{variable}'"))?.to_f64());
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
