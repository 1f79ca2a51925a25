//! Element-wise ops: functions of the elements at one place, with NumPy's broadcasting.
//!
//! Every op here is one [`Step`] of an element-wise program; [`Fused`] is a program of several. One kernel runs them all
//! ([`pointwise::run`](plimsoll_kernels::pointwise::run)). Gradients are written from outputs where the function allows it (`relu`, `sigmoid`, `tanh`,
//! `exp`, `sqrt`), so that the input need not be kept.

mod build;
mod fused;

pub use fused::{Fused, weight};

use super::{Backward, Cost, Io, OpAttrs, OpDef, Reference, Types, expect_inputs};
use crate::attr::{Attr, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use crate::op_attrs;
use crate::split::Split;
use fused::{evaluate, run_program};
use plimsoll_kernels::pointwise::{Binary as Fn2, Program, Step, Unary as Fn1};
use plimsoll_kernels::random::Distribution;
use plimsoll_tensor::{DType, Shape, TensorType};

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
            Ok(vec![evaluate(&program, 0, inputs, outputs[0])])
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
        Ok(vec![evaluate(&single(Step::Binary(self.0, 0, 1), &types, outputs[0].dtype), 0, inputs, outputs[0])])
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
        Ok(vec![evaluate(&single(step, &[inputs[0].ty], self.dtype), 0, inputs, outputs[0])])
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
    run_program(&single(step, &types, io.out_ty(0).dtype), 0, io);
    Ok(())
}

#[cfg(test)]
mod tests;
