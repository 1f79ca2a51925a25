use super::*;
use crate::losses::{MeanAbsoluteError, SparseCategoricalCrossEntropy};

fn f32s(shape: impl Into<plimsoll_tensor::Shape>, values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}

#[test]
fn accuracy_chooses_by_shapes() {
    let scores = f32s([2, 3], &[0.1, 0.8, 0.1, 0.5, 0.2, 0.3]);
    let numbers = Tensor::from_slice([2], &[1i32, 2]).unwrap();
    assert_eq!(evaluate(&Accuracy::new(), &numbers, &scores, None).unwrap(), 0.5);
    let column = numbers.reshape([2, 1]).unwrap();
    assert_eq!(evaluate(&Accuracy::new(), &column, &scores, None).unwrap(), 0.5);
    let vectors = f32s([2, 3], &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(evaluate(&Accuracy::new(), &vectors, &scores, None).unwrap(), 1.0);
    let (bits, p) = (f32s([4, 1], &[1.0, 0.0, 1.0, 1.0]), f32s([4, 1], &[0.9, 0.2, 0.3, 0.6]));
    assert_eq!(evaluate(&Accuracy::new(), &bits, &p, None).unwrap(), 0.75);
    assert_eq!(evaluate(&Accuracy::new(), &bits.reshape([4]).unwrap(), &p.reshape([4]).unwrap(), None).unwrap(), 0.75);
}

#[test]
fn sums_go_on_over_batches() {
    let metric = Mean::of(MeanAbsoluteError).named("mae");
    let mut run = Run::new();
    let mut names = Vec::new();
    // The last batch is smaller: samples count, not batches.
    for batch in [&[1.0f32, 2.0, 3.0][..], &[10.0]] {
        let y_pred = f32s([batch.len(), 1], batch);
        let y_true = Tensor::zeros(DType::F32, [batch.len(), 1]);
        run.step(Mode::Evaluate, &[("y_true", y_true), ("y_pred", y_pred.clone())], |t| {
            let [y_true, y_pred] = ["y_true", "y_pred"].map(|n| t.input(n, *y_pred.ty()));
            t.scope("metrics", |t| {
                names = metric.update(t, y_true, y_pred, None)?;
                Ok(())
            })
        })
        .unwrap();
    }
    assert_eq!(names, ["metrics/mae/total", "metrics/mae/count"]);
    let state: Vec<Tensor> = names.iter().map(|n| run.get(n).unwrap().clone()).collect();
    assert_eq!(metric.result(&state), 4.0);
    assert!(run.variables().iter().all(|v| v.role == Role::Metric));
}

#[test]
fn counts_stay_exact_beyond_what_f32_can_count() {
    let metric = Mean::of(MeanAbsoluteError);
    let mut run = Run::new();
    run.set("mean_absolute_error/total", Tensor::scalar(0.0f64));
    run.set("mean_absolute_error/count", Tensor::scalar(16_777_216.0f64));
    let one = Tensor::zeros(DType::F32, [1, 1]);
    run.step(Mode::Evaluate, &[("y", one.clone())], |t| {
        let y = t.input("y", *one.ty());
        metric.update(t, y, y, None)?;
        Ok(())
    })
    .unwrap();
    assert_eq!(run.get("mean_absolute_error/count").unwrap().to_f64(), [16_777_217.0]);
}

#[test]
fn the_loss_of_an_epoch() {
    let mut run = Run::new();
    let mut names = Vec::new();
    for (loss, batch) in [(1.0f32, 3), (5.0, 1)] {
        run.step(Mode::Train, &[("l", Tensor::scalar(loss))], |t| {
            let loss = t.input("l", TensorType::new(DType::F32, []));
            names = MeanLoss.update(t, loss, batch)?;
            Ok(())
        })
        .unwrap();
    }
    let state: Vec<Tensor> = names.iter().map(|n| run.get(n).unwrap().clone()).collect();
    assert_eq!(MeanLoss.result(&state), 2.0);
}

#[test]
fn ignored_positions_are_not_counted() {
    let metric = Mean::of(SparseCategoricalCrossEntropy::from_logits().ignore_class(0));
    let y_true = Tensor::from_slice([1, 3], &[0i32, 1, 0]).unwrap();
    let y_pred = f32s([1, 3, 2], &[5.0, 0.0, 0.0, 0.0, 7.0, 1.0]);
    let found = evaluate(&metric, &y_true, &y_pred, None).unwrap();
    assert!((found - std::f64::consts::LN_2).abs() < 1e-6, "{found}");
}

#[test]
fn f1_in_every_average() {
    // Class 0: tp 1, fp 0, fn 1; class 1: tp 1, fp 1, fn 0; class 2: tp 1, fp 0, fn 0.
    let y_true = f32s([4, 3], &[1., 0., 0., 1., 0., 0., 0., 1., 0., 0., 0., 1.]);
    let y_pred = f32s([4, 3], &[0.8, 0.1, 0.1, 0.2, 0.7, 0.1, 0.2, 0.6, 0.2, 0.3, 0.3, 0.4]);
    let score = |average: Average| evaluate(&F1Score::new(average), &y_true, &y_pred, None).unwrap();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    close(score(Average::Micro), 0.75);
    close(score(Average::Macro), (2.0 / 3.0 + 2.0 / 3.0 + 1.0) / 3.0);
    close(score(Average::Weighted), (2.0 * 2.0 / 3.0 + 2.0 / 3.0 + 1.0) / 4.0);
    // Above 0.25: the last row says all three, and only class 2 is so.
    let metric = F1Score::new(Average::Macro).threshold(0.25);
    close(evaluate(&metric, &y_true, &y_pred, None).unwrap(), (0.5 + 0.5 + 1.0) / 3.0);
}

#[test]
fn areas_are_bounded_by_their_lower_and_upper_sums() {
    let y_true = f32s([6, 1], &[0., 1., 0., 1., 1., 0.]);
    let y_pred = f32s([6, 1], &[0.0, 0.3, 0.35, 0.8, 1.0, 0.8]);
    for auc in [Auc::roc(), Auc::precision_recall()] {
        let area = |s: Summation| evaluate(&auc.clone().summation(s), &y_true, &y_pred, None).unwrap();
        let [low, middle, high] = [Summation::Minoring, Summation::Interpolation, Summation::Majoring].map(area);
        assert!(low < middle && middle < high, "{low} {middle} {high}");
    }
    let logits = f32s([6, 1], &[-9.0, -0.85, -0.62, 1.386, 9.0, 1.386]);
    let from_logits = evaluate(&Auc::roc().of_logits(), &y_true, &logits, None).unwrap();
    assert_eq!(from_logits, evaluate(&Auc::roc(), &y_true, &y_pred, None).unwrap());
}

#[test]
fn nothing_seen_is_zero() {
    let state = vec![Tensor::zeros(DType::F64, []); 2];
    assert_eq!(Accuracy::new().result(&state), 0.0);
    let state = vec![Tensor::zeros(DType::F64, [200]); 2];
    assert_eq!(Auc::roc().result(&state), 0.0);
    assert_eq!(Auc::precision_recall().result(&state), 0.0);
}

#[track_caller]
fn check_refused(metric: &dyn Metric, y_true: &[usize], y_pred: &[usize], message: &str) {
    let zeros = |shape: &[usize]| Tensor::zeros(DType::F32, shape);
    let error = evaluate(metric, &zeros(y_true), &zeros(y_pred), None).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn what_does_not_fit_is_refused() {
    check_refused(
        &BinaryAccuracy::new().named("acc"),
        &[8, 2],
        &[8, 3],
        "acc: the labels are f32[8,2], but the predictions f32[8,3]; they must have the same shape",
    );
    check_refused(
        &SparseCategoricalAccuracy::new(),
        &[7],
        &[8, 3],
        "sparse_categorical_accuracy: the labels are f32[7], but the predictions f32[8,3]; labels [8] are needed",
    );
    check_refused(
        &TopKCategoricalAccuracy::new(0),
        &[8, 3],
        &[8, 3],
        "top_k_categorical_accuracy: k is 0; it must be at least 1",
    );
    check_refused(&Auc::roc().thresholds(1), &[8, 1], &[8, 1], "auc: 1 thresholds; at least 2 are needed, for 0 and 1");
    check_refused(
        &Precision::new().thresholds(&[]),
        &[8, 1],
        &[8, 1],
        "precision: the thresholds are []; at least one number is needed",
    );
}
