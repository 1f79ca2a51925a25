use super::naive::{forward_naive, grad_filter_naive, grad_input_naive};
use super::*;
use crate::Pool;
use crate::gemm::Into;
use crate::math::Float;

fn fill<T: Float>(n: usize, seed: u64) -> Vec<T> {
    let mut z = seed;
    let mut next = || {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (z >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    (0..n).map(|_| T::from_f64(next() as f32 as f64)).collect()
}

/// An axis whose output has the size that the margins before and behind give.
fn axis(input: usize, kernel: usize, stride: usize, dilation: usize, pad: usize, pad_after: usize) -> Axis {
    let reach = (kernel - 1) * dilation + 1;
    Axis { input, output: (input + pad + pad_after - reach) / stride + 1, kernel, stride, dilation, pad }
}

fn sizes(batch: usize, in_channels: usize, out_channels: usize, groups: usize, axes: &[Axis]) -> Geometry {
    let mut all = [Axis::POINT; 3];
    all[3 - axes.len()..].copy_from_slice(axes);
    Geometry { batch, in_channels, out_channels, groups, axes: all }
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Forward,
    Input,
    Filter,
}

fn run<T: Float>(which: Which, threads: usize, g: &Geometry, a: &[T], b: &[T], len: usize) -> Vec<T> {
    let pool = Pool::new(threads);
    let mut out = vec![T::from_f64(f64::NAN); len];
    let need = match which {
        Which::Forward => forward_scratch::<T>(g, threads),
        Which::Input => grad_input_scratch::<T>(g, threads),
        Which::Filter => grad_filter_scratch::<T>(g, threads),
    };
    // A scratch full of NaN shows what is read before it is written.
    let mut scratch = vec![T::from_f64(f64::NAN); need];
    match which {
        Which::Forward => forward(&pool, g, a, b, &mut out, &mut scratch),
        Which::Input => grad_input(&pool, g, a, b, &mut out, &mut scratch),
        Which::Filter => grad_filter(&pool, g, a, b, &mut out, Into::Overwrite, &mut scratch),
    }
    out
}

#[track_caller]
fn check_type<T: Float>(g: &Geometry, tolerance: f64) {
    let x = fill::<T>(g.input_len(), 1);
    let filter = fill::<T>(g.filter_len(), 2);
    let dy = fill::<T>(g.output_len(), 3);
    let wide = |v: &[T]| v.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let (x64, filter64, dy64) = (wide(&x), wide(&filter), wide(&dy));
    for which in [Which::Forward, Which::Input, Which::Filter] {
        let (a, b, len) = match which {
            Which::Forward => (&x, &filter, dy.len()),
            Which::Input => (&filter, &dy, x.len()),
            Which::Filter => (&x, &dy, filter.len()),
        };
        let mut want = vec![0.0; len];
        match which {
            Which::Forward => forward_naive(g, &x64, &filter64, &mut want),
            Which::Input => grad_input_naive(g, &filter64, &dy64, &mut want),
            Which::Filter => grad_filter_naive(g, &x64, &dy64, &mut want),
        }
        let runs = [1, 2, 3].map(|threads| run(which, threads, g, a, b, len));
        assert!(runs[0] == runs[1] && runs[0] == runs[2], "{which:?}: bits depend on the threads, {g:?}");
        let terms = match which {
            Which::Filter => g.batch * g.outputs(),
            _ => g.filter_len() / g.out_channels * g.out_channels.max(g.in_channels) / g.groups,
        };
        for (i, (got, want)) in runs[0].iter().zip(&want).enumerate() {
            let error = (got.to_f64() - want).abs();
            assert!(error <= tolerance * (terms as f64).sqrt(), "{which:?} at {i}: {got:?} and {want}, {g:?}");
        }
    }
}

#[track_caller]
fn check(g: Geometry) {
    check_type::<f32>(&g, 2e-6);
    check_type::<f64>(&g, 1e-14);
}

#[test]
fn plain_images() {
    check(sizes(2, 3, 5, 1, &[axis(6, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)]));
    check(sizes(3, 16, 32, 1, &[axis(5, 3, 1, 1, 0, 0), axis(5, 3, 1, 1, 0, 0)]));
    check(sizes(2, 4, 40, 1, &[axis(8, 3, 1, 1, 1, 1), axis(9, 5, 1, 1, 2, 2)]));
    check(sizes(1, 1, 1, 1, &[axis(4, 2, 1, 1, 0, 1), axis(30, 2, 1, 1, 0, 1)]));
    check(sizes(2, 7, 33, 1, &[axis(3, 3, 1, 1, 1, 1), axis(26, 3, 1, 1, 1, 1)]));
}

#[test]
fn strides_dilations_and_uneven_margins() {
    check(sizes(2, 5, 6, 1, &[axis(9, 3, 2, 1, 1, 0), axis(10, 3, 2, 1, 0, 1)]));
    check(sizes(2, 4, 8, 1, &[axis(11, 3, 1, 2, 2, 2), axis(9, 3, 1, 3, 3, 3)]));
    check(sizes(1, 3, 4, 1, &[axis(12, 4, 3, 2, 5, 4), axis(13, 5, 2, 2, 3, 6)]));
    check(sizes(2, 2, 3, 1, &[axis(7, 1, 3, 1, 0, 0), axis(8, 2, 5, 1, 0, 0)]));
    // Margins wider than the filter: some results see nothing at all.
    check(sizes(1, 2, 3, 1, &[axis(3, 2, 1, 1, 4, 5), axis(2, 2, 1, 1, 5, 4)]));
    check(sizes(1, 2, 3, 1, &[axis(2, 3, 2, 3, 6, 7), axis(1, 1, 1, 1, 2, 3)]));
}

#[test]
fn one_and_three_dimensions() {
    check(sizes(2, 6, 9, 1, &[axis(300, 5, 1, 1, 2, 2)]));
    check(sizes(1, 3, 64, 1, &[axis(1000, 9, 4, 1, 4, 4)]));
    check(sizes(2, 3, 5, 1, &[axis(4, 3, 1, 1, 1, 1), axis(5, 3, 2, 1, 1, 1), axis(6, 3, 1, 1, 1, 1)]));
    check(sizes(1, 2, 4, 1, &[axis(7, 3, 2, 2, 2, 1), axis(4, 2, 1, 1, 0, 1), axis(5, 3, 2, 1, 1, 1)]));
    check(sizes(2, 3, 4, 1, &[axis(4, 2, 1, 1, 0, 0), axis(4, 2, 1, 1, 0, 0), axis(5, 2, 1, 1, 0, 0)]));
}

#[test]
fn groups_and_depthwise() {
    check(sizes(2, 6, 9, 3, &[axis(6, 3, 1, 1, 1, 1), axis(6, 3, 1, 1, 1, 1)]));
    check(sizes(2, 80, 40, 2, &[axis(4, 3, 2, 1, 1, 1), axis(6, 3, 2, 1, 1, 1)]));
    check(sizes(1, 4, 12, 4, &[axis(6, 3, 1, 1, 1, 1), axis(6, 3, 1, 1, 1, 1)]));
    for channels in [1, 5, 16, 70, 100, 256] {
        check(sizes(2, channels, channels, channels, &[axis(6, 3, 1, 1, 1, 1), axis(19, 3, 1, 1, 1, 1)]));
        check(sizes(2, channels, channels, channels, &[axis(7, 5, 2, 1, 2, 1), axis(8, 4, 2, 2, 1, 2)]));
    }
}

#[test]
fn pointwise() {
    check(sizes(3, 5, 7, 1, &[axis(4, 1, 1, 1, 0, 0), axis(5, 1, 1, 1, 0, 0)]));
    check(sizes(9, 20, 70, 1, &[axis(1, 1, 1, 1, 0, 0)]));
    check(sizes(2, 40, 40, 2, &[axis(6, 1, 1, 1, 0, 0), axis(6, 1, 1, 1, 0, 0)]));
    check(sizes(2, 400, 360, 1, &[axis(4, 1, 1, 1, 0, 0), axis(5, 1, 1, 1, 0, 0)]));
    check(sizes(40, 8, 8, 1, &[axis(2, 1, 1, 1, 0, 0), axis(2, 1, 1, 1, 0, 0)]));
}

#[test]
fn large_enough_for_every_way_of_cutting() {
    // Many chunks; a filter that is shared out; rows cut into segments; several samples in a task.
    check(sizes(70, 3, 8, 1, &[axis(8, 3, 1, 1, 1, 1), axis(8, 3, 1, 1, 1, 1)]));
    check(sizes(3, 200, 160, 1, &[axis(3, 3, 1, 1, 1, 1), axis(3, 3, 1, 1, 1, 1)]));
    check(sizes(1, 64, 8, 1, &[axis(12, 3, 1, 1, 1, 1), axis(700, 3, 1, 1, 1, 1)]));
    check(sizes(40, 180, 96, 1, &[axis(2, 3, 1, 1, 1, 1), axis(2, 3, 1, 1, 1, 1)]));
    // Channels that are copied a few at a time: with and without a margin, strides and dilations, and in depth.
    check(sizes(2, 131, 40, 1, &[axis(20, 3, 1, 1, 1, 1), axis(60, 3, 1, 1, 1, 1)]));
    check(sizes(1, 270, 33, 1, &[axis(9, 3, 2, 1, 1, 0), axis(30, 5, 2, 1, 2, 1)]));
    check(sizes(1, 140, 5, 1, &[axis(3, 2, 1, 1, 1, 0), axis(6, 2, 1, 2, 0, 0), axis(14, 3, 1, 2, 2, 2)]));
}

#[test]
fn filters_that_are_read_for_many_results() {
    // Copies with gaps, several blocks and samples in a task, panels shared out; in both directions, with strides and in depth.
    check(sizes(3, 64, 256, 1, &[axis(5, 3, 1, 1, 1, 1), axis(14, 3, 1, 1, 1, 1)]));
    check(sizes(1, 256, 70, 1, &[axis(17, 3, 1, 1, 1, 1), axis(13, 3, 1, 1, 1, 1)]));
    check(sizes(1, 512, 33, 1, &[axis(9, 3, 2, 1, 1, 0), axis(31, 3, 2, 1, 0, 1)]));
    check(sizes(2, 40, 256, 1, &[axis(3, 2, 1, 1, 1, 0), axis(4, 3, 1, 1, 1, 1), axis(12, 3, 1, 2, 2, 2)]));
}

#[test]
fn few_result_channels() {
    for few in 1..5 {
        check(sizes(2, 17, few, 1, &[axis(6, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)]));
        check(sizes(2, few, 40, 1, &[axis(6, 3, 2, 1, 1, 1), axis(9, 3, 2, 1, 1, 1)]));
    }
    check(sizes(2, 256, 3, 1, &[axis(5, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)]));
    check(sizes(2, 60, 6, 2, &[axis(5, 3, 1, 2, 1, 1), axis(9, 3, 1, 2, 1, 1)]));
    check(sizes(2, 6, 60, 2, &[axis(5, 2, 1, 1, 1, 1), axis(9, 3, 1, 1, 1, 1), axis(4, 2, 1, 1, 0, 0)]));
}

#[test]
fn small_images_of_many_channels() {
    check(sizes(5, 33, 40, 1, &[axis(4, 3, 1, 1, 1, 1), axis(4, 3, 1, 1, 1, 1)]));
    check(sizes(17, 70, 96, 2, &[axis(2, 3, 1, 1, 1, 1), axis(2, 3, 1, 1, 1, 1)]));
    check(sizes(3, 40, 64, 1, &[axis(9, 3, 2, 1, 1, 1), axis(6, 3, 2, 1, 0, 1)]));
    check(sizes(2, 36, 36, 1, &[axis(3, 2, 1, 1, 1, 1), axis(3, 3, 1, 2, 2, 2), axis(3, 3, 1, 1, 1, 1)]));
}

#[test]
fn a_slice_of_the_batch_gives_the_same_bits() {
    for g in [
        sizes(12, 3, 20, 1, &[axis(24, 3, 1, 1, 1, 1), axis(24, 3, 1, 1, 1, 1)]),
        sizes(9, 4, 4, 4, &[axis(32, 3, 1, 1, 1, 1), axis(32, 3, 1, 1, 1, 1)]),
        sizes(80, 17, 40, 1, &[axis(2, 1, 1, 1, 0, 0), axis(2, 1, 1, 1, 0, 0)]),
        sizes(80, 20, 200, 1, &[axis(7, 3, 1, 1, 1, 1), axis(7, 3, 1, 1, 1, 1)]),
        sizes(40, 180, 200, 1, &[axis(2, 3, 1, 1, 1, 1), axis(2, 3, 1, 1, 1, 1)]),
        sizes(67, 48, 400, 1, &[axis(4, 3, 1, 1, 1, 1), axis(6, 3, 1, 1, 1, 1)]),
        sizes(20, 90, 400, 1, &[axis(9, 3, 1, 1, 1, 1), axis(9, 3, 1, 1, 1, 1)]),
        sizes(5, 150, 40, 1, &[axis(14, 3, 1, 1, 1, 1), axis(40, 3, 1, 1, 1, 1)]),
        sizes(21, 256, 64, 1, &[axis(5, 3, 1, 1, 1, 1), axis(12, 3, 1, 1, 1, 1)]),
    ] {
        let (x, filter, dy) =
            (fill::<f32>(g.input_len(), 1), fill::<f32>(g.filter_len(), 2), fill::<f32>(g.output_len(), 3));
        let whole = [
            run(Which::Forward, 2, &g, &x, &filter, dy.len()),
            run(Which::Input, 2, &g, &filter, &dy, x.len()),
            run(Which::Filter, 2, &g, &x, &dy, filter.len()),
        ];
        let chunk = chunk_samples(&g);
        let (x_len, y_len) = (x.len() / g.batch, dy.len() / g.batch);
        let pool = Pool::new(2);
        let mut sum = vec![0.0; filter.len()];
        for (from, to) in [(0, chunk), (chunk, g.batch)] {
            let part = Geometry { batch: to - from, ..g };
            let (xs, ys) = (from * x_len..to * x_len, from * y_len..to * y_len);
            assert!(run(Which::Forward, 2, &part, &x[xs.clone()], &filter, ys.len()) == whole[0][ys.clone()]);
            assert!(run(Which::Input, 2, &part, &filter, &dy[ys.clone()], xs.len()) == whole[1][xs.clone()]);
            let mut scratch = vec![f32::NAN; grad_filter_scratch::<f32>(&part, 2)];
            let into = if from == 0 { Into::Overwrite } else { Into::Add };
            grad_filter(&pool, &part, &x[xs], &dy[ys], &mut sum, into, &mut scratch);
        }
        assert!(sum == whole[2], "{g:?}");
    }
}
