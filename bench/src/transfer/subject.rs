// SPDX-License-Identifier: Apache-2.0
//! What the benchmark asks of a device beside the `Device` trait.

use core::fmt;

use std::sync::Arc;
use striata_core::PagePair;
use striata_gpu::sim::SimDevice;
use striata_gpu::{Device, Direction, GpuError, L1Planes};
use striata_host::HostPool;

/// Something that can be launched on a stream, again and again.
pub type Launch<D> = Box<dyn Fn(&<D as Device>::Stream) -> Result<(), GpuError>>;

/// Compute that copies run beside.
pub struct Compute<D: Device> {
    /// What it is.
    pub name: &'static str,
    /// Whether it is the small decode GEMMs, which have bars.
    pub decode: bool,
    /// A few milliseconds of it, or why it cannot be had.
    pub run: Result<Launch<D>, String>,
}

impl<D: Device> fmt::Debug for Compute<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A device that can be measured.
pub trait Subject: Device {
    /// A handle of the same device whose copies are a call a run, and most runs of one batch.
    ///
    /// # Errors
    /// A lost device.
    fn plain(&self) -> Result<(Self, usize), GpuError>;

    /// A launch that copies pages by one kernel of `blocks` blocks; none on devices without
    /// kernels.
    ///
    /// # Errors
    /// Pages or rows that the kernel cannot take; no room; a lost device.
    fn page_kernel(
        &self,
        planes: &Arc<L1Planes<Self>>,
        host: &Arc<HostPool>,
        pairs: &[PagePair],
        direction: Direction,
        blocks: u32,
    ) -> Result<Option<Launch<Self>>, GpuError>;

    /// Compute to run beside copies on `stream`; none on devices without any.
    ///
    /// # Errors
    /// No room; a lost device.
    fn compute(&self, stream: &Self::Stream) -> Result<Vec<Compute<Self>>, GpuError>;
}

impl Subject for SimDevice {
    fn plain(&self) -> Result<(Self, usize), GpuError> {
        Ok((self.clone(), 1))
    }

    fn page_kernel(
        &self,
        _planes: &Arc<L1Planes<Self>>,
        _host: &Arc<HostPool>,
        _pairs: &[PagePair],
        _direction: Direction,
        _blocks: u32,
    ) -> Result<Option<Launch<Self>>, GpuError> {
        Ok(None)
    }

    fn compute(&self, _stream: &Self::Stream) -> Result<Vec<Compute<Self>>, GpuError> {
        Ok(Vec::new())
    }
}
