//! Planning is quick for large graphs, and packs them tightly.
//!
//! Times are printed, and only a bound that a loaded machine keeps too is asserted.

use plimsoll_graph::{Graph, gradients};
use plimsoll_plan::{Options, StateLayout, plan};
use plimsoll_tensor::{DType, TensorType};
use std::time::Instant;

/// A residual network of `n` blocks with its training step.
fn training_step(n: usize) -> Graph {
    let mut g = Graph::new();
    let f32 = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let mut h = g.input("x", f32(&[64, 96]));
    let mut weights = Vec::new();
    for i in 0..n {
        let width = 32 + 16 * (i % 5);
        let a = g.state(&format!("a{i}"), f32(&[96, width]));
        let b = g.state(&format!("b{i}"), f32(&[width, 96]));
        let y = g.matmul(h, a).unwrap();
        let y = g.tanh(y).unwrap();
        let y = g.matmul(y, b).unwrap();
        h = g.add(h, y).unwrap();
        weights.extend([a, b]);
    }
    let square = g.square(h).unwrap();
    let loss = g.mean_all(square).unwrap();
    g.output("loss", loss);
    let grads = gradients(&mut g, loss, &weights).unwrap();
    for (w, d) in weights.into_iter().zip(grads) {
        let step = g.scale(d.unwrap(), -0.1).unwrap();
        let new = g.add(w, step).unwrap();
        g.assign(w, new).unwrap();
    }
    g
}

#[track_caller]
fn check_scale(blocks: usize, seconds: f64) {
    let g = training_step(blocks);
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    let start = Instant::now();
    let planned = plan(&g, &state, &Options::default()).unwrap();
    let took = start.elapsed().as_secs_f64();
    let gap = planned.arena_bytes as f64 / planned.live_bytes as f64 - 1.0;
    let n = planned.instructions.len();
    println!("{} nodes, {n} instructions: {took:.3} s, arena {:.2} % above the live set", g.nodes().len(), 100.0 * gap);
    assert!(gap <= 0.01, "the arena is {:.2} % larger than the largest live set", 100.0 * gap);
    assert!(took < seconds, "{took} s for {n} instructions");
}

#[test]
fn a_thousand_ops() {
    check_scale(110, 3.0);
}

#[test]
fn ten_thousand_ops() {
    check_scale(1100, 30.0);
}

#[track_caller]
fn check_limit(blocks: usize, part: f64, seconds: f64) {
    let g = training_step(blocks);
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    let whole = plan(&g, &state, &Options::default()).unwrap();
    let limit = (whole.arena_bytes as f64 * part) as u64;
    for spill in [false, true] {
        let start = Instant::now();
        let planned = plan(&g, &state, &Options { limit: Some(limit), spill, ..Options::default() }).unwrap();
        let took = start.elapsed().as_secs_f64();
        let r = planned.recomputed;
        let gap = planned.arena_bytes as f64 / planned.live_bytes as f64 - 1.0;
        println!(
            "{} instructions, {part} of the arena, spill {spill}: {took:.2} s, {:.2} % more time, {:.2} % above the live set",
            whole.instructions.len(),
            100.0 * r.extra_seconds / (r.seconds - r.extra_seconds),
            100.0 * gap
        );
        assert!(planned.arena_bytes <= limit);
        assert!(took < seconds, "{took} s");
    }
}

#[test]
fn a_thousand_ops_under_a_limit() {
    check_limit(110, 0.5, 10.0);
}

#[test]
fn ten_thousand_ops_under_a_limit() {
    check_limit(720, 0.5, 50.0);
}

#[test]
fn the_same_graph_gives_the_same_plan() {
    let g = training_step(20);
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    let (a, b) = (plan(&g, &state, &Options::default()).unwrap(), plan(&g, &state, &Options::default()).unwrap());
    assert_eq!((a.instructions, a.places, a.buffers), (b.instructions, b.places, b.buffers));
}
