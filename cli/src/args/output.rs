// SPDX-License-Identifier: Apache-2.0
//! Flags of what comes out, shared by commands.

use std::path::PathBuf;

use clap::Args;

/// Where results and progress go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print one JSON object on standard output instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a table as CSV: a line a request (replay) or a point (sweep)
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw a picture as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ProgressArgs {
    /// Show progress, as lines, even where standard error is no terminal
    #[arg(long, conflicts_with_all = ["no_progress", "quiet"])]
    pub(crate) progress: bool,
    /// Show no progress
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Show neither progress nor notes
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
