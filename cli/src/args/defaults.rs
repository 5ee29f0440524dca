// SPDX-License-Identifier: Apache-2.0
//! Every default of the command line.
//!
//! Those of `replay` fit a small machine: eight ranks share about 1.7 GB, and the tiers are so
//! small that the bundled conversation trace hits, stores, evicts and loads back.

/// Bundled trace of `replay`.
pub(super) const REPLAY_TRACE: &str = "mooncake_conversation";
/// Bundled traces of `sweep`: coding agents and a chat service.
pub(super) const SWEEP_TRACES: [&str; 2] = ["agentic_cc_u64", "mooncake_conversation"];
/// Model preset: 61 layers of 1152 B a row.
pub(super) const MODEL: &str = "deepseek-v3.1";
/// DCP size c of `replay`.
pub(super) const DCP_SIZE: u32 = 8;
/// DCP sizes of `sweep`.
pub(super) const DCP_SIZES: [u32; 4] = [1, 2, 4, 8];
/// Rows of a physical page, P.
pub(super) const PAGE_SIZE: u32 = 64;
/// L1 of `replay`.
pub(super) const L1: &str = "1500p";
/// L2 of `replay`.
pub(super) const L2: &str = "12000p";
/// L1 of each rank in `sweep`: what a GPU of 141 GB has left beside weights.
pub(super) const SWEEP_L1: &str = "32GiB";
/// L2 of each rank in `sweep`.
pub(super) const SWEEP_L2: &str = "64GiB";
/// Bytes a row that `replay` moves instead of the model's.
pub(super) const SCALED_ROW_BYTES: u32 = 4;
