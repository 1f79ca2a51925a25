//! Element-wise ops: functions of the elements at one place, with NumPy's broadcasting.
//!
//! Every op here is one [`Step`] of an element-wise program; [`Fused`] is a program of several. One kernel runs them all
//! ([`pointwise::run`]). Gradients are written from outputs where the function allows it (`relu`, `sigmoid`, `tanh`,
//! `exp`, `sqrt`), so that the input need not be kept.

use super::{Backward, Cost, Io, OpAttrs, OpDef, Reference, Types, expect_inputs};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op_attrs;
use crate::split::Split;
use plimsoll_kernels::pointwise::{self, Binary as Fn2, MAX_INPUTS, Program, Source, Step, Unary as Fn1};
use plimsoll_kernels::random::Distribution;
use plimsoll_tensor::{DType, Shape, TensorType};
use std::sync::Arc;

/// A function of one argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Unary(pub Fn1);

/// A function of two arguments of the same type.
#[derive(Clone, Debug, PartialEq)]
pub struct Binary(pub Fn2);

/// The second input where the first is true, the third elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Select;

/// Conversion to another type.
#[derive(Clone, Debug, PartialEq)]
pub struct Cast {
    /// The type converted to.
    pub dtype: DType,
}

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its value.
    pub value: f64,
    /// Its type.
    pub dtype: DType,
}

/// A value whose elements are their own index along one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// The shape of the result.
    pub shape: Shape,
    /// The axis.
    pub axis: usize,
    /// The type of the result.
    pub dtype: DType,
}

/// Random numbers that are a function of the key (an `i64[2]` input: seed and step), the stream and the element's place.
/// Computing them again gives the same numbers, so a dropout mask is replayed, never stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Random {
    /// `uniform`, `normal` or `truncated_normal`.
    pub distribution: String,
    /// Tells the graph's random values apart.
    pub stream: u32,
    /// The shape of the result.
    pub shape: Shape,
    /// The type of the result.
    pub dtype: DType,
}

/// The input itself; gradients end here.
#[derive(Clone, Debug, PartialEq)]
pub struct StopGradient;

/// Several element-wise ops in one pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    program: Program,
    /// The shape of the result, which a program without inputs of that shape needs to be told.
    shape: Shape,
}

op_attrs!(Select = "select" {});
op_attrs!(Cast = "cast" { dtype });
op_attrs!(Constant = "constant" { value, dtype });
op_attrs!(Index = "index" { shape, axis, dtype });
op_attrs!(Random = "random" { distribution, stream, shape, dtype });
op_attrs!(StopGradient = "stop_gradient" {});

impl OpAttrs for Unary {
    fn attrs(&self) -> Attrs {
        Vec::new()
    }
    fn parse(name: &str, _: &[(String, Attr)]) -> Option<Result<Unary, String>> {
        Some(Ok(Unary(Fn1::from_name(name)?)))
    }
}

impl OpAttrs for Binary {
    fn attrs(&self) -> Attrs {
        Vec::new()
    }
    fn parse(name: &str, _: &[(String, Attr)]) -> Option<Result<Binary, String>> {
        Some(Ok(Binary(Fn2::from_name(name)?)))
    }
}

/// What all element-wise ops answer alike.
macro_rules! pointwise_answers {
    () => {
        fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
            vec![split_broadcast(inputs, types)]
        }
        fn may_overwrite(&self, input: usize, _: usize, types: &Types<'_>) -> bool {
            overwrites(input, types)
        }
        fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
            single(self.pointwise().expect("an element-wise op"), types.inputs, types.outputs[0].dtype)
                .scratch(types.outputs[0].elements(), threads)
        }
        fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
            let types: [DType; 3] = std::array::from_fn(|i| io.inputs().get(i).map_or(DType::Bool, |o| o.ty.dtype));
            run_single(self.pointwise().expect("an element-wise op"), &types[..io.inputs().len()], io)
        }
        fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
            let types: Vec<TensorType> = inputs.iter().map(|i| i.ty).collect();
            let program = single(self.pointwise().expect("an element-wise op"), &types, outputs[0].dtype);
            Ok(vec![evaluate(&program, inputs, outputs[0])])
        }
    };
}

impl OpDef for Unary {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        let ty = inputs[0];
        if self.0 == Fn1::Not && ty.dtype != DType::Bool {
            return Err(format!("takes bool, got {}", ty.dtype));
        }
        if self.0.is_test() {
            return Ok(vec![TensorType::new(DType::Bool, ty.shape)]);
        }
        let whole = self.0.takes_integers() && ty.dtype != DType::Bool;
        if !ty.dtype.is_float() && !whole {
            return Err(format!("takes floating-point values, got {}", ty.dtype));
        }
        Ok(vec![ty])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, x, y) = (b.dy(), b.inputs[0], b.outputs[0]);
        let g = &mut *b.graph;
        let dx = match self.0 {
            Fn1::Identity => dy,
            Fn1::Neg => g.neg(dy)?,
            Fn1::Abs => {
                let s = g.sign(x)?;
                g.mul(dy, s)?
            }
            Fn1::Square => {
                let two_x = g.scale(x, 2.0)?;
                g.mul(dy, two_x)?
            }
            Fn1::Sqrt => {
                let half = g.scale(dy, 0.5)?;
                g.div(half, y)?
            }
            Fn1::Rsqrt => {
                // d x^(-1/2) = -1/2 y^3.
                let cube = g.square(y)?;
                let cube = g.mul(cube, y)?;
                let slope = g.scale(cube, -0.5)?;
                g.mul(dy, slope)?
            }
            Fn1::Reciprocal => {
                let square = g.square(y)?;
                let slope = g.neg(square)?;
                g.mul(dy, slope)?
            }
            Fn1::Exp => g.mul(dy, y)?,
            Fn1::ExpM1 => {
                let slope = g.shift(y, 1.0)?;
                g.mul(dy, slope)?
            }
            Fn1::Log => g.div(dy, x)?,
            Fn1::Log1p => {
                let u = g.shift(x, 1.0)?;
                g.div(dy, u)?
            }
            Fn1::Sin => {
                let c = g.cos(x)?;
                g.mul(dy, c)?
            }
            Fn1::Cos => {
                let s = g.sin(x)?;
                let slope = g.neg(s)?;
                g.mul(dy, slope)?
            }
            Fn1::Tan => {
                let square = g.square(y)?;
                let slope = g.shift(square, 1.0)?;
                g.mul(dy, slope)?
            }
            Fn1::Asin | Fn1::Acos => {
                let square = g.square(x)?;
                let rest = g.neg(square)?;
                let rest = g.shift(rest, 1.0)?;
                let root = g.rsqrt(rest)?;
                let slope = if self.0 == Fn1::Acos { g.neg(root)? } else { root };
                g.mul(dy, slope)?
            }
            Fn1::Atan => {
                let square = g.square(x)?;
                let u = g.shift(square, 1.0)?;
                g.div(dy, u)?
            }
            Fn1::Sinh => {
                let c = g.unary(Fn1::Cosh, x)?;
                g.mul(dy, c)?
            }
            Fn1::Cosh => {
                let s = g.unary(Fn1::Sinh, x)?;
                g.mul(dy, s)?
            }
            Fn1::Tanh => {
                let square = g.square(y)?;
                let minus = g.neg(square)?;
                let slope = g.shift(minus, 1.0)?;
                g.mul(dy, slope)?
            }
            Fn1::Sigmoid => {
                let minus = g.neg(y)?;
                let rest = g.shift(minus, 1.0)?;
                let slope = g.mul(y, rest)?;
                g.mul(dy, slope)?
            }
            Fn1::Softplus => {
                let slope = g.sigmoid(x)?;
                g.mul(dy, slope)?
            }
            Fn1::Erf => {
                let square = g.square(x)?;
                let minus = g.neg(square)?;
                let e = g.exp(minus)?;
                let slope = g.scale(e, std::f64::consts::FRAC_2_SQRT_PI)?;
                g.mul(dy, slope)?
            }
            Fn1::Relu => {
                let zero = g.constant(0.0, g.dtype(y))?;
                let open = g.gt(y, zero)?;
                g.select(open, dy, zero)?
            }
            Fn1::Sign | Fn1::Floor | Fn1::Ceil | Fn1::Round | Fn1::IsNan | Fn1::IsFinite | Fn1::Not => {
                return Ok(vec![None]);
            }
        };
        Ok(vec![Some(dx)])
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: types.outputs[0].elements() as u64 * self.0.weight(), bytes: types.bytes() }
    }

    fn pointwise(&self) -> Option<Step> {
        Some(Step::Unary(self.0, 0))
    }

    pointwise_answers!();
}

impl OpDef for Binary {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        let (a, b) = (inputs[0], inputs[1]);
        if a.dtype != b.dtype {
            return Err(format!("types differ: {} and {}", a.dtype, b.dtype));
        }
        if self.0.is_bitwise() && a.dtype.is_float() {
            return Err(format!("takes bools or integers, got {}", a.dtype));
        }
        if !self.0.is_bitwise() && !self.0.is_comparison() && a.dtype == DType::Bool {
            return Err("takes numbers, got bool".into());
        }
        if self.0 == Fn2::Atan2 && !a.dtype.is_float() {
            return Err(format!("takes floating-point values, got {}", a.dtype));
        }
        let shape = a
            .shape
            .broadcast(&b.shape)
            .ok_or_else(|| format!("shapes do not broadcast: {} and {}", a.shape, b.shape))?;
        let dtype = if self.0.is_comparison() { DType::Bool } else { a.dtype };
        Ok(vec![TensorType::new(dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, x, z, y) = (b.dy(), b.inputs[0], b.inputs[1], b.outputs[0]);
        let (want_x, want_z) = (b.wanted[0], b.wanted[1]);
        let g = &mut *b.graph;
        let (dx, dz) = match self.0 {
            Fn2::Add => (Some(dy), Some(dy)),
            Fn2::Sub => (Some(dy), if want_z { Some(g.neg(dy)?) } else { None }),
            Fn2::Mul => {
                (if want_x { Some(g.mul(dy, z)?) } else { None }, if want_z { Some(g.mul(dy, x)?) } else { None })
            }
            Fn2::Div => {
                let dx = g.div(dy, z)?;
                let dz = if want_z {
                    let slope = g.mul(dx, y)?;
                    Some(g.neg(slope)?)
                } else {
                    None
                };
                (Some(dx), dz)
            }
            Fn2::Pow => {
                let dx = if want_x {
                    let less = g.shift(z, -1.0)?;
                    let power = g.pow(x, less)?;
                    let slope = g.mul(z, power)?;
                    Some(g.mul(dy, slope)?)
                } else {
                    None
                };
                let dz = if want_z {
                    // At x = 0 the slope in z is 0, and the logarithm is not.
                    let zero = g.constant(0.0, g.dtype(x))?;
                    let positive = g.gt(x, zero)?;
                    let one = g.constant(1.0, g.dtype(x))?;
                    let safe = g.select(positive, x, one)?;
                    let log = g.log(safe)?;
                    let slope = g.mul(y, log)?;
                    Some(g.mul(dy, slope)?)
                } else {
                    None
                };
                (dx, dz)
            }
            Fn2::Max | Fn2::Min => {
                // Where both are equal the first one gets the gradient.
                let first = if self.0 == Fn2::Max { g.ge(x, z)? } else { g.le(x, z)? };
                let zero = g.constant(0.0, g.dtype(dy))?;
                (Some(g.select(first, dy, zero)?), Some(g.select(first, zero, dy)?))
            }
            Fn2::Atan2 => {
                let (xx, zz) = (g.square(x)?, g.square(z)?);
                let norm = g.add(xx, zz)?;
                let (a, b) = (g.div(z, norm)?, g.div(x, norm)?);
                let minus = g.neg(b)?;
                (Some(g.mul(dy, a)?), Some(g.mul(dy, minus)?))
            }
            Fn2::Rem => {
                let ratio = g.binary(Fn2::FloorDiv, x, z)?;
                let minus = g.neg(ratio)?;
                (Some(dy), Some(g.mul(dy, minus)?))
            }
            _ => return Ok(vec![None, None]),
        };
        let mut back = |grad: Option<Value>, input: Value, want: bool| match (grad, want) {
            (Some(grad), true) => g.sum_to(grad, g.shape(input)).map(Some),
            _ => Ok(None),
        };
        Ok(vec![back(dx, x, want_x)?, back(dz, z, want_z)?])
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: types.outputs[0].elements() as u64 * self.0.weight(), bytes: types.bytes() }
    }

    fn pointwise(&self) -> Option<Step> {
        Some(Step::Binary(self.0, 0, 1))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        // Sums of partial sums, and multiples of one by something whole, are partial sums.
        let split = match (self.0, inputs[0], inputs[1]) {
            (Fn2::Add | Fn2::Sub, Split::Partial, Split::Partial) => Split::Partial,
            (Fn2::Mul, Split::Partial, Split::Whole) | (Fn2::Mul, Split::Whole, Split::Partial) => Split::Partial,
            (Fn2::Div, Split::Partial, Split::Whole) => Split::Partial,
            _ => split_broadcast(inputs, types),
        };
        vec![split]
    }

    fn may_overwrite(&self, input: usize, _: usize, types: &Types<'_>) -> bool {
        overwrites(input, types)
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        single(Step::Binary(self.0, 0, 1), types.inputs, types.outputs[0].dtype)
            .scratch(types.outputs[0].elements(), threads)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        run_single(Step::Binary(self.0, 0, 1), &[io.in_ty(0).dtype, io.in_ty(1).dtype], io)
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let types: Vec<TensorType> = inputs.iter().map(|i| i.ty).collect();
        Ok(vec![evaluate(&single(Step::Binary(self.0, 0, 1), &types, outputs[0].dtype), inputs, outputs[0])])
    }
}

impl OpDef for Select {
    fn name(&self) -> &'static str {
        "select"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 3)?;
        if inputs[0].dtype != DType::Bool {
            return Err(format!("the condition is bool, got {}", inputs[0].dtype));
        }
        if inputs[1].dtype != inputs[2].dtype {
            return Err(format!("types differ: {} and {}", inputs[1].dtype, inputs[2].dtype));
        }
        let fail = |a: Shape, b: Shape| format!("shapes do not broadcast: {a} and {b}");
        let both = inputs[1].shape.broadcast(&inputs[2].shape).ok_or_else(|| fail(inputs[1].shape, inputs[2].shape))?;
        let shape = both.broadcast(&inputs[0].shape).ok_or_else(|| fail(inputs[0].shape, both))?;
        Ok(vec![TensorType::new(inputs[1].dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, c) = (b.dy(), b.inputs[0]);
        let g = &mut *b.graph;
        let zero = g.constant(0.0, g.dtype(dy))?;
        let mut grads = vec![None];
        for i in [1, 2] {
            grads.push(if b.wanted[i] {
                let part = if i == 1 { g.select(c, dy, zero)? } else { g.select(c, zero, dy)? };
                Some(g.sum_to(part, g.shape(b.inputs[i]))?)
            } else {
                None
            });
        }
        Ok(grads)
    }

    fn pointwise(&self) -> Option<Step> {
        Some(Step::Select(0, 1, 2))
    }

    pointwise_answers!();
}

impl OpDef for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        Ok(vec![TensorType::new(self.dtype, inputs[0].shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, from) = (b.dy(), b.graph.dtype(b.inputs[0]));
        Ok(vec![if from.is_float() { Some(b.graph.cast(dy, from)?) } else { None }])
    }

    fn pointwise(&self) -> Option<Step> {
        Some(Step::Cast(0))
    }

    pointwise_answers!();
}

impl OpDef for StopGradient {
    fn name(&self) -> &'static str {
        "stop_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, _: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None])
    }

    fn is_view(&self) -> bool {
        true
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![inputs[0]]
    }

    fn run(&self, _: &Io<'_>) -> Result<(), RunError> {
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![inputs[0].clone()])
    }
}

/// What ops without a gradient and without data inputs answer alike.
macro_rules! no_gradient {
    () => {
        fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
            Ok(vec![None; b.inputs.len()])
        }
    };
}

impl OpDef for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 0)?;
        Ok(vec![TensorType::new(self.dtype, Shape::scalar())])
    }

    fn pointwise(&self) -> Option<Step> {
        Some(Step::Constant(self.value))
    }

    no_gradient!();
    pointwise_answers!();
}

impl OpDef for Index {
    fn name(&self) -> &'static str {
        "index"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 0)?;
        let ty = TensorType::new(self.dtype, self.shape);
        super::expect_axis(&ty, self.axis)?;
        Ok(vec![ty])
    }

    fn pointwise(&self) -> Option<Step> {
        let inner = self.shape.strides()[self.axis].max(1) as u32;
        Some(Step::Index { inner, size: self.shape[self.axis].max(1) as u32 })
    }

    no_gradient!();
    pointwise_answers!();
}

impl OpDef for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        if inputs[0] != TensorType::new(DType::I64, [2]) {
            return Err(format!("the key is i64[2] (seed and step), got {}", inputs[0]));
        }
        if !self.dtype.is_float() {
            return Err(format!("draws floating-point numbers, not {}", self.dtype));
        }
        self.distribution()?;
        Ok(vec![TensorType::new(self.dtype, self.shape)])
    }

    fn pointwise(&self) -> Option<Step> {
        let distribution = self.distribution().ok()?;
        Some(Step::Random { distribution, stream: self.stream, key: 0 })
    }

    fn may_overwrite(&self, _: usize, _: usize, _: &Types<'_>) -> bool {
        false
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        // Elements are numbered over the whole value: a slice would draw other numbers unless it knows its place.
        vec![if inputs[0] == Split::Whole { Split::Whole } else { Split::Mixed }]
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        single(self.pointwise().expect("checked by `infer`"), types.inputs, self.dtype)
            .scratch(types.outputs[0].elements(), threads)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        run_single(self.pointwise().expect("checked by `infer`"), &[DType::I64], io)
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let step = self.pointwise().expect("checked by `infer`");
        Ok(vec![evaluate(&single(step, &[inputs[0].ty], self.dtype), inputs, outputs[0])])
    }

    no_gradient!();
}

impl Random {
    fn distribution(&self) -> Result<Distribution, String> {
        match self.distribution.as_str() {
            "uniform" => Ok(Distribution::Uniform),
            "normal" => Ok(Distribution::Normal),
            "truncated_normal" => Ok(Distribution::TruncatedNormal),
            other => Err(format!("unknown distribution '{other}'")),
        }
    }
}

impl Fused {
    /// A program as an op with outputs of this shape.
    pub fn new(program: Program, shape: Shape) -> Fused {
        Fused { program, shape }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether input `i` is only a random key, not data of the loop.
    fn is_key(&self, i: usize) -> bool {
        self.program.steps().iter().any(|(s, _)| matches!(s, Step::Random { key, .. } if *key as usize == i))
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

    fn resized(&self, outputs: &[TensorType]) -> Option<Arc<dyn OpDef>> {
        Some(Arc::new(Fused { shape: outputs[0].shape, ..self.clone() }))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_broadcast(inputs, types)]
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
        run_program(&self.program, io);
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![evaluate(&self.program, inputs, outputs[0])])
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
        vec![("shape", self.shape.to_attr()), ("program", Attr::Text(steps.join("; ")))]
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Fused, String>> {
        let read = || {
            let text: String = super::find_attr(attrs, "program")?;
            let steps = text.split("; ").map(parse_step).collect::<Result<_, _>>()?;
            Ok(Fused { program: Program::new(steps)?, shape: super::find_attr(attrs, "shape")? })
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

/// An input of the output's own shape and element size can give its memory to the output.
fn overwrites(input: usize, types: &Types<'_>) -> bool {
    let (from, to) = (&types.inputs[input], &types.outputs[0]);
    from.shape == to.shape && from.dtype.size() == to.dtype.size()
}

/// The split of a value with broadcasting inputs: all parts must agree on the axis, counted from the last one.
fn split_broadcast(inputs: &[Split], types: &Types<'_>) -> Split {
    let out_rank = types.outputs[0].shape.rank();
    let mut result = Split::Whole;
    for (split, ty) in inputs.iter().zip(types.inputs) {
        let here = match split {
            Split::Whole => continue,
            Split::Axis(a) => Split::Axis(a + out_rank - ty.shape.rank()),
            Split::Partial | Split::Mixed => return Split::Mixed,
        };
        if result != Split::Whole && result != here {
            return Split::Mixed;
        }
        result = here;
    }
    // A whole value that has a full axis where another one is split would have to be sliced too.
    if let Split::Axis(axis) = result {
        for (split, ty) in inputs.iter().zip(types.inputs) {
            let own = (axis + ty.shape.rank()).checked_sub(out_rank);
            if *split == Split::Whole && own.is_some_and(|a| ty.shape[a] != 1) {
                return Split::Mixed;
            }
        }
    }
    result
}

/// A program of one step whose operands are the inputs.
fn single(step: Step, inputs: &[TensorType], dtype: DType) -> Program {
    let loads = if matches!(step, Step::Random { .. }) { 0 } else { inputs.len() };
    let mut steps: Vec<(Step, DType)> = (0..loads).map(|i| (Step::Load(i as u8), inputs[i].dtype)).collect();
    steps.push((step, dtype));
    Program::new(steps).expect("a single step is a program")
}

/// Runs one step without building a program on the heap each time: ops that reach the executor are fused programs, so
/// this is only for ops run on their own.
fn run_single(step: Step, types: &[DType], io: &Io<'_>) -> Result<(), RunError> {
    let types: Vec<TensorType> = types.iter().map(|&t| TensorType::new(t, Shape::scalar())).collect();
    run_program(&single(step, &types, io.out_ty(0).dtype), io);
    Ok(())
}

fn run_program(program: &Program, io: &Io<'_>) {
    let mut sources = [Source { ptr: std::ptr::null(), dtype: DType::F32, shape: Shape::scalar() }; MAX_INPUTS];
    let out = &io.outputs()[0];
    for (source, operand) in sources.iter_mut().zip(io.inputs()) {
        // A random key is not data of the loop: as a scalar it is left alone.
        let is_key = operand.ty.dtype == DType::I64 && operand.ty.shape.broadcast(&out.ty.shape) != Some(out.ty.shape);
        let shape = if is_key { Shape::scalar() } else { operand.ty.shape };
        *source = Source { ptr: operand.ptr, dtype: operand.ty.dtype, shape };
    }
    // SAFETY: the operands are valid by the promise of `Io::new`, and `infer` checked that they broadcast.
    unsafe { pointwise::run(io.pool(), program, &sources[..io.inputs().len()], out.ty.shape, out.ptr, io.workspace()) };
}

/// The plain definition of a program: every element on its own, over f64.
fn evaluate(program: &Program, inputs: &[&Reference], out: TensorType) -> Reference {
    let mut result = Reference::zeros(out);
    let strides: Vec<Vec<usize>> = inputs.iter().map(|r| broadcast_strides(&r.ty.shape, &out.shape)).collect();
    for (i, y) in result.data.iter_mut().enumerate() {
        let mut registers: Vec<f64> = Vec::with_capacity(program.steps().len());
        for (step, dtype) in program.steps() {
            let r = |n: u8| registers[n as usize];
            let value = match *step {
                Step::Load(n) => inputs[n as usize].data[place(i, &out.shape, &strides[n as usize])],
                Step::Constant(v) => v,
                Step::Index { inner, size } => (i / inner as usize % size as usize) as f64,
                Step::Random { distribution, stream, key } => {
                    let key = &inputs[key as usize].data;
                    let key = plimsoll_kernels::random::Key {
                        seed: key[0] as i64 as u64,
                        step: key[1] as i64 as u64,
                        stream,
                    };
                    draw(distribution, key, i as u64, *dtype)
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
            let exact = dtype.is_float() && *dtype != DType::F16 && *dtype != DType::BF16;
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

macro_rules! unary_builders {
    ($($(#[$meta:meta])* $method:ident = $f:ident,)*) => {
        impl Graph {$(
            $(#[$meta])*
            ///
            /// # Errors
            /// When the function does not exist for the value's type.
            pub fn $method(&mut self, x: Value) -> Result<Value, GraphError> {
                self.unary(Fn1::$f, x)
            }
        )*}
    };
}

macro_rules! binary_builders {
    ($($(#[$meta:meta])* $method:ident = $f:ident,)*) => {
        impl Graph {$(
            $(#[$meta])*
            ///
            /// # Errors
            /// When types differ or shapes do not broadcast.
            pub fn $method(&mut self, a: Value, b: Value) -> Result<Value, GraphError> {
                self.binary(Fn2::$f, a, b)
            }
        )*}
    };
}

unary_builders! {
    /// `-x`.
    neg = Neg,
    /// `|x|`.
    abs = Abs,
    /// -1, 0 or 1.
    sign = Sign,
    /// `x * x`.
    square = Square,
    /// Square root.
    sqrt = Sqrt,
    /// `1 / sqrt(x)`.
    rsqrt = Rsqrt,
    /// `1 / x`.
    reciprocal = Reciprocal,
    /// `e^x`.
    exp = Exp,
    /// `e^x - 1`.
    expm1 = ExpM1,
    /// Natural logarithm.
    log = Log,
    /// `ln(1 + x)`.
    log1p = Log1p,
    /// Sine.
    sin = Sin,
    /// Cosine.
    cos = Cos,
    /// Hyperbolic tangent.
    tanh = Tanh,
    /// `1 / (1 + e^-x)`.
    sigmoid = Sigmoid,
    /// `ln(1 + e^x)`.
    softplus = Softplus,
    /// The error function.
    erf = Erf,
    /// `max(x, 0)`.
    relu = Relu,
    /// Largest integer not above.
    floor = Floor,
    /// Logical negation.
    not = Not,
}

binary_builders! {
    /// `a + b`.
    add = Add,
    /// `a - b`.
    sub = Sub,
    /// `a * b`.
    mul = Mul,
    /// `a / b`.
    div = Div,
    /// `a` to the power of `b`.
    pow = Pow,
    /// The larger one.
    maximum = Max,
    /// The smaller one.
    minimum = Min,
    /// `a == b`.
    eq = Eq,
    /// `a != b`.
    ne = Ne,
    /// `a < b`.
    lt = Lt,
    /// `a <= b`.
    le = Le,
    /// `a > b`.
    gt = Gt,
    /// `a >= b`.
    ge = Ge,
    /// Both.
    and = And,
    /// Either.
    or = Or,
}

impl Graph {
    /// A function of one argument.
    ///
    /// # Errors
    /// When the function does not exist for the value's type.
    pub fn unary(&mut self, f: Fn1, x: Value) -> Result<Value, GraphError> {
        self.push1(Unary(f), &[x])
    }

    /// A function of two arguments.
    ///
    /// # Errors
    /// When types differ or shapes do not broadcast.
    pub fn binary(&mut self, f: Fn2, a: Value, b: Value) -> Result<Value, GraphError> {
        self.push1(Binary(f), &[a, b])
    }

    /// `condition ? a : b`, element by element.
    ///
    /// # Errors
    /// When the condition is not bool, types differ or shapes do not broadcast.
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Result<Value, GraphError> {
        self.push1(Select, &[condition, a, b])
    }

    /// Conversion to another type; the value itself when it has that type already.
    ///
    /// # Errors
    /// None today.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Result<Value, GraphError> {
        if self.dtype(x) == dtype { Ok(x) } else { self.push1(Cast { dtype }, &[x]) }
    }

    /// A scalar constant.
    ///
    /// # Errors
    /// None today.
    pub fn constant(&mut self, value: f64, dtype: DType) -> Result<Value, GraphError> {
        self.push1(Constant { value, dtype }, &[])
    }

    /// `factor * x`.
    ///
    /// # Errors
    /// As [`Graph::mul`].
    pub fn scale(&mut self, x: Value, factor: f64) -> Result<Value, GraphError> {
        let factor = self.constant(factor, self.dtype(x))?;
        self.mul(x, factor)
    }

    /// `x + term`.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn shift(&mut self, x: Value, term: f64) -> Result<Value, GraphError> {
        let term = self.constant(term, self.dtype(x))?;
        self.add(x, term)
    }

    /// The index along `axis`, as a value of this shape.
    ///
    /// # Errors
    /// When the shape has no such axis.
    pub fn index(&mut self, shape: impl Into<Shape>, axis: usize, dtype: DType) -> Result<Value, GraphError> {
        self.push1(Index { shape: shape.into(), axis, dtype }, &[])
    }

    /// Random numbers from a key (`i64[2]`: seed and step); `distribution` is `uniform`, `normal` or `truncated_normal`.
    ///
    /// # Errors
    /// When the key is of another type or the distribution unknown.
    pub fn random(&mut self, key: Value, distribution: &str, ty: TensorType) -> Result<Value, GraphError> {
        let stream = self.new_stream();
        self.push1(Random { distribution: distribution.into(), stream, shape: ty.shape, dtype: ty.dtype }, &[key])
    }

    /// The value itself, as a constant for gradients.
    ///
    /// # Errors
    /// None today.
    pub fn stop_gradient(&mut self, x: Value) -> Result<Value, GraphError> {
        self.push1(StopGradient, &[x])
    }

    /// `x` summed over the axes along which it was broadcast from `shape`.
    ///
    /// # Errors
    /// When `shape` does not broadcast to the value's.
    pub fn sum_to(&mut self, x: Value, shape: Shape) -> Result<Value, GraphError> {
        let from = self.shape(x);
        if from == shape {
            return Ok(x);
        }
        let missing = from.rank() - shape.rank();
        let axes: Vec<usize> =
            (0..from.rank()).filter(|&a| a < missing || shape[a - missing] == 1 && from[a] != 1).collect();
        let sum = if axes.is_empty() { x } else { self.sum(x, &axes, true)? };
        self.reshape(sum, shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_on, check_op, check_rejects, check_values, random};
    use plimsoll_tensor::Tensor;

    /// Positive numbers away from 0 and 1, where every function is smooth.
    fn positive(dtype: DType, shape: &[usize], salt: u64) -> Tensor {
        let data: Vec<f64> = random(DType::F64, shape, salt).to_f64().iter().map(|v| 0.05 + 0.9 * v.abs()).collect();
        Tensor::from_f64(dtype, shape, &data).unwrap()
    }

    #[test]
    fn every_function_of_one_argument() {
        for &f in Fn1::ALL.iter().filter(|f| !f.is_test()) {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                check_on(Unary(f), &[positive(dtype, &[7, 5], 1)], false);
            }
            check_on(Unary(f), &[positive(DType::F64, &[3, 5], 1)], true);
            if f.takes_integers() {
                check_values(Unary(f), &[(DType::I32, &[40])]);
                check_values(Unary(f), &[(DType::I64, &[40])]);
            }
        }
        check_values(Unary(Fn1::Not), &[(DType::Bool, &[9])]);
        check_values(Unary(Fn1::IsFinite), &[(DType::F32, &[9])]);
    }

    #[test]
    fn every_function_of_two_arguments() {
        for &f in Fn2::ALL {
            if !f.is_bitwise() {
                check_on(Binary(f), &[positive(DType::F32, &[4, 3], 1), positive(DType::F32, &[4, 3], 2)], false);
                check_on(Binary(f), &[positive(DType::BF16, &[4, 3], 1), positive(DType::BF16, &[3], 2)], false);
                if !matches!(f, Fn2::FloorDiv | Fn2::Rem) {
                    check_on(Binary(f), &[positive(DType::F64, &[4, 3], 1), positive(DType::F64, &[4, 1], 2)], true);
                }
            }
            if f != Fn2::Atan2 && f != Fn2::Pow {
                check_values(Binary(f), &[(DType::I32, &[60]), (DType::I32, &[60])]);
                check_values(Binary(f), &[(DType::I64, &[60]), (DType::I64, &[1])]);
            }
        }
    }

    #[test]
    fn broadcasting_of_every_kind() {
        for (a, b) in [
            (&[2usize, 3, 4][..], &[4usize][..]),
            (&[2, 3, 4], &[2, 1, 1]),
            (&[2, 1, 4], &[3, 1]),
            (&[], &[5]),
            (&[1, 3, 1, 2], &[4, 1, 5, 1]),
            (&[2000, 3], &[3]),
            (&[3, 2000], &[3, 1]),
            (&[0, 3], &[3]),
        ] {
            check_op(Binary(Fn2::Mul), &[a, b]);
            check_op(Binary(Fn2::Sub), &[b, a]);
        }
    }

    #[test]
    fn select_cast_index() {
        let condition = random(DType::Bool, &[4, 3], 9);
        for dtype in [DType::F32, DType::I64, DType::U8, DType::F16] {
            check_on(Select, &[condition.clone(), random(dtype, &[4, 3], 1), random(dtype, &[3], 2)], false);
        }
        check_on(Select, &[condition, random(DType::F64, &[4, 3], 1), random(DType::F64, &[], 2)], true);
        for from in DType::ALL {
            for dtype in DType::ALL {
                let input = if from.is_float() && dtype == DType::U8 {
                    positive(from, &[20], 3)
                } else {
                    random(from, &[20], 3)
                };
                if matches!(from, DType::I32 | DType::I64) && dtype == DType::U8 {
                    continue;
                }
                check_on(Cast { dtype }, &[input], false);
            }
        }
        check_op(Cast { dtype: DType::F64 }, &[&[5]]);
        check_values(Index { shape: Shape::new(&[2, 3, 4]), axis: 1, dtype: DType::I32 }, &[]);
        check_values(Constant { value: 2.5, dtype: DType::F16 }, &[]);
    }

    #[test]
    fn a_fused_chain_equals_its_parts() {
        // y = relu(x * 2 + b).
        let steps = vec![
            (Step::Load(0), DType::F32),
            (Step::Constant(2.0), DType::F32),
            (Step::Binary(Fn2::Mul, 0, 1), DType::F32),
            (Step::Load(1), DType::F32),
            (Step::Binary(Fn2::Add, 2, 3), DType::F32),
            (Step::Unary(Fn1::Relu, 4), DType::F32),
        ];
        let fused = Fused::new(Program::new(steps).unwrap(), Shape::new(&[70, 50]));
        check_values(fused, &[(DType::F32, &[70, 50]), (DType::F32, &[50])]);
    }

    #[test]
    fn what_cannot_be() {
        check_rejects(Binary(Fn2::Add), &[&[2, 3], &[2, 4]], "shapes do not broadcast: [2,3] and [2,4]");
        check_rejects(Binary(Fn2::And), &[&[2], &[2]], "takes bools or integers, got f32");
        check_rejects(Unary(Fn1::Not), &[&[2]], "takes bool, got f32");
        check_rejects(Select, &[&[2], &[2], &[2]], "the condition is bool, got f32");
    }
}
