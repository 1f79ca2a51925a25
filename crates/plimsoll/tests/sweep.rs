//! The sweep: what a step costs under limits from the smallest to none.

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{DType, Tensor};

#[test]
fn a_larger_limit_is_never_slower() {
    let mut model = Model::sequential([64]);
    for _ in 0..8 {
        model = model.layer(Dense::new(256).activation(Activation::Tanh));
    }
    let model = model.layer(Dense::new(4));
    let data = Arrays::new(Tensor::zeros(DType::F32, [4096, 64]), Tensor::zeros(DType::F32, [4096, 4])).unwrap();
    let trainer = || {
        let trainer = Trainer::new(model.clone(), MeanSquaredError, Adam::new(1e-3)).unwrap();
        trainer.techniques(Techniques { spill: false, ..Techniques::ALL })
    };
    let points = trainer().sweep(&data, &Fit::epochs(1).batch_size(4096), 5).unwrap();
    for point in &points {
        println!("{}: {} ({:.1} ms)", point.limit, point.kept, 1e3 * point.kept.seconds);
    }
    assert_eq!(points.len(), 5);
    assert!(points.windows(2).all(|p| p[0].limit < p[1].limit && p[0].kept.seconds >= p[1].kept.seconds));
    assert!(points[0].limit.0 * 2 < points[4].limit.0, "there is something to choose");
    assert!(!points[0].kept.is_plain());
    // Every point is one that runs. This process has grown a little since.
    let mut trainer = trainer().memory_limit(points[1].limit + plimsoll::Bytes::mib(2));
    trainer.fit(&data, Fit::epochs(1).batch_size(4096)).unwrap();
    assert!(!trainer.kept().unwrap().is_plain());
    // Other terms, other plans, of the same model.
    let mut trainer = trainer.memory_limit("1GiB").techniques(Techniques::NONE);
    trainer.fit(&data, Fit::epochs(1).batch_size(4096)).unwrap();
    assert!(trainer.kept().unwrap().is_plain());
    let mut trainer = trainer.memory_limit("8MiB");
    assert!(matches!(trainer.fit(&data, Fit::epochs(1).batch_size(4096)), Err(plimsoll::Error::WouldNotFit(_))));
}
