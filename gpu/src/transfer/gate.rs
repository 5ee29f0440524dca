// SPDX-License-Identifier: Apache-2.0
//! The gate of one load on one rank: what a consumer asks before it reads a layer.
//!
//! A gate has an event for each unit of submission, made with the gate and recorded by the
//! submission thread behind the unit's copies; a layer opens with the last unit of its group. A consumer first waits on the host until the group was
//! submitted, which never depends on how long the copy takes, and then lets its stream wait for
//! the event. A wait for work that is not submitted yet is never enqueued: streams share hardware
//! queues, and such a wait can block the very copy that would end it. A consumer that has to wait
//! promotes what it waits for past the window; where no thread submits, it does so itself.

use std::sync::{Arc, Weak};

use striata_core::{LayerId, OpId};

use super::gate_error::{GateError, JobFailure};
use super::gate_state::GateState;
use super::groups::LayerGroups;
use super::queue_entry::JobId;
use super::shared::Core;
use crate::device::{Device, DeviceTime};
use crate::error::GpuError;

/// When the groups of a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// When the job was handed to the engine.
    pub issued: DeviceTime,
    /// End of the first group.
    pub first: DeviceTime,
    /// End of the last group.
    pub last: DeviceTime,
}

/// How a job is cut for submission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units<'a> {
    /// How many units.
    pub(super) count: u32,
    /// Units up to the end of each layer group.
    pub(super) ends: &'a [u32],
    /// Whether each has a kernel and copies, with an event between them.
    pub(super) two_steps: bool,
}

/// The gate of one load on one rank. A store has one too, with a single group.
#[derive(Debug)]
pub struct LoadGate<D: Device> {
    device: D,
    op: OpId,
    issued: DeviceTime,
    groups: LayerGroups,
    /// Units of submission up to the end of each layer group.
    ends: Box<[u32]>,
    /// One a unit of submission; none for a job without pages.
    events: Box<[D::Event]>,
    /// One a unit between its two steps, of jobs that are staged.
    halfway: Box<[D::Event]>,
    state: GateState<JobFailure>,
    id: JobId,
    /// Whom a waiter asks for more speed.
    core: Weak<Core<D>>,
}

impl<D: Device> LoadGate<D> {
    /// The gate of a job that is submitted in `units` units; `ends` says how many of them end each
    /// group.
    pub(super) fn new(
        core: &Arc<Core<D>>,
        (id, op): (JobId, OpId),
        issued: DeviceTime,
        groups: LayerGroups,
        units: &Units<'_>,
    ) -> Result<Self, GpuError> {
        let device = &core.device;
        let events = |count| (0..count).map(|_| device.event()).collect::<Result<_, _>>();
        let halfway = if units.two_steps { units.count } else { 0 };
        Ok(Self {
            id,
            core: Arc::downgrade(core),
            ends: units.ends.into(),
            halfway: events(halfway)?,
            ..Self::with_events(device, op, issued, groups, events(units.count)?)
        })
    }

    /// The gate of a job without pages: open.
    pub(super) fn open(device: &D, op: OpId, issued: DeviceTime, layers: u32) -> Self {
        let groups = LayerGroups::whole(layers);
        let gate = Self::with_events(device, op, issued, groups, Box::default());
        gate.state.advance(gate.unit_count());
        gate
    }

    fn with_events(
        device: &D,
        op: OpId,
        issued: DeviceTime,
        groups: LayerGroups,
        events: Box<[D::Event]>,
    ) -> Self {
        Self {
            device: device.clone(),
            op,
            issued,
            groups,
            ends: Box::default(),
            events,
            halfway: Box::default(),
            state: GateState::new(),
            id: JobId(0),
            core: Weak::new(),
        }
    }

    /// The operation.
    #[must_use]
    pub const fn op(&self) -> OpId {
        self.op
    }
    /// When the job was handed to the engine.
    #[must_use]
    pub const fn issued(&self) -> DeviceTime {
        self.issued
    }
    /// Which layers were grouped.
    #[must_use]
    pub const fn groups(&self) -> &LayerGroups {
        &self.groups
    }

    /// Lets what is submitted to `stream` from now on begin only when `layer` is loaded. Blocks
    /// the caller until the layer's group was submitted, never until it has ended; that group and
    /// those before it are submitted next, whatever is in flight.
    ///
    /// # Errors
    /// A layer that the pool does not have; a failed job, or one that was cancelled before the
    /// layer was submitted; a lost device.
    pub fn wait_layer(&self, layer: LayerId, stream: &D::Stream) -> Result<(), GateError> {
        let Some(group) = self.groups.group_of(layer) else {
            return Err(GateError::NoSuchLayer {
                op: self.op,
                layer,
                layers: self.groups.layers(),
            });
        };
        let units = self.ends.get(group).copied().unwrap_or(0);
        self.await_promoted(units)?;
        if let Some(event) = self.event_behind(units) {
            self.device.wait(stream, event)?;
        }
        Ok(())
    }

    /// As [`LoadGate::wait_layer`] of the last layer: groups end in order.
    ///
    /// # Errors
    /// A failed or cancelled job; a lost device.
    pub fn wait_all(&self, stream: &D::Stream) -> Result<(), GateError> {
        self.await_promoted(self.unit_count())?;
        if let Some(event) = self.events.last() {
            self.device.wait(stream, event)?;
        }
        Ok(())
    }

    /// Whether every layer is loaded. Never blocks.
    ///
    /// # Errors
    /// A failed or cancelled job, a failed copy; a lost device.
    pub fn is_complete(&self) -> Result<bool, GateError> {
        if self.is_behind(self.unit_count()) {
            return Ok(false);
        }
        self.submitted_units()?;
        if let Some(event) = self.events.last()
            && !self.device.is_complete(event)?
        {
            return Ok(false);
        }
        self.check_copies().map(|()| true)
    }

    /// How many layer groups were submitted to their end so far; for a store, how many groups of
    /// pages.
    ///
    /// # Errors
    /// A failed or cancelled job.
    pub fn submitted_groups(&self) -> Result<usize, GateError> {
        let units = self.submitted_units()?;
        if self.events.is_empty() {
            return Ok(self.groups.len());
        }
        Ok(match *self.ends {
            [_] => units as usize,
            _ => self.ends.partition_point(|end| *end <= units),
        })
    }

    fn submitted_units(&self) -> Result<u32, GateError> {
        self.state.submitted().map_err(|cause| self.failed(cause))
    }

    /// When the groups ended; none as long as one has not. Never blocks.
    ///
    /// # Errors
    /// A failed or cancelled job, a failed copy; a lost device.
    pub fn group_times(&self) -> Result<Option<GroupTimes>, GateError> {
        self.is_complete()?.then(|| self.synchronize()).transpose()
    }

    /// When the group of `layer` had ended, whatever its copies delivered; none as long as it has
    /// not, and of a group that was never submitted. Never blocks.
    ///
    /// # Errors
    /// A layer that the pool does not have; a lost device.
    pub fn layer_time(&self, layer: LayerId) -> Result<Option<DeviceTime>, GateError> {
        let group = self.groups.group_of(layer).ok_or(GateError::NoSuchLayer {
            op: self.op,
            layer,
            layers: self.groups.layers(),
        })?;
        let units = self.ends.get(group).copied().unwrap_or(0);
        let submitted = self.state.submitted().unwrap_or(0);
        match self.event_behind(units) {
            Some(event) if units <= submitted => Ok(self.device.event_time(event)?),
            Some(_) => Ok(None),
            None => Ok(Some(self.issued)),
        }
    }

    /// Blocks the caller until every layer is loaded; returns when that was. It makes nothing
    /// faster.
    ///
    /// # Errors
    /// A failed or cancelled job, a failed copy; a lost device.
    pub fn synchronize(&self) -> Result<GroupTimes, GateError> {
        let times = self.await_copies()?;
        self.check_copies().map(|()| times)
    }

    /// As [`LoadGate::synchronize`], whatever the copies delivered.
    pub(super) fn await_copies(&self) -> Result<GroupTimes, GateError> {
        self.await_submitted(self.unit_count())?;
        let ended = |event: Option<&D::Event>| match event {
            Some(event) => self.device.synchronize(event),
            None => Ok(self.issued),
        };
        Ok(GroupTimes {
            issued: self.issued,
            first: ended(self.first_group())?,
            last: ended(self.events.last())?,
        })
    }

    /// Whether fewer than `units` units were submitted, of a job that has not ended early.
    pub(super) fn is_behind(&self, units: u32) -> bool {
        self.state.submitted().is_ok_and(|reached| reached < units)
    }

    /// Names the job inside its engine.
    pub(super) const fn id(&self) -> JobId {
        self.id
    }

    /// The event of a unit.
    pub(super) fn event(&self, unit: u32) -> Option<&D::Event> {
        self.events.get(unit as usize)
    }

    /// The event between the two steps of a unit that is staged.
    pub(super) fn halfway(&self, unit: u32) -> Option<&D::Event> {
        self.halfway.get(unit as usize)
    }

    /// The end of the first layer group.
    pub(super) fn first_group(&self) -> Option<&D::Event> {
        self.event_behind(self.ends.first().copied().unwrap_or(0))
    }

    /// The event behind the first `units` units.
    fn event_behind(&self, units: u32) -> Option<&D::Event> {
        self.events.get(units.checked_sub(1)? as usize)
    }

    /// Units of submission.
    pub(super) fn unit_count(&self) -> u32 {
        u32::try_from(self.events.len()).unwrap_or(u32::MAX)
    }

    /// Fails if a copy that has ended did not deliver everything.
    fn check_copies(&self) -> Result<(), GateError> {
        for event in self.halfway.iter().chain(&self.events) {
            let failures = self.device.copy_failures(event)?;
            if let Some(failure) = failures.into_iter().next() {
                return Err(self.failed(JobFailure::Device(failure.cause)));
            }
        }
        Ok(())
    }

    fn await_promoted(&self, units: u32) -> Result<(), GateError> {
        if self.is_behind(units)
            && let Some(core) = self.core.upgrade()
        {
            core.work.promote(self.id, units);
        }
        self.await_submitted(units)
    }

    fn await_submitted(&self, units: u32) -> Result<(), GateError> {
        if self.is_behind(units)
            && let Some(core) = self.core.upgrade()
        {
            core.submit_up_to(self, units)?;
        }
        self.state.wait(units).map_err(|cause| self.failed(cause))
    }

    const fn failed(&self, cause: JobFailure) -> GateError {
        GateError::Failed { op: self.op, cause }
    }
}

/// The submitter's side of a gate. Dropping it fails what was not submitted, so that no
/// consumer waits for a job that nobody holds.
#[derive(Debug)]
pub(super) struct GateKeeper<D: Device>(Arc<LoadGate<D>>);

impl<D: Device> GateKeeper<D> {
    pub(super) const fn new(gate: Arc<LoadGate<D>>) -> Self {
        Self(gate)
    }

    pub(super) const fn gate(&self) -> &Arc<LoadGate<D>> {
        &self.0
    }

    /// Announces that `units` units were submitted.
    pub(super) fn advance(&self, units: u32) {
        self.0.state.advance(units);
    }

    pub(super) fn fail(&self, cause: JobFailure) {
        self.0.state.fail(self.0.unit_count(), cause);
    }

    /// Announces that no further unit will be submitted; those that were stay good.
    pub(super) fn cancel(&self) {
        let count = self.0.unit_count();
        self.0.state.cancel(count, JobFailure::Cancelled);
    }
}

impl<D: Device> Drop for GateKeeper<D> {
    fn drop(&mut self) {
        self.fail(JobFailure::Stopped);
    }
}
