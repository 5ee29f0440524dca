// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata doctor`.

use clap::Args;

/// Say what this machine offers and lacks, and which device `--device auto` chooses.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Measure copy paths even if measurements are kept; without a GPU on the simulated device
    #[arg(long, conflicts_with = "no_calibrate")]
    pub(crate) recalibrate: bool,
    /// Measure and show no copy paths
    #[arg(long)]
    pub(crate) no_calibrate: bool,
    /// Print one JSON object instead of sentences
    #[arg(long)]
    pub(crate) json: bool,
}
