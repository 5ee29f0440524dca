// SPDX-License-Identifier: Apache-2.0
//! Eviction from L1.

use super::edge::NONE;
use super::index::{Evicted, PrefixIndex};
use super::node::narrow;
use super::queues::Queue;
use crate::units::L1Page;

impl PrefixIndex {
    /// Frees exactly `n` pages of L1, or all that can be freed if they are fewer; returns how many.
    ///
    /// The deepest pages of the leaf with the lowest rank go first. A page with a copy on L2 is on
    /// L2 alone afterwards; one without is dropped, with everything that stands below it.
    ///
    /// **Cost**: O(pages freed + nodes touched * log nodes).
    pub fn evict_l1(&mut self, n: usize, out: &mut Evicted) -> usize {
        let mut freed = 0;
        while freed < n {
            let Some((_, at)) = self.next_candidate(Queue::L1) else {
                break;
            };
            freed += self.trim_l1(at, n - freed, out);
        }
        self.offer_aside();
        freed
    }

    /// Frees pages of L1 as [`PrefixIndex::evict_l1`] does, but drops nothing: a page without a
    /// copy on L2 is appended to `unstored` instead, counts towards `n`, and stays where it is.
    /// Returns how many were freed; `n` were freed or listed, or all that could be if they are
    /// fewer.
    ///
    /// Listed are the deepest pages of a leaf, from the deepest on, up to the first that has a copy
    /// or is pinned; what is above them waits for them. The caller pins what is listed before the
    /// next call, stores it, notes the copies with [`PrefixIndex::attach_l2`], takes the pins back
    /// and evicts again. A page that cannot be stored goes by [`PrefixIndex::drop_l1`], or with
    /// what else is in its turn by [`PrefixIndex::evict_l1`].
    ///
    /// **Cost**: O(pages freed or listed + nodes touched * log nodes).
    pub fn evict_l1_store_first(
        &mut self,
        n: usize,
        out: &mut Evicted,
        unstored: &mut Vec<L1Page>,
    ) -> usize {
        let (mut freed, first) = (0, unstored.len());
        loop {
            let want = n - freed - (unstored.len() - first);
            if want == 0 {
                break;
            }
            let Some((_, at)) = self.next_candidate(Queue::L1) else {
                break;
            };
            let kept = self.trim_l1_kept(at, want, out);
            freed += kept;
            let listed = self.list_unstored(at, want - kept, unstored);
            self.left_by_eviction(at, kept, listed > 0);
        }
        self.offer_aside();
        freed
    }

    /// Appends the deepest L1 pages of a node that no copy and no pin has, at most `want`.
    fn list_unstored(&self, at: u32, want: usize, unstored: &mut Vec<L1Page>) -> usize {
        let node = &self.nodes[at];
        let on_l1 = node.l1_len as usize;
        let pages = node.edge.l1[..on_l1].iter().zip(&node.edge.l2[..on_l1]);
        let before = unstored.len();
        let alone = pages
            .rev()
            .take_while(|&(&page, &copy)| copy == NONE && !self.l1.is_pinned(page));
        unstored.extend(alone.take(want).map(|(&page, _)| L1Page::new(page)));
        unstored.len() - before
    }

    /// Puts a node right from whose end an eviction took pages. A node that cannot give up more in
    /// this call is set aside until the call ends.
    fn left_by_eviction(&mut self, at: u32, freed: usize, aside: bool) {
        let node = &self.nodes[at];
        if freed > 0 {
            self.policy.on_evict(&node.meta);
        }
        if node.l1_len == 0 {
            self.left_l1(at);
        }
        self.settle(at);
        if aside {
            // A node that is set aside has pages on L1, so it is still there.
            self.heaps[Queue::L1 as usize].remove(at);
            self.aside.push(at);
        }
    }

    /// Queues again what the call has set aside.
    fn offer_aside(&mut self) {
        while let Some(at) = self.aside.pop() {
            self.offer(at);
        }
    }

    /// Frees the deepest L1 pages of a candidate, at most `want`.
    fn trim_l1(&mut self, at: u32, want: usize, out: &mut Evicted) -> usize {
        let mut freed = 0;
        let mut blocked = false;
        while freed < want && self.last_l1_is_free(at) {
            let kept = self.trim_l1_kept(at, want - freed, out);
            freed += kept;
            if freed == want || !self.last_l1_is_free(at) {
                break;
            }
            if !self.drop_below_l1(at, out) {
                blocked = true;
                break;
            }
            freed += self.trim_l1_dropped(at, want - freed, out);
        }
        self.left_by_eviction(at, freed, blocked);
        freed
    }

    fn last_l1_is_free(&self, at: u32) -> bool {
        let node = &self.nodes[at];
        node.l1_len > 0 && !self.l1.is_pinned(node.edge.l1[node.l1_len as usize - 1])
    }

    /// Takes pages off L1 that have a copy on L2, from the deepest on.
    fn trim_l1_kept(&mut self, at: u32, want: usize, out: &mut Evicted) -> usize {
        let freed = self.update(at, |node, l1, l2| {
            let mut freed = 0;
            while freed < want && node.l1_len > 0 {
                let last = node.l1_len as usize - 1;
                if node.edge.l2[last] == NONE || l1.is_pinned(node.edge.l1[last]) {
                    break;
                }
                out.push_l1(node.detach_last_l1(l1, l2), node.edge.keys[last]);
                freed += 1;
            }
            freed
        });
        out.kept_on_l2 += freed;
        freed
    }

    /// Drops pages that have no copy, from the deepest on; nothing stands below them.
    fn trim_l1_dropped(&mut self, at: u32, want: usize, out: &mut Evicted) -> usize {
        let before = self.nodes[at].len();
        let freed = self.update(at, |node, l1, l2| {
            let mut freed = 0;
            while freed < want && node.l1_len > 0 {
                let last = node.l1_len as usize - 1;
                if node.edge.l2[last] != NONE || l1.is_pinned(node.edge.l1[last]) {
                    break;
                }
                let key = node.edge.keys[last];
                out.push_l1(node.detach_last_l1(l1, l2), key);
                node.drop_lost();
                freed += 1;
            }
            freed
        });
        debug_assert_eq!(self.nodes[at].len(), before - narrow(freed));
        self.shortened(at);
        out.dropped += freed;
        freed
    }
}
