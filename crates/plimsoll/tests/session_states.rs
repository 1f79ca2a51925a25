//! States of a session under a limit of the whole process. One test alone in its process: what others take would count.

use plimsoll::session::{Session, Techniques, Terms};
use plimsoll::{Bytes, DType, Graph, Tensor, TensorType};
use plimsoll_budget::Budget;
use plimsoll_graph::{Value, gradients};

#[test]
fn states_and_limits() {
    states_that_memory_has_no_room_for_live_in_a_file();
    a_larger_limit_counts_at_once();
    a_state_that_comes_when_all_is_taken_goes_to_the_file();
}

fn floats(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

fn fill(values: &mut [f32], seed: usize) {
    for (i, v) in values.iter_mut().enumerate() {
        *v = (((i * 7919 + seed * 104_729) % 1000) as f32 - 500.0) / 8000.0;
    }
}

/// Gradient descent with momentum: a weight and a moment for each layer, and a small loss.
fn with_moments(rows: usize, width: usize, depth: usize) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", floats(&[rows, width]));
    let weights: Vec<Value> = (0..depth).map(|i| g.state(&format!("w{i}"), floats(&[width, width]))).collect();
    let moments: Vec<Value> = (0..depth).map(|i| g.state(&format!("m{i}"), floats(&[width, width]))).collect();
    let mut y = x;
    for &w in &weights {
        let z = g.matmul(y, w).unwrap();
        y = g.tanh(z).unwrap();
    }
    let loss = g.mean_all(y).unwrap();
    g.output("loss", loss);
    let grads = gradients(&mut g, loss, &weights).unwrap();
    for ((&w, &m), grad) in weights.iter().zip(&moments).zip(grads) {
        let kept = g.scale(m, 0.9).unwrap();
        let new = g.add(kept, grad.unwrap()).unwrap();
        let m = g.assign(m, new).unwrap();
        let step = g.scale(m, -1.0).unwrap();
        let new = g.add(w, step).unwrap();
        g.assign(w, new).unwrap();
    }
    g
}

fn states_that_memory_has_no_room_for_live_in_a_file() {
    // 24 states of 1 MiB.
    let (rows, width, depth) = (32, 512, 12);
    let g = with_moments(rows, width, depth);
    let states: Vec<(String, String)> =
        ["w", "m"].iter().flat_map(|k| (0..depth).map(move |i| (format!("{k}{i}"), format!("state {k}{i}")))).collect();
    let bound: Vec<(&str, &str)> = states.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let run = |room: Option<Bytes>| {
        let mut terms = Terms::default();
        if let Some(room) = room {
            let held = plimsoll_budget::measure::usage().unwrap().resident;
            terms.set_limit(held + room);
        }
        let mut session = Session::new(terms).unwrap();
        for (i, (_, name)) in bound.iter().enumerate() {
            session.add_state(name, floats(&[width, width])).unwrap();
            let mut values = vec![0.0; width * width];
            if i < depth {
                fill(&mut values, i + 1);
            }
            session.engine_mut().set_state(name, &Tensor::from_slice([width, width], &values).unwrap()).unwrap();
        }
        let mut losses = Vec::new();
        for _ in 0..3 {
            let program = session.prepare(1, &g, None, &bound).unwrap();
            let engine = session.engine_mut();
            bound.iter().for_each(|(state, name)| engine.bind(program, state, name).unwrap());
            fill(engine.input_mut::<f32>(program, "x").unwrap(), 0);
            engine.run(program).unwrap();
            losses.push(engine.output_slice::<f32>(program, "loss").unwrap()[0]);
        }
        let weights = session.engine().state("state w0").unwrap().to_f64();
        (losses, weights, session.engine().filed_bytes(), session.engine().states_bytes())
    };
    let free = run(None);
    assert_eq!(free.2, Bytes::ZERO);
    let tight = run(Some(Bytes::mib(16)));
    assert!(tight.2 > Bytes::mib(12), "{} in the file", tight.2);
    assert!(tight.3 < Bytes::mib(12), "{} in memory", tight.3);
    assert_eq!((&tight.0, &tight.1), (&free.0, &free.1));
}

fn a_larger_limit_counts_at_once() {
    let mut terms = Terms::default();
    let held = plimsoll_budget::measure::usage().unwrap().resident;
    terms.set_limit(held + Bytes::mib(1));
    terms.set_techniques(Techniques::NONE);
    let mut session = Session::new(terms).unwrap();
    let large = floats(&[1024, 16 * 1024]);
    assert!(session.add_state("large", large).is_err(), "64 MiB");
    session.set_terms(|terms| terms.set_limit(held + Bytes::gib(1))).unwrap();
    session.add_state("large", large).unwrap();
    assert!(session.set_terms(|terms| terms.set_limit("much")).is_err());
    assert_eq!(session.terms().limits().unwrap().wanted, Some(held + Bytes::gib(1)), "as before");
}

fn a_state_that_comes_when_all_is_taken_goes_to_the_file() {
    let budget = Budget::unlimited();
    let mut terms = Terms::on(&budget);
    let held = plimsoll_budget::measure::usage().unwrap().resident;
    terms.set_limit(held + Bytes::mib(48));
    let mut session = Session::new(terms).unwrap();
    let mut g = Graph::new();
    let x = g.input("x", floats(&[2048, 1024]));
    let y = g.tanh(x).unwrap();
    g.output("y", y);
    session.prepare(1, &g, None, &[]).unwrap();
    assert!(session.engine().arena_bytes() >= Bytes::mib(8));
    // The caller takes what is left, but for less than the file's own buffers.
    let rest = budget.left().unwrap() - Bytes::kib(512);
    let _tensors = budget.account("tensors").reserve(rest).unwrap();
    session.add_state("late", floats(&[1024, 1024])).unwrap();
    let mut n = 0u32;
    let mut count = |piece: &mut [u8]| {
        for float in piece.chunks_exact_mut(4) {
            float.copy_from_slice(&(n as f32).to_le_bytes());
            n += 1;
        }
    };
    session.write_state("late", &mut count).unwrap();
    assert_eq!(session.engine().filed_bytes(), Bytes::mib(4));
    assert!(budget.held() <= budget.limit().unwrap());
    let back = session.engine().state("late").unwrap().to_f64();
    assert!(back.iter().enumerate().all(|(i, v)| *v == i as f64));
}
