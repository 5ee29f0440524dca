// SPDX-License-Identifier: Apache-2.0
//! Many replays over a grid of DCP sizes, capacities and policies.

use serde::{Deserialize, Serialize};

use striata_core::config::{Capacity, PolicyName};

use crate::capacity::HostCapacity;
use crate::config::{Parallel, ReplayConfig};
use crate::driver::replay;
use crate::error::ReplayError;
use crate::report::ReplayReport;
use crate::tally::ratio;

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

/// Replays every point, DCP sizes outermost and policies innermost, and hands each row to
/// `row_done` as it is found.
///
/// A capacity in bytes is that of one rank, so a larger c holds more tokens with the same memory.
///
/// # Errors
/// The first point that is refused or fails.
pub fn sweep(
    config: &SweepConfig,
    row_done: &mut dyn FnMut(&SweepRow),
) -> Result<Vec<SweepRow>, ReplayError> {
    let mut rows = Vec::new();
    for &dcp in &config.dcp {
        for &(l1, l2) in &config.capacities {
            for &policy in &config.policies {
                let point = ReplayConfig {
                    parallel: Parallel {
                        dcp,
                        ..config.base.parallel
                    },
                    l1,
                    l2,
                    policy,
                    ..config.base.clone()
                };
                let row = SweepRow::of(replay(&point, &mut ())?);
                row_done(&row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

impl SweepRow {
    fn of(report: ReplayReport) -> Self {
        let share = |tokens| ratio(tokens, report.input_tokens);
        Self {
            dcp: report.config.dcp,
            widened_page_tokens: report.config.widened_page_tokens,
            l1_pages: report.l1.capacity_pages,
            l2_pages: report.l2.capacity_pages,
            requests: report.requests,
            refused_requests: report.refused_requests,
            input_tokens: report.input_tokens,
            hit_ratio: report.hit_ratio,
            resident_share: share(report.hit_tokens_l1),
            loaded_share: share(report.hit_tokens_l2),
            computed_share: share(report.computed_tokens),
            evicted_pages_l1: report.l1.evicted_pages,
            evicted_pages_l2: report.l2.evicted_pages,
            wall_seconds: report.wall_seconds,
            trace: report.config.trace,
            model: report.config.model,
            l1: report.config.l1,
            l2: report.config.l2,
            policy: report.config.policy,
        }
    }
}
