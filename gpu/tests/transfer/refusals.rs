// SPDX-License-Identifier: Apache-2.0
//! What is refused, with which figures, and that nothing has moved then.

use std::sync::Arc;

use striata_core::{HostLayout, OpId, PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata_gpu::sim::{SimConfig, SimDevice};
use striata_gpu::transfer::{TransferEngine, TransferError};
use striata_gpu::{Device, L1Planes, PlaneSpan, PlanesError};
use striata_host::{HostPool, HostPoolConfig};

use crate::support::{Rig, config, pairs};

#[test]
fn pages_outside_their_pools_are_named() {
    let rig = Rig::with_defaults();
    let refused = |list: &[(u32, u32)]| {
        let load = rig.engine.load(rig.load(1, list, None)).unwrap_err();
        let store = rig.engine.store(rig.store(1, list, None)).unwrap_err();
        assert_eq!(load, store);
        load.to_string()
    };
    let sink = refused(&[(1, 1), (0, 2)]);
    assert_eq!(
        sink,
        "page 0 of L1 is not one of the pages 1..12 of the pool"
    );
    let l1 = refused(&[(12, 1)]);
    assert_eq!(
        l1,
        "page 12 of L1 is not one of the pages 1..12 of the pool"
    );
    let l2 = refused(&[(1, u32::MAX)]);
    assert_eq!(
        l2,
        "page 4294967295 of L2 is not one of the pages 0..12 of the pool"
    );
    let twice = rig
        .engine
        .load(rig.load(1, &[(3, 1), (2, 2), (3, 3)], None));
    assert!(matches!(
        twice,
        Err(TransferError::DuplicateTarget { page: 3, .. })
    ));
    let twice = rig.engine.store(rig.store(1, &[(3, 1), (2, 1)], None));
    assert!(matches!(
        twice,
        Err(TransferError::DuplicateTarget { page: 1, .. })
    ));
    assert_eq!(rig.device.calls(), []);
    assert_eq!(rig.engine.stats(), Default::default());
    assert_eq!(rig.engine.poisoned(), None);
}

#[test]
fn a_fence_that_nobody_recorded_is_refused() {
    let rig = Rig::with_defaults();
    let fence = rig.device.event().unwrap();
    let load = rig.engine.load(rig.load(9, &[(1, 1)], Some(fence.clone())));
    let op = OpId::new(9);
    assert_eq!(load.unwrap_err(), TransferError::FenceNotRecorded { op });
    let store = rig.engine.store(rig.store(9, &[(1, 1)], Some(fence)));
    assert_eq!(store.unwrap_err(), TransferError::FenceNotRecorded { op });
    rig.engine.drain().unwrap();
}

#[test]
fn a_layer_that_is_not_there_is_named() {
    let rig = Rig::with_defaults();
    let gate = rig.engine.load(rig.load(2, &[(1, 1)], None)).unwrap();
    let error = gate
        .wait_layer(striata_core::LayerId::new(5), &rig.compute)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 5 is not one of the 5 layers of operation 2"
    );
}

fn geometry(row_bytes: u32, layers: u32) -> PoolGeometry {
    let page = PageGeometry::new(4, row_bytes, layers).unwrap();
    PoolGeometry::adopted(PoolKind::Striped, Stripe::new(2, 4).unwrap(), page, 12).unwrap()
}

fn engine(l1: PoolGeometry, l2: Option<PageGeometry>) -> Result<(), TransferError> {
    let device = SimDevice::new(SimConfig::new(0));
    let planes = Arc::new(L1Planes::alloc(&device, l1).unwrap());
    let host = l2.map(|page| {
        let mut config = HostPoolConfig::new(page, 2);
        config.layout = HostLayout::LayerFirst;
        Arc::new(HostPool::new(&config).unwrap())
    });
    TransferEngine::new(device, planes, host, config()).map(drop)
}

/// Seen to fail if the engine does not compare its tiers.
#[test]
fn b42_tiers_that_hold_different_rows_are_refused_with_both_figures() {
    let l1 = geometry(656, 61);
    let page = |row_bytes, layers| PageGeometry::new(4, row_bytes, layers).unwrap();
    let refused = |l2| engine(l1, Some(l2)).unwrap_err().to_string();
    assert_eq!(
        refused(page(576, 61)),
        "the tiers disagree in row bytes: L1 has 656, L2 has 576"
    );
    assert_eq!(
        refused(page(656, 60)),
        "the tiers disagree in layers: L1 has 61, L2 has 60"
    );
    engine(l1, Some(page(656, 61))).unwrap();
    engine(l1, None).unwrap();
}

#[test]
fn without_a_host_pool_every_job_is_refused() {
    let device = SimDevice::new(SimConfig::new(0));
    let planes = Arc::new(L1Planes::alloc(&device, geometry(1152, 2)).unwrap());
    let engine = TransferEngine::new(device, planes, None, config()).unwrap();
    let op = OpId::new(4);
    let pages = pairs(&[]);
    let after = None;
    let refused = engine.store(striata_gpu::transfer::StoreJob {
        op,
        pages,
        after,
        urgent: false,
    });
    assert_eq!(refused, Err(TransferError::NoHostPool { op }));
    engine.drain().unwrap();
}

#[test]
fn planes_that_do_not_fit_their_allocations_are_refused() {
    let device = SimDevice::new(SimConfig::new(0));
    let geometry = geometry(8, 2);
    let memories: Arc<[_]> = Arc::from([device.alloc(96).unwrap(), device.alloc(192).unwrap()]);
    let adopt = |spans: &[(u32, u64)]| {
        let spans = spans
            .iter()
            .map(|&(memory, offset)| PlaneSpan { memory, offset });
        L1Planes::adopt(&device, geometry, spans.collect(), memories.clone())
    };
    let planes = adopt(&[(1, 0), (1, 96)]).unwrap();
    assert_eq!(planes.uniform_stride(), Some(96));
    let chunk = planes.chunk_offset(striata_core::LayerId::new(1), striata_core::L1Page::new(2));
    assert_eq!(chunk, Some(96 + 2 * 32));
    assert_eq!(adopt(&[(0, 0), (1, 4)]).unwrap().uniform_stride(), None);
    let said = |spans: &[(u32, u64)]| adopt(spans).unwrap_err().to_string();
    assert_eq!(said(&[(0, 0)]), "1 planes were given for 2 layers");
    assert_eq!(
        said(&[(0, 0), (2, 0)]),
        "the plane of layer 1 names allocation 2 of 2"
    );
    assert_eq!(
        said(&[(0, 0), (1, 98)]),
        "the plane of layer 1 begins at byte 98, which is not a multiple of 4"
    );
    assert_eq!(
        said(&[(0, 4), (1, 0)]),
        "the plane of layer 0 needs 96 bytes from byte 4 on, its allocation has 96"
    );
    assert!(adopt(&[(0, u64::MAX - 3), (1, 0)]).is_err());
    assert_eq!(
        adopt(&[(1, 92), (1, 0)]).unwrap_err(),
        PlanesError::Overlap {
            first: 1,
            second: 0,
            offset: 92
        }
    );
}
