// SPDX-License-Identifier: Apache-2.0
//! The command `striata bench`.

mod decode;
mod offload;
mod pinning;
mod table;
mod transfer;

use crate::args::{BenchArgs, BenchCommand};
use crate::error::CliError;

/// The link was too slow for the figures to mean anything.
const EXIT_VOID: u8 = 3;
/// A bar was missed.
const EXIT_MISSED: u8 = 4;

/// Runs a benchmark; returns the exit code.
///
/// # Errors
/// Refused options, a device that cannot be used or fails, output that cannot be written.
pub(crate) fn run(args: &BenchArgs) -> Result<u8, CliError> {
    match &args.command {
        BenchCommand::Transfer(args) => transfer::run(args),
        BenchCommand::Offload(args) => offload::run(args),
        BenchCommand::Pinning(args) => pinning::run(args),
        BenchCommand::Decode(args) => decode::run(args),
    }
}
