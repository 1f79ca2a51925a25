//! Gradients: a walk backwards over the graph that appends each op's own rule.

use crate::error::GraphError;
use crate::graph::{Graph, NodeId, Value};
use crate::op::Backward;

/// The gradients of the sum of `of` with respect to each of `wrt`; `None` where nothing depends.
///
/// Only what is asked for is computed. The new nodes belong to the layers of the nodes they come from. Because the result
/// is graph again, gradients of gradients work wherever the rules' ops have rules themselves.
///
/// # Errors
/// When an op on the way has no gradient.
pub fn gradients(graph: &mut Graph, of: Value, wrt: &[Value]) -> Result<Vec<Option<Value>>, GraphError> {
    let ty = *graph.ty(of);
    let one = graph.constant(1.0, ty.dtype)?;
    let seed = graph.broadcast(one, ty.shape)?;
    gradients_from(graph, &[(of, seed)], wrt)
}

/// As [`gradients`], starting from given gradients of several values.
///
/// # Errors
/// As [`gradients`].
pub fn gradients_from(
    graph: &mut Graph,
    seeds: &[(Value, Value)],
    wrt: &[Value],
) -> Result<Vec<Option<Value>>, GraphError> {
    let n_values = graph.values().len();
    let n_nodes = graph.nodes().len();
    let needed = depends_on(graph, wrt);
    let mut grads: Vec<Option<Value>> = vec![None; n_values];
    let layer = graph.layer().to_owned();
    for &(value, seed) in seeds {
        add_to(graph, &mut grads[value.0 as usize], seed)?;
    }
    for id in (0..n_nodes as u32).rev().map(NodeId) {
        let node = graph.node(id).clone();
        let of_outputs: Vec<Option<Value>> = node.outputs.iter().map(|v| grads[v.0 as usize]).collect();
        let wanted: Vec<bool> = node.inputs.iter().map(|v| needed[v.0 as usize]).collect();
        if of_outputs.iter().all(Option::is_none) || !wanted.contains(&true) {
            continue;
        }
        graph.set_layer(&node.layer);
        let result = node.op.gradient(&mut Backward {
            graph,
            inputs: &node.inputs,
            outputs: &node.outputs,
            grads: &of_outputs,
            wanted: &wanted,
        })?;
        debug_assert_eq!(result.len(), node.inputs.len(), "{} gives a gradient for each input", node.op.name());
        for ((&input, grad), wanted) in node.inputs.iter().zip(result).zip(wanted) {
            if let (Some(grad), true) = (grad, wanted) {
                debug_assert_eq!(graph.ty(grad), graph.ty(input), "gradient of {}", node.op.name());
                add_to(graph, &mut grads[input.0 as usize], grad)?;
            }
        }
    }
    graph.set_layer(&layer);
    Ok(wrt.iter().map(|v| grads[v.0 as usize]).collect())
}

fn add_to(graph: &mut Graph, sum: &mut Option<Value>, term: Value) -> Result<(), GraphError> {
    *sum = Some(match *sum {
        None => term,
        Some(sum) => graph.add(sum, term)?,
    });
    Ok(())
}

/// For each value, whether a floating-point path leads to it from one of `wrt`. What a state becomes is read from the state: no path leads
/// through the change.
fn depends_on(graph: &Graph, wrt: &[Value]) -> Vec<bool> {
    let mut depends = vec![false; graph.values().len()];
    for value in wrt {
        depends[value.0 as usize] = true;
    }
    for (_, node) in graph.nodes() {
        if node.inputs.iter().any(|v| depends[v.0 as usize]) {
            for (i, &output) in node.outputs.iter().enumerate() {
                let is_state = node.op.mutates().iter().any(|(_, changed)| *changed == i);
                depends[output.0 as usize] |= graph.dtype(output).is_float() && !is_state;
            }
        }
    }
    depends
}
