//! Working ahead: threads that make the next elements while the consumer is busy.
//!
//! Work is cut into jobs, numbered as they are taken up; the results stand in a ring in that order, so that the consumer sees the
//! same elements however many threads there are. How many work and how far ahead is decided by how often the consumer has to
//! wait, within what the budget leaves.

use crate::builder::Builder;
use crate::column::Chunk;
use crate::flow::{Flow, InUse, Lookup, Open, Stage};
use crate::memory::Counted;
use crate::stages::Transform;
use crate::{Calls, Error, Spec};
use plimsoll_budget::{Bytes, Reservation};
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How far ahead to work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lead {
    /// How many threads.
    pub(crate) calls: Calls,
    /// How many elements to keep ready; `None`: decided by measuring.
    pub(crate) elements: Option<usize>,
    /// Whether the order of elements is kept.
    pub(crate) ordered: bool,
}

impl Lead {
    /// What both want together.
    pub(crate) fn with(self, other: Lead) -> Lead {
        let elements = match (self.elements, other.elements) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        Lead { calls: self.calls.max(other.calls), elements, ordered: self.ordered && other.ordered }
    }
}

/// Where jobs come from.
enum Feed {
    Lookup { lookup: Arc<dyn Lookup>, next: u64 },
    Flow { flow: Flow, given: u64 },
}

enum Job {
    /// Elements of a lookup.
    Range(Range<u64>),
    /// Elements that exist, with the number of the first one and what follows them.
    Chunk(Chunk, u64, Result<bool, Error>),
}

impl Feed {
    /// The next job, of about `block` elements.
    fn next(&mut self, block: usize) -> Option<Job> {
        match self {
            Feed::Lookup { lookup, next } => {
                let end = next.saturating_add(block as u64).min(lookup.len());
                let range = *next..end;
                *next = end;
                (!range.is_empty()).then_some(Job::Range(range))
            }
            Feed::Flow { flow, given } => {
                let (chunk, result) = flow.chunk(block);
                let first = *given;
                *given += chunk.rows as u64 + result.is_err() as u64;
                if chunk.rows == 0 && matches!(result, Ok(false)) {
                    return None;
                }
                Some(Job::Chunk(chunk, first, result))
            }
        }
    }

    fn skip(&mut self, n: u64) -> Result<u64, Error> {
        match self {
            Feed::Lookup { lookup, next } => {
                let n = n.min(lookup.len() - *next);
                *next += n;
                Ok(n)
            }
            Feed::Flow { flow, given } => {
                let n = flow.skip(n)?;
                *given += n;
                Ok(n)
            }
        }
    }
}

/// Elements, and what follows them: more, the end, or an error in place of one element.
type Piece = (Chunk, Result<bool, Error>);

#[derive(Default)]
struct Slot {
    pieces: VecDeque<Piece>,
    done: bool,
    /// What it takes of what is extra.
    #[expect(dead_code, reason = "held, not read")]
    extra: Option<InUse>,
}

struct State {
    /// The jobs under way and their results, oldest first.
    ring: VecDeque<Slot>,
    /// The number of the oldest.
    head: u64,
    /// How many jobs there may be, and how many threads may take them up.
    depth: usize,
    active: usize,
    /// The bytes of the largest job so far.
    largest: usize,
    /// How many elements a job has.
    block: usize,
    ended: bool,
    stop: bool,
    /// Whether the consumer is waiting and holds nothing.
    hungry: bool,
    takes: u32,
    waits: u32,
}

struct Shared {
    feed: Mutex<Feed>,
    state: Mutex<State>,
    /// There is room for a job, or a turn has come.
    room: Condvar,
    /// There is a result.
    ready: Condvar,
    spec: Arc<Spec>,
    /// What the largest element takes, where that is known.
    size: Option<u64>,
    open: Open,
    transform: Option<Arc<dyn Transform>>,
    lookup: Option<(Arc<dyn Lookup>, u64)>,
    epoch: u64,
    /// The bytes that a job shall have, where the size of elements is not known; else 0.
    weighed: usize,
    threads: usize,
    max_depth: usize,
    ordered: bool,
}

/// A stage whose elements are made ahead of their use.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    threads: Vec<std::thread::JoinHandle<()>>,
    current: Option<Piece>,
    started: bool,
    /// The threads' stacks.
    stacks: Option<(Reservation, InUse)>,
}

impl Ahead {
    /// Elements of a lookup, in order.
    pub(crate) fn of_lookup(
        lookup: Arc<dyn Lookup>,
        spec: Arc<Spec>,
        size: Option<u64>,
        epoch: u64,
        lead: Lead,
        open: &Open,
    ) -> Ahead {
        let bytes = lookup.preferred_bytes();
        let block = open.block(size, bytes);
        let feed = Feed::Lookup { lookup: lookup.clone(), next: 0 };
        Ahead::new(feed, spec, size, None, Some((lookup, epoch)), epoch, (block, bytes), lead, open)
    }

    /// Elements of a flow, as they are or each changed by `transform`.
    pub(crate) fn of_flow(
        flow: Flow,
        spec: Arc<Spec>,
        size: Option<u64>,
        transform: Option<Arc<dyn Transform>>,
        epoch: u64,
        lead: Lead,
        open: &Open,
    ) -> Ahead {
        // A job has elements as they come and as they become.
        let size = size.and_then(|size| Some(if transform.is_some() { flow.size?.max(size) } else { size }));
        let bytes = 256 << 10;
        let block = open.block(size, bytes);
        Ahead::new(Feed::Flow { flow, given: 0 }, spec, size, transform, None, epoch, (block, bytes), lead, open)
    }

    fn new(
        feed: Feed,
        spec: Arc<Spec>,
        size: Option<u64>,
        transform: Option<Arc<dyn Transform>>,
        lookup: Option<(Arc<dyn Lookup>, u64)>,
        epoch: u64,
        (block, bytes): (usize, usize),
        lead: Lead,
        open: &Open,
    ) -> Ahead {
        let parallel = lookup.is_some() || transform.is_some();
        let (threads, active) = match lead.calls {
            _ if !parallel => (1, 1),
            Calls::Fixed(n) => (n.clamp(1, 256), n.clamp(1, 256)),
            Calls::Auto => (open.threads, 1),
        };
        let weighed = if spec.bytes().is_none() && lead.elements.is_none() { bytes } else { 0 };
        let block = lead.elements.map_or(block, |n| block.min(n.div_ceil(2)).max(1));
        let (depth, max_depth) = match lead.elements {
            Some(n) => (n.div_ceil(block).max(active), n.div_ceil(block).max(threads)),
            None => (active + 1, 4 * threads + 4),
        };
        let state = State {
            ring: VecDeque::new(),
            head: 0,
            depth,
            active,
            largest: 0,
            block,
            ended: false,
            stop: false,
            hungry: false,
            takes: 0,
            waits: 0,
        };
        let shared = Shared {
            feed: Mutex::new(feed),
            state: Mutex::new(state),
            room: Condvar::new(),
            ready: Condvar::new(),
            spec,
            size,
            open: open.clone(),
            transform,
            lookup,
            epoch,
            weighed,
            threads,
            max_depth,
            ordered: lead.ordered,
        };
        Ahead { shared: Arc::new(shared), threads: Vec::new(), current: None, started: false, stacks: None }
    }

    /// What a thread keeps resident besides the elements: the touched part of its stack and of its allocator's arena.
    pub(crate) const THREAD_BYTES: u64 = 128 << 10;

    /// Starts as many threads as the budget has memory for. Without any the consumer does the work itself.
    fn start(&mut self) {
        self.started = true;
        let shared = &self.shared;
        // Only of what is extra, and half of it, so that there is something to work on.
        let n = (shared.open.spare() / Ahead::THREAD_BYTES).min(shared.threads as u64);
        let Ok(stacks) = shared.open.account.reserve(Bytes(n * Ahead::THREAD_BYTES)) else { return };
        self.stacks = Some((stacks, shared.open.use_extra(n * Ahead::THREAD_BYTES)));
        for id in 0..n as usize {
            let shared = shared.clone();
            let spawned = std::thread::Builder::new()
                .name(format!("plimsoll-data-{id}"))
                .stack_size(1 << 20)
                .spawn(move || shared.work(id));
            match spawned {
                Ok(thread) => self.threads.push(thread),
                // With one thread fewer it is only slower.
                Err(_) => break,
            }
        }
    }

    /// The next piece; `None` at the end.
    fn take(&mut self) -> Option<Piece> {
        if !self.started {
            self.start();
        }
        match self.threads.is_empty() {
            true => self.shared.make(),
            false => self.shared.take(),
        }
    }
}

impl Stage for Ahead {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let piece = match self.current.take() {
            Some(piece) => Some(piece),
            None => self.take(),
        };
        let Some((chunk, result)) = piece else { return Ok(false) };
        let n = chunk.rows.min(want);
        out.append(&chunk, 0..n)?;
        if n < chunk.rows {
            self.current = Some((chunk.slice(n..chunk.rows), result));
            return Ok(true);
        }
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.started {
            return Ok(None);
        }
        lock(&self.shared.feed).skip(n).map(Some)
    }

    fn ready(&mut self) -> Option<Piece> {
        match self.current.take() {
            Some(piece) => Some(piece),
            None => Some(self.take().unwrap_or((empty(), Ok(false)))),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches the panics of what it runs.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The next piece, made by the caller.
    fn make(&self) -> Option<Piece> {
        loop {
            let mut state = lock(&self.state);
            if let Some(piece) = state.pop(true) {
                return Some(piece);
            }
            (state.block, state.hungry) = (1, true);
            drop(state);
            let (number, job) = self.next_job(0)?;
            self.run(number, job);
            let mut state = lock(&self.state);
            let slot = (number - state.head) as usize;
            state.ring[slot].done = true;
        }
    }

    fn take(&self) -> Option<Piece> {
        let mut state = lock(&self.state);
        state.takes += 1;
        let mut waited = None;
        let piece = loop {
            if let Some(piece) = state.pop(self.ordered) {
                self.room.notify_all();
                break Some(piece);
            }
            if state.ring.is_empty() && state.ended {
                break None;
            }
            if waited.is_none() {
                waited = Some(Instant::now());
                state.waits += 1;
            }
            state.hungry = true;
            self.room.notify_all();
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.hungry = false;
        };
        self.tune(&mut state);
        drop(state);
        if let Some(start) = waited {
            self.open.profile.waited(start.elapsed());
        }
        piece
    }

    /// More threads and more depth while the consumer has to wait; nothing else is known to help.
    fn tune(&self, state: &mut State) {
        if state.takes < 8 && state.waits < 2 {
            return;
        }
        if state.waits * 8 > state.takes {
            state.active = (state.active + 1).min(self.threads);
            state.depth = (state.depth + 2).min(self.max_depth).max(state.active);
            self.room.notify_all();
        }
        (state.takes, state.waits) = (0, 0);
        self.open.profile.tuned(state.active, state.depth);
    }

    fn work(&self, id: usize) {
        loop {
            let job = match catch_unwind(AssertUnwindSafe(|| self.next_job(id))) {
                Ok(Some(job)) => job,
                Ok(None) => return,
                Err(panic) => {
                    let mut state = lock(&self.state);
                    let pieces = VecDeque::from([(empty(), Err(panicked(&*panic)))]);
                    state.ring.push_back(Slot { pieces, done: true, extra: None });
                    state.ended = true;
                    self.ready.notify_all();
                    self.room.notify_all();
                    return;
                }
            };
            let (number, job) = job;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(number, job))) {
                self.deliver(number, (empty(), Err(panicked(&*panic))));
            }
            let mut state = lock(&self.state);
            let slot = (number - state.head) as usize;
            state.ring[slot].done = true;
            self.ready.notify_all();
        }
    }

    /// Takes up a job when there is room for it. Whoever waits for room keeps the others from taking jobs, so that jobs are
    /// numbered in the order in which the feed gave them.
    fn next_job(&self, id: usize) -> Option<(u64, Job)> {
        let mut state = lock(&self.state);
        while !state.stop && !state.ended && id >= state.active {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let mut feed = lock(&self.feed);
        let mut state = lock(&self.state);
        while !state.stop && !state.ended && !self.has_room(&state) {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop || state.ended {
            return None;
        }
        let block = state.block;
        // The first is what the pipeline cannot do without.
        let extra = (!state.ring.is_empty()).then(|| self.open.use_extra(self.job_bytes(&state)));
        drop(state);
        let job = feed.next(block);
        let fatal = matches!(&job, Some(Job::Chunk(_, _, Err(error))) if !error.is_data());
        let mut state = lock(&self.state);
        state.ended |= job.is_none() || fatal;
        if state.ended {
            self.room.notify_all();
            self.ready.notify_all();
        }
        let job = job?;
        state.ring.push_back(Slot { extra, ..Slot::default() });
        Some((state.head + state.ring.len() as u64 - 1, job))
    }

    fn has_room(&self, state: &State) -> bool {
        if state.ring.is_empty() {
            return true;
        }
        state.ring.len() < state.depth && self.open.spare() >= self.job_bytes(state)
    }

    /// What a job takes at the most: its elements before and after, each of which may grow by moving.
    fn job_bytes(&self, state: &State) -> u64 {
        let most = self.size.map_or(0, |size| size.saturating_mul(state.block as u64));
        most.max(state.largest as u64).saturating_mul(4)
    }

    fn run(&self, number: u64, job: Job) {
        match (job, &self.lookup) {
            (Job::Range(range), Some((lookup, epoch))) => self.look_up(number, &**lookup, *epoch, range),
            (Job::Chunk(chunk, first, result), _) => match &self.transform {
                Some(transform) => self.transform(number, &**transform, chunk, first, result),
                None => self.deliver(number, (chunk, result)),
            },
            (Job::Range(_), None) => unreachable!("ranges come from lookups"),
        }
    }

    fn look_up(&self, number: u64, lookup: &dyn Lookup, epoch: u64, range: Range<u64>) {
        let gather = |range: Range<u64>| {
            let at = Counted::collect(&self.open.account, (range.end - range.start) as usize, range)?;
            let mut out = Builder::new(&self.open.account, &self.spec)?;
            lookup.gather(epoch, &at, &mut out)?;
            Ok(out.finish())
        };
        let (mut next, mut n, mut my_turn) = (range.start, range.end - range.start, false);
        while next < range.end {
            n = n.min(range.end - next);
            match gather(next..next + n) {
                Ok(chunk) => {
                    self.deliver(number, (chunk, Ok(true)));
                    next += n;
                    if my_turn && next < range.end && !self.wait_for_turn(number) {
                        return;
                    }
                }
                // When everything before it has been used there is most memory; then in smaller parts.
                Err(Error::OverBudget(_)) if !my_turn => {
                    lock(&self.state).depth = 1;
                    my_turn = true;
                    if !self.wait_for_turn(number) {
                        return;
                    }
                }
                Err(Error::OverBudget(_)) if n > 1 => n /= 2,
                Err(_) if n > 1 => n = 1,
                Err(error) => {
                    self.deliver(number, (empty(), Err(error)));
                    next += 1;
                }
            }
        }
    }

    fn transform(
        &self,
        number: u64,
        transform: &dyn Transform,
        chunk: Chunk,
        first: u64,
        mut last: Result<bool, Error>,
    ) {
        let mut from = 0;
        while from < chunk.rows {
            let result = Builder::new(&self.open.account, &self.spec).map(|mut out| {
                let result = transform.apply(&chunk, from..chunk.rows, &|row| first + row as u64, self.epoch, &mut out);
                out.rollback();
                (out.finish(), result)
            });
            match result {
                Ok((made, Ok(()))) => {
                    from = chunk.rows;
                    let follows = std::mem::replace(&mut last, Ok(true));
                    self.deliver(number, (made, follows));
                }
                Ok((made, Err((bad, error)))) => {
                    from = bad + 1;
                    self.deliver(number, (made, Err(error)));
                }
                Err(error) => {
                    from = chunk.rows;
                    self.deliver(number, (empty(), Err(error)));
                }
            }
        }
        if !matches!(last, Ok(true)) {
            self.deliver(number, (empty(), last));
        }
    }

    fn deliver(&self, number: u64, piece: Piece) {
        let mut state = lock(&self.state);
        state.largest = state.largest.max(piece.0.weight());
        if self.weighed > 0 && piece.0.rows > 0 {
            state.block = self.open.block_like(&piece.0, self.size, state.block, self.weighed);
        }
        let slot = (number - state.head) as usize;
        state.ring[slot].pieces.push_back(piece);
        self.ready.notify_all();
    }

    /// Waits until the consumer has used everything before this job and asks for more; false when it went away.
    fn wait_for_turn(&self, number: u64) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.stop {
                return false;
            }
            if state.hungry && state.head == number && state.ring[0].pieces.is_empty() {
                return true;
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn pop(&mut self, ordered: bool) -> Option<Piece> {
        loop {
            let front = self.ring.front_mut()?;
            if let Some(piece) = front.pieces.pop_front() {
                return Some(piece);
            }
            if !front.done {
                break;
            }
            self.ring.pop_front();
            self.head += 1;
        }
        if ordered {
            return None;
        }
        self.ring.iter_mut().find_map(|slot| slot.pieces.pop_front())
    }
}

fn empty() -> Chunk {
    Chunk { rows: 0, columns: Vec::new() }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
    Error::pipeline("prefetch", format!("a function panicked: {}", text.as_deref().unwrap_or("no message")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic interrupted is reported as an error and ends the flow.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::expect_lookup;
    use crate::{AUTOTUNE, Dataset};
    use plimsoll_budget::Budget;
    use std::sync::OnceLock;

    /// Numbers, each made only while the consumer waits for one, or at once.
    struct Slow {
        numbers: Arc<dyn Lookup>,
        consumer: Arc<OnceLock<Arc<Shared>>>,
    }

    impl Lookup for Slow {
        fn len(&self) -> u64 {
            self.numbers.len()
        }

        fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
            if let Some(shared) = self.consumer.get() {
                while !matches!(*lock(&shared.state), State { hungry: true, .. } | State { stop: true, .. }) {
                    std::thread::yield_now();
                }
            }
            self.numbers.gather(epoch, at, out)
        }
    }

    /// How many threads work behind 40 pieces of one element each: made while the consumer waits for them, or before it asks.
    fn threads_in_the_end(consumer_waits: bool) -> usize {
        let open = Open::new(Budget::unlimited().account("pipeline"), 3);
        let node = Dataset::range(0, 40, 1).node().unwrap();
        let consumer = Arc::new(OnceLock::new());
        let lookup = Slow { numbers: expect_lookup(&node, &open).unwrap(), consumer: consumer.clone() };
        let lead = Lead { calls: AUTOTUNE, elements: None, ordered: true };
        let mut ahead = Ahead::of_lookup(Arc::new(lookup), node.spec().clone(), Some(8), 0, lead, &open);
        lock(&ahead.shared.state).block = 1;
        if consumer_waits {
            assert!(consumer.set(ahead.shared.clone()).is_ok());
        } else {
            ahead.start();
        }
        for _ in 0..40 {
            let is_ready = || {
                let state = lock(&ahead.shared.state);
                let next = state.ring.iter().find(|slot| !(slot.done && slot.pieces.is_empty()));
                next.is_some_and(|slot| !slot.pieces.is_empty())
            };
            while !consumer_waits && !is_ready() {
                std::thread::yield_now();
            }
            let (chunk, _) = ahead.take().unwrap();
            assert_eq!(chunk.rows, 1);
        }
        assert!(ahead.take().is_none());
        lock(&ahead.shared.state).active
    }

    #[test]
    fn measuring_finds_more_threads_when_the_consumer_waits() {
        assert_eq!(threads_in_the_end(true), 3);
        assert_eq!(threads_in_the_end(false), 1);
    }
}
