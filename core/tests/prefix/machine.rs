// SPDX-License-Identifier: Apache-2.0
//! Random calls on the index and on the flat model; every answer and every invariant compared.

use proptest::prelude::*;
use striata_core::evict::{POLICY_NAMES, policy_by_name};
use striata_core::prefix::{
    Evicted, IndexError, InsertOptions, PageKey, PathLock, PrefixIndex, RootId,
};
use striata_core::{L1Page, L2Page};

use crate::machine_life::Then;
use crate::model::{Model, Page, Path};

pub(crate) const POOL: u32 = 26;

#[derive(Clone, Debug)]
enum Step {
    Match(Path),
    Acquire(Path),
    AcquireStale(Path, usize),
    Release(usize),
    Insert(usize, Path, u8, bool),
    AttachL2(u32),
    AttachL1(usize, usize),
    DetachL1(usize, usize),
    EvictL1(usize),
    EvictL2(usize, bool),
    PinL1(u32, bool),
    PinL2(u32, bool),
    LoseL2(u32),
    StoreFirst(usize, Then),
    DropL1(u32),
    Retire(Path),
    Sweep,
}

fn path() -> impl Strategy<Value = Path> {
    (0u8..2, proptest::collection::vec(0u8..3, 0..9)).prop_map(|(root, mut keys)| {
        keys.insert(0, root);
        keys
    })
}

fn then() -> impl Strategy<Value = Then> {
    prop_oneof![Just(Then::Leave), Just(Then::Store), Just(Then::Drop)]
}

fn step() -> impl Strategy<Value = Step> {
    let suffix = proptest::collection::vec(0u8..3, 0..5);
    prop_oneof![
        2 => path().prop_map(Step::Match),
        4 => path().prop_map(Step::Acquire),
        1 => (path(), 0usize..5).prop_map(|(path, n)| Step::AcquireStale(path, n)),
        5 => (0usize..8).prop_map(Step::Release),
        8 => (0usize..8, suffix, any::<u8>(), any::<bool>())
            .prop_map(|(lock, suffix, mask, hit)| Step::Insert(lock, suffix, mask, hit)),
        6 => (0..POOL).prop_map(Step::AttachL2),
        2 => (0usize..8, 0usize..6).prop_map(|(lock, n)| Step::AttachL1(lock, n)),
        1 => (0usize..8, 0usize..8).prop_map(|(lock, n)| Step::DetachL1(lock, n)),
        4 => (0usize..9).prop_map(Step::EvictL1),
        2 => (0usize..5, any::<bool>()).prop_map(|(n, copies)| Step::EvictL2(n, copies)),
        1 => (0..POOL, any::<bool>()).prop_map(|(page, pin)| Step::PinL1(page, pin)),
        1 => (0..POOL, any::<bool>()).prop_map(|(page, pin)| Step::PinL2(page, pin)),
        1 => (0..POOL).prop_map(Step::LoseL2),
        3 => (0usize..9, then()).prop_map(|(n, then)| Step::StoreFirst(n, then)),
        1 => (0..POOL).prop_map(Step::DropL1),
        1 => path().prop_map(Step::Retire),
        1 => Just(Step::Sweep),
    ]
}

pub(crate) struct Machine {
    pub(crate) index: PrefixIndex,
    pub(crate) model: Model,
    pub(crate) locks: Vec<PathLock>,
    pub(crate) free_l1: Vec<u32>,
    pub(crate) free_l2: Vec<u32>,
}

pub(crate) fn root_of(path: &[u8]) -> RootId {
    RootId::new(u128::from(path[0]))
}

pub(crate) fn keys_of(path: &[u8]) -> Vec<PageKey> {
    path[1..].iter().map(|&k| PageKey::new(k.into())).collect()
}

impl Machine {
    fn new(policy: &str) -> Self {
        let policy = policy_by_name(policy).unwrap();
        Self {
            index: PrefixIndex::new(policy, POOL, POOL).with_exact_hits(),
            model: Model::default(),
            locks: Vec::new(),
            free_l1: (0..POOL).collect(),
            free_l2: (0..POOL).collect(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Match(path) => self.compare(&path),
            Step::Acquire(path) => self.acquire(&path),
            Step::AcquireStale(path, n) => self.acquire_stale(&path, n),
            Step::Release(at) => self.release(at),
            Step::Insert(at, suffix, mask, hit) => self.insert(at, &suffix, mask, hit),
            Step::AttachL2(page) => self.attach_l2(page),
            Step::AttachL1(at, n) => self.attach_l1(at, n),
            Step::DetachL1(at, from) => self.detach_l1(at, from),
            Step::EvictL1(n) => self.evict_l1(n),
            Step::EvictL2(n, copies_first) => self.evict_l2(n, copies_first),
            Step::PinL1(page, pin) => self.pin_l1(page, pin),
            Step::PinL2(page, pin) => self.pin_l2(page, pin),
            Step::LoseL2(page) => self.lose_l2(page),
            Step::StoreFirst(n, then) => self.evict_store_first(n, then),
            Step::DropL1(page) => self.drop_l1(page),
            Step::Retire(path) => self.retire(&path),
            Step::Sweep => self.sweep(),
        }
    }

    fn compare(&self, path: &[u8]) {
        let found = self.index.match_prefix(root_of(path), &keys_of(path));
        assert_eq!((found.l1_pages, found.l2_pages), self.model.matched(path));
    }

    fn acquire(&mut self, path: &[u8]) {
        let found = self.index.match_prefix(root_of(path), &keys_of(path));
        let held = path[..=found.pages()].to_vec();
        self.locks.push(self.index.acquire(&found).unwrap());
        self.model.touch(&held, false);
        self.model.locks.push(held);
    }

    /// A match, an eviction, then the acquire: refused, or the very pages of the match.
    fn acquire_stale(&mut self, path: &[u8], n: usize) {
        let found = self.index.match_prefix(root_of(path), &keys_of(path));
        self.evict_l1(n);
        self.evict_l2(n, false);
        let held = path[..=found.pages()].to_vec();
        if let Some(lock) = self.index.acquire(&found) {
            assert!(Model::prefixes(&held).all(|p| self.model.pages.contains_key(p)));
            self.model.touch(&held, false);
            self.model.locks.push(held);
            self.locks.push(lock);
        }
    }

    fn release(&mut self, at: usize) {
        if at < self.locks.len() {
            let lock = self.locks.swap_remove(at);
            self.index.release(lock).unwrap();
            self.model.locks.swap_remove(at);
        }
    }

    fn insert(&mut self, at: usize, suffix: &[u8], mask: u8, count_hit: bool) {
        if at >= self.locks.len() {
            return;
        }
        let path = [&self.model.locks[at], suffix].concat();
        let mut offered = Vec::new();
        let (mut new, mut again, mut expected) = (0, 0, Vec::new());
        let resident = self.model.matched(&path).0;
        for (index, prefix) in Model::prefixes(&path).enumerate() {
            let page = self.model.pages.get(prefix);
            let have = page.and_then(|page| page.l1);
            let other = mask >> (index % 8) & 1 == 1;
            if let Some(have) = have.filter(|_| !other) {
                offered.push(have);
                continue;
            }
            let Some(fresh) = self.free_l1.pop() else {
                self.free_l1.extend(offered.into_iter().filter(|&page| {
                    !self
                        .model
                        .pages
                        .values()
                        .any(|known| known.l1 == Some(page))
                }));
                return;
            };
            offered.push(fresh);
            match (page, have) {
                (_, Some(have)) => expected.push((index, have, fresh)),
                (Some(_), None) => again += 1,
                (None, None) => new += 1,
            }
        }
        let l1: Vec<_> = offered.iter().map(|&page| L1Page::new(page)).collect();
        let mut duplicates = Vec::new();
        let options = InsertOptions {
            count_hit,
            priority: 0,
        };
        let lock = &mut self.locks[at];
        let report = self
            .index
            .insert(lock, &keys_of(&path), &l1, options, &mut duplicates)
            .unwrap();
        let found: Vec<_> = duplicates
            .iter()
            .map(|d| (d.index, d.kept.get(), d.duplicate.get()))
            .collect();
        assert_eq!(found, expected);
        let counts = (report.new_pages, report.reattached, report.duplicates);
        assert_eq!(counts, (new, again, expected.len()));
        let retired = Model::is_retired(&path);
        assert_eq!((report.resident, report.retired), (resident, retired));
        for (prefix, offered) in Model::prefixes(&path).zip(offered) {
            let page = self.model.pages.entry(prefix.to_vec()).or_default();
            page.l1 = page.l1.or(Some(offered));
        }
        self.free_l1
            .extend(expected.iter().map(|&(_, _, duplicate)| duplicate));
        self.model.touch(&path, count_hit);
        self.model.locks[at] = path;
    }

    pub(crate) fn attach_l2(&mut self, l1: u32) {
        let Some(&l2) = self.free_l2.last() else {
            return;
        };
        let wanted = |(path, page): &(&Path, &mut Page)| {
            !Model::is_retired(path) && page.l1 == Some(l1) && page.l2.is_none()
        };
        let page = self.model.pages.iter_mut().find(wanted);
        let done = self.index.attach_l2(L1Page::new(l1), L2Page::new(l2));
        assert_eq!(done, page.is_some());
        if let Some((_, page)) = page {
            page.l2 = self.free_l2.pop();
        }
    }

    fn attach_l1(&mut self, at: usize, n: usize) {
        if at >= self.locks.len() || n > self.free_l1.len() {
            return;
        }
        let path = &self.model.locks[at];
        let (resident, loadable) = self.model.matched(path);
        let targets = self.free_l1.split_off(self.free_l1.len() - n);
        let pages: Vec<_> = targets.iter().map(|&page| L1Page::new(page)).collect();
        let result = self.index.attach_l1(&self.locks[at], resident, &pages);
        if n > loadable {
            let index = resident + loadable;
            let expected = IndexError::NotLoadable {
                index,
                resident,
                loadable,
            };
            assert_eq!(result, Err(expected));
            self.free_l1.extend(targets);
            return;
        }
        result.unwrap();
        for (prefix, target) in Model::prefixes(path).skip(resident).zip(targets) {
            self.model.pages.get_mut(prefix).unwrap().l1 = Some(target);
        }
    }

    fn detach_l1(&mut self, at: usize, from: usize) {
        if at >= self.locks.len() {
            return;
        }
        let mut out = Vec::new();
        self.index
            .detach_l1(&self.locks[at], from, &mut out)
            .unwrap();
        let path = &self.model.locks[at];
        let mut gone = 0;
        if from + 1 < path.len() {
            let top = path[..from + 2].to_vec();
            for (path, page) in &mut self.model.pages {
                gone += usize::from(path.starts_with(&top) && page.l1.take().is_some());
            }
        }
        assert_eq!(out.len(), gone);
        self.free_l1.extend(out.iter().map(|page| page.get()));
    }

    pub(crate) fn evict_l1(&mut self, n: usize) {
        let possible = self.model.evictable_l1().len();
        let pinned = !self.model.pins_l1.is_empty() || !self.model.pins_l2.is_empty();
        let bound = self.index.evictable_l1();
        assert!(
            bound >= possible && (pinned || bound == possible),
            "{bound} {possible}"
        );
        let mut out = Evicted::default();
        let freed = self.index.evict_l1(n, &mut out);
        assert_eq!(freed, n.min(possible));
        assert_eq!(out.l1.len(), freed);
        let before = self.model.pages.len();
        if matches!(self.index.policy().name(), "lru" | "mru" | "lfu" | "slru") {
            self.replay_l1(&out);
        } else {
            self.model.apply(&out);
            self.model.settle();
        }
        let lost = before - self.model.pages.len();
        assert!(out.dropped <= lost, "{out:?} against {lost}");
        self.free_l1.extend(out.l1.iter().map(|page| page.get()));
        self.free_l2.extend(out.l2.iter().map(|page| page.get()));
    }

    /// The very pages, in the very order, that the policy says.
    fn replay_l1(&mut self, out: &Evicted) {
        for &freed in &out.l1 {
            let victim = self.model.victim(self.index.policy()).unwrap();
            let page = self.model.pages.get_mut(&victim).unwrap();
            assert_eq!(page.l1.take(), Some(freed.get()));
            if page.l2.is_none() {
                self.model
                    .pages
                    .retain(|path, _| !path.starts_with(&victim));
            }
        }
        self.model.settle();
        let left: Vec<_> = self
            .model
            .pages
            .values()
            .filter_map(|page| page.l2)
            .collect();
        assert!(out.l2.iter().all(|page| !left.contains(&page.get())));
    }

    fn evict_l2(&mut self, n: usize, copies_first: bool) {
        let (copies, alone) = self.model.evictable_l2();
        let possible = copies.len() + alone.len();
        let bound = self.index.evictable_l2();
        let pinned = !self.model.pins_l2.is_empty();
        assert!(
            bound >= possible && (pinned || bound == possible),
            "{bound} {possible}"
        );
        let mut out = Evicted {
            record_keys: true,
            ..Evicted::default()
        };
        let freed = self.index.evict_l2(n, copies_first, &mut out);
        assert_eq!(freed, n.min(possible));
        assert_eq!(out.l2.len(), freed);
        assert_eq!(out.copies_dropped + out.dropped, freed);
        if copies_first {
            assert_eq!(out.copies_dropped, n.min(copies.len()));
        }
        for (page, key) in out.l2.iter().zip(&out.l2_keys) {
            let path = self.model.find(|known| known.l2 == Some(page.get()));
            assert!(copies.contains(&path) || alone.contains(&path));
            assert_eq!(u128::from(*path.last().unwrap()), key.get());
        }
        self.model.apply(&out);
        self.free_l2.extend(out.l2.iter().map(|page| page.get()));
    }

    fn pin_l1(&mut self, page: u32, pin: bool) {
        let pins = &mut self.model.pins_l1;
        let had = pins.contains_key(&page);
        if pin {
            assert!(self.index.pin_l1(L1Page::new(page)));
            *pins.entry(page).or_insert(0) += 1;
        } else {
            assert_eq!(self.index.unpin_l1(L1Page::new(page)), had);
            unpin(pins, page);
        }
    }

    fn pin_l2(&mut self, page: u32, pin: bool) {
        let pins = &mut self.model.pins_l2;
        let had = pins.contains_key(&page);
        if pin {
            assert!(self.index.pin_l2(L2Page::new(page)));
            *pins.entry(page).or_insert(0) += 1;
        } else {
            assert_eq!(self.index.unpin_l2(L2Page::new(page)), had);
            unpin(pins, page);
        }
    }

    fn lose_l2(&mut self, l2: u32) {
        let page = self
            .model
            .pages
            .values_mut()
            .find(|page| page.l2 == Some(l2));
        assert_eq!(self.index.lose_l2(L2Page::new(l2)), page.is_some());
        if let Some(page) = page {
            page.l2 = None;
            self.free_l2.push(l2);
        }
    }

    pub(crate) fn check(&mut self) {
        self.model.settle_retired();
        self.model.settle();
        if let Err(broken) = self.index.check_invariants() {
            panic!("{broken}");
        }
        assert_eq!(self.index.resident_l1(), self.model.on_l1());
        assert_eq!(self.index.resident_l2(), self.model.on_l2());
        assert_eq!(self.free_l1.len() + self.model.on_l1(), POOL as usize);
        assert_eq!(self.free_l2.len() + self.model.on_l2(), POOL as usize);
        for (path, page) in &self.model.pages {
            if !Model::is_retired(path) {
                self.compare(path);
            }
            self.check_keys(path, page);
        }
        let (mut l1, mut l2, mut head) = (Vec::new(), Vec::new(), Vec::new());
        for (lock, path) in self.locks.iter().zip(&self.model.locks) {
            assert_eq!(lock.pages() + 1, path.len());
            self.index.pages_of(lock, &mut l1, &mut l2).unwrap();
            head.clear();
            self.index.l1_pages_of(lock, &mut head).unwrap();
            assert!(l1.iter().flatten().eq(head.iter()));
            for ((l1, l2), prefix) in l1.iter().zip(&l2).zip(Model::prefixes(path)) {
                let page = &self.model.pages[prefix];
                assert_eq!(l1.map(L1Page::get), page.l1);
                assert_eq!(l2.map(L2Page::get), page.l2);
            }
            for min_hits in 0..4 {
                let mut alone = Vec::new();
                self.index
                    .pages_without_l2(lock, min_hits, &mut alone)
                    .unwrap();
                let expected: Vec<_> = Model::prefixes(path)
                    .map(|prefix| &self.model.pages[prefix])
                    .filter(|page| page.hits >= min_hits && page.l2.is_none())
                    .filter(|_| !Model::is_retired(path))
                    .filter_map(|page| page.l1.map(L1Page::new))
                    .collect();
                assert_eq!(alone, expected);
            }
        }
    }

    /// Lets everything go: both tiers are whole again and the tree is empty.
    fn drain(mut self) {
        for lock in self.locks.drain(..) {
            self.index.release(lock).unwrap();
        }
        self.model.locks.clear();
        for page in 0..POOL {
            while self.index.unpin_l1(L1Page::new(page)) {}
            while self.index.unpin_l2(L2Page::new(page)) {}
        }
        self.model.pins_l1.clear();
        self.model.pins_l2.clear();
        self.check();
        self.sweep();
        self.check();
        self.evict_l1(POOL as usize);
        self.check();
        self.evict_l2(POOL as usize, false);
        self.check();
        assert_eq!(self.free_l1.len() + self.free_l2.len(), 2 * POOL as usize);
        assert_eq!(self.index.nodes(), 0);
    }
}

fn unpin(pins: &mut std::collections::BTreeMap<u32, u32>, page: u32) {
    if let Some(count) = pins.get_mut(&page) {
        *count -= 1;
        if *count == 0 {
            pins.remove(&page);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// Seen to fail if an insert keeps its claim on the duplicates.
    #[test]
    fn b28_random_calls_agree_with_a_flat_model(
        policy in proptest::sample::select(&POLICY_NAMES[..]),
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut machine = Machine::new(policy);
        for step in steps {
            machine.run(step);
            machine.check();
        }
        machine.drain();
    }
}
