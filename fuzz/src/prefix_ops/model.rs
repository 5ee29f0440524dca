// SPDX-License-Identifier: Apache-2.0
//! A flat model of the prefix index: a map from prefixes to the pages that hold them.

use std::collections::{BTreeMap, BTreeSet};

use striata_core::prefix::Evicted;

/// A prefix: its namespace and the symbols of its pages.
pub(super) type Prefix = (u8, Vec<u8>);

/// Where a page stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    pub(super) l1: Option<u32>,
    pub(super) l2: Option<u32>,
}

/// Pages of a tier that the index does not have, and pins.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) free: BTreeSet<u32>,
    pins: Vec<u32>,
}

impl Pool {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            free: (0..pages).collect(),
            pins: vec![0; pages as usize],
        }
    }

    /// Takes `n` free pages, or none.
    pub(super) fn take(&mut self, n: usize) -> Option<Vec<u32>> {
        (n <= self.free.len()).then(|| {
            let taken: Vec<u32> = self.free.iter().copied().take(n).collect();
            taken
                .iter()
                .for_each(|page| assert!(self.free.remove(page)));
            taken
        })
    }

    pub(super) fn give(&mut self, page: u32) {
        assert!(self.free.insert(page), "page {page} came back twice");
    }

    /// Pins or unpins as the index should: whether it is possible.
    pub(super) fn pin(&mut self, page: u32, on: bool) -> bool {
        let Some(pins) = self.pins.get_mut(page as usize) else {
            return false;
        };
        match (on, *pins) {
            (false, 0) => return false,
            (false, _) => *pins -= 1,
            (true, _) => *pins += 1,
        }
        true
    }

    pub(super) fn is_pinned(&self, page: u32) -> bool {
        self.pins[page as usize] > 0
    }

    /// Every pin, as often as it was taken.
    pub(super) fn pins(&self) -> Vec<u32> {
        let counts = (0u32..).zip(&self.pins);
        counts
            .flat_map(|(page, &count)| (0..count).map(move |_| page))
            .collect()
    }
}

/// The model.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) records: BTreeMap<Prefix, Record>,
    pub(super) l1: Pool,
    pub(super) l2: Pool,
    /// Locked paths.
    pub(super) locked: Vec<Prefix>,
}

impl Model {
    pub(super) fn new(l1_pages: u32, l2_pages: u32) -> Self {
        Self {
            records: BTreeMap::new(),
            l1: Pool::new(l1_pages),
            l2: Pool::new(l2_pages),
            locked: Vec::new(),
        }
    }

    /// The records along a path, from its first page on.
    pub(super) fn along(&self, root: u8, path: &[u8]) -> Vec<Record> {
        (1..=path.len())
            .map(|n| self.records.get(&(root, path[..n].to_vec())))
            .map(|record| record.copied().unwrap_or_default())
            .collect()
    }

    /// Leading pages on L1, and pages right after them on L2 alone.
    pub(super) fn matched(&self, root: u8, path: &[u8]) -> (usize, usize) {
        let along = self.along(root, path);
        let l1 = along.iter().take_while(|r| r.l1.is_some()).count();
        let l2 = along[l1..].iter().take_while(|r| r.l2.is_some()).count();
        (l1, l2)
    }

    pub(super) fn record(&mut self, root: u8, path: &[u8]) -> &mut Record {
        self.records.entry((root, path.to_vec())).or_default()
    }

    /// Whether a lock holds a prefix.
    fn is_locked(&self, prefix: &Prefix) -> bool {
        let holds = |lock: &Prefix| lock.0 == prefix.0 && lock.1.starts_with(&prefix.1);
        self.locked.iter().any(holds)
    }

    pub(super) fn with_l1(&self, page: u32) -> Option<Prefix> {
        let found = self.records.iter().find(|(_, r)| r.l1 == Some(page));
        found.map(|(prefix, _)| prefix.clone())
    }

    pub(super) fn with_l2(&self, page: u32) -> Option<Prefix> {
        let found = self.records.iter().find(|(_, r)| r.l2 == Some(page));
        found.map(|(prefix, _)| prefix.clone())
    }

    pub(super) fn has_pins(&self) -> bool {
        !self.l1.pins().is_empty() || !self.l2.pins().is_empty()
    }

    /// Takes what evictions let go out of the model: nothing locked, nothing pinned, and the
    /// counts are true.
    pub(super) fn evicted(&mut self, out: &Evicted) {
        let mut left = BTreeSet::new();
        for page in out.l1.iter().map(|page| page.get()) {
            let prefix = self.with_l1(page).expect("an L1 page of the index");
            assert!(!self.is_locked(&prefix) && !self.l1.is_pinned(page));
            self.record(prefix.0, &prefix.1).l1 = None;
            self.l1.give(page);
            left.insert(prefix);
        }
        let (mut copies, mut from_both) = (0, 0);
        for page in out.l2.iter().map(|page| page.get()) {
            let prefix = self.with_l2(page).expect("an L2 page of the index");
            let record = self.record(prefix.0, &prefix.1);
            record.l2 = None;
            let on_l1 = record.l1.is_some();
            assert!((on_l1 || !self.is_locked(&prefix)) && !self.l2.is_pinned(page));
            self.l2.give(page);
            copies += usize::from(on_l1);
            from_both += usize::from(!on_l1 && !left.insert(prefix));
        }
        let stays = |prefix: &&Prefix| self.records[*prefix].l2.is_some();
        let kept = left.iter().filter(stays).count();
        assert_eq!(
            (out.copies_dropped, out.dropped),
            (copies, left.len() - kept)
        );
        // A page may first stay on L2 and then be dropped with a page above it.
        assert!((kept..=kept + from_both).contains(&out.kept_on_l2));
        self.forget_empty();
    }

    /// Forgets prefixes that are on no tier.
    pub(super) fn forget_empty(&mut self) {
        self.records.retain(|_, r| r.l1.is_some() || r.l2.is_some());
    }

    /// Pages on each tier.
    pub(super) fn resident(&self) -> (usize, usize) {
        let count =
            |wanted: fn(&Record) -> bool| self.records.values().filter(|r| wanted(r)).count();
        (count(|r| r.l1.is_some()), count(|r| r.l2.is_some()))
    }
}
