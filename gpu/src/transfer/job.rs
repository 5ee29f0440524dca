// SPDX-License-Identifier: Apache-2.0
//! Jobs of the transfer engine and what becomes of them.

use std::sync::Arc;

use striata_core::{OpId, PagePair, Rank};

use super::gate::{GateKeeper, LoadGate};
use super::pieces::PageRun;
use super::shared::HostSide;
use crate::device::{CopyForm, Device, DeviceTime, Direction};
use crate::error::GpuError;

/// Settings of a transfer engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferConfig {
    /// Rank of the shard, for names of threads and streams.
    pub rank: Rank,
    /// Most bytes of a load's layer group of several layers; 32 to 64 MiB serve best.
    pub group_bytes: u64,
    /// Most pieces of one copy call; above 512 the driver takes long to begin.
    pub call_pieces: usize,
    /// Loads of at most this many pages use rectangles in two groups, if planes are uniform.
    pub rectangle_pages: usize,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            rank: Rank::new(0),
            group_bytes: 48 << 20,
            call_pieces: 512,
            rectangle_pages: 2,
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
    /// Pages that were copied, from the first on: all, or none after an error.
    pub good_pages: usize,
    /// Bytes that were copied.
    pub bytes: u64,
    /// When the job was handed to the engine.
    pub issued: DeviceTime,
    /// When its first layer group had ended; loads of at least one page only.
    pub first_layer: Option<DeviceTime>,
    /// When the copy had ended, or when it was given up.
    pub finished: DeviceTime,
    /// Why it failed.
    pub error: Option<GpuError>,
}

/// A job in the queue or in the hands of the submission thread.
#[derive(Debug)]
pub(super) struct Job<D: Device> {
    pub(super) plan: JobPlan,
    pub(super) keeper: GateKeeper<D>,
    pub(super) after: Option<D::Event>,
    /// Whether its completion is for `poll`.
    pub(super) report: bool,
}

/// What a job copies, and how.
#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) direction: Direction,
    pub(super) form: CopyForm,
    pub(super) runs: Vec<PageRun>,
    pub(super) size: JobSize,
    pub(super) host: Arc<HostSide>,
}

/// How much a job copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSize {
    pub(super) pages: usize,
    pub(super) bytes: u64,
}

/// A job whose submission is over.
#[derive(Debug)]
pub(super) struct Submitted<D: Device> {
    pub(super) gate: Arc<LoadGate<D>>,
    pub(super) direction: Direction,
    pub(super) size: JobSize,
    /// Behind everything that was submitted of it; none if that is nothing.
    pub(super) ended: Option<D::Event>,
    pub(super) error: Option<GpuError>,
    pub(super) report: bool,
}

impl JobSize {
    /// The completion of a job of this size.
    pub(super) fn completion<D: Device>(
        self,
        gate: &LoadGate<D>,
        direction: Direction,
        first_layer: Option<DeviceTime>,
        finished: DeviceTime,
        error: Option<GpuError>,
    ) -> Completion {
        let good = error.is_none();
        Completion {
            op: gate.op(),
            direction,
            pages: self.pages,
            good_pages: if good { self.pages } else { 0 },
            bytes: if good { self.bytes } else { 0 },
            issued: gate.issued(),
            first_layer,
            finished,
            error,
        }
    }
}
