// SPDX-License-Identifier: Apache-2.0
//! Bytes and times of all copies of a replica.

use striata::{OpReport, Shard};
use striata_gpu::{Device, Direction};

use crate::report::{RankReport, ReplayReport};
use crate::tally::ratio;

/// Bytes of a rank, and device time from the start of each copy to its end.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    bytes: u64,
    nanos: u64,
}

/// What was copied each way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyTotals {
    loads: Copies,
    stores: Copies,
}

impl CopyTotals {
    /// Adds an operation that has ended.
    pub(crate) fn add(&mut self, report: &OpReport) {
        let copies = match report.direction {
            Direction::HostToDevice => &mut self.loads,
            Direction::DeviceToHost => &mut self.stores,
        };
        copies.bytes += report.bytes_per_rank;
        copies.nanos += report.finished.since(report.issued);
    }

    /// Writes bytes, rates and calls across ranks into the report. Rates of several replicas are
    /// those of the fastest one.
    pub(crate) fn report<D: Device>(
        &self,
        shards: &[Shard<D>],
        replica: u32,
        report: &mut ReplayReport,
    ) {
        for (rank, shard) in (0..).zip(shards) {
            report.collective_calls += shard.device().stats().cross_device;
            // Not the device's bytes: ranks may share it.
            let stats = shard.transfer_stats();
            report.ranks.push(RankReport {
                replica,
                rank,
                bytes_to_device: stats.loads.done_bytes,
                bytes_to_host: stats.stores.done_bytes,
            });
        }
        // Bytes a nanosecond are 10^9 bytes a second.
        let rate = |copies: Copies| ratio(copies.bytes, copies.nanos);
        report.load_gb_per_s = report.load_gb_per_s.max(rate(self.loads));
        report.store_gb_per_s = report.store_gb_per_s.max(rate(self.stores));
    }
}
