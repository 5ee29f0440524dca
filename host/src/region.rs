// SPDX-License-Identifier: Apache-2.0
//! One anonymous mapping, seen as words. The unsafe room of this crate.
//!
//! The memory is shared with copy threads and devices, so it is never lent as plain bytes: many
//! readers and writers see it as atomic words, one owner with `&mut` sees it as plain words.
#![expect(unsafe_code, reason = "a mapping becomes slices here and nowhere else")]

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::{io, slice};

use memmap2::{MmapMut, MmapOptions, MmapRaw};

/// Bytes of the pages that huge-page backings are aligned to.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

const HUGE_PAGE_BITS: u8 = 21;
const WORD: usize = size_of::<AtomicU32>();

/// Mapped memory of a pool.
///
/// Invariants, upheld by [`Region::new`] and never changed after: `start + len` lies inside `map`,
/// and `start` and `len` are multiples of a word.
#[derive(Debug)]
pub(crate) struct Region {
    map: MmapRaw,
    start: usize,
    len: usize,
}

impl Region {
    /// Maps at least `len` bytes of explicit huge pages; they are reserved, so that touching them
    /// cannot fail later.
    pub(crate) fn explicit(len: usize) -> io::Result<Self> {
        let whole = len.checked_next_multiple_of(HUGE_PAGE).ok_or(too_long())?;
        let map = MmapOptions::new()
            .len(whole)
            .huge(Some(HUGE_PAGE_BITS))
            .map_anon()?;
        Self::new(map, len, WORD)
    }

    /// Maps `len` bytes that begin on a multiple of `align`; swap is not reserved.
    pub(crate) fn plain(len: usize, align: usize) -> io::Result<Self> {
        let whole = len.checked_add(align).ok_or(too_long())?;
        let map = MmapOptions::new().len(whole).no_reserve_swap().map_anon()?;
        Self::new(map, len, align)
    }

    fn new(map: MmapMut, len: usize, align: usize) -> io::Result<Self> {
        let map = MmapRaw::from(map);
        let start = map.as_mut_ptr().align_offset(align.max(WORD));
        let fits = start.checked_add(len).is_some_and(|end| end <= map.len());
        if !fits || !len.is_multiple_of(WORD) || !start.is_multiple_of(WORD) {
            return Err(too_long());
        }
        Ok(Self { map, start, len })
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte, for registration and for reports.
    pub(crate) fn address(&self) -> usize {
        self.map.as_mut_ptr().addr() + self.start
    }

    /// All words, shared.
    pub(crate) fn words(&self) -> &[AtomicU32] {
        let base = self.map.as_mut_ptr().wrapping_add(self.start);
        // SAFETY: by the invariants of `Region` the words lie in the mapping, which is readable,
        // writable, zeroed at first and lives as long as `self`; a page-aligned base plus `start`
        // is aligned to words, and `AtomicU32` has the size and alignment of a word and allows any
        // bits. Only shared atomic references are made from `&self`; plain ones need `&mut self`.
        unsafe { slice::from_raw_parts(base.cast::<AtomicU32>(), self.len / WORD) }
    }

    /// All words, exclusively.
    pub(crate) fn words_mut(&mut self) -> &mut [u32] {
        let base = self.map.as_mut_ptr().wrapping_add(self.start);
        // SAFETY: as in `words`, and `&mut self` excludes every other reference into the mapping.
        unsafe { slice::from_raw_parts_mut(base.cast::<u32>(), self.len / WORD) }
    }

    /// Asks for transparent huge pages, or for none.
    #[cfg(target_os = "linux")]
    pub(crate) fn advise_huge(&self, wanted: bool) -> io::Result<()> {
        use memmap2::Advice::{HugePage, NoHugePage};
        self.map.advise(if wanted { HugePage } else { NoHugePage })
    }

    /// Asks for transparent huge pages, which this platform does not offer.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn advise_huge(&self, wanted: bool) -> io::Result<()> {
        if wanted {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }

    /// Makes the bytes of `span` present and writable at once.
    #[cfg(target_os = "linux")]
    pub(crate) fn populate(&self, span: Range<usize>) -> io::Result<()> {
        let len = span.len();
        self.map
            .advise_range(memmap2::Advice::PopulateWrite, self.start + span.start, len)
    }

    /// Gives the memory of `span` back to the machine; its words are zero when they are next read.
    #[cfg(target_os = "linux")]
    pub(crate) fn discard(&self, span: Range<usize>) -> io::Result<()> {
        let (start, len) = (self.start + span.start, span.len());
        // SAFETY: anonymous memory becomes zero, as if every word of the range were stored to; all
        // shared views are of atomic words, so that this is no data race, and the caller of
        // `&self` holds no plain view.
        unsafe {
            self.map
                .unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, len)
        }
    }

    /// Gives memory back, for which this platform has no call.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn discard(&self, _span: Range<usize>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes the bytes of `span` present, for which this platform has no call.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn populate(&self, _span: Range<usize>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn too_long() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the length is not that of a mapping",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_mapping_is_zeroed_aligned_and_the_same_through_both_views() {
        let mut region = Region::plain(12_292, HUGE_PAGE).unwrap();
        assert_eq!(region.address() % HUGE_PAGE, 0);
        assert_eq!(region.words().len(), 3073);
        assert!(
            region
                .words()
                .iter()
                .all(|w| w.load(Ordering::Relaxed) == 0)
        );
        region.words()[3072].store(7, Ordering::Relaxed);
        assert_eq!(region.words_mut()[3072], 7);
        region.words_mut()[0] = 9;
        assert_eq!(region.words()[0].load(Ordering::Relaxed), 9);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn discarded_words_are_zero_and_their_neighbours_are_not() {
        let mut region = Region::plain(2 * HUGE_PAGE, HUGE_PAGE).unwrap();
        region.words_mut().fill(5);
        region.discard(HUGE_PAGE..2 * HUGE_PAGE).unwrap();
        let half = HUGE_PAGE / WORD;
        assert!(region.words_mut()[..half].iter().all(|word| *word == 5));
        assert!(region.words_mut()[half..].iter().all(|word| *word == 0));
    }

    #[test]
    fn sizes_that_cannot_be_mapped_are_refused() {
        assert!(Region::plain(usize::MAX, HUGE_PAGE).is_err());
        assert!(Region::plain(usize::MAX / 4 * 4 - HUGE_PAGE, 4096).is_err());
        assert!(Region::plain(4098, 4096).is_err());
        assert!(Region::explicit(usize::MAX).is_err());
    }
}
