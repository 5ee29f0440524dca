// SPDX-License-Identifier: Apache-2.0
//! Everything that a controller is made with, checked together.

use std::sync::Arc;

use striata_core::geometry::GeometryError;
use striata_core::{EngineSettings, HostLayout, PoolGeometry, PoolKind};
use striata_gpu::Device;
use striata_gpu::planes::L1Planes;
use striata_gpu::transfer::TransferConfig;
use striata_host::{HostPool, HostPoolConfig, HugePages};

use crate::error::Error;
use crate::planner::PlannerConfig;
use crate::shards::ShardGroup;

/// What a [`crate::HiCache`] is made with.
#[derive(Clone, Debug)]
pub struct HiCacheSetup {
    /// Decisions: pools, policies, limits.
    pub planner: PlannerConfig,
    /// Order of pages and layers on L2.
    pub host_layout: HostLayout,
    /// Which pages back L2.
    pub huge_pages: HugePages,
    /// How copies are grouped.
    pub transfer: TransferConfig,
}

impl HiCacheSetup {
    /// A setup with defaults beside the planner's configuration: page-first L2, huge pages where
    /// the machine has them.
    #[must_use]
    pub fn new(planner: PlannerConfig) -> Self {
        Self {
            planner,
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
            ..PlannerConfig::new(pool, l2_pages)
        };
        Ok(Self {
            host_layout: settings.host_layout,
            ..Self::new(planner)
        })
    }

    /// Bytes of L1 and of L2 that one rank needs.
    #[must_use]
    pub fn bytes_per_rank(&self) -> (u64, u64) {
        let page = self.planner.pool.page();
        let l1 = self.planner.pool.rows() * u64::from(page.row_bytes()) * u64::from(page.layers());
        (l1, u64::from(self.planner.l2_pages) * page.page_bytes())
    }

    /// Allocates both pools of every rank.
    pub(crate) fn shards<D: Device>(&self, devices: Vec<D>) -> Result<ShardGroup<D>, Error> {
        let pool = self.planner.pool;
        let mut planes = Vec::with_capacity(devices.len());
        let mut hosts = Vec::with_capacity(devices.len());
        for device in &devices {
            planes.push(self.planes(device)?);
        }
        for device in &devices {
            hosts.push(self.host_pool(device)?);
        }
        ShardGroup::new(pool, devices, planes, hosts, &self.transfer)
    }

    /// Allocates the L1 shard of one rank.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub fn planes<D: Device>(&self, device: &D) -> Result<Arc<L1Planes<D>>, Error> {
        Ok(Arc::new(L1Planes::alloc(device, self.planner.pool)?))
    }

    /// Allocates the L2 shard of one rank; none if the tier is off.
    ///
    /// # Errors
    /// Memory that cannot be had or page-locked.
    pub fn host_pool<D: Device>(&self, device: &D) -> Result<Option<Arc<HostPool>>, Error> {
        if self.planner.l2_pages == 0 {
            return Ok(None);
        }
        let mut config = HostPoolConfig::new(self.planner.pool.page(), self.planner.l2_pages);
        config.max_pages = Some(self.planner.l2_limit());
        config.layout = self.host_layout;
        config.huge_pages = self.huge_pages;
        config.pinner = device.pinner();
        let pool = HostPool::new(&config).map_err(Arc::new)?;
        Ok(Some(Arc::new(pool)))
    }
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
    }
}
