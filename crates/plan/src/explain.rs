//! What is alive at the peak, by layer: where the memory goes.

use crate::Plan;
use crate::lifetime::Kind;
use plimsoll_graph::NodeId;
use std::collections::BTreeMap;
use std::fmt;

/// A piece of memory that is in use at the peak.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its size as placed.
    pub bytes: u64,
    /// The layer that made it; empty for inputs and outside layers.
    pub layer: String,
    /// The op that made it, or `input`, and its type; `workspace of` an op for scratch memory.
    pub what: String,
}

/// What is alive at the step that needs most.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The step.
    pub step: usize,
    /// Of how many.
    pub n_steps: usize,
    /// The node that runs there; `None` in a plan without steps.
    pub node: Option<NodeId>,
    /// Its op and layer.
    pub op: String,
    /// All bytes alive there: the sum of the tenants.
    pub bytes: u64,
    /// The states, which are alive always and stand beside the arena.
    pub state_bytes: u64,
    /// The pieces, the largest first.
    pub tenants: Vec<Tenant>,
}

/// Explains where a plan's memory goes.
pub fn explain(plan: &Plan) -> Explanation {
    let live = plan.live_at_each_step();
    let step = (0..live.len()).max_by_key(|&s| (live[s], std::cmp::Reverse(s))).unwrap_or(0);
    let alive = plan.buffers.iter().filter(|(b, _)| b.first as usize <= step && step <= b.last as usize);
    let mut tenants: Vec<Tenant> = alive
        .filter(|(b, _)| b.bytes > 0)
        .map(|(buffer, _)| {
            // The newest value in it by then.
            let node = buffer.node.map(|id| plan.graph.node(id));
            let ty = buffer.values.first().map(|&v| plan.graph.ty(v).to_string()).unwrap_or_default();
            let what = match (buffer.kind, node) {
                (Kind::Input, _) => format!("input {ty}"),
                (Kind::Workspace, Some(node)) => format!("workspace of {}", node.op.name()),
                (_, Some(node)) => format!("{} {ty}", node.op.name()),
                (_, None) => ty,
            };
            let layer = node.map(|n| n.layer.to_string()).unwrap_or_default();
            Tenant { bytes: buffer.bytes.next_multiple_of(64), layer, what }
        })
        .collect();
    tenants.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.what.cmp(&b.what)));
    let node = plan.instructions.get(step).map(|i| i.node);
    Explanation {
        step,
        n_steps: plan.instructions.len(),
        node,
        op: node.map(|id| plan.graph.describe(id)).unwrap_or_default(),
        bytes: live.get(step).copied().unwrap_or(0),
        state_bytes: plan.state.bytes(),
        tenants,
    }
}

impl Explanation {
    /// The bytes by layer, the largest first.
    pub fn by_layer(&self) -> Vec<(String, u64)> {
        let mut layers: BTreeMap<&str, u64> = BTreeMap::new();
        for tenant in &self.tenants {
            *layers.entry(&tenant.layer).or_default() += tenant.bytes;
        }
        let mut layers: Vec<(String, u64)> = layers.into_iter().map(|(l, b)| (l.to_owned(), b)).collect();
        layers.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        layers
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "peak at step {} of {} ({}): {} bytes beside {} of state",
            self.step + 1,
            self.n_steps,
            self.op,
            self.bytes,
            self.state_bytes
        )?;
        for tenant in self.tenants.iter().take(12) {
            writeln!(f, "{:>14}  {:<20} {}", tenant.bytes, tenant.layer, tenant.what)?;
        }
        if self.tenants.len() > 12 {
            let rest: u64 = self.tenants[12..].iter().map(|t| t.bytes).sum();
            writeln!(f, "{rest:>14}  in {} smaller pieces", self.tenants.len() - 12)?;
        }
        Ok(())
    }
}
