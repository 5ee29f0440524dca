// SPDX-License-Identifier: Apache-2.0
//! Dropping a page and what stands on it, whatever its turn in eviction.

use super::edge::NONE;
use super::index::{Evicted, PrefixIndex};
use crate::units::L1Page;

impl PrefixIndex {
    /// Drops a page of L1 and everything deeper from both tiers, for instance one that found no
    /// room on L2. Returns how many pages of L1 were freed: none, and nothing has changed, if a
    /// lock or a pin holds any of it or if the page is not in the index.
    ///
    /// **Cost**: O(pages dropped + their nodes).
    pub fn drop_l1(&mut self, page: L1Page, out: &mut Evicted) -> usize {
        let Some((top, depth)) = self.l1.find(page) else {
            return 0;
        };
        let keep = depth - self.nodes[top].start;
        self.walk_below(top);
        if self.nodes[top].locks > 0 || self.holds_pins(top, keep) {
            return 0;
        }
        self.policy.on_evict(&self.nodes[top].meta);
        let before = out.l1.len();
        while let Some(at) = self.walk.pop() {
            if at == top {
                self.drop_tail(at, keep, out);
                self.settle(at);
            } else {
                self.drop_tail(at, 0, out);
                self.remove_node(at);
            }
        }
        out.l1.len() - before
    }

    /// Whether pins hold pages of the subtree in the scratch walk, of `top` from offset `keep` on.
    fn holds_pins(&self, top: u32, keep: u32) -> bool {
        self.walk.iter().any(|&at| {
            let node = &self.nodes[at];
            let pins = node.l1_pinned + node.both_pinned + node.l2_pinned;
            let from = if at == top { keep as usize } else { 0 };
            let l1 = node.edge.l1[from..].iter();
            let l2 = node.edge.l2[from..].iter();
            pins > 0
                && (l1
                    .filter(|&&page| page != NONE)
                    .any(|&page| self.l1.is_pinned(page))
                    || l2
                        .filter(|&&page| page != NONE)
                        .any(|&page| self.l2.is_pinned(page)))
        })
    }

    /// Drops the pages of a node from offset `keep` on; nothing stands below them or pins them.
    fn drop_tail(&mut self, at: u32, keep: u32, out: &mut Evicted) {
        let left_l1 = self.update(at, |node, l1, l2| {
            let before = node.l1_len;
            while node.l1_len > keep {
                let last = node.l1_len as usize - 1;
                let alone = node.edge.l2[last] == NONE;
                out.push_l1(node.detach_last_l1(l1, l2), node.edge.keys[last]);
                out.dropped += usize::from(alone);
            }
            before > 0 && node.l1_len == 0
        });
        if left_l1 {
            self.left_l1(at);
        }
        self.drop_to(at, keep, u32::MAX, out);
    }
}
