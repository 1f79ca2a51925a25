//! `unbatch`, `rebatch`: one element becomes several along its first axis.

use super::Inlet;
use crate::builder::Builder;
use crate::column::Chunk;
use crate::dataset::{Node, Total, expect_lookup, open_flow};
use crate::flow::{Lookup, Open, Stage, pass_over};
use crate::least::held_bytes;
use crate::trail::{Key, Trail};
use crate::{Cardinality, Dataset, Error, Place, Spec};
use std::ops::Range;
use std::sync::Arc;

impl Dataset {
    /// The rows of every element as elements: the reverse of [`Dataset::batch`].
    pub fn unbatch(&self) -> Dataset {
        self.then(|input| {
            let mut components = Vec::new();
            let mut size = None;
            for c in input.spec().components() {
                let Some((first, rest)) = c.without_axis() else {
                    return Err(Error::pipeline("unbatch", format!("component {c} has no axis to take apart")));
                };
                if let (Some(a), Some(b)) = (size, first)
                    && a != b
                {
                    let message = format!("component {c} has {b} rows, but another has {a}");
                    return Err(Error::pipeline("unbatch", message));
                }
                size = size.or(first);
                components.push(rest);
            }
            let spec = Arc::new(Spec::new(components)?);
            Ok(Unbatch { input, spec, size: size.map(|n| n as u64) })
        })
    }

    /// Batches of another size: the rows stay in order.
    pub fn rebatch(&self, size: usize, drop_remainder: bool) -> Dataset {
        match drop_remainder {
            true => self.unbatch().batch_exact(size),
            false => self.unbatch().batch(size),
        }
    }
}

struct Unbatch {
    input: Arc<dyn Node>,
    spec: Arc<Spec>,
    /// The rows of every element, where they are always as many.
    size: Option<u64>,
}

impl Node for Unbatch {
    fn describe(&self) -> String {
        "unbatch".into()
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        match (self.input.cardinality(), self.size) {
            (Cardinality::Known(n), Some(size)) => n.checked_mul(size).map_or(Cardinality::Unknown, Cardinality::Known),
            (Cardinality::Infinite, Some(1..)) => Cardinality::Infinite,
            _ => Cardinality::Unknown,
        }
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup() && matches!(self.size, Some(1..)) && self.cardinality() != Cardinality::Unknown
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let Some(size) = self.size else { return Ok(None) };
        let input = expect_lookup(&self.input, open)?;
        Ok(Some(Arc::new(UnbatchLookup { input, spec: self.input.spec().clone(), size })))
    }

    fn total(&self) -> Option<Total> {
        let (total, rows) = (self.input.total()?, self.input.batch_sizes()?.most as u64);
        Some(Total { elements: total.elements.checked_mul(rows)?, ..total })
    }

    fn working_bytes(&self, _rows: usize) -> Option<u64> {
        match self.is_lookup() {
            true => self.input.working_bytes(1)?.checked_add(held_bytes(&*self.input, 1)?),
            false => super::inlet_bytes(&*self.input),
        }
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let (input, trail) = (Inlet::new(open_flow(&self.input, open, epoch)?), open.trails.of(Key::of(self)));
        Ok(Box::new(UnbatchStage { input, spec: self.spec.clone(), size: self.size, used: 0, lost: None, trail }))
    }

    fn trail(&self) -> Option<Key> {
        Some(Key::of(self))
    }
}

/// Appends rows `rows` of element `element`.
fn append_rows(chunk: &Chunk, element: usize, rows: Range<usize>, out: &mut Builder<'_>) -> Result<(), Error> {
    for (to, from) in out.columns.iter_mut().zip(&chunk.columns) {
        to.append_part(from, element, rows.clone())?;
    }
    out.commit_rows(rows.len());
    Ok(())
}

struct UnbatchLookup {
    input: Arc<dyn Lookup>,
    spec: Arc<Spec>,
    size: u64,
}

impl Lookup for UnbatchLookup {
    fn len(&self) -> u64 {
        self.input.len().saturating_mul(self.size)
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let mut rest = at;
        while let Some(first) = rest.first() {
            // Rows of one element that follow one another are taken together.
            let element = first / self.size;
            let run = (0..rest.len()).find(|i| rest[*i] != first + *i as u64 || rest[*i] / self.size != element);
            let run = run.unwrap_or(rest.len());
            let mut input = Builder::new(out.account(), &self.spec)?;
            self.input.gather(epoch, &[element], &mut input)?;
            let row = (first % self.size) as usize;
            append_rows(&input.finish(), 0, row..row + run, out)?;
            rest = &rest[run..];
        }
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

struct UnbatchStage {
    input: Inlet,
    spec: Arc<Spec>,
    size: Option<u64>,
    /// How many rows of the element at hand have been given.
    used: usize,
    /// The rows of a bad element that are still to come, as errors: as many as a good one has.
    lost: Option<(u64, Error)>,
    trail: Trail,
}

impl UnbatchStage {
    fn take_apart(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        if let Some((rows, error)) = self.lost.take() {
            self.lost = (rows > 1).then(|| (rows - 1, error.clone()));
            return Err(error);
        }
        let spec = self.input.flow().spec.clone();
        // A few elements are many rows.
        let want_elements = self.size.map_or(1, |size| want.div_ceil(size.max(1) as usize));
        let (chunk, rows) = match self.input.peek(want_elements) {
            Ok(Some(at_hand)) => at_hand,
            Ok(None) => return Ok(false),
            Err(error) => {
                self.lost = self.size.filter(|size| *size > 1 && error.is_data()).map(|size| (size - 1, error.clone()));
                return Err(error);
            }
        };
        let (chunk, element) = (chunk.clone(), rows.start);
        let number = self.input.first() + element as u64;
        let mut size = None;
        for (component, column) in spec.components().iter().zip(&chunk.columns) {
            let found = column.shape(element).dims().first().copied();
            if found.is_none() || size.is_some_and(|size| Some(size) != found) {
                self.input.advance(1);
                self.used = 0;
                let message = format!(
                    "component '{}' has shape {}, but {} rows were expected",
                    component.name,
                    column.shape(element),
                    size.map_or("some".into(), |n: usize| n.to_string())
                );
                return Err(Error::data(Place::Element("unbatch", number), message));
            }
            size = found;
        }
        let size = size.unwrap_or(0);
        let n = want.min(size - self.used);
        append_rows(&chunk, element, self.used..self.used + n, out)?;
        self.used += n;
        if self.used == size {
            self.used = 0;
            self.input.advance(1);
        }
        Ok(true)
    }
}

impl Stage for UnbatchStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let before = out.rows();
        let result = self.take_apart(out, want);
        self.trail.give(out.rows() - before, &result);
        if self.used == 0 && self.lost.is_none() {
            self.trail.note(self.input.used());
        }
        result
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.input.used() > 0 || self.used > 0 {
            return Ok(None);
        }
        let start = self.trail.enter(n, |used| self.input.skip(used))?;
        let flow = self.input.flow();
        let (account, spec, most) = (flow.open.account.clone(), self.spec.clone(), flow.at_a_time());
        pass_over(start.given..n, most, &account, &spec, |out, want| self.fill(out, want)).map(Some)
    }
}
