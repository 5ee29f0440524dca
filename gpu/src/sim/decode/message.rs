// SPDX-License-Identifier: Apache-2.0
//! Messages: merging them, and packing and unpacking plain outputs.

use core::sync::atomic::Ordering;

use striata_kernels::decode::message::{HostMerge, MAX_PARTIALS};
use striata_kernels::decode::{AttendShape, OutputForm};
use striata_kernels::reference::MergeReport;
use striata_kernels::{Base, E, Two};

use super::span::Span;
use crate::sim::memory::copy_words;

/// Merges messages.
#[derive(Debug)]
pub(crate) struct MergeOp {
    pub(super) merge: HostMerge,
    pub(super) base: Base,
    pub(crate) messages: Vec<Span>,
    pub(crate) merged: Span,
    pub(crate) tally: Span,
}

impl MergeOp {
    pub(super) fn run(&self) {
        let read = |span: &Span| {
            let mut bytes = vec![0u8; usize::try_from(span.bytes).unwrap_or(0)];
            span.read(0, &mut bytes);
            bytes
        };
        let messages: Vec<Vec<u8>> = self.messages.iter().map(read).collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let mut merged = vec![0u8; usize::try_from(self.merged.bytes).unwrap_or(0)];
        let report = match self.base {
            Base::E => self.merge.run::<E>(&messages, &mut merged),
            Base::Two => self.merge.run::<Two>(&messages, &mut merged),
        };
        match report {
            Ok(report) => count(&self.tally, report),
            Err(error) => panic!("a merge that was checked at submission: {error}"),
        }
        self.merged.write(0, &merged);
    }
}

/// Adds what was met to a tally.
pub(super) fn count(tally: &Span, report: MergeReport) {
    let [faults, first_inverted, ..] = tally.words() else {
        return;
    };
    let count = u32::try_from(report.faults).unwrap_or(u32::MAX);
    faults.fetch_add(count, Ordering::Relaxed);
    if let Some(first) = report.first {
        let place = first.row * MAX_PARTIALS + first.rank;
        let inverted = !u32::try_from(place).unwrap_or(u32::MAX);
        first_inverted.fetch_max(inverted, Ordering::Relaxed);
    }
}

/// Plain outputs to messages, or back.
#[derive(Debug)]
pub(crate) struct PackOp {
    pub(super) shape: AttendShape,
    pub(super) form: OutputForm,
    pub(super) message_stride: u64,
    pub(super) message_heads: u64,
    pub(crate) o: Span,
    pub(crate) lse: Span,
    pub(crate) messages: Span,
    pub(crate) unpack: bool,
}

impl PackOp {
    pub(super) fn run(&self) {
        let row_bytes = self.form.kind.row_bytes();
        let heads = u64::from(self.shape.heads);
        let lse_at = self.shape.tokens() * self.message_heads * row_bytes;
        for row in 0..self.shape.rows() {
            let (token, head) = (row / heads, row % heads);
            let message = head / self.message_heads * self.message_stride;
            let within = token * self.message_heads + head % self.message_heads;
            self.copy(
                &self.o,
                row * row_bytes,
                message + within * row_bytes,
                row_bytes,
            );
            self.copy(&self.lse, row * 4, message + lse_at + within * 4, 4);
        }
    }

    fn copy(&self, plain: &Span, at: u64, message_at: u64, bytes: u64) {
        let (plain, message) = (plain.at(at, bytes), self.messages.at(message_at, bytes));
        if self.unpack {
            copy_words(plain, message);
        } else {
            copy_words(message, plain);
        }
    }
}
