// SPDX-License-Identifier: Apache-2.0
//! With one tier and LRU the index hits exactly what a page-level LRU hits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use striata_core::alloc::PageAllocator;
use striata_core::evict::policy_by_name;
use striata_core::prefix::{Evicted, InsertOptions, PageKey, PrefixIndex, RootId};
use striata_core::{L1, L1Page};

/// Pages by the whole path to them, with the time of their last use. It knows no tree: the oldest
/// page goes, the deepest first among equals.
struct PageLru {
    capacity: usize,
    used: BTreeMap<Vec<u16>, u64>,
    order: BTreeSet<(u64, Reverse<usize>, Vec<u16>)>,
    now: u64,
}

impl PageLru {
    fn use_page(&mut self, page: &[u16]) {
        let entry = |at: u64| (at, Reverse(page.len()), page.to_vec());
        if let Some(old) = self.used.insert(page.to_vec(), self.now) {
            self.order.remove(&entry(old));
        }
        self.order.insert(entry(self.now));
    }

    /// Serves a request and returns how many of its pages it hit.
    fn request(&mut self, path: &[u16]) -> usize {
        self.now += 1;
        let hits = (1..=path.len())
            .take_while(|&n| self.used.contains_key(&path[..n]))
            .count();
        for n in 1..=hits {
            self.use_page(&path[..n]);
        }
        while self.used.len() + path.len() - hits > self.capacity {
            let (_, _, page) = self.order.pop_first().unwrap();
            self.used.remove(&page);
        }
        for n in hits + 1..=path.len() {
            self.use_page(&path[..n]);
        }
        hits
    }
}

fn serve(index: &mut PrefixIndex, pool: &mut PageAllocator<L1>, path: &[u16]) -> usize {
    let root = RootId::new(0);
    let keys: Vec<PageKey> = path.iter().map(|&n| PageKey::new(n.into())).collect();
    let mut lock = index.acquire_prefix(root, &keys);
    let hits = lock.pages();
    let mut l1: Vec<L1Page> = Vec::new();
    index.l1_pages_of(&lock, &mut l1).unwrap();
    let needed = path.len() - hits;
    let mut out = Evicted::default();
    let short = needed.saturating_sub(pool.free_pages());
    assert_eq!(index.evict_l1(short, &mut out), short);
    pool.free(&out.l1).unwrap();
    pool.alloc(needed, &mut l1).unwrap();
    index
        .insert(
            &mut lock,
            &keys,
            &l1,
            InsertOptions::default(),
            &mut Vec::new(),
        )
        .unwrap();
    index.release(lock).unwrap();
    hits
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn hits_equal_those_of_a_page_level_lru(
        capacity in 12usize..80,
        requests in proptest::collection::vec(
            proptest::collection::vec(0u16..3, 1..12),
            1..250,
        ),
    ) {
        let total = capacity as u32 + 1;
        let mut index = PrefixIndex::new(policy_by_name("lru").unwrap(), total, 0);
        let mut pool = PageAllocator::<L1>::new(total, 1);
        let mut model = PageLru {
            capacity,
            used: BTreeMap::new(),
            order: BTreeSet::new(),
            now: 0,
        };
        for path in requests {
            let hits = serve(&mut index, &mut pool, &path);
            prop_assert_eq!(hits, model.request(&path));
            prop_assert_eq!(index.resident_l1(), model.used.len());
            index.check_invariants().unwrap();
        }
    }
}
