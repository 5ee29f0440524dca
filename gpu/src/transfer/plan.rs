// SPDX-License-Identifier: Apache-2.0
//! What a job copies, and how: the pieces of each of its units.

use core::ops::Range;
use std::sync::Arc;

use striata_core::PagePair;
use striata_kernels::cells::Cell;

use super::gate::LoadGate;
use super::job::{Completion, Outcome};
use super::parts::{Parts, Share, Unit};
use super::paths::CopyPath;
use super::pieces::PageRun;
use super::shared::HostSide;
use crate::device::{CopyForm, Device, DeviceTime, Direction, Piece};

/// Cells of a list that take as long as a descriptor of a copy.
const CELLS_A_PIECE: u64 = 64;
/// Most layers of a load's group whose rectangles go as runs: a rectangle costs the link about 3 us
/// beside its bytes ([`super::TransferConfig`]), a run nothing but the host's time.
const FLAT_LAYERS: usize = 8;

/// What a job copies, and how.
#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) direction: Direction,
    pub(super) path: CopyPath,
    /// In the caller's order; none of a row list.
    pub(super) pages: Arc<[PagePair]>,
    /// Bytes of a page or a row in a layer.
    pub(super) item_bytes: u64,
    pub(super) parts: Parts,
    pub(super) size: JobSize,
    pub(super) host: Arc<HostSide>,
}

/// Cells of a unit for one kernel.
#[derive(Debug)]
pub(super) struct UnitCells<'a> {
    pub(super) layers: Range<u32>,
    pub(super) cells: &'a [Cell],
    pub(super) far_base: u64,
    pub(super) far_layer: u64,
}

/// How much a job copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSize {
    pub(super) pages: usize,
    pub(super) page_bytes: u64,
}

impl JobPlan {
    /// Bytes of all units.
    pub(super) const fn bytes(&self) -> u64 {
        self.size.bytes(self.size.pages)
    }

    /// Bytes of a unit; 0 past the last.
    pub(super) fn unit_bytes(&self, unit: u32) -> u64 {
        let Some((unit, _)) = self.parts.unit(unit) else {
            return 0;
        };
        u64::from(unit.count)
            .saturating_mul(unit.layers.len() as u64)
            .saturating_mul(self.item_bytes)
    }

    /// How many leading units have at most `most` pieces together.
    pub(super) fn leading_units(&self, most: usize) -> u32 {
        let mut left = most as u64;
        let mut fits = |unit: &u32| {
            let Some((unit, _)) = self.parts.unit(*unit) else {
                return false;
            };
            let count = u64::from(unit.count);
            let pieces = match self.unit_path(unit) {
                CopyPath::Runs | CopyPath::RunCalls => count * unit.layers.len() as u64,
                CopyPath::Rectangles | CopyPath::RectangleCalls | CopyPath::Staged => count,
                // A kernel's list costs little.
                CopyPath::Mapped => count / CELLS_A_PIECE + 1,
            };
            let fits = pieces <= left;
            left = left.saturating_sub(pieces);
            fits
        };
        let units = (0..self.parts.count())
            .take_while(|unit| fits(unit))
            .count();
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// The path of a unit: rectangles of so few rows that they are not worth it go as runs.
    fn unit_path(&self, unit: &Unit) -> CopyPath {
        let is_flat = self.direction == Direction::HostToDevice && unit.layers.len() <= FLAT_LAYERS;
        match self.path {
            CopyPath::Rectangles if is_flat => CopyPath::Runs,
            CopyPath::RectangleCalls if is_flat => CopyPath::RunCalls,
            path => path,
        }
    }

    /// The driver call that serves the pieces.
    pub(super) const fn form(&self) -> CopyForm {
        match self.path {
            CopyPath::Rectangles => CopyForm::Rectangles,
            CopyPath::RectangleCalls => CopyForm::EachRectangle,
            CopyPath::RunCalls => CopyForm::EachRun,
            CopyPath::Runs | CopyPath::Staged | CopyPath::Mapped => CopyForm::Runs,
        }
    }

    /// Puts the pieces of a unit into `out`, in the order in which they are submitted. Those of a
    /// staged unit stand in the buffer from byte `staged_at` on.
    pub(super) fn pieces(&self, unit: u32, staged_at: u64, out: &mut Vec<Piece>) {
        out.clear();
        let Some((unit, share)) = self.parts.unit(unit) else {
            return;
        };
        let (shape, layers) = (&self.host.shape, unit.layers.clone());
        let runs = match share {
            Share::Rows(cells) => return shape.row_objects(cells, layers, staged_at, out),
            Share::Pages(runs) => runs,
        };
        match self.unit_path(unit) {
            CopyPath::Rectangles | CopyPath::RectangleCalls => {
                shape.rectangles(runs, layers, out);
            }
            CopyPath::Staged => shape.objects(runs, layers, staged_at, out),
            CopyPath::Runs | CopyPath::RunCalls | CopyPath::Mapped => {
                shape.runs(runs, layers, out);
            }
        }
    }

    /// The cells of a unit that a kernel moves between the planes and mapped host memory, and how
    /// they stand there; pages become cells in `scratch`.
    pub(super) fn mapped_cells<'a>(
        &'a self,
        unit: u32,
        scratch: &'a mut Vec<Cell>,
    ) -> Option<UnitCells<'a>> {
        let (unit, share) = self.parts.unit(unit)?;
        let strides = self.host.shape.host;
        let cells = match share {
            Share::Rows(cells) => cells,
            Share::Pages(runs) => {
                let page = |(l1, l2): (u32, u32)| Cell {
                    plane: u64::from(l1) * self.item_bytes,
                    far: u64::from(l2) * strides.page,
                };
                scratch.clear();
                scratch.extend(runs.iter().flat_map(PageRun::pairs).map(page));
                scratch
            }
        };
        Some(UnitCells {
            layers: unit.layers.clone(),
            cells,
            far_base: u64::from(unit.layers.start) * strides.layer,
            far_layer: strides.layer,
        })
    }

    /// The cells of a unit that a kernel moves between the planes and the buffer, from its byte
    /// `staged_at` on: page by page, all layers of a page together, as they stand on the host; rows
    /// layer by layer.
    pub(super) fn staged_cells<'a>(
        &'a self,
        unit: u32,
        staged_at: u64,
        scratch: &'a mut Vec<Cell>,
    ) -> Option<UnitCells<'a>> {
        let (unit, share) = self.parts.unit(unit)?;
        scratch.clear();
        let far_layer = match share {
            Share::Pages(runs) => {
                let object = self.item_bytes * unit.layers.len() as u64;
                let pages = (0u64..).zip(runs.iter().flat_map(PageRun::pairs));
                scratch.extend(pages.map(|(index, (l1, _))| Cell {
                    plane: u64::from(l1) * self.item_bytes,
                    far: index * object,
                }));
                self.item_bytes
            }
            Share::Rows(cells) => {
                scratch.extend((0u64..).zip(cells).map(|(index, cell)| Cell {
                    plane: cell.plane,
                    far: index * self.item_bytes,
                }));
                self.item_bytes * cells.len() as u64
            }
        };
        Some(UnitCells {
            layers: unit.layers.clone(),
            cells: scratch,
            far_base: staged_at,
            far_layer,
        })
    }
}

impl JobSize {
    /// Bytes of `pages` pages.
    pub(super) const fn bytes(self, pages: usize) -> u64 {
        self.page_bytes.saturating_mul(pages as u64)
    }

    /// The outcome of a job of this size that went well.
    pub(super) const fn all_good(self) -> Outcome {
        Outcome {
            good_pages: self.pages,
            cancelled: false,
            error: None,
        }
    }

    /// The completion of a job of this size.
    pub(super) fn completion<D: Device>(
        self,
        gate: &LoadGate<D>,
        direction: Direction,
        first_layer: Option<DeviceTime>,
        finished: DeviceTime,
        outcome: Outcome,
    ) -> Completion {
        Completion {
            op: gate.op(),
            direction,
            pages: self.pages,
            good_pages: outcome.good_pages,
            bytes: self.bytes(outcome.good_pages),
            issued: gate.issued(),
            first_layer,
            finished,
            cancelled: outcome.cancelled,
            error: outcome.error,
        }
    }
}
