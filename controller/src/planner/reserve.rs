// SPDX-License-Identifier: Apache-2.0
//! Match, plan the load-back, allocate: a request gets its page table or nothing.

use striata_core::OpId;
use striata_core::prefix::{Namespace, PageKey, PathLock};
use striata_core::sync::Arc;

use super::lease_table::LeaseState;
use super::load::Hits;
use super::{Lease, Planner};
use crate::error::Error;
use crate::lease::LeaseId;
use crate::residency::PageState;

/// The answer to a reservation. Only `Granted` changes anything beyond recency and eviction.
#[derive(Debug)]
pub enum Reserve {
    /// The request has its page table.
    Granted(Lease),
    /// Pages are missing that a copy in flight still holds; ask again once it has ended. Stores
    /// that are waited for go before loads from now on.
    NotNow {
        /// The last store that makes room, if one does, else the oldest operation in flight.
        after: OpId,
    },
    /// The request does not fit beside what is held.
    OutOfSpace {
        /// Pages that the request needs on L1 beside its hits; its whole table, hits or not, if L1
        /// could never have that.
        needed: u64,
        /// Pages that are free after eviction.
        available: u64,
        /// Pages that could still be evicted.
        evictable: u64,
    },
}

impl Reserve {
    /// The lease, if one was granted.
    #[must_use]
    pub fn granted(self) -> Option<Lease> {
        match self {
            Self::Granted(lease) => Some(lease),
            Self::NotNow { .. } | Self::OutOfSpace { .. } => None,
        }
    }
}

impl Planner {
    /// Reserves pages for a request of `tokens` tokens whose whole pages are named by `keys`:
    /// matches the prefix, plans the load-back of what only L2 has, and allocates the rest,
    /// evicting where L1 is short.
    ///
    /// All-or-nothing: without room for the whole table nothing is reserved.
    ///
    /// # Errors
    /// No tokens; too few keys; no lease slot.
    pub fn reserve(
        &mut self,
        namespace: Namespace,
        keys: &[PageKey],
        tokens: u64,
    ) -> Result<Reserve, Error> {
        self.apply_releases()?;
        if tokens == 0 {
            return Err(Error::EmptyRequest);
        }
        self.check_keys(keys, tokens)?;
        self.leases.check_room()?;
        let needed = self.stripe.pages_for(tokens);
        if needed > u64::from(self.config.pool.usable_pages()) {
            return Ok(self.out_of_space(needed));
        }
        let table_len = usize::try_from(needed).unwrap_or(usize::MAX);

        let hits = self.match_hits(namespace, keys, tokens)?;
        let path = &keys[..hits.pages()];
        let lock = self.index.acquire_prefix(namespace.root(), path);
        self.read_path(&lock, hits)?;
        let fresh = table_len - hits.l1;
        if self.make_room_l1(fresh)? < fresh {
            return self.refuse(lock, fresh as u64);
        }
        self.stats.declined_load_pages += hits.declined as u64;
        let own = (hits.loaded > 0).then(|| self.index.acquire_prefix(namespace.root(), path));
        let id = self.grant(lock, own, keys, hits, fresh)?;
        Ok(Reserve::Granted(self.hand_out(id, tokens, hits)?))
    }

    /// Reads the hit pages of a locked path: those on L1, and the sources of the load, which are
    /// pinned from here on.
    pub(super) fn read_path(&mut self, lock: &PathLock, hits: Hits) -> Result<(), Error> {
        self.index
            .pages_of(lock, &mut self.path_l1, &mut self.path_l2)?;
        self.scratch_l1.clear();
        self.scratch_l1
            .extend(self.path_l1[..hits.l1].iter().flatten());
        self.scratch_l2.clear();
        self.scratch_l2
            .extend(self.path_l2[hits.l1..].iter().flatten());
        for page in &self.scratch_l2 {
            self.index.pin_l2(*page);
        }
        Ok(())
    }

    pub(super) fn check_keys(&self, keys: &[PageKey], tokens: u64) -> Result<(), Error> {
        let pages = self.stripe.whole_pages(tokens);
        if (keys.len() as u64) < pages {
            return Err(Error::KeysShort {
                keys: keys.len(),
                pages,
                tokens,
            });
        }
        Ok(())
    }

    fn refuse(&mut self, lock: PathLock, needed: u64) -> Result<Reserve, Error> {
        for page in &self.scratch_l2 {
            self.index.unpin_l2(*page);
        }
        self.index.release(lock)?;
        Ok(self.short_of(needed))
    }

    /// The answer to a request for which room could not be made.
    pub(super) fn short_of(&mut self, needed: u64) -> Reserve {
        match self.wait_for() {
            Some(after) => {
                self.raise(after);
                Reserve::NotNow { after }
            }
            None => self.out_of_space(needed),
        }
    }

    fn out_of_space(&mut self, needed: u64) -> Reserve {
        self.stats.out_of_space += 1;
        Reserve::OutOfSpace {
            needed,
            available: self.l1.free_pages() as u64,
            evictable: self.index.evictable_l1() as u64,
        }
    }

    /// Room is there: allocates, plans the load, and records the lease.
    pub(super) fn grant(
        &mut self,
        lock: PathLock,
        own_lock: Option<PathLock>,
        keys: &[PageKey],
        hits: Hits,
        fresh: usize,
    ) -> Result<LeaseId, Error> {
        let mut table = std::mem::take(&mut self.scratch_l1);
        let mut loads = self.shared_loads(&table);
        self.l1.alloc(fresh, &mut table)?;
        let (targets, own) = table[hits.l1..].split_at(hits.loaded);
        if !targets.is_empty() {
            loads.push(self.start_load(&lock, own_lock, hits.l1, targets)?);
        }
        for &page in own {
            self.l1_states.step(page, PageState::Reserved)?;
        }
        for op in &loads {
            if let Some(operation) = self.operations.get_mut(op) {
                operation.holders += 1;
            }
        }
        let indexed = hits.pages();
        let keys = keys.to_vec();
        self.leases.grant(LeaseState {
            lock,
            keys,
            table,
            indexed,
            duplicates: Vec::new(),
            loads,
        })
    }

    /// Loads of other requests that bring pages which this request shares.
    fn shared_loads(&self, table: &[striata_core::L1Page]) -> Vec<OpId> {
        let mut loads: Vec<OpId> = table
            .iter()
            .filter(|page| self.l1_states.state(**page) == PageState::Loading)
            .map(|page| self.l1_load[page.index()])
            .collect();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    pub(super) fn hand_out(
        &mut self,
        id: LeaseId,
        tokens: u64,
        hits: Hits,
    ) -> Result<Lease, Error> {
        let w = self.stripe.widened_page();
        let state = self.leases.get(id)?;
        let lease = Lease {
            id,
            releases: Arc::clone(&self.releases),
            pages: state.table.clone(),
            tokens,
            hit_tokens_l1: hits.l1 as u64 * w,
            hit_tokens_l2: hits.loaded as u64 * w,
            loads: state.loads.clone(),
        };
        self.stats.granted += 1;
        self.stats.hit_tokens_l1 += lease.hit_tokens_l1;
        self.stats.hit_tokens_l2 += lease.hit_tokens_l2;
        Ok(lease)
    }

    /// Grows a lease's page table to `tokens` tokens: the next chunk of a prefill, or decoded
    /// tokens. Outcome as of [`Planner::reserve`] without a new lease: `Ok(None)` is granted.
    ///
    /// # Errors
    /// An unknown lease.
    pub fn extend(&mut self, lease: &mut Lease, tokens: u64) -> Result<Option<Reserve>, Error> {
        self.apply_releases()?;
        let id = self.own(lease)?;
        let have = self.leases.get(id)?.table.len();
        let needed = self.stripe.pages_for(tokens);
        let missing = needed.saturating_sub(have as u64);
        if needed > u64::from(self.config.pool.usable_pages()) {
            // Nothing is evicted for what can never fit.
            return Ok(Some(self.out_of_space(missing)));
        }
        let fresh = usize::try_from(missing).unwrap_or(usize::MAX);
        if self.make_room_l1(fresh)? < fresh {
            return Ok(Some(self.short_of(missing)));
        }
        let mut pages = std::mem::take(&mut self.scratch_l1);
        pages.clear();
        self.l1.alloc(fresh, &mut pages)?;
        for &page in &pages {
            self.l1_states.step(page, PageState::Reserved)?;
        }
        self.leases.get(id)?.table.extend_from_slice(&pages);
        lease.pages.extend_from_slice(&pages);
        lease.tokens = lease.tokens.max(tokens);
        self.scratch_l1 = pages;
        Ok(None)
    }

    /// Names further whole pages of a lease's request, as its tokens become known.
    ///
    /// # Errors
    /// An unknown lease.
    pub fn append_keys(&mut self, lease: &Lease, keys: &[PageKey]) -> Result<(), Error> {
        let id = self.own(lease)?;
        self.leases.get(id)?.keys.extend_from_slice(keys);
        Ok(())
    }
}
