//! `ignore_errors`: bad elements left out and counted.

use crate::builder::Builder;
use crate::dataset::{Node, open_flow};
use crate::flow::{Flow, Open, Stage};
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
        Ok(Box::new(IgnoreStage { flow: open_flow(&self.input, open, epoch)?, open: open.clone() }))
    }
}

struct IgnoreStage {
    flow: Flow,
    open: Open,
}

impl Stage for IgnoreStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        match self.flow.fill(out, want) {
            Err(error) if error.is_data() => {
                self.open.profile.ignored_error();
                Ok(true)
            }
            other => other,
        }
    }
}
