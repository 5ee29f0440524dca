// SPDX-License-Identifier: Apache-2.0
//! Identity of stored bytes, as apart from the identity of content.
//!
//! Content is named by a namespace and keys, whatever c and P are. Bytes are also named by where
//! they stand: another placement of the same content cannot be read directly, but converted.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::geometry::{PoolKind, RowFormat};
use crate::stripe::Stripe;
use crate::units::{LayerId, Rank};

/// Names the bytes of a run of pages of one pool on one rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectId {
    /// Root of the key chain: what the tokens mean (model revision, adapter, salt).
    pub namespace: u128,
    /// Key of the chain before the first token.
    pub start_key: u128,
    /// Key of the chain behind the last token.
    pub end_key: u128,
    /// Name of the pool.
    pub pool: String,
    /// Whether the pool is divided among the ranks.
    pub kind: PoolKind,
    /// Layers of the pool that are inside.
    pub layers: Range<LayerId>,
    /// How a row is stored.
    pub row_format: RowFormat,
    /// c, P and I.
    pub stripe: Stripe,
    /// The rank whose rows these are.
    pub rank: Rank,
}

/// How an object that is there serves a read that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// The same bytes.
    Direct,
    /// The same rows in another placement (c, P, I or rank): a miss for a direct read, and a
    /// source for a conversion.
    Convertible,
    /// Other rows.
    Miss,
}

impl ObjectId {
    /// How `have` serves a read of `self`.
    #[must_use]
    pub fn compare(&self, have: &Self) -> Match {
        let content = self.namespace == have.namespace
            && self.start_key == have.start_key
            && self.end_key == have.end_key
            && self.pool == have.pool
            && self.kind == have.kind
            && self.layers == have.layers
            && self.row_format == have.row_format;
        let placement = self.stripe == have.stripe && self.rank == have.rank;
        match (content, placement, self.kind) {
            (false, _, _) => Match::Miss,
            (true, true, _) => Match::Direct,
            // Recurrent state is divided by heads, which no relayout of rows reaches.
            (true, false, PoolKind::PerRequest) => Match::Miss,
            (true, false, PoolKind::Striped | PoolKind::Replicated) => Match::Convertible,
        }
    }
}
