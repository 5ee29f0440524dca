// SPDX-License-Identifier: Apache-2.0
//! A heap of nodes with the lowest key on top that can also find, change and remove any node.

/// Position of a node that is not in the heap.
const ABSENT: u32 = u32::MAX;
/// Children of an entry; four share about two cache lines, which halves the depth.
const ARITY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    key: K,
    node: u32,
}

/// Nodes by key, the lowest first. Keys must differ between nodes for the order to be total.
///
/// **Cost**: O(log n) a change, O(1) to look; memory grows to the largest node number seen.
#[derive(Clone, Debug)]
pub(crate) struct IndexedHeap<K> {
    entries: Vec<Entry<K>>,
    places: Vec<u32>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl<K: Copy + Ord> IndexedHeap<K> {
    /// The lowest key and its node.
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().map(|entry| (entry.key, entry.node))
    }

    /// The key that is noted for a node.
    pub(crate) fn key(&self, node: u32) -> Option<K> {
        self.place(node).map(|at| self.entries[at].key)
    }

    fn place(&self, node: u32) -> Option<usize> {
        let place = *self.places.get(node as usize)?;
        (place != ABSENT).then_some(place as usize)
    }

    /// Makes sure that the node is in the heap under `key` or a lower key.
    pub(crate) fn offer(&mut self, node: u32, key: K) {
        match self.place(node) {
            Some(at) => {
                if key < self.entries[at].key {
                    self.sift_up(at, Entry { key, node });
                }
            }
            None => {
                let slot = node as usize;
                if slot >= self.places.len() {
                    self.places.resize(slot + 1, ABSENT);
                }
                let entry = Entry { key, node };
                self.entries.push(entry);
                self.sift_up(self.entries.len() - 1, entry);
            }
        }
    }

    /// Changes the key on top, which must not fall.
    pub(crate) fn raise_top(&mut self, key: K) {
        if let Some(top) = self.entries.first() {
            let entry = Entry {
                key,
                node: top.node,
            };
            self.sift_down(0, entry);
        }
    }

    /// Takes a node out, if it is in.
    pub(crate) fn remove(&mut self, node: u32) {
        let Some(at) = self.place(node) else { return };
        self.places[node as usize] = ABSENT;
        let Some(last) = self.entries.pop() else {
            return;
        };
        if at < self.entries.len() {
            if last.key < self.entries[at].key {
                self.sift_up(at, last);
            } else {
                self.sift_down(at, last);
            }
        }
    }

    fn put(&mut self, at: usize, entry: Entry<K>) {
        self.entries[at] = entry;
        // Fewer entries than node numbers, which are u32 below ABSENT.
        self.places[entry.node as usize] = u32::try_from(at).unwrap_or(ABSENT);
    }

    fn sift_up(&mut self, mut at: usize, entry: Entry<K>) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.entries[parent].key <= entry.key {
                break;
            }
            self.put(at, self.entries[parent]);
            at = parent;
        }
        self.put(at, entry);
    }

    fn sift_down(&mut self, mut at: usize, entry: Entry<K>) {
        loop {
            let first = at * ARITY + 1;
            let children = first..(first + ARITY).min(self.entries.len());
            let Some(least) = children.min_by_key(|&child| self.entries[child].key) else {
                break;
            };
            if entry.key <= self.entries[least].key {
                break;
            }
            self.put(at, self.entries[least]);
            at = least;
        }
        self.put(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::IndexedHeap;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_map(
            steps in proptest::collection::vec((0u8..4, 0u32..40, 0u64..1000), 1..400),
        ) {
            let mut heap = IndexedHeap::default();
            let mut model: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
            for (kind, node, number) in steps {
                match kind {
                    0 | 1 => {
                        let key = (number, node);
                        heap.offer(node, key);
                        let known = model.entry(node).or_insert(key);
                        *known = key.min(*known);
                    }
                    2 => {
                        heap.remove(node);
                        model.remove(&node);
                    }
                    _ => {
                        if let Some(((key, _), node)) = heap.peek() {
                            let raised = (key + number, node);
                            heap.raise_top(raised);
                            model.insert(node, raised);
                        }
                    }
                }
                prop_assert_eq!(heap.key(node), model.get(&node).copied());
                let least = model.iter().map(|(&node, &key)| (key, node)).min();
                prop_assert_eq!(heap.peek(), least);
            }
        }
    }
}
