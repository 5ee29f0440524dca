// SPDX-License-Identifier: Apache-2.0
//! Nodes by number, with generations.

use core::ops::{Index, IndexMut};

use super::edge::Edge;
use super::node::{Node, NodeId, narrow};

/// The nodes. Numbers of nodes that went are used again, the last one first.
#[derive(Debug, Default)]
pub(super) struct Arena {
    nodes: Vec<Node>,
    free: Vec<u32>,
}

impl Arena {
    /// A node with an empty place in the tree. The edge is the caller's.
    pub(super) fn add(&mut self, edge: Edge) -> u32 {
        if let Some(at) = self.free.pop() {
            let generation = self[at].generation;
            self[at] = Node {
                generation,
                ..Node::new(edge)
            };
            return at;
        }
        self.nodes.push(Node::new(edge));
        narrow(self.nodes.len() - 1)
    }

    /// Frees a node and returns its edge.
    pub(super) fn remove(&mut self, at: u32) -> Edge {
        let node = &mut self[at];
        node.generation = node.generation.wrapping_add(1);
        let edge = core::mem::take(&mut node.edge);
        self.free.push(at);
        edge
    }

    /// Nodes in use.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// A node by number, if there ever was one.
    pub(super) fn get(&self, at: u32) -> Option<&Node> {
        self.nodes.get(at as usize)
    }

    pub(super) fn id(&self, at: u32) -> NodeId {
        NodeId {
            index: at,
            generation: self[at].generation,
        }
    }

    /// The number of a node that still is what it was.
    pub(super) fn resolve(&self, id: NodeId) -> Option<u32> {
        let node = self.nodes.get(id.index as usize)?;
        (node.generation == id.generation).then_some(id.index)
    }
}

impl Index<u32> for Arena {
    type Output = Node;

    fn index(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }
}

impl IndexMut<u32> for Arena {
    fn index_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }
}
