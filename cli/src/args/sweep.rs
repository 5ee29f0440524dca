// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata sweep`.

use clap::Args;
use striata_replay::{
    Capacity, CopyPathChoice, DeviceChoice, HostCapacity, KeySource, Policy, ReplayConfig,
    SweepConfig, TraceSource, VerifyPolicy,
};

use super::defaults;
use super::engine::EngineArgs;
use super::hicache::HiCacheValues;
use super::output::OutputArgs;
use super::workload::WorkloadArgs;
use crate::error::CliError;

/// Replay a grid of DCP sizes, capacities and policies, without bytes.
///
/// Without arguments: what DCP buys, for c = 1, 2, 4, 8 at the same memory on each rank, on the
/// bundled agentic and chat traces.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Trace files or bundled traces [default: agentic_cc_u64 mooncake_conversation]
    #[arg(value_name = "TRACE")]
    traces: Vec<String>,
    #[command(flatten)]
    engine: EngineArgs,
    /// DCP sizes
    #[arg(
        long,
        visible_aliases = ["dcp-size", "decode-context-parallel-size"],
        value_name = "N,..",
        value_delimiter = ',',
        default_values_t = defaults::DCP_SIZES,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Grid"
    )]
    dcp_sizes: Vec<u32>,
    /// Sizes of the GPU tier: bytes a rank, tokens or widened pages
    #[arg(
        long,
        value_name = "SIZE,..",
        value_delimiter = ',',
        default_values = [defaults::SWEEP_L1],
        help_heading = "Grid"
    )]
    l1: Vec<Capacity>,
    /// Sizes of the host tier; 0 is off [default: 64GiB]
    #[arg(
        long,
        value_name = "SIZE,..",
        value_delimiter = ',',
        help_heading = "Grid"
    )]
    l2: Vec<HostCapacity>,
    /// Eviction policies [default: lru]
    #[arg(
        long,
        visible_alias = "policy",
        id = "policy",
        value_name = "NAME,..",
        value_delimiter = ',',
        help_heading = "Grid"
    )]
    policies: Vec<Policy>,
    /// Refuse capacities that are not the same bytes on a rank for every c
    #[arg(long, help_heading = "Grid")]
    same_memory_per_rank: bool,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl SweepArgs {
    /// One sweep for each trace.
    pub(crate) fn configs(&self) -> Result<Vec<SweepConfig>, CliError> {
        let mut named = None;
        for &dcp in &self.dcp_sizes {
            named = Some(self.engine.hicache.values(dcp)?);
        }
        let Some(named) = named else {
            return Err(CliError::Usage("--dcp-sizes names no size".to_owned()));
        };
        let l2 = match (self.l2.as_slice(), named.l2) {
            ([], Some(l2)) => vec![l2],
            ([], None) => vec![defaults::SWEEP_L2.parse()?],
            (sizes, _) => sizes.to_vec(),
        };
        let policies = match (self.policies.as_slice(), named.policy) {
            ([], policy) => vec![policy.unwrap_or(Policy::Lru)],
            (policies, _) => policies.to_vec(),
        };
        let mut capacities = Vec::new();
        for &l1 in &self.l1 {
            for &l2 in &l2 {
                self.engine.hicache.check_l2(l2)?;
                self.check_memory(l1, l2)?;
                capacities.push((l1, l2));
            }
        }
        let traces = if self.traces.is_empty() {
            defaults::SWEEP_TRACES.map(str::to_owned).to_vec()
        } else {
            self.traces.clone()
        };
        traces
            .iter()
            .map(|trace| {
                Ok(SweepConfig {
                    base: self.base(trace, capacities[0], &named)?,
                    dcp: self.dcp_sizes.clone(),
                    capacities: capacities.clone(),
                    policies: policies.clone(),
                })
            })
            .collect()
    }

    fn check_memory(&self, l1: Capacity, l2: HostCapacity) -> Result<(), CliError> {
        let tokens = [
            Some(l1),
            match l2 {
                HostCapacity::Fixed(l2) => Some(l2),
                HostCapacity::Off | HostCapacity::TimesL1(_) => None,
            },
        ]
        .into_iter()
        .flatten()
        .find(|capacity| matches!(capacity, Capacity::Tokens(_)));
        match tokens {
            Some(capacity) if self.same_memory_per_rank => Err(CliError::Usage(format!(
                "{capacity} is not the same memory per rank for every DCP size: tokens are those \
                 of the whole group, so write bytes (64GiB) or widened pages (10000p)"
            ))),
            _ => Ok(()),
        }
    }

    fn base(
        &self,
        trace: &str,
        tiers: (Capacity, HostCapacity),
        named: &HiCacheValues,
    ) -> Result<ReplayConfig, CliError> {
        let largest = self.dcp_sizes.iter().copied().max().unwrap_or(1);
        Ok(ReplayConfig {
            source: TraceSource::from(trace),
            selection: self.workload.selection(),
            model: self.engine.model()?,
            parallel: self.engine.parallel(largest, largest),
            l1: tiers.0,
            l2: tiers.1,
            policy: Policy::Lru,
            write_policy: self.engine.write_policy(named),
            host_layout: self.engine.host_layout(named),
            device: DeviceChoice::Sim,
            scale_rows: None,
            metadata_only: true,
            keys: KeySource::Blocks,
            verify: VerifyPolicy::None,
            outputs: self.workload.outputs,
            compute: self.workload.compute(),
            fault: None,
            faults: None,
            paranoid: false,
            copy_path: CopyPathChoice::BuiltIn,
            attend: None,
        })
    }
}
