use super::*;
use crate::Pool;
use crate::math::Float;
use crate::testing::{check_close, numbers, on_any_threads, wide};

const PLAIN: Attention = Attention {
    batch: 2,
    queries: 5,
    keys: 7,
    heads: 2,
    kv_heads: 2,
    depth: 4,
    value_depth: 3,
    scale: 0.5,
    causal: false,
};

fn square(batch: usize, time: usize, heads: usize, depth: usize, causal: bool) -> Attention {
    Attention {
        batch,
        queries: time,
        keys: time,
        heads,
        kv_heads: heads,
        depth,
        value_depth: depth,
        scale: 1.0 / (depth as f64).sqrt(),
        causal,
    }
}

/// Which mask a case has, and the shape of it.
#[derive(Clone, Copy, Debug)]
enum Masked {
    No,
    Add([usize; 4]),
    Keep([usize; 4]),
}

/// Forward and backward results: y, lse, dq, dk, dv.
type Results<T> = [Vec<T>; 5];

fn sizes(shape: &Attention) -> [usize; 5] {
    let Attention { batch, queries, keys, heads, kv_heads, depth, value_depth, .. } = *shape;
    [
        batch * queries * heads * depth,
        batch * keys * kv_heads * depth,
        batch * keys * kv_heads * value_depth,
        batch * queries * heads * value_depth,
        batch * heads * queries,
    ]
}

fn run<T: Float>(pool: &Pool, shape: &Attention, q: &[T], k: &[T], v: &[T], mask: Mask<'_, T>, dy: &[T]) -> Results<T> {
    // The same numbers for every sample.
    let dlse = numbers(shape.heads * shape.queries, 7).repeat(shape.batch);
    let Attention { queries, keys, heads, kv_heads, depth, value_depth, .. } = *shape;
    let [nq, nk, nv, ny, nl] = sizes(shape);
    let [mut y, mut lse, mut dq, mut dk, mut dv] = [ny, nl, nq, nk, nv].map(|n| vec![T::from_f64(7.0); n]);
    let (q, k) = (Heads::new(q, heads, queries, depth), Heads::new(k, kv_heads, keys, depth));
    let (v, dy) = (Heads::new(v, kv_heads, keys, value_depth), Heads::new(dy, heads, queries, value_depth));
    let mut scratch = numbers(attention_scratch(shape, pool.threads()), 8);
    let out = HeadsMut::new(&mut y, heads, queries, value_depth);
    attention(pool, shape, q, k, v, mask, out, &mut lse, &mut scratch);
    let mut scratch = numbers(attention_grad_scratch(shape, pool.threads()), 9);
    attention_grad(
        pool,
        shape,
        q,
        k,
        v,
        mask,
        Heads::new(&y, heads, queries, value_depth),
        &lse,
        dy,
        Some(&dlse),
        HeadsMut::new(&mut dq, heads, queries, depth),
        HeadsMut::new(&mut dk, kv_heads, keys, depth),
        HeadsMut::new(&mut dv, kv_heads, keys, value_depth),
        &mut scratch,
    );
    [y, lse, dq, dk, dv]
}

#[track_caller]
fn check_type<T: Float>(shape: &Attention, masked: Masked, tolerance: f64) {
    let [nq, nk, nv, ny, nl] = sizes(shape);
    let scaled =
        |n: usize, seed: u64| -> Vec<T> { numbers(n, seed).iter().map(|&x: &T| x * T::from_f64(2.0)).collect() };
    let (q, k, v, dy) = (scaled(nq, 1), scaled(nk, 2), scaled(nv, 3), scaled(ny, 4));
    let mut kept = Vec::new();
    let mut added: Vec<T> = Vec::new();
    let mut naive_mask = Vec::new();
    let (mask, mask_shape) = match masked {
        Masked::No => (Mask::None, None),
        Masked::Add(size) => {
            added = numbers(size.iter().product(), 5);
            added.iter_mut().step_by(5).for_each(|m| *m = T::NEG_INFINITY);
            naive_mask = wide(&added);
            (Mask::Add(MaskView::new(&added, size)), Some(size))
        }
        Masked::Keep(size) => {
            let draw: Vec<f64> = numbers(size.iter().product(), 6);
            kept = draw.iter().map(|&m| m > -0.2).collect();
            // The first row of keys is hidden altogether.
            kept[..size[3]].fill(false);
            naive_mask = kept.iter().map(|&m| if m { 0.0 } else { f64::NEG_INFINITY }).collect();
            (Mask::Keep(MaskView::new(&kept, size)), Some(size))
        }
    };
    let got = on_any_threads(|pool| run(pool, shape, &q, &k, &v, mask, &dy));
    let [mut y, mut lse, mut dq, mut dk, mut dv] = [ny, nl, nq, nk, nv].map(|n| vec![0.0; n]);
    let (q, k, v, dy) = (wide(&q), wide(&k), wide(&v), wide(&dy));
    let naive = mask_shape.map(|size| (&naive_mask[..], size));
    attention_naive(shape, &q, &k, &v, naive, &mut y, &mut lse);
    let dlse: Vec<T> = numbers(shape.heads * shape.queries, 7).repeat(shape.batch);
    attention_grad_naive(shape, &q, &k, &v, naive, &dy, Some(&wide(&dlse)), &mut dq, &mut dk, &mut dv);
    for (name, (got, want)) in ["y", "lse", "dq", "dk", "dv"].iter().zip(got.iter().zip([y, lse, dq, dk, dv])) {
        check_close(name, got, &want, tolerance);
    }
    drop((added, kept));
}

#[track_caller]
fn check(shape: Attention, masked: Masked) {
    check_type::<f32>(&shape, masked, 3e-5);
    check_type::<f64>(&shape, masked, 1e-12);
}

#[test]
fn plain() {
    check(PLAIN, Masked::No);
    check(Attention { causal: true, ..PLAIN }, Masked::No);
    check(Attention { scale: -0.7, causal: true, ..PLAIN }, Masked::No);
}

#[test]
fn several_blocks() {
    for causal in [false, true] {
        check(square(1, 64, 2, 16, causal), Masked::No);
        check(square(2, 100, 3, 8, causal), Masked::No);
        check(square(1, 330, 1, 20, causal), Masked::No);
        check(Attention { queries: 70, keys: 600, causal, ..PLAIN }, Masked::No);
        check(Attention { queries: 300, keys: 20, causal, ..PLAIN }, Masked::No);
    }
}

#[test]
fn one_query() {
    check(Attention { queries: 1, keys: 300, ..PLAIN }, Masked::No);
    check(Attention { queries: 1, keys: 1, depth: 1, value_depth: 1, ..PLAIN }, Masked::No);
}

#[test]
fn masks() {
    let shape = Attention { queries: 80, keys: 270, ..PLAIN };
    for size in [[2, 2, 80, 270], [1, 1, 80, 270], [2, 1, 1, 270], [1, 2, 80, 270]] {
        for causal in [false, true] {
            check(Attention { causal, ..shape }, Masked::Add(size));
            check(Attention { causal, ..shape }, Masked::Keep(size));
        }
    }
    check(Attention { scale: -0.3, causal: true, ..shape }, Masked::Keep([2, 1, 1, 270]));
}

#[test]
fn shared_keys() {
    let shape = Attention { heads: 6, kv_heads: 2, queries: 70, keys: 300, ..PLAIN };
    check(shape, Masked::No);
    check(Attention { kv_heads: 1, causal: true, ..shape }, Masked::No);
    // Few enough heads for three threads to take the gradient in two rounds, where one thread takes one.
    check(Attention { batch: 1, heads: 4, kv_heads: 1, queries: 130, keys: 530, causal: true, ..PLAIN }, Masked::No);
}

#[test]
fn nothing_to_see() {
    let shape = Attention { keys: 0, ..PLAIN };
    let (q, dy) = (numbers::<f32>(40, 1), numbers::<f32>(60, 2));
    let [y, lse, dq, ..] = run(&Pool::new(2), &shape, &q, &[], &[], Mask::None, &dy);
    assert!(y.iter().chain(&dq).all(|&x| x == 0.0) && lse.iter().all(|&l| l == f32::NEG_INFINITY));
    run::<f32>(&Pool::new(1), &Attention { batch: 0, ..PLAIN }, &[], &[], &[], Mask::None, &[]);
}

#[test]
fn packed_arrays_are_read_and_written_in_place() {
    let shape = square(2, 90, 3, 8, true);
    let Attention { batch, queries: time, heads, depth, .. } = shape;
    let (packed, dy): (Vec<f32>, Vec<f32>) =
        (numbers(batch * time * 3 * heads * depth, 1), numbers(batch * time * heads * depth, 2));
    let row = heads * depth;
    let part = |x: &[f32], i: usize| -> Vec<f32> { x.chunks(row).skip(i).step_by(3).flatten().copied().collect() };
    let [q, k, v] = [0, 1, 2].map(|i| part(&packed, i));
    let pool = Pool::new(2);
    let apart = run(&pool, &shape, &q, &k, &v, Mask::None, &dy);

    let (mut y, mut lse, mut grads) = (vec![0.0; dy.len()], vec![0.0; batch * heads * time], vec![7.0; packed.len()]);
    let [q, k, v] = Heads::packed(&packed, heads, time, depth);
    let mut scratch = vec![0.0; attention_scratch(&shape, 2)];
    attention(&pool, &shape, q, k, v, Mask::None, HeadsMut::new(&mut y, heads, time, depth), &mut lse, &mut scratch);
    let [dq, dk, dv] = HeadsMut::packed(&mut grads, heads, time, depth);
    let (y_, dy_) = (Heads::new(&y, heads, time, depth), Heads::new(&dy, heads, time, depth));
    let mut scratch = vec![0.0; attention_grad_scratch(&shape, 2)];
    let dlse = numbers(heads * time, 7).repeat(batch);
    attention_grad(&pool, &shape, q, k, v, Mask::None, y_, &lse, dy_, Some(&dlse), dq, dk, dv, &mut scratch);
    let [dq, dk, dv] = [0, 1, 2].map(|i| part(&grads, i));
    assert!(apart == [y, lse, dq, dk, dv]);
}

#[test]
fn a_sample_does_not_depend_on_the_others() {
    let shape = square(5, 150, 2, 16, true);
    let n = shape.queries * shape.heads * shape.depth;
    let [q, k, v, dy] = [1, 2, 3, 4].map(|seed| numbers::<f32>(5 * n, seed));
    let pool = Pool::new(3);
    let whole = run(&pool, &shape, &q, &k, &v, Mask::None, &dy);
    // With one sample the gradient goes in two rounds.
    let [q, k, v, dy] = [&q, &k, &v, &dy].map(|x| &x[3 * n..4 * n]);
    let alone = run(&pool, &Attention { batch: 1, ..shape }, q, k, v, Mask::None, dy);
    for (whole, alone) in whole.iter().zip(&alone) {
        assert!(whole[3 * alone.len()..4 * alone.len()] == alone[..]);
    }
}

#[test]
fn gradient_agrees_with_differences() {
    let shape = Attention { causal: true, heads: 2, kv_heads: 1, ..PLAIN };
    let [nq, nk, nv, ny, nl] = sizes(&shape);
    let inputs: [Vec<f64>; 3] = [numbers(nq, 1), numbers(nk, 2), numbers(nv, 3)];
    let (dy, dlse): (Vec<f64>, Vec<f64>) = (numbers(ny, 4), numbers(nl, 5));
    let loss = |inputs: &[Vec<f64>; 3]| {
        let (mut y, mut lse) = (vec![0.0; ny], vec![0.0; nl]);
        attention_naive(&shape, &inputs[0], &inputs[1], &inputs[2], None, &mut y, &mut lse);
        let through_y: f64 = y.iter().zip(&dy).map(|(y, d)| y * d).sum();
        through_y + lse.iter().zip(&dlse).map(|(l, d)| l * d).sum::<f64>()
    };
    let mut grads = [vec![0.0; nq], vec![0.0; nk], vec![0.0; nv]];
    let [dq, dk, dv] = &mut grads;
    attention_grad_naive(&shape, &inputs[0], &inputs[1], &inputs[2], None, &dy, Some(&dlse), dq, dk, dv);
    for (which, grad) in grads.iter().enumerate() {
        for (i, &g) in grad.iter().enumerate() {
            let nudged = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[which][i] += by;
                loss(&inputs)
            };
            let difference = (nudged(1e-5) - nudged(-1e-5)) / 2e-5;
            assert!((g - difference).abs() < 1e-8, "input {which}[{i}]: {g} and {difference}");
        }
    }
}
