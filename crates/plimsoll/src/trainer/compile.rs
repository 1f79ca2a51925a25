//! From model, loss, metrics and optimizer to planned steps. Next: `fit.rs`.

use super::Trainer;
use super::limit::{Keeps, states};
use crate::data::{Field, FieldKind};
use crate::error::Error;
use crate::init::Initializer;
use crate::losses;
use crate::optimizers::{self, Hyper};
use crate::session::{HEAP_OF_A_NODE, Techniques, give_back_heap, nodes_besides};
use crate::trace::{Mode, Role, Trace, Variable, Variables};
use crate::weights;
use plimsoll_budget::{Bytes, Limit, Reservation};
use plimsoll_exec::{Engine, ProgramId, Settings};
use plimsoll_graph::{Graph, Value};
use plimsoll_kernels::gemm::Packing;
use plimsoll_plan::split::{Cut, SplitInfo};
use plimsoll_plan::{Choice, Options, Plan, StateLayout, Step, plan};
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
use std::path::{Path, PathBuf};

/// Names of the inputs that the trainer sets itself.
pub(super) const RATE: &str = "learning rate";
pub(super) const STEP: &str = "step";
pub(super) const KEY: &str = "random key";
pub(super) const LOSS: &str = "loss";

/// Which step: its kind, its batch and the data's fields it was traced for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepKey {
    pub mode: Mode,
    pub batch: usize,
    /// It is for batches of fewer rows than that, of which nobody knows how many before they come. Its room is that of a whole batch; it is planned when they come.
    pub fewer: bool,
    pub fields: Vec<Field>,
}

/// An engine with the steps it can run.
pub(super) struct Compiled {
    pub engine: Engine,
    /// How large the arena may become.
    arena: u64,
    steps: Vec<Ready>,
    made: Made,
}

/// A step that can run.
struct Ready {
    key: StepKey,
    /// The rows that it is planned for now.
    rows: usize,
    program: ProgramId,
    /// The most nodes that a plan in its place may have, and the slices in which it may run.
    nodes: usize,
    cut: Option<Cut>,
    /// Memory of its own, if it came later.
    _held: Option<Reservation>,
}

/// What plans are made under: with others they are made anew.
#[derive(Clone, Debug, PartialEq)]
struct Made {
    limit: Result<Option<Limit>, String>,
    techniques: Techniques,
    spill_dir: Option<PathBuf>,
    slices: Option<usize>,
}

impl Compiled {
    pub fn find(&self, key: &StepKey) -> Option<ProgramId> {
        self.steps.iter().find(|step| step.key == *key).map(|step| step.program)
    }

    pub fn plans(&self) -> Vec<&Plan> {
        self.steps.iter().map(|step| self.engine.plan(step.program)).collect()
    }

    pub fn weights(&self, variables: &Variables) -> Result<Vec<(String, Tensor)>, Error> {
        kept(variables).map(|v| Ok((v.name.clone(), self.engine.state(&v.name)?))).collect()
    }

    /// Writes weights and statistics to a file, piece by piece.
    pub fn save(&self, variables: &Variables, path: &Path) -> Result<(), Error> {
        let tensors: Vec<(&str, TensorType)> = kept(variables).map(|v| (v.name.as_str(), v.ty)).collect();
        weights::write(path, &tensors, |name, write| self.engine.read_state(name, write))
    }

    /// Reads weights and statistics from a file that holds these and no others, piece by piece.
    pub fn load(&mut self, variables: &Variables, path: &Path) -> Result<(), Error> {
        let file = weights::Reader::open(path)?;
        for variable in kept(variables) {
            match file.ty(&variable.name) {
                None => return Err(Error::file(path, format!("has no '{}', which the model needs", variable.name))),
                Some(found) if found != variable.ty => {
                    let message = format!("'{}' is {found}, but the model's is {}", variable.name, variable.ty);
                    return Err(Error::file(path, message));
                }
                _ => (),
            }
        }
        if let Some(name) = file.names().find(|name| !kept(variables).any(|v| v.name == *name)) {
            return Err(Error::file(path, format!("has '{name}', which the model does not have")));
        }
        kept(variables).try_for_each(|variable| read_state(&mut self.engine, &variable.name, &file))
    }

    pub fn set_weights(&mut self, variables: &Variables, weights: &[(String, Tensor)]) -> Result<(), Error> {
        for (name, tensor) in weights {
            let Some(variable) = variables.get(name) else {
                return Err(Error::config(format!("weight '{name}'"), "is not a weight of this model"));
            };
            if variable.ty != *tensor.ty() {
                let message = format!("is {}, but {} was given", variable.ty, tensor.ty());
                return Err(Error::config(format!("weight '{name}'"), message));
            }
            self.engine.set_state(name, tensor)?;
        }
        Ok(())
    }
}

/// What is kept in files: weights and statistics.
fn kept(variables: &Variables) -> impl Iterator<Item = &Variable> {
    variables.iter().filter(|v| matches!(v.role, Role::Weight | Role::Statistic))
}

impl Trainer {
    /// Makes sure that the engine has these steps. Weights and all other states stay. With what `keeps` says besides, all stays within the memory limit.
    pub(super) fn compile(&mut self, keys: &[StepKey], keeps: Keeps) -> Result<(), Error> {
        self.keeps = keeps;
        if let Some(compiled) = &self.compiled {
            let found: Option<Vec<ProgramId>> = keys.iter().map(|k| compiled.find(k)).collect();
            if let Some(found) = found
                && compiled.made == self.made()
                && self.keep(keeps, &found)
            {
                return Ok(());
            }
        }
        let graphs = keys.iter().map(|key| self.trace(key)).collect::<Result<Vec<Graph>, Error>>()?;
        if let Some(compiled) = &mut self.compiled {
            // The arena goes before planning, which needs memory of its own.
            compiled.steps.clear();
            compiled.engine.set_plans(Vec::new())?;
            // States may be in the file although spilling was switched off since; then it stays.
            let directory = self.terms.spill_dir();
            if directory.is_some() {
                compiled.engine.set_spill_dir(directory)?;
            }
        }
        let room = self.room(keys, &graphs, keeps)?;
        let choice = self.choose(keys, &graphs, &room)?;
        let arena = choice.arena_bytes();
        let Choice { layout, plans, .. } = choice;
        let ready = |(program, (key, plan)): (usize, (&StepKey, &Plan))| {
            let nodes =
                plan.graph.nodes().len() + nodes_besides(graphs[program].nodes().len(), self.slices_besides(key));
            let cut = plan.split.as_ref().map(SplitInfo::cut);
            Ready { key: key.clone(), rows: key.batch, program, nodes, cut, _held: None }
        };
        let steps: Vec<Ready> = keys.iter().zip(&plans).enumerate().map(ready).collect();
        // These may run whole where slices are planned now.
        let again = room.planned_again.iter().map(|&i| graphs[i].packing()).fold(Packing::NONE, Packing::max);
        drop(graphs);
        let made = self.made();
        match &mut self.compiled {
            None => {
                let settings = Settings { threads: self.terms.threads, spill_dir: self.terms.spill_dir() };
                let mut engine = Engine::open(&self.terms.budget, &layout, Vec::new(), settings)?;
                // Before there is an arena, which is larger than any memory that this takes.
                write_states(&mut engine, &self.variables, self.seed, self.restored.as_ref(), |_| true)?;
                engine.expect_products(again)?;
                engine.set_plans(plans)?;
                self.compiled = Some(Compiled { engine, arena, steps, made });
            }
            Some(compiled) => {
                let known = compiled.engine.state_layout().clone();
                if known != layout {
                    compiled.engine.set_state_layout(&layout)?;
                    let is_new = |name: &str| known.get(name).is_none() && known.in_file(name).is_none();
                    write_states(&mut compiled.engine, &self.variables, self.seed, self.restored.as_ref(), is_new)?;
                }
                compiled.engine.expect_products(again)?;
                compiled.engine.set_plans(plans)?;
                (compiled.arena, compiled.steps, compiled.made) = (arena, steps, made);
            }
        }
        Ok(())
    }

    /// Makes sure that there is a step for a batch of so many rows, fewer than those of `key`, and gives its number. The numbers of others may change.
    ///
    /// Its room was planned before anything ran: it takes the place of the step for such batches, or stands beside it where there is more.
    pub(super) fn step_for(&mut self, rows: usize, key: &StepKey) -> Result<ProgramId, Error> {
        let exact = StepKey { batch: rows, fewer: false, ..key.clone() };
        let compiled = self.compiled.as_mut().expect("compiled before");
        let is_there = |step: &&Ready| step.key == exact || step.key == *key && step.rows == rows;
        if let Some(step) = compiled.steps.iter().find(is_there) {
            return Ok(step.program);
        }
        if let Some(at) = compiled.steps.iter().position(|step| key.fewer && step.key == *key) {
            // Planning takes the arena's room.
            compiled.engine.vacate_arena();
            let plan = self.plan_in_place_of(at, &exact)?;
            let compiled = self.compiled.as_mut().expect("compiled before");
            compiled.engine.occupy_arena();
            if let Some(plan) = plan {
                let heap = Bytes(HEAP_OF_A_NODE.0 * plan.graph.nodes().len() as u64);
                let is_taken = compiled.steps[at].rows != key.batch;
                let held = if is_taken { self.terms.reserve_beside(heap, self.keeps.input) } else { None };
                if held.is_none() {
                    compiled.engine.remove_plan(compiled.steps[at].program);
                }
                // What the arena grows by stayed free for that.
                self.terms.leave_to_arena(Bytes(plan.arena_bytes).saturating_sub(compiled.engine.arena_bytes()));
                let program = compiled.engine.add_plan(plan)?;
                let step = &mut compiled.steps[at];
                match held {
                    None => (step.rows, step.program) = (rows, program),
                    held => {
                        compiled.steps.push(Ready { key: key.clone(), rows, program, nodes: 0, cut: None, _held: held })
                    }
                }
                return Ok(program);
            }
        }
        // Nobody said that there may be such batches.
        let compiled = self.compiled.as_ref().expect("compiled before");
        let others = compiled.steps.iter().map(|step| &step.key).filter(|other| !key.fewer || *other != key);
        let keys: Vec<StepKey> = others.chain([&exact]).cloned().collect();
        self.compile(&keys, self.keeps)?;
        Ok(self.compiled.as_ref().and_then(|c| c.find(&exact)).expect("compiled above"))
    }

    /// A plan of a step that needs no more memory than there is for a step that is ready.
    fn plan_in_place_of(&mut self, ready: usize, key: &StepKey) -> Result<Option<Plan>, Error> {
        let steps = &self.compiled.as_ref().expect("compiled before").steps;
        let (whole, cut, nodes) = (steps[ready].key.clone(), steps[ready].cut, steps[ready].nodes);
        // What frees memory when it runs early does so for more rows, maybe not for fewer: they run in the same order.
        let graph = self.trace(&whole)?;
        let order = self.cut_step(&whole, &graph, cut).order()?;
        drop(graph);
        let graph = self.trace(key)?;
        let mut step = self.cut_step(key, &graph, cut);
        step.cut = step.cut.map(|cut| cut.for_fewer(whole.batch));
        let Compiled { engine, arena, .. } = self.compiled.as_ref().expect("compiled before");
        let layout = engine.state_layout();
        let mut states = states(&self.variables);
        states.iter_mut().for_each(|s| (s.rank, s.filed) = (None, layout.in_file(&s.name).is_some()));
        let plan = self.terms.plan_beside(step, &states, (*arena, nodes), &order, engine.file_bytes() > Bytes::ZERO)?;
        drop(graph);
        give_back_heap();
        Ok(plan)
    }

    /// A step that is cut in one way only: as was asked for, or else like this.
    fn cut_step<'g>(&self, key: &StepKey, graph: &'g Graph, cut: Option<Cut>) -> Step<'g> {
        let step = self.steps(std::slice::from_ref(key), std::slice::from_ref(graph)).remove(0);
        Step { cut: step.cut.or(cut), ..step }
    }

    fn made(&self) -> Made {
        Made {
            limit: self.terms.limit.clone(),
            techniques: self.terms.techniques,
            spill_dir: self.terms.spill_dir.clone(),
            slices: self.slices,
        }
    }

    /// Makes sure that the model's own states exist.
    pub(super) fn ensure_states(&mut self) -> Result<(), Error> {
        if self.compiled.is_none() {
            let mut t = Trace::new(&mut self.variables, Mode::Predict);
            self.model.trace(&mut t, 1)?;
            drop(t);
            let layout = layout(&self.variables);
            let mut engine = Engine::open(&self.terms.budget, &layout, Vec::new(), self.terms.threads)?;
            write_states(&mut engine, &self.variables, self.seed, self.restored.as_ref(), |_| true)?;
            self.compiled = Some(Compiled { engine, arena: 0, steps: Vec::new(), made: self.made() });
        }
        Ok(())
    }

    /// Traces one step.
    pub(super) fn trace(&mut self, key: &StepKey) -> Result<Graph, Error> {
        let mut t = Trace::new(&mut self.variables, key.mode);
        let mut given = Vec::new();
        for input in self.model.inputs() {
            let want = TensorType::new(input.dtype, input.shape.insert(0, key.batch));
            let name = format!("input '{}'", input.name);
            given.push(field_value(&mut t, key, FieldKind::Input, &input.name, &name, want)?);
        }
        let outputs = self.model.call_on(&mut t, &given)?;
        let names: Vec<String> = self.model.outputs().into_iter().map(str::to_owned).collect();
        if key.mode == Mode::Predict {
            names.iter().zip(&outputs).for_each(|(name, &value)| t.output(name, value));
            return Ok(t.finish());
        }
        let weights = key.fields.iter().find(|f| f.kind == FieldKind::Weight);
        let weights = weights.map(|f| t.input(&f.name, TensorType::new(f.ty.dtype, [key.batch])));
        let mut total: Option<Value> = None;
        let mut labels = Vec::new();
        for (entry, &y_pred) in self.losses.iter().zip(&outputs) {
            let want = entry.loss.label_type(t.ty(y_pred));
            let what = format!("labels of output '{}'", entry.output);
            let y_true = field_value(&mut t, key, FieldKind::Label, &entry.output, &what, want)?;
            labels.push(y_true);
            let part = losses::total(&*entry.loss, &mut t, y_true, y_pred, weights)?;
            let part = if entry.weight == 1.0 { part } else { t.scale(part, entry.weight)? };
            total = Some(match total {
                None => part,
                Some(sum) => t.add(sum, part)?,
            });
        }
        let loss = total.expect("a model has an output");
        t.output(LOSS, loss);
        count_loss(&mut t, loss, key.batch)?;
        for entry in &mut self.metrics {
            let at = names.iter().position(|n| *n == entry.output).expect("checked when the metric was added");
            let (metric, scope) = (entry.metric.clone(), format!("metrics/{}", entry.output));
            let sums = t.scope(&scope, |t| metric.update(t, labels[at], outputs[at], weights))?;
            entry.sums = sums;
        }
        if key.mode == Mode::Train {
            let weights = t.weights();
            let values: Vec<Value> = weights.iter().map(|(_, v)| *v).collect();
            let grads = plimsoll_graph::gradients(&mut t, loss, &values)?;
            let scalar = TensorType::new(DType::F32, Shape::scalar());
            let hyper = Hyper { learning_rate: t.input(RATE, scalar), step: t.input(STEP, scalar) };
            let changes: Vec<(String, Value, Value)> = weights
                .into_iter()
                .zip(grads)
                .filter_map(|((name, weight), grad)| Some((name, weight, grad?)))
                .collect();
            if changes.is_empty() {
                return Err(Error::config(
                    "model",
                    "has no weight that the loss depends on: there is nothing to train",
                ));
            }
            optimizers::apply(&*self.optimizer, &mut t, &changes, &hyper, &self.updates)?;
        }
        Ok(t.finish())
    }
}

/// The plan of the training step alone.
pub(super) fn plan_training(trainer: &mut Trainer, fields: &[Field], batch: usize) -> Result<Plan, Error> {
    let graph = trainer.trace(&StepKey { mode: Mode::Train, batch, fewer: false, fields: fields.to_vec() })?;
    let options = Options { threads: trainer.terms.threads, ..Options::default() };
    Ok(plan(&graph, &layout(&trainer.variables), &options)?)
}

fn layout(variables: &Variables) -> StateLayout {
    StateLayout::new(variables.iter().map(|v| (v.name.as_str(), v.ty)))
}

/// The names of the accumulators of the mean loss.
pub(super) const LOSS_SUM: &str = "mean loss/sum";
pub(super) const LOSS_COUNT: &str = "mean loss/count";

/// The mean loss of an epoch: every batch counts by its size, as in Keras.
fn count_loss(t: &mut Trace<'_>, loss: Value, batch: usize) -> Result<(), Error> {
    let scalar = TensorType::new(DType::F32, Shape::scalar());
    for (name, amount) in [(LOSS_SUM, Some(loss)), (LOSS_COUNT, None)] {
        let total = t.variable(name, scalar, Initializer::Zeros, Role::Metric)?;
        let amount = match amount {
            Some(loss) => t.scale(loss, batch as f64)?,
            None => t.constant(batch as f64, DType::F32)?,
        };
        let sum = t.add(total, amount)?;
        t.update(total, sum)?;
    }
    Ok(())
}

/// A field of the data as the model or loss wants it: of its own type, converted in the step.
fn field_value(
    t: &mut Trace<'_>,
    key: &StepKey,
    kind: FieldKind,
    name: &str,
    what: &str,
    want: TensorType,
) -> Result<Value, Error> {
    let of_kind = || key.fields.iter().filter(|f| f.kind == kind);
    // A single field of its kind needs no matching name.
    let only = if of_kind().count() == 1 { of_kind().next() } else { None };
    let Some(field) = of_kind().find(|f| f.name == name).or(only) else {
        let names: Vec<&str> = of_kind().map(|f| f.name.as_str()).collect();
        let there = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(Error::config(
            what,
            format!("the data has no field '{name}' for it; of this kind it has: {there}"),
        ));
    };
    let found = TensorType::new(field.ty.dtype, field.ty.shape.insert(0, key.batch));
    let input_name = input_name(field);
    let value = t.input(&input_name, found);
    let squeezed = |s: &Shape| -> Vec<usize> { s.dims().iter().skip(1).copied().filter(|&d| d != 1).collect() };
    if found.shape != want.shape && squeezed(&found.shape) != squeezed(&want.shape) {
        let rows = |s: Shape| s.remove(0);
        let message = format!("takes samples of shape {}, but the data's have {}", rows(want.shape), rows(found.shape));
        return Err(Error::config(what, message));
    }
    if found.dtype.is_float() && !want.dtype.is_float() {
        return Err(Error::config(what, format!("takes {}, but the data has {}", want.dtype, found.dtype)));
    }
    let value = t.reshape(value, want.shape)?;
    Ok(t.cast(value, want.dtype)?)
}

/// The name of a field among the inputs of a step.
pub(super) fn input_name(field: &Field) -> String {
    match field.kind {
        FieldKind::Input => field.name.clone(),
        FieldKind::Label => format!("labels {}", field.name),
        FieldKind::Weight => field.name.clone(),
    }
}

/// Gives the variables that `which` names the values of a checkpoint, or their initial ones.
pub(super) fn write_states(
    engine: &mut Engine,
    variables: &Variables,
    seed: u64,
    restored: Option<&weights::Reader>,
    which: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    for variable in variables.iter().filter(|v| which(&v.name)) {
        if let Some(file) = restored.filter(|file| file.ty(&variable.name) == Some(variable.ty)) {
            read_state(engine, &variable.name, file)?;
            continue;
        }
        let kept = Bytes::from(variable.init.kept_bytes(&variable.ty.shape));
        let _reservation = engine.reserve("initial values", kept)?;
        let parts = variable.init.parts(seed, &variable.name, &variable.ty.shape);
        let (dtype, mut at) = (variable.ty.dtype, 0);
        let mut block = [0.0f32; 1024];
        engine.write_state(&variable.name, |piece| {
            for bytes in piece.chunks_mut(block.len() * dtype.size()) {
                let values = &mut block[..bytes.len() / dtype.size()];
                parts.fill(at, values);
                at += values.len();
                put(dtype, values, bytes)?;
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

/// Reads a state from a file, piece by piece.
fn read_state(engine: &mut Engine, name: &str, file: &weights::Reader) -> Result<(), Error> {
    let mut at = 0;
    engine.write_state(name, |piece| {
        file.read(name, at, piece)?;
        at += piece.len();
        Ok::<(), Error>(())
    })
}

/// Writes numbers as elements of a type.
fn put(dtype: DType, values: &[f32], bytes: &mut [u8]) -> Result<(), Error> {
    if dtype == DType::F32 {
        bytes.chunks_exact_mut(4).zip(values).for_each(|(b, v)| b.copy_from_slice(&v.to_ne_bytes()));
    } else {
        let values: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
        bytes.copy_from_slice(Tensor::from_f64(dtype, [values.len()], &values)?.bytes());
    }
    Ok(())
}
