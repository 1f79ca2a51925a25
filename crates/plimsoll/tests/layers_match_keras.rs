//! Every layer gives Keras's outputs and gradients, from the same weights and inputs.
//!
//! Of each case, `sum(output * output_grad)` is differentiated with respect to every input and weight, and everything is
//! compared with what Keras computed in float32.

#[path = "common/build_layer.rs"]
mod build_layer;
mod common;
#[path = "common/engine.rs"]
mod engine;

use build_layer::{layer, recurrent};
use common::{Case, cases};
use plimsoll::init::Initializer;
use plimsoll::layers::Sequence;
use plimsoll::trace::{Role, Variables};
use plimsoll::{Error, Graph, Mode, Tensor, Trace, Value};
use plimsoll_graph::{Split, gradients_from, interpret, propagate};
use std::collections::BTreeMap;

#[test]
fn by_definition() {
    check_all(1e-5, |graph, given| interpret(graph, given).map_err(|e| e.to_string()));
}

/// Planned, and run in float32.
#[test]
fn by_the_engine() {
    check_all(2e-5, engine::run);
}

/// Every layer can be run on slices of the batch: outputs and gradients of inputs are slices, gradients of weights add up.
/// Only batch norm looks at the whole batch, while training.
#[test]
fn in_slices_of_the_batch() {
    let mut failures = Vec::new();
    for case in cases("layers") {
        let graph = trace(&case).unwrap();
        let inputs: Vec<(Value, Split)> = graph.inputs().map(|(v, _)| (v, Split::Axis(0))).collect();
        let splits = propagate(&graph, &inputs);
        let whole_batch = case.config.text("layer") == "BatchNormalization" && case.config.flag("training");
        for output in graph.outputs() {
            let weight = case.weights.iter().find(|w| output.name.ends_with(&format!("/{}", w.name)));
            let wanted = match (whole_batch, weight) {
                (true, _) => continue,
                (false, Some(weight)) if weight.trainable => Split::Partial,
                (false, Some(_)) => Split::Whole,
                (false, None) => Split::Axis(0),
            };
            let found = splits[output.value.0 as usize];
            if found != wanted {
                failures.push(format!("{}: {} is {found:?}, expected {wanted:?}", case.name, output.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}

/// Runs all cases and lists those that fail.
fn check_all(tolerance: f64, run: impl Fn(&Graph, &[(&str, Tensor)]) -> Result<BTreeMap<String, Tensor>, String>) {
    let cases = cases("layers");
    assert_eq!(cases.len(), 156);
    let mut failures = Vec::new();
    for case in &cases {
        if let Err(message) = check(case, tolerance, &run) {
            failures.push(format!("{}: {message}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check(
    case: &Case,
    tolerance: f64,
    run: impl Fn(&Graph, &[(&str, Tensor)]) -> Result<BTreeMap<String, Tensor>, String>,
) -> Result<(), String> {
    let graph = trace(case)?;
    let arrays = case.inputs.iter().chain(&case.weights);
    let given: Vec<(&str, Tensor)> = arrays.map(|a| (a.name.as_str(), a.tensor.clone())).collect();
    let results = run(&graph, &given)?;
    for expected in &case.expected {
        let found = results.get(&expected.name).ok_or(format!("no {}", expected.name))?;
        expected.compare(found, tolerance)?;
    }
    Ok(())
}

/// The graph of a case: outputs, gradients and states after the step, named as in the file.
fn trace(case: &Case) -> Result<Graph, String> {
    let fail = |e: Error| e.to_string();
    let mut variables = Variables::new();
    let mode = if case.config.flag("training") { Mode::Train } else { Mode::Evaluate };
    let mut t = Trace::new(&mut variables, mode);
    let values: Vec<(&str, Value)> =
        case.inputs.iter().map(|a| (a.name.as_str(), t.input(&a.name, *a.tensor.ty()))).collect();
    let is_grad = |name: &str| name.ends_with("_grad");
    let inputs: Vec<Value> = values.iter().filter(|(n, _)| !is_grad(n)).map(|(_, v)| *v).collect();
    let output_grads: Vec<Value> = values.iter().filter(|(n, _)| is_grad(n)).map(|(_, v)| *v).collect();
    let outputs = apply(case, &mut t, &inputs).map_err(fail)?;
    if outputs.len() != output_grads.len() {
        return Err(format!("{} outputs, expected {}", outputs.len(), output_grads.len()));
    }
    for (i, &output) in outputs.iter().enumerate() {
        let name = if outputs.len() == 1 { "output".to_owned() } else { format!("output{i}") };
        t.output(&name, output);
    }
    let mut wrt: Vec<(String, Value)> = values.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
    wrt.retain(|(n, v)| !is_grad(n) && t.dtype(*v).is_float());
    wrt.extend(t.weights());
    let of: Vec<Value> = wrt.iter().map(|(_, v)| *v).collect();
    let seeds: Vec<(Value, Value)> = outputs.into_iter().zip(output_grads).collect();
    let grads = gradients_from(&mut t, &seeds, &of).map_err(|e| e.to_string())?;
    for ((name, _), grad) in wrt.iter().zip(grads) {
        let grad = grad.ok_or(format!("no gradient of {name}"))?;
        t.output(&format!("grad/{name}"), grad);
    }
    for weight in case.weights.iter().filter(|w| !w.trainable) {
        let ty = *weight.tensor.ty();
        let after = t.variable(&weight.name, ty, Initializer::Zeros, Role::Statistic).map_err(fail)?;
        t.output(&format!("after/{}", weight.name), after);
    }
    let graph = t.finish();
    let mut made: Vec<(&str, bool)> = variables.iter().map(|v| (v.name.as_str(), v.role == Role::Weight)).collect();
    let mut wanted: Vec<(&str, bool)> = case.weights.iter().map(|w| (w.name.as_str(), w.trainable)).collect();
    made.sort_unstable();
    wanted.sort_unstable();
    if made != wanted {
        return Err(format!("weights {made:?}, expected {wanted:?}"));
    }
    Ok(graph)
}

/// The layer's outputs. Recurrent layers with initial states give their last states too.
fn apply(case: &Case, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Vec<Value>, Error> {
    if case.find_input("initial_h").is_some() {
        let sequence = Sequence { initial: inputs[1..].to_vec(), ..Sequence::new(inputs[0]) };
        let run = recurrent(&case.config).run(t, &sequence)?;
        return Ok([vec![run.output], run.states].concat());
    }
    Ok(vec![layer(&case.config)?.call(t, inputs)?])
}
