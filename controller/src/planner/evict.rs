// SPDX-License-Identifier: Apache-2.0
//! Making room on either tier.

use striata_core::OpId;
use striata_core::prefix::{Evicted, Namespace};

use super::Planner;
use super::events::EventTier;
use super::store::Purpose;
use crate::error::Error;
use crate::residency::PageState;

/// What an eviction achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Pages that left L1.
    pub freed: usize,
    /// Pages that leave once the stores are over that this call has started.
    pub freeing: usize,
    /// The last of those stores.
    pub after: Option<OpId>,
    /// Pages among the freed that are on no tier any more, since L2 had no room for them. Only
    /// write-back tries to keep them.
    pub dropped: usize,
}

impl Planner {
    /// Evicts up to `pages` pages from L1 although nothing needs them now. Under write-back, pages
    /// without a copy are stored first and leave with a later call.
    ///
    /// # Errors
    /// Only broken bookkeeping.
    pub fn evict(&mut self, pages: usize) -> Result<Room, Error> {
        self.apply_releases()?;
        let coming = self.coming_l1();
        self.free_l1(coming.saturating_add(pages), Purpose::MakeRoom)
    }

    /// Stores pages whose store was put off, as far as the cap on stores allows by now, and evicts
    /// ahead of need until the configured number of pages is free, or will be once the stores in
    /// flight are over that were started for it. Call it once a step.
    ///
    /// Under write-back nothing is dropped ahead of need: a page for which L2 has no room stays.
    ///
    /// # Errors
    /// Only broken bookkeeping.
    pub fn maintain(&mut self) -> Result<Room, Error> {
        self.apply_releases()?;
        self.store_deferred()?;
        let watermark = self.config.free_watermark as usize;
        self.free_l1(watermark, Purpose::MakeRoomAhead)
    }

    /// Evicts until `needed` pages are free on L1, as far as pages are evictable. Returns the free
    /// pages.
    pub(super) fn make_room_l1(&mut self, needed: usize) -> Result<usize, Error> {
        self.free_l1(needed, Purpose::MakeRoom)?;
        Ok(self.l1.free_pages())
    }

    /// Pages that are free on L1, or will be once the stores in flight are over that were started
    /// to make room.
    const fn coming_l1(&self) -> usize {
        self.l1.free_pages() + self.freeing_pages
    }

    fn free_l1(&mut self, needed: usize, purpose: Purpose) -> Result<Room, Error> {
        let mut room = Room::default();
        let short = needed.saturating_sub(self.coming_l1());
        if short == 0 {
            return Ok(room);
        }
        if self.store_after.is_some() || self.config.l2_pages == 0 {
            room.freed = self.evict_l1(short)?;
            return Ok(room);
        }
        // A page without a copy hides those above it that have one, so one pass may not be enough.
        loop {
            let short = needed.saturating_sub(self.coming_l1());
            if short == 0 || !self.store_or_evict(short, purpose, &mut room)? {
                return Ok(room);
            }
        }
    }

    /// Evicts what has a copy on L2 and starts to store what has none. False if nothing has left
    /// L1, so that another pass would do no more.
    fn store_or_evict(
        &mut self,
        pages: usize,
        purpose: Purpose,
        room: &mut Room,
    ) -> Result<bool, Error> {
        let mut unstored = std::mem::take(&mut self.unstored);
        unstored.clear();
        let mut freed = self
            .evicting(|index, evicted| index.evict_l1_store_first(pages, evicted, &mut unstored))?;
        let stored = self.store_pages(&mut unstored, purpose);
        self.unstored = unstored;
        let stored = stored?;
        room.freeing += stored.pages;
        room.after = stored.op.or(room.after);
        // What found no room on L2 is dropped: the allocation does not wait for ever.
        if stored.skipped > 0 {
            let before = self.stats.evicted_pages_dropped;
            freed += self.evict_l1(stored.skipped)?;
            let dropped = self.stats.evicted_pages_dropped - before;
            room.dropped += usize::try_from(dropped).unwrap_or(usize::MAX);
        }
        room.freed += freed;
        Ok(freed > 0)
    }

    fn evict_l1(&mut self, pages: usize) -> Result<usize, Error> {
        self.evicting(|index, evicted| index.evict_l1(pages, evicted))
    }

    /// Evicts until `needed` pages are free on L2, as far as pages are evictable. Returns the free
    /// pages.
    pub(super) fn make_room_l2(&mut self, needed: usize) -> Result<usize, Error> {
        let short = needed.saturating_sub(self.l2.free_pages());
        if short > 0 {
            let copies_first = self.config.duplicates_first;
            self.evicting(|index, evicted| index.evict_l2(short, copies_first, evicted))?;
        }
        Ok(self.l2.free_pages())
    }

    /// Forgets everything that is cached under a namespace, as after an update of the weights. No
    /// later request matches any of it; pages that leases or copies hold go when they let go.
    ///
    /// # Errors
    /// Only broken bookkeeping.
    pub fn reset(&mut self, namespace: Namespace) -> Result<(), Error> {
        self.apply_releases()?;
        self.evicting(|index, evicted| {
            index.retire(namespace.root(), evicted);
            evicted.l1.len()
        })?;
        Ok(())
    }

    /// Frees what a namespace that was reset held for leases and copies that have let go.
    pub(super) fn sweep(&mut self) -> Result<(), Error> {
        self.evicting(|index, evicted| {
            index.sweep_retired(evicted);
            evicted.l1.len()
        })?;
        Ok(())
    }

    /// Runs an eviction of the index and gives what it let go to the allocators.
    fn evicting(
        &mut self,
        evict: impl FnOnce(&mut striata_core::prefix::PrefixIndex, &mut Evicted) -> usize,
    ) -> Result<usize, Error> {
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.clear();
        evicted.record_keys = self.config.events;
        let count = evict(&mut self.index, &mut evicted);
        let done = self.free_evicted(&evicted);
        self.evicted = evicted;
        done?;
        Ok(count)
    }

    fn free_evicted(&mut self, evicted: &Evicted) -> Result<(), Error> {
        for &page in &evicted.l1 {
            self.l1_states.step(page, PageState::Free)?;
            self.deferred.forget(page);
        }
        self.l1.free(&evicted.l1)?;
        for &page in &evicted.l2 {
            self.l2_states.step(page, PageState::Free)?;
        }
        self.l2.free(&evicted.l2)?;
        let kept = evicted.kept_on_l2 as u64;
        self.stats.evicted_pages_kept_on_l2 += kept;
        self.stats.evicted_pages_dropped += evicted.l1.len() as u64 - kept;
        self.stats.evicted_pages_l2 += evicted.l2.len() as u64;
        self.removed_event(EventTier::L1, &evicted.l1_keys);
        self.removed_event(EventTier::L2, &evicted.l2_keys);
        Ok(())
    }
}
