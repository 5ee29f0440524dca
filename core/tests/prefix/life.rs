// SPDX-License-Identifier: Apache-2.0
//! Pages that are stored before they go, that go out of turn, and that outlive their namespace.

use striata_core::prefix::{Evicted, InsertOptions, PageKey, PathLock, RootId};
use striata_core::{L1Page, L2Page};

use crate::tiers::{ROOT, Tiers, keys};

impl Tiers {
    fn store_first(&mut self, n: usize) -> (usize, Vec<L1Page>) {
        let mut unstored = Vec::new();
        let freed = self
            .index
            .evict_l1_store_first(n, &mut self.out, &mut unstored);
        self.give_back();
        (freed, unstored)
    }

    /// The store of a listed page, from selection to acknowledgement.
    fn begin_store(&mut self, page: L1Page) -> L2Page {
        assert!(self.index.pin_l1(page));
        let target = self.alloc_l2(1)[0];
        assert!(self.index.pin_l2(target));
        target
    }

    fn end_store(&mut self, page: L1Page, target: L2Page) -> bool {
        let attached = self.index.attach_l2(page, target);
        assert!(self.index.unpin_l2(target) && self.index.unpin_l1(page));
        self.check();
        attached
    }

    fn l1_of(&self, lock: &PathLock) -> Vec<L1Page> {
        let mut pages = Vec::new();
        self.index.l1_pages_of(lock, &mut pages).unwrap();
        pages
    }

    fn retire(&mut self) -> (usize, usize) {
        self.freed(|tiers| tiers.index.retire(ROOT, &mut tiers.out))
    }

    fn sweep(&mut self) -> (usize, usize) {
        self.freed(|tiers| tiers.index.sweep_retired(&mut tiers.out))
    }

    fn freed(&mut self, call: impl FnOnce(&mut Self)) -> (usize, usize) {
        call(self);
        let counts = (self.out.l1.len(), self.out.l2.len());
        self.give_back();
        counts
    }
}

/// Seen to fail if what is listed does not count towards the pages asked for.
#[test]
fn b22_write_back_stores_before_it_evicts_and_takes_no_page_twice() {
    let mut tiers = Tiers::new(8, 2);
    for path in [[1, 2, 3], [4, 5, 6]] {
        let lock = tiers.run(&path);
        tiers.release(lock);
    }
    let lock = tiers.index.acquire_prefix(ROOT, &keys(&[1, 2, 3]));
    let pages = tiers.l1_of(&lock);
    tiers.release(lock);
    let lock = tiers.index.acquire_prefix(ROOT, &keys(&[4, 5, 6]));
    let others = tiers.l1_of(&lock);
    tiers.release(lock);
    // The deepest first, of the leaf of the lowest rank first.
    let (freed, unstored) = tiers.store_first(5);
    assert_eq!(freed, 0);
    let expected = [pages[2], pages[1], pages[0], others[2], others[1]];
    assert_eq!(unstored, expected);
    assert_eq!(tiers.seen(&[1, 2, 3]), (3, 0), "nothing has gone");
    // Two stores fill L2; what is above and below them waits, whatever is asked for.
    let targets = [pages[2], pages[1]].map(|page| (page, tiers.begin_store(page)));
    assert_eq!(
        tiers.store_first(9),
        (0, vec![others[2], others[1], others[0]])
    );
    for (page, target) in targets {
        assert!(tiers.end_store(page, target));
    }
    let (freed, unstored) = tiers.store_first(3);
    assert_eq!((freed, unstored), (2, vec![pages[0]]));
    assert_eq!(tiers.seen(&[1, 2, 3]), (1, 2));
}

/// Seen to fail if pins do not keep a page from being dropped out of turn.
#[test]
fn b23_a_page_that_cannot_be_stored_goes_with_all_that_is_deeper() {
    let mut tiers = Tiers::new(4, 1);
    let lock = tiers.run(&[1, 2, 3]);
    let pages = tiers.l1_of(&lock);
    assert_eq!(tiers.index.drop_l1(pages[1], &mut tiers.out), 0, "locked");
    tiers.release(lock);
    let target = tiers.begin_store(pages[2]);
    assert_eq!(tiers.index.drop_l1(pages[1], &mut tiers.out), 0, "pinned");
    assert!(tiers.end_store(pages[2], target));
    assert_eq!(tiers.store_first(1), (1, Vec::new()));
    assert_eq!(tiers.seen(&[1, 2, 3]), (2, 1));
    let (freed, unstored) = tiers.store_first(1);
    assert_eq!((freed, &unstored[..]), (0, &pages[1..2]));
    // L2 is full: the page is on no tier afterwards, nor is what stood on it.
    assert_eq!(tiers.index.drop_l1(unstored[0], &mut tiers.out), 1);
    assert_eq!(tiers.out.dropped, 2);
    tiers.give_back();
    assert_eq!(tiers.seen(&[1, 2, 3]), (1, 0));
    assert_eq!((tiers.l1.free_pages(), tiers.l2.free_pages()), (3, 1));
    assert_eq!(tiers.index.drop_l1(unstored[0], &mut tiers.out), 0, "gone");
}

/// Seen to fail if a node of which pages were listed is not queued again.
#[test]
fn b52_a_parent_is_stored_if_l2_has_room() {
    let mut tiers = Tiers::new(4, 4);
    let lock = tiers.run(&[1, 2]);
    let pages = tiers.l1_of(&lock);
    let copy = tiers.alloc_l2(1)[0];
    assert!(tiers.index.attach_l2(pages[1], copy));
    tiers.release(lock);
    assert_eq!(tiers.store_first(1), (1, Vec::new()));
    // The child's copy is being read, which would hold the parent from being dropped.
    assert!(tiers.index.pin_l2(copy));
    assert_eq!(tiers.evict_l1(1), 0);
    assert_eq!(tiers.store_first(1), (0, vec![pages[0]]));
    let target = tiers.begin_store(pages[0]);
    assert!(tiers.end_store(pages[0], target));
    assert_eq!(tiers.store_first(1), (1, Vec::new()));
    assert_eq!(tiers.seen(&[1, 2]), (0, 2));
    assert_eq!(tiers.l1.free_pages(), 4);
}

#[test]
fn a_retired_namespace_starts_empty_and_leases_keep_their_pages() {
    let mut tiers = Tiers::new(12, 8);
    let kept = tiers.run(&[1, 2]);
    let deeper = tiers.run(&[1, 2, 3, 4]);
    tiers.store(&deeper);
    tiers.release(deeper);
    let empty = tiers.index.acquire_prefix(ROOT, &[]);
    assert_eq!(tiers.retire(), (2, 4), "what the lock holds of L1 stays");
    assert_eq!(tiers.seen(&[1, 2, 3, 4]), (0, 0));
    assert_eq!(tiers.l1_of(&kept).len(), 2);
    assert_eq!(tiers.evict_l1(9), 0);
    // The same tokens again, on other pages.
    let fresh = tiers.run(&[1, 2]);
    assert_eq!(tiers.l1.free_pages(), 8);
    assert_eq!(tiers.seen(&[1, 2, 3]), (2, 0));
    // The lease computes on; what it inserts goes when it goes.
    let mut kept = kept;
    let mut pages = tiers.l1_of(&kept);
    pages.extend(tiers.alloc_l1(1));
    let path = keys(&[1, 2, 7]);
    let options = InsertOptions::default();
    let report = tiers
        .index
        .insert(&mut kept, &path, &pages, options, &mut Vec::new())
        .unwrap();
    assert!(report.retired);
    assert_eq!((report.resident, report.new_pages), (2, 1));
    assert_eq!(tiers.seen(&[1, 2, 7]), (2, 0));
    tiers.store(&kept);
    assert_eq!(tiers.l2.free_pages(), 8, "nothing of it is worth storing");
    assert_eq!(tiers.sweep(), (0, 0));
    tiers.release(kept);
    tiers.release(empty);
    assert_eq!(tiers.evict_l1(9), 0, "the sweep's, not the eviction's");
    assert_eq!(tiers.sweep(), (3, 0));
    tiers.release(fresh);
    assert_eq!(tiers.evict_l1(9), 2);
    assert_eq!((tiers.l1.free_pages(), tiers.index.nodes()), (12, 0));
}

#[test]
fn copies_in_flight_hold_their_pages_of_a_retired_namespace() {
    let mut tiers = Tiers::new(4, 4);
    let lock = tiers.run(&[1, 2]);
    let pages = tiers.l1_of(&lock);
    tiers.release(lock);
    let target = tiers.begin_store(pages[0]);
    assert_eq!(tiers.retire(), (1, 0));
    assert_eq!(tiers.index.resident_l1(), 1);
    assert_eq!(tiers.index.nodes(), 0, "a pin needs no tree");
    assert_eq!(tiers.sweep(), (0, 0));
    assert!(
        !tiers.end_store(pages[0], target),
        "the caller frees the target"
    );
    tiers.l2.free(&[target]).unwrap();
    // Pinned again and let go twice before the sweep: freed once, when the last pin is back.
    assert!(tiers.index.pin_l1(pages[0]));
    assert_eq!(tiers.sweep(), (0, 0));
    assert!(tiers.index.unpin_l1(pages[0]));
    assert!(tiers.index.pin_l1(pages[0]) && tiers.index.unpin_l1(pages[0]));
    tiers.check();
    assert_eq!(tiers.sweep(), (1, 0));
    assert_eq!((tiers.l1.free_pages(), tiers.index.resident_l1()), (4, 0));
}

#[test]
fn a_load_into_a_retired_namespace_ends_well() {
    let mut tiers = Tiers::new(4, 4);
    let lock = tiers.run(&[1, 2]);
    tiers.store(&lock);
    tiers.release(lock);
    assert_eq!(tiers.evict_l1(2), 2);
    let lock = tiers.index.acquire_prefix(ROOT, &keys(&[1, 2]));
    assert_eq!(tiers.retire(), (0, 0), "the lease may load yet");
    let mut sources = Vec::new();
    tiers
        .index
        .pages_of(&lock, &mut Vec::new(), &mut sources)
        .unwrap();
    let sources: Vec<_> = sources.into_iter().flatten().collect();
    for &source in &sources {
        assert!(tiers.index.pin_l2(source));
    }
    let targets = tiers.alloc_l1(2);
    tiers.index.attach_l1(&lock, 0, &targets).unwrap();
    tiers.check();
    assert!(tiers.index.unpin_l2(sources[0]));
    assert_eq!(tiers.sweep(), (0, 1), "nobody misses the copy");
    tiers.release(lock);
    assert_eq!(tiers.sweep(), (2, 0));
    assert!(tiers.index.unpin_l2(sources[1]));
    assert_eq!(tiers.sweep(), (0, 1));
    assert_eq!(tiers.l2.free_pages(), 4);
}

#[test]
fn all_namespaces_retire_at_once() {
    let mut tiers = Tiers::new(4, 0);
    let mut locks = Vec::new();
    for root in 0..3 {
        let path = keys(&[1]);
        let mut lock = tiers.index.acquire_prefix(RootId::new(root), &path);
        let page = tiers.alloc_l1(1);
        tiers.insert(&mut lock, &path, &page);
        locks.push(lock);
    }
    tiers.release(locks.pop().unwrap());
    for expected in [1, 0] {
        let freed = tiers.freed(|tiers| tiers.index.retire_all(&mut tiers.out));
        assert_eq!(freed, (expected, 0));
    }
    for lock in locks {
        tiers.release(lock);
        assert_eq!(tiers.sweep(), (1, 0));
    }
    assert_eq!((tiers.index.nodes(), tiers.l1.free_pages()), (0, 4));
}

#[test]
fn events_name_each_page_once_a_tier() {
    let key = |n: u32| PageKey::new(u128::from(n));
    let mut tiers = Tiers::new(8, 8);
    tiers.out = Evicted {
        record_keys: true,
        ..Evicted::default()
    };
    let lock = tiers.run(&[1, 2, 3]);
    let upper = tiers.index.acquire_prefix(ROOT, &keys(&[1]));
    let pages = tiers.l1_of(&lock);
    let parents = pages.iter().map(|&page| tiers.index.parent_key_of_l1(page));
    assert!(
        parents.eq([None, Some(key(1)), Some(key(2))]),
        "over a split too"
    );
    assert_eq!(tiers.index.key_of_l1(pages[2]), Some(key(3)));
    assert_eq!(tiers.index.key_of_l1(L1Page::new(99)), None);
    tiers.store(&lock);
    let copy = tiers.index.l2_of(pages[2]).unwrap();
    assert_eq!(tiers.index.key_of_l2(copy), Some(key(3)));
    tiers.release(lock);
    assert_eq!(tiers.evict_l1(1), 1);
    assert_eq!(
        (&tiers.out.l1_keys[..], tiers.out.l2_keys.len()),
        (&[key(3)][..], 0)
    );
    tiers.out.clear();
    assert_eq!(tiers.retire(), (1, 3));
    assert_eq!(
        tiers.out.l1_keys,
        [key(2), key(1)],
        "the locked page as well"
    );
    assert_eq!(tiers.out.l2_keys.len(), 3);
    tiers.out.clear();
    assert_eq!(tiers.index.key_of_l1(pages[0]), None);
    tiers.release(upper);
    assert_eq!(tiers.sweep(), (1, 0));
    assert_eq!(tiers.out.l1_keys, [], "nothing twice");
}
