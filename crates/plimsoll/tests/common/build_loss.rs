//! Losses from the settings of a case.

use crate::common::Config;
use plimsoll::losses::*;

/// The loss that a case's settings describe.
pub fn loss(config: &Config) -> Box<dyn Loss> {
    let reduction = match config.text("reduction") {
        "sum_over_batch_size" => Reduction::SumOverBatchSize,
        "sum" => Reduction::Sum,
        "mean_with_sample_weight" => Reduction::MeanWithSampleWeight,
        other => panic!("unknown reduction {other}"),
    };
    if let Some(axis) = config.get("axis") {
        assert_eq!(axis.as_i64(), Some(-1), "only the last axis");
    }
    let logits = || config.flag("from_logits");
    let smoothing = || config.number("label_smoothing");
    macro_rules! with {
        ($loss:expr) => {
            Box::new($loss.with_reduction(reduction))
        };
    }
    match config.text("loss") {
        "MeanSquaredError" => with!(MeanSquaredError),
        "MeanAbsoluteError" => with!(MeanAbsoluteError),
        "MeanAbsolutePercentageError" => with!(MeanAbsolutePercentageError),
        "MeanSquaredLogarithmicError" => with!(MeanSquaredLogarithmicError),
        "Huber" => with!(Huber::new(config.number("delta"))),
        "LogCosh" => with!(LogCosh),
        "BinaryCrossentropy" => {
            let loss = if logits() { BinaryCrossEntropy::from_logits() } else { BinaryCrossEntropy::new() };
            with!(loss.label_smoothing(smoothing()))
        }
        "CategoricalCrossentropy" => {
            let loss = if logits() { CategoricalCrossEntropy::from_logits() } else { CategoricalCrossEntropy::new() };
            with!(loss.label_smoothing(smoothing()))
        }
        "SparseCategoricalCrossentropy" => {
            let loss = match logits() {
                true => SparseCategoricalCrossEntropy::from_logits(),
                false => SparseCategoricalCrossEntropy::new(),
            };
            match config.get("ignore_class") {
                None => with!(loss),
                Some(class) => with!(loss.ignore_class(class.as_i64().expect("a class"))),
            }
        }
        "KLDivergence" => with!(KlDivergence),
        "Hinge" => with!(Hinge),
        "SquaredHinge" => with!(SquaredHinge),
        "CategoricalHinge" => with!(CategoricalHinge),
        "CosineSimilarity" => with!(CosineSimilarity),
        "Poisson" => with!(Poisson),
        other => panic!("unknown loss {other}"),
    }
}
