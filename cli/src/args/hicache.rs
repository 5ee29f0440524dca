// SPDX-License-Identifier: Apache-2.0
//! HiCache's and SGLang's own flags, so that a launch command can be tried as it stands.

use clap::Args;
use striata::core::EngineConfig;
use striata::core::config::{CommBackend, IoBackend, L2Size, MemLayout};
use striata_replay::{HostCapacity, Policy, WritePolicy};

use super::values::{not_negative, positive, write_policy};
use crate::error::CliError;

/// The flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names of HiCache and SGLang")]
pub(super) struct HiCacheArgs {
    /// L2 as a multiple of L1
    #[arg(long, value_name = "RATIO", value_parser = positive, conflicts_with = "l2")]
    hicache_ratio: Option<f64>,
    /// L2 in GB (10^9 bytes) on each rank; above 0 it wins over --hicache-ratio
    #[arg(long, value_name = "GB", value_parser = not_negative, conflicts_with = "l2")]
    hicache_size: Option<f64>,
    /// As --write-policy
    #[arg(long, value_name = "POLICY", value_parser = write_policy, conflicts_with = "write_policy")]
    hicache_write_policy: Option<WritePolicy>,
    /// As --host-layout: layer_first, page_first, page_first_direct
    #[arg(long, value_name = "LAYOUT", conflicts_with = "host_layout")]
    hicache_mem_layout: Option<MemLayout>,
    /// As --policy
    #[arg(long, value_name = "POLICY", conflicts_with = "policy")]
    radix_eviction_policy: Option<Policy>,
    /// Checked against the layout (kernel, direct); copies go through copy engines either way
    #[arg(long, value_name = "BACKEND")]
    hicache_io_backend: Option<IoBackend>,
    /// Checked (ag_rs, a2a, fi_a2a); a replay exchanges no attention
    #[arg(long, value_name = "BACKEND")]
    dcp_comm_backend: Option<CommBackend>,
    /// Checked; a replay projects no queries
    #[arg(long, overrides_with = "no_dcp_replicate_q_proj")]
    dcp_replicate_q_proj: bool,
    /// Accepted
    #[arg(long, overrides_with = "dcp_replicate_q_proj")]
    no_dcp_replicate_q_proj: bool,
    /// Accepted; L2 is on unless --l2 0
    #[arg(long)]
    enable_hierarchical_cache: bool,
    /// Accepted; --dp says how many replicas there are
    #[arg(long)]
    enable_dp_attention: bool,
    /// Refused: there is no third tier yet
    #[arg(long, value_name = "BACKEND")]
    hicache_storage_backend: Option<String>,
}

/// What the flags set, where they set anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct HiCacheValues {
    pub(super) l2: Option<HostCapacity>,
    pub(super) write_policy: Option<WritePolicy>,
    pub(super) host_layout: Option<striata::core::HostLayout>,
    pub(super) policy: Option<Policy>,
}

impl HiCacheArgs {
    /// What the flags set for DCP size `dcp`, after the engine's own checks of them.
    pub(super) fn values(&self, dcp: u32) -> Result<HiCacheValues, CliError> {
        let size = self.hicache_size.filter(|gigabytes| *gigabytes > 0.0);
        let replicate = match (self.dcp_replicate_q_proj, self.no_dcp_replicate_q_proj) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            (false, false) => None,
        };
        let defaults = EngineConfig::default();
        // These flags ask only whether there are several ranks; the replay checks the rest of the
        // topology, without heads, since it computes no attention.
        let ranks = dcp.min(2);
        let config = EngineConfig {
            tp: ranks,
            dcp_size: ranks,
            hicache_size: size,
            hicache_ratio: self.hicache_ratio.unwrap_or(defaults.hicache_ratio),
            io_backend: self.hicache_io_backend,
            mem_layout: self.hicache_mem_layout,
            dcp_comm_backend: self.dcp_comm_backend,
            dcp_replicate_q_proj: replicate,
            hicache_storage_backend: self.hicache_storage_backend.clone(),
            ..defaults
        };
        let settings = config
            .validate()
            .map_err(striata_replay::ConfigError::from)?;
        let sized = size.is_some() || self.hicache_ratio.is_some();
        Ok(HiCacheValues {
            l2: sized.then_some(match settings.l2 {
                L2Size::Off => HostCapacity::Off,
                L2Size::Capacity(capacity) => HostCapacity::Fixed(capacity),
                L2Size::Ratio(ratio) => HostCapacity::TimesL1(ratio),
            }),
            write_policy: self.hicache_write_policy,
            host_layout: self.hicache_mem_layout.map(|_| settings.host_layout),
            policy: self.radix_eviction_policy,
        })
    }

    /// Refuses a hierarchy without its second tier.
    pub(super) fn check_l2(&self, l2: HostCapacity) -> Result<(), CliError> {
        if self.enable_hierarchical_cache && l2 == HostCapacity::Off {
            let text = "--enable-hierarchical-cache and --l2 0 exclude each other";
            return Err(CliError::Usage(text.to_owned()));
        }
        Ok(())
    }
}
