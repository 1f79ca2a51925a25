//! Random graphs: planned, checked, run with poisoned memory, and compared with the plain interpreter.
//!
//! 1,000 graphs by default; `PLIMSOLL_GRAPHS=20000` for more, `PLIMSOLL_SEED=n` to start elsewhere. A failure prints a graph
//! that `Graph::parse` reads back.

mod by_hand;

use by_hand::{directory, through_file};
use plimsoll_budget::Budget;
use plimsoll_exec::{Engine, Settings, spill_memory};
use plimsoll_graph::{Graph, Value, gradients, interpret};
use plimsoll_plan::{Options, Plan, PlanError, StateLayout, plan};
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
use std::slice::from_ref;

/// A small generator of whole numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % below
    }

    fn number(&mut self) -> f64 {
        self.roll(2001) as f64 / 1000.0 - 1.0
    }
}

/// A random value out of a list.
fn pick(dice: &mut Dice, values: &[Value]) -> Value {
    // Recent ones more often: deep graphs find more.
    let n = values.len();
    let back = dice.roll(n).min(dice.roll(n));
    values[n - 1 - back]
}

/// Adds one random op; `None` when the dice chose something that does not fit.
fn grow(dice: &mut Dice, g: &mut Graph, values: &mut Vec<Value>) -> Option<()> {
    let x = pick(dice, values);
    let shape = g.shape(x);
    let new = match dice.roll(18) {
        0 => g.tanh(x).ok()?,
        1 => g.relu(x).ok()?,
        2 => g.sigmoid(x).ok()?,
        3 => g.scale(x, dice.number()).ok()?,
        4..=6 => {
            let y = pick(dice, values);
            match dice.roll(4) {
                0 => g.add(x, y).ok()?,
                1 => g.sub(x, y).ok()?,
                2 => g.mul(x, y).ok()?,
                _ => g.maximum(x, y).ok()?,
            }
        }
        7 => {
            let y = pick(dice, values);
            let c = g.gt(x, y).ok()?;
            g.select(c, x, y).ok()?
        }
        8 | 9 => {
            let axis = dice.roll(shape.rank().max(1));
            g.sum(x, &[axis], dice.roll(2) == 0).ok()?
        }
        10 => g.mean_all(x).ok()?,
        11 | 12 => {
            let y = pick(dice, values);
            g.matmul_with(x, y, dice.roll(2) == 0, dice.roll(2) == 0).ok()?
        }
        13 => {
            let mut axes: Vec<usize> = (0..shape.rank()).collect();
            axes.reverse();
            g.transpose(x, &axes).ok()?
        }
        14 => g.reshape(x, [shape.elements()]).ok()?,
        15 => {
            let axis = dice.roll(shape.rank().max(1));
            let size = *shape.dims().get(axis)?;
            let start = dice.roll(size);
            g.slice_axis(x, axis, start, 1 + dice.roll(size - start)).ok()?
        }
        16 => {
            let y = pick(dice, values);
            g.concat(&[x, y], dice.roll(shape.rank().max(1))).ok()?
        }
        _ => {
            let new = Shape::new(&[1 + dice.roll(3), 2, 3]);
            g.broadcast(x, shape.broadcast(&new)?).ok()?
        }
    };
    if g.shape(new).elements() > 6000 {
        return None;
    }
    values.push(new);
    Some(())
}

/// Small sizes, and a few that make values larger than the scratch memory of a fused program.
fn side(dice: &mut Dice) -> usize {
    [2, 3, 4, 48, 64][dice.roll(5)]
}

fn random_graph(dice: &mut Dice) -> Graph {
    let mut g = Graph::new();
    let mut values = Vec::new();
    let mut weights = Vec::new();
    for i in 0..1 + dice.roll(3) {
        let shape = Shape::new(&[side(dice), side(dice)]);
        values.push(g.input(&format!("x{i}"), TensorType::new(DType::F32, shape)));
    }
    for i in 0..1 + dice.roll(3) {
        let shape = Shape::new(&[side(dice), side(dice)]);
        let w = g.state(&format!("w{i}"), TensorType::new(DType::F32, shape));
        values.push(w);
        weights.push(w);
    }
    for _ in 0..5 + dice.roll(30) {
        grow(dice, &mut g, &mut values);
    }
    let loss = {
        let last = *values.last().unwrap();
        g.mean_all(last).unwrap()
    };
    g.output("loss", loss);
    // A kept value in the middle, and a training step: gradients change the states.
    let kept = pick(dice, &values);
    g.output("kept", kept);
    let grads = gradients(&mut g, loss, &weights).unwrap();
    for (i, (weight, grad)) in weights.into_iter().zip(grads).enumerate() {
        if let Some(grad) = grad {
            let step = g.scale(grad, -0.1).unwrap();
            let new = g.add(weight, step).unwrap();
            let new = g.assign(weight, new).unwrap();
            g.output(&format!("new{i}"), new);
        }
    }
    g
}

fn given(g: &Graph, dice: &mut Dice) -> Vec<(String, Tensor)> {
    let all: Vec<(Value, String)> = g.inputs().chain(g.states()).map(|(v, n)| (v, n.to_owned())).collect();
    all.into_iter()
        .map(|(v, name)| {
            let data: Vec<f64> = (0..g.shape(v).elements()).map(|_| dice.number()).collect();
            (name, Tensor::from_f64(DType::F32, g.shape(v), &data).unwrap())
        })
        .collect()
}

/// Runs a planned step once and gives its outputs.
fn outputs(g: &Graph, planned: Plan, values: &[(String, Tensor)]) -> Vec<Tensor> {
    let (state, threads) = (planned.state.clone(), planned.threads);
    let fixed =
        state.bytes() + planned.graph.packing().bytes(threads) as u64 + spill_memory(&state, from_ref(&planned)).0;
    let bytes = fixed + planned.arena_bytes;
    let budget = Budget::unlimited();
    let settings = Settings::from(threads).spill_dir(directory());
    let mut engine = Engine::open(&budget, &state, vec![planned], settings).unwrap();
    assert_eq!(budget.peak().0, bytes, "the ledger's peak is the planned one");
    engine.set_poison(true);
    for (name, tensor) in values {
        if g.states().any(|(_, n)| n == name) {
            engine.set_state(name, tensor).unwrap();
        } else {
            engine.set_input(0, name, tensor).unwrap();
        }
    }
    engine.run(0).unwrap();
    g.outputs().iter().map(|o| engine.output(0, &o.name).unwrap()).collect()
}

fn close(a: f64, b: f64) -> bool {
    a == b
        || a.is_nan() && b.is_nan()
        || (a - b).abs() <= 1e-3 * a.abs().max(b.abs()).max(1.0)
        || a.abs().min(b.abs()) > 1e30
}

#[test]
fn planned_runs_equal_the_plain_interpreter() {
    let count: usize = std::env::var("PLIMSOLL_GRAPHS").ok().and_then(|v| v.parse().ok()).unwrap_or(1000);
    let seed: u64 = std::env::var("PLIMSOLL_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let (mut n_ops, mut n_recomputed, mut n_refused, mut n_moved) = (0, 0, 0, 0);
    for case in 0..count as u64 {
        let mut dice = Dice((seed + case).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let g = random_graph(&mut dice);
        let text = g.to_string();
        assert_eq!(Graph::parse(&text).unwrap().to_string(), text, "text form of case {case}");
        let values = given(&g, &mut dice);
        let given: Vec<(&str, Tensor)> = values.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let want = interpret(&g, &given).unwrap();
        let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
        let mut results = Vec::new();
        for threads in [1, 2] {
            let planned = plan(&g, &state, &Options { threads, ..Options::default() });
            let planned = planned.unwrap_or_else(|e| panic!("case {case}: {e}\n{text}"));
            assert!(planned.arena_bytes >= planned.live_bytes);
            n_ops += planned.instructions.len();
            // Under a random limit the same bits come out, or no plan at all.
            let limit = planned.arena_bytes * (30 + dice.roll(70) as u64) / 100;
            match plan(&g, &state, &Options { threads, limit: Some(limit), ..Options::default() }) {
                Ok(tight) => {
                    assert!(tight.arena_bytes <= limit);
                    n_recomputed += tight.recomputed.nodes;
                    results.push(outputs(&g, tight, &values));
                }
                Err(PlanError::DoesNotFit { smallest, unlimited, .. }) => {
                    assert!(limit < smallest && smallest <= unlimited);
                    n_refused += 1;
                    // The smallest limit is one that works, with the same bits.
                    let least = plan(&g, &state, &Options { threads, limit: Some(smallest), ..Options::default() });
                    let least = least.unwrap_or_else(|e| panic!("case {case} at {smallest}: {e}\n{text}"));
                    n_recomputed += least.recomputed.nodes;
                    results.push(outputs(&g, least, &values));
                }
                Err(other) => panic!("case {case}: {other}\n{text}"),
            }
            if case % 10 == 0 {
                // Everything through a file, some states kept there: the same bits.
                let every = 1 + dice.roll(3);
                let detours =
                    through_file(&planned, |name| name.ends_with(|c: char| (c as usize).is_multiple_of(every)));
                n_moved += detours.graph.nodes().filter(|(_, n)| n.op.transfer().is_some()).count();
                results.push(outputs(&g, detours, &values));
            }
            results.push(outputs(&g, planned, &values));
        }
        for (i, output) in g.outputs().iter().enumerate() {
            let one = &results[0][i];
            let same = results.iter().all(|r| r[i].bytes() == one.bytes());
            assert!(same, "case {case}: '{}' depends on threads or limit\n{text}", output.name);
            for (a, b) in one.to_f64().iter().zip(want[&output.name].to_f64()) {
                assert!(close(*a, b), "case {case}: '{}' is {a}, plainly {b}\n{text}", output.name);
            }
        }
    }
    println!(
        "{count} graphs, {n_ops} instructions; under limits {n_recomputed} recomputed, {n_refused} refusals; {n_moved} transfers"
    );
    assert!(n_recomputed > 0 || count < 100, "the limits make something be computed again");
}
