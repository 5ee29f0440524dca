// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata replay`.

use clap::Args;
use striata_replay::{
    Capacity, CopyPathChoice, DeviceChoice, Fault, HostCapacity, KeySource, Policy, RandomFaults,
    ReplayConfig, TraceSource, VerifyPolicy,
};

use super::defaults;
use super::engine::EngineArgs;
use super::output::OutputArgs;
use super::workload::WorkloadArgs;
use crate::error::CliError;

/// Replay a request trace through the engine and verify every byte it reads back.
///
/// Without arguments: the bundled conversation trace, c = 8, 61 layers, rows scaled to 4 bytes and
/// small tiers, so that hits, stores, evictions and load-backs all occur.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Trace file (JSONL or CSV, plain or zstd), - for standard input, or a bundled trace:
    /// mooncake_conversation, agentic_cc_u64, agentic_cc_u256
    #[arg(value_name = "TRACE", default_value = defaults::REPLAY_TRACE)]
    trace: String,
    #[command(flatten)]
    engine: EngineArgs,
    /// DCP size c: ranks that share every sequence
    #[arg(
        long,
        visible_alias = "decode-context-parallel-size",
        value_name = "N",
        default_value_t = defaults::DCP_SIZE,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Engine"
    )]
    dcp_size: u32,
    /// GPU tier: bytes a rank (64GiB, 64GB), tokens (5120000t) or widened pages (10000p), of the
    /// model's rows whatever --scale-rows says
    #[arg(long, value_name = "SIZE", default_value = defaults::L1, help_heading = "Engine")]
    l1: Capacity,
    /// Host tier, likewise; 0 is off [default: 12000p]
    #[arg(long, value_name = "SIZE", help_heading = "Engine")]
    l2: Option<HostCapacity>,
    /// Eviction policy: lru, lfu, fifo, mru, filo, slru, priority [default: lru]
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    policy: Option<Policy>,
    /// Device that copies: auto, sim, cuda
    #[arg(long, value_name = "NAME", default_value_t = DeviceChoice::Auto, help_heading = "Engine")]
    device: DeviceChoice,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Bytes of a row that are really moved, a multiple of 4
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = defaults::SCALED_ROW_BYTES,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Bytes"
    )]
    scale_rows: u32,
    /// Move the model's own rows
    #[arg(long, conflicts_with = "scale_rows", help_heading = "Bytes")]
    full_rows: bool,
    /// Which way the bytes of copies take: calibrated (a GPU is measured, or what is kept of it is
    /// read), built-in, or one path for all: rectangles, rectangle_calls, runs, run_calls, staged,
    /// mapped
    #[arg(long, value_name = "NAME", default_value_t = CopyPathChoice::Calibrated, help_heading = "Bytes")]
    copy_path: CopyPathChoice,
    /// As --copy-path built-in
    #[arg(long, conflicts_with = "copy_path", help_heading = "Bytes")]
    no_calibrate: bool,
    /// No bytes at all: index, allocators and policies alone, asked with block keys
    #[arg(long, conflicts_with_all = ["scale_rows", "full_rows", "fault", "faults"], help_heading = "Bytes")]
    metadata_only: bool,
    /// Rows of hit pages that are verified: all, sample, none [default: all]
    #[arg(long, value_name = "POLICY", help_heading = "Bytes")]
    verify: Option<VerifyPolicy>,
    /// Plant a fault that the verifier must name: corrupt-page:N, the N-th page loaded back
    #[arg(long, value_name = "FAULT", help_heading = "Bytes")]
    fault: Option<Fault>,
    /// Random faults of the simulated devices: SEED or SEED:RATE, where RATE of all copies (0.01
    /// unless given) fail in part, come late or are held
    #[arg(long, value_name = "SEED[:RATE]", help_heading = "Bytes")]
    faults: Option<RandomFaults>,
    /// Check every invariant of the engine after every request, and in the end that no page is lost
    #[arg(long, help_heading = "Bytes")]
    paranoid: bool,
    /// Write rows of values and attend to them in every N-th request, across ranks; outputs are
    /// checked against float64 attention worked out from the tokens alone. Needs --full-rows
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "8",
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "Bytes"
    )]
    attend: Option<u64>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl ReplayArgs {
    /// The replay that these flags ask for.
    pub(crate) fn config(&self) -> Result<ReplayConfig, CliError> {
        let named = self.engine.hicache.values(self.dcp_size)?;
        let l2 = match self.l2.or(named.l2) {
            Some(l2) => l2,
            None => defaults::L2.parse()?,
        };
        self.engine.hicache.check_l2(l2)?;
        let policy = self.policy.or(named.policy);
        let metadata = self.metadata_only;
        Ok(ReplayConfig {
            source: TraceSource::from(self.trace.as_str()),
            selection: self.workload.selection(),
            model: self.engine.model()?,
            parallel: self.engine.parallel(self.dcp_size, self.dcp_size),
            l1: self.l1,
            l2,
            policy: policy.unwrap_or(Policy::Lru),
            write_policy: self.engine.write_policy(&named),
            host_layout: self.engine.host_layout(&named),
            device: self.device,
            scale_rows: (!metadata && !self.full_rows).then_some(self.scale_rows),
            metadata_only: metadata,
            keys: if metadata {
                KeySource::Blocks
            } else {
                KeySource::Tokens
            },
            verify: match self.verify {
                Some(verify) => verify,
                None if metadata || self.attend.is_some() => VerifyPolicy::None,
                None => VerifyPolicy::All,
            },
            outputs: self.workload.outputs,
            compute: self.workload.compute(),
            fault: self.fault,
            faults: self.faults,
            paranoid: self.paranoid,
            copy_path: if self.no_calibrate {
                CopyPathChoice::BuiltIn
            } else {
                self.copy_path
            },
            attend: self.attend,
        })
    }
}
