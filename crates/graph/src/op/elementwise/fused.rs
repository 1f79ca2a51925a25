//! Several element-wise ops in one: programs as an op, run by one kernel call, and their plain definition.

use super::{overwrites, split_broadcast};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use crate::op::reduce::around;
use crate::op::{self, Backward, Cost, Io, OpAttrs, OpDef, Reference, Sliced, Types, is_outermost};
use crate::split::Split;
use plimsoll_kernels::pointwise::{self, Binary as Fn2, MAX_INPUTS, Program, Source, Step, Unary as Fn1};
use plimsoll_kernels::random::Distribution;
use plimsoll_tensor::{DType, Shape, TensorType};
use std::sync::Arc;

/// Several element-wise ops in one pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    program: Program,
    /// The shape of the result, which a program without inputs of that shape needs to be told.
    shape: Shape,
    /// The number of the first element, where this is a slice of a larger value: random numbers and indices go by it.
    first: usize,
}

impl Fused {
    /// A program as an op with outputs of this shape.
    pub fn new(program: Program, shape: Shape) -> Fused {
        Fused { program, shape, first: 0 }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether input `i` is only a random key, not data of the loop.
    fn is_key(&self, i: usize) -> bool {
        self.program.steps().iter().any(|(s, _)| matches!(s, Step::Random { key, .. } if *key as usize == i))
    }

    /// Whether the elements of a slice along an axis have the same numbers as in the whole, counted from its first.
    fn keeps_numbers(&self, axis: usize) -> bool {
        let inner = around(&self.shape, axis).2;
        let keeps = |step: &Step| match step {
            Step::Random { .. } => false,
            // An index along an axis further inside.
            Step::Index { inner: below, size } => inner.is_multiple_of(*below as usize * *size as usize),
            _ => true,
        };
        is_outermost(&self.shape, axis) || self.program.steps().iter().all(|(step, _)| keeps(step))
    }
}

impl OpDef for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        if inputs.len() > MAX_INPUTS {
            return Err(format!("{} inputs; at most {MAX_INPUTS}", inputs.len()));
        }
        for (i, input) in inputs.iter().enumerate() {
            if !self.is_key(i) && input.shape.broadcast(&self.shape) != Some(self.shape) {
                return Err(format!("shapes do not broadcast: {} and {}", input.shape, self.shape));
            }
        }
        for (i, (step, dtype)) in self.program.steps().iter().enumerate() {
            if let Step::Load(n) = step {
                let found =
                    inputs.get(*n as usize).ok_or_else(|| format!("step {i} reads input {n} of {}", inputs.len()))?;
                if found.dtype != *dtype {
                    return Err(format!("step {i} reads {dtype}, but input {n} is {}", found.dtype));
                }
            }
        }
        Ok(vec![TensorType::new(self.program.dtype(), self.shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let layer = b.graph.layer().to_owned();
        Err(GraphError::NoGradient { layer, op: "fused", message: "gradients are taken before ops are fused".into() })
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        let mut first = self.first;
        if let (Split::Axis(axis), Some(range)) = (slice.outputs[0], slice.range(0))
            && is_outermost(&self.shape, axis)
        {
            first += range.start * around(&self.shape, axis).2;
        }
        Some(Arc::new(Fused { program: self.program.clone(), shape: slice.output(0).shape, first }))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let (keys, data): (Vec<usize>, Vec<usize>) = (0..inputs.len()).partition(|&i| self.is_key(i));
        if keys.iter().any(|&i| inputs[i] != Split::Whole) {
            return vec![Split::Mixed];
        }
        let splits: Vec<Split> = data.iter().map(|&i| inputs[i]).collect();
        let of_data: Vec<TensorType> = data.iter().map(|&i| types.inputs[i]).collect();
        vec![match split_broadcast(&splits, &Types { inputs: &of_data, outputs: types.outputs }) {
            Split::Axis(axis) if !self.keeps_numbers(axis) => Split::Mixed,
            split => split,
        }]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        let weight: u64 = self.program.steps().iter().map(|(step, _)| weight(step)).sum();
        Cost { flops: types.outputs[0].elements() as u64 * weight, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        self.program.scratch(types.outputs[0].elements(), threads)
    }

    fn may_overwrite(&self, input: usize, _: usize, types: &Types<'_>) -> bool {
        !self.is_key(input) && overwrites(input, types)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        run_program(&self.program, self.first, io);
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![evaluate(&self.program, self.first, inputs, outputs[0])])
    }
}

/// About how many multiply-adds a step costs per element.
pub fn weight(step: &Step) -> u64 {
    match step {
        Step::Load(_) | Step::Constant(_) => 0,
        Step::Unary(f, _) => f.weight(),
        Step::Binary(f, _, _) => f.weight(),
        Step::Random { .. } => 20,
        _ => 1,
    }
}

impl OpAttrs for Fused {
    fn attrs(&self) -> Attrs {
        let steps: Vec<String> = self.program.steps().iter().map(|(step, dtype)| print_step(step, *dtype)).collect();
        let mut attrs = vec![("shape", self.shape.to_attr()), ("program", Attr::Text(steps.join("; ")))];
        if self.first > 0 {
            attrs.push(("first", self.first.to_attr()));
        }
        attrs
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Fused, String>> {
        let read = || {
            let text: String = op::find_attr(attrs, "program")?;
            let steps = text.split("; ").map(parse_step).collect::<Result<_, _>>()?;
            let is_slice = attrs.iter().any(|(name, _)| name == "first");
            let first = if is_slice { op::find_attr(attrs, "first")? } else { 0 };
            Ok(Fused { program: Program::new(steps)?, shape: op::find_attr(attrs, "shape")?, first })
        };
        (name == "fused").then(read)
    }
}

fn print_step(step: &Step, dtype: DType) -> String {
    match step {
        Step::Load(n) => format!("load {n} {dtype}"),
        Step::Constant(v) => format!("constant {v:?} {dtype}"),
        Step::Index { inner, size } => format!("index {inner} {size} {dtype}"),
        Step::Random { distribution, stream, key } => format!("random {distribution:?} {stream} {key} {dtype}"),
        Step::Unary(f, a) => format!("{} {a} {dtype}", f.name()),
        Step::Binary(f, a, b) => format!("{} {a} {b} {dtype}", f.name()),
        Step::Select(c, a, b) => format!("select {c} {a} {b} {dtype}"),
        Step::Cast(a) => format!("cast {a} {dtype}"),
    }
}

fn parse_step(text: &str) -> Result<(Step, DType), String> {
    let words: Vec<&str> = text.split(' ').collect();
    let fail = || format!("'{text}' is not a step");
    let (dtype, words) = words.split_last().ok_or_else(fail)?;
    let dtype: DType = dtype.parse()?;
    fn num<T: std::str::FromStr>(word: &str) -> Result<T, String> {
        word.parse().map_err(|_| format!("'{word}' is not a number"))
    }
    let step = match words {
        ["load", n] => Step::Load(num(n)?),
        ["constant", v] => Step::Constant(num(v)?),
        ["index", inner, size] => Step::Index { inner: num(inner)?, size: num(size)? },
        ["random", d, stream, key] => {
            let distribution = match *d {
                "Uniform" => Distribution::Uniform,
                "Normal" => Distribution::Normal,
                "TruncatedNormal" => Distribution::TruncatedNormal,
                _ => return Err(fail()),
            };
            Step::Random { distribution, stream: num(stream)?, key: num(key)? }
        }
        ["select", c, a, b] => Step::Select(num(c)?, num(a)?, num(b)?),
        ["cast", a] => Step::Cast(num(a)?),
        [f, a] => Step::Unary(Fn1::from_name(f).ok_or_else(fail)?, num(a)?),
        [f, a, b] => Step::Binary(Fn2::from_name(f).ok_or_else(fail)?, num(a)?, num(b)?),
        _ => return Err(fail()),
    };
    Ok((step, dtype))
}

pub(super) fn run_program(program: &Program, first: usize, io: &Io<'_>) {
    let mut sources = [Source { ptr: std::ptr::null(), dtype: DType::F32, shape: Shape::scalar() }; MAX_INPUTS];
    let out = &io.outputs()[0];
    for (source, operand) in sources.iter_mut().zip(io.inputs()) {
        // A random key is not data of the loop: as a scalar it is left alone.
        let is_key = operand.ty.dtype == DType::I64 && operand.ty.shape.broadcast(&out.ty.shape) != Some(out.ty.shape);
        let shape = if is_key { Shape::scalar() } else { operand.ty.shape };
        *source = Source { ptr: operand.ptr, dtype: operand.ty.dtype, shape };
    }
    // SAFETY: the operands are valid by the promise of `Io::new`, and `infer` checked that they broadcast.
    unsafe {
        let sources = &sources[..io.inputs().len()];
        pointwise::run(io.pool(), program, sources, out.ty.shape, first, out.ptr, io.workspace());
    }
}

/// The plain definition of a program: every element on its own, over f64.
pub(super) fn evaluate(program: &Program, first: usize, inputs: &[&Reference], out: TensorType) -> Reference {
    let mut result = Reference::zeros(out);
    let strides: Vec<Vec<usize>> = inputs.iter().map(|r| broadcast_strides(&r.ty.shape, &out.shape)).collect();
    for (i, y) in result.data.iter_mut().enumerate() {
        let mut registers: Vec<f64> = Vec::with_capacity(program.steps().len());
        for (step, dtype) in program.steps() {
            let r = |n: u8| registers[n as usize];
            let value = match *step {
                Step::Load(n) => inputs[n as usize].data[place(i, &out.shape, &strides[n as usize])],
                Step::Constant(v) => v,
                Step::Index { inner, size } => ((first + i) / inner as usize % size as usize) as f64,
                Step::Random { distribution, stream, key } => {
                    let key = &inputs[key as usize].data;
                    let key = plimsoll_kernels::random::Key {
                        seed: key[0] as i64 as u64,
                        step: key[1] as i64 as u64,
                        stream,
                    };
                    draw(distribution, key, (first + i) as u64, *dtype)
                }
                Step::Unary(f, a) => f.eval(r(a)),
                Step::Binary(f, a, b) => f.eval(r(a), r(b), program.steps()[a as usize].1),
                Step::Select(c, a, b) => {
                    if r(c) != 0.0 {
                        r(a)
                    } else {
                        r(b)
                    }
                }
                Step::Cast(a) => r(a),
            };
            let exact = matches!(dtype, DType::F32 | DType::F64);
            registers.push(if exact { value } else { pointwise::rounded(*dtype, value) });
        }
        *y = *registers.last().expect("a program has a step");
    }
    result
}

fn draw(distribution: Distribution, key: plimsoll_kernels::random::Key, i: u64, dtype: DType) -> f64 {
    if dtype == DType::F64 {
        let mut one = [0.0];
        plimsoll_kernels::random::fill_f64(distribution, key, i, &mut one);
        one[0]
    } else {
        let mut one = [0.0];
        plimsoll_kernels::random::fill_f32(distribution, key, i, &mut one);
        one[0] as f64
    }
}

/// Strides of a value along the axes of the shape it is broadcast to; empty for a random key.
fn broadcast_strides(from: &Shape, to: &Shape) -> Vec<usize> {
    if from.rank() > to.rank() {
        return Vec::new();
    }
    let missing = to.rank() - from.rank();
    let natural = from.strides();
    (0..to.rank()).map(|a| if a < missing || from[a - missing] == 1 { 0 } else { natural[a - missing] }).collect()
}

fn place(i: usize, shape: &Shape, strides: &[usize]) -> usize {
    let mut rest = i;
    let mut at = 0;
    for axis in (0..shape.rank()).rev() {
        at += rest % shape[axis] * strides[axis];
        rest /= shape[axis];
    }
    at
}
