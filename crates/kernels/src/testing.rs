//! What the kernels' tests share: numbers to work on and comparisons.

use crate::math::Float;

/// Repeatable numbers between -1 and 1.
pub fn numbers<T: Float>(n: usize, seed: u64) -> Vec<T> {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_f64((z >> 40) as f64 / (1u64 << 23) as f64 - 1.0)
    };
    (0..n).map(|_| next()).collect()
}

/// The same numbers in f64.
pub fn wide<T: Float>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

/// Checks that `got` is `want` within `tolerance` of its magnitude, or of 1 for smaller ones.
#[track_caller]
pub fn check_close<T: Float>(name: &str, got: &[T], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}: lengths differ");
    for (i, (got, &want)) in got.iter().zip(want).enumerate() {
        let got = got.to_f64();
        let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(close || got == want || got.is_nan() && want.is_nan(), "{name}[{i}]: {got} instead of {want}");
    }
}

/// What `run` gives on one thread, after checking that two and three threads give the same bits.
#[track_caller]
pub fn on_any_threads<R: PartialEq>(run: impl Fn(&crate::Pool) -> R) -> R {
    let [one, two, three] = [1, 2, 3].map(|threads| run(&crate::Pool::new(threads)));
    assert!(one == two && one == three, "bits depend on the number of threads");
    one
}
