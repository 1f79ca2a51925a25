//! `batch`, `padded_batch`, `window`: several elements become one with one more axis.
//!
//! A batch is a window that moves by its own size, so all three are one stage.

use super::Inlet;
use crate::builder::Builder;
use crate::column::{Chunk, Column, dtype};
use crate::dataset::{Node, Total, expect_lookup, open_flow};
use crate::flow::{Flow, Lookup, Open, Stage};
use crate::least::{held_bytes, list_bytes};
use crate::memory::Counted;
use crate::{BatchSizes, Cardinality, Component, Dataset, Error, Kind, Place, Spec};
use plimsoll_budget::Bytes;
use plimsoll_tensor::{DType, MAX_RANK, Shape, Tensor};
use std::collections::VecDeque;
use std::sync::Arc;

impl Dataset {
    /// Every `size` elements as one, with the elements along a new first axis; the last may be shorter.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let data = Dataset::range(0, 5, 1).batch(2);
    /// let batches: Vec<Vec<i64>> =
    ///     data.iter(&Budget::unlimited())?.map(|b| b.unwrap().get("value").unwrap().to_vec()).collect();
    /// assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4]]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn batch(&self, size: usize) -> Dataset {
        self.group("batch", size, size, 1, false, None)
    }

    /// As [`Dataset::batch`], without the last batch if it would be shorter: every batch has the same shape.
    pub fn batch_exact(&self, size: usize) -> Dataset {
        self.group("batch", size, size, 1, true, None)
    }

    /// Batches of elements whose sizes differ, padded to the largest of the batch or to sizes given.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Component, Dataset, Padding};
    /// use plimsoll_tensor::DType;
    /// let ragged = Dataset::range(1, 4, 1).map([Component::ragged("x", DType::I64, &[None])], |row, out| {
    ///     let n = row.get::<i64>("value")?[0];
    ///     out.set("x", &[n as usize], &vec![n; n as usize])
    /// });
    /// let batch = ragged.padded_batch(3, Padding::default()).iter(&Budget::unlimited())?.next().unwrap()?;
    /// assert_eq!(batch.shape("x")?.dims(), [3, 3]);
    /// assert_eq!(batch.get::<i64>("x")?, [1, 0, 0, 2, 2, 0, 3, 3, 3]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn padded_batch(&self, size: usize, padding: Padding) -> Dataset {
        self.group("padded batch", size, size, 1, false, Some(padding))
    }

    /// Windows of `size` elements, each beginning `shift` elements after the one before, of every `stride`-th element.
    ///
    /// Without `drop_remainder` the windows at the end are shorter, as `tf.data`'s are.
    pub fn window(&self, size: usize, shift: usize, stride: usize, drop_remainder: bool) -> Dataset {
        self.group("window", size, shift, stride, drop_remainder, None)
    }

    fn group(
        &self,
        what: &'static str,
        size: usize,
        shift: usize,
        stride: usize,
        drop: bool,
        padding: Option<Padding>,
    ) -> Dataset {
        self.then(|input| {
            if size == 0 || shift == 0 || stride == 0 {
                return Err(Error::pipeline(what, "size, shift and stride must be at least 1"));
            }
            if let Some(padding) = &padding {
                padding.check(input.spec())?;
            }
            let drop = drop || padding.as_ref().is_some_and(|padding| padding.drop_remainder);
            let full = drop || input.cardinality().known().is_some_and(|n| exact(n, size, shift, stride));
            let full = full || input.cardinality() == Cardinality::Infinite;
            let mut components = Vec::new();
            for c in input.spec().components() {
                if c.dims.as_ref().is_some_and(|dims| dims.len() >= MAX_RANK) {
                    let message = format!("component {c} has {MAX_RANK} axes already, the most that are supported");
                    return Err(Error::pipeline(what, message));
                }
                let c = padding.as_ref().map_or(Ok(c.clone()), |padding| padding.component(c))?;
                components.push(c.with_axis(full.then_some(size)));
            }
            let spec = Arc::new(Spec::new(components)?);
            let rule = Rule { what, size, shift, stride, drop, padding, component: input.spec().clone() };
            Ok(Group { input, spec, rule: Arc::new(rule) })
        })
    }
}

/// How [`Dataset::padded_batch`] pads.
///
/// By default: every axis whose size differs to the largest of the batch, numbers with 0, strings with the empty string.
///
/// ```
/// use plimsoll_budget::Budget;
/// use plimsoll_data::{Component, Dataset, Kind, Padding};
/// use plimsoll_tensor::DType;
/// let components = [Component::ragged("ids", DType::I64, &[None]), Component::ragged("words", Kind::Bytes, &[None])];
/// let sentences = Dataset::range(1, 3, 1).map(components, |row, out| {
///     let n = row.get::<i64>("value")?[0] as usize;
///     out.set("ids", &[n], &vec![7i64; n])?;
///     out.strings("words", &[n], &vec![&b"word"[..]; n])
/// });
/// let padding = Padding::default().value("ids", -1.0).string("words", b"<pad>");
/// let batch = sentences.padded_batch(2, padding).iter(&Budget::unlimited())?.next().unwrap()?;
/// assert_eq!(batch.get::<i64>("ids")?, [7, -1, 7, 7]);
/// assert!(batch.strings("words")?.eq([&b"word"[..], b"<pad>", b"word", b"word"]));
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Padding {
    sizes: Vec<(String, Vec<Option<usize>>)>,
    values: Vec<(String, f64)>,
    strings: Vec<(String, Vec<u8>)>,
    drop_remainder: bool,
}

impl Padding {
    /// Pads a component to these sizes; `None` pads to the largest of the batch.
    pub fn sizes(mut self, name: &str, sizes: &[Option<usize>]) -> Padding {
        self.sizes.push((name.into(), sizes.to_vec()));
        self
    }

    /// Pads a component of numbers with this value.
    pub fn value(mut self, name: &str, value: f64) -> Padding {
        self.values.push((name.into(), value));
        self
    }

    /// Pads a component of strings with this one.
    pub fn string(mut self, name: &str, string: &[u8]) -> Padding {
        self.strings.push((name.into(), string.to_vec()));
        self
    }

    /// Leaves the last batch out if it is shorter.
    pub fn drop_remainder(mut self) -> Padding {
        self.drop_remainder = true;
        self
    }

    /// Every component that is named is there and holds what it is padded with.
    fn check(&self, spec: &Spec) -> Result<(), Error> {
        self.sizes.iter().try_for_each(|(name, _)| spec.expect("padded batch", name).map(drop))?;
        let values = self.values.iter().map(|(name, _)| (name, "a number"));
        for (name, what) in values.chain(self.strings.iter().map(|(name, _)| (name, "a string"))) {
            let component = &spec.components()[spec.expect("padded batch", name)?];
            if (component.kind == Kind::Bytes) != (what == "a string") {
                let message = format!("component {component} cannot be padded with {what}");
                return Err(Error::pipeline("padded batch", message));
            }
        }
        Ok(())
    }

    fn wanted(&self, name: &str) -> Option<&[Option<usize>]> {
        self.sizes.iter().find(|(n, _)| n == name).map(|(_, sizes)| &sizes[..])
    }

    /// What a component looks like when padded.
    fn component(&self, component: &Component) -> Result<Component, Error> {
        let Some(sizes) = self.wanted(&component.name) else { return Ok(component.clone()) };
        let dims = component.dims.clone().unwrap_or(vec![None; sizes.len()]);
        if dims.len() != sizes.len() {
            let message = format!("component {component} has {} axes, but {} sizes are given", dims.len(), sizes.len());
            return Err(Error::pipeline("padded batch", message));
        }
        let dims = dims.iter().zip(sizes).map(|(dim, size)| size.or(*dim)).collect();
        Ok(Component { dims: Some(dims), ..component.clone() })
    }

    /// The bytes of the largest element when padded, from those of the largest that is not.
    fn largest(&self, spec: &Spec, largest: u64) -> Option<u64> {
        let mut sum = 0u64;
        for c in spec.components() {
            let c = self.component(c).ok()?;
            let n_open = c.dims.as_ref()?.iter().filter(|dim| dim.is_none()).count() as u64;
            sum = sum.checked_add(match (c.bytes(), n_open) {
                (Some(bytes), _) => (bytes as u64).next_multiple_of(8),
                // As many values as another element has; padding of strings is empty strings, which have a place each.
                (None, 0 | 1) => {
                    let known = c.dims.as_ref()?.iter().flatten().product::<usize>() as u64;
                    let empty = if c.kind == Kind::Bytes { largest.max(known.checked_mul(8)?) } else { 0 };
                    largest.checked_add(empty)?
                }
                // The most of one axis may meet the most of another.
                _ => return None,
            })?;
        }
        Some(sum)
    }

    fn pattern(&self, name: &str, dtype: DType) -> Vec<u8> {
        // Rounded to the component's type.
        let value = self.values.iter().find(|(n, _)| n == name).map_or(0.0, |(_, value)| *value);
        Tensor::from_f64(dtype, Shape::scalar(), &[value]).expect("one value for a scalar").bytes().to_vec()
    }
}

/// Whether windows over `n` elements are all full.
fn exact(n: u64, size: usize, shift: usize, stride: usize) -> bool {
    n == 0 || size == shift && stride == 1 && n.is_multiple_of(size as u64)
}

struct Rule {
    what: &'static str,
    size: usize,
    shift: usize,
    stride: usize,
    drop: bool,
    padding: Option<Padding>,
    component: Arc<Spec>,
}

impl Rule {
    /// The elements that a window spans.
    fn span(&self) -> u64 {
        (self.size as u64 - 1) * self.stride as u64 + 1
    }

    fn n_windows(&self, n: u64) -> u64 {
        match self.drop {
            true if n < self.span() => 0,
            true => (n - self.span()) / self.shift as u64 + 1,
            false => n.div_ceil(self.shift as u64),
        }
    }

    /// The elements of a window among `n`.
    fn rows(&self, window: u64, n: u64) -> impl Iterator<Item = u64> + use<> {
        let (start, stride) = (window * self.shift as u64, self.stride as u64);
        (0..self.size as u64).map(move |i| start + i * stride).take_while(move |row| *row < n)
    }

    fn is_batch(&self) -> bool {
        self.shift == self.size && self.stride == 1 && self.padding.is_none()
    }

    /// Appends elements as one.
    fn append(&self, chunk: &Chunk, first: u64, out: &mut Builder<'_>) -> Result<(), Error> {
        for (i, column) in chunk.columns.iter().enumerate() {
            let result = match &self.padding {
                Some(padding) => self.pad(padding, i, column, out),
                None => self.stack(i, column, out),
            };
            // The element is the one that does not fit, counted from the first of the window.
            result.map_err(|error| match error {
                Error::Data { place: Place::Element(_, row), message } => {
                    Error::data(Place::Element(self.what, first + row), message)
                }
                other => other,
            })?;
        }
        out.commit_rows(1);
        Ok(())
    }

    fn stack(&self, i: usize, column: &Column, out: &mut Builder<'_>) -> Result<(), Error> {
        let shape = *column.shape(0);
        if let Some(row) = (0..column.rows).find(|row| *column.shape(*row) != shape) {
            let name = &self.component.components()[i].name;
            let message = format!(
                "component '{name}' has shape {}, but the first of its batch has {shape}; padded_batch takes both",
                column.shape(row)
            );
            return Err(Error::data(Place::Element(self.what, row as u64), message));
        }
        self.check_rank(&shape)?;
        out.columns[i].append_as(column, 0..column.rows, &shape.insert(0, column.rows), 1)
    }

    fn check_rank(&self, shape: &Shape) -> Result<(), Error> {
        if shape.rank() < MAX_RANK {
            return Ok(());
        }
        let message = format!("shape {shape} has {MAX_RANK} axes already, the most that are supported");
        Err(Error::data(Place::Element(self.what, 0), message))
    }

    fn pad(&self, padding: &Padding, i: usize, column: &Column, out: &mut Builder<'_>) -> Result<(), Error> {
        let component = &self.component.components()[i];
        let bad = |row: usize, message: String| {
            Error::data(Place::Element(self.what, row as u64), format!("component '{}' {message}", component.name))
        };
        let mut target = *column.shape(0);
        self.check_rank(&target)?;
        for row in 1..column.rows {
            let shape = column.shape(row);
            if shape.rank() != target.rank() {
                let message = format!("has shape {shape}, but the first of its batch has {}", column.shape(0));
                return Err(bad(row, message));
            }
            target.dims_mut().iter_mut().zip(shape.dims()).for_each(|(t, s)| *t = (*t).max(*s));
        }
        for (axis, size) in padding.wanted(&component.name).unwrap_or(&[]).iter().enumerate() {
            if let Some(size) = size {
                target.dims_mut()[axis] = *size;
            }
        }
        if let Some(row) =
            (0..column.rows).find(|r| column.shape(*r).dims().iter().zip(target.dims()).any(|(s, t)| s > t))
        {
            return Err(bad(
                row,
                format!("has shape {}, larger than {target}, to which it is padded", column.shape(row)),
            ));
        }
        let whole = target.insert(0, column.rows);
        match dtype(component.kind) {
            Some(dtype) => {
                let pattern = padding.pattern(&component.name, dtype);
                let bytes = out.columns[i].add(&whole, 1)?;
                bytes.chunks_exact_mut(pattern.len()).for_each(|to| to.copy_from_slice(&pattern));
                let size = target.elements() * dtype.size();
                for row in 0..column.rows {
                    let to = &mut bytes[row * size..(row + 1) * size];
                    place(column.bytes(row..row + 1), column.shape(row), to, &target, dtype.size());
                }
                Ok(())
            }
            None => {
                // Those of the batch and those of a row.
                let n_strings = whole.elements() + target.elements();
                let _held = out.account().reserve(Bytes::from(n_strings * size_of::<&[u8]>()))?;
                let string = padding.strings.iter().find(|(name, _)| *name == component.name);
                let mut strings: Vec<&[u8]> = vec![string.map_or(b"", |(_, s)| s); whole.elements()];
                for row in 0..column.rows {
                    let from: Vec<&[u8]> = column.values(row..row + 1).map(|v| column.string(v)).collect();
                    let n = target.elements();
                    place(&from, column.shape(row), &mut strings[row * n..(row + 1) * n], &target, 1);
                }
                out.columns[i].add_strings(&whole, strings)
            }
        }
    }
}

/// Copies a small array into the corner of a large one; `unit` items make one value.
fn place<T: Copy>(from: &[T], shape: &Shape, to: &mut [T], target: &Shape, unit: usize) {
    let (Some((rows, rest)), Some((_, target_rest))) = (shape.dims().split_first(), target.dims().split_first()) else {
        to.copy_from_slice(from);
        return;
    };
    let step = |dims: &[usize]| dims.iter().product::<usize>() * unit;
    let (from_step, to_step) = (step(rest), step(target_rest));
    if from_step == 0 {
        return;
    }
    if rest == target_rest {
        to[..from.len()].copy_from_slice(from);
        return;
    }
    for row in 0..*rows {
        let to = &mut to[row * to_step..(row + 1) * to_step];
        place(&from[row * from_step..(row + 1) * from_step], &Shape::new(rest), to, &Shape::new(target_rest), unit);
    }
}

struct Group {
    input: Arc<dyn Node>,
    spec: Arc<Spec>,
    rule: Arc<Rule>,
}

impl Node for Group {
    fn describe(&self) -> String {
        let Rule { what, size, shift, stride, .. } = &*self.rule;
        let end = if self.rule.drop { ", full ones only" } else { "" };
        let padding = self
            .rule
            .padding
            .as_ref()
            .map_or(String::new(), |p| format!(", {:?} {:?} {:?}", p.sizes, p.values, p.strings));
        match *what {
            "window" => format!("window of {size} every {shift}, stride {stride}{end}"),
            what => format!("{what} of {size}{end}{padding}"),
        }
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        self.input.cardinality().map(|n| self.rule.n_windows(n))
    }

    fn is_lookup(&self) -> bool {
        self.input.is_lookup()
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        let Rule { size, shift, stride, .. } = *self.rule;
        let fixed = self.rule.padding.is_none() && self.input.spec().is_fixed();
        let held = |rows: u64| held_bytes(&*self.input, rows);
        // Texts on their way into a padded batch.
        let padding = if self.rule.padding.is_some() { self.largest()?.checked_mul(4)? } else { 0 };
        if self.is_lookup() {
            let at_a_time = if fixed { rows.saturating_mul(size).min(Open::ROWS) } else { size };
            // The elements of a window, which grow by moving.
            let elements = if fixed { 0 } else { held(size as u64)?.checked_mul(2)? };
            let numbers = list_bytes(8 * at_a_time as u64);
            return self
                .input
                .working_bytes(at_a_time)?
                .checked_add(numbers)?
                .checked_add(elements)?
                .checked_add(padding);
        }
        if fixed && self.rule.is_batch() {
            // The input writes where the batches belong; elements behind a bad one are made and dropped.
            return super::inlet_bytes(&*self.input);
        }
        let span = self.rule.span();
        // The elements of a window, held and growing by moving; those of the one before, where they overlap; every so many of them.
        let copies = if shift as u64 >= span { 2 } else { 3 };
        let picked = if stride > 1 { held(size as u64)?.checked_mul(2)? } else { 0 };
        let elements = held(span)?.checked_mul(copies)?.checked_add(picked)?.checked_add(padding)?;
        super::inlet_bytes(&*self.input)?.checked_add(elements)
    }

    fn largest(&self) -> Option<u64> {
        let size = self.rule.size as u64;
        let row = match &self.rule.padding {
            // A short column may be rounded up where it has few rows.
            None => match self.input.spec().bytes() {
                Some(bytes) => return (bytes as u64).checked_mul(size)?.checked_add(8 * self.n_components()),
                None => self.input.largest()?,
            },
            Some(padding) => padding.largest(self.input.spec(), self.input.largest()?)?,
        };
        row.checked_mul(size)
    }

    fn counted(&self) -> Option<u64> {
        Some(self.rule.n_windows(self.input.counted()?))
    }

    fn total(&self) -> Option<Total> {
        let elements = self.rule.n_windows(self.input.total()?.elements);
        Total::of(elements, self.largest()?)
    }

    fn batch_sizes(&self) -> Option<BatchSizes> {
        let Rule { size, shift, stride, .. } = *self.rule;
        let n = self.input.counted();
        let most = n.map_or(size, |n| size.min(n as usize));
        let in_row = shift == size && stride == 1;
        let last = match n {
            _ if self.rule.drop || self.input.cardinality() == Cardinality::Infinite => Some(size),
            Some(n) if in_row => Some(n as usize - (n.max(1) as usize - 1) / size * size),
            _ => None,
        };
        Some(BatchSizes { most, last })
    }

    fn used(&self, given: u64) -> Option<u64> {
        given.checked_mul(self.rule.shift as u64)
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let input = expect_lookup(&self.input, open)?;
        Ok(Some(Arc::new(GroupLookup { input, rule: self.rule.clone() })))
    }

    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let flow = open_flow(&self.input, open, epoch)?;
        if self.rule.is_batch() && self.input.spec().is_fixed() {
            return Ok(Box::new(BatchStage { flow, rule: self.rule.clone(), rest: None, ended: false, next: 0 }));
        }
        let held = flow.builder()?.finish();
        let input = Inlet::new(flow);
        Ok(Box::new(GroupStage { input, rule: self.rule.clone(), held, bad: VecDeque::new(), first: 0, ended: false }))
    }
}

impl Group {
    fn n_components(&self) -> u64 {
        self.spec.components().len() as u64
    }
}

struct GroupLookup {
    input: Arc<dyn Lookup>,
    rule: Arc<Rule>,
}

impl GroupLookup {
    fn slow(&self, epoch: u64, window: u64, out: &mut Builder<'_>) -> Result<(), Error> {
        let rows = Counted::collect(out.account(), self.rule.size, self.rule.rows(window, self.input.len()))?;
        let mut elements = Builder::new(out.account(), &self.rule.component)?;
        self.input.gather(epoch, &rows, &mut elements)?;
        self.rule.append(&elements.finish(), rows[0], out)
    }

    /// Windows that all have `size` elements: the input writes where they belong.
    fn fast(&self, epoch: u64, windows: &[u64], size: usize, out: &mut Builder<'_>) -> Result<(), Error> {
        let n = self.input.len();
        let mut rows = Counted::collect(out.account(), (windows.len() * size).min(Open::ROWS), [])?;
        if !out.ungroup(size) {
            return windows.iter().try_for_each(|w| self.slow(epoch, *w, out));
        }
        let before = out.rows();
        out.reserve(&self.rule.component, windows.len() * size)?;
        let mut numbers = windows.iter().flat_map(|w| self.rule.rows(*w, n)).peekable();
        let mut result = Ok(());
        while result.is_ok() && numbers.peek().is_some() {
            rows.clear();
            result = numbers.by_ref().take(Open::ROWS).try_for_each(|row| rows.push(row));
            result = result.and_then(|()| self.input.gather(epoch, &rows, out));
        }
        if result.is_err() {
            out.truncate(before);
        }
        out.group(size);
        result
    }
}

impl Lookup for GroupLookup {
    fn len(&self) -> u64 {
        match self.input.len() {
            u64::MAX => u64::MAX,
            n => self.rule.n_windows(n),
        }
    }

    fn gather(&self, epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let n = self.input.len();
        let fixed = self.rule.padding.is_none() && self.rule.component.is_fixed();
        let is_fast = |w: u64| fixed && n - w * self.rule.shift as u64 >= self.rule.span();
        let mut rest = at;
        while let Some(window) = rest.first() {
            let run = rest.iter().position(|w| !is_fast(*w)).unwrap_or(rest.len());
            if run == 0 {
                match fixed {
                    // The last one is shorter, but may be the only one that is wanted.
                    true => self.fast(epoch, &rest[..1], self.rule.rows(*window, n).count(), out)?,
                    false => self.slow(epoch, *window, out)?,
                }
                rest = &rest[1..];
            } else {
                self.fast(epoch, &rest[..run], self.rule.size, out)?;
                rest = &rest[run..];
            }
        }
        Ok(())
    }

    fn preferred_bytes(&self) -> usize {
        self.input.preferred_bytes()
    }
}

/// Batches of elements of one shape: the input writes where they belong.
struct BatchStage {
    flow: Flow,
    rule: Arc<Rule>,
    rest: Option<Chunk>,
    ended: bool,
    next: u64,
}

impl Stage for BatchStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        if let Some(rest) = self.rest.take() {
            self.rule.append(&rest, self.next, out)?;
            return Ok(true);
        }
        if self.ended {
            return Ok(false);
        }
        let size = self.rule.size;
        if !out.ungroup(size) {
            let mut batch = self.flow.builder()?;
            let result = self.flow.fill_exact(&mut batch, size);
            self.next += batch.rows() as u64;
            let short = batch.rows() < size;
            self.ended = matches!(result, Ok(false));
            if let Err(error) = result {
                return self.lose(batch.rows(), error);
            }
            if batch.rows() > 0 && !(short && self.rule.drop) {
                self.rule.append(&batch.finish(), self.next, out)?;
            }
            return Ok(true);
        }
        let before = out.rows();
        let room = out.reserve(&self.rule.component, want * size);
        let result = room.and_then(|()| self.flow.fill_exact(out, want * size));
        let rest = (out.rows() - before) % size;
        let whole = out.rows() - rest;
        self.next += (out.rows() - before) as u64;
        let mut kept = Ok(());
        if rest > 0 && out.rows() == rest && matches!(result, Ok(false)) && !self.rule.drop {
            // The only one, and complete as it is.
            out.group(rest);
            self.ended = true;
            return Ok(true);
        }
        if rest > 0 && matches!(result, Ok(false)) && !self.rule.drop {
            // Shorter than the others, so it does not fit among them.
            kept = self.keep(out, whole);
        }
        out.truncate(whole);
        out.group(size);
        self.ended = matches!(result, Ok(false));
        kept?;
        match result {
            Ok(_) => Ok(true),
            Err(error) => self.lose(rest, error),
        }
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.rest.is_some() || self.ended {
            return Ok(None);
        }
        let size = self.rule.size as u64;
        let skipped = self.flow.skip(n.saturating_mul(size))?;
        self.next += skipped;
        self.ended = skipped < n.saturating_mul(size);
        Ok(Some(if self.rule.drop { skipped / size } else { skipped.div_ceil(size) }))
    }
}

impl BatchStage {
    /// Passes over what is left of a batch with a bad element behind so many good ones: it is lost as a whole, as one that is
    /// found by number, so that the batches behind it are the same ones.
    fn lose(&mut self, good: usize, error: Error) -> Result<bool, Error> {
        if !error.is_data() {
            return Err(error);
        }
        let rest = (self.rule.size - good - 1) as u64;
        let skipped = self.flow.skip(rest)?;
        self.next += 1 + skipped;
        self.ended = skipped < rest;
        // The last one, shorter than the others, may not be wanted at all.
        if self.ended && self.rule.drop { Ok(false) } else { Err(error) }
    }

    fn keep(&mut self, out: &mut Builder<'_>, from: usize) -> Result<(), Error> {
        let mut rest = self.flow.builder()?;
        let rows = from..out.rows();
        rest.reserve(&self.rule.component, rows.len())?;
        for (to, column) in rest.columns.iter_mut().zip(&mut out.columns) {
            to.take_from(column, rows.clone())?;
        }
        rest.commit_rows(rows.len());
        self.rest = Some(rest.finish());
        Ok(())
    }
}

/// Windows of any kind: the elements that are still needed are held.
struct GroupStage {
    input: Inlet,
    rule: Arc<Rule>,
    /// The elements from number `first` on, without the bad ones.
    held: Chunk,
    /// The numbers of the bad ones, and what is wrong with each: a window is bad when one of its elements is.
    bad: VecDeque<(u64, Error)>,
    first: u64,
    ended: bool,
}

impl GroupStage {
    /// The elements held, bad ones included.
    fn n_held(&self) -> usize {
        self.held.rows + self.bad.len()
    }

    /// How many of the bad elements come before a number.
    fn n_bad_before(&self, number: u64) -> usize {
        self.bad.partition_point(|(bad, _)| *bad < number)
    }

    /// Drops `drop` of the elements held and takes elements in until there are `want`.
    fn take_in(&mut self, drop: usize, want: usize) -> Result<(), Error> {
        let mut held = self.input.flow().builder()?;
        let gone = drop.min(self.n_held());
        let mut left_out = drop - gone;
        self.first += gone as u64;
        let n_bad = self.n_bad_before(self.first);
        self.bad.drain(..n_bad);
        let kept = gone - n_bad..self.held.rows;
        // What nobody needs any more goes before anything comes.
        let old = std::mem::replace(&mut self.held, Chunk { rows: 0, columns: Vec::new() });
        if !kept.is_empty() {
            held.append(&old, kept)?;
        }
        std::mem::drop(old);
        while held.rows() + self.bad.len() < want && !self.ended {
            let there = held.rows() + self.bad.len();
            match self.input.peek(want - there + left_out) {
                Ok(None) => self.ended = true,
                // A window that moves further than it is long leaves elements out.
                Ok(Some((_, rows))) if left_out > 0 => {
                    let n = left_out.min(rows.len());
                    self.input.advance(n);
                    (left_out, self.first) = (left_out - n, self.first + n as u64);
                }
                Ok(Some((chunk, rows))) => {
                    let n = rows.len().min(want - there);
                    held.append(chunk, rows.start..rows.start + n)?;
                    self.input.advance(n);
                }
                Err(error) if error.is_data() && left_out > 0 => {
                    (left_out, self.first) = (left_out - 1, self.first + 1);
                }
                Err(error) if error.is_data() => self.bad.push_back((self.first + there as u64, error)),
                Err(error) => return Err(error),
            }
        }
        self.held = held.finish();
        Ok(())
    }

    /// Appends the window that begins with the first element held.
    fn append(&self, out: &mut Builder<'_>) -> Result<(), Error> {
        let stride = self.rule.stride;
        if let Some((_, error)) = self.bad.iter().find(|(bad, _)| (bad - self.first).is_multiple_of(stride as u64)) {
            return Err(error.clone());
        }
        if stride == 1 {
            return self.rule.append(&self.held, self.first, out);
        }
        let mut picked = self.input.flow().builder()?;
        for place in (0..self.n_held()).step_by(stride) {
            let row = place - self.n_bad_before(self.first + place as u64);
            picked.append(&self.held, row..row + 1)?;
        }
        self.rule.append(&picked.finish(), self.first, out)
    }
}

impl Stage for GroupStage {
    fn fill(&mut self, out: &mut Builder<'_>, _want: usize) -> Result<bool, Error> {
        let span = self.rule.span() as usize;
        if self.n_held() < span && !self.ended {
            self.take_in(0, span)?;
        }
        let short = self.n_held() < span;
        if self.n_held() == 0 || short && self.rule.drop {
            return Ok(false);
        }
        let result = self.append(out);
        if result.is_err() {
            out.rollback();
        }
        let moved = self.take_in(self.rule.shift, span);
        result.and(moved).map(|()| true)
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        if self.n_held() > 0 || self.input.used() > 0 {
            return Ok(None);
        }
        let elements = n.saturating_mul(self.rule.shift as u64);
        let Some(skipped) = self.input.skip(elements)? else { return Ok(None) };
        self.first += skipped;
        self.ended = skipped < elements;
        Ok(Some(if self.ended { self.rule.n_windows(skipped).min(n) } else { n }))
    }
}
