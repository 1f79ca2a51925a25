//! Split propagation: how every value relates to the batch axis.
//!
//! One analysis serves gradient accumulation (slices one after another), data parallelism (slices side by side) and the
//! explanation why something cannot be split. Each op states its rule beside its gradient; here the rules are only
//! applied in order.

use crate::graph::{Graph, Source, Value};
use crate::op::Types;
use plimsoll_tensor::TensorType;

/// How a value relates to slices of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// The same for every slice.
    Whole,
    /// Each slice owns its part along this axis.
    Axis(usize),
    /// The slices' values add up to the whole batch's value.
    Partial,
    /// Needs the whole batch at once.
    Mixed,
}

/// The relation of every value, indexed by value, when the inputs relate to the batch as `inputs` says (others: whole).
pub fn propagate(graph: &Graph, inputs: &[(Value, Split)]) -> Vec<Split> {
    let mut splits = vec![Split::Whole; graph.values().len()];
    for (value, info) in graph.values() {
        if !matches!(info.source, Source::Node { .. })
            && let Some((_, split)) = inputs.iter().find(|(v, _)| *v == value)
        {
            splits[value.0 as usize] = *split;
        }
    }
    for (_, node) in graph.nodes() {
        let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
        let (in_types, out_types) = (of(&node.inputs), of(&node.outputs));
        let given: Vec<Split> = node.inputs.iter().map(|v| splits[v.0 as usize]).collect();
        let types = Types { inputs: &in_types, outputs: &out_types };
        let result = match given.contains(&Split::Mixed) {
            true => vec![Split::Mixed; node.outputs.len()],
            false => node.op.split(&given, &types),
        };
        for (output, split) in node.outputs.iter().zip(result) {
            splits[output.0 as usize] = split;
        }
    }
    splits
}
