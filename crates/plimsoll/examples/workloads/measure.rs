//! Runs a workload and says what it took: time, loss, planned bytes and the process's real peak.

use plimsoll::Error;
use plimsoll::callbacks::{Callback, Training};
use plimsoll::data::Dataset;
use plimsoll::trainer::{Fit, Profile, Techniques, Trainer};
use plimsoll_budget::{Bytes, measure};
use plimsoll_plan::cost::Work;
use plimsoll_plan::{CostModel, Plan};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

/// The command line: `--name value` and `--name`.
pub struct Args {
    words: Vec<String>,
    about: &'static str,
    known: Vec<&'static str>,
}

impl Args {
    /// Those of this process; `about` is printed for `--help`.
    pub fn new(about: &'static str) -> Args {
        Args { words: std::env::args().skip(1).collect(), about, known: Vec::new() }
    }

    /// Whether `--name` is there.
    pub fn flag(&mut self, name: &'static str) -> bool {
        self.known.push(name);
        let at = self.words.iter().position(|w| w == name);
        at.map(|at| self.words.remove(at)).is_some()
    }

    /// What follows `--name`.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let at = self.words.iter().position(|w| w == name)?;
        self.words.remove(at);
        (at < self.words.len()).then(|| self.words.remove(at))
    }

    /// The number after `--name`, or a default.
    pub fn number(&mut self, name: &'static str, default: usize) -> usize {
        match self.text(name).map(|word| word.parse()) {
            None => default,
            Some(Ok(number)) => number,
            Some(Err(_)) => self.refuse(&format!("{name} takes a whole number")),
        }
    }

    /// Ends the process when a word was not understood.
    pub fn finish(mut self) {
        if self.words.iter().any(|w| w == "--help") {
            println!("{}\n\noptions: {}", self.about, self.known.join(" "));
            std::process::exit(0);
        }
        if let Some(word) = self.words.first().cloned() {
            self.refuse(&format!("'{word}' is not an option"));
        }
    }

    fn refuse(&mut self, message: &str) -> ! {
        eprintln!("{message}; there are {}", self.known.join(" "));
        std::process::exit(2)
    }
}

/// How to measure.
pub struct Measure {
    workload: &'static str,
    warm_up: usize,
    steps: usize,
    repeats: usize,
    threads: Option<usize>,
    json: bool,
    profile: bool,
    limit: Option<String>,
    techniques: Techniques,
}

impl Measure {
    /// Options that all workloads have; `steps` is the default length of a block.
    pub fn new(args: &mut Args, workload: &'static str, warm_up: usize, steps: usize) -> Measure {
        Measure {
            workload,
            warm_up: args.number("--warm-up", warm_up),
            steps: args.number("--steps", steps).max(1),
            repeats: args.number("--repeats", 5).max(1),
            threads: args
                .text("--threads")
                .map(|n| n.parse().unwrap_or_else(|_| args.refuse("--threads takes a whole number"))),
            json: args.flag("--json"),
            profile: args.flag("--profile"),
            limit: args.text("--memory-limit"),
            techniques: Techniques {
                split: !args.flag("--no-split"),
                recompute: !args.flag("--no-recompute"),
                spill: !args.flag("--no-spill"),
            },
        }
    }

    /// Trains on batches: a warm-up, then blocks of steps; prints what it took.
    pub fn run(&self, mut trainer: Trainer, data: &Dataset) -> Result<(), Error> {
        let batch = data.batch_sizes()?.map_or(1, |sizes| sizes.most);
        if let Some(threads) = self.threads {
            trainer = trainer.threads(threads);
        }
        trainer = trainer.techniques(self.techniques);
        if let Some(limit) = &self.limit {
            trainer = trainer.memory_limit(limit.as_str());
        }
        if self.profile {
            let profile = trainer.profile(data, None, self.steps * self.repeats)?;
            print!("{profile}");
            if let Some(costs) = trainer.costs() {
                compare(&profile, trainer.planned()[0], costs);
            }
            return Ok(());
        }
        let wanted = self.warm_up + self.steps * self.repeats;
        let mut clock =
            Clock { times: Vec::with_capacity(wanted + 1), losses: Vec::with_capacity(wanted), wanted, anon: 0.0 };
        let start = Instant::now();
        let history = match trainer.fit(data, Fit::epochs(1).steps_per_epoch(wanted).callback(&mut clock)) {
            Ok(history) => history,
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(if matches!(error, Error::WouldNotFit(_)) { 3 } else { 1 });
            }
        };
        let planning = clock.times[0] - start;
        let plan = trainer.planned()[0];
        let (state, arena, live) = (plan.state.bytes(), plan.arena_bytes, plan.live_bytes);
        let slices = plan.split.as_ref().map_or(1, |s| s.slices);
        let kept = plan.recomputed;
        let predicted = kept.seconds * 1e3;

        let at = |step: usize| clock.times[step];
        let block = |i: usize| {
            let (from, to) = (self.warm_up + i * self.steps, self.warm_up + (i + 1) * self.steps);
            (at(to) - at(from)).as_secs_f64() * 1e3 / self.steps as f64
        };
        let blocks: Vec<f64> = (0..self.repeats).map(block).collect();
        let ms = median(&blocks);
        let samples = 1e3 * batch as f64 / ms;
        let usage = measure::usage().unwrap_or_default();
        let (peak, anon) = (mib(usage.peak), mib(usage.anonymous).max(clock.anon));
        let figures =
            |values: &[f64], digits: usize| values.iter().map(|v| format!("{v:.digits$}")).collect::<Vec<_>>();
        let losses = figures(&ends(&clock.losses), 6);
        if self.json {
            println!(
                "{{\"workload\": \"{}\", \"framework\": \"plimsoll\", \"variant\": \"plimsoll\", \"ms_per_step\": {ms:.4}, \"ms_blocks\": [{}], \
                 \"samples_s\": {samples:.1}, \"loss\": [{}], \"rss_peak\": {peak:.1}, \"anon_peak\": {anon:.1}, \"state_bytes\": {state}, \
                 \"arena_bytes\": {arena}, \"live_bytes\": {live}, \"slices\": {slices}, \"recomputed\": {}, \"written\": {}, \"read\": {}, \"file_states\": {}, \
                 \"predicted_ms\": {predicted:.4}, \"plan_ms\": {:.1}, \"version\": \"{}\"}}",
                self.workload,
                figures(&blocks, 4).join(", "),
                losses.join(", "),
                kept.nodes,
                kept.written,
                kept.read,
                plan.state.file_bytes(),
                planning.as_secs_f64() * 1e3,
                env!("CARGO_PKG_VERSION"),
            );
            return Ok(());
        }
        println!("{}: {batch} samples a step", self.workload);
        println!(
            "planned  {} of states, {} of arena (at most {} alive), in {planning:.1?}",
            Bytes(state),
            Bytes(arena),
            Bytes(live)
        );
        println!(
            "time     {ms:.3} ms a step, {samples:.0} samples a second; blocks of {}: {}",
            self.steps,
            figures(&blocks, 3).join(" ")
        );
        println!(
            "kept     {slices} slices, {} ops again, {} written and {} read a step, {} of states in the file; predicted {predicted:.3} ms",
            kept.nodes,
            Bytes(kept.written),
            Bytes(kept.read),
            Bytes(plan.state.file_bytes())
        );
        println!("loss     {}", losses.join(" "));
        println!("input    {}", history.input);
        println!("memory   {peak:.1} MiB resident at the peak, {anon:.1} MiB of it anonymous");
        Ok(())
    }
}

/// Prints what ops took beside what the planner takes them for: by kind, then those that are furthest off.
fn compare(profile: &Profile, plan: &Plan, costs: &CostModel) {
    let line = |predicted: f64, measured: f64, what: &str| {
        println!("{:>10.3} {:>10.3} {:>6.2}  {what}", 1e3 * predicted, 1e3 * measured, predicted / measured.max(1e-9));
    };
    let nodes = plan.instructions.iter().map(|i| plan.graph.node(i.node)).filter(|node| node.op.runs());
    let mut kinds: BTreeMap<&str, (f64, f64, usize)> = BTreeMap::new();
    let mut alike: BTreeMap<(&str, &str), (f64, f64, usize)> = BTreeMap::new();
    for (op, node) in profile.ops.iter().zip(nodes).filter(|(_, node)| node.op.transfer().is_none()) {
        let (predicted, measured) = (costs.seconds(op.op, &Work::of(&plan.graph, node)), op.time.as_secs_f64());
        for entry in [kinds.entry(op.op).or_default(), alike.entry((op.op, &op.types)).or_default()] {
            *entry = (entry.0 + predicted, entry.1 + measured, entry.2 + 1);
        }
    }
    println!("\n{:>10} {:>10} {:>6}", "predicted", "ms", "ratio");
    let all = kinds.values().fold((0.0, 0.0), |sum, kind| (sum.0 + kind.0, sum.1 + kind.1));
    line(all.0, all.1, "all ops but transfers");
    for (name, (predicted, measured, count)) in kinds {
        line(predicted, measured, &format!("{name}, {count} times"));
    }
    let mut furthest: Vec<_> = alike.into_iter().collect();
    furthest.sort_by(|(_, a), (_, b)| (b.0 - b.1).abs().total_cmp(&(a.0 - a.1).abs()));
    for ((name, types), (predicted, measured, count)) in furthest.into_iter().take(30) {
        line(predicted, measured, &format!("{name} {types}, {count} times"));
    }
}

/// Notes the time and the loss of every step and stops after enough of them.
struct Clock {
    times: Vec<Instant>,
    losses: Vec<f64>,
    wanted: usize,
    anon: f64,
}

impl Callback for &mut Clock {
    fn on_train_begin(&mut self, _: &mut dyn Training, _: usize, _: usize) -> Result<(), Error> {
        self.times.push(Instant::now());
        Ok(())
    }

    fn on_step_end(&mut self, _: &mut dyn Training, _: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        self.times.push(Instant::now());
        self.losses.push(loss);
        if self.losses.len() < self.wanted {
            return Ok(ControlFlow::Continue(()));
        }
        self.anon = mib(measure::usage().unwrap_or_default().anonymous);
        Ok(ControlFlow::Break(()))
    }
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / (1 << 20) as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The first and the last few of many.
fn ends(values: &[f64]) -> Vec<f64> {
    if values.len() <= 8 { values.to_vec() } else { [&values[..4], &values[values.len() - 4..]].concat() }
}
