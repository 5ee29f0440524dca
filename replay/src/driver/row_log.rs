// SPDX-License-Identifier: Apache-2.0
//! The log into which a device's verifier writes the rows that differ.

use striata::{Error, Shard};
use striata_core::Row;
use striata_gpu::{Device, GpuError};
use striata_kernels::rows::{Mismatch, RECORD_WORDS, VerifyLog, read_log};

use super::checks::{Checks, RowId};
use super::engine::Step;
use super::plan::Plan;
use crate::report::MismatchedRow;

/// Rows of one request and rank that the log can name; more are counted.
const RECORDS: usize = 1 << 16;
const WORD: usize = size_of::<u32>();
/// Device memory of a log.
pub(super) const BYTES: u64 = (VerifyLog::words(RECORDS) * WORD) as u64;

/// A log in device memory.
#[derive(Debug)]
pub(crate) struct RowLog<D: Device> {
    memory: D::Memory,
}

impl<D: Device> RowLog<D> {
    /// An empty log.
    pub(crate) fn new(device: &D) -> Result<Self, GpuError> {
        let memory = device.alloc(BYTES)?;
        let log = Self { memory };
        log.clear(device)?;
        Ok(log)
    }

    /// Where the device writes.
    pub(crate) const fn memory(&self) -> &D::Memory {
        &self.memory
    }

    fn clear(&self, device: &D) -> Result<(), GpuError> {
        device.write(&self.memory, 0, &[0; WORD])
    }

    /// Moves what `rank` found in the first `readable` pages of `step` into the checks; returns
    /// the rows that differed. The work that writes the log must have ended.
    pub(crate) fn drain(
        &self,
        shard: &Shard<D>,
        rank: u32,
        plan: &Plan,
        step: Step<'_>,
        readable: u64,
        checks: &mut Checks,
    ) -> Result<u64, Error> {
        let device = shard.device();
        let mut count = [0; WORD];
        device.read(&self.memory, 0, &mut count)?;
        let count = u32::from_le_bytes(count);
        if count == 0 {
            return Ok(0);
        }
        let kept = RECORDS.min(count as usize);
        let mut words = vec![0u32; 1 + kept * RECORD_WORDS];
        device.read(&self.memory, 0, bytemuck::cast_slice_mut(&mut words))?;
        self.clear(device)?;
        let (_, records) = read_log(&words);
        let mut differing = 0;
        for record in records.iter().filter(|r| u64::from(r.span) < readable) {
            note(shard, rank, plan, step, record, checks);
            differing += 1;
        }
        // After a load that failed, most that has no room in the log is what the load owed.
        if readable == plan.stripe.whole_pages(step.lease.hit_tokens()) {
            let unnamed = u64::from(count) - records.len() as u64;
            checks.differ_unnamed(unnamed);
            differing += unnamed;
        }
        Ok(differing)
    }
}

fn note<D: Device>(
    shard: &Shard<D>,
    rank: u32,
    plan: &Plan,
    step: Step<'_>,
    record: &Mismatch,
    checks: &mut Checks,
) {
    // Spans of hits are the request's first pages, in order.
    let content = step.identity.content.get(record.span as usize);
    let id = RowId {
        replica: step.replica,
        rank,
        layer: record.layer,
        content: content.copied().unwrap_or_default(),
        row: record.row,
    };
    let page = u64::from(record.span);
    let slot = plan
        .stripe
        .slot_of(shard.dcp_rank(), Row::new(record.row.into()));
    let row = MismatchedRow {
        request: step.request.index,
        replica: step.replica,
        rank,
        layer: record.layer,
        page,
        row: record.row,
        position: page * plan.stripe.widened_page() + slot.get(),
    };
    checks.differs(id, row);
}
