//! Ops that read and add by index: embedding lookup, elements along an axis, their gradients.

use super::{Backward, Cost, Exact, Io, OpDef, Reference, Types, expect_axis, expect_inputs, is_outermost};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_dtype, op_attrs};
use plimsoll_kernels::axis::Axis;
use plimsoll_kernels::gather::{self, IndexError};
use plimsoll_tensor::{DType, F8E4M3, F8E5M2, Shape, TensorType, bf16, f16};

/// Slices along an axis: `y[.., j.., ..] = x[.., indices[j..], ..]`; the axis is replaced by those of the indices. With the
/// first axis of a table, an embedding lookup.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather {
    /// The axis of `x` that the indices point into.
    pub axis: usize,
}

/// The gradient of [`Gather`]: zeros with the second input's slices added at the first input's indices.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterAdd {
    /// The axis that the indices point into.
    pub axis: usize,
    /// Its size.
    pub size: usize,
}

/// Elements along an axis: `y[.., j, ..] = x[.., indices[.., j, ..], ..]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TakeAlong {
    /// The axis of `x` that the indices point into.
    pub axis: usize,
}

/// The gradient of [`TakeAlong`]: zeros with the second input's elements added at the first input's indices.
#[derive(Clone, Debug, PartialEq)]
pub struct AddAlong {
    /// The axis that the indices point into.
    pub axis: usize,
    /// Its size.
    pub size: usize,
}

op_attrs!(Gather = "gather" { axis });
op_attrs!(ScatterAdd = "scatter_add" { axis, size });
op_attrs!(TakeAlong = "take_along" { axis });
op_attrs!(AddAlong = "add_along" { axis, size });

/// Calls a generic function with the Rust type of any data type.
macro_rules! match_any {
    ($dtype:expr, $T:ident => $body:expr) => {
        match_dtype!($dtype, $T in [
            F32: f32, F64: f64, F16: f16, BF16: bf16, F8E4M3: F8E4M3, F8E5M2: F8E5M2, I32: i32, I64: i64,
            U8: u8, I8: i8, I16: i16, U16: u16, U32: u32, Bool: bool
        ] => $body)
    };
}

/// Calls a generic function with the Rust type of indices.
macro_rules! match_index {
    ($dtype:expr, $I:ident => $body:expr) => {
        match_dtype!($dtype, $I in [I32: i32, I64: i64] => $body, else unreachable!("checked by `infer`"))
    };
}

/// Calls a generic function with the Rust type of what is added up.
macro_rules! match_addable {
    ($dtype:expr, $T:ident => $body:expr) => {
        match_dtype!($dtype, $T in [F32: f32, F64: f64, I32: i32, I64: i64] => $body, else unreachable!("checked by `infer`"))
    };
}

fn expect_indices(ty: &TensorType) -> Result<(), String> {
    match ty.dtype {
        DType::I32 | DType::I64 => Ok(()),
        other => Err(format!("indices are i32 or i64, got {other}")),
    }
}

fn expect_addable(ty: &TensorType) -> Result<(), String> {
    match ty.dtype {
        DType::F32 | DType::F64 | DType::I32 | DType::I64 => Ok(()),
        other => Err(format!("adds f32, f64, i32 or i64, got {other}")),
    }
}

/// Says which index points outside.
fn outside(op: &'static str) -> impl Fn(IndexError) -> RunError {
    move |e| RunError { op, message: e.to_string() }
}

/// The indices of a reference value, checked as the kernel checks them.
fn plain_indices(op: &'static str, indices: &Reference, size: usize) -> Result<Vec<i64>, RunError> {
    let list: Vec<i64> = indices.data.iter().map(|&i| i as i64).collect();
    gather::check_indices(&list, size).map_err(outside(op))?;
    Ok(list)
}

/// A shape with one axis replaced by several.
fn replaced(shape: &Shape, axis: usize, by: &Shape) -> Result<Shape, String> {
    let dims = [&shape.dims()[..axis], by.dims(), &shape.dims()[axis + 1..]].concat();
    Shape::try_new(&dims).ok_or_else(|| format!("{} axes are too many", dims.len()))
}

impl OpDef for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        expect_axis(&inputs[0], self.axis)?;
        expect_indices(&inputs[1])?;
        Ok(vec![TensorType::new(inputs[0].dtype, replaced(&inputs[0].shape, self.axis, &inputs[1].shape)?)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, indices) = (b.dy(), b.inputs[1]);
        let back = ScatterAdd { axis: self.axis, size: b.graph.shape(b.inputs[0])[self.axis] };
        Ok(vec![Some(b.graph.push1(back, &[indices, dy])?), None])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let rank = types.inputs[1].shape.rank();
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Whole, Split::Axis(a)) => Split::Axis(self.axis + a),
            (Split::Axis(a), Split::Whole) if a < self.axis => Split::Axis(a),
            (Split::Axis(a), Split::Whole) if a > self.axis => Split::Axis(a + rank - 1),
            (Split::Partial, Split::Whole) => Split::Partial,
            _ => Split::Mixed,
        }]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        // Only the slices that are asked for are read.
        Cost { flops: 0, bytes: 2 * types.outputs[0].bytes() as u64 + types.inputs[1].bytes() as u64 }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let axis = Axis::new(io.in_ty(0).dims(), self.axis);
        match_any!(io.in_ty(0).dtype, T => match_index!(io.in_ty(1).dtype, I => {
            gather::gather(io.pool(), io.input::<T>(0), axis, io.input::<I>(1), io.output::<T>(0))
        }))
        .map_err(outside("gather"))
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let axis = Axis::new(inputs[0].dims(), self.axis);
        let indices = plain_indices("gather", inputs[1], axis.size)?;
        let mut y = Reference::zeros(outputs[0]);
        gather::gather_naive(&inputs[0].data, axis, &indices, &mut y.data);
        Ok(vec![y])
    }
}

impl ScatterAdd {
    /// The output as `[outer, size, inner]`.
    fn axis(&self, indices: &TensorType, updates: &TensorType) -> Axis {
        let dims = updates.dims();
        let rank = indices.shape.rank();
        let outer = dims[..self.axis].iter().product();
        Axis { outer, size: self.size, inner: dims[self.axis + rank..].iter().product() }
    }
}

impl OpDef for ScatterAdd {
    fn name(&self) -> &'static str {
        "scatter_add"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        let (indices, updates) = (inputs[0], inputs[1]);
        expect_indices(&indices)?;
        expect_addable(&updates)?;
        let (rank, dims) = (indices.shape.rank(), updates.dims());
        if dims.len() < self.axis + rank || dims[self.axis..self.axis + rank] != *indices.dims() {
            let (at, updates, indices) = (self.axis, updates.shape, indices.shape);
            return Err(format!("updates {updates} do not have the indices' shape {indices} from axis {at} on"));
        }
        let dims = [&dims[..self.axis], &[self.size], &dims[self.axis + rank..]].concat();
        let shape = Shape::try_new(&dims).ok_or_else(|| format!("{} axes are too many", dims.len()))?;
        Ok(vec![TensorType::new(updates.dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, indices) = (b.dy(), b.inputs[0]);
        Ok(vec![None, Some(b.graph.gather(dy, indices, self.axis)?)])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let rank = types.inputs[0].shape.rank();
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Axis(i), Split::Axis(u)) if u == self.axis + i => Split::Partial,
            (Split::Whole, Split::Axis(u)) if u < self.axis => Split::Axis(u),
            (Split::Whole, Split::Axis(u)) if u >= self.axis + rank => Split::Axis(u + 1 - rank),
            (Split::Whole, Split::Partial) => Split::Partial,
            _ => Split::Mixed,
        }]
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, _: usize) -> Exact {
        match inputs[0] {
            // Updates are added one by one in the order of the indices.
            Split::Axis(axis) => Exact::all(is_outermost(&types.inputs[0].shape, axis)),
            _ => Exact::ANY,
        }
    }

    fn adds(&self) -> bool {
        true
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        // Updates are read, and their places read and written, besides the zeros.
        let updates = types.inputs[1];
        Cost { flops: updates.elements() as u64, bytes: types.bytes() + 2 * updates.bytes() as u64 }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let axis = self.axis(io.in_ty(0), io.in_ty(1));
        match_addable!(io.in_ty(1).dtype, T => match_index!(io.in_ty(0).dtype, I => {
            let (indices, updates, out) = (io.input::<I>(0), io.input::<T>(1), io.output::<T>(0));
            gather::scatter_add(io.pool(), axis, indices, updates, out, io.into())
        }))
        .map_err(outside("scatter_add"))
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let indices = plain_indices("scatter_add", inputs[0], self.size)?;
        let mut y = Reference::zeros(outputs[0]);
        let axis = self.axis(&inputs[0].ty, &inputs[1].ty);
        gather::scatter_add_naive(axis, &indices, &inputs[1].data, &mut y.data);
        Ok(vec![y])
    }
}

/// All inputs cut along the same axis, which is not `axis`: so is the output. Or nothing cut.
fn split_beside(inputs: &[Split], axis: usize) -> Split {
    match (inputs[0], inputs[1]) {
        (Split::Whole, Split::Whole) => Split::Whole,
        (Split::Axis(a), Split::Axis(b)) if a == b && a != axis => Split::Axis(a),
        _ => Split::Mixed,
    }
}

impl OpDef for TakeAlong {
    fn name(&self) -> &'static str {
        "take_along"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        let (x, indices) = (inputs[0], inputs[1]);
        expect_axis(&x, self.axis)?;
        expect_indices(&indices)?;
        let mut wanted = x.shape;
        if indices.shape.rank() == wanted.rank() {
            wanted.dims_mut()[self.axis] = indices.shape[self.axis];
        }
        if wanted != indices.shape {
            return Err(format!("shapes differ outside axis {}: {} and {}", self.axis, x.shape, indices.shape));
        }
        Ok(vec![TensorType::new(x.dtype, indices.shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, indices) = (b.dy(), b.inputs[1]);
        let size = b.graph.shape(b.inputs[0])[self.axis];
        Ok(vec![Some(b.graph.add_along(indices, dy, self.axis, size)?), None])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match (inputs[0], inputs[1]) {
            (Split::Partial, Split::Whole) => Split::Partial,
            (Split::Whole, Split::Axis(a)) if a == self.axis => Split::Axis(a),
            _ => split_beside(inputs, self.axis),
        }]
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let axis = Axis::new(io.in_ty(0).dims(), self.axis);
        match_any!(io.in_ty(0).dtype, T => match_index!(io.in_ty(1).dtype, I => {
            gather::take_along_axis(io.pool(), io.input::<T>(0), axis, io.input::<I>(1), io.output::<T>(0))
        }))
        .map_err(outside("take_along"))
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let axis = Axis::new(inputs[0].dims(), self.axis);
        let indices = plain_indices("take_along", inputs[1], axis.size)?;
        let mut y = Reference::zeros(outputs[0]);
        gather::take_along_axis_naive(&inputs[0].data, axis, &indices, &mut y.data);
        Ok(vec![y])
    }
}

impl OpDef for AddAlong {
    fn name(&self) -> &'static str {
        "add_along"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        let (indices, updates) = (inputs[0], inputs[1]);
        expect_indices(&indices)?;
        expect_addable(&updates)?;
        expect_axis(&updates, self.axis)?;
        if indices.shape != updates.shape {
            return Err(format!("shapes differ: {} and {}", indices.shape, updates.shape));
        }
        let mut shape = updates.shape;
        shape.dims_mut()[self.axis] = self.size;
        Ok(vec![TensorType::new(updates.dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, indices) = (b.dy(), b.inputs[0]);
        Ok(vec![None, Some(b.graph.take_along(dy, indices, self.axis)?)])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Partial) => Split::Partial,
            (Split::Axis(a), Split::Axis(b)) if a == self.axis && b == a => Split::Partial,
            _ => split_beside(inputs, self.axis),
        }]
    }

    fn adds(&self) -> bool {
        true
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let axis = Axis::new(io.out_ty(0).dims(), self.axis);
        match_addable!(io.in_ty(1).dtype, T => match_index!(io.in_ty(0).dtype, I => {
            let (indices, updates, out) = (io.input::<I>(0), io.input::<T>(1), io.output::<T>(0));
            gather::scatter_add_along_axis(io.pool(), axis, indices, updates, out, io.into())
        }))
        .map_err(outside("add_along"))
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let indices = plain_indices("add_along", inputs[0], self.size)?;
        let mut y = Reference::zeros(outputs[0]);
        let axis = Axis::new(outputs[0].dims(), self.axis);
        gather::scatter_add_along_axis_naive(axis, &indices, &inputs[1].data, &mut y.data);
        Ok(vec![y])
    }
}

impl Graph {
    /// Slices of `x` along an axis: the axis is replaced by those of the indices.
    ///
    /// # Errors
    /// When the axis does not exist or the indices are not i32 or i64. Indices outside the axis are found when it runs.
    pub fn gather(&mut self, x: Value, indices: Value, axis: usize) -> Result<Value, GraphError> {
        self.push1(Gather { axis }, &[x, indices])
    }

    /// Zeros of `size` along an axis, with the slices of `updates` added at the indices.
    ///
    /// # Errors
    /// When the updates do not have the indices' shape from the axis on.
    pub fn scatter_add(
        &mut self,
        indices: Value,
        updates: Value,
        axis: usize,
        size: usize,
    ) -> Result<Value, GraphError> {
        self.push1(ScatterAdd { axis, size }, &[indices, updates])
    }

    /// Elements of `x` along an axis, picked by indices of the same shape outside that axis.
    ///
    /// # Errors
    /// When the shapes differ elsewhere or the indices are not i32 or i64.
    pub fn take_along(&mut self, x: Value, indices: Value, axis: usize) -> Result<Value, GraphError> {
        self.push1(TakeAlong { axis }, &[x, indices])
    }

    /// Zeros of `size` along an axis, with the elements of `updates` added at the indices.
    ///
    /// # Errors
    /// When the shapes of indices and updates differ.
    pub fn add_along(&mut self, indices: Value, updates: Value, axis: usize, size: usize) -> Result<Value, GraphError> {
        self.push1(AddAlong { axis, size }, &[indices, updates])
    }

    /// One-hot vectors along a new last axis: 1 at the index, 0 elsewhere, all 0 for an index outside the depth.
    ///
    /// Made of element-wise ops, so that it fuses with what reads it and never stands in memory.
    ///
    /// # Errors
    /// When the indices are not integers.
    pub fn one_hot(&mut self, indices: Value, depth: usize, dtype: DType) -> Result<Value, GraphError> {
        let shape = self.shape(indices);
        let column = self.reshape(indices, shape.insert(shape.rank(), 1))?;
        let places = self.index([depth], 0, self.dtype(indices))?;
        let hit = self.eq(column, places)?;
        self.cast(hit, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret;
    use crate::op::check::{check_on, check_rejects, check_slices_on, random};
    use plimsoll_tensor::Tensor;

    fn indices(dtype: DType, shape: &[usize], size: usize, salt: u64) -> Tensor {
        let data: Vec<f64> = random(DType::F64, shape, salt)
            .to_f64()
            .iter()
            .map(|x| (x.abs() * 1e6) as usize % size)
            .map(|i| i as f64)
            .collect();
        Tensor::from_f64(dtype, Shape::new(shape), &data).unwrap()
    }

    #[test]
    fn gathers_along_every_axis() {
        for axis in 0..3 {
            let at = indices(DType::I32, &[2, 4], [5, 4, 3][axis], 7);
            for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::Bool] {
                check_on(Gather { axis }, &[random(dtype, &[5, 4, 3], 1), at.clone()], dtype == DType::F64);
            }
            let at = indices(DType::I64, &[], [5, 4, 3][axis], 7);
            check_on(Gather { axis }, &[random(DType::F64, &[5, 4, 3], 1), at], true);
        }
    }

    #[test]
    fn scatters_along_every_axis() {
        let at = indices(DType::I64, &[4], 3, 7);
        for (axis, shape) in [(0, [4, 2, 6]), (1, [2, 4, 6]), (2, [2, 6, 4])] {
            for dtype in [DType::F32, DType::F64, DType::I32, DType::I64] {
                let updates = random(dtype, &shape, 1);
                check_on(ScatterAdd { axis, size: 3 }, &[at.clone(), updates], dtype == DType::F64);
            }
        }
    }

    #[test]
    fn slices_give_the_same_bits() {
        let cut = Split::Axis(0);
        for width in [3, 300] {
            let (at, updates) = (indices(DType::I64, &[90], 7, 7), random(DType::F32, &[90, width], 1));
            check_slices_on(&ScatterAdd { axis: 0, size: 7 }, &[at, updates], &[cut, cut]);
            let (at, updates) = (indices(DType::I32, &[9, 30], 7, 7), random(DType::F32, &[9, 30, width], 1));
            check_slices_on(&ScatterAdd { axis: 0, size: 7 }, &[at, updates], &[cut, cut]);
        }
        let (at, updates) = (indices(DType::I64, &[90, 5], 7, 7), random(DType::F32, &[90, 5], 1));
        check_slices_on(&AddAlong { axis: 0, size: 7 }, &[at.clone(), updates.clone()], &[cut, cut]);
        check_slices_on(&AddAlong { axis: 1, size: 7 }, &[at, updates], &[cut, cut]);
        let (table, at) = (random(DType::F32, &[7, 40], 1), indices(DType::I64, &[90], 7, 7));
        check_slices_on(&Gather { axis: 0 }, &[table, at], &[Split::Whole, cut]);
    }

    #[test]
    fn along_an_axis() {
        for axis in 0..3 {
            let mut shape = [4, 5, 2];
            let size = shape[axis];
            shape[axis] = 4;
            let at = indices(DType::I32, &shape, size, 7);
            check_on(TakeAlong { axis }, &[random(DType::F64, &[4, 5, 2], 1), at.clone()], true);
            check_on(TakeAlong { axis }, &[random(DType::U8, &[4, 5, 2], 1), at.clone()], false);
            check_on(AddAlong { axis, size }, &[at.clone(), random(DType::F64, &shape, 2)], true);
            check_on(AddAlong { axis, size }, &[at.clone(), random(DType::I64, &shape, 2)], false);
            check_on(AddAlong { axis, size }, &[at, random(DType::F32, &shape, 2)], false);
        }
    }

    #[test]
    fn one_hot_vectors() {
        let mut g = Graph::new();
        let at = g.input("at", TensorType::new(DType::I32, [2, 2]));
        let hot = g.one_hot(at, 3, DType::F32).unwrap();
        g.output("hot", hot);
        let given = Tensor::from_slice([2, 2], &[0i32, 2, -1, 3]).unwrap();
        let out = interpret(&g, &[("at", given)]).unwrap();
        assert_eq!(out["hot"].to_f64(), [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(out["hot"].shape().dims(), [2, 2, 3]);
    }

    #[test]
    fn bad_indices_stop_the_run() {
        let op = Gather { axis: 0 };
        let inputs = [random(DType::F32, &[3, 2], 1), Tensor::from_slice([2], &[0i64, 3]).unwrap()];
        let refs: Vec<Reference> = inputs.iter().map(Reference::from_tensor).collect();
        let outputs = op.infer(&[*inputs[0].ty(), *inputs[1].ty()]).unwrap();
        let error = op.reference(&refs.iter().collect::<Vec<_>>(), &outputs).unwrap_err();
        assert_eq!(error.to_string(), "gather: index 3 at position 1 is not in [0, 3)");
    }

    #[test]
    fn shapes_must_agree() {
        check_rejects(Gather { axis: 0 }, &[&[3, 2], &[4]], "indices are i32 or i64, got f32");
        check_rejects(Gather { axis: 2 }, &[&[3, 2], &[4]], "axis 2 of a value with 2 axes");
        let types = [TensorType::new(DType::I32, [4]), TensorType::new(DType::F32, [3, 2])];
        let error = ScatterAdd { axis: 0, size: 9 }.infer(&types).unwrap_err();
        assert_eq!(error, "updates [3,2] do not have the indices' shape [4] from axis 0 on");
        let types = [TensorType::new(DType::F32, [3, 2]), TensorType::new(DType::I32, [4, 5])];
        assert_eq!(TakeAlong { axis: 0 }.infer(&types).unwrap_err(), "shapes differ outside axis 0: [3,2] and [4,5]");
    }
}
