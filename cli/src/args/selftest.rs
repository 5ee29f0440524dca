// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata selftest`.

use clap::Args;
use striata_replay::DeviceChoice;

/// Check the engine on a device to the byte, and name what is wrong.
///
/// Exits with 0 if nothing is wrong, 1 if a check failed or hung, 2 if the device cannot be used.
#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// Device to check: auto (a GPU if one can be used), sim, cuda
    #[arg(long, value_name = "NAME", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// List the checks and what each shows; run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Run only the checks whose names contain one of these
    #[arg(long, value_name = "PART", num_args = 1.., value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Print one JSON object instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}
