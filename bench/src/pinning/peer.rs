// SPDX-License-Identifier: Apache-2.0
//! What page-locked memory is compared with.

use std::time::{Duration, Instant};

use striata_gpu::cuda::CudaDevice;
use striata_gpu::sim::SimDevice;
use striata_gpu::{Device, GpuError};

/// How long an allocation took.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    /// To get it.
    pub alloc: Duration,
    /// To give it back.
    pub free: Duration,
}

/// A device whose platform may have page-locked memory of its own.
pub trait Peer: Device {
    /// Name of the platform's call; none where there is no such call.
    fn peer_name(&self) -> Option<&'static str>;

    /// Allocates page-locked host memory by the platform's own call and gives it back; none where
    /// there is no such call.
    ///
    /// # Errors
    /// No room; a lost device.
    fn alloc_by_platform(&self, bytes: u64) -> Result<Option<Allocated>, GpuError>;
}

impl Peer for CudaDevice {
    fn peer_name(&self) -> Option<&'static str> {
        Some("cuMemHostAlloc (cudaHostAlloc)")
    }

    fn alloc_by_platform(&self, bytes: u64) -> Result<Option<Allocated>, GpuError> {
        let began = Instant::now();
        let memory = self.alloc_host(bytes)?;
        let alloc = began.elapsed();
        let began = Instant::now();
        drop(memory);
        let free = began.elapsed();
        Ok(Some(Allocated { alloc, free }))
    }
}

impl Peer for SimDevice {
    fn peer_name(&self) -> Option<&'static str> {
        None
    }

    fn alloc_by_platform(&self, _bytes: u64) -> Result<Option<Allocated>, GpuError> {
        Ok(None)
    }
}
