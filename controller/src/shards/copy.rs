// SPDX-License-Identifier: Apache-2.0
//! The public copy call of HiCache's shape: two slot lists of the widened space.

use striata_core::plan::{CopyDirection, CopyPlan};
use striata_core::{OpId, PagePair, Slot};
use striata_gpu::{Device, Direction};

use super::ShardGroup;
use crate::error::Error;

/// What a copy call moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Whole widened pages.
    pub pages: usize,
    /// Bytes on each rank.
    pub bytes_per_rank: u64,
}

impl<D: Device> ShardGroup<D> {
    /// Copies between the slots of both tiers, pairwise, and returns when the bytes are there.
    ///
    /// Both lists hold whole widened pages of the same length; each rank keeps the indices that it
    /// owns and copies rows floor(i / c), without a collective. The pages must be the caller's:
    /// nothing checks them against the prefix index.
    ///
    /// # Errors
    /// Lists that differ in length, are not whole widened pages, pair different owners, leave a
    /// pool, name the sink, or name a destination twice. Nothing has moved then.
    pub fn copy_slots(
        &self,
        direction: CopyDirection,
        device_slots: &[Slot],
        host_slots: &[Slot],
    ) -> Result<Copied, Error> {
        let w = self.stripe().widened_page();
        let plan = CopyPlan::from_slots(
            self.pool.kind(),
            self.stripe(),
            direction,
            device_slots,
            host_slots,
            u64::from(self.pool.pages()) * w,
            u64::from(self.l2_pages()) * w,
        )?;
        self.copy_pages(direction, plan.pages())
    }

    /// As [`ShardGroup::copy_slots`], by page lists.
    ///
    /// # Errors
    /// Likewise.
    pub fn copy_pages(
        &self,
        direction: CopyDirection,
        pages: &[PagePair],
    ) -> Result<Copied, Error> {
        CopyPlan::from_pages(
            self.pool.kind(),
            self.stripe(),
            direction,
            pages,
            self.pool.pages(),
            self.l2_pages(),
        )?;
        if pages.iter().any(|pair| !self.pool.is_usable_page(pair.l1)) {
            return Err(Error::Sink);
        }
        let direction = match direction {
            CopyDirection::HostToDevice => Direction::HostToDevice,
            CopyDirection::DeviceToHost => Direction::DeviceToHost,
        };
        for (rank, shard) in self.shards.iter().enumerate() {
            shard
                .engine
                .copy_pages(direction, OpId::default(), pages)
                .map_err(|source| Error::Transfer { rank, source })?;
        }
        let bytes_per_rank = pages.len() as u64 * self.pool.page().page_bytes();
        Ok(Copied {
            pages: pages.len(),
            bytes_per_rank,
        })
    }
}
