//! Measuring what ops cost on this machine, so that the planner's predictions are about it.
//!
//! The ops of the model at hand are timed, at the sizes it has, for a second at most; the figures are kept in a file by CPU and
//! number of threads, so that the next run finds them. Costs decide only which of several equal ways is taken: a wrong figure
//! costs time, never a result.

use crate::arena::Arena;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_graph::{Cost, Graph, Io, NodeId, Operand, Types, Value};
use plimsoll_kernels::Pool;
use plimsoll_plan::CostModel;
use plimsoll_plan::cost::Sample;
use plimsoll_tensor::TensorType;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most samples kept of an op.
const PER_OP: usize = 64;

/// An op is known when a sample differs by no more than this factor in operations and bytes.
const ALIKE: f64 = 1.1;

/// A run that takes longer than this is timed only when nothing is known about its op.
const LONG: f64 = 0.06;

/// Times the ops of these graphs that the model does not know yet, the weightiest first, and adds them to it. Takes at most
/// `time` and `room` bytes. Gives back whether anything was added.
pub fn calibrate(model: &mut CostModel, graphs: &[&Graph], pool: &Pool, room: Bytes, time: Duration) -> bool {
    let begin = Instant::now();
    let mut added = false;
    for (graph, id) in by_weight(model, graphs) {
        let op = &graph.node(id).op;
        let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
        let (inputs, outputs) = (of(&graph.node(id).inputs), of(&graph.node(id).outputs));
        let types = Types { inputs: &inputs, outputs: &outputs };
        let cost = op.cost(&types);
        let guess = model.seconds(op.name(), &cost);
        let unknown = !model.samples.contains_key(op.name());
        let left = time.saturating_sub(begin.elapsed()).as_secs_f64();
        if is_known(model, op.name(), &cost) || guess > if unknown { left / 2.0 } else { LONG.min(left) } {
            continue;
        }
        if let Some(seconds) = time_op(&**op, &types, pool, room) {
            let samples = model.samples.entry(op.name().to_owned()).or_default();
            if samples.len() < PER_OP {
                samples.push(Sample { cost, seconds });
                added = true;
            }
        }
        if begin.elapsed() >= time {
            break;
        }
    }
    added
}

fn is_known(model: &CostModel, name: &str, cost: &Cost) -> bool {
    let near = |a: u64, b: u64| (a.max(b) + 1) as f64 <= ALIKE * (a.min(b) + 1) as f64;
    let known = model.samples.get(name).map_or(&[][..], Vec::as_slice);
    known.iter().any(|s| near(s.cost.flops, cost.flops) && near(s.cost.bytes, cost.bytes))
}

/// One node of every kind and cost, those on which the graphs spend most time first.
fn by_weight<'g>(model: &CostModel, graphs: &[&'g Graph]) -> Vec<(&'g Graph, NodeId)> {
    let mut kinds: BTreeMap<(&'static str, u64, u64), (&'g Graph, NodeId, f64)> = BTreeMap::new();
    for &graph in graphs {
        for (id, node) in graph.nodes().filter(|(_, n)| n.op.runs()) {
            let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *graph.ty(v)).collect() };
            let (inputs, outputs) = (of(&node.inputs), of(&node.outputs));
            let cost = node.op.cost(&Types { inputs: &inputs, outputs: &outputs });
            let seconds = model.seconds(node.op.name(), &cost);
            kinds.entry((node.op.name(), cost.flops, cost.bytes)).or_insert((graph, id, 0.0)).2 += seconds;
        }
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by(|a, b| b.2.total_cmp(&a.2));
    kinds.into_iter().map(|(graph, id, _)| (graph, id)).collect()
}

/// Seconds of one run of an op on memory of its own, all zeros; `None` when there is no room or it cannot run alone.
fn time_op(op: &dyn plimsoll_graph::OpDef, types: &Types<'_>, pool: &Pool, room: Bytes) -> Option<f64> {
    let aligned = |bytes: usize| (bytes as u64).next_multiple_of(64);
    let workspace = op.workspace(types, pool.threads());
    let operands = types.inputs.iter().chain(types.outputs).map(|t| aligned(t.bytes()));
    let bytes = operands.sum::<u64>() + aligned(workspace);
    if bytes > room.0 {
        return None;
    }
    let arena = Arena::new(Budget::unlimited().account("calibration").reserve(Bytes(bytes)).ok()?).ok()?;
    let mut used = 0;
    let mut take = |bytes: usize| {
        let at = used;
        used += aligned(bytes);
        // SAFETY: the arena has room for all operands, which are taken once each.
        unsafe { arena.ptr().add(at as usize) }
    };
    let inputs: Vec<Operand> = types.inputs.iter().map(|ty| Operand { ptr: take(ty.bytes()), ty: *ty }).collect();
    let mut outputs: Vec<Operand> = types.outputs.iter().map(|ty| Operand { ptr: take(ty.bytes()), ty: *ty }).collect();
    for &(input, output) in op.mutates() {
        outputs[output].ptr = inputs[input].ptr;
    }
    let scratch = take(workspace);
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        // SAFETY: operands and workspace are valid memory of the arena, apart from each other, in place where the op says.
        let io = unsafe { Io::new(&inputs, &outputs, scratch, workspace, pool) };
        op.run(&io).ok()?;
        best = best.min(start.elapsed().as_secs_f64());
        if best > LONG / 2.0 {
            break;
        }
    }
    Some(best)
}

/// Where figures are kept between runs: in the user's cache directory, by CPU and number of threads. `None` when the
/// environment names no such directory.
pub fn cache_path(threads: usize) -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")))?;
    let level = std::env::var("PLIMSOLL_SIMD").unwrap_or_default();
    // A name that tells processors apart; it need not be read back.
    let hash = format!("{}{level}", processor())
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ b as u64).wrapping_mul(0x0100_0000_01b3));
    Some(base.join("plimsoll").join(format!("costs-{hash:016x}-{threads}.txt")))
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|l| l.starts_with("model name") || l.starts_with("CPU part"));
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

/// The first line of a file of figures.
const HEADER: &str = "plimsoll costs 1";

/// Adds the figures of a file to a model. A file that is missing or not ours adds nothing.
pub fn load(model: &mut CostModel, path: &Path) {
    // A file of figures is small: more is not read.
    let small = std::fs::metadata(path).is_ok_and(|m| m.len() < 1 << 20);
    let Some(text) = small.then(|| std::fs::read_to_string(path).ok()).flatten() else { return };
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return;
    }
    let mut seen: HashSet<(String, u64, u64)> = HashSet::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let mut next = || words.next();
        let (Some(op), Some(flops), Some(bytes), Some(seconds)) = (next(), next(), next(), next()) else { continue };
        let (Ok(flops), Ok(bytes), Ok(seconds)) = (flops.parse(), bytes.parse(), seconds.parse::<f64>()) else {
            continue;
        };
        let samples = model.samples.entry(op.to_owned()).or_default();
        if seconds > 0.0 && seconds < 1e6 && samples.len() < PER_OP && seen.insert((op.to_owned(), flops, bytes)) {
            samples.push(Sample { cost: Cost { flops, bytes }, seconds });
        }
    }
}

/// Writes a model's figures to a file, whole or not at all. What goes wrong is not worth an error: the next run measures again.
pub fn save(model: &CostModel, path: &Path) {
    let mut text = format!("{HEADER}\n");
    for (op, samples) in &model.samples {
        for Sample { cost, seconds } in samples {
            let _ = writeln!(text, "{op} {} {} {seconds:e}", cost.flops, cost.bytes);
        }
    }
    let Some(folder) = path.parent() else { return };
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&part, text));
    if written.and_then(|()| std::fs::rename(&part, path)).is_err() {
        let _ = std::fs::remove_file(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_tensor::DType;

    fn chain() -> Graph {
        let mut g = Graph::new();
        let x = g.input("x", TensorType::new(DType::F32, [256, 512]));
        let w = g.input("w", TensorType::new(DType::F32, [512, 512]));
        let h = g.matmul(x, w).unwrap();
        let y = g.exp(h).unwrap();
        g.output("y", y);
        plimsoll_plan::fuse::fuse(&g).unwrap()
    }

    #[test]
    fn the_ops_of_a_model_are_timed_once() {
        let (graph, pool) = (chain(), Pool::new(1));
        let mut model = CostModel::default();
        assert!(calibrate(&mut model, &[&graph], &pool, Bytes::mib(64), Duration::from_secs(5)));
        assert_eq!(model.samples.keys().collect::<Vec<_>>(), ["fused", "matmul"]);
        let again = model.clone();
        assert!(!calibrate(&mut model, &[&graph], &pool, Bytes::mib(64), Duration::from_secs(5)));
        assert_eq!(model, again);
        // A matrix product of twice the rows takes twice the time.
        let Sample { cost, seconds } = model.samples["matmul"][0];
        let twice = Cost { flops: 2 * cost.flops, bytes: 2 * cost.bytes };
        let ratio = model.seconds("matmul", &twice) / seconds;
        assert!((1.5..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn nothing_is_timed_without_room() {
        let mut model = CostModel::default();
        assert!(!calibrate(&mut model, &[&chain()], &Pool::new(1), Bytes::kib(64), Duration::from_secs(5)));
    }

    #[test]
    fn figures_are_kept_and_nonsense_is_not() {
        let folder = std::env::temp_dir().join(format!("plimsoll-costs-{}", std::process::id()));
        let path = folder.join("costs.txt");
        let mut model = CostModel::default();
        let sample = Sample { cost: Cost { flops: 7, bytes: 9 }, seconds: 1.25e-5 };
        model.samples.insert("matmul".into(), vec![sample]);
        save(&model, &path);
        let mut read = CostModel::default();
        load(&mut read, &path);
        assert_eq!(read, model);
        for nonsense in
            ["", "something else\nmatmul 1 2 3\n", "plimsoll costs 1\nmatmul 1\nmatmul x y z\nmatmul 1 2 -3\n\u{0}"]
        {
            std::fs::write(&path, nonsense).unwrap();
            let mut read = CostModel::default();
            load(&mut read, &path);
            assert!(read.samples.values().all(Vec::is_empty), "{nonsense:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
