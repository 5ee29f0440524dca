// SPDX-License-Identifier: Apache-2.0
//! What the handles and the workers of one simulated device share.

use std::sync::OnceLock;

use striata_core::sync::{AtomicU64, Ordering};

use crate::counts::Counts;
use crate::device::DeviceTime;
use crate::error::GpuError;
use crate::sim::config::{SimConfig, SimMode};
use crate::sim::fault::Faults;
use crate::sim::stepped::SimScheduler;

/// State of one device.
#[derive(Debug)]
pub(crate) struct Shared {
    config: SimConfig,
    faults: Faults,
    used: AtomicU64,
    memories: AtomicU64,
    host_clock: AtomicU64,
    lost: OnceLock<String>,
    counts: Counts,
}

impl Shared {
    pub(crate) fn new(config: SimConfig) -> Self {
        Self {
            faults: Faults::new(&config.faults),
            config,
            used: AtomicU64::new(0),
            memories: AtomicU64::new(0),
            host_clock: AtomicU64::new(0),
            lost: OnceLock::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn config(&self) -> &SimConfig {
        &self.config
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// What goes wrong by plan.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Who runs the operations, if no threads do.
    pub(crate) fn scheduler(&self) -> Option<&SimScheduler> {
        match &self.config.mode {
            SimMode::Threaded => None,
            SimMode::Stepped(scheduler) => Some(scheduler),
        }
    }

    /// The number of the next allocation.
    pub(crate) fn next_memory(&self) -> u64 {
        self.memories.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes `bytes` of the device's memory, or says why not.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), String> {
        let limit = self.config.memory_bytes.unwrap_or(u64::MAX);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(|_| ())
            .map_err(|used| format!("{used} of {limit} bytes are used"))
    }

    /// Returns what was taken.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Ends the device; the first cause stays.
    pub(crate) fn lose(&self, cause: String) {
        if self.lost.set(cause).is_ok() {
            tracing::error!(device = self.name(), cause = self.lost.get(), "device lost");
        }
    }

    /// Whether the device still works.
    pub(crate) fn is_alive(&self) -> bool {
        self.lost.get().is_none()
    }

    /// An error if the device is lost.
    pub(crate) fn check_alive(&self) -> Result<(), GpuError> {
        match self.lost.get() {
            None => Ok(()),
            Some(cause) => Err(GpuError::Lost {
                cause: cause.clone(),
            }),
        }
    }

    pub(crate) fn now(&self) -> DeviceTime {
        DeviceTime::from_nanos(self.host_clock.load(Ordering::Acquire))
    }

    pub(crate) fn advance_to(&self, time: DeviceTime) {
        self.host_clock.fetch_max(time.as_nanos(), Ordering::AcqRel);
    }
}
