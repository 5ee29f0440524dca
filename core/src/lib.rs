// SPDX-License-Identifier: Apache-2.0
//! Pure values and decisions of Striata: index spaces, ownership, allocation, the prefix index,
//! copy plans and configuration. No thread, I/O, clock, randomness or `unsafe` lives here.
//!
//! # Index spaces
//!
//! | word | type | meaning |
//! |---|---|---|
//! | c, r | `u32`, [`Rank`] | DCP size; rank inside the DCP group, 0 <= r < c |
//! | P | `u32` | rows of a physical page on one rank |
//! | W | `u64` | tokens of a widened page, P * c |
//! | position | [`TokenPos`] | index of a token in its request |
//! | slot | [`Slot`] | index in the widened space, the same on every rank |
//! | row | [`Row`] | index in one rank's buffer |
//! | page | [`PageId`] | id of a widened page of a tier, and of the physical page on each rank |
//!
//! Ownership formulas stand in [`stripe`] alone.
#![forbid(unsafe_code)]

pub mod alloc;
pub mod budget;
pub mod config;
pub mod evict;
pub mod gather;
pub mod geometry;
pub mod models;
pub mod object;
pub mod plan;
pub mod prefix;
pub mod relayout;
pub mod stripe;
#[doc(hidden)]
pub mod sync;
pub mod table;
pub mod topology;
pub mod units;

pub use config::{ConfigError, EngineConfig, EngineSettings};
pub use geometry::{HostLayout, HostStrides, PageGeometry, PoolGeometry, PoolKind, RowFormat};
pub use models::Model;
pub use plan::{CopyDirection, CopyPlan, PlanError, RowRun};
pub use stripe::{Stripe, StripeError};
pub use topology::{HeadShards, Topology, TopologyError};
pub use units::{
    FenceId, L1, L1Page, L2, L2Page, LayerId, OpId, PageId, PagePair, Rank, Row, Slot, Tier,
    TokenPos,
};
