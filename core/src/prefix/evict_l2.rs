// SPDX-License-Identifier: Apache-2.0
//! Eviction from L2.

use super::edge::NONE;
use super::index::{Evicted, PrefixIndex};
use super::node::narrow;
use super::queues::Queue;

impl PrefixIndex {
    /// Frees exactly `n` pages of L2, or all that can be freed if they are fewer; returns how many.
    ///
    /// Two kinds can go: copies of pages that are on L1 too, locked or not, and pages on L2 alone
    /// at the end of a path that no lock holds, which then leave the tree. With `copies_first` the
    /// first kind goes before any of the second; otherwise the lowest rank goes first.
    ///
    /// **Cost**: O(pages freed + nodes touched * log nodes), and a scan past pinned copies.
    pub fn evict_l2(&mut self, n: usize, copies_first: bool, out: &mut Evicted) -> usize {
        let mut freed = 0;
        while freed < n {
            let want = n - freed;
            let copies = self.next_candidate(Queue::Copies);
            if let (Some((_, at)), true) = (copies, copies_first) {
                freed += self.drop_copies(at, want, out);
                continue;
            }
            let tail = self.next_candidate(Queue::L2Tail);
            freed += match (tail, copies) {
                (None, None) => break,
                (Some((key, at)), Some((other, _))) if key <= other => self.trim_l2(at, want, out),
                (_, Some((_, at))) => self.drop_copies(at, want, out),
                (Some((_, at)), None) => self.trim_l2(at, want, out),
            };
        }
        freed
    }

    /// Drops copies of L1 pages of a node, the deepest first, at most `want`.
    fn drop_copies(&mut self, at: u32, want: usize, out: &mut Evicted) -> usize {
        let freed = self.update(at, |node, _, l2| {
            let mut freed = 0;
            let mut offset = node.copies_end.min(node.l1_len);
            while offset > 0 && freed < want {
                let page = node.edge.l2[offset as usize - 1];
                offset -= 1;
                if page != NONE && !l2.is_pinned(page) {
                    out.push_l2(page, node.edge.keys[offset as usize]);
                    node.detach_l2(offset, l2);
                    freed += 1;
                }
            }
            node.copies_end = offset;
            freed
        });
        self.policy.on_evict(&self.nodes[at].meta);
        out.copies_dropped += freed;
        freed
    }

    /// Drops pages at the end of an unlocked leaf that are on L2 alone, at most `want`.
    fn trim_l2(&mut self, at: u32, want: usize, out: &mut Evicted) -> usize {
        let keep = self.nodes[at].l1_len;
        let freed = self.drop_to(at, keep, narrow(want), out);
        self.policy.on_evict(&self.nodes[at].meta);
        self.settle(at);
        freed as usize
    }
}
