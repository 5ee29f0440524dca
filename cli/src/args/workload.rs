// SPDX-License-Identifier: Apache-2.0
//! Flags of the workload that `replay` and `sweep` share.

use clap::Args;
use striata_replay::{ComputeModel, Outputs, Selection};

use super::values::{not_negative, positive};

/// Which requests, and how they run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(super) struct WorkloadArgs {
    /// Leave out this many requests at the beginning
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Replay at most this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// What becomes of generated tokens: drop, keep
    #[arg(long, value_name = "POLICY", default_value_t = Outputs::Drop)]
    pub(super) outputs: Outputs,
    /// Factor on arrival times; 0 starts each request when the one before it has ended
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0, value_parser = not_negative)]
    time_scale: f64,
    /// Microseconds that a layer computes, whatever the number of tokens
    #[arg(long, value_name = "US", default_value_t = 0.0, value_parser = not_negative)]
    layer_us: f64,
    /// Sustained TFLOP/s of one rank in prefill; without it tokens cost no time
    #[arg(long, value_name = "TFLOPS", value_parser = positive)]
    prefill_tflops: Option<f64>,
}

impl WorkloadArgs {
    /// Which requests.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            skip: self.skip,
            limit: self.limit,
        }
    }

    /// How long a request computes.
    pub(super) fn compute(&self) -> ComputeModel {
        ComputeModel {
            layer_us: self.layer_us,
            prefill_tflops: self.prefill_tflops,
            time_scale: self.time_scale,
            ..ComputeModel::default()
        }
    }
}
