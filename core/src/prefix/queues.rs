// SPDX-License-Identifier: Apache-2.0
//! The three queues of nodes that can give up pages, lowest rank first.
//!
//! Ranks are noted lazily: an entry's key is a lower bound of the node's present key, and an entry
//! may outlive what made its node a candidate. Both are put right when the entry comes to the top,
//! so that acquiring and releasing a path costs no heap operation in the common case. Whatever
//! makes a node a candidate, or changes the metadata of one, must offer it again.

use core::cmp::Reverse;

use super::edge::NONE;
use super::index::PrefixIndex;
use super::node::Node;
use crate::evict::{EvictionRank, IndexedHeap};

/// Order in a queue: rank, then deepest first, then order of making.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey {
    rank: EvictionRank,
    depth: Reverse<u32>,
    seq: u64,
}

/// What a node of a queue can give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Its deepest L1 pages.
    L1,
    /// Its deepest pages, which are on L2 alone.
    L2Tail,
    /// L2 copies of its L1 pages.
    Copies,
}

pub(super) const QUEUES: [Queue; 3] = [Queue::L1, Queue::L2Tail, Queue::Copies];

/// One heap a [`Queue`].
pub(super) type Heaps = [IndexedHeap<QueueKey>; 3];

impl PrefixIndex {
    pub(super) fn queue_key(&self, node: &Node) -> QueueKey {
        QueueKey {
            rank: self.policy.rank(&node.meta),
            depth: Reverse(node.start),
            seq: node.seq,
        }
    }

    /// Whether a node can give something up, as far as the node itself tells. An L1 page without
    /// a copy may still be held by pinned pages below it, see `next_candidate`'s callers.
    pub(super) fn is_candidate(&self, node: &Node, queue: Queue) -> bool {
        match queue {
            Queue::L1 => {
                node.locks == 0
                    && node.l1_len > 0
                    && node.l1_children == 0
                    && !self.l1.is_pinned(node.edge.l1[node.l1_len as usize - 1])
            }
            Queue::L2Tail => {
                node.locks == 0
                    && node.children == 0
                    && node.l1_len < node.len()
                    && node
                        .edge
                        .l2
                        .last()
                        .is_some_and(|&page| page == NONE || !self.l2.is_pinned(page))
            }
            Queue::Copies => node.free_copies() > 0,
        }
    }

    /// Enters a node into every queue that it is a candidate of.
    pub(super) fn offer(&mut self, at: u32) {
        let node = &self.nodes[at];
        let wanted = QUEUES.map(|queue| self.is_candidate(node, queue));
        if wanted == [false; 3] {
            return;
        }
        let key = self.queue_key(node);
        for (heap, wanted) in self.heaps.iter_mut().zip(wanted) {
            if wanted {
                heap.offer(at, key);
            }
        }
    }

    /// The node of the lowest rank that can give something up.
    pub(super) fn next_candidate(&mut self, queue: Queue) -> Option<(QueueKey, u32)> {
        loop {
            let (noted, at) = self.heaps[queue as usize].peek()?;
            let node = &self.nodes[at];
            if !self.is_candidate(node, queue) {
                self.heaps[queue as usize].remove(at);
                continue;
            }
            let now = self.queue_key(node);
            if now <= noted {
                return Some((noted, at));
            }
            self.heaps[queue as usize].raise_top(now);
        }
    }
}
