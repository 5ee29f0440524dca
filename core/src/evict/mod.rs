// SPDX-License-Identifier: Apache-2.0
//! Eviction: which leaf of the prefix index gives up its pages first.
//!
//! A policy turns what the index knows of a node into a rank; the lowest rank goes first, equal
//! ranks by depth (deepest first) and then by sequence number, so that every replica that saw the
//! same calls decides alike. Only leaves are asked: a page goes after everything that stands on it.

mod heap;
mod policies;
mod policy;

pub(crate) use heap::IndexedHeap;
pub use policies::{
    Fifo, Filo, Lfu, Lru, Mru, POLICY_NAMES, Priority, SLRU_PROTECTED_HITS, Slru, policy_by_name,
};
pub use policy::{EvictionPolicy, EvictionRank, NodeMeta};
