// SPDX-License-Identifier: Apache-2.0
//! A set of page numbers as a bitmap with summary levels: bit i of a level says whether word i of
//! the level below has a bit, so that the lowest member from any point on is a few words away.

const WORD: usize = 64;

/// A set of numbers below a fixed bound.
#[derive(Clone, Debug)]
pub(super) struct BitSet {
    /// Level 0 holds the members; the last level is one word.
    levels: Vec<Vec<u64>>,
}

impl BitSet {
    /// An empty set of numbers below `bound`.
    pub(super) fn new(bound: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = bound.div_ceil(WORD).max(1);
        loop {
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            words = words.div_ceil(WORD);
        }
    }

    /// Raises the bound; members stay. A lower bound does nothing.
    pub(super) fn grow(&mut self, bound: usize) {
        let mut grown = Self::new(bound.max(self.levels[0].len() * WORD));
        for (at, word) in self.levels[0].iter().enumerate() {
            grown.levels[0][at] = *word;
        }
        for height in 1..grown.levels.len() {
            let (below, above) = grown.levels.split_at_mut(height);
            for (at, word) in below[height - 1].iter().enumerate() {
                above[0][at / WORD] |= u64::from(*word != 0) << (at % WORD);
            }
        }
        *self = grown;
    }

    pub(super) fn contains(&self, at: usize) -> bool {
        self.levels[0]
            .get(at / WORD)
            .is_some_and(|word| word >> (at % WORD) & 1 == 1)
    }

    /// Adds a number below the bound; false if it was there.
    pub(super) fn insert(&mut self, mut at: usize) -> bool {
        if self.contains(at) {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[at / WORD];
            let was_empty = *word == 0;
            *word |= 1 << (at % WORD);
            if !was_empty {
                break;
            }
            at /= WORD;
        }
        true
    }

    /// Removes a member; false if it was not there.
    pub(super) fn remove(&mut self, mut at: usize) -> bool {
        if !self.contains(at) {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[at / WORD];
            *word &= !(1 << (at % WORD));
            if *word != 0 {
                break;
            }
            at /= WORD;
        }
        true
    }

    /// The lowest member at or above `from`.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(at / WORD)? >> (at % WORD);
            if word != 0 {
                return Some(self.descend(height, at + word.trailing_zeros() as usize));
            }
            at = at / WORD + 1;
        }
        None
    }

    /// The lowest member below bit `at` of a level.
    fn descend(&self, height: usize, mut at: usize) -> usize {
        for level in self.levels[..height].iter().rev() {
            at = at * WORD + level[at].trailing_zeros() as usize;
        }
        at
    }

    /// Members in a row from `at` on, counted up to `limit`.
    pub(super) fn run_at(&self, at: usize, limit: usize) -> usize {
        let mut length = 0;
        while length < limit {
            let here = at + length;
            let Some(word) = self.levels[0].get(here / WORD) else {
                break;
            };
            let ones = (word >> (here % WORD)).trailing_ones() as usize;
            length += ones;
            if here % WORD + ones < WORD {
                break;
            }
        }
        length.min(limit)
    }
}

#[cfg(test)]
impl BitSet {
    /// Words of memory behind the set.
    pub(super) fn words_held(&self) -> usize {
        self.levels.iter().map(Vec::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::BitSet;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_set(
            bound in 1usize..9000,
            steps in proptest::collection::vec((any::<bool>(), any::<usize>()), 1..300),
        ) {
            let mut bits = BitSet::new(bound);
            let mut model = BTreeSet::new();
            for (add, number) in steps {
                let at = number % bound;
                if add {
                    prop_assert_eq!(bits.insert(at), model.insert(at));
                } else {
                    prop_assert_eq!(bits.remove(at), model.remove(&at));
                }
                let from = number / 7 % (bound + 2);
                prop_assert_eq!(bits.next(from), model.range(from..).next().copied());
                let run = (at..).take_while(|n| model.contains(n)).take(70).count();
                prop_assert_eq!(bits.run_at(at, 70), run);
            }
        }
    }

    #[test]
    fn members_stay_when_the_bound_rises() {
        let mut bits = BitSet::new(70);
        for at in [0, 63, 69] {
            bits.insert(at);
        }
        for bound in [70, 10, 129, 64 * 64 + 1, 64 * 64 * 64 + 1] {
            bits.grow(bound);
            bits.insert(bound - 1);
            let found: Vec<_> = [0, 1, 64].map(|from| bits.next(from)).to_vec();
            assert_eq!(found[0], Some(0));
            assert!(found[1].is_some() && found[2].is_some());
            assert!(bits.contains(63) && bits.contains(69) && bits.contains(bound - 1));
            assert_eq!(bits.next(bound.max(70)), None);
            if bound > 70 {
                assert_eq!(bits.next(70), Some(bound - 1));
                bits.remove(bound - 1);
            }
        }
    }

    #[test]
    fn long_runs_cross_words() {
        let mut bits = BitSet::new(300);
        for at in 10..290 {
            bits.insert(at);
        }
        assert_eq!(bits.run_at(10, 1000), 280);
        assert_eq!(bits.run_at(10, 100), 100);
        assert_eq!(bits.run_at(9, 100), 0);
        assert_eq!(bits.next(290), None);
        assert_eq!(bits.next(1 << 40), None);
    }
}
