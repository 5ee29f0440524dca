// SPDX-License-Identifier: Apache-2.0
//! The decode path's part of a configuration: exchange, query projection, attention kernel.
//!
//! What a user sets is honoured or refused with the reason. What is not set depends on the model
//! and on what the ranks have to reach each other with, and is resolved here and nowhere else:
//!
//! | model | not set: the first of these that the ranks have |
//! |---|---|
//! | any | `ag_rs`, `stream`, `sim` |
//! | `kimi-k3` | `fi_a2a`, `a2a`, `stream`, `sim`, with replicated queries |

use super::{AttentionBackend, CommBackend, ConfigError, EngineConfig, Feature};
use crate::geometry::RowFormat;
use crate::topology::HeadShards;

/// The preset whose model override changes what is not set.
const REPLICATES_QUERIES: &str = "kimi-k3";

/// What the ranks of a group have to reach each other with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeMeans {
    /// Collectives between processes: `ag_rs` and `a2a`.
    pub collectives: bool,
    /// Stores into the memory of peers: `peer` and `fi_a2a`.
    pub one_sided: bool,
    /// Streams that read each other's buffers in one process: `stream`.
    pub in_process: bool,
    /// Host memory: `sim`.
    pub host: bool,
}

impl ExchangeMeans {
    /// What a configuration may name before anything is known of the machine.
    pub const UNKNOWN: Self = Self {
        collectives: true,
        one_sided: false,
        in_process: true,
        host: true,
    };
    /// All ranks of a group in this process.
    pub const ONE_PROCESS: Self = Self {
        collectives: false,
        one_sided: false,
        in_process: true,
        host: true,
    };

    const fn has(self, backend: CommBackend) -> bool {
        match backend {
            CommBackend::AgRs | CommBackend::A2a => self.collectives,
            CommBackend::Peer | CommBackend::FiA2a => self.one_sided,
            CommBackend::Stream => self.in_process,
            CommBackend::Sim => self.host,
        }
    }

    /// Refuses what the ranks lack, by name.
    const fn check(self, backend: CommBackend) -> Result<CommBackend, ConfigError> {
        if self.has(backend) {
            return Ok(backend);
        }
        let reason = match backend {
            CommBackend::AgRs | CommBackend::A2a => {
                "collectives between processes are not built; all ranks in one process use stream"
            }
            CommBackend::FiA2a => return Err(not_built(Feature::FiA2a)),
            CommBackend::Peer => return Err(not_built(Feature::Peer)),
            CommBackend::Stream => "the ranks are not in one process",
            CommBackend::Sim => "the partial results are not in host memory",
        };
        Err(ConfigError::Exchange { backend, reason })
    }
}

const fn not_built(feature: Feature) -> ConfigError {
    ConfigError::NotBuilt { feature }
}

/// Which of our kernels attends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttentionKernel {
    /// The fastest that the device and the shape allow.
    #[default]
    Auto,
    /// Plain arithmetic; any shape, any device.
    Simt,
    /// Matrix units.
    Mma,
}

impl AttentionBackend {
    /// The kernel that a name means here, for rows of `format`.
    ///
    /// # Errors
    /// A backend of hardware that we have no device for, or one that cannot read such rows.
    pub fn kernel(self, format: RowFormat) -> Result<AttentionKernel, ConfigError> {
        let refused = |reason| {
            let backend = self;
            Err(ConfigError::Attention { backend, reason })
        };
        match self {
            Self::Simt => Ok(AttentionKernel::Simt),
            Self::Mma => Ok(AttentionKernel::Mma),
            Self::TokenspeedMla if format == RowFormat::Bf16 => {
                refused("it reads fp8 rows only, and the rows are bf16")
            }
            Self::Striata
            | Self::Fa3
            | Self::FlashMla
            | Self::FlashInfer
            | Self::CuteDslMla
            | Self::TrtllmMla
            | Self::TokenspeedMla
            | Self::Triton => Ok(AttentionKernel::Auto),
            Self::Ascend => refused("there is no device for NPUs"),
            Self::Aiter => refused("there is no device for AMD GPUs"),
            Self::TorchNative => refused("attention runs on the device's rows, not on tensors"),
        }
    }
}

/// How a decode step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeSettings {
    /// How partial results cross ranks; none where c = 1 and nothing crosses.
    pub exchange: Option<CommBackend>,
    /// Whether every rank projects the queries of its whole group.
    pub replicate_q_proj: bool,
    /// The attention kernel.
    pub kernel: AttentionKernel,
    /// Query heads of a rank and of its group.
    pub heads: HeadShards,
    /// How the rows are stored.
    pub format: RowFormat,
}

impl EngineConfig {
    /// Resolves the decode path for ranks with these `means`.
    ///
    /// # Errors
    /// As [`EngineConfig::validate`]; an exchange that the ranks lack, by name; an attention
    /// backend without a kernel here.
    pub fn decode_settings(&self, means: ExchangeMeans) -> Result<DecodeSettings, ConfigError> {
        let settings = self.validate()?;
        let (backend, replicate_q_proj) = self.exchange(means)?;
        let model_error = ConfigError::from;
        let format = settings.model.row_format().map_err(model_error)?;
        let backend_name = self.attention_backend.unwrap_or(AttentionBackend::Striata);
        Ok(DecodeSettings {
            exchange: (self.dcp_size > 1).then_some(backend),
            replicate_q_proj,
            kernel: backend_name.kernel(format)?,
            heads: settings.heads,
            format,
        })
    }

    /// The exchange and whether queries are replicated.
    pub(super) fn exchange(
        &self,
        means: ExchangeMeans,
    ) -> Result<(CommBackend, bool), ConfigError> {
        let striped = self.dcp_size > 1;
        let replicates = self.model.preset.as_deref() == Some(REPLICATES_QUERIES);
        let needs_dcp = |what: String| Err(ConfigError::NeedsDcp { what });
        if let Some(backend @ (CommBackend::A2a | CommBackend::FiA2a | CommBackend::Peer)) =
            self.dcp_comm_backend
            && !striped
        {
            return needs_dcp(format!("dcp_comm_backend {backend}"));
        }
        if self.dcp_replicate_q_proj == Some(true) && !striped {
            return needs_dcp("dcp_replicate_q_proj".to_owned());
        }
        if !striped {
            return Ok((self.dcp_comm_backend.unwrap_or(CommBackend::AgRs), false));
        }
        let backend = match self.dcp_comm_backend {
            Some(backend) => means.check(backend)?,
            None => unset(replicates, means)?,
        };
        match (backend, self.dcp_replicate_q_proj) {
            (CommBackend::AgRs, Some(true)) => Err(ConfigError::ReplicateQuery { backend }),
            (CommBackend::AgRs, _) => Ok((backend, false)),
            (_, set) => Ok((backend, set.unwrap_or(replicates))),
        }
    }
}

/// The exchange where none is set.
fn unset(replicates: bool, means: ExchangeMeans) -> Result<CommBackend, ConfigError> {
    const ANY: &[CommBackend] = &[CommBackend::AgRs, CommBackend::Stream, CommBackend::Sim];
    const REPLICATED: &[CommBackend] = &[
        CommBackend::FiA2a,
        CommBackend::A2a,
        CommBackend::Stream,
        CommBackend::Sim,
    ];
    let wanted = if replicates { REPLICATED } else { ANY };
    let found = wanted.iter().copied().find(|&backend| means.has(backend));
    found.ok_or(ConfigError::NoExchange)
}

#[cfg(test)]
mod tests;
