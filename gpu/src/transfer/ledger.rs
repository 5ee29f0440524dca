// SPDX-License-Identifier: Apache-2.0
//! Jobs whose submission is over and whose copies may run, and counters.
//!
//! One mutex, held for moves of values only: never across a device call, never with another lock.

use std::collections::VecDeque;

use striata_core::sync::Mutex;

use super::job::{Completion, Outcome, Submitted, Work};
use super::paths::CopyPath;
use super::plan::JobSize;
use super::queue_entry::JobId;
use super::stats::TransferStats;
use crate::device::{Device, Direction};

#[derive(Debug)]
pub(super) struct Ledger<D: Device>(Mutex<State<D>>);

#[derive(Debug)]
struct State<D: Device> {
    loads: Lane<D>,
    stores: Lane<D>,
    /// Completions of jobs without pages.
    at_once: Vec<Completion>,
    stats: TransferStats,
}

#[derive(Debug)]
struct Lane<D: Device> {
    /// In the order of the stream.
    submitted: VecDeque<Submitted<D>>,
    /// Behind everything that was submitted.
    last: Option<D::Event>,
}

impl<D: Device> Lane<D> {
    const fn new() -> Self {
        Self {
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
}

impl<D: Device> Ledger<D> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            loads: Lane::new(),
            stores: Lane::new(),
            at_once: Vec::new(),
            stats: TransferStats::default(),
        }))
    }

    /// Counts a job that was taken.
    pub(super) fn taken(&self, direction: Direction, path: CopyPath, bytes: u64) {
        let mut state = self.0.lock();
        let stats = state.stats.of(direction);
        stats.jobs += 1;
        *stats.by_path.of(path) += 1;
        stats.queued_jobs += 1;
        stats.queued_bytes += bytes;
    }

    /// Uncounts a job that was refused after all.
    pub(super) fn refused(&self, direction: Direction, path: CopyPath, bytes: u64) {
        let mut state = self.0.lock();
        let stats = state.stats.of(direction);
        stats.jobs -= 1;
        *stats.by_path.of(path) -= 1;
        stats.queued_jobs -= 1;
        stats.queued_bytes -= bytes;
    }

    /// Enters a job that had nothing to do.
    pub(super) fn empty(&self, completion: Completion, report: bool) {
        let mut state = self.0.lock();
        let stats = state.stats.of(completion.direction);
        stats.jobs += 1;
        stats.done_jobs += 1;
        if report {
            state.at_once.push(completion);
        }
    }

    /// Counts a unit that was submitted, and what is behind it.
    pub(super) fn unit(&self, direction: Direction, bytes: u64, event: &D::Event) {
        let mut state = self.0.lock();
        let stats = state.stats.of(direction);
        stats.queued_bytes -= bytes;
        stats.in_flight_bytes += bytes;
        state.lane(direction).last = Some(event.clone());
    }

    /// Enters a job whose submission is over.
    pub(super) fn submitted(&self, job: Submitted<D>, work: Work) {
        let mut state = self.0.lock();
        let direction = job.plan.direction;
        let stats = state.stats.of(direction);
        stats.queued_jobs -= 1;
        stats.calls += work.calls;
        stats.pieces += work.pieces;
        stats.kernels += work.kernels;
        stats.queued_bytes -= job.plan.bytes() - job.bytes;
        let lane = state.lane(direction);
        if job.position == u64::MAX && job.ended.is_some() {
            lane.last.clone_from(&job.ended);
        }
        if job.report {
            let before = |other: &Submitted<D>| other.position <= job.position;
            let at = lane.submitted.partition_point(before);
            lane.submitted.insert(at, job);
        }
    }

    /// The oldest submitted job of a direction, in the words of `look`.
    pub(super) fn front<R>(
        &self,
        direction: Direction,
        look: impl FnOnce(&Submitted<D>) -> R,
    ) -> Option<R> {
        let mut state = self.0.lock();
        state.lane(direction).submitted.front().map(look)
    }

    /// Removes a submitted job.
    pub(super) fn remove(&self, direction: Direction, id: JobId) -> Option<Submitted<D>> {
        let mut state = self.0.lock();
        let submitted = &mut state.lane(direction).submitted;
        let at = submitted.iter().position(|job| job.gate.id() == id)?;
        submitted.remove(at)
    }

    /// Counts the end of a job of which `submitted` bytes were submitted.
    pub(super) fn count(
        &self,
        direction: Direction,
        size: JobSize,
        submitted: u64,
        outcome: &Outcome,
    ) {
        let mut state = self.0.lock();
        let stats = state.stats.of(direction);
        stats.in_flight_bytes -= submitted;
        stats.ended(size, outcome);
    }

    /// Moves completions of jobs without pages to `out`.
    pub(super) fn take_at_once(&self, out: &mut Vec<Completion>) {
        out.append(&mut self.0.lock().at_once);
    }

    /// What is behind everything that was submitted.
    pub(super) fn last_events(&self) -> [Option<D::Event>; 2] {
        let state = self.0.lock();
        [state.loads.last.clone(), state.stores.last.clone()]
    }

    pub(super) fn stats(&self) -> TransferStats {
        self.0.lock().stats
    }
}
