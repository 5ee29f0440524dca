// SPDX-License-Identifier: Apache-2.0
//! The submission thread: takes jobs, builds their pieces, submits copies group by group.

use std::collections::VecDeque;
use std::time::Duration;

use super::gate::JobFailure;
use super::job::{Job, Submitted};
use super::queue::Next;
use super::shared::Core;
use crate::device::{CopyBatch, CopyForm, Device, Direction, Piece};
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
    let mut submitter = Submitter {
        core,
        parked: VecDeque::new(),
        pieces: Vec::new(),
        pause: SHORTEST_PAUSE,
    };
    while let Some(job) = submitter.next() {
        submitter.submit(job);
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

struct Submitter<'a, D: Device> {
    core: &'a Core<D>,
    /// Loads whose targets are still in use, in the order in which they came.
    parked: VecDeque<Job<D>>,
    /// Reused by every job.
    pieces: Vec<Piece>,
    pause: Duration,
}

/// How far the submission of a job came.
#[derive(Default)]
struct Reach {
    groups: usize,
    calls: u64,
    pieces: u64,
}

impl<D: Device> Submitter<'_, D> {
    /// The next job that may start; none once the queue is closed.
    fn next(&mut self) -> Option<Job<D>> {
        loop {
            let ready = self.parked.iter().position(|job| self.may_start(job));
            if let Some(job) = ready.and_then(|at| self.parked.remove(at)) {
                self.pause = SHORTEST_PAUSE;
                return Some(job);
            }
            let patience = (!self.parked.is_empty()).then_some(self.pause);
            match self.core.queue.take(patience) {
                Next::Job(job) if self.may_start(&job) => return Some(job),
                Next::Job(job) => {
                    self.parked.push_back(job);
                    self.pause = SHORTEST_PAUSE;
                }
                Next::TimedOut => self.pause = (self.pause * 2).min(LONGEST_PAUSE),
                Next::Closed => return None,
            }
        }
    }

    /// Whether nothing uses the targets of a load any more. A job that is going to fail may start.
    fn may_start(&self, job: &Job<D>) -> bool {
        match (&job.after, job.plan.direction) {
            (Some(fence), Direction::HostToDevice) => {
                self.core.device.is_complete(fence).unwrap_or(true)
                    || self.core.queue.cause().is_some()
            }
            _ => true,
        }
    }

    fn submit(&mut self, job: Job<D>) {
        let mut reach = Reach::default();
        let (ended, error) = match self.core.queue.cause() {
            Some(cause) => (None, Some(cause)),
            None => match self.submit_groups(&job, &mut reach) {
                Ok(()) => (job.keeper.gate().last_event().cloned(), None),
                Err(cause) => (self.end_of(&job, reach.groups), Some(cause)),
            },
        };
        if let Some(cause) = &error {
            self.core.queue.poison(cause.clone());
            job.keeper.fail(JobFailure::Device(cause.clone()));
        }
        let submitted = Submitted {
            gate: job.keeper.gate().clone(),
            direction: job.plan.direction,
            size: job.plan.size,
            ended,
            error,
            report: job.report,
        };
        self.core
            .queue
            .submitted(submitted, reach.calls, reach.pieces);
    }

    /// An event behind all that was submitted of a job which failed in group `group`: its pages
    /// are in use until then.
    fn end_of(&self, job: &Job<D>, group: usize) -> Option<D::Event> {
        let gate = job.keeper.gate();
        let stream = self.core.stream(job.plan.direction);
        let behind = gate
            .event(group)
            .filter(|event| self.core.device.record(event, stream).is_ok());
        behind
            .or_else(|| gate.event(group.checked_sub(1)?))
            .cloned()
    }

    fn submit_groups(&mut self, job: &Job<D>, reach: &mut Reach) -> Result<(), GpuError> {
        self.order(job)?;
        let gate = job.keeper.gate();
        let stream = self.core.stream(job.plan.direction);
        for group in 0..gate.groups().len() {
            self.submit_group(job, group, reach)?;
            if let Some(event) = gate.event(group) {
                self.core.device.record(event, stream)?;
            }
            reach.groups = group + 1;
            job.keeper.advance(reach.groups);
        }
        Ok(())
    }

    /// Puts the job behind what it must come after. The fence of a load has completed: its stream
    /// never waits for compute, which could itself wait behind a load in the queue.
    fn order(&self, job: &Job<D>) -> Result<(), GpuError> {
        let device = &self.core.device;
        let stream = self.core.stream(job.plan.direction);
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

    fn submit_group(
        &mut self,
        job: &Job<D>,
        group: usize,
        reach: &mut Reach,
    ) -> Result<(), GpuError> {
        let plan = &job.plan;
        let layers = job.keeper.gate().groups().range(group);
        self.pieces.clear();
        match plan.form {
            CopyForm::Runs => plan.host.shape.runs(&plan.runs, layers, &mut self.pieces),
            CopyForm::Rectangles => {
                plan.host
                    .shape
                    .rectangles(&plan.runs, layers, &mut self.pieces);
            }
        }
        let stream = self.core.stream(plan.direction);
        for pieces in self.pieces.chunks(self.core.config.call_pieces.max(1)) {
            let batch = CopyBatch {
                direction: plan.direction,
                form: plan.form,
                planes: self.core.planes.memories(),
                host: &plan.host.pool,
                pieces,
            };
            self.core.device.copy(stream, &batch)?;
            reach.calls += 1;
            reach.pieces += pieces.len() as u64;
        }
        Ok(())
    }
}
