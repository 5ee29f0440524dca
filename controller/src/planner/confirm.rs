// SPDX-License-Identifier: Apache-2.0
//! Whether the loads that a lease rests on have arrived.

use striata_core::OpId;
use striata_core::sync::Arc;

use super::{Lease, Planner};
use crate::error::Error;
use crate::lease::LeaseId;

/// The answer to [`Planner::confirm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirm {
    /// Every load arrived whole.
    Done,
    /// A load is still in flight.
    Pending {
        /// The oldest of them.
        op: OpId,
    },
    /// A load failed; what was computed after `valid_tokens` rests on rows that never came.
    LoadFailed {
        /// Leading tokens that stand.
        valid_tokens: u64,
    },
}

/// How the loads of a lease stand.
pub(super) enum Loads {
    Arrived,
    Pending(OpId),
    /// The first page of the table that did not come, and the load that should have brought it.
    Failed {
        op: OpId,
        page: usize,
    },
}

impl Planner {
    /// Whether the loads of `lease` have arrived. Acknowledgements enter by
    /// [`Planner::acknowledge`].
    ///
    /// # Errors
    /// An unknown lease.
    pub fn confirm(&mut self, lease: &Lease) -> Result<Confirm, Error> {
        let w = self.stripe.widened_page();
        Ok(match self.loads_of(lease)? {
            Loads::Arrived => Confirm::Done,
            Loads::Pending(op) => Confirm::Pending { op },
            Loads::Failed { page, .. } => Confirm::LoadFailed {
                valid_tokens: page as u64 * w,
            },
        })
    }

    pub(super) fn loads_of(&mut self, lease: &Lease) -> Result<Loads, Error> {
        let id = self.own(lease)?;
        let state = self.leases.get(id)?;
        let mut first: Option<(usize, OpId)> = None;
        for &op in &state.loads {
            let Some(operation) = self.operations.get(&op) else {
                continue;
            };
            if operation.good_pages.is_none() {
                return Ok(Loads::Pending(op));
            }
            let failed = &operation.failed;
            let lost = state.table.iter().position(|page| failed.contains(page));
            first = first.into_iter().chain(lost.map(|at| (at, op))).min();
        }
        Ok(first.map_or(Loads::Arrived, |(page, op)| Loads::Failed { op, page }))
    }

    /// The slot of a lease that this planner has granted.
    ///
    /// # Errors
    /// A lease of another planner, whose slot may be anybody's here.
    pub(crate) fn own(&self, lease: &Lease) -> Result<LeaseId, Error> {
        let LeaseId { slot, generation } = lease.id;
        if Arc::ptr_eq(&lease.releases, &self.releases) {
            Ok(lease.id)
        } else {
            Err(Error::UnknownLease { slot, generation })
        }
    }
}
