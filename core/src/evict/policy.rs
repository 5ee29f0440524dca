// SPDX-License-Identifier: Apache-2.0
//! The trait that an eviction policy implements.

use core::fmt;

/// What the index knows of a node. Times are sequence numbers of the index, never clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMeta {
    /// When the node's pages were first inserted.
    pub created: u64,
    /// When a request last acquired or inserted them.
    pub last_access: u64,
    /// Inserts that ran over the node and asked to be counted, its own included.
    pub hits: u32,
    /// The highest priority that an insert gave it.
    pub priority: i32,
}

impl NodeMeta {
    /// Metadata of a node made at sequence number `now`.
    #[must_use]
    pub const fn new(now: u64, priority: i32) -> Self {
        Self {
            created: now,
            last_access: now,
            hits: 0,
            priority,
        }
    }
}

/// Order of eviction: the lowest goes first; the second number breaks ties of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvictionRank(pub [u64; 2]);

/// A rule for what to evict first.
///
/// The rank may depend on the metadata and on state of the policy's own, but a change of that
/// state must not lower the rank of a node that was not touched: the index refreshes ranks lazily
/// and relies on ranks that it has noted being lower bounds.
pub trait EvictionPolicy: fmt::Debug + Send {
    /// The name by which configurations ask for it.
    fn name(&self) -> &'static str;

    /// The rank of a node.
    fn rank(&self, node: &NodeMeta) -> EvictionRank;

    /// Whether the rank depends on `last_access` alone. Pages that are appended to a node may then
    /// share its metadata, which keeps the tree flat.
    fn ranks_by_access_alone(&self) -> bool {
        false
    }

    /// New pages were inserted under this metadata.
    fn on_insert(&mut self, _node: &NodeMeta) {}

    /// A request acquired the node or inserted over it.
    fn on_hit(&mut self, _node: &NodeMeta) {}

    /// Pages of the node were evicted from a tier.
    fn on_evict(&mut self, _node: &NodeMeta) {}
}
