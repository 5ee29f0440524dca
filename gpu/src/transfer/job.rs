// SPDX-License-Identifier: Apache-2.0
//! Jobs of the transfer engine and what becomes of them.

use core::ops::Range;
use std::sync::Arc;

use striata_core::{OpId, PagePair, Rank, Row};

use super::gate::{GateKeeper, LoadGate};
use super::paths::TransferPaths;
use super::plan::JobPlan;
use super::queue_entry::{JobId, Ticket};
use crate::device::{Device, DeviceTime, Direction};
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
///
/// The defaults come from measurements on an H200 (PCIe Gen5 x16, 55.4 GB/s, 61 layers of 73,728 B
/// a page; `paths` holds the table). Of batched runs, 64 pages in 61 calls gave 52.4 GB/s and in 6
/// calls 54.7: about 4.2 us of idle link a call; 512 pages in 61 calls gave 54.8, in 6 calls 55.0:
/// 2.8 us. From these:
///
/// * A consumer as fast as a load ends one group after it, so total / load is 1 + (layers of the
///   largest group) / 61. A twentieth of the layers, 3 of 61, keeps that under 1.05; at 64 pages it
///   makes 22 calls of up to 14 MB, 1.8 % of the time of the load.
/// * A stream is served in order, so a more urgent job waits for what is in flight. A layer of 512
///   pages is 37.7 MB; two of them would be 1.37 ms. In slices of up to 20 MB at most 60 MB are in
///   flight, 1.09 ms, at 0.5 % for 61 more calls. A copy of 4 KiB on a stream of its own did not
///   wait for it at all on that machine (`docs/performance.md`).
/// * Rectangles cost 3 us of the link for each page, in one call or in a call a page alike (53.6 and
///   53.5 GB/s at 512 pages), so stores may be cut where it suits: at 14 pages a call, the thread
///   that looks once a call whether one has ended takes 0.4 us of each page for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferConfig {
    /// Rank of the shard, for names of threads and streams.
    pub rank: Rank,
    /// Bytes up to which a load's group of several layers grows. A group of no more than a
    /// twentieth of the layers may have as many as a call.
    pub group_bytes: u64,
    /// Most bytes of a load's copy calls between two places where another job may go first: larger
    /// layers are cut into slices of pages. Twice as many of a row list, and of a load whose layers do
    /// not come in growing groups.
    pub slice_bytes: u64,
    /// Most bytes of a store's group of several pages.
    pub store_group_bytes: u64,
    /// Most bytes in flight in each direction, but that two slices or groups always may be, and
    /// those that a consumer waits for: what a small copy or a more urgent job waits behind.
    pub window_bytes: u64,
    /// Most pieces of one copy call; above 512 the driver takes long to begin.
    pub call_pieces: usize,
    /// Pieces that the caller of an idle engine submits itself before the thread takes over, since
    /// to wake a thread takes as long as to copy some pages; 0: none.
    pub caller_pieces: usize,
    /// Bytes of device memory of the ring through which one direction is staged; 0: nothing is.
    /// A direction has one only if the table stages its pages, or after
    /// [`super::TransferEngine::reserve_staging`].
    pub staging_bytes: u64,
    /// Most blocks of a kernel on mapped host memory: 8 to 16 fill the link, and take as many
    /// multiprocessors from what runs beside them.
    pub mapped_blocks: u32,
    /// Most blocks of a kernel between planes and ring.
    pub staging_blocks: u32,
    /// Which way the bytes of a job take.
    pub paths: TransferPaths,
    /// Who submits.
    pub submission: Submission,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            rank: Rank::new(0),
            group_bytes: 18_000_000,
            slice_bytes: 20_000_000,
            store_group_bytes: 64 << 20,
            window_bytes: 60_000_000,
            call_pieces: 512,
            caller_pieces: 128,
            staging_bytes: 128 << 20,
            mapped_blocks: 16,
            staging_blocks: 32,
            paths: TransferPaths::built_in(),
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

/// One row on both tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowPair {
    /// Row of the planes: page * P + row of the page.
    pub l1: Row,
    /// Row of the host pool, counted alike.
    pub l2: Row,
}

/// Rows to bring from the host pool.
#[derive(Clone, Debug)]
pub struct LoadRows<D: Device> {
    /// The operation, repeated in its completion.
    pub op: OpId,
    /// Sources and targets; no target twice.
    pub rows: Arc<[RowPair]>,
    /// Which layers, at least one.
    pub layers: Range<u32>,
    /// As in [`LoadJob`].
    pub after: Option<D::Event>,
}

/// Rows to bring to the host pool.
#[derive(Clone, Debug)]
pub struct StoreRows<D: Device> {
    /// The operation, repeated in its completion.
    pub op: OpId,
    /// Sources and targets; no target twice.
    pub rows: Arc<[RowPair]>,
    /// Which layers, at least one.
    pub layers: Range<u32>,
    /// As in [`StoreJob`].
    pub after: Option<D::Event>,
    /// As in [`StoreJob`].
    pub urgent: bool,
}

/// What became of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub op: OpId,
    /// Which way it went.
    pub direction: Direction,
    /// Pages, or rows of a list, that were to be copied.
    pub pages: usize,
    /// Those that arrived in all layers, from the first of the job on: all of them, those before
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
    /// Units that were submitted, and their bytes.
    pub(super) units: u32,
    pub(super) bytes: u64,
    /// Copy calls of those, the pieces of the calls, and kernels.
    pub(super) work: Work,
    /// Place of the last of those among the units of its direction.
    pub(super) position: u64,
}

/// What was submitted of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) calls: u64,
    pub(super) pieces: u64,
    pub(super) kernels: u64,
}

/// A job whose submission is over.
#[derive(Debug)]
pub(super) struct Submitted<D: Device> {
    pub(super) gate: Arc<LoadGate<D>>,
    pub(super) plan: Arc<JobPlan>,
    /// Units that were submitted, and their bytes.
    pub(super) units: u32,
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
            units: 0,
            bytes: 0,
            work: Work {
                calls: 0,
                pieces: 0,
                kernels: 0,
            },
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
            units: gate.unit_count(),
            first_bytes: self.plan.unit_bytes(0),
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
            units: self.units,
            bytes: self.bytes,
            ended,
            position,
            end,
            report: self.report,
        }
    }
}
