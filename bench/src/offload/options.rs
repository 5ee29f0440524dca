// SPDX-License-Identifier: Apache-2.0
//! What is measured, and with which model of computing.

use striata_core::HostLayout;
use striata_replay::trace::Bundled;
use striata_replay::{
    ComputeModel, ConfigError, CopyPathChoice, DeviceChoice, HostCapacity, KeySource, ModelShape,
    Outputs, Parallel, Policy, ReplayConfig, Selection, TraceSource, VerifyPolicy, WritePolicy,
};

use super::error::OffloadError;
use super::slice::TraceSlice;

/// Below this rate of one large copy an H200's link is not what it should be, and the run is void.
const FLOOR_GB_PER_S: f64 = 54.0;
/// Bytes of the copies that give the ceiling.
const LINK_BYTES: u64 = 1 << 30;
/// Bytes a row on a simulated device, whose memory is this machine's.
const SCALED_ROW_BYTES: u32 = 4;

/// Everything that a run needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct OffloadOptions {
    /// Device.
    pub device: DeviceChoice,
    /// Traces, one after the other.
    pub slices: Vec<TraceSlice>,
    /// The model's shape.
    pub model: ModelShape,
    /// Attention-TP size: ranks that share the computing of a prefill.
    pub tp: u32,
    /// DCP size c.
    pub dcp: u32,
    /// Ranks that run here, each with its pools, on the one device. Ranks copy independently, so
    /// one stands for all where each has a device of its own.
    pub ranks: u32,
    /// Rows of a physical page.
    pub page_rows: u32,
    /// Bytes a row instead of the model's; none is the model's on a GPU, 4 on a simulated device.
    pub scale_rows: Option<u32>,
    /// Rows that are compared with their fingerprints.
    pub verify: VerifyPolicy,
    /// The model of computing. Requests come back to back, so its time scale must be 0.
    pub compute: ComputeModel,
    /// Blocks of the copy kernel.
    pub kernel_blocks: u32,
    /// The rate of the link below which a run on a GPU is void, GB/s.
    pub floor_gb_per_s: f64,
    /// Bytes of the copies that give the ceiling.
    pub link_bytes: u64,
}

impl OffloadOptions {
    /// The default model of computing: a rank of an H200 node with DeepSeek-V3.1 on eight GPUs.
    /// Assumptions, not measurements: 400 TFLOP/s sustained by FP8 matrix products with their
    /// all-reduces (a fifth of the dense peak), 500 by prefill attention in BF16 (half of it), 100 us
    /// a layer for launches and latencies, and one decode step of 20 ms between two prefills.
    pub const COMPUTE: ComputeModel = ComputeModel {
        layer_us: 100.0,
        prefill_tflops: Some(400.0),
        attention_tflops: Some(500.0),
        decode_steps: 1,
        decode_step_us: 20_000.0,
        time_scale: 0.0,
    };

    /// The benchmark as it is meant: DeepSeek-V3.1, one rank of eight, both traces.
    ///
    /// # Errors
    /// The preset cannot be read.
    pub fn new(dcp: u32) -> Result<Self, ConfigError> {
        let traces = [Bundled::AgenticCcU256, Bundled::MooncakeConversation];
        Ok(Self {
            device: DeviceChoice::Auto,
            slices: traces
                .map(|trace| TraceSlice::of(TraceSource::Bundled(trace), dcp))
                .into(),
            model: ModelShape::preset("deepseek-v3.1")?,
            tp: 8,
            dcp,
            ranks: 1,
            page_rows: 64,
            scale_rows: None,
            verify: VerifyPolicy::Sample,
            compute: Self::COMPUTE,
            kernel_blocks: 2,
            floor_gb_per_s: FLOOR_GB_PER_S,
            link_bytes: LINK_BYTES,
        })
    }

    /// Refuses what makes no sense before anything is allocated.
    pub(super) fn check(&self) -> Result<(), OffloadError> {
        let refuse = |option, value: String, reason| {
            Err(OffloadError::Option {
                option,
                value,
                reason,
            })
        };
        if self.slices.is_empty() {
            return refuse("traces", "none".to_owned(), "there is nothing to measure");
        }
        if !(1..=self.tp).contains(&self.ranks) {
            let reason = "ranks that run are 1 to the attention-TP size";
            return refuse("ranks", self.ranks.to_string(), reason);
        }
        if !(1..=64).contains(&self.kernel_blocks) {
            let reason = "a copy kernel has 1 to 64 blocks here";
            return refuse("kernel blocks", self.kernel_blocks.to_string(), reason);
        }
        if self.compute.time_scale != 0.0 {
            let reason = "requests come back to back";
            return refuse("time scale", self.compute.time_scale.to_string(), reason);
        }
        if self.link_bytes == 0 {
            let reason = "the ceiling needs bytes to copy";
            return refuse("link bytes", "0".to_owned(), reason);
        }
        if self.slices.iter().any(|slice| slice.requests == 0) {
            return refuse("requests", "0".to_owned(), "there is nothing to measure");
        }
        Ok(())
    }

    /// Bytes of a row as they are moved.
    pub(super) fn row_bytes(&self, simulated: bool) -> u32 {
        let default = if simulated {
            SCALED_ROW_BYTES.min(self.model.row_bytes)
        } else {
            self.model.row_bytes
        };
        self.scale_rows.unwrap_or(default)
    }

    /// The replay of a slice, with both tiers and real bytes.
    pub(super) fn replay(&self, slice: &TraceSlice, row_bytes: u32) -> ReplayConfig {
        ReplayConfig {
            source: slice.source.clone(),
            selection: Selection::default(),
            model: self.model.clone(),
            parallel: Parallel {
                tp: self.tp,
                dp: 1,
                dcp: self.dcp,
                page_rows: self.page_rows,
                interleave: 1,
            },
            l1: slice.l1,
            l2: HostCapacity::Fixed(slice.l2),
            policy: Policy::Lru,
            write_policy: WritePolicy::WriteThrough,
            host_layout: HostLayout::PageFirst,
            device: self.device,
            scale_rows: Some(row_bytes),
            metadata_only: false,
            copy_path: CopyPathChoice::BuiltIn,
            keys: KeySource::Blocks,
            verify: self.verify,
            outputs: Outputs::Drop,
            compute: self.compute,
            fault: None,
            faults: None,
            paranoid: false,
            attend: None,
        }
    }
}
