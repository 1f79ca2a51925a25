//! From a run to a graph: a node for every time one runs, and nodes for the transfers.

use super::Evicted;
use super::problem::{Problem, Start};
use super::simulate::{Event, Run};
use crate::{FILE_ALIGNMENT, StateLayout};
use plimsoll_graph::op::spill::{BeginRead, BeginWrite, EndRead, EndWrite};
use plimsoll_graph::{Graph, GraphError, NodeId, Source, Value};
use std::sync::Arc;

struct Rebuild<'a> {
    graph: &'a Graph,
    problem: &'a Problem,
    new: Graph,
    /// By value of the old graph: what stands for it now. Of a view, with the value that it was made from.
    now: Vec<Option<(Value, Value)>>,
    /// By unit: its place in the file, the token and the value of a write, and the value that is being read.
    slots: Vec<Option<u64>>,
    tokens: Vec<Option<Value>>,
    writing: Vec<Option<Value>>,
    reading: Vec<Option<Value>>,
    file_bytes: u64,
}

/// The graph of a run, in which the nodes stand in the order they run.
pub(super) fn rebuild(graph: &Graph, problem: &Problem, run: &Run, state: &StateLayout) -> Result<Evicted, GraphError> {
    let n_units = problem.units.len();
    let mut r = Rebuild {
        graph,
        problem,
        new: Graph::new(),
        now: vec![None; graph.values().len()],
        slots: problem.units.iter().map(|u| u.slot).collect(),
        tokens: vec![None; n_units],
        writing: vec![None; n_units],
        reading: vec![None; n_units],
        file_bytes: state.file_bytes().next_multiple_of(FILE_ALIGNMENT),
    };
    for (value, info) in graph.values() {
        let source = match &info.source {
            Source::Input { name } => r.new.input(name, info.ty),
            Source::State { name } if state.in_file(name).is_none() => r.new.state(name, info.ty),
            _ => continue,
        };
        r.now[value.0 as usize] = Some((source, source));
    }
    let mut result = Evicted {
        seconds: run.seconds,
        score: run.score,
        extra_seconds: run.seconds - problem.seconds,
        ..Evicted::default()
    };
    let mut ran = vec![false; problem.tasks.len()];
    for &event in &run.events {
        match event {
            Event::Run(task) => {
                if let Some(node) = problem.tasks[task].node {
                    r.run(node)?;
                    result.repeats += usize::from(std::mem::replace(&mut ran[task], true));
                }
            }
            Event::BeginWrite(unit) => {
                r.begin_write(unit)?;
                result.transfers += 1;
                result.written += r.bytes(unit);
            }
            Event::EndWrite(unit) => r.end_write(unit)?,
            Event::BeginRead(unit) => {
                r.begin_read(unit)?;
                result.transfers += 1;
                result.read += r.bytes(unit);
            }
            Event::EndRead(unit) => r.end_read(unit)?,
        }
    }
    for output in graph.outputs() {
        let value = r.value(output.value)?;
        r.new.output(&output.name, value);
    }
    result.order = r.new.nodes().map(|(id, _)| id).collect();
    result.graph = r.new;
    result.file_bytes = r.file_bytes;
    Ok(result)
}

impl Rebuild<'_> {
    fn bytes(&self, unit: usize) -> u64 {
        self.graph.ty(self.problem.units[unit].value).bytes() as u64
    }

    /// What stands for a value now. Views follow what they are views of: when that is new, so are they.
    fn value(&mut self, value: Value) -> Result<Value, GraphError> {
        let producer = self.graph.producer(value).map(|id| self.graph.node(id)).filter(|n| n.op.is_view());
        let Some(view) = producer else {
            return Ok(self.now[value.0 as usize].expect("what is read is there").0);
        };
        let from = self.value(view.inputs[0])?;
        if let Some((known, its_from)) = self.now[value.0 as usize]
            && its_from == from
        {
            return Ok(known);
        }
        self.new.set_layer(&view.layer);
        let new = self.new.push_shared(view.op.clone(), &[from])?[0];
        self.now[value.0 as usize] = Some((new, from));
        Ok(new)
    }

    fn run(&mut self, id: NodeId) -> Result<(), GraphError> {
        let node = self.graph.node(id);
        let inputs = node.inputs.iter().map(|&v| self.value(v)).collect::<Result<Vec<Value>, GraphError>>()?;
        self.new.set_layer(&node.layer);
        let outputs = self.new.push_shared(node.op.clone(), &inputs)?;
        for (from, to) in node.outputs.iter().zip(outputs) {
            self.now[from.0 as usize] = Some((to, to));
        }
        Ok(())
    }

    /// Transfers belong to the layer that made the value.
    fn enter_layer(&mut self, unit: usize) {
        let value = self.problem.units[unit].value;
        let layer = self.graph.producer(value).map_or_else(|| Arc::from(""), |id| self.graph.node(id).layer.clone());
        self.new.set_layer(&layer);
    }

    fn begin_write(&mut self, unit: usize) -> Result<(), GraphError> {
        self.enter_layer(unit);
        let bytes = self.bytes(unit);
        let slot = *self.slots[unit].get_or_insert_with(|| {
            let slot = self.file_bytes;
            self.file_bytes += bytes.next_multiple_of(FILE_ALIGNMENT);
            slot
        });
        let value = self.value(self.problem.units[unit].value)?;
        self.tokens[unit] = Some(self.new.push1(BeginWrite { slot }, &[value])?);
        self.writing[unit] = Some(value);
        Ok(())
    }

    fn end_write(&mut self, unit: usize) -> Result<(), GraphError> {
        self.enter_layer(unit);
        let slot = self.slots[unit].expect("writing began");
        let token = self.tokens[unit].expect("writing began");
        let value = self.writing[unit].expect("writing began");
        self.tokens[unit] = Some(self.new.push1(EndWrite { slot }, &[token, value])?);
        Ok(())
    }

    fn begin_read(&mut self, unit: usize) -> Result<(), GraphError> {
        self.enter_layer(unit);
        let slot = self.slots[unit].expect("what is read was written");
        let ty = self.graph.ty(self.problem.units[unit].value);
        debug_assert!(self.tokens[unit].is_some() || self.problem.units[unit].start == Start::File);
        let tokens: Vec<Value> = self.tokens[unit].into_iter().collect();
        self.reading[unit] = Some(self.new.push1(BeginRead { slot, dtype: ty.dtype, shape: ty.shape }, &tokens)?);
        Ok(())
    }

    fn end_read(&mut self, unit: usize) -> Result<(), GraphError> {
        self.enter_layer(unit);
        let slot = self.slots[unit].expect("what is read was written");
        let value = self.new.push1(EndRead { slot }, &[self.reading[unit].expect("reading began")])?;
        self.now[self.problem.units[unit].value.0 as usize] = Some((value, value));
        Ok(())
    }
}
