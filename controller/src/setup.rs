// SPDX-License-Identifier: Apache-2.0
//! Everything that a controller is made with, checked together.

use std::sync::Arc;

use striata_core::geometry::GeometryError;
use striata_core::{EngineSettings, HostLayout, PoolGeometry, PoolKind};
use striata_gpu::Device;
use striata_gpu::calibrate::{Calibration, CalibrationError, CalibrationOptions, calibrate};
use striata_gpu::planes::{L1Planes, PlanesError};
use striata_gpu::transfer::TransferConfig;
use striata_host::{HostPool, HostPoolConfig, HugePages};

use crate::error::Error;
use crate::planner::PlannerConfig;
use crate::shards::{PoolId, PoolShards, ShardGroup, check_beside};

/// What a [`crate::HiCache`] is made with.
#[derive(Clone, Debug)]
pub struct HiCacheSetup {
    /// Decisions: pools, policies, limits.
    pub planner: PlannerConfig,
    /// Pools beside that of the planner, which hold other rows of the same tokens (draft KV, index
    /// keys): a page id stands for a page in each of them. See [`PoolGeometry::beside`].
    pub side_pools: Vec<PoolGeometry>,
    /// Order of pages and layers on L2.
    pub host_layout: HostLayout,
    /// Which pages back L2.
    pub huge_pages: HugePages,
    /// How copies are grouped.
    pub transfer: TransferConfig,
}

impl HiCacheSetup {
    /// A setup with defaults beside the planner's configuration: no side pool, page-first L2, huge
    /// pages where the machine has them.
    #[must_use]
    pub fn new(planner: PlannerConfig) -> Self {
        Self {
            planner,
            side_pools: Vec::new(),
            host_layout: HostLayout::default(),
            huge_pages: HugePages::Auto,
            transfer: TransferConfig::default(),
        }
    }

    /// The setup of one replica of a checked configuration.
    ///
    /// # Errors
    /// A pool that the geometry refuses.
    pub fn from_settings(settings: &EngineSettings) -> Result<Self, Error> {
        let stripe = settings.stripe;
        let rows = settings
            .l1_pages()
            .saturating_mul(u64::from(stripe.page_rows()));
        let pool = PoolGeometry::owned(PoolKind::Striped, stripe, settings.page, rows)?;
        let pages = |tokens: u64| u32::try_from(stripe.whole_pages(tokens)).unwrap_or(u32::MAX);
        let max = u64::from(u32::MAX);
        let l2_pages = settings.l2_pages();
        let l2_pages = u32::try_from(l2_pages).map_err(|_| GeometryError::TooManyPages {
            pages: l2_pages,
            max,
        })?;
        let planner = PlannerConfig {
            policy: settings.eviction_policy,
            write_policy: settings.write_policy,
            load_back_threshold: settings.load_back_threshold,
            load_back_quota: settings.load_back_quota.map(pages),
            full_length_hits: settings.hit_full_length,
            l2_max_pages: settings
                .l2_max_pages()
                .map(|pages| u32::try_from(pages).unwrap_or(u32::MAX)),
            free_watermark: pages(settings.free_watermark),
            max_store_pages: settings.store_quota.map(pages),
            duplicates_first: settings.duplicates_first,
            max_leases: settings.max_leases,
            events: settings.kv_events,
            ..PlannerConfig::new(pool, l2_pages)
        };
        Ok(Self {
            host_layout: settings.host_layout,
            ..Self::new(planner)
        })
    }

    /// Has the copies take the paths that are fastest on a device like those of the ranks: measures
    /// it, or reads what is kept of it; see [`calibrate`]. Without this call the built-in table
    /// decides. Ranks and replicas may differ in it, since only speed depends on it.
    ///
    /// # Errors
    /// No room for the scratch pools; a device that fails. The built-in table stays then.
    pub fn calibrate<D: Device>(
        &mut self,
        device: &D,
        options: &CalibrationOptions,
    ) -> Result<Calibration, CalibrationError> {
        let found = calibrate(device, options)?;
        self.transfer.paths = found.paths;
        Ok(found)
    }

    /// The pools of every rank, the main one first.
    pub(crate) fn pools(&self) -> impl Iterator<Item = PoolGeometry> + '_ {
        std::iter::once(self.planner.pool).chain(self.side_pools.iter().copied())
    }

    /// Bytes of L1 and of L2 that one rank needs for all its pools.
    #[must_use]
    pub fn bytes_per_rank(&self) -> (u64, u64) {
        let l2_pages = u64::from(self.planner.l2_pages);
        self.pools().fold((0_u64, 0_u64), |(l1, l2), pool| {
            let host = l2_pages.saturating_mul(pool.page().page_bytes());
            (l1.saturating_add(pool.bytes()), l2.saturating_add(host))
        })
    }

    /// Allocates all pools of every rank, those of the devices first: host memory takes long.
    pub(crate) fn shards<D: Device>(&self, devices: Vec<D>) -> Result<ShardGroup<D>, Error> {
        for (id, geometry) in PoolId::all().zip(self.pools()) {
            check_beside(id, geometry, self.planner.pool)?;
        }
        let mut main = planes(&devices, self.planner.pool)?;
        let sides = self.side_pools.iter().map(|side| planes(&devices, *side));
        let mut sides: Vec<_> = sides.collect::<Result<_, Error>>()?;
        for pool in std::iter::once(&mut main).chain(&mut sides) {
            let host = |device| self.host_pool(device, pool.geometry);
            pool.hosts = devices.iter().map(host).collect::<Result<_, Error>>()?;
        }
        ShardGroup::with_pools(devices, &main, &sides, &self.transfer)
    }

    /// Allocates the host shard of a pool on one rank; none if L2 is off.
    ///
    /// # Errors
    /// Memory that cannot be had or page-locked.
    pub fn host_pool<D: Device>(
        &self,
        device: &D,
        geometry: PoolGeometry,
    ) -> Result<Option<Arc<HostPool>>, Error> {
        if self.planner.l2_pages == 0 {
            return Ok(None);
        }
        let mut config = HostPoolConfig::new(geometry.page(), self.planner.l2_pages);
        config.max_pages = Some(self.planner.l2_limit());
        config.layout = self.host_layout;
        config.huge_pages = self.huge_pages;
        config.pinner = device.pinner();
        let pool = HostPool::new(&config).map_err(Arc::new)?;
        Ok(Some(Arc::new(pool)))
    }
}

/// A pool on every device, without its host side yet.
fn planes<D: Device>(devices: &[D], geometry: PoolGeometry) -> Result<PoolShards<D>, Error> {
    let alloc = |device| L1Planes::alloc(device, geometry).map(Arc::new);
    let planes: Result<_, PlanesError> = devices.iter().map(alloc).collect();
    Ok(PoolShards {
        geometry,
        planes: planes?,
        hosts: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use striata_core::EngineConfig;

    #[test]
    fn a_configuration_file_becomes_a_setup() {
        let text = "tp = 8\ndcp_size = 8\nl1 = \"100p\"\nl2 = \"51200t\"\nload_back_quota = 1500\n\
                    eviction_policy = \"slru\"\nhicache_write_policy = \"write_through_selective\"";
        let settings = EngineConfig::from_toml(text).unwrap().validate().unwrap();
        let setup = HiCacheSetup::from_settings(&settings).unwrap();
        let planner = &setup.planner;
        assert_eq!((planner.pool.usable_pages(), planner.l2_pages), (100, 100));
        assert_eq!(planner.load_back_quota, Some(2));
        // 101 pages of 61 layers x 64 rows x 1152 bytes, the sink among them.
        assert_eq!(setup.bytes_per_rank(), (101 * 4_497_408, 100 * 4_497_408));
        // A draft of one layer, whole on each of the 8 ranks: 512 rows a page.
        let draft = planner.pool.beside(PoolKind::Replicated, 1152, 1).unwrap();
        let setup = HiCacheSetup {
            side_pools: vec![draft],
            ..setup
        };
        let page = 4_497_408 + 512 * 1152;
        assert_eq!(setup.bytes_per_rank(), (101 * page, 100 * page));
    }
}
