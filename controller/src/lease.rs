// SPDX-License-Identifier: Apache-2.0
//! What an engine holds for a request. Dropping it, on any thread, gives everything back without
//! blocking or allocating: the lease's number is pushed on a stack of preallocated slots, and the
//! owner of the planner takes the whole stack at its next call.

use striata_core::sync::Arc;
use striata_core::{L1Page, OpId};

use crate::release_stack::ReleaseStack;

/// Which lease of a planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A request's hold on its pages. Drop releases.
#[derive(Debug)]
pub struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) releases: Arc<ReleaseStack>,
    pub(crate) pages: Vec<L1Page>,
    pub(crate) tokens: u64,
    pub(crate) hit_tokens_l1: u64,
    pub(crate) hit_tokens_l2: u64,
    pub(crate) loads: Vec<OpId>,
}

impl Lease {
    /// Its id in the planner.
    #[must_use]
    pub const fn id(&self) -> LeaseId {
        self.id
    }

    /// The request's page table: one widened page for each W tokens, the last perhaps in part.
    #[must_use]
    pub fn pages(&self) -> &[L1Page] {
        &self.pages
    }

    /// Tokens that the page table was made for.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Leading tokens that were on L1: whole widened pages.
    #[must_use]
    pub const fn hit_tokens_l1(&self) -> u64 {
        self.hit_tokens_l1
    }

    /// Tokens after those that are loaded back from L2: whole widened pages.
    #[must_use]
    pub const fn hit_tokens_l2(&self) -> u64 {
        self.hit_tokens_l2
    }

    /// Tokens that need no computation once the loads have arrived.
    #[must_use]
    pub const fn hit_tokens(&self) -> u64 {
        self.hit_tokens_l1 + self.hit_tokens_l2
    }

    /// Operations whose gates this request has to pass: its own load, and loads of others that
    /// bring pages it shares.
    #[must_use]
    pub fn loads(&self) -> &[OpId] {
        &self.loads
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.releases.push(self.id.slot);
    }
}
