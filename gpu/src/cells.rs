// SPDX-License-Identifier: Apache-2.0
//! Bytes that a kernel moves between planes and one far side: rows by list, pages of planes that
//! rectangles cannot cover.

use std::sync::Arc;

use striata_host::HostPool;
use striata_kernels::cells::Cell;

use crate::device::{Device, Direction};
use crate::planes::PlaneSpan;

/// Where the bytes of cells stand that are not in planes.
#[derive(Debug)]
pub enum FarSide<'a, D: Device> {
    /// Mapped host memory; only where [`Device::maps_host`] says so.
    Host(&'a Arc<HostPool>),
    /// A buffer of the device.
    Memory(&'a D::Memory),
}

impl<D: Device> Clone for FarSide<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Device> Copy for FarSide<'_, D> {}

/// Cells that one kernel moves. No two share a byte of the side that is written.
#[derive(Debug)]
pub struct CellMove<'a, D: Device> {
    /// To the device: from the far side to the planes; to the host: from the planes to the far
    /// side, also if that is a buffer.
    pub direction: Direction,
    /// Memory that layers index.
    pub planes: &'a Arc<[D::Memory]>,
    /// Plane of each layer that is moved.
    pub layers: &'a [PlaneSpan],
    /// The far side.
    pub far: FarSide<'a, D>,
    /// Byte of the far side from which cells count.
    pub far_base: u64,
    /// Bytes from a layer to the next on the far side.
    pub far_layer: u64,
    /// Where each cell stands: in the plane of every layer, and behind `far_base` in the first.
    pub cells: &'a [Cell],
    /// Bytes of a cell, a multiple of 4.
    pub cell_bytes: u64,
    /// Most blocks of the kernel.
    pub blocks: u32,
}
