//! Bad use gives an error that names what disagrees, and never a panic.

use plimsoll::callbacks::{EarlyStopping, EveryEpoch, SaveWeights};
use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Conv2D, Dense, Embedding, Flatten};
use plimsoll::losses::{MeanSquaredError, SparseCategoricalCrossEntropy};
use plimsoll::model::Model;
use plimsoll::optimizers::{Adam, Sgd};
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Tensor};
use std::ops::ControlFlow;

fn numbers(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| (i * 7919 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(shape, &data).unwrap()
}

fn two_layers() -> Model {
    Model::sequential([4]).layer(Dense::new(8).activation(Activation::Relu)).layer(Dense::new(2))
}

fn trainer() -> Trainer {
    Trainer::new(two_layers(), MeanSquaredError, Sgd::new(0.01)).unwrap()
}

#[track_caller]
fn check_fails(mut trainer: Trainer, x: Tensor, y: Tensor, fit: Fit<'_>, message: &str) {
    let error = trainer.fit(&Arrays::new(x, y).unwrap(), fit).unwrap_err().to_string();
    assert!(error.contains(message), "the message is: {error}");
}

#[test]
fn shapes_that_disagree() {
    let fit = || Fit::epochs(1);
    check_fails(
        trainer(),
        numbers(&[8, 5]),
        numbers(&[8, 2]),
        fit(),
        "input 'input': takes samples of shape [4], but the data's have [5]",
    );
    check_fails(
        trainer(),
        numbers(&[8, 4]),
        numbers(&[8, 3]),
        fit(),
        "labels of output 'output': takes samples of shape [2], but the data's have [3]",
    );
    let model = Model::sequential([4]).layer(Conv2D::new(3, 3));
    let bad = Trainer::new(model, MeanSquaredError, Sgd::new(0.01)).unwrap();
    check_fails(bad, numbers(&[8, 4]), numbers(&[8, 2]), fit(), "conv2d");
}

#[test]
fn wrong_types() {
    let model =
        Model::sequential_of(DType::I32, [3]).layer(Embedding::new(10, 4)).layer(Flatten::new()).layer(Dense::new(2));
    let bad = Trainer::new(model, MeanSquaredError, Sgd::new(0.01)).unwrap();
    check_fails(
        bad,
        numbers(&[8, 3]),
        numbers(&[8, 2]),
        Fit::epochs(1),
        "input 'input': takes i32, but the data has f32",
    );
}

#[test]
fn values_out_of_range() {
    let model =
        Model::sequential_of(DType::I32, [3]).layer(Embedding::new(10, 4)).layer(Flatten::new()).layer(Dense::new(2));
    let bad = Trainer::new(model, MeanSquaredError, Sgd::new(0.01)).unwrap();
    let tokens = Tensor::from_slice([1, 3], &[1i32, 12, 3]).unwrap();
    check_fails(bad, tokens, numbers(&[1, 2]), Fit::epochs(1), "12");
    let model = Model::sequential([4]).layer(Dense::new(3));
    let bad = Trainer::new(model, SparseCategoricalCrossEntropy::from_logits(), Sgd::new(0.01)).unwrap();
    let labels = Tensor::from_slice([2], &[0i32, 3]).unwrap();
    check_fails(bad, numbers(&[2, 4]), labels, Fit::epochs(1), "label 3 of row 1 is none of the 3 classes");
}

#[test]
fn a_loss_that_is_no_number() {
    let mut x = numbers(&[8, 4]);
    x.as_mut_slice::<f32>().unwrap()[5] = f32::NAN;
    check_fails(
        trainer(),
        x,
        numbers(&[8, 2]),
        Fit::epochs(1).batch_size(4).in_order(),
        "the data that matmul of layer 'dense' reads is the first",
    );
    let big = Trainer::new(two_layers(), MeanSquaredError, Sgd::new(1e30)).unwrap();
    check_fails(big, numbers(&[8, 4]), numbers(&[8, 2]), Fit::epochs(9), "a smaller learning rate");
}

#[test]
fn nothing_to_do() {
    check_fails(
        trainer(),
        Tensor::zeros(DType::F32, [0, 4]),
        Tensor::zeros(DType::F32, [0, 2]),
        Fit::epochs(1),
        "data: is empty",
    );
    check_fails(trainer(), numbers(&[8, 4]), numbers(&[8, 2]), Fit::epochs(1).batch_size(0), "batch size: is 0");
    let error = Trainer::new(Model::new(), MeanSquaredError, Sgd::new(0.1)).err().unwrap().to_string();
    assert!(error.contains("has no output"), "{error}");
    let model = Model::sequential([2]).layer(Flatten::new());
    let idle = Trainer::new(model, MeanSquaredError, Sgd::new(0.1)).unwrap();
    check_fails(idle, numbers(&[8, 2]), numbers(&[8, 2]), Fit::epochs(1), "nothing to train");
    check_fails(
        Trainer::new(two_layers(), MeanSquaredError, Adam::new(-1.0)).unwrap(),
        numbers(&[8, 4]),
        numbers(&[8, 2]),
        Fit::epochs(1),
        "-1",
    );
}

#[test]
fn a_batch_of_one_and_more_rows_than_data() {
    for batch_size in [1, 3, 8, 100] {
        let mut trainer = trainer();
        let data = Arrays::new(numbers(&[8, 4]), numbers(&[8, 2])).unwrap();
        let history = trainer.fit(&data, Fit::epochs(2).batch_size(batch_size)).unwrap();
        assert_eq!(history.get("loss").unwrap().len(), 2);
        assert_eq!(trainer.steps_done() as usize, 2 * 8usize.div_ceil(batch_size));
        assert_eq!(trainer.predict(&data, batch_size).unwrap()[0].shape().dims(), &[8, 2]);
    }
}

#[test]
fn figures_that_do_not_exist() {
    let fit = Fit::epochs(2).callback(EarlyStopping::new("val_loss"));
    check_fails(trainer(), numbers(&[8, 4]), numbers(&[8, 2]), fit, "there is no figure 'val_loss'; there are loss");
}

#[test]
fn files_that_do_not_fit() {
    let folder = std::env::temp_dir().join(format!("plimsoll-bad-use-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("w.safetensors");
    let mut saved = trainer();
    saved.save_weights(&path).unwrap();
    let other = Model::sequential([4]).layer(Dense::new(9).activation(Activation::Relu)).layer(Dense::new(2));
    let mut other = Trainer::new(other, MeanSquaredError, Sgd::new(0.01)).unwrap();
    let error = other.load_weights(&path).unwrap_err().to_string();
    assert!(error.contains("w.safetensors: 'dense/kernel' is f32[4,8], but the model's is f32[4,9]"), "{error}");
    let shorter = Model::sequential([4]).layer(Dense::new(8).activation(Activation::Relu));
    let mut shorter = Trainer::new(shorter, MeanSquaredError, Sgd::new(0.01)).unwrap();
    let error = shorter.load_weights(&path).unwrap_err().to_string();
    assert!(error.contains("has 'dense_1/"), "{error}");
    let fit = Fit::epochs(1).callback(SaveWeights::every_epoch("/nonexistent-folder/w.safetensors"));
    check_fails(trainer(), numbers(&[8, 4]), numbers(&[8, 2]), fit, "/nonexistent-folder/w.safetensors");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn weights_survive_a_round_trip_and_callbacks_can_stop() {
    let folder = std::env::temp_dir().join(format!("plimsoll-round-trip-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("w.safetensors");
    let data = Arrays::new(numbers(&[8, 4]), numbers(&[8, 2])).unwrap();
    let mut first = trainer();
    let stop = EveryEpoch(|epoch, _: &_| if epoch == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
    let history = first.fit(&data, Fit::epochs(9).callback(stop)).unwrap();
    assert_eq!(history.get("loss").unwrap().len(), 3);
    first.save_weights(&path).unwrap();
    let mut second = trainer().seed(7);
    second.load_weights(&path).unwrap();
    assert_eq!(first.predict(&data, 3).unwrap(), second.predict(&data, 8).unwrap());
    assert_eq!(first.evaluate(&data, 8).unwrap(), second.evaluate(&data, 8).unwrap());
    std::fs::remove_dir_all(folder).unwrap();
}
