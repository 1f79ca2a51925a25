//! `plimsoll demo`: pictures of simple figures, and a network that learns to name them.

use clap::Args;
use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Conv2D, Dense, Dropout, Flatten, MaxPool2D};
use plimsoll::losses::SparseCategoricalCrossEntropy;
use plimsoll::metrics::SparseCategoricalAccuracy;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::progress::Progress;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Error, Limit, Tensor, measure};

#[derive(Args)]
pub struct Options {
    /// Passes over the pictures.
    #[arg(long, default_value_t = 15)]
    epochs: usize,
    /// Pictures to train on.
    #[arg(long, default_value_t = 6000)]
    pictures: usize,
    /// Pictures per training step.
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Threads; results do not depend on their number [default: one per core].
    #[arg(long)]
    threads: Option<usize>,
    /// Resident memory of the whole process, at most: 64MiB, 2GB, 50% (of what the host allows), none.
    ///
    /// Without it the environment variable PLIMSOLL_MEMORY_LIMIT counts, and without that the lowest of what the host allows:
    /// control groups, ulimit -v and -d, Slurm's grant (each less 2 %), free memory (less 10 %, at least 64 MiB). A limit
    /// above what the host allows is lowered to it. What does not fit is refused before the first step, with exit code 3.
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<Limit>,
    /// Do not touch memory ahead of the first step to find out whether it is there.
    #[arg(long)]
    no_sounding: bool,
    /// Seed of pictures, initial weights and the order of samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

const SIZE: usize = 24;
const FIGURES: [&str; 6] = ["disc", "ring", "square", "frame", "cross", "stripes"];

pub fn run(options: &Options) -> Result<(), Error> {
    eprintln!("drawing {} pictures of {}", options.pictures, FIGURES.join(", "));
    let training = draw(options.pictures, options.seed)?;
    let validation = draw(options.pictures / 6 + 1, options.seed + 1)?;
    let conv = |filters: usize| Conv2D::new(filters, 3).activation(Activation::Relu);
    let model = Model::sequential([SIZE, SIZE, 1])
        .layer(conv(16))
        .layer(MaxPool2D::new(2))
        .layer(conv(32))
        .layer(MaxPool2D::new(2))
        .layer(Flatten::new())
        .layer(Dense::new(64).activation(Activation::Relu))
        .layer(Dropout::new(0.3))
        .layer(Dense::new(FIGURES.len()));
    let loss = SparseCategoricalCrossEntropy::from_logits();
    let mut trainer =
        Trainer::new(model, loss, Adam::new(1e-3))?.metric(SparseCategoricalAccuracy::new()).seed(options.seed);
    if let Some(threads) = options.threads {
        trainer = trainer.threads(threads);
    }
    if let Some(limit) = options.memory_limit {
        trainer = trainer.memory_limit(limit);
    }
    if options.no_sounding {
        trainer = trainer.no_sounding();
    }
    eprintln!("memory limit: {}", trainer.limit_source()?);
    eprintln!("\n{}\n", trainer.summary(options.batch_size)?);
    let fit =
        Fit::epochs(options.epochs).batch_size(options.batch_size).validation(&validation).callback(Progress::new());
    let history = trainer.fit(&training, fit)?;
    if history.interrupted {
        eprintln!("stopped after {} steps", trainer.steps_done());
    }
    if let Ok(usage) = measure::usage() {
        eprintln!("peak resident memory: {} KiB", usage.peak.0 / 1024);
    }
    if let Some(accuracy) = history.last("val_sparse_categorical_accuracy") {
        println!("{:.1} % of {} new pictures named right", 100.0 * accuracy, options.pictures / 6 + 1);
    }
    Ok(())
}

/// A small generator, so that the same seed draws the same pictures everywhere.
struct Dice(u64);

impl Dice {
    fn uniform(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }
}

/// Pictures of figures at random places, sizes and angles, in noise.
fn draw(n: usize, seed: u64) -> Result<Arrays, Error> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    let mut pictures = Tensor::zeros(DType::F32, [n, SIZE, SIZE, 1]);
    let mut labels = Tensor::zeros(DType::I32, [n]);
    let pixels = pictures.as_mut_slice::<f32>()?.chunks_exact_mut(SIZE * SIZE);
    for (i, (picture, label_out)) in pixels.zip(labels.as_mut_slice::<i32>()?).enumerate() {
        let label = i % FIGURES.len();
        *label_out = label as i32;
        let (cx, cy, r) = (dice.between(9.0, 15.0), dice.between(9.0, 15.0), dice.between(4.5, 8.0));
        let (sin, cos) = dice.between(-0.5, 0.5).sin_cos();
        let ink = dice.between(0.5, 1.0);
        for y in 0..SIZE {
            for x in 0..SIZE {
                let (dx, dy) = (x as f32 - cx, y as f32 - cy);
                let (u, v) = ((dx * cos + dy * sin) / r, (dy * cos - dx * sin) / r);
                let noise = dice.between(-0.5, 0.5);
                picture[y * SIZE + x] = noise + if inside(label, u, v) { ink } else { 0.0 };
            }
        }
    }
    Arrays::new(pictures, labels)
}

/// Whether a point, in units of the figure's size, belongs to it.
fn inside(figure: usize, u: f32, v: f32) -> bool {
    let (round, square) = ((u * u + v * v).sqrt(), u.abs().max(v.abs()));
    match FIGURES[figure] {
        "disc" => round < 1.0,
        "ring" => round < 1.0 && round > 0.6,
        "square" => square < 0.9,
        "frame" => square < 0.9 && square > 0.55,
        "cross" => square < 1.0 && u.abs().min(v.abs()) < 0.25,
        _ => square < 1.0 && (((v + 1.0) * 2.5) as usize).is_multiple_of(2),
    }
}
