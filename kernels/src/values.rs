// SPDX-License-Identifier: Apache-2.0
//! Rows that attention can read and whose values anyone can work out: each lane is a bf16 number
//! that follows from (namespace, position, token, layer, lane) and from nothing else.
//!
//! So what attention over rows that were stored, evicted and loaded back must give is known from
//! the tokens alone, for any number of ranks.
//!
//! Lanes are of magnitude 0.25 to 1 with either sign: nothing cancels by being tiny, and no sum of
//! a query and a row is out of range.

use core::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};

const GOLDEN_32: u32 = 0x9E37_79B1;
const GOLDEN_64: u64 = 0x9E37_79B9_7F4A_7C15;
/// bf16 bits of 0.25, with no sign.
const QUARTER: u16 = 0x3E80;

/// Whose row it is: what a token at its position means, condensed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct RowSeed(u64);

impl RowSeed {
    /// The seed of the row of token `token` at `position`.
    #[must_use]
    pub const fn new(namespace: u64, position: u64, token: u32) -> Self {
        let place = position.wrapping_mul(GOLDEN_64) ^ (token as u64);
        Self(mix64(mix64(place.wrapping_add(GOLDEN_64)) ^ namespace))
    }

    /// The two lanes in word `word` of the row in `layer`, the first in the low half.
    #[must_use]
    pub const fn word(self, layer: u32, word: u32) -> u32 {
        Lanes::new(self, layer).word(word)
    }

    /// The value of a lane.
    #[must_use]
    pub fn value(self, layer: u32, lane: u32) -> f32 {
        let word = self.word(layer, lane / 2);
        let half = if lane.is_multiple_of(2) {
            word << 16
        } else {
            word & 0xFFFF_0000
        };
        f32::from_bits(half)
    }
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

/// What the lanes of one row are made from.
#[derive(Clone, Copy)]
struct Lanes {
    low: u32,
    high: u32,
}

impl Lanes {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the halves of a 64-bit hash are wanted"
    )]
    const fn new(seed: RowSeed, layer: u32) -> Self {
        let hash = mix64(seed.0 ^ (layer as u64).wrapping_mul(GOLDEN_64));
        Self {
            low: hash as u32,
            high: (hash >> 32) as u32,
        }
    }

    const fn word(self, word: u32) -> u32 {
        let random = mix32(self.low.wrapping_add(word.wrapping_mul(GOLDEN_32))) ^ self.high;
        // Sign and mantissa of each half are random, and the lowest bit of its exponent.
        let kept = random & 0x80FF_80FF;
        kept + ((QUARTER as u32) << 16 | QUARTER as u32)
    }
}

/// Writes the rows of `seeds` one after the other; shape of `dense`: \[seeds\]\[row words\].
///
/// Returns false and writes nothing if they are more than `dense` holds.
#[must_use]
pub fn fill(dense: &[AtomicU32], row_words: u32, layer: u32, seeds: &[RowSeed]) -> bool {
    let words = row_words as usize;
    let needed = words.checked_mul(seeds.len());
    if needed.is_none_or(|needed| needed > dense.len()) {
        return false;
    }
    for (row, &seed) in dense.chunks_exact(words.max(1)).zip(seeds) {
        let lanes = Lanes::new(seed, layer);
        for (index, word) in (0..).zip(row) {
            word.store(lanes.word(index), Ordering::Relaxed);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_of_magnitude_a_quarter_to_one_and_centred() {
        let (mut sum, mut negative) = (0.0f64, 0);
        for position in 0..200 {
            let seed = RowSeed::new(7, position, 11);
            for lane in 0..576 {
                let value = seed.value(3, lane);
                assert!((0.25..1.0).contains(&value.abs()), "{value}");
                negative += u32::from(value < 0.0);
                sum += f64::from(value);
            }
        }
        let count = 200.0 * 576.0;
        assert!((f64::from(negative) / count - 0.5).abs() < 0.01);
        assert!((sum / count).abs() < 0.01);
    }

    #[test]
    fn every_part_of_an_identity_changes_the_row() {
        let row = |seed: RowSeed, layer| (0..288).map(|w| seed.word(layer, w)).collect::<Vec<_>>();
        let base = row(RowSeed::new(1, 2, 3), 4);
        for other in [
            row(RowSeed::new(9, 2, 3), 4),
            row(RowSeed::new(1, 9, 3), 4),
            row(RowSeed::new(1, 2, 9), 4),
            row(RowSeed::new(1, 2, 3), 9),
        ] {
            let same = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 4, "{same} words agree");
        }
    }

    #[test]
    fn a_fill_writes_what_lanes_say_and_stays_inside() {
        let dense: Vec<AtomicU32> = (0..3 * 6 + 1).map(|_| AtomicU32::new(77)).collect();
        let seeds: Vec<_> = (0..3).map(|p| RowSeed::new(5, p, 1)).collect();
        assert!(fill(&dense, 6, 2, &seeds));
        for (at, word) in dense[..18].iter().enumerate() {
            let word = word.load(Ordering::Relaxed);
            let lane = u32::try_from(at % 6).unwrap();
            assert_eq!(word, seeds[at / 6].word(2, lane));
            let high = f32::from_bits(word & 0xFFFF_0000);
            assert_eq!(seeds[at / 6].value(2, 2 * lane + 1), high);
        }
        assert_eq!(dense[18].load(Ordering::Relaxed), 77);
        assert!(!fill(&dense, 7, 2, &seeds));
    }
}
