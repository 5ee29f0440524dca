// SPDX-License-Identifier: Apache-2.0
//! Fingerprints of rows: every word of a row encodes (namespace, content, position, layer, rank),
//! so that a reader can tell whose row it sees.
//!
//! The page's seed stands for namespace, content and position; layer and rank enter per launch.

use core::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};

const GOLDEN_32: u32 = 0x9E37_79B1;
const GOLDEN_64: u64 = 0x9E37_79B9_7F4A_7C15;

/// Words that are made or compared together.
const BLOCK: usize = BLOCK_WORDS as usize;
const BLOCK_WORDS: u32 = 64;

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

    /// The words from `first` on, in a shape that the compiler turns into vector code.
    fn words(self, first: u32, block: &mut [u32]) {
        for (offset, word) in (0u32..).zip(block) {
            *word = self.word(first.wrapping_add(offset));
        }
    }
}

/// The word at `word` of row `row` of a page.
#[must_use]
pub const fn fingerprint(seed: PageSeed, params: &RowParams, row: u32, word: u32) -> u32 {
    Base::new(seed, params).word(row.wrapping_mul(params.row_words).wrapping_add(word))
}

/// The words of a span without gaps, with the index of the first; `None` where it leaves the plane.
fn words_of<'a>(
    plane: &'a [AtomicU32],
    params: &RowParams,
    span: &RowSpan,
) -> Option<(u32, &'a [AtomicU32])> {
    let words = params.row_words as usize;
    let first = usize::try_from(span.first_row).ok()?.checked_mul(words)?;
    let end = first.checked_add((span.rows as usize).checked_mul(words)?)?;
    Some((
        span.skip.wrapping_mul(params.row_words),
        plane.get(first..end)?,
    ))
}

/// Items with the numbers `first`, `first + step` and so on. They wrap, as on the device.
fn numbered<I: Iterator>(first: u32, step: u32, items: I) -> impl Iterator<Item = (u32, I::Item)> {
    let mut next = first;
    items.map(move |item| {
        let number = next;
        next = next.wrapping_add(step);
        (number, item)
    })
}

/// Blocks of words with the index of the first of each.
fn blocks(first: u32, body: &[AtomicU32]) -> impl Iterator<Item = (u32, &[AtomicU32])> {
    numbered(first, BLOCK_WORDS, body.chunks(BLOCK))
}

/// Whether words hold their fingerprints, a block at a time.
fn all_right(base: Base, first: u32, body: &[AtomicU32]) -> bool {
    let mut expected = [0; BLOCK];
    blocks(first, body).all(|(start, block)| {
        base.words(start, &mut expected[..block.len()]);
        let pairs = block.iter().zip(&expected);
        pairs.fold(0, |differ, (word, want)| {
            differ | (word.load(Ordering::Relaxed) ^ want)
        }) == 0
    })
}

/// The words of the rows of a span, row by row, with the index of each row in the page; `None`
/// where the span leaves the plane.
fn rows_of<'a>(
    plane: &'a [AtomicU32],
    params: RowParams,
    span: &RowSpan,
) -> Option<impl Iterator<Item = (u32, &'a [AtomicU32])>> {
    let (_, body) = words_of(plane, &params, span)?;
    let words = params.row_words as usize;
    let stride = params.stride.max(1);
    let rows = body.chunks_exact(words.max(1)).step_by(stride as usize);
    Some(numbered(span.skip, stride, rows))
}

/// Writes the fingerprints of `spans` into a plane; shape of the plane: \[rows\]\[row words\].
///
/// Returns false, and has written the spans before it, if a span leaves the plane.
#[must_use]
pub fn fill(plane: &[AtomicU32], params: &RowParams, spans: &[RowSpan]) -> bool {
    for span in spans {
        let base = Base::new(span.seed, params);
        if params.stride <= 1 {
            let Some((first, body)) = words_of(plane, params, span) else {
                return false;
            };
            fill_words(base, first, body);
            continue;
        }
        let Some(rows) = rows_of(plane, *params, span) else {
            return false;
        };
        for (row, body) in rows {
            fill_words(base, row.wrapping_mul(params.row_words), body);
        }
    }
    true
}

fn fill_words(base: Base, first: u32, body: &[AtomicU32]) {
    let mut words = [0; BLOCK];
    for (start, block) in blocks(first, body) {
        base.words(start, &mut words[..block.len()]);
        for (word, value) in block.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }
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
        let whole = words_of(plane, params, span).filter(|_| params.stride <= 1);
        if whole.is_some_and(|(first, body)| all_right(base, first, body)) {
            compared += u64::from(span.rows);
            continue;
        }
        for (row, body) in rows {
            let first = row.wrapping_mul(params.row_words);
            let differs = numbered(first, 1, body.iter()).fold(0, |all, (index, word)| {
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
    /// Words of a log with room for `records` records. Saturates.
    #[must_use]
    pub const fn words(records: usize) -> usize {
        records.saturating_mul(RECORD_WORDS).saturating_add(1)
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

    /// Seen to fail if rows are counted without wrapping, or words of a block.
    #[test]
    fn rows_and_words_wrap_past_32_bits() {
        for (stride, skip, row_words) in [(1, u32::MAX - 1, 3), (2, u32::MAX, 90)] {
            let plane = plane(4 * 90);
            let params = RowParams {
                row_words,
                stride,
                ..PARAMS
            };
            let spans = [span(0, 0, 4, skip)];
            assert!(fill(&plane, &params, &spans));
            let mut wrong = Vec::new();
            verify(&plane, &params, &spans, |mismatch| wrong.push(mismatch.row));
            assert!(wrong.is_empty(), "{wrong:?}");
            let rows: Vec<u32> = (0..4).step_by(stride as usize).collect();
            for row in &rows {
                let at = (row * row_words) as usize;
                let word = plane[at].fetch_xor(1, Ordering::Relaxed);
                let row = skip.wrapping_add(*row);
                assert_eq!(word, fingerprint(spans[0].seed, &params, row, 0));
            }
            let compared = verify(&plane, &params, &spans, |mismatch| wrong.push(mismatch.row));
            let all = rows.iter().map(|row| skip.wrapping_add(*row));
            assert_eq!(wrong, all.collect::<Vec<_>>());
            assert_eq!(compared, wrong.len() as u64);
        }
        // A row whose words have numbers on both sides of 2^32.
        let plane = plane(8);
        let params = RowParams {
            row_words: 4,
            ..PARAMS
        };
        let spans = [span(3, 0, 2, (1 << 30) - 1)];
        assert!(fill(&plane, &params, &spans));
        assert_eq!(
            verify(&plane, &params, &spans, |wrong| panic!("{wrong:?}")),
            2
        );
        assert_eq!(VerifyLog::words(usize::MAX), usize::MAX);
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
