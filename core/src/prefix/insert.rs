// SPDX-License-Identifier: Apache-2.0
//! Inserting the pages that a request has computed.

use super::acquire::PathLock;
use super::edge::NONE;
use super::error::IndexError;
use super::index::{PrefixIndex, TOP, common_prefix};
use super::keys::PageKey;
use super::node::narrow;
use crate::evict::NodeMeta;
use crate::units::L1Page;

/// How an insert counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertOptions {
    /// Counts a hit of every node of the path. Intermediate inserts of a chunked prefill do not,
    /// since they would raise the hits of their own nodes.
    pub count_hit: bool,
    /// Priority of the pages; a node has the highest that it was given.
    pub priority: i32,
}

impl Default for InsertOptions {
    fn default() -> Self {
        Self {
            count_hit: true,
            priority: 0,
        }
    }
}

/// A page of an insert that the index holds already, on another L1 page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Index of the page in the path.
    pub index: usize,
    /// The page that the index holds and keeps.
    pub kept: L1Page,
    /// The page that was offered; it stays the caller's.
    pub duplicate: L1Page,
}

/// What an insert did. On L1 the path was `resident` pages long; the pages behind them came there:
/// first the `reattached`, then the `new_pages`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Leading pages of the path that were on L1.
    pub resident: usize,
    /// Pages that the index did not know.
    pub new_pages: usize,
    /// Pages that it knew and that were not on L1; copies on L2 stay.
    pub reattached: usize,
    /// Pages that it held on other L1 pages.
    pub duplicates: usize,
    /// Whether the namespace was retired since the path was locked: no match finds any of it.
    pub retired: bool,
}

impl PrefixIndex {
    /// Inserts a path from the root on, page `i` of it under `keys[i]` on `l1[i]`. The lock, which
    /// holds the head of the path, holds all of it afterwards; the path is the most recently used.
    ///
    /// Under a lock of a retired namespace the pages go with the lock and are never matched.
    /// Nothing is freed. A page that is on L1 already is kept and the offered page is appended to
    /// `duplicates` (unless it is the same); a page that is known but not on L1 is attached again
    /// and keeps its copy on L2.
    ///
    /// # Errors
    /// Lists that do not pair up or are shorter than the locked path, keys that leave it, pages
    /// that are out of range or owned: nothing has changed then.
    pub fn insert(
        &mut self,
        lock: &mut PathLock,
        keys: &[PageKey],
        l1: &[L1Page],
        options: InsertOptions,
        duplicates: &mut Vec<Duplicate>,
    ) -> Result<Inserted, IndexError> {
        let known = self.walk_known(lock, keys, l1)?;
        self.claim(known, l1)?;
        let mut report = Inserted {
            new_pages: keys.len() - known,
            ..Inserted::default()
        };
        let last = self.cut_walk(known);
        let noted = duplicates.len();
        report.reattached = self.reattach(l1, duplicates);
        report.duplicates = duplicates.len() - noted;
        for duplicate in &duplicates[noted..] {
            self.l1.clear(duplicate.duplicate.get());
        }
        let end = self.append(lock, last, &keys[known..], &l1[known..], options);
        report.resident = known - report.reattached;
        report.retired = self.nodes[end].retired;
        self.add_locks(end, lock.node.index);
        self.touch(end, options.count_hit);
        lock.node = self.nodes.id(end);
        lock.pages = keys.len();
        Ok(report)
    }

    /// Fills the scratch walk with the nodes that `keys` run over, the last one perhaps in part.
    /// Returns how many pages of the path are known.
    fn walk_known(
        &mut self,
        lock: &PathLock,
        keys: &[PageKey],
        l1: &[L1Page],
    ) -> Result<usize, IndexError> {
        if keys.len() != l1.len() {
            return Err(IndexError::Lengths {
                keys: keys.len(),
                pages: l1.len(),
            });
        }
        if keys.len() < lock.pages {
            return Err(IndexError::ShorterThanLock {
                keys: keys.len(),
                held: lock.pages,
            });
        }
        let mut at = self.locked_node(lock)?;
        self.walk_to(at);
        for &step in &self.walk {
            let node = &self.nodes[step];
            let start = node.start as usize;
            let equal = common_prefix(&node.edge.keys, &keys[start..]);
            if equal < node.edge.len() {
                return Err(IndexError::OffPath {
                    index: start + equal,
                });
            }
        }
        let mut known = lock.pages;
        while let Some(&key) = keys.get(known) {
            let Some(child) = self.children.find(&self.nodes, at, key) else {
                break;
            };
            let node = &self.nodes[child];
            let equal = common_prefix(&node.edge.keys, &keys[known..]);
            self.walk.push(child);
            known += equal;
            if equal < node.edge.len() {
                break;
            }
            at = child;
        }
        Ok(known)
    }

    /// Claims every offered page that the path does not have at its place; all or none.
    fn claim(&mut self, known: usize, l1: &[L1Page]) -> Result<(), IndexError> {
        self.claimed.clear();
        let mut result = Ok(());
        'path: for &step in &self.walk {
            let node = &self.nodes[step];
            let start = node.start as usize;
            let offered = &l1[start..known.min(node.end() as usize)];
            if same_pages(&node.edge.l1, offered) {
                continue;
            }
            for (&have, &page) in node.edge.l1.iter().zip(offered) {
                if have != page.get() {
                    result = self.l1.claim(page);
                    if result.is_err() {
                        break 'path;
                    }
                    self.claimed.push(page);
                }
            }
        }
        for &page in &l1[known..] {
            if result.is_err() {
                break;
            }
            result = self.l1.claim(page);
            if result.is_ok() {
                self.claimed.push(page);
            }
        }
        if result.is_err() {
            for page in &self.claimed {
                self.l1.clear(page.get());
            }
        }
        result
    }

    /// Splits the last node of the walk if only a part of it is known; returns the last node.
    fn cut_walk(&mut self, known: usize) -> u32 {
        let Some(&last) = self.walk.last() else {
            return TOP;
        };
        let depth = narrow(known);
        let node = &self.nodes[last];
        if depth == node.end() {
            return last;
        }
        let count = depth - node.start;
        let upper = self.split(last, count);
        if let Some(step) = self.walk.last_mut() {
            *step = upper;
        }
        upper
    }

    /// Puts the known pages of the walk that are not on L1 there, and lists duplicates.
    fn reattach(&mut self, l1: &[L1Page], duplicates: &mut Vec<Duplicate>) -> usize {
        let mut reattached = 0;
        for step in 0..self.walk.len() {
            let at = self.walk[step];
            let node = &self.nodes[at];
            let start = node.start as usize;
            let offered = &l1[start..node.end() as usize];
            if same_pages(&node.edge.l1, offered) {
                continue;
            }
            let on_l1 = node.l1_len as usize;
            let held = node.edge.l1[..on_l1].iter().zip(offered);
            let differing = held
                .enumerate()
                .filter(|(_, (have, page))| **have != page.get());
            duplicates.extend(differing.map(|(offset, (&have, &page))| Duplicate {
                index: start + offset,
                kept: L1Page::new(have),
                duplicate: page,
            }));
            self.attach_rest(at, &offered[on_l1..]);
            reattached += offered.len() - on_l1;
        }
        reattached
    }

    /// Puts the first pages of a node that are not on L1 there; its ancestors are on L1.
    pub(super) fn attach_rest(&mut self, at: u32, pages: &[L1Page]) {
        if pages.is_empty() {
            return;
        }
        let before = self.nodes[at].l1_len;
        self.update(at, |node, l1, l2| {
            for page in pages {
                node.attach_next_l1(at, page.get(), l1, l2);
            }
        });
        if before == 0 {
            let parent = self.nodes[at].parent;
            self.nodes[parent].l1_children += 1;
        }
        if self.nodes[at].retired {
            self.free_retired_copies(at);
        }
        self.offer(at);
    }

    /// Appends new pages below the last known node; returns the node that ends the path.
    fn append(
        &mut self,
        lock: &PathLock,
        last: u32,
        keys: &[PageKey],
        l1: &[L1Page],
        options: InsertOptions,
    ) -> u32 {
        let end = match keys.first() {
            None => last,
            Some(_) if self.can_extend(lock, last) => {
                self.fill(last, keys, l1);
                last
            }
            Some(&first) => self.add_child(last, first, keys, l1, options),
        };
        let meta = &mut self.nodes[end].meta;
        meta.priority = meta.priority.max(options.priority);
        if !keys.is_empty() {
            self.policy.on_insert(meta);
        }
        end
    }

    /// Whether new pages may share a node with the pages before them: nobody else holds it or
    /// branches off, and it has no past that the new pages do not share.
    fn can_extend(&self, lock: &PathLock, at: u32) -> bool {
        let node = &self.nodes[at];
        let ours = u32::from(lock.node.index == at);
        let one_past =
            node.meta.hits == 0 || (!self.exact_hits && self.policy.ranks_by_access_alone());
        node.parent != TOP && node.children == 0 && node.locks == ours && one_past
    }

    fn add_child(
        &mut self,
        parent: u32,
        first: PageKey,
        keys: &[PageKey],
        l1: &[L1Page],
        options: InsertOptions,
    ) -> u32 {
        let edge = self.edges.take(keys.len());
        let at = self.nodes.add(edge);
        let seq = self.tick();
        let start = self.nodes[parent].end();
        let retired = self.nodes[parent].retired;
        let node = &mut self.nodes[at];
        node.first_key = first;
        node.meta = NodeMeta::new(seq, options.priority);
        node.seq = seq;
        node.start = start;
        node.retired = retired;
        self.fill(at, keys, l1);
        self.link(at, parent);
        at
    }

    fn fill(&mut self, at: u32, keys: &[PageKey], l1: &[L1Page]) {
        self.edges.grow(&mut self.nodes[at].edge, keys.len());
        self.update(at, |node, places, _| {
            for (&key, page) in keys.iter().zip(l1) {
                node.append_l1(at, key, page.get(), places);
            }
        });
    }

    /// Appends the pages of a locked path that are on L1 and not on L2, of nodes with at least
    /// `min_hits` hits, parents before children: what a write-through store would copy. None of a
    /// retired namespace.
    ///
    /// # Errors
    /// A lock that is not of this index.
    pub fn pages_without_l2(
        &mut self,
        lock: &PathLock,
        min_hits: u32,
        out: &mut Vec<L1Page>,
    ) -> Result<(), IndexError> {
        let at = self.locked_node(lock)?;
        if self.nodes[at].retired {
            return Ok(());
        }
        self.walk_to(at);
        for &step in &self.walk {
            let node = &self.nodes[step];
            if node.meta.hits < min_hits || node.both == node.l1_len {
                continue;
            }
            let on_l1 = node.edge.l1[..node.l1_len as usize].iter();
            let alone = on_l1.zip(&node.edge.l2).filter(|&(_, &copy)| copy == NONE);
            out.extend(alone.map(|(&page, _)| L1Page::new(page)));
        }
        Ok(())
    }
}

/// Whether a node has exactly these pages at its head.
fn same_pages(have: &[u32], offered: &[L1Page]) -> bool {
    have.iter()
        .zip(offered)
        .all(|(&have, page)| have == page.get())
}
