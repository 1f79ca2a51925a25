//! Under a limit values are computed again: less memory, the same step.

use plimsoll_graph::{Graph, gradients};
use plimsoll_plan::{Options, PlanError, StateLayout, plan};
use plimsoll_tensor::{DType, TensorType};

/// A chain of `n` layers of one width with its training step.
fn chain(n: usize) -> Graph {
    let mut g = Graph::new();
    let f32 = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let mut h = g.input("x", f32(&[256, 128]));
    let mut weights = Vec::new();
    for i in 0..n {
        let w = g.state(&format!("w{i}"), f32(&[128, 128]));
        let y = g.matmul(h, w).unwrap();
        h = g.tanh(y).unwrap();
        weights.push(w);
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

#[test]
fn a_chain_shrinks_to_about_the_square_root() {
    let n = 32;
    let g = chain(n);
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    let whole = plan(&g, &state, &Options::default()).unwrap();
    let mut last = 0;
    for percent in [80, 60, 50, 40, 30] {
        let limit = whole.arena_bytes * percent / 100;
        let tight = plan(&g, &state, &Options { limit: Some(limit), ..Options::default() });
        let tight = tight.unwrap_or_else(|e| panic!("{percent} %: {e}"));
        let r = tight.recomputed;
        println!(
            "{percent} %: {} nodes again, {:.1} % more time",
            r.nodes,
            100.0 * r.extra_seconds / (r.seconds - r.extra_seconds)
        );
        assert!(tight.arena_bytes <= limit && r.nodes >= last);
        last = r.nodes;
        // One more forward pass at most down to a third of the memory.
        assert!(r.nodes <= 2 * n, "{percent} %: {} nodes run again", r.nodes);
    }
}

#[test]
fn the_smallest_limit_is_true_and_below_it_is_refused() {
    let g = chain(12);
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    let at = |limit: u64| plan(&g, &state, &Options { limit: Some(limit), ..Options::default() });
    let Err(PlanError::DoesNotFit { smallest, unlimited, peak, .. }) = at(1000) else {
        panic!("1000 bytes are too few")
    };
    assert!(smallest < unlimited / 2, "{smallest} of {unlimited}");
    assert_eq!(peak.bytes, peak.tenants.iter().map(|t| t.bytes).sum::<u64>());
    assert!(at(smallest).is_ok());
    assert!(matches!(at(smallest - smallest / 50), Err(PlanError::DoesNotFit { .. })));
}
