//! Permutations without a table.

/// A permutation of `0 .. n`: place `i` of the epoch is taken by element `at(i)`.
///
/// A Feistel network over just as many bits as `n` needs, walked until it lands inside: two steps on average at most, and no
/// memory however large `n` is. Every epoch has its own, by another key. Up to [`Permutation::TABLE`] elements a network has too
/// few bits to reach most of the orders, so there a shuffled table is used, of which every order is equally likely.
///
/// ```
/// use plimsoll_data::Permutation;
/// let p = Permutation::new(100_000, 7, 0);
/// let mut seen: Vec<u64> = (0..100_000).map(|i| p.at(i)).collect();
/// assert_ne!(seen[..3], [0, 1, 2]);
/// seen.sort();
/// assert!(seen.into_iter().eq(0..100_000));
/// ```
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    left_bits: u32,
    right_bits: u32,
    keys: [u64; Permutation::ROUNDS],
    table: Vec<u16>,
}

impl Permutation {
    const ROUNDS: usize = 8;

    /// The most elements for which a table is kept.
    pub const TABLE: u64 = 1024;

    /// The permutation of `0 .. n` for a seed and an epoch.
    pub fn new(n: u64, seed: u64, epoch: u64) -> Permutation {
        let bits = 64 - (n.max(4) - 1).leading_zeros();
        let mut state = mix(seed) ^ mix(epoch.wrapping_add(0x9e37_79b9_7f4a_7c15)).rotate_left(17);
        let mut next = || {
            state = mix(state);
            state
        };
        let keys = std::array::from_fn(|_| next());
        let mut table = Vec::new();
        if n <= Permutation::TABLE {
            table = (0..n as u16).collect();
            for i in (1..table.len()).rev() {
                table.swap(i, below(next(), i as u64 + 1) as usize);
            }
        }
        Permutation { n, left_bits: bits / 2, right_bits: bits - bits / 2, keys, table }
    }

    /// Which element is at place `i`.
    ///
    /// # Panics
    /// When `i` is not below `n`.
    pub fn at(&self, i: u64) -> u64 {
        assert!(i < self.n, "place {i} of {}", self.n);
        if !self.table.is_empty() {
            return self.table[i as usize] as u64;
        }
        let mut x = i;
        loop {
            x = self.scatter(x);
            if x < self.n {
                return x;
            }
        }
    }

    fn scatter(&self, x: u64) -> u64 {
        let (left_mask, right_mask) = ((1u64 << self.left_bits) - 1, (1u64 << self.right_bits) - 1);
        let (mut left, mut right) = (x >> self.right_bits, x & right_mask);
        for pair in self.keys.chunks_exact(2) {
            left ^= scramble(right, pair[0]) & left_mask;
            right ^= scramble(left, pair[1]) & right_mask;
        }
        left << self.right_bits | right
    }
}

/// The round function: one multiplication whose upper half, which depends on every bit below it, is folded down.
#[inline(always)]
fn scramble(x: u64, key: u64) -> u64 {
    let z = (x ^ key).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
    z >> 32
}

/// A bijection of 64-bit numbers that scatters well (the finaliser of SplitMix64).
pub(crate) fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A number below `n` from 64 random bits; the bias is below `n / 2^64`.
pub(crate) fn below(random: u64, n: u64) -> u64 {
    ((random as u128 * n as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_complete_and_differ() {
        for n in [1, 2, 3, 5, 64, 65, 1000, 1024, 1025, 4097, 65_536, 65_537, 100_003] {
            let orders: Vec<Vec<u64>> = (0..3)
                .map(|epoch| {
                    let p = Permutation::new(n, 1, epoch);
                    (0..n).map(|i| p.at(i)).collect()
                })
                .collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..n), "{n}");
            }
            assert!(n < 64 || orders[0] != orders[1] && orders[1] != orders[2]);
        }
    }

    /// Chi-square of counts that should all be equal, as the number of standard deviations from its mean.
    fn deviation(counts: &[u64]) -> f64 {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let chi: f64 = counts.iter().map(|c| (*c as f64 - mean).powi(2) / mean).sum();
        let freedom = (counts.len() - 1) as f64;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn every_order_of_five_is_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        for epoch in 0..120_000 {
            let p = Permutation::new(5, 3, epoch);
            let order: Vec<u64> = (0..5).map(|i| p.at(i)).collect();
            *counts.entry(order).or_insert(0u64) += 1;
        }
        let counts: Vec<u64> = counts.into_values().collect();
        assert_eq!(counts.len(), 120);
        assert!(deviation(&counts).abs() < 4.0, "{}", deviation(&counts));
    }

    #[test]
    fn large_permutations_are_uniform_in_place_neighbours_and_between_epochs() {
        for n in [1025u64, 40_000, 65_537] {
            let cell = |x: u64| (x * 20 / n) as usize;
            let (mut places, mut neighbours, mut epochs, mut steps) =
                (vec![0; 400], vec![0; 400], vec![0; 400], vec![0; 20]);
            for epoch in 0..40 {
                let (p, q) = (Permutation::new(n, 11, epoch), Permutation::new(n, 11, epoch + 1));
                for i in 0..n - 1 {
                    let x = p.at(i);
                    places[cell(i) * 20 + cell(x)] += 1;
                    neighbours[cell(x) * 20 + cell(p.at(i + 1))] += 1;
                    epochs[cell(x) * 20 + cell(q.at(i))] += 1;
                    steps[cell((n + p.at(i + 1) - x) % n)] += 1;
                }
            }
            // Cells hold unequal numbers of elements when 20 does not divide n, by less than a hundredth of a deviation.
            for (what, counts) in [("place", places), ("neighbour", neighbours), ("epoch", epochs), ("step", steps)] {
                // Drawing without replacement makes the counts of places more even than chance, never less.
                assert!(deviation(&counts) < 4.5, "{what} of {n}: {}", deviation(&counts));
            }
        }
    }
}
