//! Every loss of `tests/reference/losses.json`: value and gradient as Keras computes them.

#[path = "common/build_loss.rs"]
mod build_loss;
mod common;
mod ways;

use build_loss::loss;
use common::{Case, cases};
use plimsoll::losses;
use plimsoll::trace::Mode;
use plimsoll_graph::gradients;
use ways::Way;

#[test]
fn values_and_gradients() {
    let cases = cases("losses");
    assert!(cases.len() >= 62, "the file has {} cases", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

fn check(case: &Case) -> Result<(), String> {
    Way::both().into_iter().try_for_each(|mut way| check_way(case, &mut way).map_err(|e| way.said(e)))
}

fn check_way(case: &Case, way: &mut Way) -> Result<(), String> {
    let loss = loss(&case.config);
    let inputs: Vec<_> = case.inputs.iter().map(|a| (a.name.as_str(), a.tensor.clone())).collect();
    let results = way.step(Mode::Train, &inputs, |t| {
        let mut value = |name: &str| case.find_input(name).map(|tensor| t.input(name, *tensor.ty()));
        let (y_true, y_pred) = (value("y_true").expect("labels"), value("y_pred").expect("predictions"));
        let weights = value("sample_weight");
        let total = losses::total(&*loss, t, y_true, y_pred, weights)?;
        let gradient = gradients(t, total, &[y_pred])?[0].expect("the loss depends on the predictions");
        t.output("value", total);
        t.output("grad/y_pred", gradient);
        Ok(())
    })?;
    case.expected.iter().try_for_each(|e| e.compare(&results[&e.name], 1e-5))
}
