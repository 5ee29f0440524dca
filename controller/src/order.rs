// SPDX-License-Identifier: Apache-2.0
//! Plain data that Planner and Executors exchange.

use serde::{Deserialize, Serialize};
use striata_core::{FenceId, OpId, PagePair};

/// What an order does with its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// L1 to L2: write-through.
    Store,
    /// L2 to L1: load-back.
    Load,
    /// Give up what is not submitted yet of the load of this id. It ends like any operation, by an
    /// acknowledgement of the load.
    Cancel,
    /// Let the store of this id go before loads from now on: an allocation waits for it. Nothing
    /// ends by this.
    Raise,
}

/// One copy of whole widened pages that every rank carries out on its own shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Replicated id, in the order of planning.
    pub op: OpId,
    /// Which way.
    pub kind: OrderKind,
    /// The pages, parents before children.
    pub pages: Vec<PagePair>,
    /// The copy may begin only after this fence: of the step that wrote the rows of a store, of the
    /// last step that used the target pages of a load.
    pub after: Option<FenceId>,
    /// An allocation waits for this store, so it goes before loads.
    pub urgent: bool,
}

/// The end of an order on one rank, or, as the minimum over ranks, on all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The order's id.
    pub op: OpId,
    /// How many leading pages arrived whole.
    pub good_pages: u32,
}
