// SPDX-License-Identifier: Apache-2.0
//! Pages that arrive on a tier, leave it by a failure, or are pinned.

use super::acquire::PathLock;
use super::edge::NONE;
use super::error::IndexError;
use super::index::{PrefixIndex, TOP, leading_on_l2};
use super::node::narrow;
use crate::units::{L1Page, L2Page};

impl PrefixIndex {
    /// Puts pages `first..first + pages.len()` of a locked path on L1: targets of a load. They
    /// must follow the pages of the path that are on L1 and be on L2; they count as L1 at once.
    ///
    /// # Errors
    /// Pages that do not continue the L1 prefix or are not on L2, targets that are out of range or
    /// owned: nothing has changed then.
    pub fn attach_l1(
        &mut self,
        lock: &PathLock,
        first: usize,
        pages: &[L1Page],
    ) -> Result<(), IndexError> {
        let end = self.locked_node(lock)?;
        let resident = self.l1_pages(lock)?;
        self.walk_to(end);
        let loadable = self.loadable();
        if first != resident || pages.len() > loadable {
            let index = if first == resident {
                resident + loadable
            } else {
                first
            };
            return Err(IndexError::NotLoadable {
                index,
                resident,
                loadable,
            });
        }
        for (at, &page) in pages.iter().enumerate() {
            if let Err(error) = self.l1.claim(page) {
                for claimed in &pages[..at] {
                    self.l1.clear(claimed.get());
                }
                return Err(error);
            }
        }
        let mut rest = pages;
        for step in 0..self.walk.len() {
            let at = self.walk[step];
            let node = &self.nodes[at];
            let room = (node.len() - node.l1_len) as usize;
            let (here, below) = rest.split_at(room.min(rest.len()));
            self.attach_rest(at, here);
            rest = below;
        }
        Ok(())
    }

    /// Pages of the path in the scratch walk that are on L2, right after those on L1.
    fn loadable(&self) -> usize {
        let mut loadable = 0;
        for &step in &self.walk {
            let node = &self.nodes[step];
            let l2_only = &node.edge.l2[node.l1_len as usize..];
            let held = leading_on_l2(l2_only);
            loadable += held;
            if held < l2_only.len() {
                break;
            }
        }
        loadable
    }

    /// Takes everything from page `from` of a locked path on off L1, what stands below the path
    /// included, and appends the L1 pages to `out`: the undo of [`PrefixIndex::attach_l1`] when a
    /// load has failed. Pages without a copy on L2 are lost: they end every match, and leave the
    /// tree when no lock holds them.
    ///
    /// # Errors
    /// A lock that is not of this index.
    pub fn detach_l1(
        &mut self,
        lock: &PathLock,
        from: usize,
        out: &mut Vec<L1Page>,
    ) -> Result<(), IndexError> {
        let mut top = self.locked_node(lock)?;
        if from >= lock.pages {
            return Ok(());
        }
        while self.nodes[top].start as usize > from {
            top = self.nodes[top].parent;
        }
        self.walk_below(top);
        while let Some(at) = self.walk.pop() {
            let node = &self.nodes[at];
            let keep = if at == top {
                narrow(from) - node.start
            } else {
                0
            };
            let before = node.l1_len;
            if before > keep {
                let first = out.len();
                self.update(at, |node, l1, l2| {
                    while node.l1_len > keep {
                        out.push(L1Page::new(node.detach_last_l1(l1, l2)));
                    }
                });
                out[first..].reverse();
                if keep == 0 {
                    self.left_l1(at);
                }
                self.settle(at);
            }
        }
        Ok(())
    }

    /// Notes the copy on L2 of a page of L1, once its store was acknowledged. False, and the
    /// caller frees `l2`, if the page has left the index, has a copy already or is of a retired
    /// namespace, or if `l2` is out of range or owned.
    pub fn attach_l2(&mut self, l1: L1Page, l2: L2Page) -> bool {
        let Some((at, depth)) = self.l1.find(l1) else {
            return false;
        };
        let node = &self.nodes[at];
        let offset = depth - node.start;
        let refused = node.retired || node.edge.l2[offset as usize] != NONE;
        if refused || self.l2.claim(l2).is_err() {
            return false;
        }
        self.update(at, |node, _, places| {
            node.attach_l2(at, offset, l2.get(), places);
        });
        self.offer(at);
        true
    }

    /// Forgets a page of L2 whose bytes are gone; false if it is not in the index. If the page was
    /// on L1 too, it only loses its copy. Otherwise every match ends before it, and what stands
    /// below is never found but can be evicted. The page id is the caller's.
    pub fn lose_l2(&mut self, page: L2Page) -> bool {
        let Some((at, depth)) = self.l2.find(page) else {
            return false;
        };
        self.update(at, |node, _, l2| {
            node.detach_l2(depth - node.start, l2);
        });
        self.offer_with_leaf_of_l1(at);
        self.settle(at);
        true
    }

    /// Keeps a page of L1, in the index or not yet, from being evicted; pins count. False if the
    /// page is out of range.
    pub fn pin_l1(&mut self, page: L1Page) -> bool {
        let first = self.l1.pin(page);
        if first == Some(true) {
            self.count_l1_pin(page, true);
        }
        first.is_some()
    }

    /// Takes one pin of a page of L1 back; false if it has none.
    pub fn unpin_l1(&mut self, page: L1Page) -> bool {
        let last = self.l1.unpin(page);
        if last == Some(true) {
            self.count_l1_pin(page, false);
        }
        last.is_some()
    }

    fn count_l1_pin(&mut self, page: L1Page, pinned: bool) {
        if let Some((at, _)) = self.l1.find(page) {
            self.update(at, |node, _, _| node.pinned_l1(pinned));
            if !pinned {
                self.offer(at);
            }
        }
    }

    /// Keeps a page of L2, in the index or not yet, from being evicted; pins count. False if the
    /// page is out of range.
    pub fn pin_l2(&mut self, page: L2Page) -> bool {
        let first = self.l2.pin(page);
        if first == Some(true) {
            self.count_l2_pin(page, true);
        }
        first.is_some()
    }

    /// Takes one pin of a page of L2 back; false if it has none.
    pub fn unpin_l2(&mut self, page: L2Page) -> bool {
        let last = self.l2.unpin(page);
        if last == Some(true) {
            self.count_l2_pin(page, false);
        }
        last.is_some()
    }

    fn count_l2_pin(&mut self, page: L2Page, pinned: bool) {
        let Some((at, depth)) = self.l2.find(page) else {
            return;
        };
        self.update(at, |node, _, _| {
            node.pinned_l2(depth - node.start, pinned);
        });
        if pinned {
            return;
        }
        if self.nodes[at].retired {
            self.free_retired_copy(at, depth - self.nodes[at].start);
        }
        self.offer_with_leaf_of_l1(at);
    }

    /// Offers a node and the leaf of L1 above it, whose last pages what was below may have held.
    fn offer_with_leaf_of_l1(&mut self, at: u32) {
        self.offer(at);
        let mut above = at;
        while above != TOP && self.nodes[above].l1_len == 0 {
            above = self.nodes[above].parent;
        }
        self.offer(above);
    }
}
