// SPDX-License-Identifier: Apache-2.0
//! Launches: one safe function a kernel, which checks shapes first.

use core::ffi::c_void;

use striata_kernels::rows::{RECORD_WORDS, RowParams, RowSpan};
use striata_kernels::source::Kernel;
use striata_kernels::spans::SpanBatch;

use super::keep::Kept;
use super::memory::CudaMemory;
use super::shared::Shared;
use super::stream::CudaStream;
use crate::check;
use crate::error::GpuError;

/// Threads of a block of a kernel that works a warp a row, and its warps.
pub(super) const ROW_THREADS: u32 = 256;
pub(super) const ROW_WARPS: u32 = ROW_THREADS / 32;
/// Blocks for each multiprocessor that fill the device.
const BLOCKS_EACH: u32 = 8;

/// The shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) threads: u32,
}

impl Grid {
    /// Blocks that work on `items` items, `each` at a time, and no more than fill the device.
    pub(super) fn over(shared: &Shared, items: u64, each: u32, threads: u32) -> Self {
        let most = shared.multiprocessors.saturating_mul(BLOCKS_EACH);
        let wanted = items.div_ceil(u64::from(each.max(1)));
        Self {
            x: u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, most),
            y: 1,
            threads,
        }
    }
}

/// The address of a kernel argument.
pub(super) const fn argument<T: Copy>(value: &mut T) -> *mut c_void {
    (&raw mut *value).cast()
}

/// Launches a kernel. Only in the context, and inside [`CudaStream::submit`].
///
/// # Safety
/// Obligations 7 and 9: `arguments` are the addresses of values of exactly the kernel's parameters,
/// and the kernel stays inside the memory that they name.
pub(super) unsafe fn launch(
    shared: &Shared,
    stream: &CudaStream,
    kernel: Kernel,
    grid: Grid,
    arguments: &mut [*mut c_void],
) -> Result<(), GpuError> {
    let function = shared.modules.function(shared, kernel)?;
    let list = arguments.as_mut_ptr();
    let Grid { x, y, threads } = grid;
    let (raw, none, room) = (stream.raw(), core::ptr::null_mut(), kernel.shared_bytes());
    // SAFETY: (5) function and stream exist; (7), (9) are the caller's.
    let status = unsafe {
        (shared.driver.cuLaunchKernel)(function, x, y, 1, threads, 1, 1, room, raw, list, none)
    };
    shared.check("cuLaunchKernel", status)?;
    shared.counts.kernel();
    Ok(())
}

/// Rows of a plane that a kernel writes or compares.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowWork<'a> {
    pub(super) plane: &'a CudaMemory,
    pub(super) base: u64,
    pub(super) params: RowParams,
    pub(super) spans: &'a [RowSpan],
}

impl RowWork<'_> {
    fn check(&self, what: &'static str, shared: &Shared) -> Result<(), GpuError> {
        check::spans(what, self.plane.len(), self.base, self.params, self.spans)?;
        shared.check_same(what, "memory", self.plane.owner())
    }

    /// One launch for each batch of spans; rows of no words have nothing to do.
    fn each(
        &self,
        shared: &Shared,
        mut launch: impl FnMut(Grid, SpanBatch) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        if self.params.row_words == 0 {
            return Ok(());
        }
        SpanBatch::all(self.spans).try_for_each(|batch| {
            let rows = u64::from(batch.longest());
            let grid = Grid {
                y: batch.count,
                ..Grid::over(shared, rows, ROW_WARPS, ROW_THREADS)
            };
            launch(grid, batch)
        })
    }
}

/// Writes fingerprints.
pub(super) fn fill_rows(stream: &CudaStream, work: &RowWork<'_>) -> Result<(), GpuError> {
    let shared = stream.owner();
    work.check("fill_rows", shared)?;
    let _scope = stream.enter_launch("fill_rows")?;
    let kept = [Kept::Memory(work.plane.clone())];
    stream.submit(&kept, || {
        work.each(shared, |grid, mut batch| {
            let (mut plane, mut params) = (work.plane.at(work.base), work.params);
            let mut list = [
                argument(&mut plane),
                argument(&mut params),
                argument(&mut batch),
            ];
            // SAFETY: (7) the spans lie in the plane; (9) twin of `striata_fill_rows`.
            unsafe { launch(shared, stream, Kernel::FillRows, grid, &mut list) }
        })
    })
}

/// Compares fingerprints and appends to `log` what differs.
pub(super) fn verify_rows(
    stream: &CudaStream,
    work: &RowWork<'_>,
    log: &CudaMemory,
) -> Result<(), GpuError> {
    let shared = stream.owner();
    work.check("verify_rows", shared)?;
    check::access(
        "verify_rows: the count of the log",
        log.len(),
        0,
        check::WORD,
    )?;
    shared.check_same("verify_rows", "log", log.owner())?;
    let _scope = stream.enter_launch("verify_rows")?;
    let room = (log.len() / check::WORD - 1) / RECORD_WORDS as u64;
    let kept = [Kept::Memory(work.plane.clone()), Kept::Memory(log.clone())];
    stream.submit(&kept, || {
        work.each(shared, |grid, mut batch| {
            let (mut plane, mut params) = (work.plane.at(work.base), work.params);
            let (mut log, mut room) = (log.at(0), room);
            let mut list = [
                argument(&mut plane),
                argument(&mut params),
                argument(&mut batch),
                argument(&mut log),
                argument(&mut room),
            ];
            // SAFETY: (7) the spans lie in the plane, and the log has this room; (9) twin of
            // `striata_verify_rows`.
            unsafe { launch(shared, stream, Kernel::VerifyRows, grid, &mut list) }
        })
    })
}

/// Keeps a stream busy for a time.
pub(super) fn spin(stream: &CudaStream, nanos: u64) -> Result<(), GpuError> {
    let shared = stream.owner();
    let _scope = stream.enter_launch("occupy")?;
    let grid = Grid {
        x: 1,
        y: 1,
        threads: 1,
    };
    stream.submit(&[], || {
        let mut nanos = nanos;
        let mut list = [argument(&mut nanos)];
        // SAFETY: (7) it touches no memory; (9) twin of `striata_spin`.
        unsafe { launch(shared, stream, Kernel::Spin, grid, &mut list) }
    })
}
