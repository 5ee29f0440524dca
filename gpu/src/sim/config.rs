// SPDX-License-Identifier: Apache-2.0
//! What a simulated device is made of.

use crate::sim::fault::FaultPlan;
use crate::sim::stepped::SimScheduler;
use crate::sim::time::CostModel;

/// Who runs the operations of a simulated device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SimMode {
    /// A worker thread for each stream.
    #[default]
    Threaded,
    /// A scheduler, one operation at a time. All devices of a program share one.
    Stepped(SimScheduler),
}

/// What a simulated device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Name in messages and of its threads.
    pub name: String,
    /// Bytes of memory; no limit but the host's if `None`.
    pub memory_bytes: Option<u64>,
    /// Costs of its operations.
    pub cost: CostModel,
    /// Who runs its operations.
    pub mode: SimMode,
    /// What goes wrong, and when.
    pub faults: FaultPlan,
    /// Whether copies from and to host memory that is not page-locked are refused.
    pub require_registered: bool,
    /// The largest pitch of rectangles.
    pub most_pitch: u64,
    /// Whether kernels reach host memory.
    pub maps_host: bool,
}

impl SimConfig {
    /// The device `sim<index>`, without a limit of memory, as fast as an H200, with threads.
    #[must_use]
    pub fn new(index: u32) -> Self {
        Self {
            name: format!("sim{index}"),
            memory_bytes: None,
            cost: CostModel::default(),
            mode: SimMode::Threaded,
            faults: FaultPlan::default(),
            require_registered: false,
            most_pitch: u64::MAX,
            maps_host: true,
        }
    }

    /// As [`SimConfig::new`], run by `scheduler`.
    #[must_use]
    pub fn stepped(index: u32, scheduler: &SimScheduler) -> Self {
        Self {
            mode: SimMode::Stepped(scheduler.clone()),
            ..Self::new(index)
        }
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Self::new(0)
    }
}
