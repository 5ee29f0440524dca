// SPDX-License-Identifier: Apache-2.0
//! A node: its page records, its links, its counts, and the moves of one page between tiers.

use core::ops::{AddAssign, SubAssign};

use super::edge::{Edge, NONE};
use super::keys::PageKey;
use super::places::Places;
use crate::evict::NodeMeta;
use crate::units::{L1, L2};

/// A node of the index, for as long as its pages stay what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// A length or depth as it is stored. Paths hold at most one page a page id, so it fits.
pub(super) fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(NONE)
}

/// Counts of the whole index, kept up to date node by node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Pages on L1.
    pub(super) l1: usize,
    /// Pages on L2.
    pub(super) l2: usize,
    /// L1 pages that no lock and no pin holds.
    pub(super) free_l1: usize,
    /// Pages on L2 alone that no lock and no pin holds.
    pub(super) free_l2: usize,
    /// L2 copies of L1 pages that no pin holds.
    pub(super) free_copies: usize,
    /// Pages on L2 alone that are pinned.
    pub(super) pinned_l2: usize,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.l1 += other.l1;
        self.l2 += other.l2;
        self.free_l1 += other.free_l1;
        self.free_l2 += other.free_l2;
        self.free_copies += other.free_copies;
        self.pinned_l2 += other.pinned_l2;
    }
}

impl SubAssign for Totals {
    fn sub_assign(&mut self, other: Self) {
        self.l1 -= other.l1;
        self.l2 -= other.l2;
        self.free_l1 -= other.free_l1;
        self.free_l2 -= other.free_l2;
        self.free_copies -= other.free_copies;
        self.pinned_l2 -= other.pinned_l2;
    }
}

/// A node of the tree. Pages `0..l1_len` of its edge are on L1.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) edge: Edge,
    /// Key by which the parent finds the node: the first page's, or the namespace of a root.
    pub(super) first_key: PageKey,
    pub(super) meta: NodeMeta,
    /// Order of making, for ties.
    pub(super) seq: u64,
    /// Depth of the first page.
    pub(super) start: u32,
    pub(super) generation: u32,
    pub(super) parent: u32,
    pub(super) first_child: u32,
    pub(super) next: u32,
    pub(super) prev: u32,
    pub(super) children: u32,
    /// Children with pages on L1.
    pub(super) l1_children: u32,
    /// Path locks on this node or below.
    pub(super) locks: u32,
    pub(super) l1_len: u32,
    /// Pages on L1 that are pinned there.
    pub(super) l1_pinned: u32,
    /// Pages on both tiers.
    pub(super) both: u32,
    /// Of those, pinned on L2.
    pub(super) both_pinned: u32,
    /// Pages on L2 alone that are pinned.
    pub(super) l2_pinned: u32,
    /// Pages on no tier.
    pub(super) lost: u32,
    /// No unpinned copy of an L1 page stands at or above this offset.
    pub(super) copies_end: u32,
    /// Whether the namespace was retired: no match comes here, and locks alone hold the node.
    pub(super) retired: bool,
}

impl Node {
    pub(super) fn new(edge: Edge) -> Self {
        Self {
            edge,
            first_key: PageKey::default(),
            meta: NodeMeta::default(),
            seq: 0,
            start: 0,
            generation: 0,
            parent: NONE,
            first_child: NONE,
            next: NONE,
            prev: NONE,
            children: 0,
            l1_children: 0,
            locks: 0,
            l1_len: 0,
            l1_pinned: 0,
            both: 0,
            both_pinned: 0,
            l2_pinned: 0,
            lost: 0,
            copies_end: 0,
            retired: false,
        }
    }

    pub(super) fn len(&self) -> u32 {
        narrow(self.edge.len())
    }

    /// Depth behind the last page.
    pub(super) fn end(&self) -> u32 {
        self.start + self.len()
    }

    /// Pages on L2 alone.
    fn l2_only(&self) -> u32 {
        self.len() - self.l1_len - self.lost
    }

    /// L2 copies of L1 pages that may go.
    pub(super) fn free_copies(&self) -> u32 {
        self.both - self.both_pinned
    }

    /// What the node adds to the counts of the index.
    pub(super) fn share(&self) -> Totals {
        let l2_only = self.l2_only();
        let unlocked = self.locks == 0;
        let when_unlocked = |count: u32| if unlocked { count as usize } else { 0 };
        Totals {
            l1: self.l1_len as usize,
            l2: (self.both + l2_only) as usize,
            free_l1: when_unlocked(self.l1_len - self.l1_pinned),
            free_l2: when_unlocked(l2_only - self.l2_pinned),
            free_copies: self.free_copies() as usize,
            pinned_l2: self.l2_pinned as usize,
        }
    }

    /// Whether the last page of the edge is on no tier.
    pub(super) fn ends_lost(&self) -> bool {
        self.lost > 0
            && self.l1_len < self.len()
            && self.edge.l2.last().is_some_and(|&page| page == NONE)
    }

    /// Appends a page that is on L1. `at` is the node's own number.
    pub(super) fn append_l1(&mut self, at: u32, key: PageKey, page: u32, l1: &mut Places<L1>) {
        let depth = self.end();
        self.edge.keys.push(key);
        self.edge.l1.push(page);
        self.edge.l2.push(NONE);
        self.l1_len += 1;
        l1.set(page, at, depth);
        self.l1_pinned += u32::from(l1.is_pinned(page));
    }

    /// Puts the first page that is not on L1 there.
    pub(super) fn attach_next_l1(
        &mut self,
        at: u32,
        page: u32,
        l1: &mut Places<L1>,
        l2: &Places<L2>,
    ) {
        let offset = self.l1_len as usize;
        self.edge.l1[offset] = page;
        l1.set(page, at, self.start + self.l1_len);
        self.l1_len += 1;
        self.l1_pinned += u32::from(l1.is_pinned(page));
        match self.edge.l2[offset] {
            NONE => self.lost -= 1,
            copy => {
                let pinned = u32::from(l2.is_pinned(copy));
                self.both += 1;
                self.both_pinned += pinned;
                self.l2_pinned -= pinned;
                self.copies_end = self.copies_end.max(self.l1_len);
            }
        }
    }

    /// Takes the last L1 page off L1; it is on L2 alone then, or lost. Returns the L1 page.
    pub(super) fn detach_last_l1(&mut self, l1: &mut Places<L1>, l2: &Places<L2>) -> u32 {
        self.l1_len -= 1;
        let offset = self.l1_len as usize;
        let page = core::mem::replace(&mut self.edge.l1[offset], NONE);
        l1.clear(page);
        self.l1_pinned -= u32::from(l1.is_pinned(page));
        match self.edge.l2[offset] {
            NONE => self.lost += 1,
            copy => {
                let pinned = u32::from(l2.is_pinned(copy));
                self.both -= 1;
                self.both_pinned -= pinned;
                self.l2_pinned += pinned;
            }
        }
        page
    }

    /// Gives a page of L1 its copy on L2.
    pub(super) fn attach_l2(&mut self, at: u32, offset: u32, page: u32, l2: &mut Places<L2>) {
        self.edge.l2[offset as usize] = page;
        l2.set(page, at, self.start + offset);
        self.both += 1;
        self.both_pinned += u32::from(l2.is_pinned(page));
        self.copies_end = self.copies_end.max(offset + 1);
    }

    /// Takes the page at `offset` off L2, where it must be; it is on L1 alone then, or lost.
    pub(super) fn detach_l2(&mut self, offset: u32, l2: &mut Places<L2>) -> u32 {
        let page = core::mem::replace(&mut self.edge.l2[offset as usize], NONE);
        l2.clear(page);
        let pinned = u32::from(l2.is_pinned(page));
        if offset < self.l1_len {
            self.both -= 1;
            self.both_pinned -= pinned;
        } else {
            self.lost += 1;
            self.l2_pinned -= pinned;
        }
        page
    }

    /// Drops the last page, which must be on no tier.
    pub(super) fn drop_lost(&mut self) {
        self.lost -= 1;
        self.edge.truncate(self.edge.len() - 1);
    }

    /// The first or last pin of an L1 page of this node.
    pub(super) fn pinned_l1(&mut self, pinned: bool) {
        if pinned {
            self.l1_pinned += 1;
        } else {
            self.l1_pinned -= 1;
        }
    }

    /// The first or last pin of the L2 page at `offset`.
    pub(super) fn pinned_l2(&mut self, offset: u32, pinned: bool) {
        let on_both = offset < self.l1_len;
        let count = if on_both {
            &mut self.both_pinned
        } else {
            &mut self.l2_pinned
        };
        if pinned {
            *count += 1;
        } else {
            *count -= 1;
            if on_both {
                self.copies_end = self.copies_end.max(offset + 1);
            }
        }
    }
}
