// SPDX-License-Identifier: Apache-2.0
//! Fingerprints of rows: every word of a row encodes (namespace, content, position, layer, rank),
//! so that a reader can tell whose row it sees.
//!
//! The page's seed stands for namespace, content and position; layer and rank enter per launch.

use core::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};

const GOLDEN_32: u32 = 0x9E37_79B1;
const GOLDEN_64: u64 = 0x9E37_79B9_7F4A_7C15;

/// Words of one record of [`VerifyLog`].
pub const RECORD_WORDS: usize = 4;

/// What a page holds, condensed: the seed of its rows' fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct PageSeed(u64);

impl PageSeed {
    /// The seed of the page whose tokens are named by `content` (the key of its prefix) and whose
    /// first token stands at `position`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of the key are wanted"
    )]
    pub const fn new(namespace: u64, content: u128, position: u64) -> Self {
        let (low, high) = (content as u64, (content >> 64) as u64);
        let mixed = mix64(low ^ mix64(high ^ mix64(namespace)));
        Self(mix64(mixed.wrapping_add(position.wrapping_mul(GOLDEN_64))))
    }
}

/// Rows of one page in the plane of a layer.
///
/// Rows `[first_row, first_row + rows)` of the plane hold rows `[skip, skip + rows)` of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RowSpan {
    /// Whose rows they are.
    pub seed: PageSeed,
    /// Index of the first row in the plane.
    pub first_row: u64,
    /// How many rows.
    pub rows: u32,
    /// Row of the page at which the span begins.
    pub skip: u32,
}

/// What is the same for all spans of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RowParams {
    /// Words (4 bytes) of a row.
    pub row_words: u32,
    /// Layer of the plane.
    pub layer: u32,
    /// DCP rank of the pool.
    pub rank: u32,
    /// Compare or write every n-th row of a span only; 1 for all.
    pub stride: u32,
}

/// A row that did not hold its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Mismatch {
    /// Layer of the plane.
    pub layer: u32,
    /// DCP rank of the pool.
    pub rank: u32,
    /// Index of the span in the launch.
    pub span: u32,
    /// Row of the page.
    pub row: u32,
}

const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

const fn mix32(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// The two 32-bit halves that the words of one page, layer and rank are made from.
#[derive(Clone, Copy)]
struct Base {
    low: u32,
    high: u32,
}

impl Base {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the halves of a 64-bit hash are wanted"
    )]
    const fn new(seed: PageSeed, params: &RowParams) -> Self {
        let place = (params.layer as u64) << 32 | params.rank as u64;
        let hash = mix64(seed.0 ^ mix64(place.wrapping_add(GOLDEN_64)));
        Self {
            low: hash as u32,
            high: (hash >> 32) as u32,
        }
    }

    const fn word(self, index: u32) -> u32 {
        mix32(self.low.wrapping_add(index.wrapping_mul(GOLDEN_32))) ^ self.high
    }
}

/// The word at `word` of row `row` of a page.
#[must_use]
pub const fn fingerprint(seed: PageSeed, params: &RowParams, row: u32, word: u32) -> u32 {
    Base::new(seed, params).word(row.wrapping_mul(params.row_words).wrapping_add(word))
}

/// The words of the rows of a span, row by row, with the index of each row in the page; `None`
/// where the span leaves the plane.
fn rows_of<'a>(
    plane: &'a [AtomicU32],
    params: RowParams,
    span: &RowSpan,
) -> Option<impl Iterator<Item = (u32, &'a [AtomicU32])>> {
    let words = params.row_words as usize;
    let first = usize::try_from(span.first_row).ok()?.checked_mul(words)?;
    let end = first.checked_add((span.rows as usize).checked_mul(words)?)?;
    let body = plane.get(first..end)?;
    let stride = params.stride.max(1) as usize;
    Some(
        (span.skip..)
            .step_by(stride)
            .zip(body.chunks_exact(words.max(1)).step_by(stride)),
    )
}

/// Writes the fingerprints of `spans` into a plane; shape of the plane: \[rows\]\[row words\].
///
/// Returns false, and has written the spans before it, if a span leaves the plane.
#[must_use]
pub fn fill(plane: &[AtomicU32], params: &RowParams, spans: &[RowSpan]) -> bool {
    for span in spans {
        let base = Base::new(span.seed, params);
        let Some(rows) = rows_of(plane, *params, span) else {
            return false;
        };
        for (row, body) in rows {
            let mut index = row.wrapping_mul(params.row_words);
            for word in body {
                word.store(base.word(index), Ordering::Relaxed);
                index = index.wrapping_add(1);
            }
        }
    }
    true
}

/// Compares `spans` of a plane with their fingerprints and calls `wrong` for each row that
/// differs. Returns the number of rows that were compared.
///
/// A span that leaves the plane counts as wrong in all its rows.
pub fn verify(
    plane: &[AtomicU32],
    params: &RowParams,
    spans: &[RowSpan],
    mut wrong: impl FnMut(Mismatch),
) -> u64 {
    let mut compared = 0;
    for (span_index, span) in (0u32..).zip(spans) {
        let mut report = |row| {
            let (layer, rank) = (params.layer, params.rank);
            wrong(Mismatch {
                layer,
                rank,
                span: span_index,
                row,
            });
        };
        let Some(rows) = rows_of(plane, *params, span) else {
            (span.skip..span.skip.saturating_add(span.rows)).for_each(&mut report);
            compared += u64::from(span.rows);
            continue;
        };
        let base = Base::new(span.seed, params);
        for (row, body) in rows {
            let first = row.wrapping_mul(params.row_words);
            let differs = (first..).zip(body).fold(0, |all, (index, word)| {
                all | (word.load(Ordering::Relaxed) ^ base.word(index))
            });
            if differs != 0 {
                report(row);
            }
            compared += 1;
        }
    }
    compared
}

/// A bounded list of mismatches in words that a device can write: a count, then records of
/// [`RECORD_WORDS`] words. The count goes on past the room, so that nothing is hidden.
#[derive(Clone, Copy, Debug)]
pub struct VerifyLog<'a>(&'a [AtomicU32]);

impl<'a> VerifyLog<'a> {
    /// Words of a log with room for `records` records.
    #[must_use]
    pub const fn words(records: usize) -> usize {
        1 + records * RECORD_WORDS
    }

    /// A log over `words`; none if there is no word for the count.
    #[must_use]
    pub const fn new(words: &'a [AtomicU32]) -> Option<Self> {
        if words.is_empty() {
            None
        } else {
            Some(Self(words))
        }
    }

    /// Appends a record, or only counts it when the log is full.
    pub fn push(&self, mismatch: Mismatch) {
        let [count, records @ ..] = self.0 else {
            return;
        };
        let at = count.fetch_add(1, Ordering::Relaxed) as usize;
        if let Some(record) = records.chunks_exact(RECORD_WORDS).nth(at) {
            let words: [u32; RECORD_WORDS] = bytemuck::cast(mismatch);
            for (to, from) in record.iter().zip(words) {
                to.store(from, Ordering::Relaxed);
            }
        }
    }
}

/// Reads a log that was copied to the host: the number of mismatches, and those with a record.
#[must_use]
pub fn read_log(words: &[u32]) -> (u32, &[Mismatch]) {
    let [count, records @ ..] = words else {
        return (0, &[]);
    };
    let kept = (records.len() / RECORD_WORDS).min(*count as usize);
    (
        *count,
        bytemuck::cast_slice(&records[..kept * RECORD_WORDS]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(words: usize) -> Vec<AtomicU32> {
        (0..words).map(|_| AtomicU32::new(0)).collect()
    }

    const PARAMS: RowParams = RowParams {
        row_words: 3,
        layer: 5,
        rank: 2,
        stride: 1,
    };

    fn span(position: u64, first_row: u64, rows: u32, skip: u32) -> RowSpan {
        RowSpan {
            seed: PageSeed::new(7, 99, position),
            first_row,
            rows,
            skip,
        }
    }

    #[test]
    fn verify_names_exactly_the_rows_that_were_changed() {
        let plane = plane(3 * 32);
        let spans = [span(0, 4, 8, 0), span(512, 20, 5, 3)];
        assert!(fill(&plane, &PARAMS, &spans));
        let mut wrong = Vec::new();
        assert_eq!(verify(&plane, &PARAMS, &spans, |m| wrong.push(m)), 13);
        assert!(wrong.is_empty());
        plane[3 * 6 + 2].fetch_xor(1, Ordering::Relaxed);
        plane[3 * 24].fetch_xor(0x8000_0000, Ordering::Relaxed);
        verify(&plane, &PARAMS, &spans, |m| wrong.push(m));
        let places: Vec<_> = wrong
            .iter()
            .map(|m| (m.span, m.row, m.layer, m.rank))
            .collect();
        assert_eq!(places, [(0, 2, 5, 2), (1, 7, 5, 2)]);
    }

    #[test]
    fn every_part_of_an_identity_changes_every_row() {
        let a = PageSeed::new(1, 2, 3);
        let differ = |other: PageSeed, params: RowParams| {
            (0..64)
                .all(|row| fingerprint(a, &PARAMS, row, 0) != fingerprint(other, &params, row, 0))
        };
        assert!(differ(PageSeed::new(2, 2, 3), PARAMS));
        assert!(differ(PageSeed::new(1, 3, 3), PARAMS));
        assert!(differ(PageSeed::new(1, 2 << 64, 3), PARAMS));
        assert!(differ(PageSeed::new(1, 2, 4), PARAMS));
        assert!(differ(a, RowParams { layer: 6, ..PARAMS }));
        assert!(differ(a, RowParams { rank: 3, ..PARAMS }));
    }

    #[test]
    fn a_span_outside_the_plane_is_wrong_in_every_row_and_never_written() {
        let plane = plane(3 * 4);
        let spans = [span(0, 3, 2, 0)];
        assert!(!fill(&plane, &PARAMS, &spans));
        let mut wrong = 0;
        verify(&plane, &PARAMS, &spans, |_| wrong += 1);
        assert_eq!(wrong, 2);
        assert!(plane.iter().all(|w| w.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_full_log_goes_on_counting() {
        let words = plane(VerifyLog::words(2));
        let log = VerifyLog::new(&words).unwrap();
        for row in 0..3 {
            log.push(Mismatch {
                layer: 1,
                rank: 0,
                span: 0,
                row,
            });
        }
        let copied: Vec<u32> = words.iter().map(|w| w.load(Ordering::Relaxed)).collect();
        let (count, records) = read_log(&copied);
        assert_eq!((count, records.len(), records[1].row), (3, 2, 1));
    }
}
