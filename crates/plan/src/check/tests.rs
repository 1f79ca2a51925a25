//! Plans with transfers, made by hand: one that is right, and one for every rule that it could break.

use super::*;
use crate::lifetime::{Home, lifetimes};
use crate::{Instruction, Options, StateLayout, place};
use plimsoll_graph::op::spill::{BeginRead, BeginWrite, EndRead, EndWrite};
use plimsoll_tensor::DType;

const N: usize = 2048;

fn ty() -> TensorType {
    TensorType::new(DType::F32, [N])
}

/// A plan of a graph whose nodes run in the order in which they were added.
fn plan_of(graph: &Graph, state: &StateLayout, file_bytes: u64) -> Plan {
    graph.verify().unwrap();
    let order: Vec<_> = graph.nodes().map(|(id, _)| id).collect();
    let lives = lifetimes(graph, &order, 1);
    let sizes: Vec<_> =
        lives.buffers.iter().map(|b| place::Buffer { bytes: b.bytes, first: b.first, last: b.last }).collect();
    let placement = place::place(&sizes, place::Effort::default());
    let home = |home: &Option<Home>| match (*home)? {
        Home::Buffer(b) => Some(Place::Arena(placement.offsets[b])),
        Home::State(value) => {
            let Source::State { name } = &graph.value(value).source else { unreachable!() };
            Some(Place::State(state.get(name).map_or(0, |(offset, _)| offset)))
        }
    };
    let workspace = |step: usize| {
        let b = lives.workspaces[step]?;
        Some(placement.offsets[b]..placement.offsets[b] + lives.buffers[b].bytes)
    };
    let plain = crate::plan(&Graph::new(), state, &Options::default()).unwrap();
    Plan {
        graph: graph.clone(),
        instructions: order
            .iter()
            .enumerate()
            .map(|(i, &node)| Instruction { node, workspace: workspace(i) })
            .collect(),
        places: lives.homes.iter().map(home).collect(),
        arena_bytes: placement.height,
        file_bytes,
        ..plain
    }
}

fn check_graph(graph: &Graph, state: &StateLayout, file_bytes: u64) -> Result<(), Violation> {
    check(graph, &plan_of(graph, state, file_bytes))
}

#[track_caller]
fn refused(result: Result<(), Violation>, why: &str) {
    let message = result.expect_err(why).to_string();
    assert!(message.contains(why), "{message}\nis not about: {why}");
}

fn begin_write(g: &mut Graph, slot: u64, value: Value, after: &[Value]) -> Value {
    let inputs: Vec<Value> = [value].iter().chain(after).copied().collect();
    g.push1(BeginWrite { slot }, &inputs).unwrap()
}

fn end_write(g: &mut Graph, slot: u64, token: Value, value: Value) -> Value {
    g.push1(EndWrite { slot }, &[token, value]).unwrap()
}

fn begin_read(g: &mut Graph, slot: u64, after: &[Value]) -> Value {
    g.push1(BeginRead { slot, dtype: DType::F32, shape: [N].into() }, after).unwrap()
}

fn end_read(g: &mut Graph, slot: u64, value: Value) -> Value {
    g.push1(EndRead { slot }, &[value]).unwrap()
}

/// `exp(x)` goes to the file while something else is computed, and comes back.
struct Detour {
    g: Graph,
    y: Value,
    begun: Value,
}

fn detour(slot: u64) -> Detour {
    let mut g = Graph::new();
    let x = g.input("x", ty());
    let y = g.exp(x).unwrap();
    let begun = begin_write(&mut g, slot, y, &[]);
    Detour { g, y, begun }
}

impl Detour {
    fn there_and_back(mut self, slot: u64) -> Graph {
        let written = end_write(&mut self.g, slot, self.begun, self.y);
        let reading = begin_read(&mut self.g, slot, &[written]);
        let read = end_read(&mut self.g, slot, reading);
        let z = self.g.neg(read).unwrap();
        self.g.output("z", z);
        self.g
    }
}

fn none() -> StateLayout {
    StateLayout::default()
}

#[test]
fn a_value_may_go_to_the_file_and_come_back() {
    check_graph(&detour(4096).there_and_back(4096), &none(), 12_288).unwrap();
}

#[test]
fn slots_lie_inside_the_file_and_at_whole_blocks() {
    refused(check_graph(&detour(4096).there_and_back(4096), &none(), 12_287 - 4095), "misplaced in a file");
    refused(check_graph(&detour(64).there_and_back(64), &none(), 1 << 20), "misplaced in a file");
    refused(check_graph(&detour(u64::MAX - 4095).there_and_back(u64::MAX - 4095), &none(), 1 << 20), "misplaced");
}

#[test]
fn a_write_ends_once() {
    let d = detour(0);
    refused(check_graph(&d.g, &none(), 8192), "never ends");
    let mut d = detour(0);
    end_write(&mut d.g, 0, d.begun, d.y);
    end_write(&mut d.g, 0, d.begun, d.y);
    refused(check_graph(&d.g, &none(), 8192), "is not being written");
    let mut d = detour(0);
    end_write(&mut d.g, 4096, d.begun, d.y);
    refused(check_graph(&d.g, &none(), 8192), "is not being written");
    let mut d = detour(0);
    let other = d.g.neg(d.y).unwrap();
    end_write(&mut d.g, 0, d.begun, other);
    refused(check_graph(&d.g, &none(), 8192), "is not being written");
}

#[test]
fn a_value_is_intact_until_it_is_written() {
    let mut d = detour(0);
    let z = d.g.neg(d.y).unwrap();
    end_write(&mut d.g, 0, d.begun, d.y);
    d.g.output("z", z);
    let mut plan = plan_of(&d.g, &none(), 8192);
    check(&d.g, &plan).unwrap();
    // `z` is put where `y` is, which `neg` itself would allow.
    plan.places[z.0 as usize] = plan.places[d.y.0 as usize];
    refused(check(&d.g, &plan), "end_write reads %1, which is not intact");
}

#[test]
fn a_read_ends_once_and_nothing_sees_it_before() {
    let graph = |finish: fn(&mut Graph, Value)| {
        let mut d = detour(0);
        let written = end_write(&mut d.g, 0, d.begun, d.y);
        let reading = begin_read(&mut d.g, 0, &[written]);
        finish(&mut d.g, reading);
        check_graph(&d.g, &none(), 8192)
    };
    refused(graph(|_, _| ()), "never ends");
    let twice = |g: &mut Graph, v: Value| {
        end_read(g, 0, v);
        end_read(g, 0, v);
    };
    refused(graph(twice), "is not being read");
    refused(graph(|g, v| assert_ne!(end_read(g, 4096, v), v)), "is not being read");
    refused(graph(|g, v| assert!(g.neg(v).is_ok())), "which is not read from the file yet");
    // Even after the end: only the value of `end_read` waits for it.
    let late = |g: &mut Graph, v: Value| {
        end_read(g, 0, v);
        g.neg(v).unwrap();
    };
    refused(graph(late), "which is not read from the file yet");
    let output = |g: &mut Graph, v: Value| {
        end_read(g, 0, v);
        g.output("v", v);
    };
    refused(graph(output), "output 'v' is a value that is not read");
}

#[test]
fn memory_that_is_read_into_is_left_alone() {
    let mut d = detour(0);
    let written = end_write(&mut d.g, 0, d.begun, d.y);
    let reading = begin_read(&mut d.g, 0, &[written]);
    let x = d.g.inputs().next().unwrap().0;
    let other = d.g.neg(x).unwrap();
    let read = end_read(&mut d.g, 0, reading);
    let z = d.g.add(read, other).unwrap();
    d.g.output("z", z);
    let mut plan = plan_of(&d.g, &none(), 8192);
    check(&d.g, &plan).unwrap();
    plan.places[other.0 as usize] = plan.places[reading.0 as usize];
    refused(check(&d.g, &plan), "end_read reads");
}

#[test]
fn a_slot_that_is_read_was_written_for_the_reader() {
    let mut g = Graph::new();
    let reading = begin_read(&mut g, 0, &[]);
    end_read(&mut g, 0, reading);
    refused(check_graph(&g, &none(), 8192), "where no f32[2048] is");

    // Written, but nothing makes the reader wait.
    let mut d = detour(0);
    end_write(&mut d.g, 0, d.begun, d.y);
    let reading = begin_read(&mut d.g, 0, &[]);
    end_read(&mut d.g, 0, reading);
    refused(check_graph(&d.g, &none(), 8192), "without waiting for end_write");

    // Overwritten by another value, whole or in part, in between.
    for (slot, why) in [(0, "without waiting for end_write"), (4096, "where no f32[2048] is")] {
        let mut d = detour(0);
        let written = end_write(&mut d.g, 0, d.begun, d.y);
        let x = d.g.inputs().next().unwrap().0;
        let begun = begin_write(&mut d.g, slot, x, &[]);
        end_write(&mut d.g, slot, begun, x);
        let reading = begin_read(&mut d.g, 0, &[written]);
        end_read(&mut d.g, 0, reading);
        refused(check_graph(&d.g, &none(), 1 << 20), why);
    }
}

#[test]
fn slots_in_use_do_not_overlap() {
    for slot in [0, 4096] {
        let mut d = detour(0);
        let x = d.g.inputs().next().unwrap().0;
        let begun = begin_write(&mut d.g, slot, x, &[]);
        end_write(&mut d.g, 0, d.begun, d.y);
        end_write(&mut d.g, slot, begun, x);
        refused(check_graph(&d.g, &none(), 1 << 20), "is used while");
    }
    // A read that begins before the write is over.
    let mut d = detour(0);
    let reading = begin_read(&mut d.g, 0, &[d.begun]);
    end_write(&mut d.g, 0, d.begun, d.y);
    end_read(&mut d.g, 0, reading);
    refused(check_graph(&d.g, &none(), 8192), "is used while");
}

/// A state `w` in the file at slot 0, and one `v` behind it.
fn layout() -> StateLayout {
    StateLayout::with_file([("w", ty()), ("v", ty())], |_| true)
}

/// Reads the state, changes it in place.
fn changed() -> (Graph, Value, Value) {
    let mut g = Graph::new();
    let x = g.input("x", ty());
    let reading = begin_read(&mut g, 0, &[]);
    let before = end_read(&mut g, 0, reading);
    let after = g.assign(before, x).unwrap();
    (g, before, after)
}

fn write_whole(g: &mut Graph, slot: u64, value: Value) -> Value {
    let begun = begin_write(g, slot, value, &[]);
    end_write(g, slot, begun, value)
}

#[test]
fn a_state_in_the_file_is_read_changed_and_written_back() {
    let (mut g, _, after) = changed();
    write_whole(&mut g, 0, after);
    check_graph(&g, &layout(), 16_384).unwrap();
    // Only read.
    let mut g = Graph::new();
    let reading = begin_read(&mut g, 8192, &[]);
    end_read(&mut g, 8192, reading);
    check_graph(&g, &layout(), 16_384).unwrap();
    // Replaced without being read.
    let mut g = Graph::new();
    let x = g.input("x", ty());
    write_whole(&mut g, 0, x);
    check_graph(&g, &layout(), 16_384).unwrap();
}

#[test]
fn a_change_is_not_lost() {
    let (g, ..) = changed();
    refused(check_graph(&g, &layout(), 16_384), "state 'w' is not in the file with its newest value");
    // Something else is written instead.
    let (mut g, _, _) = changed();
    let x = g.inputs().next().unwrap().0;
    write_whole(&mut g, 0, x);
    refused(check_graph(&g, &layout(), 16_384), "instead of a newer value");
    // The new value of one state in the place of the other.
    let (mut g, _, after) = changed();
    write_whole(&mut g, 8192, after);
    refused(check_graph(&g, &layout(), 16_384), "state 'w' is not in the file");
    // Changed twice, from the same old value.
    let (mut g, _, after) = changed();
    let written = write_whole(&mut g, 0, after);
    let reading = begin_read(&mut g, 0, &[written]);
    let again = end_read(&mut g, 0, reading);
    let x = g.inputs().next().unwrap().0;
    let newer = g.assign(again, x).unwrap();
    refused(check_graph(&g, &layout(), 16_384), "state 'w' is not in the file");
    write_whole(&mut g, 0, newer);
    check_graph(&g, &layout(), 16_384).unwrap();
    let mut g = Graph::new();
    let x = g.input("x", ty());
    let copies: Vec<Value> = (0..2)
        .map(|_| {
            let reading = begin_read(&mut g, 0, &[]);
            end_read(&mut g, 0, reading)
        })
        .collect();
    g.assign(copies[0], x).unwrap();
    g.assign(copies[1], x).unwrap();
    refused(check_graph(&g, &layout(), 16_384), "which is not the state's newest value");
}

#[test]
fn the_room_of_states_is_theirs() {
    let mut d = detour(4096);
    end_write(&mut d.g, 4096, d.begun, d.y);
    refused(check_graph(&d.g, &layout(), 16_384), "is written over state");
    refused(check_graph(&Graph::new(), &layout(), 8192), "its states need 16384");
    let mut g = Graph::new();
    g.state("w", ty());
    refused(check_graph(&g, &layout(), 16_384), "%0 is state 'w', whose home is the file");
}

#[test]
fn only_states_are_changed_in_place() {
    let mut d = detour(0);
    let written = end_write(&mut d.g, 0, d.begun, d.y);
    let reading = begin_read(&mut d.g, 0, &[written]);
    let read = end_read(&mut d.g, 0, reading);
    let x = d.g.inputs().next().unwrap().0;
    d.g.assign(read, x).unwrap();
    refused(check_graph(&d.g, &none(), 8192), "which is no state");
}
