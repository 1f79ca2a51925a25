//! `Dataset`: what to read and what to do with it.

use crate::ahead::{Ahead, Lead};
use crate::flow::{Flow, InOrder, Lookup, Measured, Open};
use crate::least::{fixed_bytes, flow_bytes, least_bytes, least_bytes_into};
use crate::trail::Key;
use crate::{Cardinality, Component, Error, Iter, Options, Spec};
use plimsoll_budget::{Budget, Bytes};
use std::sync::Arc;

/// How many calls of a function run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Calls {
    /// This many.
    Fixed(usize),
    /// As many as measuring finds useful, at most one per core.
    Auto,
}

/// Let measuring decide; for parallel calls and for how far to prefetch.
pub const AUTOTUNE: Calls = Calls::Auto;

/// A description of data: sources and what happens to their elements.
///
/// Describing reads nothing but what is needed to know the elements' shapes; [`Dataset::iter`] begins to work. Copying is cheap. A
/// mistake in a chain of calls is kept and told when the data set is used, so that chains need no `?` at every link.
///
/// Names and meanings are those of `tf.data`. The difference: a chain in which every element can be found by its number (arrays,
/// `.npy` files, image folders, ranges; mapped, batched, zipped, shuffled...) stays so, so that its shuffle is complete and
/// needs no buffer, its position can be saved in a few bytes, and its threads cannot change its order.
///
/// ```
/// use plimsoll_budget::{Budget, Bytes};
/// use plimsoll_data::{AUTOTUNE, Dataset};
/// use plimsoll_tensor::Tensor;
/// let x = Tensor::from_slice([4, 2], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])?;
/// let y = Tensor::from_slice([4], &[0i64, 1, 0, 1])?;
/// let data = Dataset::from_arrays([("x", x), ("label", y)])
///     .map_in_place("x", |x: &mut [f32]| x.iter_mut().for_each(|v| *v = *v * 2.0 - 1.0))
///     .shuffle(None, 7)
///     .batch(2)
///     .prefetch(AUTOTUNE);
/// assert_eq!(data.spec()?.to_string(), "{x: f32[2,2], label: i64[2]}");
/// let mut labels = Vec::new();
/// for batch in data.iter(&Budget::new(Bytes::mib(4)))? {
///     labels.extend_from_slice(batch?.get::<i64>("label")?);
/// }
/// labels.sort();
/// assert_eq!(labels, [0, 0, 1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Dataset {
    node: Result<Arc<dyn Node>, Error>,
}

impl Dataset {
    pub(crate) fn new(node: impl Node + 'static) -> Dataset {
        Dataset { node: Ok(Arc::new(node)) }
    }

    pub(crate) fn from_result(node: Result<Dataset, Error>) -> Dataset {
        node.unwrap_or_else(|error| Dataset { node: Err(error) })
    }

    /// A data set made from this one's node, or this one's mistake.
    pub(crate) fn then<N: Node + 'static>(&self, make: impl FnOnce(Arc<dyn Node>) -> Result<N, Error>) -> Dataset {
        Dataset::from_result(self.node().and_then(|node| Ok(Dataset::new(make(node)?))))
    }

    pub(crate) fn node(&self) -> Result<Arc<dyn Node>, Error> {
        self.node.clone()
    }

    /// What every element looks like.
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn spec(&self) -> Result<Arc<Spec>, Error> {
        Ok(self.node()?.spec().clone())
    }

    /// How many elements there are.
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn cardinality(&self) -> Result<Cardinality, Error> {
        Ok(self.node()?.cardinality())
    }

    /// The stages, one per line, sources first.
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn describe(&self) -> Result<String, Error> {
        Ok(describe(&*self.node()?))
    }

    /// Begins the first pass over the elements, with memory from a budget.
    ///
    /// # Errors
    /// When the description has a mistake in it, a file cannot be opened, or the budget does not have the least that is needed.
    pub fn iter(&self, budget: &Budget) -> Result<Iter, Error> {
        self.iter_with(&Options::new(budget))
    }

    /// Begins a pass over the elements.
    ///
    /// # Errors
    /// As [`Dataset::iter`].
    pub fn iter_with(&self, options: &Options) -> Result<Iter, Error> {
        Iter::open(self.node()?, options)
    }

    /// Goes on where [`Iter::save`] was called, in this process or another: no element is lost or repeated.
    ///
    /// Where elements can be found by number this is a jump, also behind a `filter`, `ignore_errors`, `unbatch` or `flat_map`; else
    /// the elements before the position are made again and dropped.
    ///
    /// # Errors
    /// As [`Dataset::iter`], and when the position was saved by another pipeline.
    pub fn resume(&self, position: &[u8], options: &Options) -> Result<Iter, Error> {
        Iter::resume(self.node()?, position, options)
    }

    /// The memory with which a pass can work, one element at a time and without threads; `None` where only running tells: where a
    /// function of the user (`map`, `from_iter`, `interleave`) makes elements whose sizes are not in their components.
    ///
    /// The elements of text, CSV, TFRecord, Parquet and Arrow files have the sizes that a look through the files finds, once per
    /// process: all of them up to 64 MiB, else a part of each, and room for records twice as large as the largest found there. A
    /// record larger still is an error when its turn comes, if the budget has no room for it, which says how large it is and what
    /// would do. Images are as large as their headers say.
    ///
    /// More makes it faster, up to some blocks of a few hundred kilobytes per thread (from files: a few megabytes; rows of `.npy`,
    /// `.npz` and IDX files: up to the size of the files, whose blocks stay in memory that nobody else needs).
    ///
    /// ```
    /// use plimsoll_budget::{Budget, Bytes};
    /// use plimsoll_data::{AUTOTUNE, Dataset};
    /// let data = Dataset::range(0, 1000, 1).shuffle(None, 1).batch(100).prefetch(AUTOTUNE);
    /// let least = data.least_memory()?.unwrap();
    /// assert!(least < Bytes::kib(16));
    /// assert_eq!(data.iter(&Budget::new(least))?.count(), 10);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn least_memory(&self) -> Result<Option<Bytes>, Error> {
        Ok(least_bytes(&*self.node()?).map(Bytes))
    }

    /// As [`Dataset::least_memory`], where every element is put together in memory of the caller ([`Iter::next_into`]), except for
    /// the components for which `is_given` says that there is none.
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn least_memory_into(&self, is_given: impl Fn(&Component) -> bool) -> Result<Option<Bytes>, Error> {
        Ok(least_bytes_into(&*self.node()?, is_given).map(Bytes))
    }

    /// How long the first axis of the elements is, where all components have it in common: the rows of batches. `None` where the
    /// elements are no batches, or only running tells; how many rows are left for the last batch is found by a look through files.
    ///
    /// ```
    /// use plimsoll_data::{BatchSizes, Dataset};
    /// let batches = Dataset::range(0, 100, 1).batch(32);
    /// assert_eq!(batches.batch_sizes()?, Some(BatchSizes { most: 32, last: Some(4) }));
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn batch_sizes(&self) -> Result<Option<BatchSizes>, Error> {
        Ok(self.node()?.batch_sizes())
    }

    /// Whether elements can be found by number, so that a shuffle needs no buffer and a resume no repetition.
    ///
    /// # Errors
    /// When the description has a mistake in it.
    pub fn is_indexable(&self) -> Result<bool, Error> {
        Ok(self.node()?.is_lookup())
    }
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.describe() {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "Dataset with a mistake: {error}"),
        }
    }
}

/// How many rows batches have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// Those of all but the last, which has no more.
    pub most: usize,
    /// Those of the last, where it is known.
    pub last: Option<usize>,
}

/// Elements and the bytes that they have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) elements: u64,
    pub(crate) bytes: u64,
}

impl Total {
    /// So many elements of one size.
    pub(crate) fn of(elements: u64, size: u64) -> Option<Total> {
        Some(Total { elements, bytes: elements.checked_mul(size)? })
    }

    /// All of both.
    pub(crate) fn with(self, other: Total) -> Option<Total> {
        let (elements, bytes) = (self.elements.checked_add(other.elements)?, self.bytes.checked_add(other.bytes)?);
        Some(Total { elements, bytes })
    }
}

/// One link of the description.
pub(crate) trait Node: Send + Sync {
    /// Its name and what distinguishes it, on one line: positions saved by pipelines that differ here are refused.
    fn describe(&self) -> String;

    /// The links it takes elements from.
    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        Vec::new()
    }

    fn spec(&self) -> &Arc<Spec>;

    fn cardinality(&self) -> Cardinality;

    /// Whether `lookup` gives something.
    fn is_lookup(&self) -> bool;

    /// The elements by number.
    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let _ = open;
        Ok(None)
    }

    /// The elements one after another; asked for when `is_lookup` says no.
    fn stage(&self, open: &Open, epoch: u64) -> Result<Box<dyn crate::flow::Stage>, Error>;

    /// How far ahead the elements shall be made.
    fn lead(&self) -> Option<Lead> {
        self.inputs().into_iter().filter_map(|input| input.lead()).reduce(Lead::with)
    }

    /// What the running link and those before it hold while they append elements to memory of somebody else: by number, so many in
    /// one go; one after another, as few as they like. `None` where only running tells.
    fn working_bytes(&self, rows: usize) -> Option<u64> {
        let inputs = self.inputs().into_iter();
        match self.is_lookup() {
            // One after another.
            true => inputs.map(|input| input.working_bytes(rows)).try_fold(0, |most, bytes| Some(bytes?.max(most))),
            false => inputs.map(|input| flow_bytes(&**input)).sum(),
        }
    }

    /// The bytes of the largest element; `None` where only running tells.
    fn largest(&self) -> Option<u64> {
        // Where elements differ in size, they pass through from an input; stages that make new ones say so for themselves.
        fixed_bytes(self.spec()).or_else(|| {
            self.inputs().into_iter().map(|input| input.largest()).collect::<Option<Vec<_>>>()?.into_iter().max()
        })
    }

    /// How large records in files are at the most, where they have been looked at.
    fn record_bytes(&self) -> Option<u64> {
        self.inputs().into_iter().filter_map(|input| input.record_bytes()).max()
    }

    /// How many elements there are, where a look through files tells before they are read in earnest.
    fn counted(&self) -> Option<u64> {
        self.cardinality().known()
    }

    /// What is held from the first use on, for all passes.
    fn kept_bytes(&self) -> Option<u64> {
        self.inputs().into_iter().map(|input| input.kept_bytes()).sum()
    }

    /// At most how many elements there are, and how many bytes they have together; `None` where only running tells.
    fn total(&self) -> Option<Total> {
        match &self.inputs()[..] {
            // Elements are handed on, or left out.
            [input] if self.spec() == input.spec() && self.cardinality() != Cardinality::Infinite => input.total(),
            _ => None,
        }
        .or_else(|| Total::of(self.cardinality().known()?, self.largest()?))
    }

    /// How many rows the elements have, where they are batches.
    fn batch_sizes(&self) -> Option<BatchSizes> {
        let inputs = self.inputs();
        let sizes = || inputs.iter().map(|input| input.batch_sizes()).collect::<Option<Vec<_>>>();
        self.spec().batch_sizes(|| {
            // Elements are handed on; which of them comes last is the stage's own affair.
            Some(BatchSizes { most: sizes()?.into_iter().map(|s| s.most).max()?, last: None })
        })
    }

    /// How many elements of the input have been used when so many have been given, where arithmetic tells; asked of streams with
    /// one input.
    fn used(&self, given: u64) -> Option<u64> {
        let _ = given;
        None
    }

    /// Where the stage notes that, when arithmetic does not tell.
    fn trail(&self) -> Option<Key> {
        None
    }

    /// For `parallel`: the function that is applied to every element of the input.
    fn transform(&self) -> Option<Arc<dyn crate::stages::Transform>> {
        None
    }
}

pub(crate) fn describe(node: &dyn Node) -> String {
    let mut text = String::new();
    for input in node.inputs() {
        text += &describe(&**input);
        text += "\n";
    }
    text + &node.describe()
}

/// The elements of a link by number, measured.
pub(crate) fn open_lookup(node: &Arc<dyn Node>, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
    let Some(lookup) = node.lookup(open)? else { return Ok(None) };
    let clock = open.profile.clock(&node.describe());
    Ok(Some(Arc::new(Measured { lookup, clock })))
}

/// The elements of a link that are by number, where the caller knows that they are.
pub(crate) fn expect_lookup(node: &Arc<dyn Node>, open: &Open) -> Result<Arc<dyn Lookup>, Error> {
    open_lookup(node, open)?.ok_or_else(|| {
        Error::pipeline(node.describe(), "says that its elements can be found by number, but has no way")
    })
}

/// The elements of a link one after another: by number in order where that is possible, ahead of use where that was asked for.
pub(crate) fn open_flow(node: &Arc<dyn Node>, open: &Open, epoch: u64) -> Result<Flow, Error> {
    let (spec, size) = (node.spec().clone(), open.size(&**node));
    if !node.is_lookup() {
        let stage = node.stage(open, epoch)?;
        return Ok(Flow::new(stage, spec, open, &node.describe()).of_size(size));
    }
    let lookup = expect_lookup(node, open)?;
    Ok(match node.lead() {
        Some(lead) => {
            let ahead = Ahead::of_lookup(lookup, spec.clone(), size, epoch, lead, open);
            Flow::new(Box::new(ahead), spec, open, "hand-over")
        }
        None => Flow::new(Box::new(InOrder::new(lookup, epoch)), spec, open, "hand-over"),
    }
    .of_size(size))
}
