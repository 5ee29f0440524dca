// SPDX-License-Identifier: Apache-2.0
//! Tokens of requests on widened pages of L1.
//!
//! A request owns a list of pages; token position p stands at the slot that [`Stripe::slot_at`]
//! names. The last page may be filled in part, and growth fills it before it takes new pages.

use core::iter::FusedIterator;
use core::ops::Range;

use super::pages::{AllocError, PageAllocator, Shortage};
use crate::geometry::PoolGeometry;
use crate::stripe::Stripe;
use crate::units::{L1, L1Page, Slot, TokenPos};

/// What came of asking for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AllocOutcome {
    /// That many pages were appended, perhaps none.
    Pages(usize),
    /// Nothing was taken.
    OutOfSpace {
        /// Pages that the call needed.
        needed: usize,
        /// Pages that are free.
        available: usize,
    },
}

impl From<Shortage> for AllocOutcome {
    fn from(short: Shortage) -> Self {
        Self::OutOfSpace {
            needed: short.needed,
            available: short.available,
        }
    }
}

/// Why a request's pages and tokens cannot be what the caller says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WidenedError {
    /// The page list does not hold exactly the tokens.
    #[error("{tokens} tokens stand on {expected} widened pages, but the request has {pages}")]
    PageCount {
        /// Tokens of the request.
        tokens: u64,
        /// Pages that these tokens need.
        expected: u64,
        /// Pages that the request has.
        pages: usize,
    },
    /// A request cannot shrink by growing.
    #[error("a request of {old} tokens cannot be extended to {new}")]
    Shrink {
        /// Tokens now.
        old: u64,
        /// Tokens asked for.
        new: u64,
    },
    /// More pages than a machine can count.
    #[error("{tokens} tokens are too many")]
    TooLong {
        /// Tokens asked for.
        tokens: u64,
    },
}

/// A request of a decode batch.
#[derive(Debug)]
pub struct Growing<'a> {
    /// Its pages.
    pub pages: &'a mut Vec<L1Page>,
    /// Tokens that it has; it grows by one.
    pub tokens: u64,
}

/// Allocates pages of a striped L1 pool and tokens on them.
#[derive(Clone, Debug)]
pub struct WidenedAllocator {
    stripe: Stripe,
    pages: PageAllocator<L1>,
    taken: Vec<L1Page>,
}

impl WidenedAllocator {
    /// An allocator over the usable pages of `pool`; page 0 is the sink.
    #[must_use]
    pub fn new(pool: PoolGeometry) -> Self {
        Self {
            stripe: pool.stripe(),
            pages: PageAllocator::new(pool.pages(), 1),
            taken: Vec::new(),
        }
    }

    /// The stripe that turns positions into slots.
    #[must_use]
    pub const fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// The allocator of whole pages beneath.
    #[must_use]
    pub const fn pages(&self) -> &PageAllocator<L1> {
        &self.pages
    }

    /// Appends `n` whole pages to `out`.
    pub fn alloc_pages(&mut self, n: usize, out: &mut Vec<L1Page>) -> AllocOutcome {
        match self.pages.alloc(n, out) {
            Ok(()) => AllocOutcome::Pages(n),
            Err(short) => short.into(),
        }
    }

    /// Grows a request from `old_tokens` to `new_tokens`: fills its tail page, then appends whole
    /// pages and the head of a last partial one, adjacent to the tail where that is possible.
    ///
    /// [`WidenedAllocator::slots`] lists the slots of the new positions.
    ///
    /// # Errors
    /// A page list that does not fit `old_tokens`; fewer tokens than before.
    pub fn extend(
        &mut self,
        pages: &mut Vec<L1Page>,
        old_tokens: u64,
        new_tokens: u64,
    ) -> Result<AllocOutcome, WidenedError> {
        self.check(pages, old_tokens)?;
        if new_tokens < old_tokens {
            return Err(WidenedError::Shrink {
                old: old_tokens,
                new: new_tokens,
            });
        }
        let target = usize::try_from(self.stripe.pages_for(new_tokens))
            .map_err(|_| WidenedError::TooLong { tokens: new_tokens })?;
        let needed = target - pages.len();
        let tail = pages.last().copied();
        Ok(match self.pages.alloc_after(tail, needed, pages) {
            Ok(()) => AllocOutcome::Pages(needed),
            Err(short) => short.into(),
        })
    }

    /// Grows every request of a batch by one token and appends the slot of each to `slots`. All
    /// or nothing: if the batch needs more new pages than are free, no request grows.
    ///
    /// # Errors
    /// A request whose page list does not fit its tokens.
    pub fn decode(
        &mut self,
        batch: &mut [Growing<'_>],
        slots: &mut Vec<Slot>,
    ) -> Result<AllocOutcome, WidenedError> {
        let mut needed = 0;
        for request in batch.iter() {
            self.check(request.pages, request.tokens)?;
            needed += usize::from(self.is_full(request));
        }
        let available = self.pages.free_pages();
        if needed > available {
            return Ok(AllocOutcome::OutOfSpace { needed, available });
        }
        for request in batch {
            if self.is_full(request) {
                self.taken.clear();
                let tail = request.pages.last().copied();
                if let Err(short) = self.pages.alloc_after(tail, 1, &mut self.taken) {
                    return Ok(short.into());
                }
                request.pages.append(&mut self.taken);
            }
            let position = TokenPos::new(request.tokens);
            slots.extend(self.stripe.slot_at(request.pages, position));
            request.tokens += 1;
        }
        Ok(AllocOutcome::Pages(needed))
    }

    fn is_full(&self, request: &Growing<'_>) -> bool {
        self.stripe.pages_for(request.tokens) == self.stripe.whole_pages(request.tokens)
    }

    fn check(&self, pages: &[L1Page], tokens: u64) -> Result<(), WidenedError> {
        let expected = self.stripe.pages_for(tokens);
        if pages.len() as u64 != expected {
            return Err(WidenedError::PageCount {
                tokens,
                expected,
                pages: pages.len(),
            });
        }
        if tokens == u64::MAX {
            return Err(WidenedError::TooLong { tokens });
        }
        Ok(())
    }

    /// The slots of positions `range` of a request on `pages`, as runs; adjacent pages make one.
    /// Positions past the pages have no slot.
    #[must_use]
    pub fn slots<'a>(&self, pages: &'a [L1Page], range: Range<u64>) -> SlotRuns<'a> {
        SlotRuns {
            stripe: self.stripe,
            pages,
            next: range.start,
            end: range.end,
        }
    }

    /// Takes pages back.
    ///
    /// # Errors
    /// As [`PageAllocator::free`]; nothing is freed then.
    pub fn free(&mut self, pages: &[L1Page]) -> Result<(), AllocError> {
        self.pages.free(pages)
    }
}

/// Runs of slots; see [`WidenedAllocator::slots`].
#[derive(Clone, Debug)]
pub struct SlotRuns<'a> {
    stripe: Stripe,
    pages: &'a [L1Page],
    next: u64,
    end: u64,
}

impl SlotRuns<'_> {
    /// The slots of the next positions that share one page.
    fn piece(&self) -> Option<Range<u64>> {
        if self.next >= self.end {
            return None;
        }
        let first = self.stripe.slot_at(self.pages, TokenPos::new(self.next))?;
        let page_end = self
            .stripe
            .whole_pages(self.next)
            .saturating_add(1)
            .saturating_mul(self.stripe.widened_page());
        let length = page_end.min(self.end) - self.next;
        Some(first.get()..first.get() + length)
    }
}

impl Iterator for SlotRuns<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let mut run = self.piece()?;
        self.next += run.end - run.start;
        while let Some(more) = self.piece().filter(|more| more.start == run.end) {
            self.next += more.end - more.start;
            run.end = more.end;
        }
        Some(run)
    }
}

impl FusedIterator for SlotRuns<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::{PageGeometry, PoolKind};

    fn allocator(dcp: u32, rows: u32, pages: u32) -> WidenedAllocator {
        let stripe = Stripe::new(dcp, rows).unwrap();
        let page = PageGeometry::new(rows, 4, 1).unwrap();
        let rows = u64::from(rows) * u64::from(pages);
        WidenedAllocator::new(PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows).unwrap())
    }

    #[test]
    fn extend_fills_the_tail_page_before_it_takes_new_ones() {
        let mut alloc = allocator(4, 2, 6);
        let mut pages = Vec::new();
        assert_eq!(
            alloc.extend(&mut pages, 0, 5).unwrap(),
            AllocOutcome::Pages(1)
        );
        assert_eq!(
            alloc.extend(&mut pages, 5, 8).unwrap(),
            AllocOutcome::Pages(0)
        );
        assert_eq!(
            alloc.extend(&mut pages, 8, 21).unwrap(),
            AllocOutcome::Pages(2)
        );
        assert_eq!(pages, [1, 2, 3].map(L1Page::new));
        let mut runs = alloc.slots(&pages, 5..21);
        assert_eq!(runs.next(), Some(13..29), "adjacent pages make one run");
        assert_eq!(runs.next(), None);
        let apart = [L1Page::new(7), L1Page::new(3)];
        let runs: Vec<_> = alloc.slots(&apart, 6..12).collect();
        assert_eq!(runs, [62..64, 24..28]);
        let mut runs = alloc.slots(&apart, 14..40);
        assert_eq!(runs.next(), Some(30..32));
        assert_eq!(runs.next(), None, "positions past the pages have no slot");
    }

    #[test]
    fn out_of_space_takes_nothing() {
        let mut alloc = allocator(2, 4, 4);
        let mut pages = Vec::new();
        let outcome = alloc.extend(&mut pages, 0, 25).unwrap();
        let (needed, available) = (4, 3);
        assert_eq!(outcome, AllocOutcome::OutOfSpace { needed, available });
        assert!(pages.is_empty());
        assert_eq!(
            alloc.extend(&mut pages, 0, 24).unwrap(),
            AllocOutcome::Pages(3)
        );
        alloc.free(&pages).unwrap();
        assert_eq!(alloc.pages().free_pages(), 3);
    }

    #[test]
    fn wrong_lists_are_refused_with_the_numbers() {
        let mut alloc = allocator(2, 4, 4);
        let mut pages = Vec::new();
        assert!(matches!(
            alloc.extend(&mut pages, 9, 10),
            Err(WidenedError::PageCount {
                expected: 2,
                pages: 0,
                ..
            })
        ));
        let _ = alloc.extend(&mut pages, 0, 9).unwrap();
        assert_eq!(
            alloc.extend(&mut pages, 9, 8),
            Err(WidenedError::Shrink { old: 9, new: 8 })
        );
        let outcome = alloc.extend(&mut pages, 9, u64::MAX).unwrap();
        assert!(matches!(outcome, AllocOutcome::OutOfSpace { .. }));
    }

    #[test]
    fn a_decode_batch_grows_as_a_whole_or_not_at_all() {
        let mut alloc = allocator(2, 2, 4);
        let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
        let _ = alloc.extend(&mut a, 0, 4).unwrap();
        let _ = alloc.extend(&mut b, 0, 3).unwrap();
        let mut slots = Vec::new();
        let grow = |pages, tokens| Growing { pages, tokens };
        let mut batch = [grow(&mut a, 4), grow(&mut b, 3), grow(&mut c, 0)];
        let outcome = alloc.decode(&mut batch, &mut slots).unwrap();
        let (needed, available) = (2, 1);
        assert_eq!(outcome, AllocOutcome::OutOfSpace { needed, available });
        assert!(slots.is_empty() && batch[1].tokens == 3);
        let outcome = alloc.decode(&mut batch[..2], &mut slots).unwrap();
        assert_eq!(outcome, AllocOutcome::Pages(1));
        assert_eq!(slots, [12, 11].map(Slot::new));
        assert_eq!((a.len(), b.len()), (2, 1));
    }

    proptest! {
        #[test]
        fn b12_slots_stay_in_the_pool_and_have_one_owner(
            dcp in 1u32..5,
            rows in 1u32..5,
            pages in 2u32..12,
            lengths in proptest::collection::vec(0u64..40, 1..8),
        ) {
            let mut alloc = allocator(dcp, rows, pages);
            let w = alloc.stripe().widened_page();
            let mut seen = std::collections::BTreeSet::new();
            for length in lengths {
                let mut request = Vec::new();
                let mut have = 0;
                for step in [length / 3, length] {
                    match alloc.extend(&mut request, have, step).unwrap() {
                        AllocOutcome::Pages(_) => {
                            let mut count = 0;
                            for slot in alloc.slots(&request, have..step).flatten() {
                                prop_assert!(slot >= w && slot < u64::from(pages) * w);
                                prop_assert!(seen.insert(slot));
                                count += 1;
                            }
                            prop_assert_eq!(count, step - have);
                            have = step;
                        }
                        AllocOutcome::OutOfSpace { needed, available } => {
                            prop_assert!(needed > available);
                        }
                    }
                }
            }
        }
    }
}
