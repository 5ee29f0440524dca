// SPDX-License-Identifier: Apache-2.0
//! Computed pages become matchable, and write-through begins.

use super::confirm::Loads;
use super::events::EventTier;
use super::{Planner, Stored};
use crate::error::Error;
use crate::lease::{Lease, LeaseId};
use crate::residency::PageState;
use striata_core::L1Page;
use striata_core::prefix::{Duplicate, InsertOptions};

/// What an insert did. It frees nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Pages that the index took from the lease.
    pub new_pages: usize,
    /// Pages whose key another request had brought meanwhile. They stay with the lease until its
    /// release; the engine may rewrite its table to the kept ones.
    pub duplicates: Vec<Duplicate>,
    /// Pages that stay with the lease for now, since the path before them runs over pages that a
    /// load in flight of another request brings. A later insert gives them.
    pub deferred: usize,
    /// What of the path goes to L2 now.
    pub stored: Stored,
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
        match self.loads_of(lease)? {
            Loads::Arrived => {}
            Loads::Pending(op) | Loads::Failed { op, .. } => return Err(Error::Unconfirmed { op }),
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
        inserted.stored = self.write_through(lease.id)?;
        Ok(inserted)
    }

    fn index_pages(
        &mut self,
        id: LeaseId,
        pages: usize,
        count_hit: bool,
    ) -> Result<Inserted, Error> {
        let wanted = pages;
        let pages = self.insertable(id, wanted)?;
        let state = self.leases.get(id)?;
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
        if !result.retired {
            self.inserted_event(id, first_own, &duplicates)?;
        }
        self.stats.inserted_pages += (result.new_pages + result.reattached) as u64;
        self.stats.duplicate_pages += duplicates.len() as u64;
        Ok(Inserted {
            new_pages: result.new_pages + result.reattached,
            duplicates,
            deferred: wanted.saturating_sub(pages),
            stored: Stored::default(),
        })
    }

    /// How many pages of the lease may go to the index: all of the `wanted`, or those before the
    /// first for which the index has the target of a load in flight. If that load fails, nothing
    /// must stand on its pages.
    fn insertable(&mut self, id: LeaseId, wanted: usize) -> Result<usize, Error> {
        let state = self.leases.get(id)?;
        let (indexed, wanted) = (state.indexed, wanted.max(state.indexed));
        if self.l1_states.count(PageState::Loading) == 0 {
            return Ok(wanted);
        }
        let mut beyond = std::mem::take(&mut self.scratch_l1);
        beyond.clear();
        let read = (self.index).l1_pages_beyond(&state.lock, &state.keys[..wanted], &mut beyond);
        let loading = |page: &L1Page| self.l1_states.state(*page) == PageState::Loading;
        let open = beyond.iter().position(loading);
        self.scratch_l1 = beyond;
        read?;
        Ok(open.map_or(wanted, |at| indexed + at))
    }

    /// Pages that came to L1 with an insert, in runs between duplicates.
    fn inserted_event(
        &mut self,
        id: LeaseId,
        first: usize,
        duplicates: &[Duplicate],
    ) -> Result<(), Error> {
        if !self.config.events {
            return Ok(());
        }
        let state = self.leases.get(id)?;
        let keys = state.keys[..state.indexed].to_vec();
        let ends = duplicates
            .iter()
            .map(|d| d.index)
            .chain(std::iter::once(keys.len()));
        let mut start = first;
        for end in ends {
            let parent = start.checked_sub(1).map(|at| keys[at]);
            self.stored_event(EventTier::L1, parent, keys[start..end].iter().copied());
            start = end + 1;
        }
        Ok(())
    }
}
