//! The picture of a plan: everything that a report needs to draw a step, as plain data.

use crate::analyse::{Analysis, analyse};
use crate::lines::{AccountLine, KeptLine, SCHEMA_VERSION};
use crate::{PLAN, RunError, SWEEP, TIMES};
use plimsoll::trace::Role;
use plimsoll::trainer::{Profile, SweepPoint, Trainer};
use plimsoll_graph::op::spill::Transfer;
use plimsoll_graph::{Node, Value};
use plimsoll_plan::cost::Work;
use plimsoll_plan::lifetime::Kind;
use plimsoll_plan::{CostModel, Plan};
use plimsoll_tensor::TensorType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// What runs when, and where every byte is: `plan.json`.
///
/// Steps are counted from 0. Sizes and offsets are in bytes; those of buffers are as placed, in multiples of 64.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanPicture {
    /// The version of this format: 1.
    pub schema: u32,
    /// What the user calls it.
    pub title: String,
    /// The memory limit of the process; null for none.
    pub limit: Option<u64>,
    /// The size of the arena.
    pub arena: u64,
    /// The largest number of bytes alive at once: no arena could be smaller.
    pub live: u64,
    /// The step at which that is so.
    pub peak_step: u64,
    /// The size of the states in memory.
    pub state_bytes: u64,
    /// The size of the spill file; 0 for none.
    pub file_bytes: u64,
    /// Threads that it was made for.
    pub threads: u64,
    /// What is done to keep the limit; null where that is not known.
    pub kept: Option<KeptLine>,
    /// Who holds how much of the limit; empty where nothing was reserved.
    pub ledger: Vec<AccountLine>,
    /// What is kept from step to step.
    pub states: Vec<StateLine>,
    /// What runs, in order.
    pub instructions: Vec<InstructionLine>,
    /// The pieces of the arena.
    pub buffers: Vec<BufferLine>,
}

/// A state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StateLine {
    /// Its name.
    pub name: String,
    /// `weight`, `statistic`, `moment` (of the optimizer) or `metric`; empty when not known.
    pub role: String,
    /// Element type and sizes.
    #[serde(rename = "type")]
    pub ty: String,
    /// Where in the states it begins; in the spill file if `in_file`.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Whether it lives in the spill file.
    pub in_file: bool,
}

/// A step of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstructionLine {
    /// The op.
    pub op: String,
    /// Its layer; empty outside layers.
    pub layer: String,
    /// What part of training it belongs to.
    pub phase: Phase,
    /// Whether it computes again what was computed before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
    /// Seconds as estimated; null when nothing was measured on this machine.
    pub seconds: Option<f64>,
    /// Bytes of the arena alive while it runs.
    pub live: u64,
    /// Bytes that begin to be written to the spill file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub written: u64,
    /// Bytes that begin to be read from the spill file.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub read: u64,
    /// Where in the file, for transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u64>,
}

fn is_false(b: &bool) -> bool {
    !b
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What part of training an op belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// What the loss, the metrics and running statistics need.
    Forward,
    /// Gradients.
    Backward,
    /// Changes weights and the optimizer's state.
    Update,
    /// Moves values to or from the spill file.
    Transfer,
}

/// A piece of the arena, in use from step `birth` to step `death`, both included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BufferLine {
    /// Where in the arena it begins.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// The step that first writes it.
    pub birth: u32,
    /// The step that last reads it.
    pub death: u32,
    /// What it is for.
    pub kind: BufferKind,
    /// Why it is there then.
    pub strategy: Strategy,
    /// The op that made it and the last that wrote over it; or the name of the input, or of the state that is read into it.
    pub what: String,
    /// Element type and sizes of what is first in it; empty for scratch memory.
    #[serde(rename = "type")]
    pub ty: String,
    /// The layer that made it; empty outside layers.
    pub layer: String,
    /// How many values live in it, one after another or as views of each other.
    pub values: u32,
    /// Another buffer that holds the same value at another time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<u32>,
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BufferKind {
    /// Given before the step: a batch, labels, the learning rate.
    Input,
    /// Computed on the way to the loss, and not needed for gradients.
    Activation,
    /// Computed on the way to the loss and needed again for gradients.
    Saved,
    /// Gradients.
    Gradient,
    /// Made while weights are changed.
    Update,
    /// A state that lives in the spill file, while a step uses it.
    State,
    /// Scratch memory of one op.
    Workspace,
}

/// Why a buffer is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// It stays from its making to its last use.
    Kept,
    /// It is given up early and computed again later.
    Dropped,
    /// It is the later computation.
    Recomputed,
    /// It goes to the spill file.
    Spilled,
    /// It came from the spill file.
    Fetched,
}

/// How long each step of a plan took: `times.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// The version of this format: 1.
    pub schema: u32,
    /// Training steps that were timed; the shortest time of each op counts.
    pub steps: u64,
    /// Seconds by instruction; null for those that have nothing to run.
    pub seconds: Vec<Option<f64>>,
}

impl Times {
    /// The times of a plan's ops from a profile of it; `None` when the profile is of another plan.
    pub fn of(plan: &Plan, profile: &Profile) -> Option<Times> {
        let mut ops = profile.ops.iter();
        let mut seconds = Vec::with_capacity(plan.instructions.len());
        for instruction in &plan.instructions {
            let node = plan.graph.node(instruction.node);
            seconds.push(if node.op.runs() {
                Some(ops.next().filter(|o| o.op == node.op.name() && *o.layer == *node.layer)?.time.as_secs_f64())
            } else {
                None
            });
        }
        ops.next().is_none().then_some(Times { schema: SCHEMA_VERSION, steps: profile.steps as u64, seconds })
    }
}

/// What other limits would cost: `sweep.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// The version of this format: 1.
    pub schema: u32,
    /// What the user calls it.
    pub title: String,
    /// From the smallest limit that works to one under which nothing has to be done.
    pub points: Vec<SweepLine>,
}

/// What a training step costs under a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepLine {
    /// The limit of the whole process.
    pub limit: u64,
    /// What is done to keep it.
    pub kept: KeptLine,
}

impl Sweep {
    /// Of points as the trainer gives them.
    pub fn of(title: &str, points: &[SweepPoint]) -> Sweep {
        let point = |p: &SweepPoint| SweepLine { limit: p.limit.0, kept: KeptLine::from(&p.kept) };
        Sweep { schema: SCHEMA_VERSION, title: title.into(), points: points.iter().map(point).collect() }
    }
}

/// What states are for, by name.
type Roles<'a> = Box<dyn Fn(&str) -> Option<Role> + 'a>;

/// A plan with what is known about it: what a [`PlanPicture`] is made from.
pub struct PlanSource<'a> {
    plan: &'a Plan,
    title: String,
    limit: Option<u64>,
    kept: Option<KeptLine>,
    ledger: Vec<AccountLine>,
    costs: Option<&'a CostModel>,
    role: Roles<'a>,
    analysis: Analysis,
}

impl<'a> PlanSource<'a> {
    /// A plan of which nothing else is known.
    pub fn new(title: &str, plan: &'a Plan) -> PlanSource<'a> {
        PlanSource::with(title, plan, Box::new(|_| None))
    }

    /// The training step of a trainer that has planned; `None` when it has not.
    pub fn of(title: &str, trainer: &'a Trainer) -> Option<PlanSource<'a>> {
        let plan = *trainer.planned().first()?;
        let mut source = PlanSource::with(title, plan, Box::new(|name| trainer.role_of(name)));
        let ledger = trainer.ledger();
        source.limit = ledger.limit.map(|b| b.0);
        source.ledger = AccountLine::all(&ledger);
        source.kept = trainer.kept().as_ref().map(KeptLine::from);
        source.costs = trainer.costs();
        Some(source)
    }

    fn with(title: &str, plan: &'a Plan, role: Roles<'a>) -> PlanSource<'a> {
        let analysis = analyse(plan, &*role);
        PlanSource {
            plan,
            title: title.into(),
            limit: None,
            kept: None,
            ledger: Vec::new(),
            costs: None,
            role,
            analysis,
        }
    }

    fn head(&self) -> PlanPicture {
        let live = self.plan.live_at_each_step();
        let peak = (0..live.len()).max_by_key(|&s| (live[s], std::cmp::Reverse(s))).unwrap_or(0);
        PlanPicture {
            schema: SCHEMA_VERSION,
            title: self.title.clone(),
            limit: self.limit,
            arena: self.plan.arena_bytes,
            live: live.get(peak).copied().unwrap_or(0),
            peak_step: peak as u64,
            state_bytes: self.plan.state.bytes(),
            file_bytes: self.plan.file_bytes,
            threads: self.plan.threads as u64,
            kept: self.kept.clone(),
            ledger: self.ledger.clone(),
            ..PlanPicture::default()
        }
    }

    fn states(&self) -> impl Iterator<Item = StateLine> {
        let line = |in_file: bool| {
            move |(name, offset, ty): (&str, u64, TensorType)| StateLine {
                name: name.to_owned(),
                role: (self.role)(name).map_or("", role_name).to_owned(),
                ty: ty.to_string(),
                offset,
                bytes: ty.bytes() as u64,
                in_file,
            }
        };
        self.plan.state.iter().map(line(false)).chain(self.plan.state.iter_file().map(line(true)))
    }

    fn instructions(&self) -> impl Iterator<Item = InstructionLine> {
        let live = self.plan.live_at_each_step();
        self.plan.instructions.iter().zip(live).enumerate().map(move |(step, (instruction, live))| {
            let graph = &self.plan.graph;
            let node = graph.node(instruction.node);
            let bytes = |v: Value| graph.ty(v).bytes() as u64;
            let (written, read, slot) = match node.op.transfer() {
                Some(Transfer::BeginWrite(slot)) => (bytes(node.inputs[0]), 0, Some(slot)),
                Some(Transfer::BeginRead(slot)) => (0, bytes(node.outputs[0]), Some(slot)),
                Some(Transfer::EndWrite(slot) | Transfer::EndRead(slot)) => (0, 0, Some(slot)),
                None => (0, 0, None),
            };
            InstructionLine {
                op: node.op.name().to_owned(),
                layer: node.layer.to_string(),
                phase: self.analysis.phases[step],
                again: self.analysis.again[step],
                seconds: self.costs.map(|costs| self.seconds(costs, node, written + read)),
                live,
                written,
                read,
                slot,
            }
        })
    }

    fn seconds(&self, costs: &CostModel, node: &Node, moved: u64) -> f64 {
        if node.op.transfer().is_some() {
            return costs.beside_seconds(moved);
        }
        if !node.op.runs() {
            return 0.0;
        }
        costs.seconds(node.op.name(), &Work::of(&self.plan.graph, node))
    }

    fn buffers(&self) -> impl Iterator<Item = BufferLine> {
        self.plan.buffers.iter().enumerate().map(|(b, (buffer, offset))| BufferLine {
            offset: *offset,
            bytes: buffer.bytes.next_multiple_of(64),
            birth: buffer.first,
            death: buffer.last,
            kind: self.analysis.kind(self.plan, buffer),
            strategy: self.analysis.strategies[b],
            what: self.what(b),
            ty: buffer.values.first().map(|&v| self.plan.graph.ty(v).to_string()).unwrap_or_default(),
            layer: buffer.node.map(|id| self.plan.graph.node(id).layer.to_string()).unwrap_or_default(),
            values: buffer.values.len() as u32,
            partner: self.analysis.partners[b],
        })
    }

    /// The op that made a buffer, or the input's name, or the name of the state that is read into it.
    fn what(&self, b: usize) -> String {
        let (graph, buffer) = (&self.plan.graph, &self.plan.buffers[b].0);
        let Some(node) = buffer.node.map(|id| graph.node(id)) else {
            let name = buffer.values.first().and_then(|v| graph.inputs().find(|(input, _)| input == v));
            return name.map(|(_, name)| name.to_owned()).unwrap_or_default();
        };
        match node.op.transfer() {
            Some(Transfer::BeginRead(slot)) => self.analysis.moved_states.get(&slot).cloned().unwrap_or_else(|| {
                let first = self.analysis.partners[b].and_then(|p| self.plan.buffers[p as usize].0.node);
                let op = first.map(|id| graph.node(id)).filter(|n| n.op.transfer().is_none());
                op.map_or_else(|| "read back".to_owned(), |n| format!("{}, read back", n.op.name()))
            }),
            _ if buffer.kind == Kind::Workspace => format!("workspace of {}", node.op.name()),
            _ => {
                // Others may write over it when it is needed no more.
                let mut makers = buffer.values.iter().filter_map(|&v| graph.producer(v)).map(|id| graph.node(id));
                match makers.rfind(|n| n.op.runs()) {
                    Some(last) if last.op.name() != node.op.name() => {
                        format!("{}, then {}", node.op.name(), last.op.name())
                    }
                    _ => node.op.name().to_owned(),
                }
            }
        }
    }

    /// The picture, in memory.
    pub fn picture(&self) -> PlanPicture {
        PlanPicture {
            states: self.states().collect(),
            instructions: self.instructions().collect(),
            buffers: self.buffers().collect(),
            ..self.head()
        }
    }

    /// Writes the picture as JSON, piece by piece: what that takes besides a few numbers per op does not grow with the plan.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn write(&self, mut out: impl Write) -> std::io::Result<()> {
        // The lists stand last, in the order of the fields, and are empty in the head.
        let mut head = serde_json::to_string(&self.head())?;
        let lists = head.find(r#""states":[]"#).expect("the head has the lists' fields");
        head.truncate(lists);
        out.write_all(head.as_bytes())?;
        write_list(&mut out, r#""states""#, self.states())?;
        write_list(&mut out, r#","instructions""#, self.instructions())?;
        write_list(&mut out, r#","buffers""#, self.buffers())?;
        out.write_all(b"}\n")
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Weight => "weight",
        Role::Statistic => "statistic",
        Role::Moment => "moment",
        Role::Metric => "metric",
    }
}

fn write_list<T: Serialize>(out: &mut impl Write, name: &str, items: impl Iterator<Item = T>) -> std::io::Result<()> {
    write!(out, "{name}:[")?;
    for (i, item) in items.enumerate() {
        out.write_all(if i == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &item)?;
    }
    out.write_all(b"]")
}

/// Writes `plan.json` of a run directory, under another name first so that no reader sees half of it.
///
/// # Errors
/// When the file cannot be written.
pub fn write_plan(directory: impl AsRef<Path>, source: &PlanSource<'_>) -> Result<(), RunError> {
    replace(&directory.as_ref().join(PLAN), |out| source.write(out))
}

/// Writes `times.json` of a run directory.
///
/// # Errors
/// When the file cannot be written.
pub fn write_times(directory: impl AsRef<Path>, times: &Times) -> Result<(), RunError> {
    replace(&directory.as_ref().join(TIMES), |out| Ok(serde_json::to_writer(out, times)?))
}

/// Writes `sweep.json` of a run directory.
///
/// # Errors
/// When the file cannot be written.
pub fn write_sweep(directory: impl AsRef<Path>, sweep: &Sweep) -> Result<(), RunError> {
    replace(&directory.as_ref().join(SWEEP), |out| Ok(serde_json::to_writer(out, sweep)?))
}

fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<(), RunError> {
    let half = path.with_extension("json.half");
    let all = || {
        let mut out = BufWriter::with_capacity(64 << 10, File::create(&half)?);
        write(&mut out)?;
        out.into_inner().map_err(|e| e.into_error())?.sync_data()?;
        std::fs::rename(&half, path)
    };
    all().map_err(RunError::io(path))
}

/// Reads a `plan.json`.
///
/// # Errors
/// When it cannot be read, is of another version, or its parts contradict each other.
pub fn read_plan(path: impl AsRef<Path>) -> Result<PlanPicture, RunError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(RunError::io(path))?;
    let plan: PlanPicture = serde_json::from_slice(&bytes).map_err(|e| RunError::format(path, e.line(), e))?;
    plan.verify().map_err(|message| RunError::format(path, 1, message))?;
    Ok(plan)
}

impl PlanPicture {
    /// Whether the parts agree: what a foreign file must show before anybody draws it.
    fn verify(&self) -> Result<(), String> {
        if self.schema != SCHEMA_VERSION {
            return Err(format!("this is version {} of the format; this program reads {SCHEMA_VERSION}", self.schema));
        }
        let (n_steps, n_buffers) = (self.instructions.len(), self.buffers.len());
        for (b, buffer) in self.buffers.iter().enumerate() {
            let end = buffer.offset.checked_add(buffer.bytes);
            if buffer.birth > buffer.death || buffer.death as usize >= n_steps.max(1) {
                let (birth, death) = (buffer.birth, buffer.death);
                return Err(format!("buffer {b} lives from {birth} to {death}, of {n_steps} steps"));
            }
            if end.is_none_or(|end| end > self.arena) {
                let (offset, bytes, arena) = (buffer.offset, buffer.bytes, self.arena);
                return Err(format!("buffer {b} at {offset} with {bytes} bytes leaves the arena of {arena}"));
            }
            if buffer.partner.is_some_and(|p| p as usize >= n_buffers) {
                return Err(format!("buffer {b} has a partner that is not there"));
            }
        }
        if self.peak_step as usize >= n_steps.max(1) {
            return Err(format!("the peak is at step {} of {n_steps}", self.peak_step));
        }
        Ok(())
    }
}
