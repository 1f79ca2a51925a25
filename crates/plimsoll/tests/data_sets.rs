//! Training, evaluation and prediction straight from data sets: the same bits as from arrays with the same samples in the same
//! order, whatever stands between.

use plimsoll::data::{AUTOTUNE, Arrays, Calls, Component, DataError, Dataset, Feed, Kind};
use plimsoll::layers::{Activation, Concatenate, Dense, Dropout};
use plimsoll::losses::{MeanAbsoluteError, MeanSquaredError};
use plimsoll::metrics::Mean;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Error, Tensor};

const ROWS: usize = 150;

fn tensors(rows: impl Iterator<Item = usize>) -> (Tensor, Tensor) {
    let rows: Vec<usize> = rows.collect();
    let x: Vec<f32> =
        rows.iter().flat_map(|row| (0..3).map(move |i| ((row * 7 + i * 13) % 31) as f32 / 31.0)).collect();
    let y: Vec<f32> = x.chunks(3).map(|x| x[0] - 2.0 * x[1] * x[2]).collect();
    (Tensor::from_slice([rows.len(), 3], &x).unwrap(), Tensor::from_slice([rows.len(), 1], &y).unwrap())
}

fn arrays() -> Arrays {
    let (x, y) = tensors(0..ROWS);
    Arrays::new(x, y).unwrap()
}

fn trainer() -> Trainer {
    let model = Model::sequential([3])
        .layer(Dense::new(16).activation(Activation::Tanh))
        .layer(Dropout::new(0.1))
        .layer(Dense::new(1));
    Trainer::new(model, MeanSquaredError, Adam::new(0.01)).unwrap().seed(5).metric(Mean::of(MeanAbsoluteError))
}

/// The weights after some training.
fn weights(data: &dyn Feed, fit: Fit<'_>) -> Vec<(String, Tensor)> {
    let mut trainer = trainer();
    trainer.fit(data, fit).unwrap();
    trainer.weights().unwrap()
}

#[test]
fn arrays_are_a_data_set_in_disguise() {
    let arrays = arrays();
    let expected = weights(&arrays, Fit::epochs(3).batch_size(32));
    let same = arrays.dataset().shuffle(None, 5).batch(32);
    assert_eq!(weights(&same, Fit::epochs(3)), expected);
    assert_ne!(weights(&arrays.dataset().shuffle(None, 6).batch(32), Fit::epochs(3)), expected);
    let in_order = weights(&arrays, Fit::epochs(2).batch_size(20).in_order());
    assert_eq!(weights(&arrays.dataset().batch(20), Fit::epochs(2)), in_order);
    assert_ne!(expected, in_order);
}

#[test]
fn threads_have_no_say() {
    let data = arrays().dataset().map_in_place("0/input", |x: &mut [f32]| x[0] += 1.0).shuffle(None, 1).batch(16);
    let expected = weights(&data, Fit::epochs(2));
    for calls in [AUTOTUNE, Calls::Fixed(1), Calls::Fixed(7)] {
        for threads in [1, 2, 3] {
            let mut trainer = trainer().threads(threads);
            trainer.fit(&data.prefetch(calls), Fit::epochs(2)).unwrap();
            assert_eq!(trainer.weights().unwrap(), expected, "{calls:?}, {threads} threads");
        }
    }
}

/// How many are left only the end tells, so the step for the last batch is made when it is there.
#[test]
fn the_last_batch_of_a_filter() {
    let (x, y) = tensors((0..ROWS).filter(|row| row % 3 != 0));
    let expected = weights(&Arrays::new(x, y).unwrap(), Fit::epochs(3).batch_size(32).in_order());
    let numbers = Dataset::zip(&[arrays().dataset(), Dataset::range(0, ROWS as i64, 1)]);
    let kept = numbers.filter(|row| Ok(row.get::<i64>("1/value")?[0] % 3 != 0));
    let kept = kept.rename(&[("0/0/input", "x"), ("0/1/output", "y")]);
    assert_eq!(kept.cardinality().unwrap().known(), None);
    for data in [kept.batch(32), kept.batch(32).prefetch(AUTOTUNE)] {
        assert_eq!(weights(&data, Fit::epochs(3)), expected);
    }
}

#[test]
fn epochs_of_so_many_steps() {
    let rows = arrays().dataset();
    // 150 rows in batches of 50: two epochs of six steps are four passes.
    let expected = weights(&rows.batch(50), Fit::epochs(4));
    assert_eq!(weights(&rows.batch(50).repeat(None), Fit::epochs(2).steps_per_epoch(6)), expected);
    assert_eq!(weights(&rows.batch(50), Fit::epochs(2).steps_per_epoch(6)), expected, "begun again");
    assert_eq!(weights(&rows.repeat(None).batch(50), Fit::epochs(3).steps_per_epoch(4)), expected);
    let history = trainer().fit(&rows.batch(50), Fit::epochs(2).steps_per_epoch(2)).unwrap();
    assert_eq!(history.get("loss").unwrap().len(), 2);
    // A data set whose every pass has its own order goes on from one to the next.
    let shuffled = rows.shuffle(None, 5).batch(50);
    assert_eq!(weights(&shuffled, Fit::epochs(2).steps_per_epoch(6)), weights(&shuffled, Fit::epochs(4)));
}

#[test]
fn evaluation_and_prediction() {
    let arrays = arrays();
    let data = arrays.dataset().batch(32);
    let mut trainer = trainer();
    let history = trainer.fit(&data, Fit::epochs(2).validation(&data)).unwrap();
    let logs = trainer.evaluate(&arrays, 32).unwrap();
    assert_eq!(history.last("val_loss"), logs.get("loss"));
    assert_eq!(trainer.evaluate(&data.prefetch(AUTOTUNE), None).unwrap(), logs);
    let expected = trainer.predict(&arrays, 32).unwrap();
    assert_eq!(expected[0].shape().dims(), [ROWS, 1]);
    assert_eq!(trainer.predict(&data, None).unwrap(), expected);
    let inputs = arrays.dataset().rename(&[("0/input", "anything")]).batch(32).prefetch(AUTOTUNE);
    assert_eq!(trainer.predict(&inputs, None).unwrap(), expected);
    // Of unknown length.
    let all = arrays.dataset().filter(|_| Ok(true)).batch(32);
    assert_eq!(trainer.predict(&all, None).unwrap(), expected);
}

#[test]
fn names_and_places() {
    let (x, y) = tensors(0..ROWS);
    let halves = |from: usize, n: usize| {
        let part: Vec<f32> = x.as_slice::<f32>().unwrap().chunks(3).flat_map(|x| x[from..from + n].to_vec()).collect();
        Tensor::from_slice([ROWS, n], &part).unwrap()
    };
    let (left, right) = (halves(0, 1), halves(1, 2));
    let weight = Tensor::from_slice([ROWS], &(0..ROWS).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let run = |data: &dyn Feed| {
        let mut m = Model::new();
        let (a, b) = (m.input("left", [1]), m.input("right", [2]));
        let both = m.apply(Concatenate::new(), &[a, b]);
        let (one, two) = (m.apply(Dense::new(1), &[both]), m.apply(Dense::new(1), &[both]));
        m.output("one", one);
        m.output("two", two);
        let mut trainer = Trainer::new(m, MeanSquaredError, Adam::new(0.01)).unwrap();
        trainer.fit(data, Fit::epochs(1)).unwrap();
        trainer.weights().unwrap()
    };
    let arrays = Arrays::empty().input("left", left.clone()).unwrap().input("right", right.clone()).unwrap();
    let arrays = arrays.labels("two", y.clone()).unwrap().labels("one", y.clone()).unwrap();
    let expected = run(&arrays.clone().dataset().batch(10));
    let map = [("two", y.clone()), ("name", y.clone()), ("right", right), ("one", y), ("left", left)];
    assert_eq!(run(&Dataset::from_arrays(map).batch(10)), expected, "by name, in any order, others left out");
    let weighted = arrays.sample_weights(weight).unwrap();
    assert_ne!(run(&weighted.dataset().batch(10)), expected);
    let renamed = weighted.dataset().rename(&[
        ("0/left", "left"),
        ("0/right", "right"),
        ("1/one", "one"),
        ("1/two", "two"),
        ("2", "sample_weight"),
    ]);
    assert_eq!(run(&renamed.batch(10)), run(&weighted.dataset().batch(10)));
}

#[test]
fn the_report_says_who_was_waited_for() {
    let slow = arrays().dataset().map_in_place("0/input", |_: &mut [f32]| {
        std::thread::sleep(std::time::Duration::from_micros(200));
    });
    let history = trainer().fit(&slow.batch(30), Fit::epochs(1)).unwrap();
    assert!(history.input.waited.as_millis() >= 30, "{}", history.input);
    assert!(history.input.slowest().unwrap().name.starts_with("map"), "{}", history.input);
    let stage = history.input.stages.iter().find(|s| s.name.starts_with("map")).unwrap();
    assert_eq!(stage.elements, ROWS as u64);
}

#[track_caller]
fn check_refused(data: &dyn Feed, fit: Fit<'_>, expected: &str) {
    let error = trainer().fit(data, fit).unwrap_err().to_string();
    assert!(error.contains(expected), "'{expected}' should stand in: {error}");
}

#[test]
fn what_cannot_be_fed() {
    let rows = arrays().dataset();
    check_refused(&rows, Fit::epochs(1), "no batches of a known size: end it with `batch`");
    check_refused(&rows.batch(8), Fit::epochs(1).batch_size(8), "a data set has batches of its own: leave it out");
    check_refused(&rows.batch(8).repeat(None), Fit::epochs(1), "never ends: say with `steps_per_epoch`");
    check_refused(&rows.take(0).batch(8), Fit::epochs(1), "is empty");
    check_refused(&rows.filter(|_| Ok(false)).batch(8), Fit::epochs(1), "is empty");
    check_refused(&rows.filter(|_| Ok(false)).batch(8), Fit::epochs(1).steps_per_epoch(3), "is empty");
    check_refused(&rows.rename(&[("0/input", "a"), ("1/output", "b")]).batch(8), Fit::epochs(1), "no field 'input'");
    let four = Dataset::zip(&[rows.clone(), rows.clone(), rows.clone(), rows.clone()]);
    check_refused(&four.batch(8), Fit::epochs(1), "these have 4 parts");
    let text = rows.map([Component::new("x", Kind::Bytes, &[]), Component::new("y", DType::F32, &[1])], |_, _| Ok(()));
    check_refused(&text.batch(8), Fit::epochs(1), "numbers, not strings");
    let ragged = [Component::ragged("x", DType::F32, &[None]), Component::new("y", DType::F32, &[1])];
    check_refused(&rows.map(ragged, |_, _| Ok(())).batch(8), Fit::epochs(1), "planned for samples of one size");
    let bad = rows.map([Component::new("x", DType::F32, &[3]), Component::new("y", DType::F32, &[1])], |row, out| {
        if row.index() == 40 {
            return Err(DataError::element("a bad sample"));
        }
        out.copy("x", row, "0/input")?;
        out.copy("y", row, "1/output")
    });
    for data in [bad.batch(8), bad.batch(8).prefetch(AUTOTUNE)] {
        check_refused(&data, Fit::epochs(1), "map, element 40: a bad sample");
    }
    let mut trainer = trainer();
    let history = trainer.fit(&bad.ignore_errors().batch(8), Fit::epochs(1)).unwrap();
    assert_eq!((trainer.steps_done(), history.input.errors_ignored), (19, 1));
    assert!(history.input.to_string().ends_with("1 bad elements were left out"), "{}", history.input);
    let endless = rows.batch(8).repeat(None);
    assert!(matches!(trainer.evaluate(&endless, None), Err(Error::Config { .. })));
    assert!(matches!(trainer.predict(&endless, None), Err(Error::Config { .. })));
}
