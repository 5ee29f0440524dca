// SPDX-License-Identifier: Apache-2.0
//! What a replay found, as plain data. The keys are stable: they are the keys of `--json` and the
//! columns of `--csv`.

use serde::{Deserialize, Serialize};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The pool held all of it.
    Served,
    /// The pool held its prompt, but not the generated tokens that were to be kept.
    Truncated,
    /// It is larger than the pool: it was computed without the cache and stored nowhere.
    Refused,
    /// Loads of it failed, each time that it was tried: it was computed without the cache.
    Failed,
}

/// One request: a row of `--csv`.
///
/// Units: tokens, microseconds and milliseconds of device time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Index in the trace, from 0.
    pub index: u64,
    /// Replica that served it.
    pub replica: u32,
    /// Arrival in seconds of the trace.
    pub arrival_s: f64,
    /// What became of it.
    pub outcome: Outcome,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Prompt tokens found on L1.
    pub hit_tokens_l1: u64,
    /// Prompt tokens loaded back from L2.
    pub hit_tokens_l2: u64,
    /// Prompt tokens computed: the rest.
    pub computed_tokens: u64,
    /// From the start of the load to the arrival of its first layer; none without a load.
    pub first_layer_us: Option<f64>,
    /// From the start of the load to the arrival of its last layer; none without a load.
    pub all_layers_us: Option<f64>,
    /// Time that layers waited for their load beyond what computing took.
    pub stall_us: f64,
    /// From arrival to the end of the last layer.
    pub ttft_ms: f64,
    /// Rows compared with their fingerprints, over all ranks and layers.
    pub verified_rows: u64,
    /// Rows among them that differed.
    pub mismatches: u64,
}

/// Percentiles of a quantity; all 0 where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Values measured.
    pub count: u64,
    /// Sum of the values.
    pub total: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// A row that did not hold its fingerprint, as the first request that read it saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MismatchedRow {
    /// Request that read it, by index in the trace.
    pub request: u64,
    /// Replica.
    pub replica: u32,
    /// Attention-TP rank in the replica.
    pub rank: u32,
    /// Layer.
    pub layer: u32,
    /// Widened page of the request, from 0.
    pub page: u64,
    /// Row of that page on that rank.
    pub row: u32,
    /// Position of the row's token in the request.
    pub position: u64,
}

/// What came of a planted fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReport {
    /// The fault, as it was asked for.
    pub fault: String,
    /// Pages that were loaded back in all.
    pub loaded_pages: u64,
    /// Rows that were changed: 0 if fewer pages than asked for were loaded back.
    pub corrupted_rows: u64,
    /// Distinct rows that the verifier named.
    pub reported_rows: u64,
    /// Whether the verifier named exactly the changed rows.
    pub exact: bool,
}

/// What came of random faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RandomFaultsReport {
    /// What the faults followed from.
    pub seed: u64,
    /// Share of the copies that met one.
    pub rate: f64,
    /// Loads that failed, each naming a planted fault.
    pub failed_loads: u64,
    /// Stores likewise.
    pub failed_stores: u64,
    /// Requests that were served again because a load of theirs had failed.
    pub recomputed_requests: u64,
}

/// What the checks of the engine found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParanoidReport {
    /// Times that every invariant was checked.
    pub invariant_checks: u64,
    /// Checks that found a broken one.
    pub broken_invariants: u64,
    /// Pages of both tiers that did not come back when all was forgotten in the end.
    pub lost_pages: u64,
}

/// What attention over the engine's rows gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttendReport {
    /// Every n-th request attends.
    pub every: u64,
    /// Query heads of a DCP group.
    pub heads: u32,
    /// Queries of a request.
    pub queries: u32,
    /// The kernel.
    pub kernel: String,
    /// Requests whose outputs were compared, a DCP group each.
    pub requests: u64,
    /// Outputs (a query and a head in a layer) that were compared.
    pub outputs: u64,
    /// Outputs that were off.
    pub off: u64,
    /// The largest error: relative of outputs, absolute of log-sum-exps.
    pub worst_error: f64,
    /// The largest error that is not off.
    pub tolerance: f64,
    /// The first output that was off.
    pub first_off: Option<String>,
}

impl AttendReport {
    /// Adds what another replica found.
    pub fn add(&mut self, other: &Self) {
        let (requests, outputs) = (self.requests, self.outputs);
        let (off, worst) = (self.off, self.worst_error);
        let first = self.first_off.take();
        *self = Self {
            requests: requests + other.requests,
            outputs: outputs + other.outputs,
            off: off + other.off,
            worst_error: worst.max(other.worst_error),
            first_off: first.or_else(|| other.first_off.clone()),
            ..other.clone()
        };
    }
}

/// Bytes that one rank's device moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Replica.
    pub replica: u32,
    /// Attention-TP rank in the replica.
    pub rank: u32,
    /// Bytes from L2 to L1.
    pub bytes_to_device: u64,
    /// Bytes from L1 to L2.
    pub bytes_to_host: u64,
}

/// One data-parallel replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    /// Replica.
    pub replica: u32,
    /// Requests that were routed to it.
    pub requests: u64,
    /// Their prompt tokens.
    pub input_tokens: u64,
    /// Those found on L1.
    pub hit_tokens_l1: u64,
    /// Those loaded back from L2.
    pub hit_tokens_l2: u64,
    /// Those computed.
    pub computed_tokens: u64,
}

/// What one tier of all replicas did, in widened pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierReport {
    /// Pages of the tier in one replica.
    pub capacity_pages: u64,
    /// Bytes of the tier on one rank, after any scaling; 0 for a replay without bytes.
    pub bytes_per_rank: u64,
    /// Pages that were evicted.
    pub evicted_pages: u64,
    /// Most pages in use at once in one replica.
    pub peak_pages: u64,
}

/// How the replay was configured: the numbers after all defaults and units are resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigEcho {
    /// Trace.
    pub trace: String,
    /// Format that was recognised.
    pub format: String,
    /// Model.
    pub model: String,
    /// Layers.
    pub layers: u32,
    /// Bytes of a row as replayed.
    pub row_bytes: u32,
    /// Bytes of a row of the model.
    pub model_row_bytes: u32,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Replicas.
    pub dp: u32,
    /// DCP size c.
    pub dcp: u32,
    /// Rows of a physical page, P.
    pub page_size: u32,
    /// Interleave I.
    pub interleave: u32,
    /// Tokens of a widened page, W.
    pub widened_page_tokens: u64,
    /// L1, as asked for.
    pub l1: String,
    /// L2, as asked for.
    pub l2: String,
    /// Eviction policy.
    pub policy: String,
    /// Write policy.
    pub write_policy: String,
    /// Backend that ran.
    pub device: String,
    /// Name of the device, of the first rank's if there are several; empty without bytes.
    pub device_name: String,
    /// Which way the bytes of copies took, and how that was chosen; empty without bytes.
    pub copy_paths: String,
    /// What the index was asked with.
    pub keys: String,
    /// Which rows were verified.
    pub verify: String,
    /// What became of generated tokens.
    pub outputs: String,
    /// Factor on arrival times.
    pub time_scale: f64,
    /// Microseconds of a layer.
    pub layer_us: f64,
    /// Sustained TFLOP/s of a rank.
    pub prefill_tflops: Option<f64>,
    /// Of them in attention, if that has a rate of its own.
    pub attention_tflops: Option<f64>,
    /// Decode steps after each prefill.
    pub decode_steps: u32,
    /// Microseconds of one.
    pub decode_step_us: f64,
}

/// A whole replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Requests replayed, refused ones among them.
    pub requests: u64,
    /// Their prompt tokens.
    pub input_tokens: u64,
    /// Tokens they generated.
    pub output_tokens: u64,
    /// Prompt tokens found on L1.
    pub hit_tokens_l1: u64,
    /// Prompt tokens loaded back from L2.
    pub hit_tokens_l2: u64,
    /// Prompt tokens computed; with the hits of both tiers they make `input_tokens`.
    pub computed_tokens: u64,
    /// `(hit_tokens_l1 + hit_tokens_l2) / input_tokens`.
    pub hit_ratio: f64,
    /// Requests larger than the pool, computed without the cache.
    pub refused_requests: u64,
    /// Their prompt tokens, which are among the computed ones.
    pub refused_tokens: u64,
    /// Requests whose generated tokens did not fit; their prompts did.
    pub truncated_requests: u64,
    /// Rows compared with their fingerprints, over all ranks and layers.
    pub verified_rows: u64,
    /// Distinct rows that differed: a row that several requests read counts once.
    pub mismatches: u64,
    /// The first of them, at most 1000.
    pub mismatched_rows: Vec<MismatchedRow>,
    /// What came of the planted fault.
    pub fault: Option<FaultReport>,
    /// What came of random faults.
    pub faults: Option<RandomFaultsReport>,
    /// What checking the engine after every request found.
    pub paranoid: Option<ParanoidReport>,
    /// What attention gave, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attend: Option<AttendReport>,
    /// Operations that failed.
    pub errors: u64,
    /// What the first of them said.
    pub error_messages: Vec<String>,
    /// Operations that crossed ranks: a replay needs none.
    pub collective_calls: u64,
    /// Loads from L2, one a request that needed one.
    pub load_backs: u64,
    /// Pages they brought.
    pub loaded_pages: u64,
    /// Pages stored to L2.
    pub stored_pages: u64,
    /// L1.
    pub l1: TierReport,
    /// L2; all 0 if it is off.
    pub l2: TierReport,
    /// Bytes moved, by rank.
    pub ranks: Vec<RankReport>,
    /// Requests by replica.
    pub replicas: Vec<ReplicaReport>,
    /// Bytes loaded by a rank over the device time from the start of each load to its end, in
    /// 10^9 bytes a second, mean over ranks.
    pub load_gb_per_s: f64,
    /// Likewise for stores.
    pub store_gb_per_s: f64,
    /// From the start of a load to its first layer.
    pub first_layer_us: Percentiles,
    /// From the start of a load to its last layer.
    pub all_layers_us: Percentiles,
    /// Waiting of layers for their load, of each request.
    pub stall_us: Percentiles,
    /// Time to first token.
    pub ttft_ms: Percentiles,
    /// Device time of the whole replay.
    pub device_seconds: f64,
    /// Wall time of the whole replay.
    pub wall_seconds: f64,
    /// Most resident memory of this process, where the platform tells it.
    pub peak_memory_bytes: Option<u64>,
    /// Whether device times are modelled, not measured.
    pub simulated: bool,
    /// Whether rows are smaller than the model's.
    pub scaled: bool,
    /// Whether no bytes were moved at all.
    pub metadata_only: bool,
    /// What a reader of the figures should know.
    pub notices: Vec<String>,
    /// How the replay was configured.
    pub config: ConfigEcho,
}

/// Watches a replay: progress bars and per-request files.
pub trait ReplayObserver {
    /// The replay begins; `total` requests lie ahead, if that is known.
    fn started(&mut self, total: Option<u64>) {
        let _ = total;
    }

    /// Something that a reader should know at once.
    fn notice(&mut self, text: &str) {
        let _ = text;
    }

    /// A request has ended; it is the `done`-th of `total`.
    fn request_done(&mut self, record: &RequestRecord, done: u64, total: Option<u64>);
}

/// An observer that looks away.
impl ReplayObserver for () {
    fn request_done(&mut self, _: &RequestRecord, _: u64, _: Option<u64>) {}
}
