// SPDX-License-Identifier: Apache-2.0
//! The planner alone: every order is acknowledged by the test.

use striata_core::config::WritePolicy;
use striata_core::prefix::{Namespace, PageKey};
use striata_core::{PageGeometry, PoolGeometry, PoolKind, Stripe};

use super::{Confirm, Lookup, Planner, PlannerConfig, Reserve};
use crate::error::Error;
use crate::lease::Lease;
use crate::order::{Ack, Order, OrderKind};

const W: u64 = 8;

fn planner(l1_pages: u64, l2_pages: u32) -> Planner {
    planner_with(l1_pages, l2_pages, |_| {})
}

fn planner_with(l1_pages: u64, l2_pages: u32, set: impl FnOnce(&mut PlannerConfig)) -> Planner {
    let stripe = Stripe::new(4, 2).unwrap();
    let page = PageGeometry::new(2, 8, 3).unwrap();
    let pool = PoolGeometry::owned(PoolKind::Striped, stripe, page, l1_pages * 2).unwrap();
    let mut config = PlannerConfig::new(pool, l2_pages);
    set(&mut config);
    Planner::new(config).unwrap()
}

fn namespace() -> Namespace {
    Namespace::from_digest(7)
}

/// Keys of a chain of pages that begins with `first`.
fn keys(first: u128, pages: usize) -> Vec<PageKey> {
    (0..pages as u128)
        .map(|i| PageKey::new(first << 32 | i))
        .collect()
}

fn granted(outcome: Reserve) -> Lease {
    match outcome {
        Reserve::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

fn reserve(planner: &mut Planner, keys: &[PageKey], tokens: u64) -> Lease {
    let lease = granted(planner.reserve(namespace(), keys, tokens).unwrap());
    planner.check_invariants().unwrap();
    lease
}

/// Takes all orders and acknowledges them whole.
fn settle(planner: &mut Planner) -> Vec<Order> {
    let mut orders = Vec::new();
    planner.take_orders(&mut orders);
    for order in &orders {
        let good_pages = u32::try_from(order.pages.len()).unwrap();
        planner
            .acknowledge(Ack {
                op: order.op,
                good_pages,
            })
            .unwrap();
        planner.check_invariants().unwrap();
    }
    orders
}

/// A request from start to end; returns its hits on L1 and L2.
fn run(planner: &mut Planner, keys: &[PageKey], tokens: u64) -> (u64, u64) {
    let lease = reserve(planner, keys, tokens);
    settle(planner);
    assert_eq!(planner.confirm(&lease).unwrap(), Confirm::Done);
    planner.insert(&lease, tokens, true).unwrap();
    planner.check_invariants().unwrap();
    let hits = (lease.hit_tokens_l1(), lease.hit_tokens_l2());
    drop(lease);
    planner.apply_releases().unwrap();
    settle(planner);
    planner.check_invariants().unwrap();
    hits
}

#[test]
fn a_second_request_hits_whole_pages_and_computes_one_token_at_least() {
    let mut planner = planner(16, 16);
    let a = keys(1, 4);
    assert_eq!(run(&mut planner, &a, 4 * W), (0, 0));
    assert_eq!(run(&mut planner, &a, 4 * W), (3 * W, 0));
    assert_eq!(run(&mut planner, &a, 4 * W + 1), (4 * W, 0));
    let found = planner.lookup(namespace(), &a, 4 * W);
    assert_eq!(
        found,
        Lookup {
            tokens_l1: 3 * W,
            tokens_l2: 0
        }
    );
}

/// Seen to fail if an acknowledged store keeps its pins.
#[test]
fn b50_lost_hit_pages_evicted_from_l1_are_hit_on_l2_and_loaded_back() {
    let mut planner = planner(6, 16);
    let (a, b) = (keys(1, 3), keys(2, 6));
    assert_eq!(run(&mut planner, &a, 3 * W + 1), (0, 0));
    assert_eq!(run(&mut planner, &b, 6 * W), (0, 0));
    let found = planner.lookup(namespace(), &a, 3 * W + 1);
    assert_eq!(
        found,
        Lookup {
            tokens_l1: 0,
            tokens_l2: 3 * W
        }
    );
    let lease = reserve(&mut planner, &a, 3 * W + 1);
    assert_eq!((lease.hit_tokens_l1(), lease.hit_tokens_l2()), (0, 3 * W));
    assert!(matches!(
        planner.confirm(&lease).unwrap(),
        Confirm::Pending { .. }
    ));
    assert!(matches!(
        planner.insert(&lease, 3 * W, true),
        Err(Error::Unconfirmed { .. })
    ));
    let orders = settle(&mut planner);
    let load = orders
        .iter()
        .find(|order| order.kind == OrderKind::Load)
        .unwrap();
    let targets: Vec<_> = load.pages.iter().map(|pair| pair.l1).collect();
    assert_eq!(
        targets,
        lease.pages()[..3],
        "loaded pages go where the prefix stands"
    );
    assert_eq!(planner.confirm(&lease).unwrap(), Confirm::Done);
    drop(lease);
    let found = planner.lookup(namespace(), &a, 3 * W + 1);
    assert_eq!(
        found,
        Lookup {
            tokens_l1: 3 * W,
            tokens_l2: 0
        }
    );
}

#[test]
fn a_page_is_no_hit_on_l2_before_its_store_is_acknowledged() {
    let mut planner = planner(4, 8);
    let a = keys(1, 4);
    let lease = reserve(&mut planner, &a, 4 * W);
    planner.insert(&lease, 4 * W, true).unwrap();
    drop(lease);
    let mut orders = Vec::new();
    planner.take_orders(&mut orders);
    assert_eq!(orders.len(), 1);
    // The pages are being read by the store: nothing can be evicted for a new request.
    let outcome = planner.reserve(namespace(), &keys(2, 4), 4 * W).unwrap();
    assert!(matches!(outcome, Reserve::NotNow { after } if after == orders[0].op));
    planner
        .acknowledge(Ack {
            op: orders[0].op,
            good_pages: 4,
        })
        .unwrap();
    assert!(matches!(
        planner.acknowledge(Ack {
            op: orders[0].op,
            good_pages: 4
        }),
        Err(Error::UnknownOperation { .. })
    ));
    let _lease = reserve(&mut planner, &keys(2, 4), 4 * W);
}

#[test]
fn a_failed_tail_of_a_load_is_never_matchable_and_comes_back_to_the_pool() {
    let mut planner = planner(6, 16);
    let (a, b) = (keys(1, 5), keys(2, 6));
    run(&mut planner, &a, 5 * W + 1);
    run(&mut planner, &b, 6 * W);
    let lease = reserve(&mut planner, &a, 5 * W + 1);
    let mut orders = Vec::new();
    planner.take_orders(&mut orders);
    planner
        .acknowledge(Ack {
            op: orders[0].op,
            good_pages: 2,
        })
        .unwrap();
    planner.check_invariants().unwrap();
    assert_eq!(
        planner.confirm(&lease).unwrap(),
        Confirm::LoadFailed {
            valid_tokens: 2 * W
        }
    );
    assert!(matches!(
        planner.insert(&lease, 5 * W, true),
        Err(Error::Unconfirmed { .. })
    ));
    let found = planner.lookup(namespace(), &a, 5 * W + 1);
    assert_eq!(
        found,
        Lookup {
            tokens_l1: 2 * W,
            tokens_l2: 3 * W
        }
    );
    drop(lease);
    planner.apply_releases().unwrap();
    planner.check_invariants().unwrap();
    let stats = planner.stats();
    assert_eq!(stats.free_pages_l1 + stats.resident_pages_l1, 6);
    assert_eq!((stats.loaded_pages, stats.failed_load_pages), (2, 3));
}

#[test]
fn two_requests_that_compute_the_same_pages_keep_one_copy() {
    let mut planner = planner(8, 0);
    let a = keys(1, 3);
    let first = reserve(&mut planner, &a, 3 * W);
    let second = reserve(&mut planner, &a, 3 * W);
    planner.insert(&first, 3 * W, true).unwrap();
    let inserted = planner.insert(&second, 3 * W, true).unwrap();
    assert_eq!((inserted.new_pages, inserted.duplicates.len()), (0, 3));
    assert_eq!(inserted.duplicates[1].kept, first.pages()[1]);
    assert_eq!(inserted.duplicates[1].duplicate, second.pages()[1]);
    // Inserting again reports nothing twice.
    assert!(
        planner
            .insert(&second, 3 * W, true)
            .unwrap()
            .duplicates
            .is_empty()
    );
    planner.check_invariants().unwrap();
    assert_eq!(planner.stats().free_pages_l1, 2);
    drop((first, second));
    planner.apply_releases().unwrap();
    planner.check_invariants().unwrap();
    assert_eq!(planner.stats().free_pages_l1, 5);
    assert_eq!(planner.evict(8).unwrap().freed, 3);
    assert_eq!(planner.stats().free_pages_l1, 8);
}

#[test]
fn the_load_back_threshold_and_quota_are_obeyed() {
    let set = |threshold, quota| {
        move |config: &mut PlannerConfig| {
            config.load_back_threshold = threshold;
            config.load_back_quota = quota;
        }
    };
    for (threshold, quota, loaded) in [
        (10, None, 3 * W),
        (25, None, 0),
        (24, None, 3 * W),
        (10, Some(2), 2 * W),
        (24, Some(2), 0),
    ] {
        let mut planner = planner_with(6, 16, set(threshold, quota));
        run(&mut planner, &keys(1, 3), 3 * W + 1);
        run(&mut planner, &keys(2, 6), 6 * W);
        let hits = run(&mut planner, &keys(1, 3), 3 * W + 1);
        assert_eq!(hits, (0, loaded), "threshold {threshold}, quota {quota:?}");
        let declined = planner.stats().declined_load_pages;
        assert_eq!(declined, 3 - loaded / W);
    }
}

#[test]
fn selective_write_through_stores_at_the_second_insert() {
    let mut planner = planner_with(8, 8, |config| {
        config.write_policy = WritePolicy::WriteThroughSelective;
    });
    let a = keys(1, 2);
    run(&mut planner, &a, 2 * W);
    assert_eq!(planner.stats().stored_pages, 0);
    run(&mut planner, &a, 2 * W);
    assert_eq!(planner.stats().stored_pages, 2);
}

#[test]
fn a_request_that_cannot_fit_is_answered_with_numbers_and_takes_nothing() {
    let mut planner = planner(4, 4);
    let outcome = planner.reserve(namespace(), &keys(1, 5), 5 * W).unwrap();
    let Reserve::OutOfSpace {
        needed: 5,
        available: 4,
        evictable: 0,
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    let held = reserve(&mut planner, &keys(2, 3), 3 * W);
    let outcome = planner.reserve(namespace(), &keys(1, 2), 2 * W).unwrap();
    assert!(matches!(
        outcome,
        Reserve::OutOfSpace {
            needed: 2,
            available: 1,
            evictable: 0
        }
    ));
    planner.check_invariants().unwrap();
    drop(held);
    reserve(&mut planner, &keys(1, 4), 4 * W);
}

#[test]
fn calls_with_wrong_arguments_name_them() {
    let mut planner = planner_with(4, 0, |config| config.max_leases = 1);
    let error = |outcome: Result<Reserve, Error>| outcome.unwrap_err().to_string();
    let ns = namespace();
    assert!(error(planner.reserve(ns, &[], 0)).contains("0 tokens"));
    assert!(error(planner.reserve(ns, &keys(1, 1), 2 * W)).contains("1 page keys"));
    for max_leases in [0, u32::MAX] {
        let config = PlannerConfig {
            max_leases,
            ..planner.config().clone()
        };
        let refused = Planner::new(config).unwrap_err().to_string();
        assert!(refused.contains(&max_leases.to_string()), "{refused}");
    }
    let lease = reserve(&mut planner, &keys(1, 2), 2 * W);
    assert!(error(planner.reserve(ns, &keys(1, 2), 2 * W)).contains("1 leases"));
    let over = planner.insert(&lease, 3 * W, true).unwrap_err().to_string();
    assert!(over.contains("24 tokens") && over.contains("16"), "{over}");
}

#[test]
fn a_lease_grows_chunk_by_chunk() {
    let mut planner = planner(8, 8);
    let a = keys(1, 4);
    let mut lease = reserve(&mut planner, &a[..1], W);
    assert!(planner.extend(&mut lease, 4 * W).unwrap().is_none());
    assert_eq!(lease.pages().len(), 4);
    planner.append_keys(&lease, &a[1..]).unwrap();
    planner.insert(&lease, 2 * W, false).unwrap();
    planner.insert(&lease, 4 * W, true).unwrap();
    planner.check_invariants().unwrap();
    // It can never grow beyond the pool, whatever its stores will free.
    for _ in 0..2 {
        let outcome = planner.extend(&mut lease, 9 * W).unwrap();
        assert!(matches!(
            outcome,
            Some(Reserve::OutOfSpace {
                needed: 5,
                available: 4,
                ..
            })
        ));
        settle(&mut planner);
    }
}
