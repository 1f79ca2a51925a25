//! Ctrl-C ends training after the step that runs: the history says so, the model stays usable, callbacks are told.

use plimsoll::callbacks::{Callback, EarlyStopping, Training};
use plimsoll::data::Arrays;
use plimsoll::layers::Dense;
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Sgd;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Error, Tensor};
use std::ops::ControlFlow;

/// Presses Ctrl-C during a step.
struct Press {
    at: usize,
    ended: bool,
}

impl Callback for &mut Press {
    fn on_step_end(&mut self, _: &mut dyn Training, step: usize, _: f64) -> Result<ControlFlow<()>, Error> {
        if step == self.at {
            // SAFETY: sends this process the signal that the terminal would send.
            unsafe { libc::raise(libc::SIGINT) };
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, _: &mut dyn Training) -> Result<(), Error> {
        self.ended = true;
        Ok(())
    }
}

#[test]
fn ctrl_c_ends_training_cleanly() {
    let model = Model::sequential([3]).layer(Dense::new(1));
    let mut trainer = Trainer::new(model, MeanSquaredError, Sgd::new(0.01)).unwrap();
    let data = Arrays::new(Tensor::zeros(DType::F32, [40, 3]), Tensor::zeros(DType::F32, [40, 1])).unwrap();
    let mut press = Press { at: 4, ended: false };
    // Without an end of the epoch there is no `val_loss` to look for.
    let fit = Fit::epochs(100).batch_size(4).validation(&data).callback(EarlyStopping::new("val_loss").patience(99));
    let history = trainer.fit(&data, fit.callback(&mut press)).unwrap();
    assert!(history.interrupted && press.ended);
    assert_eq!(trainer.steps_done(), 5);
    assert_eq!(history.get("loss").unwrap().len(), 1, "the figures of the epoch that was cut short");
    // And again from where it stopped.
    let history = trainer.fit(&data, Fit::epochs(2).batch_size(4)).unwrap();
    assert!(!history.interrupted);
    assert_eq!(trainer.steps_done(), 25);
}
