//! A larger limit is not slower, and a smaller one does not take more memory.

use plimsoll_graph::{Graph, Value, gradients};
use plimsoll_plan::choose::State;
use plimsoll_plan::evict::Effort;
use plimsoll_plan::split::Batch;
use plimsoll_plan::{Chooser, Options, Step};
use plimsoll_tensor::{DType, TensorType};
use std::time::Instant;

/// Numbers that look random, the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A training step of some layers, some with a way around them, some that mix the rows of the batch, with momentum.
fn training_step(dice: &mut Dice) -> (Graph, Vec<State>, usize) {
    let mut g = Graph::new();
    let f32 = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let (rows, width) = (dice.pick(&[64, 256, 1024]), dice.pick(&[64, 128, 256]));
    let mut h = g.input("x", f32(&[rows, width]));
    let mut states = Vec::new();
    let mut weights = Vec::new();
    for layer in 0..3 + dice.below(8) {
        let inner = dice.pick(&[64, 128, 512]);
        let mut weight = |g: &mut Graph, name: &str, ty: TensorType| {
            let name = format!("{name}{layer}");
            let value = g.state(&name, ty);
            states.push(State { name, ty, rank: Some(1), filed: false });
            weights.push((value, ty));
            value
        };
        let (a, b) = (weight(&mut g, "a", f32(&[width, inner])), weight(&mut g, "b", f32(&[inner, width])));
        let y = g.matmul(h, a).unwrap();
        let y = if dice.below(2) == 0 { g.tanh(y).unwrap() } else { g.exp(y).unwrap() };
        let mut y = g.matmul(y, b).unwrap();
        if dice.below(3) == 0 {
            let mean = g.mean(y, &[0], true).unwrap();
            y = g.sub(y, mean).unwrap();
        }
        h = if dice.below(2) == 0 { g.add(h, y).unwrap() } else { g.tanh(y).unwrap() };
    }
    let square = g.square(h).unwrap();
    let loss = g.mean_all(square).unwrap();
    g.output("loss", loss);
    let of: Vec<Value> = weights.iter().map(|w| w.0).collect();
    let grads = gradients(&mut g, loss, &of).unwrap();
    for (i, ((weight, ty), grad)) in weights.into_iter().zip(grads).enumerate() {
        let name = format!("m{i}");
        let moment = g.state(&name, ty);
        states.push(State { name, ty, rank: Some(0), filed: false });
        let kept = g.scale(moment, 0.9).unwrap();
        let moved = g.add(kept, grad.unwrap()).unwrap();
        g.assign(moment, moved).unwrap();
        let step = g.scale(moved, -0.1).unwrap();
        let new = g.add(weight, step).unwrap();
        g.assign(weight, new).unwrap();
    }
    (g, states, rows)
}

/// For a smaller part of the time nothing cheaper is looked for.
const NEGLIGIBLE: f64 = 1e-3;

#[test]
fn a_larger_room_is_not_slower_and_a_smaller_one_does_not_take_more() {
    let number = |name: &str, usual: usize| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, n) = (number("PLIMSOLL_FIRST_CASE", 0), number("PLIMSOLL_CASES", 7));
    let (mut slowest, mut slower, mut smaller, mut pairs) = (0.0f64, Vec::new(), Vec::new(), 0);
    for model in first..first + n {
        let mut dice = Dice(model as u64 + 1);
        let (graph, states, entries) = training_step(&mut dice);
        let step = Step { graph: &graph, batch: Some(Batch { entries, inputs: vec!["x".into()] }), cut: None };
        let search = Effort { base: 300_000, per_task: 3_000, ..Effort::NORMAL };
        let (spill, split) = (dice.below(2) == 0, dice.below(3) > 0);
        let options = Options { search, spill, split, node_bytes: 512, ..Options::default() };
        let chooser = Chooser::new(&[step], &states, &options).unwrap();
        let unlimited = chooser.unlimited().unwrap().bytes(options.node_bytes);
        let smallest = chooser.refusal(0).unwrap().smallest;
        let mut rooms: Vec<u64> =
            (0..10).map(|_| smallest + dice.below((unlimited - smallest + 1) as usize) as u64).collect();
        rooms.extend([smallest, unlimited]);
        rooms.sort_unstable();
        // Time and bytes of the room before.
        let (mut before, mut took) = ((f64::INFINITY, 0), Vec::new());
        for &room in &rooms {
            let start = Instant::now();
            let choice = chooser.within(room, f64::INFINITY).unwrap().expect("the smallest room does");
            took.push(start.elapsed().as_secs_f64());
            let (seconds, bytes) = (choice.seconds(), choice.bytes(options.node_bytes));
            let of = format!("model {model}, spill {spill}, split {split}, room {room} of {smallest} to {unlimited}");
            println!(
                "{of}: {:.1} us (+{:.1}), {bytes} bytes, {:.3} s",
                1e6 * seconds,
                1e6 * choice.extra_seconds(),
                took.last().unwrap()
            );
            assert!(bytes <= room, "{of}: takes {bytes}");
            let said = || format!("{of}: {seconds} s and {bytes} bytes, after {} s and {}", before.0, before.1);
            if seconds > (1.0 + NEGLIGIBLE) * before.0 {
                slower.push(said());
            }
            if bytes < before.1 {
                smaller.push(said());
            }
            before = (seconds, bytes);
        }
        slowest = took.into_iter().fold(slowest, f64::max);
        pairs += rooms.len() - 1;
    }
    println!("the slowest choice took {slowest:.2} s; of {pairs} pairs of rooms");
    println!("the larger is slower in {}\n{}", slower.len(), slower.join("\n"));
    println!("the larger is used less in {}\n{}", smaller.len(), smaller.join("\n"));
    assert!(slower.is_empty(), "{slower:#?}");
    assert!(smaller.is_empty(), "{smaller:#?}");
}
