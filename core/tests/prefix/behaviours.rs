// SPDX-License-Identifier: Apache-2.0
//! Required behaviours, as far as the index decides them.

use striata_core::prefix::{Duplicate, IndexError, InsertOptions, Namespace, RootId, page_keys};
use striata_core::{L1Page, L2Page, Stripe};

use crate::tiers::{ROOT, Tiers, keys};

#[test]
fn b14_shared_prefixes_count_in_whole_widened_pages() {
    let stripe = Stripe::new(4, 16).unwrap();
    let namespace = Namespace::from_digest(1);
    for (shared, hit) in [(80, 64), (63, 0), (128, 128)] {
        let mut tiers = Tiers::new(8, 0);
        let first: Vec<u32> = (0..200).collect();
        let second: Vec<u32> = (0..200u32)
            .map(|t| if t < shared { t } else { t + 1000 })
            .collect();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        page_keys(namespace, stripe, &first, &mut a);
        page_keys(namespace, stripe, &second, &mut b);
        let mut lock = tiers.index.acquire_prefix(namespace.root(), &a);
        let pages = tiers.alloc_l1(a.len());
        tiers.insert(&mut lock, &a, &pages);
        let found = tiers.index.match_prefix(namespace.root(), &b);
        assert_eq!(found.l1_pages as u64 * stripe.widened_page(), hit);
        tiers.release(lock);
    }
    let stripe = Stripe::new(2, 16).unwrap();
    let mut out = Vec::new();
    page_keys(namespace, stripe, &(0..600).collect::<Vec<_>>(), &mut out);
    assert_eq!(out.len(), 18);
}

#[test]
fn b15_a_hit_leaves_one_token_to_compute() {
    let stripe = Stripe::new(16, 64).unwrap();
    let namespace = Namespace::from_digest(1);
    let tokens: Vec<u32> = (0..2049).collect();
    let mut all = Vec::new();
    page_keys(namespace, stripe, &tokens, &mut all);
    let mut tiers = Tiers::new(4, 0);
    let mut lock = tiers.index.acquire_prefix(namespace.root(), &all);
    let pages = tiers.alloc_l1(all.len());
    tiers.insert(&mut lock, &all, &pages);
    for (length, hit) in [
        (1, 0),
        (1023, 0),
        (1024, 0),
        (1025, 1024),
        (2048, 1024),
        (2049, 2048),
    ] {
        let mut asked = Vec::new();
        page_keys(namespace, stripe, &tokens[..length], &mut asked);
        asked.truncate(stripe.hit_limit(length as u64) as usize);
        let found = tiers.index.match_prefix(namespace.root(), &asked);
        assert_eq!(
            found.pages() as u64 * stripe.widened_page(),
            hit,
            "{length}"
        );
    }
    tiers.release(lock);
}

/// Seen to fail if pins of L1 are not taken from what is evictable.
#[test]
fn b27_every_page_is_free_or_evictable_or_held() {
    let mut tiers = Tiers::new(12, 4);
    let a = tiers.run(&[1, 2, 3]);
    let b = tiers.run(&[1, 2, 9, 9]);
    let balance = |tiers: &Tiers, locked: usize, in_flight: usize| {
        let sum = tiers.l1.free_pages() + tiers.index.evictable_l1() + locked + in_flight;
        assert_eq!(sum, 12);
    };
    balance(&tiers, 5, 0);
    tiers.release(a);
    balance(&tiers, 4, 0);
    assert_eq!(tiers.evict_l1(9), 1);
    balance(&tiers, 4, 0);
    // A store outlives the request: its own pin holds each source until its acknowledgement.
    let mut sources = Vec::new();
    tiers.index.pages_without_l2(&b, 1, &mut sources).unwrap();
    for &page in &sources {
        assert!(tiers.index.pin_l1(page));
    }
    tiers.release(b);
    balance(&tiers, 0, 4);
    assert_eq!(tiers.evict_l1(9), 0);
    let targets = tiers.alloc_l2(4);
    for (at, (&l1, &l2)) in sources.iter().zip(&targets).enumerate().take(2) {
        assert!(tiers.index.attach_l2(l1, l2));
        assert!(tiers.index.unpin_l1(l1));
        balance(&tiers, 0, 3 - at);
    }
    assert_eq!(tiers.evict_l1(9), 0, "pinned pages stand deeper");
    for &page in &sources[2..] {
        assert!(tiers.index.unpin_l1(page));
        assert!(!tiers.index.unpin_l1(page), "no count falls below 0");
    }
    balance(&tiers, 0, 0);
    assert_eq!(tiers.evict_l1(9), 4);
    assert_eq!(tiers.seen(&[1, 2, 9, 9]), (0, 2));
    balance(&tiers, 0, 0);
}

/// Seen to fail if an insert keeps its claim on the duplicates.
#[test]
fn b28_duplicates_stay_with_their_request() {
    let mut tiers = Tiers::new(8, 0);
    let path = keys(&[1, 2, 3]);
    let mut a = tiers.index.acquire_prefix(ROOT, &path);
    let mut b = tiers.index.acquire_prefix(ROOT, &path);
    let (pages_a, pages_b) = (tiers.alloc_l1(3), tiers.alloc_l1(3));
    assert!(tiers.insert(&mut a, &path, &pages_a).is_empty());
    let duplicates = tiers.insert(&mut b, &path, &pages_b);
    assert_eq!(tiers.index.resident_l1(), 3);
    for (at, duplicate) in duplicates.iter().enumerate() {
        let expected = Duplicate {
            index: at,
            kept: pages_a[at],
            duplicate: pages_b[at],
        };
        assert_eq!(*duplicate, expected);
    }
    assert_eq!(duplicates.len(), 3);
    tiers.release(a);
    tiers.release(b);
    tiers.l1.free(&pages_b).unwrap();
    assert_eq!(tiers.l1.free_pages() + tiers.index.resident_l1(), 8);
    // Split at page 1, lock and unlock each half, evict all.
    let upper = tiers.index.acquire_prefix(ROOT, &path[..1]);
    let lower = tiers.index.acquire_prefix(ROOT, &path);
    assert_eq!(tiers.index.nodes(), 3, "a root and two halves");
    assert_eq!(tiers.evict_l1(8), 0);
    tiers.release(lower);
    assert_eq!(tiers.evict_l1(1), 1);
    tiers.release(upper);
    assert_eq!(tiers.evict_l1(8), 2);
    assert_eq!(tiers.l1.free_pages(), 8);
    assert_eq!(tiers.index.nodes(), 0);
}

/// Seen to fail if a page that stands in the tree may be claimed again.
#[test]
fn b29_a_page_that_has_an_owner_is_refused() {
    let mut tiers = Tiers::new(8, 4);
    let a = tiers.run(&[1, 2]);
    let mut l1 = Vec::new();
    tiers.index.l1_pages_of(&a, &mut l1).unwrap();
    let free = tiers.alloc_l1(2);
    let mut b = tiers.index.acquire_prefix(ROOT, &keys(&[5]));
    let mut try_insert = |tiers: &mut Tiers, numbers: &[u32], pages: &[L1Page]| {
        let mut duplicates = Vec::new();
        let options = InsertOptions::default();
        let result = tiers
            .index
            .insert(&mut b, &keys(numbers), pages, options, &mut duplicates);
        tiers.check();
        result.unwrap_err()
    };
    let owned = |page: L1Page| IndexError::PageOwned {
        tier: "L1",
        page: page.get(),
    };
    let error = try_insert(&mut tiers, &[5, 6], &[free[0], l1[1]]);
    assert_eq!(error, owned(l1[1]));
    let error = try_insert(&mut tiers, &[5, 6], &[free[0], free[0]]);
    assert_eq!(error, owned(free[0]));
    let error = try_insert(&mut tiers, &[1, 2], &[l1[1], l1[0]]);
    assert_eq!(error, owned(l1[1]));
    let error = try_insert(&mut tiers, &[5], &[L1Page::new(99)]);
    assert!(matches!(
        error,
        IndexError::PageRange {
            page: 99,
            total: 9,
            ..
        }
    ));
    let error = try_insert(&mut tiers, &[5, 6], &free[..1]);
    assert_eq!(error, IndexError::Lengths { keys: 2, pages: 1 });
    tiers.release(b);
    // A late acknowledgement finds the page gone or stored, and the caller frees its target.
    let l2 = tiers.alloc_l2(2);
    assert!(tiers.index.attach_l2(l1[0], l2[0]));
    assert!(!tiers.index.attach_l2(l1[0], l2[1]), "stored already");
    assert!(!tiers.index.attach_l2(l1[1], l2[0]), "the copy of a page");
    assert!(!tiers.index.attach_l2(free[0], l2[1]), "not in the index");
    assert!(!tiers.index.attach_l2(l1[1], L2Page::new(50)));
    tiers.release(a);
}

/// Seen to fail if a node that is trimmed loses all its pages without copies.
#[test]
fn b31_evict_frees_exactly_what_is_asked_or_all_there_is() {
    let mut tiers = Tiers::new(100, 0);
    let locks: Vec<_> = (0..100).map(|n| tiers.run(&[n])).collect();
    assert_eq!(tiers.evict_l1(3), 0, "all locked");
    for lock in locks {
        tiers.release(lock);
    }
    assert_eq!(tiers.evict_l1(3), 3);
    assert_eq!(tiers.index.resident_l1(), 97);
    assert_eq!(tiers.seen(&[2]), (0, 0));
    assert_eq!(tiers.seen(&[3]), (1, 0));
    assert_eq!(tiers.evict_l1(1000), 97);
    let lock = tiers.run(&[1, 2, 3, 4]);
    tiers.release(lock);
    assert_eq!(tiers.evict_l1(3), 3);
    assert_eq!(tiers.seen(&[1, 2, 3, 4]), (1, 0), "the first page stays");
}

/// Seen to fail if copies of resident pages go by rank alone.
#[test]
fn b49_copies_of_resident_pages_go_first() {
    let mut tiers = Tiers::new(8, 4);
    for page in 1..=9 {
        if tiers.l1.free_pages() == 0 {
            assert_eq!(tiers.evict_l1(1), 1);
        }
        let lock = tiers.run(&[page]);
        if tiers.l2.free_pages() == 0 {
            assert_eq!(tiers.evict_l2(1), 1, "the store of page {page} is refused");
        }
        tiers.store(&lock);
        tiers.release(lock);
    }
    assert_eq!(tiers.index.resident_l2(), 4);
    assert_eq!(tiers.out.copies_dropped, 5);
    assert_eq!(tiers.seen(&[1]), (0, 0), "on neither tier: a miss");
    for page in 2..=9 {
        assert_eq!(tiers.seen(&[page]), (1, 0));
    }
    // Pages on L2 alone are kept as long as there are copies to drop.
    assert_eq!(tiers.evict_l1(6), 6);
    assert_eq!(tiers.seen(&[6]), (0, 1));
    assert_eq!(tiers.evict_l2(2), 2);
    assert_eq!(
        [6, 7, 8, 9].map(|n| tiers.seen(&[n])),
        [(0, 1), (0, 1), (1, 0), (1, 0)]
    );
    assert_eq!(tiers.evict_l2(9), 2);
    assert_eq!(tiers.seen(&[6]), (0, 0));
    assert_eq!(tiers.index.nodes(), 3, "a root and pages 8 and 9");
}

/// Seen to fail if a match does not count pages on L2.
#[test]
fn b50_an_evicted_page_with_a_copy_is_an_l2_hit() {
    let mut tiers = Tiers::new(4, 4);
    let path = [1, 2, 3];
    let lock = tiers.run(&path);
    tiers.store(&lock);
    tiers.release(lock);
    assert_eq!(tiers.evict_l1(3), 3);
    assert_eq!(tiers.out.kept_on_l2, 3);
    assert_eq!(tiers.seen(&path), (0, 3));
    let lock = tiers.index.acquire_prefix(ROOT, &keys(&path));
    let targets = tiers.alloc_l1(3);
    tiers.index.attach_l1(&lock, 0, &targets).unwrap();
    tiers.check();
    assert_eq!(tiers.seen(&path), (3, 0));
    assert_eq!(tiers.index.resident_l2(), 3, "copies are kept");
    // A load that fails is undone from the first bad page on.
    let mut back = Vec::new();
    tiers.index.detach_l1(&lock, 1, &mut back).unwrap();
    tiers.check();
    assert_eq!(back, targets[1..]);
    assert_eq!(tiers.seen(&path), (1, 2));
    let error = tiers.index.attach_l1(&lock, 2, &back).unwrap_err();
    assert!(matches!(
        error,
        IndexError::NotLoadable {
            index: 2,
            resident: 1,
            loadable: 2
        }
    ));
    tiers.release(lock);
}

/// Seen to fail if a page that is attached to L1 forgets its copy.
#[test]
fn b50_recomputed_pages_attach_again_and_keep_their_copy() {
    let mut tiers = Tiers::new(4, 4);
    let lock = tiers.run(&[1, 2, 3]);
    tiers.store(&lock);
    tiers.release(lock);
    assert_eq!(tiers.evict_l1(2), 2);
    let path = keys(&[1, 2, 3, 4]);
    let mut lock = tiers.index.acquire_prefix(ROOT, &path[..1]);
    let mut l1 = Vec::new();
    tiers.index.l1_pages_of(&lock, &mut l1).unwrap();
    l1.extend(tiers.alloc_l1(3));
    let mut duplicates = Vec::new();
    let report = tiers
        .index
        .insert(
            &mut lock,
            &path,
            &l1,
            InsertOptions::default(),
            &mut duplicates,
        )
        .unwrap();
    tiers.check();
    assert_eq!((report.new_pages, report.reattached), (1, 2));
    assert!(duplicates.is_empty());
    assert_eq!(tiers.index.resident_l2(), 3);
    tiers.release(lock);
}

/// Seen to fail if a match takes a page on no tier for one on L2.
#[test]
fn b51_a_hit_ends_at_the_first_page_on_no_tier() {
    let mut tiers = Tiers::new(4, 4);
    for split in [false, true] {
        let lock = tiers.run(&[1, 2, 3]);
        tiers.store(&lock);
        let mut l2 = Vec::new();
        tiers
            .index
            .pages_of(&lock, &mut Vec::new(), &mut l2)
            .unwrap();
        tiers.release(lock);
        if split {
            for n in 1..3 {
                let lock = tiers.index.acquire_prefix(ROOT, &keys(&[1, 2, 3])[..n]);
                tiers.release(lock);
            }
        }
        assert_eq!(tiers.evict_l1(3), 3);
        let lost = l2[1].unwrap();
        assert!(tiers.index.lose_l2(lost));
        assert!(!tiers.index.lose_l2(lost));
        tiers.l2.free(&[lost]).unwrap();
        tiers.check();
        assert_eq!(tiers.seen(&[1, 2, 3]), (0, 1));
        assert_eq!(tiers.index.evictable_l2(), 2);
        assert_eq!(tiers.evict_l2(1), 1, "the page behind the gap");
        assert_eq!(tiers.seen(&[1, 2, 3]), (0, 1));
        assert_eq!(tiers.evict_l2(9), 1);
        assert_eq!(tiers.index.nodes(), 0);
    }
}

/// Seen to fail if pins of L2 below a page do not keep it from being dropped.
#[test]
fn b52_a_parent_without_a_copy_goes_with_its_children() {
    let mut tiers = Tiers::new(4, 4);
    let lock = tiers.run(&[1, 2]);
    let mut l1 = Vec::new();
    tiers.index.l1_pages_of(&lock, &mut l1).unwrap();
    let l2 = tiers.alloc_l2(1);
    assert!(tiers.index.attach_l2(l1[1], l2[0]));
    let upper = tiers.index.acquire_prefix(ROOT, &keys(&[1]));
    tiers.release(lock);
    assert_eq!(tiers.evict_l1(1), 1);
    assert_eq!(tiers.seen(&[1, 2]), (1, 1));
    tiers.release(upper);
    // A pin on the child's copy holds the parent as well.
    assert!(tiers.index.pin_l2(l2[0]));
    assert_eq!(tiers.evict_l1(1), 0);
    assert!(tiers.index.unpin_l2(l2[0]));
    assert_eq!(tiers.evict_l1(1), 1);
    assert_eq!(tiers.out.dropped, 2);
    assert_eq!((tiers.l1.free_pages(), tiers.l2.free_pages()), (4, 4));
    assert_eq!(tiers.index.nodes(), 0);
}

#[test]
fn a_chunked_request_keeps_one_node_and_later_turns_do_too() {
    let mut tiers = Tiers::new(40, 0);
    let path: Vec<u32> = (1..=20).collect();
    let mut lock = tiers.index.acquire_prefix(ROOT, &keys(&path));
    let pages = tiers.alloc_l1(20);
    for end in [5, 10, 20] {
        let options = InsertOptions {
            count_hit: end == 20,
            priority: 0,
        };
        let keys = keys(&path[..end]);
        let report = tiers
            .index
            .insert(&mut lock, &keys, &pages[..end], options, &mut Vec::new())
            .unwrap();
        tiers.check();
        assert_eq!(lock.pages(), end);
        assert!(report.new_pages > 0);
    }
    assert_eq!(tiers.index.nodes(), 2);
    tiers.release(lock);
    let longer: Vec<u32> = (1..=25).collect();
    let lock = tiers.run(&longer);
    assert_eq!(tiers.index.nodes(), 2, "the next turn extends the leaf");
    tiers.release(lock);
}

#[test]
fn a_stale_match_is_refused_and_namespaces_do_not_mix() {
    let mut tiers = Tiers::new(8, 0);
    let lock = tiers.run(&[1, 2, 3, 4]);
    tiers.release(lock);
    let whole = tiers.index.match_prefix(ROOT, &keys(&[1, 2, 3, 4]));
    let other = tiers
        .index
        .match_prefix(RootId::new(8), &keys(&[1, 2, 3, 4]));
    assert_eq!((whole.pages(), other.pages()), (4, 0));
    assert_eq!(tiers.evict_l1(2), 2);
    let lock = tiers.run(&[1, 2, 8, 9]);
    assert!(tiers.index.acquire(&whole).is_none(), "page 3 is another");
    tiers.release(lock);
    let found = tiers.index.match_prefix(ROOT, &keys(&[1, 2, 8]));
    let short = tiers.index.match_prefix(ROOT, &keys(&[1]));
    let lock = tiers.index.acquire(&found).unwrap();
    let upper = tiers.index.acquire(&short).unwrap();
    assert_eq!((lock.pages(), upper.pages()), (3, 1));
    tiers.check();
    tiers.release(lock);
    tiers.release(upper);
    let mut elsewhere = Tiers::new(8, 0);
    let lock = elsewhere.run(&[1]);
    assert_eq!(tiers.index.release(lock), Err(IndexError::UnknownLock));
}

#[test]
fn a_deep_chain_is_dropped_without_recursion() {
    let mut tiers = Tiers::new(30_000, 0);
    let path: Vec<u32> = (0..30_000).collect();
    let keys = keys(&path);
    let pages = tiers.alloc_l1(30_000);
    let mut lock = tiers.index.acquire_prefix(ROOT, &[]);
    tiers.insert(&mut lock, &keys, &pages);
    tiers.index.release(lock).unwrap();
    for depth in 1..3000 {
        let lock = tiers.index.acquire_prefix(ROOT, &keys[..depth]);
        tiers.index.release(lock).unwrap();
    }
    tiers.check();
    assert_eq!(tiers.index.nodes(), 3001);
    assert_eq!(tiers.evict_l1(29_990), 29_990);
    assert_eq!(tiers.seen(&path), (10, 0));
}

#[test]
fn without_preference_l2_gives_up_by_rank_alone() {
    let mut tiers = Tiers::new(8, 8);
    // Ends with 1 and 3 on L2 alone and 2 on both tiers, used in the order 1, 2, 3.
    for (page, keep) in [(1, false), (2, true), (3, false)] {
        let lock = tiers.run(&[page, page]);
        tiers.store(&lock);
        tiers.release(lock);
        if !keep {
            let held = tiers.index.acquire_prefix(ROOT, &keys(&[2, 2]));
            assert_eq!(tiers.evict_l1(2), 2);
            tiers.release(held);
        }
    }
    let seen = |tiers: &Tiers| [1, 2, 3].map(|n| tiers.seen(&[n, n]));
    assert_eq!(seen(&tiers), [(0, 2), (2, 0), (0, 2)]);
    let lock = tiers.index.acquire_prefix(ROOT, &keys(&[3, 3]));
    tiers.release(lock);
    let mut evict = |n| {
        tiers.index.evict_l2(n, false, &mut tiers.out);
        tiers.give_back();
        (
            seen(&tiers),
            tiers.out.copies_dropped,
            tiers.index.resident_l2(),
        )
    };
    assert_eq!(evict(1), ([(0, 1), (2, 0), (0, 2)], 0, 5));
    assert_eq!(evict(2), ([(0, 0), (2, 0), (0, 2)], 1, 3));
    assert_eq!(evict(2), ([(0, 0), (2, 0), (0, 1)], 2, 1));
}
