//! From a graph to a plan: what runs when, and where every byte is, before anything runs.
//!
//! [`plan`] is a pure function: no clock, no thread, no file, no randomness. The same graph and options give the same
//! [`Plan`], byte for byte. Its phases are functions of their own, each in its file, in this order: [`fuse`](fuse::fuse),
//! [`schedule`](schedule::schedule), under a limit [`evict`](evict::evict()), [`lifetimes`](lifetime::lifetimes),
//! [`place`](place::place()). Then [`check()`] proves the
//! result safe without using any of them, and [`explain()`] says what is alive at the peak.
//!
//! ```
//! use plimsoll_graph::Graph;
//! use plimsoll_plan::{Options, StateLayout, plan};
//! use plimsoll_tensor::{DType, TensorType};
//! let mut g = Graph::new();
//! let x = g.input("x", TensorType::new(DType::F32, [256]));
//! let y = g.exp(x).unwrap();
//! let z = g.neg(y).unwrap();
//! g.output("z", z);
//! let plan = plan(&g, &StateLayout::default(), &Options::default()).unwrap();
//! // Both ops are one pass over memory that writes over its input.
//! assert_eq!(plan.instructions.len(), 1);
//! assert!(plan.arena_bytes < 20_000);
//! ```

pub mod check;
pub mod choose;
pub mod cost;
pub mod evict;
pub mod explain;
pub mod fuse;
pub mod lifetime;
mod limit;
pub mod place;
mod predict;
pub mod schedule;
pub mod split;
mod windows;

pub use check::{Violation, check};
pub use choose::{Choice, Chooser, Step};
pub use cost::CostModel;
pub use explain::{Explanation, explain};

use lifetime::{Buffer, Home, Kind};
use plimsoll_graph::{Graph, GraphError, NodeId};
use plimsoll_tensor::TensorType;
use std::collections::BTreeMap;
use std::ops::Range;
use windows::{Packing, Transfers};

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The number of threads that will run it; some workspaces grow with it.
    pub threads: usize,
    /// How hard to try to pack the arena.
    pub effort: place::Effort,
    /// The most bytes that the arena may have; `None` for as many as the plain plan needs.
    pub limit: Option<u64>,
    /// What ops and transfers cost.
    pub costs: cost::CostModel,
    /// Whether values may be dropped and computed again to keep the limit.
    pub recompute: bool,
    /// Whether values may be moved to the spill file to keep the limit.
    pub spill: bool,
    /// How hard to look for the cheapest way to keep the limit.
    pub search: evict::Effort,
    /// Whether a step may run on slices of its batch to keep the limit (see [`Chooser`]).
    pub split: bool,
    /// Memory outside the arena that every node of a plan takes: a step that is cut into many slices has many.
    pub node_bytes: u64,
    /// What the room of the arena of a [`Choice`] is for besides its plans.
    pub reserve: Reserve,
}

/// What the room of an arena is for besides the plans that are made first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reserve {
    /// Somebody needs so many bytes while no step runs.
    pub least: u64,
    /// Other plans may come that are packed a little less well.
    pub spare: bool,
}

impl Reserve {
    /// Bytes that an arena counts for.
    pub fn of(self, arena: u64) -> u64 {
        let spare = if self.spare { arena / 64 + (16 << 10) } else { 0 };
        (arena + spare).max(self.least)
    }

    /// An arena with nodes beside it that leaves so much to spare in so many bytes.
    pub(crate) fn within(self, space: u64) -> u64 {
        if self.spare { space.saturating_sub(space / 65 + (16 << 10)) } else { space }
    }
}

impl Options {
    /// Bytes that an arena and so many nodes count for.
    pub(crate) fn size(&self, arena: u64, nodes: usize) -> u64 {
        self.reserve.of(arena) + self.node_bytes * nodes as u64
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: 1,
            effort: place::Effort::default(),
            limit: None,
            costs: cost::CostModel::default(),
            recompute: true,
            spill: false,
            search: evict::Effort::default(),
            split: true,
            node_bytes: 0,
            reserve: Reserve::default(),
        }
    }
}

/// Where the states are: the same for all plans of a model, which so share them.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StateLayout {
    places: BTreeMap<String, (u64, TensorType)>,
    bytes: u64,
    /// States whose home is the spill file: a step reads them when it needs them and writes back what it changed.
    filed: BTreeMap<String, (u64, TensorType)>,
    file_bytes: u64,
}

/// Values in the spill file begin at multiples of this: what direct transfers ask for.
pub const FILE_ALIGNMENT: u64 = 4096;

impl StateLayout {
    /// A layout of these states in memory, one after another.
    pub fn new<'a>(states: impl IntoIterator<Item = (&'a str, TensorType)>) -> StateLayout {
        StateLayout::with_file(states, |_| false)
    }

    /// A layout of these states, some of which live in the spill file.
    pub fn with_file<'a>(
        states: impl IntoIterator<Item = (&'a str, TensorType)>,
        in_file: impl Fn(&str) -> bool,
    ) -> StateLayout {
        let mut layout = StateLayout::default();
        for (name, ty) in states {
            let bytes = ty.bytes() as u64;
            if in_file(name) {
                layout.filed.insert(name.to_owned(), (layout.file_bytes, ty));
                layout.file_bytes += bytes.next_multiple_of(FILE_ALIGNMENT);
            } else {
                layout.places.insert(name.to_owned(), (layout.bytes, ty));
                layout.bytes += bytes.next_multiple_of(place_alignment());
            }
        }
        layout
    }

    /// Offset in memory and type of a state that is in memory.
    pub fn get(&self, name: &str) -> Option<(u64, TensorType)> {
        self.places.get(name).copied()
    }

    /// Slot in the spill file and type of a state that lives there.
    pub fn in_file(&self, name: &str) -> Option<(u64, TensorType)> {
        self.filed.get(name).copied()
    }

    /// All states in memory, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64, TensorType)> {
        self.places.iter().map(|(name, &(offset, ty))| (name.as_str(), offset, ty))
    }

    /// All states in the spill file, by name.
    pub fn iter_file(&self) -> impl Iterator<Item = (&str, u64, TensorType)> {
        self.filed.iter().map(|(name, &(slot, ty))| (name.as_str(), slot, ty))
    }

    /// The size of all states in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of all states in the spill file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }
}

fn place_alignment() -> u64 {
    64
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This many bytes into the states.
    State(u64),
    /// This many bytes into the arena.
    Arena(u64),
}

/// One step of a plan: a node, and its scratch memory in the arena.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// What runs.
    pub node: NodeId,
    /// Where its scratch memory is.
    pub workspace: Option<Range<u64>>,
}

/// What runs when, and where every byte is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The graph after fusing; instructions and places speak of it.
    pub graph: Graph,
    /// The steps, in order.
    pub instructions: Vec<Instruction>,
    /// By value of the graph.
    pub places: Vec<Option<Place>>,
    /// The buffers with their lifetimes, and their offsets.
    pub buffers: Vec<(Buffer, u64)>,
    /// The states.
    pub state: StateLayout,
    /// The size of the arena.
    pub arena_bytes: u64,
    /// The largest number of bytes alive at once: no arena could be smaller.
    pub live_bytes: u64,
    /// The number of threads it was made for.
    pub threads: usize,
    /// What is computed more than once or moved to the file to keep the limit.
    pub recomputed: Recompute,
    /// The size of the spill file that it needs, the states there included; 0 for none.
    pub file_bytes: u64,
    /// How the batch was cut into slices; `None` when it runs whole.
    pub split: Option<split::SplitInfo>,
}

/// What a plan computes more than once or moves to the file.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Recompute {
    /// How many nodes run again.
    pub nodes: usize,
    /// The time of the step as estimated, 0 where nothing was estimated.
    pub seconds: f64,
    /// Of which for running again and for waiting for the file.
    pub extra_seconds: f64,
    /// The time with a hundredth of that of all transfers: what plans are compared by.
    pub score: f64,
    /// A time that every plan within the limit takes, as estimated.
    pub bound: f64,
    /// How many values are written or read.
    pub transfers: usize,
    /// Bytes written to the file in a step.
    pub written: u64,
    /// Bytes read from the file in a step.
    pub read: u64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The graph breaks its own rules.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A state of the graph is not in the layout, or has another type there.
    #[error("state '{name}' is {found} in the graph, but {expected} in the layout")]
    State {
        /// Its name.
        name: String,
        /// Its type in the graph.
        found: Box<TensorType>,
        /// What the layout says.
        expected: String,
    },
    /// No plan keeps the limit.
    #[error(
        "the step does not fit in {limit} bytes; the smallest that would do is {smallest}, without a limit {unlimited}; {floor_op} alone needs {floor}"
    )]
    DoesNotFit {
        /// The limit of the arena.
        limit: u64,
        /// The smallest limit for which a plan was found; it does not depend on the limit asked for.
        smallest: u64,
        /// What no plan of this graph can do without.
        floor: u64,
        /// The op that needs that much, and its layer.
        floor_op: String,
        /// What the plain plan needs.
        unlimited: u64,
        /// What is alive at the peak of the plain plan.
        peak: Box<Explanation>,
    },
    /// A bug of the planner, found by the checker before anything ran.
    #[error(transparent)]
    Unsafe(#[from] Violation),
}

/// Plans a graph. Under a limit that the plain plan does not keep, values are dropped and computed again or moved to the file.
///
/// # Errors
/// When the graph is broken, its states are not in the layout, or no plan keeps the limit.
pub fn plan(graph: &Graph, state: &StateLayout, options: &Options) -> Result<Plan, PlanError> {
    graph.verify()?;
    let graph = fuse::fuse(graph)?;
    let order = schedule::schedule(&graph);
    for (value, _) in graph.states() {
        find_state(&graph, value, state)?;
    }
    let plan = limit::plan_within(graph, &order, state, options)?;
    check(&plan.graph, &plan)?;
    Ok(plan)
}

/// The part of the work for packing that is put into transfers that take as long as was wished for, before they are made shorter.
const SOON: u64 = 16;

/// A plan of a graph whose nodes run in this order, in an arena of at most `limit` bytes if one is found.
fn assemble(
    graph: Graph,
    order: &[NodeId],
    state: &StateLayout,
    options: &Options,
    Packing { limit, effort, transfers }: Packing,
) -> Result<Plan, PlanError> {
    let mut lives = lifetime::lifetimes(&graph, order, options.threads);
    let sizes: Vec<place::Buffer> =
        lives.buffers.iter().map(|b| place::Buffer { bytes: b.bytes, first: b.first, last: b.last }).collect();
    let shorter = if limit > 0 { windows::Shorter::of(&graph, order, &lives) } else { None };
    let mut order = std::borrow::Cow::Borrowed(order);
    let placement = match shorter {
        None => place::place_within(&sizes, limit, effort),
        Some(shorter) => {
            // Their times as wished fit soon or are not worth a search.
            let soon = place::Effort { work: (effort.work / SOON).max(place::Effort::ORDERS.work) };
            let wished = (transfers == Transfers::Long)
                .then(|| place::place_within(&sizes, limit, soon))
                .filter(|wished| wished.height <= limit);
            wished.unwrap_or_else(|| {
                let fitted = shorter.fit(&order, lives.clone(), Packing { limit, effort, transfers });
                (lives, order) = (fitted.lives, fitted.order.into());
                fitted.placement
            })
        }
    };

    let mut places = Vec::with_capacity(lives.homes.len());
    for (home, inside) in lives.homes.iter().zip(&lives.offsets) {
        places.push(match home {
            None => None,
            Some(Home::Buffer(b)) => Some(Place::Arena(placement.offsets[*b] + inside)),
            Some(Home::State(value)) => Some(Place::State(find_state(&graph, *value, state)? + inside)),
        });
    }
    let workspace = |step: usize| {
        let buffer = lives.workspaces[step]?;
        Some(placement.offsets[buffer]..placement.offsets[buffer] + lives.buffers[buffer].bytes)
    };
    let instructions =
        order.iter().enumerate().map(|(i, &node)| Instruction { node, workspace: workspace(i) }).collect();
    Ok(Plan {
        instructions,
        places,
        buffers: lives.buffers.into_iter().zip(placement.offsets).collect(),
        state: state.clone(),
        arena_bytes: placement.height,
        live_bytes: placement.lower_bound,
        threads: options.threads,
        recomputed: Recompute::default(),
        file_bytes: state.file_bytes(),
        split: None,
        graph,
    })
}

/// Where a state is, in memory or in the file.
fn find_state(graph: &Graph, value: plimsoll_graph::Value, layout: &StateLayout) -> Result<u64, PlanError> {
    let plimsoll_graph::Source::State { name } = &graph.value(value).source else {
        unreachable!("only states live in states");
    };
    let found = *graph.ty(value);
    match layout.get(name).or_else(|| layout.in_file(name)) {
        Some((offset, ty)) if ty == found => Ok(offset),
        other => {
            let expected = other.map_or("absent".to_owned(), |(_, ty)| ty.to_string());
            Err(PlanError::State { name: name.clone(), found: Box::new(found), expected })
        }
    }
}

impl Plan {
    /// The bytes alive at each step.
    pub fn live_at_each_step(&self) -> Vec<u64> {
        let mut change = vec![0i64; self.instructions.len() + 2];
        for (buffer, _) in &self.buffers {
            let bytes = buffer.bytes.next_multiple_of(place_alignment()) as i64;
            change[buffer.first as usize] += bytes;
            change[buffer.last as usize + 1] -= bytes;
        }
        let mut live = 0;
        change[..self.instructions.len()]
            .iter()
            .map(|c| {
                live += c;
                live as u64
            })
            .collect()
    }

    /// Whether a buffer is scratch memory.
    pub fn is_workspace(buffer: &Buffer) -> bool {
        buffer.kind == Kind::Workspace
    }
}
