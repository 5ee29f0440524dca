// SPDX-License-Identifier: Apache-2.0
//! Building a plan, and writing new rows.

use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use striata_core::{Rank, Slot, Stripe};
use striata_kernels::decode::{
    LATENT, PlanLayout, PlanPlace, PlanShape, ROPE, RowScale, plan::HostPlan,
};

use super::plane::Plane;
use super::span::{Span, load};
use crate::check::WORD;

/// Words of a staged place.
const PLACE_WORDS: usize = size_of::<PlanPlace>() / size_of::<u32>();

/// Builds the plan of a step.
#[derive(Debug)]
pub(crate) struct BuildOp {
    pub(super) shape: PlanShape,
    pub(super) layout: PlanLayout,
    pub(crate) plan: Span,
    pub(super) staging: Arc<[AtomicU32]>,
    /// None: the source stands in the staging behind the places.
    pub(crate) source: Option<Span>,
}

impl BuildOp {
    pub(super) fn run(&self) {
        let batch = self.shape.attend.batch as usize;
        let entries = u64::from(self.shape.source_rows) * u64::from(self.shape.source_width);
        let words: Vec<u32> = self.staging.iter().map(load).collect();
        let (places, behind) = words.split_at(batch * PLACE_WORDS);
        let places: &[PlanPlace] = bytemuck::cast_slice(places);
        let source: Vec<i32> = match &self.source {
            Some(source) => source.i32s(0, entries),
            None => behind.iter().map(|word| word.cast_signed()).collect(),
        };
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        let mut plan = self.shape.host_plan();
        let cells = plan.cells.len() as u64;
        // What kept pages rest on.
        plan.cells = self.plan.i32s(self.layout.cells, cells);
        let source = source.get(..entries).unwrap_or(&source);
        let built = self.shape.build(places, source, &mut plan);
        assert!(
            built.is_ok(),
            "a plan that was checked at submission: {built:?}"
        );
        self.put(&plan);
    }

    fn put(&self, plan: &HostPlan) {
        let parts: [(u64, &[u8]); 7] = [
            (
                self.layout.local_lens,
                bytemuck::cast_slice(&plan.local_lens),
            ),
            (
                self.layout.global_lens,
                bytemuck::cast_slice(&plan.global_lens),
            ),
            (self.layout.rows, bytemuck::cast_slice(&plan.rows)),
            (self.layout.status, bytemuck::cast_slice(&plan.status)),
            (self.layout.starts, bytemuck::cast_slice(&plan.starts)),
            (self.layout.cuts, bytemuck::cast_slice(&plan.cuts)),
            (self.layout.cells, bytemuck::cast_slice(&plan.cells)),
        ];
        for (at, bytes) in parts {
            self.plan.write(at, bytes);
        }
    }
}

/// Where tokens go.
#[derive(Debug)]
pub(crate) enum To {
    /// Rows in a plan, behind this byte.
    Plan(Span, u64),
    Slots(Span, Stripe, Rank),
    Run(u64),
}

/// Writes new rows.
#[derive(Debug)]
pub(crate) struct WriteOp {
    pub(crate) plane: Plane,
    pub(crate) to: To,
    /// Rows of the sink page: none is written below.
    pub(super) sink_rows: u64,
    pub(super) tokens: u64,
    pub(crate) latent: Span,
    pub(super) latent_stride: u64,
    pub(crate) rope: Option<Span>,
    pub(super) rope_stride: u64,
    pub(crate) faults: Span,
}

impl WriteOp {
    /// The row of token `token`, whether the plane has it or not; none if it is not written here.
    fn row(&self, token: u64) -> Option<u64> {
        let row = match &self.to {
            To::Run(first) => return Some(first.saturating_add(token)),
            To::Plan(plan, at) => u64::try_from(plan.i32(*at, token)).ok(),
            To::Slots(slots, stripe, rank) => {
                let slot = slots.i64s(token * 2 * WORD, 1).first().copied();
                let slot = slot.and_then(|slot| u64::try_from(slot).ok());
                let row = slot.and_then(|slot| stripe.localize(*rank, Slot::new(slot)));
                row.map(striata_core::Row::get)
            }
        };
        row.filter(|row| *row >= self.sink_rows)
    }

    /// Rows of the plane that are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.tokens)
            .filter_map(|token| self.row(token))
            .filter(|row| *row < self.plane.rows)
    }

    pub(super) fn run(&self) {
        let mut row_bytes = vec![0u8; self.plane.format.row_bytes() as usize];
        let (mut latent, mut rope) = ([0u16; LATENT], [0u16; ROPE]);
        let mut outside = 0;
        for token in 0..self.tokens {
            let Some(row) = self.row(token) else { continue };
            if row >= self.plane.rows {
                outside += 1;
                continue;
            }
            self.latent.halves(token * self.latent_stride, &mut latent);
            if let Some(lanes) = &self.rope {
                lanes.halves(token * self.rope_stride, &mut rope);
            }
            let (format, scale): (_, RowScale) = (self.plane.format, self.plane.scale);
            let encoded = format.encode(&latent, &rope, scale, &mut row_bytes);
            assert!(encoded.is_ok(), "lanes and bytes of one row: {encoded:?}");
            let at = row * self.plane.row_bytes();
            self.plane.span.write(at, &row_bytes);
        }
        if let Some(word) = self.faults.words().first() {
            word.fetch_add(outside, core::sync::atomic::Ordering::Relaxed);
        }
    }
}
