// SPDX-License-Identifier: Apache-2.0
//! Copies by a kernel instead of the copy engines, a launch a batch: what benchmarks compare the
//! engine with.

use std::sync::Arc;

use striata_kernels::run_copy::{CopyRun, RunBatch, UNIT};
use striata_kernels::source::Kernel;

use super::device::CudaDevice;
use super::keep::Kept;
use super::launch::{Grid, argument, launch};
use super::stream::CudaStream;
use crate::check;
use crate::device::{CopyBatch, Direction};
use crate::error::GpuError;

/// Threads of a block.
const THREADS: u32 = 1024;

impl CudaDevice {
    /// As [`crate::Device::copy`], by a kernel of `blocks` blocks on mapped host memory, behind what
    /// `stream` holds.
    ///
    /// # Errors
    /// As [`crate::Device::copy`]; runs of several lengths, or places and lengths that are no
    /// multiples of 16 bytes.
    pub fn copy_runs_by_kernel(
        &self,
        stream: &CudaStream,
        batch: &CopyBatch<'_, Self>,
        blocks: u32,
    ) -> Result<(), GpuError> {
        let shared = stream.owner();
        let tally = check::copy(self, batch)?;
        for plane in batch.planes.iter() {
            shared.check_same("copy_runs_by_kernel", "memory", plane.owner())?;
        }
        if tally.bytes == 0 {
            return Ok(());
        }
        if !batch.host.report().pinned || !shared.maps_host_memory {
            return Err(GpuError::NotPinned);
        }
        let (units, runs) = runs_of(batch)?;
        let _scope = stream.enter_launch("copy_runs_by_kernel")?;
        let kept = [
            Kept::Planes(Arc::clone(batch.planes)),
            Kept::Pool(Arc::clone(batch.host)),
        ];
        let grid = Grid {
            x: blocks.max(1),
            y: 1,
            threads: THREADS,
        };
        stream.submit(&kept, || {
            RunBatch::all(units, &runs).try_for_each(|mut runs| {
                let mut list = [argument(&mut runs)];
                // SAFETY: (7), (8) every run was checked on both sides; (9) twin of
                // `striata_copy_runs`.
                unsafe { launch(shared, stream, Kernel::CopyRuns, grid, &mut list) }
            })
        })?;
        shared.counts.copy(batch.direction, tally);
        Ok(())
    }
}

/// The addresses of all pieces, which must be runs of one length; and that in units.
fn runs_of(batch: &CopyBatch<'_, CudaDevice>) -> Result<(u64, Vec<CopyRun>), GpuError> {
    let bytes = batch.pieces.first().map_or(0, |piece| piece.width);
    let mut runs = Vec::with_capacity(batch.pieces.len());
    for piece in batch.pieces {
        if piece.height != 1 || piece.width != bytes {
            return Err(refused(format!(
                "{} rows of {} bytes beside runs of {bytes}",
                piece.height, piece.width
            )));
        }
        let Some(plane) = batch.planes.get(piece.plane as usize) else {
            continue;
        };
        // Registered memory has one address for host and device (`maps_host_memory`).
        let (device, host) = (
            plane.at(piece.device),
            batch.host.address() as u64 + piece.host,
        );
        for place in [device, host, bytes] {
            if !place.is_multiple_of(UNIT) {
                return Err(refused(format!("{place} is no multiple of {UNIT} bytes")));
            }
        }
        runs.push(match batch.direction {
            Direction::HostToDevice => CopyRun {
                to: device,
                from: host,
            },
            Direction::DeviceToHost => CopyRun {
                to: host,
                from: device,
            },
        });
    }
    Ok((bytes / UNIT, runs))
}

fn refused(reason: String) -> GpuError {
    GpuError::Argument {
        call: "copy_runs_by_kernel",
        reason,
    }
}
