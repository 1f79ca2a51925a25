//! The four workloads of the examples, at reduced size, follow PyTorch: 20 training steps from the same weights on the same
//! data give the same losses and end with the same weights, whatever the number of threads. At full size they are planned
//! without waste.
//!
//! The numbers in `tests/reference/w*.json` are made by `scripts/reference/workloads.py`, in float32 and in float64: how far
//! these two are apart says how near another float32 computation can be expected to come.

mod common;
#[path = "../examples/workloads/models.rs"]
mod models;

use common::{Case, cases};
use models::{Cnn, Gpt, Mlp, Wall};
use plimsoll::callbacks::{Callback, Training};
use plimsoll::data::{Arrays, Component, Dataset};
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Error, Tensor, TensorType};
use std::ops::ControlFlow;
use std::time::Instant;

#[test]
fn w1_mlp() {
    let case = only_case("w1");
    let mlp = Mlp { features: case.config.size("features"), hidden: case.config.size("hidden") };
    let data = Arrays::new(case.input("x").clone(), case.input("y").clone()).unwrap();
    follow(&case, &data, 2e-6, || mlp.trainer());
}

#[test]
fn w4_cnn() {
    let case = only_case("w4");
    let layers = case.config.get("layers").unwrap().as_array().unwrap();
    let layers = layers.iter().map(|l| l.as_u64().map(|channels| channels as usize)).collect();
    let cnn = Cnn { image: case.config.sizes("image")[0], layers, classes: case.config.size("classes") };
    let data = Arrays::new(case.input("x").clone(), case.input("y").clone()).unwrap();
    follow(&case, &data, 1e-6, || cnn.trainer());
}

#[test]
fn w5_gpt() {
    let case = only_case("w5");
    let gpt = Gpt {
        vocabulary: case.config.size("vocab"),
        width: case.config.size("d_model"),
        blocks: case.config.size("layers"),
        heads: case.config.size("heads"),
        context: case.config.size("context"),
    };
    // Position t predicts position t + 1.
    let tokens = case.input("tokens");
    let (rows, time) = (tokens.shape()[0], gpt.context);
    let all = tokens.as_slice::<i32>().unwrap();
    let from = |shift: usize| {
        let part: Vec<i32> = all.chunks(time + 1).flat_map(|row| row[shift..shift + time].to_vec()).collect();
        Tensor::from_slice([rows, time], &part).unwrap()
    };
    follow(&case, &Arrays::new(from(0), from(1)).unwrap(), 1e-6, || gpt.trainer());
}

#[test]
fn w6_wall() {
    let case = only_case("w6");
    let wall = Wall { layers: case.config.size("layers"), width: case.config.size("width") };
    let data = Arrays::new(case.input("x").clone(), case.input("y").clone()).unwrap();
    // 24 layers of ReLU: where a sum is within its rounding of 0, one gradient or another is right. PyTorch itself is up to
    // 2.5e-5 from its float64 result when the last bits of the initial weights are changed.
    follow(&case, &data, 5e-5, || wall.trainer());
}

#[test]
fn full_sizes_are_planned_without_waste() {
    let f32_rows = |sizes: &[usize]| TensorType::new(DType::F32, sizes);
    let i32_rows = |sizes: &[usize]| TensorType::new(DType::I32, sizes);
    let (mlp, cnn, gpt, wall) = (Mlp::FULL, Cnn::full(), Gpt::FULL, Wall::FULL);
    let image = [cnn.image, cnn.image, 3];
    plan_is_tight("W1", mlp.trainer(), 32, f32_rows(&[mlp.features]), f32_rows(&[1]));
    plan_is_tight("W4", cnn.trainer(), 64, f32_rows(&image), i32_rows(&[]));
    plan_is_tight("W5", gpt.trainer(), 8, i32_rows(&[gpt.context]), i32_rows(&[gpt.context]));
    plan_is_tight("W6", wall.trainer(), 4096, f32_rows(&[wall.width]), f32_rows(&[wall.width]));
}

fn only_case(file: &str) -> Case {
    cases(file).pop().expect("a case")
}

/// Trains as the case says with 1, 2 and 3 threads; all must be equal, and near to what PyTorch did: losses to `tolerance`
/// of themselves.
#[track_caller]
fn follow(case: &Case, data: &Arrays, tolerance: f64, trainer: impl Fn() -> Result<Trainer, Error>) {
    let runs = [1, 2, 3].map(|threads| train(case, data, trainer().unwrap().threads(threads)));
    for run in &runs[1..] {
        assert!(run.losses == runs[0].losses, "{}: losses depend on the threads", case.name);
        assert!(run.weights == runs[0].weights, "{}: weights depend on the threads", case.name);
    }
    let worst = case.expected("losses").values.iter().zip(&runs[0].losses).map(|(e, f)| (e - f).abs() / e.abs());
    let worst = worst.fold(0.0, f64::max);
    println!("{}: losses differ by at most {worst:.1e} of themselves", case.name);
    assert_eq!(runs[0].losses.len(), case.expected("losses").values.len());
    assert!(
        worst < tolerance,
        "{}: losses {:?}, expected {:?}",
        case.name,
        runs[0].losses,
        case.expected("losses").values
    );
    check_weights(case, &runs[0].weights, tolerance);
}

struct Run {
    losses: Vec<f64>,
    weights: Vec<(String, Tensor)>,
}

fn train(case: &Case, data: &Arrays, mut trainer: Trainer) -> Run {
    let weights: Vec<(String, Tensor)> = case.weights.iter().map(|w| (our_name(&w.name), w.tensor.clone())).collect();
    trainer.set_weights(&weights).unwrap();
    let mut losses = Losses(Vec::new());
    let epochs = case.expected("losses").values.len().div_ceil(case.config.size("batches"));
    let fit = Fit::epochs(epochs).batch_size(case.config.size("batch")).in_order().callback(&mut losses);
    trainer.fit(data, fit).unwrap();
    Run { losses: losses.0, weights: trainer.weights().unwrap() }
}

/// Notes the loss of every step.
struct Losses(Vec<f64>);

impl Callback for &mut Losses {
    fn on_step_end(&mut self, _: &mut dyn Training, _: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        self.0.push(loss);
        Ok(ControlFlow::Continue(()))
    }
}

/// The reference files name tables without a layer, and running statistics as PyTorch does.
fn our_name(name: &str) -> String {
    if name.contains('/') { name.replace("running_", "moving_") } else { format!("{name}/embeddings") }
}

/// Compares sum and sum of squares of every weight.
#[track_caller]
fn check_weights(case: &Case, found: &[(String, Tensor)], tolerance: f64) {
    let (single, double) = (&case.expected("final_checksums").values, &case.expected("final_checksums_float64").values);
    assert_eq!(found.len(), case.weights.len(), "{}: as many weights as the reference has", case.name);
    let mut worst: f64 = 0.0;
    for (i, weight) in case.weights.iter().enumerate() {
        let name = our_name(&weight.name);
        let tensor = &found.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no weight '{name}'")).1;
        let values = tensor.to_f64();
        let n = values.len() as f64;
        let mut sums = [values.iter().sum::<f64>(), values.iter().map(|v| v * v).sum()];
        if name.ends_with("moving_variance") {
            sums = as_unbiased(case, weight_level(&weight.name), sums, n);
        }
        // Where the two precisions happen to agree better than float32 can tell, the tolerance of the losses is allowed.
        let mut rounding = [(n * single[2 * i + 1]).sqrt(), single[2 * i + 1]].map(|size| tolerance * size);
        if name.ends_with("qkv/bias") {
            // Scores do not depend on the bias of the keys: its gradient is rounding, of which AdamW makes steps of full
            // length in either direction.
            rounding = [5e-3, 5e-4];
        }
        for k in 0..2 {
            let (expected, other) = (single[2 * i + k], double[2 * i + k]);
            let allowed = 4.0 * (expected - other).abs() + rounding[k];
            let off = (sums[k] - other).abs();
            worst = worst.max(off / allowed);
            let what = ["sum", "sum of squares"][k];
            assert!(
                off <= allowed,
                "{}: {what} of '{name}': {}, expected {other}; {off:.1e} off, {allowed:.1e} allowed",
                case.name,
                sums[k]
            );
        }
    }
    println!("{}: sums of weights differ by at most {worst:.2} of what is allowed", case.name);
}

/// Which of the norms of the CNN a statistic belongs to.
fn weight_level(name: &str) -> usize {
    name.trim_start_matches("norm").split('/').next().and_then(|n| n.parse().ok()).expect("norm and its number")
}

/// Sum and sum of squares of running variances as PyTorch has them, from ours.
///
/// PyTorch keeps the batch's variance times n / (n - 1), as Keras does not. After s steps from 1, that is
/// `u = keep + (v - keep) * n / (n - 1)` with `keep = 0.9^s` for each element v.
fn as_unbiased(case: &Case, norm: usize, [sum, squares]: [f64; 2], elements: f64) -> [f64; 2] {
    let mut size = case.config.sizes("image")[0];
    let mut norms = 0;
    for layer in case.config.get("layers").unwrap().as_array().unwrap() {
        match layer.as_u64() {
            None => size /= 2,
            Some(_) if norms == norm => break,
            Some(_) => norms += 1,
        }
    }
    let n = (case.config.size("batch") * size * size) as f64;
    let factor = n / (n - 1.0);
    let keep = 0.9f64.powi(case.expected("losses").values.len() as i32);
    let (a, b) = (keep * (1.0 - factor), factor);
    [a * elements + b * sum, a * a * elements + 2.0 * a * b * sum + b * b * squares]
}

/// The arena is at most 1% larger than what is alive at once.
#[track_caller]
fn plan_is_tight(workload: &str, trainer: Result<Trainer, Error>, batch: usize, input: TensorType, label: TensorType) {
    let mut trainer = trainer.unwrap().threads(2);
    // Planning reads no data.
    let component = |name: &str, ty: TensorType| Component::new(name, ty.dtype, ty.shape.dims());
    let rows = Dataset::range(0, i64::MAX, 1);
    let form = rows.map([component("x", input), component("y", label)], |_, _| unreachable!()).batch_exact(batch);
    let start = Instant::now();
    let plan = trainer.plan(&form, None).unwrap();
    let (arena, live) = (plan.arena_bytes, plan.live_bytes);
    println!(
        "{workload}: planned in {:.1?}; states {}, arena {arena}, alive {live}, {:.2}% more than alive",
        start.elapsed(),
        plan.state.bytes(),
        100.0 * (arena as f64 / live as f64 - 1.0)
    );
    assert!(arena * 100 <= live * 101, "{workload}: an arena of {arena} bytes for {live} that are alive at once");
}
