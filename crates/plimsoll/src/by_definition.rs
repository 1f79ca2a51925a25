//! Steps run by the plain definitions of their ops, over f64: slow and exact, for examples and tests.

use crate::error::Error;
use crate::init::Initializer;
use crate::trace::{Mode, Trace, Variable, Variables};
use plimsoll_graph::{Graph, Source, interpret};
use plimsoll_tensor::Tensor;
use std::collections::BTreeMap;

/// Variables and their values, carried from one step to the next by the reference interpreter.
///
/// This is how a layer, loss, metric or optimizer of one's own is looked at with a few numbers, without planning or
/// compiling anything:
///
/// ```
/// use plimsoll::by_definition::Run;
/// use plimsoll::init::Initializer;
/// use plimsoll::trace::{Mode, Role};
/// use plimsoll::{DType, TensorType};
/// # fn main() -> Result<(), plimsoll::Error> {
/// let mut run = Run::new();
/// for _ in 0..3 {
///     run.step(Mode::Train, &[], |t| {
///         let n = t.variable("n", TensorType::new(DType::F32, []), Initializer::Zeros, Role::Statistic)?;
///         let next = t.shift(n, 1.0)?;
///         t.update(n, next)?;
///         Ok(())
///     })?;
/// }
/// assert_eq!(run.get("n").unwrap().to_f64(), [3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Run {
    seed: u64,
    variables: Variables,
    values: BTreeMap<String, Tensor>,
}

impl Run {
    /// No variables yet; they begin as their initializers say, with seed 0.
    pub fn new() -> Run {
        Run::default()
    }

    /// The same with another seed.
    pub fn seeded(seed: u64) -> Run {
        Run { seed, ..Run::default() }
    }

    /// The variables that the steps so far have asked for.
    pub fn variables(&self) -> &Variables {
        &self.variables
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.values.get(name)
    }

    /// Sets a variable, before the first step or between steps.
    pub fn set(&mut self, name: &str, value: Tensor) {
        self.values.insert(name.into(), value);
    }

    /// Traces one step, runs it on these inputs, keeps the variables' new values and gives the values that were asked for
    /// with `t.output(name, value)`.
    ///
    /// # Errors
    /// Those of `body`, and when an input is missing or of another type.
    pub fn step(
        &mut self,
        mode: Mode,
        inputs: &[(&str, Tensor)],
        body: impl FnOnce(&mut Trace<'_>) -> Result<(), Error>,
    ) -> Result<BTreeMap<String, Tensor>, Error> {
        let mut t = Trace::new(&mut self.variables, mode);
        body(&mut t)?;
        let mut graph = t.finish();
        let kept = ask_for_states(&mut graph);
        for variable in self.variables.iter() {
            self.values.entry(variable.name.clone()).or_insert_with(|| initial(variable, self.seed));
        }
        let mut given: Vec<(&str, Tensor)> = inputs.to_vec();
        given.extend(kept.iter().map(|name| (name.as_str(), self.values[name].clone())));
        let mut results = interpret(&graph, &given)?;
        for name in kept {
            let value = results.remove(&after(&name)).expect("asked for above");
            self.values.insert(name, value);
        }
        Ok(results)
    }
}

/// The output name under which a state's value after the step is asked for.
fn after(name: &str) -> String {
    format!("{name} after the step")
}

/// Asks for the last value of each state, and gives the states' names.
fn ask_for_states(graph: &mut Graph) -> Vec<String> {
    let mut last = BTreeMap::new();
    for (value, _) in graph.values() {
        if let Some(state) = graph.state_of(value)
            && let Source::State { name } = &graph.value(state).source
        {
            last.insert(name.clone(), value);
        }
    }
    for (name, value) in &last {
        graph.output(&after(name), *value);
    }
    last.into_keys().collect()
}

fn initial(variable: &Variable, seed: u64) -> Tensor {
    let (ty, init) = (variable.ty, &variable.init);
    if let Initializer::Values(tensor) = init {
        return tensor.clone();
    }
    let mut elements = vec![0f32; ty.elements()];
    init.fill(seed, &variable.name, &ty.shape, &mut elements);
    let elements: Vec<f64> = elements.iter().map(|&v| v as f64).collect();
    Tensor::from_f64(ty.dtype, ty.shape, &elements).expect("as many elements as the shape has")
}
