//! The gradient: scores are computed again, block by block.
//!
//! Where there are enough samples and heads to share among the threads, one task does everything for one head of
//! keys and values, with five matrix products a block. Where there are few, two rounds of smaller tasks (blocks of
//! keys, then blocks of queries) compute the scores twice, with seven products. Both add up the same products in
//! the same order, so that the choice does not change a bit.

use super::scores::{Block, PerQuery, weights_and_grads};
use super::{Attention, Heads, HeadsMut, KEY_BLOCK, Mask, QUERY_BLOCK};
use crate::blocks::sums;
use crate::gemm::{Into, MatMut, matmul_here};
use crate::math::Float;
use crate::pool::{Pool, SharedSlice};
use crate::simd;
use std::ops::Range;

/// Elements of scratch that [`attention_grad`] needs.
pub fn attention_grad_scratch(shape: &Attention, threads: usize) -> usize {
    shape.batch * shape.heads * shape.queries + threads * worker_scratch(shape, threads)
}

/// Two blocks of scores, and the sums of the worker's keys, values and queries.
fn worker_scratch(shape: &Attention, threads: usize) -> usize {
    let (keys, queries) = accumulated(shape, threads);
    2 * scores_len(shape) + keys * (shape.depth + shape.value_depth) + queries * shape.depth
}

fn scores_len(shape: &Attention) -> usize {
    QUERY_BLOCK * KEY_BLOCK.min(shape.keys)
}

/// Keys and queries whose gradients a task adds up.
fn accumulated(shape: &Attention, threads: usize) -> (usize, usize) {
    if one_round(shape, threads) {
        (shape.keys, shape.queries)
    } else {
        (KEY_BLOCK.min(shape.keys), QUERY_BLOCK.min(shape.queries))
    }
}

/// Whether tasks of whole heads keep the threads busy.
fn one_round(shape: &Attention, threads: usize) -> bool {
    let tasks = shape.batch * shape.kv_heads;
    tasks >= 4 * threads || tasks.is_multiple_of(threads.max(1))
}

/// What the gradient is computed from.
#[derive(Clone, Copy)]
struct Inputs<'a, T> {
    shape: &'a Attention,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    mask: Mask<'a, T>,
    lse: &'a [T],
    dy: Heads<'a, T>,
    /// For each query the sum of `dy * y`, `[batch, heads, queries]`.
    delta: &'a [T],
}

/// The gradients of [`attention`](super::attention()) in `q`, `k` and `v`, from its results and their gradients `dy` and
/// `dlse` (none: zeros).
///
/// The shapes are those of the forward pass. The mask gets no gradient.
///
/// # Panics
/// When an array is too small.
pub fn attention_grad<T: Float>(
    pool: &Pool,
    shape: &Attention,
    q: Heads<'_, T>,
    k: Heads<'_, T>,
    v: Heads<'_, T>,
    mask: Mask<'_, T>,
    y: Heads<'_, T>,
    lse: &[T],
    dy: Heads<'_, T>,
    dlse: Option<&[T]>,
    dq: HeadsMut<'_, T>,
    dk: HeadsMut<'_, T>,
    dv: HeadsMut<'_, T>,
    scratch: &mut [T],
) {
    let rows = shape.batch * shape.heads * shape.queries;
    assert_eq!(lse.len(), rows, "lse is not [batch, heads, queries]");
    let (delta, scratch) = scratch.split_at_mut(rows);
    row_products(pool, shape, y, dy, delta);
    if let Some(dlse) = dlse {
        // A score's share in the log-sum-exp is its weight, so this joins what is subtracted from the weight's gradient.
        delta.iter_mut().zip(dlse).for_each(|(delta, &d)| *delta -= d);
    }
    let inputs = Inputs { shape, q, k, v, mask, lse, dy, delta };
    let round = Round { inputs: &inputs, scratch: SharedSlice::new(scratch), threads: pool.threads() };
    let (heads, blocks) = (shape.batch * shape.kv_heads, (shape.key_blocks(), shape.query_blocks()));
    if one_round(shape, pool.threads()) {
        pool.run_sized(heads, 2 * shape.work(), &|task, worker| {
            round.run(worker, task, 0..shape.group(), 0..blocks.0, 0..blocks.1, Some([&dk, &dv]), Some(&dq));
        });
        return;
    }
    pool.run_sized(heads * blocks.0, 2 * shape.work(), &|task, worker| {
        let (task, block) = (task / blocks.0, task % blocks.0);
        round.run(worker, task, 0..shape.group(), block..block + 1, 0..blocks.1, Some([&dk, &dv]), None);
    });
    pool.run_sized(heads * shape.group() * blocks.1, shape.work(), &|task, worker| {
        let (task, block) = (task / blocks.1, task % blocks.1);
        let (task, member) = (task / shape.group(), task % shape.group());
        round.run(worker, task, member..member + 1, 0..blocks.0, block..block + 1, None, Some(&dq));
    });
}

/// The sums over `dy * y` of each query and head.
fn row_products<T: Float>(pool: &Pool, shape: &Attention, y: Heads<'_, T>, dy: Heads<'_, T>, delta: &mut [T]) {
    let out = SharedSlice::new(delta);
    let work = shape.batch * shape.heads * shape.queries * shape.value_depth / 4;
    pool.run_sized(shape.batch * shape.heads, work, &|pair, _| {
        let (sample, head) = (pair / shape.heads, pair % shape.heads);
        // SAFETY: each task owns the queries of its sample and head.
        let out = unsafe { out.slice(pair * shape.queries, shape.queries) };
        for (query, out) in out.iter_mut().enumerate() {
            let [y, dy] = [y, dy].map(|x| &x.at(sample, query, head)[..shape.value_depth]);
            *out = dot(y, dy);
        }
    });
}

simd! {
    fn dot[T: Float](a: &[T], b: &[T]) -> T {
        let [sum] = sums([a, b], |[a, b]| [a * b]);
        sum
    }
}

/// What the tasks of a round share.
struct Round<'a, T> {
    inputs: &'a Inputs<'a, T>,
    scratch: SharedSlice<T>,
    threads: usize,
}

impl<T: Float> Round<'_, T> {
    /// The gradients of one head of keys and values, from some of its query heads, blocks of keys and blocks of
    /// queries. Those of the keys and values are written for these blocks of keys, those of the queries for these
    /// blocks of queries.
    fn run(
        &self,
        worker: usize,
        task: usize,
        members: Range<usize>,
        key_blocks: Range<usize>,
        query_blocks: Range<usize>,
        key_grads: Option<[&HeadsMut<'_, T>; 2]>,
        query_grads: Option<&HeadsMut<'_, T>>,
    ) {
        let Inputs { shape, q, k, v, mask, lse, dy, delta } = *self.inputs;
        let (depth, value_depth) = (shape.depth, shape.value_depth);
        let (sample, kv_head) = (task / shape.kv_heads, task % shape.kv_heads);
        let (first_key, first_query) = (key_blocks.start * KEY_BLOCK, query_blocks.start * QUERY_BLOCK);
        let end_key = key_grads.map_or(first_key, |_| shape.keys.min(key_blocks.end * KEY_BLOCK));
        let end_query = query_grads.map_or(first_query, |_| shape.queries.min(query_blocks.end * QUERY_BLOCK));
        let (n_keys, n_queries) = (end_key - first_key, end_query - first_query);

        let per_worker = worker_scratch(shape, self.threads);
        // SAFETY: the worker's own scratch.
        let scratch = unsafe { self.scratch.slice(worker * per_worker, per_worker) };
        let (scores, scratch) = scratch.split_at_mut(scores_len(shape));
        let (grads, scratch) = scratch.split_at_mut(scores_len(shape));
        let (key_sums, scratch) = scratch.split_at_mut(n_keys * depth);
        let (value_sums, scratch) = scratch.split_at_mut(n_keys * value_depth);
        key_sums.fill(T::ZERO);
        value_sums.fill(T::ZERO);

        for head in members.map(|member| kv_head * shape.group() + member) {
            let query_sums = &mut scratch[..n_queries * depth];
            query_sums.fill(T::ZERO);
            for key_block in key_blocks.clone() {
                for query_block in query_blocks.clone() {
                    let queries = shape.query_block(query_block);
                    let keys = shape.key_block(key_block, queries.0 + queries.1);
                    if keys.1 == 0 {
                        continue;
                    }
                    let block = Block { sample, head, kv_head, queries, keys };
                    let len = keys.1 * block.stride();
                    let (scores, grads) = (&mut scores[..len], &mut grads[..len]);
                    let factor = block.compute(shape, &q, &k, mask, scores);
                    let dy = block.query_mat(&dy, value_depth);
                    matmul_here(block.key_mat(&v, value_depth), dy.t(), block.mat_mut(grads), Into::Overwrite);
                    let at = (sample * shape.heads + head) * shape.queries;
                    let [lse, delta] = [lse, delta].map(|x| per_query(&x[at + queries.0..][..queries.1]));
                    weights_and_grads(scores, grads, block.stride(), factor, T::from_f64(shape.scale), &lse, &delta);
                    if key_grads.is_some() {
                        let at = keys.0 - first_key;
                        let values = MatMut::new(&mut value_sums[at * value_depth..], keys.1, value_depth);
                        matmul_here(block.mat(scores), dy, values, Into::Add);
                        let sums = MatMut::new(&mut key_sums[at * depth..], keys.1, depth);
                        matmul_here(block.mat(grads), block.query_mat(&q, depth), sums, Into::Add);
                    }
                    if query_grads.is_some() {
                        let at = queries.0 - first_query;
                        let sums = MatMut::new(&mut query_sums[at * depth..], queries.1, depth);
                        matmul_here(block.mat(grads).t(), block.key_mat(&k, depth), sums, Into::Add);
                    }
                }
            }
            if let Some(out) = query_grads {
                // SAFETY: no other task writes these queries of this head.
                unsafe { copy_out(query_sums, depth, out, (sample, first_query, head)) };
            }
        }
        if let Some([dk, dv]) = key_grads {
            // SAFETY: no other task writes these keys of this head.
            unsafe {
                copy_out(key_sums, depth, dk, (sample, first_key, kv_head));
                copy_out(value_sums, value_depth, dv, (sample, first_key, kv_head));
            }
        }
    }
}

fn per_query<T: Float>(x: &[T]) -> PerQuery<T> {
    let mut all = [T::ZERO; QUERY_BLOCK];
    all[..x.len()].copy_from_slice(x);
    all
}

/// Copies contiguous rows to their places.
///
/// # Safety
/// As for [`HeadsMut::row`].
unsafe fn copy_out<T: Float>(
    rows: &[T],
    depth: usize,
    out: &HeadsMut<'_, T>,
    (sample, time, head): (usize, usize, usize),
) {
    for (i, row) in rows.chunks_exact(depth.max(1)).enumerate() {
        // SAFETY: by the caller's promise.
        unsafe { out.row(sample, time + i, head, depth) }.copy_from_slice(row);
    }
}
