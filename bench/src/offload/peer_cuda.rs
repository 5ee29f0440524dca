// SPDX-License-Identifier: Apache-2.0
//! Copies by a kernel on a GPU.

use striata_gpu::cuda::CudaDevice;
use striata_gpu::{CopyBatch, GpuError};

use super::peer::KernelCopies;

impl KernelCopies for CudaDevice {
    fn copy_by_kernel(
        &self,
        stream: &Self::Stream,
        batch: &CopyBatch<'_, Self>,
        blocks: u32,
    ) -> Result<(), GpuError> {
        self.copy_runs_by_kernel(stream, batch, blocks)
    }
}
