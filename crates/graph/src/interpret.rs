//! The reference interpreter: every op by its plain definition, in the order of the graph, over f64.

use crate::error::GraphError;
use crate::graph::{Graph, Source};
use crate::op::Reference;
use plimsoll_tensor::{Tensor, TensorType};
use std::collections::BTreeMap;

/// Evaluates the outputs of a graph from its inputs and states, given by name.
///
/// # Errors
/// When a value is missing or of another type, or an op fails.
pub fn interpret(graph: &Graph, given: &[(&str, Tensor)]) -> Result<BTreeMap<String, Tensor>, GraphError> {
    let mut values: Vec<Option<Reference>> = vec![None; graph.values().len()];
    for (value, info) in graph.values() {
        let (Source::Input { name } | Source::State { name }) = &info.source else { continue };
        let fail = |message: String| GraphError::Input { name: name.clone(), message };
        let (_, tensor) = given.iter().find(|(n, _)| n == name).ok_or_else(|| fail("not given".into()))?;
        if *tensor.ty() != info.ty {
            return Err(fail(format!("is {}, but {} was given", info.ty, tensor.ty())));
        }
        values[value.0 as usize] = Some(Reference::from_tensor(tensor));
    }
    for (_, node) in graph.nodes() {
        let types: Vec<TensorType> = node.outputs.iter().map(|&v| *graph.ty(v)).collect();
        let inputs: Vec<&Reference> =
            node.inputs.iter().map(|v| values[v.0 as usize].as_ref().expect("computed before")).collect();
        let results = node.op.reference(&inputs, &types)?;
        for (output, result) in node.outputs.iter().zip(results) {
            values[output.0 as usize] = Some(result);
        }
    }
    let outputs = graph.outputs().iter();
    Ok(outputs.map(|o| (o.name.clone(), values[o.value.0 as usize].as_ref().expect("computed").to_tensor())).collect())
}
