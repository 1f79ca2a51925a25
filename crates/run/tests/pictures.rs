//! The picture of a plan agrees with what the planner itself counted, for several models under several limits.

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, BatchNorm, Conv2D, Dense, Flatten, LSTM};
use plimsoll::losses::{MeanSquaredError, SparseCategoricalCrossEntropy};
use plimsoll::model::Model;
use plimsoll::optimizers::{Adam, Sgd};
use plimsoll::trainer::Trainer;
use plimsoll::{DType, Tensor};
use plimsoll_plan::{Options, Plan, explain, plan};
use plimsoll_run::{BufferKind, Phase, PlanPicture, PlanSource, Strategy};

fn zeros(dims: &[usize]) -> Tensor {
    Tensor::zeros(DType::F32, dims)
}

/// The whole plans of a few models.
fn models() -> Vec<(&'static str, Plan)> {
    let mut mlp = Model::sequential([64]);
    for _ in 0..8 {
        mlp = mlp.layer(Dense::new(256).activation(Activation::Tanh));
    }
    let mut mlp = Trainer::new(mlp.layer(Dense::new(4)), MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2);
    let mlp = mlp.plan(&Arrays::new(zeros(&[1024, 64]), zeros(&[1024, 4])).unwrap(), 1024).unwrap();

    let cnn = Model::sequential([16, 16, 3])
        .layer(Conv2D::new(16, 3).same().no_bias())
        .layer(BatchNorm::new())
        .layer(Activation::Relu)
        .layer(Conv2D::new(16, 3).same().no_bias())
        .layer(BatchNorm::new())
        .layer(Activation::Relu)
        .layer(Flatten::new())
        .layer(Dense::new(10));
    let mut cnn = Trainer::new(cnn, SparseCategoricalCrossEntropy::from_logits(), Sgd::new(0.1)).unwrap().threads(2);
    let labels = Tensor::zeros(DType::I32, [64]);
    let cnn = cnn.plan(&Arrays::new(zeros(&[64, 16, 16, 3]), labels).unwrap(), 64).unwrap();

    let lstm = Model::sequential([20, 8]).layer(LSTM::new(32).return_sequences()).layer(Dense::new(1));
    let mut lstm = Trainer::new(lstm, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2);
    let lstm = lstm.plan(&Arrays::new(zeros(&[64, 20, 8]), zeros(&[64, 20, 1])).unwrap(), 64).unwrap();
    vec![("mlp", mlp), ("cnn", cnn), ("lstm", lstm)]
}

/// Calls `each` with every model as it is and under limits, with recomputing, with the file and with both.
fn each_plan(mut each: impl FnMut(&str, &Plan)) -> usize {
    let mut n_limited = 0;
    for (name, whole) in models() {
        each(name, &whole);
        for part in [0.8, 0.6, 0.45] {
            for (recompute, spill) in [(true, false), (false, true), (true, true)] {
                let limit = Some((whole.arena_bytes as f64 * part) as u64);
                let options = Options { threads: 2, limit, recompute, spill, ..Options::default() };
                if let Ok(limited) = plan(&whole.graph, &whole.state, &options) {
                    n_limited += 1;
                    each(&format!("{name} at {part}, recompute {recompute}, spill {spill}"), &limited);
                }
            }
        }
    }
    n_limited
}

#[test]
fn what_runs_again_and_what_moves_is_what_the_planner_counted() {
    let (mut again, mut moved) = (0, 0);
    let n_limited = each_plan(|name, plan| {
        let picture = PlanSource::new(name, plan).picture();
        let n_again = picture.instructions.iter().filter(|i| i.again).count();
        assert_eq!(n_again, plan.recomputed.nodes, "{name}");
        let sum = |of: fn(&plimsoll_run::InstructionLine) -> u64| picture.instructions.iter().map(of).sum::<u64>();
        assert_eq!(sum(|i| i.written), plan.recomputed.written, "{name}");
        assert_eq!(sum(|i| i.read), plan.recomputed.read, "{name}");
        let n = |strategy: Strategy| picture.buffers.iter().filter(|b| b.strategy == strategy).count();
        assert!(n_again > 0 || n(Strategy::Recomputed) + n(Strategy::Dropped) == 0, "{name}");
        // What was read from the file may change and be written back.
        assert!(n(Strategy::Spilled) + n(Strategy::Fetched) > 0 || plan.recomputed.written == 0, "{name}");
        assert!(plan.recomputed.written > 0 || n(Strategy::Spilled) == 0, "{name}");
        assert_eq!(n(Strategy::Fetched) > 0, plan.recomputed.read > 0, "{name}");
        for (b, buffer) in picture.buffers.iter().enumerate() {
            let partner = buffer.partner.map(|p| &picture.buffers[p as usize]);
            match buffer.strategy {
                Strategy::Fetched | Strategy::Recomputed => {
                    assert!(partner.is_some_and(|p| p.birth <= buffer.birth), "{name}, buffer {b}: {buffer:?}");
                }
                Strategy::Dropped => assert!(partner.is_some(), "{name}, buffer {b}: {buffer:?}"),
                _ => (),
            }
        }
        again += n_again;
        moved += n(Strategy::Fetched);
    });
    // The limits must have done something, or nothing was tested.
    assert!(n_limited > 10 && again > 20 && moved > 20, "{n_limited} plans, {again} again, {moved} moved");
}

#[test]
fn what_is_alive_at_the_peak_sums_to_the_peak() {
    each_plan(|name, plan| {
        let picture = PlanSource::new(name, plan).picture();
        let explained = explain(plan);
        assert_eq!((picture.peak_step, picture.live), (explained.step as u64, explained.bytes), "{name}");
        let alive = |step: u32| picture.buffers.iter().filter(move |b| b.birth <= step && step <= b.death);
        assert_eq!(alive(picture.peak_step as u32).map(|b| b.bytes).sum::<u64>(), picture.live, "{name}");
        for (step, instruction) in picture.instructions.iter().enumerate() {
            assert_eq!(alive(step as u32).map(|b| b.bytes).sum::<u64>(), instruction.live, "{name}, step {step}");
        }
        assert!(picture.live <= picture.arena && picture.live == plan.live_bytes, "{name}");
    });
}

#[test]
fn phases_come_in_order_and_kinds_follow() {
    for (name, plan) in models() {
        let picture = PlanSource::new(name, &plan).picture();
        let first = |phase: Phase| picture.instructions.iter().position(|i| i.phase == phase).unwrap();
        assert!(first(Phase::Forward) < first(Phase::Backward), "{name}");
        assert!(first(Phase::Backward) < first(Phase::Update), "{name}");
        let bytes = |kind: BufferKind| picture.buffers.iter().filter(|b| b.kind == kind).map(|b| b.bytes).sum::<u64>();
        assert!(
            bytes(BufferKind::Saved) > 0 && bytes(BufferKind::Gradient) > 0 && bytes(BufferKind::Input) > 0,
            "{name}"
        );
    }
}

#[test]
fn the_file_is_the_picture() {
    let directory = std::env::temp_dir().join(format!("plimsoll-picture-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    each_plan(|name, plan| {
        let source = PlanSource::new(name, plan);
        plimsoll_run::write_plan(&directory, &source).unwrap();
        assert_eq!(plimsoll_run::read_plan(directory.join(plimsoll_run::PLAN)).unwrap(), source.picture(), "{name}");
    });
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_file_that_contradicts_itself_is_refused() {
    let directory = std::env::temp_dir().join(format!("plimsoll-broken-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(plimsoll_run::PLAN);
    let (_, plan) = models().remove(0);
    let good = PlanSource::new("mlp", &plan).picture();
    let check = |change: &dyn Fn(&mut PlanPicture), expected: &str| {
        let mut broken = good.clone();
        change(&mut broken);
        std::fs::write(&path, serde_json::to_vec(&broken).unwrap()).unwrap();
        let message = plimsoll_run::read_plan(&path).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    check(&|p| p.schema = 9, "version 9");
    check(&|p| p.buffers[0].death = 1_000_000, "of");
    check(&|p| p.buffers[0].offset = u64::MAX, "leaves the arena");
    check(&|p| p.buffers[0].partner = Some(u32::MAX), "partner");
    check(&|p| p.peak_step = u64::MAX, "peak");
    std::fs::write(&path, "{").unwrap();
    assert!(plimsoll_run::read_plan(&path).unwrap_err().to_string().contains("plan.json:1"));
    std::fs::remove_dir_all(directory).unwrap();
}
