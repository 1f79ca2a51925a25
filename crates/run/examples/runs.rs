//! Makes three run directories from real trainings, to look at with `report`, `watch` and `serve`.
//!
//!     cargo run --release -p plimsoll-run --example runs -- DIRECTORY
//!
//! Expect half a minute on two cores and three directories: `pictures` (a small convolutional network half way between its smallest
//! limit and none), `deep` (dense layers close to their smallest limit, so that values are computed again and moved to a file) and
//! `plain` (nothing has to be done).

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, BatchNorm, Conv2D, Dense, GlobalAvgPool2D, MaxPool2D};
use plimsoll::losses::{MeanSquaredError, SparseCategoricalCrossEntropy};
use plimsoll::metrics::SparseCategoricalAccuracy;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{Bytes, Error, Tensor};
use plimsoll_run::{EventKind, RunLog, Sweep, Times};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: runs DIRECTORY")?;
    let directory = Path::new(&directory);
    let only = std::env::args().nth(2);
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("pictures") {
        let (train, test) = (pictures(1024, 1)?, pictures(256, 2)?);
        run(&directory.join("pictures"), convolutions, &train, &test, 64, Some(0.35), 12)?;
    }
    if wanted("deep") {
        let (train, test) = (points(4096)?, points(512)?);
        run(&directory.join("deep"), dense, &train, &test, 1024, Some(0.02), 8)?;
    }
    if wanted("plain") {
        let (train, test) = (points(4096)?, points(512)?);
        run(&directory.join("plain"), dense, &train, &test, 128, None, 5)?;
    }
    Ok(())
}

/// Trains under a limit that lies this far between the smallest and what would do without any.
fn run(
    directory: &Path,
    model: fn() -> Result<Trainer, Error>,
    train: &Arrays,
    test: &Arrays,
    batch: usize,
    part: Option<f64>,
    epochs: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let points = model()?.sweep(train, &Fit::epochs(epochs).validation(test).batch_size(batch), 12)?;
    let mut trainer = model()?;
    if let (Some(part), [first, .., last]) = (part, &points[..]) {
        // The log and the sweep's own results are held too.
        let between = first.limit.0 as f64 + part * (last.limit.0 - first.limit.0) as f64;
        trainer = trainer.memory_limit(Bytes(between as u64 + (3 << 20)));
    }
    let log = RunLog::create(directory, &name)?.tensorboard(directory.join("tensorboard"))?;
    let fit = Fit::epochs(epochs).batch_size(batch).validation(test).callback(log.clone());
    let history = trainer.fit(train, fit)?;
    trainer.save_weights(directory.join("weights.safetensors"))?;
    log.event(EventKind::Checkpoint, "weights.safetensors")?;
    plimsoll_run::write_sweep(directory, &Sweep::of(&name, &points))?;
    let profile = trainer.profile(train, batch, 3)?;
    let times = trainer.planned().first().and_then(|plan| Times::of(plan, &profile));
    if let Some(times) = &times {
        plimsoll_run::write_times(directory, times)?;
    }
    let picture = plimsoll_run::read_plan(directory.join(plimsoll_run::PLAN))?;
    let trace = std::io::BufWriter::new(std::fs::File::create(directory.join("trace.json"))?);
    plimsoll_run::trace::write(&picture, times.as_ref(), trace)?;
    println!("{name}: {}; loss {:?}", trainer.kept().map_or_else(String::new, |k| k.to_string()), history.last("loss"));
    Ok(())
}

fn convolutions() -> Result<Trainer, Error> {
    let mut model = Model::sequential([24, 24, 1]);
    for (i, filters) in [32, 32, 0, 64, 64, 0, 128].into_iter().enumerate() {
        model = match filters {
            0 => model.layer(MaxPool2D::new(2).named(&format!("pool{i}"))),
            _ => model
                .layer(Conv2D::new(filters, 3).same().no_bias().named(&format!("conv{i}")))
                .layer(BatchNorm::new().named(&format!("norm{i}")))
                .layer(Activation::Relu),
        };
    }
    let model = model.layer(GlobalAvgPool2D::new()).layer(Dense::new(4).named("classes"));
    let loss = SparseCategoricalCrossEntropy::from_logits();
    Ok(Trainer::new(model, loss, Adam::new(1e-3))?.metric(SparseCategoricalAccuracy::new()))
}

fn dense() -> Result<Trainer, Error> {
    let mut model = Model::sequential([64]);
    for i in 0..16 {
        model = model.layer(Dense::new(384).activation(Activation::Tanh).named(&format!("dense{i}")));
    }
    Ok(Trainer::new(model.layer(Dense::new(4).named("head")), MeanSquaredError, Adam::new(1e-3))?
        .techniques(Techniques { split: false, ..Techniques::ALL }))
}

fn noise(i: usize) -> f32 {
    ((i * 7919 + 13) % 10_007) as f32 / 10_007.0 - 0.5
}

fn points(n: usize) -> Result<Arrays, Error> {
    let x: Vec<f32> = (0..n * 64).map(|i| 2.0 * noise(i)).collect();
    let y: Vec<f32> = (0..n * 4).map(|i| (x[i / 4 * 64 + i % 4] * 3.0).sin()).collect();
    Arrays::new(Tensor::from_slice([n, 64], &x)?, Tensor::from_slice([n, 4], &y)?)
}

/// Stripes in four directions, in noise.
fn pictures(n: usize, salt: usize) -> Result<Arrays, Error> {
    let mut x = vec![0.0f32; n * 24 * 24];
    let labels: Vec<i32> = (0..n as i32).map(|i| i % 4).collect();
    for (i, picture) in x.chunks_exact_mut(24 * 24).enumerate() {
        let angle = (i % 4) as f32 * 0.785;
        for (p, pixel) in picture.iter_mut().enumerate() {
            let along = (p / 24) as f32 * angle.cos() + (p % 24) as f32 * angle.sin();
            *pixel = 0.4 * (along * 0.9 + i as f32).sin() + 2.4 * noise(p + 577 * i + 31 * salt);
        }
    }
    Arrays::new(Tensor::from_slice([n, 24, 24, 1], &x)?, Tensor::from_slice([n], &labels)?)
}
