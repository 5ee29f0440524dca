// SPDX-License-Identifier: Apache-2.0
//! A blocking reservation waits for copies that run, and never for one that nobody has started.

use striata::core::prefix::{Namespace, PageKey};
use striata::core::{PageGeometry, PoolGeometry, PoolKind, Stripe};
use striata::gpu::Device;
use striata::gpu::sim::{SimConfig, SimDevice};
use striata::{Confirm, Error, HiCache, HiCacheSetup, Lease, PlannerConfig, Prefix, Reserve};

const NAMESPACE: Namespace = Namespace::from_digest(1);

fn keys(first: u32, pages: usize) -> Vec<PageKey> {
    (0..pages as u128)
        .map(|i| PageKey::new(u128::from(first) << 32 | i))
        .collect()
}

fn granted(outcome: Reserve) -> Lease {
    match outcome {
        Reserve::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_load_that_waits_for_its_start_does_not_block_another_reservation_for_ever() {
    let stripe = Stripe::new(2, 4).unwrap();
    let page = PageGeometry::new(4, 16, 3).unwrap();
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 4 * 4).unwrap();
    let mut planner = PlannerConfig::new(pool, 16);
    planner.load_back_threshold = 1;
    let devices: Vec<_> = (0..2)
        .map(|rank| SimDevice::new(SimConfig::new(rank)))
        .collect();
    let streams: Vec<_> = devices
        .iter()
        .map(|d| d.stream("compute").unwrap())
        .collect();
    let mut cache = HiCache::new(&HiCacheSetup::new(planner), devices).unwrap();
    let w = stripe.widened_page();
    let (a, b) = (keys(1, 3), keys(2, 2));
    let of_a = Prefix::Keys {
        keys: &a,
        tokens: 3 * w + 1,
    };
    let of_b = Prefix::Keys {
        keys: &b,
        tokens: 2 * w,
    };
    let lease = granted(cache.reserve(NAMESPACE, of_a).unwrap());
    cache.start_loads().unwrap();
    cache.step_end(&streams).unwrap();
    cache.insert(&lease, 3 * w).unwrap();
    drop(lease);
    cache.drain().unwrap();
    cache.evict(4).unwrap();
    // The load of `a` takes all of L1 and is planned only.
    let lease = granted(cache.reserve(NAMESPACE, of_a).unwrap());
    let planned = cache.planned_loads()[0].op;
    let outcome = cache.reserve_blocking(NAMESPACE, of_b).unwrap();
    assert!(
        matches!(outcome, Reserve::NotNow { after } if after == planned),
        "{outcome:?}"
    );
    let early = cache.confirm_blocking(&lease).unwrap_err();
    assert!(
        matches!(early, Error::NotStarted { op } if op == planned),
        "{early}"
    );
    cache.start_loads().unwrap();
    assert_eq!(cache.confirm_blocking(&lease).unwrap(), Confirm::Done);
    cache.step_end(&streams).unwrap();
    drop(lease);
    granted(cache.reserve_blocking(NAMESPACE, of_b).unwrap());
}

/// Without a rank nothing would ever end, and a blocking call would wait for ever.
#[test]
fn an_engine_of_no_ranks_is_refused() {
    let stripe = Stripe::new(2, 4).unwrap();
    let page = PageGeometry::new(4, 16, 3).unwrap();
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, 4 * 4).unwrap();
    let setup = HiCacheSetup::new(PlannerConfig::new(pool, 4));
    let refused = HiCache::<SimDevice>::new(&setup, Vec::new()).unwrap_err();
    assert!(refused.to_string().contains("one rank"), "{refused}");
}
