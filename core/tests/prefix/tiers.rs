// SPDX-License-Identifier: Apache-2.0
//! An index with the pools of both tiers, as a controller holds them.

use striata_core::alloc::PageAllocator;
use striata_core::evict::policy_by_name;
use striata_core::prefix::{
    Duplicate, Evicted, InsertOptions, PageKey, PathLock, PrefixIndex, RootId,
};
use striata_core::{L1, L1Page, L2, L2Page};

/// An index with its pools, as a controller has them.
pub(crate) struct Tiers {
    pub(crate) index: PrefixIndex,
    pub(crate) l1: PageAllocator<L1>,
    pub(crate) l2: PageAllocator<L2>,
    pub(crate) out: Evicted,
}

pub(crate) const ROOT: RootId = RootId::new(7);

pub(crate) fn keys(numbers: &[u32]) -> Vec<PageKey> {
    numbers
        .iter()
        .map(|&n| PageKey::new(u128::from(n)))
        .collect()
}

impl Tiers {
    pub(crate) fn new(l1: u32, l2: u32) -> Self {
        Self {
            index: PrefixIndex::new(policy_by_name("lru").unwrap(), l1 + 1, l2),
            l1: PageAllocator::new(l1 + 1, 1),
            l2: PageAllocator::new(l2, 0),
            out: Evicted::default(),
        }
    }

    pub(crate) fn alloc_l1(&mut self, n: usize) -> Vec<L1Page> {
        let mut pages = Vec::new();
        self.l1.alloc(n, &mut pages).unwrap();
        pages
    }

    pub(crate) fn alloc_l2(&mut self, n: usize) -> Vec<L2Page> {
        let mut pages = Vec::new();
        self.l2.alloc(n, &mut pages).unwrap();
        pages
    }

    /// Computes and inserts what the index lacks of a path; returns its lock.
    pub(crate) fn run(&mut self, path: &[u32]) -> PathLock {
        let keys = keys(path);
        let mut lock = self.index.acquire_prefix(ROOT, &keys);
        let mut l1 = Vec::new();
        let held = self.index.l1_pages_of(&lock, &mut l1).unwrap();
        l1.extend(self.alloc_l1(path.len() - held));
        self.insert(&mut lock, &keys, &l1);
        self.check();
        lock
    }

    pub(crate) fn insert(
        &mut self,
        lock: &mut PathLock,
        keys: &[PageKey],
        l1: &[L1Page],
    ) -> Vec<Duplicate> {
        let mut duplicates = Vec::new();
        self.index
            .insert(lock, keys, l1, InsertOptions::default(), &mut duplicates)
            .unwrap();
        duplicates
    }

    /// Stores what of a locked path is not on L2.
    pub(crate) fn store(&mut self, lock: &PathLock) {
        let mut pages = Vec::new();
        self.index.pages_without_l2(lock, 0, &mut pages).unwrap();
        for (l1, l2) in pages.clone().into_iter().zip(self.alloc_l2(pages.len())) {
            assert!(self.index.attach_l2(l1, l2));
        }
        self.check();
    }

    pub(crate) fn seen(&self, path: &[u32]) -> (usize, usize) {
        let found = self.index.match_prefix(ROOT, &keys(path));
        (found.l1_pages, found.l2_pages)
    }

    pub(crate) fn evict_l1(&mut self, n: usize) -> usize {
        let freed = self.index.evict_l1(n, &mut self.out);
        self.give_back();
        freed
    }

    pub(crate) fn evict_l2(&mut self, n: usize) -> usize {
        let freed = self.index.evict_l2(n, true, &mut self.out);
        self.give_back();
        freed
    }

    pub(crate) fn give_back(&mut self) {
        self.l1.free(&self.out.l1).unwrap();
        self.l2.free(&self.out.l2).unwrap();
        self.out.l1.clear();
        self.out.l2.clear();
        self.check();
    }

    pub(crate) fn release(&mut self, lock: PathLock) {
        self.index.release(lock).unwrap();
        self.check();
    }

    pub(crate) fn check(&self) {
        self.index.check_invariants().unwrap();
    }
}
