// SPDX-License-Identifier: Apache-2.0
//! The decode path on a GPU: shapes and ranges are checked, then one or two kernels are launched.
//!
//! | file | calls |
//! |---|---|
//! | `staging` | host memory that kernels read in place |
//! | `plan` | the plan of a step |
//! | `rows` | writing rows, gathering a prefix |
//! | `attend` | attention and the combination of its pieces |
//! | `merge` | merging, packing, unpacking |
//!
//! Nothing here allocates, waits or copies from pageable memory, so all of it can be captured.

mod attend;
mod merge;
mod plan;
mod rows;
mod staging;

pub use staging::CudaStaging;

use std::sync::atomic::AtomicU32;

use striata_kernels::decode::MmaSize;
use striata_kernels::source::Kernel;

use super::device::CudaDevice;
use super::shared::Shared;
use super::stream::CudaStream;
use crate::check;
use crate::decode::{
    Attend, BuildPlan, DecodeDevice, GatherPrefix, Merge, Pack, Unpack, View, WriteRows,
};
use crate::error::GpuError;

/// Bytes to which everything that the kernels read is aligned.
const ALIGN: u64 = 16;

impl DecodeDevice for CudaDevice {
    type Staging = CudaStaging;

    fn multiprocessors(&self) -> u32 {
        self.shared().multiprocessors
    }

    fn mma_size(&self) -> Option<MmaSize> {
        self.shared().mma_size
    }

    fn staging(&self, words: usize) -> Result<CudaStaging, GpuError> {
        CudaStaging::new(self.shared(), words)
    }

    fn staged<'a>(&self, staging: &'a CudaStaging) -> &'a [AtomicU32] {
        staging.words()
    }

    fn build_plan(&self, stream: &CudaStream, job: &BuildPlan<'_, Self>) -> Result<(), GpuError> {
        plan::build(stream, job)
    }

    fn write_rows(&self, stream: &CudaStream, job: &WriteRows<'_, Self>) -> Result<(), GpuError> {
        rows::write(stream, job)
    }

    fn attend(&self, stream: &CudaStream, job: &Attend<'_, Self>) -> Result<(), GpuError> {
        attend::attend(stream, job)
    }

    fn merge(&self, stream: &CudaStream, job: &Merge<'_, Self>) -> Result<(), GpuError> {
        merge::merge(stream, job)
    }

    fn pack(&self, stream: &CudaStream, job: &Pack<'_, Self>) -> Result<(), GpuError> {
        merge::pack(stream, job, false)
    }

    fn unpack(&self, stream: &CudaStream, job: &Unpack<'_, Self>) -> Result<(), GpuError> {
        merge::pack(stream, job, true)
    }

    fn gather_prefix(
        &self,
        stream: &CudaStream,
        job: &GatherPrefix<'_, Self>,
    ) -> Result<(), GpuError> {
        rows::gather_prefix(stream, job)
    }
}

/// The address of `bytes` bytes of a view, which lie in its memory, on the device, aligned.
fn address(
    shared: &Shared,
    what: &'static str,
    view: View<'_, CudaDevice>,
    bytes: u64,
) -> Result<u64, GpuError> {
    // Whole words: what a kernel touches is bounded by them.
    let words = bytes.checked_next_multiple_of(check::WORD);
    check::access(
        what,
        view.memory.len(),
        view.offset,
        words.unwrap_or(u64::MAX - 3),
    )?;
    shared.check_same(what, "memory", view.memory.owner())?;
    let address = view.memory.at(view.offset);
    aligned(what, address)?;
    Ok(address)
}

fn aligned(what: &'static str, value: u64) -> Result<(), GpuError> {
    if value.is_multiple_of(ALIGN) {
        return Ok(());
    }
    Err(GpuError::Argument {
        call: what,
        reason: format!("{value:#x} is not a multiple of {ALIGN} bytes"),
    })
}

/// The product of sizes, saturating: more than any memory has.
fn product(factors: &[u64]) -> u64 {
    factors
        .iter()
        .fold(1, |all, factor| all.saturating_mul(*factor))
}

/// Refuses a kernel whose shared memory the device lacks.
fn fits(shared: &Shared, call: &'static str, kernel: Kernel) -> Result<(), GpuError> {
    let (asked, most) = (kernel.shared_bytes(), shared.shared_memory);
    if asked <= most {
        return Ok(());
    }
    Err(GpuError::Argument {
        call,
        reason: format!(
            "{} needs {asked} bytes of shared memory a block and the device has {most}",
            kernel.entry()
        ),
    })
}
