// SPDX-License-Identifier: Apache-2.0
//! The public copy call of two slot lists, on real shards.

use std::sync::Arc;

use serde::Deserialize;
use striata::ShardGroup;
use striata::core::plan::CopyDirection;
use striata::core::{PageGeometry, PoolGeometry, PoolKind, Slot, Stripe};
use striata::gpu::Device;
use striata::gpu::planes::L1Planes;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::gpu::transfer::TransferConfig;
use striata::host::{HostPool, HostPoolConfig};

#[derive(Deserialize)]
struct Vectors {
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    dcp: u32,
    page: u32,
    device: Vec<u64>,
    host: Vec<u64>,
    capacity_host: Option<u64>,
    direction: Option<String>,
    why: String,
}

const LAYERS: u32 = 2;

fn shards(dcp: u32, page_rows: u32, l2_pages: u32) -> ShardGroup<SimDevice> {
    let stripe = Stripe::new(dcp, page_rows).unwrap();
    let page = PageGeometry::new(page_rows, 4, LAYERS).unwrap();
    let rows = 200 * u64::from(page_rows);
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, rows).unwrap();
    let devices: Vec<_> = (0..dcp)
        .map(|rank| SimDevice::new(SimConfig::new(rank)))
        .collect();
    let planes = devices
        .iter()
        .map(|d| Arc::new(L1Planes::alloc(d, pool).unwrap()))
        .collect();
    let host = |_| {
        Some(Arc::new(
            HostPool::new(&HostPoolConfig::new(page, l2_pages)).unwrap(),
        ))
    };
    let hosts = devices.iter().map(host).collect();
    ShardGroup::new(pool, devices, planes, hosts, &TransferConfig::default()).unwrap()
}

fn device_words(shards: &ShardGroup<SimDevice>) -> Vec<u8> {
    let mut all = Vec::new();
    for shard in shards.shards() {
        for memory in shard.planes().memories().iter() {
            let len = usize::try_from(shard.device().memory_len(memory)).unwrap();
            let mut bytes = vec![0; len];
            shard.device().read(memory, 0, &mut bytes).unwrap();
            all.extend(bytes);
        }
    }
    all
}

fn host_words(shards: &ShardGroup<SimDevice>) -> Vec<u32> {
    let words = shards
        .shards()
        .iter()
        .flat_map(|s| s.host().unwrap().words());
    words
        .map(|w| w.load(std::sync::atomic::Ordering::Relaxed))
        .collect()
}

fn paint(shards: &ShardGroup<SimDevice>) {
    for (rank, shard) in shards.shards().iter().enumerate() {
        for memory in shard.planes().memories().iter() {
            let len = usize::try_from(shard.device().memory_len(memory)).unwrap();
            let bytes: Vec<u8> = (0..len)
                .map(|i| u8::try_from((i * 7 + rank) % 251).unwrap())
                .collect();
            shard.device().write(memory, 0, &bytes).unwrap();
        }
        for (i, word) in shard.host().unwrap().words().iter().enumerate() {
            let value = u32::try_from(i).unwrap().wrapping_mul(0x9E37_79B9) ^ 0xFFFF;
            word.store(value, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

fn slots(list: &[u64]) -> Vec<Slot> {
    list.iter().copied().map(Slot::new).collect()
}

#[test]
fn every_refused_case_names_its_values_and_moves_nothing() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../data/transfer_filter.json")).unwrap();
    assert!(!vectors.refused.is_empty());
    for case in vectors.refused {
        let w = u64::from(case.dcp * case.page);
        let l2_pages = u32::try_from(case.capacity_host.unwrap_or(200 * w) / w).unwrap();
        let shards = shards(case.dcp, case.page, l2_pages);
        paint(&shards);
        let before = (device_words(&shards), host_words(&shards));
        let directions = match case.direction.as_deref() {
            Some(_) => vec![CopyDirection::HostToDevice],
            None => vec![CopyDirection::HostToDevice, CopyDirection::DeviceToHost],
        };
        for direction in directions {
            let refused = shards.copy_slots(direction, &slots(&case.device), &slots(&case.host));
            let message = refused.expect_err(&case.why).to_string();
            assert!(
                message.chars().any(|c| c.is_ascii_digit()),
                "no value in {message:?}"
            );
            assert_eq!(
                (device_words(&shards), host_words(&shards)),
                before,
                "{}",
                case.why
            );
        }
    }
}

#[test]
fn whole_pages_move_and_nothing_else_does() {
    let shards = shards(4, 2, 20);
    paint(&shards);
    let (device, host) = (device_words(&shards), host_words(&shards));
    let page = |n: u64| (n * 8..n * 8 + 8).collect::<Vec<u64>>();
    let device_list = slots(&[page(7), page(3)].concat());
    let host_list = slots(&[page(0), page(5)].concat());
    let copied = shards
        .copy_slots(CopyDirection::DeviceToHost, &device_list, &host_list)
        .unwrap();
    assert_eq!(
        (copied.pages, copied.bytes_per_rank),
        (2, 2 * 2 * 4 * u64::from(LAYERS))
    );
    assert_eq!(device_words(&shards), device, "a store leaves L1 alone");
    let changed = host_words(&shards)
        .iter()
        .zip(&host)
        .filter(|(a, b)| a != b)
        .count();
    assert_eq!(
        changed,
        2 * 8 * LAYERS as usize,
        "two pages of 8 one-word rows in each layer"
    );
    // Back into other pages: the same rows stand there.
    let target = slots(&[page(9), page(11)].concat());
    shards
        .copy_slots(CopyDirection::HostToDevice, &target, &host_list)
        .unwrap();
    for shard in shards.shards() {
        for layer in 0..LAYERS {
            let (plane, base) = shard
                .planes()
                .plane(striata::core::LayerId::new(layer))
                .unwrap();
            for (from, to) in [(7u64, 9u64), (3, 11)] {
                let read = |page: u64| {
                    let mut bytes = [0; 8];
                    shard
                        .device()
                        .read(plane, base + page * 8, &mut bytes)
                        .unwrap();
                    bytes
                };
                assert_eq!(read(from), read(to));
            }
        }
    }
}

#[test]
fn the_sink_is_refused() {
    let shards = shards(2, 2, 10);
    let list = slots(&[0, 1, 2, 3]);
    let refused = shards
        .copy_slots(CopyDirection::DeviceToHost, &list, &list)
        .unwrap_err();
    assert!(refused.to_string().contains("page 0"), "{refused}");
}
