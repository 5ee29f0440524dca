// SPDX-License-Identifier: Apache-2.0
//! How a job is checked, shaped and queued.

use core::ops::Range;
use std::sync::Arc;

use striata_core::{OpId, PagePair};

use super::choice::Choice;
use super::engine::TransferEngine;
use super::error::TransferError;
use super::gate::{GateKeeper, LoadGate, Units};
use super::job::{Job, RowPair};
use super::paths::CopyPath;
use super::pieces::page_runs;
use super::plan::{JobPlan, JobSize};
use super::shared::HostSide;
use crate::device::{Device, DeviceTime, Direction};
use crate::error::GpuError;

/// What a job is asked for with.
pub(super) struct Request<'a, D: Device> {
    pub(super) direction: Direction,
    pub(super) op: OpId,
    pub(super) pages: &'a Arc<[PagePair]>,
    pub(super) after: Option<D::Event>,
    pub(super) urgent: bool,
    pub(super) report: bool,
}

impl<'a, D: Device> Request<'a, D> {
    pub(super) const fn new(direction: Direction, op: OpId, pages: &'a Arc<[PagePair]>) -> Self {
        Self {
            direction,
            op,
            pages,
            after: None,
            urgent: false,
            report: true,
        }
    }
}

/// What a row list is asked for with.
pub(super) struct RowRequest<'a, D: Device> {
    pub(super) direction: Direction,
    pub(super) op: OpId,
    pub(super) rows: &'a [RowPair],
    pub(super) layers: Range<u32>,
    pub(super) after: Option<D::Event>,
    pub(super) urgent: bool,
}

/// The gate of a job and, if it has pages, what it copies.
pub(super) type Enqueued<D> = (Arc<LoadGate<D>>, Option<Arc<JobPlan>>);

/// A job that was checked.
struct Admitted<D: Device> {
    op: OpId,
    direction: Direction,
    issued: DeviceTime,
    size: JobSize,
    after: Option<D::Event>,
    urgent: bool,
    report: bool,
}

impl<D: Device> TransferEngine<D> {
    pub(super) fn enqueue(&self, request: Request<'_, D>) -> Result<Enqueued<D>, TransferError> {
        let core = &*self.core;
        let Request {
            direction,
            op,
            pages,
            ..
        } = request;
        core.check()?;
        let host = self.host.as_ref().ok_or(TransferError::NoHostPool { op })?;
        host.check_pages(pages)?;
        let runs = page_runs(pages, direction)?;
        self.check_fence(op, request.after.as_ref())?;
        let (issued, size) = (core.device.now(), core.size(pages.len()));
        let work = Admitted {
            op,
            direction,
            issued,
            size,
            after: request.after,
            urgent: request.urgent,
            report: request.report,
        };
        if pages.is_empty() {
            return Ok((self.nothing(work), None));
        }
        let choice = core.choose(direction, host, pages.len(), &runs);
        let item_bytes = host.shape.page.chunk_bytes();
        let (gate, plan) = self.admit(work, choice, pages.clone(), item_bytes, host)?;
        Ok((gate, Some(plan)))
    }

    pub(super) fn enqueue_rows(
        &self,
        request: RowRequest<'_, D>,
    ) -> Result<Arc<LoadGate<D>>, TransferError> {
        let core = &*self.core;
        let RowRequest {
            direction,
            op,
            rows,
            layers,
            after,
            urgent,
        } = request;
        core.check()?;
        let host = self.host.as_ref().ok_or(TransferError::NoHostPool { op })?;
        if !core.device.maps_host() {
            return Err(TransferError::NotMapped { op });
        }
        host.check_rows(rows, &layers)?;
        core.targets
            .lock()
            .check(rows, direction, host.rows_of(direction))?;
        self.check_fence(op, after.as_ref())?;
        let row_bytes = u64::from(host.shape.page.row_bytes());
        let work = Admitted {
            op,
            direction,
            issued: core.device.now(),
            size: JobSize {
                pages: rows.len(),
                page_bytes: row_bytes * u64::from(layers.end - layers.start),
            },
            after,
            urgent,
            report: true,
        };
        if rows.is_empty() {
            return Ok(self.nothing(work));
        }
        let cells = host.shape.cells(rows);
        let choice = core.choose_rows(direction, host, cells, &layers);
        let none = Arc::from([]);
        self.admit(work, choice, none, row_bytes, host)
            .map(|(gate, _)| gate)
    }

    /// Ends a job that has nothing to do.
    fn nothing(&self, work: Admitted<D>) -> Arc<LoadGate<D>> {
        let core = &*self.core;
        let Admitted {
            op, issued, size, ..
        } = work;
        let layers = core.planes.geometry().page().layers();
        let gate = Arc::new(LoadGate::open(&core.device, op, issued, layers));
        let completion = size.completion(&gate, work.direction, None, issued, size.all_good());
        core.ledger.empty(completion, work.report);
        gate
    }

    /// Queues a job that was checked.
    fn admit(
        &self,
        work: Admitted<D>,
        choice: Choice,
        pages: Arc<[PagePair]>,
        item_bytes: u64,
        host: &Arc<HostSide>,
    ) -> Result<(Arc<LoadGate<D>>, Arc<JobPlan>), TransferError> {
        let core = &*self.core;
        let Choice {
            path,
            groups,
            parts,
        } = choice;
        let units = Units {
            count: parts.count(),
            ends: parts.ends(),
            two_steps: path == CopyPath::Staged,
        };
        let names = (core.next_id(), work.op);
        let gate = LoadGate::new(&self.core, names, work.issued, groups, &units);
        let gate = Arc::new(gate.map_err(|cause| core.fail(cause))?);
        let plan = Arc::new(JobPlan {
            direction: work.direction,
            path,
            pages,
            item_bytes,
            parts,
            size: work.size,
            host: host.clone(),
        });
        let keeper = GateKeeper::new(gate.clone());
        let job = Job::new(plan.clone(), keeper, work.after, work.report);
        self.push(job, work.urgent)?;
        Ok((gate, plan))
    }

    fn push(&self, job: Job<D>, urgent: bool) -> Result<(), TransferError> {
        let (core, ticket) = (&*self.core, job.ticket(urgent));
        let (bytes, path) = (job.plan.bytes(), job.plan.path);
        core.ledger.taken(ticket.direction, path, bytes);
        // To wake the thread takes as long as to submit a little.
        let by_caller = match core.is_manual() || core.work.has_work() {
            true => 0,
            false => job.plan.leading_units(core.config.caller_pieces),
        };
        let by_thread = job.plan.parts.count() > by_caller;
        let pushed = core.work.push(ticket, job);
        pushed.or_else(|refused| {
            core.ledger.refused(ticket.direction, path, bytes);
            drop(refused);
            core.check()
        })?;
        if by_caller > 0 {
            // Its beginning and the first unit: the link has work while the thread wakes up.
            core.submit_some(2);
        }
        if by_thread {
            core.work.announce();
        }
        core.submit_some(by_caller.saturating_sub(1));
        if !by_thread {
            // Nothing is left, unless somebody else was submitting.
            core.work.announce();
        }
        Ok(())
    }

    fn check_fence(&self, op: OpId, after: Option<&D::Event>) -> Result<(), TransferError> {
        match after.map(|fence| self.core.device.is_complete(fence)) {
            Some(Err(GpuError::EventNotRecorded { .. })) => {
                Err(TransferError::FenceNotRecorded { op })
            }
            Some(Err(cause)) => Err(self.core.fail(cause)),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}
