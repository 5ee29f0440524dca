// SPDX-License-Identifier: Apache-2.0
//! Which stores wait, which are hurried, and in which order their pages go.

use striata::core::config::WritePolicy;
use striata::core::prefix::PageKey;
use striata::{Error, EventTier, KvEvent, OrderKind, Planner, PlannerConfig, Reserve};
use striata_tests::planned::{Planned, W, chain};

fn write_back(config: &mut PlannerConfig) {
    config.write_policy = WritePolicy::WriteBack;
}

/// A page whose store was put off is stored by a later step while it is still on L1, without a lease
/// and without another insert.
///
/// Seen to fail if maintain does not look at what was put off.
#[test]
fn what_was_put_off_is_stored_once_there_is_room_in_flight() {
    let mut rig = Planned::with(8, 8, |config| config.max_store_pages = Some(1));
    let keys = chain(1, 4);
    rig.compute(&keys);
    assert_eq!(rig.planner.stats().deferred_store_pages, 3);
    let mut order: Vec<_> = rig.open.values().map(|order| order.pages[0].l1).collect();
    for _ in 0..3 {
        rig.planner.maintain().unwrap();
        assert_eq!(rig.open.len(), 1, "the cap holds");
        rig.settle();
        rig.planner.maintain().unwrap();
        order.push(rig.only(OrderKind::Store).pages[0].l1);
    }
    rig.settle();
    rig.planner.maintain().unwrap();
    rig.collect();
    assert!(rig.open.is_empty(), "nothing is stored twice");
    rig.planner.evict(8).unwrap();
    assert_eq!(rig.pages(&keys), (0, 4));
    assert_eq!(rig.planner.stats().deferred_store_pages, 3);
    // Parents before children.
    let lease = rig.reserve(&keys, 4 * W + 1);
    let sources = rig.only(OrderKind::Load).pages;
    assert_eq!((sources.len(), order.len()), (4, 4));
    drop(lease);
}

/// A page that has left L1 is not stored, and neither is what took its place.
///
/// Seen to fail if an eviction leaves a page among those that were put off.
#[test]
fn what_has_left_l1_is_not_stored() {
    let mut rig = Planned::with(4, 8, |config| {
        config.max_store_pages = Some(1);
        config.write_policy = WritePolicy::WriteThroughSelective;
    });
    let keys = chain(1, 4);
    for _ in 0..2 {
        rig.compute(&keys);
    }
    // The leaf made room for the second request, and was inserted once.
    assert_eq!(rig.planner.stats().deferred_store_pages, 2);
    // The leaf and the two that wait are evicted; others take their pages, inserted once: not due.
    rig.planner.evict(3).unwrap();
    rig.compute(&chain(2, 3));
    rig.settle();
    rig.planner.maintain().unwrap();
    rig.collect();
    assert!(rig.open.is_empty(), "{:?}", rig.open);
}

/// A store for which a request begins to wait is raised, once; one for which nobody waits is not
/// urgent.
///
/// Seen to fail if no store is raised.
#[test]
fn a_store_that_a_request_waits_for_inherits_its_priority() {
    let mut rig = Planned::with(4, 8, |config| {
        write_back(config);
        config.free_watermark = 2;
    });
    rig.cache(&chain(1, 2));
    rig.cache(&chain(3, 2));
    rig.planner.maintain().unwrap();
    let op = rig.only(OrderKind::Store).op;
    assert!(!rig.open[&op].urgent && rig.raised.is_empty());
    for _ in 0..2 {
        let asked = rig.ask(&chain(2, 1), W);
        assert!(
            matches!(asked, Reserve::NotNow { after } if after == op),
            "{asked:?}"
        );
        assert_eq!(rig.raised, [op]);
    }
    // What the request itself begins is urgent from the start, with what went before it.
    let asked = rig.ask(&chain(2, 4), 4 * W);
    let last = *rig.open.keys().last().unwrap();
    assert!(
        matches!(asked, Reserve::NotNow { after } if after == last),
        "{asked:?}"
    );
    assert!(last > op && rig.open[&last].urgent);
    assert_eq!(rig.raised, [op]);
    // A write-through store is waited for like any.
    let mut rig = Planned::new(4, 8);
    rig.compute(&chain(1, 4));
    let op = rig.only(OrderKind::Store).op;
    assert!(!rig.open[&op].urgent);
    assert!(matches!(rig.ask(&chain(2, 1), W), Reserve::NotNow { after } if after == op));
    assert_eq!(rig.raised, [op]);
}

/// Under write-back pages are listed from the deepest on and stored parents before children: what a
/// store brings in part has its ancestors on L2.
///
/// Seen to fail if a store begins with the deepest page.
#[test]
fn write_back_stores_parents_before_children() {
    let keys = chain(1, 4);
    let mut rig = Planned::with(4, 8, |config| {
        write_back(config);
        config.events = true;
    });
    rig.cache(&keys);
    rig.planner.take_events(&mut Vec::new());
    rig.planner.evict(3).unwrap();
    let store = rig.only(OrderKind::Store);
    rig.end(store.op, 2);
    let mut events = Vec::new();
    rig.planner.take_events(&mut events);
    let stored: Vec<(Option<PageKey>, PageKey)> = events
        .iter()
        .map(|event| match event {
            KvEvent::Stored {
                tier: EventTier::L2,
                parent,
                pages,
            } => (parent.map(|key| key.0), pages[0].0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(stored, [(Some(keys[0]), keys[1]), (Some(keys[1]), keys[2])]);
    // The leaf did not come: it is asked for again, and then all three leave.
    rig.planner.evict(3).unwrap();
    assert_eq!(rig.only(OrderKind::Store).pages.len(), 1);
    rig.settle();
    rig.planner.evict(3).unwrap();
    assert_eq!(rig.pages(&keys), (1, 3));
}

/// Nothing is lost ahead of need: where L2 has no room, the watermark waits. A request that needs
/// the room gets it, and evict says what it cost.
///
/// Seen to fail if maintain drops what has no copy, or if a page that is put off again counts again.
#[test]
fn the_watermark_drops_nothing() {
    let mut rig = Planned::with(8, 4, |config| {
        write_back(config);
        config.free_watermark = 4;
    });
    let old = chain(1, 4);
    rig.cache(&old);
    rig.cache(&chain(2, 4));
    for _ in 0..2 {
        rig.planner.maintain().unwrap();
        rig.settle();
    }
    assert_eq!(rig.pages(&old), (0, 4));
    // A load keeps all of L2, and fills L1 again.
    let lease = rig.reserve(&old, 4 * W + 1);
    assert_eq!(rig.only(OrderKind::Load).pages.len(), 4);
    let before = rig.planner.stats();
    for _ in 0..5 {
        let room = rig.planner.maintain().unwrap();
        assert_eq!((room.freed, room.dropped), (0, 0));
        rig.collect();
    }
    let after = rig.planner.stats();
    assert_eq!(after.evicted_pages_dropped, before.evicted_pages_dropped);
    assert_eq!(after.skipped_store_pages, before.skipped_store_pages);
    // Each page that waits counts once.
    assert!(after.deferred_store_pages - before.deferred_store_pages <= 4);
    let room = rig.planner.evict(2).unwrap();
    assert_eq!((room.freed, room.dropped), (2, 2));
    rig.release(lease);
}

/// A page that is put off again, and a request that is refused again, count once.
#[test]
fn asking_again_counts_nothing_again() {
    let mut rig = Planned::with(8, 8, |config| {
        write_back(config);
        config.max_store_pages = Some(1);
        config.free_watermark = 4;
    });
    rig.cache(&chain(1, 8));
    for _ in 0..5 {
        rig.planner.maintain().unwrap();
        rig.collect();
    }
    assert_eq!(rig.planner.stats().deferred_store_pages, 3);

    let mut rig = Planned::with(4, 8, |config| config.load_back_quota = Some(1));
    let keys = chain(1, 3);
    rig.cache(&keys);
    rig.planner.evict(4).unwrap();
    let held = rig.reserve(&chain(2, 3), 3 * W);
    for _ in 0..3 {
        assert!(matches!(
            rig.ask(&keys, 3 * W + 1),
            Reserve::OutOfSpace { .. }
        ));
    }
    assert_eq!(rig.planner.stats().declined_load_pages, 0);
    rig.release(held);
    drop(rig.reserve(&keys, 3 * W + 1));
    assert_eq!(rig.planner.stats().declined_load_pages, 2);
}

/// A copy that ends after its namespace was reset is no page stored.
///
/// Seen to fail if every page that the ranks copied counts as stored.
#[test]
fn a_store_that_was_forgotten_brings_no_page() {
    let mut rig = Planned::new(4, 4);
    rig.compute(&chain(1, 3));
    rig.planner
        .reset(striata_tests::planned::NAMESPACE)
        .unwrap();
    rig.settle();
    let stats = rig.planner.stats();
    assert_eq!((stats.stored_pages, stats.forgotten_store_pages), (0, 3));
    assert_eq!(rig.free(), (4, 4));
}

/// Seen to fail if `max_store_pages` of 0 is taken.
#[test]
fn limits_that_would_stop_the_cache_are_refused() {
    let rig = Planned::new(8, 8);
    let refused = |set: fn(&mut PlannerConfig)| {
        let mut config = rig.planner.config().clone();
        set(&mut config);
        match Planner::new(config) {
            Err(Error::Config(what)) => what,
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    let what = refused(|config| config.max_store_pages = Some(0));
    assert!(what.contains("max_store_pages is 0"), "{what}");
    let what = refused(|config| config.free_watermark = 8);
    assert!(
        what.contains("free_watermark 8") && what.contains("8 pages"),
        "{what}"
    );
    let most = Planned::with(8, 8, |config| config.free_watermark = 7);
    assert_eq!(most.free(), (8, 8));
}
