//! Two ways to run a traced step: by the plain definitions of its ops over f64, or planned and run by its kernels.
//! Each test file uses a part of what is here.
#![allow(dead_code)]

use plimsoll::by_definition::Run;
use plimsoll::trace::{Mode, Trace, Variables};
use plimsoll::{Error, Tensor};
use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use plimsoll_plan::{Options, StateLayout, plan};
use std::collections::BTreeMap;

/// A way to run steps, with the values of the variables.
pub enum Way {
    ByDefinition(Run),
    Planned { variables: Variables, values: BTreeMap<String, Tensor> },
}

impl Way {
    /// Both ways, without variables.
    pub fn both() -> [Way; 2] {
        [Way::ByDefinition(Run::new()), Way::Planned { variables: Variables::new(), values: BTreeMap::new() }]
    }

    /// What went wrong this way.
    pub fn said(&self, what: impl std::fmt::Display) -> String {
        match self {
            Way::ByDefinition(_) => format!("by definition: {what}"),
            Way::Planned { .. } => format!("planned: {what}"),
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        match self {
            Way::ByDefinition(run) => run.get(name),
            Way::Planned { values, .. } => values.get(name),
        }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: Tensor) {
        match self {
            Way::ByDefinition(run) => run.set(name, value),
            Way::Planned { values, .. } => drop(values.insert(name.into(), value)),
        }
    }

    /// Traces one step, runs it and gives its outputs.
    pub fn step(
        &mut self,
        mode: Mode,
        inputs: &[(&str, Tensor)],
        body: impl FnOnce(&mut Trace<'_>) -> Result<(), Error>,
    ) -> Result<BTreeMap<String, Tensor>, String> {
        match self {
            Way::ByDefinition(run) => run.step(mode, inputs, body).map_err(|e| e.to_string()),
            Way::Planned { variables, values } => run_planned(variables, values, mode, inputs, body),
        }
    }
}

fn run_planned(
    variables: &mut Variables,
    values: &mut BTreeMap<String, Tensor>,
    mode: Mode,
    inputs: &[(&str, Tensor)],
    body: impl FnOnce(&mut Trace<'_>) -> Result<(), Error>,
) -> Result<BTreeMap<String, Tensor>, String> {
    let mut t = Trace::new(variables, mode);
    body(&mut t).map_err(|e| e.to_string())?;
    let graph = t.finish();
    let layout = StateLayout::new(variables.iter().map(|v| (v.name.as_str(), v.ty)));
    let plan = plan(&graph, &layout, &Options { threads: 2, ..Options::default() }).map_err(|e| e.to_string())?;
    plimsoll_plan::check(&plan.graph, &plan).map_err(|e| e.to_string())?;
    let mut engine = Engine::open(&Budget::unlimited(), &layout, vec![plan], 2).map_err(|e| e.to_string())?;
    engine.set_poison(true);
    for v in variables.iter() {
        let mut start = vec![0.0f32; v.ty.elements()];
        v.init.fill(0, &v.name, &v.ty.shape, &mut start);
        let start: Vec<f64> = start.into_iter().map(f64::from).collect();
        let start = Tensor::from_f64(v.ty.dtype, v.ty.shape, &start).expect("as many values as elements");
        let value = values.get(&v.name).unwrap_or(&start);
        engine.set_state(&v.name, value).map_err(|e| e.to_string())?;
    }
    for (name, tensor) in inputs {
        // An input that nothing reads is not there.
        let _ = engine.set_input(0, name, tensor);
    }
    engine.run(0).map_err(|e| e.to_string())?;
    for v in variables.iter() {
        values.insert(v.name.clone(), engine.state(&v.name).map_err(|e| e.to_string())?);
    }
    let names = graph.outputs().iter().map(|o| o.name.clone());
    names.map(|name| Ok((name.clone(), engine.output(0, &name).map_err(|e| e.to_string())?))).collect()
}
