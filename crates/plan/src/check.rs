//! The checker: an independent proof that a plan is safe. It shares the nouns with the planner and nothing else.
//!
//! It follows the plan as the executor will, and keeps for every value where its bytes are and whether they still hold it.
//! Writing somewhere destroys whatever else was there. A plan passes when every read finds its value intact, every write
//! stays inside the arena and off the op's other operands (unless the op allows that), every node runs exactly once, and
//! outputs and states hold their final values at the end. The same for the spill file: a transfer that was begun ends once, a
//! value is intact until it is written and used only after it is read, and a slot that is read holds what was written there
//! for it. Quadratic, and plain on purpose.

mod file;
#[cfg(test)]
mod tests;

use crate::{Place, Plan};
use file::FileState;
use plimsoll_graph::{Graph, Source, Types, Value};
use plimsoll_tensor::TensorType;
use std::ops::Range;

/// What is wrong with a plan. A violation is a bug of the planner, never of the user.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the plan is unsafe: {0}")]
pub struct Violation(pub String);

/// Bytes of one of the two memories.
#[derive(Clone, Debug, PartialEq)]
struct Region {
    is_state: bool,
    bytes: Range<u64>,
}

impl Region {
    fn overlaps(&self, other: &Region) -> bool {
        // Tokens have no bytes: they overlap nothing.
        let (first, last) = (self.bytes.start.max(other.bytes.start), self.bytes.end.min(other.bytes.end));
        self.is_state == other.is_state && first < last
    }
}

/// Proves a plan safe, or says what is wrong with it.
///
/// # Errors
/// With the first violation found.
pub fn check(graph: &Graph, plan: &Plan) -> Result<(), Violation> {
    let fail = |message: String| Err(Violation(message));
    let region = |value: Value| -> Result<Region, Violation> {
        let bytes = graph.ty(value).bytes() as u64;
        let (is_state, offset, room) = match plan.places[value.0 as usize] {
            Some(Place::State(offset)) => (true, offset, plan.state.bytes()),
            Some(Place::Arena(offset)) => (false, offset, plan.arena_bytes),
            None => return Err(Violation(format!("%{} has no place", value.0))),
        };
        if offset % 64 != 0 || offset.checked_add(bytes).is_none_or(|end| end > room) {
            return Err(Violation(format!("%{} at {offset} with {bytes} bytes is misplaced in {room}", value.0)));
        }
        Ok(Region { is_state, bytes: offset..offset + bytes })
    };

    let mut file = FileState::new(graph, plan)?;
    // What is intact: the values whose bytes are where the plan says.
    let mut intact: Vec<Option<Region>> = vec![None; graph.values().len()];
    let put = |intact: &mut Vec<Option<Region>>, value: Value, at: Region| {
        for slot in intact.iter_mut() {
            if slot.as_ref().is_some_and(|r| r.overlaps(&at)) {
                *slot = None;
            }
        }
        intact[value.0 as usize] = Some(at);
    };
    for (value, info) in graph.values() {
        if !matches!(info.source, Source::Node { .. }) {
            let at = region(value)?;
            if at.is_state != matches!(info.source, Source::State { .. }) {
                return fail(format!("%{} is in the wrong memory", value.0));
            }
            if intact.iter().flatten().any(|r| r.overlaps(&at)) {
                return fail(format!("%{} overlaps another input or state", value.0));
            }
            intact[value.0 as usize] = Some(at);
        }
    }

    let mut runs = vec![0; graph.nodes().len()];
    for instruction in &plan.instructions {
        let id = instruction.node;
        runs[id.0 as usize] += 1;
        let node = graph.node(id);
        let name = graph.describe(id);
        let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
        let (in_types, out_types) = (of(&node.inputs), of(&node.outputs));
        let types = Types { inputs: &in_types, outputs: &out_types };
        let ins = node.inputs.iter().map(|&v| region(v)).collect::<Result<Vec<_>, _>>()?;
        let outs = node.outputs.iter().map(|&v| region(v)).collect::<Result<Vec<_>, _>>()?;
        for (input, at) in node.inputs.iter().zip(&ins) {
            if intact[input.0 as usize].as_ref() != Some(at) {
                return fail(format!("{name} reads %{}, which is not intact", input.0));
            }
        }
        file.follow(id)?;
        if node.op.is_view() {
            let start = ins[0].bytes.start + node.op.view_offset(&types) as u64;
            let end = start + out_types[0].bytes() as u64;
            if outs[0].is_state != ins[0].is_state || outs[0].bytes != (start..end) || end > ins[0].bytes.end {
                return fail(format!("{name} is a view, but its output is elsewhere"));
            }
            intact[node.outputs[0].0 as usize] = Some(outs[0].clone());
            continue;
        }
        let workspace = instruction.workspace.clone().map(|bytes| Region { is_state: false, bytes });
        let needed = node.op.workspace(&types, plan.threads) as u64;
        let given = workspace.as_ref().map_or(0, |w| w.bytes.end - w.bytes.start);
        if given < needed
            || workspace.as_ref().is_some_and(|w| w.bytes.end > plan.arena_bytes || w.bytes.start % 64 != 0)
        {
            return fail(format!("{name} needs {needed} bytes of workspace, has {given}"));
        }
        if let Some(w) = &workspace
            && ins.iter().chain(&outs).any(|r| r.overlaps(w))
        {
            return fail(format!("the workspace of {name} overlaps an operand"));
        }
        for (o, out) in outs.iter().enumerate() {
            if outs[..o].iter().any(|r| r.overlaps(out)) {
                return fail(format!("two outputs of {name} overlap"));
            }
            for (i, input) in ins.iter().enumerate() {
                let changes = node.op.mutates().contains(&(i, o));
                if changes && input != out {
                    return fail(format!("{name} changes input {i} in place, but output {o} is elsewhere"));
                }
                // The same place read by one input that may be overwritten.
                let alone = ins.iter().filter(|r| r.overlaps(out)).count() == 1;
                let allowed = changes || node.op.may_overwrite(i, o, &types) && input == out && alone;
                if input.overlaps(out) && !allowed {
                    return fail(format!("output {o} of {name} overlaps input {i}"));
                }
            }
            if out.is_state && !node.op.mutates().iter().any(|(_, changed)| *changed == o) {
                return fail(format!("output {o} of {name} is written over a state"));
            }
        }
        if let Some(w) = workspace {
            for slot in intact.iter_mut().filter(|s| s.as_ref().is_some_and(|r| r.overlaps(&w))) {
                *slot = None;
            }
        }
        for (output, at) in node.outputs.iter().zip(outs) {
            put(&mut intact, *output, at);
        }
    }
    if let Some(id) = runs.iter().position(|&n| n != 1) {
        return fail(format!("node {id} runs {} times", runs[id]));
    }
    file.end()?;
    for output in graph.outputs() {
        if intact[output.value.0 as usize].is_none() {
            return fail(format!("output '{}' is gone at the end", output.name));
        }
    }
    for (value, name) in graph.states() {
        let newest = newest_version(graph, value);
        if intact[newest.0 as usize].is_none() {
            return fail(format!("state '{name}' does not hold its newest value at the end"));
        }
    }
    Ok(())
}

fn newest_version(graph: &Graph, state: Value) -> Value {
    let mut newest = state;
    for (_, node) in graph.nodes() {
        for &(input, output) in node.op.mutates() {
            if node.inputs[input] == newest {
                newest = node.outputs[output];
            }
        }
    }
    newest
}
