// SPDX-License-Identifier: Apache-2.0
//! The steady state of the index allocates nothing on the heap.
#![allow(
    clippy::cast_possible_truncation,
    reason = "tests count pages of small pools"
)]

use striata_core::alloc::PageAllocator;
use striata_core::evict::{POLICY_NAMES, policy_by_name};
use striata_core::prefix::{
    Duplicate, Evicted, InsertOptions, PageKey, PathLock, PrefixIndex, RootId,
};
use striata_core::{L1, L1Page, L2, L2Page};

const ROOT: RootId = RootId::new(1);
const L1_PAGES: u32 = 2_000;
const L2_PAGES: u32 = 3_000;
/// Requests that hold their path at a time.
const RUNNING: usize = 16;

/// A cache as a controller runs it, with every buffer of its own kept from call to call.
struct Cache {
    index: PrefixIndex,
    l1: PageAllocator<L1>,
    l2: PageAllocator<L2>,
    out: Evicted,
    unstored: Vec<L1Page>,
    duplicates: Vec<Duplicate>,
    table: Vec<L1Page>,
    targets: Vec<L2Page>,
    on_l1: Vec<Option<L1Page>>,
    on_l2: Vec<Option<L2Page>>,
    running: Vec<PathLock>,
    loaded: usize,
}

/// Keys of request `n`: a prefix shared by some, then pages of its own. Every other request comes
/// again later, at distances from under L1 to over both tiers.
fn keys(n: u64, out: &mut Vec<PageKey>) {
    let n = if n.is_multiple_of(2) {
        n
    } else {
        (n - 1).saturating_sub(n * 31 % 300 * 2)
    };
    let shared = 5 + n % 3 * 11;
    let total = shared + 3 + n * 7 % 29;
    let owner = |at| if at < shared { n % 9 } else { 100 + n };
    out.clear();
    out.extend((0..total).map(|at| {
        let mixed = (u128::from(owner(at)) << 64 | u128::from(at)) + 1;
        PageKey::new(mixed.wrapping_mul(0xda94_2042_e4dd_58b5_9e37_79b9_7f4a_7c15))
    }));
}

impl Cache {
    fn new(policy: &str) -> Self {
        Self {
            index: PrefixIndex::new(policy_by_name(policy).unwrap(), L1_PAGES, L2_PAGES),
            l1: PageAllocator::new(L1_PAGES, 0),
            l2: PageAllocator::new(L2_PAGES, 0),
            out: Evicted::default(),
            unstored: Vec::new(),
            duplicates: Vec::new(),
            table: Vec::new(),
            targets: Vec::new(),
            on_l1: Vec::new(),
            on_l2: Vec::new(),
            running: Vec::new(),
            loaded: 0,
        }
    }

    /// A request from match to insert; the oldest that runs is released.
    fn request(&mut self, keys: &[PageKey]) {
        let found = self.index.match_prefix(ROOT, keys);
        let mut lock = self.index.acquire(&found).unwrap();
        self.load(&lock, found.l1_pages, found.l2_pages);
        self.table.clear();
        let held = self.index.l1_pages_of(&lock, &mut self.table).unwrap();
        self.make_room_l1(keys.len() - held);
        self.l1.alloc(keys.len() - held, &mut self.table).unwrap();
        self.duplicates.clear();
        let options = InsertOptions::default();
        let (table, duplicates) = (&self.table, &mut self.duplicates);
        self.index
            .insert(&mut lock, keys, table, options, duplicates)
            .unwrap();
        for duplicate in &self.duplicates {
            self.l1.free(&[duplicate.duplicate]).unwrap();
        }
        self.running.push(lock);
        if self.running.len() > RUNNING {
            let oldest = self.running.remove(0);
            self.index.release(oldest).unwrap();
        }
    }

    fn load(&mut self, lock: &PathLock, first: usize, count: usize) {
        self.make_room_l1(count);
        self.table.clear();
        self.l1.alloc(count, &mut self.table).unwrap();
        self.index.attach_l1(lock, first, &self.table).unwrap();
        let (l1, l2) = (&mut self.on_l1, &mut self.on_l2);
        self.index.pages_of(lock, l1, l2).unwrap();
        self.loaded += count;
    }

    /// Stores what would be lost, then evicts it.
    fn make_room_l1(&mut self, needed: usize) {
        while self.l1.free_pages() < needed {
            let short = needed - self.l1.free_pages();
            self.unstored.clear();
            self.index
                .evict_l1_store_first(short, &mut self.out, &mut self.unstored);
            self.free_evicted();
            let listed = self.unstored.len();
            if self.l2.free_pages() < listed {
                let short = listed - self.l2.free_pages();
                self.index.evict_l2(short, true, &mut self.out);
                self.free_evicted();
            }
            self.targets.clear();
            self.l2.alloc(listed, &mut self.targets).unwrap();
            for (&l1, &l2) in self.unstored.iter().zip(&self.targets) {
                assert!(self.index.pin_l1(l1) && self.index.attach_l2(l1, l2));
                assert!(self.index.unpin_l1(l1));
            }
        }
    }

    fn free_evicted(&mut self) {
        self.l1.free(&self.out.l1).unwrap();
        self.l2.free(&self.out.l2).unwrap();
        self.out.clear();
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    for policy in POLICY_NAMES {
        let mut cache = Cache::new(policy);
        let mut path = Vec::new();
        let mut run = |cache: &mut Cache, requests: core::ops::Range<u64>| {
            for n in requests {
                keys(n, &mut path);
                cache.request(&path);
            }
        };
        run(&mut cache, 0..20_000);
        let (loaded, nodes) = (cache.loaded, cache.index.nodes());
        let cost = allocation_counter::measure(|| run(&mut cache, 20_000..40_000));
        assert_eq!(
            (cost.count_total, cost.bytes_total),
            (0, 0),
            "{policy}: {nodes} nodes before, {} after",
            cache.index.nodes()
        );
        assert!(cache.loaded > loaded, "{policy}: L2 is never hit");
        cache.index.check_invariants().unwrap();
    }
}
