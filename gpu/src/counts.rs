// SPDX-License-Identifier: Apache-2.0
//! Counters behind `Device::stats`.

use striata_core::sync::{AtomicU64, Ordering};

use crate::check::Tally;
use crate::device::{DeviceStats, Direction};

/// What was submitted to one device.
#[derive(Debug)]
pub(crate) struct Counts {
    copies: AtomicU64,
    pieces: AtomicU64,
    bytes_to_device: AtomicU64,
    bytes_to_host: AtomicU64,
    kernels: AtomicU64,
    cross_device: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            copies: zero(),
            pieces: zero(),
            bytes_to_device: zero(),
            bytes_to_host: zero(),
            kernels: zero(),
            cross_device: zero(),
        }
    }
}

impl Counts {
    /// Counts bytes that crossed the link.
    pub(crate) fn moved(&self, direction: Direction, bytes: u64) {
        let count = match direction {
            Direction::HostToDevice => &self.bytes_to_device,
            Direction::DeviceToHost => &self.bytes_to_host,
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn copy(&self, direction: Direction, tally: Tally) {
        self.moved(direction, tally.bytes);
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.pieces.fetch_add(tally.pieces, Ordering::Relaxed);
    }

    pub(crate) fn kernel(&self) {
        self.kernels.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation if it touched what another device owns.
    pub(crate) fn cross(&self, crosses: bool) {
        if crosses {
            self.cross_device.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> DeviceStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DeviceStats {
            copies: read(&self.copies),
            pieces: read(&self.pieces),
            bytes_to_device: read(&self.bytes_to_device),
            bytes_to_host: read(&self.bytes_to_host),
            kernels: read(&self.kernels),
            cross_device: read(&self.cross_device),
        }
    }
}
