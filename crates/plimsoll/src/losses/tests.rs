use super::*;
use crate::trace::Variables;
use plimsoll_graph::{Split, gradients, propagate};

fn f32s(shape: impl Into<plimsoll_tensor::Shape>, values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values).unwrap()
}

/// Every loss, with the type of its labels for predictions f32[4,3].
fn all() -> Vec<Box<dyn Loss>> {
    vec![
        Box::new(MeanSquaredError),
        Box::new(MeanAbsoluteError),
        Box::new(MeanAbsolutePercentageError),
        Box::new(MeanSquaredLogarithmicError),
        Box::new(Huber::default()),
        Box::new(LogCosh),
        Box::new(BinaryCrossEntropy::new()),
        Box::new(BinaryCrossEntropy::from_logits().label_smoothing(0.1)),
        Box::new(CategoricalCrossEntropy::new()),
        Box::new(CategoricalCrossEntropy::from_logits().label_smoothing(0.1)),
        Box::new(SparseCategoricalCrossEntropy::new()),
        Box::new(SparseCategoricalCrossEntropy::from_logits()),
        Box::new(KlDivergence),
        Box::new(Poisson),
        Box::new(Hinge),
        Box::new(SquaredHinge),
        Box::new(CategoricalHinge),
        Box::new(CosineSimilarity),
    ]
}

/// Traces a loss over predictions of this type and a weight per sample; gives the relations to the batch of the sum, of
/// the loss and of the predictions' gradient (this one after fusing, as the planner sees it: a gradient begins with the
/// same number for every sample, which fusing leaves a scalar).
fn splits(loss: &dyn Loss, prediction: TensorType) -> [Split; 3] {
    let mut variables = Variables::new();
    let mut t = Trace::new(&mut variables, Mode::Train);
    let y_pred = t.input("y_pred", prediction);
    let y_true = t.input("y_true", loss.label_type(&prediction));
    let weights = t.input("weights", TensorType::new(DType::F32, [prediction.dims()[0]]));
    let Fraction { sum, divisor } = fraction(loss, &mut t, y_true, y_pred, Some(weights)).unwrap();
    let value = divisor.map_or(Ok(sum), |d| t.div(sum, d)).unwrap();
    let gradient = gradients(&mut t, sum, &[y_pred]).unwrap()[0].expect("the loss depends on the predictions");
    t.output("gradient", gradient);
    let graph = t.finish();
    let relate = |graph: &plimsoll_graph::Graph| {
        let inputs: Vec<_> = graph.inputs().map(|(v, _)| (v, Split::Axis(0))).collect();
        propagate(graph, &inputs)
    };
    let fused = plimsoll_plan::fuse::fuse(&graph).unwrap();
    let (plain, after) = (relate(&graph), relate(&fused));
    [plain[sum.0 as usize], plain[value.0 as usize], after[fused.outputs()[0].value.0 as usize]]
}

#[test]
fn slices_of_the_batch_add_up() {
    for loss in all() {
        for shape in [&[4, 3][..], &[4, 5, 3]] {
            let found = splits(&*loss, TensorType::new(DType::F32, shape));
            assert_eq!(found, [Split::Partial, Split::Partial, Split::Axis(0)], "{}", loss.name());
        }
    }
    let found = splits(&MeanSquaredError, TensorType::new(DType::F32, [4]));
    assert_eq!(found, [Split::Partial, Split::Partial, Split::Axis(0)]);
}

#[test]
fn what_is_divided_by_the_data_adds_up_before_the_division() {
    let prediction = TensorType::new(DType::F32, [4, 5, 3]);
    let ignoring = SparseCategoricalCrossEntropy::from_logits().ignore_class(0);
    assert_eq!(splits(&ignoring, prediction), [Split::Partial, Split::Mixed, Split::Axis(0)]);
    let mean = MeanSquaredError.with_reduction(Reduction::MeanWithSampleWeight);
    assert_eq!(splits(&mean, prediction), [Split::Partial, Split::Mixed, Split::Axis(0)]);
}

#[test]
fn labels_may_lack_a_last_axis_of_one() {
    let y_pred = f32s([2, 1], &[1.0, 2.0]);
    for shape in [&[2][..], &[2, 1], &[2, 1, 1]] {
        let y_true = f32s(shape, &[0.0, 4.0]);
        assert_eq!(evaluate(&MeanSquaredError, &y_true, &y_pred, None).unwrap(), 2.5);
    }
    // And predictions may be plain numbers.
    assert_eq!(evaluate(&MeanSquaredError, &f32s([2], &[0.0, 4.0]), &f32s([2], &[1.0, 2.0]), None).unwrap(), 2.5);
}

#[test]
fn labels_of_other_types() {
    let logits = f32s([2, 2], &[0.0, 1.0, 2.0, 0.0]);
    let loss = SparseCategoricalCrossEntropy::from_logits();
    let expected = evaluate(&loss, &Tensor::from_slice([2], &[1i32, 0]).unwrap(), &logits, None).unwrap();
    for labels in [
        Tensor::from_slice([2], &[1i64, 0]).unwrap(),
        Tensor::from_slice([2, 1], &[1u8, 0]).unwrap(),
        f32s([2], &[1.0, 0.0]),
    ] {
        assert_eq!(evaluate(&loss, &labels, &logits, None).unwrap(), expected);
    }
    let yes = Tensor::from_slice([2, 1], &[true, false]).unwrap();
    let p = f32s([2, 1], &[0.5, 0.5]);
    let found = evaluate(&BinaryCrossEntropy::new(), &yes, &p, None).unwrap();
    assert!((found - std::f64::consts::LN_2).abs() < 1e-6);
}

#[test]
fn predictions_in_half_precision_become_f32() {
    let y_pred = Tensor::from_f64(DType::BF16, [2, 1], &[1.0, 2.0]).unwrap();
    let y_true = f32s([2, 1], &[0.0, 4.001]);
    let found = evaluate(&MeanSquaredError, &y_true, &y_pred, None).unwrap();
    assert!((found - (1.0 + 2.001f64.powi(2)) / 2.0).abs() < 1e-5, "{found}");
}

#[test]
fn extremes_have_finite_losses_and_gradients() {
    let inputs =
        [("y_pred", f32s([2, 2], &[500.0, -500.0, 0.0, 0.0])), ("y_true", f32s([2, 2], &[0.0, 1.0, 1.0, 0.0]))];
    for loss in all().into_iter().filter(|l| !l.name().starts_with("sparse")) {
        let results = Run::new()
            .step(Mode::Train, &inputs, |t| {
                let [y_pred, y_true] = ["y_pred", "y_true"].map(|n| t.input(n, TensorType::new(DType::F32, [2, 2])));
                let value = total(&*loss, t, y_true, y_pred, None)?;
                let gradient = gradients(t, value, &[y_pred])?[0].unwrap();
                t.output("loss", value);
                t.output("gradient", gradient);
                Ok(())
            })
            .unwrap();
        let finite = |name: &str| results[name].to_f64().iter().all(|v| v.is_finite());
        // A Poisson prediction is not negative, and a sum of zeros is no distribution.
        if !["poisson", "categorical_crossentropy"].contains(&loss.name()) {
            assert!(finite("loss") && finite("gradient"), "{}: {results:?}", loss.name());
        }
    }
}

#[test]
fn nothing_counts() {
    let loss = SparseCategoricalCrossEntropy::from_logits().ignore_class(-1);
    let labels = Tensor::from_slice([2], &[-1i32, -1]).unwrap();
    assert_eq!(evaluate(&loss, &labels, &f32s([2, 2], &[1.0, 2.0, 3.0, 4.0]), None).unwrap(), 0.0);
}

#[track_caller]
fn check_refused(loss: &dyn Loss, y_true: &[usize], y_pred: &[usize], weights: Option<&[usize]>, message: &str) {
    let zeros = |shape: &[usize]| Tensor::zeros(DType::F32, shape);
    let weights = weights.map(zeros);
    let error = evaluate(loss, &zeros(y_true), &zeros(y_pred), weights.as_ref()).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn what_does_not_fit_is_refused() {
    check_refused(
        &MeanSquaredError,
        &[8, 3],
        &[8, 4],
        None,
        "mean_squared_error: the labels are f32[8,3], but the predictions f32[8,4]; they must have the same shape",
    );
    check_refused(
        &CategoricalCrossEntropy::from_logits(),
        &[8],
        &[8, 4],
        None,
        "categorical_crossentropy: the labels are f32[8], but the predictions f32[8,4]; they must have the same shape; \
         for labels that are class numbers there are the sparse kinds",
    );
    check_refused(
        &SparseCategoricalCrossEntropy::from_logits(),
        &[8, 4],
        &[8, 4],
        None,
        "sparse_categorical_crossentropy: the labels are f32[8,4], but the predictions f32[8,4]; labels [8] are needed",
    );
    check_refused(
        &CategoricalHinge,
        &[8],
        &[8],
        None,
        "categorical_hinge: takes predictions [batch, .., classes], got [8]",
    );
    check_refused(
        &MeanSquaredError,
        &[8, 4],
        &[8, 4],
        Some(&[4]),
        "mean_squared_error: the sample weights are [4], but the values to weigh [8]; give one weight per sample",
    );
    check_refused(&Huber::new(0.0), &[8, 4], &[8, 4], None, "huber: delta is 0; it must be a number above 0");
    check_refused(
        &BinaryCrossEntropy::new().label_smoothing(1.5),
        &[8, 4],
        &[8, 4],
        None,
        "binary_crossentropy: label smoothing is 1.5; it must be between 0 and 1",
    );
}
