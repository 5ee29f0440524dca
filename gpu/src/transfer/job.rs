// SPDX-License-Identifier: Apache-2.0
//! Jobs of the transfer engine and what becomes of them.

use core::ops::Range;
use std::sync::Arc;

use striata_core::{OpId, PagePair, Rank};

use super::gate::{GateKeeper, LoadGate};
use super::pieces::PageRun;
use super::shared::HostSide;
use crate::device::{CopyForm, Device, DeviceTime, Direction, Piece};
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
    /// Most bytes of a load's layer group of several layers; 32 to 64 MiB serve best.
    pub group_bytes: u64,
    /// Most pieces of one copy call; above 512 the driver takes long to begin.
    pub call_pieces: usize,
    /// Loads of at most this many pages use rectangles in two groups, if planes are uniform.
    pub rectangle_pages: usize,
    /// Who submits.
    pub submission: Submission,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self {
            rank: Rank::new(0),
            group_bytes: 48 << 20,
            call_pieces: 512,
            rectangle_pages: 2,
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
    /// the first that a failed copy did not deliver, or none where the device cannot tell.
    pub good_pages: usize,
    /// Bytes of those.
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

/// A job in the queue or in the hands of who submits.
#[derive(Debug)]
pub(super) struct Job<D: Device> {
    pub(super) plan: Arc<JobPlan>,
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
    /// In the caller's order.
    pub(super) pages: Arc<[PagePair]>,
    pub(super) runs: Vec<PageRun>,
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
    /// Behind everything that was submitted of it; none if that is nothing.
    pub(super) ended: Option<D::Event>,
    pub(super) error: Option<GpuError>,
    pub(super) report: bool,
}

/// What arrived of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) good_pages: usize,
    pub(super) error: Option<GpuError>,
}

impl Outcome {
    /// Nothing that could be relied on.
    pub(super) const fn failed(cause: GpuError) -> Self {
        Self {
            good_pages: 0,
            error: Some(cause),
        }
    }
}

impl JobPlan {
    /// Puts the pieces of some layers into `out`, in the order in which they are submitted.
    pub(super) fn pieces(&self, layers: Range<u32>, out: &mut Vec<Piece>) {
        out.clear();
        match self.form {
            CopyForm::Runs => self.host.shape.runs(&self.runs, layers, out),
            CopyForm::Rectangles => self.host.shape.rectangles(&self.runs, layers, out),
        }
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
            error: outcome.error,
        }
    }
}
