// SPDX-License-Identifier: Apache-2.0
//! Making room on either tier.

use striata_core::{L1Page, L2Page};

use super::Planner;
use crate::error::Error;
use crate::residency::PageState;

impl Planner {
    /// Evicts until `needed` pages are free on L1, as far as pages are evictable. Returns the free
    /// pages.
    pub(super) fn make_room_l1(&mut self, needed: usize) -> Result<usize, Error> {
        let free = self.l1.free_pages();
        if free >= needed {
            return Ok(free);
        }
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.clear();
        self.index.evict_l1(needed - free, &mut evicted);
        let kept = evicted.kept_on_l2 as u64;
        self.stats.evicted_pages_kept_on_l2 += kept;
        self.stats.evicted_pages_dropped += evicted.l1.len() as u64 - kept;
        let done = self.free_evicted(&evicted.l1, &evicted.l2);
        self.evicted = evicted;
        done?;
        Ok(self.l1.free_pages())
    }

    /// Evicts until `needed` pages are free on L2, as far as pages are evictable. Returns the free
    /// pages.
    pub(super) fn make_room_l2(&mut self, needed: usize) -> Result<usize, Error> {
        let free = self.l2.free_pages();
        if free >= needed {
            return Ok(free);
        }
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.clear();
        self.index
            .evict_l2(needed - free, self.config.duplicates_first, &mut evicted);
        let done = self.free_evicted(&evicted.l1, &evicted.l2);
        self.evicted = evicted;
        done?;
        Ok(self.l2.free_pages())
    }

    fn free_evicted(&mut self, l1: &[L1Page], l2: &[L2Page]) -> Result<(), Error> {
        for &page in l1 {
            self.l1_states.step(page, PageState::Free)?;
        }
        self.l1.free(l1)?;
        for &page in l2 {
            self.l2_states.step(page, PageState::Free)?;
        }
        self.l2.free(l2)?;
        self.stats.evicted_pages_l2 += l2.len() as u64;
        Ok(())
    }

    /// Evicts up to `pages` pages from L1 although nothing needs them now; returns how many left.
    ///
    /// # Errors
    /// Only broken bookkeeping.
    pub fn evict(&mut self, pages: usize) -> Result<usize, Error> {
        let before = self.l1.free_pages();
        Ok(self.make_room_l1(before.saturating_add(pages))? - before)
    }
}
