// SPDX-License-Identifier: Apache-2.0
//! Striata: a tiered, striped KV cache that LLM inference engines embed.
//!
//! With decode context parallelism of size c, rank r owns token position p when p mod c = r. One
//! controller manages one widened page space (P * c tokens a page) over GPU memory (L1) and pinned
//! host memory (L2); every rank copies its own shard, with no collective.
//!
//! | part | what it does |
//! |---|---|
//! | [`HiCache`] | the verbs of an engine's step: reserve, start_loads, gates, step_end, confirm, insert |
//! | [`Planner`] | the decisions: prefix index, allocators, residency, policies; no device, no thread |
//! | [`decode`] | attention over the striped pool: a plan a step, exchange, merge |
//! | [`ShardGroup`] | the ranks and their pools: streams, copies, gates and fences; no policy |
//!
//! Sizes count widened pages or tokens unless a name says rows or bytes.
//!
//! Under `cfg(loom)` only what loom checks is compiled: the protocol of dropped leases and the end of
//! an operation over ranks and pools.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub mod decode;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod growth;
#[cfg(not(loom))]
mod hicache;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod order;
#[cfg(not(loom))]
mod page_set;
#[cfg(loom)]
#[allow(dead_code, reason = "its users are not compiled")]
#[path = "shards/tally.rs"]
mod part_tally;
#[cfg(not(loom))]
mod planner;
#[cfg_attr(loom, allow(dead_code, reason = "its users are not compiled"))]
mod release_stack;
#[cfg(not(loom))]
mod residency;
#[cfg(not(loom))]
pub mod selftest;
#[cfg(not(loom))]
mod setup;
#[cfg(not(loom))]
mod shards;

#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use growth::{GrowL2, L2Grower};
#[cfg(not(loom))]
pub use hicache::{HiCache, Prefix};
#[cfg(not(loom))]
pub use lease::{Lease, LeaseId};
#[cfg(not(loom))]
pub use order::{Ack, Order, OrderKind};
#[cfg(not(loom))]
pub use planner::{
    Confirm, EventKey, EventTier, Inserted, KvEvent, Lookup, Planner, PlannerConfig, PlannerStats,
    Reserve, Room, Stored,
};
#[cfg(not(loom))]
pub use residency::PageState;
#[cfg(not(loom))]
pub use setup::HiCacheSetup;
#[cfg(not(loom))]
pub use shards::{Copied, LayerGates, OpReport, PoolId, PoolShards, Shard, ShardGroup, ShardPool};

pub use striata_core as core;
pub use striata_gpu as gpu;
pub use striata_host as host;
pub use striata_kernels as kernels;
