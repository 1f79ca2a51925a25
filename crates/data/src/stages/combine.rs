//! `zip`, `concatenate`: elements of several data sets, side by side or one after another.

use super::Inlet;
use crate::builder::Builder;
use crate::dataset::{Node, Total, expect_lookup, open_flow};
use crate::flow::{InTurn, Lookup, Open, Stage};
use crate::least::{flow_bytes, list_bytes};
use crate::memory::Counted;
use crate::{Cardinality, Component, Dataset, Error, Spec};
use std::sync::Arc;

impl Dataset {
    /// The elements of several data sets side by side, as tuples: their components get the place in front, `0/x`, `1/y`. It ends
    /// with the shortest.
    ///
    /// ```
    /// use plimsoll_data::Dataset;
    /// let both = Dataset::zip(&[Dataset::range(0, 3, 1), Dataset::range(5, 9, 1)]);
    /// assert_eq!(both.spec()?.to_string(), "{0/value: i64[], 1/value: i64[]}");
    /// assert_eq!(both.cardinality()?.known(), Some(3));
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn zip(parts: &[Dataset]) -> Dataset {
        let names: Vec<String> = (0..parts.len()).map(|i| i.to_string()).collect();
        Dataset::zip_named(&names.iter().map(String::as_str).zip(parts).collect::<Vec<_>>())
    }

    /// The elements of several data sets side by side, as maps: their components get the name in front.
    pub fn zip_named(parts: &[(&str, &Dataset)]) -> Dataset {
        Dataset::from_result((|| {
            let mut inputs = Vec::new();
            let mut components = Vec::new();
            for (name, part) in parts {
                let input = part.node()?;
                components.extend(input.spec().nested(name));
                inputs.push(input);
            }
            if inputs.is_empty() {
                return Err(Error::pipeline("zip", "there is nothing to zip"));
            }
            let spec = Arc::new(Spec::new(components)?);
            Ok(Dataset::new(Zip { inputs, spec }))
        })())
    }

    /// The elements of this data set, then those of another with the same components.
    pub fn concatenate(&self, other: &Dataset) -> Dataset {
        Dataset::concatenate_all(&[self.clone(), other.clone()])
    }

    /// The elements of several data sets one after another.
    pub fn concatenate_all(parts: &[Dataset]) -> Dataset {
        Dataset::from_result((|| {
            let inputs = parts.iter().map(Dataset::node).collect::<Result<Vec<_>, _>>()?;
            let Some(first) = inputs.first() else {
                return Err(Error::pipeline("concatenate", "there is nothing to concatenate"));
            };
            let mut spec = (**first.spec()).clone();
            for (i, input) in inputs.iter().enumerate() {
                spec = common(&spec, input.spec()).ok_or_else(|| {
                    let message = format!("part {i} has elements {}, but those before it {spec}", input.spec());
                    Error::pipeline("concatenate", message)
                })?;
            }
            Ok(Dataset::new(Concatenate { inputs, spec: Arc::new(spec) }))
        })())
    }
}

/// What admits the elements of both.
pub(crate) fn common(a: &Spec, b: &Spec) -> Option<Spec> {
    if a.components().len() != b.components().len() {
        return None;
    }
    let mut components = Vec::new();
    for (a, b) in a.components().iter().zip(b.components()) {
        if a.name != b.name || a.kind != b.kind {
            return None;
        }
        let dims = match (&a.dims, &b.dims) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                Some(a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect())
            }
            _ => None,
        };
        components.push(Component { dims, ..a.clone() });
    }
    Spec::new(components).ok()
}

struct Zip {
    inputs: Vec<Arc<dyn Node>>,
    spec: Arc<Spec>,
}

impl Node for Zip {
    fn describe(&self) -> String {
        format!("zip of {}", self.inputs.len())
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        self.inputs.iter().collect()
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        self.inputs.iter().map(|input| input.cardinality()).fold(Cardinality::Infinite, Cardinality::min)
    }

    fn is_lookup(&self) -> bool {
        self.inputs.iter().all(|input| input.is_lookup())
    }

    fn largest(&self) -> Option<u64> {
        self.inputs.iter().map(|input| input.largest()).sum()
    }

    fn counted(&self) -> Option<u64> {
        let count = |input: &Arc<dyn Node>| match input.cardinality() {
            Cardinality::Infinite => Some(u64::MAX),
            _ => input.counted(),
        };
        let least = self.inputs.iter().map(count).try_fold(u64::MAX, |least, n| Some(n?.min(least)));
        least.filter(|n| *n < u64::MAX)
    }

    fn total(&self) -> Option<Total> {
        let elements = self.inputs.iter().filter_map(|input| Some(input.total()?.elements)).min()?;
        Total::of(elements, self.largest()?)
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        match self.is_lookup() {
            true => self.inputs.iter().map(|input| input.working_bytes(rows)).try_fold(0, |a, b| Some(b?.max(a))),
            false => self.inputs.iter().map(|input| super::inlet_bytes(&**input)).sum(),
        }
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let inputs: Vec<_> =
            self.inputs.iter().map(|input| expect_lookup(input, open)).collect::<Result<_, Error>>()?;
        let widths = self.inputs.iter().map(|input| input.spec().components().len()).collect();
        Ok(Some(Arc::new(ZipLookup { inputs, widths })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let open = |input| Ok(Inlet::new(open_flow(input, open, epoch)?));
        Ok(Box::new(ZipStage { inputs: self.inputs.iter().map(open).collect::<Result<_, Error>>()? }))
    }
}

/// Lets every input append to its own columns; all append equally many elements, or the fewest count.
fn side_by_side(
    out: &mut Builder<'_>,
    widths: &[usize],
    mut fill: impl FnMut(usize, &mut Builder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut parts = Vec::new();
    for width in widths.iter().rev() {
        parts.push(out.split_off(out.columns.len() - width));
    }
    let mut result = Ok(());
    let mut joined: Option<Builder<'_>> = None;
    for (i, mut part) in parts.into_iter().rev().enumerate() {
        if result.is_ok() {
            result = fill(i, &mut part);
        }
        part.rollback();
        match &mut joined {
            None => joined = Some(part),
            Some(joined) => joined.join(part),
        }
    }
    if let Some(joined) = joined {
        *out = joined;
    }
    result
}

struct ZipLookup {
    inputs: Vec<Arc<dyn Lookup>>,
    widths: Vec<usize>,
}

impl Lookup for ZipLookup {
    fn len(&self) -> u64 {
        self.inputs.iter().map(|input| input.len()).min().unwrap_or(0)
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        side_by_side(out, &self.widths, |i, part| self.inputs[i].gather(epoch, at, part))
    }

    fn preferred_bytes(&self) -> usize {
        self.inputs.iter().map(|input| input.preferred_bytes()).max().unwrap_or(0)
    }
}

struct ZipStage {
    inputs: Vec<Inlet>,
}

impl ZipStage {
    /// How many elements all inputs have at hand, up to `want`; `None` at the end of one. Where one of them has a bad element, so has
    /// the zip: the others pass over theirs, so that all stay in step.
    fn at_hand(&mut self, want: usize) -> Result<Option<usize>, Error> {
        let (mut n, mut bad, mut ended) = (want, None, false);
        let mut good = Vec::with_capacity(self.inputs.len());
        for (i, input) in self.inputs.iter_mut().enumerate() {
            match input.peek(want) {
                Ok(Some((_, rows))) => {
                    n = n.min(rows.len());
                    good.push(i);
                }
                Ok(None) => ended = true,
                Err(error) if error.is_data() => bad = bad.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        match bad {
            _ if ended => Ok(None),
            None => Ok(Some(n)),
            Some(error) => {
                good.into_iter().for_each(|i| self.inputs[i].advance(1));
                Err(error)
            }
        }
    }
}

impl Stage for ZipStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let Some(n) = self.at_hand(want)? else { return Ok(false) };
        let mut columns = out.columns.iter_mut();
        for input in &mut self.inputs {
            let Some((chunk, rows)) = input.peek(n)? else { return Ok(false) };
            for (from, to) in chunk.columns.iter().zip(&mut columns) {
                to.append(from, rows.start..rows.start + n)?;
            }
            input.advance(n);
        }
        out.commit_rows(n);
        Ok(true)
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.inputs.iter().any(|input| input.used() > 0) {
            return Ok(None);
        }
        let mut least = n;
        for input in &mut self.inputs {
            let Some(skipped) = input.skip(n)? else { return Ok(None) };
            least = least.min(skipped);
        }
        Ok(Some(least))
    }
}

struct Concatenate {
    inputs: Vec<Arc<dyn Node>>,
    spec: Arc<Spec>,
}

impl Node for Concatenate {
    fn describe(&self) -> String {
        format!("concatenation of {}", self.inputs.len())
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        self.inputs.iter().collect()
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        self.inputs.iter().map(|input| input.cardinality()).fold(Cardinality::Known(0), Cardinality::plus)
    }

    fn is_lookup(&self) -> bool {
        self.inputs.iter().all(|input| input.is_lookup())
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        let is_lookup = self.is_lookup();
        // One after another.
        let of = |input: &Arc<dyn Node>| match is_lookup {
            true => input.working_bytes(rows)?.checked_add(list_bytes(8 * rows as u64)),
            false => flow_bytes(&**input),
        };
        self.inputs.iter().map(of).try_fold(0, |most, bytes| Some(bytes?.max(most)))
    }

    fn counted(&self) -> Option<u64> {
        self.inputs.iter().map(|input| input.counted()).try_fold(0u64, |sum, n| sum.checked_add(n?))
    }

    fn total(&self) -> Option<Total> {
        self.inputs.iter().map(|input| input.total()).try_fold(Total::default(), |sum, total| sum.with(total?))
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let inputs: Vec<_> =
            self.inputs.iter().map(|input| expect_lookup(input, open)).collect::<Result<_, Error>>()?;
        let mut ends = Vec::with_capacity(inputs.len());
        let mut end = 0u64;
        for input in &inputs {
            end = end.saturating_add(input.len());
            ends.push(end);
        }
        Ok(Some(Arc::new(ConcatenateLookup { inputs, ends })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let (mut inputs, open) = (self.inputs.clone().into_iter(), open.clone());
        Ok(Box::new(InTurn::new(move |_| Some(open_flow(&inputs.next()?, &open, epoch)))))
    }
}

struct ConcatenateLookup {
    inputs: Vec<Arc<dyn Lookup>>,
    /// The number of elements up to the end of each input.
    ends: Vec<u64>,
}

impl Lookup for ConcatenateLookup {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let part = |i: u64| self.ends.partition_point(|end| *end <= i);
        for run in at.chunk_by(|a, b| part(*a) == part(*b)) {
            let input = part(run[0]);
            let start = if input == 0 { 0 } else { self.ends[input - 1] };
            let run = Counted::collect(out.account(), run.len(), run.iter().map(|i| i - start))?;
            self.inputs[input].gather(epoch, &run, out)?;
        }
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        self.inputs.iter().map(|input| input.preferred_bytes()).max().unwrap_or(0)
    }
}
