// SPDX-License-Identifier: Apache-2.0
//! What callers and the submission thread share: jobs that wait, jobs whose copies run, the first
//! failure.
//!
//! One mutex, held for moves of values only: never across a device call, never while a gate's
//! mutex is taken.

use std::collections::VecDeque;
use std::time::Duration;

use striata_core::sync::{Condvar, Mutex, lock_while};

use super::error::TransferError;
use super::job::{Completion, Job, JobSize, Outcome, Submitted};
use super::stats::TransferStats;
use crate::device::{Device, Direction};
use crate::error::GpuError;

#[derive(Debug)]
pub(super) struct Queue<D: Device> {
    state: Mutex<State<D>>,
    /// A job came, or the queue was closed or poisoned.
    work: Condvar,
    /// Nothing waits for submission any more.
    idle: Condvar,
}

#[derive(Debug)]
struct State<D: Device> {
    loads: Lane<D>,
    stores: Lane<D>,
    /// Completions of jobs without pages.
    at_once: Vec<Completion>,
    /// Jobs in lanes or in the hands of who submits.
    unsubmitted: usize,
    open: bool,
    poison: Option<GpuError>,
    stats: TransferStats,
}

#[derive(Debug)]
struct Lane<D: Device> {
    waiting: VecDeque<Job<D>>,
    /// In the order of the stream.
    submitted: VecDeque<Submitted<D>>,
    /// Behind everything that was submitted.
    last: Option<D::Event>,
}

/// What a submission thread gets.
#[derive(Debug)]
pub(super) enum Next<D: Device> {
    Job(Job<D>),
    TimedOut,
    Closed,
}

impl<D: Device> Lane<D> {
    const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            submitted: VecDeque::new(),
            last: None,
        }
    }
}

impl<D: Device> State<D> {
    const fn lane(&mut self, direction: Direction) -> &mut Lane<D> {
        match direction {
            Direction::HostToDevice => &mut self.loads,
            Direction::DeviceToHost => &mut self.stores,
        }
    }

    fn next(&mut self) -> Option<Job<D>> {
        let load = self.loads.waiting.pop_front();
        load.or_else(|| self.stores.waiting.pop_front())
    }

    fn check(&self) -> Result<(), TransferError> {
        match self.poison.clone() {
            Some(cause) => Err(TransferError::Poisoned { cause }),
            None => Ok(()),
        }
    }
}

impl<D: Device> Queue<D> {
    pub(super) fn new() -> Self {
        let state = State {
            loads: Lane::new(),
            stores: Lane::new(),
            at_once: Vec::new(),
            unsubmitted: 0,
            open: true,
            poison: None,
            stats: TransferStats::default(),
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Appends a job. A refused job is dropped, which fails its gate.
    pub(super) fn push(&self, job: Job<D>) -> Result<(), TransferError> {
        let direction = job.plan.direction;
        let mut state = self.state.lock();
        if let Err(error) = state.check() {
            drop(state);
            return Err(error);
        }
        let stats = state.stats.of(direction);
        stats.jobs += 1;
        stats.queued_jobs += 1;
        state.unsubmitted += 1;
        state.lane(direction).waiting.push_back(job);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Enters a job that had nothing to do.
    pub(super) fn push_empty(
        &self,
        completion: Completion,
        report: bool,
    ) -> Result<(), TransferError> {
        let mut state = self.state.lock();
        state.check()?;
        let stats = state.stats.of(completion.direction);
        stats.jobs += 1;
        stats.done_jobs += 1;
        if report {
            state.at_once.push(completion);
        }
        Ok(())
    }

    /// The next job, loads first. Waits for one, no longer than `patience` if there is a limit.
    pub(super) fn take(&self, patience: Option<Duration>) -> Next<D> {
        let mut state = self.state.lock();
        loop {
            if !state.open {
                return Next::Closed;
            }
            if let Some(job) = state.next() {
                return Next::Job(job);
            }
            match patience {
                None => self.work.wait(&mut state),
                Some(limit) => {
                    if self.work.wait_for(&mut state, limit).timed_out() {
                        return Next::TimedOut;
                    }
                }
            }
        }
    }

    /// The next job, loads first, if there is one.
    pub(super) fn try_take(&self) -> Option<Job<D>> {
        let mut state = self.state.lock();
        state.open.then(|| state.next()).flatten()
    }

    /// Whether jobs wait for submission.
    pub(super) fn has_unsubmitted(&self) -> bool {
        self.state.lock().unsubmitted > 0
    }

    /// Enters what became of a job that was taken.
    pub(super) fn submitted(&self, job: Submitted<D>, calls: u64, pieces: u64) {
        let mut state = self.state.lock();
        let direction = job.plan.direction;
        let stats = state.stats.of(direction);
        stats.queued_jobs -= 1;
        stats.calls += calls;
        stats.pieces += pieces;
        state.unsubmitted -= 1;
        let lane = state.lane(direction);
        if job.ended.is_some() {
            lane.last.clone_from(&job.ended);
        }
        if job.report {
            lane.submitted.push_back(job);
        }
        let idle = state.unsubmitted == 0;
        drop(state);
        if idle {
            self.idle.notify_all();
        }
    }

    /// The oldest submitted job of a direction, in the words of `look`.
    pub(super) fn front<R>(
        &self,
        direction: Direction,
        look: impl FnOnce(&Submitted<D>) -> R,
    ) -> Option<R> {
        self.state
            .lock()
            .lane(direction)
            .submitted
            .front()
            .map(look)
    }

    /// Removes the oldest submitted job of a direction.
    pub(super) fn pop(&self, direction: Direction) -> Option<Submitted<D>> {
        self.state.lock().lane(direction).submitted.pop_front()
    }

    /// Counts the end of a job.
    pub(super) fn count(&self, direction: Direction, size: JobSize, outcome: &Outcome) {
        self.state.lock().stats.of(direction).ended(size, outcome);
    }

    /// Moves completions of jobs without pages to `out`.
    pub(super) fn take_at_once(&self, out: &mut Vec<Completion>) {
        out.append(&mut self.state.lock().at_once);
    }

    /// Blocks until no job waits for submission; returns what ends the submitted ones.
    pub(super) fn wait_idle(&self) -> [Option<D::Event>; 2] {
        let state = lock_while(&self.state, &self.idle, |s| s.unsubmitted > 0);
        [state.loads.last.clone(), state.stores.last.clone()]
    }

    /// Keeps the first failure.
    pub(super) fn poison(&self, cause: GpuError) {
        let mut state = self.state.lock();
        if state.poison.is_some() {
            return;
        }
        tracing::error!(%cause, "the transfer engine is poisoned");
        state.poison = Some(cause);
        drop(state);
        self.work.notify_one();
    }

    /// Fails once the engine is poisoned.
    pub(super) fn check(&self) -> Result<(), TransferError> {
        self.state.lock().check()
    }

    /// The first failure.
    pub(super) fn cause(&self) -> Option<GpuError> {
        self.state.lock().poison.clone()
    }

    pub(super) fn stats(&self) -> TransferStats {
        self.state.lock().stats
    }

    /// Lets the submission thread end. Jobs that it has not taken are dropped, which fails their
    /// gates.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        let loads = std::mem::take(&mut state.loads.waiting);
        let stores = std::mem::take(&mut state.stores.waiting);
        state.unsubmitted -= loads.len() + stores.len();
        drop(state);
        self.work.notify_all();
        drop((loads, stores));
    }

    /// Says that the submission thread is gone, and with it every job that it held.
    pub(super) fn abandon(&self) {
        self.state.lock().unsubmitted = 0;
        self.idle.notify_all();
    }
}
