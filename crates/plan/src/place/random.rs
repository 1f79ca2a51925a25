//! Numbers that look random and are the same on every machine.

/// A small generator (xorshift64) with a fixed seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        // The state must not be zero, and neighbouring seeds should not begin alike.
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.bits();
        }
        random
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        (self.bits() >> 16) % n
    }

    /// A number from -1 up to 1.
    pub(super) fn signed(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}
