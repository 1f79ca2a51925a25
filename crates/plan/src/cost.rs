//! What ops and transfers cost on a machine: seconds from operations, bytes and sizes.
//!
//! The figures are measured elsewhere (`exec/src/calibrate.rs`); here they are data, so that planning stays pure.

use plimsoll_graph::{Cost, Graph, Node, Types, Value};
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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

/// The sizes of an op's operands, inputs first.
///
/// ```
/// use plimsoll_plan::cost::Sizes;
/// let sizes: Sizes = "32x256,256x10,32x10".parse().unwrap();
/// assert_eq!(sizes.to_string(), "32x256,256x10,32x10");
/// // The same op on a quarter of the batch.
/// assert_eq!(sizes.part_of(&"8x256,256x10,8x10".parse().unwrap()), Some(0.25));
/// assert_eq!(sizes.part_of(&"8x256,256x5,8x5".parse().unwrap()), None);
/// // As many more inputs are something else, although they are one factor, too.
/// assert_eq!(sizes.part_of(&"32x512,512x10,32x10".parse().unwrap()), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sizes(Box<[u32]>);

/// Stands before the sizes of an operand.
const OPERAND: u32 = u32::MAX;

impl Sizes {
    /// The sizes of these operands.
    pub fn of(types: &Types<'_>) -> Sizes {
        let mut sizes = Vec::with_capacity(4 * (types.inputs.len() + types.outputs.len()));
        for operand in types.inputs.iter().chain(types.outputs) {
            sizes.push(OPERAND);
            sizes.extend(operand.dims().iter().map(|&n| n.min(OPERAND as usize - 1) as u32));
        }
        Sizes(sizes.into())
    }

    /// Which part of these sizes the others are: they differ by one factor, wherever they differ, and not in the last of several sizes of an operand,
    /// which no batch is cut along. `None` when they do so in another way.
    pub fn part_of(&self, other: &Sizes) -> Option<f64> {
        let pairs = || self.0.iter().zip(&other.0).map(|(&a, &b)| (a as u64, b as u64));
        let (whole, part) = pairs().find(|(a, b)| a != b).unwrap_or((1, 1));
        let ends = |at: usize| self.0.get(at).is_none_or(|&n| n == OPERAND);
        let may_differ = |at: usize| !ends(at + 1) || ends(at - 1);
        let alike = self.0.len() == other.0.len()
            && pairs().enumerate().all(|(at, (a, b))| a == b || a * part == b * whole && at > 0 && may_differ(at));
        alike.then_some(part as f64 / whole.max(1) as f64)
    }

    /// How far sizes are from others: the mean of the ratios, as logarithms; more than any when there are other operands.
    fn distance(&self, other: &Sizes) -> f64 {
        let pairs = || self.0.iter().zip(&other.0);
        let same = self.0.len() == other.0.len() && pairs().all(|(a, b)| (*a == OPERAND) == (*b == OPERAND));
        let apart = |(a, b): (&u32, &u32)| ((a.saturating_add(1)) as f64 / b.saturating_add(1) as f64).ln().abs();
        if same { pairs().map(apart).sum::<f64>() / self.0.len().max(1) as f64 } else { 10.0 }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, operand) in self.0.split(|&n| n == OPERAND).skip(1).enumerate() {
            let sizes: Vec<String> = operand.iter().map(u32::to_string).collect();
            write!(f, "{}{}", if i > 0 { "," } else { "" }, sizes.join("x"))?;
        }
        Ok(())
    }
}

impl FromStr for Sizes {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Sizes, Self::Err> {
        let mut sizes = Vec::new();
        for operand in text.split(',') {
            sizes.push(OPERAND);
            for n in operand.split('x').filter(|n| !n.is_empty()) {
                sizes.push(n.parse::<u32>()?.min(OPERAND - 1));
            }
        }
        Ok(Sizes(sizes.into()))
    }
}

/// An op at work: what its time depends on besides the op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// What the op says running it takes.
    pub cost: Cost,
    /// Its operands.
    pub sizes: Sizes,
}

impl Work {
    /// What a node does in each run.
    pub fn of(graph: &Graph, node: &Node) -> Work {
        let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
        let (inputs, outputs) = (of(&node.inputs), of(&node.outputs));
        let types = Types { inputs: &inputs, outputs: &outputs };
        Work { cost: node.op.cost(&types), sizes: Sizes::of(&types) }
    }

    /// Which part of this work other work of the same op is, on more or fewer entries of a batch; `None` when they differ in another way.
    pub fn part_of(&self, other: &Work) -> Option<f64> {
        // Programs of element-wise ops differ in what they do with operands of the same sizes.
        const ALIKE: f64 = 1.25;
        let part = self.sizes.part_of(&other.sizes)?;
        let flops = (other.cost.flops + 1) as f64 / (self.cost.flops + 1) as f64 / part;
        (flops < ALIKE && 1.0 < flops * ALIKE).then_some(part)
    }

    /// How unlike other work is: the larger of the two ratios of costs, as a logarithm, and the sizes.
    fn distance(&self, other: &Work, below: f64) -> f64 {
        let apart = |a: u64, b: u64| ((a + 1) as f64 / (b + 1) as f64).ln().abs();
        let cost = apart(self.cost.flops, other.cost.flops).max(apart(self.cost.bytes, other.cost.bytes));
        if cost < below { cost + 0.1 * self.sizes.distance(&other.sizes) } else { cost }
    }
}

/// A run of an op that was timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What ran.
    pub work: Work,
    /// How long.
    pub seconds: f64,
    /// How often it was timed for that.
    pub runs: u32,
}

/// What ops and transfers cost on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Runs that were timed on this machine, by the op's name.
    pub samples: Arc<BTreeMap<String, Vec<Sample>>>,
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
            samples: Arc::default(),
            other: Rate { flops: 1.5e11, bytes: 1e10, overhead: 2e-6 },
            ops: BTreeMap::new(),
            write: 1.2e9,
            read: 2e9,
            latency: 1e-4,
            beside: 4e9,
        }
    }
}

/// What was timed so often was not slow by chance.
pub const SURE: u32 = 3;

impl CostModel {
    /// The same figures without the plainest errors. Other work on the machine makes a run longer, never shorter, and what was timed a few times may have
    /// been unlucky: an op on fewer entries of a batch takes no longer than on more of them, and on more no longer for each than on fewer.
    #[must_use]
    pub fn settled(mut self) -> CostModel {
        let timed = self.samples.clone();
        for (op, samples) in Arc::make_mut(&mut self.samples) {
            for sample in samples.iter_mut().filter(|s| s.runs < SURE) {
                let others = timed[op].iter().filter_map(|s| Some((s, sample.work.part_of(&s.work)?)));
                let least = others.map(|(s, part)| s.seconds / part.min(1.0)).fold(f64::INFINITY, f64::min);
                sample.seconds = sample.seconds.min(least);
            }
        }
        self
    }

    /// Seconds that an op with this name takes for some work.
    ///
    /// What was timed is known. Between the same op on smaller and on larger batches time is taken to grow evenly: a kernel on a small slice
    /// takes more than its part of the time. Beyond the largest batch it grows with the batch: under a limit there is no room to time the whole. Otherwise
    /// it is scaled from the likest run that was timed, by what their costs differ in.
    pub fn seconds(&self, op: &str, work: &Work) -> f64 {
        let samples = self.samples.get(op).map_or(&[][..], Vec::as_slice);
        if let Some(known) = samples.iter().find(|s| s.work == *work) {
            return known.seconds;
        }
        // The part of this work that the next smaller and the next larger one are, and their seconds.
        let mut below: Option<(f64, f64)> = None;
        let mut above: Option<(f64, f64)> = None;
        for sample in samples {
            match work.part_of(&sample.work) {
                Some(part) if part < 1.0 && below.is_none_or(|b| b.0 < part) => below = Some((part, sample.seconds)),
                Some(part) if part > 1.0 && above.is_none_or(|a| a.0 > part) => above = Some((part, sample.seconds)),
                _ => {}
            }
        }
        match (below, above) {
            (Some((small, less)), Some((large, more))) => {
                return less + (more - less) * (1.0 - small) / (large - small);
            }
            (Some((small, less)), None) => return less / small,
            _ => {}
        }
        let guess = self.guess(op, &work.cost);
        let mut likest: (f64, Option<&Sample>) = (f64::INFINITY, None);
        for sample in samples {
            let distance = work.distance(&sample.work, likest.0);
            if distance < likest.0 {
                likest = (distance, Some(sample));
            }
        }
        likest.1.map_or(guess, |s| s.seconds * guess / self.guess(op, &s.work.cost))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn work(batch: u64) -> Work {
        let cost = Cost { flops: 1_000_000 * batch, bytes: 40_000 + 1000 * batch };
        Work { cost, sizes: format!("{batch}x256,256x10,{batch}x10").parse().unwrap() }
    }

    fn model(times: &[(u64, f64)]) -> CostModel {
        let samples = times.iter().map(|&(batch, seconds)| Sample { work: work(batch), seconds, runs: 3 }).collect();
        CostModel { samples: Arc::new([("matmul".into(), samples)].into()), ..CostModel::default() }
    }

    #[test]
    fn what_was_timed_is_known_and_what_is_between_lies_between() {
        let model = model(&[(2, 4e-3), (32, 10e-3), (8, 6e-3)]);
        for (batch, seconds) in [(2, 4e-3), (8, 6e-3), (32, 10e-3), (5, 5e-3), (20, 8e-3)] {
            let predicted = model.seconds("matmul", &work(batch));
            assert!((predicted - seconds).abs() < 1e-9, "{batch}: {predicted}");
        }
        // Beyond them it is scaled from the nearest.
        let twice = model.seconds("matmul", &work(64));
        assert!((18e-3..21e-3).contains(&twice), "{twice}");
    }

    #[test]
    fn what_was_unlucky_is_put_right_by_what_was_not() {
        let mut timed = model(&[(2, 4e-3), (8, 30e-3), (16, 20e-3), (64, 90e-3)]);
        let lower = |model: &CostModel| [2, 8, 16, 64].map(|batch| model.seconds("matmul", &work(batch)));
        assert_eq!(lower(&timed.clone().settled()), [4e-3, 30e-3, 20e-3, 90e-3], "all were timed often");
        Arc::make_mut(&mut timed.samples).get_mut("matmul").unwrap().iter_mut().for_each(|s| s.runs = 1);
        // Eight entries take no longer than four times two or than sixteen, and sixty-four no longer than four times sixteen.
        assert_eq!(lower(&timed.settled()), [4e-3, 16e-3, 20e-3, 80e-3]);
    }

    #[test]
    fn a_whole_batch_is_known_from_its_slices_rather_than_from_another_op_of_its_size() {
        let mut model = model(&[(2, 4e-3), (8, 6e-3)]);
        let cost = Cost { flops: 70_000_000, bytes: 100_000 };
        let other =
            Sample { work: Work { cost, sizes: "64x280,280x10,64x10".parse().unwrap() }, seconds: 1.0, runs: 3 };
        Arc::make_mut(&mut model.samples).get_mut("matmul").unwrap().push(other);
        let predicted = model.seconds("matmul", &work(64));
        assert!((predicted - 8.0 * 6e-3).abs() < 1e-9, "{predicted}");
    }

    #[test]
    fn of_equal_costs_the_sizes_decide() {
        let cost = Cost { flops: 1 << 30, bytes: 1 << 20 };
        let of = |sizes: &str| Work { cost, sizes: sizes.parse().unwrap() };
        let sample = |sizes: &str, seconds: f64| Sample { work: of(sizes), seconds, runs: 3 };
        let samples = vec![sample("8x1024,1024x256,8x256", 1e-3), sample("8x1024,256x1024,8x256", 2e-3)];
        let model = CostModel { samples: Arc::new([("matmul".into(), samples)].into()), ..CostModel::default() };
        assert_eq!(model.seconds("matmul", &of("8x1024,256x1024,8x256")), 2e-3);
        assert_eq!(model.seconds("matmul", &of("9x1024,256x1023,9x256")), 2e-3);
    }

    #[test]
    fn sizes_print_and_parse() {
        for text in ["3x4,4", "7,,7", "5x0x2"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        assert!("3x,q".parse::<Sizes>().is_err());
    }
}
