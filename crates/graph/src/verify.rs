//! The verifier: the rules that every graph keeps, checked from the definition.

use crate::error::GraphError;
use crate::graph::{Graph, NodeId, Source, Value};
use plimsoll_tensor::TensorType;
use std::collections::BTreeSet;

impl Graph {
    /// Checks the graph's own rules: values are defined once and before they are read, types are what the ops infer, names
    /// of inputs, states and outputs are unique, states are changed at most once per step and only through their newest value.
    ///
    /// # Errors
    /// With the rule that is broken.
    pub fn verify(&self) -> Result<(), GraphError> {
        let fail = |message: String| Err(GraphError::Broken(message));
        let n_values = self.values.len();
        let exists = |v: Value| (v.0 as usize) < n_values;
        let mut names = BTreeSet::new();
        for (value, info) in self.values() {
            match &info.source {
                Source::Input { name } | Source::State { name } => {
                    if !names.insert(name) {
                        return fail(format!("the name '{name}' stands for two values"));
                    }
                }
                Source::Node { node, index } => {
                    let defined = self.nodes.get(node.0 as usize).and_then(|n| n.outputs.get(*index));
                    if defined != Some(&value) {
                        return fail(format!("%{} is not the output of its node", value.0));
                    }
                }
            }
        }
        for (id, node) in self.nodes() {
            let name = node.op.name();
            for &input in &node.inputs {
                if !exists(input) || self.producer(input).is_some_and(|p| p >= id) {
                    return fail(format!("{name} reads %{} before it is computed", input.0));
                }
            }
            let types: Vec<TensorType> = node.inputs.iter().map(|&v| *self.ty(v)).collect();
            let inferred = node.op.infer(&types).map_err(|m| GraphError::Broken(format!("{name}: {m}")))?;
            let found: Vec<TensorType> = node.outputs.iter().map(|&v| *self.ty(v)).collect();
            if inferred != found {
                return fail(format!("{name} gives {inferred:?}, but its outputs are {found:?}"));
            }
            for &(input, output) in node.op.mutates() {
                if !self.may_change(node.inputs[input]) {
                    return fail(format!("{name} changes %{}, which is no state", node.inputs[input].0));
                }
                if types[input] != inferred[output] {
                    return fail(format!("{name} changes a state of type {} into {}", types[input], inferred[output]));
                }
            }
        }
        self.verify_changes()?;
        let mut wanted = BTreeSet::new();
        for output in &self.outputs {
            if !exists(output.value) {
                return fail(format!("output '{}' is no value", output.name));
            }
            if !wanted.insert(&output.name) {
                return fail(format!("two outputs are called '{}'", output.name));
            }
        }
        Ok(())
    }

    /// Each version of a state is changed by at most one node.
    fn verify_changes(&self) -> Result<(), GraphError> {
        let mut changed: BTreeSet<Value> = BTreeSet::new();
        for (id, node) in self.nodes() {
            for &(input, _) in node.op.mutates() {
                let version = node.inputs[input];
                if !changed.insert(version) {
                    let message = format!("%{} is changed twice, the second time by {}", version.0, self.describe(id));
                    return Err(GraphError::Broken(message));
                }
            }
        }
        Ok(())
    }

    /// A node for messages: its op and layer.
    pub fn describe(&self, id: NodeId) -> String {
        let node = self.node(id);
        match &*node.layer {
            "" => node.op.name().to_owned(),
            layer => format!("{} of layer '{layer}'", node.op.name()),
        }
    }
}
