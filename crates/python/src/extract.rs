//! From a record to a graph that can be planned: what is wanted, back to what is known, under names that do not depend on who asks.
//!
//! Equal operations give equal graphs, so that a plan made once serves again: known values are called `k0`, `k1`, ..,
//! variables `v0`, `v1`, .., inputs `i0`, .., outputs `o0`, ... The graph's [`Extract::key`] is a digest of all that matters.
//!
//! An assignment is the last thing that happens to its variable: what reads the new value reads it where it was computed. So
//! old and new value can be read side by side, and a value assigned and assigned over again is never stored.

use crate::buffer::Buffer;
use crate::record::Record;
use crate::variable::Cell;
use plimsoll_graph::op::state::Assign;
use plimsoll_graph::{Graph, GraphError, NodeId, OpDef, Source, Value};
use plimsoll_kernels::pointwise::Unary;
use plimsoll_plan::split::Batch;
use plimsoll_tensor::TensorType;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Known values from this size on are read where they are.
const IN_PLACE: usize = 64 << 10;

/// A graph cut out of a record.
pub struct Extract {
    /// What is to be computed.
    pub graph: Graph,
    /// Known values that it reads: `k0`, `k1`, .., and whether they are read where they are: as states, not as inputs.
    pub bound: Vec<(Arc<Buffer>, bool)>,
    /// Variables that it reads or changes: `v0`, `v1`, .., and whether it changes them.
    pub variables: Vec<(Arc<Cell>, bool)>,
    /// Equal for equal computations.
    pub key: u128,
}

/// The graph that computes `wanted` and all changes of variables from what is known.
///
/// `from` is the first node whose changes of variables have not happened yet. With `in_place` large known values are read where they are;
/// otherwise they are inputs, which the planner can cut into slices.
///
/// # Errors
/// None that a record can have: its operations were checked when they were asked for.
pub fn extract(
    record: &Record,
    wanted: &[Value],
    known: &HashMap<Value, Arc<Buffer>>,
    from: usize,
    in_place: bool,
) -> Result<Extract, GraphError> {
    cut(record, &record.inputs, wanted, known, from, in_place)
}

/// The graph that computes a value from what is known; `None` when it depends on an input or a variable.
///
/// # Errors
/// As [`extract`].
pub fn extract_constant(record: &Record, wanted: Value) -> Result<Option<Extract>, GraphError> {
    let (graph, known) = (&record.graph, record.known());
    let needed = needed(graph, &[wanted], &known, graph.nodes().len());
    let is_known = |v: &Value| known.contains_key(v) || graph.producer(*v).is_some();
    let pure = graph.nodes().filter(|(id, _)| needed[id.0 as usize]).all(|(_, node)| node.inputs.iter().all(is_known));
    if !pure || !is_known(&wanted) {
        return Ok(None);
    }
    cut(record, &[], &[wanted], &known, graph.nodes().len(), true).map(Some)
}

fn cut(
    record: &Record,
    inputs: &[Value],
    wanted: &[Value],
    known: &HashMap<Value, Arc<Buffer>>,
    from: usize,
    in_place: bool,
) -> Result<Extract, GraphError> {
    let source = &record.graph;
    let needed = needed(source, wanted, known, from);
    let mut out = Extract { graph: Graph::new(), bound: Vec::new(), variables: Vec::new(), key: 0 };
    let mut key = Digest(Xxh3::new());
    let mut map: Vec<Option<Value>> = vec![None; source.values().len()];
    for (i, &input) in inputs.iter().enumerate() {
        let value = out.graph.input(&format!("i{i}"), *source.ty(input));
        key.add(&format_args!("input {}", source.ty(input)));
        map[input.0 as usize] = Some(value);
    }
    let cells: HashMap<Value, &Arc<Cell>> = record.variables.values().map(|seen| (seen.first, &seen.cell)).collect();
    let mut states: Vec<Value> = Vec::new();
    // A value that is not computed here.
    let mut enter = |out: &mut Extract, key: &mut Digest, map: &mut [Option<Value>], v: Value| -> Value {
        if let Some(value) = map[v.0 as usize] {
            return value;
        }
        let value = match (known.get(&v), &source.value(v).source) {
            (Some(buffer), _) => {
                let stays = in_place && buffer.ty().bytes() >= IN_PLACE;
                key.add(&format_args!("known {} {stays}", source.ty(v)));
                out.bound.push((buffer.clone(), stays));
                let name = format!("k{}", out.bound.len() - 1);
                if stays { out.graph.state(&name, *source.ty(v)) } else { out.graph.input(&name, *source.ty(v)) }
            }
            (None, Source::State { .. }) => {
                let cell = cells[&v];
                key.add(&format_args!("state {}", source.ty(v)));
                out.variables.push((cell.clone(), false));
                let state = out.graph.state(&format!("v{}", out.variables.len() - 1), *source.ty(v));
                states.push(state);
                state
            }
            (None, other) => unreachable!("{other:?} is needed but was not computed"),
        };
        map[v.0 as usize] = Some(value);
        value
    };
    // What variables hold at the end: the state, its newest version in the graph, and what is to be assigned to it.
    let mut ends: Vec<(Value, Value, Option<Value>)> = Vec::new();
    for (id, node) in source.nodes().filter(|(id, _)| needed[id.0 as usize]) {
        if node.op.passes_on() {
            for (&from, &to) in node.inputs.iter().zip(&node.outputs) {
                map[to.0 as usize] = Some(enter(&mut out, &mut key, &mut map, from));
            }
            continue;
        }
        debug_assert!(id.0 as usize >= from || node.op.mutates().is_empty());
        let inputs: Vec<Value> = node.inputs.iter().map(|&v| enter(&mut out, &mut key, &mut map, v)).collect();
        if is_assign(&*node.op) {
            let root = source.state_of(node.inputs[0]).expect("what is assigned to is a state");
            let state = enter(&mut out, &mut key, &mut map, root);
            let mut value = inputs[1];
            if value != state && is_state_memory(&out.graph, value) {
                // Two variables can change places: neither is read where it is while the other changes.
                value = out.graph.unary(Unary::Identity, value)?;
                key.add(&format_args!("copy {}", inputs[1].0));
            }
            map[node.outputs[0].0 as usize] = Some(value);
            match ends.iter_mut().find(|(s, ..)| *s == state) {
                Some(end) => end.2 = Some(value),
                None => ends.push((state, state, Some(value))),
            }
            continue;
        }
        let mut inputs = inputs;
        for &(input, _) in node.op.mutates() {
            // What is changed in place must be there: an assignment that waits happens now.
            let root = source.state_of(node.inputs[input]).expect("what is changed is a state");
            let state = enter(&mut out, &mut key, &mut map, root);
            let end = match ends.iter().position(|(s, ..)| *s == state) {
                Some(at) => at,
                None => {
                    ends.push((state, state, None));
                    ends.len() - 1
                }
            };
            if let Some(value) = ends[end].2.take() {
                ends[end].1 = out.graph.assign(ends[end].1, value)?;
                key.add(&format_args!("assign {} {}", ends[end].1.0, value.0));
            }
            inputs[input] = ends[end].1;
        }
        let outputs = out.graph.push_shared(node.op.clone(), &inputs)?;
        key.node(&*node.op, &inputs);
        for &(input, output) in node.op.mutates() {
            let root = source.state_of(node.inputs[input]).expect("seen above");
            let state = map[root.0 as usize].expect("entered above");
            let end = ends.iter_mut().find(|(s, ..)| *s == state).expect("made above");
            end.1 = outputs[output];
        }
        for (from, to) in node.outputs.iter().zip(outputs) {
            map[from.0 as usize] = Some(to);
        }
    }
    for (i, &v) in wanted.iter().enumerate() {
        let value = enter(&mut out, &mut key, &mut map, v);
        out.graph.output(&format!("o{i}"), value);
        key.add(&format_args!("output {}", value.0));
    }
    for (state, version, value) in ends {
        let at = states.iter().position(|s| *s == state).expect("all states were entered");
        let changes = version != state || value.is_some_and(|v| v != state);
        out.variables[at].1 |= changes;
        if let Some(value) = value.filter(|v| *v != version) {
            out.graph.assign(version, value)?;
            key.add(&format_args!("assign {} {}", version.0, value.0));
        }
    }
    out.key = key.0.digest128();
    Ok(out)
}

impl Extract {
    /// The inputs that have as many rows as the largest: what can be cut into slices.
    pub fn batch(&self) -> Option<Batch> {
        let inputs: Vec<(&str, &TensorType)> = self.graph.inputs().map(|(v, name)| (name, self.graph.ty(v))).collect();
        let largest = inputs.iter().filter(|(_, ty)| ty.shape.rank() > 0).max_by_key(|(_, ty)| ty.bytes())?;
        let entries = largest.1.dims()[0];
        let rows = inputs.iter().filter(|(_, ty)| ty.dims().first() == Some(&entries));
        (entries > 1).then(|| Batch { entries, inputs: rows.map(|(name, _)| (*name).to_owned()).collect() })
    }
}

fn is_assign(op: &dyn OpDef) -> bool {
    op.name() == OpDef::name(&Assign)
}

/// Whether a value is a state's memory, perhaps under another shape.
fn is_state_memory(graph: &Graph, value: Value) -> bool {
    let view = graph.producer(value).map(|id| graph.node(id)).filter(|node| node.op.is_view());
    match view {
        Some(node) => is_state_memory(graph, node.inputs[0]),
        None => graph.state_of(value).is_some(),
    }
}

/// The nodes that must run.
fn needed(graph: &Graph, wanted: &[Value], known: &HashMap<Value, Arc<Buffer>>, from: usize) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes().len()];
    let mark = |needed: &mut [bool], v: Value| {
        if let (false, Some(NodeId(id))) = (known.contains_key(&v), graph.producer(v)) {
            needed[id as usize] = true;
        }
    };
    wanted.iter().for_each(|&v| mark(&mut needed, v));
    for (id, node) in graph.nodes().rev() {
        needed[id.0 as usize] |= id.0 as usize >= from && !node.op.mutates().is_empty();
        if needed[id.0 as usize] {
            node.computed_from().iter().for_each(|&v| mark(&mut needed, v));
        }
    }
    needed
}

/// A digest of text that is never put together.
struct Digest(Xxh3);

impl Digest {
    fn add(&mut self, what: &std::fmt::Arguments<'_>) {
        let _ = self.write_fmt(*what);
        self.0.update(&[0]);
    }

    fn node(&mut self, op: &dyn OpDef, inputs: &[Value]) {
        let _ = write!(self, "{op:?}");
        self.0.update(op.name().as_bytes());
        inputs.iter().for_each(|v| self.0.update(&v.0.to_le_bytes()));
        self.0.update(&[0]);
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
