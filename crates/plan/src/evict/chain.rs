//! What is kept on a chain: the well-known structure for going back through tasks of equal cost and size.
//!
//! Of a chain of `n` values, the recursion over where the first checkpoint is put (Griewank and Walther's revolve, which is optimal
//! for such chains) says which values are kept while the others are made again from them, and which within each stretch in turn.
//! Here that becomes a level for each value: those of a lower level stay longer.

/// The best split of a stretch, and its cost.
type Split = Option<(u64, usize)>;

/// A chain of values, with the costs of its stretches by (length, slots beside the value they begin from).
pub(super) struct Chain {
    /// From the last gradient to that of the value the stretch begins from.
    back: Vec<Vec<Split>>,
    /// The same where nothing comes before the stretch.
    end: Vec<Vec<Split>>,
    /// From a value with nothing after it yet.
    first: Vec<Vec<Split>>,
    /// The whole chain.
    whole: Vec<Vec<Split>>,
}

/// Slots that it takes to come to the `j`-th value.
fn passing(j: usize) -> usize {
    if j == 1 { 1 } else { 2 }
}

impl Chain {
    /// A chain of `n` values, to be kept in so many slots at most.
    pub fn new(n: usize, slots: usize) -> Chain {
        let table = vec![vec![None; slots + 1]; n + 1];
        let mut t = Chain { back: table.clone(), end: table.clone(), first: table.clone(), whole: table };
        let cost = |split: Split| split.map(|(cost, _)| cost);
        for l in 0..=n {
            for s in 1..=slots {
                let backward = |left: &[Vec<Split>], j: usize| {
                    let total = j as u64 + cost(t.back[l - j][s - 1])? + cost(left[j][s])?;
                    (passing(j) < s).then_some((total, j))
                };
                let back = match l {
                    0 => Some((0, 0)),
                    1 => (s >= 2).then_some((0, 0)),
                    _ => (1..l).filter_map(|j| backward(&t.back, j)).min(),
                };
                let end = if l < 2 { Some((0, 0)) } else { (1..l).filter_map(|j| backward(&t.end, j)).min() };
                (t.back[l][s], t.end[l][s]) = (back, end);
                let forward = |left: &[Vec<Split>], j: usize| {
                    let total = j as u64 + cost(t.first[l - j][s - 1])? + cost(left[j][s])?;
                    (passing(j) <= s).then_some((total, j))
                };
                let first = if l == 0 { Some((0, 0)) } else { (1..=l).filter_map(|j| forward(&t.back, j)).min() };
                let whole = (1..=l).filter_map(|j| forward(&t.end, j)).min();
                (t.first[l][s], t.whole[l][s]) = (first, whole);
            }
        }
        t
    }

    /// For each value in the order they are made: how deep in the recursion it is kept, with room for `slots` values. `None`
    /// when there is too little room.
    pub fn levels(&self, slots: usize) -> Option<Vec<usize>> {
        let n = self.whole.len() - 1;
        let mut levels = vec![usize::MAX; n];
        self.descend(n, slots, 0, 0, &mut levels)?;
        let deepest = levels.iter().filter(|&&l| l != usize::MAX).max().map_or(0, |l| l + 1);
        levels.iter_mut().for_each(|l| *l = (*l).min(deepest));
        Some(levels)
    }

    /// Gives levels to the values that are kept on the way to the end of a stretch, and within what is between them.
    fn descend(&self, l: usize, s: usize, from: usize, level: usize, levels: &mut [usize]) -> Option<()> {
        if l == 0 {
            return Some(());
        }
        let (_, j) = if from == 0 { self.whole[l][s]? } else { self.first[l][s]? };
        levels[from + j - 1] = level;
        self.descend(l - j, s - 1, from + j, level, levels)?;
        self.descend_back(j, s, from, level + 1, levels)
    }

    fn descend_back(&self, l: usize, s: usize, from: usize, level: usize, levels: &mut [usize]) -> Option<()> {
        if l < 2 {
            return Some(());
        }
        let (_, j) = if from == 0 { self.end[l][s]? } else { self.back[l][s]? };
        levels[from + j - 1] = level;
        self.descend_back(l - j, s - 1, from + j, level + 1, levels)?;
        self.descend_back(j, s, from, level + 1, levels)
    }
}
