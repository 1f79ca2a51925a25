//! Going through a data set.

use crate::builder::Builder;
use crate::column::{Chunk, Element};
use crate::dataset::{Node, describe, open_flow};
use crate::flow::{Flow, Open};
use crate::least::least_bytes;
use crate::pages::{self, Reuse};
use crate::permutation::mix;
use crate::profile::Report;
use crate::trail::Mark;
use crate::{Error, Spec};
use plimsoll_budget::{Budget, Bytes};
use plimsoll_tensor::Shape;
use std::sync::{Arc, OnceLock};

/// How to go through a data set.
#[derive(Clone, Debug)]
pub struct Options {
    budget: Budget,
    account: String,
    epoch: u64,
    threads: usize,
}

impl Options {
    /// With memory from this budget: the first epoch, at most one thread per core.
    pub fn new(budget: &Budget) -> Options {
        // The system is asked once: it answers by reading several files.
        static CORES: OnceLock<usize> = OnceLock::new();
        let threads = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        Options { budget: budget.clone(), account: "pipeline".into(), epoch: 0, threads }
    }

    /// In the name of this account.
    pub fn account(mut self, name: &str) -> Options {
        self.account = name.into();
        self
    }

    /// Which pass over the data this is: each has its own order where there is a shuffle.
    pub fn epoch(mut self, epoch: u64) -> Options {
        self.epoch = epoch;
        self
    }

    /// At most this many threads where measuring decides.
    pub fn threads(mut self, threads: usize) -> Options {
        self.threads = threads.max(1);
        self
    }
}

/// The elements of a data set, one after another.
///
/// An error stands for one element; asking again goes on behind it.
pub struct Iter {
    node: Arc<dyn Node>,
    flow: Flow,
    spec: Arc<Spec>,
    epoch: u64,
    /// Elements made and not given out, and what comes behind them.
    current: Option<Chunk>,
    used: usize,
    follows: Option<Result<bool, Error>>,
    given: u64,
    digest: u64,
    description: String,
    block: usize,
    /// The least memory of the pass, and what others held when it began.
    planned: Option<(u64, u64)>,
    /// The last to go.
    _reuse: Reuse,
}

impl Iter {
    pub(crate) fn open(node: Arc<dyn Node>, options: &Options) -> Result<Iter, Error> {
        Iter::open_at(node, options, 0, &[])
    }

    fn open_at(node: Arc<dyn Node>, options: &Options, given: u64, marks: &[Mark]) -> Result<Iter, Error> {
        let account = options.budget.account(&options.account);
        let reuse = Reuse::new(&account);
        // Without a limit nobody has to know.
        let least = account.budget().limit().and_then(|_| least_bytes(&*node));
        let taken = account.budget().limit().map_or(0, |limit| limit.0.saturating_sub(pages::left(&account)));
        let open = Open::beyond(account, options.threads, least);
        open.trails.begin(&node, given, marks);
        let description = describe(&*node);
        let digest = description.bytes().fold(mix(1), |digest, byte| mix(digest ^ byte as u64));
        let flow = open_flow(&node, &open, options.epoch)?;
        let spec = node.spec().clone();
        let block = open.block(flow.size, 32 << 10);
        Ok(Iter {
            node,
            flow,
            spec,
            epoch: options.epoch,
            current: None,
            used: 0,
            follows: None,
            given: 0,
            digest,
            description,
            block,
            planned: least.map(|least| (least, taken)),
            _reuse: reuse,
        })
    }

    pub(crate) fn resume(node: Arc<dyn Node>, position: &[u8], options: &Options) -> Result<Iter, Error> {
        let Some(Position { digest, epoch, given, marks }) = Position::decode(position) else {
            return Err(Error::pipeline("resume", "these bytes are not a position saved by `Iter::save`"));
        };
        let mut iter = Iter::open_at(node, &options.clone().epoch(epoch), given, &marks)?;
        if digest != iter.digest {
            let here = format!("{:016x}\n{}", iter.digest, iter.description);
            return Err(Error::OtherPipeline { saved: format!("{digest:016x}"), here });
        }
        let skipped = iter.flow.skip(given)?;
        if skipped != given {
            let message = format!("the position is behind {given} elements, but there are only {skipped}");
            return Err(Error::pipeline("resume", message));
        }
        iter.given = given;
        Ok(iter)
    }

    /// The place behind the elements given out so far, in a few bytes.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Dataset, Options};
    /// let data = Dataset::range(0, 1000, 1).shuffle(None, 3);
    /// let budget = Budget::unlimited();
    /// let mut iter = data.iter(&budget)?;
    /// let first: Vec<i64> = iter.by_ref().take(600).map(|e| e.unwrap().get("value").unwrap()[0]).collect();
    /// let position = iter.save();
    /// assert!(position.len() < 40);
    /// let rest = data.resume(&position, &Options::new(&budget))?.map(|e| e.unwrap().get("value").unwrap()[0]);
    /// let mut all: Vec<i64> = first.into_iter().chain(rest).collect();
    /// all.sort();
    /// assert!(all.into_iter().eq(0..1000));
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn save(&self) -> Vec<u8> {
        let marks = self.flow.open.trails.marks(&self.node, self.given);
        Position { digest: self.digest, epoch: self.epoch, given: self.given, marks }.encode()
    }

    /// What every element looks like.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How many elements have been given out since the epoch began, errors included.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Where the time went so far.
    pub fn report(&self) -> Report {
        self.flow.open.profile.report()
    }

    /// Puts the next element together in memory of the caller, one stretch per component, and says what shapes were written;
    /// `None` at the end.
    ///
    /// Without a `prefetch` at the end of the chain the source writes there directly; with one, the finished element is
    /// copied once. A component for which there is no memory is made and dropped; those of strings cannot be given any.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let mut iter = Dataset::range(0, 5, 1).batch(4).iter(&Budget::unlimited())?;
    /// let mut memory = [0u64; 4];
    /// let bytes: &mut [u8] = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 32) };
    /// let shapes = iter.next_into(&mut [Some(bytes)])?.unwrap();
    /// assert_eq!(shapes[0].dims(), [4]);
    /// assert_eq!(memory, [0, 1, 2, 3]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the element is bad, or the memory does not have the place or the alignment for it.
    pub fn next_into(&mut self, memory: &mut [Option<&mut [u8]>]) -> Result<Option<Vec<Shape>>, Error> {
        let components = self.spec.components();
        if memory.len() != components.len() {
            let message =
                format!("there are {} components, but {} stretches of memory", components.len(), memory.len());
            return Err(Error::pipeline("next_into", message));
        }
        for (component, memory) in components.iter().zip(memory.iter()) {
            let Some(memory) = memory else { continue };
            let crate::Kind::Number(dtype) = component.kind else {
                let message = format!("component '{}' holds strings, which need memory of their own", component.name);
                return Err(Error::pipeline("next_into", message));
            };
            if !(memory.as_ptr() as usize).is_multiple_of(dtype.size()) {
                let message = format!("the memory for '{}' does not begin at a multiple of {dtype}", component.name);
                return Err(Error::pipeline("next_into", message));
            }
        }
        let mut out = Builder::given(&self.flow.open.account, &self.spec, memory)?;
        if let Some(chunk) = &self.current {
            let used = self.used;
            out.append(chunk, used..used + 1)?;
            self.advance();
        } else {
            if let Some(follows) = self.follows.take()
                && !self.goes_on(follows)?
            {
                return Ok(None);
            }
            while out.rows() == 0 {
                let result = self.flow.fill(&mut out, 1);
                if out.rows() > 0 {
                    // What comes behind the element is told when it is asked for.
                    self.follows = Some(result);
                } else if !self.goes_on(result)? {
                    return Ok(None);
                }
            }
        }
        self.given += 1;
        Ok(Some(out.columns.iter().map(|c| *c.shape(0)).collect()))
    }

    fn advance(&mut self) {
        self.used += 1;
        if self.current.as_ref().is_some_and(|c| c.rows == self.used) {
            self.current = None;
        }
    }

    /// Names the record that there was no room for, where one was larger than planned for.
    fn explained(&self, error: Error) -> Error {
        let (Error::OverBudget(over), Some((least, taken))) = (&error, self.planned) else { return error };
        let planned = self.node.record_bytes().unwrap_or(u64::MAX);
        match self.flow.open.longest().filter(|(_, bytes)| *bytes > planned) {
            None => error,
            Some((place, bytes)) => {
                // Nothing grows faster than the records do.
                let limit = least.saturating_mul(bytes.div_ceil(planned.max(1))).saturating_add(taken);
                let (bytes, planned) = (Bytes(bytes), Bytes(planned));
                Error::TooLarge { place, bytes, planned, limit: Bytes(limit), error: over.clone() }
            }
        }
    }

    fn goes_on(&mut self, follows: Result<bool, Error>) -> Result<bool, Error> {
        match follows {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.follows = Some(Ok(false));
                Ok(false)
            }
            Err(error) => {
                self.given += error.is_data() as u64;
                if !error.is_data() {
                    self.follows = Some(Ok(false));
                }
                Err(self.explained(error))
            }
        }
    }
}

impl Iterator for Iter {
    type Item = Result<Element, Error>;

    fn next(&mut self) -> Option<Result<Element, Error>> {
        loop {
            if let Some(chunk) = &self.current {
                let chunk = if chunk.rows == 1 { chunk.clone() } else { chunk.slice(self.used..self.used + 1) };
                let element = Element { spec: self.spec.clone(), chunk, index: self.given, epoch: self.epoch };
                self.advance();
                self.given += 1;
                return Some(Ok(element));
            }
            if let Some(follows) = self.follows.take() {
                match self.goes_on(follows) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
            let (chunk, follows) = self.flow.chunk(self.block);
            self.follows = Some(follows);
            if chunk.rows > 0 {
                if self.spec.bytes().is_none() {
                    self.block = self.flow.open.block_like(&chunk, self.flow.size, self.block, 32 << 10);
                }
                (self.current, self.used) = (Some(chunk), 0);
            }
        }
    }
}

const MAGIC: [u8; 8] = *b"plimpos1";

/// What is saved: which pipeline, which pass, how many elements were given; and the marks of stages that leave elements out.
struct Position {
    digest: u64,
    epoch: u64,
    given: u64,
    marks: Vec<Mark>,
}

impl Position {
    fn encode(&self) -> Vec<u8> {
        let words = [self.digest, self.epoch, self.given];
        let words = words.into_iter().chain(self.marks.iter().flat_map(|mark| [mark.given, mark.used]));
        MAGIC.into_iter().chain(words.flat_map(u64::to_le_bytes)).collect()
    }

    fn decode(position: &[u8]) -> Option<Position> {
        let (words, []) = position.strip_prefix(&MAGIC)?.as_chunks::<8>() else { return None };
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [digest, epoch, given, ref marks @ ..] = words[..] else { return None };
        let (marks, []) = marks.as_chunks::<2>() else { return None };
        let marks = marks.iter().map(|[given, used]| Mark { given: *given, used: *used }).collect();
        Some(Position { digest, epoch, given, marks })
    }
}
