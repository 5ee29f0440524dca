// SPDX-License-Identifier: Apache-2.0
//! How a job is checked, shaped and queued.

use std::sync::Arc;

use striata_core::{OpId, PagePair};

use super::choice::Choice;
use super::engine::TransferEngine;
use super::error::TransferError;
use super::gate::{GateKeeper, LoadGate, Units};
use super::job::Job;
use super::paths::CopyPath;
use super::pieces::page_runs;
use super::plan::JobPlan;
use crate::device::{Device, Direction};
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

/// The gate of a job and, if it has pages, what it copies.
pub(super) type Enqueued<D> = (Arc<LoadGate<D>>, Option<Arc<JobPlan>>);

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
        if pages.is_empty() {
            let layers = core.planes.geometry().page().layers();
            let gate = Arc::new(LoadGate::open(&core.device, op, issued, layers));
            let completion = size.completion(&gate, direction, None, issued, size.all_good());
            core.ledger.empty(completion, request.report);
            return Ok((gate, None));
        }
        let Choice {
            path,
            groups,
            parts,
        } = core.choose(direction, host, pages.len(), &runs);
        let units = Units {
            count: parts.count(),
            ends: parts.ends(),
            two_steps: path == CopyPath::Staged,
        };
        let names = (core.next_id(), op);
        let gate = LoadGate::new(&self.core, names, issued, groups, &units);
        let gate = Arc::new(gate.map_err(|cause| core.fail(cause))?);
        let plan = Arc::new(JobPlan {
            direction,
            path,
            pages: pages.clone(),
            parts,
            size,
            host: host.clone(),
        });
        let keeper = GateKeeper::new(gate.clone());
        let job = Job::new(plan.clone(), keeper, request.after, request.report);
        self.push(job, request.urgent)?;
        Ok((gate, Some(plan)))
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
        let pushed = core.work.push(ticket, job);
        pushed.or_else(|refused| {
            core.ledger.refused(ticket.direction, path, bytes);
            drop(refused);
            core.check()
        })?;
        if by_caller > 0 {
            core.submit_some(by_caller);
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
