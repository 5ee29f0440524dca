// SPDX-License-Identifier: Apache-2.0
//! Rows of a prefix as bf16, and rows whose values follow from seeds.

use core::ops::Range;

use striata_core::{Rank, Row, Stripe, TokenPos};
use striata_kernels::decode::LANES;
use striata_kernels::decode::row_codec::narrow;
use striata_kernels::values::{self, RowSeed};

use super::plane::{Plane, RowBuffer};
use super::span::Span;

/// Gathers one rank's rows of a prefix.
#[derive(Debug)]
pub(crate) struct PrefixOp {
    pub(super) stripe: Stripe,
    pub(super) rank: Rank,
    pub(crate) plane: Plane,
    pub(super) kernel_rows: u64,
    pub(crate) cells: Span,
    pub(super) width: u64,
    pub(super) start: u64,
    pub(super) tokens: u64,
    pub(super) packed: bool,
    pub(crate) out: Span,
}

/// Bytes of a gathered row.
pub(super) const OUT_BYTES: u64 = LANES as u64 * 2;

impl PrefixOp {
    /// The rows that the rank owns of a span: local index of the first, and behind the last.
    pub(super) fn owned(stripe: Stripe, rank: Rank, start: u64, tokens: u64) -> Range<u64> {
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        let count = stripe.local_len_from(rank, TokenPos::new(start), tokens);
        let first = stripe.local_len(rank, start.cast_signed());
        first..first + count
    }

    /// The row of the plane at local index `local`.
    fn row(&self, local: u64) -> Option<u64> {
        let index = local / self.kernel_rows;
        let cell = (index < self.width).then(|| self.cells.i32(0, index))?;
        self.plane.row_of(cell, self.kernel_rows, local)
    }

    fn local(&self) -> Range<u64> {
        Self::owned(self.stripe, self.rank, self.start, self.tokens)
    }

    /// Rows of the plane that are read.
    pub(crate) fn read_rows(&self) -> impl Iterator<Item = u64> + '_ {
        self.local().filter_map(|local| self.row(local))
    }

    /// Rows of the result that are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.local().start;
        self.local().map(move |local| {
            if self.packed {
                local - first
            } else {
                self.stripe.slot_of(self.rank, Row::new(local)).get() - self.start
            }
        })
    }

    pub(super) fn run(&self) {
        let (mut buffer, mut lanes) = (RowBuffer::new(), [0f32; LANES]);
        let mut bytes = [0u8; LANES * 2];
        for (local, to) in self.local().zip(self.written()) {
            self.plane.lanes(self.row(local), &mut buffer, &mut lanes);
            for (pair, lane) in bytes.chunks_exact_mut(2).zip(&lanes) {
                pair.copy_from_slice(&narrow(*lane).to_le_bytes());
            }
            self.out.write(to * OUT_BYTES, &bytes);
        }
    }
}

/// Writes rows whose values follow from seeds.
#[derive(Debug)]
pub(crate) struct ValuesOp {
    pub(crate) dense: Span,
    pub(crate) seeds: Span,
    pub(super) rows: u64,
    pub(super) row_words: u32,
    pub(super) layer: u32,
}

impl ValuesOp {
    pub(super) fn run(&self) {
        let seeds = self.seeds.i64s(0, self.rows);
        let seeds: &[RowSeed] = bytemuck::cast_slice(&seeds);
        let inside = values::fill(self.dense.words(), self.row_words, self.layer, seeds);
        assert!(inside, "rows that were checked at submission");
    }
}
