// SPDX-License-Identifier: Apache-2.0
//! Where one registration of a pool ends and the next begins.
//!
//! Edges lie on whole pages (page-first) or whole layer planes (layer-first), so that the copy of
//! a page never needs to be split, and on memory pages of the machine, because two registrations
//! cannot share one. The chunks are those of all bytes that the pool may grow to, so that a growth
//! adds whole ones and moves none.

use std::ops::Range;

use crate::error::HostError;

/// Equal chunks over the bytes of a pool; the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    bytes: u64,
    chunk: u64,
}

impl Chunks {
    /// Chunks of about `wanted` bytes over `bytes` bytes of units of `unit` bytes, with edges that
    /// are multiples of `unit` and of `memory_page` (a power of two).
    pub(crate) fn new(bytes: u64, unit: u64, wanted: u64, memory_page: u64) -> Self {
        // A multiple of `step` units ends on a memory page; both powers of two divide evenly.
        let shared = 1u64 << unit.trailing_zeros().min(memory_page.trailing_zeros());
        let step = unit.saturating_mul(memory_page / shared).max(1);
        let chunk = (wanted / step).max(1).saturating_mul(step).min(bytes);
        Self { bytes, chunk }
    }

    /// Bytes of each chunk but the last.
    pub(crate) const fn chunk_bytes(self) -> u64 {
        self.chunk
    }

    /// How many hold the first `bytes` bytes.
    pub(crate) fn holding(self, bytes: u64) -> usize {
        usize::try_from(bytes.min(self.bytes).div_ceil(self.chunk)).unwrap_or(usize::MAX)
    }

    /// The bytes of chunk `index`; none past the last.
    pub(crate) fn range(self, index: usize) -> Range<u64> {
        let start = (index as u64).saturating_mul(self.chunk).min(self.bytes);
        start..start.saturating_add(self.chunk).min(self.bytes)
    }

    /// The chunk that holds `offset`.
    pub(crate) const fn of(self, offset: u64) -> u64 {
        offset / self.chunk
    }

    /// Checks that `len` bytes at `offset` lie in one chunk and in the first `bytes` bytes.
    pub(crate) fn check(self, offset: u64, len: u64, bytes: u64) -> Result<(), HostError> {
        let end = offset.checked_add(len).filter(|end| *end <= bytes);
        let Some(end) = end else {
            return Err(HostError::Range { offset, len, bytes });
        };
        // Not past the end: an empty range there has no chunk and needs none.
        let edge = (offset / self.chunk)
            .saturating_add(1)
            .saturating_mul(self.chunk);
        if end > edge {
            return Err(HostError::CrossesChunks { offset, len, edge });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_on_units_and_on_memory_pages() {
        for (unit, units, wanted) in [(4_497_408, 300, 64 << 20), (36, 5000, 8192), (4, 9, 1)] {
            let chunks = Chunks::new(unit * units, unit, wanted, 4096);
            let ranges: Vec<_> = (0..chunks.holding(u64::MAX))
                .map(|i| chunks.range(i))
                .collect();
            assert!(chunks.range(ranges.len()).is_empty());
            assert_eq!(
                (ranges[0].start, ranges.last().unwrap().end),
                (0, unit * units)
            );
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert_eq!(pair[0].end % unit, 0);
                assert_eq!(pair[0].end % 4096, 0);
            }
        }
        // 61 layers of 64 rows of 1152 B: a page is 1098 memory pages, so any count does.
        let chunks = Chunks::new(4_497_408 * 300, 4_497_408, 64 << 20, 4096);
        assert_eq!(chunks.chunk_bytes(), 14 * 4_497_408);
    }

    #[test]
    fn a_unit_above_the_wanted_size_is_one_chunk() {
        assert_eq!(
            Chunks::new(3 << 20, 1 << 20, 4096, 4096).holding(u64::MAX),
            3
        );
    }

    #[test]
    fn copies_stay_in_one_chunk() {
        let chunks = Chunks::new(3 * 4096 - 4, 4, 4096, 4096);
        assert_eq!((chunks.of(4095), chunks.of(4096)), (0, 1));
        assert_eq!((chunks.holding(1), chunks.holding(4097)), (1, 2));
        let all = 12_284;
        assert_eq!(chunks.check(0, 4096, all), Ok(()));
        assert_eq!(chunks.check(12_284, 0, all), Ok(()));
        let crossing = HostError::CrossesChunks {
            offset: 4092,
            len: 8,
            edge: 4096,
        };
        assert_eq!(chunks.check(4092, 8, all), Err(crossing));
        let outside = HostError::Range {
            offset: 8192,
            len: 4096,
            bytes: 12_284,
        };
        assert_eq!(chunks.check(8192, 4096, all), Err(outside));
        let unpublished = HostError::Range {
            offset: 4096,
            len: 4096,
            bytes: 8188,
        };
        assert_eq!(chunks.check(4096, 4096, 8188), Err(unpublished));
        assert!(matches!(
            chunks.check(u64::MAX, 2, all),
            Err(HostError::Range { .. })
        ));
    }
}
