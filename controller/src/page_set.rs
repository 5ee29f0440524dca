// SPDX-License-Identifier: Apache-2.0
//! A set of pages of a tier, by bit.

use std::marker::PhantomData;

use striata_core::{PageId, Tier};

/// Which pages are in.
#[derive(Debug)]
pub(crate) struct PageSet<T> {
    words: Vec<u64>,
    tier: PhantomData<T>,
}

impl<T: Tier> PageSet<T> {
    /// The empty set over `pages` pages.
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            words: vec![0; (pages as usize).div_ceil(64)],
            tier: PhantomData,
        }
    }

    const fn place(page: PageId<T>) -> (usize, u64) {
        (page.index() / 64, 1 << (page.index() % 64))
    }

    /// Whether `page` is in.
    pub(crate) fn contains(&self, page: PageId<T>) -> bool {
        let (word, bit) = Self::place(page);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Puts `page` in; a page outside the tier stays out.
    pub(crate) fn insert(&mut self, page: PageId<T>) {
        let (word, bit) = Self::place(page);
        if let Some(w) = self.words.get_mut(word) {
            *w |= bit;
        }
    }

    /// Takes `page` out.
    pub(crate) fn remove(&mut self, page: PageId<T>) {
        let (word, bit) = Self::place(page);
        if let Some(w) = self.words.get_mut(word) {
            *w &= !bit;
        }
    }
}
