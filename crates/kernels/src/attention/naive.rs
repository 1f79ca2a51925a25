//! Attention in the plainest way, with the whole score matrix: what the kernels are checked against.

use super::Attention;

/// The mask of the naive versions: what is added to the scores, `[batch, heads, queries, keys]` with 1 for axes that
/// are shared; negative infinity removes a score.
pub type NaiveMask<'a> = Option<(&'a [f64], [usize; 4])>;

/// [`attention`](super::attention()) over contiguous arrays.
pub fn attention_naive(
    shape: &Attention,
    q: &[f64],
    k: &[f64],
    v: &[f64],
    mask: NaiveMask<'_>,
    y: &mut [f64],
    lse: &mut [f64],
) {
    let n = Naive { shape, mask };
    for (sample, head, query) in n.rows() {
        let (weights, row_lse) = n.weights(q, k, sample, head, query);
        lse[n.row(sample, head, query)] = row_lse;
        for c in 0..shape.value_depth {
            let sum = (0..shape.keys).map(|key| weights[key] * v[n.value(sample, key, head) + c]).sum();
            y[n.output(sample, query, head) + c] = sum;
        }
    }
}

/// [`attention_grad`](super::attention_grad()) over contiguous arrays.
pub fn attention_grad_naive(
    shape: &Attention,
    q: &[f64],
    k: &[f64],
    v: &[f64],
    mask: NaiveMask<'_>,
    dy: &[f64],
    dlse: Option<&[f64]>,
    dq: &mut [f64],
    dk: &mut [f64],
    dv: &mut [f64],
) {
    let n = Naive { shape, mask };
    [&mut *dq, &mut *dk, &mut *dv].into_iter().for_each(|grad| grad.fill(0.0));
    for (sample, head, query) in n.rows() {
        let (weights, _) = n.weights(q, k, sample, head, query);
        let dy = &dy[n.output(sample, query, head)..][..shape.value_depth];
        let mut dweights = vec![0.0; shape.keys];
        for key in 0..shape.keys {
            for c in 0..shape.value_depth {
                dweights[key] += dy[c] * v[n.value(sample, key, head) + c];
                dv[n.value(sample, key, head) + c] += weights[key] * dy[c];
            }
        }
        let mean: f64 = weights.iter().zip(&dweights).map(|(w, d)| w * d).sum();
        let dlse = dlse.map_or(0.0, |dlse| dlse[n.row(sample, head, query)]);
        for key in 0..shape.keys {
            let dscore = weights[key] * (dweights[key] - mean + dlse) * shape.scale;
            for c in 0..shape.depth {
                dq[n.query(sample, query, head) + c] += dscore * k[n.key(sample, key, head) + c];
                dk[n.key(sample, key, head) + c] += dscore * q[n.query(sample, query, head) + c];
            }
        }
    }
}

struct Naive<'a> {
    shape: &'a Attention,
    mask: NaiveMask<'a>,
}

impl Naive<'_> {
    fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let Attention { batch, heads, queries, .. } = *self.shape;
        (0..batch * heads * queries).map(move |i| (i / (heads * queries), i / queries % heads, i % queries))
    }

    fn row(&self, sample: usize, head: usize, query: usize) -> usize {
        (sample * self.shape.heads + head) * self.shape.queries + query
    }

    fn query(&self, sample: usize, query: usize, head: usize) -> usize {
        ((sample * self.shape.queries + query) * self.shape.heads + head) * self.shape.depth
    }

    fn output(&self, sample: usize, query: usize, head: usize) -> usize {
        ((sample * self.shape.queries + query) * self.shape.heads + head) * self.shape.value_depth
    }

    fn key(&self, sample: usize, key: usize, head: usize) -> usize {
        let head = head / self.shape.group();
        ((sample * self.shape.keys + key) * self.shape.kv_heads + head) * self.shape.depth
    }

    fn value(&self, sample: usize, key: usize, head: usize) -> usize {
        let head = head / self.shape.group();
        ((sample * self.shape.keys + key) * self.shape.kv_heads + head) * self.shape.value_depth
    }

    /// The softmax of one query's scores and their log-sum-exp.
    fn weights(&self, q: &[f64], k: &[f64], sample: usize, head: usize, query: usize) -> (Vec<f64>, f64) {
        let score = |key: usize| {
            if self.shape.causal && key > query {
                return f64::NEG_INFINITY;
            }
            let (q, k) = (&q[self.query(sample, query, head)..], &k[self.key(sample, key, head)..]);
            let product: f64 = (0..self.shape.depth).map(|c| q[c] * k[c]).sum();
            let mask = self.mask.map_or(0.0, |(mask, [b, h, t, n])| {
                let at = |i: usize, size: usize| if size == 1 { 0 } else { i };
                mask[((at(sample, b) * h + at(head, h)) * t + at(query, t)) * n + key]
            });
            product * self.shape.scale + mask
        };
        let scores: Vec<f64> = (0..self.shape.keys).map(score).collect();
        let max = scores.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        if max == f64::NEG_INFINITY {
            return (vec![0.0; scores.len()], max);
        }
        let lse = max + scores.iter().map(|s| (s - max).exp()).sum::<f64>().ln();
        (scores.iter().map(|s| (s - lse).exp()).collect(), lse)
    }
}
