// SPDX-License-Identifier: Apache-2.0
//! A device in host memory: real bytes, real threads, modelled time.
//!
//! - Each stream is a worker thread with a queue. Operations of a stream run in order; operations
//!   of different streams run at the same time and are ordered by events only, so a missing event
//!   is a real race here too.
//! - Completion is real: an event completes when the bytes before it have moved. Time is modelled:
//!   each stream keeps a clock that only its own operations and the events that it waits for move,
//!   so modelled times do not depend on how fast the machine is. An operation begins when the one
//!   before it, the events waited for and [`Device::not_before`] allow; the host's clock
//!   ([`Device::now`]) delays nothing by itself.
//! - Every device has a link of its own. What else the model leaves out stands in [`CostModel`]'s
//!   file.
//! - Events and memory of other simulated devices work everywhere and are counted.

mod event;
mod memory;
mod op;
mod shared;
mod stream;
mod time;

use std::sync::Arc;

use striata_kernels::rows::{RowParams, RowSpan};

use crate::check;
use crate::device::{CopyBatch, Device, DeviceDescription, DeviceStats, DeviceTime};
use crate::error::GpuError;

pub use event::SimEvent;
pub use memory::SimMemory;
pub use stream::{Hold, SimStream};
pub use time::CostModel;

use op::{Copy, Op, RowWork};
use shared::Shared;

/// What a simulated device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Name in messages and of its threads.
    pub name: String,
    /// Bytes of memory; no limit but the host's if `None`.
    pub memory_bytes: Option<u64>,
    /// Costs of its operations.
    pub cost: CostModel,
}

impl SimConfig {
    /// The device `sim<index>`, without a limit of memory, as fast as an H200.
    #[must_use]
    pub fn new(index: u32) -> Self {
        Self {
            name: format!("sim{index}"),
            memory_bytes: None,
            cost: CostModel::default(),
        }
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Self::new(0)
    }
}

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

    fn is_foreign(&self, owner: &Arc<Shared>) -> bool {
        !Arc::ptr_eq(owner, &self.0)
    }

    /// Queues an operation, and counts it if it touches what another device owns.
    fn submit(&self, stream: &SimStream, op: Op, foreign: bool) {
        self.0
            .counts()
            .cross(foreign || self.is_foreign(stream.owner()));
        stream.submit(op);
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
        self.submit(stream, Op::Record(event.clone()), foreign);
        Ok(())
    }

    fn wait(&self, stream: &SimStream, event: &SimEvent) -> Result<(), GpuError> {
        self.enter_event(event, "wait")?;
        let foreign = self.is_foreign(event.owner());
        self.submit(stream, Op::Wait(event.clone()), foreign);
        Ok(())
    }

    fn is_complete(&self, event: &SimEvent) -> Result<bool, GpuError> {
        self.enter_event(event, "is_complete")?;
        Ok(event.is_complete())
    }

    fn synchronize(&self, event: &SimEvent) -> Result<DeviceTime, GpuError> {
        self.enter_event(event, "synchronize")?;
        let time = event.wait();
        self.0.check_alive()?;
        Ok(time)
    }

    fn copy(&self, stream: &SimStream, batch: &CopyBatch<'_, Self>) -> Result<(), GpuError> {
        self.0.check_alive()?;
        let tally = check::copy(self, batch)?;
        let foreign = batch.pieces.iter().any(|piece| {
            let plane = batch.planes.get(piece.plane as usize);
            plane.is_some_and(|plane| self.is_foreign(plane.owner()))
        });
        self.0.counts().copy(batch.direction, tally);
        self.0
            .counts()
            .cross(foreign || self.is_foreign(stream.owner()));
        let copy = Copy {
            direction: batch.direction,
            planes: Arc::clone(batch.planes),
            host: Arc::clone(batch.host),
            pieces: 0..0,
            cost: self
                .0
                .config()
                .cost
                .copy(batch.direction, batch.form, tally),
        };
        stream.submit_copy(copy, batch.pieces);
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
        self.0.counts().kernel();
        let work = RowWork {
            plane: plane.clone(),
            base,
            params,
            spans: Arc::clone(spans),
        };
        let op = Op::Fill(work, self.0.config().cost.kernel_ns);
        self.submit(stream, op, self.is_foreign(plane.owner()));
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
        self.0.counts().kernel();
        let work = RowWork {
            plane: plane.clone(),
            base,
            params,
            spans: Arc::clone(spans),
        };
        let op = Op::Verify(work, log.clone(), self.0.config().cost.kernel_ns);
        let foreign = self.is_foreign(plane.owner()) || self.is_foreign(log.owner());
        self.submit(stream, op, foreign);
        Ok(())
    }

    fn occupy(&self, stream: &SimStream, nanos: u64) -> Result<(), GpuError> {
        self.0.check_alive()?;
        self.submit(stream, Op::Occupy(nanos), false);
        Ok(())
    }

    fn not_before(&self, stream: &SimStream, time: DeviceTime) -> Result<(), GpuError> {
        self.0.check_alive()?;
        self.submit(stream, Op::NotBefore(time), false);
        Ok(())
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
        self.0.counts().cross(self.is_foreign(memory.owner()));
        memory::write_words(memory::words_at(memory.words(), offset, len), bytes);
        Ok(())
    }

    fn read(&self, memory: &SimMemory, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.0.check_alive()?;
        let len = bytes.len() as u64;
        check::access("read", memory.len(), offset, len)?;
        self.0.counts().cross(self.is_foreign(memory.owner()));
        memory::read_words(memory::words_at(memory.words(), offset, len), bytes);
        Ok(())
    }

    fn memory_len(&self, memory: &SimMemory) -> u64 {
        memory.len()
    }
}

#[cfg(test)]
mod tests;
