// SPDX-License-Identifier: Apache-2.0
//! A first device fault poisons the engine: later calls name the first cause, nothing that was read
//! from it becomes matchable, and what is held is given back.

use striata::core::prefix::{Namespace, PageKey};
use striata::core::{PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::Device;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::{Confirm, Error, HiCache, HiCacheSetup, PlannerConfig, Prefix, Reserve};

fn keys(first: u32, pages: usize) -> Vec<PageKey> {
    (0..pages as u128)
        .map(|i| PageKey::new(u128::from(first) << 32 | i))
        .collect()
}

#[test]
fn a_lost_device_poisons_the_engine_by_name() {
    let stripe = Stripe::new(2, 4).unwrap();
    let page = PageGeometry::new(4, 16, 3).unwrap();
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 8 * 4).unwrap();
    let mut planner = PlannerConfig::new(pool, 16);
    planner.load_back_threshold = 1;
    let devices: Vec<_> = (0..2)
        .map(|rank| SimDevice::new(SimConfig::new(rank)))
        .collect();
    let mut cache = HiCache::new(&HiCacheSetup::new(planner), devices.clone()).unwrap();
    let w = stripe.widened_page();
    let (namespace, path) = (Namespace::from_digest(1), keys(1, 4));
    let prefix = Prefix::Keys {
        keys: &path,
        tokens: 4 * w,
    };
    let Reserve::Granted(lease) = cache.reserve(namespace, prefix).unwrap() else {
        panic!()
    };
    cache.start_loads().unwrap();
    let streams: Vec<_> = devices
        .iter()
        .map(|d| d.stream("compute").unwrap())
        .collect();
    cache.step_end(&streams).unwrap();
    assert_eq!(cache.confirm(&lease).unwrap(), Confirm::Done);
    devices[1].kill("the test took it away");
    // The store that insert starts cannot be carried out on rank 1.
    let _ = cache.insert(&lease, 4 * w);
    drop(lease);
    let _ = cache.drain();
    let _ = cache.poll();
    let refused = cache.reserve(namespace, prefix).unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("rank 1") && text.contains("the test took it away"),
        "{text}"
    );
    assert_eq!(
        cache.poisoned().map(|cause| text.contains(cause)),
        Some(true)
    );
    assert!(matches!(
        cache.evict(1).unwrap_err(),
        Error::Poisoned { .. }
    ));
    // No page of the failed store is a hit on L2, and every page is accounted for.
    cache.check_invariants().unwrap();
    assert_eq!(cache.stats().stored_pages, 0);
    assert_eq!(cache.stats().leases, 0);
}
