//! What ops and transfers cost on a machine: seconds from operations and bytes.
//!
//! The figures are measured elsewhere (`exec/src/calibrate.rs`); here they are data, so that planning stays pure.

use plimsoll_graph::Cost;
use std::collections::BTreeMap;

/// How fast an op runs: the slower of its arithmetic and its memory traffic, and a fixed time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Floating-point operations a second.
    pub flops: f64,
    /// Bytes a second.
    pub bytes: f64,
    /// Seconds of every run.
    pub overhead: f64,
}

/// A run of an op that was timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// What the op says running it takes.
    pub cost: Cost,
    /// What it took.
    pub seconds: f64,
}

impl Sample {
    /// How unlike a cost is to the sample's: the larger of the two ratios, as a logarithm.
    fn distance(&self, cost: &Cost) -> f64 {
        let apart = |a: u64, b: u64| ((a + 1) as f64 / (b + 1) as f64).ln().abs();
        apart(self.cost.flops, cost.flops).max(apart(self.cost.bytes, cost.bytes))
    }
}

/// What ops and transfers cost on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Runs that were timed on this machine, by the op's name.
    pub samples: BTreeMap<String, Vec<Sample>>,
    /// Of ops that are not listed.
    pub other: Rate,
    /// By the op's name.
    pub ops: BTreeMap<String, Rate>,
    /// Bytes a second written to the spill file.
    pub write: f64,
    /// Bytes a second read from the spill file.
    pub read: f64,
    /// Seconds that a transfer takes besides.
    pub latency: f64,
    /// Bytes a second by which a transfer slows down the computation beside it: they are copied, and checksums made of them.
    pub beside: f64,
}

impl Default for CostModel {
    /// Figures of a common machine with two cores and a local disk, for plans that are only looked at.
    fn default() -> CostModel {
        CostModel {
            samples: BTreeMap::new(),
            other: Rate { flops: 1.5e11, bytes: 1e10, overhead: 2e-6 },
            ops: BTreeMap::new(),
            write: 1.2e9,
            read: 2e9,
            latency: 1e-4,
            beside: 4e9,
        }
    }
}

impl CostModel {
    /// Seconds that an op with this name and cost takes: as its likest timed run, scaled by what their costs differ in.
    pub fn seconds(&self, op: &str, cost: &Cost) -> f64 {
        let guess = self.guess(op, cost);
        let samples = self.samples.get(op).map_or(&[][..], Vec::as_slice);
        let nearest = samples.iter().min_by(|a, b| a.distance(cost).total_cmp(&b.distance(cost)));
        nearest.map_or(guess, |s| s.seconds * guess / self.guess(op, &s.cost))
    }

    /// Seconds by the rate of the op's arithmetic or memory traffic, whichever is slower.
    fn guess(&self, op: &str, cost: &Cost) -> f64 {
        let rate = self.ops.get(op).unwrap_or(&self.other);
        (cost.flops as f64 / rate.flops).max(cost.bytes as f64 / rate.bytes) + rate.overhead
    }

    /// Seconds that a transfer of this many bytes takes from the computation beside it.
    pub fn beside_seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.beside
    }

    /// Seconds to write this many bytes to the spill file.
    pub fn write_seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.write + self.latency
    }

    /// Seconds to read this many bytes from the spill file.
    pub fn read_seconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.read + self.latency
    }
}
