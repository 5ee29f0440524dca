// SPDX-License-Identifier: Apache-2.0
//! The invariants of the index, checked from scratch.

use super::edge::NONE;
use super::index::{PrefixIndex, TOP};
use super::node::{Node, Totals, narrow};
use super::queues::QUEUES;
use crate::units::{L1Page, L2Page};

/// Fails with a message unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}

impl PrefixIndex {
    /// Checks every invariant of the [module](super).
    ///
    /// **Cost**: O(pages of both tiers + nodes); for tests.
    ///
    /// # Errors
    /// The first invariant that does not hold, with the node and the numbers.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut totals = Totals::default();
        let mut reached = 0;
        let mut stack = vec![TOP];
        while let Some(at) = stack.pop() {
            let node = &self.nodes[at];
            reached += 1;
            self.check_children(at, node, &mut stack)?;
            if at != TOP {
                self.check_records(at, node)?;
                self.check_counts(at, node)?;
                self.check_queues(at, node)?;
                self.check_retired(at, node)?;
                totals += node.share();
            }
        }
        ensure!(
            reached == self.nodes.len() && reached == self.children.len() + self.retired_roots + 1,
            "{reached} nodes are reached, {} exist, {} are in the table, {} are retired roots",
            self.nodes.len(),
            self.children.len(),
            self.retired_roots
        );
        ensure!(
            totals == self.totals,
            "counts are {:?} and should be {totals:?}",
            self.totals
        );
        self.check_places()
    }

    fn check_children(&self, at: u32, node: &Node, stack: &mut Vec<u32>) -> Result<(), String> {
        let (mut count, mut on_l1, mut locks, mut prev) = (0, 0, 0, NONE);
        let mut child_at = node.first_child;
        while child_at != NONE {
            let child = &self.nodes[child_at];
            ensure!(
                child.parent == at && child.prev == prev,
                "node {child_at} is linked wrongly below node {at}"
            );
            ensure!(
                child.start == node.end(),
                "node {child_at} starts at {} and its parent ends at {}",
                child.start,
                node.end()
            );
            let found = self.children.find(&self.nodes, at, child.first_key);
            let hidden = at == TOP && child.retired;
            ensure!(
                (found == Some(child_at)) != hidden,
                "node {child_at} is found by its first key as {found:?} (hidden: {hidden})"
            );
            ensure!(
                child.l1_len == 0 || node.l1_len == node.len(),
                "node {child_at} is on L1 below pages that are not"
            );
            count += 1;
            on_l1 += u32::from(child.l1_len > 0);
            locks += child.locks;
            prev = child_at;
            stack.push(child_at);
            child_at = child.next;
        }
        ensure!(
            (count, on_l1) == (node.children, node.l1_children),
            "node {at} counts {} children, {} on L1, and has {count}, {on_l1}",
            node.children,
            node.l1_children
        );
        ensure!(
            at == TOP || node.locks >= locks,
            "node {at} has {} locks and its children {locks}",
            node.locks
        );
        Ok(())
    }

    fn check_records(&self, at: u32, node: &Node) -> Result<(), String> {
        let edge = &node.edge;
        let length = edge.keys.len();
        ensure!(
            edge.l1.len() == length && edge.l2.len() == length && node.l1_len <= node.len(),
            "the records of node {at} differ in length"
        );
        let is_root = node.parent == TOP;
        ensure!(
            is_root == (length == 0),
            "node {at} has {length} pages (root: {is_root})"
        );
        ensure!(
            !is_root || node.children > 0 || node.locks > 0,
            "root {at} is held by nothing"
        );
        ensure!(
            is_root || edge.keys[0] == node.first_key,
            "node {at} has another first key than its first page"
        );
        for (offset, (&l1, &l2)) in edge.l1.iter().zip(&edge.l2).enumerate() {
            let here = Some((at, node.start + narrow(offset)));
            let on_l1 = offset < node.l1_len as usize;
            ensure!(
                (l1 != NONE) == on_l1,
                "page {offset} of node {at} breaks the L1 prefix of {}",
                node.l1_len
            );
            ensure!(
                l1 == NONE || self.l1.find(L1Page::new(l1)) == here,
                "L1 page {l1} does not point back at page {offset} of node {at}"
            );
            ensure!(
                l2 == NONE || self.l2.find(L2Page::new(l2)) == here,
                "L2 page {l2} does not point back at page {offset} of node {at}"
            );
        }
        Ok(())
    }

    fn check_counts(&self, at: u32, node: &Node) -> Result<(), String> {
        let pinned = |page: u32| page != NONE && self.l2.is_pinned(page);
        let (on_l1, below) = node.edge.l2.split_at(node.l1_len as usize);
        let count = |pages: &[u32], wanted: &dyn Fn(u32) -> bool| {
            narrow(pages.iter().filter(|&&page| wanted(page)).count())
        };
        let l1 = &node.edge.l1[..node.l1_len as usize];
        let should = [
            count(l1, &|page| self.l1.is_pinned(page)),
            count(on_l1, &|page| page != NONE),
            count(on_l1, &pinned),
            count(below, &pinned),
            count(below, &|page| page == NONE),
        ];
        let is = [
            node.l1_pinned,
            node.both,
            node.both_pinned,
            node.l2_pinned,
            node.lost,
        ];
        ensure!(is == should, "node {at} counts {is:?} and has {should:?}");
        let past = &on_l1[(node.copies_end as usize).min(on_l1.len())..];
        ensure!(
            past.iter().all(|&page| page == NONE || pinned(page)),
            "node {at} has a free copy at or above {}",
            node.copies_end
        );
        ensure!(
            node.children > 0 || node.locks > 0 || !node.ends_lost(),
            "node {at} ends in a lost page that nothing holds"
        );
        Ok(())
    }

    fn check_queues(&self, at: u32, node: &Node) -> Result<(), String> {
        for queue in QUEUES {
            if !self.is_candidate(node, queue) {
                continue;
            }
            let noted = self.heaps[queue as usize].key(at);
            ensure!(
                noted.is_some_and(|noted| noted <= self.queue_key(node)),
                "node {at} can give up pages and is not queued for it ({queue:?}, {noted:?})"
            );
        }
        Ok(())
    }

    fn check_retired(&self, at: u32, node: &Node) -> Result<(), String> {
        ensure!(
            !node.retired || (node.locks > 0 && node.free_copies() == 0),
            "node {at} was retired and has {} locks and {} free copies",
            node.locks,
            node.free_copies()
        );
        ensure!(
            node.parent == TOP || self.nodes[node.parent].retired == node.retired,
            "node {at} was retired ({}) unlike its parent",
            node.retired
        );
        Ok(())
    }

    fn check_places(&self) -> Result<(), String> {
        for (page, at, depth) in self.l1.standing() {
            ensure!(
                self.stands(at, depth, page, |node| &node.edge.l1),
                "L1 page {page} points at node {at}, which does not have it"
            );
        }
        for (page, at, depth) in self.l2.standing() {
            ensure!(
                self.stands(at, depth, page, |node| &node.edge.l2),
                "L2 page {page} points at node {at}, which does not have it"
            );
        }
        ensure!(
            self.l1.limbo_is_sound() && self.l2.limbo_is_sound(),
            "pages of retired namespaces are lost or miscounted"
        );
        let counts = (self.l1.standing().count(), self.l2.standing().count());
        ensure!(
            counts == (self.totals.l1, self.totals.l2),
            "{counts:?} pages point into the tree, which has {} and {}",
            self.totals.l1,
            self.totals.l2
        );
        Ok(())
    }

    fn stands(&self, at: u32, depth: u32, page: u32, pages: fn(&Node) -> &Vec<u32>) -> bool {
        let Some(node) = self.nodes.get(at) else {
            return false;
        };
        depth
            .checked_sub(node.start)
            .and_then(|offset| pages(node).get(offset as usize))
            == Some(&page)
    }
}
