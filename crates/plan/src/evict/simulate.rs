//! One simulated step under a limit, with the future known.
//!
//! Tasks run in order. Where something does not fit, the resident unit leaves that ranks lowest: cheap to have again for its
//! size and for the time until it is needed. How it comes back is decided when it leaves: computed again, which may ask for more
//! of the same, or read from the file. The disk works beside the computation; the simulation waits for it only where memory or
//! a value is needed that it has not yet given.

use super::disk::Disk;
use super::problem::{Problem, Start};
use crate::predict::TRANSFER_SCORE;

/// How units are ranked for leaving, and what is kept: `cost^a / (bytes^b * distance^c)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub cost: f64,
    pub bytes: f64,
    pub distance: f64,
    /// What a dropped unit will be made from counts as needed when that unit is.
    pub inherit: bool,
    /// What nobody reads any more stays while it could serve to make something again.
    pub retain: bool,
    /// What a task reads and is there already stays while the rest is brought back.
    pub hold: bool,
    /// How much of a transfer's time counts as its cost; the rest goes on beside the computation.
    pub charge: f64,
    /// The part of the limit that is left to reads that are begun early.
    pub reserve: f64,
}

/// Something that happens in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A task runs.
    Run(usize),
    /// The writing of a unit begins.
    BeginWrite(usize),
    /// It is over; the unit leaves memory.
    EndWrite(usize),
    /// The reading of a unit begins.
    BeginRead(usize),
    /// It is over; the unit is there.
    EndRead(usize),
}

/// A simulated step.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What happens, in order.
    pub events: Vec<Event>,
    /// How long it takes.
    pub seconds: f64,
    /// That and a hundredth of the time of all transfers: what runs are compared by. Of two runs that take the same time, the one
    /// that asks less of the disk depends less on how well that is predicted.
    pub score: f64,
}

/// A run goes on while it keeps the limit and its score is below this.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub limit: u64,
    pub score: f64,
}

/// Never needed again.
const NEVER: usize = usize::MAX;
/// How deep recomputing may call for recomputing.
const DEPTH: usize = 800;
/// How many tasks are looked at for the cost of having a unit again.
const CLOSURE: usize = 200;
/// How many units are told that such a cost has changed.
const SPREAD: usize = 200;

struct Simulation<'a> {
    problem: &'a Problem,
    setting: Setting,
    keys: &'a [f64],
    bounds: Bounds,
    /// Without what is left to early reads.
    goal: u64,
    step: usize,
    now: f64,
    bytes: u64,
    resident: Vec<bool>,
    /// The resident units, in no order, and where each stands there.
    live: Vec<u32>,
    place: Vec<u32>,
    locks: Vec<u32>,
    /// How many of a unit's uses are over.
    next: Vec<u32>,
    /// The next step that needs it, also to make other units again; less than the present step when that is not known.
    needed: Vec<usize>,
    /// The last step at which a dropped unit that is made from it is needed.
    until: Vec<usize>,
    /// Cost and size as far as they do not change from step to step; not a number when it has to be found anew.
    weight: Vec<f64>,
    /// Distance raised to its power, inverted.
    nearness: Vec<f64>,
    disk: Disk,
    /// Of all transfers.
    disk_seconds: f64,
    in_file: Vec<bool>,
    /// When the write of a unit that was begun is over.
    writing: Vec<Option<f64>>,
    /// The number of the first event after a unit came into memory, or after it was written.
    since: Vec<u32>,
    events: Vec<Event>,
    /// When each event begins, and how much is in memory then.
    times: Vec<f64>,
    levels: Vec<u64>,
    /// Begun transfers: the event they go before, their begin, and what they are.
    begun: Vec<(u32, f64, Event)>,
    /// Units that were read or made since the step began.
    touched: Vec<u32>,
    stamp: u32,
    stamps: Vec<u32>,
    stack: Vec<u32>,
    work: u64,
}

/// Simulates the step; with the work that was done.
pub(super) fn simulate(problem: &Problem, setting: Setting, keys: &[f64], bounds: Bounds) -> (Option<Run>, u64) {
    let n = problem.units.len();
    let n_tasks = problem.tasks.len();
    let mut s = Simulation {
        problem,
        setting,
        keys,
        bounds,
        goal: (bounds.limit as f64 * (1.0 - setting.reserve)) as u64,
        step: 0,
        now: 0.0,
        bytes: 0,
        resident: vec![false; n],
        live: Vec::new(),
        place: vec![0; n],
        locks: vec![0; n],
        next: vec![0; n],
        needed: vec![0; n],
        until: vec![0; n],
        weight: vec![f64::NAN; n],
        nearness: (0..=n_tasks).map(|d| (d.max(1) as f64).powf(-setting.distance)).collect(),
        disk: Disk::default(),
        disk_seconds: 0.0,
        in_file: problem.units.iter().map(|u| u.start == Start::File).collect(),
        writing: vec![None; n],
        since: vec![0; n],
        events: Vec::with_capacity(n_tasks),
        times: Vec::with_capacity(n_tasks),
        levels: Vec::with_capacity(n_tasks),
        begun: Vec::new(),
        touched: Vec::new(),
        stamp: 0,
        stamps: vec![0; n.max(n_tasks)],
        stack: Vec::new(),
        work: n as u64,
    };
    let done = s.run_all();
    let work = s.work + s.events.len() as u64;
    (done.map(|()| s.finish()), work)
}

impl Simulation<'_> {
    fn run_all(&mut self) -> Option<()> {
        let problem = self.problem;
        for unit in (0..problem.units.len()).filter(|&u| problem.units[u].start == Start::Memory) {
            self.enter(unit);
        }
        if self.bytes > self.bounds.limit {
            return None;
        }
        for task in 0..problem.tasks.len() {
            self.step = task;
            self.execute(task, 0)?;
            self.step = task + 1;
            self.forget_dead();
        }
        for unit in 0..problem.units.len() {
            if let Some(end) = self.writing[unit] {
                self.end_write(unit, end);
            }
        }
        (self.score() < self.bounds.score).then_some(())
    }

    fn finish(mut self) -> Run {
        let score = self.score();
        self.begun.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut events = Vec::with_capacity(self.events.len() + self.begun.len());
        let mut begun = self.begun.into_iter().peekable();
        for (at, event) in self.events.into_iter().enumerate() {
            while let Some((_, _, begin)) = begun.next_if(|b| b.0 as usize <= at) {
                events.push(begin);
            }
            events.push(event);
        }
        Run { events, seconds: self.now, score }
    }

    fn score(&self) -> f64 {
        self.now + TRANSFER_SCORE * self.disk_seconds
    }

    fn push(&mut self, event: Event, level: u64, seconds: f64) {
        self.events.push(event);
        self.times.push(self.now);
        self.levels.push(level);
        self.now += seconds;
    }

    fn enter(&mut self, unit: usize) {
        self.resident[unit] = true;
        self.place[unit] = self.live.len() as u32;
        self.live.push(unit as u32);
        self.bytes += self.problem.units[unit].bytes;
        self.since[unit] = self.events.len() as u32;
        self.needed[unit] = 0;
        self.until[unit] = 0;
        self.touched.push(unit as u32);
        self.spread(unit);
    }

    fn leave(&mut self, unit: usize) {
        self.resident[unit] = false;
        let at = self.place[unit] as usize;
        self.live.swap_remove(at);
        if let Some(&moved) = self.live.get(at) {
            self.place[moved as usize] = at as u32;
        }
        self.bytes -= self.problem.units[unit].bytes;
        self.spread(unit);
    }

    /// The cost of having it again changes for what is made from a unit that has come or gone.
    fn spread(&mut self, unit: usize) {
        self.weight[unit] = f64::NAN;
        self.stamp += 1;
        let stamp = self.stamp;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.push(unit as u32);
        let mut seen = 0;
        while let Some(unit) = stack.pop() {
            seen += 1;
            if seen > SPREAD {
                break;
            }
            for &(task, output) in self.problem.made_from(unit) {
                if task as usize > self.step {
                    break;
                }
                let at = output as usize;
                if self.stamps[at] == stamp {
                    continue;
                }
                self.stamps[at] = stamp;
                self.weight[at] = f64::NAN;
                if !self.resident[at] && !self.in_file[at] {
                    stack.push(output);
                }
            }
        }
        self.work += seen as u64;
        self.stack = stack;
    }

    /// The next step that reads a unit.
    fn next_use(&mut self, unit: usize) -> usize {
        let uses = &self.problem.units[unit].uses;
        let mut next = self.next[unit] as usize;
        while uses.get(next).is_some_and(|&u| u < self.step) {
            next += 1;
        }
        self.next[unit] = next as u32;
        uses.get(next).copied().unwrap_or(NEVER)
    }

    /// The next step that needs a unit: to read it, or to make something else again from it.
    fn next_need(&mut self, unit: usize) -> usize {
        let mut need = self.next_use(unit);
        let Setting { inherit, retain, .. } = self.setting;
        let with_resident = retain && need == NEVER;
        if !inherit && !with_resident {
            return need;
        }
        self.stamp += 1;
        let stamp = self.stamp;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.push(unit as u32);
        let mut seen = 0;
        while let Some(from) = stack.pop() {
            seen += 1;
            if seen > SPREAD {
                break;
            }
            for &(task, output) in self.problem.made_from(from) {
                if task as usize >= self.step {
                    break;
                }
                let at = output as usize;
                if self.stamps[at] == stamp || self.in_file[at] {
                    continue;
                }
                let gone = !self.resident[at];
                if gone && inherit || with_resident && from as usize == unit {
                    self.stamps[at] = stamp;
                    need = need.min(self.next_use(at));
                    if gone {
                        stack.push(output);
                    }
                }
            }
        }
        self.work += seen as u64;
        self.stack = stack;
        need
    }

    /// Runs a task; what it reads and is not there comes back first.
    fn execute(&mut self, task: usize, depth: usize) -> Option<()> {
        let t = &self.problem.tasks[task];
        let forbidden = depth > 0 && !(self.problem.recompute && t.is_repeatable(self.step));
        let endless = self.events.len() > 50 * self.problem.tasks.len() + 1000;
        if depth > DEPTH || forbidden || endless || self.score() >= self.bounds.score {
            return None;
        }
        self.gather(&t.inputs, depth)?;
        // What is there already is made anew beside what was asked for: nothing is won when it leaves.
        let mut needed = t.workspace;
        for &output in &t.outputs {
            self.locks[output] += 1;
            needed += if self.resident[output] { 0 } else { self.problem.units[output].bytes };
        }
        let mut replaced: Vec<(usize, usize)> = t.changes.clone();
        for &(from, to) in &t.overwrites {
            let taken = replaced.iter().any(|&(f, t)| f == from || t == to);
            if !taken && !self.resident[to] && self.dies(from, depth) {
                replaced.push((from, to));
            }
        }
        for &(from, _) in &replaced {
            needed -= self.problem.units[from].bytes;
        }
        self.make_room(needed)?;
        self.push(Event::Run(task), self.bytes + needed, t.seconds);
        for (from, _) in replaced {
            self.leave(from);
        }
        for &output in &t.outputs {
            self.locks[output] -= 1;
            if self.resident[output] {
                self.since[output] = self.events.len() as u32;
            } else {
                self.enter(output);
            }
            if self.problem.units[output].write_back {
                self.begin_write(output);
            }
        }
        for &input in &t.inputs {
            self.locks[input] -= 1;
            self.touched.push(input as u32);
        }
        Some(())
    }

    /// Brings all units into memory and locks them.
    fn gather(&mut self, units: &[usize], depth: usize) -> Option<()> {
        let hold = self.setting.hold || units.iter().all(|&u| self.resident[u]);
        if hold {
            units.iter().for_each(|&u| self.locks[u] += 1);
            for &unit in units {
                if !self.resident[unit] {
                    self.bring_back(unit, depth)?;
                }
            }
            return Some(());
        }
        // The dearest first: what is there already may have to leave for it once more.
        let mut waiting: Vec<usize> = units.to_vec();
        for _ in 0..4 {
            let mut missing: Vec<(f64, usize)> = Vec::new();
            for &unit in &waiting {
                if !self.resident[unit] {
                    missing.push((self.remake_seconds(unit), unit));
                }
            }
            missing.sort_by(|a, b| b.0.total_cmp(&a.0));
            for &(_, unit) in &missing {
                if !self.resident[unit] {
                    self.bring_back(unit, depth)?;
                }
                self.locks[unit] += 1;
            }
            waiting.retain(|unit| missing.iter().all(|(_, m)| m != unit));
            if waiting.iter().all(|&u| self.resident[u]) {
                waiting.iter().for_each(|&u| self.locks[u] += 1);
                return Some(());
            }
        }
        None
    }

    /// Whether a unit is needed by nobody after the task that runs now.
    fn dies(&mut self, unit: usize, depth: usize) -> bool {
        if self.locks[unit] != 1 || self.writing[unit].is_some() {
            return false;
        }
        let step = self.step;
        self.step += usize::from(depth == 0);
        let need = self.next_need(unit);
        self.step = step;
        need == NEVER
    }

    fn make_room(&mut self, needed: u64) -> Option<()> {
        while self.bytes + needed > self.goal {
            if !self.drop_one() {
                break;
            }
        }
        (self.bytes + needed <= self.bounds.limit).then_some(())
    }

    /// The unit that ranks lowest leaves, if any can.
    fn drop_one(&mut self) -> bool {
        let mut lowest = (f64::INFINITY, NEVER);
        self.work += self.live.len() as u64;
        for at in 0..self.live.len() {
            let unit = self.live[at] as usize;
            if self.locks[unit] > 0 {
                continue;
            }
            if self.needed[unit] < self.step {
                self.needed[unit] = self.next_need(unit);
                self.weight[unit] = f64::NAN;
            }
            let rank = if self.needed[unit] == NEVER {
                // Waits at most for its own write.
                self.writing[unit].map_or(0.0, |end| (end - self.now).max(0.0)) * 1e-30
            } else {
                if self.weight[unit].is_nan() {
                    self.weight[unit] = self.weigh(unit);
                }
                self.weight[unit] * self.nearness[self.needed[unit] - self.step]
            };
            if rank < lowest.0 {
                lowest = (rank, unit);
            }
            if rank == 0.0 {
                break;
            }
        }
        if lowest.1 == NEVER {
            return false;
        }
        self.evict(lowest.1);
        true
    }

    /// The part of a unit's rank that does not change from step to step.
    fn weigh(&mut self, unit: usize) -> f64 {
        let cost = self.remake_seconds(unit).min(self.transfer_seconds(unit) * self.setting.charge).max(1e-12);
        let bytes = self.problem.units[unit].bytes;
        let Setting { cost: a, bytes: b, .. } = self.setting;
        if bytes == 0 {
            return f64::INFINITY;
        }
        self.keys[unit] * power(cost, a) / power(bytes as f64, b)
    }

    /// Seconds of the transfers that bring a unit back.
    fn transfer_seconds(&self, unit: usize) -> f64 {
        let u = &self.problem.units[unit];
        if self.in_file[unit] || self.writing[unit].is_some() {
            u.read_seconds
        } else if self.problem.can_spill(unit) {
            u.write_seconds + u.read_seconds
        } else {
            f64::INFINITY
        }
    }

    /// Seconds to make a unit again, with everything that is gone and that it needs.
    fn remake_seconds(&mut self, unit: usize) -> f64 {
        let when = self.until[unit].max(if self.needed[unit] == NEVER { 0 } else { self.needed[unit] });
        let charge = self.setting.charge;
        self.walk_makers(unit, when, |s, source| {
            if s.in_file[source] && !s.resident[source] { s.problem.units[source].read_seconds * charge } else { 0.0 }
        })
    }

    /// Walks the tasks that have to run to make a unit again at a step. Gives their seconds and what `visit` says of the units
    /// they begin from.
    fn walk_makers(&mut self, unit: usize, when: usize, mut visit: impl FnMut(&mut Self, usize) -> f64) -> f64 {
        let Some(maker) = self.problem.units[unit].maker.filter(|_| self.problem.recompute) else {
            return f64::INFINITY;
        };
        self.stamp += 1;
        let stamp = self.stamp;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        stack.push(maker as u32);
        self.stamps[maker] = stamp;
        let (mut seconds, mut seen) = (0.0, 0);
        while let Some(task) = stack.pop() {
            let t = &self.problem.tasks[task as usize];
            seen += 1;
            if !t.is_repeatable(when) {
                seconds = f64::INFINITY;
                break;
            }
            seconds += t.seconds;
            if seen > CLOSURE {
                break;
            }
            for &input in &t.inputs {
                if self.resident[input] || self.in_file[input] {
                    seconds += visit(self, input);
                    continue;
                }
                match self.problem.units[input].maker {
                    Some(maker) if self.stamps[maker] == stamp => {}
                    Some(maker) => {
                        self.stamps[maker] = stamp;
                        stack.push(maker as u32);
                    }
                    None => seconds = f64::INFINITY,
                }
            }
        }
        self.work += seen as u64;
        self.stack = stack;
        seconds
    }

    /// A unit leaves memory, in the way that makes its return cheapest.
    fn evict(&mut self, unit: usize) {
        let need = self.needed[unit];
        if let Some(end) = self.writing[unit] {
            self.end_write(unit, end);
            return;
        }
        if need != NEVER && !self.in_file[unit] {
            let again = self.remake_seconds(unit);
            let u = &self.problem.units[unit];
            let transfers = if self.problem.can_spill(unit) {
                let begin = self.disk.earliest(self.ready(unit), u.write_seconds);
                let wait = (begin + u.write_seconds - self.now).max(0.0);
                self.transfer_seconds(unit) * self.setting.charge + wait
            } else {
                f64::INFINITY
            };
            if transfers < again {
                self.begin_write(unit);
                let end = self.writing[unit].expect("just begun");
                self.end_write(unit, end);
                return;
            }
            // What it will be made from is needed when it is.
            let inherit = self.setting.inherit;
            self.walk_makers(unit, 0, |s, source| {
                if s.resident[source] {
                    s.until[source] = s.until[source].max(need);
                    if inherit && s.needed[source] >= s.step {
                        s.needed[source] = s.needed[source].min(need);
                    }
                }
                0.0
            });
        }
        self.leave(unit);
    }

    /// When the event began after which a unit was there.
    fn ready(&self, unit: usize) -> f64 {
        self.times.get(self.since[unit] as usize).copied().unwrap_or(self.now)
    }

    /// The number of the event before which a transfer is asked for that begins at a time: the last one that does not begin later.
    fn event_at(&self, time: f64, since: u32) -> u32 {
        let after = self.times.partition_point(|&t| t <= time) as u32;
        let open = if time >= self.now { self.events.len() as u32 } else { after.saturating_sub(1) };
        open.max(since)
    }

    /// Writes a unit to the file as soon as it is there and the disk is idle.
    fn begin_write(&mut self, unit: usize) {
        let seconds = self.problem.units[unit].write_seconds;
        let begin = self.disk.earliest(self.ready(unit), seconds);
        self.disk.book(begin, seconds);
        self.disk_seconds += seconds;
        self.writing[unit] = Some(begin + seconds);
        self.begun.push((self.event_at(begin, self.since[unit]), begin, Event::BeginWrite(unit)));
    }

    /// Waits until a unit is written; it leaves.
    fn end_write(&mut self, unit: usize, end: f64) {
        self.now = self.now.max(end);
        self.push(Event::EndWrite(unit), self.bytes, self.problem.units[unit].beside_seconds);
        self.writing[unit] = None;
        self.in_file[unit] = true;
        self.leave(unit);
        self.since[unit] = self.events.len() as u32;
    }

    /// A unit comes back: read or made again.
    fn bring_back(&mut self, unit: usize, depth: usize) -> Option<()> {
        let u = &self.problem.units[unit];
        if self.in_file[unit] {
            self.needed[unit] = self.step;
            let again = self.remake_seconds(unit);
            if again >= u.read_seconds * self.setting.charge {
                return self.read(unit);
            }
        }
        self.execute(u.maker?, depth + 1)
    }

    /// Reads a unit, begun as late as is early enough, or as early as memory allows.
    fn read(&mut self, unit: usize) -> Option<()> {
        let (bytes, seconds) = (self.problem.units[unit].bytes, self.problem.units[unit].read_seconds);
        self.make_room(bytes)?;
        let since = self.since[unit];
        let mut first = self.events.len() as u32;
        // Goes back while there is room and a reason.
        let mut go_back = |s: &Self, reason: &dyn Fn(u32) -> bool| {
            while first > since && reason(first) && s.levels[first as usize - 1] + bytes <= s.bounds.limit {
                first -= 1;
            }
            first
        };
        let in_time = self.disk.before(self.now, seconds).next().filter(|&begin| {
            let wanted = self.event_at(begin, 0);
            go_back(self, &|at| at > wanted) <= wanted
        });
        let begin = in_time.unwrap_or_else(|| {
            let time = |at: u32| self.times.get(at as usize).copied().unwrap_or(self.now);
            self.disk.free().max(time(go_back(self, &|at| time(at) > self.disk.free())))
        });
        let at = self.event_at(begin, since).max(first);
        self.disk.book(begin, seconds);
        self.disk_seconds += seconds;
        for level in &mut self.levels[at as usize..] {
            *level += bytes;
        }
        self.begun.push((at, begin, Event::BeginRead(unit)));
        self.now = self.now.max(begin + seconds);
        self.enter(unit);
        self.push(Event::EndRead(unit), self.bytes, self.problem.units[unit].beside_seconds);
        self.since[unit] = self.events.len() as u32;
        Some(())
    }

    /// After a step of the order: what nobody needs any more goes.
    fn forget_dead(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        for &unit in &touched {
            let unit = unit as usize;
            if self.resident[unit] && self.writing[unit].is_none() && self.next_use(unit) == NEVER {
                self.needed[unit] = self.next_need(unit);
                if self.needed[unit] == NEVER {
                    self.leave(unit);
                }
            }
        }
        self.touched = touched;
        self.touched.clear();
    }
}

/// `x^p`, quickly for the usual powers.
fn power(x: f64, p: f64) -> f64 {
    match p {
        0.0 => 1.0,
        1.0 => x,
        2.0 => x * x,
        0.5 => x.sqrt(),
        _ => x.powf(p),
    }
}
