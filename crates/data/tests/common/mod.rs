//! What several of these tests need.
#![allow(dead_code)] // No test needs all of it.

/// A small generator of random numbers (xorshift): a seed other than 0 always gives the same ones.
pub struct Random(pub u64);

impl Random {
    /// A number from 0 up to `n`, without it.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// A place in a list of `n`; 0 when there is none.
    pub fn place(&mut self, n: usize) -> usize {
        self.below(n.max(1) as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
