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
//! | [`ShardGroup`] | the ranks: streams, copies, gates and fences; no policy |
//!
//! Sizes count widened pages or tokens unless a name says rows or bytes.
#![forbid(unsafe_code)]

mod error;
mod hicache;
mod lease;
mod order;
mod page_set;
mod planner;
mod residency;
mod setup;
mod shards;

pub use error::Error;
pub use hicache::{HiCache, Prefix};
pub use lease::{Lease, LeaseId};
pub use order::{Ack, Order, OrderKind};
pub use planner::{Confirm, Inserted, Lookup, Planner, PlannerConfig, PlannerStats, Reserve};
pub use residency::PageState;
pub use setup::HiCacheSetup;
pub use shards::{Copied, LayerGates, OpReport, Shard, ShardGroup};

pub use striata_core as core;
pub use striata_gpu as gpu;
pub use striata_host as host;
pub use striata_kernels as kernels;
