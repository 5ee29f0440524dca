// SPDX-License-Identifier: Apache-2.0
//! Links of the tree: entering, splitting and removing nodes.

use super::edge::NONE;
use super::index::{Evicted, PrefixIndex, TOP};
use super::node::{NodeId, narrow};

impl PrefixIndex {
    /// Enters a node under a parent, by its first key.
    pub(super) fn link(&mut self, at: u32, parent: u32) {
        let first = self.nodes[parent].first_child;
        if first != NONE {
            self.nodes[first].prev = at;
        }
        let node = &mut self.nodes[at];
        node.parent = parent;
        node.next = first;
        node.prev = NONE;
        let on_l1 = node.l1_len > 0;
        let parent = &mut self.nodes[parent];
        parent.first_child = at;
        parent.children += 1;
        parent.l1_children += u32::from(on_l1);
        self.children.add(&self.nodes, at);
    }

    /// Takes a node out from under its parent and frees it. Its pages are gone already.
    pub(super) fn remove_node(&mut self, at: u32) {
        self.children.remove(&self.nodes, at);
        let node = &self.nodes[at];
        let (parent, prev, next) = (node.parent, node.prev, node.next);
        if next != NONE {
            self.nodes[next].prev = prev;
        }
        if prev == NONE {
            self.nodes[parent].first_child = next;
        } else {
            self.nodes[prev].next = next;
        }
        self.nodes[parent].children -= 1;
        for heap in &mut self.heaps {
            heap.remove(at);
        }
        let edge = self.nodes.remove(at);
        self.edges.give(edge);
    }

    /// Notes that a node lost its last L1 page; its parent may be a leaf of L1 now.
    pub(super) fn left_l1(&mut self, at: u32) {
        let parent = self.nodes[at].parent;
        self.nodes[parent].l1_children -= 1;
        if self.nodes[parent].l1_children == 0 {
            self.offer(parent);
        }
    }

    /// Cuts a node after its first `count` pages (neither none nor all) and returns the new upper
    /// node. The lower half keeps its id; locks on it hold the upper half too.
    pub(super) fn split(&mut self, at: u32, count: u32) -> u32 {
        let edge = self.edges.take(count as usize);
        let upper = self.nodes.add(edge);
        let seq = self.tick();
        self.children.remove(&self.nodes, at);
        self.totals -= self.nodes[at].share();
        self.move_head(at, upper, count, seq);
        self.recount(upper);
        self.recount(at);
        self.take_place(at, upper);
        let lower = &mut self.nodes[at];
        self.edges.shrink(&mut lower.edge);
        self.totals += lower.share();
        self.totals += self.nodes[upper].share();
        self.children.add(&self.nodes, upper);
        self.children.add(&self.nodes, at);
        self.offer(upper);
        self.offer(at);
        upper
    }

    /// Moves the first `count` records and what goes with them into an empty node.
    fn move_head(&mut self, at: u32, upper: u32, count: u32, seq: u64) {
        let mut head = core::mem::take(&mut self.nodes[upper].edge);
        let lower = &mut self.nodes[at];
        lower.edge.move_head(count as usize, &mut head);
        for &page in head.l1.iter().filter(|&&page| page != NONE) {
            self.l1.rehome(page, upper);
        }
        for &page in head.l2.iter().filter(|&&page| page != NONE) {
            self.l2.rehome(page, upper);
        }
        let (first_key, meta, start) = (lower.first_key, lower.meta, lower.start);
        let (locks, l1_len, copies_end) = (lower.locks, lower.l1_len, lower.copies_end);
        let retired = lower.retired;
        lower.first_key = lower.edge.keys[0];
        lower.start += count;
        lower.l1_len = l1_len.saturating_sub(count);
        lower.copies_end = copies_end.saturating_sub(count);
        let node = &mut self.nodes[upper];
        node.edge = head;
        node.first_key = first_key;
        node.meta = meta;
        node.seq = seq;
        node.start = start;
        node.locks = locks;
        node.l1_len = l1_len.min(count);
        node.copies_end = copies_end.min(count);
        node.retired = retired;
    }

    /// Counts again what a node counts of its pages.
    fn recount(&mut self, at: u32) {
        let node = &mut self.nodes[at];
        let (on_l1, below) = node.edge.l2.split_at(node.l1_len as usize);
        let count = |pages: &[u32], wanted: &dyn Fn(u32) -> bool| {
            narrow(pages.iter().filter(|&&page| wanted(page)).count())
        };
        let pinned = |page: u32| page != NONE && self.l2.is_pinned(page);
        node.both = count(on_l1, &|page| page != NONE);
        node.both_pinned = count(on_l1, &pinned);
        node.l2_pinned = count(below, &pinned);
        node.lost = count(below, &|page| page == NONE);
        let l1 = &node.edge.l1[..node.l1_len as usize];
        node.l1_pinned = count(l1, &|page| self.l1.is_pinned(page));
    }

    /// Puts the upper half of a split where the lower half was, and the lower half below it.
    fn take_place(&mut self, lower: u32, upper: u32) {
        let node = &mut self.nodes[lower];
        let (parent, prev, next) = (node.parent, node.prev, node.next);
        node.parent = upper;
        node.prev = NONE;
        node.next = NONE;
        let on_l1 = node.l1_len > 0;
        let node = &mut self.nodes[upper];
        node.parent = parent;
        node.prev = prev;
        node.next = next;
        node.first_child = lower;
        node.children = 1;
        node.l1_children = u32::from(on_l1);
        if next != NONE {
            self.nodes[next].prev = upper;
        }
        if prev == NONE {
            self.nodes[parent].first_child = upper;
        } else {
            self.nodes[prev].next = upper;
        }
    }

    /// The node that ends at `depth` on the path to a node, split off if none does. None if the
    /// node is not what it was, ends above, or was retired.
    pub(super) fn cut(&mut self, id: NodeId, depth: u32) -> Option<u32> {
        let mut at = self.nodes.resolve(id)?;
        if self.nodes[at].retired {
            return None;
        }
        while self.nodes[at].start >= depth {
            at = self.nodes[at].parent;
            if at == TOP {
                return None;
            }
        }
        let node = &self.nodes[at];
        match depth.cmp(&node.end()) {
            core::cmp::Ordering::Less => {
                let count = depth - node.start;
                Some(self.split(at, count))
            }
            core::cmp::Ordering::Equal => Some(at),
            core::cmp::Ordering::Greater => None,
        }
    }

    /// Refills the scratch walk with a node and all below it, parents before children.
    pub(super) fn walk_below(&mut self, at: u32) {
        self.walk.clear();
        self.walk.push(at);
        let mut done = 0;
        while let Some(&node) = self.walk.get(done) {
            let mut child = self.nodes[node].first_child;
            while child != NONE {
                self.walk.push(child);
                child = self.nodes[child].next;
            }
            done += 1;
        }
    }

    /// Drops everything that stands below the L1 pages of an unlocked leaf of L1. False, and
    /// nothing is dropped, if a pin holds any of it.
    pub(super) fn drop_below_l1(&mut self, at: u32, out: &mut Evicted) -> bool {
        let node = &self.nodes[at];
        if node.children == 0 && node.l1_len == node.len() {
            return true;
        }
        self.walk_below(at);
        if self.totals.pinned_l2 > 0 {
            let held = |&below: &u32| self.nodes[below].l2_pinned > 0;
            if self.walk.iter().any(held) {
                return false;
            }
        }
        while let Some(below) = self.walk.pop() {
            let keep = self.nodes[below].l1_len;
            self.drop_to(below, keep, u32::MAX, out);
            if below != at {
                self.remove_node(below);
            }
        }
        true
    }

    /// Drops the last pages of a node, none of them on L1, down to `keep` pages or until `limit`
    /// pages of L2 were freed or a pinned one is met. Returns how many were freed.
    pub(super) fn drop_to(&mut self, at: u32, keep: u32, limit: u32, out: &mut Evicted) -> u32 {
        let before = self.nodes[at].len();
        let freed = self.update(at, |node, _, l2| {
            let mut freed = 0;
            while node.len() > keep {
                let last = node.len() - 1;
                let page = node.edge.l2[last as usize];
                if page != NONE {
                    if freed == limit || l2.is_pinned(page) {
                        break;
                    }
                    out.push_l2(page, node.edge.keys[last as usize]);
                    out.dropped += 1;
                    node.detach_l2(last, l2);
                    freed += 1;
                }
                node.drop_lost();
            }
            freed
        });
        if self.nodes[at].len() < before {
            self.shortened(at);
        }
        freed
    }

    /// Notes that a node lost pages at its end: ids of it no longer name what they named.
    pub(super) fn shortened(&mut self, at: u32) {
        let node = &mut self.nodes[at];
        node.generation = node.generation.wrapping_add(1);
        // An empty node is about to go, and its edge is worth more whole.
        if node.len() > 0 {
            self.edges.shrink(&mut node.edge);
        }
    }

    /// Removes what nothing holds any more, from a node upwards: lost pages at the end of unlocked
    /// leaves, and nodes without pages. Offers the node at which that stops.
    pub(super) fn settle(&mut self, mut at: u32) {
        while at != TOP {
            let node = &self.nodes[at];
            if node.children > 0 || node.locks > 0 {
                break;
            }
            if node.ends_lost() {
                self.update(at, |node, _, _| {
                    while node.ends_lost() {
                        node.drop_lost();
                    }
                });
                self.shortened(at);
            }
            if self.nodes[at].len() > 0 {
                break;
            }
            let parent = self.nodes[at].parent;
            self.remove_node(at);
            at = parent;
        }
        self.offer(at);
    }
}
