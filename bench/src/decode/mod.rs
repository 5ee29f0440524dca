// SPDX-License-Identifier: Apache-2.0
//! The decode path: the attention kernel beside the floor of its shape, the merge, a layer and a
//! step of c ranks on one device, and the plan's cost on the host.
//!
//! The floor of a shape is the larger of its bytes over the read bandwidth and its products over the
//! matrix rate, both measured in the same run. Figures of other kernels come from a file that names
//! its machine; each is shown as a share of the floor of its own run, never as a time beside ours.
//!
//! | file | room |
//! |---|---|
//! | `options` | shapes and parts |
//! | `bed` | a batch and its pools |
//! | `ceilings` | read bandwidth and matrix rate |
//! | `timing` | launches in a graph, one behind the other |
//! | `peers` | figures of other kernels |
//! | `run` | the parts |
//! | `plan` | CPU time of the plan |
//! | `report` | what was measured |

mod bed;
mod ceilings;
mod options;
mod peers;
mod plan;
mod report;
mod run;
mod timing;

pub use ceilings::{Ceilings, DecodeSubject};
pub use options::{DecodeOptions, Part, Shape};
pub use peers::{Peer, Peers};
pub use report::{DecodeReport, GroupFigure, KernelFigure, MergeFigure, PlanFigure};
pub use run::run;

/// Why a benchmark of the decode path ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeBenchError {
    /// A name that is no part, or text that is no shape.
    #[error("{text:?} is refused: {reason}")]
    Text {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The device failed or refused.
    #[error(transparent)]
    Device(#[from] striata_gpu::GpuError),
    /// The decode path failed or refused.
    #[error(transparent)]
    Decode(#[from] striata::decode::DecodeError),
    /// Sizes that make no pool.
    #[error("{what}: {reason}")]
    Pool {
        /// The shape.
        what: String,
        /// Why.
        reason: String,
    },
    /// The file of peers' figures cannot be read.
    #[error("the peers' figures: {0}")]
    Peers(String),
}
