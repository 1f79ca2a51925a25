//! The forward pass: one task for each sample, head and block of queries.

use super::scores::{Block, exponentials};
use super::{Attention, Heads, HeadsMut, KEY_BLOCK, Mask, QUERY_BLOCK};
use crate::gemm::{Into, MatMut, matmul_here};
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};

/// Elements of scratch that [`attention`] needs.
pub fn attention_scratch(shape: &Attention, threads: usize) -> usize {
    threads * worker_scratch(shape)
}

fn worker_scratch(shape: &Attention) -> usize {
    QUERY_BLOCK * (KEY_BLOCK.min(shape.keys) + shape.value_depth)
}

/// `y = softmax(scale * q k^T + mask) v`, and the log-sum-exp of each query's scores.
///
/// `q` is `[batch, queries, heads, depth]`, `k` `[batch, keys, kv_heads, depth]`, `v` `[batch, keys, kv_heads,
/// value_depth]`, `y` `[batch, queries, heads, value_depth]`, `lse` `[batch, heads, queries]`. A query that sees no key
/// gets zeros, and negative infinity for its log-sum-exp.
///
/// ```
/// use plimsoll_kernels::{Pool, attention::*};
/// // Two queries that like both keys equally well; the first may look at the first key only.
/// let shape = Attention {
///     batch: 1, queries: 2, keys: 2, heads: 1, kv_heads: 1, depth: 1, value_depth: 1, scale: 1.0, causal: true,
/// };
/// let (mut y, mut lse) = ([0.0f32; 2], [0.0; 2]);
/// let mut scratch = vec![0.0; attention_scratch(&shape, 1)];
/// let ones = Heads::new(&[1.0, 1.0], 1, 2, 1);
/// let v = Heads::new(&[10.0, 20.0], 1, 2, 1);
/// let out = HeadsMut::new(&mut y, 1, 2, 1);
/// attention(&Pool::new(1), &shape, ones, ones, v, Mask::None, out, &mut lse, &mut scratch);
/// assert_eq!(y, [10.0, 15.0]);
/// assert!((lse[1] - (1.0 + 2f32.ln())).abs() < 1e-6);
/// ```
///
/// # Panics
/// When an array is too small.
pub fn attention<T: Float>(
    pool: &Pool,
    shape: &Attention,
    q: Heads<'_, T>,
    k: Heads<'_, T>,
    v: Heads<'_, T>,
    mask: Mask<'_, T>,
    y: HeadsMut<'_, T>,
    lse: &mut [T],
    scratch: &mut [T],
) {
    let (group, blocks) = (shape.group(), shape.query_blocks());
    assert_eq!(lse.len(), shape.batch * shape.heads * shape.queries, "lse is not [batch, heads, queries]");
    let per_worker = worker_scratch(shape);
    let (lse, scratch) = (SharedSlice::new(lse), SharedSlice::new(scratch));
    pool.run_sized(shape.batch * shape.heads * blocks, shape.work(), &|task, worker| {
        let (pair, block) = (task / blocks, task % blocks);
        let (sample, head) = (pair / shape.heads, pair % shape.heads);
        let (first, n) = shape.query_block(block);
        // SAFETY: the worker's own scratch; the task's own queries.
        let (scratch, lse) =
            unsafe { (scratch.slice(worker * per_worker, per_worker), lse.slice(pair * shape.queries + first, n)) };
        let (scores, acc) = scratch.split_at_mut(per_worker - QUERY_BLOCK * shape.value_depth);
        let acc = &mut acc[..n * shape.value_depth];
        let (mut max, mut sum) = ([T::NEG_INFINITY; QUERY_BLOCK], [T::ZERO; QUERY_BLOCK]);
        acc.fill(T::ZERO);
        for key_block in 0..shape.key_blocks() {
            let keys = shape.key_block(key_block, first + n);
            if keys.1 == 0 {
                break;
            }
            let block = Block { sample, head, kv_head: head / group, queries: (first, n), keys };
            let scores = &mut scores[..keys.1 * block.stride()];
            let factor = block.compute(shape, &q, &k, mask, scores);
            let mut correction = [T::ONE; QUERY_BLOCK];
            exponentials(scores, block.stride(), factor, &mut max, &mut sum, &mut correction);
            if key_block > 0 {
                scale_rows(acc, shape.value_depth, |query| correction[query]);
            }
            let out = MatMut::new(acc, n, shape.value_depth);
            matmul_here(block.mat(scores).t(), block.key_mat(&v, shape.value_depth), out, Into::Add);
        }
        for query in 0..n {
            let nothing = sum[query] == T::ZERO;
            lse[query] = if nothing { T::NEG_INFINITY } else { max[query] + sum[query].ln() };
            let inverse = if nothing { T::ZERO } else { T::ONE / sum[query] };
            // SAFETY: the task's own query and head.
            let y = unsafe { y.row(sample, first + query, head, shape.value_depth) };
            for (y, &a) in y.iter_mut().zip(&acc[query * shape.value_depth..]) {
                *y = a * inverse;
            }
        }
    });
}

fn scale_rows<T: Float>(rows: &mut [T], width: usize, factor: impl Fn(usize) -> T) {
    for (i, row) in rows.chunks_exact_mut(width.max(1)).enumerate() {
        let factor = factor(i);
        row.iter_mut().for_each(|x| *x *= factor);
    }
}
