// SPDX-License-Identifier: Apache-2.0
//! Rows whose values follow from seeds: the launch.

use striata_kernels::source::Kernel;

use super::device::CudaDevice;
use super::keep::Kept;
use super::launch::{Grid, ROW_THREADS, ROW_WARPS, argument, launch};
use super::stream::CudaStream;
use crate::check::{self, WORD};
use crate::decode::{FillValues, ValueDevice};
use crate::error::GpuError;

/// Bytes of a seed.
const SEED: u64 = 2 * WORD;

impl ValueDevice for CudaDevice {
    fn fill_values(&self, stream: &CudaStream, job: &FillValues<'_, Self>) -> Result<(), GpuError> {
        let shared = stream.owner();
        let (dense, seeds) = (job.dense, job.seeds);
        let bytes = |each: u64| job.rows.checked_mul(each).unwrap_or(u64::MAX - 3);
        let row_bytes = u64::from(job.row_words) * WORD;
        let what = "fill_values: the rows";
        check::access(what, dense.memory.len(), dense.offset, bytes(row_bytes))?;
        let what = "fill_values: the seeds";
        check::access(what, seeds.memory.len(), seeds.offset, bytes(SEED))?;
        if !(seeds.memory.at(seeds.offset)).is_multiple_of(SEED) {
            return Err(GpuError::Argument {
                call: "fill_values",
                reason: format!("the seeds begin at byte {}, between seeds", seeds.offset),
            });
        }
        shared.check_same("fill_values", "rows", dense.memory.owner())?;
        shared.check_same("fill_values", "seeds", seeds.memory.owner())?;
        if job.rows == 0 || job.row_words == 0 {
            return Ok(());
        }
        let _scope = stream.enter_launch("fill_values")?;
        let kept = [dense.memory, seeds.memory].map(|memory| Kept::Memory(memory.clone()));
        stream.submit(&kept, || {
            let mut to = dense.memory.at(dense.offset);
            let mut from = seeds.memory.at(seeds.offset);
            let (mut rows, mut words, mut layer) = (job.rows, job.row_words, job.layer);
            let grid = Grid::over(shared, rows, ROW_WARPS, ROW_THREADS);
            let mut list = [
                argument(&mut to),
                argument(&mut from),
                argument(&mut rows),
                argument(&mut words),
                argument(&mut layer),
            ];
            // SAFETY: (7) rows and seeds lie in their memories; (9) twin of `striata_fill_values`.
            unsafe { launch(shared, stream, Kernel::FillValues, grid, &mut list) }
        })
    }
}
