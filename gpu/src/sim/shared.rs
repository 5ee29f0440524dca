// SPDX-License-Identifier: Apache-2.0
//! What the handles and the workers of one simulated device share.

use std::sync::OnceLock;

use striata_core::sync::{AtomicU64, Ordering};

use crate::device::{DeviceStats, DeviceTime, Direction};
use crate::error::GpuError;
use crate::sim::config::{SimConfig, SimMode};
use crate::sim::fault::Faults;
use crate::sim::stepped::SimScheduler;
use crate::sim::time::Tally;

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

#[derive(Debug)]
struct Counts {
    copies: AtomicU64,
    pieces: AtomicU64,
    bytes_to_device: AtomicU64,
    bytes_to_host: AtomicU64,
    kernels: AtomicU64,
    cross_device: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: SimConfig) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            faults: Faults::new(&config.faults),
            config,
            used: zero(),
            memories: zero(),
            host_clock: zero(),
            lost: OnceLock::new(),
            counts: Counts {
                copies: zero(),
                pieces: zero(),
                bytes_to_device: zero(),
                bytes_to_host: zero(),
                kernels: zero(),
                cross_device: zero(),
            },
        }
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

    pub(crate) fn count_copy(&self, direction: Direction, tally: Tally) {
        let bytes = match direction {
            Direction::HostToDevice => &self.counts.bytes_to_device,
            Direction::DeviceToHost => &self.counts.bytes_to_host,
        };
        bytes.fetch_add(tally.bytes, Ordering::Relaxed);
        self.counts.copies.fetch_add(1, Ordering::Relaxed);
        self.counts
            .pieces
            .fetch_add(tally.pieces, Ordering::Relaxed);
    }

    pub(crate) fn count_kernel(&self) {
        self.counts.kernels.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation if it touched what another device owns.
    pub(crate) fn count_cross(&self, crosses: bool) {
        if crosses {
            self.counts.cross_device.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> DeviceStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DeviceStats {
            copies: read(&self.counts.copies),
            pieces: read(&self.counts.pieces),
            bytes_to_device: read(&self.counts.bytes_to_device),
            bytes_to_host: read(&self.counts.bytes_to_host),
            kernels: read(&self.counts.kernels),
            cross_device: read(&self.counts.cross_device),
        }
    }
}
