// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata bench pinning`.

use clap::Args;
use striata_bench::pinning::PinningOptions;
use striata_replay::DeviceChoice;

use super::output::ProgressArgs;
use super::values::bytes;

/// Measure how fast the host tier becomes usable and grows, against cudaHostAlloc.
///
/// Pools and the driver's own allocations are made in turn, after one of each that is not counted.
/// Then a pool grows while pages of it are loaded. Exits with 0 if the bar was reached or is not for
/// this device and size, 1 if the device failed, 2 if an option or the device cannot be used, 4 if
/// the bar was missed.
#[derive(Debug, Args)]
pub(crate) struct PinningBenchArgs {
    /// Device to measure: auto (a GPU if one can be used), sim (pools are real), cuda
    #[arg(long, value_name = "NAME", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// Size of a pool [default: 16GiB; sim: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    bytes: Option<u64>,
    /// Measurements of each
    #[arg(long, value_name = "N", default_value_t = 3)]
    reps: usize,
    /// What a pool grows by beside loads [default: 2GiB; sim: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    growth_bytes: Option<u64>,
    /// Sizes of a step of growth
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = bytes)]
    growth_chunks: Vec<u64>,
    /// Pages of the loads [default: 64; sim: 8]
    #[arg(long, value_name = "N")]
    load_pages: Option<u32>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

impl PinningBenchArgs {
    /// What is measured on a device whose times are modelled or not.
    pub(crate) fn options(&self, simulated: bool) -> PinningOptions {
        let mut options = if simulated {
            PinningOptions::simulated()
        } else {
            PinningOptions::full()
        };
        options.reps = self.reps;
        options.bytes = self.bytes.unwrap_or(options.bytes);
        options.growth_bytes = self.growth_bytes.unwrap_or(options.growth_bytes);
        options.load_pages = self.load_pages.unwrap_or(options.load_pages);
        if !self.growth_chunks.is_empty() {
            options.growth_chunks.clone_from(&self.growth_chunks);
        }
        options
    }
}
