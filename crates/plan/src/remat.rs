//! Recomputing: values that do not fit are dropped and computed again when they are needed.
//!
//! The step is simulated under the limit with the future known. Where a value does not fit, the resident value that is cheapest to
//! make again for its size and for the time until it is needed is dropped (the idea of dynamic tensor rematerialisation, with
//! exact knowledge of the next use instead of guesses). A few settings of that trade are tried, and the keys of single values
//! are varied at random, with a fixed seed and a fixed number of trials, keeping what is cheaper.
//!
//! The result is an ordinary graph, in which a recomputed node simply stands twice, and an order of its nodes: all phases after
//! this one, and the checker, need to know nothing of recomputing. Pure ops alone are repeated, and a random value is a
//! function of its key, so the numbers stay the same, bit for bit.

use crate::Options;
use plimsoll_graph::{Graph, GraphError, NodeId, Source, Types, Value};
use plimsoll_tensor::TensorType;

/// A graph in which some nodes stand more than once, in the order they run.
#[derive(Clone, Debug)]
pub struct Recomputed {
    /// The graph with repeated nodes.
    pub graph: Graph,
    /// The order of its nodes.
    pub order: Vec<NodeId>,
    /// How many nodes stand again.
    pub repeats: usize,
    /// Time of all nodes, by the cost model.
    pub seconds: f64,
    /// Of which repeated.
    pub extra_seconds: f64,
}

/// How values are ranked for dropping: cost^a / (bytes^b * distance^c).
#[derive(Clone, Copy, Debug)]
struct Ranking {
    cost: f64,
    bytes: f64,
    distance: f64,
}

const RANKINGS: [Ranking; 6] = [
    Ranking { cost: 1.0, bytes: 1.0, distance: 1.0 },
    Ranking { cost: 1.0, bytes: 1.0, distance: 0.5 },
    Ranking { cost: 1.0, bytes: 1.0, distance: 2.0 },
    Ranking { cost: 1.0, bytes: 1.0, distance: 0.0 },
    Ranking { cost: 0.5, bytes: 1.0, distance: 1.0 },
    Ranking { cost: 2.0, bytes: 1.0, distance: 1.0 },
];

/// The cheapest way found to run the nodes in this order with at most `limit` bytes alive, or `None` when none was found.
///
/// `trials` bounds the random search; 0 tries the fixed rankings alone.
///
/// # Errors
/// When the graph breaks its own rules.
pub fn recompute(
    graph: &Graph,
    order: &[NodeId],
    limit: u64,
    options: &Options,
    trials: usize,
) -> Result<Option<Recomputed>, GraphError> {
    let problem = Problem::new(graph, order, options);
    let mut keys = vec![1.0; problem.values.len()];
    let mut best: Option<(Run, Ranking)> = None;
    for ranking in RANKINGS {
        let bound = best.as_ref().map_or(f64::INFINITY, |(run, _)| run.seconds);
        if let Some(run) = problem.simulate(limit, ranking, &keys, bound) {
            best = Some((run, ranking));
        }
    }
    let Some((mut run, ranking)) = best else { return Ok(None) };
    let mut dice = 0x2545_f491_4f6c_dd1du64;
    let mut roll = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize
    };
    for _ in 0..trials {
        if run.seconds <= problem.seconds {
            break;
        }
        let mut tried = keys.clone();
        for _ in 0..1 + roll() % 3 {
            let at = roll() % tried.len();
            tried[at] *= [0.2, 0.5, 2.0, 5.0][roll() % 4];
        }
        if let Some(better) = problem.simulate(limit, ranking, &tried, run.seconds) {
            (run, keys) = (better, tried);
        }
    }
    let extra_seconds = run.seconds - problem.seconds;
    rebuild(graph, &run, extra_seconds).map(Some)
}

/// A piece of memory: a value and its views.
struct Unit {
    bytes: u64,
    /// The node that makes it; `None` for inputs.
    node: Option<usize>,
    /// The steps of the order that read it.
    uses: Vec<u32>,
    /// Stays until the end: an output of the graph.
    kept: bool,
}

/// A node as the simulation sees it.
struct Task {
    id: NodeId,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    workspace: u64,
    seconds: f64,
    /// Inputs whose memory an output can take over.
    overwrites: Vec<(usize, usize)>,
    pure: bool,
    /// For each state version it reads: the step after which that version is gone.
    valid_until: u32,
}

struct Problem {
    values: Vec<Unit>,
    /// By node.
    tasks: Vec<Task>,
    order: Vec<usize>,
    seconds: f64,
    inputs: Vec<usize>,
}

/// A simulated run: the nodes in the order they run, repeats included.
struct Run {
    nodes: Vec<NodeId>,
    seconds: f64,
}

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(64)
}

impl Problem {
    fn new(graph: &Graph, order: &[NodeId], options: &Options) -> Problem {
        let n_values = graph.values().len();
        // Views belong to the unit of what they are views of; states are nobody's unit.
        let mut unit_of: Vec<Option<usize>> = vec![None; n_values];
        let mut values: Vec<Unit> = Vec::new();
        let mut inputs = Vec::new();
        for (value, info) in graph.values() {
            if let Source::Input { .. } = info.source {
                unit_of[value.0 as usize] = Some(values.len());
                inputs.push(values.len());
                values.push(Unit { bytes: aligned(info.ty.bytes() as u64), node: None, uses: Vec::new(), kept: false });
            }
        }
        let changed_at = state_changes(graph, order);
        let mut tasks: Vec<Task> = Vec::with_capacity(graph.nodes().len());
        for (id, node) in graph.nodes() {
            let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
            let (in_types, out_types) = (of(&node.inputs), of(&node.outputs));
            let types = Types { inputs: &in_types, outputs: &out_types };
            let mut outputs = Vec::new();
            for (index, &output) in node.outputs.iter().enumerate() {
                let changes = node.op.mutates().iter().any(|(_, o)| *o == index);
                unit_of[output.0 as usize] = if node.op.is_view() {
                    unit_of[node.inputs[0].0 as usize]
                } else if changes {
                    None
                } else {
                    let bytes = aligned(graph.ty(output).bytes() as u64);
                    values.push(Unit { bytes, node: Some(id.0 as usize), uses: Vec::new(), kept: false });
                    outputs.push(values.len() - 1);
                    Some(values.len() - 1)
                };
            }
            let mut reads: Vec<usize> = node.inputs.iter().filter_map(|v| unit_of[v.0 as usize]).collect();
            reads.sort_unstable();
            reads.dedup();
            let mut overwrites = Vec::new();
            for (o, output) in node.outputs.iter().enumerate() {
                for (i, input) in node.inputs.iter().enumerate() {
                    if let (Some(to), Some(from)) = (unit_of[output.0 as usize], unit_of[input.0 as usize])
                        && to != from
                        && node.op.may_overwrite(i, o, &types)
                    {
                        overwrites.push((from, to));
                    }
                }
            }
            let root = |mut v: Value| {
                while let Some(node) = graph.producer(v).map(|id| graph.node(id)).filter(|n| n.op.is_view()) {
                    v = node.inputs[0];
                }
                v
            };
            let valid_until = node.inputs.iter().map(|&v| changed_at[root(v).0 as usize]).min().unwrap_or(u32::MAX);
            tasks.push(Task {
                id,
                inputs: reads,
                outputs,
                workspace: aligned(node.op.workspace(&types, options.threads) as u64),
                seconds: if node.op.is_view() {
                    0.0
                } else {
                    options.costs.seconds(node.op.name(), &node.op.cost(&types))
                },
                overwrites,
                pure: node.op.mutates().is_empty(),
                valid_until,
            });
        }
        for (step, id) in order.iter().enumerate() {
            for &input in &tasks[id.0 as usize].inputs {
                values[input].uses.push(step as u32);
            }
        }
        for output in graph.outputs() {
            if let Some(unit) = unit_of[output.value.0 as usize] {
                values[unit].kept = true;
            }
        }
        let seconds = tasks.iter().map(|t| t.seconds).sum();
        Problem { values, order: order.iter().map(|id| id.0 as usize).collect(), tasks, seconds, inputs }
    }

    fn simulate(&self, limit: u64, ranking: Ranking, keys: &[f64], bound: f64) -> Option<Run> {
        let mut s = Simulation {
            problem: self,
            limit,
            ranking,
            keys,
            bound,
            resident: vec![false; self.values.len()],
            live: Vec::new(),
            locks: vec![0; self.values.len()],
            next: vec![0; self.values.len()],
            bytes: 0,
            run: Run { nodes: Vec::with_capacity(self.order.len()), seconds: 0.0 },
            step: 0,
        };
        for &input in &self.inputs {
            s.enter(input);
        }
        if s.bytes > limit {
            return None;
        }
        for (step, &task) in self.order.iter().enumerate() {
            s.step = step as u32;
            s.execute(task, 0)?;
            s.forget_dead();
        }
        Some(s.run)
    }
}

/// The step at which each version of a state is changed; the end of time for all other values.
fn state_changes(graph: &Graph, order: &[NodeId]) -> Vec<u32> {
    let mut changed = vec![u32::MAX; graph.values().len()];
    for (step, &id) in order.iter().enumerate() {
        let node = graph.node(id);
        for &(input, _) in node.op.mutates() {
            changed[node.inputs[input].0 as usize] = step as u32;
        }
    }
    changed
}

struct Simulation<'a> {
    problem: &'a Problem,
    limit: u64,
    ranking: Ranking,
    keys: &'a [f64],
    bound: f64,
    resident: Vec<bool>,
    /// The resident units, in no order.
    live: Vec<usize>,
    locks: Vec<u32>,
    /// How many of a unit's uses are over.
    next: Vec<usize>,
    bytes: u64,
    run: Run,
    step: u32,
}

/// How deep recomputing may call for recomputing.
const DEPTH: usize = 200;

impl Simulation<'_> {
    fn enter(&mut self, unit: usize) {
        self.resident[unit] = true;
        self.live.push(unit);
        self.bytes += self.problem.values[unit].bytes;
    }

    fn leave(&mut self, unit: usize) {
        self.resident[unit] = false;
        let at = self.live.iter().position(|&u| u == unit).expect("a resident unit is live");
        self.live.swap_remove(at);
        self.bytes -= self.problem.values[unit].bytes;
    }

    /// The next step that needs a unit, or `None` when none does.
    fn next_use(&self, unit: usize) -> Option<u32> {
        let uses = &self.problem.values[unit].uses;
        uses[self.next[unit]..].iter().copied().find(|&u| u >= self.step)
    }

    /// Runs a node, making its inputs again where they were dropped.
    fn execute(&mut self, task: usize, depth: usize) -> Option<()> {
        let t = &self.problem.tasks[task];
        // A repeat reads states as they were: they must not have changed since.
        if depth > DEPTH || depth > 0 && (!t.pure || self.step > t.valid_until) || self.run.seconds >= self.bound {
            return None;
        }
        for &input in &t.inputs {
            self.locks[input] += 1;
        }
        for &input in &t.inputs {
            if !self.resident[input] {
                self.execute(self.problem.values[input].node?, depth + 1)?;
            }
        }
        // An output may take the place of an input that nobody needs after this.
        let mut reused: Vec<usize> = Vec::new();
        let mut needed = t.workspace;
        let mut entering = Vec::new();
        for &output in &t.outputs {
            if self.resident[output] {
                continue;
            }
            entering.push(output);
            let bytes = self.problem.values[output].bytes;
            let free = t.overwrites.iter().find(|&&(from, to)| {
                to == output && self.problem.values[from].bytes == bytes && !reused.contains(&from) && self.dies(from)
            });
            match free {
                Some(&(from, _)) => reused.push(from),
                None => needed += bytes,
            }
        }
        while self.bytes + needed > self.limit {
            self.drop_one()?;
        }
        for from in reused {
            self.leave(from);
        }
        for output in entering {
            self.enter(output);
        }
        self.run.nodes.push(t.id);
        self.run.seconds += t.seconds;
        for &input in &t.inputs {
            self.locks[input] -= 1;
        }
        Some(())
    }

    /// Whether a unit is needed by nobody after the node that runs now.
    fn dies(&self, unit: usize) -> bool {
        let value = &self.problem.values[unit];
        !value.kept && self.locks[unit] == 1 && value.uses[self.next[unit]..].iter().all(|&u| u <= self.step)
    }

    /// Drops the unit that ranks lowest.
    fn drop_one(&mut self) -> Option<()> {
        let mut lowest: Option<(f64, usize)> = None;
        for &unit in &self.live {
            let value = &self.problem.values[unit];
            let Some(node) = value.node.filter(|_| self.locks[unit] == 0) else { continue };
            let Some(next) = self.next_use(unit) else {
                // Made on the way to something else, and needed by nobody: goes first, unless it is an output.
                if !value.kept {
                    lowest = Some((f64::NEG_INFINITY, unit));
                    break;
                }
                continue;
            };
            if value.kept || !self.can_return(node, next) {
                continue;
            }
            let cost = self.closure_seconds(node);
            let distance = (next - self.step).max(1) as f64;
            let r = self.ranking;
            let rank = self.keys[unit] * cost.powf(r.cost)
                / ((value.bytes.max(64) as f64).powf(r.bytes) * distance.powf(r.distance));
            if lowest.is_none_or(|(l, _)| rank < l) {
                lowest = Some((rank, unit));
            }
        }
        let (_, unit) = lowest?;
        self.leave(unit);
        Some(())
    }

    /// Whether a node can be run again at a later step.
    fn can_return(&self, node: usize, step: u32) -> bool {
        let t = &self.problem.tasks[node];
        t.pure && step <= t.valid_until
    }

    /// The time to make a node's output again, with everything dropped that it needs.
    fn closure_seconds(&self, node: usize) -> f64 {
        let mut total = 0.0;
        let mut stack = vec![node];
        let mut seen = vec![node];
        while let Some(node) = stack.pop() {
            let t = &self.problem.tasks[node];
            total += t.seconds;
            if seen.len() > 60 {
                break;
            }
            for &input in &t.inputs {
                if let (false, Some(producer)) = (self.resident[input], self.problem.values[input].node)
                    && !seen.contains(&producer)
                {
                    seen.push(producer);
                    stack.push(producer);
                }
            }
        }
        total
    }

    /// After a step of the order: what nobody reads any more goes.
    fn forget_dead(&mut self) {
        let mut i = 0;
        while i < self.live.len() {
            let unit = self.live[i];
            let value = &self.problem.values[unit];
            while value.uses.get(self.next[unit]).is_some_and(|&u| u <= self.step) {
                self.next[unit] += 1;
            }
            if !value.kept && self.next[unit] == value.uses.len() {
                self.leave(unit);
            } else {
                i += 1;
            }
        }
    }
}

/// The graph of a run: a node for every time one runs.
fn rebuild(graph: &Graph, run: &Run, extra_seconds: f64) -> Result<Recomputed, GraphError> {
    let mut new = Graph::new();
    let mut map: Vec<Option<Value>> = vec![None; graph.values().len()];
    for (value, info) in graph.values() {
        map[value.0 as usize] = match &info.source {
            Source::Input { name } => Some(new.input(name, info.ty)),
            Source::State { name } => Some(new.state(name, info.ty)),
            Source::Node { .. } => None,
        };
    }
    let mut ran = vec![false; graph.nodes().len()];
    for &id in &run.nodes {
        let node = graph.node(id);
        new.set_layer(&node.layer);
        let inputs: Vec<Value> = node.inputs.iter().map(|v| map[v.0 as usize].expect("inputs run first")).collect();
        let outputs = new.push_shared(node.op.clone(), &inputs)?;
        for (from, to) in node.outputs.iter().zip(outputs) {
            map[from.0 as usize] = Some(to);
        }
        if std::mem::replace(&mut ran[id.0 as usize], true) {
            rebuild_views(graph, &mut new, &mut map, &node.outputs)?;
        }
    }
    for output in graph.outputs() {
        new.output(&output.name, map[output.value.0 as usize].expect("outputs were computed"));
    }
    let order: Vec<NodeId> = new.nodes().map(|(id, _)| id).collect();
    let repeats = run.nodes.len() - graph.nodes().len();
    Ok(Recomputed { graph: new, order, repeats, seconds: run.seconds, extra_seconds })
}

/// Views follow what they are views of: when that is made again, so are they.
fn rebuild_views(
    graph: &Graph,
    new: &mut Graph,
    map: &mut [Option<Value>],
    outputs: &[Value],
) -> Result<(), GraphError> {
    for (_, node) in graph.nodes().filter(|(_, n)| n.op.is_view()) {
        let stale = outputs.contains(&node.inputs[0]) && map[node.outputs[0].0 as usize].is_some();
        if stale {
            new.set_layer(&node.layer);
            let input = map[node.inputs[0].0 as usize].expect("just made");
            map[node.outputs[0].0 as usize] = Some(new.push_shared(node.op.clone(), &[input])?[0]);
            rebuild_views(graph, new, map, &node.outputs)?;
        }
    }
    Ok(())
}
