//! Models: layers put together, one after another or as a graph.

use crate::error::Error;
use crate::layers::Layer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Shape, TensorType};
use std::sync::Arc;

/// An input of a model: its name and its type without the batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes of one sample.
    pub shape: Shape,
}

/// A layer applied to earlier results.
#[derive(Clone)]
struct Call {
    name: String,
    layer: Arc<dyn Layer>,
    inputs: Vec<Place>,
}

/// A result inside a model that is being put together: an input, or what a layer gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

/// Layers put together, with named inputs and outputs.
///
/// ```
/// use plimsoll::layers::{Activation, Dense};
/// use plimsoll::model::Model;
/// // A chain:
/// let chain = Model::sequential([1000])
///     .layer(Dense::new(128).activation(Activation::Relu))
///     .layer(Dense::new(1));
/// assert_eq!(chain.outputs().len(), 1);
/// // Anything else:
/// let mut m = Model::new();
/// let x = m.input("x", [16]);
/// let h = m.apply(Dense::new(16), &[x]);
/// let y = m.apply(Dense::new(4), &[h]);
/// m.output("y", y);
/// ```
#[derive(Clone, Default)]
pub struct Model {
    inputs: Vec<Input>,
    /// Places below `inputs.len()` are inputs; the others are calls, in order.
    places: Vec<Option<usize>>,
    calls: Vec<Call>,
    outputs: Vec<(String, Place)>,
}

impl Model {
    /// An empty model.
    pub fn new() -> Model {
        Model::default()
    }

    /// A chain of layers over one f32 input with this shape of a sample.
    pub fn sequential(shape: impl Into<Shape>) -> Model {
        let mut model = Model::new();
        let x = model.input("input", shape);
        model.output("output", x);
        model
    }

    /// A chain over an input of another type, such as token numbers.
    pub fn sequential_of(dtype: DType, shape: impl Into<Shape>) -> Model {
        let mut model = Model::new();
        let x = model.input_of("input", dtype, shape);
        model.output("output", x);
        model
    }

    /// The chain with one more layer at its end: applies it to the last output.
    ///
    /// # Panics
    /// When the model has no output yet.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer + 'static) -> Model {
        let (_, last) = *self.outputs.last().as_ref().expect("a chain has an input");
        let next = self.apply(layer, &[*last]);
        self.outputs.last_mut().expect("a chain has an output").1 = next;
        self
    }

    /// An f32 input with this shape of a sample.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>) -> Place {
        self.input_of(name, DType::F32, shape)
    }

    /// An input of any type.
    pub fn input_of(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Place {
        self.inputs.push(Input { name: name.into(), dtype, shape: shape.into() });
        self.places.push(None);
        Place(self.places.len() - 1)
    }

    /// Applies a layer.
    ///
    /// # Panics
    /// When an input is not a place of this model.
    pub fn apply(&mut self, layer: impl Layer + 'static, inputs: &[Place]) -> Place {
        self.apply_shared(Arc::new(layer), inputs)
    }

    /// Applies a layer that may be applied more than once. With a name of its own (see [`Layer::name`]) it then shares its
    /// weights; without one each call has weights of its own.
    ///
    /// # Panics
    /// When an input is not a place of this model.
    pub fn apply_shared(&mut self, layer: Arc<dyn Layer>, inputs: &[Place]) -> Place {
        assert!(inputs.iter().all(|p| p.0 < self.places.len()), "inputs are places of this model");
        let name = match layer.name() {
            Some(name) => name.to_owned(),
            None => {
                let kind = layer.kind();
                let n = self.calls.iter().filter(|c| c.layer.name().is_none() && c.layer.kind() == kind).count();
                if n == 0 { kind.to_owned() } else { format!("{kind}_{n}") }
            }
        };
        self.places.push(Some(self.calls.len()));
        self.calls.push(Call { name, layer, inputs: inputs.to_vec() });
        Place(self.places.len() - 1)
    }

    /// Names a result of the model.
    pub fn output(&mut self, name: &str, place: Place) {
        self.outputs.push((name.into(), place));
    }

    /// The inputs.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The names of the outputs.
    pub fn outputs(&self) -> Vec<&str> {
        self.outputs.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Traces the model on a batch of this many samples: gives the values of the inputs and of the outputs.
    ///
    /// # Errors
    /// When a layer does not accept its inputs.
    pub fn trace(&self, t: &mut Trace<'_>, batch: usize) -> Result<(Vec<Value>, Vec<Value>), Error> {
        let mut given = Vec::new();
        for input in &self.inputs {
            given.push(t.input(&input.name, TensorType::new(input.dtype, input.shape.insert(0, batch))));
        }
        let outputs = self.call_on(t, &given)?;
        Ok((given, outputs))
    }

    /// Traces the model on given values.
    ///
    /// # Errors
    /// When a layer does not accept its inputs.
    pub fn call_on(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        if inputs.len() != self.inputs.len() {
            return Err(Error::config("model", format!("takes {} inputs, got {}", self.inputs.len(), inputs.len())));
        }
        let mut values: Vec<Value> = Vec::new();
        let mut next_input = inputs.iter();
        for place in &self.places {
            let value = match place {
                None => *next_input.next().expect("counted above"),
                Some(call) => {
                    let call = &self.calls[*call];
                    let inputs: Vec<Value> = call.inputs.iter().map(|p| values[p.0]).collect();
                    t.scope(&call.name, |t| call.layer.call(t, &inputs))?
                }
            };
            values.push(value);
        }
        Ok(self.outputs.iter().map(|(_, p)| values[p.0]).collect())
    }
}

/// A model with one output is a layer too.
impl Layer for Model {
    fn kind(&self) -> &'static str {
        "model"
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        match self.call_on(t, inputs)?[..] {
            [y] => Ok(y),
            ref many => Err(Error::config("model", format!("used as a layer it has one output, not {}", many.len()))),
        }
    }
}
