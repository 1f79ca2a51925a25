//! Placeholder until the generator lands.

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Uniform in [0, 1).
    Uniform,
    /// Standard normal.
    Normal,
    /// Standard normal, cut at two standard deviations.
    TruncatedNormal,
}

/// Names one stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The user's seed.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// The random op.
    pub stream: u32,
}

/// Elements `start ..` of the stream.
pub fn fill_f32(_distribution: Distribution, _key: Key, _start: u64, out: &mut [f32]) {
    out.fill(0.5);
}

/// Elements `start ..` of the stream.
pub fn fill_f64(_distribution: Distribution, _key: Key, _start: u64, out: &mut [f64]) {
    out.fill(0.5);
}
