//! A model of words: embedding, recurrent layers both ways, sorting and scanning, and Adam. Planned, run with poisoned
//! memory for a few steps, and compared with the plain interpreter.

use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use plimsoll_graph::op::optimizer::StepValues;
use plimsoll_graph::op::rnn::{Cell, RecurrentInputs};
use plimsoll_graph::{Graph, GraphError, Value, gradients, interpret};
use plimsoll_kernels::optimizer::{Adam, Rule};
use plimsoll_plan::{Options, StateLayout, plan};
use plimsoll_tensor::{DType, Tensor, TensorType};
use std::collections::BTreeMap;

const WORDS: usize = 11;
const FEATURES: usize = 4;
const UNITS: usize = 5;
const BATCH: usize = 6;
const STEPS: usize = 7;

fn f32s(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

/// One layer over a sequence, from its inputs on.
fn layer(
    g: &mut Graph,
    cell: Cell,
    name: &str,
    x: Value,
    mask: Value,
    reverse: bool,
) -> Result<(Value, Value), GraphError> {
    let width = cell.gates() * UNITS;
    let features = g.shape(x)[2];
    let kernel = g.state(&format!("{name}/kernel"), f32s(&[features, width]));
    let recurrent = g.state(&format!("{name}/recurrent"), f32s(&[UNITS, width]));
    let bias = (cell == Cell::Gru).then(|| g.state(&format!("{name}/bias"), f32s(&[width])));
    let projections = g.matmul(x, kernel)?;
    let inputs = RecurrentInputs {
        projections,
        kernel: recurrent,
        bias,
        initial: Vec::new(),
        mask: Some(mask),
        reverse,
        training: true,
    };
    let out = g.recurrence(cell, &inputs)?;
    Ok((out.h, out.last[0]))
}

/// The training step: loss, and Adam on every state that is a weight.
fn model() -> Result<Graph, GraphError> {
    let mut g = Graph::new();
    let words = g.input("words", TensorType::new(DType::I32, [BATCH, STEPS]));
    let mask = g.input("mask", TensorType::new(DType::Bool, [BATCH, STEPS]));
    let table = g.state("table", f32s(&[WORDS, FEATURES]));
    let x = g.gather(table, words, 0)?;
    let (forwards, _) = layer(&mut g, Cell::Lstm, "lstm", x, mask, false)?;
    let (backwards, _) = layer(&mut g, Cell::Gru, "gru", x, mask, true)?;
    let both = g.concat(&[forwards, backwards], 2)?;
    let (states, last) = layer(&mut g, Cell::Simple, "simple", both, mask, false)?;
    let sums = g.cumsum(states, 1, false, false)?;
    let (largest, _) = g.top_k(sums, 3)?;
    let squares = g.square(largest)?;
    let (a, b) = (g.mean_all(squares)?, g.mean_all(last)?);
    let loss = g.add(a, b)?;
    g.output("loss", loss);

    let weights: Vec<(Value, String)> = g.states().map(|(v, n)| (v, n.to_owned())).collect();
    let of: Vec<Value> = weights.iter().map(|(v, _)| *v).collect();
    let grads = gradients(&mut g, loss, &of)?;
    let step = StepValues {
        learning_rate: g.input("learning rate", f32s(&[])),
        number: g.input("step", f32s(&[])),
        gradient_scale: None,
    };
    for ((weight, name), grad) in weights.into_iter().zip(grads) {
        let Some(grad) = grad else { continue };
        let ty = *g.ty(weight);
        let state = [g.state(&format!("{name}/m"), ty), g.state(&format!("{name}/v"), ty)];
        let new = g.optimize(Rule::Adam(Adam::default()), weight, &state, grad, step)?;
        for (value, part) in new.into_iter().zip(["", "/m", "/v"]) {
            g.output(&format!("{name}{part}"), value);
        }
    }
    Ok(g)
}

#[test]
fn steps_equal_the_plain_interpreter() {
    let g = model().unwrap();
    g.verify().unwrap();
    let text = g.to_string();
    assert_eq!(Graph::parse(&text).unwrap().to_string(), text);
    let number = |i: usize| ((i * 7919 + 13) % 1000) as f64 / 1000.0 - 0.5;
    let words: Vec<i32> = (0..BATCH * STEPS).map(|i| ((i * 5 + i / 3) % WORDS) as i32).collect();
    let mask: Vec<f64> = (0..BATCH * STEPS).map(|i| (i % 5 != 0) as u8 as f64).collect();
    let words = Tensor::from_slice([BATCH, STEPS], &words).unwrap();
    let mask = Tensor::from_f64(DType::Bool, [BATCH, STEPS], &mask).unwrap();

    let mut states: BTreeMap<String, Tensor> = BTreeMap::new();
    for (salt, (v, name)) in g.states().enumerate() {
        let moment = name.ends_with("/m") || name.ends_with("/v");
        let fill = |i: usize| if moment { 0.0 } else { number(i + 101 * salt) };
        let data: Vec<f64> = (0..g.shape(v).elements()).map(fill).collect();
        states.insert(name.to_owned(), Tensor::from_f64(DType::F32, g.shape(v), &data).unwrap());
    }
    let layout = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    let mut engines: Vec<Engine> = [1, 2, 3]
        .into_iter()
        .map(|threads| {
            let planned = plan(&g, &layout, &Options { threads, ..Options::default() }).unwrap();
            let mut engine = Engine::open(&Budget::unlimited(), &layout, vec![planned], threads).unwrap();
            engine.set_poison(true);
            states.iter().for_each(|(name, tensor)| engine.set_state(name, tensor).unwrap());
            engine
        })
        .collect();

    for step in 1..=3 {
        let scalar = |x: f32| Tensor::from_slice([], &[x]).unwrap();
        let inputs = [
            ("words", words.clone()),
            ("mask", mask.clone()),
            ("learning rate", scalar(0.01)),
            ("step", scalar(step as f32)),
        ];
        let mut given: Vec<(&str, Tensor)> = inputs.to_vec();
        given.extend(states.iter().map(|(n, t)| (n.as_str(), t.clone())));
        let want = interpret(&g, &given).unwrap();
        let mut results: Vec<Vec<Tensor>> = Vec::new();
        for engine in &mut engines {
            inputs.iter().for_each(|(name, tensor)| engine.set_input(0, name, tensor).unwrap());
            engine.run(0).unwrap();
            results.push(g.outputs().iter().map(|o| engine.output(0, &o.name).unwrap()).collect());
        }
        for (i, output) in g.outputs().iter().enumerate() {
            let name = &output.name;
            let same = |other: &Vec<Tensor>| other[i].bytes() == results[0][i].bytes();
            assert!(results.iter().all(same), "step {step}: '{name}' depends on the threads");
            for (a, b) in results[0][i].to_f64().iter().zip(want[name].to_f64()) {
                assert!((a - b).abs() <= 2e-4 * b.abs().max(1.0), "step {step}: '{name}' is {a}, plainly {b}");
            }
            if let Some(state) = states.get_mut(name) {
                *state = results[0][i].clone();
            }
        }
    }
}
