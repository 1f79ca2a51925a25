//! Simplifying and fusing: chains of element-wise ops become one pass over memory.
//!
//! In goes a traced graph; out comes an equal graph without dead and repeated nodes, in which every element-wise op is part
//! of a [`Fused`] program. A value inside a program never reaches the arena. A value that several programs read is computed
//! again in each of them when that is cheap and keeps nothing else alive (a dropout mask, the inner part of a GELU);
//! otherwise it is stored once. Next: `schedule.rs`.

use plimsoll_graph::op::elementwise::{self, Fused};
use plimsoll_graph::{Graph, GraphError, Node, NodeId, OpDef, Source, Value};
use plimsoll_kernels::pointwise::{Program, Step, Unary};
use plimsoll_tensor::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// The most steps of a fused program: beyond that the block buffers leave the first-level cache.
const MAX_STEPS: usize = 40;

/// The most inputs of a fused program.
const MAX_INPUTS: usize = 8;

/// A value that several programs read is computed again in each if its chain costs at most this many multiply-adds per
/// element: about what storing and reading it costs.
const CHEAP: u64 = 40;

/// An equal graph in which element-wise chains are fused.
///
/// # Errors
/// When the graph breaks its own rules.
pub fn fuse(graph: &Graph) -> Result<Graph, GraphError> {
    let lean = simplify(graph)?;
    emit(&lean, &decide(&lean))
}

/// The graph without nodes that nobody needs or that only the gradient asked for, and with equal nodes made once.
fn simplify(graph: &Graph) -> Result<Graph, GraphError> {
    let needed = needed_nodes(graph);
    let mut lean = Graph::new();
    let mut map: Vec<Option<Value>> = vec![None; graph.values().len()];
    let mut seen: HashMap<String, Vec<Value>> = HashMap::new();
    copy_sources(graph, &mut lean, &mut map);
    for (id, node) in graph.nodes() {
        if !needed[id.0 as usize] {
            continue;
        }
        let inputs: Vec<Value> =
            node.computed_from().iter().map(|v| map[v.0 as usize].expect("inputs come first")).collect();
        if node.op.passes_on() {
            inputs.iter().zip(&node.outputs).for_each(|(from, to)| map[to.0 as usize] = Some(*from));
            continue;
        }
        let key = format!("{} {:?} {:?}", node.op.name(), node.op.attrs(), inputs);
        let outputs = match seen.get(&key) {
            Some(outputs) if node.op.mutates().is_empty() => outputs.clone(),
            _ => {
                lean.set_layer(&node.layer);
                lean.push_shared(node.op.clone(), &inputs)?
            }
        };
        for (from, to) in node.outputs.iter().zip(&outputs) {
            map[from.0 as usize] = Some(*to);
        }
        seen.insert(key, outputs);
    }
    for output in graph.outputs() {
        let value = map[output.value.0 as usize].expect("outputs are needed");
        // An output that is a state as it was before a change is copied before the change.
        let value = if is_overwritten(&lean, value) { lean.unary(Unary::Identity, value)? } else { value };
        lean.output(&output.name, value);
    }
    Ok(lean)
}

/// Whether a value is the memory of a state's version that some node changes.
fn is_overwritten(graph: &Graph, value: Value) -> bool {
    let mut root = value;
    while let Some(node) = graph.producer(root).map(|id| graph.node(id)).filter(|n| n.op.is_view()) {
        root = node.inputs[0];
    }
    let changes = |node: &Node| node.op.mutates().iter().any(|(input, _)| node.inputs[*input] == root);
    graph.state_of(root).is_some() && graph.nodes().any(|(_, node)| changes(node))
}

fn copy_sources(from: &Graph, to: &mut Graph, map: &mut [Option<Value>]) {
    for (value, info) in from.values() {
        map[value.0 as usize] = match &info.source {
            Source::Input { name } => Some(to.input(name, info.ty)),
            Source::State { name } => Some(to.state(name, info.ty)),
            Source::Node { .. } => None,
        };
    }
}

/// The nodes that an output or a change of state depends on.
fn needed_nodes(graph: &Graph) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes().len()];
    for output in graph.outputs() {
        if let Some(NodeId(id)) = graph.producer(output.value) {
            needed[id as usize] = true;
        }
    }
    for (id, node) in graph.nodes().rev() {
        needed[id.0 as usize] |= !node.op.mutates().is_empty();
        if needed[id.0 as usize] {
            for NodeId(producer) in node.computed_from().iter().filter_map(|&v| graph.producer(v)) {
                needed[producer as usize] = true;
            }
        }
    }
    needed
}

/// What is known about an element-wise value while deciding where programs end.
#[derive(Clone, Default)]
struct Cone {
    /// Steps to compute it from stored values, and their cost per element.
    steps: usize,
    cost: u64,
    /// The stored values it is computed from.
    leaves: Vec<Value>,
    /// Depends on the element's own index: cannot be computed under another shape.
    indexed: bool,
}

/// For each value, whether it lives inside programs only.
fn decide(graph: &Graph) -> Vec<bool> {
    let n_values = graph.values().len();
    let mut inside = vec![false; n_values];
    let mut cones: Vec<Cone> = vec![Cone::default(); n_values];
    let consumers = consumers(graph);
    for (_, node) in graph.nodes() {
        let Some(step) = node.op.pointwise() else { continue };
        let y = node.outputs[0];
        let mut cone = join(&step, node.inputs.as_slice(), &inside, &cones);
        while cone.steps > MAX_STEPS || cone.leaves.len() > MAX_INPUTS {
            let largest = node.inputs.iter().filter(|v| inside[v.0 as usize]).max_by_key(|v| cones[v.0 as usize].steps);
            let Some(largest) = largest else { break };
            inside[largest.0 as usize] = false;
            cone = join(&step, node.inputs.as_slice(), &inside, &cones);
        }
        let readers = &consumers[y.0 as usize];
        // A program loads the key of random numbers from memory: whatever it is computed by, it is stored.
        let in_register =
            |id: NodeId| matches!(graph.node(id).op.pointwise(), Some(step) if !matches!(step, Step::Random { .. }));
        let all_pointwise = readers.iter().all(|r| matches!(r, Some(id) if in_register(*id)));
        let shape = graph.shape(y);
        let same_shape = || readers.iter().flatten().all(|id| graph.shape(graph.node(*id).outputs[0]) == shape);
        let grows =
            || readers.iter().flatten().any(|id| graph.shape(graph.node(*id).outputs[0]).elements() > shape.elements());
        let large = cone
            .leaves
            .iter()
            .filter(|v| graph.shape(**v).elements() >= shape.elements() && shape.elements() > 1)
            .count();
        let constant = matches!(step, Step::Constant(_));
        inside[y.0 as usize] = all_pointwise
            && !readers.is_empty()
            && (constant
                || (!cone.indexed || same_shape())
                    && (!grows() || cone.cost <= 2)
                    && (readers.len() == 1 || cone.cost <= CHEAP && large <= 1));
        cones[y.0 as usize] = cone;
    }
    inside
}

fn join(step: &Step, inputs: &[Value], inside: &[bool], cones: &[Cone]) -> Cone {
    let random = matches!(step, Step::Random { .. });
    let mut cone = Cone {
        steps: 1,
        cost: elementwise::weight(step),
        leaves: Vec::new(),
        indexed: random || matches!(step, Step::Index { .. }),
    };
    for input in inputs {
        let add = |cone: &mut Cone, leaf: Value| {
            if !cone.leaves.contains(&leaf) {
                cone.leaves.push(leaf);
                cone.steps += 1;
            }
        };
        if inside[input.0 as usize] {
            let part = &cones[input.0 as usize];
            cone.steps += part.steps - part.leaves.len();
            cone.cost += part.cost;
            cone.indexed |= part.indexed;
            part.leaves.iter().for_each(|&leaf| add(&mut cone, leaf));
        } else {
            add(&mut cone, *input);
        }
    }
    cone
}

/// The nodes that read each value, each once; `None` stands for being an output of the graph.
fn consumers(graph: &Graph) -> Vec<Vec<Option<NodeId>>> {
    let mut consumers: Vec<Vec<Option<NodeId>>> = vec![Vec::new(); graph.values().len()];
    for (id, node) in graph.nodes() {
        for input in &node.inputs {
            let list = &mut consumers[input.0 as usize];
            if list.last() != Some(&Some(id)) {
                list.push(Some(id));
            }
        }
    }
    for output in graph.outputs() {
        consumers[output.value.0 as usize].push(None);
    }
    consumers
}

/// The graph with a program for every element-wise value that is stored.
fn emit(graph: &Graph, inside: &[bool]) -> Result<Graph, GraphError> {
    let mut fused = Graph::new();
    let mut map: Vec<Option<Value>> = vec![None; graph.values().len()];
    copy_sources(graph, &mut fused, &mut map);
    for (_, node) in graph.nodes() {
        fused.set_layer(&node.layer);
        if node.op.pointwise().is_none() {
            let inputs: Vec<Value> = node.inputs.iter().map(|v| map[v.0 as usize].expect("stored")).collect();
            let outputs = fused.push_shared(node.op.clone(), &inputs)?;
            for (from, to) in node.outputs.iter().zip(outputs) {
                map[from.0 as usize] = Some(to);
            }
        } else if !inside[node.outputs[0].0 as usize] {
            let y = node.outputs[0];
            let mut builder =
                Builder { graph, inside, steps: Vec::new(), registers: HashMap::new(), inputs: Vec::new() };
            builder.register(y, true);
            let program = Program::new(builder.steps).map_err(GraphError::Broken)?;
            let inputs: Vec<Value> = builder.inputs.iter().map(|v| map[v.0 as usize].expect("stored")).collect();
            map[y.0 as usize] = Some(fused.push1(Fused::new(program, graph.shape(y)), &inputs)?);
        }
    }
    for output in graph.outputs() {
        fused.output(&output.name, map[output.value.0 as usize].expect("outputs are stored"));
    }
    Ok(fused)
}

struct Builder<'a> {
    graph: &'a Graph,
    inside: &'a [bool],
    steps: Vec<(Step, DType)>,
    registers: HashMap<Value, u8>,
    inputs: Vec<Value>,
}

impl Builder<'_> {
    /// The register that holds a value: computed when it is the root or lives inside programs, loaded otherwise.
    fn register(&mut self, value: Value, root: bool) -> u8 {
        if let Some(&register) = self.registers.get(&value) {
            return register;
        }
        let step = if root || self.inside[value.0 as usize] {
            let node = self.graph.node(self.graph.producer(value).expect("computed"));
            let (op, operands): (&Arc<dyn OpDef>, _) = (&node.op, node.inputs.clone());
            match op.pointwise().expect("an element-wise op") {
                Step::Unary(f, _) => Step::Unary(f, self.register(operands[0], false)),
                Step::Cast(_) => Step::Cast(self.register(operands[0], false)),
                Step::Binary(f, ..) => {
                    let (a, b) = (self.register(operands[0], false), self.register(operands[1], false));
                    Step::Binary(f, a, b)
                }
                Step::Select(..) => {
                    let [c, a, b] = [0, 1, 2].map(|i| self.register(operands[i], false));
                    Step::Select(c, a, b)
                }
                Step::Random { distribution, stream, .. } => {
                    Step::Random { distribution, stream, key: self.input(operands[0]) }
                }
                other => other,
            }
        } else {
            Step::Load(self.input(value))
        };
        self.steps.push((step, self.graph.dtype(value)));
        let register = (self.steps.len() - 1) as u8;
        self.registers.insert(value, register);
        register
    }

    fn input(&mut self, value: Value) -> u8 {
        let known = self.inputs.iter().position(|v| *v == value);
        known.unwrap_or_else(|| {
            self.inputs.push(value);
            self.inputs.len() - 1
        }) as u8
    }
}
