// SPDX-License-Identifier: Apache-2.0
//! The page records of an edge, and the store of edges for reuse.

use super::keys::PageKey;

/// "On no page" in the arrays of an edge, and "no node" in the tree.
pub(super) const NONE: u32 = u32::MAX;
/// Smallest capacity of an edge.
const LEAST: usize = 4;
/// Classes of spare edges: capacities 2^0 to 2^31.
const CLASSES: usize = 32;

/// Pages of a node as parallel arrays of one length.
#[derive(Debug, Default)]
pub(super) struct Edge {
    pub(super) keys: Vec<PageKey>,
    pub(super) l1: Vec<u32>,
    pub(super) l2: Vec<u32>,
}

impl Edge {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            keys: Vec::with_capacity(capacity),
            l1: Vec::with_capacity(capacity),
            l2: Vec::with_capacity(capacity),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    fn capacity(&self) -> usize {
        self.keys.capacity()
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.keys.truncate(length);
        self.l1.truncate(length);
        self.l2.truncate(length);
    }

    /// Moves the first `count` records to the end of `other`.
    pub(super) fn move_head(&mut self, count: usize, other: &mut Self) {
        other.keys.extend(self.keys.drain(..count));
        other.l1.extend(self.l1.drain(..count));
        other.l2.extend(self.l2.drain(..count));
    }
}

/// Spare edges by capacity, so that the steady state does not allocate. They hold records for at
/// most `limit` pages, beyond which edges go back to the allocator.
#[derive(Debug)]
pub(super) struct EdgeStore {
    spare: [Vec<Edge>; CLASSES],
    held: usize,
    limit: usize,
}

/// The class whose edges have room for `capacity` records.
fn class_for(capacity: usize) -> usize {
    let rounded = capacity.max(LEAST).next_power_of_two();
    (rounded.trailing_zeros() as usize).min(CLASSES - 1)
}

impl EdgeStore {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            spare: core::array::from_fn(|_| Vec::new()),
            held: 0,
            limit,
        }
    }

    /// Raises the limit to `limit`.
    pub(super) fn raise_limit(&mut self, limit: usize) {
        self.limit = self.limit.max(limit);
    }

    /// An empty edge with room for `count` records.
    pub(super) fn take(&mut self, count: usize) -> Edge {
        let class = class_for(count);
        match self.spare[class].pop() {
            Some(edge) => {
                self.held -= edge.capacity();
                edge
            }
            None => Edge::with_capacity(1 << class),
        }
    }

    /// Keeps an edge for reuse, if there is room for it.
    pub(super) fn give(&mut self, mut edge: Edge) {
        let capacity = edge.capacity();
        if capacity < LEAST || self.held + capacity > self.limit {
            return;
        }
        edge.truncate(0);
        self.held += capacity;
        // Rounded down, so that an edge of the class has the room that the class promises.
        let class = (capacity.ilog2() as usize).min(CLASSES - 1);
        self.spare[class].push(edge);
    }

    /// Makes room for `more` records.
    pub(super) fn grow(&mut self, edge: &mut Edge, more: usize) {
        if edge.len() + more > edge.capacity() {
            self.refit(edge, edge.len() + more);
        }
    }

    /// Lets go of room that an edge no longer needs, so that memory follows the pages held.
    pub(super) fn shrink(&mut self, edge: &mut Edge) {
        if edge.capacity() > 2 * LEAST && edge.len() * 4 < edge.capacity() {
            self.refit(edge, edge.len());
        }
    }

    fn refit(&mut self, edge: &mut Edge, count: usize) {
        let mut fitting = self.take(count);
        edge.move_head(edge.len(), &mut fitting);
        let old = core::mem::replace(edge, fitting);
        self.give(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_edges_are_bounded_and_used_again() {
        let mut store = EdgeStore::new(100);
        let edges: Vec<Edge> = (0..10).map(|_| store.take(30)).collect();
        for edge in edges {
            store.give(edge);
        }
        assert!(store.held <= 100 && store.held >= 64, "{}", store.held);
        let held = store.held;
        let edge = store.take(17);
        assert_eq!(edge.capacity(), 32);
        assert_eq!(store.held, held - 32);
    }

    #[test]
    fn edges_grow_and_shrink_with_their_records() {
        let mut store = EdgeStore::new(1000);
        let mut edge = store.take(1);
        for n in 0..100u32 {
            store.grow(&mut edge, 1);
            edge.keys.push(PageKey::new(u128::from(n)));
            edge.l1.push(n);
            edge.l2.push(NONE);
        }
        assert_eq!(edge.capacity(), 128);
        edge.truncate(20);
        store.shrink(&mut edge);
        assert_eq!((edge.capacity(), edge.len()), (32, 20));
        assert_eq!(edge.l1[19], 19);
    }
}
