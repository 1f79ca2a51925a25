//! Ten training steps of small models, one per kind of layer, follow Keras: every loss, and the weights afterwards.

#[path = "common/build_layer.rs"]
mod build_layer;
#[path = "common/build_loss.rs"]
mod build_loss;
#[path = "common/build_optimizer.rs"]
mod build_optimizer;
mod common;

use common::{Case, Config, cases};
use plimsoll::callbacks::{Callback, Training};
use plimsoll::data::Arrays;
use plimsoll::layers::Layer;
use plimsoll::model::Model;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{Error, Tensor, Trace, Value};
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

#[test]
fn losses_and_weights() {
    let cases = cases("training");
    assert!(cases.len() >= 19, "the file has {} cases", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(|c| check(c).err().map(|e| format!("{}: {e}", c.name))).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// A layer under the name that the file has for it.
struct Named {
    name: String,
    layer: Box<dyn Layer>,
}

impl Layer for Named {
    fn kind(&self) -> &'static str {
        self.layer.kind()
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        self.layer.call(t, inputs)
    }
}

/// Keeps the loss of every step.
struct Losses(Rc<RefCell<Vec<f64>>>);

impl Callback for Losses {
    fn on_step_end(&mut self, _: &mut dyn Training, _: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        self.0.borrow_mut().push(loss);
        Ok(ControlFlow::Continue(()))
    }
}

fn check(case: &Case) -> Result<(), String> {
    let one = train(case, 1)?;
    let two = train(case, 2)?;
    if one != two {
        return Err("the result depends on the number of threads".into());
    }
    let (losses, weights) = one;
    let found = Tensor::from_f64(plimsoll::DType::F64, [losses.len()], &losses).unwrap();
    case.expected("losses").compare(&found, 1e-4).map_err(|e| format!("losses: {e}"))?;
    for (name, tensor) in &weights {
        case.expected(&format!("after/{name}")).compare(tensor, 2e-3).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(())
}

type Trained = (Vec<f64>, Vec<(String, Tensor)>);

fn train(case: &Case, threads: usize) -> Result<Trained, String> {
    let fail = |e: Error| e.to_string();
    let (x, y) = (case.input("x").clone(), case.input("y").clone());
    let mut model = Model::sequential_of(x.dtype(), x.shape().remove(0));
    for (i, layer) in case.config.get("layers").and_then(|l| l.as_array()).expect("layers").iter().enumerate() {
        let layer = build_layer::layer(&Config(layer.clone())).map_err(fail)?;
        model = model.layer(Named { name: i.to_string(), layer });
    }
    let loss = build_loss::loss(&case.config.inner("loss"));
    let settings = case.config.inner("optimizer");
    let optimizer = build_optimizer::optimizer(&settings);
    let trainer = Trainer::shared(model, Arc::from(loss), Arc::from(optimizer)).map_err(fail)?;
    let mut trainer = trainer.updates(build_optimizer::options(&settings)).threads(threads);
    let weights: Vec<(String, Tensor)> = case.weights.iter().map(|w| (w.name.clone(), w.tensor.clone())).collect();
    trainer.set_weights(&weights).map_err(fail)?;
    let rows = x.shape()[0];
    let data = Arrays::new(x, y).map_err(fail)?;
    let losses = Rc::new(RefCell::new(Vec::new()));
    let fit = Fit::epochs(10).batch_size(rows).in_order().callback(Losses(losses.clone()));
    trainer.fit(&data, fit).map_err(fail)?;
    let losses = losses.take();
    Ok((losses, trainer.weights().map_err(fail)?))
}
