//! `take`, `skip`, `shard`, `repeat`, `enumerate`: which elements, by their numbers.

use crate::builder::Builder;
use crate::dataset::{Node, Total, expect_lookup, open_flow};
use crate::flow::{Flow, InTurn, Lookup, Open, Stage};
use crate::least::{flow_bytes, list_bytes};
use crate::memory::Counted;
use crate::{Cardinality, Component, Dataset, Error, Spec};
use plimsoll_tensor::{DType, Shape};
use std::sync::Arc;

impl Dataset {
    /// The first `n` elements.
    pub fn take(&self, n: u64) -> Dataset {
        self.part(Part::Take(n))
    }

    /// All but the first `n` elements.
    pub fn skip(&self, n: u64) -> Dataset {
        self.part(Part::Skip(n))
    }

    /// Every `n`-th element beginning with element `index`: the share of one of `n` workers.
    pub fn shard(&self, n: u64, index: u64) -> Dataset {
        if index >= n {
            let message = format!("share {index} of {n}: shares are counted from 0");
            return Dataset::from_result(Err(Error::pipeline("shard", message)));
        }
        self.part(Part::Shard(n, index))
    }

    /// The elements `times` times over, for ever with `None`. A shuffle before it gives every round its own order.
    pub fn repeat(&self, times: impl Into<Option<u64>>) -> Dataset {
        let times = times.into();
        self.then(|input| Ok(Repeat { input, times }))
    }

    /// With a component `name` in front that counts the elements from `start` on.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let data = Dataset::range(5, 8, 1).enumerate("number", 100);
    /// let last = data.iter(&Budget::unlimited())?.last().unwrap()?;
    /// assert_eq!((last.get::<i64>("number")?[0], last.get::<i64>("value")?[0]), (102, 7));
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn enumerate(&self, name: &str, start: i64) -> Dataset {
        self.then(|input| {
            let number = Component::new(name, DType::I64, &[]);
            let components = std::iter::once(number).chain(input.spec().components().iter().cloned());
            let spec = Arc::new(Spec::new(components)?);
            Ok(Enumerate { input, spec, start })
        })
    }

    fn part(&self, part: Part) -> Dataset {
        self.then(|input| Ok(Select { input, part }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Take(u64),
    Skip(u64),
    Shard(u64, u64),
}

impl Part {
    /// How many of `n` elements.
    fn len(self, n: u64) -> u64 {
        match self {
            Part::Take(most) => n.min(most),
            Part::Skip(first) => n.saturating_sub(first),
            Part::Shard(shares, index) => n.saturating_sub(index).div_ceil(shares),
        }
    }

    /// The number in the input of element `i`.
    fn at(self, i: u64) -> u64 {
        match self {
            Part::Take(_) => i,
            Part::Skip(first) => first + i,
            Part::Shard(shares, index) => i * shares + index,
        }
    }
}

struct Select {
    input: Arc<dyn Node>,
    part: Part,
}

impl Node for Select {
    fn describe(&self) -> String {
        match self.part {
            Part::Take(n) => format!("take {n}"),
            Part::Skip(n) => format!("skip {n}"),
            Part::Shard(n, index) => format!("shard {index} of {n}"),
        }
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> Cardinality {
        match (self.input.cardinality(), self.part) {
            (Cardinality::Infinite, Part::Take(n)) => Cardinality::Known(n),
            (all, part) => all.map(|n| part.len(n)),
        }
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup()
    }

    fn counted(&self) -> Option<u64> {
        self.cardinality().known().or_else(|| Some(self.part.len(self.input.counted()?)))
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        match (self.is_lookup(), self.part) {
            (true, Part::Take(_)) => self.input.working_bytes(rows),
            (true, _) => self.input.working_bytes(rows)?.checked_add(list_bytes(8 * rows as u64)),
            (false, Part::Take(_)) => flow_bytes(&*self.input),
            // Elements that are passed over are made and dropped.
            (false, _) => super::inlet_bytes(&*self.input),
        }
    }

    fn total(&self) -> Option<Total> {
        let total = self.input.total();
        let of_largest = |elements| Total::of(elements, self.largest()?);
        match self.part {
            Part::Take(n) if total.is_none_or(|total| total.elements > n) => of_largest(n),
            _ => self.cardinality().known().and_then(of_largest).filter(|_| self.spec().bytes().is_some()).or(total),
        }
    }

    fn used(&self, given: u64) -> Option<u64> {
        match self.part {
            Part::Take(_) => Some(given),
            Part::Skip(n) => given.checked_add(n),
            Part::Shard(n, index) => given.checked_mul(n)?.checked_add(index),
        }
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        Ok(Some(Arc::new(SelectLookup { input: expect_lookup(&self.input, open)?, part: self.part })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        Ok(Box::new(SelectStage {
            flow: open_flow(&self.input, open, epoch)?,
            part: self.part,
            given: 0,
            begun: false,
        }))
    }
}

struct SelectLookup {
    input: Arc<dyn Lookup>,
    part: Part,
}

impl Lookup for SelectLookup {
    fn len(&self) -> u64 {
        match (self.input.len(), self.part) {
            (u64::MAX, Part::Skip(_) | Part::Shard(..)) => u64::MAX,
            (n, part) => part.len(n),
        }
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        if let Part::Take(_) = self.part {
            return self.input.gather(epoch, at, out);
        }
        let at = Counted::collect(out.account(), at.len(), at.iter().map(|i| self.part.at(*i)))?;
        self.input.gather(epoch, &at, out)
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

struct SelectStage {
    flow: Flow,
    part: Part,
    given: u64,
    begun: bool,
}

impl SelectStage {
    /// The elements before the first that counts, which have not been passed over.
    fn before(&mut self) -> u64 {
        match self.part {
            Part::Skip(n) | Part::Shard(_, n) if !std::mem::replace(&mut self.begun, true) => n,
            _ => 0,
        }
    }
}

impl Stage for SelectStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let passed = self.before();
        if passed > 0 {
            self.flow.skip(passed)?;
        }
        let before = out.rows();
        let result = match self.part {
            Part::Take(n) => {
                let want = (want as u64).min(n - self.given) as usize;
                if want == 0 {
                    return Ok(false);
                }
                self.flow.fill(out, want)
            }
            Part::Skip(_) => self.flow.fill(out, want),
            Part::Shard(n, _) => {
                let result = self.flow.fill_exact(out, 1);
                let one = out.rows() > before || result.is_err();
                match result {
                    Ok(true) | Err(_) if one => {
                        self.flow.skip(n - 1)?;
                        result
                    }
                    other => other,
                }
            }
        };
        self.given += (out.rows() - before) as u64 + result.is_err() as u64;
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        // In one go, so that the input can be entered near the place.
        let before = self.before();
        let mut pass = |n: u64| Ok::<u64, Error>(self.flow.skip(n.saturating_add(before))?.saturating_sub(before));
        let skipped = match self.part {
            Part::Take(most) => pass(n.min(most - self.given))?,
            Part::Skip(_) => pass(n)?,
            Part::Shard(shares, _) => pass(n.saturating_mul(shares))?.div_ceil(shares),
        };
        self.given += skipped;
        Ok(Some(skipped))
    }
}

struct Repeat {
    input: Arc<dyn Node>,
    times: Option<u64>,
}

impl Node for Repeat {
    fn describe(&self) -> String {
        self.times.map_or("repeat for ever".into(), |times| format!("repeat {times} times"))
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> Cardinality {
        match (self.input.cardinality(), self.times) {
            (Cardinality::Known(0), _) | (_, Some(0)) => Cardinality::Known(0),
            (Cardinality::Known(n), Some(times)) => {
                n.checked_mul(times).map_or(Cardinality::Infinite, Cardinality::Known)
            }
            (Cardinality::Unknown, Some(_)) => Cardinality::Unknown,
            _ => Cardinality::Infinite,
        }
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup()
    }

    fn counted(&self) -> Option<u64> {
        self.input.counted()?.checked_mul(self.times?)
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        match self.is_lookup() {
            true => self.input.working_bytes(rows)?.checked_add(list_bytes(8 * rows as u64)),
            false => flow_bytes(&*self.input),
        }
    }

    fn total(&self) -> Option<Total> {
        let Total { elements, bytes } = self.input.total()?;
        Some(Total { elements: elements.checked_mul(self.times?)?, bytes: bytes.checked_mul(self.times?)? })
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let input = expect_lookup(&self.input, open)?;
        let len = match (input.len(), self.times) {
            (0, _) | (_, Some(0)) => 0,
            (n, Some(times)) => n.saturating_mul(times),
            (_, None) => u64::MAX,
        };
        Ok(Some(Arc::new(RepeatLookup { input, times: self.times, len })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let (input, open, times) = (self.input.clone(), open.clone(), self.times);
        let mut rounds = 0..times.unwrap_or(u64::MAX);
        Ok(Box::new(InTurn::new(move |any| {
            // Rounds of nothing would never end.
            let round = rounds.next().filter(|round| *round == 0 || any)?;
            Some(open_flow(&input, &open, round_epoch(epoch, round, times)))
        })))
    }
}

/// The epoch of a round inside an epoch: every round of every epoch has its own, as long as rounds are known to end.
fn round_epoch(epoch: u64, round: u64, times: Option<u64>) -> u64 {
    epoch.wrapping_mul(times.unwrap_or(1 << 32)).wrapping_add(round)
}

struct RepeatLookup {
    input: Arc<dyn Lookup>,
    times: Option<u64>,
    len: u64,
}

impl Lookup for RepeatLookup {
    fn len(&self) -> u64 {
        self.len
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let n = self.input.len();
        for run in at.chunk_by(|a, b| a / n == b / n) {
            let round = run[0] / n;
            let run = Counted::collect(out.account(), run.len(), run.iter().map(|i| i % n))?;
            self.input.gather(round_epoch(epoch, round, self.times), &run, out)?;
        }
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

struct Enumerate {
    input: Arc<dyn Node>,
    spec: Arc<Spec>,
    start: i64,
}

impl Node for Enumerate {
    fn describe(&self) -> String {
        format!("enumerate from {}", self.start)
    }

    fn largest(&self) -> Option<u64> {
        self.input.largest()?.checked_add(8)
    }

    fn counted(&self) -> Option<u64> {
        self.input.counted()
    }

    fn total(&self) -> Option<Total> {
        let total = self.input.total()?;
        total.with(Total { elements: 0, bytes: total.elements.checked_mul(8)? })
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        self.input.cardinality()
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup()
    }

    fn used(&self, given: u64) -> Option<u64> {
        Some(given)
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        Ok(Some(Arc::new(EnumerateLookup { input: expect_lookup(&self.input, open)?, start: self.start })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        Ok(Box::new(EnumerateStage { flow: open_flow(&self.input, open, epoch)?, next: self.start }))
    }
}

/// Appends what `fill` appends to all columns but the first, and numbers to the first.
fn numbered(
    out: &mut Builder<'_>,
    fill: impl FnOnce(&mut Builder<'_>) -> Result<bool, Error>,
    mut number: impl FnMut(usize) -> i64,
) -> Result<bool, Error> {
    let before = out.rows();
    let mut rest = out.split_off(1);
    let result = fill(&mut rest);
    rest.rollback();
    let n = rest.rows() - before;
    let added = out.columns[0].add(&Shape::scalar(), n).map(|bytes| {
        (0..n).zip(bytes.chunks_exact_mut(8)).for_each(|(i, to)| to.copy_from_slice(&number(i).to_ne_bytes()));
    });
    if added.is_ok() {
        out.commit_rows(n);
    }
    out.join(rest);
    added.and(result)
}

struct EnumerateLookup {
    input: Arc<dyn Lookup>,
    start: i64,
}

impl Lookup for EnumerateLookup {
    fn len(&self) -> u64 {
        self.input.len()
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let number = |i: usize| self.start.wrapping_add(at[i] as i64);
        numbered(out, |rest| self.input.gather(epoch, at, rest).map(|()| true), number).map(drop)
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

struct EnumerateStage {
    flow: Flow,
    next: i64,
}

impl Stage for EnumerateStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let (first, before) = (self.next, out.rows());
        let result = numbered(out, |rest| self.flow.fill(rest, want), |i| first.wrapping_add(i as i64));
        self.next = first.wrapping_add((out.rows() - before) as i64 + result.is_err() as i64);
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        let skipped = self.flow.skip(n)?;
        self.next = self.next.wrapping_add(skipped as i64);
        Ok(Some(skipped))
    }
}
