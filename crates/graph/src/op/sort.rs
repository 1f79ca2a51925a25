//! Sorting along the last axis, and the largest elements of it.

use super::{Backward, Cost, Io, OpDef, Reference, Types, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_dtype, op_attrs};
use plimsoll_kernels::sort::{self, Order, Packed, Sortable, Sorted};
use plimsoll_tensor::{DType, Element, TensorType};

/// The elements of each row (the last axis) in order, and their positions in the row as i32. Equal elements keep their order;
/// NaN counts as the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Sort {
    /// The largest first.
    pub descending: bool,
}

/// The k largest elements of each row (the last axis), largest first, and their positions in the row as i32.
#[derive(Clone, Debug, PartialEq)]
pub struct TopK {
    /// How many.
    pub k: usize,
}

op_attrs!(Sort = "sort" { descending });
op_attrs!(TopK = "top_k" { k });

/// Calls a generic function with the Rust type of a data type that sorts.
macro_rules! match_sortable {
    ($dtype:expr, $T:ident => $body:expr) => {
        match_dtype!(
            $dtype,
            $T in [F32: f32, F64: f64, I32: i32, I64: i64, U8: u8] => $body,
            else unreachable!("checked by `infer`")
        )
    };
}

fn expect_rows(inputs: &[TensorType]) -> Result<usize, String> {
    expect_inputs(inputs, 1)?;
    let ty = inputs[0];
    if !matches!(ty.dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U8) {
        return Err(format!("does not exist for {}", ty.dtype));
    }
    let n = *ty.dims().last().ok_or("takes a value with an axis, got a scalar")?;
    if n > i32::MAX as usize { Err(format!("rows of {n} elements are too long")) } else { Ok(n) }
}

/// The length of the rows.
fn row(ty: &TensorType) -> usize {
    *ty.dims().last().expect("checked by `infer`")
}

/// Bytes of one packed element.
fn packed_bytes(dtype: DType) -> usize {
    match_sortable!(dtype, T => size_of::<<T as Sortable>::Packed>())
}

/// The workspace as packed elements.
fn packed_workspace<'a, P: Packed>(io: &Io<'a>) -> &'a mut [P] {
    // SAFETY: the workspace is aligned to 64 bytes, and every bit pattern is one of these unsigned integers.
    let (_, packed, _) = unsafe { io.workspace::<u8>().align_to_mut::<P>() };
    packed
}

fn outputs<'a, T: Element>(io: &Io<'a>) -> Sorted<'a, T, i32> {
    Sorted { values: Some(io.output::<T>(0)), positions: Some(io.output::<i32>(1)) }
}

/// Rows go back to where they came from.
fn scatter_back(b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
    let Some(dy) = b.grads[0] else { return Ok(vec![None]) };
    let shape = b.graph.shape(b.inputs[0]);
    let last = shape.rank() - 1;
    let positions = b.outputs[1];
    Ok(vec![Some(b.graph.add_along(positions, dy, last, shape[last])?)])
}

/// Rows are independent.
fn split_rows(inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
    let last = types.inputs[0].shape.rank() - 1;
    let split = match inputs[0] {
        Split::Whole => Split::Whole,
        Split::Axis(a) if a != last => Split::Axis(a),
        _ => Split::Mixed,
    };
    vec![split; 2]
}

/// Both outputs from the naive twin's positions of every row.
fn rows_by(x: &Reference, outputs: &[TensorType], positions: impl Fn(&[f64]) -> Vec<usize>) -> Vec<Reference> {
    let (mut values, mut places) = (Vec::new(), Vec::new());
    let n = row(&x.ty);
    for row in x.data.chunks_exact(n.max(1)) {
        for p in positions(row) {
            values.push(row[p]);
            places.push(p as f64);
        }
    }
    vec![Reference { ty: outputs[0], data: values }, Reference { ty: outputs[1], data: places }]
}

impl OpDef for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_rows(inputs)?;
        Ok(vec![inputs[0], TensorType::new(DType::I32, inputs[0].shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        scatter_back(b)
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        split_rows(inputs, types)
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        // Comparing takes longer than adding: 8 operations each time an element is looked at.
        let (n, all) = (row(&types.inputs[0]), types.inputs[0].elements() as u64);
        Cost { flops: 8 * all * (n.max(2).ilog2() as u64 + 1), bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        let x = types.inputs[0];
        sort::sort_scratch(row(&x), threads) * packed_bytes(x.dtype)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let n = row(io.in_ty(0));
        match_sortable!(io.in_ty(0).dtype, T => {
            sort::sort(io.pool(), io.input::<T>(0), n, self.order(), outputs::<T>(io), packed_workspace(io));
        });
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(rows_by(inputs[0], outputs, |row| sort::argsort_naive(row, self.order())))
    }
}

impl Sort {
    fn order(&self) -> Order {
        if self.descending { Order::Descending } else { Order::Ascending }
    }
}

impl OpDef for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let n = expect_rows(inputs)?;
        if self.k > n {
            return Err(format!("the {} largest of {n}", self.k));
        }
        let mut shape = inputs[0].shape;
        let last = shape.rank() - 1;
        shape.dims_mut()[last] = self.k;
        Ok(vec![TensorType::new(inputs[0].dtype, shape), TensorType::new(DType::I32, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        scatter_back(b)
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        split_rows(inputs, types)
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 8 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        let x = types.inputs[0];
        sort::top_k_scratch(row(&x), self.k, threads) * packed_bytes(x.dtype)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let n = row(io.in_ty(0));
        match_sortable!(io.in_ty(0).dtype, T => {
            sort::top_k(io.pool(), io.input::<T>(0), n, self.k, outputs::<T>(io), packed_workspace(io));
        });
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(rows_by(inputs[0], outputs, |row| sort::top_k_naive(row, self.k)))
    }
}

impl Graph {
    /// The elements in order along an axis, and their positions along it as i32.
    ///
    /// # Errors
    /// When the axis does not exist or the type has no order.
    pub fn sort(&mut self, x: Value, axis: usize, descending: bool) -> Result<(Value, Value), GraphError> {
        let rank = self.shape(x).rank();
        if axis + 1 >= rank {
            let out = self.push(Sort { descending }, &[x])?;
            return Ok((out[0], out[1]));
        }
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(axis, rank - 1);
        let turned = self.transpose(x, &axes)?;
        let out = self.push(Sort { descending }, &[turned])?;
        Ok((self.transpose(out[0], &axes)?, self.transpose(out[1], &axes)?))
    }

    /// The k largest elements along the last axis, largest first, and their positions as i32.
    ///
    /// # Errors
    /// When there are fewer than k or the type has no order.
    pub fn top_k(&mut self, x: Value, k: usize) -> Result<(Value, Value), GraphError> {
        let out = self.push(TopK { k }, &[x])?;
        Ok((out[0], out[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_op, check_rejects, check_values};

    #[test]
    fn rows_in_order() {
        for descending in [false, true] {
            check_op(Sort { descending }, &[&[4, 2, 7]]);
            check_op(Sort { descending }, &[&[1]]);
            for dtype in [DType::I32, DType::I64, DType::U8] {
                check_values(Sort { descending }, &[(dtype, &[3, 50])]);
            }
        }
        check_values(Sort { descending: false }, &[(DType::F32, &[2, 3000])]);
    }

    #[test]
    fn the_largest() {
        for k in [0, 1, 3, 7] {
            check_op(TopK { k }, &[&[4, 2, 7]]);
            check_values(TopK { k }, &[(DType::I32, &[3, 200])]);
        }
    }

    #[test]
    fn other_axes_are_turned() {
        let mut g = Graph::new();
        let x = g.input("x", TensorType::new(DType::F32, [2, 3, 4]));
        let (values, positions) = g.sort(x, 0, false).unwrap();
        assert_eq!(g.shape(values).dims(), [2, 3, 4]);
        assert_eq!(g.dtype(positions), DType::I32);
    }

    #[test]
    fn refuses() {
        check_rejects(TopK { k: 4 }, &[&[2, 3]], "the 4 largest of 3");
        check_rejects(Sort { descending: false }, &[&[]], "takes a value with an axis, got a scalar");
        let bools = [TensorType::new(DType::Bool, [3])];
        assert_eq!(Sort { descending: false }.infer(&bools).unwrap_err(), "does not exist for bool");
    }
}
