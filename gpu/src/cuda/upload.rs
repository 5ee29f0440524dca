// SPDX-License-Identifier: Apache-2.0
//! Lists that kernels read where the host wrote them: pinned and mapped blocks, used again once the
//! kernel that read one has ended. A copy of such a list would wait behind the copies in flight.

use core::ffi::c_void;
use std::collections::VecDeque;

use cudarc::driver::sys::CUevent;
use striata_core::sync::Mutex;
use striata_kernels::cells::Cell;

use super::shared::Shared;
use super::status::SUCCESS;
use super::stream::{CudaStream, UNTIMED};
use crate::error::GpuError;

/// Cells of a block: 256 KiB.
pub(super) const CELLS: usize = 16_384;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const FLAGS: u32 = 1 | 2;

/// Blocks, the one that was used longest ago first.
#[derive(Debug, Default)]
pub(super) struct Uploads(Mutex<VecDeque<Block>>);

/// A block of host memory with room for [`CELLS`] cells.
#[derive(Debug)]
struct Block {
    at: *mut c_void,
    /// Behind the kernel that read it last.
    read: CUevent,
}

// SAFETY: (5) the block is its owner's alone, and handles may be used from any thread.
unsafe impl Send for Block {}

impl Uploads {
    /// Writes `cells`, no more than [`CELLS`], where a kernel can read them, and lets `launch`
    /// submit the kernel to `stream` with the device's address of the list. Only in the context,
    /// and inside [`CudaStream::submit`].
    pub(super) fn with(
        &self,
        shared: &Shared,
        stream: &CudaStream,
        cells: &[Cell],
        launch: impl FnOnce(u64) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let block = self.take(shared)?;
        let count = cells.len().min(CELLS);
        let to = block.at.cast::<Cell>();
        // SAFETY: (3) the block holds `CELLS` cells, is the caller's alone and no kernel reads it
        // any more.
        unsafe { core::ptr::copy_nonoverlapping(cells.as_ptr(), to, count) };
        let launched = launch(block.at.expose_provenance() as u64);
        // SAFETY: (5), (6) event and stream exist.
        let status = unsafe { (shared.driver.cuEventRecord)(block.read, stream.raw()) };
        let marked = shared.check("cuEventRecord", status);
        if marked.is_ok() {
            self.0.lock().push_back(block);
        }
        // A block that was not marked is never used again; a kernel may still read it.
        launched.and(marked)
    }

    /// The oldest block if nothing reads it any more, else a new one.
    fn take(&self, shared: &Shared) -> Result<Block, GpuError> {
        let mut blocks = self.0.lock();
        if let Some(block) = blocks.pop_front() {
            // SAFETY: (5) the event exists.
            let status = unsafe { (shared.driver.cuEventQuery)(block.read) };
            if status == SUCCESS {
                return Ok(block);
            }
            blocks.push_front(block);
        }
        drop(blocks);
        Block::new(shared)
    }

    /// Gives every block back. Only in the context, and once no stream of the device is left.
    pub(super) fn free(&self, shared: &Shared) {
        for block in self.0.lock().drain(..) {
            block.free(shared);
        }
    }
}

impl Block {
    fn new(shared: &Shared) -> Result<Self, GpuError> {
        let mut read = core::ptr::null_mut();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (shared.driver.cuEventCreate)(&raw mut read, UNTIMED) };
        shared.check("cuEventCreate", status)?;
        let mut at = core::ptr::null_mut();
        let bytes = CELLS * size_of::<Cell>();
        // SAFETY: (3) the place outlives the call.
        let status = unsafe { (shared.driver.cuMemHostAlloc)(&raw mut at, bytes, FLAGS) };
        let had = shared.check("cuMemHostAlloc", status);
        let had = had.and_then(|()| match at.is_null() {
            false => Ok(()),
            true => Err(GpuError::Argument {
                call: "cuMemHostAlloc",
                reason: format!("the driver gave no memory for {bytes} bytes"),
            }),
        });
        if let Err(error) = had {
            // SAFETY: (5) nobody else has the event.
            let status = unsafe { (shared.driver.cuEventDestroy_v2)(read) };
            shared.note("cuEventDestroy", status);
            return Err(error);
        }
        Ok(Self { at, read })
    }

    fn free(self, shared: &Shared) {
        // SAFETY: (5), (6) the block is this value's, and the streams whose kernels read it are
        // gone, each having waited for its work.
        let status = unsafe { (shared.driver.cuMemFreeHost)(self.at) };
        shared.note("cuMemFreeHost", status);
        // SAFETY: (5) nobody uses the event after this.
        let status = unsafe { (shared.driver.cuEventDestroy_v2)(self.read) };
        shared.note("cuEventDestroy", status);
    }
}
