// SPDX-License-Identifier: Apache-2.0
//! The transfer engine of one rank.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use striata_core::sync::Mutex;
use striata_core::{OpId, PagePair};
use striata_host::HostPool;

use super::error::TransferError;
use super::gate::{GateError, GateKeeper, JobFailure, LoadGate};
use super::job::{
    Completion, Job, JobPlan, LoadJob, Outcome, StoreJob, Submission, TransferConfig,
};
use super::pieces::page_runs;
use super::shared::{Core, HostSide};
use super::stats::TransferStats;
use super::submit;
use crate::device::{Device, Direction};
use crate::error::GpuError;
use crate::planes::L1Planes;

/// Moves pages of one rank between its L1 planes and its host pool.
///
/// Calls return at once; one thread submits ([`Submission`] says who does if not a thread), on a
/// load stream and a store stream. Within a
/// direction jobs are submitted in the order of the calls, but that a load whose `after` has not
/// completed is passed by later loads; waiting loads go before waiting stores. The first failed
/// device call poisons the engine: jobs that were not submitted fail, later calls name the cause.
///
/// Dropping the engine fails what was not submitted (its gates report that), and blocks until what
/// was submitted has ended. Call [`TransferEngine::drain`] first to lose nothing.
#[derive(Debug)]
pub struct TransferEngine<D: Device> {
    pub(super) core: Arc<Core<D>>,
    host: Option<Arc<HostSide>>,
    /// Held by `poll`, so that two pollers cannot swap completions. Taken before the queue's lock.
    pub(super) poller: Mutex<()>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Device> TransferEngine<D> {
    /// Starts the engine of one rank; without `host` every job is refused.
    ///
    /// # Errors
    /// Tiers that hold different rows; no stream; no thread.
    pub fn new(
        device: D,
        planes: Arc<L1Planes<D>>,
        host: Option<Arc<HostPool>>,
        config: TransferConfig,
    ) -> Result<Self, TransferError> {
        let host = host.map(|pool| HostSide::new(&planes, pool)).transpose()?;
        let rank = config.rank;
        let core = Arc::new(Core::new(device, planes, config)?);
        let thread = match config.submission {
            Submission::Manual => None,
            Submission::Thread => {
                let shared = core.clone();
                let thread = std::thread::Builder::new()
                    .name(format!("copy {rank}"))
                    .spawn(move || submit::run(&shared));
                Some(thread.map_err(|error| GpuError::Thread {
                    what: format!("copies of rank {rank}"),
                    reason: error.to_string(),
                })?)
            }
        };
        Ok(Self {
            core,
            host: host.map(Arc::new),
            poller: Mutex::new(()),
            thread,
        })
    }

    /// Queues a load and returns its gate. Never waits for the device.
    ///
    /// **Cost:** O(n log n) in the pages; one event a layer group.
    ///
    /// # Errors
    /// No host pool; a page outside its pool or named twice as a target; an `after` that was never
    /// recorded; a poisoned engine.
    pub fn load(&self, job: LoadJob<D>) -> Result<Arc<LoadGate<D>>, TransferError> {
        let LoadJob { op, pages, after } = job;
        let (gate, _) = self.enqueue(Direction::HostToDevice, op, &pages, after, true)?;
        Ok(gate)
    }

    /// Queues a store. Never waits for the device.
    ///
    /// # Errors
    /// As [`TransferEngine::load`].
    pub fn store(&self, job: StoreJob<D>) -> Result<(), TransferError> {
        let StoreJob { op, pages, after } = job;
        self.enqueue(Direction::DeviceToHost, op, &pages, after, true)?;
        Ok(())
    }

    /// Copies pages and returns when they are there. The order against compute is the caller's;
    /// `poll` says nothing of it.
    ///
    /// # Errors
    /// As [`TransferEngine::load`], and a copy that fails, which may have copied leading pages; a
    /// wait that can never end.
    pub fn copy_pages(
        &self,
        direction: Direction,
        op: OpId,
        pages: &[PagePair],
    ) -> Result<Completion, TransferError> {
        let (gate, plan) = self.enqueue(direction, op, &pages.into(), None, false)?;
        let size = self.core.size(pages.len());
        let ended = gate.await_copies().map(|times| (times, plan.as_deref()));
        let (times, outcome) = match ended {
            Ok((times, Some(plan))) => (times, self.core.outcome(plan, &gate)?),
            Ok((times, None)) => (times, size.all_good()),
            // Nothing failed: the copy is still to come.
            Err(GateError::Device(stuck @ GpuError::Deadlock { .. })) => return Err(stuck.into()),
            Err(error) => {
                let cause = cause_of(error);
                let outcome = Outcome::failed(cause.clone());
                self.core.queue.count(direction, size, &outcome);
                return Err(self.core.fail(cause));
            }
        };
        if plan.is_some() {
            self.core.queue.count(direction, size, &outcome);
        }
        if let Some(cause) = outcome.error {
            return Err(TransferError::Partial {
                op,
                good_pages: outcome.good_pages,
                pages: pages.len(),
                cause,
            });
        }
        let first = (direction == Direction::HostToDevice && plan.is_some()).then_some(times.first);
        Ok(size.completion(&gate, direction, first, times.last, outcome))
    }

    /// Does one unit of submission: begins the next job that may start, or submits the next group
    /// of the one that was begun. False if there was nothing to do, or a thread does it.
    pub fn pump(&self) -> bool {
        self.core.pump()
    }

    /// Blocks until every job that was queued has ended, also those whose fence is still open.
    ///
    /// # Errors
    /// A poisoned engine; a wait that can never end.
    pub fn drain(&self) -> Result<(), TransferError> {
        self.core.submit_all()?;
        for event in self.core.queue.wait_idle().into_iter().flatten() {
            match self.core.device.synchronize(&event) {
                Ok(_) => {}
                Err(stuck @ GpuError::Deadlock { .. }) => return Err(stuck.into()),
                Err(cause) => self.core.queue.poison(cause),
            }
        }
        self.core.queue.check()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> TransferStats {
        self.core.queue.stats()
    }

    /// The first failed device call.
    #[must_use]
    pub fn poisoned(&self) -> Option<GpuError> {
        self.core.queue.cause()
    }

    fn enqueue(
        &self,
        direction: Direction,
        op: OpId,
        pages: &Arc<[PagePair]>,
        after: Option<D::Event>,
        report: bool,
    ) -> Result<Enqueued<D>, TransferError> {
        let core = &*self.core;
        core.queue.check()?;
        let host = self.host.as_ref().ok_or(TransferError::NoHostPool { op })?;
        host.check_pages(pages)?;
        let runs = page_runs(pages, direction)?;
        self.check_fence(op, after.as_ref())?;
        let (issued, size) = (core.device.now(), self.core.size(pages.len()));
        if pages.is_empty() {
            let layers = core.planes.geometry().page().layers();
            let gate = Arc::new(LoadGate::open(&core.device, op, issued, layers));
            let completion = size.completion(&gate, direction, None, issued, size.all_good());
            core.queue.push_empty(completion, report)?;
            return Ok((gate, None));
        }
        let (form, groups) = core.form(direction, pages.len());
        let manual = match core.config.submission {
            Submission::Thread => Weak::new(),
            Submission::Manual => Arc::downgrade(&self.core),
        };
        let gate = LoadGate::new(&core.device, op, issued, groups, manual);
        let gate = Arc::new(gate.map_err(|cause| core.fail(cause))?);
        let plan = Arc::new(JobPlan {
            direction,
            form,
            pages: pages.clone(),
            runs,
            size,
            host: host.clone(),
        });
        core.queue.push(Job {
            plan: plan.clone(),
            keeper: GateKeeper::new(gate.clone()),
            after,
            report,
        })?;
        Ok((gate, Some(plan)))
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

/// The gate of a job and, if it has pages, what it copies.
type Enqueued<D> = (Arc<LoadGate<D>>, Option<Arc<JobPlan>>);

/// Why the copies of a gate did not end.
fn cause_of(error: GateError) -> GpuError {
    match error {
        GateError::Device(cause)
        | GateError::Failed {
            cause: JobFailure::Device(cause),
            ..
        } => cause,
        other => GpuError::Lost {
            cause: other.to_string(),
        },
    }
}

impl<D: Device> Drop for TransferEngine<D> {
    fn drop(&mut self) {
        self.core.queue.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the submission thread of the transfer engine panicked");
        }
        self.core.stop_manual();
        // Copies that run still use the planes and the pool, which may go next.
        for event in self.core.queue.wait_idle().into_iter().flatten() {
            if let Err(error) = self.core.device.synchronize(&event) {
                tracing::error!(%error, "copies were not seen to end");
            }
        }
    }
}
