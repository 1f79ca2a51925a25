//! Splitting in time: the step runs on one slice of the batch after another, and what is summed over the batch adds up.
//!
//! The result is an ordinary graph in which the nodes that are cut stand once for every slice, in the order in which they
//! run. Every op says for itself how it relates to slices (`OpDef::split`) and which slices give the same bits as the whole
//! batch (`OpDef::exact_part`). A node that cannot be cut, or not exactly, runs on the whole batch: the pieces of its inputs
//! are put together before it, and what needs its outputs comes after all slices. So the numbers never change, whatever is
//! cut, and nothing is promised by the user.
//!
//! A sum that is larger than what it is made from is not added up, either: while the slices run, what it is made from is kept, and it is made at once after them.
//! The gradient of a table of which a batch reads a few rows is such a sum, and that of a wide layer by few entries.
//!
//! While slices add up, all other sums are there: the gradients of all weights, mostly, which may be more than the slices save. So a step can also be cut into
//! stretches of nodes, each of which runs on all slices before the next begins: then only the sums of one stretch are there, at the price of what the later
//! ones need of the earlier, for all slices.

use plimsoll_graph::op::adding::Adding;
use plimsoll_graph::op::pieces::{Blank, Paste, Piece};
use plimsoll_graph::op::shape::{Concat, Slice};
use plimsoll_graph::{Exact, Graph, GraphError, Node, NodeId, OpDef, Part, Sliced, Source, Split, Types, Value};
use plimsoll_tensor::TensorType;
use std::collections::HashMap;
use std::sync::Arc;

/// The batch: which inputs have it as their first axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number of entries.
    pub entries: usize,
    /// The names of the inputs that hold one row for every entry.
    pub inputs: Vec<String>,
}

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Entries of a slice; the last one has what is left.
    pub entries: usize,
    /// Cut only where the result has the same bits.
    pub exact: bool,
    /// Stretches of nodes that run on all slices one after another, with about as many bytes of sums in each.
    pub stretches: usize,
    /// Entries of the batch it was chosen for: one of fewer entries is cut at the same nodes, so that it has no more of them.
    pub chosen_for: Option<usize>,
}

impl Cut {
    /// Slices of so many entries that leave every bit as it is.
    pub fn exact(entries: usize) -> Cut {
        Cut { entries, exact: true, stretches: 1, chosen_for: None }
    }

    /// So many slices of a batch, whether they leave every bit as it is or not.
    pub fn into_slices(slices: usize, entries: usize) -> Cut {
        Cut { exact: false, ..Cut::exact(entries.div_ceil(slices)) }
    }

    /// The same for a batch of fewer entries than it was chosen for.
    pub fn for_fewer(self, chosen_for: usize) -> Cut {
        Cut { chosen_for: Some(chosen_for), ..self }
    }
}

/// How a step was cut into slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitInfo {
    /// How many slices.
    pub slices: usize,
    /// Entries of the batch in a slice; the last one has what is left.
    pub entries: usize,
    /// Stretches of nodes that run on all slices one after another, as asked for.
    pub stretches: usize,
    /// How often the slices are gone through: for every stretch, and anew after what needs the whole batch.
    pub rounds: usize,
    /// Bytes of all sums over the slices.
    pub summed: u64,
    /// How many nodes of the step run on slices.
    pub cut_nodes: usize,
    /// Whether the bits are those of the whole batch.
    pub exact: bool,
    /// The op that puts most of the batch together again, and its layer; `None` when nothing large stands in the way.
    pub barrier: Option<String>,
}

impl SplitInfo {
    /// The cut.
    pub fn cut(&self) -> Cut {
        Cut { exact: self.exact, stretches: self.stretches, ..Cut::exact(self.entries) }
    }
}

/// A step cut into slices.
#[derive(Clone, Debug)]
pub struct SplitGraph {
    /// The graph; its nodes stand in the order in which they run.
    pub graph: Graph,
    /// How it was cut.
    pub info: SplitInfo,
}

/// A node that needs the whole batch at once although its inputs are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The node.
    pub node: NodeId,
    /// Bytes of its operands that are put together for it.
    pub bytes: u64,
}

/// Nodes whose operands have no more bytes run on the whole batch where possible: cutting them gains nothing.
const SMALL: u64 = 64 << 10;

/// How each node runs.
#[derive(Clone, Debug)]
enum Way {
    Whole,
    /// On the whole batch, although it could run on slices: its sums are larger than the operands that are kept for it.
    AtOnce,
    /// On slices: how the inputs are presented, and what that makes of the outputs.
    Cut {
        inputs: Vec<Split>,
        outputs: Vec<Split>,
    },
}

/// Decides which nodes of a step run on slices.
pub struct Splitter<'a> {
    graph: &'a Graph,
    batch: &'a Batch,
    cut: Cut,
    ways: Vec<Way>,
    /// By value: how it relates to the batch, should it be cut; `Whole` for values that have nothing to do with it.
    relation: Vec<Split>,
    /// By value: whether it exists in pieces only.
    in_pieces: Vec<bool>,
}

impl<'a> Splitter<'a> {
    /// Decides how each node of a graph runs.
    pub fn new(graph: &'a Graph, batch: &'a Batch, cut: Cut) -> Splitter<'a> {
        let n_values = graph.values().len();
        let mut splitter = Splitter {
            graph,
            batch,
            cut,
            ways: Vec::with_capacity(graph.nodes().len()),
            relation: vec![Split::Whole; n_values],
            in_pieces: vec![false; n_values],
        };
        for (value, name) in graph.inputs() {
            if batch.inputs.iter().any(|n| n == name) {
                splitter.relation[value.0 as usize] = Split::Axis(0);
            }
        }
        for (id, _) in graph.nodes() {
            let way = splitter.decide(id);
            splitter.ways.push(way);
        }
        splitter
    }

    /// Of every node that could run on slices, and is not better run at once: the bytes of its operands, and which slices it needs for that.
    fn needs(&self) -> Vec<(u64, Exact)> {
        let on_slices = self.graph.nodes().filter(|(id, _)| !matches!(self.ways[id.0 as usize], Way::AtOnce));
        let related = on_slices.filter_map(|(_, node)| {
            let (in_types, out_types) = (self.types(&node.inputs), self.types(&node.outputs));
            let types = Types { inputs: &in_types, outputs: &out_types };
            let given: Vec<Split> = node.inputs.iter().map(|v| self.relation[v.0 as usize]).collect();
            let (inputs, _) = present(node, &given, &types)?;
            Some((types.bytes(), node.op.exact_part(&inputs, &types, self.batch.entries)))
        });
        related.collect()
    }

    /// Multiples of entries that suit the nodes that hold most of the memory, as far as they suit each other.
    fn unit(&self) -> usize {
        let needs = self.needs();
        let largest = needs.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
        let mut unit = 1;
        for (_, exact) in needs.iter().filter(|(bytes, exact)| *bytes >= largest / 20 && *exact != Exact::NONE) {
            let joint = lcm(unit, exact.multiple);
            unit = if joint <= self.batch.entries / 2 { joint } else { unit };
        }
        unit
    }

    /// How many nodes relate to the batch.
    fn related(&self) -> usize {
        let relates = |v: &Value| self.relation[v.0 as usize] != Split::Whole;
        self.graph.nodes().filter(|(_, node)| node.inputs.iter().any(relates)).count()
    }

    /// How many nodes run on slices.
    pub fn n_cut(&self) -> usize {
        self.ways.iter().filter(|w| matches!(w, Way::Cut { .. })).count()
    }

    fn is_cut(&self, id: NodeId) -> bool {
        matches!(self.ways[id.0 as usize], Way::Cut { .. })
    }

    /// A node's operands that exist in pieces.
    fn joined<'n>(&'n self, node: &'n Node) -> impl Iterator<Item = Value> + 'n {
        let inputs = node.inputs.iter().enumerate();
        let joined = inputs.filter(|(i, v)| self.in_pieces[v.0 as usize] && !node.inputs[..*i].contains(v));
        joined.map(|(_, &v)| v)
    }

    /// The nodes that need whole values that exist in pieces, largest first: what stands in the way of cutting.
    pub fn barriers(&self) -> Vec<Barrier> {
        let mut barriers: Vec<Barrier> = Vec::new();
        for (id, node) in self.graph.nodes() {
            if matches!(self.ways[id.0 as usize], Way::Whole) {
                let bytes = self.joined(node).map(|v| self.graph.ty(v).bytes() as u64).sum();
                if bytes > 0 {
                    barriers.push(Barrier { node: id, bytes });
                }
            }
        }
        barriers.sort_by_key(|b| (std::cmp::Reverse(b.bytes), b.node));
        barriers
    }

    fn types(&self, values: &[Value]) -> Vec<TensorType> {
        values.iter().map(|&v| *self.graph.ty(v)).collect()
    }

    fn decide(&mut self, id: NodeId) -> Way {
        let node = self.graph.node(id);
        let (in_types, out_types) = (self.types(&node.inputs), self.types(&node.outputs));
        let types = Types { inputs: &in_types, outputs: &out_types };
        let given: Vec<Split> = node.inputs.iter().map(|v| self.relation[v.0 as usize]).collect();
        let pieces = node.inputs.iter().any(|v| self.in_pieces[v.0 as usize]);
        let Some((inputs, outputs)) = present(node, &given, &types) else { return Way::Whole };
        for (&value, &split) in node.outputs.iter().zip(&outputs) {
            // A sum over the batch is whole once all slices are added.
            self.relation[value.0 as usize] = if split == Split::Partial { Split::Whole } else { split };
        }
        // What can be had whole at little cost, or for nothing, is whole; it still relates to the batch.
        let bytes: u64 = node.inputs.iter().chain(&node.outputs).map(|&v| self.bytes_chosen_for(v)).sum();
        let small = bytes <= SMALL || node.op.is_view();
        let is_at_once = self.is_better_at_once(node, &outputs);
        let whole = small && !pieces || !is_at_once && !self.is_cut_well(node, &inputs, &outputs, &types);
        for (&value, &split) in node.outputs.iter().zip(&outputs) {
            self.in_pieces[value.0 as usize] = !whole && matches!(split, Split::Axis(_));
        }
        match whole {
            true => Way::Whole,
            false if is_at_once => Way::AtOnce,
            false => Way::Cut { inputs, outputs },
        }
    }

    /// Whether all that a node makes are sums, and these are larger than the operands that would have to be kept for it.
    fn is_better_at_once(&self, node: &Node, outputs: &[Split]) -> bool {
        let made: u64 = node.outputs.iter().map(|&v| self.bytes_chosen_for(v)).sum();
        let kept: u64 = self.joined(node).map(|v| self.bytes_chosen_for(v)).sum();
        outputs.iter().all(|split| *split == Split::Partial) && made > kept
    }

    /// Bytes of a value in the batch that the cut was chosen for.
    fn bytes_chosen_for(&self, value: Value) -> u64 {
        let bytes = self.graph.ty(value).bytes();
        let is_related = matches!(self.relation[value.0 as usize], Split::Axis(_));
        let entries = self.cut.chosen_for.filter(|_| is_related);
        entries.map_or(bytes, |entries| bytes.div_ceil(self.batch.entries) * entries) as u64
    }

    /// Whether a node may run on slices.
    fn is_cut_well(&self, node: &Node, inputs: &[Split], outputs: &[Split], types: &Types<'_>) -> bool {
        let entries = self.batch.entries;
        let exact = node.op.exact_part(inputs, types, entries);
        // An entry of several is computed as all of them are, so that one which may not be alone can stand there twice.
        let last = self.part(self.n_slices() - 1);
        let may_be_doubled = || {
            outputs.iter().all(|split| matches!(split, Split::Axis(_)))
                && self.on_part(node, last, inputs, outputs, types).is_none()
        };
        let times = exact.least.div_ceil(last.end - last.start);
        let is_exact =
            || self.cut.entries.is_multiple_of(exact.multiple) && (times == 1 || times == 2 && may_be_doubled());
        let bits = exact != Exact::NONE && (!self.cut.exact || is_exact());
        let sums = !outputs.contains(&Split::Partial) || node.op.adds();
        let even = |ty: &TensorType, s: &Split| match s {
            Split::Axis(axis) => ty.shape[*axis] != 0 && ty.shape[*axis].is_multiple_of(entries),
            _ => true,
        };
        bits && sums
            && node.op.mutates().is_empty()
            && types.inputs.iter().zip(inputs).all(|(t, s)| even(t, s))
            && types.outputs.iter().zip(outputs).all(|(t, s)| even(t, s))
            && [self.part(0), self.part(self.n_slices() - 1)].into_iter().all(|part| {
                let op = self.on_part(node, part, inputs, outputs, types).unwrap_or_else(|| node.op.clone());
                let ins: Vec<TensorType> = types.inputs.iter().zip(inputs).map(|(t, s)| part.of(t, *s)).collect();
                let outs: Vec<TensorType> = types.outputs.iter().zip(outputs).map(|(t, s)| part.of(t, *s)).collect();
                op.infer(&ins).is_ok_and(|found| found == outs)
            })
    }

    fn on_part(
        &self,
        node: &Node,
        part: Part,
        inputs: &[Split],
        outputs: &[Split],
        types: &Types<'_>,
    ) -> Option<Arc<dyn OpDef>> {
        node.op.on_part(&Sliced { part, inputs, outputs, types })
    }

    fn n_slices(&self) -> usize {
        self.batch.entries.div_ceil(self.cut.entries)
    }

    fn part(&self, slice: usize) -> Part {
        let start = slice * self.cut.entries;
        Part { start, end: (start + self.cut.entries).min(self.batch.entries), batch: self.batch.entries }
    }

    /// The step, cut.
    ///
    /// # Errors
    /// When the graph breaks its own rules.
    pub fn build(&self) -> Result<SplitGraph, GraphError> {
        self.build_on(&(0..self.n_slices()).collect::<Vec<_>>())
    }

    /// The step on three of its slices, the last one among them: it has all kinds of nodes that the step has on all slices, and no more of them than on few. It is to be
    /// looked at, not to be run.
    ///
    /// # Errors
    /// As [`Splitter::build`].
    pub fn sample(&self) -> Result<SplitGraph, GraphError> {
        let n = self.n_slices();
        self.build_on(&(0..n).filter(|&slice| slice < 2 || slice + 1 == n).collect::<Vec<_>>())
    }

    fn build_on(&self, slices: &[usize]) -> Result<SplitGraph, GraphError> {
        let stages = self.stages();
        let n_stages = stages.iter().max().map_or(0, |s| s + 1);
        let mut by_stage: Vec<(Vec<NodeId>, Vec<NodeId>)> = vec![(Vec::new(), Vec::new()); n_stages];
        for (id, _) in self.graph.nodes() {
            let (whole, cut) = &mut by_stage[stages[id.0 as usize]];
            if self.is_cut(id) { cut.push(id) } else { whole.push(id) }
        }
        let mut builder = Builder::new(self, slices.len());
        for (whole, cut) in &by_stage {
            for &id in whole {
                builder.whole_node(id)?;
            }
            for &slice in slices {
                for &id in cut {
                    builder.cut_node(id, slice)?;
                }
            }
        }
        for output in self.graph.outputs() {
            let value = builder.whole_value(output.value)?;
            builder.new.output(&output.name, value);
        }
        let barrier = self.barriers().into_iter().find(|b| b.bytes > SMALL);
        let info = SplitInfo {
            slices: self.n_slices(),
            entries: self.cut.entries,
            stretches: self.cut.stretches,
            rounds: by_stage.iter().filter(|(_, cut)| !cut.is_empty()).count(),
            summed: self.summed().sum(),
            cut_nodes: self.n_cut(),
            exact: self.cut.exact,
            barrier: barrier.map(|b| self.graph.describe(b.node)),
        };
        Ok(SplitGraph { graph: builder.new, info })
    }

    /// In which stage each node runs: a stage is whole nodes first, then cut ones, slice by slice. What a whole node needs of
    /// cut ones, all slices of an earlier stage have made, and the cut nodes of a stretch come after those of the one before. (That states are read before they are changed is `schedule`'s care.)
    fn stages(&self) -> Vec<usize> {
        let mut stages = vec![0; self.graph.nodes().len()];
        let all = self.summed().sum::<u64>().max(1);
        let mut before_it = 0;
        for ((id, node), summed) in self.graph.nodes().zip(self.summed()) {
            let stretch = (before_it * self.cut.stretches as u64 / all) as usize;
            before_it += summed;
            let before = node.inputs.iter().filter_map(|&v| {
                let producer = self.graph.producer(v)?;
                // A cut node follows its own slice of what is in pieces, and all slices of what is added up.
                let waits = self.is_cut(producer) && !(self.is_cut(id) && self.in_pieces[v.0 as usize]);
                Some(stages[producer.0 as usize] + waits as usize)
            });
            let at_least = if self.is_cut(id) { stretch } else { 0 };
            stages[id.0 as usize] = before.fold(at_least, usize::max);
        }
        stages
    }

    /// By node: bytes of what it adds up over the slices.
    fn summed(&self) -> impl Iterator<Item = u64> {
        self.graph.nodes().map(|(id, node)| match &self.ways[id.0 as usize] {
            Way::Whole | Way::AtOnce => 0,
            Way::Cut { outputs, .. } => {
                let sums = node.outputs.iter().zip(outputs).filter(|(_, split)| **split == Split::Partial);
                sums.map(|(v, _)| self.graph.ty(*v).bytes() as u64).sum()
            }
        })
    }
}

/// Slices worth trying, in entries, large ones first: multiples of what the nodes that hold most of the memory need for exact
/// slices, for about 2, 3, 4, 6, 8, .. slices.
pub fn candidates(graph: &Graph, batch: &Batch) -> Vec<usize> {
    // Everything that relates to the batch, however it would have to be cut.
    let splitter = Splitter::new(graph, batch, Cut::exact(batch.entries));
    let unit = splitter.unit();
    let units = batch.entries.div_ceil(unit);
    let counts = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    let mut sizes: Vec<usize> = Vec::new();
    for n in counts.into_iter().filter(|&n| n <= units && n * splitter.related() <= MOST_NODES) {
        let entries = units.div_ceil(n) * unit;
        if entries < batch.entries && sizes.last() != Some(&entries) {
            sizes.push(entries);
        }
    }
    sizes
}

/// The most nodes of a step that is cut: planning takes time for each.
const MOST_NODES: usize = 8_000;

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a.checked_div(x).map_or(0, |q| q * b)
}

/// How a node's inputs can be presented so that it runs on slices, and what its outputs are then. `None` when nothing of it
/// relates to the batch, or nothing can be done.
fn present(node: &Node, given: &[Split], types: &Types<'_>) -> Option<(Vec<Split>, Vec<Split>)> {
    if given.iter().all(|s| *s == Split::Whole) {
        return None;
    }
    let fits = |inputs: &[Split]| {
        let outputs = node.op.split(inputs, types);
        (!outputs.contains(&Split::Mixed)).then_some(outputs)
    };
    if let Some(outputs) = fits(given) {
        return Some((given.to_vec(), outputs));
    }
    // A whole value as long as the batch can be cut as well: one place for each entry. Which of its axes that is, counted from
    // the last or from the first, the op knows.
    let (axis, rank, size) = given.iter().zip(types.inputs).find_map(|(s, ty)| match s {
        Split::Axis(axis) => Some((*axis, ty.shape.rank(), ty.shape[*axis])),
        _ => None,
    })?;
    let from_last = |ty: &TensorType| (ty.shape.rank() + axis).checked_sub(rank);
    let from_first = |_: &TensorType| Some(axis);
    for place in [&from_last as &dyn Fn(&TensorType) -> Option<usize>, &from_first] {
        let mut inputs = given.to_vec();
        for (split, ty) in inputs.iter_mut().zip(types.inputs) {
            if let (Split::Whole, Some(axis)) = (*split, place(ty))
                && axis < ty.shape.rank()
                && ty.shape[axis] == size
            {
                *split = Split::Axis(axis);
            }
        }
        if let Some(outputs) = fits(&inputs) {
            return Some((inputs, outputs));
        }
    }
    None
}

/// The new graph while it is written.
struct Builder<'a> {
    splitter: &'a Splitter<'a>,
    /// How many slices there are.
    slices: usize,
    new: Graph,
    /// By old value: its whole new value, once there is one. For sums that are not complete yet, the sum so far.
    whole: Vec<Option<Value>>,
    /// By old value, axis and slice: its piece.
    pieces: HashMap<(Value, usize, usize), Value>,
    /// By old value: the value that pieces are pasted into, and how many have been.
    joined: HashMap<Value, (Value, usize)>,
    /// By old value: whether somebody will want it whole although it is in pieces.
    wanted_whole: Vec<bool>,
}

impl<'a> Builder<'a> {
    fn new(splitter: &'a Splitter<'a>, slices: usize) -> Builder<'a> {
        let graph = splitter.graph;
        let mut new = Graph::new();
        let mut whole = vec![None; graph.values().len()];
        for (value, info) in graph.values() {
            whole[value.0 as usize] = match &info.source {
                Source::Input { name } => Some(new.input(name, info.ty)),
                Source::State { name } => Some(new.state(name, info.ty)),
                Source::Node { .. } => None,
            };
        }
        let mut wanted_whole = vec![false; graph.values().len()];
        for (id, node) in graph.nodes() {
            if !splitter.is_cut(id) {
                node.inputs.iter().for_each(|v| wanted_whole[v.0 as usize] = true);
            }
        }
        graph.outputs().iter().for_each(|o| wanted_whole[o.value.0 as usize] = true);
        Builder { splitter, slices, new, whole, pieces: HashMap::new(), joined: HashMap::new(), wanted_whole }
    }

    fn whole_node(&mut self, id: NodeId) -> Result<(), GraphError> {
        let node = self.splitter.graph.node(id);
        self.new.set_layer(&node.layer);
        let inputs = node.inputs.iter().map(|&v| self.whole_value(v)).collect::<Result<Vec<Value>, GraphError>>()?;
        let outputs = self.new.push_shared(node.op.clone(), &inputs)?;
        for (from, to) in node.outputs.iter().zip(outputs) {
            self.whole[from.0 as usize] = Some(to);
        }
        Ok(())
    }

    /// A value as a whole: as it is, or with all its pieces pasted.
    fn whole_value(&mut self, value: Value) -> Result<Value, GraphError> {
        if let Some(whole) = self.whole[value.0 as usize] {
            return Ok(whole);
        }
        let (joined, n) = self.joined[&value];
        assert_eq!(n, self.slices, "all pieces are pasted before somebody wants the whole");
        Ok(joined)
    }

    fn cut_node(&mut self, id: NodeId, slice: usize) -> Result<(), GraphError> {
        let splitter = self.splitter;
        let node = splitter.graph.node(id);
        let Way::Cut { inputs: in_splits, outputs: out_splits } = &splitter.ways[id.0 as usize] else {
            unreachable!("only cut nodes are cut")
        };
        self.new.set_layer(&node.layer);
        let part = splitter.part(slice);
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (&value, &split) in node.inputs.iter().zip(in_splits) {
            inputs.push(match split {
                Split::Axis(axis) => self.piece(value, axis, slice)?,
                _ => self.whole_value(value)?,
            });
        }
        let (in_types, out_types) = (splitter.types(&node.inputs), splitter.types(&node.outputs));
        let types = Types { inputs: &in_types, outputs: &out_types };
        let least = node.op.exact_part(in_splits, &types, splitter.batch.entries).least;
        if splitter.cut.exact && part.end - part.start < least {
            return self.doubled_node(node, &inputs, (in_splits, out_splits), slice);
        }
        let mut op = splitter.on_part(node, part, in_splits, out_splits, &types).unwrap_or_else(|| node.op.clone());
        let sums: Vec<usize> = (0..out_splits.len()).filter(|&o| out_splits[o] == Split::Partial).collect();
        if slice > 0 && !sums.is_empty() {
            for &o in &sums {
                inputs.push(self.whole[node.outputs[o].0 as usize].expect("the first slice began the sum"));
            }
            op = Arc::new(Adding::new(op, sums));
        }
        let outputs = self.new.push_shared(op, &inputs)?;
        for ((&from, to), &split) in node.outputs.iter().zip(outputs).zip(out_splits) {
            match split {
                Split::Axis(axis) => self.keep_piece(from, to, axis, slice)?,
                _ => self.whole[from.0 as usize] = Some(to),
            }
        }
        Ok(())
    }

    fn keep_piece(&mut self, value: Value, piece: Value, axis: usize, slice: usize) -> Result<(), GraphError> {
        self.pieces.insert((value, axis, slice), piece);
        match self.wanted_whole[value.0 as usize] {
            true => self.paste(value, piece, axis, self.splitter.part(slice)),
            false => Ok(()),
        }
    }

    /// A node on a slice that is too small to be alone: what is cut stands there twice, and half of what comes out is taken.
    fn doubled_node(
        &mut self,
        node: &Node,
        inputs: &[Value],
        (in_splits, out_splits): (&[Split], &[Split]),
        slice: usize,
    ) -> Result<(), GraphError> {
        let mut twice = Vec::with_capacity(inputs.len());
        for (&input, split) in inputs.iter().zip(in_splits) {
            twice.push(match *split {
                Split::Axis(axis) => self.new.push1(Concat { axis }, &[input, input])?,
                _ => input,
            });
        }
        let outputs = self.new.push_shared(node.op.clone(), &twice)?;
        for ((&from, to), &split) in node.outputs.iter().zip(outputs).zip(out_splits) {
            let Split::Axis(axis) = split else { unreachable!("only what is cut alike is doubled") };
            let mut sizes = self.new.ty(to).dims().to_vec();
            sizes[axis] /= 2;
            let (starts, steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
            let half = self.new.push1(Slice { starts, sizes, steps }, &[to])?;
            self.keep_piece(from, half, axis, slice)?;
        }
        Ok(())
    }

    /// A value's piece for a slice, cut from the whole where it exists as a whole.
    fn piece(&mut self, value: Value, axis: usize, slice: usize) -> Result<Value, GraphError> {
        if let Some(&piece) = self.pieces.get(&(value, axis, slice)) {
            return Ok(piece);
        }
        let whole = self.whole_value(value)?;
        let ty = *self.new.ty(whole);
        let range = self.splitter.part(slice).along(ty.shape[axis]);
        let piece = if axis == 0 && Piece::is_aligned(&ty, range.start) {
            self.new.push1(Piece { start: range.start, len: range.len() }, &[whole])?
        } else {
            let rank = ty.shape.rank();
            let (mut starts, mut sizes) = (vec![0; rank], ty.dims().to_vec());
            (starts[axis], sizes[axis]) = (range.start, range.len());
            self.new.push1(Slice { starts, sizes, steps: vec![1; rank] }, &[whole])?
        };
        self.pieces.insert((value, axis, slice), piece);
        Ok(piece)
    }

    fn paste(&mut self, value: Value, piece: Value, axis: usize, part: Part) -> Result<(), GraphError> {
        let ty = *self.splitter.graph.ty(value);
        let (into, n) = match self.joined.get(&value) {
            Some(&known) => known,
            None => (self.new.push1(Blank { dtype: ty.dtype, shape: ty.shape }, &[])?, 0),
        };
        let joined = self.new.push1(Paste { axis, start: part.along(ty.shape[axis]).start }, &[into, piece])?;
        self.joined.insert(value, (joined, n + 1));
        Ok(())
    }
}
