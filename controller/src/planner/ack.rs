// SPDX-License-Identifier: Apache-2.0
//! Acknowledgements and releases: what gives pages back.

use striata_core::L1Page;

use super::lease_table::LeaseState;
use super::{Ack, Operation, OrderKind, Planner};
use crate::error::Error;
use crate::residency::PageState;

impl Planner {
    /// Takes the agreed end of an operation: the minimum of the good leading pages over all ranks.
    /// It releases exactly what the operation's own record took.
    ///
    /// # Errors
    /// No such operation in flight; more good pages than it has.
    pub fn acknowledge(&mut self, ack: Ack) -> Result<(), Error> {
        let op = ack.op;
        let mut operation = self
            .operations
            .remove(&op)
            .filter(|operation| operation.good_pages.is_none())
            .ok_or(Error::UnknownOperation { op })?;
        let pages = operation.order.pages.len();
        if ack.good_pages as usize > pages {
            self.operations.insert(op, operation);
            return Err(Error::AckTooLarge {
                op,
                pages,
                good: ack.good_pages,
            });
        }
        operation.good_pages = Some(ack.good_pages);
        match operation.order.kind {
            OrderKind::Store => self.end_store(&operation, ack.good_pages as usize),
            OrderKind::Load => self.end_load(operation, ack.good_pages as usize),
        }
    }

    fn end_store(&mut self, operation: &Operation, good: usize) -> Result<(), Error> {
        for (at, pair) in operation.order.pages.iter().enumerate() {
            self.index.unpin_l1(pair.l1);
            self.storing.remove(pair.l1);
            if at < good && self.index.attach_l2(pair.l1, pair.l2) {
                self.l2_states.step(pair.l2, PageState::Resident)?;
            } else {
                self.l2_states.step(pair.l2, PageState::Free)?;
                self.l2.free(&[pair.l2])?;
            }
        }
        let pages = operation.order.pages.len();
        self.stats.stored_pages += good as u64;
        self.stats.failed_store_pages += (pages - good) as u64;
        Ok(())
    }

    fn end_load(&mut self, mut operation: Operation, good: usize) -> Result<(), Error> {
        for pair in &operation.order.pages {
            self.index.unpin_l2(pair.l2);
            self.index.unpin_l1(pair.l1);
        }
        let (arrived, lost) = operation.order.pages.split_at(good);
        for pair in arrived {
            self.l1_states.step(pair.l1, PageState::Resident)?;
        }
        if let Some(lock) = operation.lock.take() {
            if !lost.is_empty() {
                let mut detached = Vec::new();
                self.index
                    .detach_l1(&lock, lock.pages() - lost.len(), &mut detached)?;
                for &page in &detached {
                    self.l1_states.step(page, PageState::Failed)?;
                }
                operation.failed = detached;
            }
            self.index.release(lock)?;
        }
        self.stats.loaded_pages += good as u64;
        self.stats.failed_load_pages += lost.len() as u64;
        if operation.failed.is_empty() {
            return Ok(());
        }
        if operation.holders == 0 {
            return self.free_failed(&operation.failed);
        }
        self.operations.insert(operation.order.op, operation);
        Ok(())
    }

    fn free_failed(&mut self, pages: &[L1Page]) -> Result<(), Error> {
        for &page in pages {
            self.l1_states.step(page, PageState::Free)?;
        }
        Ok(self.l1.free(pages)?)
    }

    /// Takes back the leases that were dropped since the last call, on whatever thread.
    ///
    /// # Errors
    /// Only broken bookkeeping.
    pub fn apply_releases(&mut self) -> Result<(), Error> {
        let mut released = std::mem::take(&mut self.released);
        released.clear();
        self.releases.take(&mut released);
        let mut done = Ok(());
        for slot in &released {
            if let Some(state) = self.leases.remove(*slot) {
                done = done.and(self.release(state));
            }
        }
        self.released = released;
        done
    }

    fn release(&mut self, state: LeaseState) -> Result<(), Error> {
        let fence = self.fence_of_use();
        for page in &state.table {
            self.l1_used_until[page.index()] = fence;
        }
        self.index.release(state.lock)?;
        for page in state.table[state.indexed..].iter().chain(&state.duplicates) {
            self.l1_states.step(*page, PageState::Free)?;
            self.l1.free(&[*page])?;
        }
        for op in &state.loads {
            let Some(operation) = self.operations.get_mut(op) else {
                continue;
            };
            operation.holders -= 1;
            if operation.holders == 0 && operation.good_pages.is_some() {
                let failed = std::mem::take(&mut operation.failed);
                self.operations.remove(op);
                self.free_failed(&failed)?;
            }
        }
        Ok(())
    }
}
