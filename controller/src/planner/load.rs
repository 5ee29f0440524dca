// SPDX-License-Identifier: Apache-2.0
//! Load-back: what of a match is loaded, the operation, its end and its cancellation.

use striata_core::prefix::{Namespace, PageKey, PathLock};
use striata_core::{FenceId, L1Page, OpId, PagePair};

use super::events::EventTier;
use super::{Ack, Draft, Operation, Planner, Reserve};
use crate::error::Error;
use crate::order::{Order, OrderKind};
use crate::residency::PageState;

/// How much of a match is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hits {
    pub(super) l1: usize,
    pub(super) loaded: usize,
    /// Pages on L2 after those that are computed again: threshold or quota.
    pub(super) declined: usize,
}

impl Hits {
    pub(super) const fn pages(self) -> usize {
        self.l1 + self.loaded
    }
}

impl Planner {
    /// Brings a prefix to L1 without reserving anything beside: the lease covers exactly the pages
    /// that hit, and as many of those on L2 as L1 has room for are loaded, leading pages first.
    /// None if nothing hits, or only fewer tokens on L2 than are worth a load-back. What hits on L2
    /// alone while L1 has no room for a page of it is refused as by [`Planner::reserve`].
    ///
    /// # Errors
    /// Too few keys; no lease slot.
    pub fn load(
        &mut self,
        namespace: Namespace,
        keys: &[PageKey],
        tokens: u64,
    ) -> Result<Option<Reserve>, Error> {
        self.apply_releases()?;
        self.check_keys(keys, tokens)?;
        self.leases.check_room()?;
        let mut hits = self.match_hits(namespace, keys, tokens)?;
        if hits.loaded > 0 {
            // The path is held while room is made, so that nothing of it is evicted for itself.
            let lock = self
                .index
                .acquire_prefix(namespace.root(), &keys[..hits.pages()]);
            let room = self.make_room_l1(hits.loaded);
            self.index.release(lock)?;
            let wanted = hits.loaded;
            hits.loaded = hits.loaded.min(room?);
            if hits.pages() == 0 {
                return Ok(Some(self.short_of(wanted as u64)));
            }
        }
        if hits.pages() == 0 {
            return Ok(None);
        }
        self.stats.declined_load_pages += hits.declined as u64;
        let path = &keys[..hits.pages()];
        let lock = self.index.acquire_prefix(namespace.root(), path);
        self.read_path(&lock, hits)?;
        let own = (hits.loaded > 0).then(|| self.index.acquire_prefix(namespace.root(), path));
        let id = self.grant(lock, own, path, hits, hits.loaded)?;
        let tokens = hits.pages() as u64 * self.stripe.widened_page();
        let lease = self.hand_out(id, tokens, hits)?;
        Ok(Some(Reserve::Granted(lease)))
    }

    /// Matches, and obeys threshold and quota.
    pub(super) fn match_hits(
        &mut self,
        namespace: Namespace,
        keys: &[PageKey],
        tokens: u64,
    ) -> Result<Hits, Error> {
        let limit = self.hit_limit(keys, tokens);
        let found = self.index.match_prefix(namespace.root(), &keys[..limit]);
        let (l1, on_l2) =
            self.without_cancelled(namespace, keys, found.l1_pages, found.l2_pages)?;
        let quota = self
            .config
            .load_back_quota
            .map_or(on_l2, |quota| on_l2.min(quota as usize));
        let enough = quota as u64 * self.stripe.widened_page() >= self.config.load_back_threshold;
        let loaded = if enough { quota } else { 0 };
        let declined = on_l2 - loaded;
        Ok(Hits {
            l1,
            loaded,
            declined,
        })
    }

    /// Pages whose load was told to stop are no hit, nor is anything after them.
    fn without_cancelled(
        &mut self,
        namespace: Namespace,
        keys: &[PageKey],
        l1: usize,
        l2: usize,
    ) -> Result<(usize, usize), Error> {
        if self.cancelled == 0 {
            return Ok((l1, l2));
        }
        let lock = self.index.acquire_prefix(namespace.root(), &keys[..l1]);
        let mut pages = std::mem::take(&mut self.scratch_l1);
        pages.clear();
        let read = self.index.l1_pages_of(&lock, &mut pages);
        let stopped = pages.iter().position(|page| self.is_stopping(*page));
        self.scratch_l1 = pages;
        self.index.release(lock)?;
        read?;
        Ok(stopped.map_or((l1, l2), |at| (at, 0)))
    }

    fn is_stopping(&self, page: L1Page) -> bool {
        self.l1_states.state(page) == PageState::Loading
            && self
                .operations
                .get(&self.l1_load[page.index()])
                .is_some_and(|op| op.cancelled)
    }

    /// Plans the load of the pages after the L1 part of a locked path into `targets`. The
    /// operation's own lock keeps the targets where they are until its end, the pins of its sources
    /// are taken already.
    pub(super) fn start_load(
        &mut self,
        lock: &PathLock,
        own_lock: Option<PathLock>,
        first: usize,
        targets: &[L1Page],
    ) -> Result<OpId, Error> {
        let sources = &self.scratch_l2;
        let pair = |(&l1, &l2)| PagePair { l1, l2 };
        let pages: Vec<PagePair> = targets.iter().zip(sources).map(pair).collect();
        let used = targets
            .iter()
            .map(|page| self.l1_used_until[page.index()])
            .max();
        let after = used.filter(|fence| *fence != FenceId::default());
        self.index.attach_l1(lock, first, targets)?;
        let kind = OrderKind::Load;
        let op = self.issue(Draft {
            kind,
            pages,
            after,
            lock: own_lock,
            freeing: false,
        });
        for &page in targets {
            self.l1_states.step(page, PageState::Loading)?;
            self.l1_load[page.index()] = op;
        }
        self.stats.load_pages += targets.len() as u64;
        Ok(op)
    }

    /// Whether pages before those of a load are the targets of another load in flight: they stand
    /// or fall with that one.
    pub(super) fn stands_on_a_load(&mut self, operation: &Operation) -> Result<bool, Error> {
        let Some(lock) = &operation.lock else {
            return Ok(false);
        };
        let mut pages = std::mem::take(&mut self.scratch_l1);
        pages.clear();
        let read = self.index.l1_pages_of(lock, &mut pages);
        let carries = |page: &L1Page| {
            self.l1_states.state(*page) == PageState::Loading
                && self.l1_load[page.index()] != operation.order.op
        };
        let found = pages.iter().any(carries);
        self.scratch_l1 = pages;
        read?;
        Ok(found)
    }

    pub(super) fn end_load(&mut self, mut operation: Operation, good: u32) -> Result<(), Error> {
        operation.good_pages = Some(good);
        let good = good as usize;
        for pair in &operation.order.pages {
            self.index.unpin_l2(pair.l2);
        }
        self.cancelled -= u32::from(operation.cancelled);
        let (arrived, lost) = operation.order.pages.split_at(good);
        self.stats.loaded_pages += good as u64;
        self.stats.failed_load_pages += lost.len() as u64;
        if let Some(lock) = &operation.lock {
            // A load of pages above that failed first has taken these pages off already.
            if lost.first().is_some_and(|pair| self.index.has_l1(pair.l1)) {
                let mut detached = Vec::new();
                let from = lock.pages() - lost.len();
                self.index.detach_l1(lock, from, &mut detached)?;
                // Those of loads below among them, which go on and bring nothing.
                for page in detached {
                    self.l1_states.step(page, PageState::Failed)?;
                }
            }
        }
        let stands = |pair: &&PagePair| self.index.has_l1(pair.l1);
        let standing = arrived.iter().take_while(stands).count();
        let (standing, failed) = operation.order.pages.split_at(standing);
        for pair in standing {
            self.l1_states.step(pair.l1, PageState::Resident)?;
        }
        self.loaded_event(standing);
        operation.failed = failed.iter().map(|pair| pair.l1).collect();
        if let Some(lock) = operation.lock.take() {
            self.index.release(lock)?;
        }
        if operation.failed.is_empty() {
            return Ok(());
        }
        if operation.holders == 0 {
            return self.free_failed(&operation.failed);
        }
        self.operations.insert(operation.order.op, operation);
        Ok(())
    }

    /// Pages that a load has brought are on L1 for whoever is told of it.
    fn loaded_event(&mut self, pages: &[PagePair]) {
        let Some(first) = pages.first().filter(|_| self.config.events) else {
            return;
        };
        let parent = self.index.parent_key_of_l1(first.l1);
        let keys: Vec<_> = pages
            .iter()
            .filter_map(|pair| self.index.key_of_l1(pair.l1))
            .collect();
        self.stored_event(EventTier::L1, parent, keys.into_iter());
    }

    pub(super) fn free_failed(&mut self, pages: &[L1Page]) -> Result<(), Error> {
        for &page in pages {
            self.l1_states.step(page, PageState::Free)?;
        }
        Ok(self.l1.free(pages)?)
    }

    /// A lease lets a load go; the last one cancels what has not ended.
    pub(super) fn leave_load(&mut self, op: OpId) -> Result<(), Error> {
        let Some(operation) = self.operations.get_mut(&op) else {
            return Ok(());
        };
        operation.holders -= 1;
        if operation.holders > 0 {
            return Ok(());
        }
        if operation.good_pages.is_some() {
            let failed = std::mem::take(&mut operation.failed);
            self.operations.remove(&op);
            return self.free_failed(&failed);
        }
        operation.cancelled = true;
        self.cancelled += 1;
        self.stats.cancelled_loads += 1;
        if let Some(at) = self.orders.iter().position(|order| order.op == op) {
            // Nobody has seen the order: it ends here.
            self.orders.remove(at);
            return self.acknowledge(Ack { op, good_pages: 0 });
        }
        let kind = OrderKind::Cancel;
        self.orders.push(Order {
            op,
            kind,
            pages: Vec::new(),
            after: None,
            urgent: true,
        });
        Ok(())
    }
}
