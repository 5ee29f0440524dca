// SPDX-License-Identifier: Apache-2.0
//! The decode path of a DCP group whose ranks are all in this process: absorbed MLA attention over
//! the striped pool that [`crate::HiCache`] fills.
//!
//! | part | what it does |
//! |---|---|
//! | [`DcpMlaConfig`] | sizes and choices, from the engine's configuration |
//! | [`DcpMla`] | a step: plan once, then a layer at a time |
//! | [`PrefixGather`] | rows of a cached prefix in token order, for extend |
//! | `stage` | what of a batch has changed since the step before |
//! | `known` | the start-up check of known results |
//!
//! A step: [`DcpMla::begin_step`] -> [`DcpMla::layer`] for each layer -> [`DcpMla::end_step`] ->
//! [`DcpMla::confirm`]. A layer: wait for its gate -> write the new rows, each by its owner ->
//! attention over the rank's own rows -> exchange -> merge -> the H heads of the rank.

mod buffers;
mod config;
mod error;
mod known;
mod mla;
mod prefix;
mod stage;
mod step;

pub use config::{DcpMlaConfig, TableSource};
pub use error::{DecodeError, StepFault};
pub use mla::{DcpMla, LayerInput};
pub use prefix::PrefixGather;
pub use stage::{RequestPages, StepRequest};
pub use step::StepKind;

pub use striata_gpu::exchange::StepStreams;
