//! `prefetch`, `parallel`: elements made ahead of their use, by several threads.

use super::Transform;
use crate::ahead::{Ahead, Lead};
use crate::dataset::{Node, open_flow};
use crate::flow::{Lookup, Open, Stage};
use crate::least::{flow_bytes, held_bytes};
use crate::{BatchSizes, Calls, Cardinality, Dataset, Error, Spec};
use std::sync::Arc;

impl Dataset {
    /// Keeps elements ready ahead of their use, made by other threads: so many (`Calls::Fixed`), or as many as measuring finds
    /// useful and the budget allows ([`AUTOTUNE`](crate::AUTOTUNE)).
    ///
    /// Where elements can be found by number, everything before this stage runs on several threads.
    pub fn prefetch(&self, elements: Calls) -> Dataset {
        let elements = match elements {
            Calls::Fixed(n) => Some(n.max(1)),
            Calls::Auto => None,
        };
        self.then(|input| Ok(Prefetch { input, lead: Lead { calls: Calls::Auto, elements, ordered: true }, map: None }))
    }

    /// Runs the function of the `map` before it in several threads at the same time, with the elements kept in order.
    pub fn parallel(&self, calls: Calls) -> Dataset {
        self.parallel_map(calls, true)
    }

    /// As [`Dataset::parallel`], with elements handed on in whatever order they are finished: sometimes faster, never the same.
    ///
    /// The order then depends on the threads, so a position saved behind this stage is not exact.
    pub fn parallel_unordered(&self, calls: Calls) -> Dataset {
        self.parallel_map(calls, false)
    }

    fn parallel_map(&self, calls: Calls, ordered: bool) -> Dataset {
        self.then(|input| {
            let Some(transform) = input.transform() else {
                let message = format!("follows a map; here it follows '{}'", input.describe());
                return Err(Error::pipeline("parallel", message));
            };
            Ok(Prefetch { input, lead: Lead { calls, elements: None, ordered }, map: Some(transform) })
        })
    }
}

struct Prefetch {
    input: Arc<dyn Node>,
    lead: Lead,
    /// For `parallel`: the function of the map that is the input.
    map: Option<Arc<dyn Transform>>,
}

impl Node for Prefetch {
    fn describe(&self) -> String {
        // How far ahead and by how many threads says nothing about the elements, so it is left out: positions stay valid.
        match (&self.map, self.lead.ordered) {
            (None, _) => "prefetch".into(),
            (Some(_), true) => "parallel".into(),
            (Some(_), false) => "parallel, unordered".into(),
        }
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
        if self.is_lookup() {
            // Elements are made as if this were not here.
            return self.input.working_bytes(rows);
        }
        let made = held_bytes(&*self.input, 1)?;
        match &self.map {
            None => flow_bytes(&*self.input)?.checked_add(made),
            // What the map takes, and what it makes.
            Some(_) => self.input.working_bytes(1)?.checked_add(made),
        }
    }

    fn batch_sizes(&self) -> Option<BatchSizes> {
        self.input.batch_sizes()
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        self.input.lookup(open)
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let spec = self.spec().clone();
        let size = open.size(self);
        Ok(Box::new(match &self.map {
            None => Ahead::of_flow(open_flow(&self.input, open, epoch)?, spec, size, None, epoch, self.lead, open),
            Some(transform) => {
                // The threads apply the map, so its input is what they are fed with.
                let before = self.input.inputs()[0].clone();
                let flow = open_flow(&before, open, epoch)?;
                Ahead::of_flow(flow, spec, size, Some(transform.clone()), epoch, self.lead, open)
            }
        }))
    }

    fn used(&self, given: u64) -> Option<u64> {
        self.lead.ordered.then_some(given)
    }

    fn lead(&self) -> Option<Lead> {
        Some(self.input.lead().map_or(self.lead, |lead| lead.with(self.lead)))
    }
}
