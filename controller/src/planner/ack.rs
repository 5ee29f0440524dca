// SPDX-License-Identifier: Apache-2.0
//! Acknowledgements and releases: what gives pages back.

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
        // A load that failed, or that rests on one in flight, stays in the table and has ended.
        if self.operations.get(&op).is_none_or(Operation::has_ended) {
            return Err(Error::UnknownOperation { op });
        }
        let mut operation = self
            .operations
            .remove(&op)
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
        tracing::debug!(%op, good_pages = ack.good_pages, pages, "operation ended");
        if operation.order.kind == OrderKind::Store {
            self.end_store(&operation, ack.good_pages as usize)?;
        } else if self.stands_on_a_load(&operation)? {
            operation.arrived = Some(ack.good_pages);
            self.operations.insert(op, operation);
        } else {
            self.end_load(operation, ack.good_pages)?;
            self.end_loads_above()?;
        }
        self.sweep()
    }

    /// Ends the loads that have arrived and that no load in flight carries any more. Those that
    /// carry others are older.
    fn end_loads_above(&mut self) -> Result<(), Error> {
        let arrived = self.operations.iter().filter_map(|(op, operation)| {
            let good_pages = operation.arrived?;
            Some(Ack {
                op: *op,
                good_pages,
            })
        });
        for Ack { op, good_pages } in arrived.collect::<Vec<_>>() {
            if let Some(operation) = self.operations.remove(&op) {
                if self.stands_on_a_load(&operation)? {
                    self.operations.insert(op, operation);
                } else {
                    self.end_load(operation, good_pages)?;
                }
            }
        }
        Ok(())
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
            self.leave_load(*op)?;
        }
        self.sweep()
    }
}
