//! Programs and states that come and go under one limit.

use plimsoll::session::{Session, Techniques, Terms};
use plimsoll::{Bytes, DType, Error, Graph, Tensor, TensorType};
use plimsoll_graph::{Value, gradients};

fn floats(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

/// A deep chain whose gradient needs every value between.
fn deep(rows: usize, width: usize, depth: usize) -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", floats(&[rows, width]));
    let weights: Vec<Value> = (0..depth).map(|i| g.state(&format!("w{i}"), floats(&[width, width]))).collect();
    let mut y = x;
    for &w in &weights {
        let z = g.matmul(y, w).unwrap();
        y = g.tanh(z).unwrap();
    }
    let loss = g.mean_all(y).unwrap();
    g.output("loss", loss);
    let grads = gradients(&mut g, loss, &weights).unwrap();
    for (w, grad) in weights.iter().zip(grads) {
        let step = g.scale(grad.unwrap(), -1.0).unwrap();
        let new = g.add(*w, step).unwrap();
        g.assign(*w, new).unwrap();
    }
    g
}

fn fill(values: &mut [f32], seed: usize) {
    for (i, v) in values.iter_mut().enumerate() {
        *v = (((i * 7919 + seed * 104_729) % 1000) as f32 - 500.0) / 4000.0;
    }
}

/// Three steps; gives the losses and a weight, and how the step was planned.
fn train(session: &mut Session, g: &Graph, depth: usize, rows: usize) -> Result<(Vec<f32>, Vec<f64>, bool), Error> {
    let batch = plimsoll_plan::split::Batch { entries: rows, inputs: vec!["x".into()] };
    for i in 0..depth {
        let ty = floats(&[64, 64]);
        session.add_state(&format!("weight {i}"), ty)?;
        let mut weights = vec![0.0; 64 * 64];
        fill(&mut weights, i + 1);
        session.engine_mut().set_state(&format!("weight {i}"), &Tensor::from_slice([64, 64], &weights)?)?;
    }
    let names: Vec<(String, String)> = (0..depth).map(|i| (format!("w{i}"), format!("weight {i}"))).collect();
    let bound: Vec<(&str, &str)> = names.iter().map(|(state, name)| (state.as_str(), name.as_str())).collect();
    let program = session.prepare(7, g, Some(batch), &bound)?;
    let plain = session.kept(program).is_plain();
    let engine = session.engine_mut();
    let mut losses = Vec::new();
    for _ in 0..3 {
        for i in 0..depth {
            engine.bind(program, &format!("w{i}"), &format!("weight {i}"))?;
        }
        fill(engine.input_mut::<f32>(program, "x")?, 0);
        engine.run(program)?;
        losses.push(engine.output_slice::<f32>(program, "loss")?[0]);
    }
    let weight = engine.state("weight 0")?.to_f64();
    (0..depth).for_each(|i| session.remove_state(&format!("weight {i}")));
    Ok((losses, weight, plain))
}

#[test]
fn a_limit_changes_no_bit_and_a_refusal_names_one_that_works() {
    let (rows, depth) = (4096, 12);
    let g = deep(rows, 64, depth);
    let mut session = Session::new(Terms::default()).unwrap();
    let free = train(&mut session, &g, depth, rows).unwrap();
    assert!(free.2);
    drop(session);
    let with = |limit: Bytes, techniques: Techniques| {
        let mut terms = Terms::default();
        terms.set_limit(limit);
        terms.set_techniques(techniques);
        let mut session = Session::new(terms).unwrap();
        train(&mut session, &g, depth, rows)
    };
    let Err(Error::WouldNotFit(refusal)) = with(Bytes::mib(1), Techniques::ALL) else { panic!("1 MiB is too little") };
    assert!(refusal.smallest < refusal.unlimited, "something can be saved: {refusal}");
    for techniques in [Techniques::ALL, Techniques { spill: false, ..Techniques::ALL }] {
        let limit = Bytes((refusal.smallest.0 + 2 * refusal.unlimited.0) / 3);
        let kept = with(limit, techniques).unwrap();
        assert!(!kept.2, "{limit} of {} needs something", refusal.unlimited);
        assert_eq!((&kept.0, &kept.1), (&free.0, &free.1));
    }
    // This process holds more by now, other tests' programs among it.
    let smallest = with(refusal.smallest + Bytes::mib(2), Techniques::ALL).unwrap();
    assert_eq!((&smallest.0, &smallest.1), (&free.0, &free.1));
}

#[test]
fn programs_share_one_arena_and_make_room_for_each_other() {
    let mut session = Session::new(Terms::default()).unwrap();
    session.add_state("sum", floats(&[])).unwrap();
    let mut largest = 0;
    for n in 1..700usize {
        let mut g = Graph::new();
        let x = g.input("x", floats(&[n]));
        let s = g.state("s", floats(&[]));
        let total = g.sum_all(x).unwrap();
        let new = g.add(s, total).unwrap();
        g.assign(s, new).unwrap();
        let program = session.prepare(n as u128, &g, None, &[("s", "sum")]).unwrap();
        let engine = session.engine_mut();
        assert!(engine.run(program).is_err(), "a state that is bound to nothing");
        engine.bind(program, "s", "sum").unwrap();
        engine.input_mut::<f32>(program, "x").unwrap().fill(1.0);
        engine.run(program).unwrap();
        largest = largest.max(engine.plan(program).arena_bytes);
        assert_eq!(session.engine().arena_bytes().0, largest);
        assert!(session.programs() <= 512);
    }
    assert_eq!(session.engine().state("sum").unwrap().to_f64(), [(1..700).sum::<usize>() as f64]);
    assert!(session.find(1, []).unwrap().is_none() && session.find(699, []).unwrap().is_some());
    session.clear().unwrap();
    assert_eq!(session.engine().arena_bytes(), Bytes::ZERO);
}

#[test]
fn room_is_made_by_forgetting_no_more_than_is_needed() {
    let mut terms = Terms::default();
    terms.set_limit("2GiB");
    let mut session = Session::new(terms).unwrap();
    // Programs 1 to 4 need about 1, 2, 4 and 8 MiB; the largest is used last.
    for n in 1..5usize {
        let mut g = Graph::new();
        let x = g.input("x", floats(&[1 << (17 + n)]));
        let y = g.exp(x).unwrap();
        g.output("y", y);
        session.prepare(n as u128, &g, None, &[]).unwrap();
    }
    let is_ready = |session: &mut Session, n: u128| session.find(n, []).unwrap().is_some();
    let left = |session: &Session| session.terms().budget().left().unwrap();
    let enough = left(&session);
    assert!(session.make_room(enough).unwrap());
    assert!((1..5).all(|n| is_ready(&mut session, n)), "nothing was needed");
    // The largest program's arena is in the way, the others' are not.
    assert!(session.make_room(enough + Bytes::mib(3)).unwrap());
    assert!(left(&session) >= enough + Bytes::mib(3));
    assert_eq!([1, 2, 3, 4].map(|n| is_ready(&mut session, n)), [true, true, true, false]);
    let everything = Bytes::mib(3072);
    assert!(!session.make_room(everything).unwrap());
    assert_eq!(session.programs(), 0);
}

#[test]
fn states_of_one_type_take_each_others_place_in_a_program() {
    let mut session = Session::new(Terms::default()).unwrap();
    let mut g = Graph::new();
    let s = g.state("s", floats(&[2]));
    let twice = g.scale(s, 2.0).unwrap();
    g.assign(s, twice).unwrap();
    let program = session.prepare(1, &g, None, &[]).unwrap();
    for (name, value) in [("a", 1.0f32), ("b", 5.0)] {
        session.add_state(name, floats(&[2])).unwrap();
        session.engine_mut().state_mut::<f32>(name).unwrap().fill(value);
        session.engine_mut().bind(program, "s", name).unwrap();
        session.engine_mut().run(program).unwrap();
    }
    assert_eq!(session.engine().state("a").unwrap().to_f64(), [2.0, 2.0]);
    assert_eq!(session.engine().state("b").unwrap().to_f64(), [10.0, 10.0]);
    session.remove_state("b");
    let gone = session.engine_mut().run(program).unwrap_err().to_string();
    assert!(gone.contains("bound to nothing"), "{gone}");
    session.add_state("c", floats(&[3])).unwrap();
    assert!(session.engine_mut().bind(program, "s", "c").is_err(), "another type");
    assert!(session.add_state("c", floats(&[3])).is_err(), "twice");
}
