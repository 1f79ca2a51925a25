//! `ignore_errors`: bad elements left out and counted.

use crate::builder::Builder;
use crate::dataset::{Node, open_flow};
use crate::flow::{Flow, Open, Stage, pass_over};
use crate::trail::{Key, Trail};
use crate::{Cardinality, Dataset, Error, Spec};
use std::sync::Arc;

impl Dataset {
    /// Leaves out elements whose data is bad: what cannot be decoded, has another shape, or is refused by a map function.
    ///
    /// [`Report::errors_ignored`](crate::Report) counts them. Other errors, such as a missing file or too little memory, stay errors.
    pub fn ignore_errors(&self) -> Dataset {
        self.then(|input| Ok(IgnoreErrors { input }))
    }
}

struct IgnoreErrors {
    input: Arc<dyn Node>,
}

impl Node for IgnoreErrors {
    fn describe(&self) -> String {
        "ignore errors".into()
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> Cardinality {
        match self.input.cardinality() {
            Cardinality::Infinite => Cardinality::Infinite,
            _ => Cardinality::Unknown,
        }
    }

    fn is_lookup(&self) -> bool {
        false
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let (flow, trail) = (open_flow(&self.input, open, epoch)?, open.trails.of(Key::of(self)));
        Ok(Box::new(IgnoreStage { flow, open: open.clone(), used: 0, trail }))
    }

    fn trail(&self) -> Option<Key> {
        Some(Key::of(self))
    }
}

struct IgnoreStage {
    flow: Flow,
    open: Open,
    used: u64,
    trail: Trail,
}

impl Stage for IgnoreStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let before = out.rows();
        let mut result = self.flow.fill(out, want);
        let made = out.rows() - before;
        self.used += made as u64 + result.is_err() as u64;
        if let Err(error) = &result
            && error.is_data()
        {
            self.open.profile.ignored_error();
            result = Ok(true);
        }
        self.trail.give(made, &result);
        self.trail.note(self.used);
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.used > 0 {
            return Ok(None);
        }
        let start = self.trail.enter(n, |used| self.flow.skip(used).map(Some))?;
        self.used = start.used;
        let (account, spec, most) = (self.open.account.clone(), self.flow.spec.clone(), self.flow.at_a_time());
        pass_over(start.given..n, most, &account, &spec, |out, want| self.fill(out, want)).map(Some)
    }
}
