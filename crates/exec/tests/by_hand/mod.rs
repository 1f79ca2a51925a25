//! Plans with transfers, made by hand: every value that a plain plan computes goes through the file on its way to each of
//! its readers. Nobody would want such a plan; it has more transfers than any that is wanted.

#![allow(dead_code)]

use plimsoll_graph::op::spill::{BeginRead, BeginWrite, EndRead, EndWrite};
use plimsoll_graph::{Graph, Node, Source, Value};
use plimsoll_plan::lifetime::{Home, lifetimes};
use plimsoll_plan::{FILE_ALIGNMENT, Instruction, Place, Plan, StateLayout, check, place};
use std::path::PathBuf;

/// A directory on a disk: that of the test's binary.
pub fn directory() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// A plan of a graph whose nodes run in the order in which they were added; everything else is as in another plan.
pub fn plan_of(graph: &Graph, state: &StateLayout, file_bytes: u64, like: &Plan) -> Plan {
    graph.verify().unwrap();
    let order: Vec<_> = graph.nodes().map(|(id, _)| id).collect();
    let lives = lifetimes(graph, &order, like.threads);
    let sizes: Vec<_> =
        lives.buffers.iter().map(|b| place::Buffer { bytes: b.bytes, first: b.first, last: b.last }).collect();
    let placement = place::place(&sizes, place::Effort::default());
    let home = |home: &Option<Home>| match (*home)? {
        Home::Buffer(b) => Some(Place::Arena(placement.offsets[b])),
        Home::State(value) => {
            let Source::State { name } = &graph.value(value).source else { unreachable!() };
            Some(Place::State(state.get(name).unwrap().0))
        }
    };
    let workspace = |step: usize| {
        let b = lives.workspaces[step]?;
        Some(placement.offsets[b]..placement.offsets[b] + lives.buffers[b].bytes)
    };
    let instructions =
        order.iter().enumerate().map(|(i, &node)| Instruction { node, workspace: workspace(i) }).collect();
    let plan = Plan {
        graph: graph.clone(),
        instructions,
        places: lives.homes.iter().map(home).collect(),
        arena_bytes: placement.height,
        live_bytes: placement.lower_bound,
        file_bytes,
        state: state.clone(),
        buffers: lives.buffers.into_iter().zip(placement.offsets).collect(),
        ..like.clone()
    };
    check(graph, &plan).unwrap();
    plan
}

/// Where a value of the plain plan is.
#[derive(Clone, Copy)]
enum Now {
    Here(Value),
    /// On its way to the file.
    Leaving {
        slot: u64,
        token: Value,
        value: Value,
    },
    /// In the file, once the token is there.
    There {
        slot: u64,
        token: Option<Value>,
    },
}

struct Detours {
    from: Graph,
    to: Graph,
    now: Vec<Option<Now>>,
    file_bytes: u64,
}

/// The plan with everything going through the file, and the states that `in_file` names living there.
pub fn through_file(plain: &Plan, in_file: impl Fn(&str) -> bool) -> Plan {
    let from = plain.graph.clone();
    let state = StateLayout::with_file(plain.state.iter().map(|(name, _, ty)| (name, ty)), in_file);
    let mut to = Graph::new();
    let mut now = vec![None; from.values().len()];
    for (value, info) in from.values() {
        now[value.0 as usize] = match &info.source {
            Source::Input { name } => Some(Now::Here(to.input(name, info.ty))),
            Source::State { name } => match state.in_file(name) {
                Some((slot, _)) => Some(Now::There { slot, token: None }),
                None => Some(Now::Here(to.state(name, info.ty))),
            },
            Source::Node { .. } => None,
        };
    }
    let mut detours = Detours { from, to, now, file_bytes: state.file_bytes() };
    for instruction in &plain.instructions {
        let node = detours.from.node(instruction.node).clone();
        detours.run(&node);
    }
    for output in detours.from.outputs().to_vec() {
        let value = detours.fetch(output.value);
        detours.to.output(&output.name, value);
    }
    for old in 0..detours.now.len() {
        detours.end_write(Value(old as u32));
    }
    plan_of(&detours.to, &state, detours.file_bytes, plain)
}

impl Detours {
    fn run(&mut self, node: &Node) {
        let mut inputs: Vec<Value> = Vec::new();
        for (i, &old) in node.inputs.iter().enumerate() {
            // One fetch for an op that reads a value twice.
            let known = node.inputs[..i].iter().position(|v| *v == old);
            let value = known.map_or_else(|| self.fetch(old), |at| inputs[at]);
            inputs.push(value);
        }
        let homes: Vec<Option<Now>> = node.inputs.iter().map(|v| self.now[v.0 as usize]).collect();
        let outputs = self.to.push_shared(node.op.clone(), &inputs).unwrap();
        for (index, (&old, &new)) in node.outputs.iter().zip(&outputs).enumerate() {
            let changed = node.op.mutates().iter().find(|(_, o)| *o == index).map(|(i, _)| homes[*i]);
            self.now[old.0 as usize] = Some(match changed {
                // A state goes back to its place.
                Some(Some(Now::There { slot, .. })) => self.begin_write(slot, new),
                Some(_) => Now::Here(new),
                None if node.op.is_view() => Now::Here(new),
                None => {
                    let slot = self.file_bytes;
                    self.file_bytes += (self.to.ty(new).bytes() as u64).next_multiple_of(FILE_ALIGNMENT);
                    self.begin_write(slot, new)
                }
            });
        }
        // Two nodes' writes are under way at a time.
        for old in 0..self.now.len() {
            if let Some(Now::Leaving { value, .. }) = self.now[old]
                && !outputs.contains(&value)
            {
                self.end_write(Value(old as u32));
            }
        }
    }

    fn begin_write(&mut self, slot: u64, value: Value) -> Now {
        Now::Leaving { slot, token: self.to.push1(BeginWrite { slot }, &[value]).unwrap(), value }
    }

    fn end_write(&mut self, old: Value) {
        if let Some(Now::Leaving { slot, token, value }) = self.now[old.0 as usize] {
            let token = self.to.push1(EndWrite { slot }, &[token, value]).unwrap();
            self.now[old.0 as usize] = Some(Now::There { slot, token: Some(token) });
        }
    }

    /// The value in memory.
    fn fetch(&mut self, old: Value) -> Value {
        self.end_write(old);
        let ty = *self.from.ty(old);
        match self.now[old.0 as usize].expect("values are computed before they are read") {
            Now::Here(value) => value,
            Now::There { slot, token } => {
                let op = BeginRead { slot, dtype: ty.dtype, shape: ty.shape };
                let reading = self.to.push1(op, &token.into_iter().collect::<Vec<_>>()).unwrap();
                self.to.push1(EndRead { slot }, &[reading]).unwrap()
            }
            Now::Leaving { .. } => unreachable!("ended above"),
        }
    }
}
