// SPDX-License-Identifier: Apache-2.0
//! Stores: which pages go to L2, and how many at a time.

use striata_core::{FenceId, L1Page, OpId, PagePair};

use super::{Draft, Planner};
use crate::error::Error;
use crate::lease::{Lease, LeaseId};
use crate::order::{Order, OrderKind};
use crate::residency::PageState;

/// What became of pages that were due for a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The operation, if one was started.
    pub op: Option<OpId>,
    /// Pages of it.
    pub pages: usize,
    /// Pages that wait because too many are in flight; a later call stores them.
    pub deferred: usize,
    /// Pages that found no room on L2.
    pub skipped: usize,
}

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
        let stored = self.store_pages(&due, false);
        self.scratch_l1 = due;
        stored
    }

    fn is_readable(&self, page: L1Page) -> bool {
        self.l1_states.state(page) == PageState::Resident
    }

    /// Starts a store of as many leading pages of `due` as the cap and L2 have room for.
    pub(super) fn store_pages(&mut self, due: &[L1Page], urgent: bool) -> Result<Stored, Error> {
        let mut stored = Stored::default();
        if due.is_empty() {
            return Ok(stored);
        }
        let cap = self.config.max_store_pages.unwrap_or(u32::MAX);
        let allowed = due
            .len()
            .min(cap.saturating_sub(self.storing_pages) as usize);
        let room = if allowed == 0 {
            0
        } else {
            self.make_room_l2(allowed)?.min(allowed)
        };
        stored.pages = room;
        stored.deferred = due.len() - allowed;
        stored.skipped = allowed - room;
        self.stats.deferred_store_pages += stored.deferred as u64;
        self.stats.skipped_store_pages += stored.skipped as u64;
        if room > 0 {
            stored.op = Some(self.start_store(&due[..room], urgent)?);
        }
        Ok(stored)
    }

    fn start_store(&mut self, sources: &[L1Page], urgent: bool) -> Result<OpId, Error> {
        let mut targets = std::mem::take(&mut self.store_targets);
        targets.clear();
        self.l2.alloc(sources.len(), &mut targets)?;
        let mut pages = Vec::with_capacity(sources.len());
        for (&l1, &l2) in sources.iter().zip(&targets) {
            self.l2_states.step(l2, PageState::Storing)?;
            self.index.pin_l1(l1);
            self.storing.insert(l1);
            self.storing_pages += 1;
            pages.push(PagePair { l1, l2 });
        }
        self.store_targets = targets;
        if urgent {
            self.freeing_pages += sources.len();
        }
        self.stats.store_pages += sources.len() as u64;
        let fence = self.fence_of_use();
        let after = (fence != FenceId::default()).then_some(fence);
        Ok(self.issue(Draft {
            kind: OrderKind::Store,
            pages,
            after,
            urgent,
            lock: None,
        }))
    }

    pub(super) fn end_store(&mut self, order: &Order, good: usize) -> Result<(), Error> {
        let pages = &order.pages;
        if order.urgent {
            self.freeing_pages -= pages.len();
        }
        for (at, pair) in pages.iter().enumerate() {
            self.index.unpin_l1(pair.l1);
            self.storing.remove(pair.l1);
            self.storing_pages -= 1;
            if at < good && self.index.attach_l2(pair.l1, pair.l2) {
                self.l2_states.step(pair.l2, PageState::Resident)?;
            } else {
                self.l2_states.step(pair.l2, PageState::Free)?;
                self.l2.free(&[pair.l2])?;
            }
        }
        self.stats.stored_pages += good as u64;
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
