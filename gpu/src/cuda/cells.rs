// SPDX-License-Identifier: Apache-2.0
//! Kernels that move cells between planes and mapped host memory or a buffer.

use striata_kernels::cells::{self, CellParams, PLANES};
use striata_kernels::row_list::unit_of;
use striata_kernels::source::Kernel;

use super::device::CudaDevice;
use super::keep::Kept;
use super::launch::{Grid, argument, launch};
use super::shared::Shared;
use super::stream::CudaStream;
use super::upload::CELLS;
use crate::cells::{CellMove, FarSide};
use crate::check;
use crate::device::Direction;
use crate::error::GpuError;

/// Threads of a block, and its warps.
const THREADS: u32 = 512;
const WARPS: u64 = THREADS as u64 / 32;

const GATHER: [Kernel; 3] = [
    Kernel::GatherCells16,
    Kernel::GatherCells8,
    Kernel::GatherCells4,
];
const SCATTER: [Kernel; 3] = [
    Kernel::ScatterCells16,
    Kernel::ScatterCells8,
    Kernel::ScatterCells4,
];

/// Submits a move: a launch for as many cells as one list holds and as many layers as one has
/// arguments for. Returns its bytes.
pub(super) fn submit(
    device: &CudaDevice,
    stream: &CudaStream,
    work: &CellMove<'_, CudaDevice>,
) -> Result<u64, GpuError> {
    let shared = stream.owner();
    let facts = check::cells(device, work)?;
    for plane in work.planes.iter() {
        shared.check_same("move_cells", "memory", plane.owner())?;
    }
    if facts.bytes == 0 {
        return Ok(0);
    }
    let (far, kept) = far_side(shared, work)?;
    let kept = [Kept::Planes(work.planes.clone()), kept];
    // Planes begin where the allocation does, plus offsets that are in the facts.
    let bases = work
        .planes
        .iter()
        .fold(far, |bits, plane| bits | plane.at(0));
    let unit = unit_of_bytes(work.cell_bytes, facts.bits | bases)?;
    let _scope = stream.enter("move_cells")?;
    stream.submit(&kept, || {
        let mut first_layer = 0u64;
        for layers in work.layers.chunks(PLANES) {
            let mut planes = [0; PLANES];
            for (address, span) in planes.iter_mut().zip(layers) {
                if let Some(plane) = work.planes.get(span.memory as usize) {
                    *address = plane.at(span.offset);
                }
            }
            for list in work.cells.chunks(CELLS) {
                let launch_of = Launch {
                    far: far + work.far_base + first_layer * work.far_layer,
                    planes,
                    layers: layers.len(),
                    list,
                    unit,
                };
                launch_of.submit(shared, stream, work)?;
            }
            first_layer += layers.len() as u64;
        }
        Ok(())
    })?;
    Ok(facts.bytes)
}

/// One launch of a move.
struct Launch<'a> {
    far: u64,
    planes: [u64; PLANES],
    layers: usize,
    list: &'a [cells::Cell],
    unit: u32,
}

impl Launch<'_> {
    fn submit(
        &self,
        shared: &Shared,
        stream: &CudaStream,
        work: &CellMove<'_, CudaDevice>,
    ) -> Result<(), GpuError> {
        let layers = u32::try_from(self.layers).unwrap_or(u32::MAX);
        let units = work.cell_bytes / u64::from(self.unit);
        let units = u32::try_from(units).map_err(|_| GpuError::Argument {
            call: "move_cells",
            reason: format!("cells of {} bytes are too large", work.cell_bytes),
        })?;
        let count = self.list.len() as u64;
        let blocks = u64::from(work.blocks.max(1));
        let (parts, total, batch) = cells::cut(units, count, layers, blocks * WARPS);
        let needed = total.div_ceil(WARPS * u64::from(batch)).clamp(1, blocks);
        let grid = Grid {
            x: u32::try_from(needed).unwrap_or(u32::MAX),
            y: 1,
            threads: THREADS,
        };
        let kernels = match work.direction {
            Direction::HostToDevice => SCATTER,
            Direction::DeviceToHost => GATHER,
        };
        let kernel = match self.unit {
            16 => kernels[0],
            8 => kernels[1],
            _ => kernels[2],
        };
        // Found first, so that a kernel that cannot be had takes no block.
        shared.modules.function(shared, kernel)?;
        shared.uploads.with(shared, stream, self.list, |cells| {
            let mut params = CellParams {
                far: self.far,
                far_layer: work.far_layer,
                cells,
                count,
                total,
                layers,
                units,
                parts,
                batch,
                planes: self.planes,
            };
            let mut list = [argument(&mut params)];
            // SAFETY: (7) every cell lies in its memory in every layer, and the list holds `count`
            // cells; (9) twin of `striata_gather_cells` and `striata_scatter_cells`.
            unsafe { launch(shared, stream, kernel, grid, &mut list) }
        })
    }
}

/// The device's address of the far side, and its owner.
fn far_side(shared: &Shared, work: &CellMove<'_, CudaDevice>) -> Result<(u64, Kept), GpuError> {
    match work.far {
        FarSide::Host(pool) => {
            if !pool.report().pinned {
                return Err(GpuError::NotPinned);
            }
            if !shared.maps_host {
                return Err(GpuError::Argument {
                    call: "move_cells",
                    reason: "this device has other addresses for registered host memory".to_owned(),
                });
            }
            Ok((pool.address() as u64, Kept::Pool(pool.clone())))
        }
        FarSide::Memory(memory) => {
            shared.check_same("move_cells", "memory", memory.owner())?;
            Ok((memory.at(0), Kept::Memory(memory.clone())))
        }
    }
}

/// Bytes that the kernel moves at a time.
fn unit_of_bytes(cell_bytes: u64, bits: u64) -> Result<u32, GpuError> {
    // What divides every offset, address and size divides the lowest bit that one of them has.
    let lowest = (cell_bytes | bits | 16) & (cell_bytes | bits | 16).wrapping_neg();
    unit_of(16, &[lowest]).ok_or(GpuError::Misaligned {
        what: "move_cells: an address",
        value: lowest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b41_the_unit_divides_sizes_offsets_and_addresses() {
        assert_eq!(unit_of_bytes(1152, 4096), Ok(16));
        assert_eq!(unit_of_bytes(584, 4096), Ok(8));
        assert_eq!(unit_of_bytes(12, 4096), Ok(4));
        assert_eq!(unit_of_bytes(1152, 4096 | 264), Ok(8));
        assert_eq!(unit_of_bytes(1152, 4100), Ok(4));
        assert!(unit_of_bytes(1152, 2).is_err());
    }
}
