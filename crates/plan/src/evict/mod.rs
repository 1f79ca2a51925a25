//! Eviction: values that do not fit leave memory and come back when they are needed, computed again or read from a file.
//!
//! The step is simulated under the limit with the future known (`simulate.rs`). Where a value does not fit, the resident value
//! leaves that is cheapest to have again for its size and for the time until it is needed (the idea of dynamic tensor
//! rematerialisation, with exact knowledge of the next use instead of guesses). Several settings of that trade are tried, and
//! the keys of single values are varied at random, with a fixed seed and a fixed amount of work, keeping what is cheaper
//! (`search.rs`). On chains the search begins from the structure that is best there (`chain.rs`); the smallest problems are solved
//! exactly (`exact.rs`). Bounds say what no plan can do (`bound.rs`).
//!
//! The result is an ordinary graph, in which a recomputed node simply stands twice and a transfer is a node, and an order of its
//! nodes (`rebuild.rs`): all phases after this one need to know nothing of evictions. Pure ops alone are repeated, and a random
//! value is a function of its key, so the numbers stay the same, bit for bit.

mod bound;
mod chain;
mod disk;
mod exact;
mod problem;
mod rebuild;
mod search;
mod simulate;

pub use bound::Floor;
pub use problem::{Problem, Start, Task, Unit};
pub use simulate::{Event, Run};

use crate::{Options, StateLayout};
use plimsoll_graph::{Graph, GraphError, NodeId};
use search::Search;

/// A graph in which some nodes stand more than once and some values are moved to a file, in the order it runs.
#[derive(Clone, Debug, Default)]
pub struct Evicted {
    /// The graph with repeated nodes and transfers.
    pub graph: Graph,
    /// The order of its nodes.
    pub order: Vec<NodeId>,
    /// How many nodes stand again.
    pub repeats: usize,
    /// Time of the step, by the cost model.
    pub seconds: f64,
    /// Of which for running nodes again and waiting for the file.
    pub extra_seconds: f64,
    /// The time with a hundredth of that of all transfers: what runs are compared by.
    pub score: f64,
    /// How many values are written or read.
    pub transfers: usize,
    /// Bytes written to the file.
    pub written: u64,
    /// Bytes read from the file.
    pub read: u64,
    /// The size of the file, the states there included.
    pub file_bytes: u64,
    /// Seconds that every plan within the limit takes, by the cost model.
    pub bound: f64,
}

/// How much work to put into the search: simulated tasks and looks at units, of which some ten million take a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// For any graph.
    pub base: u64,
    /// For every task of the graph.
    pub per_task: u64,
    /// States that the search for the best run of a small problem may remember, at some hundred bytes each.
    pub states: usize,
}

impl Effort {
    /// The first run that is found.
    pub const QUICK: Effort = Effort { base: 0, per_task: 0, states: 1 << 13 };
    /// About a second for a thousand tasks.
    pub const NORMAL: Effort = Effort { base: 1_000_000, per_task: 25_000, states: 1 << 15 };
}

impl Default for Effort {
    fn default() -> Effort {
        Effort::NORMAL
    }
}

impl Problem {
    /// The cheapest run found with at most `limit` bytes in memory, or `None` when none was found.
    pub fn solve(&self, limit: u64, effort: Effort) -> Option<Run> {
        Search::new(self).at(limit, self.bound(limit), effort)
    }
}

/// The cheapest way found to run a graph's nodes in this order with at most `limit` bytes alive, or `None` when none was found.
///
/// # Errors
/// When the graph breaks its own rules.
pub fn evict(
    graph: &Graph,
    order: &[NodeId],
    state: &StateLayout,
    limit: u64,
    options: &Options,
    effort: Effort,
) -> Result<Option<Evicted>, GraphError> {
    let problem = Problem::of(graph, order, state, options);
    Evictor::new(graph, state, &problem).at(limit, effort, f64::INFINITY)
}

/// As [`evict`], for one limit after another: what was found for one is where the search for the next begins.
pub(crate) struct Evictor<'a> {
    graph: &'a Graph,
    state: &'a StateLayout,
    problem: &'a Problem,
    search: Search<'a>,
}

impl<'a> Evictor<'a> {
    pub fn new(graph: &'a Graph, state: &'a StateLayout, problem: &'a Problem) -> Evictor<'a> {
        Evictor { graph, state, problem, search: Search::new(problem) }
    }

    /// Nothing where every run takes `below` seconds or more.
    pub fn at(&mut self, limit: u64, effort: Effort, below: f64) -> Result<Option<Evicted>, GraphError> {
        let bound = self.problem.bound(limit);
        let run = if bound < below { self.search.at(limit, bound, effort) } else { None };
        self.rebuilt(run, bound)
    }

    /// As [`Evictor::at`] with [`Effort::QUICK`], where nothing but the memory counts.
    pub fn at_any_cost(&mut self, limit: u64) -> Result<Option<Evicted>, GraphError> {
        let bound = self.problem.bound(limit);
        let cheaply = self.search.at(limit, bound, Effort::QUICK);
        let run = cheaply.or_else(|| if self.problem.spill { self.search.at_any_cost(limit) } else { None });
        self.rebuilt(run, bound)
    }

    fn rebuilt(&self, run: Option<Run>, bound: f64) -> Result<Option<Evicted>, GraphError> {
        let Some(run) = run else { return Ok(None) };
        let evicted = rebuild::rebuild(self.graph, self.problem, &run, self.state)?;
        Ok(Some(Evicted { bound, ..evicted }))
    }
}
