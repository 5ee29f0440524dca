// SPDX-License-Identifier: Apache-2.0
//! Computed pages become matchable, and write-through begins.

use striata_core::prefix::{Duplicate, InsertOptions};
use striata_core::{FenceId, L1Page, PagePair};

use super::{Confirm, Planner};
use crate::error::Error;
use crate::lease::{Lease, LeaseId};
use crate::order::OrderKind;
use crate::residency::PageState;

/// What an insert did. It frees nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Pages that the index took from the lease.
    pub new_pages: usize,
    /// Pages whose key another request had brought meanwhile. They stay with the lease until its
    /// release; the engine may rewrite its table to the kept ones.
    pub duplicates: Vec<Duplicate>,
    /// Pages whose store began.
    pub stored_pages: usize,
}

impl Planner {
    /// Gives the whole pages of the lease's first `tokens` tokens to the prefix index and starts
    /// write-through of those that are due. `count_hit` is false for the intermediate inserts of
    /// a chunked prefill, so that they do not count as reuse.
    ///
    /// # Errors
    /// An unknown lease; tokens beyond its pages or keys; loads that are not confirmed.
    pub fn insert(
        &mut self,
        lease: &Lease,
        tokens: u64,
        count_hit: bool,
    ) -> Result<Inserted, Error> {
        match self.confirm(lease)? {
            Confirm::Done => {}
            Confirm::Pending { op } => return Err(Error::Unconfirmed { op }),
            Confirm::LoadFailed { .. } => {
                let op = self
                    .leases
                    .get(lease.id)?
                    .loads
                    .last()
                    .copied()
                    .unwrap_or_default();
                return Err(Error::Unconfirmed { op });
            }
        }
        let whole = self.stripe.whole_pages(tokens);
        let covered = lease.pages.len() as u64 * self.stripe.widened_page();
        if tokens > covered {
            return Err(Error::BeyondLease { tokens, covered });
        }
        let pages = usize::try_from(whole).unwrap_or(usize::MAX);
        let state = self.leases.get(lease.id)?;
        if state.keys.len() < pages {
            return Err(Error::KeysShort {
                keys: state.keys.len(),
                pages: whole,
                tokens,
            });
        }
        let mut inserted = self.index_pages(lease.id, pages, count_hit)?;
        inserted.stored_pages = self.write_through(lease.id)?;
        Ok(inserted)
    }

    fn index_pages(
        &mut self,
        id: LeaseId,
        pages: usize,
        count_hit: bool,
    ) -> Result<Inserted, Error> {
        let state = self.leases.get(id)?;
        let pages = pages.max(state.indexed);
        let first_own = state.indexed;
        let mut duplicates = Vec::new();
        let result = self.index.insert(
            &mut state.lock,
            &state.keys[..pages],
            &state.table[..pages],
            InsertOptions {
                count_hit,
                ..InsertOptions::default()
            },
            &mut duplicates,
        )?;
        duplicates.retain(|d| d.index >= first_own);
        // What was the lease's before belongs to the index now, but for the duplicates.
        let mut is_duplicate = duplicates.iter().map(|d| d.index).peekable();
        for index in first_own..pages {
            if is_duplicate.next_if_eq(&index).is_some() {
                state.duplicates.push(state.table[index]);
            } else {
                self.l1_states
                    .step(state.table[index], PageState::Resident)?;
            }
        }
        state.indexed = pages;
        self.stats.inserted_pages += (result.new_pages + result.reattached) as u64;
        self.stats.duplicate_pages += duplicates.len() as u64;
        Ok(Inserted {
            new_pages: result.new_pages + result.reattached,
            duplicates,
            stored_pages: 0,
        })
    }

    /// Stores the pages of the lease's path that are due: on L1, not on L2, inserted often enough,
    /// and with a parent that is on L2 or being stored. Returns how many.
    fn write_through(&mut self, id: LeaseId) -> Result<usize, Error> {
        if self.config.l2_pages == 0 {
            return Ok(0);
        }
        let mut due = std::mem::take(&mut self.scratch_l1);
        due.clear();
        let lock = &self.leases.get(id)?.lock;
        self.index
            .pages_without_l2(lock, self.store_after, &mut due)?;
        due.retain(|page| !self.is_storing(*page));
        let stored = self.store(&due);
        self.scratch_l1 = due;
        stored
    }

    /// Whether a store that is in flight reads this L1 page.
    fn is_storing(&self, page: L1Page) -> bool {
        self.storing.contains(page)
    }

    fn store(&mut self, due: &[L1Page]) -> Result<usize, Error> {
        if due.is_empty() {
            return Ok(0);
        }
        let room = self.make_room_l2(due.len())?.min(due.len());
        self.stats.skipped_store_pages += (due.len() - room) as u64;
        if room == 0 {
            return Ok(0);
        }
        let mut targets = std::mem::take(&mut self.scratch_l2);
        targets.clear();
        self.l2.alloc(room, &mut targets)?;
        let mut pages = Vec::with_capacity(room);
        for (&l1, &l2) in due.iter().zip(&targets) {
            self.l2_states.step(l2, PageState::Storing)?;
            self.index.pin_l1(l1);
            self.storing.insert(l1);
            pages.push(PagePair { l1, l2 });
        }
        self.scratch_l2 = targets;
        let fence = self.fence_of_use();
        let after = (fence != FenceId::default()).then_some(fence);
        self.issue(OrderKind::Store, pages, after, None);
        self.stats.store_pages += room as u64;
        Ok(room)
    }
}
