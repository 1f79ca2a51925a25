//! How long a step takes: its nodes one after another, and one disk beside them that does what was begun in the order it was begun.

use crate::cost::{CostModel, Work};
use plimsoll_graph::op::spill::Transfer;
use plimsoll_graph::{Graph, NodeId, Value};
use std::collections::HashMap;

/// What transfers count in the score.
pub(crate) const TRANSFER_SCORE: f64 = 0.01;

/// A predicted time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Prediction {
    /// How long the step takes.
    pub seconds: f64,
    /// That and a hundredth of the time of all transfers: of two plans that take the same time, the one that asks less of the disk
    /// depends less on how well that is predicted.
    pub score: f64,
}

/// Predicts the time of a graph whose nodes run in this order.
pub(crate) fn predict(graph: &Graph, order: impl IntoIterator<Item = NodeId>, costs: &CostModel) -> Prediction {
    let (mut now, mut disk, mut busy) = (0.0f64, 0.0f64, 0.0);
    let mut over: HashMap<u64, (f64, u64)> = HashMap::new();
    for id in order {
        let node = graph.node(id);
        let bytes = |value: Value| graph.ty(value).bytes() as u64;
        let (slot, bytes, seconds) = match node.op.transfer() {
            Some(Transfer::BeginWrite(slot)) => {
                (slot, bytes(node.inputs[0]), costs.write_seconds(bytes(node.inputs[0])))
            }
            Some(Transfer::BeginRead(slot)) => {
                (slot, bytes(node.outputs[0]), costs.read_seconds(bytes(node.outputs[0])))
            }
            Some(Transfer::EndWrite(slot) | Transfer::EndRead(slot)) => {
                if let Some((end, bytes)) = over.remove(&slot) {
                    now = now.max(end) + costs.beside_seconds(bytes);
                }
                continue;
            }
            None if node.op.runs() => {
                now += costs.seconds(node.op.name(), &Work::of(graph, node));
                continue;
            }
            None => continue,
        };
        disk = disk.max(now) + seconds;
        busy += seconds;
        over.insert(slot, (disk, bytes));
    }
    Prediction { seconds: now, score: now + TRANSFER_SCORE * busy }
}
