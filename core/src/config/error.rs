// SPDX-License-Identifier: Apache-2.0
//! Why a configuration is refused.

use super::{AttentionBackend, CommBackend};
use crate::geometry::GeometryError;
use crate::models::ModelError;
use crate::stripe::StripeError;
use crate::topology::TopologyError;

/// Something that is refused by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Storage behind L2.
    L3,
    /// LMCache as the lower tiers.
    LmCache,
    /// HiSparse.
    HiSparse,
    /// Host pools of keys and values a head.
    NonMlaHostPools,
    /// Context parallel attention on prefill.
    PrefillContextParallel,
    /// Speculative decoding with draft pools.
    Speculative,
    /// Prefill on one engine, decode on another.
    PrefillDecode,
    /// Tiers for KDA states.
    RecurrentState,
    /// One-sided exchange between ranks over a fabric.
    FiA2a,
    /// One-sided exchange between ranks.
    Peer,
}

impl core::fmt::Display for Feature {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::L3 => "L3 storage (hicache_storage_backend)",
            Self::LmCache => "LMCache (enable_lmcache)",
            Self::HiSparse => "HiSparse (enable_hisparse)",
            Self::NonMlaHostPools => "non-MLA host pools (layers of kind full)",
            Self::PrefillContextParallel => "prefill context parallelism (attention_cp)",
            Self::Speculative => "speculative decoding (speculative_algorithm)",
            Self::PrefillDecode => "prefill-decode disaggregation (disaggregation_mode)",
            Self::RecurrentState => "recurrent state tiers (tier_recurrent_state)",
            Self::FiA2a => "one-sided exchange (dcp_comm_backend fi_a2a)",
            Self::Peer => "one-sided exchange (dcp_comm_backend peer)",
        })
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("configuration: {0}")]
    Syntax(String),
    /// Ranks that do not fit together.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// An impossible page size or interleave.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// An impossible model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Impossible pages.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A size that cannot be read.
    #[error("size {text:?} is refused: {reason}")]
    Size {
        /// What was written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name outside its set.
    #[error("unknown {what} {name:?}: known are {}", known.join(", "))]
    UnknownName {
        /// Which set.
        what: &'static str,
        /// The name.
        name: String,
        /// The set.
        known: Vec<&'static str>,
    },
    /// A number outside its range.
    #[error("{field} is {value}: it must be {range}")]
    Range {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
        /// What it may be.
        range: &'static str,
    },
    /// Something that needs more than one rank in a group.
    #[error("{what} needs a dcp size above 1, and it is 1")]
    NeedsDcp {
        /// The setting.
        what: String,
    },
    /// Replicated queries beside an exchange that gathers queries.
    #[error("dcp_replicate_q_proj needs dcp_comm_backend a2a or fi_a2a, and it is {backend}")]
    ReplicateQuery {
        /// The exchange.
        backend: CommBackend,
    },
    /// An exchange that the ranks have no means for.
    #[error("dcp_comm_backend {backend} cannot be used here: {reason}")]
    Exchange {
        /// The exchange.
        backend: CommBackend,
        /// What is missing.
        reason: &'static str,
    },
    /// Ranks that have no means for any exchange.
    #[error("no exchange is there for the ranks of a dcp group: they are not in one process")]
    NoExchange,
    /// An attention backend without a kernel here.
    #[error("attention_backend {backend} is refused: {reason}")]
    Attention {
        /// The backend.
        backend: AttentionBackend,
        /// Why.
        reason: &'static str,
    },
    /// Two settings that exclude each other.
    #[error("{first} and {second} exclude each other: {reason}")]
    Conflict {
        /// One setting.
        first: String,
        /// The other.
        second: String,
        /// Why.
        reason: &'static str,
    },
    /// A feature that is not there.
    #[error("{feature} is not supported")]
    NotBuilt {
        /// The feature.
        feature: Feature,
    },
}
