// SPDX-License-Identifier: Apache-2.0
//! Configuration: what a user may set, and what an engine gets once all of it is checked.
//!
//! [`EngineConfig`] is the file, with HiCache's and SGLang's names; [`EngineConfig::validate`]
//! turns it into [`EngineSettings`], whose values fit together. A value that is set is honoured
//! or refused, never replaced; a value that is not set is resolved here and nowhere else.

mod decode;
mod error;
mod names;
mod size;
mod validate;

pub use decode::{AttentionKernel, DecodeSettings, ExchangeMeans};
pub use error::{ConfigError, Feature};
pub use names::{AttentionBackend, CommBackend, IoBackend, MemLayout, PolicyName, WritePolicy};
pub use size::Capacity;
pub use validate::{EngineSettings, L2Size, MAX_LEASES};

use serde::{Deserialize, Serialize};

use crate::models::{ModelSpec, one_line};

/// Every setting of an engine, as files and command lines give it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Tensor-parallel size: ranks in all.
    pub tp: u32,
    /// Attention data-parallel size: replicas.
    pub dp: u32,
    /// c, the ranks of a DCP group.
    #[serde(alias = "decode_context_parallel_size")]
    pub dcp_size: u32,
    /// P, the rows of a physical page on a rank.
    pub page_size: u32,
    /// I, the tokens after which ownership moves on.
    pub interleave: u32,
    /// The name of a model, or a table that describes one.
    pub model: ModelSpec,
    /// What the cached tokens mean beside their values: model revision, adapter, salt.
    pub namespace: String,
    /// Capacity of the GPU tier.
    pub l1: Capacity,
    /// Capacity of the host tier, 0 for none; wins over the two below by excluding them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<Capacity>,
    /// Gigabytes (10^9) of the host tier on each rank; wins over the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hicache_size: Option<f64>,
    /// Host pages a GPU page.
    pub hicache_ratio: f64,
    /// When pages are stored on the host tier.
    #[serde(alias = "hicache_write_policy")]
    pub write_policy: WritePolicy,
    /// Which pages go first.
    #[serde(alias = "radix_eviction_policy")]
    pub eviction_policy: PolicyName,
    /// What copies between the tiers; copy engines if absent.
    #[serde(alias = "hicache_io_backend", skip_serializing_if = "Option::is_none")]
    pub io_backend: Option<IoBackend>,
    /// Order of the host tier; whole pages if absent.
    #[serde(alias = "hicache_mem_layout", skip_serializing_if = "Option::is_none")]
    pub mem_layout: Option<MemLayout>,
    /// Fewest tokens that are worth a load-back.
    pub load_back_threshold: u64,
    /// Most tokens of one load-back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_back_quota: Option<u64>,
    /// Whether a hit may be the whole prompt, leaving no token to compute.
    pub hit_full_length: bool,
    /// Capacity that the host tier may grow to while serving; as at first if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_max: Option<Capacity>,
    /// Tokens of the GPU tier that are kept free by evicting ahead of need.
    pub free_watermark: u64,
    /// Most tokens that stores in flight may have together; others wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_quota: Option<u64>,
    /// Whether host copies of pages that are on the GPU tier go before others.
    pub duplicates_first: bool,
    /// Most leases, thus requests, at a time.
    pub max_leases: u32,
    /// Whether events of the cache (stored, removed) are kept for the engine to take.
    pub kv_events: bool,
    /// How partial results cross ranks; by model if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcp_comm_backend: Option<CommBackend>,
    /// Whether every rank projects the queries of its whole group; by model if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcp_replicate_q_proj: Option<bool>,
    /// What attends in decode steps; the fastest of our kernels if absent.
    #[serde(
        alias = "decode_attention_backend",
        skip_serializing_if = "Option::is_none"
    )]
    pub attention_backend: Option<AttentionBackend>,
    /// Whether KDA states are tiered too; they stay with the engine otherwise.
    pub tier_recurrent_state: bool,
    /// Storage behind the host tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hicache_storage_backend: Option<String>,
    /// Whether LMCache holds the lower tiers.
    pub enable_lmcache: bool,
    /// Whether HiSparse is on.
    pub enable_hisparse: bool,
    /// Ranks of prefill context parallelism.
    pub attention_cp: u32,
    /// Speculative decoding algorithm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speculative_algorithm: Option<String>,
    /// `prefill` or `decode` of a disaggregated engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disaggregation_mode: Option<String>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            tp: 1,
            dp: 1,
            dcp_size: 1,
            page_size: 64,
            interleave: 1,
            model: ModelSpec::preset("deepseek-v3.1"),
            namespace: String::new(),
            l1: Capacity::Bytes(8 << 30),
            l2: None,
            hicache_size: None,
            hicache_ratio: 2.0,
            write_policy: WritePolicy::WriteThrough,
            eviction_policy: PolicyName::Lru,
            io_backend: None,
            mem_layout: None,
            load_back_threshold: 10,
            load_back_quota: None,
            hit_full_length: false,
            l2_max: None,
            free_watermark: 0,
            store_quota: None,
            duplicates_first: false,
            max_leases: 4096,
            kv_events: false,
            dcp_comm_backend: None,
            dcp_replicate_q_proj: None,
            attention_backend: None,
            tier_recurrent_state: false,
            hicache_storage_backend: None,
            enable_lmcache: false,
            enable_hisparse: false,
            attention_cp: 1,
            speculative_algorithm: None,
            disaggregation_mode: None,
        }
    }
}

impl EngineConfig {
    /// Reads TOML; absent fields have their defaults.
    ///
    /// # Errors
    /// Syntax, unknown fields, names and sizes that cannot be read.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax(one_line(&error)))
    }

    /// Reads JSON; absent fields have their defaults.
    ///
    /// # Errors
    /// As [`EngineConfig::from_toml`].
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        serde_json::from_str(text).map_err(|error| ConfigError::Syntax(one_line(&error)))
    }
}

#[cfg(test)]
mod tests;
