// SPDX-License-Identifier: Apache-2.0
//! Why a benchmark of transfers ended early.

use striata_core::geometry::GeometryError;
use striata_core::stripe::StripeError;
use striata_gpu::calibrate::CalibrationError;
use striata_gpu::transfer::{GateError, TransferError};
use striata_gpu::{GpuError, PlanesError};
use striata_host::HostError;

use super::group::Group;

/// Why a benchmark of transfers ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A part that does not exist.
    #[error("{name} is no part of the benchmark; they are {}", Group::names())]
    Group {
        /// What was asked for.
        name: String,
    },
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
    /// Rows that make no page.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Rows that make no stripe.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The device failed or refused.
    #[error(transparent)]
    Device(#[from] GpuError),
    /// The planes could not be made.
    #[error(transparent)]
    Planes(#[from] PlanesError),
    /// The host pool could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The transfer engine failed or refused.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The calibration before it failed.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// A load failed.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// A job did not bring all of its pages.
    #[error("{what} brought {good_pages} of {pages} pages: {reason}")]
    Incomplete {
        /// Which job.
        what: &'static str,
        /// Pages that arrived.
        good_pages: usize,
        /// Pages of the job.
        pages: usize,
        /// What the engine said.
        reason: String,
    },
    /// A measurement gave nothing that can be reported.
    #[error("{what} gave no usable sample: {reason}")]
    NoSample {
        /// Which measurement.
        what: String,
        /// Why.
        reason: &'static str,
    },
}

impl BenchError {
    /// Whether the options are at fault, not the run.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Group { .. } | Self::Option { .. } | Self::Geometry(_) | Self::Stripe(_)
        )
    }
}
