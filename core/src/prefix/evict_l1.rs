// SPDX-License-Identifier: Apache-2.0
//! Eviction from L1.

use super::edge::NONE;
use super::index::{Evicted, PrefixIndex};
use super::node::narrow;
use super::queues::Queue;

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
        freed
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
        let node = &self.nodes[at];
        self.policy.on_evict(&node.meta);
        if node.l1_len == 0 {
            self.left_l1(at);
        }
        self.settle(at);
        if blocked {
            // A node that is blocked is not empty. What holds it offers it again when it lets go.
            self.heaps[Queue::L1 as usize].remove(at);
        }
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
