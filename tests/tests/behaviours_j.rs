// SPDX-License-Identifier: Apache-2.0
//! Sections F (36, 37, 38) and J of the required behaviours: partial results, tier policy and hit
//! logic, through the planner.

use striata::core::L1Page;
use striata::core::config::WritePolicy;
use striata::{Confirm, Error, OrderKind, Reserve, Room};
use striata_tests::planned::{NAMESPACE, Planned, W, chain};

fn empty_l1(rig: &mut Planned) {
    while rig.planner.evict(64).unwrap().freed > 0 {
        rig.settle();
    }
}

/// 36: The outcome of an operation is the number of good leading pages.
///
/// Seen to fail if pages that a load did not bring count as loaded.
#[test]
fn b36_good_leading_pages_are_what_counts() {
    let mut rig = Planned::new(8, 8);
    let keys = chain(1, 5);
    rig.compute(&keys);
    let store = rig.only(OrderKind::Store);
    rig.end(store.op, 2);
    empty_l1(&mut rig);
    assert_eq!(
        rig.pages(&keys),
        (0, 2),
        "a store of 5 pages whose third failed"
    );
    let mut rig = Planned::new(8, 8);
    rig.cache(&keys);
    empty_l1(&mut rig);
    let lease = rig.reserve(&keys, 5 * W + 1);
    let load = rig.only(OrderKind::Load);
    rig.end(load.op, 2);
    assert_eq!(
        rig.planner.confirm(&lease).unwrap(),
        Confirm::LoadFailed {
            valid_tokens: 2 * W
        }
    );
    assert_eq!(
        rig.pages(&keys),
        (2, 3),
        "what did not come is still on L2, and no hit on L1"
    );
    rig.release(lease);
    assert_eq!(rig.used(), (2, 5));
    assert_eq!(rig.planner.stats().failed_load_pages, 3);
}

/// 37: What is reported loaded was copied: 4 pages with room on L1 for 0 to 3 of them.
///
/// Seen to fail if a load does not look at the room on L1.
#[test]
fn b37_a_partial_load_reports_what_it_brings() {
    for room in 0..=4 {
        let mut rig = Planned::new(8, 8);
        let keys = chain(1, 4);
        rig.cache(&keys);
        empty_l1(&mut rig);
        let held = rig.reserve(&chain(2, 8 - room), (8 - room as u64) * W);
        let outcome = rig.planner.load(NAMESPACE, &keys, 4 * W + 1).unwrap();
        rig.collect();
        if room == 0 {
            // Told from a prefix of which nothing hits.
            let refused = matches!(outcome, Some(Reserve::OutOfSpace { needed: 4, .. }));
            assert!(refused, "{outcome:?}");
            let nothing = rig.planner.load(NAMESPACE, &chain(9, 4), 4 * W + 1);
            assert!(nothing.unwrap().is_none());
            assert!(rig.open.is_empty());
            continue;
        }
        let Some(Reserve::Granted(lease)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(lease.hit_tokens_l2(), room as u64 * W);
        let load = rig.only(OrderKind::Load);
        assert_eq!(load.pages.len(), room);
        let targets: Vec<L1Page> = load.pages.iter().map(|pair| pair.l1).collect();
        assert_eq!(targets, lease.pages());
        rig.end(load.op, room);
        assert_eq!(rig.pages(&keys), (room as u64, 4 - room as u64));
        rig.release(lease);
        rig.release(held);
        empty_l1(&mut rig);
        assert_eq!(rig.used(), (0, 4));
    }
}

/// 38: Loaded pages go where the prefix stands.
///
/// Seen to fail if a released lease keeps its lock.
#[test]
fn b38_load_targets_are_the_table() {
    let mut rig = Planned::new(8, 8);
    let keys = chain(1, 3);
    rig.cache(&keys[..2]);
    empty_l1(&mut rig);
    let lease = rig.reserve(&keys[..2], 2 * W + 1);
    let load = rig.only(OrderKind::Load);
    assert_eq!(
        load.pages.iter().map(|pair| pair.l1).collect::<Vec<_>>(),
        lease.pages()[..2]
    );
    rig.end(load.op, 2);
    rig.release(lease);
    // One page on L1, one on L2: the target is the second of the table.
    rig.planner.evict(1).unwrap();
    let lease = rig.reserve(&keys[..2], 2 * W + 1);
    assert_eq!((lease.hit_tokens_l1(), lease.hit_tokens_l2()), (W, W));
    let load = rig.only(OrderKind::Load);
    assert_eq!(
        load.pages.iter().map(|pair| pair.l1).collect::<Vec<_>>(),
        lease.pages()[1..2]
    );
}

/// 49: A host copy whose page is also on L1 is the first to go when L2 is short: no backup is
/// refused for ever, and a page on neither tier is a miss.
///
/// Seen to fail if an acknowledged store keeps its pins.
#[test]
fn b49_l2_smaller_than_l1() {
    let mut rig = Planned::with(8, 4, |config| config.duplicates_first = true);
    for seed in 1..=9 {
        rig.cache(&chain(seed, 1));
    }
    assert_eq!(rig.planner.stats().skipped_store_pages, 0);
    assert_eq!(rig.planner.stats().stored_pages, 9);
    assert_eq!(rig.used(), (8, 4));
    let found: Vec<_> = (1..=9).map(|seed| rig.pages(&chain(seed, 1))).collect();
    let (l1, l2) = found
        .iter()
        .fold((0, 0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
    assert_eq!(l1, 8);
    assert!(l2 <= 1, "{found:?}");
}

/// 49, the order itself: what only L2 has outlives copies of pages that are on L1.
///
/// Seen to fail if host copies of L1 pages do not go first.
#[test]
fn b49_copies_of_l1_pages_go_before_what_only_l2_has() {
    let mut rig = Planned::with(3, 3, |config| config.duplicates_first = true);
    rig.cache(&chain(1, 1));
    rig.planner.evict(1).unwrap();
    rig.cache(&chain(2, 1));
    rig.cache(&chain(3, 1));
    assert_eq!(rig.used(), (2, 3));
    rig.cache(&chain(4, 1));
    assert_eq!(
        rig.pages(&chain(1, 1)),
        (0, 1),
        "the oldest page, and only L2 has it"
    );
    assert_eq!(rig.planner.stats().resident_pages_l2, 3);
}

/// 50: Evicting from L1 a page with an acknowledged copy leaves an L2 hit; a load brings it back
/// and L2 keeps its copy.
///
/// Seen to fail if an acknowledged store keeps its pins.
#[test]
fn b50_no_hit_is_lost() {
    let mut rig = Planned::new(8, 8);
    let keys = chain(1, 3);
    rig.cache(&keys);
    empty_l1(&mut rig);
    assert_eq!(rig.pages(&keys), (0, 3));
    let lease = rig.reserve(&keys, 3 * W + 1);
    assert_eq!((lease.hit_tokens_l1(), lease.hit_tokens_l2()), (0, 3 * W));
    rig.settle();
    rig.release(lease);
    assert_eq!(rig.pages(&keys), (3, 0));
    assert_eq!(rig.used().1, 3);
    let lease = rig.reserve(&keys, 3 * W + 1);
    assert_eq!((lease.hit_tokens_l1(), lease.hit_tokens_l2()), (3 * W, 0));
}

/// 52: If a page is on L2 its ancestors are on L1 or L2: a parent without a copy is stored when it
/// leaves L1, or goes together with what stands on it.
///
/// Seen to fail if an acknowledged store keeps its pins.
#[test]
fn b52_a_child_on_l2_never_outlives_its_ancestors() {
    for l2_pages in [2, 1] {
        let mut rig = Planned::write_back(4, l2_pages);
        let keys = chain(1, 2);
        rig.cache(&keys);
        // The child goes to L2 first.
        rig.planner.evict(1).unwrap();
        rig.settle();
        rig.planner.evict(1).unwrap();
        rig.settle();
        assert_eq!(rig.pages(&keys), (1, 1));
        // Then the parent.
        for _ in 0..2 {
            rig.planner.evict(1).unwrap();
            rig.settle();
        }
        if l2_pages == 2 {
            assert_eq!(rig.pages(&keys), (0, 2));
            assert_eq!(rig.used(), (0, 2));
        } else {
            assert_eq!(rig.pages(&keys).0, 0);
            // A child alone would be a page in use that no lookup finds.
            assert_eq!(rig.used(), (0, rig.pages(&keys).1));
        }
    }
}

/// 54: Counters exist for both directions, by outcome.
///
/// Seen to fail if pages that a load did not bring count as loaded.
#[test]
fn b54_counters_of_both_directions() {
    let mut rig = Planned::new(8, 8);
    rig.cache(&chain(1, 5));
    empty_l1(&mut rig);
    let lease = rig.reserve(&chain(1, 3), 3 * W + 1);
    rig.settle();
    rig.release(lease);
    let lease = rig.reserve(&chain(1, 4), 4 * W + 1);
    let load = rig.only(OrderKind::Load);
    rig.end(load.op, 0);
    rig.release(lease);
    let stats = rig.planner.stats();
    assert_eq!(
        (
            stats.stored_pages,
            stats.loaded_pages,
            stats.failed_load_pages
        ),
        (5, 3, 1),
        "{stats:?}"
    );
}

/// Reset with leases alive: nothing old matches, and what leases hold goes with them.
///
/// Seen to fail if a reset retires nothing.
#[test]
fn reset_forgets_a_namespace_and_keeps_what_is_held() {
    let mut rig = Planned::new(8, 8);
    let keys = chain(1, 3);
    rig.cache(&keys);
    let lease = rig.reserve(&keys, 3 * W + 1);
    rig.planner.reset(NAMESPACE).unwrap();
    rig.check();
    assert_eq!(rig.pages(&keys), (0, 0));
    assert!(rig.used().0 >= 3, "the lease still reads its pages");
    // What it computes under the old weights is never matched.
    rig.insert(&lease);
    assert_eq!(rig.pages(&keys), (0, 0));
    rig.settle();
    rig.release(lease);
    assert_eq!(rig.used(), (0, 0));
    rig.cache(&keys);
    assert_eq!(rig.pages(&keys), (3, 0));
}

/// The watermark keeps pages free ahead of need.
///
/// Seen to fail if the watermark is ignored.
#[test]
fn maintain_keeps_the_watermark_free() {
    let mut rig = Planned::with(8, 8, |config| config.free_watermark = 2);
    rig.cache(&chain(1, 8));
    rig.planner.maintain().unwrap();
    assert_eq!(rig.free().0, 2);
    assert_eq!(rig.pages(&chain(1, 8)), (6, 2));
}

/// Under write-back, pages that are on their way out count as free: the watermark starts no second
/// store for what a first one is bringing already. A call for more pages does.
///
/// Seen to fail if pages of stores in flight do not count towards what is needed.
#[test]
fn maintain_counts_what_is_leaving_already() {
    let mut rig = Planned::with(8, 8, |config| {
        config.write_policy = WritePolicy::WriteBack;
        config.free_watermark = 2;
    });
    rig.cache(&chain(1, 4));
    rig.cache(&chain(2, 4));
    let first = rig.planner.maintain().unwrap();
    let op = rig.only(OrderKind::Store).op;
    assert_eq!((first.freed, first.freeing, first.after), (0, 2, Some(op)));
    for _ in 0..3 {
        assert_eq!(rig.planner.maintain().unwrap(), Room::default());
    }
    // A request that fits once they have gone waits for them and for nothing else.
    let asked = rig.ask(&chain(3, 2), 2 * W);
    assert!(matches!(asked, Reserve::NotNow { after } if after == op));
    assert_eq!(rig.only(OrderKind::Store).pages.len(), 2);
    let more = rig.planner.evict(1).unwrap();
    assert_eq!((more.freed, more.freeing), (0, 1));
    rig.settle();
    assert_eq!(rig.planner.maintain().unwrap().freed, 2);
    assert_eq!((rig.free().0, rig.used().1), (2, 3));
    assert_eq!(rig.pages(&chain(1, 4)), (2, 2));
}

/// A store that fails frees nothing, and the watermark begins again.
///
/// Seen to fail if pages of a store that has failed count as leaving for ever.
#[test]
fn maintain_begins_again_after_a_store_that_failed() {
    let mut rig = Planned::with(8, 8, |config| {
        config.write_policy = WritePolicy::WriteBack;
        config.free_watermark = 2;
    });
    rig.cache(&chain(1, 8));
    for good in [0, 1] {
        rig.planner.maintain().unwrap();
        let store = rig.only(OrderKind::Store);
        assert_eq!(store.pages.len(), 2);
        rig.end(store.op, good);
    }
    rig.planner.maintain().unwrap();
    rig.settle();
    rig.planner.maintain().unwrap();
    assert_eq!((rig.free().0, rig.pages(&chain(1, 8))), (2, (6, 2)));
}

/// Insert after a load that failed names that load, not another that the lease waited for.
///
/// Seen to fail if the last load of the lease is named.
#[test]
fn insert_names_the_load_that_failed() {
    let mut rig = Planned::with(8, 8, |config| config.load_back_quota = Some(2));
    let keys = chain(1, 4);
    rig.cache(&keys);
    empty_l1(&mut rig);
    let above = rig.planner.load(NAMESPACE, &keys, 4 * W + 1).unwrap();
    let first = rig.only(OrderKind::Load).op;
    let lease = rig.reserve(&keys, 4 * W + 1);
    let &[shared, own] = lease.loads() else {
        panic!("{:?}", lease.loads());
    };
    assert_eq!(shared, first);
    let named = |rig: &mut Planned| match rig.planner.insert(&lease, 4 * W, true) {
        Err(Error::Unconfirmed { op }) => op,
        other => panic!("{other:?}"),
    };
    assert_eq!(named(&mut rig), first, "in flight");
    rig.end(own, 2);
    rig.end(first, 1);
    assert_eq!(named(&mut rig), first, "failed");
    drop(above);
    rig.release(lease);
    assert_eq!(rig.used(), (1, 4));
}

/// A lease of another planner names nothing here, whatever slot it has.
///
/// Seen to fail if only the slot and its generation are looked at.
#[test]
fn a_lease_of_another_planner_is_refused() {
    let (mut rig, mut other) = (Planned::new(8, 8), Planned::new(8, 8));
    let own = rig.reserve(&chain(1, 1), W);
    let mut foreign = other.reserve(&chain(1, 4), 4 * W);
    assert_eq!(own.id(), foreign.id());
    let planner = &mut rig.planner;
    let refused = [
        planner.insert(&foreign, 4 * W, true).map(|_| ()),
        planner.confirm(&foreign).map(|_| ()),
        planner.store(&foreign).map(|_| ()),
        planner.append_keys(&foreign, &chain(2, 4)),
        planner.extend(&mut foreign, 5 * W).map(|_| ()),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::UnknownLease { slot: 0, .. })));
    }
    other.release(foreign);
    rig.insert(&own);
    rig.release(own);
    assert_eq!((rig.pages(&chain(1, 1)), other.used()), ((1, 0), (0, 0)));
}

/// A lease that can never grow so far is refused with numbers, and nothing is evicted for it.
///
/// Seen to fail if room is made before the size of the pool is looked at.
#[test]
fn growing_beyond_the_pool_evicts_nothing() {
    let mut rig = Planned::new(8, 8);
    rig.cache(&chain(1, 5));
    let mut lease = rig.reserve(&chain(2, 2), 2 * W);
    for tokens in [8 * W + 1, u64::MAX] {
        let outcome = rig.planner.extend(&mut lease, tokens).unwrap();
        let Some(Reserve::OutOfSpace {
            needed,
            available: 1,
            evictable: 5,
        }) = outcome
        else {
            panic!("{outcome:?}");
        };
        assert_eq!(needed, tokens.div_ceil(W) - 2);
    }
    assert_eq!((lease.pages().len(), rig.pages(&chain(1, 5))), (2, (5, 0)));
}
