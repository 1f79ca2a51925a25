use super::*;
use crate::random::{Distribution, Key, fill_block};

fn numbers<T: Float>(n: usize, stream: u32, size: f64) -> Vec<T> {
    let mut out = vec![0.0f32; n];
    fill_block(Distribution::Uniform, Key { seed: 7, step: 0, stream }, 0, &mut out);
    out.iter().map(|&x| T::from_f64((2.0 * x as f64 - 1.0) * size)).collect()
}

fn wide<T: Float>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

#[track_caller]
fn close<T: Float>(what: &str, got: &[T], want: &[f64]) {
    let tolerance = if size_of::<T>() == 4 { 3e-4 } else { 1e-11 };
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got.to_f64() - want).abs();
        assert!(error <= tolerance * (1.0 + want.abs()), "{what} at {i}: {got:?} and {want}");
    }
}

/// One layer on one batch: all that goes in and all that comes out.
struct Case<T> {
    s: Sizes,
    x: Vec<T>,
    kernel: Vec<T>,
    bias: Vec<T>,
    h0: Vec<T>,
    c0: Vec<T>,
    mask: Option<Vec<bool>>,
    dh: Vec<T>,
    dh_last: Vec<T>,
    dc_last: Vec<T>,
}

impl<T: Float> Case<T> {
    fn new(s: Sizes, gates: usize, masked: bool) -> Case<T> {
        let n = s.units;
        let real = numbers::<f32>(s.batch * s.steps, 9, 1.0);
        Case {
            s,
            x: numbers(s.sequence(gates * n), 1, 1.0),
            kernel: numbers(n * gates * n, 2, 1.0 / (n as f64).sqrt()),
            bias: numbers(gates * n, 3, 0.5),
            h0: numbers(s.state(), 4, 1.0),
            c0: numbers(s.state(), 5, 1.0),
            mask: masked.then(|| real.iter().map(|&x| x > -0.4).collect()),
            dh: numbers(s.sequence(n), 6, 1.0),
            dh_last: numbers(s.state(), 7, 1.0),
            dc_last: numbers(s.state(), 8, 1.0),
        }
    }

    fn given(&self) -> StateGradients<'_, T> {
        StateGradients { h: Some(&self.dh), h_last: Some(&self.dh_last), c_last: Some(&self.dc_last) }
    }

    fn lstm(&self, pool: &Pool) -> Vec<Vec<T>> {
        let (s, n) = (self.s, self.s.units);
        let zeros = |len: usize| vec![T::ZERO; len];
        let (mut h, mut c, mut h_last, mut c_last) =
            (zeros(s.sequence(n)), zeros(s.sequence(n)), zeros(s.state()), zeros(s.state()));
        let mut scratch = zeros(forward_scratch(s, 4, pool.threads()));
        let mask = self.mask.as_deref();
        let out = LstmStates { h: &mut h, c: None, h_last: &mut h_last, c_last: &mut c_last };
        lstm_forward(pool, s, Projections::Keep(&self.x), &self.kernel, &self.h0, &self.c0, mask, out, &mut scratch);
        let kept = h.clone();
        let mut gates = self.x.clone();
        let out = LstmStates { h: &mut h, c: Some(&mut c), h_last: &mut h_last, c_last: &mut c_last };
        let projections = Projections::Replace(&mut gates);
        lstm_forward(pool, s, projections, &self.kernel, &self.h0, &self.c0, mask, out, &mut scratch);
        assert!(h == kept, "with and without gates");
        let (mut dx, mut dk, mut dh0, mut dc0) =
            (gates.clone(), zeros(self.kernel.len()), zeros(s.state()), zeros(s.state()));
        let out = LstmGradients { kernel: &mut dk, h0: &mut dh0, c0: &mut dc0, into: Into::Overwrite };
        let mut scratch = zeros(lstm_backward_scratch(s, pool.threads()));
        let first = (&self.h0[..], &self.c0[..]);
        lstm_backward(pool, s, &mut dx, &self.kernel, (&h, &c), first, mask, self.given(), out, &mut scratch);
        vec![h, c, h_last, c_last, gates, dx, dk, dh0, dc0]
    }

    fn lstm_plain(&self) -> Vec<Vec<f64>> {
        let w = self.widen();
        let (mask, s) = (self.mask.as_deref(), self.s);
        let (h, c, gates) = lstm_naive(s, &w.x, &w.kernel, &w.h0, &w.c0, mask);
        let (dx, dk, dh0, dc0) = lstm_backward_naive(s, &gates, &w.kernel, (&h, &c), (&w.h0, &w.c0), mask, w.given());
        let (h_last, c_last) = (last(s, &h, &w.h0), last(s, &c, &w.c0));
        vec![h, c, h_last, c_last, gates, dx, dk, dh0, dc0]
    }

    fn gru(&self, pool: &Pool) -> Vec<Vec<T>> {
        let (s, n) = (self.s, self.s.units);
        let zeros = |len: usize| vec![T::ZERO; len];
        let (mut h, mut h_last, mut gates) = (zeros(s.sequence(n)), zeros(s.state()), zeros(s.sequence(4 * n)));
        let mut scratch = zeros(forward_scratch(s, 3, pool.threads()));
        let (mask, weights) = (self.mask.as_deref(), (&self.kernel[..], &self.bias[..]));
        gru_forward(pool, s, &self.x, weights, &self.h0, mask, (&mut h, &mut h_last), Some(&mut gates), &mut scratch);
        let (mut dx, mut dk, mut db, mut dh0) =
            (zeros(self.x.len()), zeros(self.kernel.len()), zeros(self.bias.len()), zeros(s.state()));
        let out =
            GruGradients { projections: &mut dx, kernel: &mut dk, bias: &mut db, h0: &mut dh0, into: Into::Overwrite };
        let mut scratch = zeros(gru_backward_scratch(s, pool.threads()));
        gru_backward(pool, s, &gates, &self.kernel, &h, &self.h0, mask, self.given(), out, &mut scratch);
        vec![h, h_last, gates, dx, dk, db, dh0]
    }

    fn gru_plain(&self) -> Vec<Vec<f64>> {
        let w = self.widen();
        let (mask, s) = (self.mask.as_deref(), self.s);
        let (h, gates) = gru_naive(s, &w.x, (&w.kernel, &w.bias), &w.h0, mask);
        let (dx, dk, db, dh0) = gru_backward_naive(s, &gates, &w.kernel, &h, &w.h0, mask, w.given());
        let h_last = last(s, &h, &w.h0);
        vec![h, h_last, gates, dx, dk, db, dh0]
    }

    fn simple(&self, pool: &Pool) -> Vec<Vec<T>> {
        let s = self.s;
        let zeros = |len: usize| vec![T::ZERO; len];
        let (mut h, mut h_last) = (self.x.clone(), zeros(s.state()));
        let mut scratch = zeros(forward_scratch(s, 1, pool.threads()));
        let mask = self.mask.as_deref();
        simple_forward(pool, s, &self.kernel, &self.h0, mask, &mut h, &mut h_last, &mut scratch);
        let (mut dx, mut dk, mut dh0) = (zeros(self.x.len()), zeros(self.kernel.len()), zeros(s.state()));
        let out = SimpleGradients { projections: &mut dx, kernel: &mut dk, h0: &mut dh0, into: Into::Overwrite };
        let mut scratch = zeros(simple_backward_scratch(s, pool.threads()));
        simple_backward(pool, s, &self.kernel, &h, &self.h0, mask, self.given(), out, &mut scratch);
        vec![h, h_last, dx, dk, dh0]
    }

    fn simple_plain(&self) -> Vec<Vec<f64>> {
        let w = self.widen();
        let (mask, s) = (self.mask.as_deref(), self.s);
        let h = simple_naive(s, &w.x, &w.kernel, &w.h0, mask);
        let (dx, dk, dh0) = simple_backward_naive(s, &w.kernel, &h, &w.h0, mask, w.given());
        let h_last = last(s, &h, &w.h0);
        vec![h, h_last, dx, dk, dh0]
    }

    fn widen(&self) -> Case<f64> {
        Case {
            s: self.s,
            x: wide(&self.x),
            kernel: wide(&self.kernel),
            bias: wide(&self.bias),
            h0: wide(&self.h0),
            c0: wide(&self.c0),
            mask: self.mask.clone(),
            dh: wide(&self.dh),
            dh_last: wide(&self.dh_last),
            dc_last: wide(&self.dc_last),
        }
    }

    /// The same layer on some of the samples.
    fn samples(&self, from: usize, to: usize) -> Case<T> {
        let part = |x: &[T]| x[from * x.len() / self.s.batch..to * x.len() / self.s.batch].to_vec();
        Case {
            s: Sizes { batch: to - from, ..self.s },
            x: part(&self.x),
            kernel: self.kernel.clone(),
            bias: self.bias.clone(),
            h0: part(&self.h0),
            c0: part(&self.c0),
            mask: self.mask.as_ref().map(|m| m[from * self.s.steps..to * self.s.steps].to_vec()),
            dh: part(&self.dh),
            dh_last: part(&self.dh_last),
            dc_last: part(&self.dc_last),
        }
    }
}

/// The last state of every sample.
fn last(s: Sizes, h: &[f64], h0: &[f64]) -> Vec<f64> {
    if s.steps == 0 {
        return h0.to_vec();
    }
    let t = s.time(s.steps - 1);
    (0..s.batch).flat_map(|b| h[(b * s.steps + t) * s.units..][..s.units].to_vec()).collect()
}

/// Name, gates, kernels and naive twins.
type Layer<T> = (&'static str, usize, fn(&Case<T>, &Pool) -> Vec<Vec<T>>, fn(&Case<T>) -> Vec<Vec<f64>>);

#[track_caller]
fn check_layer<T: Float>(s: Sizes, masked: bool) {
    let layers: [Layer<T>; 3] = [
        ("lstm", 4, Case::lstm, Case::lstm_plain),
        ("gru", 3, Case::gru, Case::gru_plain),
        ("simple", 1, Case::simple, Case::simple_plain),
    ];
    for (name, gates, fast, slow) in layers {
        let case = Case::<T>::new(s, gates, masked);
        let runs = [1, 2, 3].map(|threads| fast(&case, &Pool::new(threads)));
        assert!(runs[0] == runs[1] && runs[0] == runs[2], "{name}: bits depend on the threads");
        for (i, (got, want)) in runs[0].iter().zip(slow(&case)).enumerate() {
            close(&format!("{name} {s:?} result {i}"), got, &want);
        }
    }
}

#[test]
fn agree_with_the_naive_twins() {
    let sizes = |batch, steps, units, reverse| Sizes { batch, steps, units, reverse };
    for (batch, steps, units) in [(1, 1, 1), (3, 5, 4), (1, 7, 10), (37, 3, 20), (2, 300, 3), (5, 0, 3), (0, 3, 2)] {
        for (reverse, masked) in [(false, false), (true, false), (false, true), (true, true)] {
            check_layer::<f64>(sizes(batch, steps, units, reverse), masked);
        }
        check_layer::<f32>(sizes(batch, steps, units, false), true);
    }
}

#[test]
fn a_large_kernel_is_divided() {
    // More than one block of units, the last one narrow, and more than one block of samples.
    check_layer::<f64>(Sizes { batch: 3, steps: 2, units: 200, reverse: false }, true);
    check_layer::<f32>(Sizes { batch: 67, steps: 2, units: 370, reverse: true }, false);
}

#[test]
fn samples_do_not_depend_on_their_neighbours() {
    for units in [24, 200] {
        let s = Sizes { batch: 70, steps: 3, units, reverse: false };
        let pool = Pool::new(2);
        let case = Case::<f32>::new(s, 4, true);
        let whole = case.lstm(&pool);
        for (from, to) in [(0, 1), (0, 2), (5, 40), (69, 70), (3, 68)] {
            let part = case.samples(from, to).lstm(&pool);
            for (i, (part, whole)) in part.iter().zip(&whole).enumerate().filter(|(i, _)| *i != 6) {
                let of = |b: usize| b * whole.len() / s.batch;
                assert!(part[..] == whole[of(from)..of(to)], "result {i} of samples {from} to {to}");
            }
        }
    }
}

/// `sin(0.7 i + k)` for i from 0.
fn sines(n: usize, k: f64) -> Vec<f64> {
    (0..n).map(|i| (0.7 * i as f64 + k).sin()).collect()
}

/// The case whose results Keras was asked for: two samples, three steps of two inputs, two units.
fn keras_case(gates: usize, reverse: bool) -> Case<f64> {
    let s = Sizes { batch: 2, steps: 3, units: 2, reverse };
    let width = gates * 2;
    let (x, w, bias) = (sines(12, 1.0), sines(2 * width, 2.0), sines(2 * width, 6.0));
    let project = |i: usize| {
        let (row, column) = (i / width, i % width);
        x[2 * row] * w[column] + x[2 * row + 1] * w[width + column] + bias[column]
    };
    Case {
        s,
        x: (0..6 * width).map(project).collect(),
        kernel: sines(2 * width, 3.0).iter().map(|u| 0.8 * u).collect(),
        bias: bias[width..].to_vec(),
        h0: sines(4, 4.0),
        c0: sines(4, 5.0),
        mask: Some(vec![true, true, false, true, false, true]),
        dh: vec![0.0; 12],
        dh_last: vec![0.0; 4],
        dc_last: vec![0.0; 4],
    }
}

#[track_caller]
fn check_keras(got: &[f64], mut want: [f64; 12], reverse: bool) {
    if reverse {
        // Keras gives the sequence back in the order of its walk.
        want.chunks_exact_mut(6).for_each(|sample| (0..2).for_each(|unit| sample.swap(unit, 4 + unit)));
    }
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < 1e-7, "{got} and {want}");
    }
}

#[test]
fn as_keras() {
    // Keras 3.15.1 on JAX, good to f32: the outputs of all steps, and the LSTM's last cell state.
    let pool = Pool::new(1);
    let lstm = keras_case(4, false).lstm(&pool);
    let want = [
        -0.0762273668491,
        -0.116397818496,
        -0.166846366451,
        -0.259655365407,
        -0.166846366451,
        -0.259655365407,
        0.0729165141643,
        0.0756741172584,
        0.0729165141643,
        0.0756741172584,
        -0.0956102882323,
        -0.0975161921969,
    ];
    check_keras(&lstm[0], want, false);
    let cells = [-0.631498779093, -1.11449136531, -0.432304715315, -0.241927505754];
    assert!(lstm[3].iter().zip(cells).all(|(got, want)| (got - want).abs() < 1e-7));
    let want = [
        -0.756802495308,
        -0.999923257564,
        -0.0897670312768,
        -0.0833801256043,
        -0.13531298389,
        -0.273331772782,
        -0.0376012834535,
        -0.0638665516138,
        -0.0376012834535,
        -0.0638665516138,
        -0.00748177331482,
        0.0115632007329,
    ];
    check_keras(&keras_case(4, true).lstm(&pool)[0], want, true);
    let want = [
        0.339517686849,
        -0.314835595679,
        0.183481969824,
        -0.0982952421977,
        0.183481969824,
        -0.0982952421977,
        0.732158804035,
        0.601063127807,
        0.732158804035,
        0.601063127807,
        0.346685721052,
        0.122207510207,
    ];
    check_keras(&keras_case(3, false).gru(&pool)[0], want, false);
    let want = [
        -0.756802495308,
        -0.999923257564,
        0.142223381185,
        -0.0322039308362,
        0.283540987667,
        -0.136589692664,
        -0.080725371896,
        -0.217731677106,
        -0.080725371896,
        -0.217731677106,
        0.786548882887,
        0.661747527961,
    ];
    check_keras(&keras_case(3, true).gru(&pool)[0], want, true);
    let want = [
        0.720221042633,
        0.767576277256,
        -0.176992088556,
        -0.211060658097,
        -0.176992088556,
        -0.211060658097,
        -0.733269453049,
        0.661616802216,
        -0.733269453049,
        0.661616802216,
        -0.134844079614,
        0.105576746166,
    ];
    check_keras(&keras_case(1, false).simple(&pool)[0], want, false);
}
