// SPDX-License-Identifier: Apache-2.0
//! Counters of a transfer engine.

use super::job::{JobSize, Outcome};
use crate::device::Direction;

/// What a transfer engine did, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferStats {
    /// Host to device.
    pub loads: DirectionStats,
    /// Device to host.
    pub stores: DirectionStats,
}

/// What a transfer engine did in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Jobs that were taken.
    pub jobs: u64,
    /// Jobs that were taken and not submitted yet.
    pub queued_jobs: u64,
    /// Jobs that were found complete and good.
    pub done_jobs: u64,
    /// Pages that arrived, also of failed jobs.
    pub done_pages: u64,
    /// Bytes of those.
    pub done_bytes: u64,
    /// Jobs that were found failed.
    pub failed_jobs: u64,
    /// Pages of those that did not arrive.
    pub failed_pages: u64,
    /// Copy calls that were submitted.
    pub calls: u64,
    /// Pieces of those.
    pub pieces: u64,
}

impl TransferStats {
    pub(super) const fn of(&mut self, direction: Direction) -> &mut DirectionStats {
        match direction {
            Direction::HostToDevice => &mut self.loads,
            Direction::DeviceToHost => &mut self.stores,
        }
    }
}

impl DirectionStats {
    /// Counts the end of a job.
    pub(super) const fn ended(&mut self, size: JobSize, outcome: &Outcome) {
        let good = outcome.good_pages;
        self.done_pages += good as u64;
        self.done_bytes += size.bytes(good);
        if outcome.error.is_none() {
            self.done_jobs += 1;
        } else {
            self.failed_jobs += 1;
            self.failed_pages += size.pages.saturating_sub(good) as u64;
        }
    }
}
