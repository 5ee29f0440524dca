// SPDX-License-Identifier: Apache-2.0
//! The prefix index: which widened pages of which token prefixes stand on which tier.
//!
//! A path-compressed radix tree over pages. A node's edge is a contiguous array of page records
//! (key, L1 page, L2 page), so that a long match is a comparison of two vectors; the lookup of a
//! child is one probe of a table keyed by (parent, first key).
//!
//! Invariants, all of them checked by [`PrefixIndex::check_invariants`]:
//! 1. Along every path the pages on L1 are a prefix: no page on L1 stands below one that is not.
//! 2. Every page in the tree is on L1, on L2 or on both. The exception is a page that was lost
//!    ([`PrefixIndex::lose_l2`], [`PrefixIndex::detach_l1`]): it is on no tier, ends every match,
//!    and leaves the tree as soon as nothing stands on it and no lock holds it.
//! 3. A page id of a tier stands at one place at most.
//! 4. A path lock protects its node and every ancestor: their pages stay in the tree, and on L1 if
//!    they were. Copies on L2 of pages that are on L1 may go.
//! 5. A pinned page is not evicted from its tier. Pins belong to page ids, not to nodes, so that an
//!    operation may pin a page before it enters the tree, and a split needs no fix-up.
//! 6. A retired tree ([`PrefixIndex::retire`]) holds locked paths alone and none of its pages is
//!    found. A page that left it belongs to no node; it is swept once nothing pins it.
//!
//! The index owns no memory of the tiers: it returns the pages that it lets go, and the caller
//! frees them. It does not know why a page is pinned nor whether its bytes have arrived; a page
//! that is being loaded counts as L1.
//!
//! Single owner, no locks, deterministic: nothing iterates in hash order, time is a sequence
//! number. In the steady state no call allocates: edges of nodes that went are used again.

mod acquire;
mod arena;
mod attach;
mod check;
mod children;
mod discard;
mod edge;
mod error;
mod evict_l1;
mod evict_l2;
mod index;
mod insert;
mod keys;
mod lookup;
mod node;
mod places;
mod queues;
mod retire;
mod structure;

pub use acquire::PathLock;
pub use error::IndexError;
pub use index::{Evicted, PathMatch, PrefixIndex, RootId};
pub use insert::{Duplicate, InsertOptions, Inserted};
pub use keys::{
    CHAIN_VERSION, KeyChain, MarkError, Namespace, NamespaceParts, PageKey, UNIT_TOKENS, page_keys,
};
pub use node::NodeId;
