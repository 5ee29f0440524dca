// SPDX-License-Identifier: Apache-2.0
//! Programs of calls of the prefix index, against a flat model.

mod model;
mod program;

use model::Model;
pub use program::Input;
use program::Op;
use striata_core::evict::{POLICY_NAMES, policy_by_name};
use striata_core::prefix::{
    Evicted, IndexError, InsertOptions, PageKey, PathLock, PrefixIndex, RootId,
};
use striata_core::{L1Page, L2Page};

/// Most locks held at once, and most calls of a program.
const MAX_LOCKS: usize = 6;
const MAX_OPS: usize = 96;

struct Machine {
    index: PrefixIndex,
    model: Model,
    locks: Vec<PathLock>,
}

/// The keys of a path: each names the whole prefix, and namespaces share keys.
fn keys_of(path: &[u8]) -> Vec<PageKey> {
    let chain = path.iter().scan(1u128, |key, &symbol| {
        *key = *key << 2 | u128::from(symbol);
        Some(PageKey::new(*key))
    });
    chain.collect()
}

fn root_of(root: u8) -> RootId {
    RootId::new(u128::from(root) + 7)
}

fn l1_pages(pages: &[u32]) -> Vec<L1Page> {
    pages.iter().copied().map(L1Page::new).collect()
}

impl Machine {
    fn new(input: &Input) -> Self {
        let name = POLICY_NAMES[usize::from(input.policy) % POLICY_NAMES.len()];
        let policy = policy_by_name(name).expect("a known policy");
        let (l1, l2) = (
            u32::from(input.l1_pages % 24),
            u32::from(input.l2_pages % 24),
        );
        let index = PrefixIndex::new(policy, l1, l2);
        Self {
            index: if input.exact_hits {
                index.with_exact_hits()
            } else {
                index
            },
            model: Model::new(l1, l2),
            locks: Vec::new(),
        }
    }

    fn lock_at(&self, lock: u8) -> Option<usize> {
        (!self.locks.is_empty()).then(|| usize::from(lock) % self.locks.len())
    }

    fn step(&mut self, op: &Op) -> Option<()> {
        match *op {
            Op::Acquire { root, path } => self.acquire(u8::from(root), &path.symbols()),
            Op::Release { lock } => self.release(self.lock_at(lock)?),
            Op::Insert {
                lock,
                suffix,
                count_hit,
                priority,
            } => {
                let priority = i32::from(priority);
                let options = InsertOptions {
                    count_hit,
                    priority,
                };
                self.insert(self.lock_at(lock)?, &suffix.symbols(), options)?;
            }
            Op::EvictL1 { n } => self.evict_l1(usize::from(n % 32)),
            Op::EvictL2 { n, copies_first } => self.evict_l2(usize::from(n % 32), copies_first),
            Op::AttachL1 { lock, count } => {
                self.attach_l1(self.lock_at(lock)?, usize::from(count % 8))?;
            }
            Op::DetachL1 { lock, from } => self.detach_l1(self.lock_at(lock)?, from % 8),
            Op::AttachL2 { l1 } => self.attach_l2(u32::from(l1 % 24))?,
            Op::LoseL2 { l2 } => self.lose_l2(u32::from(l2 % 24)),
            Op::PinL1 { page, on } => {
                let page = u32::from(page % 25);
                let id = L1Page::new(page);
                let done = if on {
                    self.index.pin_l1(id)
                } else {
                    self.index.unpin_l1(id)
                };
                assert_eq!(done, self.model.l1.pin(page, on));
            }
            Op::PinL2 { page, on } => {
                let page = u32::from(page % 25);
                let id = L2Page::new(page);
                let done = if on {
                    self.index.pin_l2(id)
                } else {
                    self.index.unpin_l2(id)
                };
                assert_eq!(done, self.model.l2.pin(page, on));
            }
        }
        Some(())
    }

    fn acquire(&mut self, root: u8, path: &[u8]) {
        let found = self.index.match_prefix(root_of(root), &keys_of(path));
        let want = self.model.matched(root, path);
        assert_eq!((found.l1_pages, found.l2_pages), want);
        if self.locks.len() == MAX_LOCKS {
            return;
        }
        let lock = self.index.acquire_prefix(root_of(root), &keys_of(path));
        assert_eq!(lock.pages(), found.pages());
        self.model
            .locked
            .push((root, path[..found.pages()].to_vec()));
        self.locks.push(lock);
    }

    fn release(&mut self, at: usize) {
        self.model.locked.swap_remove(at);
        let lock = self.locks.swap_remove(at);
        self.index.release(lock).expect("a lock of this index");
    }

    /// Inserts the locked path and what follows it, on new pages where L1 has none.
    fn insert(&mut self, at: usize, suffix: &[u8], options: InsertOptions) -> Option<()> {
        let (root, head) = self.model.locked[at].clone();
        let path = [head.as_slice(), suffix].concat();
        let held = self.model.along(root, &path);
        let own = |n: usize| held[n].l1.filter(|_| n < head.len());
        let absent = (0..path.len()).filter(|&n| own(n).is_none()).count();
        let mut fresh = self.model.l1.take(absent)?.into_iter();
        let pages: Vec<u32> = (0..path.len())
            .filter_map(|n| own(n).or_else(|| fresh.next()))
            .collect();
        let mut duplicates = Vec::new();
        let report = self
            .index
            .insert(
                &mut self.locks[at],
                &keys_of(&path),
                &l1_pages(&pages),
                options,
                &mut duplicates,
            )
            .expect("a path that continues its lock, on pages of our own");
        let mut want = Vec::new();
        for (n, (&page, held)) in pages.iter().zip(&held).enumerate() {
            match held.l1 {
                None => self.model.record(root, &path[..=n]).l1 = Some(page),
                Some(kept) if kept == page => {}
                Some(kept) => {
                    want.push((n, kept, page));
                    self.model.l1.give(page);
                }
            }
        }
        let got = duplicates
            .iter()
            .map(|d| (d.index, d.kept.get(), d.duplicate.get()));
        assert_eq!(got.collect::<Vec<_>>(), want);
        assert_eq!(report.duplicates, want.len());
        let attached = held.iter().filter(|record| record.l1.is_none()).count();
        assert_eq!(report.new_pages + report.reattached, attached);
        self.model.locked[at].1 = path;
        Some(())
    }

    fn evict_l1(&mut self, n: usize) {
        let most = self.index.evictable_l1();
        let mut out = Evicted::default();
        let freed = self.index.evict_l1(n, &mut out);
        assert_eq!(freed, out.l1.len());
        self.check_amount(freed, n, most);
        self.model.evicted(&out);
    }

    fn evict_l2(&mut self, n: usize, copies_first: bool) {
        let most = self.index.evictable_l2();
        let mut out = Evicted::default();
        let freed = self.index.evict_l2(n, copies_first, &mut out);
        assert_eq!((freed, 0), (out.l2.len(), out.l1.len()));
        self.check_amount(freed, n, most);
        self.model.evicted(&out);
    }

    /// Exactly what was asked for, or all that there is.
    fn check_amount(&self, freed: usize, n: usize, most: usize) {
        assert!(
            freed <= n.min(most),
            "freed {freed} of {most}, asked for {n}"
        );
        if !self.model.has_pins() {
            assert_eq!(freed, n.min(most));
        }
    }

    fn attach_l1(&mut self, at: usize, count: usize) -> Option<()> {
        let (root, path) = self.model.locked[at].clone();
        let (first, loadable) = self.model.matched(root, &path);
        let pages = self.model.l1.take(count)?;
        let done = self
            .index
            .attach_l1(&self.locks[at], first, &l1_pages(&pages));
        if count > loadable {
            assert!(
                matches!(done, Err(IndexError::NotLoadable { .. })),
                "{done:?}"
            );
            pages.into_iter().for_each(|page| self.model.l1.give(page));
            return Some(());
        }
        assert_eq!(done, Ok(()));
        for (n, page) in (first..).zip(pages) {
            self.model.record(root, &path[..=n]).l1 = Some(page);
        }
        Some(())
    }

    /// What stands at and below page `from` of the path leaves L1.
    fn detach_l1(&mut self, at: usize, from: u8) {
        let (root, path) = self.model.locked[at].clone();
        let mut out = Vec::new();
        let done = self
            .index
            .detach_l1(&self.locks[at], usize::from(from), &mut out);
        assert_eq!(done, Ok(()));
        let mut want = Vec::new();
        if let Some(top) = path.get(..=usize::from(from)) {
            for ((_, prefix), record) in self.model.records.iter_mut().filter(|(p, _)| p.0 == root)
            {
                if prefix.starts_with(top) {
                    want.extend(record.l1.take());
                }
            }
        }
        let mut got: Vec<u32> = out.iter().map(|page| page.get()).collect();
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want);
        want.into_iter().for_each(|page| self.model.l1.give(page));
        self.model.forget_empty();
    }

    fn attach_l2(&mut self, l1: u32) -> Option<()> {
        let page = self.model.l2.take(1)?[0];
        let done = self.index.attach_l2(L1Page::new(l1), L2Page::new(page));
        let prefix = self.model.with_l1(l1);
        let room = prefix.filter(|prefix| self.model.records[prefix].l2.is_none());
        assert_eq!(done, room.is_some());
        match room {
            Some(prefix) => self.model.record(prefix.0, &prefix.1).l2 = Some(page),
            None => self.model.l2.give(page),
        }
        Some(())
    }

    fn lose_l2(&mut self, l2: u32) {
        let prefix = self.model.with_l2(l2);
        assert_eq!(self.index.lose_l2(L2Page::new(l2)), prefix.is_some());
        if let Some(prefix) = prefix {
            self.model.record(prefix.0, &prefix.1).l2 = None;
            self.model.l2.give(l2);
            self.model.forget_empty();
        }
    }

    /// The index is sound and holds what the model holds.
    fn check(&self) {
        self.index.check_invariants().expect("a sound index");
        let resident = (self.index.resident_l1(), self.index.resident_l2());
        assert_eq!(resident, self.model.resident());
        for record in self.model.records.values() {
            if let Some(l1) = record.l1 {
                let copy = self.index.l2_of(L1Page::new(l1));
                assert_eq!(copy.map(|page| page.get()), record.l2);
            }
        }
        let (mut l1, mut l2) = (Vec::new(), Vec::new());
        for (lock, (root, path)) in self.locks.iter().zip(&self.model.locked) {
            self.index
                .pages_of(lock, &mut l1, &mut l2)
                .expect("a lock of this index");
            let along = self.model.along(*root, path);
            let pages = along.iter().zip(l1.iter().zip(&l2));
            for (record, (l1, l2)) in pages {
                assert_eq!(l1.map(|page| page.get()), record.l1);
                assert_eq!(l2.map(|page| page.get()), record.l2);
            }
            assert_eq!((l1.len(), l2.len()), (path.len(), path.len()));
        }
    }

    /// With nothing held, everything can go.
    fn drain(&mut self) {
        for page in self.model.l1.pins() {
            assert!(self.index.unpin_l1(L1Page::new(page)) && self.model.l1.pin(page, false));
        }
        for page in self.model.l2.pins() {
            assert!(self.index.unpin_l2(L2Page::new(page)) && self.model.l2.pin(page, false));
        }
        while !self.locks.is_empty() {
            self.release(0);
        }
        self.check();
        self.evict_l1(usize::MAX);
        self.evict_l2(usize::MAX, false);
        self.check();
        assert_eq!((self.index.nodes(), self.model.resident()), (0, (0, 0)));
    }
}

/// Runs a program and drains the index.
pub fn run(input: &Input) {
    let mut machine = Machine::new(input);
    for op in input.ops.iter().take(MAX_OPS) {
        // A call that lacks pages or locks is left out.
        if machine.step(op).is_some() {
            machine.check();
        }
    }
    machine.drain();
}
