// SPDX-License-Identifier: Apache-2.0
//! Counters of a transfer engine.

use super::job::JobSize;
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
    /// Jobs whose copies were found complete.
    pub done_jobs: u64,
    /// Pages of those.
    pub done_pages: u64,
    /// Bytes of those.
    pub done_bytes: u64,
    /// Jobs that were found failed.
    pub failed_jobs: u64,
    /// Pages of those.
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
    pub(super) const fn ended(&mut self, size: JobSize, good: bool) {
        let pages = size.pages as u64;
        if good {
            self.done_jobs += 1;
            self.done_pages += pages;
            self.done_bytes += size.bytes;
        } else {
            self.failed_jobs += 1;
            self.failed_pages += pages;
        }
    }
}
