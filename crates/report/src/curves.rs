//! Scales and ticks.

/// Where a value of one range is in another.
pub(crate) fn scaled(value: f64, from: (f64, f64), to: (f64, f64)) -> f64 {
    to.0 + (value - from.0) / (from.1 - from.0) * (to.1 - to.0)
}

/// About `n` round numbers from `low` to `high`.
pub(crate) fn nice_ticks(low: f64, high: f64, n: usize) -> Vec<f64> {
    let rough = (high - low) / n.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(10.0 * power);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(nice_ticks(1.0, 3.1, 4), [1.0, 2.0, 3.0]);
        assert_eq!(nice_ticks(0.0, 100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(nice_ticks(2.0, 2.0, 5), [2.0]);
        assert_eq!(scaled(5.0, (0.0, 10.0), (100.0, 200.0)), 150.0);
    }
}
