// SPDX-License-Identifier: Apache-2.0
//! Many replays over a grid of DCP sizes, capacities and policies.

use serde::{Deserialize, Serialize};

use striata_core::config::{Capacity, PolicyName};

use crate::capacity::HostCapacity;
use crate::config::ReplayConfig;

/// The grid: every combination is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepConfig {
    /// What all points share. Its own DCP size, capacities and policy are not used.
    pub base: ReplayConfig,
    /// DCP sizes c; capacities in bytes are those of one rank, so that more ranks hold more.
    pub dcp: Vec<u32>,
    /// Sizes of L1 and L2.
    pub capacities: Vec<(Capacity, HostCapacity)>,
    /// Eviction policies.
    pub policies: Vec<PolicyName>,
}

/// One point of the grid: a row of the CSV.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// Trace.
    pub trace: String,
    /// Model.
    pub model: String,
    /// DCP size c.
    pub dcp: u32,
    /// L1, as asked for.
    pub l1: String,
    /// L2, as asked for.
    pub l2: String,
    /// Eviction policy.
    pub policy: String,
    /// Tokens of a widened page.
    pub widened_page_tokens: u64,
    /// Widened pages of L1.
    pub l1_pages: u64,
    /// Widened pages of L2.
    pub l2_pages: u64,
    /// Requests.
    pub requests: u64,
    /// Those larger than the pool.
    pub refused_requests: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Share of them found on either tier.
    pub hit_ratio: f64,
    /// Share of them found on L1.
    pub resident_share: f64,
    /// Share of them loaded back from L2.
    pub loaded_share: f64,
    /// Share of them computed.
    pub computed_share: f64,
    /// Pages evicted from L1.
    pub evicted_pages_l1: u64,
    /// Pages evicted from L2.
    pub evicted_pages_l2: u64,
    /// Wall time.
    pub wall_seconds: f64,
}
