//! The graph itself: nodes, values, and how they are added.

use crate::error::GraphError;
use crate::op::OpDef;
use crate::op::spill::Transfer;
use plimsoll_tensor::{DType, Shape, TensorType};
use std::sync::Arc;

/// A value of a graph: an input, a state, or an output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Given anew for every step.
    Input {
        /// Its name.
        name: String,
    },
    /// Kept from step to step: a parameter, a moment of the optimizer, a running mean.
    State {
        /// Its name.
        name: String,
    },
    /// Computed.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        index: usize,
    },
}

/// What is known about a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Type and shape.
    pub ty: TensorType,
    /// Where it comes from.
    pub source: Source,
}

/// An op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is done.
    pub op: Arc<dyn OpDef>,
    /// To what.
    pub inputs: Vec<Value>,
    /// What comes out.
    pub outputs: Vec<Value>,
    /// The layer that asked for it; empty outside layers.
    pub layer: Arc<str>,
}

impl Node {
    /// The inputs that the outputs are computed from, once gradients have been taken: all, but for ops that [pass on](OpDef::passes_on).
    pub fn computed_from(&self) -> &[Value] {
        let n = if self.op.passes_on() { self.outputs.len() } else { self.inputs.len() };
        &self.inputs[..n]
    }
}

/// A value that is wanted, under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// The value.
    pub value: Value,
}

/// A computation: see the [crate's documentation](crate).
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) values: Vec<ValueInfo>,
    pub(crate) outputs: Vec<Output>,
    layer: Arc<str>,
    streams: u32,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// A value that the caller gives before every step.
    pub fn input(&mut self, name: &str, ty: TensorType) -> Value {
        self.add_value(ty, Source::Input { name: name.into() })
    }

    /// A value that is kept from step to step.
    pub fn state(&mut self, name: &str, ty: TensorType) -> Value {
        self.add_value(ty, Source::State { name: name.into() })
    }

    /// Asks for a value under a name.
    pub fn output(&mut self, name: &str, value: Value) {
        self.outputs.push(Output { name: name.into(), value });
    }

    /// Applies an op and gives back its outputs.
    ///
    /// # Errors
    /// When the op's shape rule does not accept the inputs.
    pub fn push(&mut self, op: impl OpDef, inputs: &[Value]) -> Result<Vec<Value>, GraphError> {
        self.push_shared(Arc::new(op), inputs)
    }

    /// As [`Graph::push`], for an op that is already shared.
    ///
    /// # Errors
    /// As [`Graph::push`].
    pub fn push_shared(&mut self, op: Arc<dyn OpDef>, inputs: &[Value]) -> Result<Vec<Value>, GraphError> {
        let types: Vec<TensorType> = inputs.iter().map(|&v| *self.ty(v)).collect();
        let out_types = op.infer(&types).map_err(|message| GraphError::Shape {
            layer: self.layer.to_string(),
            op: op.name(),
            message,
            inputs: types,
        })?;
        let node = NodeId(self.nodes.len() as u32);
        let outputs: Vec<Value> = out_types
            .into_iter()
            .enumerate()
            .map(|(index, ty)| self.add_value(ty, Source::Node { node, index }))
            .collect();
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone(), layer: self.layer.clone() });
        Ok(outputs)
    }

    /// As [`Graph::push`], for ops with one output.
    ///
    /// # Errors
    /// As [`Graph::push`].
    pub fn push1(&mut self, op: impl OpDef, inputs: &[Value]) -> Result<Value, GraphError> {
        Ok(self.push(op, inputs)?[0])
    }

    fn add_value(&mut self, ty: TensorType, source: Source) -> Value {
        self.values.push(ValueInfo { ty, source });
        Value(self.values.len() as u32 - 1)
    }

    /// Names the layer that the following nodes belong to; gives back the name before.
    pub fn set_layer(&mut self, name: &str) -> Arc<str> {
        std::mem::replace(&mut self.layer, name.into())
    }

    /// The layer that new nodes belong to.
    pub fn layer(&self) -> &str {
        &self.layer
    }

    /// A number that no other random op of this graph has.
    pub fn new_stream(&mut self) -> u32 {
        self.streams += 1;
        self.streams
    }

    /// Type and shape of a value.
    pub fn ty(&self, value: Value) -> &TensorType {
        &self.values[value.0 as usize].ty
    }

    /// The sizes of a value.
    pub fn shape(&self, value: Value) -> Shape {
        self.ty(value).shape
    }

    /// The element type of a value.
    pub fn dtype(&self, value: Value) -> DType {
        self.ty(value).dtype
    }

    /// All that is known about a value.
    pub fn value(&self, value: Value) -> &ValueInfo {
        &self.values[value.0 as usize]
    }

    /// The node that computes a value, if one does.
    pub fn producer(&self, value: Value) -> Option<NodeId> {
        match self.value(value).source {
            Source::Node { node, .. } => Some(node),
            _ => None,
        }
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// All nodes, in an order in which every value is computed before it is read.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> + DoubleEndedIterator {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId(i as u32), node))
    }

    /// All values, in the order they were made.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (Value, &ValueInfo)> {
        self.values.iter().enumerate().map(|(i, info)| (Value(i as u32), info))
    }

    /// The values asked for.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The inputs with their names.
    pub fn inputs(&self) -> impl Iterator<Item = (Value, &str)> {
        self.values().filter_map(|(v, info)| match &info.source {
            Source::Input { name } => Some((v, name.as_str())),
            _ => None,
        })
    }

    /// The states with their names.
    pub fn states(&self) -> impl Iterator<Item = (Value, &str)> {
        self.values().filter_map(|(v, info)| match &info.source {
            Source::State { name } => Some((v, name.as_str())),
            _ => None,
        })
    }

    /// The state whose memory a value shares, if it is a state or the result of changing one in place.
    pub fn state_of(&self, value: Value) -> Option<Value> {
        match &self.value(value).source {
            Source::Input { .. } => None,
            Source::State { .. } => Some(value),
            Source::Node { node, index } => {
                let node = self.node(*node);
                let (input, _) = *node.op.mutates().iter().find(|(_, output)| output == index)?;
                self.state_of(node.inputs[input])
            }
        }
    }

    /// Whether a value may be changed in place: a version of a state, or of what was read from the spill file.
    pub fn may_change(&self, value: Value) -> bool {
        match &self.value(value).source {
            Source::Input { .. } => false,
            Source::State { .. } => true,
            Source::Node { node, index } => {
                let node = self.node(*node);
                let changed = node.op.mutates().iter().find(|(_, output)| output == index);
                match changed {
                    Some(&(input, _)) => self.may_change(node.inputs[input]),
                    None => matches!(node.op.transfer(), Some(Transfer::EndRead(_))),
                }
            }
        }
    }

    /// The number of bytes of all states.
    pub fn state_bytes(&self) -> usize {
        self.states().map(|(v, _)| self.ty(v).bytes()).sum()
    }
}
