// SPDX-License-Identifier: Apache-2.0
//! The pools of a rank: the main one and those beside it, which hold other rows of the same tokens
//! (draft KV, index keys) under the same page ids.
//!
//! Every pool of a rank has a transfer engine of its own: two streams, a queue, a thread. So the
//! first layer of a side pool stands behind no layer of the main pool in a stream, a gate of one
//! pool promotes nothing of another, and a copy that fails takes no other pool's copies with it. One
//! queue for all pools could also order them among each other. What that would gain is bounded as it
//! is: the pools of a rank divide the bytes of a window and of a group by the bytes of their pages,
//! so that together they have no more in flight, and no urgent copy waits behind more, than with one
//! pool; and an operation is acknowledged only when all its pools have ended, whoever goes first.
//! The price is a thread that sleeps while there is nothing to copy.

use core::fmt;
use std::sync::Arc;

use striata_core::{PoolGeometry, PoolKind, Rank};
use striata_gpu::Device;
use striata_gpu::planes::L1Planes;
use striata_gpu::transfer::{TransferConfig, TransferEngine, TransferStats};
use striata_host::HostPool;

use crate::error::Error;

/// Which pool of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(u32);

impl PoolId {
    /// The pool that the planner's configuration describes.
    pub const MAIN: Self = Self(0);

    /// The side pool of index `index`, from 0, in the order of the setup.
    #[must_use]
    pub const fn side(index: u32) -> Self {
        Self(index.saturating_add(1))
    }

    /// Its place among all pools, the main one first.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// All pools, the main one first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self)
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(1) {
            None => f.write_str("the main pool"),
            Some(side) => write!(f, "side pool {side}"),
        }
    }
}

/// One pool on all ranks of a replica, as a [`super::ShardGroup`] is made of it.
#[derive(Debug)]
pub struct PoolShards<D: Device> {
    /// Kind, stripe, rows and pages of the pool, the same on every rank.
    pub geometry: PoolGeometry,
    /// The L1 shard of each rank.
    pub planes: Vec<Arc<L1Planes<D>>>,
    /// The L2 shard of each rank; none where the tier is off.
    pub hosts: Vec<Option<Arc<HostPool>>>,
}

impl<D: Device> PoolShards<D> {
    /// Checks that the pool can stand beside `main` on `ranks` ranks.
    pub(super) fn check(
        &self,
        pool: PoolId,
        main: PoolGeometry,
        ranks: usize,
    ) -> Result<(), Error> {
        let geometry = self.geometry;
        check_beside(pool, geometry, main)?;
        for (what, given) in [
            ("L1 pools", self.planes.len()),
            ("L2 pools", self.hosts.len()),
        ] {
            if given != ranks {
                return Err(Error::RankCount { what, given, ranks });
            }
        }
        let mut planes = self.planes.iter().map(|planes| planes.geometry());
        match planes.position(|given| given != geometry) {
            Some(rank) => Err(Error::PoolPlanes {
                rank,
                pool,
                given: self.planes[rank].geometry(),
                expected: geometry,
            }),
            None => Ok(()),
        }
    }
}

/// Checks that a pool of this geometry can stand beside `main`, or be it.
pub(crate) fn check_beside(
    pool: PoolId,
    geometry: PoolGeometry,
    main: PoolGeometry,
) -> Result<(), Error> {
    if geometry.kind() == PoolKind::PerRequest {
        return Err(Error::NotBuilt {
            what: format!("{pool} of kind PerRequest (recurrent states, a slot a request)"),
        });
    }
    if geometry.stripe() != main.stripe() {
        return Err(Error::PoolStripe {
            pool,
            given: geometry.stripe(),
            expected: main.stripe(),
        });
    }
    if geometry.pages() < main.pages() {
        return Err(Error::PoolPages {
            pool,
            tier: "L1",
            given: geometry.pages(),
            needed: main.pages(),
        });
    }
    Ok(())
}

/// One pool of one rank: its shard of both tiers, and the engine that copies between them.
#[derive(Debug)]
pub struct ShardPool<D: Device> {
    id: PoolId,
    planes: Arc<L1Planes<D>>,
    host: Option<Arc<HostPool>>,
    pub(super) engine: TransferEngine<D>,
}

impl<D: Device> ShardPool<D> {
    /// Which pool.
    #[must_use]
    pub const fn id(&self) -> PoolId {
        self.id
    }
    /// The L1 shard.
    #[must_use]
    pub const fn planes(&self) -> &Arc<L1Planes<D>> {
        &self.planes
    }
    /// The L2 shard, if the tier is on.
    #[must_use]
    pub const fn host(&self) -> Option<&Arc<HostPool>> {
        self.host.as_ref()
    }
    /// What was copied so far.
    #[must_use]
    pub fn transfer_stats(&self) -> TransferStats {
        self.engine.stats()
    }
}

/// One rank: its device and its pools.
#[derive(Debug)]
pub struct Shard<D: Device> {
    dcp_rank: Rank,
    pub(super) device: D,
    main: ShardPool<D>,
    sides: Vec<ShardPool<D>>,
}

impl<D: Device> Shard<D> {
    /// Starts the engines of index `rank` of the replica over its part of `pools`, the main one
    /// first.
    pub(super) fn start(
        rank: usize,
        dcp_rank: Rank,
        device: D,
        pools: (&PoolShards<D>, &[PoolShards<D>]),
        config: &TransferConfig,
    ) -> Result<Self, Error> {
        let (main, sides) = pools;
        let page_bytes = |pool: &PoolShards<D>| pool.geometry.page().page_bytes();
        let all = page_bytes(main).saturating_add(sides.iter().map(page_bytes).sum());
        let start = |(id, pool): (PoolId, &PoolShards<D>)| {
            let share = |bytes| share(bytes, page_bytes(pool), all);
            let config = TransferConfig {
                rank: dcp_rank,
                group_bytes: share(config.group_bytes),
                slice_bytes: share(config.slice_bytes),
                store_group_bytes: share(config.store_group_bytes),
                window_bytes: share(config.window_bytes),
                ..*config
            };
            let planes = Arc::clone(&pool.planes[rank]);
            let host = pool.hosts[rank].clone();
            let engine = TransferEngine::new(device.clone(), planes.clone(), host.clone(), config);
            Ok(ShardPool {
                id,
                planes,
                host,
                engine: engine.map_err(|source| Error::Transfer {
                    rank,
                    pool: id,
                    source: Box::new(source),
                })?,
            })
        };
        Ok(Self {
            dcp_rank,
            main: start((PoolId::MAIN, main))?,
            sides: PoolId::all()
                .skip(1)
                .zip(sides)
                .map(start)
                .collect::<Result<_, Error>>()?,
            device,
        })
    }

    /// The rank inside its DCP group.
    #[must_use]
    pub const fn dcp_rank(&self) -> Rank {
        self.dcp_rank
    }
    /// The device.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.device
    }
    /// The L1 shard of the main pool.
    #[must_use]
    pub const fn planes(&self) -> &Arc<L1Planes<D>> {
        self.main.planes()
    }
    /// The L2 shard of the main pool, if the tier is on.
    #[must_use]
    pub const fn host(&self) -> Option<&Arc<HostPool>> {
        self.main.host()
    }
    /// All pools, the main one first.
    pub fn pools(&self) -> impl Iterator<Item = &ShardPool<D>> + '_ {
        std::iter::once(&self.main).chain(&self.sides)
    }
    /// One pool; none that the rank does not have.
    #[must_use]
    pub fn pool(&self, pool: PoolId) -> Option<&ShardPool<D>> {
        self.pools().nth(pool.index())
    }
    /// What was copied so far, in all pools: a job is counted in each.
    #[must_use]
    pub fn transfer_stats(&self) -> TransferStats {
        let sides = self.sides.iter().map(ShardPool::transfer_stats);
        sides.fold(self.main.transfer_stats(), |sum, side| sum + side)
    }
}

/// The part of `bytes` that falls to `part` of `all`.
fn share(bytes: u64, part: u64, all: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_alone_has_the_whole_window_and_several_divide_it_by_their_pages() {
        assert_eq!(share(55_000_000, 4_497_408, 4_497_408), 55_000_000);
        assert_eq!(share(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!([share(100, 61, 69), share(100, 8, 69)], [88, 11]);
        assert_eq!(share(7, 0, 0), 0);
    }
}
