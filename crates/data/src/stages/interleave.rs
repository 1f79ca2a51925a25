//! `flat_map`, `interleave`: every element becomes a data set, and their elements come one after another or by turns.

use super::Inlet;
use crate::ahead::{Ahead, Lead};
use crate::builder::Builder;
use crate::column::{Chunk, Row};
use crate::dataset::{Node, Total, open_flow};
use crate::flow::{Flow, Open, Stage, pass_over};
use crate::least::{fixed_bytes, flow_bytes, held_bytes, least_bytes};
use crate::trail::{Key, Trail};
use crate::{Calls, Cardinality, Component, Dataset, Error, Spec};
use plimsoll_budget::{Budget, Bytes};
use std::sync::{Arc, OnceLock};

type Function = dyn Fn(&Row<'_>) -> Result<Dataset, Error> + Send + Sync;

impl Dataset {
    /// The elements of the data set that `function` makes of each element, one data set after another.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Component, Dataset};
    /// use plimsoll_tensor::DType;
    /// let data = Dataset::range(1, 4, 1).flat_map([Component::new("value", DType::I64, &[])], |row| {
    ///     Ok(Dataset::range(0, row.get::<i64>("value")?[0], 1))
    /// });
    /// let values: Vec<i64> = data.iter(&Budget::unlimited())?.map(|e| e.unwrap().get("value").unwrap()[0]).collect();
    /// assert_eq!(values, [0, 0, 1, 0, 1, 2]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn flat_map<F>(&self, components: impl IntoIterator<Item = Component>, function: F) -> Dataset
    where
        F: Fn(&Row<'_>) -> Result<Dataset, Error> + Send + Sync + 'static,
    {
        self.interleaved("flat map", components, 1, 1, None, Arc::new(function))
    }

    /// The elements of the data sets that `function` makes of each element, `cycle` data sets at a time, by turns of `block`
    /// elements; with `parallel`, each of them is read ahead by a thread of its own. The order is the same either way.
    pub fn interleave<F>(
        &self,
        components: impl IntoIterator<Item = Component>,
        cycle: usize,
        block: usize,
        parallel: bool,
        function: F,
    ) -> Dataset
    where
        F: Fn(&Row<'_>) -> Result<Dataset, Error> + Send + Sync + 'static,
    {
        let lead = parallel.then_some(Lead { calls: Calls::Fixed(1), elements: None, ordered: true });
        self.interleaved("interleave", components, cycle, block, lead, Arc::new(function))
    }

    fn interleaved(
        &self,
        what: &'static str,
        components: impl IntoIterator<Item = Component>,
        cycle: usize,
        block: usize,
        lead: Option<Lead>,
        function: Arc<Function>,
    ) -> Dataset {
        let spec = Spec::new(components);
        self.then(|input| {
            if cycle == 0 || block == 0 {
                return Err(Error::pipeline(what, "cycle and block must be at least 1"));
            }
            Ok(Interleave { input, spec: Arc::new(spec?), what, cycle, block, lead, function, parts: OnceLock::new() })
        })
    }
}

struct Interleave {
    input: Arc<dyn Node>,
    spec: Arc<Spec>,
    what: &'static str,
    cycle: usize,
    block: usize,
    lead: Option<Lead>,
    function: Arc<Function>,
    /// What elements become, once it has been asked for.
    parts: OnceLock<Option<Parts>>,
}

impl Node for Interleave {
    fn describe(&self) -> String {
        format!("{} {} by {} -> {}", self.what, self.cycle, self.block, self.spec)
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        Cardinality::Unknown
    }

    fn is_lookup(&self) -> bool {
        false
    }

    fn working_bytes(&self, _rows: usize) -> Option<u64> {
        let Parts { parts, times } = self.parts()?;
        let ahead = if self.lead.is_some() { held_bytes(self, 1)? } else { 0 };
        let mut working: Vec<u64> = parts.iter().map(|part| flow_bytes(&**part)).collect::<Option<_>>()?;
        working.sort_unstable();
        let most = match times {
            // Those that take most may meet.
            1 => working.iter().rev().take(self.cycle).map(|bytes| bytes.checked_add(ahead)).sum::<Option<u64>>()?,
            _ => working.last()?.checked_mul(*times)?.checked_add(ahead)?.checked_mul(self.cycle as u64)?,
        };
        super::inlet_bytes(&*self.input)?.checked_add(most)
    }

    fn largest(&self) -> Option<u64> {
        let of_parts = || {
            let Parts { parts, times } = self.parts()?;
            let largest = parts.iter().map(|part| part.largest()).try_fold(0, |a, b| Some(b?.max(a)))?;
            largest.checked_mul(*times)
        };
        fixed_bytes(&self.spec).or_else(of_parts)
    }

    fn kept_bytes(&self) -> Option<u64> {
        let Parts { parts, times } = self.parts()?;
        let kept = parts.iter().map(|part| part.kept_bytes()).sum::<Option<u64>>()?;
        self.input.kept_bytes()?.checked_add(kept).filter(|_| kept == 0 || *times == 1)
    }

    fn total(&self) -> Option<Total> {
        let Parts { parts, .. } = self.parts().filter(|parts| parts.times == 1)?;
        parts.iter().map(|part| part.total()).try_fold(Total::default(), |sum, total| sum.with(total?))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        Ok(Box::new(InterleaveStage {
            input: Inlet::new(open_flow(&self.input, open, epoch)?),
            // Most of the data sets are met here for the first time, where not all have been looked at.
            open: if self.has_seen_all() { open.clone() } else { open.weighing() },
            spec: self.spec.clone(),
            what: self.what,
            cycle: self.cycle,
            block: self.block,
            lead: self.lead,
            function: self.function.clone(),
            epoch,
            flows: Vec::new(),
            turn: 0,
            given: 0,
            exhausted: false,
            trail: open.trails.of(Key::of(self)),
        }))
    }

    fn trail(&self) -> Option<Key> {
        // One data set at a time begins where the one before ended; several are not at one place.
        (self.cycle == 1).then(|| Key::of(self))
    }
}

/// How many data sets are looked at to find out what they take, evenly spread, and among how many elements.
const LOOK_AT: u64 = 16;
const AMONG: u64 = 1 << 16;

/// What elements become, and what the figures of these have to be taken by: where not all have been looked at, there is room for
/// some that take twice as much.
struct Parts {
    parts: Vec<Arc<dyn Node>>,
    times: u64,
}

impl Interleave {
    /// The data sets that elements become in the first epoch.
    fn parts(&self) -> Option<&Parts> {
        self.parts.get_or_init(|| self.look()).as_ref()
    }

    fn has_seen_all(&self) -> bool {
        matches!(self.parts.get(), Some(Some(Parts { times: 1, .. })))
    }

    fn look(&self) -> Option<Parts> {
        let n = self.input.total()?.elements;
        let least = (n <= AMONG).then(|| least_bytes(&*self.input))??;
        let open = Open::beyond(Budget::new(Bytes(least)).account(self.what), 1, Some(least));
        let mut input = Inlet::new(open_flow(&self.input, &open, 0).ok()?);
        let (mut parts, spec, step) = (Vec::new(), self.input.spec(), n.div_ceil(LOOK_AT).max(1));
        let mut index = 0;
        while let Some((chunk, rows)) = input.peek(1).ok()? {
            if index % step == 0 {
                let view = Row { spec, chunk, row: rows.start, index, epoch: 0 };
                parts.push((self.function)(&view).ok()?.node().ok()?);
            }
            index += 1;
            input.advance(1);
        }
        Some(Parts { parts, times: if step == 1 { 1 } else { 2 } })
    }
}

struct InterleaveStage {
    input: Inlet,
    open: Open,
    spec: Arc<Spec>,
    what: &'static str,
    cycle: usize,
    block: usize,
    lead: Option<Lead>,
    function: Arc<Function>,
    epoch: u64,
    /// The data sets under way; an empty place is filled when its turn comes.
    flows: Vec<Option<Flow>>,
    turn: usize,
    /// How many elements the one whose turn it is has given in this turn.
    given: usize,
    exhausted: bool,
    trail: Trail,
}

impl InterleaveStage {
    fn open(&self, chunk: &Chunk, row: usize, index: u64) -> Result<Flow, Error> {
        let view = Row { spec: &self.input.flow().spec, chunk, row, index, epoch: self.epoch };
        let node = (self.function)(&view).map_err(|e| e.for_element(self.what, index))?.node()?;
        let fits = super::combine::common(&self.spec, node.spec()).is_some_and(|spec| spec == *self.spec);
        if !fits {
            let message = format!("elements {} were declared, but element {index} becomes {}", self.spec, node.spec());
            return Err(Error::pipeline(self.what, message));
        }
        let flow = open_flow(&node, &self.open, self.epoch)?;
        let size = flow.size;
        Ok(match self.lead {
            None => flow,
            Some(lead) => {
                let ahead = Ahead::of_flow(flow, self.spec.clone(), size, None, self.epoch, lead, &self.open);
                Flow::new(Box::new(ahead), self.spec.clone(), &self.open, "interleaved").of_size(size)
            }
        })
    }

    /// Makes a data set of the next element; false when there is none.
    fn open_next(&mut self) -> Result<bool, Error> {
        let Some((chunk, rows)) = self.input.peek(self.cycle)? else {
            self.exhausted = true;
            return Ok(false);
        };
        let (chunk, row) = (chunk.clone(), rows.start);
        let index = self.input.first() + row as u64;
        self.input.advance(1);
        let flow = self.open(&chunk, row, index)?;
        match self.flows.get_mut(self.turn) {
            Some(place) => *place = Some(flow),
            None => self.flows.push(Some(flow)),
        }
        Ok(true)
    }

    /// Passes the turn on. All places are filled before the first one has its second turn.
    fn pass_on(&mut self) {
        self.given = 0;
        self.turn = (self.turn + 1) % self.cycle;
    }
}

impl Stage for InterleaveStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let before = out.rows();
        let result = self.take_turns(out, want);
        self.trail.give(out.rows() - before, &result);
        if self.flows.iter().all(Option::is_none) {
            self.trail.note(self.input.used());
        }
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.cycle > 1 || self.input.used() > 0 {
            return Ok(None);
        }
        let start = self.trail.enter(n, |used| self.input.skip(used))?;
        let (account, spec) = (self.open.account.clone(), self.spec.clone());
        pass_over(start.given..n, 1, &account, &spec, |out, want| self.fill(out, want)).map(Some)
    }
}

impl InterleaveStage {
    fn take_turns(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let goal = out.rows() + want;
        let mut idle = 0;
        while out.rows() < goal {
            if idle > self.cycle {
                return Ok(false);
            }
            let vacant = self.flows.get(self.turn).is_none_or(Option::is_none);
            if vacant && (self.exhausted || !self.open_next()?) {
                // Nothing for this place any more.
                idle += 1;
                self.pass_on();
                continue;
            }
            let Some(flow) = self.flows.get_mut(self.turn).and_then(Option::as_mut) else { continue };
            idle = 0;
            let before = out.rows();
            let result = flow.fill(out, (self.block - self.given).min(goal - before));
            self.given += out.rows() - before + result.is_err() as usize;
            let ended = matches!(result, Ok(false));
            if ended {
                self.flows[self.turn] = None;
                self.pass_on();
                if self.cycle == 1 {
                    // A place to enter at.
                    return Ok(true);
                }
            } else if self.given >= self.block {
                self.pass_on();
            }
            result?;
        }
        Ok(true)
    }
}
