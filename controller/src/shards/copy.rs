// SPDX-License-Identifier: Apache-2.0
//! The public copy calls: two slot lists of the widened space, as HiCache has it, a list of pages,
//! or the plan of one pool.

use striata_core::plan::{CopyDirection, CopyPlan};
use striata_core::{OpId, PagePair, Slot};
use striata_gpu::{Device, Direction};

use super::ShardGroup;
use super::pool::PoolId;
use crate::error::Error;

/// What a copy call moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Whole widened pages.
    pub pages: usize,
    /// Bytes on each rank, in all pools that were copied.
    pub bytes_per_rank: u64,
}

impl<D: Device> ShardGroup<D> {
    /// Copies between the slots of both tiers, pairwise, in every pool, and returns when the bytes
    /// are there.
    ///
    /// Both lists hold whole widened pages of the same length. In a striped pool each rank keeps
    /// the indices that it owns and copies rows floor(i / c), in a replicated one every rank copies
    /// every row; without a collective. The pages must be the caller's: nothing checks them against
    /// the prefix index.
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
        let pools: Vec<_> = self.pools().map(|(pool, _)| pool).collect();
        self.copy_in(&pools, direction, pages)
    }

    /// Carries out a plan in the one pool that it was made for.
    ///
    /// # Errors
    /// No such pool; a plan for another kind or stripe; pages outside the pool, the sink, or a
    /// destination named twice. Nothing has moved then.
    pub fn copy_plan(&self, pool: PoolId, plan: &CopyPlan) -> Result<Copied, Error> {
        let geometry = self.pool(pool)?;
        plan.check_for(geometry.kind(), geometry.stripe())?;
        self.copy_in(&[pool], plan.direction(), plan.pages())
    }

    fn copy_in(
        &self,
        pools: &[PoolId],
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
        let mut page_bytes = 0;
        for &pool in pools {
            page_bytes += self.pool(pool)?.page().page_bytes();
        }
        for (rank, shard) in self.shards.iter().enumerate() {
            for part in shard.pools().filter(|part| pools.contains(&part.id())) {
                let copied = part.engine.copy_pages(direction, OpId::default(), pages);
                copied.map_err(|source| Error::Transfer {
                    rank,
                    pool: part.id(),
                    source: Box::new(source),
                })?;
            }
        }
        Ok(Copied {
            pages: pages.len(),
            bytes_per_rank: pages.len() as u64 * page_bytes,
        })
    }
}
