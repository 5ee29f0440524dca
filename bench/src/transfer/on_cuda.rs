// SPDX-License-Identifier: Apache-2.0
//! What the benchmark asks of a GPU.

use std::sync::Arc;

use striata_core::PagePair;
use striata_gpu::cuda::{CudaConfig, CudaDevice};
use striata_gpu::{Direction, GpuError, L1Planes};
use striata_host::HostPool;

use super::subject::{Compute, Launch, Subject};

/// A driver of this version has no batched copies.
const NO_BATCHES: i32 = 12_000;

impl Subject for CudaDevice {
    fn plain(&self) -> Result<(Self, usize), GpuError> {
        let plain = Self::with_config(CudaConfig {
            index: self.index(),
            newest_version: Some(NO_BATCHES),
        })?;
        Ok((plain, usize::MAX))
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
