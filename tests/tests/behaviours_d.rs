// SPDX-License-Identifier: Apache-2.0
//! Section D of the required behaviours: accounting, locks and leaks, through the planner. 32 is
//! a program of its own, `bookkeeping.rs`, since it looks at the process's memory. The allocator's and the index's own halves stand beside them.

use striata::{Ack, Confirm, Error, Order, OrderKind, Reserve};
use striata_tests::planned::{NAMESPACE, Planned, W, chain};

/// 27: Each acknowledgement releases exactly the locks that its own record took, whatever path
/// drains it.
///
/// Seen to fail if an acknowledged store keeps its pins, or counts failed pages as copies.
#[test]
fn b27_lock_balance_over_every_order_of_acknowledgements() {
    for reversed in [false, true] {
        for good in 0..=2 {
            let mut rig = Planned::write_back(4, 4);
            rig.cache(&chain(1, 1));
            rig.cache(&chain(2, 1));
            rig.planner.evict(1).unwrap();
            rig.planner.evict(1).unwrap();
            rig.collect();
            let mut ops: Vec<_> = rig.open.keys().copied().collect();
            assert_eq!(ops.len(), 2);
            if reversed {
                ops.reverse();
            }
            for (at, op) in ops.into_iter().enumerate() {
                rig.end(op, usize::from(at < good));
            }
            let stats = rig.planner.stats();
            assert_eq!(stats.free_pages_l1 + stats.resident_pages_l1, 4);
            assert_eq!(stats.resident_pages_l2, good as u64);
            // Drained inside evict: what was stored leaves L1 for L2, the rest is stored again.
            let room = rig.planner.evict(2).unwrap();
            assert_eq!((room.freed, room.freeing), (good, 2 - good));
            rig.settle();
            rig.planner.evict(2).unwrap();
            rig.settle();
            assert_eq!(rig.used(), (0, 2));
        }
    }
}

/// 28: A page has one owner: two requests compute the same three pages side by side.
///
/// Seen to fail if the lease forgets its duplicates.
#[test]
fn b28_duplicates_stay_with_their_request_until_it_ends() {
    let mut rig = Planned::new(8, 0);
    let keys = chain(1, 3);
    let (first, second) = (rig.reserve(&keys, 3 * W), rig.reserve(&keys, 3 * W));
    rig.insert(&first);
    let inserted = rig.planner.insert(&second, 3 * W, true).unwrap();
    assert_eq!((inserted.new_pages, inserted.duplicates.len()), (0, 3));
    rig.check();
    assert_eq!(rig.free().0, 2);
    rig.release(second);
    assert_eq!(rig.free().0, 5);
    // Split at page 1, hold and let go each half, then evict all.
    let head = rig.reserve(&keys[..1], W + 1);
    let whole = rig.reserve(&keys, 3 * W);
    rig.release(first);
    rig.release(whole);
    rig.release(head);
    assert_eq!(rig.planner.evict(8).unwrap().freed, 3);
    assert_eq!(rig.free().0, 8);
}

/// 29: An acknowledgement counts once, and a late one of a cancelled operation changes nothing.
///
/// Seen to fail if failed pages of a store count as copies, or if an ended load may end again.
#[test]
fn b29_late_and_repeated_acknowledgements_are_errors_without_effect() {
    let mut rig = Planned::new(8, 8);
    rig.compute(&chain(1, 8));
    let store = rig.only(OrderKind::Store);
    rig.end(store.op, 5);
    let before = (rig.free(), rig.planner.stats());
    for good_pages in [0, 5, 8] {
        let late = rig.planner.acknowledge(Ack {
            op: store.op,
            good_pages,
        });
        assert!(matches!(late, Err(Error::UnknownOperation { op }) if op == store.op));
    }
    assert_eq!((rig.free(), rig.planner.stats()), before);
    assert_eq!(rig.used().1, 5);
    // A load that has failed is kept for the lease that points at it; it has ended all the same.
    while rig.planner.evict(64).unwrap().freed > 0 {}
    let lease = rig.reserve(&chain(1, 5), 5 * W + 1);
    let op = rig.only(OrderKind::Load).op;
    let beyond = rig.planner.acknowledge(Ack { op, good_pages: 6 });
    assert!(
        matches!(
            beyond,
            Err(Error::AckTooLarge {
                pages: 5,
                good: 6,
                ..
            })
        ),
        "{beyond:?}"
    );
    rig.end(op, 3);
    let before = (rig.free(), rig.pages(&chain(1, 5)));
    let late = rig.planner.acknowledge(Ack { op, good_pages: 5 });
    assert!(
        matches!(late, Err(Error::UnknownOperation { .. })),
        "{late:?}"
    );
    assert_eq!((rig.free(), rig.pages(&chain(1, 5))), before);
    rig.release(lease);
    assert_eq!(rig.used(), (3, 5));
}

/// 30: Abort at any stage returns every reservation: queued, started, after k good pages, between
/// the end and the confirmation, twice; 10,000 times. With copies that run, the same stands in
/// `behaviours_bytes.rs`.
///
/// Seen to fail if pages of a failed load are not given back, or a cancelled order stays planned.
#[test]
fn b30_abort_at_any_stage_leaks_nothing() {
    let mut rig = Planned::new(20, 20);
    let keys = chain(1, 8);
    rig.cache(&keys);
    while rig.planner.evict(64).unwrap().freed > 0 {}
    let start = rig.free();
    assert_eq!(start, (20, 12));
    for round in 0..10_000 {
        // Queued: the order was never taken.
        let lease = rig.reserve_without_collecting(&keys, 8 * W + 1);
        rig.release(lease);
        assert_eq!(rig.free(), start, "round {round}: queued");
        for good in 0..=8 {
            // Started, aborted before or after its end.
            for before_the_end in [true, false] {
                let lease = rig.reserve(&keys, 8 * W + 1);
                let op = rig.only(OrderKind::Load).op;
                if before_the_end {
                    rig.release(lease);
                    rig.end(op, good);
                } else {
                    rig.end(op, good);
                    rig.release(lease);
                }
                while rig.planner.evict(64).unwrap().freed > 0 {}
                assert_eq!(rig.free(), start, "round {round}: {good} good pages");
                assert_eq!(rig.pages(&keys), (0, 8));
            }
        }
        // Aborted twice: a dropped lease is gone.
        rig.planner.apply_releases().unwrap();
    }
    assert_eq!(rig.planner.stats().leases, 0);
    assert_eq!(rig.planner.stats().operations_in_flight, 0);
}

/// 31: evict(n) frees exactly n if n are evictable, else all that are, and returns the number.
///
/// Seen to fail if a released lease keeps its lock.
#[test]
fn b31_evict_returns_the_true_number() {
    let mut rig = Planned::new(16, 0);
    for seed in 0..8 {
        rig.cache(&chain(seed + 1, 2));
    }
    assert_eq!(rig.planner.evict(3).unwrap().freed, 3);
    assert_eq!(rig.pages(&chain(1, 2)), (0, 0));
    assert_eq!(
        rig.pages(&chain(2, 2)),
        (1, 0),
        "the deepest page went first"
    );
    let held: Vec<_> = (2..=8)
        .map(|seed| {
            rig.planner
                .load(NAMESPACE, &chain(seed, 1), W + 1)
                .unwrap()
                .and_then(Reserve::granted)
                .unwrap()
        })
        .collect();
    let evictable = 6;
    assert_eq!(rig.planner.evict(64).unwrap().freed, evictable);
    assert_eq!(
        rig.planner.evict(64).unwrap().freed,
        0,
        "all that is left is held"
    );
    for lease in held {
        rig.release(lease);
    }
    rig.planner.evict(64).unwrap();
    assert_eq!(rig.free().0, 16);
}

/// 33: Stores in flight have a cap: of 10,000 pages 64 are being stored and the others are told
/// so, each can still be stored later, and a load in the middle of it starts and ends.
///
/// Seen to fail if pages in flight do not count against the cap.
#[test]
fn b33_back_pressure_on_stores() {
    const PAGES: u32 = 10_000;
    let l1_pages = u64::from(PAGES) + 10;
    let mut rig = Planned::with(l1_pages, PAGES + 10, |config| {
        config.max_store_pages = Some(64);
    });
    let cold = chain(PAGES + 1, 2);
    rig.cache(&cold);
    rig.planner.evict(2).unwrap();
    assert_eq!(rig.pages(&cold), (0, 2));
    let mut orders = Vec::new();
    for seed in 0..PAGES {
        let keys = chain(seed + 1, 1);
        let lease = rig.reserve_without_collecting(&keys, W);
        let inserted = rig.planner.insert(&lease, W, true).unwrap();
        assert_eq!(inserted.stored.deferred > 0, seed >= 64, "{inserted:?}");
        drop(lease);
        rig.planner.apply_releases().unwrap();
        rig.planner.take_orders(&mut orders);
        assert!(orders.len() <= 64);
    }
    rig.check();
    assert_eq!(
        rig.planner.stats().deferred_store_pages,
        u64::from(PAGES) - 64
    );
    for order in orders {
        rig.open.insert(order.op, order);
    }
    // A load is not held up by them: it is ordered and ends while all 64 are in flight.
    let lease = rig.reserve(&cold, 2 * W + 1);
    let load = rig.only(OrderKind::Load);
    rig.end(load.op, 2);
    assert_eq!(rig.planner.confirm(&lease).unwrap(), Confirm::Done);
    rig.release(lease);
    assert_eq!(rig.open.len(), 64);
    rig.settle();
    // The others, in turn.
    for seed in 64..PAGES {
        let keys = chain(seed + 1, 1);
        let lease = rig.reserve_without_collecting(&keys, W + 1);
        assert_eq!(rig.planner.store(&lease).unwrap().pages, 1);
        drop(lease);
        rig.planner.apply_releases().unwrap();
        let mut orders = Vec::new();
        rig.planner.take_orders(&mut orders);
        for Order { op, pages, .. } in orders {
            assert_eq!(pages.len(), 1);
            rig.planner.acknowledge(Ack { op, good_pages: 1 }).unwrap();
        }
    }
    rig.check();
    assert_eq!(rig.planner.stats().resident_pages_l2, u64::from(PAGES) + 2);
    let lease = rig.reserve(&chain(1, 1), W + 1);
    assert_eq!(lease.hit_tokens_l1(), W);
    assert_eq!(
        rig.planner.store(&lease).unwrap().pages,
        0,
        "nothing is stored twice"
    );
}
