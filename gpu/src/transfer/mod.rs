// SPDX-License-Identifier: Apache-2.0
//! The transfer engine: moves pages between the L1 planes and the host pool of one rank.
//!
//! | file | room |
//! |---|---|
//! | `engine` | [`TransferEngine`]: calls, checks, completions |
//! | `shared` | what its calls and its thread share; the forms of jobs |
//! | `submit` | the submission thread |
//! | `queue` | waiting and running jobs, the first failure |
//! | `job`, `stats`, `error` | jobs, completions and settings; counters; refusals |
//! | `groups` | [`LayerGroups`]: which layers share a call and an event |
//! | `pieces` | pages and layers to pieces of copy calls |
//! | `gate` | [`LoadGate`]: what a consumer waits for before it reads a layer |
//! | `gate_state` | [`GateState`]: the host side of a gate, checked by loom |
//!
//! Lock order: poller, then queue; a gate's lock is taken alone. No lock is held across a device
//! call, but for the poller's, which only pollers take.

#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod gate;
mod gate_state;
mod groups;
#[cfg(not(loom))]
mod job;
#[cfg(not(loom))]
mod pieces;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod submit;

#[cfg(not(loom))]
pub use engine::TransferEngine;
#[cfg(not(loom))]
pub use error::TransferError;
#[cfg(not(loom))]
pub use gate::{GateError, GroupTimes, JobFailure, LoadGate};
pub use gate_state::GateState;
pub use groups::LayerGroups;
#[cfg(not(loom))]
pub use job::{Completion, LoadJob, StoreJob, TransferConfig};
#[cfg(not(loom))]
pub use stats::{DirectionStats, TransferStats};
