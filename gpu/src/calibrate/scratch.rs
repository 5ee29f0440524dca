// SPDX-License-Identifier: Apache-2.0
//! Pools to measure on.

use std::sync::Arc;

use striata_core::{L1Page, L2Page, PageGeometry, PagePair, PoolGeometry, PoolKind, Stripe};
use striata_host::{HostPool, HostPoolConfig};

use super::CalibrationError;
use super::cells::ROWS;
use crate::device::Device;
use crate::planes::{L1Planes, PlaneSpan};
use crate::transfer::PlaneKind;

/// Both tiers, for pages of one chunk size. Uniform and separate planes share the device memory,
/// and nobody looks at what is in it.
#[derive(Debug)]
pub(super) struct Scratch<D: Device> {
    pub(super) host: Arc<HostPool>,
    pub(super) page: PageGeometry,
    uniform: Arc<L1Planes<D>>,
    separate: Arc<L1Planes<D>>,
    pages: u32,
}

impl<D: Device> Scratch<D> {
    /// Pools of `pages` pages of rows of `row_bytes` bytes in `layers` layers.
    pub(super) fn new(
        device: &D,
        row_bytes: u32,
        layers: u32,
        pages: u32,
    ) -> Result<Self, CalibrationError> {
        let page = PageGeometry::new(ROWS, row_bytes, layers)?;
        let stripe = Stripe::new(1, ROWS)?;
        // Page 0 of L1 is the sink.
        let rows = (u64::from(pages) + 1) * u64::from(ROWS);
        let pool = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows)?;
        let (chunk, plane) = (
            page.chunk_bytes(),
            page.chunk_bytes() * u64::from(pool.pages()),
        );
        // Every second plane begins a chunk late: at no common distance, but for two planes.
        let late = |layer: u64| layer.div_ceil(2) * chunk;
        let of_layer = |layer: u64, late: u64| PlaneSpan {
            memory: 0,
            offset: layer * plane + late,
        };
        let layers = u64::from(layers);
        let memory = device.alloc(layers * plane + late(layers))?;
        let adopt = |late: &dyn Fn(u64) -> u64| {
            let spans = (0..layers).map(|layer| of_layer(layer, late(layer)));
            let memories = Arc::from([memory.clone()]);
            L1Planes::adopt(device, pool, spans.collect(), memories).map(Arc::new)
        };
        let mut config = HostPoolConfig::new(page, pages);
        config.pinner = device.pinner();
        Ok(Self {
            host: Arc::new(HostPool::new(&config)?),
            uniform: adopt(&|_| 0)?,
            separate: adopt(&late)?,
            page,
            pages,
        })
    }

    pub(super) const fn planes(&self, kind: PlaneKind) -> &Arc<L1Planes<D>> {
        match kind {
            PlaneKind::Uniform => &self.uniform,
            PlaneKind::Separate => &self.separate,
        }
    }

    /// `pages` pages of both tiers, no two of which are neighbours in the same order on both: the
    /// scattered pages of a cache in use.
    pub(super) fn pairs(&self, pages: u32) -> Vec<PagePair> {
        (0..pages.min(self.pages))
            .map(|page| PagePair {
                l1: L1Page::new(page + 1),
                l2: L2Page::new(self.pages - 1 - page),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimConfig, SimDevice};

    #[test]
    fn planes_are_what_they_are_called() {
        let device = SimDevice::new(SimConfig::new(0));
        for layers in [3, 61] {
            let scratch = Scratch::new(&device, 64, layers, 2).unwrap();
            assert!(
                scratch
                    .planes(PlaneKind::Uniform)
                    .uniform_stride()
                    .is_some()
            );
            assert!(
                scratch
                    .planes(PlaneKind::Separate)
                    .uniform_stride()
                    .is_none()
            );
            let pairs = scratch.pairs(2);
            assert_eq!((pairs[0].l1.get(), pairs[1].l2.get()), (1, 0));
            assert_eq!(scratch.pairs(9).len(), 2);
        }
    }
}
