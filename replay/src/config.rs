// SPDX-License-Identifier: Apache-2.0
//! Everything that a replay needs to know, typed and validated. The command line only fills it.

use core::fmt;
use core::str::FromStr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use striata_core::config::{Capacity, PolicyName, WritePolicy};

use crate::capacity::HostCapacity;
use crate::error::ConfigError;
use crate::model::ModelShape;
use crate::names::named;
use crate::trace::Bundled;

/// Where the requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSource {
    /// A trace inside the program.
    Bundled(Bundled),
    /// A file, packed or not, of any known format.
    File(PathBuf),
    /// Standard input, likewise.
    Stdin,
}

impl fmt::Display for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled(trace) => write!(f, "{trace} (bundled)"),
            Self::File(path) => path.display().fmt(f),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}

impl From<&str> for TraceSource {
    /// `-` is standard input, the name of a bundled trace is that trace, and all else is a path.
    fn from(text: &str) -> Self {
        match text {
            "-" => Self::Stdin,
            name => name
                .parse()
                .map_or_else(|_| Self::File(PathBuf::from(name)), Self::Bundled),
        }
    }
}

/// How the ranks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parallel {
    /// Tensor-parallel size, all replicas together.
    pub tp: u32,
    /// Data-parallel attention replicas.
    pub dp: u32,
    /// DCP size c.
    pub dcp: u32,
    /// Rows of a physical page, P.
    pub page_rows: u32,
    /// Interleave I.
    pub interleave: u32,
}

named! {
    /// Which device runs the copies.
    pub enum DeviceChoice("device") {
        /// A GPU if there is one, else the simulated device.
        Auto = "auto",
        /// The simulated device.
        Sim = "sim",
        /// A CUDA GPU.
        Cuda = "cuda",
    }
}

named! {
    /// Which rows of hit pages are compared with their fingerprints.
    pub enum VerifyPolicy("verify policy") {
        /// Every row.
        All = "all",
        /// Every 8th row.
        Sample = "sample",
        /// None.
        None = "none",
    }
}

named! {
    /// What happens to the tokens that a request generates.
    pub enum Outputs("outputs policy") {
        /// They are not stored.
        Drop = "drop",
        /// They are appended to the request and stored with it; no later request shares them.
        Keep = "keep",
    }
}

named! {
    /// What the prefix index is asked with.
    pub enum KeySource("key source") {
        /// Token ids, made from block ids, hashed by the index itself.
        Tokens = "tokens",
        /// Page keys made directly from block ids.
        Blocks = "blocks",
    }
}

named! {
    /// Which way the bytes of copies take. It changes speed and nothing else.
    pub enum CopyPathChoice("copy path") {
        /// What a calibration of the device chooses, by direction, chunk and pages.
        Calibrated = "calibrated",
        /// The built-in table, without a calibration.
        BuiltIn = "built-in",
        /// Rectangles in batched calls.
        Rectangles = "rectangles",
        /// Rectangles by a call each.
        RectangleCalls = "rectangle_calls",
        /// Plain runs in batched calls.
        Runs = "runs",
        /// Plain runs by a call each.
        RunCalls = "run_calls",
        /// A kernel and a ring of device memory before the copy engine.
        Staged = "staged",
        /// A kernel on mapped host memory.
        Mapped = "mapped",
    }
}

named! {
    /// How computing waits for a load-back.
    pub enum LoadWait("load wait") {
        /// Each layer waits for its own rows.
        ByLayer = "by-layer",
        /// The first layer waits for the rows of all layers.
        Whole = "whole",
    }
}

/// A fault that the replay plants, to show that the verifier sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The n-th page (from 1) that is loaded back has one word of every row flipped in its host
    /// copy, on every rank and layer, before its load.
    CorruptPage(u64),
}

impl FromStr for Fault {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        text.strip_prefix("corrupt-page:")
            .and_then(|n| n.parse().ok())
            .filter(|&n| n > 0)
            .map(Self::CorruptPage)
            .ok_or_else(|| ConfigError::Fault {
                text: text.to_owned(),
            })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CorruptPage(n) => write!(f, "corrupt-page:{n}"),
        }
    }
}

/// Random faults of the simulated devices: copies that fail in part, that come late, and that begin
/// only when they are let go.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomFaults {
    /// What the faults follow from.
    pub seed: u64,
    /// Share of the copies that meet one.
    pub rate: f64,
}

impl RandomFaults {
    /// The rate where none is given.
    pub const RATE: f64 = 0.01;
}

impl FromStr for RandomFaults {
    type Err = ConfigError;

    /// `SEED` or `SEED:RATE`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (seed, rate) = match text.split_once(':') {
            Some((seed, rate)) => (seed, rate.parse().ok()),
            None => (text, Some(Self::RATE)),
        };
        let rate = rate.filter(|rate| (0.0..=1.0).contains(rate));
        match (seed.parse(), rate) {
            (Ok(seed), Some(rate)) => Ok(Self { seed, rate }),
            _ => Err(ConfigError::RandomFaults {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for RandomFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.rate)
    }
}

/// How long a request computes. See [`crate::compute`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputeModel {
    /// Microseconds of a layer whatever the number of tokens.
    pub layer_us: f64,
    /// Sustained TFLOP/s of one rank; without it tokens cost nothing beyond `layer_us`.
    pub prefill_tflops: Option<f64>,
    /// Sustained TFLOP/s of one rank in attention; without it `prefill_tflops` counts there too.
    pub attention_tflops: Option<f64>,
    /// Decode steps that a replica runs after each prefill, before the next request.
    pub decode_steps: u32,
    /// Microseconds of a decode step.
    pub decode_step_us: f64,
    /// Factor on arrival times; 0 starts each request when the one before it has ended.
    pub time_scale: f64,
}

impl Default for ComputeModel {
    fn default() -> Self {
        Self {
            layer_us: 0.0,
            prefill_tflops: None,
            attention_tflops: None,
            decode_steps: 0,
            decode_step_us: 0.0,
            time_scale: 0.0,
        }
    }
}

/// Which requests of the trace are replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Requests to leave out at the beginning.
    pub skip: u64,
    /// Most requests to replay after that.
    pub limit: Option<u64>,
}

/// A whole replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayConfig {
    /// Where the requests come from.
    pub source: TraceSource,
    /// Which of them.
    pub selection: Selection,
    /// The model's shape.
    pub model: ModelShape,
    /// How the ranks stand.
    pub parallel: Parallel,
    /// Capacity of L1, on each rank if in bytes.
    pub l1: Capacity,
    /// Capacity of L2, likewise, or off.
    pub l2: HostCapacity,
    /// Eviction policy.
    pub policy: PolicyName,
    /// When pages go to L2.
    pub write_policy: WritePolicy,
    /// Order of pages and layers in L2.
    pub host_layout: striata_core::HostLayout,
    /// Device.
    pub device: DeviceChoice,
    /// Which way the bytes of copies take.
    pub copy_path: CopyPathChoice,
    /// Bytes a row instead of the model's, to fit a small machine.
    pub scale_rows: Option<u32>,
    /// No bytes: index, allocators and policies alone.
    pub metadata_only: bool,
    /// What the index is asked with.
    pub keys: KeySource,
    /// Which rows are verified.
    pub verify: VerifyPolicy,
    /// What becomes of generated tokens.
    pub outputs: Outputs,
    /// The compute model.
    pub compute: ComputeModel,
    /// A planted fault.
    pub fault: Option<Fault>,
    /// Random faults of the simulated devices.
    pub faults: Option<RandomFaults>,
    /// Whether every invariant is checked after every request.
    pub paranoid: bool,
    /// Rows of values instead of fingerprints, and attention for every n-th request.
    pub attend: Option<u64>,
}
