//! What a model is made of: layers with parameters and bytes.

use super::Trainer;
use super::compile::{StepKey, plan_training};
use crate::data::{Field, FieldKind};
use crate::error::Error;
use crate::trace::{Mode, Role, Trace};
use plimsoll_budget::Bytes;
use plimsoll_graph::{Graph, NodeId};
use plimsoll_plan::explain;
use plimsoll_tensor::{Shape, TensorType};
use std::collections::BTreeMap;
use std::fmt;

/// A layer of a summary.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSummary {
    /// Its name.
    pub name: String,
    /// The shape of its output.
    pub output: Shape,
    /// Learned numbers.
    pub parameters: usize,
    /// Numbers that are kept but not learned by gradients.
    pub statistics: usize,
    /// Bytes of weights, statistics and the optimizer's moments of the layer.
    pub state_bytes: u64,
    /// Bytes that the layer's forward pass leaves for the backward pass.
    pub saved_bytes: u64,
    /// Bytes of the layer that are in memory when the training step needs most.
    pub peak_bytes: u64,
}

/// The layers of a model and what training it takes. Prints as a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The batch size it was made for.
    pub batch_size: usize,
    /// The layers, in order.
    pub layers: Vec<LayerSummary>,
    /// Learned numbers.
    pub parameters: usize,
    /// Bytes of weights, moments and statistics.
    pub state_bytes: u64,
    /// Bytes of everything else in a training step, as planned.
    pub arena_bytes: u64,
    /// The op at which the step needs most.
    pub peak_at: String,
}

pub(super) fn summary(trainer: &mut Trainer, batch: usize) -> Result<Summary, Error> {
    if batch == 0 {
        return Err(Error::config("batch size", "is 0; it must be at least 1"));
    }
    let fields = natural_fields(trainer, batch)?;
    let plan = plan_training(trainer, &fields, batch)?;
    let graph = trainer.trace(&StepKey { mode: Mode::Predict, batch, fewer: false, fields: fields.clone() })?;
    let explanation = explain(&plan);
    let mut layers: Vec<LayerSummary> = Vec::new();
    for (name, output) in layer_outputs(&graph) {
        layers.push(LayerSummary {
            name,
            output,
            parameters: 0,
            statistics: 0,
            state_bytes: 0,
            saved_bytes: 0,
            peak_bytes: 0,
        });
    }
    let mut all = LayerSummaries { layers };
    for variable in trainer.variables.iter() {
        // A moment is named after its weight, below the optimizer's name.
        let elements = variable.ty.elements();
        let owner = all.owner(&variable.name);
        let Some(layer) = owner else { continue };
        match variable.role {
            Role::Weight => layer.parameters += elements,
            Role::Statistic => layer.statistics += elements,
            _ => (),
        }
        layer.state_bytes += variable.ty.bytes() as u64;
    }
    for (buffer, bytes) in saved(&plan) {
        if let Some(layer) = all.owner(&buffer) {
            layer.saved_bytes += bytes;
        }
    }
    for tenant in &explanation.tenants {
        if let Some(layer) = all.owner(&tenant.layer) {
            layer.peak_bytes += tenant.bytes;
        }
    }
    Ok(Summary {
        batch_size: batch,
        parameters: all.layers.iter().map(|l| l.parameters).sum(),
        layers: all.layers,
        state_bytes: plan.state.bytes(),
        arena_bytes: plan.arena_bytes,
        peak_at: explanation.op,
    })
}

struct LayerSummaries {
    layers: Vec<LayerSummary>,
}

impl LayerSummaries {
    /// The layer that a path belongs to: the one whose name stands in it as a whole part.
    fn owner(&mut self, path: &str) -> Option<&mut LayerSummary> {
        let parts: Vec<&str> = path.split('/').collect();
        self.layers.iter_mut().find(|l| parts.contains(&l.name.as_str()))
    }
}

/// The fields that data for this model naturally has.
pub(super) fn natural_fields(trainer: &mut Trainer, batch: usize) -> Result<Vec<Field>, Error> {
    let mut fields: Vec<Field> = Vec::new();
    for input in trainer.model.inputs() {
        let ty = TensorType::new(input.dtype, input.shape);
        fields.push(Field { name: input.name.clone(), kind: FieldKind::Input, ty });
    }
    let mut t = Trace::new(&mut trainer.variables, Mode::Predict);
    let (_, outputs) = trainer.model.trace(&mut t, batch)?;
    for (entry, &output) in trainer.losses.iter().zip(&outputs) {
        let label = entry.loss.label_type(t.ty(output));
        let ty = TensorType::new(label.dtype, label.shape.remove(0));
        fields.push(Field { name: entry.output.clone(), kind: FieldKind::Label, ty });
    }
    Ok(fields)
}

/// The layers in order, with the shape of the last value each makes.
fn layer_outputs(graph: &Graph) -> Vec<(String, Shape)> {
    let mut layers: Vec<(String, Shape)> = Vec::new();
    for (_, node) in graph.nodes() {
        let name = node.layer.split('/').next().unwrap_or_default().to_owned();
        if name.is_empty() {
            continue;
        }
        let shape = graph.shape(node.outputs[0]);
        match layers.iter_mut().find(|(n, _)| *n == name) {
            Some(entry) => entry.1 = shape,
            None => layers.push((name, shape)),
        }
    }
    layers
}

/// The buffers made before the loss and read after it, by layer.
fn saved(plan: &plimsoll_plan::Plan) -> BTreeMap<String, u64> {
    let graph = &plan.graph;
    let loss = graph.outputs().first().and_then(|o| graph.producer(o.value));
    let turn = plan.instructions.iter().position(|i| Some(i.node) == loss).unwrap_or(0) as u32;
    let mut bytes = BTreeMap::new();
    for (buffer, _) in plan.buffers.iter().filter(|(b, _)| b.first < turn && b.last > turn) {
        let layer = |id: NodeId| graph.node(id).layer.to_string();
        *bytes.entry(buffer.node.map(layer).unwrap_or_default()).or_default() += buffer.bytes;
    }
    bytes
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.layers.iter().map(|l| l.name.len()).max().unwrap_or(0).max(5);
        let bytes = |b: u64| Bytes(b).to_string();
        writeln!(
            f,
            "{:<width$}  {:<20} {:>12} {:>12} {:>14} {:>12}",
            "layer", "output", "parameters", "state", "saved", "at the peak"
        )?;
        for l in &self.layers {
            let output = l.output.to_string();
            let (state, saved, peak) = (bytes(l.state_bytes), bytes(l.saved_bytes), bytes(l.peak_bytes));
            writeln!(f, "{:<width$}  {output:<20} {:>12} {state:>12} {saved:>14} {peak:>12}", l.name, l.parameters)?;
        }
        writeln!(f, "{} parameters; a training step of {} samples takes", self.parameters, self.batch_size)?;
        writeln!(f, "  {:>12}  weights, optimizer and statistics", bytes(self.state_bytes))?;
        write!(f, "  {:>12}  everything else, most of it at {}", bytes(self.arena_bytes), self.peak_at)
    }
}
