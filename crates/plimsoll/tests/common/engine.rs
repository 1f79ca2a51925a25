//! A graph planned and run on the engine.

use plimsoll::{Graph, Tensor};
use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use plimsoll_plan::{Options, StateLayout, plan};
use std::collections::BTreeMap;

/// The outputs of a graph from its inputs and states, given by name: computed on two threads, with memory that was not
/// written read as NaN. What the graph does not ask for is left alone.
pub fn run(graph: &Graph, given: &[(&str, Tensor)]) -> Result<BTreeMap<String, Tensor>, String> {
    let fail = |e: &dyn std::error::Error| e.to_string();
    let state = StateLayout::new(graph.states().map(|(v, name)| (name, *graph.ty(v))));
    let options = Options { threads: 2, ..Options::default() };
    let plan = plan(graph, &state, &options).map_err(|e| fail(&e))?;
    let mut engine = Engine::open(&Budget::unlimited(), &state, vec![plan], 2).map_err(|e| fail(&e))?;
    engine.set_poison(true);
    for (name, tensor) in given {
        if graph.states().any(|(_, n)| n == *name) {
            engine.set_state(name, tensor).map_err(|e| fail(&e))?;
        } else if graph.inputs().any(|(_, n)| n == *name) {
            engine.set_input(0, name, tensor).map_err(|e| fail(&e))?;
        }
    }
    engine.run(0).map_err(|e| fail(&e))?;
    let output = |name: &str| Ok((name.to_owned(), engine.output(0, name).map_err(|e| fail(&e))?));
    graph.outputs().iter().map(|o| output(&o.name)).collect()
}
