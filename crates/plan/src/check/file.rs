//! The file's part of the proof: what is where in it, which transfers are under way, and which version of a state is newest.

use super::Violation;
use crate::{FILE_ALIGNMENT, Plan};
use plimsoll_graph::op::spill::Transfer;
use plimsoll_graph::{Graph, NodeId, Value};
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    /// A state as it was before the step.
    Before,
    /// This value.
    Of(Value),
}

struct Stored {
    bytes: Range<u64>,
    ty: TensorType,
    content: Content,
    /// The node that finished writing it; `None` for what was there before the step.
    writer: Option<NodeId>,
}

/// A transfer that has begun.
struct UnderWay {
    begin: NodeId,
    writes: bool,
    bytes: Range<u64>,
    value: Value,
    content: Content,
}

/// A value in memory that is a version of a state in the file.
#[derive(Clone, Copy)]
struct Version {
    slot: u64,
    content: Content,
}

pub(super) struct FileState<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    stored: Vec<Stored>,
    under_way: Vec<UnderWay>,
    /// By slot of a state: what it must hold at the end.
    newest: BTreeMap<u64, Content>,
    /// By value.
    versions: Vec<Option<Version>>,
}

impl<'a> FileState<'a> {
    pub(super) fn new(graph: &'a Graph, plan: &'a Plan) -> Result<FileState<'a>, Violation> {
        if plan.file_bytes < plan.state.file_bytes() {
            let (room, states) = (plan.file_bytes, plan.state.file_bytes());
            return Err(Violation(format!("the file has {room} bytes, its states need {states}")));
        }
        if let Some((value, name)) = graph.states().find(|(_, name)| plan.state.in_file(name).is_some()) {
            return Err(Violation(format!("%{} is state '{name}', whose home is the file", value.0)));
        }
        let mut file = FileState {
            graph,
            plan,
            stored: Vec::new(),
            under_way: Vec::new(),
            newest: BTreeMap::new(),
            versions: vec![None; graph.values().len()],
        };
        for (name, slot, ty) in plan.state.iter_file() {
            let bytes = file.room(slot, &ty)?;
            if file.stored.iter().any(|s| overlap(&s.bytes, &bytes)) {
                return Err(Violation(format!("state '{name}' overlaps another in the file")));
            }
            file.stored.push(Stored { bytes, ty, content: Content::Before, writer: None });
            file.newest.insert(slot, Content::Before);
        }
        Ok(file)
    }

    /// Follows a node. That its inputs are intact in memory is shown elsewhere.
    pub(super) fn follow(&mut self, id: NodeId) -> Result<(), Violation> {
        let graph = self.graph;
        let node = graph.node(id);
        let transfer = node.op.transfer();
        for &input in &node.inputs {
            if self.begins_read(input) && !matches!(transfer, Some(Transfer::EndRead(_))) {
                let name = graph.describe(id);
                return Err(Violation(format!("{name} reads %{}, which is not read from the file yet", input.0)));
            }
        }
        match transfer {
            Some(Transfer::BeginWrite(slot)) => self.begin_write(id, slot, node.inputs[0]),
            Some(Transfer::EndWrite(slot)) => self.end_write(id, slot, node.inputs[0], node.inputs[1]),
            Some(Transfer::BeginRead(slot)) => self.begin_read(id, slot, node.outputs[0]),
            Some(Transfer::EndRead(slot)) => self.end_read(slot, node.inputs[0], node.outputs[0]),
            None => {
                let pairs = node.op.mutates().iter();
                pairs.map(|&(i, o)| (node.inputs[i], node.outputs[o])).try_for_each(|(i, o)| self.change(id, i, o))
            }
        }
    }

    /// All transfers are over and the states are what they should be.
    pub(super) fn end(&self) -> Result<(), Violation> {
        if let Some(open) = self.under_way.first() {
            let what = self.graph.describe(open.begin);
            return Err(Violation(format!("{what} of %{} at {} never ends", open.value.0, open.bytes.start)));
        }
        if let Some(output) = self.graph.outputs().iter().find(|o| self.begins_read(o.value)) {
            return Err(Violation(format!("output '{}' is a value that is not read from the file yet", output.name)));
        }
        for (name, slot, ty) in self.plan.state.iter_file() {
            let found = self.stored.iter().find(|s| s.bytes.start == slot && s.ty == ty).map(|s| s.content);
            if found != self.newest.get(&slot).copied() {
                return Err(Violation(format!("state '{name}' is not in the file with its newest value at the end")));
            }
        }
        Ok(())
    }

    fn begins_read(&self, value: Value) -> bool {
        let op = self.graph.producer(value).map(|id| self.graph.node(id).op.transfer());
        matches!(op.flatten(), Some(Transfer::BeginRead(_)))
    }

    /// The bytes of a value in the file, rounded up to what is transferred.
    fn room(&self, slot: u64, ty: &TensorType) -> Result<Range<u64>, Violation> {
        let (n, room) = (ty.bytes() as u64, self.plan.file_bytes.next_multiple_of(FILE_ALIGNMENT));
        let end = slot.checked_add(n.next_multiple_of(FILE_ALIGNMENT)).filter(|&end| end <= room);
        match end {
            Some(end) if slot.is_multiple_of(FILE_ALIGNMENT) => Ok(slot..end),
            _ => Err(Violation(format!("slot {slot} with {n} bytes is misplaced in a file of {room}"))),
        }
    }

    /// Nothing that is under way touches these bytes; two reads may.
    fn expect_free(&self, bytes: &Range<u64>, writes: bool) -> Result<(), Violation> {
        match self.under_way.iter().find(|u| (u.writes || writes) && overlap(&u.bytes, bytes)) {
            None => Ok(()),
            Some(other) => Err(Violation(format!(
                "slot {} is used while %{} is moved at slot {}",
                bytes.start, other.value.0, other.bytes.start
            ))),
        }
    }

    fn begin_write(&mut self, id: NodeId, slot: u64, value: Value) -> Result<(), Violation> {
        let ty = *self.graph.ty(value);
        let bytes = self.room(slot, &ty)?;
        self.expect_free(&bytes, true)?;
        for (name, place, state) in self.plan.state.iter_file() {
            let other = place..place + (state.bytes() as u64).next_multiple_of(FILE_ALIGNMENT);
            if overlap(&bytes, &other) && (place, state) != (slot, ty) {
                return Err(Violation(format!("%{} at slot {slot} is written over state '{name}'", value.0)));
            }
        }
        if let Some(&newest) = self.newest.get(&slot).filter(|_| !bytes.is_empty()) {
            let kept = self.stored.iter().any(|s| s.bytes.start == slot && s.content == newest);
            if newest != Content::Of(value) && !kept {
                return Err(Violation(format!("%{} is written to slot {slot} instead of a newer value", value.0)));
            }
            self.newest.insert(slot, Content::Of(value));
        }
        self.stored.retain(|s| !overlap(&s.bytes, &bytes));
        self.under_way.push(UnderWay { begin: id, writes: true, bytes, value, content: Content::Of(value) });
        Ok(())
    }

    fn end_write(&mut self, id: NodeId, slot: u64, token: Value, value: Value) -> Result<(), Violation> {
        let begun = |u: &UnderWay| u.writes && u.bytes.start == slot && u.value == value;
        let from = |u: &UnderWay| Some(u.begin) == self.graph.producer(token);
        let Some(at) = self.under_way.iter().position(|u| begun(u) && from(u)) else {
            return Err(Violation(format!("%{} is not being written to slot {slot}, but the end is awaited", value.0)));
        };
        let UnderWay { bytes, content, .. } = self.under_way.swap_remove(at);
        self.stored.push(Stored { bytes, ty: *self.graph.ty(value), content, writer: Some(id) });
        Ok(())
    }

    fn begin_read(&mut self, id: NodeId, slot: u64, value: Value) -> Result<(), Violation> {
        let ty = *self.graph.ty(value);
        let bytes = self.room(slot, &ty)?;
        self.expect_free(&bytes, false)?;
        let Some(found) = self.stored.iter().find(|s| s.bytes.start == slot && s.ty == ty) else {
            return Err(Violation(format!("%{} is read from slot {slot}, where no {ty} is", value.0)));
        };
        // What is there must be what the graph means: the node depends on its being written.
        if let Some(writer) = found.writer.filter(|&w| !depends(self.graph, id, w)) {
            let name = self.graph.describe(writer);
            let message = format!("%{} is read from slot {slot} without waiting for {name}", value.0);
            return Err(Violation(message));
        }
        let content = found.content;
        self.under_way.push(UnderWay { begin: id, writes: false, bytes, value, content });
        Ok(())
    }

    fn end_read(&mut self, slot: u64, value: Value, output: Value) -> Result<(), Violation> {
        let begun = |u: &UnderWay| !u.writes && u.bytes.start == slot && u.value == value;
        let Some(at) = self.under_way.iter().position(begun) else {
            return Err(Violation(format!("%{} is not being read from slot {slot}, but the end is awaited", value.0)));
        };
        let content = self.under_way.swap_remove(at).content;
        if self.newest.contains_key(&slot) {
            self.versions[output.0 as usize] = Some(Version { slot, content });
        }
        Ok(())
    }

    /// A node changes a value in place: a state in memory, or the newest version of one in the file.
    fn change(&mut self, id: NodeId, input: Value, output: Value) -> Result<(), Violation> {
        if self.graph.state_of(input).is_some() {
            return Ok(());
        }
        let name = self.graph.describe(id);
        let Some(version) = self.versions[input.0 as usize] else {
            return Err(Violation(format!("{name} changes %{}, which is no state", input.0)));
        };
        if self.newest.get(&version.slot) != Some(&version.content) {
            return Err(Violation(format!("{name} changes %{}, which is not the state's newest value", input.0)));
        }
        let content = Content::Of(output);
        self.newest.insert(version.slot, content);
        self.versions[output.0 as usize] = Some(Version { slot: version.slot, content });
        Ok(())
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// Whether a node runs after another in every order that the graph allows.
fn depends(graph: &Graph, node: NodeId, on: NodeId) -> bool {
    let mut seen = vec![false; graph.nodes().len()];
    let mut open = vec![node];
    while let Some(id) = open.pop() {
        if id == on {
            return true;
        }
        if !std::mem::replace(&mut seen[id.0 as usize], true) {
            open.extend(graph.node(id).inputs.iter().filter_map(|&v| graph.producer(v)));
        }
    }
    false
}
