// SPDX-License-Identifier: Apache-2.0
//! Counters of a transfer engine.

use super::job::Outcome;
use super::paths::CopyPath;
use super::plan::JobSize;
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
    /// Jobs that were taken and not submitted to their end yet.
    pub queued_jobs: u64,
    /// Bytes that were asked for and not submitted yet.
    pub queued_bytes: u64,
    /// Bytes that were submitted, of jobs that were not found ended yet.
    pub in_flight_bytes: u64,
    /// Jobs that were found complete and good.
    pub done_jobs: u64,
    /// Pages, and rows of lists, that arrived, also of failed jobs.
    pub done_pages: u64,
    /// Bytes of those.
    pub done_bytes: u64,
    /// Jobs that were found failed.
    pub failed_jobs: u64,
    /// Pages of those that did not arrive.
    pub failed_pages: u64,
    /// Jobs that were found ended after a cancellation.
    pub cancelled_jobs: u64,
    /// Jobs that were taken, by their paths.
    pub by_path: PathCounts,
    /// Copy calls that were submitted.
    pub calls: u64,
    /// Pieces of those.
    pub pieces: u64,
    /// Kernels that were submitted, one a unit that is staged or mapped.
    pub kernels: u64,
}

/// Jobs by the path that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts([u64; CopyPath::ALL.len()]);

impl PathCounts {
    /// Jobs that took `path`.
    #[must_use]
    pub const fn jobs(&self, path: CopyPath) -> u64 {
        self.0[path as usize]
    }

    pub(super) const fn of(&mut self, path: CopyPath) -> &mut u64 {
        &mut self.0[path as usize]
    }
}

impl core::ops::Add for PathCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(core::array::from_fn(|path| self.0[path] + other.0[path]))
    }
}

/// What two engines did together.
impl core::ops::Add for DirectionStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            queued_jobs: self.queued_jobs + other.queued_jobs,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            in_flight_bytes: self.in_flight_bytes + other.in_flight_bytes,
            done_jobs: self.done_jobs + other.done_jobs,
            done_pages: self.done_pages + other.done_pages,
            done_bytes: self.done_bytes + other.done_bytes,
            failed_jobs: self.failed_jobs + other.failed_jobs,
            failed_pages: self.failed_pages + other.failed_pages,
            cancelled_jobs: self.cancelled_jobs + other.cancelled_jobs,
            by_path: self.by_path + other.by_path,
            calls: self.calls + other.calls,
            pieces: self.pieces + other.pieces,
            kernels: self.kernels + other.kernels,
        }
    }
}

/// What two engines did together.
impl core::ops::Add for TransferStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            loads: self.loads + other.loads,
            stores: self.stores + other.stores,
        }
    }
}

impl TransferStats {
    /// Bytes that were asked for and not submitted yet, in both directions.
    #[must_use]
    pub const fn queued_bytes(&self) -> u64 {
        let (loads, stores) = (self.loads.queued_bytes, self.stores.queued_bytes);
        loads.saturating_add(stores)
    }

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
        if outcome.cancelled && outcome.error.is_none() {
            self.cancelled_jobs += 1;
        } else if outcome.error.is_none() {
            self.done_jobs += 1;
        } else {
            self.failed_jobs += 1;
            self.failed_pages += size.pages.saturating_sub(good) as u64;
        }
    }
}
