//! The smallest limit that a refusal names is near what no way can do without: what is taken already, states that stay in memory, and
//! the operands of the largest op.

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::session::WouldNotFit;
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{DType, Error, Tensor};

/// The refusal of a deep network whose states and activations are each about 36 MiB.
fn refusal(techniques: Techniques) -> Box<WouldNotFit> {
    let (n, width) = (2048, 512);
    let mut model = Model::sequential([width]);
    for _ in 0..9 {
        model = model.layer(Dense::new(width).activation(Activation::Relu));
    }
    let trainer = Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap();
    let mut trainer = trainer.threads(2).techniques(techniques).memory_limit("1MiB");
    let data = Arrays::new(Tensor::zeros(DType::F32, [n, width]), Tensor::zeros(DType::F32, [n, width])).unwrap();
    match trainer.fit(&data, Fit::epochs(1).batch_size(n)) {
        Err(Error::WouldNotFit(refusal)) => refusal,
        other => panic!("1 MiB is too little: {:?}", other.map(|_| ())),
    }
}

#[test]
fn the_smallest_limit_is_within_a_tenth_of_what_cannot_be_avoided() {
    let found = refusal(Techniques::ALL);
    let part = found.smallest.0 as f64 / found.unavoidable.0 as f64;
    println!("{found}\n{} of {}: {part:.3}", found.smallest, found.unavoidable);
    assert!((1.0..1.1).contains(&part), "{part}");
    // States that may not go to a file cannot be avoided.
    let in_memory = refusal(Techniques { spill: false, ..Techniques::ALL });
    assert!(in_memory.unavoidable > in_memory.states + in_memory.fixed.total() + in_memory.floor);
    assert!(in_memory.smallest >= in_memory.unavoidable && in_memory.unavoidable > found.unavoidable);
}
