//! Squeaky wheel: what stands too high is placed earlier next time.
//!
//! One round costs one pass over all items, whatever their number, so this is the search for graphs that are too large for
//! the exact one.

use super::Goal;
use super::greedy::{Packer, Solution};
use super::random::Random;

/// Lowers a solution by placing at most `n_placings` single items, until the goal is reached.
pub(super) fn improve(packer: &mut Packer, best: &mut Solution, goal: &Goal, n_placings: u64) {
    let n = packer.problem.items.len();
    let mut random = Random::new(2);
    let until = packer.n_placings + n_placings;
    while !goal.is_reached(best.height) && packer.n_placings + n as u64 <= until {
        let near_top = best.height as f64 * (1.0 - 0.01 * (1.0 + random.signed()));
        let too_high = goal.height.max(near_top as u64);
        let mut keys: Vec<(f64, u32)> = best.order.iter().enumerate().map(|(at, &index)| (at as f64, index)).collect();
        for (key, index) in &mut keys {
            let top = best.offsets[*index as usize] + packer.problem.items[*index as usize].size;
            if top > too_high && random.below(10) < 7 {
                *key *= 0.5 + 0.5 * random.signed();
            }
        }
        if random.below(2) == 0 {
            for _ in 0..1 + random.below(4) {
                keys[random.below(n as u64) as usize].0 = random.below(n as u64) as f64;
            }
        }
        keys.sort_by(|a, b| a.0.total_cmp(&b.0));
        let order: Vec<u32> = keys.iter().map(|&(_, index)| index).collect();
        // Another placement of the same height is as good, and a new place to go on from.
        if let Some(height) = packer.pack(&order, best.fit, best.height + 1) {
            *best = Solution { offsets: packer.offsets.clone(), height, order, fit: best.fit };
        }
    }
}
