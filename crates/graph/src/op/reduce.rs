//! Reductions: sum, mean, product, largest, smallest, any, all, and the place of the largest or smallest.

use super::{
    Backward, Cost, Exact, Io, OpAttrs, OpDef, Reference, Types, expect_axis, expect_inputs, two_or_more, whole_chunks,
};
use crate::attr::{Attr, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::gemm::Into;
use plimsoll_kernels::math::Float;
use plimsoll_kernels::reduce::{self, Reduction};
use plimsoll_tensor::{DType, Element, F8E4M3, F8E5M2, Shape, TensorType, bf16, f16};

/// What is made of the elements along the reduced axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their product.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Whether one is true.
    Any,
    /// Whether all are true.
    All,
}

impl Kind {
    const ALL: [(Kind, &'static str); 7] = [
        (Kind::Sum, "reduce_sum"),
        (Kind::Mean, "reduce_mean"),
        (Kind::Prod, "reduce_prod"),
        (Kind::Max, "reduce_max"),
        (Kind::Min, "reduce_min"),
        (Kind::Any, "reduce_any"),
        (Kind::All, "reduce_all"),
    ];

    fn is_logical(self) -> bool {
        matches!(self, Kind::Any | Kind::All)
    }

    /// The kernel that does it; logical ones run as largest and smallest.
    fn reduction(self) -> Reduction {
        match self {
            Kind::Sum | Kind::Mean => Reduction::Sum,
            Kind::Prod => Reduction::Prod,
            Kind::Max | Kind::Any => Reduction::Max,
            Kind::Min | Kind::All => Reduction::Min,
        }
    }
}

/// A reduction over some axes, which stay as axes of size 1 if asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// What is made of the elements.
    pub kind: Kind,
    /// The axes, in rising order.
    pub axes: Vec<usize>,
    /// Whether the reduced axes stay, with size 1.
    pub keep: bool,
}

impl OpAttrs for Reduce {
    fn attrs(&self) -> Attrs {
        let axes = self.axes.iter().map(|&a| a as i64).collect();
        vec![("axes", Attr::Ints(axes)), ("keep", Attr::Bool(self.keep))]
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Reduce, String>> {
        let (kind, _) = Kind::ALL.into_iter().find(|(_, n)| *n == name)?;
        let read =
            || Ok(Reduce { kind, axes: super::find_attr(attrs, "axes")?, keep: super::find_attr(attrs, "keep")? });
        Some(read())
    }
}

impl Reduce {
    /// The axes joined into alternating kept and reduced ones: `(size, reduced)`.
    fn joined(&self, shape: &Shape) -> ([(usize, bool); plimsoll_tensor::MAX_RANK], usize) {
        let mut joined = [(1, false); plimsoll_tensor::MAX_RANK];
        let mut n = 0;
        for (axis, &size) in shape.dims().iter().enumerate() {
            let reduced = self.axes.contains(&axis);
            if n > 0 && joined[n - 1].1 == reduced {
                joined[n - 1].0 *= size;
            } else {
                joined[n] = (size, reduced);
                n += 1;
            }
        }
        (joined, n)
    }

    /// The passes of `[outer, middle, inner]` that do the reduction, the innermost reduced axes first.
    fn passes(&self, shape: &Shape) -> ([(usize, usize, usize); plimsoll_tensor::MAX_RANK], usize) {
        let (mut axes, n) = self.joined(shape);
        let mut passes = [(0, 0, 0); plimsoll_tensor::MAX_RANK];
        let mut count = 0;
        for i in (0..n).rev() {
            if axes[i].1 {
                let outer = axes[..i].iter().map(|a| a.0).product();
                let inner = axes[i + 1..n].iter().map(|a| a.0).product();
                passes[count] = (outer, axes[i].0, inner);
                axes[i].0 = 1;
                count += 1;
            }
        }
        (passes, count)
    }

    fn scale(&self, input: &TensorType) -> f64 {
        let count: usize = self.axes.iter().map(|&a| input.shape[a]).product();
        if self.kind == Kind::Mean { 1.0 / count as f64 } else { 1.0 }
    }

    /// The type the kernel computes in.
    fn computes_in(dtype: DType) -> DType {
        // Sums of whole numbers of more than a byte soon outgrow what f32 holds exactly.
        let wide = dtype == DType::F64 || (!dtype.is_float() && dtype.size() > 1);
        if wide { DType::F64 } else { DType::F32 }
    }

    /// Elements of the workspace: a widened copy for other types than f32 and f64, chunks' partial results, and the
    /// results between passes, which take turns.
    fn room(&self, ty: &TensorType) -> [usize; 4] {
        let is_own = matches!(ty.dtype, DType::F32 | DType::F64);
        let (passes, n) = self.passes(&ty.shape);
        let chunks = passes[..n].iter().map(|&(o, m, i)| reduce::scratch(o, m, i)).max().unwrap_or(0);
        // The last result is the output, if its type is the one that is computed in.
        let between = &passes[..n - usize::from(is_own && n > 0)];
        let result = |pass: usize| between.get(pass).map_or(0, |&(o, _, i)| o * i);
        let copies = if is_own { 0 } else { ty.elements() };
        [copies, chunks, result(0), result(1)].map(|elements| elements.next_multiple_of(16))
    }

    fn run_as<T: Float + Element>(&self, io: &Io<'_>) {
        let ty = io.in_ty(0);
        let [copies, chunks, results, _] = self.room(ty);
        let (copy, rest) = io.workspace::<T>().split_at_mut(copies);
        let (partial, rest) = rest.split_at_mut(chunks);
        let (mut here, mut there) = rest.split_at_mut(results);
        let x: &[T] = if copies == 0 {
            io.input::<T>(0)
        } else {
            widen(io, copy);
            copy
        };
        let (passes, n) = self.passes(&ty.shape);
        let scale = <T as Float>::from_f64(self.scale(ty));
        let reduction = self.kind.reduction();
        let last_size = io.out_ty(0).elements();
        if n == 0 {
            store(io, x);
            return;
        }
        let mut from = x;
        for (i, &(outer, middle, inner)) in passes[..n].iter().enumerate() {
            let last = i + 1 == n;
            if last && copies == 0 {
                let y = io.output::<T>(0);
                reduce::reduce(io.pool(), reduction, scale, from, (outer, middle, inner), y, io.into(), partial);
                return;
            }
            let factor = if last { scale } else { T::ONE };
            let sizes = (outer, middle, inner);
            reduce::reduce(io.pool(), reduction, factor, from, sizes, here, Into::Overwrite, partial);
            std::mem::swap(&mut here, &mut there);
            from = &there[..outer * inner];
        }
        store(io, &from[..last_size]);
    }
}

/// Copies the input to `to` as floats.
fn widen<T: Float>(io: &Io<'_>, to: &mut [T]) {
    fn each<E: Element, T: Float>(from: &[E], to: &mut [T]) {
        to.iter_mut().zip(from).for_each(|(t, f)| *t = T::from_f64(f.to_f64()));
    }
    match io.in_ty(0).dtype {
        DType::F32 => each(io.input::<f32>(0), to),
        DType::F64 => each(io.input::<f64>(0), to),
        DType::F16 => each(io.input::<f16>(0), to),
        DType::BF16 => each(io.input::<bf16>(0), to),
        DType::F8E4M3 => each(io.input::<F8E4M3>(0), to),
        DType::F8E5M2 => each(io.input::<F8E5M2>(0), to),
        DType::I32 => each(io.input::<i32>(0), to),
        DType::I64 => each(io.input::<i64>(0), to),
        DType::U8 => each(io.input::<u8>(0), to),
        DType::I8 => each(io.input::<i8>(0), to),
        DType::I16 => each(io.input::<i16>(0), to),
        DType::U16 => each(io.input::<u16>(0), to),
        DType::U32 => each(io.input::<u32>(0), to),
        DType::Bool => each(io.input::<bool>(0), to),
    }
}

/// Writes floats to the output or adds them to it, rounded to its type.
fn store<T: Float>(io: &Io<'_>, from: &[T]) {
    fn each<E: Element, T: Float>(io: &Io<'_>, from: &[T]) {
        for (to, from) in io.output::<E>(0).iter_mut().zip(from) {
            let before = if io.into() == Into::Add { to.to_f64() } else { 0.0 };
            *to = E::from_f64(before + from.to_f64());
        }
    }
    match io.out_ty(0).dtype {
        DType::F32 => each::<f32, T>(io, from),
        DType::F64 => each::<f64, T>(io, from),
        DType::F16 => each::<f16, T>(io, from),
        DType::BF16 => each::<bf16, T>(io, from),
        DType::F8E4M3 => each::<F8E4M3, T>(io, from),
        DType::F8E5M2 => each::<F8E5M2, T>(io, from),
        DType::I32 => each::<i32, T>(io, from),
        DType::I64 => each::<i64, T>(io, from),
        DType::U8 => each::<u8, T>(io, from),
        DType::I8 => each::<i8, T>(io, from),
        DType::I16 => each::<i16, T>(io, from),
        DType::U16 => each::<u16, T>(io, from),
        DType::U32 => each::<u32, T>(io, from),
        DType::Bool => each::<bool, T>(io, from),
    }
}

impl OpDef for Reduce {
    fn name(&self) -> &'static str {
        Kind::ALL.into_iter().find(|(k, _)| *k == self.kind).expect("every kind has a name").1
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        let ty = inputs[0];
        if self.kind.is_logical() != (ty.dtype == DType::Bool) {
            return Err(format!("does not exist for {}", ty.dtype));
        }
        if self.kind == Kind::Mean && !ty.dtype.is_float() {
            return Err(format!("takes floating-point values, got {}", ty.dtype));
        }
        if !self.axes.is_sorted_by(|a, b| a < b) {
            return Err(format!("axes {:?} are not in rising order", self.axes));
        }
        for &axis in &self.axes {
            expect_axis(&ty, axis)?;
            if ty.shape[axis] == 0 && matches!(self.kind, Kind::Mean | Kind::Max | Kind::Min) {
                return Err(format!("axis {axis} is empty"));
            }
        }
        Ok(vec![TensorType::new(ty.dtype, reduced(&ty.shape, &self.axes, self.keep))])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, x, y) = (b.dy(), b.inputs[0], b.outputs[0]);
        let g = &mut *b.graph;
        let (shape, ty) = (g.shape(x), *g.ty(x));
        let kept = reduced(&shape, &self.axes, true);
        let dy = g.reshape(dy, kept)?;
        let dx = match self.kind {
            Kind::Sum => g.broadcast(dy, shape)?,
            Kind::Mean => {
                let part = g.scale(dy, self.scale(&ty))?;
                g.broadcast(part, shape)?
            }
            Kind::Max | Kind::Min => {
                // Equal largest ones share the gradient evenly.
                let y = g.reshape(y, kept)?;
                let hit = g.eq(x, y)?;
                let hit = g.cast(hit, ty.dtype)?;
                let count = g.sum(hit, &self.axes, true)?;
                let share = g.div(dy, count)?;
                g.mul(hit, share)?
            }
            Kind::Prod => {
                // y / x: right away from zeros.
                let y = g.reshape(y, kept)?;
                let others = g.div(y, x)?;
                g.mul(others, dy)?
            }
            Kind::Any | Kind::All => return Ok(vec![None]),
        };
        Ok(vec![Some(dx)])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match inputs[0] {
            Split::Axis(axis) if !self.axes.contains(&axis) => {
                let gone = if self.keep { 0 } else { self.axes.iter().filter(|&&a| a < axis).count() };
                Split::Axis(axis - gone)
            }
            Split::Axis(_) if self.kind == Kind::Sum => Split::Partial,
            // The mean of a slice divides by the slice's size; the planner rewrites it as a sum and one factor.
            Split::Axis(_) => Split::Mixed,
            Split::Partial if matches!(self.kind, Kind::Sum | Kind::Mean) => Split::Partial,
            Split::Partial => Split::Mixed,
            other => other,
        }]
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, batch: usize) -> Exact {
        let (Split::Axis(axis), ty) = (inputs[0], &types.inputs[0]) else { return Exact::ANY };
        let dims = ty.dims();
        let Some(place) = self.axes.iter().position(|&a| a == axis) else {
            // What is kept behind reduced axes stands side by side in the kernel, which has another way for one column.
            let Some(&before) = self.axes.iter().rfind(|&&a| a < axis) else { return Exact::ANY };
            let kept = (before + 1..dims.len()).filter(|a| !self.axes.contains(a));
            return two_or_more(kept.map(|a| dims[a]).product::<usize>() / batch);
        };
        // The outermost reduced axes are summed last, over chunks of their common places; others are rounded in between.
        let first = self.axes[0];
        let neighbours = (first..).zip(&self.axes).take_while(|(a, b)| a == *b).count();
        let in_order = place < neighbours && dims[first..axis].iter().all(|&size| size == 1);
        if !in_order || !matches!(ty.dtype, DType::F32 | DType::F64) {
            return Exact::NONE;
        }
        let terms: usize = dims[axis..first + neighbours].iter().product();
        let inner = (first..dims.len()).filter(|a| !self.axes.contains(a)).map(|a| dims[a]).product();
        whole_chunks(reduce::chunk_terms(inner), terms / batch)
    }

    fn adds(&self) -> bool {
        self.kind == Kind::Sum
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        self.room(&types.inputs[0]).iter().sum::<usize>() * Reduce::computes_in(types.inputs[0].dtype).size()
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(Reduce::computes_in(io.in_ty(0).dtype), T => self.run_as::<T>(io), else unreachable!());
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let x = inputs[0];
        let neutral = self.kind.reduction().neutral::<f64>();
        let mut y = Reference { ty: outputs[0], data: vec![neutral; outputs[0].elements()] };
        let strides = reduced(&x.ty.shape, &self.axes, true).strides();
        for (i, &v) in x.data.iter().enumerate() {
            let (mut rest, mut at) = (i, 0);
            for axis in (0..x.ty.shape.rank()).rev() {
                let index = rest % x.ty.shape[axis];
                rest /= x.ty.shape[axis];
                at += if self.axes.contains(&axis) { 0 } else { index * strides[axis] };
            }
            let y = &mut y.data[at];
            *y = match self.kind.reduction() {
                Reduction::Sum => *y + v,
                Reduction::Prod => *y * v,
                Reduction::Max => Float::maximum(*y, v),
                Reduction::Min => Float::minimum(*y, v),
            };
        }
        let scale = self.scale(&x.ty);
        y.data.iter_mut().for_each(|v| *v *= scale);
        if self.kind.is_logical() {
            y.data.iter_mut().for_each(|v| *v = (*v > 0.0) as u8 as f64);
        }
        Ok(vec![y])
    }
}

/// The place of the largest (or smallest) element along an axis, as i64.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// The largest, not the smallest.
    pub largest: bool,
    /// The axis, which goes.
    pub axis: usize,
}

op_attrs!(Arg = "arg" { largest, axis });

impl OpDef for Arg {
    fn name(&self) -> &'static str {
        "arg"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        expect_axis(&inputs[0], self.axis)?;
        if inputs[0].shape[self.axis] == 0 {
            return Err(format!("axis {} is empty", self.axis));
        }
        if !matches!(inputs[0].dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64) {
            return Err(format!("does not exist for {}", inputs[0].dtype));
        }
        Ok(vec![TensorType::new(DType::I64, inputs[0].shape.remove(self.axis))])
    }

    fn gradient(&self, _: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        Ok(vec![None])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match inputs[0] {
            Split::Whole => Split::Whole,
            Split::Axis(a) if a < self.axis => Split::Axis(a),
            Split::Axis(a) if a > self.axis => Split::Axis(a - 1),
            _ => Split::Mixed,
        }]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let sizes = around(&io.in_ty(0).shape, self.axis);
        let y = io.output::<i64>(0);
        match io.in_ty(0).dtype {
            DType::F32 => reduce::arg(io.pool(), self.largest, io.input::<f32>(0), sizes, y),
            DType::F64 => reduce::arg(io.pool(), self.largest, io.input::<f64>(0), sizes, y),
            DType::I32 => reduce::arg(io.pool(), self.largest, io.input::<i32>(0), sizes, y),
            _ => reduce::arg(io.pool(), self.largest, io.input::<i64>(0), sizes, y),
        }
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let (outer, middle, inner) = around(&inputs[0].ty.shape, self.axis);
        let mut y = Reference::zeros(outputs[0]);
        for o in 0..outer {
            for i in 0..inner {
                let at = |m: usize| inputs[0].data[(o * middle + m) * inner + i];
                let better = |a: f64, b: f64| !b.is_nan() && (a.is_nan() || if self.largest { a > b } else { a < b });
                let best = (1..middle).fold(0, |best, m| if better(at(m), at(best)) { m } else { best });
                y.data[o * inner + i] = best as f64;
            }
        }
        Ok(vec![y])
    }
}

/// The sizes before, at and after an axis.
pub(crate) fn around(shape: &Shape, axis: usize) -> (usize, usize, usize) {
    let dims = shape.dims();
    (dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product())
}

fn reduced(shape: &Shape, axes: &[usize], keep: bool) -> Shape {
    let mut dims = Vec::with_capacity(shape.rank());
    for (axis, &size) in shape.dims().iter().enumerate() {
        match (axes.contains(&axis), keep) {
            (true, true) => dims.push(1),
            (true, false) => (),
            (false, _) => dims.push(size),
        }
    }
    Shape::new(&dims)
}

impl Graph {
    /// A reduction over some axes (in any order; each once).
    ///
    /// # Errors
    /// When an axis does not exist or the reduction does not exist for the type.
    pub fn reduce(&mut self, kind: Kind, x: Value, axes: &[usize], keep: bool) -> Result<Value, GraphError> {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        self.push1(Reduce { kind, axes, keep }, &[x])
    }

    /// The sum over some axes.
    ///
    /// # Errors
    /// As [`Graph::reduce`].
    pub fn sum(&mut self, x: Value, axes: &[usize], keep: bool) -> Result<Value, GraphError> {
        self.reduce(Kind::Sum, x, axes, keep)
    }

    /// The mean over some axes.
    ///
    /// # Errors
    /// As [`Graph::reduce`].
    pub fn mean(&mut self, x: Value, axes: &[usize], keep: bool) -> Result<Value, GraphError> {
        self.reduce(Kind::Mean, x, axes, keep)
    }

    /// The sum of all elements, a scalar.
    ///
    /// # Errors
    /// As [`Graph::reduce`].
    pub fn sum_all(&mut self, x: Value) -> Result<Value, GraphError> {
        let axes: Vec<usize> = (0..self.shape(x).rank()).collect();
        self.sum(x, &axes, false)
    }

    /// The mean of all elements, a scalar.
    ///
    /// # Errors
    /// As [`Graph::reduce`].
    pub fn mean_all(&mut self, x: Value) -> Result<Value, GraphError> {
        let axes: Vec<usize> = (0..self.shape(x).rank()).collect();
        self.mean(x, &axes, false)
    }

    /// The place of the largest element along an axis.
    ///
    /// # Errors
    /// When the axis does not exist or is empty.
    pub fn argmax(&mut self, x: Value, axis: usize) -> Result<Value, GraphError> {
        self.push1(Arg { largest: true, axis }, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_op, check_rejects, check_slices, check_values};

    #[test]
    fn every_kind_over_every_set_of_axes() {
        for (kind, _) in Kind::ALL.into_iter().filter(|(k, _)| !k.is_logical()) {
            for mask in 0..8u32 {
                let axes: Vec<usize> = (0..3).filter(|a| mask >> a & 1 == 1).collect();
                check_op(Reduce { kind, axes: axes.clone(), keep: false }, &[&[2, 3, 4]]);
                check_op(Reduce { kind, axes, keep: true }, &[&[2, 3, 4]]);
            }
        }
        check_op(Reduce { kind: Kind::Sum, axes: vec![1, 3], keep: false }, &[&[2, 3, 4, 5]]);
        check_op(Reduce { kind: Kind::Sum, axes: vec![0], keep: false }, &[&[700, 3]]);
        check_op(Reduce { kind: Kind::Mean, axes: vec![0, 1], keep: false }, &[&[3, 300]]);
    }

    #[test]
    fn slices_give_the_same_bits() {
        let sum = |axes: &[usize]| Reduce { kind: Kind::Sum, axes: axes.to_vec(), keep: false };
        check_slices(&sum(&[0]), &[&[700, 3]], &[Split::Axis(0)]);
        check_slices(&sum(&[0]), &[&[300]], &[Split::Axis(0)]);
        check_slices(&sum(&[0, 1]), &[&[20, 48, 5]], &[Split::Axis(0)]);
        check_slices(&sum(&[0, 1, 2]), &[&[20, 48, 5]], &[Split::Axis(0)]);
        check_slices(&sum(&[0, 2]), &[&[130, 3, 70]], &[Split::Axis(0)]);
        check_slices(&sum(&[1]), &[&[1, 130, 3]], &[Split::Axis(1)]);
        check_slices(&sum(&[1]), &[&[9, 130]], &[Split::Axis(0)]);
        check_slices(&sum(&[0]), &[&[130, 9]], &[Split::Axis(1)]);
        check_slices(&Reduce { kind: Kind::Mean, ..sum(&[0, 2]) }, &[&[130, 9, 70]], &[Split::Axis(1)]);
    }

    #[test]
    fn logical() {
        for kind in [Kind::Any, Kind::All] {
            check_values(Reduce { kind, axes: vec![1], keep: false }, &[(DType::Bool, &[3, 4])]);
        }
        check_values(Reduce { kind: Kind::Sum, axes: vec![0], keep: false }, &[(DType::I64, &[5, 2])]);
        check_values(Reduce { kind: Kind::Max, axes: vec![0, 2], keep: false }, &[(DType::I32, &[5, 2, 3])]);
        check_values(Reduce { kind: Kind::Mean, axes: vec![0], keep: false }, &[(DType::BF16, &[5, 2])]);
    }

    #[test]
    fn arg() {
        for axis in 0..3 {
            check_values(Arg { largest: true, axis }, &[(DType::F32, &[2, 5, 3])]);
            check_values(Arg { largest: false, axis }, &[(DType::I64, &[2, 5, 3])]);
        }
    }

    #[test]
    fn bad_axes() {
        check_rejects(
            Reduce { kind: Kind::Sum, axes: vec![2], keep: false },
            &[&[2, 3]],
            "axis 2 of a value with 2 axes",
        );
        check_rejects(Reduce { kind: Kind::Mean, axes: vec![0], keep: false }, &[&[0, 3]], "axis 0 is empty");
    }
}
