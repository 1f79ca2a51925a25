//! Every loss of `tests/reference/losses.json`: value and gradient as Keras computes them.

mod common;

use common::{Case, Config, cases};
use plimsoll::by_definition::Run;
use plimsoll::losses::{self, *};
use plimsoll::trace::Mode;
use plimsoll_graph::gradients;

#[test]
fn values_and_gradients() {
    let cases = cases("losses");
    assert!(cases.len() >= 62, "the file has {} cases", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn check(case: &Case) -> Result<(), String> {
    let loss = loss(&case.config);
    let inputs: Vec<_> = case.inputs.iter().map(|a| (a.name.as_str(), a.tensor.clone())).collect();
    let step = Run::new().step(Mode::Train, &inputs, |t| {
        let mut value = |name: &str| case.find_input(name).map(|tensor| t.input(name, *tensor.ty()));
        let (y_true, y_pred) = (value("y_true").expect("labels"), value("y_pred").expect("predictions"));
        let weights = value("sample_weight");
        let total = losses::total(&*loss, t, y_true, y_pred, weights)?;
        let gradient = gradients(t, total, &[y_pred])?[0].expect("the loss depends on the predictions");
        t.output("value", total);
        t.output("grad/y_pred", gradient);
        Ok(())
    });
    let results = step.map_err(|e| e.to_string())?;
    case.expected.iter().try_for_each(|e| e.compare(&results[&e.name], 1e-5))
}

/// The loss that a case's settings describe.
fn loss(config: &Config) -> Box<dyn Loss> {
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
