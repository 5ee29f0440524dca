// SPDX-License-Identifier: Apache-2.0
//! Jobs of the transfer engine and what becomes of them.

use std::sync::Arc;

use striata_core::{OpId, PagePair, Rank};

use super::gate::{GateKeeper, LoadGate};
use super::parts::Parts;
use super::paths::TransferPaths;
use super::queue_entry::{JobId, Ticket};
use super::shared::HostSide;
use crate::device::{CopyForm, Device, DeviceTime, Direction};
use crate::error::GpuError;

/// Who submits the copies of a transfer engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Submission {
    /// A thread of the engine.
    #[default]
    Thread,
    /// Whoever calls [`super::TransferEngine::pump`], and every call that would wait for the
    /// thread: gates, `drain`, `copy_pages`. For programs whose order is to be replayed.
    Manual,
}

/// Settings of a transfer engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferConfig {
    /// Rank of the shard, for names of threads and streams.
    pub rank: Rank,
    /// Most bytes of a load's group of several layers and of a store's group of several pages; 32
    /// to 64 MiB serve best.
    pub group_bytes: u64,
    /// Most bytes in flight in each direction, but that two groups always may be, and groups that
    /// a consumer waits for: what a small copy or a more urgent job waits behind. The default is
    /// what PCIe Gen5 copies in 1 ms.
    pub window_bytes: u64,
    /// Most pieces of one copy call; above 512 the driver takes long to begin.
    pub call_pieces: usize,
    /// Which way the bytes of a job take.
    pub paths: TransferPaths,
    /// Who submits.
    pub submission: Submission,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            rank: Rank::new(0),
            group_bytes: 48 << 20,
            window_bytes: 55_000_000,
            call_pieces: 512,
            paths: TransferPaths::measured(),
            submission: Submission::Thread,
        }
    }
}

/// Pages to bring from the host pool.
#[derive(Clone, Debug)]
pub struct LoadJob<D: Device> {
    /// The operation, repeated in its completion.
    pub op: OpId,
    /// Sources and targets; no target twice.
    pub pages: Arc<[PagePair]>,
    /// End of the last work that touches the targets. The load stays in the host queue until it
    /// has completed, and later loads may pass it.
    pub after: Option<D::Event>,
}

/// Pages to bring to the host pool.
#[derive(Clone, Debug)]
pub struct StoreJob<D: Device> {
    /// The operation, repeated in its completion.
    pub op: OpId,
    /// Sources and targets; no target twice.
    pub pages: Arc<[PagePair]>,
    /// End of the work that writes the sources. The store stream waits for it.
    pub after: Option<D::Event>,
    /// An allocation waits for it: it goes before waiting loads and other waiting stores.
    pub urgent: bool,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub op: OpId,
    /// Which way it went.
    pub direction: Direction,
    /// Pages that were to be copied.
    pub pages: usize,
    /// Pages that arrived in all layers, from the first of the job on: all of them, those before
    /// the first that a failed copy did not deliver, or none where the device cannot tell and of a
    /// load that was cancelled.
    pub good_pages: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// When the job was handed to the engine.
    pub issued: DeviceTime,
    /// When its first layer group had ended; loads of at least one page only.
    pub first_layer: Option<DeviceTime>,
    /// When the copy had ended, or when it was given up.
    pub finished: DeviceTime,
    /// Whether it was given up before its end was submitted.
    pub cancelled: bool,
    /// Why it failed.
    pub error: Option<GpuError>,
}

/// A job in the queue or in the hands of who submits, and how far its submission came.
#[derive(Debug)]
pub(super) struct Job<D: Device> {
    pub(super) plan: Arc<JobPlan>,
    pub(super) keeper: GateKeeper<D>,
    pub(super) after: Option<D::Event>,
    /// Whether its completion is for `poll`.
    pub(super) report: bool,
    /// Groups that were submitted, and their bytes.
    pub(super) groups: u32,
    pub(super) bytes: u64,
    /// Copy calls of those, and the pieces of the calls.
    pub(super) calls: u64,
    pub(super) pieces: u64,
    /// Place of the last of those among the groups of its stream.
    pub(super) position: u64,
}

/// What a job copies, and how.
#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) direction: Direction,
    pub(super) form: CopyForm,
    /// In the caller's order.
    pub(super) pages: Arc<[PagePair]>,
    pub(super) parts: Parts,
    pub(super) size: JobSize,
    pub(super) host: Arc<HostSide>,
}

/// How much a job copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSize {
    pub(super) pages: usize,
    pub(super) page_bytes: u64,
}

/// A job whose submission is over.
#[derive(Debug)]
pub(super) struct Submitted<D: Device> {
    pub(super) gate: Arc<LoadGate<D>>,
    pub(super) plan: Arc<JobPlan>,
    /// Groups that were submitted, and their bytes.
    pub(super) groups: u32,
    pub(super) bytes: u64,
    /// Behind everything that was submitted of it; none if that is nothing.
    pub(super) ended: Option<D::Event>,
    /// Place of that on its stream.
    pub(super) position: u64,
    pub(super) end: End,
    pub(super) report: bool,
}

/// How the submission of a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    Cancelled,
    Failed(GpuError),
}

/// What arrived of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) good_pages: usize,
    pub(super) cancelled: bool,
    pub(super) error: Option<GpuError>,
}

impl Outcome {
    /// Nothing that could be relied on.
    pub(super) const fn failed(cause: GpuError) -> Self {
        Self {
            good_pages: 0,
            cancelled: false,
            error: Some(cause),
        }
    }
}

impl<D: Device> Job<D> {
    /// A job that nothing was submitted of.
    pub(super) const fn new(
        plan: Arc<JobPlan>,
        keeper: GateKeeper<D>,
        after: Option<D::Event>,
        report: bool,
    ) -> Self {
        Self {
            plan,
            keeper,
            after,
            report,
            groups: 0,
            bytes: 0,
            calls: 0,
            pieces: 0,
            position: 0,
        }
    }

    /// What the queue is told of a job that nothing was submitted of.
    pub(super) fn ticket(&self, urgent: bool) -> Ticket {
        let (gate, direction) = (self.keeper.gate(), self.plan.direction);
        let is_load = direction == Direction::HostToDevice;
        Ticket {
            id: gate.id(),
            op: gate.op(),
            direction,
            groups: gate.group_count(),
            first_bytes: self.plan.group_bytes(0),
            urgent,
            fenced: is_load && self.after.is_some(),
            cancellable: is_load && self.report,
        }
    }

    pub(super) fn id(&self) -> JobId {
        self.keeper.gate().id()
    }

    /// Enters how the submission ended, and what is behind all that was submitted.
    pub(super) fn submitted(&self, ended: Option<D::Event>, end: End) -> Submitted<D> {
        // Nothing that is good comes behind a failure.
        let position = match end {
            End::Failed(_) => u64::MAX,
            End::Whole | End::Cancelled => self.position,
        };
        Submitted {
            gate: self.keeper.gate().clone(),
            plan: self.plan.clone(),
            groups: self.groups,
            bytes: self.bytes,
            ended,
            position,
            end,
            report: self.report,
        }
    }
}

impl JobPlan {
    /// Bytes of all groups.
    pub(super) const fn bytes(&self) -> u64 {
        self.size.bytes(self.size.pages)
    }
}

impl JobSize {
    /// Bytes of `pages` pages.
    pub(super) const fn bytes(self, pages: usize) -> u64 {
        self.page_bytes.saturating_mul(pages as u64)
    }

    /// The outcome of a job of this size that went well.
    pub(super) const fn all_good(self) -> Outcome {
        Outcome {
            good_pages: self.pages,
            cancelled: false,
            error: None,
        }
    }

    /// The completion of a job of this size.
    pub(super) fn completion<D: Device>(
        self,
        gate: &LoadGate<D>,
        direction: Direction,
        first_layer: Option<DeviceTime>,
        finished: DeviceTime,
        outcome: Outcome,
    ) -> Completion {
        Completion {
            op: gate.op(),
            direction,
            pages: self.pages,
            good_pages: outcome.good_pages,
            bytes: self.bytes(outcome.good_pages),
            issued: gate.issued(),
            first_layer,
            finished,
            cancelled: outcome.cancelled,
            error: outcome.error,
        }
    }
}
