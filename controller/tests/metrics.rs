// SPDX-License-Identifier: Apache-2.0
//! Behaviour 54: counters exist for both directions, in pages and bytes, by outcome.

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use striata::core::prefix::{Namespace, PageKey};
use striata::core::{PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::Device;
use striata::gpu::Direction;
use striata::gpu::sim::{Fault, FaultPlan, OpClass, SimConfig, SimDevice};
use striata::{Confirm, HiCache, HiCacheSetup, PlannerConfig, Prefix, Reserve};

const PAGE_ROWS: u32 = 4;
const ROW_BYTES: u32 = 16;
const LAYERS: u32 = 3;

fn keys(first: u32, pages: usize) -> Vec<PageKey> {
    (0..pages as u128)
        .map(|i| PageKey::new(u128::from(first) << 32 | i))
        .collect()
}

/// Serves whole pages and one token.
fn serve(cache: &mut HiCache<SimDevice>, keys: &[PageKey], w: u64) {
    let tokens = keys.len() as u64 * w + 1;
    let namespace = Namespace::from_digest(1);
    let outcome = cache
        .reserve_blocking(namespace, Prefix::Keys { keys, tokens })
        .unwrap();
    let Reserve::Granted(lease) = outcome else {
        panic!("{outcome:?}")
    };
    cache.start_loads().unwrap();
    let streams: Vec<_> = cache
        .shards()
        .shards()
        .iter()
        .map(|shard| shard.device().stream("compute").unwrap())
        .collect();
    cache.step_end(&streams).unwrap();
    assert_eq!(cache.confirm_blocking(&lease).unwrap(), Confirm::Done);
    cache.insert(&lease, tokens).unwrap();
    drop(lease);
    cache.drain().unwrap();
}

#[test]
fn b54_metrics_of_both_directions_in_pages_and_bytes() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let stripe = Stripe::new(2, PAGE_ROWS).unwrap();
        let page = PageGeometry::new(PAGE_ROWS, ROW_BYTES, LAYERS).unwrap();
        let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 6 * 4).unwrap();
        let mut planner = PlannerConfig::new(pool, 16);
        planner.load_back_threshold = 1;
        let devices = (0..2)
            .map(|rank| SimDevice::new(SimConfig::new(rank)))
            .collect();
        // A pool beside it, whole on both ranks: 2 * PAGE_ROWS rows a page.
        let setup = HiCacheSetup {
            side_pools: vec![pool.beside(PoolKind::Replicated, 12, 1).unwrap()],
            ..HiCacheSetup::new(planner)
        };
        let mut cache = HiCache::new(&setup, devices).unwrap();
        let w = stripe.widened_page();
        // Five pages are stored, pushed out, and three of them loaded back.
        serve(&mut cache, &keys(1, 5), w);
        cache.evict(5).unwrap();
        serve(&mut cache, &keys(1, 3), w);
        cache.poll().unwrap();
        // A load of one page fails on one rank.
        cache.evict(6).unwrap();
        let fail = Fault::Fail { good_pieces: 0 };
        let plan = FaultPlan::new().with(OpClass::CopyOf(Direction::HostToDevice), 0, fail);
        cache.shards().shard(1).unwrap().device().arm(&plan);
        let keys = keys(1, 1);
        let tokens = w + 1;
        let prefix = Prefix::Keys {
            keys: &keys,
            tokens,
        };
        let outcome = cache.reserve_blocking(Namespace::from_digest(1), prefix);
        let lease = outcome.unwrap().granted().unwrap();
        cache.start_loads().unwrap();
        let confirmed = cache.confirm_blocking(&lease).unwrap();
        assert_eq!(confirmed, Confirm::LoadFailed { valid_tokens: 0 });
        cache.poll().unwrap();
    });
    let seen = snapshotter.snapshot().into_vec();
    let count = |name: &str, labels: &[(&str, &str)]| {
        let matches = |key: &metrics::Key| {
            key.name() == name
                && labels.iter().all(|(label, value)| {
                    key.labels()
                        .any(|l| l.key() == *label && l.value() == *value)
                })
        };
        let found = seen.iter().find(|(key, ..)| matches(key.key()));
        match found {
            Some((.., DebugValue::Counter(value))) => *value,
            other => panic!("{name} {labels:?}: {other:?}"),
        }
    };
    let pages = |direction, outcome| {
        count(
            "striata_pages_total",
            &[("direction", direction), ("outcome", outcome)],
        )
    };
    assert_eq!(
        (
            pages("store", "good"),
            pages("load", "good"),
            pages("load", "failed")
        ),
        (5, 3, 1)
    );
    let page_bytes = u64::from(PAGE_ROWS * ROW_BYTES * LAYERS + 2 * PAGE_ROWS * 12);
    let bytes = |direction, tier, outcome| {
        let labels = [
            ("direction", direction),
            ("tier", tier),
            ("outcome", outcome),
        ];
        count("striata_bytes_total", &labels)
    };
    assert_eq!(
        bytes("store", "L2", "good"),
        2 * 5 * page_bytes,
        "two ranks"
    );
    assert_eq!(bytes("load", "L1", "good"), 2 * 3 * page_bytes);
    // Also what the other rank has copied of it.
    assert_eq!(bytes("load", "L1", "failed"), 2 * page_bytes);
    assert_eq!(bytes("store", "L2", "failed"), 0);
    let kept = count(
        "striata_evicted_pages_total",
        &[("tier", "L1"), ("outcome", "kept")],
    );
    assert_eq!(kept, 8);
    assert_eq!(count("striata_tokens_total", &[("source", "l2")]), 4 * 8);
}
