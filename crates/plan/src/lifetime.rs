//! Which values share memory, and from when to when each piece is needed.
//!
//! A view has its input's memory; a changed state has the state's; an op that allows it writes over an input that dies
//! there. What is left are the buffers that `place.rs` packs.

use plimsoll_graph::{Graph, NodeId, Source, Types, Value};
use plimsoll_tensor::TensorType;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In the memory of this state.
    State(Value),
    /// In this buffer.
    Buffer(usize),
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Given by the caller.
    Input,
    /// Computed.
    Value,
    /// Scratch memory of one node.
    Workspace,
}

/// A piece of the arena, needed from step `first` to step `last`, both included.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its size.
    pub bytes: u64,
    /// The step that first writes it.
    pub first: u32,
    /// The step that last reads it.
    pub last: u32,
    /// What it is for.
    pub kind: Kind,
    /// The values that live in it, one after another or as views of each other; for a workspace none.
    pub values: Vec<Value>,
    /// The node that made it, for explanations.
    pub node: Option<NodeId>,
}

/// Homes of all values and the buffers they need.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifetimes {
    /// By value; `None` for values that are neither computed nor read.
    pub homes: Vec<Option<Home>>,
    /// By value: where in its home it begins, in bytes.
    pub offsets: Vec<u64>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// By step: the buffer of its workspace.
    pub workspaces: Vec<Option<usize>>,
}

/// The lifetimes of a graph's values when its nodes run in this order.
pub fn lifetimes(graph: &Graph, order: &[NodeId], threads: usize) -> Lifetimes {
    let n_values = graph.values().len();
    let last_use = last_uses(graph, order);
    let mut all = Lifetimes {
        homes: vec![None; n_values],
        offsets: vec![0; n_values],
        buffers: Vec::new(),
        workspaces: Vec::new(),
    };
    for (value, info) in graph.values() {
        all.homes[value.0 as usize] = match info.source {
            Source::State { .. } => Some(Home::State(value)),
            Source::Input { .. } => Some(all.open(graph, value, 0, Kind::Input, None)),
            Source::Node { .. } => None,
        };
    }
    for (step, &id) in order.iter().enumerate() {
        let step = step as u32;
        let node = graph.node(id);
        let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
        let (in_types, out_types) = (of(&node.inputs), of(&node.outputs));
        let types = Types { inputs: &in_types, outputs: &out_types };
        for input in &node.inputs {
            if let Some(Home::Buffer(b)) = all.homes[input.0 as usize] {
                all.buffers[b].last = all.buffers[b].last.max(step);
            }
        }
        let mut taken: Vec<usize> = Vec::new();
        for (index, &output) in node.outputs.iter().enumerate() {
            let changed = node.op.mutates().iter().find(|(_, o)| *o == index).map(|(i, _)| *i);
            let home = if node.op.is_view() || changed.is_some() {
                let from = node.inputs[changed.unwrap_or(0)];
                let home = all.homes[from.0 as usize].expect("inputs have homes");
                let inside = if node.op.is_view() { node.op.view_offset(&types) as u64 } else { 0 };
                all.offsets[output.0 as usize] = all.offsets[from.0 as usize] + inside;
                if let Home::Buffer(b) = home {
                    all.buffers[b].values.push(output);
                }
                home
            } else if let Some(b) = all.reusable(&node.inputs, index, &types, step, &last_use, &taken, &*node.op) {
                taken.push(b);
                all.buffers[b].values.push(output);
                Home::Buffer(b)
            } else {
                all.open(graph, output, step, Kind::Value, Some(id))
            };
            all.homes[output.0 as usize] = Some(home);
        }
        let bytes = node.op.workspace(&types, threads) as u64;
        all.workspaces.push((bytes > 0).then(|| {
            all.buffers.push(Buffer {
                bytes,
                first: step,
                last: step,
                kind: Kind::Workspace,
                values: Vec::new(),
                node: Some(id),
            });
            all.buffers.len() - 1
        }));
    }
    let end = order.len().saturating_sub(1) as u32;
    for output in graph.outputs() {
        if let Some(Home::Buffer(b)) = all.homes[output.value.0 as usize] {
            all.buffers[b].last = end;
        }
    }
    all
}

impl Lifetimes {
    fn open(&mut self, graph: &Graph, value: Value, step: u32, kind: Kind, node: Option<NodeId>) -> Home {
        let bytes = graph.ty(value).bytes() as u64;
        self.buffers.push(Buffer { bytes, first: step, last: step, kind, values: vec![value], node });
        Home::Buffer(self.buffers.len() - 1)
    }

    /// The buffer of an input that the op may write its output over: all that lives in it dies here.
    fn reusable(
        &self,
        inputs: &[Value],
        output: usize,
        types: &Types<'_>,
        step: u32,
        last_use: &[u32],
        taken: &[usize],
        op: &dyn plimsoll_graph::OpDef,
    ) -> Option<usize> {
        inputs.iter().enumerate().find_map(|(i, input)| {
            let Some(Home::Buffer(b)) = self.homes[input.0 as usize] else { return None };
            let dies = self.buffers[b].values.iter().all(|v| last_use[v.0 as usize] <= step);
            // An input that is read twice by this op must not be written while it is read the other way.
            let once = inputs.iter().filter(|v| self.homes[v.0 as usize] == Some(Home::Buffer(b))).count() == 1;
            let fits = self.buffers[b].bytes == types.outputs[output].bytes() as u64;
            (dies && once && fits && !taken.contains(&b) && op.may_overwrite(i, output, types)).then_some(b)
        })
    }
}

/// The last step that reads each value; the end of time for outputs.
fn last_uses(graph: &Graph, order: &[NodeId]) -> Vec<u32> {
    let mut last = vec![0; graph.values().len()];
    for (step, &id) in order.iter().enumerate() {
        graph.node(id).inputs.iter().for_each(|v| last[v.0 as usize] = step as u32);
    }
    graph.outputs().iter().for_each(|o| last[o.value.0 as usize] = u32::MAX);
    last
}
