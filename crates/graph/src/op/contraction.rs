//! Contractions: ops that multiply and sum over an axis.

use super::{Backward, Cost, Exact, Io, OpDef, Reference, Types, expect_inputs, two_or_more, whole_chunks};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::gemm::{self, Into, Mat, MatMut, Packing};
use plimsoll_kernels::math::Float;
use plimsoll_tensor::{DType, Element, Shape, TensorType, bf16, f16};

/// Matrix product over the last two axes: `y[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]`.
///
/// Either operand can be read transposed, so that neither gradient needs a copy. The leading axes of both agree, or `b`
/// has none and serves for all.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MatMul {
    /// `a` is given as `[.., k, m]`.
    pub transpose_a: bool,
    /// `b` is given as `[.., n, k]`.
    pub transpose_b: bool,
}

op_attrs!(MatMul = "matmul" { transpose_a, transpose_b });

/// The product as the kernel sees it: `batch` products of `m x k` by `k x n`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sizes {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    /// One `b` for all products.
    shared_b: bool,
}

impl MatMul {
    fn sizes(&self, a: &TensorType, b: &TensorType) -> Result<Sizes, String> {
        let (ra, rb) = (a.shape.rank(), b.shape.rank());
        if ra < 2 || rb < 2 {
            return Err(format!("takes matrices, got {} and {}", a.shape, b.shape));
        }
        if a.dtype != b.dtype || !a.dtype.is_float() || a.dtype.is_float8() {
            return Err(format!(
                "takes two floating-point values of one type and at least 16 bits, got {} and {}",
                a.dtype, b.dtype
            ));
        }
        let flip = |s: &Shape, yes: bool| {
            let (x, y) = (s[s.rank() - 2], s[s.rank() - 1]);
            if yes { (y, x) } else { (x, y) }
        };
        let ((m, k), (k_b, n)) = (flip(&a.shape, self.transpose_a), flip(&b.shape, self.transpose_b));
        if k != k_b {
            return Err(format!("inner sizes differ: {k} and {k_b}"));
        }
        let (lead_a, lead_b) = (&a.dims()[..ra - 2], &b.dims()[..rb - 2]);
        if rb > 2 && lead_a != lead_b {
            return Err(format!("leading sizes differ: {} and {}", Shape::new(lead_a), Shape::new(lead_b)));
        }
        let batch: usize = lead_a.iter().product();
        let shared_b = rb == 2;
        // Without a transposition the rows of all products are one long matrix.
        if shared_b && !self.transpose_a {
            return Ok(Sizes { batch: 1, m: batch * m, k, n, shared_b });
        }
        Ok(Sizes { batch, m, k, n, shared_b })
    }
}

impl OpDef for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        let s = self.sizes(&inputs[0], &inputs[1])?;
        let mut shape = inputs[0].shape;
        let rank = shape.rank();
        if self.transpose_a {
            shape.dims_mut()[rank - 2] = s.m;
        }
        shape.dims_mut()[rank - 1] = s.n;
        Ok(vec![TensorType::new(inputs[0].dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, x, w) = (b.dy(), b.inputs[0], b.inputs[1]);
        let (ta, tb) = (self.transpose_a, self.transpose_b);
        let g = &mut *b.graph;
        // The weight's gradient first: it is the last reader of the activation.
        let dw = if b.wanted[1] {
            let shared = g.shape(w).rank() == 2 && g.shape(x).rank() > 2;
            let (x, dy) = if shared && !ta { (g.rows(x)?, g.rows(dy)?) } else { (x, dy) };
            let dw = if tb { g.matmul_with(dy, x, true, ta)? } else { g.matmul_with(x, dy, !ta, false)? };
            let extra: Vec<usize> = (0..g.shape(dw).rank() - g.shape(w).rank()).collect();
            Some(if extra.is_empty() { dw } else { g.sum(dw, &extra, false)? })
        } else {
            None
        };
        let dx = match (b.wanted[0], ta) {
            (false, _) => None,
            (true, false) => Some(g.matmul_with(dy, w, false, !tb)?),
            (true, true) if g.shape(w).rank() == g.shape(x).rank() => Some(g.matmul_with(w, dy, tb, true)?),
            (true, true) => {
                let flat = g.matmul_with(dy, w, false, !tb)?;
                Some(g.swap_last(flat)?)
            }
        };
        Ok(vec![dx, dw])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let (ra, rb) = (types.inputs[0].shape.rank(), types.inputs[1].shape.rank());
        let (row_a, inner_a) = if self.transpose_a { (ra - 1, ra - 2) } else { (ra - 2, ra - 1) };
        let (inner_b, column_b) = if self.transpose_b { (rb - 1, rb - 2) } else { (rb - 2, rb - 1) };
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Partial, Split::Whole) | (Split::Whole, Split::Partial) => Split::Partial,
            (Split::Axis(a), Split::Whole) if a == row_a => Split::Axis(ra - 2),
            (Split::Axis(a), Split::Whole) if a < ra - 2 && rb == 2 => Split::Axis(a),
            (Split::Whole, Split::Axis(b)) if b == column_b => Split::Axis(ra - 1),
            (Split::Axis(a), Split::Axis(b)) if a == inner_a && b == inner_b => Split::Partial,
            (Split::Axis(a), Split::Axis(b)) if ra == rb && a == b && a < ra - 2 => Split::Axis(a),
            _ => Split::Mixed,
        }]
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, batch: usize) -> Exact {
        let s = self.sizes(&types.inputs[0], &types.inputs[1]).expect("checked by `infer`");
        let products = types.inputs[0].shape.rank() - 2;
        match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Exact::ANY,
            // Some of the products, each of which is computed by itself.
            (Split::Axis(a), Split::Axis(_)) if a < products => Exact::ANY,
            (Split::Axis(a), Split::Whole) if a < products && self.transpose_a => Exact::ANY,
            // Chunks are those of the batch only where rows are summed over, and halves are rounded after each slice.
            (Split::Axis(_), Split::Axis(_)) if self.transpose_a && self.workspace(types, 1) == 0 => {
                whole_chunks(gemm::chunk_terms(s.m, s.n), s.k / batch)
            }
            (Split::Axis(_), Split::Axis(_)) => Exact::NONE,
            // The size of the result decides about the chunks.
            _ if self.transpose_a => Exact::NONE,
            // One column is computed in the same way for any number of rows, one row not.
            (Split::Axis(_), _) if s.n == 1 => Exact::ANY,
            (Split::Axis(_), _) => two_or_more(s.m / batch),
            _ if s.m == 1 => Exact::NONE,
            _ => two_or_more(s.n / batch),
        }
    }

    fn adds(&self) -> bool {
        true
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        let s = self.sizes(&types.inputs[0], &types.inputs[1]).expect("checked by `infer`");
        Cost { flops: 2 * (s.batch * s.m * s.k * s.n) as u64, bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
        match types.outputs[0].dtype {
            DType::F16 | DType::BF16 => {
                let all = types.inputs.iter().chain(types.outputs);
                all.map(|t| (t.elements() * 4).next_multiple_of(64)).sum()
            }
            _ => 0,
        }
    }

    fn packing(&self, types: &Types<'_>) -> Packing {
        let s = self.sizes(&types.inputs[0], &types.inputs[1]).expect("checked by `infer`");
        match types.outputs[0].dtype {
            DType::F64 => self.packing_of::<f64>(s),
            _ => self.packing_of::<f32>(s),
        }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let s = self.sizes(io.in_ty(0), io.in_ty(1)).expect("checked by `infer`");
        match_float!(io.out_ty(0).dtype, T => self.product(io, s, io.input::<T>(0), io.input::<T>(1), io.output::<T>(0)), else {
            if io.out_ty(0).dtype == DType::F16 { self.through_f32::<f16>(io, s) } else { self.through_f32::<bf16>(io, s) }
        });
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let s = self.sizes(&inputs[0].ty, &inputs[1].ty).expect("checked by `infer`");
        let mut y = Reference::zeros(outputs[0]);
        for p in 0..s.batch {
            let a = &inputs[0].data[p * s.m * s.k..];
            let b = &inputs[1].data[if s.shared_b { 0 } else { p * s.k * s.n }..];
            for i in 0..s.m {
                for j in 0..s.n {
                    let term = |l: usize| {
                        let x = if self.transpose_a { a[l * s.m + i] } else { a[i * s.k + l] };
                        let z = if self.transpose_b { b[j * s.k + l] } else { b[l * s.n + j] };
                        x * z
                    };
                    y.data[(p * s.m + i) * s.n + j] = (0..s.k).map(term).sum();
                }
            }
        }
        Ok(vec![y])
    }
}

impl MatMul {
    /// A product with the rows of both operands summed over is a sum over the batch: in chunks of fixed size.
    fn chunk(&self, s: Sizes) -> usize {
        if self.transpose_a { gemm::chunk_terms(s.m, s.n) } else { usize::MAX }
    }

    fn packing_of<T>(&self, s: Sizes) -> Packing {
        let tiled = Packing::matmul::<T>(s.m, s.k, s.n, self.chunk(s));
        if s.batch > 1 { tiled.max(Packing::here::<T>(s.m, s.k, s.n)) } else { tiled }
    }

    fn product<T: Float>(&self, io: &Io<'_>, s: Sizes, a: &[T], b: &[T], c: &mut [T]) {
        let (chunk, into) = (self.chunk(s), io.into());
        let mat_a = |p: usize| {
            let a = &a[p * s.m * s.k..(p + 1) * s.m * s.k];
            if self.transpose_a { Mat::new(a, s.k, s.m).t() } else { Mat::new(a, s.m, s.k) }
        };
        let mat_b = |p: usize| {
            let b = if s.shared_b { b } else { &b[p * s.k * s.n..(p + 1) * s.k * s.n] };
            if self.transpose_b { Mat::new(b, s.n, s.k).t() } else { Mat::new(b, s.k, s.n) }
        };
        let size = s.m * s.n;
        // Many small products are shared among the threads whole; few large ones are cut into tiles.
        if s.batch >= 8 && chunk == usize::MAX {
            let out = plimsoll_kernels::pool::SharedSlice::new(c);
            io.pool().run_sized(s.batch, s.batch * s.m * s.k * s.n / 64, &|p, _| {
                // SAFETY: each task writes its own product.
                let c = unsafe { out.slice(p * size, size) };
                gemm::matmul_here(mat_a(p), mat_b(p), MatMut::new(c, s.m, s.n), into);
            });
            return;
        }
        for p in 0..s.batch {
            let c = MatMut::new(&mut c[p * size..(p + 1) * size], s.m, s.n);
            gemm::matmul(io.pool(), mat_a(p), mat_b(p), c, into, chunk);
        }
    }

    /// Half precision: widened, multiplied as f32, rounded once.
    fn through_f32<H: Element>(&self, io: &Io<'_>, s: Sizes) {
        let (a, b, c) = (io.input::<H>(0), io.input::<H>(1), io.output::<H>(0));
        let room = |n: usize| n.next_multiple_of(16);
        let (wide_a, rest) = io.workspace::<f32>().split_at_mut(room(a.len()));
        let (wide_b, rest) = rest.split_at_mut(room(b.len()));
        let wide_c = &mut rest[..c.len()];
        let widen = |to: &mut [f32], from: &[H]| to.iter_mut().zip(from).for_each(|(t, f)| *t = f.to_f64() as f32);
        widen(wide_a, a);
        widen(wide_b, b);
        if io.into() == Into::Add {
            widen(wide_c, c);
        }
        self.product(io, s, &wide_a[..a.len()], &wide_b[..b.len()], wide_c);
        c.iter_mut().zip(wide_c).for_each(|(c, w)| *c = H::from_f64(*w as f64));
    }
}

impl Graph {
    /// Matrix product `a b` over the last two axes.
    ///
    /// # Errors
    /// When inner or leading sizes, or types, disagree.
    pub fn matmul(&mut self, a: Value, b: Value) -> Result<Value, GraphError> {
        self.matmul_with(a, b, false, false)
    }

    /// Matrix product of either operand or its transpose.
    ///
    /// # Errors
    /// As [`Graph::matmul`].
    pub fn matmul_with(
        &mut self,
        a: Value,
        b: Value,
        transpose_a: bool,
        transpose_b: bool,
    ) -> Result<Value, GraphError> {
        self.push1(MatMul { transpose_a, transpose_b }, &[a, b])
    }

    /// The value as a matrix of its last axis: `[.., n]` becomes `[rows, n]`.
    ///
    /// # Errors
    /// When the value is a scalar.
    pub fn rows(&mut self, x: Value) -> Result<Value, GraphError> {
        let shape = self.shape(x);
        let n = shape.dims().last().copied().unwrap_or(1);
        let rows = shape.dims()[..shape.rank().saturating_sub(1)].iter().product();
        self.reshape(x, [rows, n])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_op, check_rejects, check_slices};

    #[test]
    fn all_layouts() {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = MatMul { transpose_a: ta, transpose_b: tb };
            let a: &[usize] = if ta { &[3, 5] } else { &[5, 3] };
            let b: &[usize] = if tb { &[4, 3] } else { &[3, 4] };
            check_op(op.clone(), &[a, b]);
            let batched = |s: &[usize]| [&[2], s].concat();
            check_op(op.clone(), &[&batched(a), &batched(b)]);
            check_op(op, &[&batched(a), b]);
        }
    }

    #[test]
    fn empty_and_large() {
        check_op(MatMul::default(), &[&[3, 0], &[0, 2]]);
        check_op(MatMul::default(), &[&[9, 2, 3], &[9, 3, 4]]);
        check_op(MatMul { transpose_a: true, transpose_b: false }, &[&[600, 3], &[600, 2]]);
    }

    #[test]
    fn slices_give_the_same_bits() {
        let axis = |a: usize| Split::Axis(a);
        let plain = MatMul::default();
        for rows in [512, 777, 1100] {
            check_slices(&plain, &[&[rows, 40], &[40, 30]], &[axis(0), Split::Whole]);
        }
        check_slices(&plain, &[&[9, 600], &[600, 30]], &[axis(0), Split::Whole]);
        check_slices(&plain, &[&[300, 600], &[600, 1]], &[axis(0), Split::Whole]);
        check_slices(&plain, &[&[6, 40, 50], &[50, 8]], &[axis(0), Split::Whole]);
        check_slices(&plain, &[&[9, 7, 50], &[9, 50, 8]], &[axis(0), axis(0)]);
        check_slices(&plain, &[&[20, 600], &[600, 9]], &[Split::Whole, axis(1)]);
        let back = MatMul { transpose_a: false, transpose_b: true };
        check_slices(&back, &[&[9, 600], &[3, 600]], &[axis(0), Split::Whole]);
        check_slices(&back, &[&[700, 10], &[20, 10]], &[axis(0), Split::Whole]);
        let weights = MatMul { transpose_a: true, transpose_b: false };
        check_slices(&weights, &[&[1100, 30], &[1100, 20]], &[axis(0), axis(0)]);
        check_slices(&weights, &[&[1100, 30], &[1100, 1]], &[axis(0), axis(0)]);
        check_slices(&weights, &[&[700, 500], &[700, 300]], &[axis(0), axis(0)]);
        check_slices(&weights, &[&[3, 200, 5], &[3, 200, 4]], &[axis(1), axis(1)]);
    }

    #[test]
    fn sizes_must_agree() {
        check_rejects(MatMul::default(), &[&[2, 3], &[4, 5]], "inner sizes differ: 3 and 4");
        check_rejects(MatMul::default(), &[&[2, 3], &[3]], "takes matrices, got [2,3] and [3]");
        check_rejects(MatMul::default(), &[&[2, 2, 3], &[3, 3, 4]], "leading sizes differ: [2] and [3]");
    }
}
