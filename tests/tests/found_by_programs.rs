// SPDX-License-Identifier: Apache-2.0
//! Faults that random programs have found, each as the shortest story of it.

use striata::core::prefix::PageKey;
use striata::{Confirm, EventTier, KvEvent, OrderKind, Reserve};
use striata_tests::planned::{NAMESPACE, Planned, W, chain};

/// The first `shared` pages of chain 1, and then `own` pages of another.
fn branch(shared: usize, other: u32, own: usize) -> Vec<PageKey> {
    [chain(1, shared), chain(other, own)].concat()
}

fn empty_l1(rig: &mut Planned) {
    while rig.planner.evict(64).unwrap().freed > 0 {
        rig.settle();
    }
}

/// Under write-back, making room for a request stored pages through the buffers that held its hits:
/// the page table had lost them.
#[test]
fn a_write_back_eviction_keeps_the_table_of_its_request() {
    let mut rig = Planned::write_back(8, 4);
    rig.cache(&chain(1, 2));
    rig.cache(&chain(2, 4));
    let hit = rig.reserve(&chain(1, 1), W + 1);
    let kept = hit.pages()[0];
    rig.release(hit);
    // A page leaves for L2 first; what is granted then begins with the page that was hit.
    let keys = branch(1, 3, 3);
    let first = rig.ask(&keys, 4 * W);
    assert!(matches!(first, Reserve::NotNow { .. }), "{first:?}");
    rig.settle();
    let lease = rig.reserve(&keys, 4 * W);
    assert_eq!((lease.hit_tokens_l1(), lease.pages().len()), (W, 4));
    assert_eq!(lease.pages()[0], kept);
    rig.insert(&lease);
    rig.release(lease);
    assert_eq!(rig.pages(&keys), (4, 0));
}

/// A page without a copy, below one that has a copy, hid the latter from eviction: with L2 full a
/// request that fits was refused although nothing was held.
#[test]
fn a_write_back_eviction_goes_on_above_what_it_dropped() {
    let mut rig = Planned::write_back(6, 1);
    let (a, b) = (chain(1, 5), chain(2, 2));
    for (keys, tokens) in [
        (&a[..], 5 * W + 1),
        (&b[..1], W + 1),
        (&b[..], 2 * W),
        (&b[..1], W + 1),
        (&b[..], 2 * W + 1),
        (&a[..], 5 * W + 1),
    ] {
        let lease = loop {
            match rig.ask(keys, tokens) {
                Reserve::Granted(lease) => break lease,
                Reserve::NotNow { .. } => rig.settle(),
                refused => panic!("{refused:?}"),
            }
        };
        rig.settle();
        rig.insert(&lease);
        rig.release(lease);
    }
}

/// A router was told that pages left L1, and never that a load had brought them back.
#[test]
fn loads_are_told_to_routers() {
    let mut rig = Planned::with(4, 4, |config| config.events = true);
    let keys = chain(1, 3);
    rig.cache(&keys);
    empty_l1(&mut rig);
    let mut events = Vec::new();
    rig.planner.take_events(&mut events);
    events.clear();
    let lease = rig.reserve(&keys, 3 * W + 1);
    let load = rig.only(OrderKind::Load);
    rig.planner.take_events(&mut events);
    assert_eq!(events, [], "a page in flight is on no tier");
    rig.end(load.op, 2);
    rig.planner.take_events(&mut events);
    let [
        KvEvent::Stored {
            tier: EventTier::L1,
            parent: None,
            pages,
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(pages.iter().map(|key| key.0).collect::<Vec<_>>(), keys[..2]);
    rig.release(lease);
}

/// A request that computes what another's load is bringing inserts nothing on the pages in flight:
/// if the load failed, its own pages went with them.
#[test]
fn nothing_is_inserted_on_pages_in_flight() {
    for good in 0..=2 {
        let mut rig = Planned::new(12, 4);
        rig.cache(&chain(1, 2));
        empty_l1(&mut rig);
        let loading = rig.reserve(&chain(1, 2), 2 * W + 1);
        let load = rig.only(OrderKind::Load);
        // The load is given up, but runs: its pages are no hit any more.
        rig.release(loading);
        let keys = branch(2, 7, 1);
        let lease = rig.reserve(&keys, 3 * W);
        assert_eq!(lease.hit_tokens(), 0);
        assert_eq!(rig.planner.confirm(&lease).unwrap(), Confirm::Done);
        let inserted = rig.planner.insert(&lease, 3 * W, true).unwrap();
        assert_eq!((inserted.new_pages, inserted.deferred), (0, 3));
        rig.end(load.op, good);
        let inserted = rig.planner.insert(&lease, 3 * W, true).unwrap();
        assert_eq!(inserted.deferred, 0);
        assert_eq!(
            (inserted.new_pages, inserted.duplicates.len()),
            (3 - good, good)
        );
        rig.settle();
        assert_eq!(rig.pages(&keys), (3, 0));
        rig.release(lease);
        empty_l1(&mut rig);
        assert_eq!(rig.used().0, 0);
    }
}

/// A load whose pages stand on those of a load that fails brings nothing, whatever it copied.
#[test]
fn a_load_on_a_failed_load_fails_with_it() {
    for first_ends_last in [false, true] {
        let mut rig = Planned::with(8, 8, |config| config.load_back_quota = Some(2));
        let keys = chain(1, 4);
        rig.cache(&keys);
        empty_l1(&mut rig);
        let above = rig
            .planner
            .load(NAMESPACE, &keys, 4 * W + 1)
            .unwrap()
            .and_then(Reserve::granted)
            .unwrap();
        let first = rig.only(OrderKind::Load);
        let below = rig
            .planner
            .load(NAMESPACE, &keys, 4 * W + 1)
            .unwrap()
            .and_then(Reserve::granted)
            .unwrap();
        rig.collect();
        assert_eq!(below.loads().len(), 2);
        let second = below.loads()[1];
        if first_ends_last {
            rig.end(second, 2);
            rig.end(first.op, 1);
        } else {
            rig.end(first.op, 1);
            rig.end(second, 2);
        }
        let failed = Confirm::LoadFailed { valid_tokens: W };
        assert_eq!(rig.planner.confirm(&above).unwrap(), failed);
        assert_eq!(rig.planner.confirm(&below).unwrap(), failed);
        assert_eq!(rig.pages(&keys), (1, 3));
        rig.release(above);
        rig.release(below);
        assert_eq!(rig.used(), (1, 4));
    }
}
