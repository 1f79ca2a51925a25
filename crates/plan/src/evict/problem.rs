//! What the search for evictions works on: pieces of memory and the tasks that need them, in the order they run.

use crate::cost::Work;
use crate::{Options, StateLayout};
use plimsoll_graph::{Graph, NodeId, Source, Types, Value};
use plimsoll_tensor::TensorType;

/// Where a unit is before the first task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nowhere: a task makes it.
    Nowhere,
    /// In memory: an input of the graph.
    Memory,
    /// In the file: a state that lives there.
    File,
}

/// A piece of memory: a value and its views.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Its size in memory.
    pub bytes: u64,
    /// Where it is at first.
    pub start: Start,
    /// The task that makes it.
    pub maker: Option<usize>,
    /// The tasks that read it, in rising order.
    pub uses: Vec<usize>,
    /// Whether it must be in the file at the end: the newest version of a state that lives there.
    pub write_back: bool,
    /// Seconds to write it to the file.
    pub write_seconds: f64,
    /// Seconds to read it from the file.
    pub read_seconds: f64,
    /// Seconds that either takes from the computation beside it.
    pub beside_seconds: f64,
    /// The value that stands for it in the graph.
    pub value: Value,
    /// Where in the file its state lives, if it is one.
    pub slot: Option<u64>,
}

impl Unit {
    /// A unit that a task makes, of so many bytes, that never goes to the file.
    pub fn new(bytes: u64) -> Unit {
        Unit {
            bytes,
            start: Start::Nowhere,
            maker: None,
            uses: Vec::new(),
            write_back: false,
            write_seconds: 0.0,
            beside_seconds: 0.0,
            read_seconds: 0.0,
            value: Value(0),
            slot: None,
        }
    }
}

/// Something that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The node; `None` for the end of the step, which only reads the graph's outputs.
    pub node: Option<NodeId>,
    /// The units it reads, each once.
    pub inputs: Vec<usize>,
    /// The units it makes.
    pub outputs: Vec<usize>,
    /// Bytes needed while it runs.
    pub workspace: u64,
    /// How long it runs.
    pub seconds: f64,
    /// Pairs (input, output) of one size: the output may be written over the input, should that die here.
    pub overwrites: Vec<(usize, usize)>,
    /// Pairs (input, output): the output is the input's memory, changed.
    pub changes: Vec<(usize, usize)>,
    /// The last step of the order at which it can run again; `None` when it cannot.
    pub again_until: Option<usize>,
}

impl Task {
    /// A pure task.
    pub fn new(inputs: &[usize], outputs: &[usize], seconds: f64) -> Task {
        Task {
            node: None,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            workspace: 0,
            seconds,
            overwrites: Vec::new(),
            changes: Vec::new(),
            again_until: Some(usize::MAX),
        }
    }

    /// Whether it can run again when the order has come to a step.
    pub(super) fn is_repeatable(&self, step: usize) -> bool {
        self.again_until.is_some_and(|until| step <= until)
    }
}

/// Units and the tasks that make and read them. Task `i` runs first at step `i` of the order; between, tasks can run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The pieces of memory.
    pub units: Vec<Unit>,
    /// In order.
    pub tasks: Vec<Task>,
    /// Whether tasks may run again.
    pub recompute: bool,
    /// Whether values may be moved to the file.
    pub spill: bool,
    /// Seconds of all tasks.
    pub seconds: f64,
    /// What is made from each unit, one unit after another: the task and what it makes, in the order of tasks. And where each unit's
    /// begin.
    made: Vec<(u32, u32)>,
    first_made: Vec<u32>,
}

/// Sizes as they are placed.
fn aligned(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(crate::place::ALIGNMENT)
}

impl Problem {
    /// A problem of these units and tasks; makers and uses are found here.
    ///
    /// ```
    /// use plimsoll_plan::evict::{Effort, Problem, Task, Unit};
    /// // a -> b -> c, and the last task needs a and c: with room for two of them a is computed again.
    /// let units = vec![Unit::new(64), Unit::new(64), Unit::new(64), Unit::new(64)];
    /// let tasks = vec![
    ///     Task::new(&[], &[0], 1.0),
    ///     Task::new(&[0], &[1], 2.0),
    ///     Task::new(&[1], &[2], 4.0),
    ///     Task::new(&[0], &[3], 1.0),
    /// ];
    /// let problem = Problem::new(units, tasks, true, false);
    /// assert_eq!(problem.solve(192, Effort::default()).unwrap().seconds, 8.0);
    /// assert_eq!(problem.solve(128, Effort::default()).unwrap().seconds, 9.0);
    /// assert!(problem.solve(64, Effort::default()).is_none());
    /// ```
    pub fn new(mut units: Vec<Unit>, tasks: Vec<Task>, recompute: bool, spill: bool) -> Problem {
        for (step, task) in tasks.iter().enumerate() {
            task.outputs.iter().for_each(|&unit| units[unit].maker = Some(step));
            task.inputs.iter().for_each(|&unit| units[unit].uses.push(step));
        }
        let seconds = tasks.iter().map(|t| t.seconds).sum();
        let (mut made, mut first_made) = (Vec::new(), vec![0]);
        for unit in &units {
            for &task in &unit.uses {
                made.extend(tasks[task].outputs.iter().map(|&output| (task as u32, output as u32)));
            }
            first_made.push(made.len() as u32);
        }
        Problem { units, tasks, recompute, spill, seconds, made, first_made }
    }

    /// The tasks that read a unit with what they make, in the order of tasks.
    pub(super) fn made_from(&self, unit: u32) -> &[(u32, u32)] {
        let unit = unit as usize;
        &self.made[self.first_made[unit] as usize..self.first_made[unit + 1] as usize]
    }

    /// Seconds to write and read everything that can be moved to the file once; 0 when nothing may be moved.
    pub fn transfer_seconds(&self) -> f64 {
        let movable = (0..self.units.len()).filter(|&u| self.can_spill(u)).map(|u| &self.units[u]);
        movable.map(|u| u.write_seconds + u.read_seconds).sum()
    }

    /// The problem of a graph whose nodes run in this order. Views belong to the unit of what they are views of; states in
    /// memory are nobody's unit.
    pub fn of(graph: &Graph, order: &[NodeId], state: &StateLayout, options: &Options) -> Problem {
        let costs = &options.costs;
        let mut units: Vec<Unit> = Vec::new();
        let mut unit_of: Vec<Option<usize>> = vec![None; graph.values().len()];
        let open = |units: &mut Vec<Unit>, value: Value, start: Start, slot: Option<u64>| {
            let bytes = graph.ty(value).bytes();
            let (write_seconds, read_seconds) = (costs.write_seconds(bytes as u64), costs.read_seconds(bytes as u64));
            let beside_seconds = costs.beside_seconds(bytes as u64);
            units.push(Unit {
                start,
                write_seconds,
                read_seconds,
                beside_seconds,
                value,
                slot,
                ..Unit::new(aligned(bytes))
            });
            Some(units.len() - 1)
        };
        for (value, info) in graph.values() {
            unit_of[value.0 as usize] = match &info.source {
                Source::Input { .. } => open(&mut units, value, Start::Memory, None),
                Source::State { name } => {
                    state.in_file(name).and_then(|(slot, _)| open(&mut units, value, Start::File, Some(slot)))
                }
                Source::Node { .. } => None,
            };
        }
        let mut root: Vec<Value> = graph.values().map(|(v, _)| v).collect();
        let mut tasks: Vec<Task> = Vec::new();
        let mut changed_at = vec![usize::MAX; graph.values().len()];
        let mut reads_states: Vec<Vec<Value>> = Vec::new();
        for &id in order {
            let node = graph.node(id);
            if node.op.is_view() {
                let (from, to) = (node.inputs[0], node.outputs[0]);
                unit_of[to.0 as usize] = unit_of[from.0 as usize];
                root[to.0 as usize] = root[from.0 as usize];
                continue;
            }
            let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
            let (in_types, out_types) = (of(&node.inputs), of(&node.outputs));
            let types = Types { inputs: &in_types, outputs: &out_types };
            let mut task = Task::new(&[], &[], costs.seconds(node.op.name(), &Work::of(graph, node)));
            task.node = Some(id);
            task.workspace = aligned(node.op.workspace(&types, options.threads));
            for (index, &output) in node.outputs.iter().enumerate() {
                let changed = node.op.mutates().iter().find(|(_, o)| *o == index).map(|(i, _)| node.inputs[*i]);
                let Some(from) = changed else {
                    unit_of[output.0 as usize] = open(&mut units, output, Start::Nowhere, None);
                    continue;
                };
                changed_at[root[from.0 as usize].0 as usize] = tasks.len();
                if let Some(old) = unit_of[from.0 as usize] {
                    let slot = units[old].slot;
                    let new = open(&mut units, output, Start::Nowhere, slot);
                    units[old].write_back = false;
                    units[new.expect("just opened")].write_back = true;
                    task.changes.push((old, new.expect("just opened")));
                    unit_of[output.0 as usize] = new;
                }
            }
            task.outputs = node.outputs.iter().filter_map(|v| unit_of[v.0 as usize]).collect();
            task.inputs = node.inputs.iter().filter_map(|v| unit_of[v.0 as usize]).collect();
            for (o, output) in node.outputs.iter().enumerate() {
                for (i, input) in node.inputs.iter().enumerate() {
                    if let (Some(to), Some(from)) = (unit_of[output.0 as usize], unit_of[input.0 as usize])
                        && to != from
                        // What the op reads twice must not be written while it is read the other way.
                        && task.inputs.iter().filter(|u| **u == from).count() == 1
                        && graph.ty(units[from].value).bytes() == types.outputs[o].bytes()
                        && node.op.may_overwrite(i, o, &types)
                    {
                        task.overwrites.push((from, to));
                    }
                }
            }
            task.inputs.sort_unstable();
            task.inputs.dedup();
            if !node.op.repeats() {
                task.again_until = None;
            }
            reads_states.push(node.inputs.iter().map(|v| root[v.0 as usize]).collect());
            tasks.push(task);
        }
        // A repeat reads states as they were: they must not have changed since.
        for (task, reads) in tasks.iter_mut().zip(&reads_states) {
            let until = reads.iter().map(|v| changed_at[v.0 as usize]).min().unwrap_or(usize::MAX);
            task.again_until = task.again_until.map(|_| until);
        }
        let mut end = Task::new(&[], &[], 0.0);
        end.inputs = graph.outputs().iter().filter_map(|o| unit_of[o.value.0 as usize]).collect();
        end.inputs.sort_unstable();
        end.inputs.dedup();
        tasks.push(end);
        Problem::new(units, tasks, options.recompute, options.spill)
    }

    /// Whether a unit can leave memory and come back later without running its task again.
    pub(super) fn can_spill(&self, unit: usize) -> bool {
        self.spill || self.units[unit].slot.is_some()
    }
}
