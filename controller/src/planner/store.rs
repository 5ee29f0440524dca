// SPDX-License-Identifier: Apache-2.0
//! Stores: which pages go to L2, and how many at a time.

use striata_core::{FenceId, L1Page, OpId, PagePair};

use super::{Draft, Operation, Planner};
use crate::error::Error;
use crate::lease::{Lease, LeaseId};
use crate::order::OrderKind;
use crate::residency::PageState;

/// What became of pages that were due for a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The operation, if one was started.
    pub op: Option<OpId>,
    /// Pages of it.
    pub pages: usize,
    /// Pages that wait because too many are in flight: [`Planner::maintain`] stores those that are
    /// still on L1 then, the oldest first.
    pub deferred: usize,
    /// Pages that found no room on L2.
    pub skipped: usize,
}

/// Why pages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They stay on L1.
    Copy,
    /// They leave L1 then, and somebody may wait for it. Those without room on L2 leave at once.
    MakeRoom,
    /// They leave L1 then, ahead of need. Those without room on L2 stay.
    MakeRoomAhead,
}

/// Most deferred pages that one call stores.
const DEFERRED_AT_ONCE: usize = 256;

impl Planner {
    /// Stores what of the lease's path is on L1 and not on L2, whatever the write policy. Pages
    /// that an earlier store brings already do not count.
    ///
    /// # Errors
    /// An unknown lease.
    pub fn store(&mut self, lease: &Lease) -> Result<Stored, Error> {
        let id = self.own(lease)?;
        self.store_path(id, 0)
    }

    /// Stores the pages of the lease's path that are due: on L1, not on L2, inserted often enough,
    /// parents before children.
    pub(super) fn write_through(&mut self, id: LeaseId) -> Result<Stored, Error> {
        match self.store_after {
            Some(inserts) => self.store_path(id, inserts),
            None => Ok(Stored::default()),
        }
    }

    fn store_path(&mut self, id: LeaseId, inserts: u32) -> Result<Stored, Error> {
        let mut due = std::mem::take(&mut self.scratch_l1);
        due.clear();
        if self.config.l2_pages > 0 {
            let lock = &self.leases.get(id)?.lock;
            self.index.pages_without_l2(lock, inserts, &mut due)?;
            due.retain(|page| !self.storing.contains(*page) && self.is_readable(*page));
        }
        let stored = self.store_pages(&mut due, Purpose::Copy);
        self.scratch_l1 = due;
        stored
    }

    fn is_readable(&self, page: L1Page) -> bool {
        self.l1_states.state(page) == PageState::Resident
    }

    /// More pages that stores in flight may have.
    fn store_allowance(&self) -> usize {
        let cap = self.config.max_store_pages.unwrap_or(u32::MAX);
        cap.saturating_sub(self.storing_pages) as usize
    }

    /// Stores pages that were put off, as far as the cap allows by now, the oldest first.
    pub(super) fn store_deferred(&mut self) -> Result<(), Error> {
        let most = self.store_allowance().min(DEFERRED_AT_ONCE);
        if most == 0 || self.deferred.is_empty() {
            return Ok(());
        }
        let mut due = std::mem::take(&mut self.scratch_l1);
        due.clear();
        self.deferred.take(most, &mut due);
        due.retain(|page| {
            let is_due = self.index.l2_of(*page).is_none()
                && !self.storing.contains(*page)
                && self.is_readable(*page);
            if !is_due {
                self.deferred.forget(*page);
            }
            is_due
        });
        let stored = self.store_pages(&mut due, Purpose::Copy);
        self.scratch_l1 = due;
        stored.map(drop)
    }

    /// Starts a store of as many leading pages of `due` as the cap and L2 have room for. Where they
    /// make room `due` begins with the deepest page, which leaves first; stored are parents before
    /// children all the same, so that what a store brings in part has its ancestors.
    pub(super) fn store_pages(
        &mut self,
        due: &mut [L1Page],
        purpose: Purpose,
    ) -> Result<Stored, Error> {
        let mut stored = Stored::default();
        if due.is_empty() {
            return Ok(stored);
        }
        let allowed = due.len().min(self.store_allowance());
        let room = if allowed == 0 {
            0
        } else {
            self.make_room_l2(allowed)?.min(allowed)
        };
        stored.pages = room;
        let (begun, rest) = due.split_at_mut(room);
        if purpose == Purpose::MakeRoomAhead {
            // Nobody needs the room: they wait for that on L2 as well.
            stored.deferred = rest.len();
        } else {
            stored.skipped = allowed - room;
            stored.deferred = rest.len() - stored.skipped;
        }
        let (skipped, deferred) = rest.split_at(stored.skipped);
        self.stats.skipped_store_pages += skipped.len() as u64;
        for &page in skipped {
            self.deferred.forget(page);
        }
        for &page in deferred {
            self.stats.deferred_store_pages += u64::from(self.deferred.count(page));
            if purpose == Purpose::Copy {
                self.deferred.push(page);
            }
        }
        if room > 0 {
            let freeing = purpose != Purpose::Copy;
            if freeing {
                begun.reverse();
            }
            stored.op = Some(self.start_store(begun, freeing)?);
        }
        Ok(stored)
    }

    fn start_store(&mut self, sources: &[L1Page], freeing: bool) -> Result<OpId, Error> {
        let mut targets = std::mem::take(&mut self.store_targets);
        targets.clear();
        self.l2.alloc(sources.len(), &mut targets)?;
        let mut pages = Vec::with_capacity(sources.len());
        for (&l1, &l2) in sources.iter().zip(&targets) {
            self.l2_states.step(l2, PageState::Storing)?;
            self.index.pin_l1(l1);
            self.storing.insert(l1);
            self.deferred.forget(l1);
            self.storing_pages += 1;
            pages.push(PagePair { l1, l2 });
        }
        self.store_targets = targets;
        if freeing {
            self.freeing_pages += sources.len();
        }
        self.stats.store_pages += sources.len() as u64;
        let fence = self.fence_of_use();
        let after = (fence != FenceId::default()).then_some(fence);
        Ok(self.issue(Draft {
            kind: OrderKind::Store,
            pages,
            after,
            lock: None,
            freeing,
        }))
    }

    pub(super) fn end_store(&mut self, operation: &Operation, good: usize) -> Result<(), Error> {
        let pages = &operation.order.pages;
        if operation.freeing {
            self.freeing_pages -= pages.len();
        }
        let mut attached = 0;
        for (at, pair) in pages.iter().enumerate() {
            self.index.unpin_l1(pair.l1);
            self.storing.remove(pair.l1);
            self.storing_pages -= 1;
            if at < good && self.index.attach_l2(pair.l1, pair.l2) {
                self.l2_states.step(pair.l2, PageState::Resident)?;
                attached += 1;
            } else {
                self.l2_states.step(pair.l2, PageState::Free)?;
                self.l2.free(&[pair.l2])?;
            }
        }
        self.stats.stored_pages += attached;
        self.stats.forgotten_store_pages += good as u64 - attached;
        self.stats.failed_store_pages += (pages.len() - good) as u64;
        self.stored_on_l2_events(&pages[..good]);
        Ok(())
    }

    fn stored_on_l2_events(&mut self, pages: &[PagePair]) {
        if !self.config.events {
            return;
        }
        for pair in pages {
            if let Some(key) = self.index.key_of_l1(pair.l1) {
                let parent = self.index.parent_key_of_l1(pair.l1);
                self.stored_event(super::events::EventTier::L2, parent, std::iter::once(key));
            }
        }
    }
}
