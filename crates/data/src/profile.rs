//! Where the time goes: each stage's own, and how long the consumer waited.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// The time that measured calls inside the current one took, in nanoseconds.
    static INSIDE: Cell<u64> = const { Cell::new(0) };
}

#[derive(Default)]
struct Stage {
    name: String,
    own: AtomicU64,
    elements: AtomicU64,
}

#[derive(Default)]
struct Shared {
    stages: Mutex<Vec<Arc<Stage>>>,
    waited: AtomicU64,
    errors: AtomicU64,
    threads: AtomicU64,
    depth: AtomicU64,
}

/// The most stages that are told apart.
const MOST: usize = 64;

/// The measurements of one running pipeline.
#[derive(Clone, Default)]
pub(crate) struct Profile {
    shared: Arc<Shared>,
}

impl Profile {
    /// The clock of a stage; stages of one name share it, as the files of an interleaving do.
    pub(crate) fn clock(&self, name: &str) -> Clock {
        let mut stages = self.shared.stages.lock().unwrap_or_else(PoisonError::into_inner);
        // A data set made of every element has its own name each time, and there is no end of elements.
        let name = if stages.len() < MOST { name } else { "others" };
        if let Some(stage) = stages.iter().find(|stage| stage.name == name) {
            return Clock(stage.clone());
        }
        let stage = Arc::new(Stage { name: name.into(), ..Stage::default() });
        stages.push(stage.clone());
        Clock(stage)
    }

    /// The consumer waited so long; nobody's own time.
    pub(crate) fn waited(&self, time: Duration) {
        INSIDE.set(INSIDE.get() + time.as_nanos() as u64);
        self.shared.waited.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn ignored_error(&self) {
        self.shared.errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn tuned(&self, threads: usize, depth: usize) {
        self.shared.threads.fetch_max(threads as u64, Relaxed);
        self.shared.depth.fetch_max(depth as u64, Relaxed);
    }

    pub(crate) fn report(&self) -> Report {
        let stages = self.shared.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let stage = |s: &Arc<Stage>| StageReport {
            name: s.name.clone(),
            own: Duration::from_nanos(s.own.load(Relaxed)),
            elements: s.elements.load(Relaxed),
        };
        Report {
            waited: Duration::from_nanos(self.shared.waited.load(Relaxed)),
            stages: stages.iter().map(stage).collect(),
            errors_ignored: self.shared.errors.load(Relaxed),
            threads: self.shared.threads.load(Relaxed) as usize,
            depth: self.shared.depth.load(Relaxed) as usize,
        }
    }
}

/// Measures one stage.
#[derive(Clone)]
pub(crate) struct Clock(Arc<Stage>);

impl Clock {
    /// Runs `work`; what measured calls inside it take is theirs, the rest the stage's.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outside = INSIDE.replace(0);
        let result = work();
        let whole = start.elapsed().as_nanos() as u64;
        let inside = INSIDE.replace(outside + whole);
        self.0.own.fetch_add(whole.saturating_sub(inside), Relaxed);
        result
    }

    pub(crate) fn count(&self, elements: usize) {
        self.0.elements.fetch_add(elements as u64, Relaxed);
    }
}

/// Where the time of a pipeline went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// How long the consumer waited for elements.
    pub waited: Duration,
    /// Each stage's own time over all threads, sources first.
    pub stages: Vec<StageReport>,
    /// How many bad elements `ignore_errors` left out.
    pub errors_ignored: u64,
    /// The most threads that worked ahead.
    pub threads: usize,
    /// The most blocks of elements that were kept ready.
    pub depth: usize,
}

/// One stage's share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageReport {
    /// The stage.
    pub name: String,
    /// Its own time, without the stages before it.
    pub own: Duration,
    /// The elements that it gave.
    pub elements: u64,
}

impl Report {
    /// Takes another pass's figures in: times and counts are added up, stages of one name together.
    pub fn add(&mut self, other: &Report) {
        self.waited += other.waited;
        self.errors_ignored += other.errors_ignored;
        (self.threads, self.depth) = (self.threads.max(other.threads), self.depth.max(other.depth));
        for stage in &other.stages {
            match self.stages.iter_mut().find(|s| s.name == stage.name) {
                Some(same) => (same.own, same.elements) = (same.own + stage.own, same.elements + stage.elements),
                None => self.stages.push(stage.clone()),
            }
        }
    }

    /// The stage that the consumer waited for: the one that takes most time.
    pub fn slowest(&self) -> Option<&StageReport> {
        self.stages.iter().max_by_key(|stage| stage.own)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waited {:.3} s for input", self.waited.as_secs_f64())?;
        if let Some(slowest) = self.slowest() {
            write!(f, ", mostly for '{}'", slowest.name)?;
        }
        for stage in &self.stages {
            write!(f, "\n  {:<24} {:>9.3} s {:>12} elements", stage.name, stage.own.as_secs_f64(), stage.elements)?;
        }
        if self.errors_ignored > 0 {
            write!(f, "\n  {} bad elements were left out", self.errors_ignored)?;
        }
        Ok(())
    }
}
