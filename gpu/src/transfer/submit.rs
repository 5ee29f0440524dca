// SPDX-License-Identifier: Apache-2.0
//! Submission: takes the most urgent job, builds the pieces of its next unit and submits them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use striata_kernels::cells::Cell;

use super::gate::LoadGate;
use super::gate_error::JobFailure;
use super::job::{End, Job, TransferConfig};
use super::pace::Pace;
use super::paths::CopyPath;
use super::plan::{JobPlan, UnitCells};
use super::queue_entry::JobId;
use super::queue_state::{Action, Returned, Turn};
use super::shared::Core;
use super::staging::Slots;
use super::window::{Rooms, Window};
use crate::cells::{CellMove, FarSide};
use crate::device::{CopyBatch, Device, Direction, Piece};
use crate::error::GpuError;

/// Who submits, and what it knows of its streams.
#[derive(Debug)]
pub(super) struct Submitter<D: Device> {
    loads: Lane<D>,
    stores: Lane<D>,
    /// Reused by every unit.
    pieces: Vec<Piece>,
    cells: Vec<Cell>,
    fences: Vec<(JobId, D::Event)>,
}

/// Why nothing can be submitted, if there is a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum Obstruction {
    /// Targets that are in use.
    Fences,
    /// A full window, and how long it will be, if that can be foretold.
    Window(Option<Duration>),
}

#[derive(Debug)]
struct Lane<D: Device> {
    window: Window<D::Event>,
    pace: Pace,
    /// Units that were submitted.
    units: u64,
    slots: Slots<D>,
}

impl<D: Device> Lane<D> {
    fn new(window_bytes: u64) -> Self {
        Self {
            window: Window::new(window_bytes),
            pace: Pace::new(),
            units: 0,
            slots: Slots::new(),
        }
    }

    /// How long the oldest unit will go on, if that can be foretold.
    fn patience(&self) -> Option<Duration> {
        self.pace
            .patience(self.window.oldest_bytes(), Instant::now())
    }

    /// Forgets units that have ended; false if there is none.
    fn retire(&mut self, has_ended: impl FnMut(&D::Event) -> bool) -> bool {
        let (bytes, oldest) = (self.window.bytes(), self.window.oldest_bytes());
        let ended = self.window.retire(has_ended);
        let now = Instant::now();
        if ended {
            self.pace.ended(bytes - self.window.bytes(), now);
        } else {
            self.pace.looked(oldest, now);
        }
        ended
    }
}

impl<D: Device> Submitter<D> {
    pub(super) fn new(config: &TransferConfig) -> Self {
        Self {
            loads: Lane::new(config.window_bytes),
            stores: Lane::new(config.window_bytes),
            pieces: Vec::new(),
            cells: Vec::new(),
            fences: Vec::new(),
        }
    }

    /// What keeps jobs back.
    pub(super) fn obstruction(&self, core: &Core<D>) -> Obstruction {
        match core.work.blocked(self.rooms()) {
            Some(direction) => Obstruction::Window(self.lane(direction).patience()),
            None => Obstruction::Fences,
        }
    }

    /// Submits one unit: begins a job or submits a unit of one. False if none may be submitted.
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

    /// The oldest unit in flight of a window that keeps a job back.
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

    pub(super) fn rooms(&self) -> Rooms {
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
        let mut retire = |direction| self.lane_mut(direction).retire(has_ended);
        let here = retire(direction);
        retire(other) || here
    }

    pub(super) fn perform(&mut self, core: &Core<D>, turn: Turn<Job<D>, GpuError>) {
        let Turn { id, job, action } = turn;
        let mut job = job;
        if action == Action::Begin {
            let (op, rank) = (job.keeper.gate().op(), core.config.rank);
            tracing::debug!(%op, ?rank, direction = ?job.plan.direction, units = job.keeper.gate().unit_count(), "copies of an operation begin");
        }
        let done = match action {
            Action::Begin => order(core, &job),
            Action::Unit => self.submit_unit(core, &mut job),
            Action::Fail(cause) => Err(cause),
        };
        if let Err(cause) = done {
            return core.fail_job(job, cause);
        }
        let next_bytes = job.plan.unit_bytes(job.units);
        match core.work.give_back(id, job, next_bytes) {
            Returned::Kept => {}
            Returned::Ended(job) => core.end_job(job, End::Whole),
            Returned::Cancelled(job) => core.end_job(job, End::Cancelled),
        }
    }

    /// Submits the next unit, records its event and announces it.
    fn submit_unit(&mut self, core: &Core<D>, job: &mut Job<D>) -> Result<(), GpuError> {
        let plan = job.plan.clone();
        let stream = core.stream(plan.direction);
        match plan.path {
            CopyPath::Staged => self.submit_staged(core, job)?,
            CopyPath::Mapped => self.submit_mapped(core, job)?,
            _ => {
                plan.pieces(job.units, 0, &mut self.pieces);
                let planes = core.planes.memories();
                self.submit_copies(core, job, planes, stream)?;
            }
        }
        let (direction, bytes) = (plan.direction, plan.unit_bytes(job.units));
        if let Some(event) = job.keeper.gate().event(job.units) {
            core.device.record(event, stream)?;
            core.ledger.unit(direction, bytes, event);
            let lane = self.lane_mut(direction);
            if lane.window.oldest().is_none() {
                lane.pace.begin(Instant::now());
            }
            lane.window.push(bytes, event.clone());
            lane.units += 1;
            job.position = lane.units;
        }
        job.units += 1;
        job.bytes += bytes;
        job.keeper.advance(job.units);
        Ok(())
    }

    /// Submits the pieces of a unit.
    fn submit_copies(
        &self,
        core: &Core<D>,
        job: &mut Job<D>,
        planes: &Arc<[D::Memory]>,
        stream: &D::Stream,
    ) -> Result<(), GpuError> {
        let plan = &job.plan;
        for pieces in self.pieces.chunks(core.call_pieces()) {
            let batch = CopyBatch {
                direction: plan.direction,
                form: plan.form(),
                planes,
                host: &plan.host.pool,
                pieces,
            };
            core.device.copy(stream, &batch)?;
            job.work.calls += 1;
            job.work.pieces += pieces.len() as u64;
        }
        Ok(())
    }

    /// Submits the kernel of a unit that moves between planes and host.
    fn submit_mapped(&mut self, core: &Core<D>, job: &mut Job<D>) -> Result<(), GpuError> {
        let plan = &job.plan;
        let Some(cells) = plan.mapped_cells(job.units, &mut self.cells) else {
            return Ok(());
        };
        let far = FarSide::Host(&plan.host.pool);
        let blocks = core.config.mapped_blocks;
        core.move_cells(plan, &cells, far, blocks, core.stream(plan.direction))?;
        job.work.kernels += 1;
        Ok(())
    }

    /// Submits a unit through the next slot: a load's copies and then the kernel that scatters
    /// them, a store's gathering kernel and then its copies.
    fn submit_staged(&mut self, core: &Core<D>, job: &mut Job<D>) -> Result<(), GpuError> {
        let (plan, gate) = (job.plan.clone(), job.keeper.gate().clone());
        let ends = (gate.halfway(job.units), gate.event(job.units));
        let (Some(staging), (Some(halfway), Some(end))) = (core.staging(plan.direction), ends)
        else {
            return Ok(());
        };
        let (first, second) = (&staging.stream, core.stream(plan.direction));
        let (slot, before) = self.lane_mut(plan.direction).slots.take(end);
        let at = slot * staging.slot_bytes;
        if let Some(before) = before {
            core.device.wait(first, &before)?;
        }
        plan.pieces(job.units, at, &mut self.pieces);
        let is_load = plan.direction == Direction::HostToDevice;
        if is_load {
            self.submit_copies(core, job, &staging.memory, first)?;
            core.device.record(halfway, first)?;
            core.device.wait(second, halfway)?;
        }
        if let Some(cells) = plan.staged_cells(job.units, at, &mut self.cells)
            && let Some(memory) = staging.memory.first()
        {
            let stream = if is_load { second } else { first };
            let far = FarSide::Memory(memory);
            core.move_cells(&plan, &cells, far, core.config.staging_blocks, stream)?;
            job.work.kernels += 1;
        }
        if !is_load {
            core.device.record(halfway, first)?;
            core.device.wait(second, halfway)?;
            self.submit_copies(core, job, &staging.memory, second)?;
        }
        Ok(())
    }
}

impl<D: Device> Core<D> {
    fn move_cells(
        &self,
        plan: &JobPlan,
        cells: &UnitCells<'_>,
        far: FarSide<'_, D>,
        blocks: u32,
        stream: &D::Stream,
    ) -> Result<(), GpuError> {
        let layers = cells.layers.start as usize..cells.layers.end as usize;
        let work = CellMove {
            direction: plan.direction,
            planes: self.planes.memories(),
            layers: self.planes.spans().get(layers).unwrap_or_default(),
            far,
            far_base: cells.far_base,
            far_layer: cells.far_layer,
            cells: cells.cells,
            cell_bytes: plan.item_bytes,
            blocks,
        };
        self.device.move_cells(stream, &work)
    }
}

/// Puts a job behind what it must come after. The fence of a load has completed: its stream never
/// waits for compute, which could itself wait behind a load in the queue.
fn order<D: Device>(core: &Core<D>, job: &Job<D>) -> Result<(), GpuError> {
    let device = &core.device;
    let direction = job.plan.direction;
    let mut earliest = job.keeper.gate().issued();
    if let (Some(fence), Direction::HostToDevice) = (&job.after, direction) {
        earliest = earliest.max(device.synchronize(fence)?);
    }
    let staging = match job.plan.path {
        CopyPath::Staged => core.staging(direction),
        _ => None,
    };
    let first = staging.map(|staging| &staging.stream);
    for stream in first.into_iter().chain([core.stream(direction)]) {
        device.not_before(stream, earliest)?;
        if let (Some(fence), Direction::DeviceToHost) = (&job.after, direction) {
            device.wait(stream, fence)?;
        }
    }
    Ok(())
}

impl<D: Device> Core<D> {
    /// Enters a job whose submission is over, without a failure.
    pub(super) fn end_job(&self, job: Job<D>, end: End) {
        let last = job.units.checked_sub(1);
        let ended = last.and_then(|unit| job.keeper.gate().event(unit)).cloned();
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
        self.ledger.submitted(submitted, job.work);
        self.work.finish(job.id());
    }

    /// An event behind all that was submitted of a job which failed: its pages are in use until
    /// then.
    fn end_of_submitted(&self, job: &Job<D>) -> Option<D::Event> {
        let gate: &LoadGate<D> = job.keeper.gate();
        let direction = job.plan.direction;
        let stream = self.stream(direction);
        if let (CopyPath::Staged, Some(staging)) = (job.plan.path, self.staging(direction)) {
            // Also behind the first step of the unit that failed.
            let halfway = self.device.event().and_then(|halfway| {
                self.device.record(&halfway, &staging.stream)?;
                self.device.wait(stream, &halfway)
            });
            if let Err(error) = halfway {
                tracing::error!(%error, "the end of a failed unit cannot be told");
            }
        }
        let behind = gate
            .event(job.units)
            .filter(|event| self.device.record(event, stream).is_ok());
        let before = job.units.checked_sub(1);
        behind.or_else(|| gate.event(before?)).cloned()
    }
}
