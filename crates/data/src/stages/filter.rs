//! `filter`: only the elements that a function likes.

use super::Inlet;
use crate::builder::Builder;
use crate::column::Row;
use crate::dataset::{Node, open_flow};
use crate::flow::{Open, Stage, pass_over};
use crate::trail::{Key, Trail};
use crate::{Cardinality, Dataset, Error, Spec};
use std::sync::Arc;

type Predicate = dyn Fn(&Row<'_>) -> Result<bool, Error> + Send + Sync;

impl Dataset {
    /// Only the elements for which `keep` says true.
    ///
    /// What comes behind can no longer be found by number: shuffle before filtering, or cache behind it.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let odd = Dataset::range(0, 10, 1).filter(|row| Ok(row.get::<i64>("value")?[0] % 2 == 1));
    /// assert_eq!(odd.iter(&Budget::unlimited())?.count(), 5);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn filter(&self, keep: impl Fn(&Row<'_>) -> Result<bool, Error> + Send + Sync + 'static) -> Dataset {
        self.then(|input| Ok(Filter { input, keep: Arc::new(keep) }))
    }
}

struct Filter {
    input: Arc<dyn Node>,
    keep: Arc<Predicate>,
}

impl Node for Filter {
    fn describe(&self) -> String {
        "filter".into()
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> Cardinality {
        match self.input.cardinality() {
            Cardinality::Known(0) => Cardinality::Known(0),
            _ => Cardinality::Unknown,
        }
    }

    fn is_lookup(&self) -> bool {
        false
    }

    fn working_bytes(&self, _rows: usize) -> Option<u64> {
        super::inlet_bytes(&*self.input)
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let input = Inlet::new(open_flow(&self.input, open, epoch)?);
        let trail = open.trails.of(Key::of(self));
        Ok(Box::new(FilterStage { input, keep: self.keep.clone(), epoch, trail }))
    }

    fn trail(&self) -> Option<Key> {
        Some(Key::of(self))
    }
}

struct FilterStage {
    input: Inlet,
    keep: Arc<Predicate>,
    epoch: u64,
    trail: Trail,
}

impl FilterStage {
    fn pick(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let spec = self.input.flow().spec.clone();
        let Some((chunk, rows)) = self.input.peek(want)? else { return Ok(false) };
        let (chunk, goal) = (chunk.clone(), out.rows() + want);
        let first = self.input.first();
        // Rows in a row go together.
        let mut run = rows.start..rows.start;
        for row in rows {
            if out.rows() + run.len() == goal {
                break;
            }
            let view = Row { spec: &spec, chunk: &chunk, row, index: first + row as u64, epoch: self.epoch };
            let kept = (self.keep)(&view);
            self.input.advance(1);
            match kept {
                Ok(true) => run.end = row + 1,
                other => {
                    out.append(&chunk, std::mem::replace(&mut run, row + 1..row + 1))?;
                    other.map_err(|error| error.for_element("filter", first + row as u64))?;
                }
            }
        }
        out.append(&chunk, run)?;
        Ok(true)
    }
}

impl Stage for FilterStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let before = out.rows();
        let result = self.pick(out, want);
        self.trail.give(out.rows() - before, &result);
        self.trail.note(self.input.used());
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.input.used() > 0 {
            return Ok(None);
        }
        let start = self.trail.enter(n, |used| self.input.skip(used))?;
        let flow = self.input.flow();
        let (account, spec, most) = (flow.open.account.clone(), flow.spec.clone(), flow.at_a_time());
        pass_over(start.given..n, most, &account, &spec, |out, want| self.fill(out, want)).map(Some)
    }
}
