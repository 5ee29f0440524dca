// SPDX-License-Identifier: Apache-2.0
//! The flat model: a map from the path of a page to what is known of it.

use std::collections::{BTreeMap, BTreeSet};

use striata_core::evict::{EvictionPolicy, EvictionRank, NodeMeta};
use striata_core::prefix::Evicted;

/// Keys from a root on; the first number is the root.
pub(crate) type Path = Vec<u8>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) l1: Option<u32>,
    pub(crate) l2: Option<u32>,
    pub(crate) hits: u32,
    pub(crate) last_access: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) pages: BTreeMap<Path, Page>,
    pub(crate) locks: Vec<Path>,
    pub(crate) pins_l1: BTreeMap<u32, u32>,
    pub(crate) pins_l2: BTreeMap<u32, u32>,
    /// Pages that left the tree when their namespace was retired, until they are swept.
    pub(crate) limbo_l1: BTreeSet<u32>,
    pub(crate) limbo_l2: BTreeSet<u32>,
    pub(crate) retirements: u8,
    pub(crate) now: u64,
}

/// Roots from here on name trees that were retired.
const RETIRED: u8 = 100;

fn below<'a>(
    pages: &'a BTreeMap<Path, Page>,
    path: &'a [u8],
) -> impl Iterator<Item = (&'a Path, &'a Page)> {
    pages
        .range(path.to_vec()..)
        .take_while(move |(other, _)| other.starts_with(path))
        .filter(move |(other, _)| other.len() > path.len())
}

impl Model {
    /// The prefixes of a path that are pages.
    pub(crate) fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        (2..=path.len()).map(|n| &path[..n])
    }

    pub(crate) fn matched(&self, path: &[u8]) -> (usize, usize) {
        let known = |wanted: fn(&Page) -> bool, from: usize| {
            Self::prefixes(path)
                .skip(from)
                .take_while(|prefix| self.pages.get(*prefix).is_some_and(wanted))
                .count()
        };
        let l1 = known(|page| page.l1.is_some(), 0);
        (l1, known(|page| page.l1.is_none() && page.l2.is_some(), l1))
    }

    pub(crate) fn locked(&self, path: &[u8]) -> bool {
        self.locks.iter().any(|lock| lock.starts_with(path))
    }

    pub(crate) fn pinned_l1(&self, page: Option<u32>) -> bool {
        page.is_some_and(|page| self.pins_l1.get(&page).is_some_and(|&n| n > 0))
    }

    pub(crate) fn pinned_l2(&self, page: Option<u32>) -> bool {
        page.is_some_and(|page| self.pins_l2.get(&page).is_some_and(|&n| n > 0))
    }

    /// A path was acquired or inserted.
    pub(crate) fn touch(&mut self, path: &[u8], hit: bool) {
        self.now += 1;
        for prefix in Self::prefixes(path) {
            if let Some(page) = self.pages.get_mut(prefix) {
                page.last_access = self.now;
                page.hits += u32::from(hit);
            }
        }
    }

    /// Pages that can leave L1, by whatever order.
    pub(crate) fn evictable_l1(&self) -> BTreeSet<Path> {
        let mut free: BTreeSet<Path> = BTreeSet::new();
        let mut deepest_first: Vec<_> = self.pages.iter().collect();
        deepest_first.sort_by_key(|(path, _)| core::cmp::Reverse(path.len()));
        for (path, page) in deepest_first {
            let blocked = below(&self.pages, path).any(|(other, under)| {
                (under.l1.is_some() && !free.contains(other))
                    || (page.l2.is_none() && self.pinned_l2(under.l2))
            });
            if page.l1.is_some() && !blocked && !self.locked(path) && !self.pinned_l1(page.l1) {
                free.insert(path.clone());
            }
        }
        free
    }

    /// L2 copies of L1 pages, and pages on L2 alone, that can leave L2.
    pub(crate) fn evictable_l2(&self) -> (BTreeSet<Path>, BTreeSet<Path>) {
        let mut copies = BTreeSet::new();
        let mut free: BTreeSet<Path> = BTreeSet::new();
        let mut deepest_first: Vec<_> = self.pages.iter().collect();
        deepest_first.sort_by_key(|(path, _)| core::cmp::Reverse(path.len()));
        for (path, page) in deepest_first {
            if page.l2.is_none() || self.pinned_l2(page.l2) {
                continue;
            }
            if page.l1.is_some() {
                copies.insert(path.clone());
            } else if !self.locked(path)
                && below(&self.pages, path)
                    .all(|(other, under)| under.l2.is_none() || free.contains(other))
            {
                free.insert(path.clone());
            }
        }
        (copies, free)
    }

    /// The next page that a policy takes off L1: the leaf of the lowest rank.
    pub(crate) fn victim(&self, policy: &dyn EvictionPolicy) -> Option<Path> {
        let rank = |path: &Path| -> EvictionRank {
            let page = &self.pages[path];
            let mut meta = NodeMeta::new(0, 0);
            meta.hits = page.hits;
            meta.last_access = page.last_access;
            policy.rank(&meta)
        };
        let on_l1 = |path: &Path| below(&self.pages, path).any(|(_, page)| page.l1.is_some());
        self.evictable_l1()
            .into_iter()
            .filter(|path| !on_l1(path))
            .min_by_key(|path| rank(path))
    }

    /// Takes the pages that an eviction named away; panics if it had no right to one of them.
    pub(crate) fn apply(&mut self, out: &Evicted) {
        for l1 in &out.l1 {
            let page = self.find(|page| page.l1 == Some(l1.get()));
            self.pages.get_mut(&page).unwrap().l1 = None;
        }
        for l2 in &out.l2 {
            let page = self.find(|page| page.l2 == Some(l2.get()));
            self.pages.get_mut(&page).unwrap().l2 = None;
        }
    }

    pub(crate) fn find(&self, wanted: impl Fn(&Page) -> bool) -> Path {
        let found = self.pages.iter().find(|(_, page)| wanted(page));
        found.expect("the page is in the model").0.clone()
    }

    /// Drops pages on no tier that nothing stands on and no lock holds.
    pub(crate) fn settle(&mut self) {
        loop {
            let gone = self.pages.iter().find(|(path, page)| {
                page.l1.is_none()
                    && page.l2.is_none()
                    && !self.locked(path)
                    && below(&self.pages, path).next().is_none()
            });
            let Some(path) = gone.map(|(path, _)| path.clone()) else {
                return;
            };
            self.pages.remove(&path);
        }
    }

    pub(crate) fn on_l1(&self) -> usize {
        self.pages.values().filter(|page| page.l1.is_some()).count() + self.limbo_l1.len()
    }

    pub(crate) fn on_l2(&self) -> usize {
        self.pages.values().filter(|page| page.l2.is_some()).count() + self.limbo_l2.len()
    }

    pub(crate) fn is_retired(path: &[u8]) -> bool {
        path[0] >= RETIRED
    }

    /// Renames a root to one that no path is asked for under; false if no name is left.
    pub(crate) fn retire(&mut self, root: u8) -> bool {
        let Some(name) = RETIRED.checked_add(self.retirements) else {
            return false;
        };
        self.retirements += 1;
        let renamed = |mut path: Path| {
            if path[0] == root {
                path[0] = name;
            }
            path
        };
        let pages = core::mem::take(&mut self.pages).into_iter();
        self.pages = pages.map(|(path, page)| (renamed(path), page)).collect();
        let locks = core::mem::take(&mut self.locks).into_iter();
        self.locks = locks.map(renamed).collect();
        self.settle_retired();
        true
    }

    /// Puts in limbo what no lock holds of retired trees, and copies that no pin holds.
    pub(crate) fn settle_retired(&mut self) {
        let paths: Vec<_> = self.pages.keys().cloned().collect();
        for path in paths.iter().filter(|path| Self::is_retired(path)) {
            let page = self.pages[path].clone();
            if !self.locked(path) {
                self.pages.remove(path);
                self.limbo_l1.extend(page.l1);
                self.limbo_l2.extend(page.l2);
            } else if page.l1.is_some() && page.l2.is_some() && !self.pinned_l2(page.l2) {
                self.limbo_l2.extend(page.l2);
                self.pages.get_mut(path).unwrap().l2 = None;
            }
        }
    }

    /// Takes what no pin holds out of limbo: pages of L1 and of L2, in order.
    pub(crate) fn sweep(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (l1, l2) = (self.limbo_l1.clone(), self.limbo_l2.clone());
        let l1: Vec<_> = l1
            .into_iter()
            .filter(|&p| !self.pinned_l1(Some(p)))
            .collect();
        let l2: Vec<_> = l2
            .into_iter()
            .filter(|&p| !self.pinned_l2(Some(p)))
            .collect();
        self.limbo_l1.retain(|page| !l1.contains(page));
        self.limbo_l2.retain(|page| !l2.contains(page));
        (l1, l2)
    }
}
