// SPDX-License-Identifier: Apache-2.0
//! Submission: takes jobs, builds their pieces, submits copies group by group; and the thread that
//! does it.

use std::collections::VecDeque;
use std::time::Duration;

use super::gate::{JobFailure, LoadGate};
use super::job::{Job, Submitted};
use super::queue::Next;
use super::shared::Core;
use crate::device::{CopyBatch, Device, Direction, Piece};
use crate::error::GpuError;

/// How long the thread sleeps between two looks at fences, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// Runs until the queue is closed. What it holds then is dropped, which fails the gates.
pub(super) fn run<D: Device>(core: &Core<D>) {
    let _gone = Gone(core);
    if let Err(cause) = core.device.enter_thread() {
        core.queue.poison(cause);
    }
    let mut submitter = Submitter::new();
    while submitter.await_job(core) {
        while submitter.advance(core) {}
    }
}

/// Whatever ends the thread, nobody waits for it afterwards.
struct Gone<'a, D: Device>(&'a Core<D>);

impl<D: Device> Drop for Gone<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.poison(GpuError::Lost {
                cause: "the submission thread of the transfer engine panicked".to_owned(),
            });
        }
        self.0.queue.close();
        self.0.queue.abandon();
    }
}

/// Takes jobs and submits them.
#[derive(Debug)]
pub(super) struct Submitter<D: Device> {
    /// Jobs that were taken, in the order in which they came: loads whose targets are in use.
    parked: VecDeque<Job<D>>,
    /// The job that is being submitted.
    current: Option<Running<D>>,
    /// Reused by every group.
    pieces: Vec<Piece>,
    pause: Duration,
}

/// A job, and how far its submission came.
#[derive(Debug)]
struct Running<D: Device> {
    job: Job<D>,
    groups: usize,
    calls: u64,
    pieces: u64,
}

impl<D: Device> Submitter<D> {
    pub(super) const fn new() -> Self {
        Self {
            parked: VecDeque::new(),
            current: None,
            pieces: Vec::new(),
            pause: SHORTEST_PAUSE,
        }
    }

    /// Waits for a job that may start and begins it; false once the queue is closed.
    fn await_job(&mut self, core: &Core<D>) -> bool {
        loop {
            if let Some(job) = self.ready(core) {
                self.pause = SHORTEST_PAUSE;
                self.begin(core, job);
                return true;
            }
            let patience = (!self.parked.is_empty()).then_some(self.pause);
            match core.queue.take(patience) {
                Next::Job(job) => {
                    self.parked.push_back(job);
                    self.pause = SHORTEST_PAUSE;
                }
                Next::TimedOut => self.pause = (self.pause * 2).min(LONGEST_PAUSE),
                Next::Closed => return false,
            }
        }
    }

    /// Submits a group of the job in hand, or begins the next that may start; false if there is
    /// neither. Never waits.
    pub(super) fn pump(&mut self, core: &Core<D>) -> bool {
        if self.advance(core) {
            return true;
        }
        loop {
            if let Some(job) = self.ready(core) {
                self.begin(core, job);
                return true;
            }
            match core.queue.try_take() {
                Some(job) => self.parked.push_back(job),
                None => return false,
            }
        }
    }

    /// Finishes the job in hand and drops the others, which fails their gates.
    pub(super) fn stop(&mut self, core: &Core<D>) {
        while self.advance(core) {}
        self.parked.clear();
    }

    /// The fence of the first parked job whose gate `is_meant`.
    pub(super) fn fence_of(&self, is_meant: impl Fn(&LoadGate<D>) -> bool) -> Option<D::Event> {
        let mut jobs = self.parked.iter();
        let job = jobs.find(|job| is_meant(job.keeper.gate()))?;
        job.after.clone()
    }

    fn ready(&mut self, core: &Core<D>) -> Option<Job<D>> {
        let at = self.parked.iter().position(|job| may_start(core, job))?;
        self.parked.remove(at)
    }

    fn begin(&mut self, core: &Core<D>, job: Job<D>) {
        let running = Running {
            job,
            groups: 0,
            calls: 0,
            pieces: 0,
        };
        if let Some(cause) = core.queue.cause() {
            return running.end(core, None, Some(cause));
        }
        match order(core, &running.job) {
            Ok(()) => self.current = Some(running),
            Err(cause) => running.fail(core, cause),
        }
    }

    /// Submits the next group of the job in hand; false if there is none.
    fn advance(&mut self, core: &Core<D>) -> bool {
        let Some(mut running) = self.current.take() else {
            return false;
        };
        match running.submit_group(core, &mut self.pieces) {
            Err(cause) => running.fail(core, cause),
            Ok(()) if running.groups < running.job.keeper.gate().groups().len() => {
                self.current = Some(running);
            }
            Ok(()) => {
                let ended = running.job.keeper.gate().last_event().cloned();
                running.end(core, ended, None);
            }
        }
        true
    }
}

/// Whether nothing uses the targets of a load any more. A job that is going to fail may start.
fn may_start<D: Device>(core: &Core<D>, job: &Job<D>) -> bool {
    match (&job.after, job.plan.direction) {
        (Some(fence), Direction::HostToDevice) => {
            core.device.is_complete(fence).unwrap_or(true) || core.queue.cause().is_some()
        }
        _ => true,
    }
}

/// Puts a job behind what it must come after. The fence of a load has completed: its stream never
/// waits for compute, which could itself wait behind a load in the queue.
fn order<D: Device>(core: &Core<D>, job: &Job<D>) -> Result<(), GpuError> {
    let device = &core.device;
    let stream = core.stream(job.plan.direction);
    let mut earliest = job.keeper.gate().issued();
    if let (Some(fence), Direction::HostToDevice) = (&job.after, job.plan.direction) {
        earliest = earliest.max(device.synchronize(fence)?);
    }
    device.not_before(stream, earliest)?;
    match (&job.after, job.plan.direction) {
        (Some(fence), Direction::DeviceToHost) => device.wait(stream, fence),
        _ => Ok(()),
    }
}

impl<D: Device> Running<D> {
    /// Submits the next group, records its event and announces it.
    fn submit_group(&mut self, core: &Core<D>, pieces: &mut Vec<Piece>) -> Result<(), GpuError> {
        let (plan, gate) = (&self.job.plan, self.job.keeper.gate());
        plan.pieces(gate.groups().range(self.groups), pieces);
        let stream = core.stream(plan.direction);
        for pieces in pieces.chunks(core.call_pieces()) {
            let batch = CopyBatch {
                direction: plan.direction,
                form: plan.form,
                planes: core.planes.memories(),
                host: &plan.host.pool,
                pieces,
            };
            core.device.copy(stream, &batch)?;
            self.calls += 1;
            self.pieces += pieces.len() as u64;
        }
        if let Some(event) = gate.event(self.groups) {
            core.device.record(event, stream)?;
        }
        self.groups += 1;
        self.job.keeper.advance(self.groups);
        Ok(())
    }

    fn fail(self, core: &Core<D>, cause: GpuError) {
        let ended = self.end_of_submitted(core);
        self.end(core, ended, Some(cause));
    }

    /// An event behind all that was submitted of a job which failed: its pages are in use until
    /// then.
    fn end_of_submitted(&self, core: &Core<D>) -> Option<D::Event> {
        let gate = self.job.keeper.gate();
        let stream = core.stream(self.job.plan.direction);
        let behind = gate
            .event(self.groups)
            .filter(|event| core.device.record(event, stream).is_ok());
        behind
            .or_else(|| gate.event(self.groups.checked_sub(1)?))
            .cloned()
    }

    fn end(self, core: &Core<D>, ended: Option<D::Event>, error: Option<GpuError>) {
        let job = self.job;
        if let Some(cause) = &error {
            core.queue.poison(cause.clone());
            job.keeper.fail(JobFailure::Device(cause.clone()));
        }
        let submitted = Submitted {
            gate: job.keeper.gate().clone(),
            plan: job.plan.clone(),
            ended,
            error,
            report: job.report,
        };
        core.queue.submitted(submitted, self.calls, self.pieces);
    }
}
