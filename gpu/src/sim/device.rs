// SPDX-License-Identifier: Apache-2.0
//! The calls of a simulated device: checks, counts, and what is queued.

use std::sync::Arc;

use striata_host::HostPool;
use striata_kernels::rows::{RowParams, RowSpan};

use crate::cells::{CellMove, FarSide};
use crate::check;
use crate::device::{
    CopyBatch, CopyFailure, Device, DeviceDescription, DeviceStats, DeviceTime, Direction,
};
use crate::error::GpuError;
use crate::sim::config::SimConfig;
use crate::sim::decode::DecodeOp;
use crate::sim::event::SimEvent;
use crate::sim::fault::FaultPlan;
use crate::sim::memory::{self, SimMemory};
use crate::sim::names::OpKind;
use crate::sim::op::{CellWork, Copy, Far, Op, RowWork};
use crate::sim::shared::Shared;
use crate::sim::stream::{Hold, SimStream};

/// A simulated device. Clones are the same device.
#[derive(Clone, Debug)]
pub struct SimDevice(Arc<Shared>);

impl SimDevice {
    /// A device.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self(Arc::new(Shared::new(config)))
    }

    /// Holds `stream` at this point until the returned value is released or dropped, or the last
    /// handle of the stream is dropped. It takes no modelled time.
    ///
    /// # Errors
    /// A lost device.
    pub fn hold(&self, stream: &SimStream) -> Result<Hold, GpuError> {
        self.0.check_alive()?;
        Ok(stream.hold())
    }

    /// Loses the device: what is queued does nothing any more, events still complete, and every
    /// later call names the first `cause`.
    pub fn kill(&self, cause: &str) {
        self.0.lose(cause.to_owned());
    }

    /// Follows `plan` from now on; it counts operations from here. What an earlier plan holds stays
    /// held.
    pub fn arm(&self, plan: &FaultPlan) {
        self.0.faults().arm(plan);
    }

    /// Faults of the plan that have not struck yet: more than none after a program says that it has
    /// fewer operations than the plan names.
    #[must_use]
    pub fn faults_left(&self) -> usize {
        self.0.faults().left()
    }

    /// Lets go what the fault plan held so far ([`crate::sim::Fault::Hold`]).
    pub fn release_faults(&self) {
        self.0.faults().release();
    }

    pub(super) fn check_alive(&self) -> Result<(), GpuError> {
        self.0.check_alive()
    }

    /// Queues an operation of the decode path.
    pub(super) fn submit_decode(&self, stream: &SimStream, op: DecodeOp) -> Result<(), GpuError> {
        self.0.check_alive()?;
        let memories = op.memories();
        let foreign = memories
            .iter()
            .any(|memory| self.is_foreign(memory.owner()));
        let nanos = self.0.config().cost.kernel_ns;
        self.submit(stream, Op::Decode(Box::new(op), nanos), foreign)?;
        self.0.counts().kernel();
        Ok(())
    }

    fn is_foreign(&self, owner: &Arc<Shared>) -> bool {
        !Arc::ptr_eq(owner, &self.0)
    }

    /// Queues an operation, and counts it if it touches what another device owns.
    fn submit(&self, stream: &SimStream, op: Op, foreign: bool) -> Result<(), GpuError> {
        self.0.faults().submit(stream, op, &[])?;
        self.0
            .counts()
            .cross(foreign || self.is_foreign(stream.owner()));
        Ok(())
    }

    /// Keeps an error of the program as a bug, where there is a scheduler.
    fn note(&self, bug: GpuError) -> GpuError {
        if let Some(scheduler) = self.0.scheduler() {
            scheduler.note(&bug);
        }
        bug
    }

    /// Refuses a host pool that is not page-locked, if the device wants that.
    fn check_registered(
        &self,
        stream: &SimStream,
        batch: &CopyBatch<'_, Self>,
    ) -> Result<(), GpuError> {
        let kind = match batch.direction {
            Direction::HostToDevice => OpKind::CopyToDevice,
            Direction::DeviceToHost => OpKind::CopyToHost,
        };
        self.check_pool(stream, batch.host, kind)
    }

    fn check_pool(
        &self,
        stream: &SimStream,
        pool: &HostPool,
        kind: OpKind,
    ) -> Result<(), GpuError> {
        if !self.0.config().require_registered || pool.report().pinned {
            return Ok(());
        }
        Err(self.note(GpuError::NotRegistered {
            operation: stream.name_next(kind),
            bytes: pool.bytes(),
        }))
    }

    /// Begins a call that needs `event` recorded.
    fn enter_event(&self, event: &SimEvent, what: &'static str) -> Result<(), GpuError> {
        self.0.check_alive()?;
        event.check_recorded(what)
    }
}

impl Device for SimDevice {
    type Memory = SimMemory;
    type Stream = SimStream;
    type Event = SimEvent;

    fn describe(&self) -> DeviceDescription {
        DeviceDescription {
            backend: "sim",
            name: self.0.name().to_owned(),
            simulated_time: true,
            memory_bytes: self.0.config().memory_bytes,
        }
    }

    fn stats(&self) -> DeviceStats {
        self.0.counts().stats()
    }

    fn alloc(&self, bytes: u64) -> Result<SimMemory, GpuError> {
        self.0.check_alive()?;
        SimMemory::new(&self.0, bytes)
    }

    fn most_pitch(&self) -> u64 {
        self.0.config().most_pitch
    }

    fn stream(&self, name: &str) -> Result<SimStream, GpuError> {
        self.0.check_alive()?;
        SimStream::new(&self.0, name)
    }

    fn event(&self) -> Result<SimEvent, GpuError> {
        self.0.check_alive()?;
        Ok(SimEvent::new(&self.0))
    }

    fn record(&self, event: &SimEvent, stream: &SimStream) -> Result<(), GpuError> {
        self.0.check_alive()?;
        event.mark_recorded()?;
        let foreign = self.is_foreign(event.owner());
        self.submit(stream, Op::Record(event.clone()), foreign)
            .inspect_err(|_| event.unmark_recorded())
    }

    fn wait(&self, stream: &SimStream, event: &SimEvent) -> Result<(), GpuError> {
        self.0.check_alive()?;
        event
            .check_recorded("wait")
            .map_err(|error| self.note(error))?;
        let foreign = self.is_foreign(event.owner());
        self.submit(stream, Op::Wait(event.clone()), foreign)
    }

    fn is_complete(&self, event: &SimEvent) -> Result<bool, GpuError> {
        self.enter_event(event, "is_complete")?;
        let complete = event.is_complete();
        if complete && let Some(scheduler) = self.0.scheduler() {
            scheduler.observe(event);
        }
        Ok(complete)
    }

    fn synchronize(&self, event: &SimEvent) -> Result<DeviceTime, GpuError> {
        self.enter_event(event, "synchronize")?;
        if let Some(scheduler) = self.0.scheduler() {
            scheduler.run_until(event, "synchronize")?;
            scheduler.observe(event);
        }
        let time = event.wait();
        self.0.check_alive()?;
        Ok(time)
    }

    fn copy_failures(&self, event: &SimEvent) -> Result<Vec<CopyFailure>, GpuError> {
        self.enter_event(event, "copy_failures")?;
        Ok(event.failures())
    }

    fn copy(&self, stream: &SimStream, batch: &CopyBatch<'_, Self>) -> Result<(), GpuError> {
        self.0.check_alive()?;
        self.check_registered(stream, batch)?;
        let tally = check::copy(self, batch)?;
        let foreign = batch.pieces.iter().any(|piece| {
            let plane = batch.planes.get(piece.plane as usize);
            plane.is_some_and(|plane| self.is_foreign(plane.owner()))
        });
        let copy = Copy {
            direction: batch.direction,
            planes: Arc::clone(batch.planes),
            host: Arc::clone(batch.host),
            pieces: 0..batch.pieces.len(),
            cost: self
                .0
                .config()
                .cost
                .copy(batch.direction, batch.form, tally),
        };
        self.0
            .faults()
            .submit(stream, Op::Copy(copy), batch.pieces)?;
        self.0.counts().copy(batch.direction, tally);
        self.0
            .counts()
            .cross(foreign || self.is_foreign(stream.owner()));
        Ok(())
    }

    fn maps_host(&self) -> bool {
        self.0.config().maps_host
    }

    fn move_cells(&self, stream: &SimStream, work: &CellMove<'_, Self>) -> Result<(), GpuError> {
        self.0.check_alive()?;
        let facts = check::cells(self, work)?;
        let mut foreign = work
            .planes
            .iter()
            .any(|plane| self.is_foreign(plane.owner()));
        let far = match work.far {
            FarSide::Host(pool) => {
                self.check_pool(stream, pool, OpKind::Cells)?;
                if !self.maps_host() {
                    return Err(GpuError::Argument {
                        call: "move_cells",
                        reason: "kernels of this device do not reach host memory".to_owned(),
                    });
                }
                Far::Host(Arc::clone(pool))
            }
            FarSide::Memory(memory) => {
                foreign |= self.is_foreign(memory.owner());
                Far::Memory(memory.clone())
            }
        };
        let mapped = matches!(far, Far::Host(_));
        let cells = CellWork {
            direction: work.direction,
            planes: Arc::clone(work.planes),
            layers: work.layers.into(),
            far,
            far_base: work.far_base,
            far_layer: work.far_layer,
            cells: work.cells.into(),
            cell_bytes: work.cell_bytes,
            nanos: self
                .0
                .config()
                .cost
                .cells(work.direction, mapped, facts.bytes),
        };
        self.submit(stream, Op::Cells(Box::new(cells)), foreign)?;
        self.0.counts().kernel();
        if mapped {
            self.0.counts().moved(work.direction, facts.bytes);
        }
        Ok(())
    }

    fn fill_rows(
        &self,
        stream: &SimStream,
        plane: &SimMemory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(), GpuError> {
        self.0.check_alive()?;
        check::spans("fill_rows", plane.len(), base, params, spans)?;
        let work = RowWork {
            plane: plane.clone(),
            base,
            params,
            spans: Arc::clone(spans),
        };
        let op = Op::Fill(work, self.0.config().cost.kernel_ns);
        self.submit(stream, op, self.is_foreign(plane.owner()))?;
        self.0.counts().kernel();
        Ok(())
    }

    fn verify_rows(
        &self,
        stream: &SimStream,
        plane: &SimMemory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
        log: &SimMemory,
    ) -> Result<(), GpuError> {
        self.0.check_alive()?;
        check::spans("verify_rows", plane.len(), base, params, spans)?;
        check::access(
            "verify_rows: the count of the log",
            log.len(),
            0,
            check::WORD,
        )?;
        let work = RowWork {
            plane: plane.clone(),
            base,
            params,
            spans: Arc::clone(spans),
        };
        let op = Op::Verify(work, log.clone(), self.0.config().cost.kernel_ns);
        let foreign = self.is_foreign(plane.owner()) || self.is_foreign(log.owner());
        self.submit(stream, op, foreign)?;
        self.0.counts().kernel();
        Ok(())
    }

    fn occupy(&self, stream: &SimStream, nanos: u64) -> Result<(), GpuError> {
        self.0.check_alive()?;
        self.submit(stream, Op::Occupy(nanos), false)
    }

    fn not_before(&self, stream: &SimStream, time: DeviceTime) -> Result<(), GpuError> {
        self.0.check_alive()?;
        self.submit(stream, Op::NotBefore(time), false)
    }

    fn now(&self) -> DeviceTime {
        self.0.now()
    }

    fn advance_to(&self, time: DeviceTime) {
        self.0.advance_to(time);
    }

    fn write(&self, memory: &SimMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.0.check_alive()?;
        let len = bytes.len() as u64;
        check::access("write", memory.len(), offset, len)?;
        if let Some(scheduler) = self.0.scheduler() {
            scheduler.writes(&self.0, memory, offset..offset + len)?;
        }
        self.0.counts().cross(self.is_foreign(memory.owner()));
        memory::write_words(memory::words_at(memory.words(), offset, len), bytes);
        Ok(())
    }

    fn read(&self, memory: &SimMemory, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.0.check_alive()?;
        let len = bytes.len() as u64;
        check::access("read", memory.len(), offset, len)?;
        if let Some(scheduler) = self.0.scheduler() {
            scheduler.reads(&self.0, memory, offset..offset + len)?;
        }
        self.0.counts().cross(self.is_foreign(memory.owner()));
        memory::read_words(memory::words_at(memory.words(), offset, len), bytes);
        Ok(())
    }

    fn memory_len(&self, memory: &SimMemory) -> u64 {
        memory.len()
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
