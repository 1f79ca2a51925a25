//! Every metric of `tests/reference/metrics.json`: the result after each of three batches, as Keras computes it.

mod common;

use common::{Case, Config, cases};
use plimsoll::by_definition::Run;
use plimsoll::metrics::*;
use plimsoll::trace::Mode;
use plimsoll::{Tensor, losses};

#[test]
fn results_after_each_batch() {
    let cases = cases("metrics");
    assert!(cases.len() >= 34, "the file has {} cases", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn check(case: &Case) -> Result<(), String> {
    let metric = metric(&case.config);
    let batches = case.input("y_true").shape()[0];
    let mut run = Run::new();
    let mut found = Vec::new();
    for batch in 0..batches {
        let inputs: Vec<_> = case.inputs.iter().map(|a| (a.name.as_str(), slice(&a.tensor, batch))).collect();
        let mut names = Vec::new();
        run.step(Mode::Evaluate, &inputs, |t| {
            let values: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, t.input(name, *tensor.ty()))).collect();
            let value = |name: &str| values.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
            let (y_true, y_pred) = (value("y_true").expect("labels"), value("y_pred").expect("predictions"));
            names = metric.update(t, y_true, y_pred, value("sample_weight"))?;
            Ok(())
        })
        .map_err(|e| e.to_string())?;
        let state: Vec<Tensor> = names.iter().map(|n| run.get(n).expect("updated").clone()).collect();
        assert_eq!(metric.result(&state), metric.results(&state)[0]);
        found.extend(metric.results(&state));
    }
    let expected = case.expected("result_after_batch");
    let found = Tensor::from_slice(&expected.shape[..], &found).map_err(|e| e.to_string())?;
    expected.compare(&found, 1e-5)
}

/// Slice `k` along the first axis.
fn slice(tensor: &Tensor, k: usize) -> Tensor {
    let shape = tensor.shape().remove(0);
    let values = tensor.to_f64();
    Tensor::from_f64(tensor.dtype(), shape, &values[k * shape.elements()..][..shape.elements()]).expect("a slice")
}

/// The metric that a case's settings describe.
fn metric(config: &Config) -> Box<dyn Metric> {
    let thresholds = || match config.get("thresholds").expect("thresholds") {
        one if one.is_number() => vec![one.as_f64().expect("a number")],
        several => several.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect(),
    };
    match config.text("metric") {
        "BinaryAccuracy" => Box::new(BinaryAccuracy::new().threshold(config.number("threshold"))),
        "CategoricalAccuracy" => Box::new(CategoricalAccuracy::new()),
        "SparseCategoricalAccuracy" => Box::new(SparseCategoricalAccuracy::new()),
        "TopKCategoricalAccuracy" => Box::new(TopKCategoricalAccuracy::new(config.size("k"))),
        "SparseTopKCategoricalAccuracy" => Box::new(SparseTopKCategoricalAccuracy::new(config.size("k"))),
        "Precision" => Box::new(Precision::new().thresholds(&thresholds())),
        "Recall" => Box::new(Recall::new().thresholds(&thresholds())),
        "AUC" => {
            let auc = match config.text("curve") {
                "ROC" => Auc::roc(),
                "PR" => Auc::precision_recall(),
                other => panic!("unknown curve {other}"),
            };
            assert_eq!(config.text("summation_method"), "interpolation");
            Box::new(auc.thresholds(config.size("num_thresholds")))
        }
        "MeanSquaredError" => Box::new(Mean::of(losses::MeanSquaredError)),
        "MeanAbsoluteError" => Box::new(Mean::of(losses::MeanAbsoluteError)),
        "RootMeanSquaredError" => Box::new(RootMeanSquaredError::new()),
        other => panic!("unknown metric {other}"),
    }
}
