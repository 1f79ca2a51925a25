//! `shuffle`: the elements in another order.
//!
//! Elements that can be found by number are shuffled by permuting the numbers: completely without a buffer, or, with a buffer size,
//! by the buffer's own algorithm on numbers instead of elements. Streams go through a buffer of elements with that same
//! algorithm, so that both give the same order.

use super::Inlet;
use crate::builder::Builder;
use crate::column::Chunk;
use crate::dataset::{Node, expect_lookup, open_flow};
use crate::flow::{Lookup, Open, Stage};
use crate::least::{held_bytes, list_bytes};
use crate::memory::Counted;
use crate::permutation::{Permutation, below, mix};
use crate::{Cardinality, Dataset, Error, Spec};
use plimsoll_budget::{Bytes, Reservation};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

impl Dataset {
    /// The elements in random order, another one in every epoch.
    ///
    /// `None` shuffles completely: every order of all elements can come out. It takes no memory, but needs elements that can be found
    /// by number; see [`Dataset::shuffle_on_disk`] for streams. A number is the size of a buffer as in `tf.data`: each
    /// element is drawn from the next so many.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Dataset, Options};
    /// let data = Dataset::range(0, 100, 1).shuffle(None, 1);
    /// let order = |epoch| -> Vec<i64> {
    ///     let options = Options::new(&Budget::unlimited()).epoch(epoch);
    ///     data.iter_with(&options).unwrap().map(|e| e.unwrap().get("value").unwrap()[0]).collect()
    /// };
    /// assert_eq!(order(0), order(0));
    /// assert_ne!(order(0), order(1));
    /// ```
    pub fn shuffle(&self, buffer_size: impl Into<Option<u64>>, seed: u64) -> Dataset {
        self.shuffled(buffer_size.into(), seed, true)
    }

    /// As [`Dataset::shuffle`], with the same order in every epoch.
    pub fn shuffle_once(&self, buffer_size: impl Into<Option<u64>>, seed: u64) -> Dataset {
        self.shuffled(buffer_size.into(), seed, false)
    }

    fn shuffled(&self, buffer: Option<u64>, seed: u64, every_epoch: bool) -> Dataset {
        self.then(|input| {
            if buffer == Some(0) {
                return Err(Error::pipeline("shuffle", "a buffer holds at least 1 element"));
            }
            if buffer.is_none() && !input.is_lookup() {
                let message = "the elements of a stream cannot be found by number, so a complete shuffle needs their place \
                               on disk (shuffle_on_disk) or in memory (cache before shuffle); or give a buffer size";
                return Err(Error::pipeline("shuffle", message));
            }
            if buffer.is_none() && input.cardinality() == Cardinality::Infinite {
                return Err(Error::pipeline("shuffle", "what never ends can only be shuffled through a buffer"));
            }
            // A buffer that holds everything shuffles completely.
            let all = |buffer| input.is_lookup() && input.cardinality().known().is_some_and(|n| n <= buffer);
            let buffer = buffer.filter(|buffer| !all(*buffer));
            Ok(Shuffle { input, buffer, seed, every_epoch })
        })
    }
}

struct Shuffle {
    input: Arc<dyn Node>,
    /// `None`: completely.
    buffer: Option<u64>,
    seed: u64,
    every_epoch: bool,
}

impl Shuffle {
    /// How many elements the buffer has at the most.
    fn held(&self) -> u64 {
        self.buffer.unwrap_or(0).min(self.input.total().map_or(u64::MAX, |total| total.elements))
    }
}

impl Node for Shuffle {
    fn describe(&self) -> String {
        let how = self.buffer.map_or("completely".to_string(), |n| format!("in a buffer of {n}"));
        let when = if self.every_epoch { "" } else { ", the same in every epoch" };
        format!("shuffle {how}, seed {}{when}", self.seed)
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> Cardinality {
        self.input.cardinality()
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup()
    }

    fn counted(&self) -> Option<u64> {
        self.input.counted()
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        let buffer = self.held();
        if self.is_lookup() {
            return self.input.working_bytes(rows)?.checked_add(list_bytes(8 * rows as u64));
        }
        // A buffer of elements grows by moving; those that differ in size are each on their own.
        let element = held_bytes(&*self.input, 1)?;
        let elements = match self.input.spec().bytes() {
            Some(_) => held_bytes(&*self.input, buffer)?.checked_mul(2)?,
            None => element.checked_mul(buffer)?,
        };
        super::inlet_bytes(&*self.input)?.checked_add(elements)
    }

    fn kept_bytes(&self) -> Option<u64> {
        let input = self.input.kept_bytes()?;
        if !self.is_lookup() || self.buffer.is_none() {
            return Some(input);
        }
        // Two buffers of numbers where two epochs meet, each with the last one given.
        let buffer = list_bytes(self.held().checked_mul(8)?).checked_add(8)?;
        input.checked_add(buffer.checked_mul(2)?)
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let input = expect_lookup(&self.input, open)?;
        let key = Key { seed: self.seed, every_epoch: self.every_epoch };
        Ok(Some(match self.buffer {
            None => Arc::new(Permuted { input, key, last: Mutex::new(None) }),
            Some(buffer) => Arc::new(Buffered { input, key, buffer, open: open.clone(), draws: Mutex::default() }),
        }))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let Some(buffer) = self.buffer else { unreachable!("`shuffle` lets only lookups do without a buffer") };
        let key = Key { seed: self.seed, every_epoch: self.every_epoch };
        let input = Inlet::new(open_flow(&self.input, open, epoch)?);
        let rows = Rows::new(open, self.input.spec())?;
        Ok(Box::new(ShuffleStage { input, draw: Draw { key: key.of(epoch), given: 0 }, buffer, rows, full: false }))
    }
}

#[derive(Clone, Copy)]
struct Key {
    seed: u64,
    every_epoch: bool,
}

impl Key {
    /// The seed of the draws of an epoch.
    fn of(self, epoch: u64) -> u64 {
        mix(self.seed ^ mix(if self.every_epoch { epoch } else { 0 }))
    }
}

/// Which of the elements in a buffer comes next: a function of the key and the place in the order.
struct Draw {
    key: u64,
    given: u64,
}

impl Draw {
    fn next(&mut self, held: u64) -> u64 {
        let at = below(mix(self.key ^ mix(self.given)), held);
        self.given += 1;
        at
    }
}

/// A complete shuffle.
struct Permuted {
    input: Arc<dyn Lookup>,
    key: Key,
    last: Mutex<Option<(u64, Arc<Permutation>)>>,
}

impl Permuted {
    fn permutation(&self, epoch: u64) -> Arc<Permutation> {
        let epoch = if self.key.every_epoch { epoch } else { 0 };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, permutation)) if *of == epoch => permutation.clone(),
            _ => {
                let permutation = Arc::new(Permutation::new(self.input.len(), self.key.seed, epoch));
                *last = Some((epoch, permutation.clone()));
                permutation
            }
        }
    }
}

impl Lookup for Permuted {
    fn len(&self) -> u64 {
        self.input.len()
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let permutation = self.permutation(epoch);
        let at = Counted::collect(out.account(), at.len(), at.iter().map(|i| permutation.at(*i)))?;
        self.input.gather(epoch, &at, out)
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

/// A buffer of numbers.
struct Numbers {
    epoch: u64,
    draw: Draw,
    buffer: Counted<u64>,
    next: u64,
    /// The last numbers given, since threads ask for neighbouring places in any order.
    recent: VecDeque<u64>,
    /// How many of them are kept.
    kept: Reservation,
}

impl Numbers {
    const RECENT: usize = 1 << 16;

    fn new(epoch: u64, key: u64, size: u64, n: u64, open: &Open) -> Result<Numbers, Error> {
        let mut buffer = Counted::new(&open.account)?;
        let first = size.min(n);
        buffer.reserve(first as usize)?;
        for i in 0..first {
            buffer.push(i)?;
        }
        // With fewer of them only more may have to be drawn again.
        let left = open.spare() / 16 / 8;
        let kept = (Numbers::RECENT as u64).min(n).min(left).max(1);
        let recent = VecDeque::with_capacity(kept as usize);
        let kept = open.account.reserve(Bytes(kept * 8))?;
        Ok(Numbers { epoch, draw: Draw { key, given: 0 }, buffer, next: first, recent, kept })
    }

    /// The number at a place; `None` when that is too long ago.
    fn at(&mut self, place: u64, n: u64) -> Option<u64> {
        while self.draw.given <= place {
            let slot = self.draw.next(self.buffer.len() as u64) as usize;
            let (number, last) = (self.buffer[slot], self.buffer.len() - 1);
            // The last one takes the place of the one drawn, and the next of the input the last place.
            self.buffer[slot] = self.buffer[last];
            if self.next < n {
                self.buffer[last] = self.next;
                self.next += 1;
            } else {
                self.buffer.truncate(last);
            }
            if self.recent.len() as u64 == self.kept.bytes().0 / 8 {
                self.recent.pop_front();
            }
            self.recent.push_back(number);
        }
        let back = (self.draw.given - place) as usize;
        self.recent.len().checked_sub(back).map(|at| self.recent[at])
    }
}

/// A shuffle through a buffer of numbers: 8 bytes per element of the buffer, whatever the elements' size.
struct Buffered {
    input: Arc<dyn Lookup>,
    key: Key,
    buffer: u64,
    open: Open,
    /// Those of the last two epochs, since threads may be in different ones.
    draws: Mutex<VecDeque<Numbers>>,
}

impl Lookup for Buffered {
    fn len(&self) -> u64 {
        self.input.len()
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let mut numbers = Counted::collect(out.account(), at.len(), [])?;
        let mut draws = self.draws.lock().unwrap_or_else(PoisonError::into_inner);
        for place in at {
            let known = draws.iter_mut().find(|d| d.epoch == epoch);
            if let Some(number) = known.and_then(|draw| draw.at(*place, self.input.len())) {
                numbers.push(number)?;
                continue;
            }
            draws.retain(|d| d.epoch != epoch);
            while draws.len() > 1 {
                draws.pop_front();
            }
            let mut draw = Numbers::new(epoch, self.key.of(epoch), self.buffer, self.input.len(), &self.open)?;
            numbers.push(draw.at(*place, self.input.len()).expect("the last one drawn is among the recent ones"))?;
            draws.push_back(draw);
        }
        drop(draws);
        self.input.gather(epoch, &numbers, out)
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

/// The elements in a buffer: side by side when they all have one size, else each on its own.
enum Rows {
    Same(Builder<'static>),
    Each(Vec<Chunk>, Open, Arc<Spec>),
}

impl Rows {
    fn new(open: &Open, spec: &Arc<Spec>) -> Result<Rows, Error> {
        Ok(match spec.bytes() {
            Some(_) => Rows::Same(Builder::new(&open.account, spec)?),
            None => Rows::Each(Vec::new(), open.clone(), spec.clone()),
        })
    }

    fn len(&self) -> usize {
        match self {
            Rows::Same(rows) => rows.rows(),
            Rows::Each(rows, ..) => rows.len(),
        }
    }

    fn push(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        match self {
            Rows::Same(rows) => rows.append(chunk, row..row + 1),
            Rows::Each(rows, open, spec) => {
                let mut one = Builder::new(&open.account, spec)?;
                one.append(chunk, row..row + 1)?;
                rows.push(one.finish());
                Ok(())
            }
        }
    }

    /// Appends an element to `out` and puts the last one in its place.
    fn take(&mut self, slot: usize, out: &mut Builder<'_>) -> Result<(), Error> {
        match self {
            Rows::Same(rows) => {
                for (to, from) in out.columns.iter_mut().zip(&mut rows.columns) {
                    to.take_from(from, slot..slot + 1)?;
                }
                out.commit_rows(1);
                let last = rows.rows() - 1;
                rows.columns.iter_mut().for_each(|c| c.move_row(last, slot));
                rows.truncate(last);
            }
            Rows::Each(rows, ..) => {
                out.append(&rows[slot], 0..1)?;
                rows.swap_remove(slot);
            }
        }
        Ok(())
    }
}

/// A shuffle through a buffer of elements.
struct ShuffleStage {
    input: Inlet,
    draw: Draw,
    buffer: u64,
    rows: Rows,
    /// Whether the buffer has been filled for the first time.
    full: bool,
}

impl Stage for ShuffleStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let goal = out.rows() + want;
        while out.rows() < goal {
            // As long as there is input the buffer is full when an element is drawn.
            while (self.rows.len() as u64) < self.buffer && !self.full {
                match self.input.peek(want)? {
                    None => self.full = true,
                    Some((chunk, rows)) => {
                        self.rows.push(chunk, rows.start)?;
                        self.input.advance(1);
                    }
                }
            }
            if self.rows.len() == 0 {
                return Ok(false);
            }
            let slot = self.draw.next(self.rows.len() as u64) as usize;
            self.rows.take(slot, out)?;
        }
        Ok(true)
    }
}
