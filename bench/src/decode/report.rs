// SPDX-License-Identifier: Apache-2.0
//! What was measured; the keys are those of `--json`.

use serde::Serialize;

use super::{Ceilings, Peer, Shape};

/// Attention of one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelFigure {
    /// The shape.
    pub shape: Shape,
    /// Microseconds of a launch.
    pub us: f64,
    /// The least that the ceilings allow.
    pub floor_us: Option<f64>,
    /// Floor over time.
    pub share_of_floor: Option<f64>,
    /// Other kernels, each as a share of the floor of its own run.
    pub peers: Vec<Peer>,
}

/// The merge of a rank's messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MergeFigure {
    /// c.
    pub dcp: u32,
    /// Rows: tokens times the heads that the rank keeps.
    pub rows: u64,
    /// Microseconds.
    pub us: f64,
    /// The least that the read bandwidth allows.
    pub floor_us: Option<f64>,
}

/// c ranks on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupFigure {
    /// c.
    pub dcp: u32,
    /// Heads of the group.
    pub heads: u32,
    /// Requests.
    pub batch: u32,
    /// Tokens of each.
    pub tokens: u32,
    /// Microseconds of a layer of all ranks one after the other, captured.
    pub layer_us: f64,
    /// Of that, what it takes beyond attending: new rows and merges.
    pub exchange_us: f64,
    /// Microseconds of a layer with a stream a rank, submitted call by call.
    pub layer_streams_us: f64,
    /// Microseconds of a step of all layers, captured.
    pub step_us: f64,
    /// Microseconds in which the host plans a step, on all ranks.
    pub plan_host_us: f64,
}

/// CPU time of the thread that plans a step, for a batch whose requests grow by a token a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanFigure {
    /// c: ranks that one thread plans for, all in one process.
    pub dcp: u32,
    /// Requests.
    pub batch: u32,
    /// Tokens of each.
    pub tokens: u32,
    /// Microseconds of the first step, which stages every page.
    pub first_us: f64,
    /// The median of the steps behind it.
    pub cpu_us: f64,
    /// The most that is allowed: for one rank.
    pub bar_us: Option<f64>,
    /// Whether it is below.
    pub met: Option<bool>,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DecodeReport {
    /// Backend.
    pub device: String,
    /// Name of the device.
    pub device_name: String,
    /// Times are those of CPU references: they say nothing of a device.
    pub simulated: bool,
    /// The kernel that ran.
    pub kernel: String,
    /// Ceilings of this run.
    pub ceilings: Option<Ceilings>,
    /// Where the peers' figures come from.
    pub peers_source: String,
    /// Layers of a step.
    pub layers: u32,
    /// Attention.
    pub kernels: Vec<KernelFigure>,
    /// Merges.
    pub merges: Vec<MergeFigure>,
    /// Groups.
    pub groups: Vec<GroupFigure>,
    /// Plans.
    pub plans: Vec<PlanFigure>,
    /// Shapes that were left out, and why.
    pub skipped: Vec<String>,
}
