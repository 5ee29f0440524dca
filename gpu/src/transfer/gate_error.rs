// SPDX-License-Identifier: Apache-2.0
//! Why a gate cannot be passed.

use striata_core::{LayerId, OpId};

use crate::error::GpuError;

/// Why a job was not submitted to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobFailure {
    /// A device call failed, for this job or for one before it.
    #[error(transparent)]
    Device(#[from] GpuError),
    /// It was given up.
    #[error("it was cancelled before it was submitted")]
    Cancelled,
    /// The transfer engine was dropped first.
    #[error("the transfer engine was dropped before it was submitted")]
    Stopped,
}

/// Why a gate cannot be passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// A layer that the pool does not have.
    #[error("layer {layer} is not one of the {layers} layers of operation {op}")]
    NoSuchLayer {
        /// The operation.
        op: OpId,
        /// The layer asked for.
        layer: LayerId,
        /// Layers of the pool.
        layers: u32,
    },
    /// The job failed.
    #[error("operation {op} failed: {cause}")]
    Failed {
        /// The operation.
        op: OpId,
        /// Why.
        cause: JobFailure,
    },
    /// The device failed while it was asked.
    #[error(transparent)]
    Device(#[from] GpuError),
}
