// SPDX-License-Identifier: Apache-2.0
//! Every path that the bytes of a job of pages can take.

use proptest::prelude::*;
use striata_core::{HostLayout, L2Page, LayerId, OpId};
use striata_gpu::sim::SimConfig;
use striata_gpu::transfer::{
    CopyPath, LayerCut, PageRule, TransferConfig, TransferError, TransferPaths,
};
use striata_gpu::{CopyForm, Direction, GpuError};

use crate::support::{Layout, Rig, config, ops, pairs};

const BOTH: [Direction; 2] = [Direction::HostToDevice, Direction::DeviceToHost];

fn forced(path: CopyPath, cut: LayerCut) -> TransferPaths {
    let rule = PageRule { path, cut };
    BOTH.into_iter()
        .fold(TransferPaths::built_in(), |paths, direction| {
            paths.forced(direction, rule)
        })
}

fn paths() -> impl Strategy<Value = CopyPath> {
    prop::sample::select(CopyPath::ALL.to_vec())
}

fn cuts() -> impl Strategy<Value = LayerCut> {
    let growing = (100u16..900).prop_map(LayerCut::Growing);
    prop_oneof![Just(LayerCut::Whole), Just(LayerCut::FirstAndRest), growing]
}

fn layouts() -> impl Strategy<Value = Layout> {
    let row_bytes = prop::sample::select(vec![4u32, 12, 576, 584, 656, 1152, 1168]);
    let host = prop_oneof![Just(HostLayout::PageFirst), Just(HostLayout::LayerFirst)];
    let chunk = prop_oneof![Just(1u64), Just(1 << 30)];
    (row_bytes, 1u32..9, host, any::<bool>(), chunk).prop_map(
        |(row_bytes, layers, host, uniform, chunk_bytes)| Layout {
            row_bytes,
            layers,
            host,
            uniform,
            chunk_bytes,
            page_rows: 3,
            ..Layout::default()
        },
    )
}

/// What a path becomes where it cannot be taken.
fn taken(path: CopyPath, layout: Layout) -> CopyPath {
    let possible = match path {
        // One plane alone is uniform.
        CopyPath::Rectangles | CopyPath::RectangleCalls => layout.uniform || layout.layers == 1,
        CopyPath::Staged => layout.host == HostLayout::PageFirst,
        CopyPath::Runs | CopyPath::RunCalls | CopyPath::Mapped => true,
    };
    if possible { path } else { CopyPath::Runs }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Odd pages go out, are wiped, and come back to even pages; everything else stays. Slices,
    /// groups, calls and slots of every size.
    #[test]
    fn b41_every_path_brings_every_byte_and_no_other(
        layout in layouts(), path in paths(), cut in cuts(), pages in 1u32..=40,
        slice_bytes in 1u64..100_000, store_group_bytes in 1u64..100_000,
        call_pieces in 1usize..40, slots in 1u64..9, caller_pieces in 0usize..40,
    ) {
        let layout = Layout { l1_pages: 2 * pages + 3, l2_pages: pages + 2, ..layout };
        let page_bytes = u64::from(3 * layout.row_bytes * layout.layers);
        let config = TransferConfig {
            paths: forced(path, cut),
            // Slots of some pages each, on the grid of the ring.
            staging_bytes: 4 * (slots * page_bytes).next_multiple_of(256),
            slice_bytes, store_group_bytes, call_pieces, caller_pieces,
            ..config()
        };
        let rig = Rig::new(layout, config);
        let all: Vec<(u32, u64)> = (0..layout.l1_pages).map(|p| (p, u64::from(p))).collect();
        let filled = rig.fill(&all);
        // Neighbours on the host and scattered ones.
        let host = |index: u32| if index < 4 { 1 + index } else { pages - (index - 4) };
        let out: Vec<_> = (0..pages).map(|i| (1 + 2 * i, host(i))).collect();
        rig.engine.store(rig.store(1, &out, Some(filled))).unwrap();
        let done = rig.finish();
        prop_assert_eq!((ops(&done), done[0].good_pages), (vec![1], pages as usize));
        for page in [0, pages + 1] {
            for layer in 0..layout.layers {
                let words = rig.host.chunk_words(L2Page::new(page), LayerId::new(layer)).unwrap();
                prop_assert!(words.iter().all(|w| w.load(std::sync::atomic::Ordering::Relaxed) == 0));
            }
        }
        let wiped: Vec<_> = out.iter().map(|&(page, _)| (page, 999)).collect();
        let wiped_at = rig.fill(&wiped);
        let back: Vec<_> = out.iter().map(|&(page, slot)| (page + 1, slot)).collect();
        let gate = rig.engine.load(rig.load(2, &back, Some(wiped_at))).unwrap();
        let loaded: Vec<_> = out.iter().map(|&(page, _)| (page + 1, u64::from(page))).collect();
        let log = rig.log();
        let mut last = None;
        for layer in 0..layout.layers {
            gate.wait_layer(LayerId::new(layer), &rig.compute).unwrap();
            last = Some(rig.verify(&rig.compute, layer, &loaded, &log));
        }
        striata_gpu::Device::synchronize(&rig.device, &last.unwrap()).unwrap();
        prop_assert_eq!(rig.mismatches(&log), 0);
        let kept = [(0, 0), (layout.l1_pages - 1, u64::from(layout.l1_pages - 1))];
        prop_assert_eq!(rig.wrong_rows(&[&wiped[..], &kept].concat()), 0);
        prop_assert_eq!(rig.finish()[0].good_pages, pages as usize);
        let stats = rig.engine.stats();
        let expected = taken(path, layout);
        prop_assert_eq!(stats.stores.by_path.jobs(expected), 1);
        prop_assert_eq!(stats.loads.by_path.jobs(expected), 1);
        let by_kernel = matches!(expected, CopyPath::Staged | CopyPath::Mapped);
        prop_assert_eq!(stats.stores.kernels > 0, by_kernel);
        prop_assert_eq!(stats.loads.calls == 0, expected == CopyPath::Mapped);
    }
}

fn few_pages(rig: &Rig, direction: Direction, pages: u32) {
    let list: Vec<_> = (1..=pages).map(|page| (page, page)).collect();
    let op = OpId::new(u64::from(pages));
    rig.engine.copy_pages(direction, op, &pairs(&list)).unwrap();
}

/// Planes further apart than the largest pitch: behaviour 40 at the decision.
#[test]
fn b40_planes_beyond_the_pitch_of_the_device_are_no_rectangles() {
    let layout = Layout {
        l1_pages: 101,
        ..Layout::default()
    };
    let stride = 101 * 4 * 1152;
    for (most_pitch, path) in [
        (stride, CopyPath::Rectangles),
        (stride - 1, CopyPath::Staged),
    ] {
        let sim = SimConfig {
            most_pitch,
            ..SimConfig::new(0)
        };
        let rig = Rig::on(sim, layout, config());
        few_pages(&rig, Direction::DeviceToHost, 3);
        few_pages(&rig, Direction::HostToDevice, 2);
        let stats = rig.engine.stats();
        assert_eq!(stats.stores.by_path.jobs(path), 1, "{most_pitch}");
        let load = match path {
            CopyPath::Staged => CopyPath::Runs,
            path => path,
        };
        assert_eq!(stats.loads.by_path.jobs(load), 1, "{most_pitch}");
        let form = |call: &crate::probe::Call| call.form == CopyForm::Rectangles;
        assert_eq!(
            rig.device.calls().iter().any(form),
            path == CopyPath::Rectangles
        );
    }
}

#[test]
fn stores_of_separate_planes_leave_as_whole_pages() {
    let layout = Layout {
        uniform: false,
        ..Layout::default()
    };
    let rig = Rig::new(layout, config());
    few_pages(&rig, Direction::DeviceToHost, 8);
    let page_bytes = 5 * 4 * 1152;
    let calls = rig.device.calls();
    let sizes: Vec<_> = calls.iter().map(|call| (call.pieces, call.bytes)).collect();
    // Groups of 1, 2 and 5 pages, each one run on the host.
    assert_eq!(sizes, [1, 2, 5].map(|pages| (1, pages * page_bytes)));
    assert_eq!(rig.engine.stats().stores.kernels, 3);
}

#[test]
fn a_ring_that_is_not_there_leaves_runs_and_one_that_does_not_fit_is_an_error() {
    let layout = Layout {
        uniform: false,
        ..Layout::default()
    };
    // No ring, and a ring whose slots are smaller than a page.
    for staging_bytes in [0, 4 * 256] {
        let config = TransferConfig {
            staging_bytes,
            ..config()
        };
        let rig = Rig::new(layout, config);
        few_pages(&rig, Direction::DeviceToHost, 3);
        assert_eq!(rig.engine.stats().stores.by_path.jobs(CopyPath::Runs), 1);
    }
    let rig = Rig::new(Layout::default(), config());
    let device = striata_gpu::sim::SimDevice::new(SimConfig {
        memory_bytes: Some(12 * 5 * 4 * 1152 + 5 * 16),
        ..SimConfig::new(1)
    });
    let planes = crate::support::planes_on(&device, layout);
    let planes = std::sync::Arc::new(planes);
    let host = Some(rig.host.clone());
    let made = striata_gpu::transfer::TransferEngine::new(device, planes, host, config());
    let error = made.map(drop).unwrap_err();
    let no_room = TransferError::Device(GpuError::OutOfMemory {
        device: "sim1".to_owned(),
        bytes: 128 << 20,
        reason: "276512 of 276560 bytes are used".to_owned(),
    });
    assert_eq!(error, no_room);
}

#[test]
fn a_device_whose_kernels_do_not_reach_the_host_takes_runs() {
    let sim = SimConfig {
        maps_host: false,
        ..SimConfig::new(0)
    };
    let config = TransferConfig {
        paths: forced(CopyPath::Mapped, LayerCut::Whole),
        ..config()
    };
    let rig = Rig::on(sim, Layout::default(), config);
    for direction in BOTH {
        few_pages(&rig, direction, 3);
    }
    let stats = rig.engine.stats();
    for side in [stats.loads, stats.stores] {
        assert_eq!((side.by_path.jobs(CopyPath::Runs), side.kernels), (1, 0));
    }
}
