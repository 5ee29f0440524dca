// SPDX-License-Identifier: Apache-2.0
//! Back pointers and pins by page id of a tier.

use super::edge::NONE;
use super::error::IndexError;
use crate::units::{PageId, Tier};

/// Node of a page that an insert in progress has claimed.
const CLAIMED: u32 = NONE - 1;
/// Node of a page whose namespace was retired, until it is swept.
const LIMBO: u32 = NONE - 2;

#[derive(Clone, Copy, Debug)]
struct Place {
    node: u32,
    /// Index in the path from the root: a split leaves it as it is.
    depth: u32,
    pins: u32,
}

/// Where each page of tier `T` stands in the tree, and how many copies in flight hold it.
#[derive(Debug)]
pub(super) struct Places<T: Tier> {
    pages: Vec<Place>,
    /// Pages in limbo, pinned or to be swept.
    in_limbo: usize,
    /// Pages in limbo that were seen without a pin: what a sweep looks at.
    unheld: Vec<PageId<T>>,
}

/// A page that stands nowhere.
const EMPTY: Place = Place {
    node: NONE,
    depth: 0,
    pins: 0,
};

impl<T: Tier> Places<T> {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            pages: vec![EMPTY; pages as usize],
            in_limbo: 0,
            unheld: Vec::new(),
        }
    }

    /// Adds the pages up to `pages`, which stand nowhere.
    pub(super) fn grow(&mut self, pages: u32) {
        let pages = self.pages.len().max(pages as usize);
        self.pages.resize(pages, EMPTY);
    }

    /// Pages of the tier.
    pub(super) fn count(&self) -> usize {
        self.pages.len()
    }

    /// Node and depth of a page that stands in the tree.
    pub(super) fn find(&self, page: PageId<T>) -> Option<(u32, u32)> {
        let place = self.pages.get(page.index())?;
        (place.node < LIMBO).then_some((place.node, place.depth))
    }

    pub(super) fn set(&mut self, page: u32, node: u32, depth: u32) {
        let place = &mut self.pages[page as usize];
        place.node = node;
        place.depth = depth;
    }

    /// Hands a page of a node to another node that the node's head moved to.
    pub(super) fn rehome(&mut self, page: u32, node: u32) {
        self.pages[page as usize].node = node;
    }

    pub(super) fn clear(&mut self, page: u32) {
        self.pages[page as usize].node = NONE;
    }

    /// Claims a page that must stand nowhere yet.
    pub(super) fn claim(&mut self, page: PageId<T>) -> Result<(), IndexError> {
        let total = self.pages.len();
        let place = self
            .pages
            .get_mut(page.index())
            .ok_or(IndexError::PageRange {
                tier: T::NAME,
                page: page.get(),
                total,
            })?;
        if place.node != NONE {
            return Err(IndexError::PageOwned {
                tier: T::NAME,
                page: page.get(),
            });
        }
        place.node = CLAIMED;
        Ok(())
    }

    pub(super) fn is_pinned(&self, page: u32) -> bool {
        self.pages[page as usize].pins > 0
    }

    /// Pins a page; true if this is its first pin.
    pub(super) fn pin(&mut self, page: PageId<T>) -> Option<bool> {
        let place = self.pages.get_mut(page.index())?;
        place.pins = place.pins.checked_add(1)?;
        Some(place.pins == 1)
    }

    /// Takes one pin back; true if it was the last.
    pub(super) fn unpin(&mut self, page: PageId<T>) -> Option<bool> {
        let place = self.pages.get_mut(page.index())?;
        place.pins = place.pins.checked_sub(1)?;
        let last = place.pins == 0;
        if last && place.node == LIMBO {
            self.unheld.push(page);
        }
        Some(last)
    }

    /// Takes a page out of the tree for good; the next sweep after its last pin frees it.
    pub(super) fn retire(&mut self, page: u32) {
        let place = &mut self.pages[page as usize];
        place.node = LIMBO;
        self.in_limbo += 1;
        if place.pins == 0 {
            self.unheld.push(PageId::new(page));
        }
    }

    /// Frees the pages in limbo that no pin holds.
    pub(super) fn sweep(&mut self, out: &mut Vec<PageId<T>>) {
        for page in self.unheld.drain(..) {
            let place = &mut self.pages[page.index()];
            // A page may be listed twice, or have been pinned again since.
            if place.node == LIMBO && place.pins == 0 {
                place.node = NONE;
                self.in_limbo -= 1;
                out.push(page);
            }
        }
    }

    /// Pages that left the tree and are not swept yet.
    pub(super) const fn in_limbo(&self) -> usize {
        self.in_limbo
    }

    /// Whether the pages in limbo are counted, and listed unless a pin holds them.
    pub(super) fn limbo_is_sound(&self) -> bool {
        let limbo = (0u32..)
            .zip(&self.pages)
            .filter(|(_, place)| place.node == LIMBO);
        let mut count = 0;
        let listed = limbo.inspect(|_| count += 1).all(|(page, place)| {
            place.pins > 0 || self.unheld.iter().any(|unheld| unheld.get() == page)
        });
        listed && count == self.in_limbo
    }

    /// Pages that stand in the tree.
    pub(super) fn standing(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        (0u32..)
            .zip(&self.pages)
            .filter(|(_, place)| place.node != NONE && place.node != LIMBO)
            .map(|(page, place)| (page, place.node, place.depth))
    }
}
