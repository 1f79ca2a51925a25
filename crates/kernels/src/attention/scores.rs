//! One block of scores, `[keys, queries]`: the product, the masks, and the loops over it.

use super::{Attention, Heads, Mask, QUERY_BLOCK};
use crate::gemm::{Into, Mat, MatMut, matmul_here};
use crate::math::Float;
use crate::simd;

/// Queries that the loops take at a time; rows of a block are padded to a multiple.
const LANES: usize = 32;

/// A number for each query of a block.
pub(super) type PerQuery<T> = [T; QUERY_BLOCK];

/// Which scores a block holds.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub sample: usize,
    pub head: usize,
    pub kv_head: usize,
    /// First query and number of queries.
    pub queries: (usize, usize),
    /// First key and number of keys.
    pub keys: (usize, usize),
}

impl Block {
    /// The distance between one key's scores and the next.
    pub fn stride(&self) -> usize {
        self.queries.1.next_multiple_of(LANES)
    }

    /// The block as a matrix of keys by queries.
    pub fn mat<'a, T>(&self, scores: &'a [T]) -> Mat<'a, T> {
        Mat::strided(scores, self.keys.1, self.queries.1, self.stride(), 1)
    }

    /// As [`Block::mat`], to be written.
    pub fn mat_mut<'a, T>(&self, scores: &'a mut [T]) -> MatMut<'a, T> {
        MatMut::strided(scores, self.keys.1, self.queries.1, self.stride(), 1)
    }

    /// The queries' part of an array of queries.
    pub fn query_mat<'a, T>(&self, x: &Heads<'a, T>, depth: usize) -> Mat<'a, T> {
        let (first, n) = self.queries;
        Mat::strided(x.at(self.sample, first, self.head), n, depth, x.time_stride(), 1)
    }

    /// The keys' part of an array of keys or values.
    pub fn key_mat<'a, T>(&self, x: &Heads<'a, T>, depth: usize) -> Mat<'a, T> {
        let (first, n) = self.keys;
        Mat::strided(x.at(self.sample, first, self.kv_head), n, depth, x.time_stride(), 1)
    }

    /// Fills `scores` with the products of keys and queries, masked; returns the factor that is still missing.
    pub fn compute<T: Float>(
        &self,
        shape: &Attention,
        q: &Heads<'_, T>,
        k: &Heads<'_, T>,
        mask: Mask<'_, T>,
        scores: &mut [T],
    ) -> T {
        let (keys, queries) = (self.key_mat(k, shape.depth), self.query_mat(q, shape.depth));
        matmul_here(keys, queries.t(), self.mat_mut(scores), Into::Overwrite);
        let scale = T::from_f64(shape.scale);
        let factor = match mask {
            Mask::None => scale,
            Mask::Add(view) => {
                let row = |query| view.row(self.sample, self.head, query, self.keys.0);
                self.apply_mask(scores, view.same_for_queries(), row, |s, m| s * scale + m);
                T::ONE
            }
            Mask::Keep(view) => {
                let row = |query| view.row(self.sample, self.head, query, self.keys.0);
                let keep = |s, m| if m { s } else { T::NEG_INFINITY };
                // A negative scale would turn the removed scores into the largest.
                self.apply_mask(scores, view.same_for_queries(), row, |s: T, m| keep(s * scale, m));
                T::ONE
            }
        };
        if shape.causal {
            self.remove_later_keys(scores, factor);
        }
        factor
    }

    /// `scores = f(scores, mask)`, in tiles small enough for the first-level cache, for the mask is not transposed.
    fn apply_mask<'m, T: Float, M: Copy + 'm>(
        &self,
        scores: &mut [T],
        same_for_queries: bool,
        row: impl Fn(usize) -> &'m [M],
        f: impl Fn(T, M) -> T,
    ) {
        const TILE: usize = 64;
        let ((first, n), stride) = (self.queries, self.stride());
        if same_for_queries {
            for (scores, &m) in scores.chunks_exact_mut(stride).zip(&row(first)[..self.keys.1]) {
                scores.iter_mut().for_each(|s| *s = f(*s, m));
            }
            return;
        }
        for key in (0..self.keys.1).step_by(TILE) {
            for query in 0..n {
                let mask = &row(first + query)[key..self.keys.1.min(key + TILE)];
                for (i, &m) in mask.iter().enumerate() {
                    let score = &mut scores[(key + i) * stride + query];
                    *score = f(*score, m);
                }
            }
        }
    }

    /// Removes the scores of keys that come after the query.
    fn remove_later_keys<T: Float>(&self, scores: &mut [T], factor: T) {
        let ((first_query, n), (first_key, keys)) = (self.queries, self.keys);
        let removed = if factor < T::ZERO { T::INFINITY } else { T::NEG_INFINITY };
        for key in (first_query + 1).max(first_key)..first_key + keys {
            let earlier = (key - first_query).min(n);
            scores[(key - first_key) * self.stride()..][..earlier].fill(removed);
        }
    }
}

simd! {
    /// Turns scores into exponentials and brings each query's maximum and sum up to date.
    ///
    /// `correction` gets what sums and products of the blocks before must be multiplied with.
    pub(super) fn exponentials[T: Float](
        scores: &mut [T],
        stride: usize,
        factor: T,
        max: &mut PerQuery<T>,
        sum: &mut PerQuery<T>,
        correction: &mut PerQuery<T>,
    ) {
        for lane in (0..stride).step_by(LANES) {
            let old: [T; LANES] = lanes(max, lane);
            let mut new = old;
            for row in scores.chunks_exact(stride) {
                let row: [T; LANES] = lanes(row, lane);
                for i in 0..LANES {
                    let score = row[i] * factor;
                    new[i] = if score > new[i] { score } else { new[i] };
                }
            }
            let shift = new.map(finite);
            let mut total = [T::ZERO; LANES];
            for row in scores.chunks_exact_mut(stride) {
                let row: &mut [T; LANES] = (&mut row[lane..lane + LANES]).try_into().expect("whole lanes");
                for i in 0..LANES {
                    let e = (row[i] * factor - shift[i]).exp_nonpositive();
                    row[i] = e;
                    total[i] += e;
                }
            }
            for i in 0..LANES {
                let c = (old[i] - shift[i]).exp_nonpositive();
                correction[lane + i] = c;
                sum[lane + i] = sum[lane + i] * c + total[i];
                max[lane + i] = new[i];
            }
        }
    }

    /// Turns scores into weights, and the gradients of weights into gradients of scores.
    ///
    /// `weights = e^(scores * factor - lse)`, `grads = weights * (grads - delta) * scale`.
    pub(super) fn weights_and_grads[T: Float](
        scores: &mut [T],
        grads: &mut [T],
        stride: usize,
        factor: T,
        scale: T,
        lse: &PerQuery<T>,
        delta: &PerQuery<T>,
    ) {
        for lane in (0..stride).step_by(LANES) {
            let shift: [T; LANES] = lanes(lse, lane).map(finite);
            let delta: [T; LANES] = lanes(delta, lane);
            for (scores, grads) in scores.chunks_exact_mut(stride).zip(grads.chunks_exact_mut(stride)) {
                let scores: &mut [T; LANES] = (&mut scores[lane..lane + LANES]).try_into().expect("whole lanes");
                let grads: &mut [T; LANES] = (&mut grads[lane..lane + LANES]).try_into().expect("whole lanes");
                for i in 0..LANES {
                    let weight = (scores[i] * factor - shift[i]).exp_nonpositive();
                    scores[i] = weight;
                    grads[i] = weight * (grads[i] - delta[i]) * scale;
                }
            }
        }
    }
}

#[inline(always)]
fn lanes<T: Float>(row: &[T], lane: usize) -> [T; LANES] {
    row[lane..lane + LANES].try_into().expect("whole lanes")
}

/// The number itself, or 0 for the negative infinity of a query that sees nothing: then all its exponentials are 0.
#[inline(always)]
fn finite<T: Float>(x: T) -> T {
    if x == T::NEG_INFINITY { T::ZERO } else { x }
}
