// SPDX-License-Identifier: Apache-2.0
//! What the offload benchmark found; keys of `--json`, which `docs/bench.md` explains.

use serde::{Deserialize, Serialize};

use super::bars;
use super::system::System;
use crate::samples::Samples;
use crate::transfer::{Outcome, Side, Verdict};

/// Order statistics of a quantity; all 0 of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The value at rank ceil(0.5 n).
    pub p50: f64,
    /// At rank ceil(0.9 n).
    pub p90: f64,
    /// At rank ceil(0.99 n).
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    pub(super) fn of(samples: &Samples) -> Self {
        let at = |q| samples.quantile(q).unwrap_or(0.0);
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// Where the times of a system come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// A device's events.
    Measured,
    /// The cost model of a simulated device.
    Simulated,
    /// The model of computing alone: nothing is copied before the first token.
    Modelled,
}

/// One system. Times in seconds but where the key says otherwise; bytes are those of the model's
/// rows, of all ranks that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemReport {
    /// Which.
    pub system: System,
    /// In words.
    pub title: String,
    /// Where its times come from.
    pub times: Times,
    /// Requests that were measured.
    pub requests: u64,
    /// Time to first token.
    pub ttft_ms: Quantiles,
    /// Its sum: requests are served one after the other.
    pub prefill_s: f64,
    /// Of it, what computing takes by the model.
    pub compute_s: f64,
    /// Of it, what the compute stream waited for loads.
    pub stall_s: f64,
    /// `stall_s / prefill_s`.
    pub stall_share: f64,
    /// The least that this share can be with the link of this run, if computing took as long as the
    /// model says and nothing else took time.
    pub least_stall_share: f64,
    /// Requests that loaded something.
    pub loads: u64,
    /// Time during which a load was in flight, from order to end.
    pub load_s: f64,
    /// Bytes loaded.
    pub loaded_bytes: f64,
    /// Bytes stored.
    pub stored_bytes: f64,
    /// `loaded_bytes / load_s`, in 10^9 bytes a second; none without a load.
    pub load_gb_per_s: Option<f64>,
    /// Over the rate of the link.
    pub load_share_of_link: Option<f64>,
    /// Prompt tokens found on either tier, of all.
    pub hit_ratio: f64,
    /// On L1.
    pub hit_ratio_l1: f64,
    /// On L2 alone.
    pub hit_ratio_l2: f64,
    /// Rows compared with their fingerprints.
    pub verified_rows: u64,
    /// Rows that differed.
    pub wrong_rows: u64,
    /// Operations that failed.
    pub errors: u64,
    /// What the first of them said.
    pub error_messages: Vec<String>,
}

/// Something that a trace's systems must reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffloadBar {
    /// What.
    pub what: String,
    /// Its value.
    pub value: f64,
    /// Which side is good.
    pub side: Side,
    /// The limit.
    pub limit: f64,
    /// Whether it was reached.
    pub verdict: Verdict,
}

/// Pages and tiers, after all units are resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeometryEcho {
    /// Attention-TP size.
    pub tp: u32,
    /// DCP size c.
    pub dcp: u32,
    /// Ranks that ran.
    pub ranks: u32,
    /// Rows of a physical page.
    pub page_rows: u32,
    /// Tokens of a widened page.
    pub page_tokens: u64,
    /// Layers.
    pub layers: u32,
    /// Bytes of a row as they were moved.
    pub row_bytes: u32,
    /// Bytes of a row of the model.
    pub model_row_bytes: u32,
    /// Usable pages of L1.
    pub l1_pages: u64,
    /// Pages of L2.
    pub l2_pages: u64,
}

/// The model of computing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelEcho {
    /// The model whose operations are counted.
    pub model: String,
    /// Its active parameters.
    pub active_parameters: Option<u64>,
    /// Ranks that share a prefill.
    pub ranks: u32,
    /// Microseconds of a layer beside its operations.
    pub layer_us: f64,
    /// Sustained TFLOP/s of a rank, but for attention.
    pub prefill_tflops: Option<f64>,
    /// In attention.
    pub attention_tflops: Option<f64>,
    /// Decode steps between two prefills.
    pub decode_steps: u32,
    /// Microseconds of one.
    pub decode_step_us: f64,
    /// Blocks of the copy kernel.
    pub kernel_blocks: u32,
}

/// One trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// Its name.
    pub trace: String,
    /// Replicas that it is spread over; one was measured.
    pub replicas: u64,
    /// Requests of the replica that were left out first.
    pub skipped: u64,
    /// Requests that filled the tiers.
    pub filled: u64,
    /// Requests that were measured.
    pub requests: u64,
    /// Requests that are larger than L1, left out of both.
    pub left_out: u64,
    /// Pages and tiers.
    pub geometry: GeometryEcho,
    /// Share of the hit tokens that came from L2.
    pub l2_share_of_hits: f64,
    /// The systems.
    pub systems: Vec<SystemReport>,
    /// What must be reached.
    pub bars: Vec<OffloadBar>,
    /// Seconds that the trace took.
    pub seconds: f64,
}

/// The ceiling: the best of five copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Bytes of each, of the model's rows.
    pub copy_bytes: f64,
    /// Host to device, GB/s.
    pub h2d_gb_per_s: f64,
    /// Below this the run is void.
    pub floor_gb_per_s: f64,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffloadReport {
    /// Version of the program.
    pub version: String,
    /// Backend.
    pub device: String,
    /// Its name.
    pub device_name: String,
    /// Whether times come from a cost model: then they say nothing of a machine.
    pub simulated: bool,
    /// Whether rows are smaller than the model's. The simulated link is slower in proportion, and
    /// bytes and rates are given as those of the model's rows.
    pub scaled: bool,
    /// What one large copy reaches.
    pub link: Link,
    /// Whether the link was too slow for the figures to mean anything.
    pub void: bool,
    /// The model of computing.
    pub compute: ModelEcho,
    /// Which rows were verified.
    pub verify: String,
    /// The traces.
    pub traces: Vec<TraceReport>,
    /// What a reader of the figures should know.
    pub notices: Vec<String>,
    /// Seconds that everything took.
    pub seconds: f64,
}

impl TraceReport {
    /// The report of a system.
    #[must_use]
    pub fn of(&self, system: System) -> Option<&SystemReport> {
        self.systems.iter().find(|report| report.system == system)
    }
}

impl OffloadReport {
    /// The gravest of what is wrong.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let systems = || self.traces.iter().flat_map(|trace| &trace.systems);
        let mut bars = self.traces.iter().flat_map(|trace| &trace.bars);
        if systems().any(|system| system.wrong_rows > 0 || system.errors > 0) {
            Outcome::WrongBytes
        } else if self.void {
            Outcome::Void
        } else if bars.any(|bar| bar.verdict == Verdict::Missed) {
            Outcome::Missed
        } else {
            Outcome::Good
        }
    }

    /// The sentence on how requests come, for tables and pictures.
    #[must_use]
    pub const fn loop_in_words() -> &'static str {
        "closed loop, one request at a time; time to first token from a request's turn to the end of \
         its prefill's last layer"
    }

    /// Judges every trace.
    pub(super) fn judge(&mut self) {
        let measured = !self.simulated;
        for trace in &mut self.traces {
            trace.bars = bars::of(trace, measured);
        }
    }
}
