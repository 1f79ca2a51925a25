//! The load line, judged from outside: random models under random limits, one process each.
//!
//! For every case the judge starts this program again as a child that trains and says what it came to. Judged is what the
//! kernel saw: the peak of resident memory (VmHWM) stays within the limit, and inside a control group whose limit *equals*
//! the memory limit nothing is killed and the group's limit is never hit. Results are the same bits as without a limit. A limit below
//! the smallest is refused before any step; the smallest that a refusal names works in a new process, and
//! 64 KiB below it is refused again.
//!
//! `PLIMSOLL_CASES=1000 cargo test -p plimsoll --test load_line` judges more cases than the quick 6;
//! `PLIMSOLL_FIRST_CASE=17` begins elsewhere.

use plimsoll::data::{AUTOTUNE, Arrays, Dataset, Feed};
use plimsoll::layers::*;
use plimsoll::losses::{MeanSquaredError, SparseCategoricalCrossEntropy};
use plimsoll::model::Model;
use plimsoll::optimizers::{Adam, AdamW, RmsProp, Sgd, UpdateOptions};
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{Budget, Bytes, DType, Error, Tensor, callbacks, measure};
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a run may do besides training, and what it may not do to keep its limit; more are added here and in
/// [`Case::trainer`] or [`Case::child`].
const SWITCHES: [&str; 9] = [
    "two-threads",
    "validation",
    "save",
    "predict",
    "no-split",
    "no-recompute",
    "no-spill",
    "checkpoint",
    "unknown-batches",
];

/// The first cases of all, among them those that found something, have only the switches above and two optimizers, each with half of the families. Those
/// from here on have these switches too, and any optimizer.
const MORE_FROM: u64 = 1000;
const MORE_SWITCHES: [&str; 4] = ["sample-weights", "clip-norm", "average", "accumulate"];

/// The kinds of models.
const FAMILIES: [&str; 6] = ["mlp", "cnn", "residual", "attention", "embedding", "lstm"];

/// How long a refusal may take, of processor time, in a build without optimization, too. One second is what it should take; the judge counts those that take longer.
const REFUSAL: Duration = Duration::from_secs(15);

/// How far below the smallest limit a run must be refused.
const RESOLUTION_KIB: u64 = 64;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() % (high - low + 1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.between(0, all.len() - 1)]
    }

    fn uniform(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}

/// A model with its data, and how it is trained: all from the seed.
struct Case {
    seed: u64,
    family: &'static str,
    switches: Vec<&'static str>,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut dice = Dice(seed);
        let family = FAMILIES[seed as usize % FAMILIES.len()];
        let more = if seed < MORE_FROM { &[][..] } else { &MORE_SWITCHES };
        let switches = SWITCHES.iter().chain(more).copied().filter(|_| dice.next().is_multiple_of(2)).collect();
        Case { seed, family, switches }
    }

    fn has(&self, switch: &str) -> bool {
        self.switches.contains(&switch)
    }

    fn describe(&self) -> String {
        format!("case {} ({}, {})", self.seed, self.family, self.switches.join(" "))
    }

    /// The model, its data and its batch size.
    fn build(&self) -> (Model, Arrays, usize) {
        let mut dice = Dice(self.seed ^ 0xabcd);
        let dice = &mut dice;
        let classes = dice.between(2, 12);
        let (shape, model): (Vec<usize>, Model) = match self.family {
            "mlp" => {
                let inputs = dice.between(8, 96);
                let mut model = Model::sequential([inputs]);
                let activation = dice.one_of(&[Activation::Tanh, Activation::Relu, Activation::Gelu]);
                for _ in 0..dice.between(3, 12) {
                    model = model.layer(Dense::new(dice.between(32, 256)).activation(activation));
                }
                (vec![inputs], model.layer(Dense::new(classes)))
            }
            "cnn" => {
                let side = dice.between(12, 28);
                let mut model = Model::sequential([side, side, 3]);
                for _ in 0..dice.between(2, 4) {
                    let conv = Conv2D::new(dice.between(8, 32), dice.one_of(&[1, 3])).same();
                    model = model.layer(conv).layer(BatchNorm::new()).layer(Activation::Relu);
                }
                (vec![side, side, 3], model.layer(GlobalAvgPool2D::new()).layer(Dense::new(classes)))
            }
            "residual" => {
                let (side, width) = (dice.between(8, 20), dice.between(8, 24));
                let mut model = Model::sequential([side, side, 3]).layer(Conv2D::new(width, 3).same());
                for _ in 0..dice.between(2, 4) {
                    let block = Residual::new()
                        .layer(Conv2D::new(width, 3).same())
                        .layer(BatchNorm::new())
                        .layer(Activation::Relu)
                        .layer(Conv2D::new(width, 1).same());
                    model = model.layer(block).layer(Activation::Relu);
                }
                (vec![side, side, 3], model.layer(GlobalAvgPool2D::new()).layer(Dense::new(classes)))
            }
            "attention" => {
                let (time, width) = (dice.between(8, 96), 8 * dice.between(2, 6));
                let mut model = Model::sequential([time, width]);
                for _ in 0..dice.between(1, 3) {
                    let heads = dice.one_of(&[1, 2, 4]);
                    let attention = Residual::new().layer(LayerNorm::new()).layer(MultiHeadAttention::new(heads, 8));
                    let dense = Residual::new()
                        .layer(Dense::new(4 * width).activation(Activation::Gelu))
                        .layer(Dropout::new(0.1))
                        .layer(Dense::new(width));
                    model = model.layer(attention).layer(dense);
                }
                (vec![time, width], model.layer(Flatten::new()).layer(Dense::new(classes)))
            }
            "embedding" => {
                let (time, words) = (dice.between(4, 40), dice.between(100, 3000));
                let model = Model::sequential_of(DType::I32, [time])
                    .layer(Embedding::new(words, dice.between(8, 64)))
                    .layer(Flatten::new())
                    .layer(Dense::new(dice.between(16, 128)).activation(Activation::Relu))
                    .layer(Dense::new(classes));
                (vec![time], model)
            }
            _ => {
                let (time, width) = (dice.between(4, 30), dice.between(4, 32));
                let model = Model::sequential([time, width])
                    .layer(LSTM::new(dice.between(8, 64)).return_sequences())
                    .layer(LSTM::new(dice.between(8, 64)))
                    .layer(Dense::new(classes));
                (vec![time, width], model)
            }
        };
        let batch = match self.family {
            "mlp" | "embedding" => dice.between(64, 1500),
            "cnn" | "residual" => dice.between(8, 64),
            _ => dice.between(8, 96),
        };
        // The last batch of an epoch is often a smaller one.
        let n = batch + dice.between(0, 1) * batch / 3;
        let mut dims = vec![n];
        dims.extend(&shape);
        let elements: usize = dims.iter().product();
        let x = match self.family {
            "embedding" => {
                let data: Vec<i32> = (0..elements).map(|_| (dice.next() % 100) as i32).collect();
                Tensor::from_slice(dims.as_slice(), &data).unwrap()
            }
            _ => {
                let data: Vec<f32> = (0..elements).map(|_| dice.uniform() as f32 - 0.5).collect();
                Tensor::from_slice(dims.as_slice(), &data).unwrap()
            }
        };
        let labels: Vec<i32> = (0..n).map(|_| (dice.next() % classes as u64) as i32).collect();
        let mut data = Arrays::new(x, Tensor::from_slice([n], &labels).unwrap()).unwrap();
        if self.has("sample-weights") {
            let weights: Vec<f32> = (0..n).map(|_| dice.one_of(&[0.0, 0.5, 1.0, 3.0])).collect();
            data = data.sample_weights(Tensor::from_slice([n], &weights).unwrap()).unwrap();
        }
        (model, data, batch)
    }

    fn trainer(&self, model: Model) -> Trainer {
        let loss = SparseCategoricalCrossEntropy::from_logits();
        let mut dice = Dice(self.seed ^ 0x4321);
        let optimizer = if self.seed < MORE_FROM { self.seed % 2 } else { dice.next() % 4 };
        let trainer = match optimizer {
            0 => Trainer::new(model, loss, Adam::new(1e-3)),
            1 => Trainer::new(model, loss, Sgd::new(1e-2).momentum(0.9)),
            2 => Trainer::new(model, loss, AdamW::new(1e-3)),
            _ => Trainer::new(model, loss, RmsProp::new(1e-3)),
        };
        let mut updates = UpdateOptions::new();
        if self.has("clip-norm") {
            updates = updates.clip_global_norm(0.5);
        }
        if self.has("average") {
            updates = updates.ema(0.9);
        }
        let [split, recompute, spill] = ["no-split", "no-recompute", "no-spill"].map(|switch| !self.has(switch));
        let threads = if self.has("two-threads") { 2 } else { 1 };
        let trainer =
            trainer.unwrap().threads(threads).seed(self.seed).techniques(Techniques { split, recompute, spill });
        trainer.updates(updates).accumulate(self.slices())
    }

    /// The slices that the user asks for.
    fn slices(&self) -> usize {
        if self.has("accumulate") { Dice(self.seed ^ 0x8765).between(2, 6) } else { 1 }
    }

    /// The data in batches whose sizes nobody knows before they come: two that have fewer rows, one in the middle.
    fn unknown_batches(&self, data: &Arrays, batch: usize) -> Dataset {
        let first = Dice(self.seed ^ 0x5678).between(1, data.len() - 1);
        let batches = |rows: Dataset| rows.filter(|_| Ok(true)).batch(batch);
        let rows = data.dataset();
        batches(rows.take(first as u64)).concatenate(&batches(rows.skip(first as u64)))
    }

    /// Trains and says what it came to; the exit code says whether it ran.
    fn child(&self, limit: &str) -> i32 {
        let (model, arrays, rows) = self.build();
        let unknown = self.has("unknown-batches").then(|| self.unknown_batches(&arrays, rows));
        let data: &dyn Feed = unknown.as_ref().map_or(&arrays, |batches| batches);
        let mut trainer = self.trainer(model).memory_limit(limit);
        let file = std::env::temp_dir().join(format!("plimsoll-load-line-{}", std::process::id()));
        let mut fit = Fit::epochs(2);
        if unknown.is_none() {
            fit = fit.batch_size(rows);
        }
        if self.has("validation") {
            fit = fit.validation(data);
        }
        if self.has("save") {
            fit = fit.callback(callbacks::SaveWeights::every_epoch(&file));
        }
        if self.has("checkpoint") {
            fit = fit.callback(callbacks::Checkpoint::every_epochs(file.with_extension("d"), 1).keep(1));
        }
        let mut ran = trainer.fit(data, fit).map(|_| Vec::new());
        if ran.is_ok() && self.has("predict") {
            // Batches as large as the slices that training was asked to run in: where nothing else may be cut, whole ones may need more.
            ran = trainer.predict(&arrays, rows.div_ceil(self.slices()));
        }
        let peak = measure::usage().unwrap().peak.0 / 1024;
        let _ = (std::fs::remove_file(&file), std::fs::remove_dir_all(file.with_extension("d")));
        match ran {
            Ok(results) => {
                let weights = trainer.weights().unwrap();
                let bytes = weights.iter().map(|(_, t)| t).chain(&results).flat_map(|t| t.bytes());
                let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3));
                println!("RAN {peak} {hash:016x}");
                if std::env::var("PLIMSOLL_LEDGER").is_ok() {
                    eprintln!("{}", trainer.ledger());
                }
                0
            }
            Err(Error::WouldNotFit(refusal)) => {
                println!("REFUSED {} {}", refusal.smallest.0.div_ceil(1024), trainer.steps_done());
                eprintln!("{refusal}");
                3
            }
            Err(other) => {
                println!("FAILED {other}");
                1
            }
        }
    }
}

/// What a child came to.
#[derive(Debug)]
struct Outcome {
    output: Output,
    /// Of the processors.
    time: Duration,
}

impl Outcome {
    fn words(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.output.stdout).into_owned();
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// The peak in KiB and the hash of a run.
    fn ran(&self) -> Result<(u64, String), String> {
        match (self.code(), &self.words()[..]) {
            (Some(0), [word, peak, hash]) if word == "RAN" => Ok((peak.parse().unwrap(), hash.clone())),
            _ => Err(format!("should have run: {:?}", self.output)),
        }
    }

    /// The smallest limit in KiB that a refusal names; nothing ran.
    fn refused(&self) -> Result<u64, String> {
        if self.time > REFUSAL {
            return Err(format!("refused after {:?}", self.time));
        }
        match (self.code(), &self.words()[..]) {
            (Some(3), [word, smallest, steps]) if word == "REFUSED" && steps == "0" => Ok(smallest.parse().unwrap()),
            _ => Err(format!("should have been refused: {:?}", self.output)),
        }
    }
}

#[allow(clippy::zombie_processes, reason = "`wait4` waits for it, and tells more")]
fn start(arguments: &[&str], group: Option<&Group>) -> Outcome {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--child").args(arguments).env_remove("PLIMSOLL_MEMORY_LIMIT");
    if let Some(group) = group {
        group.contain(&mut command);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    // Children say little, so that no pipe is ever full.
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    let (status, time) = wait(child.id());
    Outcome { output: Output { status, stdout, stderr }, time }
}

/// Waits for a child: how it ended, and its processor time, which does not depend on what else runs.
fn wait(id: u32) -> (ExitStatus, Duration) {
    let mut status = 0;
    // SAFETY: the structure is plain data, and both are valid for the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(id as libc::pid_t, &mut status, 0, &mut usage), id as libc::pid_t);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    (ExitStatus::from_raw(status), time(usage.ru_utime) + time(usage.ru_stime))
}

/// A memory control group of version 1, removed at the end.
struct Group(PathBuf);

impl Group {
    /// A group with a limit, where such groups can be made.
    fn new(name: &str, limit: Bytes) -> Option<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|l| l.split_once(":memory:"))?.1;
        let parent = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/'));
        let group = Group(parent.join(format!("plimsoll-{}-{name}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("memory.limit_in_bytes"), limit.0.to_string()).ok()?;
        Some(group)
    }

    fn contain(&self, command: &mut Command) {
        use std::os::unix::process::CommandExt;
        let file = std::ffi::CString::new(self.0.join("cgroup.procs").to_str().unwrap()).unwrap();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                let file = libc::open(file.as_ptr(), libc::O_WRONLY);
                let written = libc::write(file, c"0".as_ptr().cast(), 1);
                libc::close(file);
                if written == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
    }

    fn number(&self, file: &str, line: &str) -> u64 {
        let text = std::fs::read_to_string(self.0.join(file)).unwrap();
        let found = text.lines().find_map(|l| l.strip_prefix(line)).unwrap_or_else(|| panic!("{file}: {text}"));
        found.trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// What was seen over all cases.
#[derive(Default)]
struct Figures {
    runs: usize,
    in_groups: usize,
    /// How long they took, and whose they were.
    refusals: Vec<(Duration, u64)>,
    /// Limit less peak in KiB, of runs at the smallest limit.
    unused: Vec<u64>,
    /// The smallest limit in parts of what a run without one takes.
    saved: Vec<f64>,
}

impl Figures {
    fn merge(&mut self, other: Figures) {
        self.runs += other.runs;
        self.in_groups += other.in_groups;
        self.refusals.extend(other.refusals);
        self.unused.extend(other.unused);
        self.saved.extend(other.saved);
    }

    fn run(&mut self, case: &Case, limit_kib: u64, in_group: bool, hash: &str) -> Result<u64, String> {
        let (seed, limit) = (case.seed.to_string(), format!("{limit_kib}KiB"));
        let group = if in_group { Group::new(&seed, Bytes::kib(limit_kib)) } else { None };
        let outcome = start(&[&seed, &limit], group.as_ref());
        let fail = |what: String| format!("limit {limit}, group {in_group}: {what}");
        if let Some(group) = &group {
            self.in_groups += 1;
            let (killed, hit) = (group.number("memory.oom_control", "oom_kill "), group.number("memory.failcnt", ""));
            if (killed, hit) != (0, 0) {
                let peak = group.number("memory.max_usage_in_bytes", "") / 1024;
                return Err(fail(format!("{killed} killed, limit hit {hit} times, peak {peak} KiB: {outcome:?}")));
            }
        }
        let (peak, same) = outcome.ran().map_err(fail)?;
        self.runs += 1;
        match (peak <= limit_kib, same == hash) {
            (true, true) => Ok(peak),
            (false, _) => Err(fail(format!("peak {peak} KiB"))),
            (_, false) => Err(fail("the limit changed the result".into())),
        }
    }

    fn refused(&mut self, case: &Case, limit_kib: u64) -> Result<u64, String> {
        let outcome = start(&[&case.seed.to_string(), &format!("{limit_kib}KiB")], None);
        let smallest = outcome.refused().map_err(|what| format!("limit {limit_kib}KiB: {what}"))?;
        self.refusals.push((outcome.time, case.seed));
        Ok(smallest)
    }

    fn judge(&mut self, case: &Case) -> Result<(), String> {
        let mut dice = Dice(case.seed ^ 0x1234);
        let (free, hash) = start(&[&case.seed.to_string(), "none"], None).ran()?;
        let smallest = self.refused(case, 1024)?;
        let peak = self.run(case, smallest, false, &hash)?;
        self.unused.push(smallest - peak);
        self.saved.push(smallest as f64 / free as f64);
        self.refused(case, smallest - RESOLUTION_KIB)?;
        let some = (smallest as f64 * (0.3 + 0.65 * dice.uniform())) as u64;
        self.refused(case, some)?;
        let between = smallest + (free.saturating_sub(smallest) as f64 * dice.uniform()) as u64;
        self.run(case, between, false, &hash)?;
        self.run(case, smallest, true, &hash)?;
        Ok(())
    }
}

/// Cases that found something once, judged always. 75 and 198: the smallest limit told, or one a little above it, was refused. 175:
/// planning took more memory than training. 957: a refusal took 25 s. 72, 76, 86, 119, 138, 1290, 1422, 1453, 1976 and 2633: for batches of fewer rows, whose sizes nobody knew
/// before they came, there was no room in the middle of training. 48: what nothing can do without was told too high, so that a way that had been found was not looked for.
const FOUND: [u64; 15] = [48, 72, 75, 76, 86, 119, 138, 175, 198, 957, 1290, 1422, 1453, 1976, 2633];

fn random_cases() -> Result<(), String> {
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, n) = (number("PLIMSOLL_FIRST_CASE", 0), number("PLIMSOLL_CASES", 6));
    if Group::new("probe", Bytes::gib(1)).is_none() {
        println!("memory control groups cannot be made here: the runs in groups are ordinary runs");
    }
    let begin = Instant::now();
    let asked = first..first + n;
    let seeds: Vec<u64> = asked.clone().chain(FOUND.into_iter().filter(|seed| !asked.contains(seed))).collect();
    let n = seeds.len();
    let (next, all) = (AtomicUsize::new(0), Mutex::new((Figures::default(), Vec::new())));
    let judge = || {
        let mut figures = Figures::default();
        let mut failures = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = seeds.get(i) else { break };
            let case = Case::new(seed);
            if let Err(what) = figures.judge(&case) {
                println!("{}: {what}", case.describe());
                failures.push(seed);
            }
            // A long judgement shows that it goes on.
            if (i + 1).is_multiple_of(100) {
                println!("{} cases after {:.0?}", i + 1, begin.elapsed());
            }
        }
        let mut all = all.lock().unwrap();
        all.0.merge(figures);
        all.1.extend(failures);
    };
    // One case for each core at a time: a case is one process after another.
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(n);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(judge))));
    let (mut figures, mut failures) = all.into_inner().unwrap();
    failures.sort_unstable();
    let Figures { runs, in_groups, refusals, unused, saved } = &mut figures;
    println!(
        "{n} cases in {:.0?}, {} failed: {runs} runs within their limits, {in_groups} of them in groups; {} refusals",
        begin.elapsed(),
        failures.len(),
        refusals.len()
    );
    refusals.sort_unstable_by(|a, b| b.cmp(a));
    let slow: Vec<String> = refusals
        .iter()
        .take_while(|(time, _)| *time > Duration::from_secs(1))
        .map(|(time, seed)| format!("{time:.1?} (case {seed})"))
        .collect();
    println!("{} refusals took more than a second [{}]", slow.len(), slow.join(", "));
    unused.sort_unstable();
    saved.sort_by(f64::total_cmp);
    if let (Some(most), Some(&last)) = (unused.last(), saved.last()) {
        println!(
            "at the smallest limit {} to {most} KiB were not used, {} in the middle",
            unused[0],
            unused[unused.len() / 2]
        );
        println!("the smallest limit is {:.2} to {last:.2} of what is taken without one", saved[0]);
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("{} of {n} cases failed: {failures:?}", failures.len())) }
}

/// A small trainer and its data.
fn small() -> (Trainer, Arrays) {
    let x: Vec<f32> = (0..256 * 16).map(|i| (i % 17) as f32 / 17.0).collect();
    let data = Arrays::new(Tensor::from_slice([256, 16], &x).unwrap(), Tensor::zeros(DType::F32, [256, 1])).unwrap();
    let model = Model::sequential([16]).layer(Dense::new(64).activation(Activation::Tanh)).layer(Dense::new(1));
    (Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2), data)
}

/// Nothing grows from epoch to epoch: at most what the kernel's counting can resolve.
fn growth_child() -> i32 {
    let (trainer, data) = small();
    let mut seen = Vec::with_capacity(1000);
    let mut trainer = trainer.memory_limit("256MiB");
    let watch = callbacks::EveryEpoch(|_: usize, _: &callbacks::Logs| {
        seen.push((measure::footprint().unwrap().anonymous, measure::usage().unwrap().peak));
        ControlFlow::Continue(())
    });
    trainer.fit(&data, Fit::epochs(200).batch_size(32).callback(watch)).unwrap();
    let ((anon_then, peak_then), (anon_now, peak_now)) = (seen[1], seen[seen.len() - 1]);
    println!("GREW {} {}", anon_now.saturating_sub(anon_then).0 / 1024, peak_now.saturating_sub(peak_then).0 / 1024);
    0
}

fn nothing_grows() -> Result<(), String> {
    let outcome = start(&["growth"], None);
    let words = outcome.words();
    println!("over 200 epochs, in KiB of memory and of its peak: {}", words.join(" "));
    let grew: Vec<u64> = words.iter().skip(1).map(|word| word.parse().unwrap()).collect();
    if grew.len() == 2 && grew.iter().all(|&kib| kib <= 64) { Ok(()) } else { Err(format!("{outcome:?}")) }
}

/// Memory that somebody else takes during training is noticed: first a warning, then the end before the limit is passed.
fn neighbour_child() -> i32 {
    let (trainer, data) = small();
    let mut trainer = trainer.memory_limit("96MiB");
    let mut hoard: Vec<Vec<u8>> = Vec::with_capacity(1000);
    let take = callbacks::EveryEpoch(|_: usize, _: &callbacks::Logs| {
        hoard.push(std::hint::black_box(vec![1u8; 4 << 20]));
        ControlFlow::Continue(())
    });
    let ended = trainer.fit(&data, Fit::epochs(100).batch_size(32).callback(take));
    let peak = measure::usage().unwrap().peak.0 / 1024;
    match ended {
        Err(Error::MemoryGrew(grew)) if grew.measured <= grew.limit => println!("STOPPED {peak} {grew}"),
        Ok(history) => println!("WENT ON {peak} {:?}", history.warning),
        Err(other) => println!("FAILED {peak} {other}"),
    }
    0
}

fn neighbours_are_noticed() -> Result<(), String> {
    let outcome = start(&["neighbour"], None);
    let words = outcome.words();
    let peak: u64 = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(u64::MAX);
    println!("{}", words.join(" "));
    if words[0] == "STOPPED" && peak <= 96 * 1024 { Ok(()) } else { Err(format!("{outcome:?}")) }
}

/// Two trainers share one limit: each does without what the other holds.
fn shared_child() -> i32 {
    let needed = |trainer: &mut Trainer, data: &Arrays| match trainer.fit(data, Fit::epochs(1).batch_size(256)) {
        Err(Error::WouldNotFit(refusal)) => Some(refusal.smallest),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    let wide = || {
        let (_, data) = small();
        let model = Model::sequential([16]).layer(Dense::new(4096)).layer(Dense::new(512)).layer(Dense::new(1));
        (Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(1), data)
    };
    let budget = Budget::new(Bytes::mib(1));
    let (first, data) = wide();
    let mut first = first.budget(&budget);
    let alone = needed(&mut first, &data).expect("1 MiB is too little");
    // Enough for one, not for two.
    budget.set_limit(Some(alone + Bytes::mib(1)));
    assert_eq!(needed(&mut first, &data), None, "the first has room");
    let held = budget.held();
    let (second, _) = wide();
    let mut second = second.budget(&budget);
    let both = needed(&mut second, &data).expect("there is no room for two");
    assert!(both > alone + Bytes::mib(16), "{both} for both, {alone} for one");
    assert!(budget.account("arena").held() + budget.account("state").held() < held);
    budget.set_limit(Some(both));
    assert_eq!(needed(&mut second, &data), None, "now there is room");
    assert_eq!(needed(&mut first, &data), None, "and the first goes on");
    drop(first);
    budget.set_limit(Some(alone + Bytes::mib(1)));
    assert_eq!(needed(&mut second, &data), None, "what one gives back the other may have");
    drop(second);
    for entry in &budget.ledger().entries {
        assert!(entry.name == "process" || entry.held == Bytes::ZERO, "{} holds {}", entry.name, entry.held);
    }
    println!("SHARED");
    0
}

fn trainers_share_a_budget() -> Result<(), String> {
    let outcome = start(&["shared"], None);
    if outcome.words() == ["SHARED"] { Ok(()) } else { Err(format!("{outcome:?}")) }
}

/// Rows of the files below, and numbers of one row.
const FILE_ROWS: usize = 64_000;
const FILE_COLUMNS: usize = 2048;

/// Writes one array of f32: `value(row, column)`.
fn write_npy(path: &Path, columns: usize, value: impl Fn(usize, usize) -> f32) {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(path).unwrap());
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({FILE_ROWS}, {columns}), }}");
    header += &" ".repeat(117 - header.len());
    file.write_all(b"\x93NUMPY\x01\x00\x76\x00").unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(b"\n").unwrap();
    for row in 0..FILE_ROWS {
        (0..columns).for_each(|column| file.write_all(&value(row, column).to_le_bytes()).unwrap());
    }
    file.flush().unwrap();
}

/// Trains an epoch on rows in files, shuffled completely.
fn files_child(limit: &str, folder: &Path) -> i32 {
    let part = |name: &str| Dataset::from_npy(folder.join(name));
    let data = Dataset::zip(&[part("x.npy"), part("y.npy")])
        .map_in_place("0/x", |x: &mut [f32]| x.iter_mut().for_each(|v| *v = *v * 2.0 - 1.0))
        .shuffle(None, 7)
        .batch(128)
        .prefetch(AUTOTUNE);
    let model =
        Model::sequential([FILE_COLUMNS]).layer(Dense::new(16).activation(Activation::Tanh)).layer(Dense::new(1));
    let trainer = Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap();
    let mut trainer = trainer.threads(2).memory_limit(limit);
    match trainer.fit(&data, Fit::epochs(1)) {
        Ok(history) => {
            let weights = trainer.weights().unwrap();
            let bytes = weights.iter().flat_map(|(_, t)| t.bytes());
            let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, &b| (h ^ b as u64).wrapping_mul(0x100_0000_01b3));
            println!("RAN {} {hash:016x}", measure::usage().unwrap().peak.0 / 1024);
            eprintln!("loss {}, {}", history.last("loss").unwrap(), history.input);
            0
        }
        Err(Error::WouldNotFit(refusal)) => {
            println!("REFUSED {} {}", refusal.smallest.0.div_ceil(1024), trainer.steps_done());
            eprintln!("{refusal}");
            3
        }
        Err(other) => {
            println!("FAILED {other}");
            1
        }
    }
}

/// Data twenty times as large as the limit, shuffled completely, mapped, batched, fetched ahead and trained on: within the
/// limit as the kernel counts, in a control group of that size, and with the bits of a run without a limit.
fn files_twenty_times_the_limit() -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("plimsoll-load-line-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let value = |row: usize, column: usize| ((row * 31 + column * 17) % 1009) as f32 / 1009.0;
    write_npy(&folder.join("x.npy"), FILE_COLUMNS, value);
    write_npy(&folder.join("y.npy"), 1, |row, _| value(row, 3) - value(row, 5));
    let path = folder.to_str().unwrap();
    let judge = || {
        let run = |limit: &str, group: Option<&Group>| start(&["files", limit, path], group);
        let (free, hash) = run("none", None).ran()?;
        let smallest = run("1MiB", None).refused()?;
        run(&format!("{}KiB", smallest - RESOLUTION_KIB), None).refused()?;
        // The smallest limit, at which the pipeline has its least; and one that leaves it more.
        let more = (FILE_ROWS * FILE_COLUMNS * 4 / 20 / 1024) as u64;
        println!("without a limit {free} KiB, smallest {smallest} KiB, 1/20 of the data {more} KiB");
        if smallest > more {
            return Err(format!("the smallest limit is {smallest} KiB"));
        }
        for (name, limit) in [("files-least", smallest), ("files", more)] {
            let group = Group::new(name, Bytes::kib(limit));
            for group in [None, group.as_ref()] {
                let begin = Instant::now();
                let outcome = run(&format!("{limit}KiB"), group);
                let (peak, same) = outcome.ran().map_err(|what| format!("limit {limit} KiB: {what}"))?;
                let said = String::from_utf8_lossy(&outcome.output.stderr).replace('\n', "; ");
                println!("limit {limit} KiB: peak {peak} KiB in {:.1?}; {said}", begin.elapsed());
                if peak > limit || same != hash {
                    return Err(format!("limit {limit} KiB: peak {peak} KiB, {same} for {hash}"));
                }
                // Pages of the files fill the group and are given up again, so that its limit is hit, but nobody is killed.
                if let Some(killed) = group.map(|g| g.number("memory.oom_control", "oom_kill ")).filter(|n| *n > 0) {
                    return Err(format!("limit {limit} KiB: {killed} killed"));
                }
            }
        }
        Ok(())
    };
    let verdict = judge();
    std::fs::remove_dir_all(&folder).unwrap();
    verdict
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "--child") {
        std::process::exit(match arguments[1].as_str() {
            "growth" => growth_child(),
            "neighbour" => neighbour_child(),
            "shared" => shared_child(),
            "files" => files_child(&arguments[2], Path::new(&arguments[3])),
            seed => Case::new(seed.parse().unwrap()).child(&arguments[2]),
        });
    }
    if arguments.iter().any(|word| word == "--list") {
        return;
    }
    type Test = (&'static str, fn() -> Result<(), String>);
    let tests: [Test; 5] = [
        ("random_cases", random_cases),
        ("nothing_grows", nothing_grows),
        ("neighbours_are_noticed", neighbours_are_noticed),
        ("trainers_share_a_budget", trainers_share_a_budget),
        ("files_twenty_times_the_limit", files_twenty_times_the_limit),
    ];
    let wanted = arguments.iter().find(|word| !word.starts_with('-'));
    let mut failed = false;
    for (name, test) in tests.into_iter().filter(|(name, _)| wanted.is_none_or(|word| name.contains(word))) {
        let begin = Instant::now();
        let result = test();
        failed |= result.is_err();
        let verdict = result.map_or_else(|what| format!("FAILED: {what}"), |()| "ok".into());
        println!("{name} ... {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
    }
    std::process::exit(failed as i32);
}
