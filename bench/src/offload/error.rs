// SPDX-License-Identifier: Apache-2.0
//! Why an offload benchmark ended early.

use striata_core::geometry::GeometryError;
use striata_gpu::GpuError;
use striata_host::HostError;
use striata_replay::{ConfigError, ReplayError};

/// Why an offload benchmark ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// An option that makes no sense.
    #[error("{option}: {value}: {reason}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A trace that has too few requests.
    #[error(
        "{trace} has {found} requests of one of {replicas} replicas that fit into L1 after {skip} \
         are left out, fewer than the {wanted} that fill the tiers and one more"
    )]
    TooShort {
        /// The trace.
        trace: String,
        /// Requests that are there.
        found: u64,
        /// Replicas that the trace is spread over.
        replicas: u64,
        /// Requests that are left out first.
        skip: u64,
        /// Requests that fill the tiers.
        wanted: u64,
    },
    /// The engine, a trace or an option of them.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The device failed or refused.
    #[error(transparent)]
    Device(#[from] GpuError),
    /// The host pool of the ceiling could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Rows that make no page.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

impl From<ConfigError> for OffloadError {
    fn from(error: ConfigError) -> Self {
        Self::Replay(error.into())
    }
}

impl From<striata_replay::trace::TraceError> for OffloadError {
    fn from(error: striata_replay::trace::TraceError) -> Self {
        Self::Replay(error.into())
    }
}

impl OffloadError {
    /// Whether what was asked for is wrong, rather than what was done.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Option { .. } | Self::TooShort { .. } | Self::Geometry(_) => true,
            Self::Replay(error) => error.is_usage(),
            Self::Device(_) | Self::Host(_) => false,
        }
    }
}
