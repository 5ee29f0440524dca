// SPDX-License-Identifier: Apache-2.0
//! Submission: takes the most urgent job, builds the pieces of its next group and submits them; and
//! the thread that does it.

use std::time::Duration;

use super::gate::LoadGate;
use super::gate_error::JobFailure;
use super::job::{End, Job};
use super::queue_entry::JobId;
use super::queue_state::{Action, Returned, Turn};
use super::shared::Core;
use super::window::{Rooms, Window};
use super::work_queue::Next;
use crate::device::{CopyBatch, Device, Direction, Piece};
use crate::error::GpuError;

/// How long the thread sleeps between two looks at fences and windows, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);
/// At most while a window is full; a group takes longer.
const WINDOW_PAUSE: Duration = Duration::from_micros(80);

/// Runs until the queue is closed. What was not begun then is dropped, which fails the gates.
pub(super) fn run<D: Device>(core: &Core<D>) {
    let _gone = Gone(core);
    if let Err(cause) = core.device.enter_thread() {
        core.poison(cause);
    }
    let mut submitter = Submitter::new(core);
    while submitter.advance(core) {}
}

/// Whatever ends the thread, nobody waits for it afterwards.
struct Gone<'a, D: Device>(&'a Core<D>);

impl<D: Device> Drop for Gone<'_, D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(GpuError::Lost {
                cause: "the submission thread of the transfer engine panicked".to_owned(),
            });
        }
        self.0.work.close();
        self.0.work.abandon();
    }
}

/// Who submits, and what it knows of its streams.
#[derive(Debug)]
pub(super) struct Submitter<D: Device> {
    loads: Lane<D>,
    stores: Lane<D>,
    /// Reused by every group.
    pieces: Vec<Piece>,
    fences: Vec<(JobId, D::Event)>,
    pause: Duration,
}

#[derive(Debug)]
struct Lane<D: Device> {
    window: Window<D::Event>,
    /// Groups that were submitted.
    groups: u64,
}

impl<D: Device> Lane<D> {
    const fn new(core: &Core<D>) -> Self {
        Self {
            window: Window::new(core.config.window_bytes),
            groups: 0,
        }
    }
}

impl<D: Device> Submitter<D> {
    pub(super) const fn new(core: &Core<D>) -> Self {
        Self {
            loads: Lane::new(core),
            stores: Lane::new(core),
            pieces: Vec::new(),
            fences: Vec::new(),
            pause: SHORTEST_PAUSE,
        }
    }

    /// Submits one unit, or waits for one to come or to be allowed; false once the queue is closed
    /// and everything that was begun is submitted.
    fn advance(&mut self, core: &Core<D>) -> bool {
        if self.pump(core) {
            self.pause = SHORTEST_PAUSE;
            return true;
        }
        let rooms = self.rooms();
        let most = match core.work.blocked(rooms) {
            Some(_) => WINDOW_PAUSE,
            None => LONGEST_PAUSE,
        };
        self.pause = self.pause.min(most);
        match core.work.next(rooms, self.pause) {
            Next::Turn(turn) => {
                // The fence of a job that has just come is looked at on the way round.
                self.perform(core, turn);
                self.pause = SHORTEST_PAUSE;
            }
            Next::Blocked => self.pause *= 2,
            Next::Closed => return false,
        }
        true
    }

    /// Submits one unit: begins a job or submits a group of one. False if none may be submitted.
    /// Never waits.
    pub(super) fn pump(&mut self, core: &Core<D>) -> bool {
        self.look_at_fences(core);
        let mut turn = core.work.try_next(self.rooms());
        if turn.is_none() && self.look_at_windows(core) {
            turn = core.work.try_next(self.rooms());
        }
        let found = turn.is_some();
        if let Some(turn) = turn {
            self.perform(core, turn);
        }
        found
    }

    /// The oldest group in flight of a window that keeps a job back.
    pub(super) fn obstacle(&self, core: &Core<D>) -> Option<D::Event> {
        let direction = core.work.blocked(self.rooms())?;
        self.lane(direction).window.oldest().cloned()
    }

    const fn lane(&self, direction: Direction) -> &Lane<D> {
        match direction {
            Direction::HostToDevice => &self.loads,
            Direction::DeviceToHost => &self.stores,
        }
    }

    const fn lane_mut(&mut self, direction: Direction) -> &mut Lane<D> {
        match direction {
            Direction::HostToDevice => &mut self.loads,
            Direction::DeviceToHost => &mut self.stores,
        }
    }

    fn rooms(&self) -> Rooms {
        Rooms {
            loads: self.loads.window.room(),
            stores: self.stores.window.room(),
        }
    }

    /// Lets loads start whose targets nothing uses any more. One that is going to fail may start.
    fn look_at_fences(&mut self, core: &Core<D>) {
        core.work.fenced(&mut self.fences, |job| job.after.clone());
        for (id, fence) in self.fences.drain(..) {
            if core.device.is_complete(&fence).unwrap_or(true) {
                core.work.unfence(id);
            }
        }
    }

    /// Whether a window that keeps a job back was found to have more room.
    fn look_at_windows(&mut self, core: &Core<D>) -> bool {
        let Some(direction) = core.work.blocked(self.rooms()) else {
            return false;
        };
        let other = match direction {
            Direction::HostToDevice => Direction::DeviceToHost,
            Direction::DeviceToHost => Direction::HostToDevice,
        };
        // A lost device is found by the calls that follow.
        let has_ended = |event: &D::Event| core.device.is_complete(event).unwrap_or(true);
        let mut retire = |direction| self.lane_mut(direction).window.retire(has_ended);
        let here = retire(direction);
        retire(other) || here
    }

    fn perform(&mut self, core: &Core<D>, turn: Turn<Job<D>, GpuError>) {
        let Turn { id, job, action } = turn;
        let mut job = job;
        let done = match action {
            Action::Begin => order(core, &job),
            Action::Group => self.submit_group(core, &mut job),
            Action::Fail(cause) => Err(cause),
        };
        if let Err(cause) = done {
            return core.fail_job(job, cause);
        }
        let next_bytes = job.plan.group_bytes(job.groups);
        match core.work.give_back(id, job, next_bytes) {
            Returned::Kept => {}
            Returned::Ended(job) => core.end_job(job, End::Whole),
            Returned::Cancelled(job) => core.end_job(job, End::Cancelled),
        }
    }

    /// Submits the next group, records its event and announces it.
    fn submit_group(&mut self, core: &Core<D>, job: &mut Job<D>) -> Result<(), GpuError> {
        let (plan, gate) = (&job.plan, job.keeper.gate());
        plan.pieces(job.groups, &mut self.pieces);
        let stream = core.stream(plan.direction);
        for pieces in self.pieces.chunks(core.call_pieces()) {
            let batch = CopyBatch {
                direction: plan.direction,
                form: plan.form,
                planes: core.planes.memories(),
                host: &plan.host.pool,
                pieces,
            };
            core.device.copy(stream, &batch)?;
            job.calls += 1;
            job.pieces += pieces.len() as u64;
        }
        let (direction, bytes) = (plan.direction, plan.group_bytes(job.groups));
        if let Some(event) = gate.event(job.groups) {
            core.device.record(event, stream)?;
            core.ledger.group(direction, bytes, event);
            let lane = self.lane_mut(direction);
            lane.window.push(bytes, event.clone());
            lane.groups += 1;
            job.position = lane.groups;
        }
        job.groups += 1;
        job.bytes += bytes;
        job.keeper.advance(job.groups);
        Ok(())
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

impl<D: Device> Core<D> {
    /// Enters a job whose submission is over, without a failure.
    pub(super) fn end_job(&self, job: Job<D>, end: End) {
        let last = job.groups.checked_sub(1);
        let ended = last
            .and_then(|group| job.keeper.gate().event(group))
            .cloned();
        if end == End::Cancelled {
            job.keeper.cancel();
        }
        self.enter(&job, ended, end);
    }

    /// Enters a job that failed, and poisons the engine.
    fn fail_job(&self, job: Job<D>, cause: GpuError) {
        let ended = self.end_of_submitted(&job);
        self.poison(cause.clone());
        job.keeper.fail(JobFailure::Device(cause.clone()));
        self.enter(&job, ended, End::Failed(cause));
    }

    /// The ledger knows of the end before the queue forgets the job, so that who waits until the
    /// queue is empty finds it.
    fn enter(&self, job: &Job<D>, ended: Option<D::Event>, end: End) {
        let submitted = job.submitted(ended, end);
        self.ledger.submitted(submitted, job.calls, job.pieces);
        self.work.finish(job.id());
    }

    /// An event behind all that was submitted of a job which failed: its pages are in use until
    /// then.
    fn end_of_submitted(&self, job: &Job<D>) -> Option<D::Event> {
        let gate: &LoadGate<D> = job.keeper.gate();
        let stream = self.stream(job.plan.direction);
        let behind = gate
            .event(job.groups)
            .filter(|event| self.device.record(event, stream).is_ok());
        let before = job.groups.checked_sub(1);
        behind.or_else(|| gate.event(before?)).cloned()
    }
}
