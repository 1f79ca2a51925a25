//! Tracing: layers, loss, metrics and optimizer write themselves into one graph.
//!
//! A [`Trace`] is a [`Graph`] being built, plus what a step needs besides: which [`Variable`]s exist (weights, moments,
//! running statistics, metrics), whether this is a training step, and the key of the step's random numbers. The same model
//! is traced once per kind of step and batch size; variables are found again by name, so all steps share them.

use crate::error::Error;
use crate::init::Initializer;
use plimsoll_graph::{Graph, Value};
use plimsoll_tensor::{DType, Shape, TensorType};
use std::ops::{Deref, DerefMut};

/// What kind of step is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Forward, backward, update.
    Train,
    /// Forward and metrics.
    Evaluate,
    /// Forward alone.
    Predict,
}

/// What a variable is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Learned by gradient descent.
    Weight,
    /// Belongs to the model but is not learned by gradients: running statistics.
    Statistic,
    /// Belongs to the optimizer.
    Moment,
    /// Belongs to a metric; starts anew each epoch.
    Metric,
}

/// Something that is kept from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its full name: `layer/weight`.
    pub name: String,
    /// Type and shape.
    pub ty: TensorType,
    /// How it starts.
    pub init: Initializer,
    /// What it is for.
    pub role: Role,
}

/// The variables of a model, in the order they were first asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
    list: Vec<Variable>,
}

impl Variables {
    /// No variables.
    pub fn new() -> Variables {
        Variables::default()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Variable> {
        self.list.iter()
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.list.iter().find(|v| v.name == name)
    }
}

/// A step being traced. Dereferences to the [`Graph`], so that `trace.relu(x)?` works.
pub struct Trace<'a> {
    graph: Graph,
    variables: &'a mut Variables,
    /// The values of the variables in this graph, by name, in order of use: the newest version of each.
    used: Vec<(String, Value)>,
    mode: Mode,
    key: Option<Value>,
    scope: Vec<String>,
}

impl<'a> Trace<'a> {
    /// An empty step of a model with these variables.
    pub fn new(variables: &'a mut Variables, mode: Mode) -> Trace<'a> {
        Trace { graph: Graph::new(), variables, used: Vec::new(), mode, key: None, scope: Vec::new() }
    }

    /// What kind of step this is.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether this is a training step.
    pub fn training(&self) -> bool {
        self.mode == Mode::Train
    }

    /// Runs `body` inside a named part of the model; names of weights made there begin with it.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn scope<R>(&mut self, name: &str, body: impl FnOnce(&mut Trace<'a>) -> Result<R, Error>) -> Result<R, Error> {
        self.scope.push(name.to_owned());
        let path = self.scope.join("/");
        let outside = self.graph.set_layer(&path);
        let result = body(self);
        self.graph.set_layer(&outside);
        self.scope.pop();
        result
    }

    /// A learned weight of the layer being traced: f32, found again by name in later traces.
    ///
    /// # Errors
    /// When the name is taken by a weight of another shape.
    pub fn weight(&mut self, name: &str, shape: impl Into<Shape>, init: Initializer) -> Result<Value, Error> {
        self.variable(name, TensorType::new(DType::F32, shape), init, Role::Weight)
    }

    /// Something else that is kept from step to step, named inside the current scope.
    ///
    /// # Errors
    /// When the name is taken by a variable of another type or role.
    pub fn variable(&mut self, name: &str, ty: TensorType, init: Initializer, role: Role) -> Result<Value, Error> {
        let name = if self.scope.is_empty() { name.to_owned() } else { format!("{}/{name}", self.scope.join("/")) };
        if let Some((_, value)) = self.used.iter().find(|(n, _)| *n == name) {
            return Ok(*value);
        }
        match self.variables.get(&name) {
            None => self.variables.list.push(Variable { name: name.clone(), ty, init, role }),
            Some(known) if known.ty == ty && known.role == role => (),
            Some(known) => {
                let message = format!("is {} ({:?}), but {ty} ({role:?}) is asked for here", known.ty, known.role);
                return Err(Error::config(format!("variable '{name}'"), message));
            }
        }
        let value = self.graph.state(&name, ty);
        self.used.push((name, value));
        Ok(value)
    }

    /// Writes a new value over a variable, given by its current value. Later reads in this step see the new value.
    ///
    /// # Errors
    /// When the types differ.
    pub fn update(&mut self, variable: Value, value: Value) -> Result<Value, Error> {
        let new = self.graph.assign(variable, value)?;
        self.replaced(variable, new);
        Ok(new)
    }

    /// Says that an op changed a variable in place: `new` is the value after it.
    pub fn replaced(&mut self, variable: Value, new: Value) {
        for (_, value) in self.used.iter_mut().filter(|(_, v)| *v == variable) {
            *value = new;
        }
    }

    /// The learned weights used so far in this step, with their names and current values.
    pub fn weights(&self) -> Vec<(String, Value)> {
        let learned = |name: &str| self.variables.get(name).is_some_and(|v| v.role == Role::Weight);
        self.used.iter().filter(|(name, _)| learned(name)).cloned().collect()
    }

    /// The key of this step's random numbers: an input that the trainer sets to (seed, step).
    pub fn key(&mut self) -> Value {
        match self.key {
            Some(key) => key,
            None => {
                let key = self.graph.input("random key", TensorType::new(DType::I64, [2]));
                self.key = Some(key);
                key
            }
        }
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }
}

impl Deref for Trace<'_> {
    type Target = Graph;
    fn deref(&self) -> &Graph {
        &self.graph
    }
}

impl DerefMut for Trace<'_> {
    fn deref_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }
}
