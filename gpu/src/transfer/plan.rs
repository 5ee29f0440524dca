// SPDX-License-Identifier: Apache-2.0
//! What a job copies, and how: the pieces of each of its units.

use std::sync::Arc;

use striata_core::PagePair;

use super::gate::LoadGate;
use super::job::{Completion, Outcome};
use super::parts::Parts;
use super::paths::CopyPath;
use super::shared::HostSide;
use crate::device::{CopyForm, Device, DeviceTime, Direction, Piece};

/// What a job copies, and how.
#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) direction: Direction,
    pub(super) path: CopyPath,
    /// In the caller's order.
    pub(super) pages: Arc<[PagePair]>,
    pub(super) parts: Parts,
    pub(super) size: JobSize,
    pub(super) host: Arc<HostSide>,
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
        let chunk = self.host.shape.page.chunk_bytes();
        u64::from(unit.pages)
            .saturating_mul(unit.layers.len() as u64)
            .saturating_mul(chunk)
    }

    /// How many leading units have at most `most` pieces together.
    pub(super) fn leading_units(&self, most: usize) -> u32 {
        let mut left = most as u64;
        let mut fits = |unit: &u32| {
            let Some((unit, _)) = self.parts.unit(*unit) else {
                return false;
            };
            let each = match self.path {
                CopyPath::Runs | CopyPath::RunCalls => unit.layers.len() as u64,
                _ => 1,
            };
            let pieces = each.saturating_mul(u64::from(unit.pages));
            let fits = pieces <= left;
            left = left.saturating_sub(pieces);
            fits
        };
        let units = (0..self.parts.count())
            .take_while(|unit| fits(unit))
            .count();
        u32::try_from(units).unwrap_or(u32::MAX)
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

    /// Puts the pieces of a unit into `out`, in the order in which they are submitted.
    pub(super) fn pieces(&self, unit: u32, out: &mut Vec<Piece>) {
        out.clear();
        let Some((unit, runs)) = self.parts.unit(unit) else {
            return;
        };
        let (shape, layers) = (&self.host.shape, unit.layers.clone());
        if self.form().is_of_runs() {
            shape.runs(runs, layers, out);
        } else {
            shape.rectangles(runs, layers, out);
        }
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
