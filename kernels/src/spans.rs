// SPDX-License-Identifier: Apache-2.0
//! How row spans reach a kernel: by value in its arguments, so that a launch needs no memory of its
//! own and nothing has to live until it ran.

use crate::rows::{PageSeed, RowSpan};

/// Spans of one launch.
pub const SPANS: usize = 160;

/// Spans as kernel argument.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SpanBatch {
    /// How many of `spans` count.
    pub count: u32,
    /// Index of the first among all spans of the call.
    pub first_span: u32,
    /// The spans.
    pub spans: [RowSpan; SPANS],
}

// Kernel arguments are limited to 4096 bytes on every architecture.
const _: () = assert!(size_of::<SpanBatch>() + 64 <= 4096);
const _: () = assert!(size_of::<SpanBatch>() == 8 + SPANS * size_of::<RowSpan>());

impl SpanBatch {
    /// Batches that hold `spans` in order.
    pub fn all(spans: &[RowSpan]) -> impl Iterator<Item = Self> {
        let empty = RowSpan {
            seed: PageSeed::new(0, 0, 0),
            first_row: 0,
            rows: 0,
            skip: 0,
        };
        let mut first_span = 0u32;
        spans.chunks(SPANS).map(move |chunk| {
            let mut batch = Self {
                count: u32::try_from(chunk.len()).unwrap_or(0),
                first_span,
                spans: [empty; SPANS],
            };
            batch.spans[..chunk.len()].copy_from_slice(chunk);
            first_span = first_span.saturating_add(batch.count);
            batch
        })
    }

    /// Rows of the longest span.
    #[must_use]
    pub fn longest(&self) -> u32 {
        self.spans.iter().map(|span| span.rows).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_span_once_and_count_on() {
        let spans: Vec<RowSpan> = (0..2 * SPANS as u64 + 3)
            .map(|i| RowSpan {
                seed: PageSeed::new(i, 0, 0),
                first_row: i,
                rows: 1,
                skip: 0,
            })
            .collect();
        let batches: Vec<_> = SpanBatch::all(&spans).collect();
        let counts: Vec<_> = batches.iter().map(|b| (b.first_span, b.count)).collect();
        assert_eq!(counts, [(0, 160), (160, 160), (320, 3)]);
        let all = batches.iter().flat_map(|b| &b.spans[..b.count as usize]);
        assert!(all.eq(&spans));
        assert_eq!(SpanBatch::all(&[]).count(), 0);
        assert_eq!(batches[2].longest(), 1);
    }
}
