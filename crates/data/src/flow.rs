//! The two ways in which elements move: by number, and one after another.
//!
//! [`Lookup`] gives elements by number: a function of (epoch, number) alone, callable from several threads at once. Every stage
//! that can stay a lookup does, because then shuffling is arithmetic, a resume is a jump and threads cannot change the order.
//! [`Stage`] gives the elements one after another, for sources and stages that know no better.

use crate::builder::Builder;
use crate::column::Chunk;
use crate::dataset::Node;
use crate::least::held_bytes;
use crate::memory::Counted;
use crate::pages;
use crate::profile::{Clock, Profile};
use crate::trail::Trails;
use crate::{Error, Place, Spec};
use plimsoll_budget::Account;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What a running pipeline shares: where memory comes from, how many threads there may be, who is measured.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) account: Account,
    pub(crate) threads: usize,
    pub(crate) profile: Profile,
    pub(crate) trails: Trails,
    extra: Arc<Extra>,
    longest: Arc<Longest>,
    /// Whether the least is known, so that elements are no larger than their links say.
    is_known: bool,
}

/// The longest record that was met, so that an error can name it.
#[derive(Default)]
struct Longest {
    bytes: AtomicU64,
    place: Mutex<Option<(Place, u64)>>,
}

/// What the budget has beyond the least that the pipeline works with: for threads, for working ahead and for many elements at a
/// time. The least itself is nobody's extra, so that it is there when its turn comes.
struct Extra {
    bytes: u64,
    used: AtomicU64,
}

/// A part of what is extra, in use until it is dropped.
pub(crate) struct InUse(Arc<Extra>, u64);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Relaxed);
    }
}

impl Open {
    /// Everything that is left is extra.
    pub(crate) fn new(account: Account, threads: usize) -> Open {
        Open::beyond(account, threads, None)
    }

    /// What is left beyond the least is extra, where that is known.
    pub(crate) fn beyond(account: Account, threads: usize, least: Option<u64>) -> Open {
        let bytes = pages::left(&account).saturating_sub(least.unwrap_or(0));
        let extra = Arc::new(Extra { bytes, used: AtomicU64::new(0) });
        let (profile, trails, longest) = Default::default();
        Open { account, threads, profile, trails, extra, longest, is_known: least.is_some() }
    }

    /// For links that nobody has looked at: their elements are weighed as they come.
    pub(crate) fn weighing(&self) -> Open {
        Open { is_known: false, ..self.clone() }
    }

    /// Notes a record of so many bytes.
    pub(crate) fn met(&self, bytes: u64, place: impl FnOnce() -> Place) {
        if self.longest.bytes.fetch_max(bytes, Relaxed) < bytes {
            *self.longest.place.lock().unwrap_or_else(PoisonError::into_inner) = Some((place(), bytes));
        }
    }

    /// The longest record so far, and where it begins.
    pub(crate) fn longest(&self) -> Option<(Place, u64)> {
        self.longest.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is extra and not in use. What is taken for blocks is not counted, so half is left to them.
    pub(crate) fn spare(&self) -> u64 {
        let unused = self.extra.bytes.saturating_sub(self.extra.used.load(Relaxed));
        if unused == u64::MAX { unused } else { (unused / 2).min(pages::left(&self.account)) }
    }

    /// Counts so much as in use.
    pub(crate) fn use_extra(&self, bytes: u64) -> InUse {
        self.extra.used.fetch_add(bytes, Relaxed);
        InUse(self.extra.clone(), bytes)
    }

    /// What the largest element of a link takes; `None` where nobody has to know.
    pub(crate) fn size(&self, node: &dyn Node) -> Option<u64> {
        match node.spec().bytes() {
            Some(bytes) => Some(bytes as u64),
            None if self.is_known => held_bytes(node, 1),
            None => None,
        }
    }

    /// How many elements to handle at a time, none of them larger than `size`, so that they fit in the nearer caches and in a part of
    /// what is extra.
    pub(crate) fn block(&self, size: Option<u64>, preferred: usize) -> usize {
        // Elements of unknown size come singly until some have been weighed.
        size.map_or(1, |size| self.block_of(size, size, preferred))
    }

    fn block_of(&self, weight: u64, size: u64, preferred: usize) -> usize {
        // Eight blocks in flight, in two copies each, leave half of what is extra to others.
        let most = self.extra.bytes.min(pages::left(&self.account)) / 32 / size.max(1);
        (preferred as u64 / weight.max(1)).min(most).clamp(1, Open::ROWS as u64) as usize
    }

    /// How many elements like those of a chunk to handle at a time, none of them larger than `size`.
    pub(crate) fn block_like(&self, chunk: &Chunk, size: Option<u64>, before: usize, preferred: usize) -> usize {
        let weight = chunk.weight().div_ceil(chunk.rows.max(1)) as u64;
        // Growing step by step, because the next ones may be larger.
        self.block_of(weight, size.unwrap_or(weight), preferred).min(before * 2)
    }

    /// The most elements handled at a time, which bounds the lists of their numbers.
    pub(crate) const ROWS: usize = 8192;
}

/// Elements by number.
pub(crate) trait Lookup: Send + Sync {
    /// How many there are; `u64::MAX` when they never end.
    fn len(&self) -> u64;

    /// Appends the elements of these numbers to `out`, all of them or fails.
    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error>;

    /// How many bytes to ask for at a time: more where one request costs more than its bytes.
    fn preferred_bytes(&self) -> usize {
        256 << 10
    }
}

/// Elements one after another.
pub(crate) trait Stage: Send {
    /// Appends up to `want` elements to `out`; false when there are no more.
    ///
    /// An error stands for one element: those before it are in `out`, and the next call goes on behind it.
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error>;

    /// Passes over `n` elements without making them and says over how many (fewer at the end); `None` when they must be made.
    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        let _ = n;
        Ok(None)
    }

    /// Elements that exist already, with what follows them, handed over without a copy; `None` when `fill` is the way.
    fn ready(&mut self) -> Option<(Chunk, Result<bool, Error>)> {
        None
    }
}

/// A running stage: measured, and with what every stage can do by filling.
pub(crate) struct Flow {
    stage: Box<dyn Stage>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) open: Open,
    /// What the largest element takes, where that is known.
    pub(crate) size: Option<u64>,
    clock: Clock,
    /// An error that came with as many elements as were wanted: it stands for the next one.
    pending: Option<Error>,
}

impl Flow {
    pub(crate) fn new(stage: Box<dyn Stage>, spec: Arc<Spec>, open: &Open, name: &str) -> Flow {
        let size = spec.bytes().map(|bytes| bytes as u64);
        Flow { stage, spec, open: open.clone(), size, clock: open.profile.clock(name), pending: None }
    }

    /// With elements that take no more than this.
    pub(crate) fn of_size(mut self, size: Option<u64>) -> Flow {
        self.size = self.size.or(size);
        self
    }

    /// How many elements to make at a time that nobody wants.
    pub(crate) fn at_a_time(&self) -> usize {
        match self.size {
            Some(_) => self.open.block(self.size, 64 << 10),
            None => 64,
        }
    }

    pub(crate) fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let before = out.rows();
        let result = self.clock.measure(|| self.stage.fill(out, want));
        if result.is_err() {
            out.rollback();
        }
        let made = out.rows() - before;
        self.clock.count(made);
        match result {
            Err(error) if made == want => {
                self.pending = Some(error);
                Ok(true)
            }
            result => result,
        }
    }

    /// Appends exactly `want` elements, fewer only at the end.
    pub(crate) fn fill_exact(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let goal = out.rows() + want;
        while out.rows() < goal {
            if !self.fill(out, goal - out.rows())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn builder(&self) -> Result<Builder<'static>, Error> {
        Builder::new(&self.open.account, &self.spec)
    }

    /// The next elements, at most `want` unless they exist already; with what comes behind them.
    pub(crate) fn chunk(&mut self, want: usize) -> (Chunk, Result<bool, Error>) {
        let nothing = Chunk { rows: 0, columns: Vec::new() };
        if let Some(error) = self.pending.take() {
            return (nothing, Err(error));
        }
        if let Some(ready) = self.clock.measure(|| self.stage.ready()) {
            self.clock.count(ready.0.rows);
            return ready;
        }
        let mut out = match self.builder() {
            Ok(out) => out,
            Err(error) => return (nothing, Err(error)),
        };
        let result = self.fill(&mut out, want);
        (out.finish(), result)
    }

    /// Passes over `n` elements; an element that is an error counts as one.
    pub(crate) fn skip(&mut self, n: u64) -> Result<u64, Error> {
        let mut passed = 0;
        if n > 0
            && let Some(error) = self.pending.take()
        {
            match error.is_data() {
                true => passed = 1,
                false => return Err(error),
            }
        }
        if let Some(skipped) = self.stage.skip(n - passed)? {
            return Ok(passed + skipped);
        }
        let (account, spec, most) = (self.open.account.clone(), self.spec.clone(), self.at_a_time());
        pass_over(passed..n, most, &account, &spec, |out, want| self.fill(out, want))
    }
}

/// Makes these elements, at most so many at a time, and drops them; says how many have been passed by then, fewer at the end. An
/// element that is an error counts as one.
pub(crate) fn pass_over(
    Range { start: mut passed, end: n }: Range<u64>,
    most: usize,
    account: &Account,
    spec: &Spec,
    mut fill: impl FnMut(&mut Builder<'_>, usize) -> Result<bool, Error>,
) -> Result<u64, Error> {
    while passed < n {
        let mut out = Builder::new(account, spec)?;
        let result = fill(&mut out, (n - passed).min(most as u64) as usize);
        passed += out.rows() as u64;
        match result {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if error.is_data() => passed += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(passed)
}

/// Opens the next of several flows; told whether the one before gave anything. `None` behind the last.
type OpenNext = dyn FnMut(bool) -> Option<Result<Flow, Error>> + Send;

/// Flows one after another: files, parts, rounds. One that cannot be opened because of its data is an error in place of an element.
pub(crate) struct InTurn {
    open: Box<OpenNext>,
    flow: Option<Flow>,
    /// Whether the flow at hand, or the one before, has given something.
    any: bool,
}

impl InTurn {
    pub(crate) fn new(open: impl FnMut(bool) -> Option<Result<Flow, Error>> + Send + 'static) -> InTurn {
        InTurn { open: Box::new(open), flow: None, any: false }
    }

    /// Makes sure that there is a flow at hand; false behind the last.
    fn enter(&mut self) -> Result<bool, Error> {
        if self.flow.is_none() {
            let any = std::mem::replace(&mut self.any, false);
            self.flow = (self.open)(any).transpose()?;
        }
        Ok(self.flow.is_some())
    }
}

impl Stage for InTurn {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        self.enter()?;
        let Some(flow) = &mut self.flow else { return Ok(false) };
        let before = out.rows();
        let result = flow.fill(out, want);
        self.any |= out.rows() > before || result.is_err();
        if !result? {
            self.flow = None;
        }
        Ok(true)
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        let mut skipped = 0;
        while skipped < n {
            match self.enter() {
                Err(error) if error.is_data() => {
                    skipped += 1;
                    continue;
                }
                other => drop(other?),
            }
            let Some(flow) = &mut self.flow else { break };
            let more = flow.skip(n - skipped)?;
            self.any |= more > 0;
            skipped += more;
            if skipped < n {
                self.flow = None;
            }
        }
        Ok(Some(skipped))
    }
}

/// Goes through a lookup in order.
pub(crate) struct InOrder {
    lookup: Arc<dyn Lookup>,
    epoch: u64,
    next: u64,
}

impl InOrder {
    pub(crate) fn new(lookup: Arc<dyn Lookup>, epoch: u64) -> InOrder {
        InOrder { lookup, epoch, next: 0 }
    }

    fn gather(&mut self, n: u64, out: &mut Builder<'_>) -> Result<(), Error> {
        let before = out.rows();
        let at = Counted::collect(out.account(), n as usize, self.next..self.next + n);
        let result = at.and_then(|at| self.lookup.gather(self.epoch, &at, out));
        match result {
            Ok(()) => self.next += n,
            Err(_) => out.truncate(before),
        }
        result
    }
}

impl Stage for InOrder {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let mut n = (want.min(Open::ROWS) as u64).min(self.lookup.len() - self.next);
        if n == 0 {
            return Ok(false);
        }
        loop {
            match self.gather(n, out) {
                Ok(()) => return Ok(true),
                // Less at a time may do.
                Err(error) if error.is_over_budget() && n > 1 => n /= 2,
                Err(_) if n > 1 => {
                    // One of them is bad: those before it count, and the error is its own.
                    for _ in 0..n {
                        self.gather(1, out).inspect_err(|_| self.next += 1)?;
                    }
                    return Ok(true);
                }
                Err(error) => {
                    self.next += !error.is_over_budget() as u64;
                    return Err(error);
                }
            }
        }
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        let n = n.min(self.lookup.len() - self.next);
        self.next += n;
        Ok(Some(n))
    }
}

/// A measured lookup.
pub(crate) struct Measured {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) clock: Clock,
}

impl Lookup for Measured {
    fn len(&self) -> u64 {
        self.lookup.len()
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        self.clock.count(at.len());
        self.clock.measure(|| self.lookup.gather(epoch, at, out))
    }

    fn preferred_bytes(&self) -> usize {
        self.lookup.preferred_bytes()
    }
}
