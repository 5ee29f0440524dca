// SPDX-License-Identifier: Apache-2.0
//! Why a copy plan is refused.

use crate::geometry::PoolKind;
use crate::stripe::Stripe;

/// Why a copy plan is refused; nothing of the copy was planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A slot without a partner.
    #[error("the two slot lists differ in length: {device} device slots, {host} host slots")]
    Length {
        /// Slots of the device list.
        device: usize,
        /// Slots of the host list.
        host: usize,
    },
    /// A list that cannot be whole pages.
    #[error("{slots} slots are not whole widened pages of {page_slots} slots")]
    NotWholePages {
        /// Slots of each list.
        slots: usize,
        /// Slots of a page.
        page_slots: u64,
    },
    /// A pair that no rank could copy alone.
    #[error(
        "pair {index}: owners differ: device slot {device} belongs to rank {device_owner}, host \
         slot {host} to rank {host_owner} (mod {dcp})"
    )]
    Owner {
        /// Index in the lists.
        index: usize,
        /// The device slot.
        device: u64,
        /// The host slot.
        host: u64,
        /// Owner of the device slot.
        device_owner: u32,
        /// Owner of the host slot.
        host_owner: u32,
        /// c.
        dcp: u32,
    },
    /// A slot outside its tier.
    #[error("entry {index}: {tier} slot {slot} is out of range: the tier has {capacity} slots")]
    SlotRange {
        /// Index in the list.
        index: usize,
        /// The tier.
        tier: &'static str,
        /// The slot.
        slot: u64,
        /// Slots of the tier.
        capacity: u64,
    },
    /// Slots that are not one page in order.
    #[error(
        "entry {index}: {tier} slot {slot} breaks a whole widened page: its slots come in order from \
         a multiple of {page_slots}, so slot {expected} was due"
    )]
    PageOrder {
        /// Index in the list.
        index: usize,
        /// The tier.
        tier: &'static str,
        /// The slot.
        slot: u64,
        /// The slot that was due.
        expected: u64,
        /// Slots of a page.
        page_slots: u64,
    },
    /// A page outside its tier.
    #[error("entry {index}: {tier} page {page} is out of range: the tier has {pages} pages")]
    PageRange {
        /// Index in the list.
        index: usize,
        /// The tier.
        tier: &'static str,
        /// The page.
        page: u64,
        /// Pages of the tier.
        pages: u64,
    },
    /// A page that would be written twice.
    #[error("destination page {page} of {tier} is named twice, at entries {first} and {second}")]
    DestinationTwice {
        /// The destination's tier.
        tier: &'static str,
        /// The page.
        page: u32,
        /// Page entry that names it first.
        first: usize,
        /// Page entry that names it again.
        second: usize,
    },
    /// A plan for another kind of pool.
    #[error("the plan was made for a {planned:?} pool, this pool is {actual:?}")]
    Kind {
        /// Of the plan.
        planned: PoolKind,
        /// Of the pool.
        actual: PoolKind,
    },
    /// A plan for another stripe.
    #[error(
        "the plan was made for c {} P {} I {}, this pool has c {} P {} I {}",
        planned.dcp(), planned.page_rows(), planned.interleave(),
        actual.dcp(), actual.page_rows(), actual.interleave()
    )]
    Stripe {
        /// Of the plan.
        planned: Stripe,
        /// Of the pool.
        actual: Stripe,
    },
}
