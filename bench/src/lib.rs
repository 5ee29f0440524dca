// SPDX-License-Identifier: Apache-2.0
//! Benchmarks of Striata. Every figure is taken beside its ceiling or its peer in the same run and
//! is reported as a ratio to it.
//!
//! | module | what it measures |
//! |---|---|
//! | [`decode`] | the attention kernel beside its floor, merges, layers and steps of c ranks |
//! | [`offload`] | traces whose prefixes come back from L2: time to first token, stalls, rates |
//! | [`pinning`] | the host tier's start and growth, beside the driver's own allocation |
//! | [`samples`] | repeated measurements and their order statistics |
//! | [`transfer`] | copies between the tiers against the link's ceiling, and compute beside them |
#![forbid(unsafe_code)]

mod clock;
pub mod decode;
pub mod offload;
pub mod pinning;
pub mod samples;
pub mod transfer;
