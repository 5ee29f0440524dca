// SPDX-License-Identifier: Apache-2.0
//! Rows of a plane, found through the cells of a table.

use striata_kernels::decode::{KernelFormat, LANES, RowScale};

use super::span::Span;
use crate::decode::Rows;
use crate::error::GpuError;
use crate::sim::device::SimDevice;

/// A layer's plane.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    pub(crate) span: Span,
    pub(super) format: KernelFormat,
    pub(super) scale: RowScale,
    pub(super) rows: u64,
}

impl Plane {
    pub(super) fn new(rows: Rows<'_, SimDevice>) -> Result<Self, GpuError> {
        let row_bytes = u64::from(rows.format.row_bytes());
        let bytes = rows.rows.checked_mul(row_bytes).unwrap_or(u64::MAX - 3);
        Ok(Self {
            span: Span::new("the plane", rows.at, bytes)?,
            format: rows.format,
            scale: rows.scale,
            rows: rows.rows,
        })
    }

    pub(super) fn row_bytes(&self) -> u64 {
        u64::from(self.format.row_bytes())
    }

    /// Bytes of the plane in which `rows` rows from row `first` on stand.
    pub(crate) fn bytes(&self, first: u64, rows: u64) -> core::ops::Range<u64> {
        let start = self.span.start + first * self.row_bytes();
        start..start + rows * self.row_bytes()
    }

    /// The row that stands in place `local` of a request, if its cell names a page of the plane.
    pub(super) fn row_of(&self, cell: i32, kernel_rows: u64, local: u64) -> Option<u64> {
        let page = u64::try_from(cell).ok()?;
        let row = page * kernel_rows + local % kernel_rows;
        (row < self.rows).then_some(row)
    }

    /// Writes the values of a row's lanes; NaN for a row that the plane lacks.
    pub(super) fn lanes(&self, row: Option<u64>, buffer: &mut RowBuffer, lanes: &mut [f32]) {
        let bytes = &mut buffer.0[..self.format.row_bytes() as usize];
        let read = row.map(|row| {
            self.span.read(row * self.row_bytes(), bytes);
            self.format.decode(bytes, self.scale, lanes)
        });
        if !matches!(read, Some(Ok(()))) {
            lanes.fill(f32::NAN);
        }
    }
}

/// Bytes of the longest row.
#[derive(Clone, Debug)]
pub(super) struct RowBuffer([u8; 2 * LANES]);

impl RowBuffer {
    pub(super) const fn new() -> Self {
        Self([0; 2 * LANES])
    }
}
