// SPDX-License-Identifier: Apache-2.0
//! The transfer engine: moves pages between the L1 planes and the host pool of one rank.
//!
//! | file | room |
//! |---|---|
//! | `engine`, `admission` | [`TransferEngine`]: calls; how a job is checked and queued |
//! | `choice`, `plan` | how a job is done; what it copies |
//! | `polling` | completions |
//! | `shared` | what its calls and its thread share |
//! | `queue_entry`, `queue_state` | which unit of which waiting job is submitted next |
//! | `work_queue` | the same between threads, checked by loom; the first failure |
//! | `window`, `pace` | how much may be in flight; when to ask whether it has ended |
//! | `submit`, `thread` | submission, unit by unit, and the thread that does it |
//! | `manual` | submission by whoever waits, where there is no thread |
//! | `staging` | the rings of device memory through which jobs are staged |
//! | `targets` | whether a row list names a target twice |
//! | `ledger` | jobs whose copies run; counters |
//! | `outcome` | which pages of a job arrived |
//! | `job`, `stats`, `error` | jobs, completions and settings; counters; refusals |
//! | `paths` | [`TransferPaths`]: which way the bytes of a job take |
//! | `groups` | [`LayerGroups`]: which layers share a call and an event |
//! | `parts` | the units of a job: layers of a load, pages of a store, slices of either |
//! | `pieces` | pages and layers to pieces of copy calls |
//! | `gate`, `gate_error` | [`LoadGate`]: what a consumer waits for before it reads a layer |
//! | `gate_state` | [`GateState`]: the host side of a gate, checked by loom |
//!
//! Lock order: poller, then submitter (manual submission only), then one of queue, ledger and a
//! gate's, each taken last and alone. No lock is held across a device call, but for the poller's,
//! which only pollers take, and the submitter's, which stands for the thread.

#[cfg(not(loom))]
mod admission;
#[cfg(not(loom))]
mod choice;
#[cfg(not(loom))]
mod engine;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod gate;
#[cfg(not(loom))]
mod gate_error;
mod gate_state;
mod groups;
#[cfg(not(loom))]
mod job;
#[cfg(not(loom))]
mod ledger;
#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(not(loom))]
mod manual;
#[cfg(not(loom))]
mod outcome;
#[cfg(not(loom))]
mod pace;
#[cfg(not(loom))]
mod parts;
#[cfg(not(loom))]
mod paths;
#[cfg(not(loom))]
mod pieces;
#[cfg(not(loom))]
mod plan;
#[cfg(not(loom))]
mod polling;
#[cfg_attr(loom, allow(dead_code, reason = "its users are not compiled"))]
mod queue_entry;
#[cfg_attr(loom, allow(dead_code, reason = "its users are not compiled"))]
mod queue_state;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod staging;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod submit;
#[cfg(not(loom))]
mod targets;
#[cfg(not(loom))]
mod thread;
#[cfg_attr(loom, allow(dead_code, reason = "its users are not compiled"))]
mod window;
#[cfg_attr(loom, allow(dead_code, reason = "its users are not compiled"))]
mod work_queue;

#[cfg(not(loom))]
pub use engine::TransferEngine;
#[cfg(not(loom))]
pub use error::TransferError;
#[cfg(not(loom))]
pub use gate::{GroupTimes, LoadGate};
#[cfg(not(loom))]
pub use gate_error::{GateError, JobFailure};
pub use gate_state::GateState;
pub use groups::LayerGroups;
#[cfg(not(loom))]
pub use job::{
    Completion, LoadJob, LoadRows, RowPair, StoreJob, StoreRows, Submission, TransferConfig,
};
#[cfg(not(loom))]
pub use paths::{CopyPath, DirectionPaths, LayerCut, PageGrid, PageRule, PlaneKind, TransferPaths};
#[cfg(not(loom))]
pub use stats::{DirectionStats, PathCounts, TransferStats};
