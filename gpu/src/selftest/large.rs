// SPDX-License-Identifier: Apache-2.0
//! Offsets beyond 32 bits, in bytes and in elements.

use std::sync::Arc;

use striata_core::{PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata_host::HostPool;

use super::rig::{Layout, Rig, pool_config};
use super::{Check, Checked, Failure, ensure};
use crate::device::Device;
use crate::error::GpuError;
use crate::planes::{L1Planes, PlanesError};
use crate::transfer::{TransferConfig, TransferEngine};

/// Pages of behaviour 40: around 4 GiB, and at the end of a plane of 8.6 GB.
pub(super) const PAGES: [u32; 4] = [58_254, 58_255, 116_508, 116_509];

pub(super) fn checks<D: Device>() -> Vec<Check<D>> {
    vec![Check {
        name: "large.b40_pages",
        about: "pages beyond 4 and 8 GB are filled, stored, loaded and verified where they stand",
        run: pages,
    }]
}

fn rig<D: Device>(device: &D, layers: u32) -> Result<Result<Rig<D>, GpuError>, Failure> {
    let layout = Layout {
        layers,
        l1_pages: PAGES[3] + 1,
        l2_pages: 8,
        ..Layout::default()
    };
    let page = PageGeometry::new(layout.page_rows, layout.row_bytes, layers)?;
    let stripe = Stripe::new(8, layout.page_rows)?;
    let rows = u64::from(layout.l1_pages) * u64::from(layout.page_rows);
    let geometry = PoolGeometry::adopted(PoolKind::Striped, stripe, page, rows)?;
    let planes = match L1Planes::alloc(device, geometry) {
        Err(PlanesError::Device(error @ GpuError::OutOfMemory { .. })) => return Ok(Err(error)),
        other => Arc::new(other?),
    };
    let host = Arc::new(HostPool::new(&pool_config(device, page, layout))?);
    let config = TransferConfig::default();
    let engine = TransferEngine::new(device.clone(), planes.clone(), Some(host.clone()), config)?;
    Ok(Ok(Rig {
        compute: device.stream("compute")?,
        device: device.clone(),
        planes,
        host,
        engine,
        layout,
    }))
}

fn pages<D: Device>(device: &D) -> Checked {
    // Two layers have a plane stride above the largest pitch of rectangles, if there is room.
    let rig = match rig(device, 2)? {
        Ok(rig) => rig,
        Err(_) => rig(device, 1)?.map_err(|error| Failure::Skipped(error.to_string()))?,
    };
    let contents: Vec<_> = PAGES.iter().map(|&page| (page, u64::from(page))).collect();
    // The pages at which these would stand if their offsets were cut to 32 bits.
    let wrapped: Vec<_> = [1, 2, 3, 29_126, 29_127, 58_253]
        .map(|page| (page, 7))
        .to_vec();
    rig.fill(&wrapped)?;
    rig.fill(&contents)?;
    let wrong = rig.wrong_rows(&[contents.clone(), wrapped.clone()].concat())?;
    ensure!(wrong == 0, "{wrong} rows do not hold what was filled");
    let out: Vec<_> = PAGES.iter().copied().zip(1..).collect();
    rig.engine
        .store(rig.store_job(1, &out, Some(rig.fence()?)))?;
    rig.finish()?;
    for &(page, slot) in &out {
        let wrong = rig.wrong_host_words(slot, u64::from(page))?;
        ensure!(
            wrong == 0,
            "{wrong} words of page {page} were stored wrongly"
        );
    }
    // Each page is loaded to the place of the next.
    let back: Vec<_> = (0..4).map(|i| (PAGES[(i + 1) % 4], out[i].1)).collect();
    let gate = rig
        .engine
        .load(rig.load_job(2, &back, Some(rig.fence()?)))?;
    gate.wait_all(&rig.compute)?;
    let moved: Vec<_> = (0..4)
        .map(|i| (PAGES[(i + 1) % 4], u64::from(PAGES[i])))
        .collect();
    let wrong = rig.wrong_rows(&[moved, wrapped].concat())?;
    ensure!(wrong == 0, "{wrong} rows are wrong after a load");
    rig.finish()?;
    Ok(())
}
