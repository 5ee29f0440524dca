// SPDX-License-Identifier: Apache-2.0
//! What the index knows of one page, by its id. Pages of retired namespaces have no keys: cache
//! events name only what can be found.

use super::acquire::PathLock;
use super::edge::NONE;
use super::error::IndexError;
use super::index::{PrefixIndex, common_prefix};
use super::keys::PageKey;
use super::node::Node;
use crate::units::{L1Page, L2Page};

impl PrefixIndex {
    /// The copy on L2 of a page of L1.
    #[must_use]
    pub fn l2_of(&self, l1: L1Page) -> Option<L2Page> {
        let (node, offset) = self.record(self.l1.find(l1))?;
        let page = node.edge.l2[offset];
        (page != NONE).then_some(L2Page::new(page))
    }

    /// Whether a page of L1 stands in the index, in a retired namespace too.
    #[must_use]
    pub fn has_l1(&self, page: L1Page) -> bool {
        self.l1.find(page).is_some()
    }

    /// Appends the pages of L1 that an insert of `keys` under `lock` would find behind the locked
    /// path: those of the pages that follow it and are on L1.
    ///
    /// **Cost**: O(pages found).
    ///
    /// # Errors
    /// A lock that is not of this index.
    pub fn l1_pages_beyond(
        &self,
        lock: &PathLock,
        keys: &[PageKey],
        out: &mut Vec<L1Page>,
    ) -> Result<(), IndexError> {
        let mut at = self.locked_node(lock)?;
        let mut rest = keys.get(lock.pages()..).unwrap_or_default();
        while let Some(&key) = rest.first() {
            let Some(child) = self.children.find(&self.nodes, at, key) else {
                break;
            };
            let node = &self.nodes[child];
            let equal = common_prefix(&node.edge.keys, rest);
            let on_l1 = equal.min(node.l1_len as usize);
            out.extend(node.edge.l1[..on_l1].iter().copied().map(L1Page::new));
            if on_l1 < node.edge.len() {
                break;
            }
            rest = &rest[equal..];
            at = child;
        }
        Ok(())
    }

    /// The key of a page of L1; none if no match finds it.
    #[must_use]
    pub fn key_of_l1(&self, page: L1Page) -> Option<PageKey> {
        self.key_at(self.l1.find(page))
    }

    /// The key of a page of L2; none if no match finds it.
    #[must_use]
    pub fn key_of_l2(&self, page: L2Page) -> Option<PageKey> {
        self.key_at(self.l2.find(page))
    }

    /// The key of the page before a page of L1; none if it is the first of its path or if no match
    /// finds it.
    #[must_use]
    pub fn parent_key_of_l1(&self, page: L1Page) -> Option<PageKey> {
        let (node, offset) = self.record(self.l1.find(page))?;
        if node.retired {
            return None;
        }
        match offset.checked_sub(1) {
            Some(before) => node.edge.keys.get(before),
            None => self.nodes[node.parent].edge.keys.last(),
        }
        .copied()
    }

    fn key_at(&self, place: Option<(u32, u32)>) -> Option<PageKey> {
        let (node, offset) = self.record(place)?;
        (!node.retired).then_some(node.edge.keys[offset])
    }

    fn record(&self, place: Option<(u32, u32)>) -> Option<(&Node, usize)> {
        let (at, depth) = place?;
        let node = &self.nodes[at];
        Some((node, (depth - node.start) as usize))
    }
}
