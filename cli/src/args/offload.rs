// SPDX-License-Identifier: Apache-2.0
//! Flags of `striata bench offload`.

use std::path::PathBuf;

use clap::Args;
use striata_bench::offload::{OffloadOptions, TraceSlice};
use striata_replay::{Capacity, ComputeModel, DeviceChoice, ModelShape, TraceSource, VerifyPolicy};

use super::output::ProgressArgs;
use super::values::{not_negative, positive};
use crate::error::CliError;

const MODEL_OF_COMPUTING: &str = "Model of computing (assumptions)";
const REQUESTS: &str = "Requests";
const ENGINE: &str = "Engine";
const OUTPUT: &str = "Output";

/// Serve the same requests through five systems and compare times to first token.
///
/// Requests of real traces whose prefixes mostly come back from host memory: without it; loaded, then
/// computed; loaded by a copy call a chunk; by a copy kernel a layer; by this engine. Closed loop, one
/// request at a time: the time to first token goes from a request's turn to the end of the last layer
/// of its prefill. Computing is a model that keeps the device busy; copies and bytes are real.
///
/// Exits with 0 if every bar that is for this device was reached, 1 if bytes were wrong or the device
/// failed, 2 if an option, a trace or the device cannot be used, 3 if the link was too slow for the
/// figures to mean anything, 4 if a bar was missed.
#[derive(Debug, Args)]
pub(crate) struct OffloadBenchArgs {
    /// Traces: files, or bundled ones [default: agentic_cc_u256 mooncake_conversation]
    #[arg(value_name = "TRACE")]
    traces: Vec<String>,
    /// Device: auto (a GPU if one can be used), sim (times are modelled), cuda
    #[arg(long, value_name = "NAME", default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,

    /// Requests to measure [default: 40 or 48, by trace; all defaults stand in docs/bench.md]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = REQUESTS)]
    requests: Option<u64>,
    /// Requests that fill the tiers first, without computing [default: by trace and c]
    #[arg(long, value_name = "N", help_heading = REQUESTS)]
    fill: Option<u64>,
    /// Requests to leave out before that [default: by trace and c]
    #[arg(long, value_name = "N", help_heading = REQUESTS)]
    skip: Option<u64>,
    /// Replicas that the trace is spread over by session; the first one is measured [default: by
    /// trace and c]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = REQUESTS)]
    replicas: Option<u64>,

    /// GPU tier of a rank: bytes, tokens (5120000t) or widened pages [default: by
    /// trace and c]
    #[arg(long, value_name = "SIZE", help_heading = ENGINE)]
    l1: Option<Capacity>,
    /// Host tier of a rank, likewise [default: by trace and c; 2600p at c = 8]
    #[arg(long, value_name = "SIZE", help_heading = ENGINE)]
    l2: Option<Capacity>,
    /// Ranks that share the computing of a prefill
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    tp: u32,
    /// DCP size c; divides the ranks
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    dcp_size: u32,
    /// Ranks that run here, on the one device; ranks copy independently
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    ranks: u32,
    /// Rows of a page on one rank, P
    #[arg(long, value_name = "ROWS", default_value_t = super::defaults::PAGE_SIZE, value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    page_size: u32,
    /// Layers [default: 61, the model's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    layers: Option<u32>,
    /// Bytes of a row that are really moved [default: 1152 on a GPU; on sim 4, with a link that is
    /// slower in proportion]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..), help_heading = ENGINE)]
    scale_rows: Option<u32>,
    /// Rows of hit pages that are verified: all, sample, none
    #[arg(long, value_name = "POLICY", default_value_t = VerifyPolicy::Sample, help_heading = ENGINE)]
    verify: VerifyPolicy,
    /// Blocks of the copy kernel
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = ENGINE)]
    kernel_blocks: u32,

    /// Microseconds of a layer beside its operations
    #[arg(long, value_name = "US", default_value_t = OffloadOptions::COMPUTE.layer_us, value_parser = not_negative, help_heading = MODEL_OF_COMPUTING)]
    layer_us: f64,
    /// Sustained TFLOP/s of a rank in matrix products [default: 400]
    #[arg(long, value_name = "TFLOPS", value_parser = positive, help_heading = MODEL_OF_COMPUTING)]
    prefill_tflops: Option<f64>,
    /// Sustained TFLOP/s of a rank in attention [default: 500]
    #[arg(long, value_name = "TFLOPS", value_parser = positive, help_heading = MODEL_OF_COMPUTING)]
    attention_tflops: Option<f64>,
    /// Decode steps between two prefills
    #[arg(long, value_name = "N", default_value_t = OffloadOptions::COMPUTE.decode_steps, help_heading = MODEL_OF_COMPUTING)]
    decode_steps: u32,
    /// Microseconds of a decode step
    #[arg(long, value_name = "US", default_value_t = OffloadOptions::COMPUTE.decode_step_us, value_parser = not_negative, help_heading = MODEL_OF_COMPUTING)]
    decode_step_us: f64,

    /// Rate of one large copy in GB/s below which a run on a GPU is void [default: 54]
    #[arg(long, value_name = "GB/S", value_parser = not_negative, help_heading = OUTPUT)]
    floor: Option<f64>,
    /// Print one JSON object instead of tables
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Draw a picture as SVG
    #[arg(long, value_name = "FILE.svg", help_heading = OUTPUT)]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

impl OffloadBenchArgs {
    /// What is to be measured.
    pub(crate) fn options(&self) -> Result<OffloadOptions, CliError> {
        let mut options = OffloadOptions::new(self.dcp_size)?;
        if !self.traces.is_empty() {
            let sources = self
                .traces
                .iter()
                .map(|trace| TraceSource::from(trace.as_str()));
            options.slices = sources
                .map(|source| TraceSlice::of(source, self.dcp_size))
                .collect();
        }
        for slice in &mut options.slices {
            slice.requests = self.requests.unwrap_or(slice.requests);
            slice.fill = self.fill.unwrap_or(slice.fill);
            slice.skip = self.skip.unwrap_or(slice.skip);
            slice.replicas = self.replicas.unwrap_or(slice.replicas);
            slice.l1 = self.l1.unwrap_or(slice.l1);
            slice.l2 = self.l2.unwrap_or(slice.l2);
        }
        let layers = self.layers.unwrap_or(options.model.layers);
        let rate = |given: Option<f64>, default| given.or(default);
        Ok(OffloadOptions {
            device: self.device,
            model: ModelShape {
                layers,
                ..options.model
            },
            tp: self.tp,
            ranks: self.ranks,
            page_rows: self.page_size,
            scale_rows: self.scale_rows,
            verify: self.verify,
            compute: ComputeModel {
                layer_us: self.layer_us,
                prefill_tflops: rate(self.prefill_tflops, options.compute.prefill_tflops),
                attention_tflops: rate(self.attention_tflops, options.compute.attention_tflops),
                decode_steps: self.decode_steps,
                decode_step_us: self.decode_step_us,
                time_scale: 0.0,
            },
            kernel_blocks: self.kernel_blocks,
            floor_gb_per_s: self.floor.unwrap_or(options.floor_gb_per_s),
            ..options
        })
    }
}
