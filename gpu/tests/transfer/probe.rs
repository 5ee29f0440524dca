// SPDX-License-Identifier: Apache-2.0
//! A simulated device that can keep copies from running, make calls fail, and remembers what was
//! submitted.

use std::sync::{Arc, Condvar, Mutex};

use striata_gpu::sim::{Hold, SimDevice, SimEvent, SimMemory, SimStream};
use striata_gpu::{
    CellMove, CopyBatch, CopyForm, Device, DeviceDescription, DeviceStats, DeviceTime, Direction,
    FarSide, GpuError,
};
use striata_kernels::rows::{RowParams, RowSpan};

/// One copy call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) direction: Direction,
    pub(crate) form: CopyForm,
    pub(crate) pieces: usize,
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    /// Holds before each copy, while copies are to be held.
    holds: Option<Vec<Hold>>,
    /// Whether callers of `copy` wait, and how many do.
    stopped: bool,
    inside: usize,
    /// Copy calls until one fails.
    fail_in: Option<usize>,
    fences: Vec<DeviceTime>,
}

#[derive(Clone, Debug)]
pub(crate) struct Probe {
    sim: SimDevice,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Probe {
    pub(crate) fn new(sim: SimDevice) -> Self {
        let state = Arc::default();
        Self { sim, state }
    }

    pub(crate) fn sim(&self) -> &SimDevice {
        &self.sim
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.0.lock().unwrap())
    }

    /// Copy calls so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.with(|state| state.calls.clone())
    }

    /// From now on every copy is submitted but does not run until its hold is released.
    pub(crate) fn hold_copies(&self) {
        self.with(|state| state.holds = Some(Vec::new()));
    }

    /// Lets the oldest held copy run.
    pub(crate) fn release_one(&self) {
        let hold = self.with(|state| state.holds.as_mut().map(|holds| holds.remove(0)));
        hold.unwrap().release();
    }

    /// Lets every copy run.
    pub(crate) fn release_all(&self) {
        drop(self.with(|state| state.holds.take()));
    }

    /// The caller of the next copy call waits in it.
    pub(crate) fn stop(&self) {
        self.with(|state| state.stopped = true);
    }

    /// Returns once a caller waits in a copy call.
    pub(crate) fn await_caller(&self) {
        let guard = self.state.0.lock().unwrap();
        drop(self.state.1.wait_while(guard, |s| s.inside == 0).unwrap());
    }

    pub(crate) fn go_on(&self) {
        self.with(|state| state.stopped = false);
        self.state.1.notify_all();
    }

    /// The copy call after `good` further ones fails.
    pub(crate) fn fail_after(&self, good: usize) {
        self.with(|state| state.fail_in = Some(good));
    }

    /// What `not_before` was told.
    pub(crate) fn fences(&self) -> Vec<DeviceTime> {
        self.with(|state| state.fences.clone())
    }

    fn enter_copy(&self, stream: &SimStream, call: Call) -> Result<(), GpuError> {
        let mut state = self.state.0.lock().unwrap();
        state.inside += 1;
        self.state.1.notify_all();
        state = self.state.1.wait_while(state, |s| s.stopped).unwrap();
        state.inside -= 1;
        match state.fail_in.as_mut() {
            Some(0) => {
                state.fail_in = None;
                let cause = "this copy was to fail".to_owned();
                return Err(GpuError::Lost { cause });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        state.calls.push(call);
        if let Some(holds) = &mut state.holds {
            holds.push(self.sim.hold(stream)?);
        }
        Ok(())
    }
}

impl Device for Probe {
    type Memory = SimMemory;
    type Stream = SimStream;
    type Event = SimEvent;

    fn describe(&self) -> DeviceDescription {
        self.sim.describe()
    }
    fn stats(&self) -> DeviceStats {
        self.sim.stats()
    }
    fn alloc(&self, bytes: u64) -> Result<SimMemory, GpuError> {
        self.sim.alloc(bytes)
    }
    fn stream(&self, name: &str) -> Result<SimStream, GpuError> {
        self.sim.stream(name)
    }
    fn event(&self) -> Result<SimEvent, GpuError> {
        self.sim.event()
    }
    fn record(&self, event: &SimEvent, stream: &SimStream) -> Result<(), GpuError> {
        self.sim.record(event, stream)
    }
    fn wait(&self, stream: &SimStream, event: &SimEvent) -> Result<(), GpuError> {
        self.sim.wait(stream, event)
    }
    fn is_complete(&self, event: &SimEvent) -> Result<bool, GpuError> {
        self.sim.is_complete(event)
    }
    fn synchronize(&self, event: &SimEvent) -> Result<DeviceTime, GpuError> {
        self.sim.synchronize(event)
    }
    fn copy(&self, stream: &SimStream, batch: &CopyBatch<'_, Self>) -> Result<(), GpuError> {
        let bytes = batch.pieces.iter();
        self.enter_copy(
            stream,
            Call {
                direction: batch.direction,
                form: batch.form,
                pieces: batch.pieces.len(),
                bytes: bytes.map(|p| p.width * u64::from(p.height)).sum(),
            },
        )?;
        let batch = CopyBatch {
            direction: batch.direction,
            form: batch.form,
            planes: batch.planes,
            host: batch.host,
            pieces: batch.pieces,
        };
        self.sim.copy(stream, &batch)
    }
    fn most_pitch(&self) -> u64 {
        self.sim.most_pitch()
    }
    fn maps_host(&self) -> bool {
        self.sim.maps_host()
    }
    fn move_cells(&self, stream: &SimStream, work: &CellMove<'_, Self>) -> Result<(), GpuError> {
        let work = CellMove {
            direction: work.direction,
            planes: work.planes,
            layers: work.layers,
            far: match work.far {
                FarSide::Host(pool) => FarSide::Host(pool),
                FarSide::Memory(memory) => FarSide::Memory(memory),
            },
            far_base: work.far_base,
            far_layer: work.far_layer,
            cells: work.cells,
            cell_bytes: work.cell_bytes,
            blocks: work.blocks,
        };
        self.sim.move_cells(stream, &work)
    }
    fn fill_rows(
        &self,
        stream: &SimStream,
        plane: &SimMemory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(), GpuError> {
        self.sim.fill_rows(stream, plane, base, params, spans)
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
        self.sim
            .verify_rows(stream, plane, base, params, spans, log)
    }
    fn occupy(&self, stream: &SimStream, nanos: u64) -> Result<(), GpuError> {
        self.sim.occupy(stream, nanos)
    }
    fn not_before(&self, stream: &SimStream, time: DeviceTime) -> Result<(), GpuError> {
        self.with(|state| state.fences.push(time));
        self.sim.not_before(stream, time)
    }
    fn now(&self) -> DeviceTime {
        self.sim.now()
    }
    fn advance_to(&self, time: DeviceTime) {
        self.sim.advance_to(time);
    }
    fn write(&self, memory: &SimMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.sim.write(memory, offset, bytes)
    }
    fn read(&self, memory: &SimMemory, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.sim.read(memory, offset, bytes)
    }
    fn memory_len(&self, memory: &SimMemory) -> u64 {
        self.sim.memory_len(memory)
    }
}
