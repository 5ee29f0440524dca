// SPDX-License-Identifier: Apache-2.0
//! Steps of the machine in which pages end otherwise than by plain eviction.

use striata_core::prefix::{Evicted, PageKey};
use striata_core::{L1Page, L2Page};

use crate::machine::{Machine, POOL, keys_of, root_of};
use crate::model::{Model, Page};

/// What becomes of the pages that a store-first eviction lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Leave,
    Store,
    Drop,
}

fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_unstable();
    values
}

fn recorded() -> Evicted {
    Evicted {
        record_keys: true,
        ..Evicted::default()
    }
}

impl Machine {
    pub(crate) fn check_keys(&self, path: &[u8], page: &Page) {
        let found = !Model::is_retired(path);
        let key = |at: usize| found.then(|| PageKey::new(path[at].into()));
        let last = path.len() - 1;
        if let Some(l1) = page.l1.map(L1Page::new) {
            assert_eq!(self.index.key_of_l1(l1), key(last));
            let parent = (last > 1).then(|| key(last - 1)).flatten();
            assert_eq!(self.index.parent_key_of_l1(l1), parent);
        }
        if let Some(l2) = page.l2.map(L2Page::new) {
            assert_eq!(self.index.key_of_l2(l2), key(last));
        }
    }

    pub(crate) fn evict_store_first(&mut self, n: usize, then: Then) {
        let victim = self.model.victim(self.index.policy());
        let (mut out, mut unstored) = (recorded(), Vec::new());
        let freed = self.index.evict_l1_store_first(n, &mut out, &mut unstored);
        let counts = (out.l1.len(), out.kept_on_l2, out.l2.len(), out.dropped);
        assert_eq!(counts, (freed, freed, 0, 0));
        assert!(freed + unstored.len() <= n);
        // A pin on L2 keeps what is above from being dropped, not from being listed.
        let ranked = matches!(self.index.policy().name(), "lru" | "mru" | "lfu" | "slru");
        if ranked && n > 0 && self.model.pins_l2.is_empty() {
            let victim = victim.map(|path| self.model.pages[&path].clone());
            let page = victim.as_ref().and_then(|page| page.l1).map(L1Page::new);
            match victim.and_then(|page| page.l2) {
                Some(_) => assert_eq!(out.l1.first().copied(), page),
                None => assert_eq!(unstored.first().copied(), page),
            }
        }
        for (freed, key) in out.l1.iter().zip(&out.l1_keys) {
            let path = self.model.find(|page| page.l1 == Some(freed.get()));
            assert!(self.model.pages[&path].l2.is_some());
            assert_eq!(u128::from(*path.last().unwrap()), key.get());
        }
        self.model.apply(&out);
        self.free_l1.extend(out.l1.iter().map(|page| page.get()));
        let listed: Vec<_> = unstored
            .iter()
            .map(|l1| self.model.find(|page| page.l1 == Some(l1.get())))
            .collect();
        for (at, path) in listed.iter().enumerate() {
            let page = &self.model.pages[path];
            assert!(page.l2.is_none() && !self.model.pinned_l1(page.l1));
            assert!(!self.model.locked(path));
            assert!(!listed[..at].contains(path), "{path:?} is listed twice");
            let mut below = self.model.pages.iter();
            assert!(
                below.all(|(other, page)| page.l1.is_none()
                    || !other.starts_with(path)
                    || listed[..=at].contains(other)),
                "something on L1 stands below {path:?}"
            );
        }
        self.check();
        self.nothing_left_behind(n - freed - unstored.len(), &unstored);
        match then {
            Then::Leave => {}
            Then::Store => unstored.iter().for_each(|page| self.attach_l2(page.get())),
            Then::Drop => unstored.iter().for_each(|page| self.drop_l1(page.get())),
        }
    }

    /// With what was listed pinned, a call that came short finds nothing more.
    fn nothing_left_behind(&mut self, short: usize, unstored: &[L1Page]) {
        for &page in unstored {
            assert!(self.index.pin_l1(page));
        }
        if short > 0 {
            let (mut out, mut more) = (Evicted::default(), Vec::new());
            let freed = self
                .index
                .evict_l1_store_first(POOL as usize, &mut out, &mut more);
            assert_eq!((freed, more), (0, Vec::new()));
        }
        for &page in unstored {
            assert!(self.index.unpin_l1(page));
        }
    }

    pub(crate) fn drop_l1(&mut self, l1: u32) {
        let mut out = recorded();
        let freed = self.index.drop_l1(L1Page::new(l1), &mut out);
        let mut pages = self.model.pages.iter();
        let place = pages.find(|(_, page)| page.l1 == Some(l1));
        let Some(top) = place.map(|(path, _)| path.clone()) else {
            assert_eq!(freed, 0);
            return;
        };
        let all = self.model.pages.iter();
        let gone: Vec<_> = all.filter(|(path, _)| path.starts_with(&top)).collect();
        let pinned = gone
            .iter()
            .any(|(_, page)| self.model.pinned_l1(page.l1) || self.model.pinned_l2(page.l2));
        if self.model.locked(&top) || pinned {
            assert_eq!((freed, out.l1.len(), out.l2.len()), (0, 0, 0));
            return;
        }
        let on_l1 = sorted(gone.iter().filter_map(|(_, page)| page.l1));
        let on_l2 = sorted(gone.iter().filter_map(|(_, page)| page.l2));
        assert_eq!(sorted(out.l1.iter().map(|page| page.get())), on_l1);
        assert_eq!(sorted(out.l2.iter().map(|page| page.get())), on_l2);
        assert_eq!(freed, on_l1.len());
        let held = gone
            .iter()
            .filter(|(_, page)| page.l1.is_some() || page.l2.is_some());
        assert_eq!(out.dropped, held.count());
        self.model.pages.retain(|path, _| !path.starts_with(&top));
        self.model.settle();
        self.free_l1.extend(on_l1);
        self.free_l2.extend(on_l2);
    }

    /// Retires the root of a path that was matched before.
    pub(crate) fn retire(&mut self, path: &[u8]) {
        let root = path[0];
        let found = self.index.match_prefix(root_of(path), &keys_of(path));
        let keys = |wanted: fn(&Page) -> bool| {
            let pages = self.model.pages.iter();
            let pages = pages.filter(|(path, page)| path[0] == root && wanted(page));
            sorted(pages.map(|(path, _)| PageKey::new((*path.last().unwrap()).into())))
        };
        let (l1_keys, l2_keys) = (
            keys(|page| page.l1.is_some()),
            keys(|page| page.l2.is_some()),
        );
        if !self.model.retire(root) {
            return;
        }
        let mut out = recorded();
        self.index.retire(root_of(path), &mut out);
        assert_eq!(sorted(out.l1_keys.iter().copied()), l1_keys);
        assert_eq!(sorted(out.l2_keys.iter().copied()), l2_keys);
        self.swept(&out);
        self.check();
        assert_eq!(
            self.index
                .match_prefix(root_of(path), &keys_of(path))
                .pages(),
            0
        );
        if found.pages() > 0 {
            assert!(self.index.acquire(&found).is_none());
        }
    }

    pub(crate) fn sweep(&mut self) {
        let mut out = recorded();
        self.index.sweep_retired(&mut out);
        assert_eq!(out.l1_keys.len() + out.l2_keys.len(), 0);
        self.swept(&out);
    }

    /// Compares what a retirement or a sweep freed.
    fn swept(&mut self, out: &Evicted) {
        let (l1, l2) = self.model.sweep();
        assert_eq!(sorted(out.l1.iter().map(|page| page.get())), l1);
        assert_eq!(sorted(out.l2.iter().map(|page| page.get())), l2);
        self.free_l1.extend(l1);
        self.free_l2.extend(l2);
    }
}
