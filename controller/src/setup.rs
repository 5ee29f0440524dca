// SPDX-License-Identifier: Apache-2.0
//! Everything that a controller is made with, checked together.

use std::sync::Arc;

use striata_core::HostLayout;
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
            planes.push(Arc::new(L1Planes::alloc(device, pool)?));
        }
        for _ in &devices {
            hosts.push(self.host_pool()?);
        }
        ShardGroup::new(pool, devices, planes, hosts, &self.transfer)
    }

    fn host_pool(&self) -> Result<Option<Arc<HostPool>>, Error> {
        if self.planner.l2_pages == 0 {
            return Ok(None);
        }
        let mut config = HostPoolConfig::new(self.planner.pool.page(), self.planner.l2_pages);
        config.layout = self.host_layout;
        config.huge_pages = self.huge_pages;
        let pool = HostPool::new(&config).map_err(Arc::new)?;
        Ok(Some(Arc::new(pool)))
    }
}
