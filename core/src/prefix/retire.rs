// SPDX-License-Identifier: Apache-2.0
//! Retiring a namespace while requests still hold some of its pages.
//!
//! What nothing locks leaves the tree at once. A page that a copy in flight pins is of no use in
//! the tree either: it waits in limbo, by its id alone, for its last pin. So a retired tree is no
//! more than the paths of its locks, and goes with them node by node.

use super::edge::NONE;
use super::index::{Evicted, PrefixIndex, RootId, TOP};
use super::node::Node;

impl Evicted {
    /// Records the keys of all pages of a node that are on a tier.
    fn name_all(&mut self, node: &Node) {
        if !self.record_keys {
            return;
        }
        let keys = &node.edge.keys;
        self.l1_keys.extend(&keys[..node.l1_len as usize]);
        let on_l2 = keys.iter().zip(&node.edge.l2);
        let on_l2 = on_l2.filter(|&(_, &page)| page != NONE);
        self.l2_keys.extend(on_l2.map(|(key, _)| key));
    }
}

impl PrefixIndex {
    /// Makes everything under a root unfindable, matches already made included; the same root
    /// starts empty. Pages that no lock and no pin holds are freed into `out` at once, and the rest
    /// by [`PrefixIndex::sweep_retired`] once it is let go. Locks stay good: their holders may go
    /// on to insert, load and release.
    ///
    /// **Cost**: O(pages under the root).
    pub fn retire(&mut self, root: RootId, out: &mut Evicted) {
        if let Some(at) = self.find_root(root) {
            self.retire_root(at, out);
        }
        self.sweep_retired(out);
    }

    /// Retires every root there is.
    pub fn retire_all(&mut self, out: &mut Evicted) {
        let mut at = self.nodes[TOP].first_child;
        while at != NONE {
            let next = self.nodes[at].next;
            if !self.nodes[at].retired {
                self.retire_root(at, out);
            }
            at = next;
        }
        self.sweep_retired(out);
    }

    /// Frees the pages of retired namespaces that were let go since the last call. To be called
    /// after releases and after pins were taken back.
    ///
    /// **Cost**: O(pages freed); O(1) if there is nothing to free.
    pub fn sweep_retired(&mut self, out: &mut Evicted) {
        self.l1.sweep(&mut out.l1);
        self.l2.sweep(&mut out.l2);
    }

    fn retire_root(&mut self, root: u32, out: &mut Evicted) {
        self.children.remove(&self.nodes, root);
        self.retired_roots += usize::from(self.nodes[root].locks > 0);
        self.walk_below(root);
        while let Some(at) = self.walk.pop() {
            let node = &mut self.nodes[at];
            out.name_all(node);
            if node.locks == 0 {
                self.dissolve(at);
            } else {
                node.retired = true;
                self.free_retired_copies(at);
            }
        }
    }

    /// Lets a path of a retired tree go; what no other lock holds leaves the tree.
    pub(super) fn release_retired(&mut self, end: u32) {
        let mut at = end;
        while at != TOP {
            self.update(at, |node, _, _| node.locks -= 1);
            let node = &self.nodes[at];
            let parent = node.parent;
            if node.locks == 0 {
                self.retired_roots -= usize::from(parent == TOP);
                self.dissolve(at);
            }
            at = parent;
        }
    }

    /// Takes a node that nothing stands on out of the tree; its pages go to limbo.
    fn dissolve(&mut self, at: u32) {
        let node = &self.nodes[at];
        self.totals -= node.share();
        let on_l1 = &node.edge.l1[..node.l1_len as usize];
        for &page in on_l1 {
            self.l1.retire(page);
        }
        for &page in node.edge.l2.iter().filter(|&&page| page != NONE) {
            self.l2.retire(page);
        }
        let (parent, was_on_l1) = (node.parent, node.l1_len > 0);
        self.nodes[parent].l1_children -= u32::from(was_on_l1);
        self.remove_node(at);
    }

    /// Frees the copies of L1 pages of a retired node: nobody will miss them.
    pub(super) fn free_retired_copies(&mut self, at: u32) {
        for offset in 0..self.nodes[at].l1_len {
            self.free_retired_copy(at, offset);
        }
    }

    /// Frees the page of L2 at `offset` if it is a copy of an L1 page that no pin holds.
    pub(super) fn free_retired_copy(&mut self, at: u32, offset: u32) {
        self.update(at, |node, _, l2| {
            let page = node.edge.l2[offset as usize];
            if offset < node.l1_len && page != NONE && !l2.is_pinned(page) {
                node.detach_l2(offset, l2);
                l2.retire(page);
            }
        });
    }
}
