//! Plans whose values go through a file give the same bits as plain ones; states can live there.

mod by_hand;

use by_hand::{directory, plan_of, through_file};
use plimsoll_budget::Budget;
use plimsoll_exec::{Engine, ExecError, PIECE, Settings, SpillError};
use plimsoll_graph::op::optimizer::StepValues;
use plimsoll_graph::op::spill::{BeginRead, BeginWrite, EndRead, EndWrite};
use plimsoll_graph::{Graph, Value, gradients};
use plimsoll_kernels::optimizer::{Adam, Rule};
use plimsoll_plan::{Options, Plan, StateLayout, plan};
use plimsoll_tensor::{DType, Tensor, TensorType};

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

fn settings(threads: usize) -> Settings {
    Settings::from(threads).spill_dir(directory())
}

fn numbers(ty: TensorType, salt: usize) -> Tensor {
    let data: Vec<f32> = (0..ty.elements()).map(|i| ((i * 7919 + salt * 101) % 2003) as f32 / 1000.0 - 1.0).collect();
    Tensor::from_slice(ty.shape, &data).unwrap()
}

/// Two layers and Adam; values and states of more than one piece.
fn model() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", f32s(&[300, 900]));
    let (a, b) = (g.state("a", f32s(&[900, 800])), g.state("b", f32s(&[800, 3])));
    let h = g.matmul(x, a).unwrap();
    let h = g.tanh(h).unwrap();
    let y = g.matmul(h, b).unwrap();
    let y = g.square(y).unwrap();
    let loss = g.mean_all(y).unwrap();
    g.output("loss", loss);
    let grads = gradients(&mut g, loss, &[a, b]).unwrap();
    let step = StepValues {
        learning_rate: g.input("rate", f32s(&[])),
        number: g.input("step", f32s(&[])),
        gradient_scale: None,
    };
    for ((weight, name), grad) in [(a, "a"), (b, "b")].into_iter().zip(grads) {
        let ty = *g.ty(weight);
        let moments = [g.state(&format!("{name}/m"), ty), g.state(&format!("{name}/v"), ty)];
        g.optimize(Rule::Adam(Adam::default()), weight, &moments, grad.unwrap(), step).unwrap();
    }
    g
}

fn plain(g: &Graph, threads: usize) -> Plan {
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    plan(g, &state, &Options { threads, ..Options::default() }).unwrap()
}

fn open(plan: Plan, threads: usize) -> Engine {
    let mut engine = Engine::open(&Budget::unlimited(), &plan.state.clone(), vec![plan], settings(threads)).unwrap();
    engine.set_poison(true);
    engine
}

const STATES: [&str; 6] = ["a", "b", "a/m", "a/v", "b/m", "b/v"];

fn start(engine: &mut Engine) {
    for (salt, name) in ["a", "b"].into_iter().enumerate() {
        engine.set_state(name, &numbers(engine.state_type(name).unwrap(), salt)).unwrap();
    }
}

/// Runs a step and gives its loss.
fn step(engine: &mut Engine, i: usize) -> u32 {
    engine.set_input(0, "x", &numbers(f32s(&[300, 900]), i)).unwrap();
    engine.input_mut::<f32>(0, "rate").unwrap()[0] = 0.01;
    engine.input_mut::<f32>(0, "step").unwrap()[0] = i as f32;
    engine.run(0).unwrap();
    engine.output_slice::<f32>(0, "loss").unwrap()[0].to_bits()
}

fn states(engine: &Engine) -> Vec<Tensor> {
    STATES.iter().map(|name| engine.state(name).unwrap()).collect()
}

#[test]
fn five_steps_through_the_file_give_the_same_bits() {
    let g = model();
    let mut memory = open(plain(&g, 2), 2);
    start(&mut memory);
    let losses: Vec<u32> = (1..=5).map(|i| step(&mut memory, i)).collect();
    for threads in [1, 2] {
        for in_file in [|_: &str| false, |name: &str| name.contains('/'), |_: &str| true] {
            let detours = through_file(&plain(&g, threads), in_file);
            let mut engine = open(detours, threads);
            start(&mut engine);
            let found: Vec<u32> = (1..=5).map(|i| step(&mut engine, i)).collect();
            assert_eq!(found, losses, "{threads} threads");
            assert!(states(&engine) == states(&memory), "{threads} threads");
            let stats = engine.spill_stats();
            assert!(stats.written > 0 && stats.read >= stats.written, "{stats:?}");
            println!("{} in the file, {stats:?}", engine.file_bytes());
        }
    }
}

#[test]
fn states_stay_when_plans_and_layouts_change() {
    let g = model();
    let mut memory = open(plain(&g, 2), 2);
    start(&mut memory);
    let losses: Vec<u32> = (1..=6).map(|i| step(&mut memory, i)).collect();

    let on_disk = through_file(&plain(&g, 2), |_| true);
    let some = through_file(&plain(&g, 2), |name| name.ends_with("/m"));
    let in_memory = plain(&g, 2);
    // The same states in the file and a larger file, as if more values went there.
    let larger = Plan { file_bytes: on_disk.file_bytes + (5 << 20), ..on_disk.clone() };
    let mut engine = open(on_disk.clone(), 2);
    start(&mut engine);
    let mut found = vec![step(&mut engine, 1)];
    engine.set_plans(vec![larger.clone()]).unwrap();
    assert_eq!(engine.file_bytes().0, larger.file_bytes);
    found.push(step(&mut engine, 2));
    // No plan at all: the states alone.
    engine.set_plans(Vec::new()).unwrap();
    assert_eq!(engine.file_bytes().0, on_disk.state.file_bytes());
    engine.set_plans(vec![on_disk.clone()]).unwrap();
    found.push(step(&mut engine, 3));
    for (i, plan) in [in_memory, some, on_disk].into_iter().enumerate() {
        engine.set_state_layout(&plan.state.clone()).unwrap();
        assert_eq!(engine.file_bytes().0, plan.state.file_bytes());
        engine.set_plans(vec![plan]).unwrap();
        found.push(step(&mut engine, 4 + i));
    }
    assert_eq!(found, losses);
    assert!(states(&engine) == states(&memory));
}

#[test]
fn states_are_read_and_filled_in_pieces() {
    let ty = f32s(&[3, 100_003]);
    for in_file in [false, true] {
        let layout = StateLayout::with_file([("w", ty), ("empty", f32s(&[0]))], |_| in_file);
        let budget = Budget::unlimited();
        let mut engine = Engine::open(&budget, &layout, Vec::new(), settings(1)).unwrap();
        assert!(engine.state("w").unwrap().to_f64().iter().all(|&v| v == 0.0), "states begin as zero");
        let want = numbers(ty, 3);
        let mut at = 0;
        let fill = |piece: &mut [u8]| {
            piece.copy_from_slice(&want.bytes()[at..at + piece.len()]);
            at += piece.len();
            Ok::<(), ExecError>(())
        };
        engine.write_state("w", fill).unwrap();
        assert!(engine.state("w").unwrap() == want);
        let mut sizes = Vec::new();
        let mut back: Vec<u8> = Vec::new();
        let each = |piece: &[u8]| {
            sizes.push(piece.len());
            back.extend(piece);
            Ok::<(), ExecError>(())
        };
        engine.read_state("w", each).unwrap();
        assert!(back == want.bytes());
        assert_eq!(sizes, [PIECE, ty.bytes() - PIECE]);
        engine.read_state("empty", |_| Err(ExecError::from(SpillError::Transfer("no piece".into())))).unwrap();
        assert!(engine.read_state("absent", |_| Ok::<(), ExecError>(())).is_err());
        let wrong = engine.set_state("w", &numbers(f32s(&[3]), 0)).unwrap_err().to_string();
        assert_eq!(wrong, "state 'w': is f32[3,100003], not f32[3]");
        match engine.state_mut::<f32>("w") {
            Ok(slice) => assert!(!in_file && slice.len() == ty.elements()),
            Err(e) => assert_eq!(e.to_string(), "state 'w': is in the spill file: read and write it in pieces"),
        }
        assert_eq!(engine.state_slice::<f32>("w").is_err(), in_file);
        drop(engine);
        assert_eq!(budget.held().0, 0);
    }
}

#[test]
fn a_plan_that_needs_a_file_is_refused_without_a_directory() {
    let plan = through_file(&plain(&model(), 1), |_| false);
    let opened = Engine::open(&Budget::unlimited(), &plan.state.clone(), vec![plan], 1);
    let message = opened.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("no directory is allowed"), "{message}");
}

/// Ops that fail, or make values that are not finite, while transfers are under way.
fn broken(n: usize) -> Plan {
    let mut g = Graph::new();
    let ty = f32s(&[n]);
    let x = g.input("x", ty);
    let index = g.input("index", TensorType::new(DType::I64, [1]));
    let begun = g.push1(BeginWrite { slot: 0 }, &[x]).unwrap();
    let taken = g.gather(x, index, 0).unwrap();
    let loss = g.log(taken).unwrap();
    let loss = g.mean_all(loss).unwrap();
    let written = g.push1(EndWrite { slot: 0 }, &[begun, x]).unwrap();
    let reading = g.push1(BeginRead { slot: 0, dtype: ty.dtype, shape: ty.shape }, &[written]).unwrap();
    let read = g.push1(EndRead { slot: 0 }, &[reading]).unwrap();
    let y = g.neg(read).unwrap();
    g.output("loss", loss);
    g.output("y", y);
    // Kept, so that the index is still there when the step runs again to find out what broke.
    g.output("index", index);
    plan_of(&g, &StateLayout::default(), 4 * n as u64, &plain(&Graph::new(), 2))
}

#[test]
fn a_run_that_breaks_off_leaves_no_transfer_behind() {
    let n = 5_000_000;
    let mut engine = open(broken(n), 2);
    let set = |engine: &mut Engine, first: f32, index: i64| {
        let x = engine.input_mut::<f32>(0, "x").unwrap();
        x.fill(2.0);
        x[0] = first;
        engine.input_mut::<i64>(0, "index").unwrap()[0] = index;
    };
    for _ in 0..3 {
        // An index out of range; then a logarithm of a negative number; then all is well.
        set(&mut engine, 1.0, n as i64);
        let message = engine.run(0).unwrap_err().to_string();
        assert!(message.contains("gather"), "{message}");
        set(&mut engine, -1.0, 0);
        let blamed = engine.run_guarded(0, "loss").unwrap().unwrap();
        assert_eq!(blamed.what, "the result of log");
        set(&mut engine, 1.0, 0);
        assert_eq!(engine.run_guarded(0, "loss").unwrap(), None);
        set(&mut engine, 1.0, 0);
        let timings = engine.run_timed(0).unwrap();
        assert_eq!(timings.len(), engine.plan(0).instructions.len());
        assert!(engine.output_slice::<f32>(0, "y").unwrap()[1..].iter().all(|&v| v == -2.0));
    }
}

#[test]
fn a_state_in_the_file_that_is_not_finite_is_blamed() {
    let mut g = Graph::new();
    let w = g.state("w", f32s(&[PIECE]));
    let loss: Value = g.mean_all(w).unwrap();
    g.output("loss", loss);
    let mut engine = open(through_file(&plain(&g, 2), |_| true), 2);
    let mut data = vec![1.0f32; PIECE];
    data[PIECE - 1] = f32::NAN;
    engine.set_state("w", &Tensor::from_slice([PIECE], &data).unwrap()).unwrap();
    assert_eq!(engine.run_guarded(0, "loss").unwrap().unwrap().what, "'w'");
}
