//! What a plan does, read off its graph: which phase each op belongs to, which ops run again, what each buffer is and why it
//! is where it is.
//!
//! A plan says only what runs when and where. That an op runs for the second time follows from the graph: it is the same op on
//! the same values. Values are the same when they are computed so, or were read back from where the other was written to. So
//! every value gets a number that its copies share.

use crate::plan::{BufferKind, Phase, Strategy};
use plimsoll::trace::Role;
use plimsoll_graph::op::spill::Transfer;
use plimsoll_graph::{Graph, Node, NodeId, Source, Value};
use plimsoll_plan::Plan;
use plimsoll_plan::lifetime::{Buffer, Kind};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What is known of the ops and buffers of a plan.
pub(crate) struct Analysis {
    /// By instruction.
    pub phases: Vec<Phase>,
    /// By instruction: whether its op ran before on the same values.
    pub again: Vec<bool>,
    /// By buffer.
    pub strategies: Vec<Strategy>,
    /// By buffer: another that holds the same values at another time.
    pub partners: Vec<Option<u32>>,
    /// By instruction: the name of the state that a transfer moves, if it is one.
    pub moved_states: HashMap<u64, String>,
}

pub(crate) fn analyse(plan: &Plan, role: &dyn Fn(&str) -> Option<Role>) -> Analysis {
    let copies = Copies::of(plan);
    let (strategies, partners) = strategies(plan, &copies);
    let moved_states = plan.state.iter_file().map(|(name, slot, _)| (slot, name.to_owned())).collect();
    Analysis { phases: phases(plan, role), again: copies.again, strategies, partners, moved_states }
}

/// Which values are copies of each other.
struct Copies {
    /// By value: a number that copies share.
    numbers: Vec<u32>,
    n_numbers: u32,
    /// By instruction.
    again: Vec<bool>,
}

impl Copies {
    fn of(plan: &Plan) -> Copies {
        let graph = &plan.graph;
        let mut copies = Copies { numbers: vec![u32::MAX; graph.values().len()], n_numbers: 0, again: Vec::new() };
        let mut in_file: HashMap<u64, u32> = HashMap::new();
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for (value, info) in graph.values() {
            if !matches!(info.source, Source::Node { .. }) {
                copies.numbers[value.0 as usize] = copies.fresh(1);
            }
        }
        for instruction in &plan.instructions {
            let node = graph.node(instruction.node);
            let mut again = false;
            let first = match node.op.transfer() {
                Some(Transfer::BeginWrite(slot)) => {
                    in_file.insert(slot, copies.number(node.inputs[0]));
                    copies.fresh(1)
                }
                Some(Transfer::EndWrite(_)) => copies.fresh(1),
                Some(Transfer::BeginRead(slot)) => *in_file.entry(slot).or_insert_with(|| copies.fresh(1)),
                Some(Transfer::EndRead(_)) => copies.number(node.inputs[0]),
                None if !node.op.mutates().is_empty() => copies.fresh(node.outputs.len()),
                None => {
                    let fresh = copies.n_numbers;
                    let first = *seen.entry(copies.key(node)).or_insert(fresh);
                    again = first != fresh && node.op.runs();
                    if first == fresh { copies.fresh(node.outputs.len()) } else { first }
                }
            };
            for (i, output) in node.outputs.iter().enumerate() {
                copies.numbers[output.0 as usize] = first + i as u32;
            }
            copies.again.push(again);
        }
        copies
    }

    fn fresh(&mut self, n: usize) -> u32 {
        self.n_numbers += n as u32;
        self.n_numbers - n as u32
    }

    fn number(&self, value: Value) -> u32 {
        self.numbers[value.0 as usize]
    }

    /// Tells apart computations: what is applied to what. Copies of a node share its op.
    fn key(&self, node: &Node) -> u64 {
        let mut hasher = DefaultHasher::new();
        Arc::as_ptr(&node.op).cast::<u8>().hash(&mut hasher);
        node.inputs.iter().for_each(|&v| self.number(v).hash(&mut hasher));
        hasher.finish()
    }
}

fn strategies(plan: &Plan, copies: &Copies) -> (Vec<Strategy>, Vec<Option<u32>>) {
    let graph = &plan.graph;
    let step_of = step_of_nodes(plan);
    let mut written = vec![false; graph.values().len()];
    // By number: the last step that computes it again; 0 for none, since no first step does.
    let mut computed_again = vec![0; copies.n_numbers as usize];
    for (step, (instruction, &again)) in plan.instructions.iter().zip(&copies.again).enumerate() {
        let node = graph.node(instruction.node);
        if let Some(Transfer::BeginWrite(_)) = node.op.transfer() {
            written[node.inputs[0].0 as usize] = true;
        }
        if again {
            node.outputs.iter().for_each(|&v| computed_again[copies.number(v) as usize] = step as u32);
        }
    }
    let strategy = |buffer: &Buffer| {
        let maker = buffer.node.filter(|_| buffer.kind == Kind::Value);
        let any = |is: &dyn Fn(Value) -> bool| buffer.values.iter().any(|&v| is(v));
        if maker.is_some_and(|m| matches!(graph.node(m).op.transfer(), Some(Transfer::BeginRead(_)))) {
            Strategy::Fetched
        } else if any(&|v| written[v.0 as usize]) {
            Strategy::Spilled
        } else if maker.is_some_and(|m| copies.again[step_of[m.0 as usize] as usize]) {
            Strategy::Recomputed
        } else if any(&|v| computed_again[copies.number(v) as usize] > buffer.last) {
            Strategy::Dropped
        } else {
            Strategy::Kept
        }
    };
    let strategies: Vec<Strategy> = plan.buffers.iter().map(|(buffer, _)| strategy(buffer)).collect();

    // In the order in which buffers begin, each finds the one before it with the same value.
    let mut order: Vec<u32> = (0..plan.buffers.len() as u32).collect();
    order.sort_by_key(|&b| plan.buffers[b as usize].0.first);
    let mut last = vec![u32::MAX; copies.n_numbers as usize];
    let mut partners = vec![None; plan.buffers.len()];
    for b in order {
        for &value in &plan.buffers[b as usize].0.values {
            let before = std::mem::replace(&mut last[copies.number(value) as usize], b);
            if before != u32::MAX && before != b {
                partners[b as usize].get_or_insert(before);
                partners[before as usize].get_or_insert(b);
            }
        }
    }
    (strategies, partners)
}

fn step_of_nodes(plan: &Plan) -> Vec<u32> {
    let mut steps = vec![0; plan.graph.nodes().len()];
    plan.instructions.iter().enumerate().for_each(|(step, i)| steps[i.node.0 as usize] = step as u32);
    steps
}

/// Forward is what the loss, metrics and statistics need; an update changes a state; the rest are gradients.
fn phases(plan: &Plan, role: &dyn Fn(&str) -> Option<Role>) -> Vec<Phase> {
    let graph = &plan.graph;
    let loss = graph.outputs().iter().find(|o| o.name == "loss");
    let trains = plan.instructions.iter().any(|i| is_update(graph, i.node, role));
    let mut forward = vec![!trains; graph.values().len()];
    if let Some(loss) = loss {
        forward[loss.value.0 as usize] = true;
    }
    for instruction in plan.instructions.iter().rev() {
        let node = graph.node(instruction.node);
        let counts = !node.op.mutates().is_empty() && !is_update(graph, instruction.node, role);
        if counts || node.outputs.iter().any(|v| forward[v.0 as usize]) {
            node.outputs.iter().chain(&node.inputs).for_each(|v| forward[v.0 as usize] = true);
        }
    }
    let phase = |id: NodeId| {
        let node = graph.node(id);
        if node.op.transfer().is_some() {
            Phase::Transfer
        } else if is_update(graph, id, role) {
            Phase::Update
        } else if node.outputs.iter().any(|v| forward[v.0 as usize]) {
            Phase::Forward
        } else {
            Phase::Backward
        }
    };
    plan.instructions.iter().map(|i| phase(i.node)).collect()
}

/// Whether a node changes weights or the optimizer's state, rather than sums of metrics or statistics.
fn is_update(graph: &Graph, id: NodeId, role: &dyn Fn(&str) -> Option<Role>) -> bool {
    let node = graph.node(id);
    node.op.mutates().iter().any(|&(input, _)| {
        let Some(state) = graph.state_of(node.inputs[input]) else { return true };
        let Source::State { name } = &graph.value(state).source else { return true };
        matches!(role(name), None | Some(Role::Weight | Role::Moment))
    })
}

impl Analysis {
    /// What a buffer is for.
    pub fn kind(&self, plan: &Plan, buffer: &Buffer) -> BufferKind {
        let Some(maker) = buffer.node else { return BufferKind::Input };
        if buffer.kind == Kind::Workspace {
            return BufferKind::Workspace;
        }
        if let Some(Transfer::BeginRead(slot)) = plan.graph.node(maker).op.transfer()
            && slot < plan.state.file_bytes()
        {
            return BufferKind::State;
        }
        let phase = |step: u32| self.phases[step as usize];
        match phase(buffer.first) {
            _ if self.again[buffer.first as usize] => BufferKind::Saved,
            // Needed after the loss: for gradients, whether it stays or goes to the file meanwhile.
            Phase::Forward if phase(buffer.last) != Phase::Forward => BufferKind::Saved,
            Phase::Forward => BufferKind::Activation,
            Phase::Transfer => BufferKind::Saved,
            Phase::Backward => BufferKind::Gradient,
            Phase::Update => BufferKind::Update,
        }
    }
}
