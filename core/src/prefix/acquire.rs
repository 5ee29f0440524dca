// SPDX-License-Identifier: Apache-2.0
//! Path locks.

use super::edge::NONE;
use super::error::IndexError;
use super::index::{PathMatch, PrefixIndex, RootId, TOP};
use super::keys::PageKey;
use super::node::{NodeId, narrow};
use crate::units::{L1Page, L2Page};

/// Holds a path of the tree from the root on; it goes back through [`PrefixIndex::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lock that is not released holds its path for ever"]
pub struct PathLock {
    pub(super) node: NodeId,
    pub(super) pages: usize,
}

impl PathLock {
    /// Pages of the path.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// The node in which the path ends.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }
}

impl PrefixIndex {
    /// Locks a matched path and makes it the most recently used: the node in which the match ends
    /// is split there, so that the lock holds exactly the matched pages.
    ///
    /// None if pages of the match have left the index since; match again then. Whether its pages
    /// are still on the tier that the match named is for [`PrefixIndex::pages_of`] to tell.
    ///
    /// **Cost**: O(nodes of the path), and O(pages of the last node) if it is split.
    pub fn acquire(&mut self, found: &PathMatch) -> Option<PathLock> {
        let pages = found.pages();
        let at = match found.node {
            Some(id) if pages > 0 => self.cut(id, narrow(pages))?,
            _ => self.root_node(found.root),
        };
        self.add_locks(at, TOP);
        self.touch(at, false);
        Some(PathLock {
            node: self.nodes.id(at),
            pages,
        })
    }

    /// Matches and locks in one call.
    pub fn acquire_prefix(&mut self, root: RootId, keys: &[PageKey]) -> PathLock {
        let found = self.match_prefix(root, keys);
        match self.acquire(&found) {
            Some(lock) => lock,
            // A match that was just made is never out of date; the empty path always is there.
            None => {
                let at = self.root_node(root);
                self.add_locks(at, TOP);
                PathLock {
                    node: self.nodes.id(at),
                    pages: 0,
                }
            }
        }
    }

    /// Lets a path go. A lock of another index is refused and comes to nothing. What it held of a
    /// retired namespace waits for [`PrefixIndex::sweep_retired`].
    ///
    /// # Errors
    /// A lock that is not of this index.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a lock is released once, so it is consumed"
    )]
    pub fn release(&mut self, lock: PathLock) -> Result<(), IndexError> {
        let end = self.locked_node(&lock)?;
        if self.nodes[end].retired {
            self.release_retired(end);
            return Ok(());
        }
        let mut at = end;
        while at != TOP {
            self.update(at, |node, _, _| node.locks -= 1);
            let node = &self.nodes[at];
            let parent = node.parent;
            if node.locks == 0 && at != end {
                self.offer(at);
            }
            at = parent;
        }
        self.settle(end);
        Ok(())
    }

    /// Writes the pages of a locked path, in order, to `l1` and `l2`, which are cleared first. A
    /// page that is not on a tier has none there.
    ///
    /// # Errors
    /// A lock that is not of this index.
    pub fn pages_of(
        &self,
        lock: &PathLock,
        l1: &mut Vec<Option<L1Page>>,
        l2: &mut Vec<Option<L2Page>>,
    ) -> Result<(), IndexError> {
        let mut at = self.locked_node(lock)?;
        l1.clear();
        l2.clear();
        l1.resize(lock.pages, None);
        l2.resize(lock.pages, None);
        while at != TOP {
            let node = &self.nodes[at];
            let range = node.start as usize..node.end() as usize;
            for (page, &id) in l1[range.clone()].iter_mut().zip(&node.edge.l1) {
                *page = (id != NONE).then_some(L1Page::new(id));
            }
            for (page, &id) in l2[range].iter_mut().zip(&node.edge.l2) {
                *page = (id != NONE).then_some(L2Page::new(id));
            }
            at = node.parent;
        }
        Ok(())
    }

    /// Appends the L1 pages of a locked path to `out`: a prefix of the path. Returns how many.
    ///
    /// # Errors
    /// A lock that is not of this index.
    pub fn l1_pages_of(&self, lock: &PathLock, out: &mut Vec<L1Page>) -> Result<usize, IndexError> {
        let count = self.l1_pages(lock)?;
        let first = out.len();
        out.resize(first + count, L1Page::new(NONE));
        let mut at = self.locked_node(lock)?;
        while at != TOP {
            let node = &self.nodes[at];
            if node.l1_len > 0 {
                let on_l1 = &node.edge.l1[..node.l1_len as usize];
                let start = first + node.start as usize;
                for (page, &id) in out[start..].iter_mut().zip(on_l1) {
                    *page = L1Page::new(id);
                }
            }
            at = node.parent;
        }
        Ok(count)
    }

    /// Leading pages of a locked path that are on L1.
    ///
    /// # Errors
    /// A lock that is not of this index.
    pub fn l1_pages(&self, lock: &PathLock) -> Result<usize, IndexError> {
        let mut at = self.locked_node(lock)?;
        while at != TOP && self.nodes[at].l1_len == 0 {
            at = self.nodes[at].parent;
        }
        let node = &self.nodes[at];
        Ok((node.start + node.l1_len) as usize)
    }

    /// The node of a lock. A locked node neither goes nor loses pages, so its id stays good.
    pub(super) fn locked_node(&self, lock: &PathLock) -> Result<u32, IndexError> {
        let at = self
            .nodes
            .resolve(lock.node)
            .ok_or(IndexError::UnknownLock)?;
        let node = &self.nodes[at];
        if at == TOP || node.locks == 0 || node.end() as usize != lock.pages {
            return Err(IndexError::UnknownLock);
        }
        Ok(at)
    }

    /// Adds a lock to a node and its ancestors below `until`.
    pub(super) fn add_locks(&mut self, mut at: u32, until: u32) {
        while at != until {
            self.update(at, |node, _, _| node.locks += 1);
            at = self.nodes[at].parent;
        }
    }

    /// Makes a locked path the most recently used, and counts a hit of each node if asked to.
    pub(super) fn touch(&mut self, mut at: u32, count_hit: bool) {
        let now = self.tick();
        while at != TOP {
            let node = &mut self.nodes[at];
            node.meta.last_access = now;
            if count_hit {
                node.meta.hits = node.meta.hits.saturating_add(1);
            }
            self.policy.on_hit(&node.meta);
            let parent = node.parent;
            if node.free_copies() > 0 {
                self.offer(at);
            }
            at = parent;
        }
    }
}
