// SPDX-License-Identifier: Apache-2.0
//! The reference cache: what a request may find, and what it must hold then. A flat map from
//! prefixes to content, and pools as sets of pages. It knows nothing of trees, copies or policies.

use std::collections::{BTreeMap, BTreeSet};

use striata::core::L1Page;
use striata::core::prefix::PageKey;
use striata::{EventTier, KvEvent};

/// What the rows of a page are made from.
pub type Content = u128;

/// A prefix of whole pages in a namespace: one symbol a page stands for its tokens.
pub type Prefix = (u8, Vec<u8>);

/// Who holds a page of L1, and what is in it.
#[derive(Debug)]
struct Held {
    content: Content,
    holders: BTreeSet<u64>,
}

/// What was cached, and what is held.
#[derive(Debug, Default)]
pub struct Model {
    /// What each prefix that was made matchable since its namespace's last reset must hold.
    cached: BTreeMap<Prefix, Content>,
    /// Resets of each namespace.
    epochs: BTreeMap<u8, u64>,
    held: BTreeMap<L1Page, Held>,
    /// How often each page key is on L1 and on L2, as events tell.
    on_l1: BTreeMap<PageKey, usize>,
    on_l2: BTreeMap<PageKey, usize>,
}

/// Mixes a symbol into a hash of what stands before it.
const fn mix(state: u128, symbol: u8) -> u128 {
    let state =
        (state ^ (symbol as u128 + 1)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
    state ^ (state >> 61)
}

/// The keys of a path's pages: each names the whole prefix up to its end.
#[must_use]
pub fn keys_of(root: u8, path: &[u8]) -> Vec<PageKey> {
    let mut state = mix(0x6C62_272E_07BB_0142_62B8_2175_6295_C58D, root);
    let chain = path.iter().map(|&symbol| {
        state = mix(state, symbol);
        PageKey::new(state)
    });
    chain.collect()
}

/// What the pages of a path hold if they were computed `epoch` resets after the start.
#[must_use]
pub fn contents_of(root: u8, epoch: u64, path: &[u8]) -> Vec<Content> {
    let salt = u128::from(epoch) << 100;
    let keys = keys_of(root, path).into_iter();
    keys.map(|key| key.get() ^ salt).collect()
}

impl Model {
    /// Resets of a namespace so far.
    #[must_use]
    pub fn epoch(&self, root: u8) -> u64 {
        self.epochs.get(&root).copied().unwrap_or(0)
    }

    /// Most leading pages of `path` that a request may find.
    #[must_use]
    pub fn matchable(&self, root: u8, path: &[u8]) -> usize {
        let known = |len: &usize| self.cached.contains_key(&(root, path[..*len].to_vec()));
        (1..=path.len()).take_while(known).count()
    }

    /// A request has made the pages of `path` matchable; one that began before the last reset
    /// changes nothing.
    pub fn insert(&mut self, root: u8, epoch: u64, path: &[u8]) {
        if epoch != self.epoch(root) {
            return;
        }
        for (at, content) in contents_of(root, epoch, path).into_iter().enumerate() {
            self.cached.insert((root, path[..=at].to_vec()), content);
        }
    }

    /// Forgets a namespace.
    pub fn reset(&mut self, root: u8) {
        self.cached.retain(|(of, _), _| *of != root);
        *self.epochs.entry(root).or_default() += 1;
    }

    /// Prefixes that no other cached prefix continues, in order.
    pub fn longest(&self) -> impl Iterator<Item = &Prefix> + '_ {
        self.cached.keys().filter(|(root, path)| {
            let next = self.cached.range((*root, path.clone())..).nth(1);
            next.is_none_or(|((of, other), _)| of != root || !other.starts_with(path))
        })
    }

    /// `holder` has `page` in its table, for `content`.
    ///
    /// # Errors
    /// Somebody else has it for other content.
    pub fn hold(&mut self, holder: u64, page: L1Page, content: Content) -> Result<(), String> {
        let held = self.held.entry(page).or_insert_with(|| Held {
            content,
            holders: BTreeSet::new(),
        });
        let others = held.holders.iter().any(|other| *other != holder);
        if others && held.content != content {
            return Err(format!(
                "L1 page {page} is given to {holder} for {content:032x} and held by {:?} for \
                 {:032x}",
                held.holders, held.content
            ));
        }
        held.content = content;
        held.holders.insert(holder);
        Ok(())
    }

    /// `holder` lets all its pages go.
    pub fn release(&mut self, holder: u64) {
        self.held.retain(|_, held| {
            held.holders.remove(&holder);
            !held.holders.is_empty()
        });
    }

    /// Takes cache events in.
    ///
    /// # Errors
    /// A page that comes to a tier where it is, or goes from one where it is not, in a program
    /// without resets: afterwards, pages of before may still come to an end.
    pub fn note(&mut self, events: &[KvEvent]) -> Result<(), String> {
        let exact = self.epochs.is_empty();
        for event in events {
            match event {
                KvEvent::Stored { tier, pages, .. } => {
                    for page in pages {
                        let count = self.tier(*tier).entry(page.0).or_default();
                        *count += 1;
                        if exact && *count > 1 {
                            return Err(format!("{event:?}: it is there already"));
                        }
                    }
                }
                KvEvent::Removed { tier, pages } => {
                    for page in pages {
                        let count = self.tier(*tier).entry(page.0).or_default();
                        if exact && *count == 0 {
                            return Err(format!("{event:?}: it is not there"));
                        }
                        *count = count.saturating_sub(1);
                    }
                }
            }
        }
        Ok(())
    }

    fn tier(&mut self, tier: EventTier) -> &mut BTreeMap<PageKey, usize> {
        match tier {
            EventTier::L1 => &mut self.on_l1,
            EventTier::L2 => &mut self.on_l2,
        }
    }

    /// Leading pages of a path that are on either tier, as events tell; none after a reset, when
    /// events of before are still to come.
    #[must_use]
    pub fn told(&self, root: u8, path: &[u8]) -> Option<usize> {
        let on =
            |tier: &BTreeMap<PageKey, usize>, key: &PageKey| tier.get(key).is_some_and(|n| *n > 0);
        let keys = keys_of(root, path).into_iter();
        let there = |key: &PageKey| on(&self.on_l1, key) || on(&self.on_l2, key);
        self.epochs
            .is_empty()
            .then(|| keys.take_while(there).count())
    }
}
