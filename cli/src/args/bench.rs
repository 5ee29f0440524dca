// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use striata_bench::transfer::{Group, TransferOptions};
use striata_replay::DeviceChoice;

use super::decode_bench::DecodeBenchArgs;
use super::offload::OffloadBenchArgs;
use super::output::ProgressArgs;
use super::pinning::PinningBenchArgs;

/// Measure the engine against the ceilings and the peers of the same run.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure copies between the tiers against one large copy call, and compute beside them
    Transfer(TransferBenchArgs),
    /// Measure attention, merges, layers and steps of the decode path against the device's ceilings
    Decode(DecodeBenchArgs),
    /// Serve the same requests through five systems and compare times to first token
    Offload(Box<OffloadBenchArgs>),
    /// Measure how fast the host tier becomes usable and grows, against cudaHostAlloc
    Pinning(PinningBenchArgs),
}

/// Measure copies between the tiers against one large copy call, and compute beside them.
///
/// Exits with 0 if every bar that is for this device and these rows was reached, 1 if bytes were
/// wrong or a part failed, 2 if an option or the device cannot be used, 3 if the link was too
/// slow for the figures to mean anything, 4 if a bar was missed.
#[derive(Debug, Args)]
pub(crate) struct TransferBenchArgs {
    /// Device to measure: auto (a GPU if one can be used), sim (times are modelled), cuda
    #[arg(long, value_name = "NAME", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// Measure only these parts
    #[arg(long, value_name = "PART", num_args = 1.., value_delimiter = ',')]
    only: Vec<Group>,
    /// Pages of the jobs [default: 1,2,8,64,256,512; sim: 1,2,8,16]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pages: Vec<u32>,
    /// Measurements of each figure [default: 20; sim: 3]
    #[arg(long, value_name = "N")]
    reps: Option<usize>,
    /// Fewer measurements of fewer pages, too few for bars
    #[arg(long)]
    quick: bool,
    /// Layers [default: 61; sim: 8]
    #[arg(long, value_name = "N")]
    layers: Option<u32>,
    /// Rows of a page, P
    #[arg(long, value_name = "ROWS")]
    page_size: Option<u32>,
    /// Bytes of a row
    #[arg(long, value_name = "BYTES")]
    row_bytes: Option<u32>,
    /// Bytes of a registration of the host pool, roughly [default: those of the engine]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    registration_bytes: Option<u64>,
    /// Measure the paths first and use the fastest, instead of the built-in table
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// Bytes of the copies that make the ceilings [default: 1073741824; sim: 8388608]
    #[arg(long, value_name = "BYTES")]
    ceiling_bytes: Option<u64>,
    /// Ceiling in GB/s below which the run is void [default: 54; sim: 0]
    #[arg(long, value_name = "GB/S", value_parser = super::values::not_negative)]
    floor: Option<f64>,
    /// Copies of 4 KiB that are measured beside loads [default: 500]
    #[arg(long, value_name = "N")]
    foreign_samples: Option<usize>,
    /// Rows of a row list [default: 4096; sim: 512]
    #[arg(long, value_name = "N")]
    list_rows: Option<u32>,
    /// Which pages are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the JSON object to a file, whatever is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

impl TransferBenchArgs {
    /// What is measured on a device whose times are modelled or not.
    pub(crate) fn options(&self, simulated: bool) -> TransferOptions {
        let mut options = if simulated {
            TransferOptions::simulated()
        } else {
            TransferOptions::full()
        };
        if self.quick {
            options = options.quick();
        }
        let set = |value: &mut u32, given: Option<u32>| *value = given.unwrap_or(*value);
        set(&mut options.shape.layers, self.layers);
        set(&mut options.shape.page_rows, self.page_size);
        set(&mut options.shape.row_bytes, self.row_bytes);
        set(&mut options.list_rows, self.list_rows);
        if !self.pages.is_empty() {
            options.pages.clone_from(&self.pages);
        }
        options.reps = self.reps.unwrap_or(options.reps);
        options.ceiling_bytes = self.ceiling_bytes.unwrap_or(options.ceiling_bytes);
        options.registration_bytes = self
            .registration_bytes
            .unwrap_or(options.registration_bytes);
        options.floor_gb_per_s = self.floor.unwrap_or(options.floor_gb_per_s);
        options.foreign_samples = self.foreign_samples.unwrap_or(options.foreign_samples);
        options.only.clone_from(&self.only);
        options.seed = self.seed;
        options
    }
}
