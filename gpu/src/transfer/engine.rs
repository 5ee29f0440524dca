// SPDX-License-Identifier: Apache-2.0
//! The transfer engine of one rank.

use std::sync::Arc;
use std::thread::JoinHandle;

use striata_core::sync::Mutex;
use striata_core::{OpId, PagePair};
use striata_host::HostPool;

use super::admission::{Request, RowRequest};
use super::error::TransferError;
use super::gate::LoadGate;
use super::gate_error::{GateError, JobFailure};
use super::job::{
    Completion, End, LoadJob, LoadRows, Outcome, StoreJob, StoreRows, Submission, TransferConfig,
};
use super::shared::{Core, HostSide};
use super::stats::TransferStats;
use super::thread;
use crate::device::{Device, Direction};
use crate::error::GpuError;
use crate::planes::L1Planes;

/// Moves pages of one rank between its L1 planes and its host pool.
///
/// Calls return at once; one thread submits ([`Submission`] says who does if not a thread), unit
/// by unit, on a load stream and a store stream; the caller of an idle engine submits the first
/// pieces itself ([`TransferConfig::caller_pieces`]). So much is in flight in each direction as
/// [`TransferConfig::window_bytes`] says, so that a job that comes later and a step's own copies
/// wait only for that. The next unit is of the job that is most urgent: one whose next unit a
/// gate was asked for, which no window keeps back; then urgent stores; then loads; then stores; in
/// the order of the calls. A load whose `after` has not completed is passed by later ones.
///
/// The first failed device call poisons the engine: jobs that were not submitted fail, later calls
/// name the cause.
///
/// Dropping the engine fails what was not submitted (its gates report that), and blocks until what
/// was submitted has ended. Call [`TransferEngine::drain`] first to lose nothing.
#[derive(Debug)]
pub struct TransferEngine<D: Device> {
    pub(super) core: Arc<Core<D>>,
    pub(super) host: Option<Arc<HostSide>>,
    /// Held by `poll`, so that two pollers cannot swap completions. Taken before the queue's lock.
    pub(super) poller: Mutex<()>,
    thread: Option<JoinHandle<()>>,
}

impl<D: Device> TransferEngine<D> {
    /// Starts the engine of one rank; without `host` every job is refused.
    ///
    /// Where the table stages pages of these planes, the ring of [`TransferConfig::staging_bytes`]
    /// is allocated here.
    ///
    /// # Errors
    /// Tiers that hold different rows; no stream; no thread; no room for a ring.
    pub fn new(
        device: D,
        planes: Arc<L1Planes<D>>,
        host: Option<Arc<HostPool>>,
        config: TransferConfig,
    ) -> Result<Self, TransferError> {
        let host = host.map(|pool| HostSide::new(&device, &planes, pool));
        let host = host.transpose()?;
        let rank = config.rank;
        let core = Arc::new(Core::new(device, planes, config)?);
        if let Some(host) = &host {
            core.reserve_by_table(host)?;
        }
        let thread = match config.submission {
            Submission::Manual => None,
            Submission::Thread => {
                let shared = core.clone();
                let thread = std::thread::Builder::new()
                    .name(format!("copy {rank}"))
                    .spawn(move || thread::run(&shared));
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
        let request = Request::new(Direction::HostToDevice, op, &pages);
        let (gate, _) = self.enqueue(Request { after, ..request })?;
        Ok(gate)
    }

    /// Queues a store. Never waits for the device.
    ///
    /// # Errors
    /// As [`TransferEngine::load`].
    pub fn store(&self, job: StoreJob<D>) -> Result<(), TransferError> {
        let StoreJob {
            op,
            pages,
            after,
            urgent,
        } = job;
        let request = Request::new(Direction::DeviceToHost, op, &pages);
        self.enqueue(Request {
            after,
            urgent,
            ..request
        })?;
        Ok(())
    }

    /// Queues a load of single rows and returns its gate. Never waits for the device. A kernel moves
    /// them from mapped host memory: no descriptor is made for a row.
    ///
    /// Layers that are not loaded open with the first or the last that are.
    ///
    /// **Cost:** O(rows).
    ///
    /// # Errors
    /// As [`TransferEngine::load`]; a row of the sink, layers that the pool does not have; a device
    /// whose kernels do not reach host memory.
    pub fn load_rows(&self, job: LoadRows<D>) -> Result<Arc<LoadGate<D>>, TransferError> {
        self.enqueue_rows(RowRequest {
            direction: Direction::HostToDevice,
            op: job.op,
            rows: &job.rows,
            layers: job.layers,
            after: job.after,
            urgent: false,
        })
    }

    /// Queues a store of single rows. Never waits for the device.
    ///
    /// # Errors
    /// As [`TransferEngine::load_rows`].
    pub fn store_rows(&self, job: StoreRows<D>) -> Result<(), TransferError> {
        let request = RowRequest {
            direction: Direction::DeviceToHost,
            op: job.op,
            rows: &job.rows,
            layers: job.layers,
            after: job.after,
            urgent: job.urgent,
        };
        self.enqueue_rows(request).map(drop)
    }

    /// Allocates the ring through which a direction is staged, unless it is there. Without it what
    /// the table stages goes by runs.
    ///
    /// # Errors
    /// No room.
    pub fn reserve_staging(&self, direction: Direction) -> Result<(), TransferError> {
        Ok(self.core.reserve_staging(direction)?)
    }

    /// Gives up what was not submitted yet of the load `op`, and returns how many layer groups, or
    /// slices of large ones, that is; 0 if the load is not here or was submitted to its end. Never
    /// waits.
    ///
    /// A load that was given up ends by a completion like any other, with no good page, once what
    /// was submitted of it has ended: until then its pages are in use. Its gate can be passed for
    /// layers that were submitted and fails with [`JobFailure::Cancelled`] for the others.
    pub fn cancel(&self, op: OpId) -> u32 {
        let given_up = self.core.work.cancel(op);
        for job in given_up.jobs {
            self.core.end_job(job, End::Cancelled);
        }
        given_up.units
    }

    /// Lets what is not submitted yet of the store `op` go before loads, as if it had been urgent
    /// from the start: somebody waits for its end by now. Nothing happens if it is not here, or was
    /// submitted to its end. Never waits.
    pub fn raise(&self, op: OpId) {
        self.core.work.raise(op);
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
        let pages: Arc<[PagePair]> = pages.into();
        let request = Request::new(direction, op, &pages);
        let (gate, plan) = self.enqueue(Request {
            report: false,
            ..request
        })?;
        let size = self.core.size(pages.len());
        let ended = gate.await_copies().map(|times| (times, plan.as_deref()));
        let units = gate.unit_count();
        let (times, outcome) = match ended {
            Ok((times, Some(plan))) => (times, self.core.outcome(plan, &gate, units)?),
            Ok((times, None)) => (times, size.all_good()),
            // Nothing failed: the copy is still to come.
            Err(GateError::Device(stuck @ GpuError::Deadlock { .. })) => return Err(stuck.into()),
            Err(error) => {
                let cause = cause_of(error);
                let outcome = Outcome::failed(cause.clone());
                self.core.ledger.count(direction, size, 0, &outcome);
                return Err(self.core.fail(cause));
            }
        };
        if let Some(plan) = &plan {
            let bytes = plan.bytes();
            self.core.ledger.count(direction, size, bytes, &outcome);
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

    /// Does one unit of submission: begins the next job that may start, or submits the next unit
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
        self.core.work.wait_idle();
        for event in self.core.ledger.last_events().into_iter().flatten() {
            match self.core.device.synchronize(&event) {
                Ok(_) => {}
                Err(stuck @ GpuError::Deadlock { .. }) => return Err(stuck.into()),
                Err(cause) => self.core.poison(cause),
            }
        }
        self.core.check()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> TransferStats {
        self.core.ledger.stats()
    }

    /// The first failed device call.
    #[must_use]
    pub fn poisoned(&self) -> Option<GpuError> {
        self.core.work.failed()
    }
}

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
        self.core.work.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the submission thread of the transfer engine panicked");
        }
        self.core.stop_manual();
        // Copies that run still use the planes and the pool, which may go next.
        self.core.work.wait_idle();
        for event in self.core.ledger.last_events().into_iter().flatten() {
            if let Err(error) = self.core.device.synchronize(&event) {
                tracing::error!(%error, "copies were not seen to end");
            }
        }
    }
}
