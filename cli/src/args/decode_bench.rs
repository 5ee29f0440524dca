// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata bench decode`.

use clap::Args;
use striata::kernels::decode::MmaSize;
use striata_bench::decode::{DecodeOptions, Part, Shape};
use striata_replay::DeviceChoice;

use super::output::ProgressArgs;

/// Measure attention, merges, layers and steps of the decode path against the device's ceilings.
///
/// Ceilings (read bandwidth, rate of a large matrix product) are measured in the same run; figures
/// of other kernels are shown as shares of the floor of their own run.
#[derive(Debug, Args)]
pub(crate) struct DecodeBenchArgs {
    /// Device to measure: auto (a GPU if one can be used), sim (times are those of the CPU), cuda
    #[arg(long, value_name = "NAME", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// Measure only these parts: kernel, merge, group, plan
    #[arg(long, value_name = "PART", num_args = 1.., value_delimiter = ',')]
    only: Vec<Part>,
    /// Shapes of the kernel, HEADSxQUERIESxBATCHxLENGTH
    #[arg(long, value_name = "SHAPE,..", value_delimiter = ',')]
    shapes: Vec<Shape>,
    /// DCP sizes of merges and groups
    #[arg(long, value_name = "C,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    dcp_size: Vec<u32>,
    /// Requests of merges and groups
    #[arg(long, value_name = "B,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    batches: Vec<u32>,
    /// Tensor-core kernels to run: large, medium or small; those of smaller devices run on larger ones
    #[arg(long, value_name = "SIZE")]
    mma: Option<MmaSize>,
    /// Timings of each figure
    #[arg(long, value_name = "N")]
    reps: Option<usize>,
    /// Fewer shapes and timings
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

impl DecodeBenchArgs {
    /// What is measured on a device whose times are modelled or not.
    pub(crate) fn options(&self, simulated: bool) -> DecodeOptions {
        let mut options = match (simulated, self.quick) {
            (true, _) => DecodeOptions::simulated(),
            (false, true) => DecodeOptions::quick(),
            (false, false) => DecodeOptions::full(),
        };
        if !self.shapes.is_empty() {
            options.shapes.clone_from(&self.shapes);
        }
        if !self.dcp_size.is_empty() {
            options.dcp.clone_from(&self.dcp_size);
        }
        if !self.batches.is_empty() {
            options.group_batches.clone_from(&self.batches);
        }
        options.reps = self.reps.unwrap_or(options.reps).max(1);
        options.only.clone_from(&self.only);
        options.mma = self.mma;
        options
    }
}
