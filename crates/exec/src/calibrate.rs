//! Measuring what ops cost on this machine, so that the planner's predictions are about it.
//!
//! The ops of the model at hand are timed, at the sizes it has, for a second at most; the figures are kept in a file by CPU and
//! number of threads, so that the next run finds them. Costs decide only which of several equal ways is taken: a wrong figure
//! costs time, never a result.

mod disk;

pub use disk::time_disk;

use crate::arena::Arena;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_graph::{Cost, Graph, Io, NodeId, OpDef, Operand, Types, Value};
use plimsoll_kernels::Pool;
use plimsoll_plan::CostModel;
use plimsoll_plan::cost::{SURE, Sample, Sizes, Work};
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The most samples kept of an op: the oldest leave.
const PER_OP: usize = 1024;

/// An op is known when it was timed on a batch that differs by no more than this factor.
const ALIKE: f64 = 1.1;

/// A run that takes longer than this is timed once, for what it takes to count: time is better spent on what was not timed yet.
const LONG: f64 = 0.06;

/// How often what is new is timed, if there is time: other work on the machine makes a run longer, never shorter.
const PASSES: usize = SURE as usize;

/// The part of a step's time for which ops are timed again, and the most: who waits long for every step has a longer moment to spare before the first,
/// and ops that take long are not known from one busy hour for good.
const AGAIN: f64 = 0.125;
const LONGEST_AGAIN: f64 = 0.9;

/// Where what is timed again takes less than this part of what was noted, the notes are of a busier hour.
const FASTER: f64 = 0.85;

/// What was timed before may have become slower by this part since.
const AGE: f64 = 0.02;

/// Times the ops of these graphs that the model does not know yet, and adds them to it: those first that were never timed, the weightiest of them
/// first, so that what one process has no time for the next one finds at the front. Takes at most `time` and `room` bytes. Gives back whether
/// anything was added.
pub fn calibrate(model: &mut CostModel, graphs: &[&Graph], pool: &Pool, room: Bytes, time: Duration) -> bool {
    let kinds = within(unsettled(model, graphs), pool, room);
    let Some(mut bench) = Bench::new(&kinds, pool, room) else { return false };
    // Without the time that memory takes to come, which may be all of it where the host gives it slowly.
    let begin = Instant::now();
    let mut timed: Vec<bool> = vec![false; kinds.len()];
    for pass in 0..PASSES {
        // What is timed while threads are in each other's way is timed again by the next process.
        let counts = gather(pool) as u32;
        for (kind, timed) in kinds.iter().zip(&mut timed) {
            let old = known(model, kind.name(), &kind.work).cloned();
            let left = time.saturating_sub(begin.elapsed()).as_secs_f64();
            let most = if old.as_ref().is_some_and(|old| old.runs > 0) { LONG.min(left) } else { left / 2.0 };
            if pass > 0 && !*timed || model.seconds(kind.name(), &kind.work) > most {
                continue;
            }
            let Some(seconds) = bench.time(kind) else { continue };
            let runs = old.as_ref().map_or(0, |old| old.runs) + counts;
            let least = old.map_or(f64::INFINITY, |old| if *timed { old.seconds } else { aged(&old) });
            keep(model, kind, seconds.min(least), runs);
            *timed = true;
        }
    }
    timed.contains(&true)
}

/// Times ops again that the model knows, those first that weigh most and were timed least: a figure from a busy hour does not stay, nor does
/// one from before the machine became slower. Where they take much less than was noted, nothing of these graphs counts as known any more, for
/// [`calibrate`] to time it all. Takes at most `time`, or an eighth of a step if that is more, or as long as one op takes, and `room` bytes. Gives back
/// whether anything was timed.
pub fn refresh(model: &mut CostModel, graphs: &[&Graph], pool: &Pool, room: Bytes, time: Duration) -> bool {
    let mut kinds = within(by_weight(model, graphs), pool, room);
    let step = kinds.iter().map(|kind| kind.seconds).sum::<f64>() / graphs.len().max(1) as f64;
    let time = time.max(Duration::from_secs_f64((AGAIN * step).min(LONGEST_AGAIN)));
    kinds.retain(|kind| known(model, kind.name(), &kind.work).is_some());
    kinds.sort_by(|a, b| {
        let runs = |kind: &Kind<'_>| known(model, kind.name(), &kind.work).map_or(0, |s| s.runs);
        let weight = |kind: &Kind<'_>| kind.seconds / (1 + runs(kind)) as f64;
        weight(b).total_cmp(&weight(a))
    });
    // A busy machine has nothing to tell.
    if kinds.is_empty() || !gather(pool) {
        return false;
    }
    let Some(mut bench) = Bench::new(&kinds, pool, room) else { return false };
    let (mut before, mut now, begin) = (0.0, 0.0, Instant::now());
    for kind in &kinds {
        let left = time.saturating_sub(begin.elapsed()).as_secs_f64();
        // One is timed in any case.
        let left = if now > 0.0 { left } else { left.max(LONGEST_AGAIN) };
        let Some(old) = known(model, kind.name(), &kind.work).cloned().filter(|old| old.seconds < left) else {
            continue;
        };
        let Some(seconds) = bench.time(kind) else { continue };
        keep(model, kind, seconds.min(aged(&old)), old.runs.saturating_add(1));
        (before, now) = (before + old.seconds, now + seconds);
    }
    if now < FASTER * before {
        for kind in &kinds {
            let noted = known(model, kind.name(), &kind.work).expect("others were left out").seconds;
            keep(model, kind, noted, 0);
        }
    }
    now > 0.0
}

/// What a run may take now that was timed before.
fn aged(sample: &Sample) -> f64 {
    sample.seconds * (1.0 + AGE)
}

/// What was not timed often enough: first what was never, and of each the weightiest first.
fn unsettled<'g>(model: &CostModel, graphs: &[&'g Graph]) -> Vec<Kind<'g>> {
    let mut kinds = by_weight(model, graphs);
    kinds.retain(|kind| !is_known(model, kind.name(), &kind.work));
    kinds.sort_by_key(|kind| known(model, kind.name(), &kind.work).is_some());
    kinds
}

/// Those that can be timed within some room.
fn within<'g>(mut kinds: Vec<Kind<'g>>, pool: &Pool, room: Bytes) -> Vec<Kind<'g>> {
    kinds.retain(|kind| kind.need(pool.threads()).bytes() <= room.0);
    kinds
}

/// What is known of just such a run.
fn known<'m>(model: &'m CostModel, name: &str, work: &Work) -> Option<&'m Sample> {
    model.samples.get(name)?.iter().find(|s| s.work == *work)
}

/// Notes how long a run took.
fn keep(model: &mut CostModel, kind: &Kind<'_>, seconds: f64, runs: u32) {
    let sample = Sample { work: kind.work.clone(), seconds, runs };
    let samples = Arc::make_mut(&mut model.samples).entry(kind.name().to_owned()).or_default();
    match samples.iter_mut().find(|s| s.work == kind.work) {
        Some(known) => *known = sample,
        None => {
            samples.drain(..(samples.len() + 1).saturating_sub(PER_OP));
            samples.push(sample);
        }
    }
}

/// Waits until the threads of a pool run side by side, but not for long: new ones begin where the thread was that started them, and on a busy
/// machine they stay there for a while. Gives back whether they do.
fn gather(pool: &Pool) -> bool {
    const PATIENCE: Duration = Duration::from_millis(60);
    const ROUNDS: usize = 20;
    let begin = Instant::now();
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let side_by_side = pool.threads().min(n_cores);
    let mut rounds = 0;
    while rounds < ROUNDS && begin.elapsed() < PATIENCE {
        rounds = if meet(pool, side_by_side) { rounds + 1 } else { 0 };
    }
    rounds == ROUNDS
}

/// Whether so many threads of a pool come to work at once: each waits for the others, then computes for a while. A thread that has to wait for the
/// core of another comes milliseconds later.
fn meet(pool: &Pool, n_threads: usize) -> bool {
    const SOON: Duration = Duration::from_micros(200);
    let (arrived, alone) = (AtomicUsize::new(0), AtomicBool::new(false));
    pool.run(n_threads, &|task, _| {
        let begin = Instant::now();
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < n_threads {
            if begin.elapsed() > SOON {
                alone.store(true, Ordering::Relaxed);
                break;
            }
            std::hint::spin_loop();
        }
        (0..10).for_each(|_| spin(task));
    });
    !alone.into_inner()
}

/// Something to compute for about 10 microseconds.
fn spin(task: usize) {
    let mut sums = [task as f32; 16];
    for _ in 0..4000 {
        sums.iter_mut().for_each(|x| *x = *x * 0.999 + 0.001);
    }
    std::hint::black_box(sums);
}

/// Whether an op was timed on such a batch, often enough that it was not by chance.
fn is_known(model: &CostModel, name: &str, work: &Work) -> bool {
    let known = model.samples.get(name).map_or(&[][..], Vec::as_slice);
    let alike = |part: f64| (1.0 / ALIKE..=ALIKE).contains(&part);
    known.iter().any(|s| s.runs as usize >= PASSES && work.part_of(&s.work).is_some_and(alike))
}

/// A node that stands for all of its op, cost and sizes.
struct Kind<'g> {
    graph: &'g Graph,
    node: NodeId,
    work: Work,
    /// Of all of them.
    seconds: f64,
}

impl Kind<'_> {
    fn name(&self) -> &'static str {
        self.op().name()
    }

    fn op(&self) -> &dyn OpDef {
        &*self.graph.node(self.node).op
    }

    /// The types of inputs and outputs.
    fn types(&self) -> (Vec<TensorType>, Vec<TensorType>) {
        let of = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *self.graph.ty(v)).collect() };
        let node = self.graph.node(self.node);
        (of(&node.inputs), of(&node.outputs))
    }

    /// The memory that it needs to run.
    fn need(&self, threads: usize) -> Need {
        let (inputs, outputs) = self.types();
        let workspace = self.op().workspace(&Types { inputs: &inputs, outputs: &outputs }, threads);
        let sum = |types: &[TensorType]| types.iter().map(|t| aligned(t.bytes())).sum::<u64>();
        let (first, others) = inputs.split_at(inputs.len().min(1));
        Need { near: sum(first) + sum(&outputs) + aligned(workspace), far: sum(others), workspace }
    }
}

/// The memory that an op needs to run.
struct Need {
    /// For its first input, its results and its workspace.
    near: u64,
    /// For the other inputs.
    far: u64,
    /// Bytes of workspace.
    workspace: usize,
}

impl Need {
    fn bytes(&self) -> u64 {
        self.near + self.far
    }
}

/// One node of every kind and cost, those on which the graphs spend most time first.
fn by_weight<'g>(model: &CostModel, graphs: &[&'g Graph]) -> Vec<Kind<'g>> {
    let mut kinds: BTreeMap<(&'static str, Sizes, u64, u64), Kind<'g>> = BTreeMap::new();
    for &graph in graphs {
        for (id, node) in graph.nodes().filter(|(_, n)| n.op.runs() && n.op.transfer().is_none()) {
            let work = Work::of(graph, node);
            let seconds = model.seconds(node.op.name(), &work);
            let key = (node.op.name(), work.sizes.clone(), work.cost.flops, work.cost.bytes);
            kinds.entry(key).or_insert(Kind { graph, node: id, work, seconds: 0.0 }).seconds += seconds;
        }
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    kinds
}

/// As operands are placed.
fn aligned(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(64)
}

/// How much memory the inputs besides the first are taken from in turn, where there is room: more than caches near the cores hold.
const FAR: u64 = 32 << 20;

/// Memory in which ops are timed, so that each finds its operands as in a step: the first, and the memory for its results, where the op before
/// worked; the others (weights, what was kept for the way back) where nobody was for some time.
///
/// The same op on the same memory again and again would find everything in caches: by that the ops of a step of W5 take 0.90 of what they do.
struct Bench<'p> {
    arena: Arena,
    /// Where memory begins that inputs besides the first are in, and where the next ones are.
    far: u64,
    next: u64,
    pool: &'p Pool,
}

impl Bench<'_> {
    /// A bench for these ops within some room; `None` when there is nothing to time or no memory.
    fn new<'p>(kinds: &[Kind<'_>], pool: &'p Pool, room: Bytes) -> Option<Bench<'p>> {
        let needs: Vec<Need> = kinds.iter().map(|kind| kind.need(pool.threads())).collect();
        let largest = needs.iter().map(Need::bytes).max()?;
        let near = needs.iter().map(|need| need.near).max()?;
        let bytes = largest.max(room.0.min(near + FAR));
        let reservation = Budget::unlimited().account("calibration").reserve(Bytes(bytes)).ok()?;
        Some(Bench { arena: Arena::new(reservation).ok()?, far: near, next: near, pool })
    }

    /// Seconds of one run of an op; `None` when it cannot run on zeros.
    fn time(&mut self, kind: &Kind<'_>) -> Option<f64> {
        let (in_types, out_types) = kind.types();
        let types = Types { inputs: &in_types, outputs: &out_types };
        let need = kind.need(self.pool.threads());
        let end = self.arena.bytes() as u64;
        // The last of these may be among what other ops have near: what comes next must be above what this one has.
        let fits = |at: &u64| need.near <= *at && at + need.far <= end;
        let mut far = [self.next, self.far, need.near].into_iter().find(fits)?;
        let (mut near, far_begin) = (0, far);
        let take = |at: &mut u64, bytes: usize| {
            // SAFETY: the arena has room for all operands, which are taken once each.
            let ptr = unsafe { self.arena.ptr().add(*at as usize) };
            *at += aligned(bytes);
            ptr
        };
        let mut inputs = Vec::with_capacity(in_types.len());
        for (i, &ty) in in_types.iter().enumerate() {
            inputs.push(Operand { ptr: take(if i == 0 { &mut near } else { &mut far }, ty.bytes()), ty });
        }
        let mut outputs: Vec<Operand> =
            out_types.iter().map(|&ty| Operand { ptr: take(&mut near, ty.bytes()), ty }).collect();
        let scratch = take(&mut near, need.workspace);
        debug_assert!(near <= far_begin && far <= end, "operands are apart");
        for &(input, output) in kind.op().mutates() {
            outputs[output].ptr = inputs[input].ptr;
        }
        // What goes on with a sum, or with a value that is put together, does so in place.
        for (o, output) in outputs.iter_mut().enumerate().filter(|_| !kind.op().repeats()) {
            let over = |i: &usize| types.inputs[*i] == output.ty && kind.op().may_overwrite(*i, o, &types);
            if let Some(input) = (0..inputs.len()).rev().find(over) {
                output.ptr = inputs[input].ptr;
            }
        }
        self.next = far;
        let begin = Instant::now();
        // SAFETY: operands and workspace are valid memory of the arena, apart from each other, in place where the op says.
        let io = unsafe { Io::new(&inputs, &outputs, scratch, need.workspace, self.pool) };
        let outcome = kind.op().run(&io);
        let seconds = begin.elapsed().as_secs_f64();
        // All of it is zero again: what one op has written may be nonsense to another, and whole numbers read as floats slow it down.
        // SAFETY: inside the arena, and nobody's any more.
        unsafe { std::ptr::write_bytes(self.arena.ptr(), 0, near as usize) };
        for operand in &outputs {
            // SAFETY: as above.
            unsafe { std::ptr::write_bytes(operand.ptr, 0, operand.ty.bytes()) };
        }
        outcome.ok().map(|()| seconds)
    }
}

/// Where figures are kept between runs: in the user's cache directory, by CPU, build and number of threads. `None` when the
/// environment names no such directory.
pub fn cache_path(threads: usize) -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")))?;
    let level = std::env::var("PLIMSOLL_SIMD").unwrap_or_default();
    // A name that tells processors and builds apart; it need not be read back.
    let build = concat!(env!("CARGO_PKG_VERSION"), " ");
    let profile = if cfg!(debug_assertions) { "development" } else { "release" };
    let hash = format!("{}{level}{build}{profile}", processor())
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
const HEADER: &str = "plimsoll costs 2";

/// A file of figures that has grown larger loses its older half.
const LARGEST: u64 = 512 << 10;

/// Of an op that was never timed on such operands, this many other runs are read: the likest is better than nothing.
const OTHERS: usize = 8;

/// Adds what a file says of the ops of these graphs to a model. A file that is missing or not ours adds nothing.
pub fn load(model: &mut CostModel, path: &Path, graphs: &[&Graph]) {
    let Some(lines) = lines(path) else { return };
    let mut wanted: BTreeMap<&'static str, (Vec<Work>, usize)> = BTreeMap::new();
    for kind in by_weight(&CostModel::default(), graphs) {
        wanted.entry(kind.name()).or_default().0.push(kind.work);
    }
    let samples = Arc::make_mut(&mut model.samples);
    for (op, sample) in lines.filter_map(|line| parse(&line)) {
        let Some((works, others)) = wanted.get_mut(op.as_str()) else { continue };
        let known = samples.get(&op).map_or(&[][..], Vec::as_slice);
        let is_own = works.iter().any(|work| work.part_of(&sample.work).is_some());
        *others += usize::from(!is_own);
        if (is_own || *others <= OTHERS) && known.len() < PER_OP && known.iter().all(|s| s.work != sample.work) {
            samples.entry(op).or_default().push(sample);
        }
    }
}

/// The lines of a file of figures after the first; `None` when it is not there or not ours.
fn lines(path: &Path) -> Option<impl Iterator<Item = String> + use<>> {
    let mut lines = BufReader::new(std::fs::File::open(path).ok()?.take(4 * LARGEST)).lines();
    (lines.next()?.ok()? == HEADER).then(|| lines.map_while(Result::ok))
}

/// A line of a file of figures.
fn parse(line: &str) -> Option<(String, Sample)> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[op, flops, bytes, sizes, runs, seconds] = &words[..] else { return None };
    let cost = Cost { flops: flops.parse().ok()?, bytes: bytes.parse().ok()? };
    let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e6)?;
    let work = Work { cost, sizes: sizes.parse().ok()? };
    Some((op.to_owned(), Sample { work, seconds, runs: runs.parse().ok()? }))
}

/// The line of a run: what ran, and how long.
fn line(op: &str, sample: &Sample) -> (String, String) {
    let Sample { work: Work { cost, sizes }, seconds, runs } = sample;
    (format!("{op} {} {} {sizes} ", cost.flops, cost.bytes), format!("{runs} {seconds:e}"))
}

/// Adds a model's figures to a file, which is then whole or as it was. What goes wrong is not worth an error: the next run measures again.
pub fn save(model: &CostModel, path: &Path) {
    let Some(folder) = path.parent() else { return };
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let written = std::fs::create_dir_all(folder).and_then(|()| write(model, path, &part));
    if written.and_then(|()| std::fs::rename(&part, path)).is_err() {
        let _ = std::fs::remove_file(&part);
    }
}

/// Writes a file that has a model's figures and those of another file that are not about the same.
fn write(model: &CostModel, old: &Path, new: &Path) -> io::Result<()> {
    let samples = model.samples.iter().flat_map(|(op, samples)| samples.iter().map(|s| line(op, s)));
    let ours: BTreeMap<String, String> = samples.collect();
    let is_ours =
        |line: &str| ours.contains_key(line.trim_end_matches(|c| c != ' ').trim_end().trim_end_matches(|c| c != ' '));
    let size = std::fs::metadata(old).map_or(0, |m| m.len());
    let (mut passed, skipped) = (0, if size > LARGEST { size / 2 } else { 0 });
    let mut file = BufWriter::new(std::fs::File::create(new)?);
    writeln!(file, "{HEADER}")?;
    for line in lines(old).into_iter().flatten() {
        passed += line.len() as u64 + 1;
        if passed > skipped && !is_ours(&line) {
            writeln!(file, "{line}")?;
        }
    }
    ours.iter().try_for_each(|(what, how)| writeln!(file, "{what}{how}"))?;
    file.flush()
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
        let Sample { work: Work { cost, .. }, seconds, .. } = model.samples["matmul"][0].clone();
        let twice = Cost { flops: 2 * cost.flops, bytes: 2 * cost.bytes };
        let sizes = "512x512,512x512,512x512".parse().unwrap();
        let ratio = model.seconds("matmul", &Work { cost: twice, sizes }) / seconds;
        assert!((1.5..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn threads_that_cannot_be_there_at_once_do_not_meet() {
        assert!(gather(&Pool::new(1)));
        assert!(!meet(&Pool::new(1), 2));
        assert!(!meet(&Pool::new(2), 3));
        // On a machine that does nothing else for a moment these do.
        let pool = Pool::new(2);
        let met = (0..2000).any(|_| meet(&pool, 2));
        assert!(met || std::thread::available_parallelism().is_ok_and(|n| n.get() == 1));
    }

    #[test]
    fn what_was_never_timed_comes_before_what_was_timed_on_a_busy_machine() {
        let graph = chain();
        let names = |model: &CostModel| unsettled(model, &[&graph]).iter().map(Kind::name).collect::<Vec<_>>();
        let mut model = CostModel::default();
        assert_eq!(names(&model), ["matmul", "fused"], "the weightiest first");
        let matmul = unsettled(&model, &[&graph]).swap_remove(0);
        keep(&mut model, &matmul, 1.0, 0);
        assert_eq!(names(&model), ["fused", "matmul"]);
        keep(&mut model, &matmul, 1.0, PASSES as u32);
        assert_eq!(names(&model), ["fused"]);
    }

    /// A product whose weights have room only among what other ops have near, before an op that has more near than the product.
    #[test]
    fn operands_stay_apart_where_room_is_short() {
        let mut g = Graph::new();
        let f32 = |rows: usize, columns: usize| TensorType::new(DType::F32, [rows, columns]);
        let (x, w) = (g.input("x", f32(8, 512)), g.input("w", f32(512, 512)));
        let (a, b, c) = (g.input("a", f32(384, 512)), g.input("b", f32(384, 512)), g.input("c", f32(768, 512)));
        let values = [g.matmul(x, w).unwrap(), g.add(a, b).unwrap(), g.exp(c).unwrap()];
        values.iter().enumerate().for_each(|(i, &v)| g.output(&format!("y{i}"), v));
        let mut model = CostModel::default();
        assert!(calibrate(&mut model, &[&g], &Pool::new(1), Bytes::mib(3) + Bytes::kib(64), Duration::from_secs(5)));
        assert_eq!(model.samples.len(), 3, "{:?}", model.samples.keys());
    }

    #[test]
    fn figures_of_a_busy_hour_do_not_stay() {
        let (graph, pool) = (chain(), Pool::new(1));
        let mut model = CostModel::default();
        let calm = Duration::from_secs(5);
        assert!(calibrate(&mut model, &[&graph], &pool, Bytes::mib(64), calm));
        let true_seconds = model.samples["matmul"][0].seconds;
        let samples = Arc::make_mut(&mut model.samples);
        samples.get_mut("matmul").unwrap()[0].seconds *= 100.0;
        assert!(refresh(&mut model, &[&graph], &pool, Bytes::mib(64), calm));
        assert!(model.samples["matmul"][0].seconds < 20.0 * true_seconds);
        let samples = Arc::make_mut(&mut model.samples);
        samples.values_mut().for_each(|of_op| of_op[0].seconds *= 1e-6);
        let (low, runs) = (samples["fused"][0].seconds, samples["fused"][0].runs);
        assert!(refresh(&mut model, &[&graph], &pool, Bytes::mib(64), calm));
        // What cannot be as fast any more is believed little by little: a process may have other work beside it.
        assert_eq!((model.samples["fused"][0].seconds, model.samples["fused"][0].runs), (low * (1.0 + AGE), runs + 1));
    }

    #[test]
    fn what_takes_long_is_timed_again_too() {
        let (graph, pool) = (chain(), Pool::new(1));
        let mut model = CostModel::default();
        for kind in &unsettled(&CostModel::default(), &[&graph]) {
            keep(&mut model, kind, 0.5, PASSES as u32);
        }
        // There is a moment for the first, and for the others an eighth of a step, which is not enough for another.
        assert!(refresh(&mut model, &[&graph], &pool, Bytes::mib(64), Duration::from_millis(1)));
        let n_fast = |model: &CostModel| model.samples.values().filter(|of_op| of_op[0].seconds < 0.4).count();
        assert_eq!(n_fast(&model), 1);
        // But by that one it is known that the others are wrong, too.
        assert!(calibrate(&mut model, &[&graph], &pool, Bytes::mib(64), Duration::from_secs(5)));
        assert_eq!(n_fast(&model), 2);
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
        let graph = chain();
        let mut model = CostModel::default();
        let work = |sizes: &str| Work { cost: Cost { flops: 7, bytes: 9 }, sizes: sizes.parse().unwrap() };
        let sample = |sizes: &str, seconds: f64| Sample { work: work(sizes), seconds, runs: 3 };
        let samples = ["2x3,3x4,2x4", "", "7,"].map(|sizes| sample(sizes, 1.25e-5));
        model.samples = Arc::new([("matmul".into(), samples.to_vec()), ("conv".into(), samples.to_vec())].into());
        save(&model, &path);
        let read = || {
            let mut read = CostModel::default();
            load(&mut read, &path, &[&graph]);
            read
        };
        // Of ops that are not in the graph nothing is read, and so much of others.
        let names = |model: &CostModel| model.samples.keys().cloned().collect::<Vec<_>>();
        assert_eq!((names(&read()), read().samples["matmul"].len()), (vec!["matmul".to_owned()], 3));
        // Figures are added to those that are there, in place of those about the same.
        let mut other = CostModel::default();
        let of = |sizes: &str, seconds: f64| vec![sample(sizes, seconds)];
        other.samples = Arc::new([("matmul".into(), of("2x3,3x4,2x4", 5e-5)), ("exp".into(), of("3", 1e-6))].into());
        save(&other, &path);
        let (matmul, text) = (read().samples["matmul"].clone(), std::fs::read_to_string(&path).unwrap());
        assert_eq!(matmul.iter().map(|s| s.seconds).collect::<Vec<_>>(), [1.25e-5, 1.25e-5, 5e-5]);
        assert_eq!(text.lines().count(), 1 + 3 + 3 + 1, "{text}");
        for nonsense in [
            "",
            "something else\nmatmul 1 2 3 4\n",
            "plimsoll costs 2\nmatmul 1\nmatmul x y z 1 1\nmatmul 1 2 3 1 -3\n\u{0}",
        ] {
            std::fs::write(&path, nonsense).unwrap();
            assert!(read().samples.values().all(Vec::is_empty), "{nonsense:?}");
        }
        // A file that has grown too large loses its older half.
        let many: String = (0..16_000).map(|i| format!("matmul 7 9 {i}x3,3x4,{i}x4 3 1e-5\n")).collect();
        std::fs::write(&path, format!("{HEADER}\n{many}")).unwrap();
        save(&model, &path);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(" 15999x3") && !text.contains(" 0x3") && text.lines().count() < 10_000);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
