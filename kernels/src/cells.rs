// SPDX-License-Identifier: Apache-2.0
//! Cells: equal numbers of bytes at any places of the planes of several layers, each with a place on
//! one far side: contract of the kernels that move them, and reference.
//!
//! In layer l of a move, the cell's bytes begin at `plane` of that layer's plane and at
//! `far + l * far_layer` of the far side, which is mapped host memory or a buffer of the device.

use bytemuck::{Pod, Zeroable};

/// Planes of one launch.
pub const PLANES: usize = 128;
/// Units that a warp moves at a time.
pub const PART: u32 = 4 * 32;

/// Where the bytes of a cell stand in layer 0 of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Cell {
    /// Byte of the plane.
    pub plane: u64,
    /// Byte of the far side.
    pub far: u64,
}

/// Arguments of the kernels; every address is a device's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CellParams {
    /// Address of the far side.
    pub far: u64,
    /// Bytes from a layer to the next on the far side.
    pub far_layer: u64,
    /// Address of the list of cells.
    pub cells: u64,
    /// Cells of the list.
    pub count: u64,
    /// Parts of all cells in all layers.
    pub total: u64,
    /// Layers.
    pub layers: u32,
    /// Units of a cell: 16, 8 or 4 bytes each.
    pub units: u32,
    /// Parts of a cell: units / [`PART`], rounded up.
    pub parts: u32,
    /// Parts that a warp takes at once, 1 to 32.
    pub batch: u32,
    /// Addresses of the planes.
    pub planes: [u64; PLANES],
}

// Kernel arguments are limited to 4096 bytes on every architecture.
const _: () = assert!(size_of::<CellParams>() == 56 + 8 * PLANES);
const _: () = assert!(size_of::<Cell>() == 16 && size_of::<CellParams>() <= 4096);

/// One cell in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the layer in the move.
    pub layer: u32,
    /// Byte of that layer's plane.
    pub plane: u64,
    /// Byte of the far side.
    pub far: u64,
}

/// Every cell in every layer, layer by layer: the bytes at `plane` and at `far` of each are those
/// that a move makes equal. The offsets were checked not to wrap.
pub fn places(cells: &[Cell], layers: u32, far_layer: u64) -> impl Iterator<Item = Place> + '_ {
    (0..layers).flat_map(move |layer| {
        cells.iter().map(move |cell| Place {
            layer,
            plane: cell.plane,
            far: cell.far + u64::from(layer) * far_layer,
        })
    })
}

/// How the work of a launch is cut, for `warps` warps.
#[must_use]
pub fn cut(units: u32, count: u64, layers: u32, warps: u64) -> (u32, u64, u32) {
    let parts = units.div_ceil(PART).max(1);
    let total = count
        .saturating_mul(u64::from(layers))
        .saturating_mul(u64::from(parts));
    let batch = total.div_ceil(warps.max(1)).clamp(1, 16);
    (parts, total, u32::try_from(batch).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_layer_by_layer() {
        let cells = [Cell { plane: 4, far: 100 }, Cell { plane: 0, far: 0 }];
        let found: Vec<_> = places(&cells, 2, 1000)
            .map(|place| (place.layer, place.plane, place.far))
            .collect();
        assert_eq!(found, [(0, 4, 100), (0, 0, 0), (1, 4, 1100), (1, 0, 1000)]);
    }

    #[test]
    fn every_warp_gets_work_before_one_gets_more() {
        // 4,096 rows of 1,152 bytes on 16 blocks of 512 threads.
        assert_eq!(cut(72, 4096, 1, 256), (1, 4096, 16));
        assert_eq!(cut(72, 64, 1, 256), (1, 64, 1));
        // Pages of 73,728 bytes.
        assert_eq!(cut(4608, 8, 2, 256), (36, 576, 3));
        assert_eq!(cut(0, 0, 0, 0), (1, 0, 1));
    }
}
