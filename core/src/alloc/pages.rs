// SPDX-License-Identifier: Apache-2.0
//! Whole pages of one tier.

use core::marker::PhantomData;

use super::bitmap::BitSet;
use crate::units::{PageId, Tier};

/// Free runs that a search for adjacent pages looks at before it settles for the lowest pages.
const RUNS_TRIED: usize = 32;

/// Not enough free pages; an outcome, not a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} pages are needed and {available} are free")]
pub struct Shortage {
    /// Pages asked for.
    pub needed: usize,
    /// Pages free.
    pub available: usize,
}

/// Why pages were not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The page is free already.
    #[error("{tier} page {page} is freed twice")]
    DoubleFree {
        /// Tier of the page.
        tier: &'static str,
        /// The page.
        page: u32,
    },
    /// The page stands twice in one call.
    #[error("{tier} page {page} stands twice in one list of pages to free")]
    Repeated {
        /// Tier of the page.
        tier: &'static str,
        /// The page.
        page: u32,
    },
    /// The page was never handed out by this allocator.
    #[error("{tier} page {page} is not one of the pages {reserved}..{total} that are handed out")]
    Foreign {
        /// Tier of the page.
        tier: &'static str,
        /// The page.
        page: u32,
        /// Leading pages that are never handed out.
        reserved: u32,
        /// Pages of the tier.
        total: u32,
    },
}

/// Hands out the pages of tier `T`: lowest first, adjacent where possible, so that copies coalesce.
///
/// **Cost**: a call is O(pages it moves) and never allocates on its own; one bit a page is kept.
#[derive(Clone, Debug)]
pub struct PageAllocator<T> {
    free: BitSet,
    free_count: usize,
    total: u32,
    reserved: u32,
    tier: PhantomData<T>,
}

impl<T: Tier> PageAllocator<T> {
    /// An allocator over pages `reserved..total_pages`, all of them free.
    #[must_use]
    pub fn new(total_pages: u32, reserved: u32) -> Self {
        let reserved = reserved.min(total_pages);
        let mut free = BitSet::new(total_pages as usize);
        for page in reserved..total_pages {
            free.insert(page as usize);
        }
        Self {
            free,
            free_count: (total_pages - reserved) as usize,
            total: total_pages,
            reserved,
            tier: PhantomData,
        }
    }

    /// Adds the pages from the present total up to `total_pages`, all of them free. A lower total
    /// does nothing: a tier never shrinks. **Cost**: O(all pages / 64 + pages added).
    pub fn grow(&mut self, total_pages: u32) {
        if total_pages <= self.total {
            return;
        }
        self.free.grow(total_pages as usize);
        for page in self.total..total_pages {
            self.free.insert(page as usize);
        }
        self.free_count += (total_pages - self.total) as usize;
        self.total = total_pages;
    }

    /// Pages that can be handed out now.
    #[must_use]
    pub const fn free_pages(&self) -> usize {
        self.free_count
    }

    /// Pages that can ever be handed out.
    #[must_use]
    pub const fn usable_pages(&self) -> usize {
        (self.total - self.reserved) as usize
    }

    /// Whether a page is free. Reserved and foreign pages are not.
    #[must_use]
    pub fn is_free(&self, page: PageId<T>) -> bool {
        self.free.contains(page.index())
    }

    /// Appends `n` pages to `out`.
    ///
    /// # Errors
    /// Fewer than `n` free pages: nothing is taken.
    pub fn alloc(&mut self, n: usize, out: &mut Vec<PageId<T>>) -> Result<(), Shortage> {
        self.alloc_after(None, n, out)
    }

    /// Appends `n` pages to `out`, first those that directly follow page `tail`.
    ///
    /// # Errors
    /// Fewer than `n` free pages: nothing is taken.
    pub fn alloc_after(
        &mut self,
        tail: Option<PageId<T>>,
        n: usize,
        out: &mut Vec<PageId<T>>,
    ) -> Result<(), Shortage> {
        if n > self.free_count {
            return Err(Shortage {
                needed: n,
                available: self.free_count,
            });
        }
        let mut left = n;
        if let Some(tail) = tail {
            left -= self.take_run(tail.index() + 1, left, out);
        }
        if let Some(start) = self.find_run(left) {
            left -= self.take_run(start, left, out);
        }
        let mut from = 0;
        while left > 0 {
            let Some(start) = self.free.next(from) else {
                break;
            };
            let taken = self.take_run(start, left, out);
            from = start + taken;
            left -= taken;
        }
        Ok(())
    }

    /// The start of the lowest run of `n` free pages, among the first few runs.
    fn find_run(&self, n: usize) -> Option<usize> {
        if n < 2 {
            return None;
        }
        let mut from = 0;
        for _ in 0..RUNS_TRIED {
            let start = self.free.next(from)?;
            let length = self.free.run_at(start, n);
            if length == n {
                return Some(start);
            }
            from = start + length;
        }
        None
    }

    /// Takes the free pages from `start` on, at most `limit`; returns how many.
    fn take_run(&mut self, start: usize, limit: usize, out: &mut Vec<PageId<T>>) -> usize {
        let length = self.free.run_at(start, limit);
        for at in start..start + length {
            self.free.remove(at);
            // The set has no member at or above `total`, a u32.
            out.push(PageId::new(u32::try_from(at).unwrap_or(u32::MAX)));
        }
        self.free_count -= length;
        length
    }

    /// Takes pages back.
    ///
    /// # Errors
    /// A page that is free already, stands twice in `pages`, or was never handed out: the first
    /// such page is named and nothing is freed.
    pub fn free(&mut self, pages: &[PageId<T>]) -> Result<(), AllocError> {
        let tier = T::NAME;
        for &page in pages {
            let number = page.get();
            if number < self.reserved || number >= self.total {
                return Err(AllocError::Foreign {
                    tier,
                    page: number,
                    reserved: self.reserved,
                    total: self.total,
                });
            }
            if self.is_free(page) {
                return Err(AllocError::DoubleFree { tier, page: number });
            }
        }
        for (at, page) in pages.iter().enumerate() {
            if !self.free.insert(page.index()) {
                for undone in &pages[..at] {
                    self.free.remove(undone.index());
                }
                return Err(AllocError::Repeated {
                    tier,
                    page: page.get(),
                });
            }
        }
        self.free_count += pages.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::units::{L1, L1Page, L2, L2Page};

    fn ids(pages: &[L1Page]) -> Vec<u32> {
        pages.iter().map(|p| p.get()).collect()
    }

    #[test]
    fn lowest_first_and_adjacent_where_possible() {
        let mut pool = PageAllocator::<L1>::new(12, 1);
        let mut got = Vec::new();
        pool.alloc(11, &mut got).unwrap();
        assert_eq!(ids(&got), (1..12).collect::<Vec<_>>());
        pool.free(&[1, 3, 5, 6, 7, 9].map(L1Page::new)).unwrap();
        got.clear();
        pool.alloc(3, &mut got).unwrap();
        assert_eq!(
            ids(&got),
            [5, 6, 7],
            "a run of three stands behind two holes"
        );
        got.clear();
        pool.alloc(1, &mut got).unwrap();
        assert_eq!(ids(&got), [1]);
        got.clear();
        pool.alloc_after(Some(L1Page::new(8)), 2, &mut got).unwrap();
        assert_eq!(ids(&got), [9, 3], "the page after the tail comes first");
    }

    #[test]
    fn a_shortage_takes_nothing_and_says_the_numbers() {
        let mut pool = PageAllocator::<L1>::new(4, 1);
        let mut got = Vec::new();
        let short = pool.alloc(4, &mut got).unwrap_err();
        assert_eq!((short.needed, short.available), (4, 3));
        assert!(got.is_empty());
        assert_eq!(pool.free_pages(), 3);
        assert_eq!(
            PageAllocator::<L1>::new(1, 4).usable_pages(),
            0,
            "more reserved than there are"
        );
    }

    #[test]
    fn b12_page_zero_is_never_handed_out() {
        let mut pool = PageAllocator::<L1>::new(3, 1);
        let mut got = Vec::new();
        pool.alloc(2, &mut got).unwrap();
        assert_eq!(ids(&got), [1, 2]);
        assert!(pool.free(&[L1Page::new(0)]).is_err());
    }

    /// Seen to fail if free pages are taken back once more.
    #[test]
    fn b29_double_free_names_the_page_and_changes_nothing() {
        let mut pool = PageAllocator::<L2>::new(8, 0);
        let mut got: Vec<L2Page> = Vec::new();
        pool.alloc(8, &mut got).unwrap();
        pool.free(&got[5..]).unwrap();
        let again = pool.free(&got[4..]).unwrap_err();
        assert_eq!(again.to_string(), "L2 page 5 is freed twice");
        assert_eq!(pool.free_pages(), 3);
        let twice = pool.free(&[got[0], got[1], got[0]]).unwrap_err();
        assert_eq!(
            twice.to_string(),
            "L2 page 0 stands twice in one list of pages to free"
        );
        let foreign = pool.free(&[got[0], L2Page::new(8)]).unwrap_err();
        assert!(foreign.to_string().contains("page 8"), "{foreign}");
        assert_eq!(pool.free_pages(), 3, "all or nothing");
        assert!(!pool.is_free(got[0]));
    }

    /// Seen to fail if one page of each list is not taken back.
    #[test]
    fn b32_a_million_cycles_keep_the_bookkeeping_where_it_was() {
        let mut pool = PageAllocator::<L2>::new(8192, 0);
        let words = pool.free.words_held();
        let mut out = std::collections::VecDeque::new();
        let mut spare: Vec<Vec<L2Page>> = Vec::new();
        let mut state = 1u64;
        for _ in 0..1_000_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let n = (state >> 58) as usize + 1;
            let mut pages = spare.pop().unwrap_or_default();
            pages.clear();
            pool.alloc(n, &mut pages).unwrap();
            out.push_back(pages);
            if out.len() > 100 {
                let old = out.pop_front().unwrap();
                pool.free(&old).unwrap();
                spare.push(old);
            }
        }
        for pages in out {
            pool.free(&pages).unwrap();
        }
        assert_eq!(pool.free_pages(), 8192);
        assert_eq!(pool.free.words_held(), words);
    }

    #[test]
    fn a_tier_that_grows_hands_out_its_new_pages_and_no_old_one_twice() {
        let mut pool = PageAllocator::<L2>::new(3, 0);
        let mut held: Vec<L2Page> = Vec::new();
        pool.alloc(3, &mut held).unwrap();
        for total in [3, 2, 5, 200, 5000] {
            let before = pool.usable_pages();
            pool.grow(total);
            let usable = before.max(total as usize);
            assert_eq!(pool.usable_pages(), usable);
            assert_eq!(pool.free_pages(), usable - held.len());
            pool.alloc(pool.free_pages(), &mut held).unwrap();
            let distinct: BTreeSet<_> = held.iter().map(|page| page.get()).collect();
            assert_eq!(distinct.len(), held.len());
            assert_eq!(distinct.last().map(|page| *page as usize), Some(usable - 1));
        }
        pool.free(&held).unwrap();
        assert_eq!(pool.free_pages(), 5000);
    }

    proptest! {
        #[test]
        fn pages_have_one_owner(
            total in 1u32..200,
            reserved in 0u32..3,
            steps in proptest::collection::vec((0usize..3, 0usize..40), 1..200),
        ) {
            let mut pool = PageAllocator::<L1>::new(total, reserved);
            let mut held: Vec<L1Page> = Vec::new();
            let usable = pool.usable_pages();
            for (kind, n) in steps {
                if kind < 2 {
                    let tail = held.last().copied().filter(|_| kind == 1);
                    let before = held.len();
                    let fits = n <= usable - before;
                    prop_assert_eq!(pool.alloc_after(tail, n, &mut held).is_ok(), fits);
                    prop_assert_eq!(held.len() - before, if fits { n } else { 0 });
                } else {
                    let at = held.len().saturating_sub(n);
                    pool.free(&held[at..]).unwrap();
                    held.truncate(at);
                }
                let distinct: BTreeSet<_> = held.iter().map(|p| p.get()).collect();
                prop_assert_eq!(distinct.len(), held.len());
                prop_assert!(distinct.iter().all(|&p| p >= reserved && p < total));
                prop_assert_eq!(pool.free_pages(), usable - held.len());
            }
        }
    }
}
