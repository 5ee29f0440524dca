// SPDX-License-Identifier: Apache-2.0
//! [`CudaDevice`]: the `Device` trait on a GPU.

use std::sync::Arc;
use std::time::Duration;

use striata_host::PagePinner;
use striata_kernels::rows::{RowParams, RowSpan};
use striata_kernels::source::{Kernel, SOURCES};

use super::event::CudaEvent;
use super::keep::Kept;
use super::launch::{self, RowWork};
use super::memory::{self, CudaMemory};
use super::pin::{CudaPinner, HostAllocation};
use super::shared::{CudaConfig, Shared};
use super::stream::CudaStream;
use super::{cells, copy, driver};
use crate::cells::{CellMove, FarSide};
use crate::check;
use crate::device::{CopyBatch, Device, DeviceDescription, DeviceStats, DeviceTime};
use crate::error::GpuError;

/// One GPU. Clones are the same device; it shares the primary context with other users in the
/// process.
#[derive(Clone, Debug)]
pub struct CudaDevice(Arc<Shared>);

impl CudaDevice {
    /// The GPU of an index among the visible ones.
    ///
    /// # Errors
    /// No driver library, one that is too old or does not start, no such device. Kernels are
    /// compiled when the first is launched, so a missing compiler is found only then.
    pub fn new(index: u32) -> Result<Self, GpuError> {
        Self::with_config(CudaConfig {
            index,
            ..CudaConfig::default()
        })
    }

    /// As [`CudaDevice::new`], with settings.
    ///
    /// # Errors
    /// As [`CudaDevice::new`].
    pub fn with_config(config: CudaConfig) -> Result<Self, GpuError> {
        Shared::new(config).map(Self)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Index among the visible devices.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.ordinal.unsigned_abs()
    }

    /// What kernels are compiled for, such as `sm_90a`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        self.0.architecture()
    }

    /// The newest CUDA version of the driver, such as `13.0`.
    #[must_use]
    pub fn driver_version(&self) -> String {
        driver::dotted(self.0.driver.version().unwrap_or(0))
    }

    /// The driver calls that serve plain runs and rectangles, in words.
    #[must_use]
    pub fn copy_calls(&self) -> [&'static str; 2] {
        [self.0.calls.runs_by(), self.0.calls.boxes_by()]
    }

    /// Whether the driver takes many copies in one call, plain runs and rectangles.
    #[must_use]
    pub fn copies_in_batches(&self) -> bool {
        self.0.calls.in_batches()
    }

    /// Bytes of memory that are free now.
    ///
    /// # Errors
    /// A lost device.
    pub fn free_bytes(&self) -> Result<u64, GpuError> {
        let _scope = self.0.enter()?;
        memory::free_and_total(&self.0).map(|(free, _)| free)
    }

    /// Allocates page-locked host memory by the driver's own call, for comparisons: pools are
    /// mapped and registered by us.
    ///
    /// # Errors
    /// No room, or none that can be locked; a lost device.
    pub fn alloc_host(&self, bytes: u64) -> Result<HostAllocation, GpuError> {
        HostAllocation::new(&self.0, bytes)
    }

    /// Compiles and loads every kernel now, so that no launch has to; of the tensor-core kernels
    /// those that the device runs best.
    ///
    /// # Errors
    /// No compiler; a kernel that does not compile or load.
    pub fn load_kernels(&self) -> Result<(), GpuError> {
        let _scope = self.0.enter()?;
        let mine = self.0.mma_size;
        let wanted = |kernel: &&Kernel| kernel.mma_size().is_none() || kernel.mma_size() == mine;
        let kernels = SOURCES.iter().flat_map(|source| source.kernels);
        let mut kernels = kernels.filter(wanted);
        kernels.try_for_each(|kernel| self.0.modules.function(&self.0, *kernel).map(|_| ()))
    }

    /// Takes an engine's own stream, a `CUstream` as a number. It is never captured, destroyed or
    /// synchronised, and calls that would ruin a capture of it are refused while it is captured.
    ///
    /// # Errors
    /// An implicit stream (NULL, legacy, per thread), a stream of another context.
    ///
    /// # Safety
    /// The stream exists until the last clone of the result was dropped.
    pub unsafe fn adopt_stream(&self, stream: usize, name: &str) -> Result<CudaStream, GpuError> {
        let raw = core::ptr::with_exposed_provenance_mut(stream);
        // SAFETY: (6) is the caller's.
        unsafe { CudaStream::adopt(&self.0, raw, name, None) }
    }

    /// Takes an engine's own memory, by device address. It is never freed.
    ///
    /// # Errors
    /// Memory that is not on this device, or not in multiples of 4 bytes.
    ///
    /// # Safety
    /// The memory is allocated until the last clone of the result was dropped and all work on it
    /// has ended.
    pub unsafe fn adopt_memory(&self, address: u64, bytes: u64) -> Result<CudaMemory, GpuError> {
        CudaMemory::adopt(&self.0, address, bytes, None)
    }

    fn check_range(
        &self,
        what: &'static str,
        memory: &CudaMemory,
        offset: u64,
        bytes: usize,
    ) -> Result<(), GpuError> {
        check::access(what, memory.len(), offset, bytes as u64)?;
        self.0.check_same(what, "memory", memory.owner())
    }
}

impl Device for CudaDevice {
    type Memory = CudaMemory;
    type Stream = CudaStream;
    type Event = CudaEvent;

    fn enter_thread(&self) -> Result<(), GpuError> {
        self.0.enter_for_ever()
    }

    fn pinner(&self) -> Arc<dyn PagePinner> {
        Arc::new(CudaPinner(Arc::clone(&self.0)))
    }

    fn describe(&self) -> DeviceDescription {
        DeviceDescription {
            backend: "cuda",
            name: self.0.name().to_owned(),
            simulated_time: false,
            memory_bytes: Some(self.0.total_bytes),
        }
    }

    fn stats(&self) -> DeviceStats {
        self.0.counts.stats()
    }

    fn alloc(&self, bytes: u64) -> Result<CudaMemory, GpuError> {
        CudaMemory::new(&self.0, bytes)
    }

    fn most_pitch(&self) -> u64 {
        copy::MOST_PITCH
    }

    fn stream(&self, name: &str) -> Result<CudaStream, GpuError> {
        CudaStream::new(&self.0, name)
    }

    fn event(&self) -> Result<CudaEvent, GpuError> {
        CudaEvent::new(&self.0)
    }

    fn record(&self, event: &CudaEvent, stream: &CudaStream) -> Result<(), GpuError> {
        event.record(stream)
    }

    fn wait(&self, stream: &CudaStream, event: &CudaEvent) -> Result<(), GpuError> {
        let shared = stream.owner();
        let _scope = stream.enter("wait")?;
        event.check_recorded("wait")?;
        // SAFETY: (5), (6) stream and event exist.
        let status = unsafe { (shared.driver.cuStreamWaitEvent)(stream.raw(), event.raw(), 0) };
        shared.check("cuStreamWaitEvent", status)?;
        let crosses = event.owner().ordinal != shared.ordinal;
        self.0.counts.cross(crosses);
        Ok(())
    }

    fn is_complete(&self, event: &CudaEvent) -> Result<bool, GpuError> {
        self.0.check_alive()?;
        event.check_recorded("is_complete")?;
        event.is_complete()
    }

    fn synchronize(&self, event: &CudaEvent) -> Result<DeviceTime, GpuError> {
        self.0.check_alive()?;
        event.check_recorded("synchronize")?;
        event.wait()?;
        event.time()
    }

    fn copy(&self, stream: &CudaStream, batch: &CopyBatch<'_, Self>) -> Result<(), GpuError> {
        let shared = stream.owner();
        let tally = check::copy(self, batch)?;
        for plane in batch.planes.iter() {
            shared.check_same("copy", "memory", plane.owner())?;
        }
        if tally.bytes > 0 && !batch.host.report().pinned {
            return Err(GpuError::NotPinned);
        }
        let _scope = stream.enter("copy")?;
        let kept = [
            Kept::Planes(Arc::clone(batch.planes)),
            Kept::Pool(Arc::clone(batch.host)),
        ];
        stream.submit(&kept, || copy::submit(shared, stream.raw(), batch))?;
        self.0.counts.copy(batch.direction, tally);
        Ok(())
    }

    fn maps_host(&self) -> bool {
        self.0.maps_host
    }

    fn move_cells(&self, stream: &CudaStream, work: &CellMove<'_, Self>) -> Result<(), GpuError> {
        let moved = cells::submit(self, stream, work)?;
        if matches!(work.far, FarSide::Host(_)) {
            self.0.counts.moved(work.direction, moved);
        }
        Ok(())
    }

    fn fill_rows(
        &self,
        stream: &CudaStream,
        plane: &CudaMemory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(), GpuError> {
        let work = RowWork {
            plane,
            base,
            params,
            spans,
        };
        launch::fill_rows(stream, &work)
    }

    fn verify_rows(
        &self,
        stream: &CudaStream,
        plane: &CudaMemory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
        log: &CudaMemory,
    ) -> Result<(), GpuError> {
        let work = RowWork {
            plane,
            base,
            params,
            spans,
        };
        launch::verify_rows(stream, &work, log)
    }

    fn occupy(&self, stream: &CudaStream, nanos: u64) -> Result<(), GpuError> {
        launch::spin(stream, nanos)
    }

    fn not_before(&self, _stream: &CudaStream, _time: DeviceTime) -> Result<(), GpuError> {
        self.0.check_alive()
    }

    fn now(&self) -> DeviceTime {
        self.0.clock.now()
    }

    fn advance_to(&self, time: DeviceTime) {
        std::thread::sleep(Duration::from_nanos(time.since(self.now())));
    }

    fn write(&self, memory: &CudaMemory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.check_range("write", memory, offset, bytes.len())?;
        let _scope = self.0.enter()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (to, from) = (memory.at(offset), bytes.as_ptr().cast());
        // SAFETY: (3) the bytes outlive the copy, which ends below; (7) the range was checked.
        let status =
            unsafe { (self.0.driver.cuMemcpyHtoDAsync_v2)(to, from, bytes.len(), self.0.io) };
        self.0.check("cuMemcpyHtoDAsync", status)?;
        self.0.finish_io()
    }

    fn read(&self, memory: &CudaMemory, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.check_range("read", memory, offset, bytes.len())?;
        let _scope = self.0.enter()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (to, from) = (bytes.as_mut_ptr().cast(), memory.at(offset));
        // SAFETY: (3) the bytes outlive the copy, which ends below; (7) the range was checked.
        let status =
            unsafe { (self.0.driver.cuMemcpyDtoHAsync_v2)(to, from, bytes.len(), self.0.io) };
        self.0.check("cuMemcpyDtoHAsync", status)?;
        self.0.finish_io()
    }

    fn memory_len(&self, memory: &CudaMemory) -> u64 {
        memory.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine with a driver this opens a device; elsewhere the library is named, with what to
    /// do, and nothing panics, however often it is asked.
    #[test]
    fn a_missing_driver_is_an_error_that_says_what_to_do() {
        for _ in 0..2 {
            match CudaDevice::new(0) {
                Ok(device) => assert_eq!(device.describe().backend, "cuda"),
                Err(GpuError::Unavailable { device, reason }) => {
                    assert_eq!(device, "cuda");
                    assert!(
                        reason.contains("libcuda") || reason.contains("cuInit"),
                        "{reason}"
                    );
                    assert!(reason.contains("driver"), "{reason}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
