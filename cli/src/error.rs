// SPDX-License-Identifier: Apache-2.0
//! Errors of the command line and the exit codes they stand for.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use striata_bench::decode::DecodeBenchError;
use striata_bench::offload::OffloadError;
use striata_bench::transfer::BenchError;
use striata_replay::{ConfigError, ReplayError};

use crate::plot::PlotError;

/// Something failed during the run, or bytes came back wrong.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line or its input is refused.
pub(crate) const EXIT_USAGE: u8 = 2;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Flags that do not go together.
    #[error("{0}")]
    Usage(String),
    /// A refused value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The replay ended early.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A benchmark ended early.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A benchmark of the decode path ended early.
    #[error(transparent)]
    DecodeBench(#[from] DecodeBenchError),
    /// The offload benchmark ended early.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A picture could not be made.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// An output file could not be opened.
    #[error("{path}: cannot be written: {source}")]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Output could not be written.
    #[error("{to}: cannot be written: {reason}")]
    Write {
        /// Where to.
        to: String,
        /// What was said.
        reason: String,
    },
}

impl CliError {
    /// What the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::Create { .. } => EXIT_USAGE,
            Self::Replay(error) if error.is_usage() => EXIT_USAGE,
            Self::Bench(error) if error.is_usage() => EXIT_USAGE,
            Self::Offload(error) if error.is_usage() => EXIT_USAGE,
            Self::Bench(_)
            | Self::DecodeBench(_)
            | Self::Offload(_)
            | Self::Replay(_)
            | Self::Plot(_)
            | Self::Write { .. } => EXIT_FAILED,
        }
    }
}

/// Says `message` on standard error, in one line whatever it holds.
pub(crate) fn complain(message: &str) {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("striata: {line}");
}

/// Reports an error of the argument parser; requests for help are not errors.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(EXIT_FAILED),
        };
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprint!("{}", error.render());
        return ExitCode::from(EXIT_USAGE);
    }
    let text = error.render().to_string();
    // The first paragraph says what is wrong; the rest is a reminder of the usage.
    let what = text.split("\n\n").next().unwrap_or(&text);
    complain(what.trim_start_matches("error: "));
    ExitCode::from(EXIT_USAGE)
}
