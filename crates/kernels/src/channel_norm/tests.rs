use super::*;
use crate::testing::{check_close, numbers, on_any_threads, wide};

const EPSILON: f64 = 1e-3;

fn zeros<T: Float>(n: usize) -> Vec<T> {
    vec![T::ZERO; n]
}

#[track_caller]
fn check_batch<T: Float>(rows: usize, channels: usize, scaled: bool, tolerance: f64) {
    let x: Vec<T> = numbers(rows * channels, 1).iter().map(|&x: &T| x + T::from_f64(5.0)).collect();
    let (s, dy): (Vec<T>, Vec<T>) = (numbers(channels, 2), numbers(x.len(), 4));
    let scale = scaled.then_some(&s[..]);
    let [mean, variance, dx, dscale, doffset] = on_any_threads(|pool| {
        let mut scratch: Vec<T> = numbers(batch_norm_scratch(rows, channels), 9);
        let (mut mean, mut variance) = (zeros(channels), zeros(channels));
        batch_stats(pool, &x, &mut mean, &mut variance, &mut scratch);
        let (mut dx, mut in_place) = (zeros(x.len()), dy.clone());
        let (mut ds, mut do_) = (zeros(channels), zeros(channels));
        for (dy, dx) in [(Source::Slice(&dy[..]), &mut dx), (Source::InPlace, &mut in_place)] {
            let scratch = &mut scratch;
            batch_norm_grad(pool, &x, &mean, &variance, EPSILON, scale, dy, dx, &mut ds, &mut do_, scratch);
        }
        assert!(dx == in_place, "in place");
        [mean, variance, dx, ds, do_]
    });
    let (ws, wx, wdy) = (wide(&s), wide(&x), wide(&dy));
    let scale = scaled.then_some(&ws[..]);
    let [mut want_mean, mut want_variance, mut want_ds, mut want_do] = [0; 4].map(|_| vec![0.0; channels]);
    let mut want_dx = vec![0.0; x.len()];
    batch_stats_naive(&wx, &mut want_mean, &mut want_variance);
    let (m, v, dx_, ds, do_) = (&want_mean, &want_variance, &mut want_dx, &mut want_ds, &mut want_do);
    batch_norm_grad_naive(&wx, m, v, EPSILON, scale, &wdy, dx_, ds, do_);
    check_close("mean", &mean, &want_mean, tolerance);
    check_close("variance", &variance, &want_variance, tolerance);
    check_close("dx", &dx, &want_dx, tolerance * 500.0);
    check_close("dscale", &dscale, &want_ds, tolerance * rows as f64);
    check_close("doffset", &doffset, &want_do, tolerance * rows as f64);
}

#[test]
fn batch_norm_agrees_with_the_naive_version() {
    for (rows, channels) in
        [(1, 1), (3, 5), (64, 64), (65, 3), (500, 16), (1000, 127), (200, 128), (90, 300), (5000, 1)]
    {
        for scaled in [true, false] {
            check_batch::<f32>(rows, channels, scaled, 1e-6);
            check_batch::<f64>(rows, channels, scaled, 1e-13);
        }
    }
}

#[track_caller]
fn check_group<T: Float>(shape: GroupNorm, parameters: bool, tolerance: f64) {
    let GroupNorm { samples, positions, channels, groups } = shape;
    let x: Vec<T> = numbers(samples * positions * channels, 1).iter().map(|&x: &T| x + T::from_f64(2.0)).collect();
    let (s, o, dy): (Vec<T>, Vec<T>, Vec<T>) = (numbers(channels, 2), numbers(channels, 3), numbers(x.len(), 4));
    let (scale, offset) = (parameters.then_some(&s[..]), parameters.then_some(&o[..]));
    let [y, mean, rstd, dx, dscale, doffset] = on_any_threads(|pool| {
        let mut scratch: Vec<T> = numbers(shape.scratch(), 9);
        let scratch = &mut scratch[..];
        let (mut y, mut mean, mut rstd) = (zeros(x.len()), zeros(samples * groups), zeros(samples * groups));
        let mut in_place = x.clone();
        for (x, y) in [(Source::Slice(&x[..]), &mut y), (Source::InPlace, &mut in_place)] {
            group_norm(pool, shape, x, scale, offset, EPSILON, y, &mut mean, &mut rstd, scratch);
        }
        assert!(y == in_place, "in place");
        let (mut dx, mut in_place) = (zeros(x.len()), dy.clone());
        let (mut ds, mut do_) = (zeros(channels), zeros(channels));
        for (dy, dx) in [(Source::Slice(&dy[..]), &mut dx), (Source::InPlace, &mut in_place)] {
            let (ds, do_, into) = (Some(&mut ds[..]), Some(&mut do_[..]), Into::Overwrite);
            group_norm_grad(pool, shape, &x, scale, &mean, &rstd, dy, dx, ds, do_, into, scratch);
        }
        assert!(dx == in_place, "in place");
        [y, mean, rstd, dx, ds, do_]
    });
    let (ws, wo) = (wide(&s), wide(&o));
    let (scale, offset) = (parameters.then_some(&ws[..]), parameters.then_some(&wo[..]));
    let (wx, wdy) = (wide(&x), wide(&dy));
    let [mut want_mean, mut want_rstd] = [0; 2].map(|_| vec![0.0; samples * groups]);
    let [mut want_y, mut want_dx] = [0; 2].map(|_| vec![0.0; x.len()]);
    let [mut want_ds, mut want_do] = [0; 2].map(|_| vec![0.0; channels]);
    group_norm_naive(shape, &wx, scale, offset, EPSILON, &mut want_y, &mut want_mean, &mut want_rstd);
    let (dx_, ds, do_) = (&mut want_dx, &mut want_ds, &mut want_do);
    group_norm_grad_naive(shape, &wx, scale, &want_mean, &want_rstd, &wdy, dx_, ds, do_);
    check_close("y", &y, &want_y, tolerance * 50.0);
    check_close("mean", &mean, &want_mean, tolerance);
    check_close("rstd", &rstd, &want_rstd, tolerance * 50.0);
    check_close("dx", &dx, &want_dx, tolerance * 500.0);
    check_close("dscale", &dscale, &want_ds, tolerance * 10.0 * (samples * positions) as f64);
    check_close("doffset", &doffset, &want_do, tolerance * (samples * positions) as f64);
}

#[test]
fn group_norm_agrees_with_the_naive_version() {
    for (samples, positions, channels, groups) in
        [(1, 1, 2, 1), (3, 70, 6, 3), (2, 64, 32, 32), (4, 9, 160, 10), (2, 200, 12, 1), (1, 1000, 64, 8)]
    {
        let shape = GroupNorm { samples, positions, channels, groups };
        for parameters in [true, false] {
            check_group::<f32>(shape, parameters, 1e-6);
            check_group::<f64>(shape, parameters, 1e-13);
        }
    }
}

#[test]
fn variance_of_numbers_far_from_zero() {
    // The textbook formula, mean of squares less square of mean, gives nonsense here.
    let rows = 10_000;
    let x: Vec<f32> = (0..rows).map(|i| 10_000.0 + (i % 2) as f32).collect();
    let (mut mean, mut variance) = ([0.0], [0.0]);
    let mut scratch = vec![0.0; batch_norm_scratch(rows, 1)];
    batch_stats(&Pool::new(2), &x, &mut mean, &mut variance, &mut scratch);
    assert_eq!((mean, variance), ([10_000.5], [0.25]));
}

#[test]
fn samples_of_group_norm_do_not_depend_on_each_other() {
    let shape = |samples| GroupNorm { samples, positions: 100, channels: 24, groups: 4 };
    let run = |x: &[f32], samples: usize| {
        let (mut y, mut mean, mut rstd) = (zeros(x.len()), zeros(samples * 4), zeros(samples * 4));
        let mut scratch = zeros(shape(samples).scratch());
        let pool = Pool::new(2);
        let x = Source::Slice(x);
        group_norm(&pool, shape(samples), x, None, None, EPSILON, &mut y, &mut mean, &mut rstd, &mut scratch);
        y
    };
    let x: Vec<f32> = numbers(3 * 2400, 1);
    assert_eq!(run(&x, 3)[2400..4800], run(&x[2400..4800], 1));
}

#[test]
fn nothing_at_all() {
    let pool = Pool::new(1);
    let shape = GroupNorm { samples: 0, positions: 4, channels: 2, groups: 1 };
    let mut ds = [1.0f32; 2];
    let scratch = &mut vec![0.0; shape.scratch()];
    let (ds_, into) = (Some(&mut ds[..]), Into::Overwrite);
    group_norm_grad(&pool, shape, &[], None, &[], &[], Source::InPlace, &mut [], ds_, None, into, scratch);
    assert_eq!(ds, [0.0; 2]);
}
