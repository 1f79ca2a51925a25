//! Where the time of a training step goes.

use super::Trainer;
use super::feed::{Feeder, nothing};
use super::fit::compile;
use super::limit::Keeps;
use crate::data::Feed;
use crate::error::Error;
use crate::trace::Mode;
use plimsoll_exec::Timing;
use plimsoll_graph::Types;
use plimsoll_plan::Plan;
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long an op of the training step takes.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTime {
    /// Its name: several element-wise ops that run as one are `fused`.
    pub op: &'static str,
    /// Its layer; empty outside layers.
    pub layer: String,
    /// The types of its inputs and outputs.
    pub types: String,
    /// The shortest time seen: what it takes when nothing disturbs.
    pub time: Duration,
    /// Floating-point operations, as the op counts them.
    pub flops: u64,
    /// Bytes read and written, as the op counts them.
    pub bytes: u64,
}

/// The times of a training step's ops, in the order in which they run. Prints as a table, the longest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The ops.
    pub ops: Vec<OpTime>,
    /// How often each ran.
    pub steps: usize,
}

impl Profile {
    /// The profile of a plan whose ops were timed in some runs.
    pub fn of(plan: &Plan, runs: &[Vec<Timing>]) -> Profile {
        let first = runs.first().map_or(&[][..], Vec::as_slice);
        let shortest = |i: usize| runs.iter().map(|run| run[i].time).min().unwrap_or_default();
        let ops = first.iter().enumerate().map(|(i, timing)| op_time(plan, timing.node, shortest(i)));
        Profile { ops: ops.collect(), steps: runs.len() }
    }

    /// The time of all ops.
    pub fn total(&self) -> Duration {
        self.ops.iter().map(|op| op.time).sum()
    }
}

/// Trains on the first batches of the data and times every op.
pub(super) fn profile(
    trainer: &mut Trainer,
    data: &dyn Feed,
    batch_size: Option<usize>,
    steps: usize,
) -> Result<Profile, Error> {
    let mut feeder = Feeder::new(trainer, Mode::Train, data, batch_size, false)?;
    compile(trainer, [&feeder], Keeps::default())?;
    let program = trainer.compiled.as_ref().and_then(|c| c.find(&feeder.keys()[0])).expect("compiled above");
    let mut runs: Vec<Vec<Timing>> = Vec::new();
    for _ in 0..steps {
        let mut next = feeder.next(trainer)?;
        if next.is_none() {
            feeder.begin(trainer, trainer.pass, None)?;
            next = feeder.next(trainer)?;
        }
        let (this, _) = next.ok_or_else(nothing)?;
        trainer.prepare(this)?;
        let engine = &mut trainer.compiled.as_mut().expect("compiled above").engine;
        let timings = engine.run_timed(this)?;
        trainer.step += 1;
        // The last batch of an epoch may be smaller: it trains, but is not counted.
        if this == program {
            runs.push(timings);
        }
    }
    Ok(Profile::of(trainer.compiled.as_ref().expect("compiled above").engine.plan(program), &runs))
}

fn op_time(plan: &Plan, id: plimsoll_graph::NodeId, time: Duration) -> OpTime {
    let node = plan.graph.node(id);
    let types =
        |values: &[plimsoll_graph::Value]| -> Vec<TensorType> { values.iter().map(|&v| *plan.graph.ty(v)).collect() };
    let (inputs, outputs) = (types(&node.inputs), types(&node.outputs));
    let cost = node.op.cost(&Types { inputs: &inputs, outputs: &outputs });
    let list = |types: &[TensorType]| types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ");
    OpTime {
        op: node.op.name(),
        layer: node.layer.to_string(),
        types: format!("{} -> {}", list(&inputs), list(&outputs)),
        time,
        flops: cost.flops,
        bytes: cost.bytes,
    }
}

/// How many ops the table shows one by one.
const SHOWN: usize = 30;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let line = |f: &mut fmt::Formatter<'_>, time: Duration, flops: u64, bytes: u64, what: &str| {
            let seconds = time.as_secs_f64().max(1e-9);
            let (part, ms) = (100.0 * seconds / total.as_secs_f64().max(1e-9), 1e3 * seconds);
            let (gflops, gbytes) = (flops as f64 / seconds / 1e9, bytes as f64 / seconds / 1e9);
            writeln!(f, "{ms:>10.3} {part:>5.1} {gflops:>8.1} {gbytes:>7.1}  {what}")
        };
        writeln!(f, "{:>10} {:>5} {:>8} {:>7}  op", "ms", "%", "GFLOP/s", "GB/s")?;
        let mut kinds: BTreeMap<&str, (Duration, u64, u64, usize)> = BTreeMap::new();
        for op in &self.ops {
            let kind = kinds.entry(op.op).or_default();
            *kind = (kind.0 + op.time, kind.1 + op.flops, kind.2 + op.bytes, kind.3 + 1);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, kind)| std::cmp::Reverse(kind.0));
        for (name, (time, flops, bytes, count)) in kinds {
            line(f, time, flops, bytes, &format!("{name}, {count} times"))?;
        }
        writeln!(
            f,
            "{:>10.3}        all {} ops, the best of {} steps",
            1e3 * total.as_secs_f64(),
            self.ops.len(),
            self.steps
        )?;
        let mut longest: Vec<&OpTime> = self.ops.iter().collect();
        longest.sort_by_key(|op| std::cmp::Reverse(op.time));
        for op in longest.into_iter().take(SHOWN) {
            line(f, op.time, op.flops, op.bytes, &format!("{} {} {}", op.op, op.layer, op.types))?;
        }
        Ok(())
    }
}
