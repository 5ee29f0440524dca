// SPDX-License-Identifier: Apache-2.0
//! Row lists: single rows of some layers, by a kernel on mapped host memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use striata_core::{HostLayout, L2Page, LayerId, OpId, Row};
use striata_gpu::sim::{SimConfig, SimEvent};
use striata_gpu::transfer::{
    CopyPath, LoadRows, RowPair, StoreRows, TransferConfig, TransferError,
};
use striata_gpu::{Device, Direction};

use crate::probe::Probe;
use crate::support::{Layout, Rig, config, ops};

/// All words of a layer of a plane.
fn plane(rig: &Rig, layout: Layout, layer: u32) -> Vec<u32> {
    let (memory, base) = rig.planes.plane(LayerId::new(layer)).unwrap();
    let bytes = layout.l1_pages * layout.page_rows * layout.row_bytes;
    let mut bytes = vec![0; bytes as usize];
    rig.device.read(memory, base, &mut bytes).unwrap();
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

fn set_plane(rig: &Rig, layout: Layout, layer: u32, word: impl Fn(u32) -> u32) {
    let (memory, base) = rig.planes.plane(LayerId::new(layer)).unwrap();
    let words = layout.l1_pages * layout.page_rows * layout.row_bytes / 4;
    let bytes: Vec<u8> = (0..words).flat_map(|at| word(at).to_ne_bytes()).collect();
    rig.device.write(memory, base, &bytes).unwrap();
}

/// The words of the rows of a layer on the host, in the order of the rows.
fn host(rig: &Rig, layout: Layout, layer: u32) -> Vec<u32> {
    let pages = (0..layout.l2_pages).flat_map(|page| {
        let words = rig
            .host
            .chunk_words(L2Page::new(page), LayerId::new(layer))
            .unwrap();
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect::<Vec<_>>()
    });
    pages.collect()
}

fn set_host(rig: &Rig, layout: Layout, layer: u32, word: impl Fn(u32) -> u32) {
    for page in 0..layout.l2_pages {
        let words = rig
            .host
            .chunk_words(L2Page::new(page), LayerId::new(layer))
            .unwrap();
        let first = page * layout.page_rows * layout.row_bytes / 4;
        for (at, slot) in (first..).zip(words) {
            slot.store(word(at), Ordering::Relaxed);
        }
    }
}

fn rows(list: &[(u64, u64)]) -> Arc<[RowPair]> {
    let pair = |&(l1, l2): &(u64, u64)| RowPair {
        l1: Row::new(l1),
        l2: Row::new(l2),
    };
    list.iter().map(pair).collect()
}

fn load(op: u64, list: &[(u64, u64)], layers: Range<u32>) -> LoadRows<Probe> {
    LoadRows {
        op: OpId::new(op),
        rows: rows(list),
        layers,
        after: None,
    }
}

fn store(
    op: u64,
    list: &[(u64, u64)],
    layers: Range<u32>,
    after: Option<SimEvent>,
) -> StoreRows<Probe> {
    StoreRows {
        op: OpId::new(op),
        rows: rows(list),
        layers,
        after,
        urgent: false,
    }
}

/// Rows in an order of their own, none twice.
fn shuffled(first: u64, count: u64, salt: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (first..first + count).collect();
    list.sort_by_key(|row| (row ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    list
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Exactly the rows of the list, in exactly the layers that were named, both ways; everything
    /// else keeps its bytes.
    #[test]
    fn b41_rows_of_every_size_go_where_the_list_says(
        row_bytes in prop::sample::select(vec![4u32, 12, 132, 576, 584, 656, 1152, 1168]), layers in 1u32..7,
        first in 0u32..7, count in 1u32..7, uniform: bool, layer_first: bool, split: bool,
        len in 0u64..30, salt in 0u64..100, slice_bytes in 1u64..100_000, staged: bool,
        sorted: bool,
    ) {
        let layout = Layout {
            row_bytes, layers, uniform, page_rows: 3,
            host: if layer_first { HostLayout::LayerFirst } else { HostLayout::PageFirst },
            chunk_bytes: if split { 1 } else { 1 << 30 },
            ..Layout::default()
        };
        let paths = config().paths.forced_rows(staged);
        // Slots of some rows, so that rows are cut and slots are used again.
        let staging_bytes = 4 * 256 * 16;
        let rig = Rig::new(layout, TransferConfig { slice_bytes, paths, staging_bytes, ..config() });
        if staged {
            rig.engine.reserve_staging(Direction::HostToDevice).unwrap();
            rig.engine.reserve_staging(Direction::DeviceToHost).unwrap();
        }
        let first = first % layers;
        let range = first..(first + count).min(layers);
        let device_rows = shuffled(3, 30, salt);
        let host_rows = if sorted { (0..36).collect() } else { shuffled(0, 36, salt + 1) };
        let list: Vec<_> = device_rows.into_iter().zip(host_rows).take(usize::try_from(len).unwrap()).collect();
        let words = row_bytes / 4;
        for layer in 0..layers {
            set_plane(&rig, layout, layer, |at| 0x1000_0000 + layer * 0x10_0000 + at);
            set_host(&rig, layout, layer, |at| 0x2000_0000 + layer * 0x10_0000 + at);
        }
        let (mut planes, mut hosts): (Vec<_>, Vec<_>) = (0..layers)
            .map(|layer| (plane(&rig, layout, layer), host(&rig, layout, layer))).unzip();
        rig.engine.store_rows(store(1, &list, range.clone(), Some(rig.fence()))).unwrap();
        let done = rig.finish();
        prop_assert_eq!((ops(&done), done[0].good_pages), (vec![1], list.len()));
        let bytes = u64::from(row_bytes) * range.len() as u64 * list.len() as u64;
        prop_assert_eq!(done[0].bytes, bytes);
        let place = |row: u64| {
            let (row, words) = (usize::try_from(row).unwrap(), words as usize);
            row * words..(row + 1) * words
        };
        for layer in range.clone() {
            let (planes, hosts) = (&planes[layer as usize], &mut hosts[layer as usize]);
            for &(l1, l2) in &list {
                hosts[place(l2)].copy_from_slice(&planes[place(l1)]);
            }
        }
        for layer in 0..layers {
            prop_assert_eq!(&host(&rig, layout, layer), &hosts[layer as usize]);
            prop_assert_eq!(&plane(&rig, layout, layer), &planes[layer as usize]);
        }
        // The same rows come back in the opposite order.
        let back: Vec<_> = list.iter().map(|row| row.0).zip(list.iter().rev().map(|row| row.1)).collect();
        let gate = rig.engine.load_rows(load(2, &back, range.clone())).unwrap();
        for layer in 0..layers {
            gate.wait_layer(LayerId::new(layer), &rig.compute).unwrap();
        }
        rig.device.synchronize(&rig.fence()).unwrap();
        for layer in range {
            let (planes, hosts) = (&mut planes[layer as usize], &hosts[layer as usize]);
            for &(l1, l2) in &back {
                planes[place(l1)].copy_from_slice(&hosts[place(l2)]);
            }
        }
        for layer in 0..layers {
            prop_assert_eq!(&plane(&rig, layout, layer), &planes[layer as usize]);
        }
        prop_assert_eq!(rig.finish()[0].good_pages, list.len());
        let stats = rig.engine.stats();
        let jobs = u64::from(!list.is_empty());
        let path = if staged { CopyPath::Staged } else { CopyPath::Mapped };
        for side in [stats.loads, stats.stores] {
            prop_assert_eq!(side.by_path.jobs(path), jobs);
            prop_assert_eq!(side.calls > 0, staged && jobs > 0);
        }
    }
}

#[test]
fn b25_a_store_of_rows_waits_for_the_kernel_that_writes_them() {
    let rig = Rig::with_defaults();
    for round in 0..1000u64 {
        let hold = rig.device.sim().hold(&rig.compute).unwrap();
        let written = rig.fill(&[(3, round)]);
        let list: Vec<_> = (0..4).map(|row| (12 + row, 16 + row)).collect();
        rig.engine
            .store_rows(store(round, &list, 0..5, Some(written)))
            .unwrap();
        hold.release();
        rig.engine.drain().unwrap();
        rig.fill(&[(3, 0)]);
        // Host page 4 as a page.
        let gate = rig.engine.load(rig.load(round, &[(5, 4)], None)).unwrap();
        gate.synchronize().unwrap();
        assert_eq!(rig.wrong_rows(&[(5, round)]), 0, "round {round}");
    }
}

/// Rows of adjacent pages of a layer-first pool are one run, whatever the order of the list.
#[test]
fn long_host_runs_take_one_descriptor_a_layer() {
    let layout = Layout {
        host: HostLayout::LayerFirst,
        ..Layout::default()
    };
    let mut paths = config().paths;
    let run = 32 * 1152;
    for (from, path, pieces) in [(run, CopyPath::Staged, 5), (run + 4, CopyPath::Mapped, 0)] {
        paths.stores.stage_rows_from = from;
        let rig = Rig::new(layout, TransferConfig { paths, ..config() });
        rig.engine.reserve_staging(Direction::DeviceToHost).unwrap();
        let list: Vec<_> = shuffled(0, 32, 5)
            .into_iter()
            .map(|row| (row + 8, row + 3))
            .collect();
        rig.engine.store_rows(store(1, &list, 0..5, None)).unwrap();
        assert_eq!(ops(&rig.finish()), [1]);
        let stores = rig.engine.stats().stores;
        assert_eq!((stores.by_path.jobs(path), stores.pieces), (1, pieces));
    }
}

#[test]
fn row_lists_that_cannot_be_copied_are_refused_with_their_values() {
    let rig = Rig::with_defaults();
    let error =
        |list: &[(u64, u64)], layers| rig.engine.load_rows(load(1, list, layers)).unwrap_err();
    let rows_of = |tier, row, first, end| TransferError::RowOutOfRange {
        tier,
        row,
        first,
        end,
    };
    // 12 pages of 4 rows, the first of L1 being the sink.
    assert_eq!(error(&[(3, 0)], 0..5), rows_of("L1", 3, 4, 48));
    assert_eq!(error(&[(4, 0), (48, 1)], 0..5), rows_of("L1", 48, 4, 48));
    assert_eq!(error(&[(4, 48)], 0..5), rows_of("L2", 48, 0, 48));
    let layers = |start, end| TransferError::Layers {
        start,
        end,
        layers: 5,
    };
    assert_eq!(error(&[(4, 0)], 0..6), layers(0, 6));
    assert_eq!(error(&[], 2..2), layers(2, 2));
    let direction = Direction::HostToDevice;
    assert_eq!(
        error(&[(4, 0), (4, 1)], 0..5),
        TransferError::DuplicateRow { direction, row: 4 }
    );
    let direction = Direction::DeviceToHost;
    let twice = store(2, &[(4, 0), (5, 0)], 0..5, None);
    assert_eq!(
        rig.engine.store_rows(twice).unwrap_err(),
        TransferError::DuplicateRow { direction, row: 0 }
    );
    // Two sources of one row are fine the other way round.
    rig.engine
        .store_rows(store(3, &[(4, 0), (4, 1)], 0..5, None))
        .unwrap();
    assert_eq!(ops(&rig.finish()), [3]);
    assert_eq!(rig.engine.poisoned(), None);

    let sim = SimConfig {
        maps_host: false,
        ..SimConfig::new(0)
    };
    let rig = Rig::on(sim, Layout::default(), config());
    let refused = rig.engine.load_rows(load(4, &[(4, 0)], 0..5)).unwrap_err();
    assert_eq!(refused, TransferError::NotMapped { op: OpId::new(4) });
}

#[test]
fn a_load_of_rows_can_be_given_up() {
    let rig = Rig::with_defaults();
    let hold = rig.device.sim().hold(&rig.compute).unwrap();
    let mut job = load(1, &[(4, 0), (5, 1)], 1..4);
    job.after = Some(rig.fence());
    let gate = rig.engine.load_rows(job).unwrap();
    // Groups of 1 and 2 layers.
    assert_eq!(gate.groups().len(), 2);
    assert_eq!(rig.engine.cancel(OpId::new(1)), 2);
    hold.release();
    let done = rig.finish();
    assert_eq!(
        (ops(&done), done[0].cancelled, done[0].good_pages),
        (vec![1], true, 0)
    );
}
