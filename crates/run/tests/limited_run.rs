//! What `fit` under a memory limit leaves behind. Alone in its file: what other tests hold would count in the limit.

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{Bytes, Error, Tensor};
use plimsoll_run::{AccountLine, EndReason, Epoch, EventKind, Line, RunLog, RunReader, Times};
use std::path::PathBuf;
use std::time::Duration;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("plimsoll-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn data(n: usize) -> Arrays {
    let numbers = |width: usize| -> Tensor {
        let data: Vec<f32> = (0..n * width).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
        Tensor::from_slice([n, width], &data).unwrap()
    };
    Arrays::new(numbers(64), numbers(4)).unwrap()
}

fn trainer() -> Trainer {
    let mut model = Model::sequential([64]);
    for _ in 0..8 {
        model = model.layer(Dense::new(128).activation(Activation::Tanh));
    }
    Trainer::new(model.layer(Dense::new(4)), MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2)
}

#[test]
fn a_run_under_a_limit_tells_what_the_trainer_knows() {
    let directory = Directory::new("run");
    let rows = data(2048);
    // Half way between what it needs at least and what it would like.
    let refusal = match trainer().memory_limit(Bytes::mib(1)).fit(&rows, Fit::epochs(1).batch_size(1024)) {
        Err(Error::WouldNotFit(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let limit = Bytes((refusal.smallest.0 + refusal.unlimited.0) / 2);
    let mut trainer = trainer().memory_limit(limit);
    let log = RunLog::create(&directory.0, "deep").unwrap().step_interval(Duration::ZERO);
    let history = trainer.fit(&rows, Fit::epochs(2).batch_size(1024).validation(&rows).callback(log.clone())).unwrap();
    log.event(EventKind::Checkpoint, "weights").unwrap();

    let lines = RunReader::open(&directory.0).read().unwrap();
    let Line::Run(header) = &lines[0] else { panic!("{:?}", lines[0]) };
    assert_eq!((header.epochs, header.steps_per_epoch, header.limit), (2, 2, Some(limit.0)));
    assert_eq!(AccountLine::total(&header.ledger), header.planned);
    assert!(header.planned <= limit.0, "{} of {limit}", header.planned);
    let plan = trainer.planned()[0];
    assert_eq!((header.arena, header.live, header.states), (plan.arena_bytes, plan.live_bytes, plan.state.bytes()));
    let kept = header.kept.as_ref().unwrap();
    assert_eq!(kept.text, trainer.kept().unwrap().to_string());

    let epochs: Vec<&Epoch> =
        lines.iter().filter_map(|l| if let Line::Epoch(e) = l { Some(&**e) } else { None }).collect();
    let losses: Vec<f64> = epochs.iter().map(|e| e.figures["loss"].unwrap()).collect();
    assert_eq!(losses, history.get("loss").unwrap());
    assert_eq!(epochs[1].figures["val_loss"], history.last("val_loss"));
    for epoch in &epochs {
        assert!(epoch.input_wait > 0.0 && epoch.input_wait < epoch.seconds, "{epoch:?}");
        assert!(epoch.stages.iter().any(|s| s.elements > 0 && s.seconds > 0.0), "{:?}", epoch.stages);
        assert!(epoch.memory.peak >= epoch.memory.resident && epoch.memory.resident > header.arena);
        assert_eq!(epoch.disk_written, if kept.written > 0 { kept.written * 2 } else { 0 });
    }
    let steps = lines.iter().filter(|l| matches!(l, Line::Step(_))).count();
    assert_eq!(steps, 4);
    let end = lines.iter().position(|l| matches!(l, Line::End(e) if e.reason == EndReason::Done && e.steps == 4));
    assert!(end.is_some_and(|at| at == lines.len() - 2));

    // The plan beside it, with the limit and the ledger.
    let picture = plimsoll_run::read_plan(directory.0.join(plimsoll_run::PLAN)).unwrap();
    assert_eq!((picture.limit, picture.arena), (Some(limit.0), plan.arena_bytes));
    assert_eq!(AccountLine::total(&picture.ledger), header.planned);
    let held = |name: &str| picture.ledger.iter().find(|a| a.name == name).unwrap().held;
    assert_eq!(held("arena"), picture.arena);
    assert!(picture.states.iter().any(|s| s.role == "moment") && picture.states.iter().any(|s| s.role == "weight"));
    assert!(picture.instructions.iter().all(|i| i.seconds.is_some()));

    // Times from a profile of the same steps, and the trace of both.
    let profile = trainer.profile(&rows, 1024, 2).unwrap();
    let times = Times::of(trainer.planned()[0], &profile).unwrap();
    assert_eq!(times.seconds.len(), picture.instructions.len());
    let mut trace = Vec::new();
    plimsoll_run::trace::write(&picture, Some(&times), &mut trace).unwrap();
    check_trace(&serde_json::from_slice(&trace).unwrap(), picture.instructions.len());
}

/// A trace as Chrome's format has it: slices of a thread come one after another, pairs match, counters never pass the room.
fn check_trace(trace: &serde_json::Value, n_instructions: usize) {
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).collect::<Vec<_>>();
    let slices = of("X");
    assert_eq!(slices.len(), n_instructions);
    for pair in slices.windows(2) {
        let end = pair[0]["ts"].as_f64().unwrap() + pair[0]["dur"].as_f64().unwrap();
        assert!((pair[1]["ts"].as_f64().unwrap() - end).abs() < 1e-6 * end.max(1.0), "{pair:?}");
    }
    let ids = |ph: &str| of(ph).iter().map(|e| e["id"].as_u64().unwrap()).collect::<Vec<u64>>();
    assert_eq!(ids("b"), ids("e"));
    let counter = |name: &str| -> Vec<u64> {
        of("C").iter().filter(|e| e["name"] == name).map(|e| e["args"]["bytes"].as_u64().unwrap()).collect()
    };
    let (live, room) = (counter("arena in use"), counter("room for the arena under the limit"));
    assert!(live.len() == n_instructions + 1 && room.len() == n_instructions);
    assert!(live.iter().zip(&room).all(|(live, room)| live <= room), "{live:?} {room:?}");
}
