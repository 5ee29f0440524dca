// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata doctor`.

use clap::Args;

/// Say what this machine offers and lacks, and which device `--device auto` chooses.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object instead of sentences
    #[arg(long)]
    pub(crate) json: bool,
}
