//! Ops that move elements and compute nothing: reshape, transpose, broadcast, slice, pad, concatenate, flip.

use super::reduce::around;
use super::{Backward, Io, OpDef, Reference, Sliced, Types, expect_axis, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::op_attrs;
use crate::split::Split;
use plimsoll_kernels::copy::{self, Layout};
use plimsoll_kernels::pointwise::{Step, Unary};
use plimsoll_tensor::{Shape, TensorType};
use std::sync::Arc;

/// The same elements in the same order under another shape: nothing moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Reshape {
    /// The new shape.
    pub shape: Shape,
}

/// The axes in another order: axis `i` of the result is axis `axes[i]` of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct Transpose {
    /// A permutation.
    pub axes: Vec<usize>,
}

/// A larger shape by NumPy's broadcasting.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    /// The new shape.
    pub shape: Shape,
}

/// Every `steps[a]`-th element from `starts[a]`, `sizes[a]` of them, along each axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The first index along each axis.
    pub starts: Vec<usize>,
    /// How many along each axis.
    pub sizes: Vec<usize>,
    /// How far apart.
    pub steps: Vec<usize>,
}

/// The reverse of [`Slice`]: zeros of this shape with the input put where the slice would take it from.
#[derive(Clone, Debug, PartialEq)]
pub struct Unslice {
    /// The shape of the result.
    pub shape: Shape,
    /// The first index along each axis.
    pub starts: Vec<usize>,
    /// How far apart.
    pub steps: Vec<usize>,
}

/// Values one after another along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

/// The elements in reverse order along some axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip {
    /// The axes.
    pub axes: Vec<usize>,
}

op_attrs!(Reshape = "reshape" { shape });
op_attrs!(Transpose = "transpose" { axes });
op_attrs!(Broadcast = "broadcast" { shape });
op_attrs!(Slice = "slice" { starts, sizes, steps });
op_attrs!(Unslice = "unslice" { shape, starts, steps });
op_attrs!(Concat = "concat" { axis });
op_attrs!(Flip = "flip" { axes });

/// One kernel call moves `shape` elements from the input to the output.
fn move_elements(io: &Io<'_>, input: usize, shape: &Shape, from: Layout, to: Layout) {
    let (src, dst) = (&io.inputs()[input], &io.outputs()[0]);
    // SAFETY: `infer` made sure that both layouts stay inside their values; operands do not overlap.
    unsafe { copy::strided(io.pool(), shape, dst.ty.dtype.size(), src.ptr, from, dst.ptr, to) };
}

/// The plain definition of a move.
fn move_plainly(x: &Reference, shape: &Shape, from: &Layout, to: &Layout, y: &mut Reference) {
    for i in 0..shape.elements() {
        let (mut rest, mut f, mut t) = (i, from.offset, to.offset);
        for axis in (0..shape.rank()).rev() {
            let index = (rest % shape[axis]) as isize;
            rest /= shape[axis];
            f += index * from.strides[axis];
            t += index * to.strides[axis];
        }
        y.data[t as usize] = x.data[f as usize];
    }
}

/// What the ops of one move answer alike: `layouts` gives shape, source and target.
macro_rules! moves {
    () => {
        fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
            let (shape, from, to) = self.layouts(io.in_ty(0), io.out_ty(0));
            move_elements(io, 0, &shape, from, to);
            Ok(())
        }
        fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
            let mut y = Reference::zeros(outputs[0]);
            let (shape, from, to) = self.layouts(&inputs[0].ty, &outputs[0]);
            move_plainly(inputs[0], &shape, &from, &to, &mut y);
            Ok(vec![y])
        }
    };
}

impl OpDef for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        let (from, to) = (inputs[0].elements(), self.shape.elements());
        if from != to {
            return Err(format!("{} has {from} elements, {} has {to}", inputs[0].shape, self.shape));
        }
        Ok(vec![TensorType::new(inputs[0].dtype, self.shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, shape) = (b.dy(), b.graph.shape(b.inputs[0]));
        Ok(vec![Some(b.graph.reshape(dy, shape)?)])
    }

    fn is_view(&self) -> bool {
        true
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        Some(Arc::new(Reshape { shape: slice.output(0).shape }))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        // A split axis survives when the sizes before it have the same product: then slices stay contiguous in it.
        vec![match inputs[0] {
            Split::Axis(axis) => {
                let (outer, size, _) = around(&types.inputs[0].shape, axis);
                let dims = self.shape.dims();
                let mut before = 1;
                let place = dims.iter().position(|&d| {
                    let here = before == outer && d % size.max(1) == 0 && d > 0;
                    before *= d;
                    here
                });
                // Only an axis that is outermost may be joined with those after it.
                match place {
                    Some(p) if dims[p] == size || outer == 1 => Split::Axis(p),
                    _ => Split::Mixed,
                }
            }
            other => other,
        }]
    }

    fn run(&self, _: &Io<'_>) -> Result<(), RunError> {
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(vec![Reference { ty: outputs[0], data: inputs[0].data.clone() }])
    }
}

impl OpDef for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        let shape = inputs[0].shape;
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..shape.rank()) {
            return Err(format!("{:?} is not an order of {} axes", self.axes, shape.rank()));
        }
        let dims: Vec<usize> = self.axes.iter().map(|&a| shape[a]).collect();
        Ok(vec![TensorType::new(inputs[0].dtype, Shape::new(&dims))])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let mut back = vec![0; self.axes.len()];
        self.axes.iter().enumerate().for_each(|(i, &a)| back[a] = i);
        let dy = b.dy();
        Ok(vec![Some(b.graph.transpose(dy, &back)?)])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match inputs[0] {
            Split::Axis(axis) => Split::Axis(self.axes.iter().position(|&a| a == axis).expect("a permutation")),
            other => other,
        }]
    }

    moves!();
}

impl Transpose {
    fn layouts(&self, x: &TensorType, y: &TensorType) -> (Shape, Layout, Layout) {
        let natural = Layout::in_order(&x.shape);
        let mut from = natural;
        self.axes.iter().enumerate().for_each(|(i, &a)| from.strides[i] = natural.strides[a]);
        (y.shape, from, Layout::in_order(&y.shape))
    }
}

impl OpDef for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        if inputs[0].shape.broadcast(&self.shape) != Some(self.shape) {
            return Err(format!("{} does not broadcast to {}", inputs[0].shape, self.shape));
        }
        Ok(vec![TensorType::new(inputs[0].dtype, self.shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, shape) = (b.dy(), b.graph.shape(b.inputs[0]));
        Ok(vec![Some(b.graph.sum_to(dy, shape)?)])
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        Some(Arc::new(Broadcast { shape: slice.output(0).shape }))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let missing = self.shape.rank() - types.inputs[0].shape.rank();
        vec![match inputs[0] {
            Split::Axis(axis) => Split::Axis(axis + missing),
            other => other,
        }]
    }

    /// Read through broadcasting by whoever needs it, it never reaches memory.
    fn pointwise(&self) -> Option<Step> {
        Some(Step::Unary(Unary::Identity, 0))
    }

    moves!();
}

impl Broadcast {
    fn layouts(&self, x: &TensorType, y: &TensorType) -> (Shape, Layout, Layout) {
        let natural = Layout::in_order(&x.shape);
        let missing = y.shape.rank() - x.shape.rank();
        let mut from = Layout { offset: 0, strides: [0; plimsoll_tensor::MAX_RANK] };
        for axis in 0..x.shape.rank() {
            from.strides[axis + missing] = if x.shape[axis] == 1 { 0 } else { natural.strides[axis] };
        }
        (y.shape, from, Layout::in_order(&y.shape))
    }
}

/// The layout of every `steps`-th element from `starts` inside a value of this shape.
fn sparse(shape: &Shape, starts: &[usize], steps: &[usize]) -> Layout {
    let mut layout = Layout::in_order(shape);
    for axis in 0..shape.rank() {
        layout.offset += starts[axis] as isize * layout.strides[axis];
        layout.strides[axis] *= steps[axis] as isize;
    }
    layout
}

/// Says what is wrong unless a slice lies inside a shape.
fn expect_inside(shape: &Shape, starts: &[usize], sizes: &[usize], steps: &[usize]) -> Result<(), String> {
    let rank = shape.rank();
    if starts.len() != rank || sizes.len() != rank || steps.len() != rank {
        return Err(format!(
            "{} starts, {} sizes and {} steps for {rank} axes",
            starts.len(),
            sizes.len(),
            steps.len()
        ));
    }
    for axis in 0..rank {
        if steps[axis] == 0 {
            return Err(format!("the step along axis {axis} is 0"));
        }
        let last = sizes[axis].checked_sub(1).and_then(|n| n.checked_mul(steps[axis])?.checked_add(starts[axis]));
        if sizes[axis] > 0 && last.is_none_or(|last| last >= shape[axis]) {
            let (start, size, step) = (starts[axis], sizes[axis], steps[axis]);
            return Err(format!(
                "{size} elements from {start} by {step} reach beyond the {} of axis {axis}",
                shape[axis]
            ));
        }
    }
    Ok(())
}

/// A slice keeps a split along axes that it takes whole.
fn split_slice(split: Split, starts: &[usize], sizes: &[usize], steps: &[usize], shape: &Shape) -> Split {
    match split {
        Split::Axis(a) if starts[a] == 0 && steps[a] == 1 && sizes[a] == shape[a] => Split::Axis(a),
        Split::Axis(_) => Split::Mixed,
        other => other,
    }
}

impl OpDef for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        expect_inside(&inputs[0].shape, &self.starts, &self.sizes, &self.steps)?;
        Ok(vec![TensorType::new(inputs[0].dtype, Shape::new(&self.sizes))])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, shape) = (b.dy(), b.graph.shape(b.inputs[0]));
        let back = Unslice { shape, starts: self.starts.clone(), steps: self.steps.clone() };
        Ok(vec![Some(b.graph.push1(back, &[dy])?)])
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        Some(Arc::new(Slice { sizes: slice.output(0).dims().to_vec(), ..self.clone() }))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_slice(inputs[0], &self.starts, &self.sizes, &self.steps, &types.inputs[0].shape)]
    }

    moves!();
}

impl Slice {
    fn layouts(&self, x: &TensorType, y: &TensorType) -> (Shape, Layout, Layout) {
        (y.shape, sparse(&x.shape, &self.starts, &self.steps), Layout::in_order(&y.shape))
    }
}

impl OpDef for Unslice {
    fn name(&self) -> &'static str {
        "unslice"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        expect_inside(&self.shape, &self.starts, inputs[0].dims(), &self.steps)?;
        Ok(vec![TensorType::new(inputs[0].dtype, self.shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, sizes) = (b.dy(), b.graph.shape(b.inputs[0]).dims().to_vec());
        let back = Slice { starts: self.starts.clone(), sizes, steps: self.steps.clone() };
        Ok(vec![Some(b.graph.push1(back, &[dy])?)])
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        Some(Arc::new(Unslice { shape: slice.output(0).shape, ..self.clone() }))
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        vec![split_slice(inputs[0], &self.starts, types.inputs[0].dims(), &self.steps, &self.shape)]
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let (x, y) = (io.in_ty(0), io.out_ty(0));
        // SAFETY: the output is valid for writing; zero bytes are a zero of every type.
        unsafe { std::ptr::write_bytes(io.outputs()[0].ptr, 0, y.bytes()) };
        move_elements(io, 0, &x.shape, Layout::in_order(&x.shape), sparse(&y.shape, &self.starts, &self.steps));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let mut y = Reference::zeros(outputs[0]);
        let shape = inputs[0].ty.shape;
        let to = sparse(&outputs[0].shape, &self.starts, &self.steps);
        move_plainly(inputs[0], &shape, &Layout::in_order(&shape), &to, &mut y);
        Ok(vec![y])
    }
}

impl OpDef for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let Some(first) = inputs.first() else { return Err("takes at least one input".into()) };
        expect_axis(first, self.axis)?;
        let mut shape = first.shape;
        shape.dims_mut()[self.axis] = 0;
        for input in inputs {
            let mut other = input.shape;
            let fits = other.rank() == shape.rank() && {
                other.dims_mut()[self.axis] = shape[self.axis];
                other == shape
            };
            if !fits {
                return Err(format!("shapes differ outside axis {}: {} and {}", self.axis, first.shape, input.shape));
            }
            if input.dtype != first.dtype {
                return Err(format!("types differ: {} and {}", first.dtype, input.dtype));
            }
            shape.dims_mut()[self.axis] += input.shape[self.axis];
        }
        Ok(vec![TensorType::new(first.dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let dy = b.dy();
        let mut start = 0;
        let mut grads = Vec::new();
        for (i, &input) in b.inputs.iter().enumerate() {
            let size = b.graph.shape(input)[self.axis];
            grads.push(if b.wanted[i] { Some(b.graph.slice_axis(dy, self.axis, start, size)?) } else { None });
            start += size;
        }
        Ok(grads)
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        let same = inputs.iter().all(|s| *s == inputs[0]);
        vec![if same && inputs[0] != Split::Axis(self.axis) { inputs[0] } else { Split::Mixed }]
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let out = io.out_ty(0);
        let mut start = 0;
        for (i, operand) in io.inputs().iter().enumerate() {
            let mut to = Layout::in_order(&out.shape);
            to.offset = start as isize * to.strides[self.axis];
            move_elements(io, i, &operand.ty.shape, Layout::in_order(&operand.ty.shape), to);
            start += operand.ty.shape[self.axis];
        }
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let mut y = Reference::zeros(outputs[0]);
        let mut start = 0;
        for input in inputs {
            let mut to = Layout::in_order(&outputs[0].shape);
            to.offset = start as isize * to.strides[self.axis];
            move_plainly(input, &input.ty.shape, &Layout::in_order(&input.ty.shape), &to, &mut y);
            start += input.ty.shape[self.axis];
        }
        Ok(vec![y])
    }
}

impl OpDef for Flip {
    fn name(&self) -> &'static str {
        "flip"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        self.axes.iter().try_for_each(|&a| expect_axis(&inputs[0], a))?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let dy = b.dy();
        Ok(vec![Some(b.graph.push1(self.clone(), &[dy])?)])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match inputs[0] {
            Split::Axis(a) if self.axes.contains(&a) => Split::Mixed,
            other => other,
        }]
    }

    moves!();
}

impl Flip {
    fn layouts(&self, x: &TensorType, y: &TensorType) -> (Shape, Layout, Layout) {
        let mut from = Layout::in_order(&x.shape);
        for &axis in &self.axes {
            from.offset += (x.shape[axis] as isize - 1).max(0) * from.strides[axis];
            from.strides[axis] = -from.strides[axis];
        }
        (y.shape, from, Layout::in_order(&y.shape))
    }
}

impl Graph {
    /// The same elements under another shape; the value itself when it has that shape already.
    ///
    /// # Errors
    /// When the numbers of elements differ.
    pub fn reshape(&mut self, x: Value, shape: impl Into<Shape>) -> Result<Value, GraphError> {
        let shape = shape.into();
        if self.shape(x) == shape { Ok(x) } else { self.push1(Reshape { shape }, &[x]) }
    }

    /// The axes in another order.
    ///
    /// # Errors
    /// When `axes` is not a permutation of the value's axes.
    pub fn transpose(&mut self, x: Value, axes: &[usize]) -> Result<Value, GraphError> {
        self.push1(Transpose { axes: axes.to_vec() }, &[x])
    }

    /// The last two axes exchanged.
    ///
    /// # Errors
    /// When there are fewer than two.
    pub fn swap_last(&mut self, x: Value) -> Result<Value, GraphError> {
        let rank = self.shape(x).rank();
        let mut axes: Vec<usize> = (0..rank).collect();
        if rank >= 2 {
            axes.swap(rank - 2, rank - 1);
        }
        self.transpose(x, &axes)
    }

    /// A larger shape by broadcasting; the value itself when it has that shape already.
    ///
    /// # Errors
    /// When the value does not broadcast to the shape.
    pub fn broadcast(&mut self, x: Value, shape: impl Into<Shape>) -> Result<Value, GraphError> {
        let shape = shape.into();
        if self.shape(x) == shape { Ok(x) } else { self.push1(Broadcast { shape }, &[x]) }
    }

    /// Every `steps[a]`-th element from `starts[a]`, `sizes[a]` of them.
    ///
    /// # Errors
    /// When the slice reaches beyond the value.
    pub fn slice(&mut self, x: Value, starts: &[usize], sizes: &[usize], steps: &[usize]) -> Result<Value, GraphError> {
        self.push1(Slice { starts: starts.to_vec(), sizes: sizes.to_vec(), steps: steps.to_vec() }, &[x])
    }

    /// `size` elements from `start` along one axis, all along the others.
    ///
    /// # Errors
    /// When the slice reaches beyond the value.
    pub fn slice_axis(&mut self, x: Value, axis: usize, start: usize, size: usize) -> Result<Value, GraphError> {
        let shape = self.shape(x);
        let (mut starts, mut sizes) = (vec![0; shape.rank()], shape.dims().to_vec());
        if axis < shape.rank() {
            (starts[axis], sizes[axis]) = (start, size);
        }
        self.slice(x, &starts, &sizes, &vec![1; shape.rank()])
    }

    /// Zeros before and after along each axis.
    ///
    /// # Errors
    /// When the lists do not name every axis once.
    pub fn pad(&mut self, x: Value, before: &[usize], after: &[usize]) -> Result<Value, GraphError> {
        let dims = self.shape(x);
        let padded: Vec<usize> = dims.dims().iter().zip(before).zip(after).map(|((d, b), a)| d + b + a).collect();
        let shape = Shape::try_new(&padded).unwrap_or_default();
        self.push1(Unslice { shape, starts: before.to_vec(), steps: vec![1; dims.rank()] }, &[x])
    }

    /// Values one after another along an axis.
    ///
    /// # Errors
    /// When they differ in type or along another axis.
    pub fn concat(&mut self, values: &[Value], axis: usize) -> Result<Value, GraphError> {
        self.push1(Concat { axis }, values)
    }

    /// The value cut into equal parts along an axis.
    ///
    /// # Errors
    /// When the axis cannot be cut into that many equal parts.
    pub fn split(&mut self, x: Value, axis: usize, parts: usize) -> Result<Vec<Value>, GraphError> {
        let shape = self.shape(x);
        let size = shape.dims().get(axis).copied().unwrap_or(0);
        if parts == 0 || size % parts != 0 {
            return Err(GraphError::Shape {
                layer: self.layer().to_owned(),
                op: "split",
                message: format!("axis {axis} of size {size} cannot be cut into {parts} equal parts"),
                inputs: vec![*self.ty(x)],
            });
        }
        (0..parts).map(|i| self.slice_axis(x, axis, i * (size / parts), size / parts)).collect()
    }

    /// The elements in reverse order along some axes.
    ///
    /// # Errors
    /// When an axis does not exist.
    pub fn flip(&mut self, x: Value, axes: &[usize]) -> Result<Value, GraphError> {
        self.push1(Flip { axes: axes.to_vec() }, &[x])
    }

    /// The value repeated `times[a]` times along each axis.
    ///
    /// # Errors
    /// When `times` does not name every axis once, or the value has too many axes (half of the largest rank).
    pub fn tile(&mut self, x: Value, times: &[usize]) -> Result<Value, GraphError> {
        let dims = self.shape(x).dims().to_vec();
        let apart: Vec<usize> = dims.iter().flat_map(|&d| [1, d]).collect();
        let wide: Vec<usize> = dims.iter().zip(times).flat_map(|(&d, &t)| [t, d]).collect();
        let joined: Vec<usize> = dims.iter().zip(times).map(|(&d, &t)| t * d).collect();
        if times.len() != dims.len() || Shape::try_new(&apart).is_none() {
            return Err(GraphError::Shape {
                layer: self.layer().to_owned(),
                op: "tile",
                message: format!("{} repetitions for {} axes (at most 4)", times.len(), dims.len()),
                inputs: vec![*self.ty(x)],
            });
        }
        let x = self.reshape(x, Shape::new(&apart))?;
        let x = self.broadcast(x, Shape::new(&wide))?;
        self.reshape(x, Shape::new(&joined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_op, check_rejects};

    #[test]
    fn moves_of_every_kind() {
        check_op(Reshape { shape: Shape::new(&[4, 6]) }, &[&[2, 3, 4]]);
        check_op(Transpose { axes: vec![2, 0, 1] }, &[&[2, 3, 4]]);
        check_op(Transpose { axes: vec![1, 0] }, &[&[33, 17]]);
        check_op(Broadcast { shape: Shape::new(&[5, 2, 3]) }, &[&[2, 1]]);
        check_op(Slice { starts: vec![1, 0], sizes: vec![2, 3], steps: vec![1, 2] }, &[&[4, 5]]);
        check_op(Unslice { shape: Shape::new(&[4, 7]), starts: vec![1, 0], steps: vec![1, 3] }, &[&[2, 3]]);
        check_op(Concat { axis: 1 }, &[&[2, 3], &[2, 1], &[2, 4]]);
        check_op(Flip { axes: vec![0, 2] }, &[&[2, 3, 4]]);
    }

    #[test]
    fn what_cannot_be() {
        check_rejects(Reshape { shape: Shape::new(&[5]) }, &[&[2, 3]], "[2,3] has 6 elements, [5] has 5");
        check_rejects(Transpose { axes: vec![0, 0] }, &[&[2, 3]], "[0, 0] is not an order of 2 axes");
        let slice = Slice { starts: vec![2], sizes: vec![3], steps: vec![1] };
        check_rejects(slice, &[&[4]], "3 elements from 2 by 1 reach beyond the 4 of axis 0");
        check_rejects(Concat { axis: 0 }, &[&[2, 3], &[2, 4]], "shapes differ outside axis 0: [2,3] and [2,4]");
    }
}
