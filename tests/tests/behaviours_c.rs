// SPDX-License-Identifier: Apache-2.0
//! Section C of the required behaviours: lifetimes of pages under asynchronous copies, as the
//! planner decides them. With real bytes, 24 to 26 stand beside the transfer engine.

use striata::{Confirm, OrderKind, Reserve};
use striata_tests::planned::{Planned, W, chain};

/// Pushes everything that can go off L1.
fn empty_l1(rig: &mut Planned) {
    while rig.planner.evict(64).unwrap().freed > 0 {
        rig.settle();
    }
}

/// 21: Source pages of a load are locked from selection to acknowledgement: L2 holds A and X; while
/// A is being loaded, stores of B take X's pages and never A's.
///
/// Seen to fail if the sources of a load are not pinned.
#[test]
fn b21_l2_lifetime_of_load_sources() {
    let mut rig = Planned::new(8, 4);
    let (a, x, b, c) = (chain(1, 2), chain(2, 2), chain(3, 2), chain(4, 2));
    rig.cache(&a);
    rig.cache(&x);
    empty_l1(&mut rig);
    let lease = rig.reserve(&a, 2 * W + 1);
    let load = rig.only(OrderKind::Load);
    rig.compute(&b);
    assert_eq!(rig.pages(&x), (0, 0), "X made room");
    let store_b = rig.only(OrderKind::Store);
    assert!(
        store_b
            .pages
            .iter()
            .all(|pair| load.pages.iter().all(|from| from.l2 != pair.l2))
    );
    // What is left of L2 is being read or written: C is not stored.
    rig.compute(&c);
    assert_eq!(rig.only(OrderKind::Store).op, store_b.op);
    assert_eq!(rig.planner.stats().skipped_store_pages, 2);
    rig.end(load.op, 2);
    assert_eq!(rig.planner.confirm(&lease).unwrap(), Confirm::Done);
    rig.end(store_b.op, 2);
    rig.release(lease);
    // A's copies can go again.
    rig.cache(&chain(5, 4));
    assert_eq!(
        rig.planner.stats().free_pages_l2 + rig.planner.stats().resident_pages_l2,
        4
    );
    assert!(rig.pages(&chain(5, 4)).0 == 4 && rig.planner.stats().stored_pages >= 8);
}

/// 22: Host pages that a store writes are pinned until its acknowledgement: with two pages of L2 and
/// three evictions in one call, the third page is not stored over the first two.
///
/// Seen to fail if the sources of a store are not pinned, or what finds no room is not dropped.
#[test]
fn b22_l2_lifetime_of_store_targets() {
    let mut rig = Planned::write_back(4, 2);
    for seed in 1..=3 {
        rig.cache(&chain(seed, 1));
    }
    let room = rig.planner.evict(3).unwrap();
    rig.collect();
    assert_eq!(
        (room.freeing, room.freed),
        (2, 1),
        "the third has no room on L2 and is dropped"
    );
    let store = rig.only(OrderKind::Store);
    let targets: Vec<_> = store.pages.iter().map(|pair| pair.l2).collect();
    assert_eq!(targets.len(), 2);
    assert_ne!(targets[0], targets[1]);
    rig.end(store.op, 2);
    rig.planner.evict(2).unwrap();
    rig.collect();
    let on_l2: Vec<_> = (1..=3).map(|seed| rig.pages(&chain(seed, 1))).collect();
    assert_eq!(
        on_l2.iter().filter(|pages| **pages == (0, 1)).count(),
        2,
        "{on_l2:?}"
    );
    assert_eq!(
        on_l2.iter().filter(|pages| **pages == (0, 0)).count(),
        1,
        "{on_l2:?}"
    );
}

/// 23: A page is on L2 only with an acknowledged copy: with all of L2 taken, write-back eviction
/// drops, says so, and leaves a miss.
///
/// Seen to fail if what finds no room on L2 is not dropped.
#[test]
fn b23_failed_backup_leaves_a_miss() {
    let mut rig = Planned::write_back(4, 1);
    let (held, a) = (chain(1, 1), chain(2, 1));
    rig.cache(&held);
    rig.planner.evict(1).unwrap();
    rig.settle();
    rig.planner.evict(1).unwrap();
    assert_eq!(rig.pages(&held), (0, 1));
    let lease = rig.reserve(&held, W + 1);
    let load = rig.only(OrderKind::Load);
    rig.compute(&a);
    let free = rig.free().0;
    let room = rig.planner.evict(1).unwrap();
    rig.collect();
    assert_eq!((room.freed, room.freeing, room.after), (1, 0, None));
    assert_eq!(rig.pages(&a), (0, 0));
    assert_eq!(rig.free().0, free + 1);
    rig.end(load.op, 1);
    rig.release(lease);
}

/// 23, the other failure: a store that brings nothing leaves the page on L1 alone.
///
/// Seen to fail if pages that a store did not bring count as copies.
#[test]
fn b23_failed_store_is_no_copy() {
    let mut rig = Planned::new(4, 4);
    let a = chain(1, 3);
    rig.compute(&a);
    let store = rig.only(OrderKind::Store);
    rig.end(store.op, 1);
    empty_l1(&mut rig);
    assert_eq!(rig.pages(&a), (0, 1));
    assert_eq!(rig.planner.stats().failed_store_pages, 2);
    assert_eq!(rig.used(), (0, 1));
}

/// 24: L1 pages that a copy reads are not in the free list, though the request has ended.
///
/// Seen to fail if the sources of a store are not pinned.
#[test]
fn b24_l1_lifetime_of_store_sources() {
    let mut rig = Planned::new(8, 8);
    rig.compute(&chain(1, 3));
    let store = rig.only(OrderKind::Store);
    rig.planner.evict(8).unwrap();
    assert_eq!(rig.free().0, 5);
    let outcome = rig.ask(&chain(2, 8), 8 * W);
    assert!(
        matches!(outcome, Reserve::NotNow { after } if after == store.op),
        "{outcome:?}"
    );
    rig.end(store.op, 3);
    rig.planner.evict(8).unwrap();
    assert_eq!(rig.free().0, 8);
}

/// 24, the other half: pages of a live page table are never handed out.
///
/// Seen to fail if eviction does not look at locks.
#[test]
fn b24_pages_of_a_live_table_stay() {
    let mut rig = Planned::new(8, 8);
    rig.cache(&chain(1, 3));
    let lease = rig.reserve(&chain(1, 4), 4 * W);
    rig.planner.evict(8).unwrap();
    let outcome = rig.ask(&chain(2, 5), 5 * W);
    let Reserve::OutOfSpace {
        needed: 5,
        available: 4,
        evictable: 0,
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    rig.release(lease);
    rig.reserve(&chain(2, 5), 5 * W);
}

/// 26: Targets of a load in flight are not given out after an abort, until the load has ended; then
/// they come back once.
///
/// Seen to fail if an order that nobody has seen is not taken back, or pages of a failed load are not given back.
#[test]
fn b26_abort_quarantines_load_targets() {
    for started in [true, false] {
        let mut rig = Planned::new(8, 8);
        rig.cache(&chain(1, 3));
        empty_l1(&mut rig);
        let lease = rig.reserve_without_collecting(&chain(1, 3), 3 * W + 1);
        if started {
            let load = rig.only(OrderKind::Load);
            rig.release(lease);
            let outcome = rig.ask(&chain(2, 6), 6 * W);
            assert!(
                matches!(outcome, Reserve::NotNow { after } if after == load.op),
                "{outcome:?}"
            );
            let others = rig.reserve(&chain(3, 5), 5 * W);
            assert!(
                load.pages
                    .iter()
                    .all(|pair| !others.pages().contains(&pair.l1))
            );
            rig.end(load.op, 0);
            rig.release(others);
        } else {
            // Nobody has seen the order yet: the pages are free at once.
            rig.release(lease);
            assert!(rig.open.is_empty());
        }
        assert_eq!(rig.pages(&chain(1, 3)), (0, 3), "L2 keeps them");
        assert_eq!(rig.planner.stats().cancelled_loads, 1);
        rig.reserve(&chain(4, 8), 8 * W);
    }
}
