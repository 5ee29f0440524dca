// SPDX-License-Identifier: Apache-2.0
//! Whether a row list names a target twice: copies of one job are unordered.

use super::error::TransferError;
use super::job::RowPair;
use crate::device::Direction;

/// A bit a row, all of them clear between two lists. Kept, so that a list costs two passes over it
/// and no memory; sorting one takes several times as long.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<u64>);

impl Targets {
    /// Checks a list whose targets are of a pool of `end` rows.
    ///
    /// # Errors
    /// The first row that is named a second time.
    pub(super) fn check(
        &mut self,
        rows: &[RowPair],
        direction: Direction,
        end: u64,
    ) -> Result<(), TransferError> {
        let target = |pair: &RowPair| match direction {
            Direction::HostToDevice => pair.l1.get(),
            Direction::DeviceToHost => pair.l2.get(),
        };
        let words = usize::try_from(end.div_ceil(64)).unwrap_or(usize::MAX);
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        let mut twice = None;
        for pair in rows {
            let row = target(pair);
            if let Some(word) = self.word(row) {
                let bit = 1u64 << (row & 63);
                if *word & bit != 0 {
                    twice.get_or_insert(row);
                }
                *word |= bit;
            }
        }
        for pair in rows {
            if let Some(word) = self.word(target(pair)) {
                *word = 0;
            }
        }
        match twice {
            Some(row) => Err(TransferError::DuplicateRow { direction, row }),
            None => Ok(()),
        }
    }

    fn word(&mut self, row: u64) -> Option<&mut u64> {
        self.0.get_mut(usize::try_from(row / 64).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_core::Row;

    #[test]
    fn a_target_that_is_named_twice_is_found_and_forgotten() {
        let pair = |(l1, l2)| RowPair {
            l1: Row::new(l1),
            l2: Row::new(l2),
        };
        let list = [(5, 1), (700, 1), (6, 2)].map(pair);
        let mut targets = Targets::default();
        for _ in 0..2 {
            assert_eq!(targets.check(&list, Direction::HostToDevice, 701), Ok(()));
            let direction = Direction::DeviceToHost;
            let twice = TransferError::DuplicateRow { direction, row: 1 };
            assert_eq!(targets.check(&list, direction, 3), Err(twice));
            assert_eq!(targets.check(&list[1..], direction, 3), Ok(()));
        }
        assert_eq!(targets.check(&[], Direction::HostToDevice, 0), Ok(()));
    }
}
