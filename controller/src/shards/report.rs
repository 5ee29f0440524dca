// SPDX-License-Identifier: Apache-2.0
//! Operations in flight, and how they went over all ranks and pools.

use std::sync::Arc;

use striata_core::OpId;
use striata_gpu::transfer::Completion;
use striata_gpu::{DeviceTime, Direction};

use super::pool::PoolId;
use super::tally::PartTally;
use crate::order::OrderKind;

/// How an operation went, over all ranks and pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpReport {
    /// The operation.
    pub op: OpId,
    /// Which way.
    pub direction: Direction,
    /// Pages asked for.
    pub pages: usize,
    /// Leading pages that arrived on every rank in every pool.
    pub good_pages: u32,
    /// Bytes that each rank copied, in all pools.
    pub bytes_per_rank: u64,
    /// When the first rank was given the order.
    pub issued: DeviceTime,
    /// When the slowest rank had its first group of layers of the main pool; loads only.
    pub first_layer: Option<DeviceTime>,
    /// When the slowest rank had everything.
    pub finished: DeviceTime,
    /// Why it did not bring every page: the first rank that failed, and what it said.
    pub cause: Option<Arc<str>>,
}

/// An operation that has not ended on every rank in every pool.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) tally: PartTally,
    pub(super) report: OpReport,
    /// Bytes of what has ended, by rank.
    bytes: Vec<u64>,
}

impl Pending {
    /// An operation on `ranks` ranks of `pools` pools, of which nothing has ended yet.
    pub(super) fn new(
        (op, kind): (OpId, OrderKind),
        pages: usize,
        issued: DeviceTime,
        (ranks, pools): (usize, usize),
    ) -> Self {
        let report = OpReport {
            op,
            direction: match kind {
                OrderKind::Store => Direction::DeviceToHost,
                OrderKind::Load | OrderKind::Cancel | OrderKind::Raise => Direction::HostToDevice,
            },
            pages,
            good_pages: u32::try_from(pages).unwrap_or(u32::MAX),
            bytes_per_rank: 0,
            issued,
            first_layer: None,
            finished: issued,
            cause: None,
        };
        Self {
            tally: PartTally::new(ranks * pools, pages),
            report,
            bytes: vec![0; ranks],
        }
    }

    /// Enters the end in one pool of a rank; the slowest rank counts. The last one gives the good
    /// leading pages of all.
    pub(super) fn ended(&mut self, rank: usize, pool: PoolId, done: &Completion) -> Option<u32> {
        let report = &mut self.report;
        if let Some(bytes) = self.bytes.get_mut(rank) {
            *bytes += done.bytes;
            report.bytes_per_rank = report.bytes_per_rank.max(*bytes);
        }
        if pool == PoolId::MAIN {
            report.first_layer = report.first_layer.max(done.first_layer);
        }
        report.finished = report.finished.max(done.finished);
        self.tally.ended(done.good_pages)
    }

    /// Enters why it does not bring every page, unless that is known.
    pub(super) fn failed(&mut self, cause: &str) {
        self.report.cause.get_or_insert_with(|| cause.into());
    }

    /// The report of an operation that has ended.
    pub(super) fn into_report(self, good_pages: u32) -> OpReport {
        OpReport {
            good_pages,
            ..self.report
        }
    }
}
