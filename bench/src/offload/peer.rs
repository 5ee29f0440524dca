// SPDX-License-Identifier: Apache-2.0
//! A device whose load-backs are copied by a kernel.

use std::sync::Arc;

use striata_gpu::{
    CopyBatch, CopyFailure, Device, DeviceDescription, DeviceStats, DeviceTime, Direction, GpuError,
};
use striata_host::PagePinner;
use striata_kernels::rows::{RowParams, RowSpan};

/// A device that can also copy by a kernel instead of its copy engines.
pub trait KernelCopies: Device {
    /// Copies by a kernel of `blocks` blocks on mapped host memory.
    ///
    /// # Errors
    /// As [`Device::copy`]; pieces that the kernel cannot take.
    fn copy_by_kernel(
        &self,
        stream: &Self::Stream,
        batch: &CopyBatch<'_, Self>,
        blocks: u32,
    ) -> Result<(), GpuError>;
}

/// A device that is `D`, but that its copies from the host may go by a kernel.
#[derive(Clone, Debug)]
pub struct Peer<D: KernelCopies> {
    device: D,
    blocks: Option<u32>,
}

impl<D: KernelCopies> Peer<D> {
    /// `device`, whose copies from the host go by a kernel of so many blocks, if any are given.
    pub const fn new(device: D, blocks: Option<u32>) -> Self {
        Self { device, blocks }
    }
}

impl<D: KernelCopies> Device for Peer<D> {
    type Memory = D::Memory;
    type Stream = D::Stream;
    type Event = D::Event;

    fn enter_thread(&self) -> Result<(), GpuError> {
        self.device.enter_thread()
    }
    fn pinner(&self) -> Arc<dyn PagePinner> {
        self.device.pinner()
    }
    fn describe(&self) -> DeviceDescription {
        self.device.describe()
    }
    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
    fn alloc(&self, bytes: u64) -> Result<D::Memory, GpuError> {
        self.device.alloc(bytes)
    }
    fn most_pitch(&self) -> u64 {
        self.device.most_pitch()
    }
    fn stream(&self, name: &str) -> Result<D::Stream, GpuError> {
        self.device.stream(name)
    }
    fn event(&self) -> Result<D::Event, GpuError> {
        self.device.event()
    }
    fn record(&self, event: &D::Event, stream: &D::Stream) -> Result<(), GpuError> {
        self.device.record(event, stream)
    }
    fn wait(&self, stream: &D::Stream, event: &D::Event) -> Result<(), GpuError> {
        self.device.wait(stream, event)
    }
    fn is_complete(&self, event: &D::Event) -> Result<bool, GpuError> {
        self.device.is_complete(event)
    }
    fn synchronize(&self, event: &D::Event) -> Result<DeviceTime, GpuError> {
        self.device.synchronize(event)
    }
    fn event_time(&self, event: &D::Event) -> Result<Option<DeviceTime>, GpuError> {
        self.device.event_time(event)
    }
    fn copy_failures(&self, event: &D::Event) -> Result<Vec<CopyFailure>, GpuError> {
        self.device.copy_failures(event)
    }

    fn copy(&self, stream: &D::Stream, batch: &CopyBatch<'_, Self>) -> Result<(), GpuError> {
        let batch = CopyBatch {
            direction: batch.direction,
            form: batch.form,
            planes: batch.planes,
            host: batch.host,
            pieces: batch.pieces,
        };
        match (batch.direction, self.blocks) {
            (Direction::HostToDevice, Some(blocks)) => {
                self.device.copy_by_kernel(stream, &batch, blocks)
            }
            _ => self.device.copy(stream, &batch),
        }
    }

    fn fill_rows(
        &self,
        stream: &D::Stream,
        plane: &D::Memory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
    ) -> Result<(), GpuError> {
        self.device.fill_rows(stream, plane, base, params, spans)
    }

    fn verify_rows(
        &self,
        stream: &D::Stream,
        plane: &D::Memory,
        base: u64,
        params: RowParams,
        spans: &Arc<[RowSpan]>,
        log: &D::Memory,
    ) -> Result<(), GpuError> {
        self.device
            .verify_rows(stream, plane, base, params, spans, log)
    }

    fn occupy(&self, stream: &D::Stream, nanos: u64) -> Result<(), GpuError> {
        self.device.occupy(stream, nanos)
    }
    fn not_before(&self, stream: &D::Stream, time: DeviceTime) -> Result<(), GpuError> {
        self.device.not_before(stream, time)
    }
    fn now(&self) -> DeviceTime {
        self.device.now()
    }
    fn advance_to(&self, time: DeviceTime) {
        self.device.advance_to(time);
    }
    fn write(&self, memory: &D::Memory, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.device.write(memory, offset, bytes)
    }
    fn read(&self, memory: &D::Memory, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.device.read(memory, offset, bytes)
    }
    fn memory_len(&self, memory: &D::Memory) -> u64 {
        self.device.memory_len(memory)
    }
}
