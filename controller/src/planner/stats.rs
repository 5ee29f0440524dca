// SPDX-License-Identifier: Apache-2.0
//! What the planner has done, and how the tiers stand.

use serde::Serialize;

/// Counters since the start, in widened pages and tokens, and levels of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlannerStats {
    /// Leases granted.
    pub granted: u64,
    /// Requests that did not fit.
    pub out_of_space: u64,
    /// Tokens found on L1.
    pub hit_tokens_l1: u64,
    /// Tokens found on L2 only and loaded back.
    pub hit_tokens_l2: u64,
    /// Pages on L2 that were computed again: below the load-back threshold or above the quota.
    pub declined_load_pages: u64,
    /// Pages whose load was planned.
    pub load_pages: u64,
    /// Pages that loads brought.
    pub loaded_pages: u64,
    /// Pages that loads did not bring.
    pub failed_load_pages: u64,
    /// Pages whose store was planned.
    pub store_pages: u64,
    /// Pages that stores brought.
    pub stored_pages: u64,
    /// Pages that stores brought although their namespace had been reset meanwhile: no copies.
    pub forgotten_store_pages: u64,
    /// Pages that stores did not bring.
    pub failed_store_pages: u64,
    /// Pages that were due for a store and found no room on L2.
    pub skipped_store_pages: u64,
    /// Pages whose store was put off because too many were in flight, or, ahead of need, for room on
    /// L2; each once, however often it was asked for meanwhile.
    pub deferred_store_pages: u64,
    /// Loads that every lease let go before they ended.
    pub cancelled_loads: u64,
    /// Pages given to the index.
    pub inserted_pages: u64,
    /// Pages computed although another request had brought them meanwhile.
    pub duplicate_pages: u64,
    /// Pages that left L1 and stay on L2.
    pub evicted_pages_kept_on_l2: u64,
    /// Pages that left L1 for no other tier.
    pub evicted_pages_dropped: u64,
    /// Pages that left L2 by eviction.
    pub evicted_pages_l2: u64,
    /// Pages of L1 that can be used.
    pub pages_l1: u64,
    /// Pages of L2, which grow with it.
    pub pages_l2: u64,
    /// Pages in the L1 allocator.
    pub free_pages_l1: u64,
    /// Pages in the L2 allocator.
    pub free_pages_l2: u64,
    /// Readable pages on L1.
    pub resident_pages_l1: u64,
    /// Readable pages on L2.
    pub resident_pages_l2: u64,
    /// Leases held.
    pub leases: usize,
    /// Orders that are not acknowledged.
    pub operations_in_flight: usize,
}
