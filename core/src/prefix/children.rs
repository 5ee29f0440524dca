// SPDX-License-Identifier: Apache-2.0
//! One table of all children, by parent and first key.

use hashbrown::HashTable;

use super::arena::Arena;
use super::keys::PageKey;

/// Children by (parent, first key). Only node numbers are stored, the keys stand in the nodes.
#[derive(Debug, Default)]
pub(super) struct Children {
    table: HashTable<u32>,
    /// Nodes for which there is room twice. A table at most half full clears out what removed
    /// entries leave behind in place; a fuller one would allocate for that, however few come in.
    room: usize,
}

/// Keys may be plain block numbers of an engine, so they are mixed: two multiplications, folded.
fn mix(parent: u32, key: PageKey) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        let [low, high] = halves(product);
        low ^ high
    };
    let [low, high] = halves(key.get());
    let a = fold(
        low ^ 0x9e37_79b9_7f4a_7c15,
        u64::from(parent) ^ 0xbf58_476d_1ce4_e5b9,
    );
    fold(a ^ high, 0x94d0_49bb_1331_11eb)
}

fn halves(value: u128) -> [u64; 2] {
    let bytes = value.to_le_bytes();
    let mut halves = [0; 2];
    for (half, bytes) in halves.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        *half = u64::from_le_bytes(word);
    }
    halves
}

impl Children {
    pub(super) fn find(&self, nodes: &Arena, parent: u32, key: PageKey) -> Option<u32> {
        self.table
            .find(mix(parent, key), |&at| {
                let node = &nodes[at];
                node.first_key == key && node.parent == parent
            })
            .copied()
    }

    /// Enters a node under its parent and first key.
    pub(super) fn add(&mut self, nodes: &Arena, at: u32) {
        let hash = |at: &u32| mix(nodes[*at].parent, nodes[*at].first_key);
        if self.table.len() == self.room {
            self.room = 2 * self.room.max(8);
            self.table.reserve(2 * self.room - self.table.len(), hash);
        }
        self.table.insert_unique(hash(&at), at, hash);
    }

    /// Takes a node out; its parent and first key must still be the ones it was entered under.
    pub(super) fn remove(&mut self, nodes: &Arena, at: u32) {
        let hash = mix(nodes[at].parent, nodes[at].first_key);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == at) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
