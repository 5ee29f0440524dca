// SPDX-License-Identifier: Apache-2.0
//! Other ways to copy on a GPU.

use striata_gpu::cuda::{CudaConfig, CudaDevice};
use striata_gpu::{CopyBatch, Device, GpuError};

use super::peer::LoadPeers;

/// A driver of this version has no batched copies: every run is a call.
const NO_BATCHES: i32 = 12_000;

impl LoadPeers for CudaDevice {
    fn plain(&self) -> Result<Self, GpuError> {
        Self::with_config(CudaConfig {
            index: self.index(),
            newest_version: Some(NO_BATCHES),
        })
    }

    fn copy_by_calls(
        &self,
        stream: &Self::Stream,
        batch: &CopyBatch<'_, Self>,
    ) -> Result<(), GpuError> {
        self.copy(stream, batch)
    }

    fn copy_by_kernel(
        &self,
        stream: &Self::Stream,
        batch: &CopyBatch<'_, Self>,
        blocks: u32,
    ) -> Result<(), GpuError> {
        self.copy_runs_by_kernel(stream, batch, blocks)
    }
}
