// SPDX-License-Identifier: Apache-2.0
//! Replays real request traces through the engine and reports what it did.
//!
//! | module | what |
//! |---|---|
//! | [`trace`] | readers of every trace format, and the bundled traces |
//! | [`config`], [`capacity`], [`model`] | what to replay, on what |
//! | [`workload`] | tokens and page keys from block ids |
//! | [`compute`] | how long a prefill computes |
//! | `attend` | attention over what was loaded back, checked from tokens alone |
//! | [`replay`], [`OneReplica`] | the driver, of a whole trace or request by request |
//! | [`report`] | what was found |
//! | [`mod@sweep`] | many replays over a grid |
#![forbid(unsafe_code)]

mod attend;
pub mod capacity;
pub mod compute;
pub mod config;
mod driver;
pub mod error;
pub mod model;
mod names;
mod process;
pub mod report;
pub mod sweep;
mod tally;
pub mod trace;
pub mod workload;

pub use capacity::HostCapacity;
pub use config::{
    ComputeModel, CopyPathChoice, DeviceChoice, Fault, KeySource, LoadWait, Outputs, Parallel,
    RandomFaults, ReplayConfig, Selection, TraceSource, VerifyPolicy,
};
pub use driver::{CopiedBytes, Devices, LoadStyle, OneReplica, RankPools, replay};
pub use error::{ConfigError, ReplayError};
pub use model::ModelShape;
pub use report::{Outcome, ReplayObserver, ReplayReport, RequestRecord};
pub use striata_core::config::{Capacity, PolicyName as Policy, WritePolicy};
pub use sweep::{SweepConfig, SweepRow, sweep};
