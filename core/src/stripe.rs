// SPDX-License-Identifier: Apache-2.0
//! The stripe: which rank owns a position or slot, and at which row it stands there.
//!
//! This is the only Rust file with a modulo or a division by the DCP size c.
//!
//! With interleave I (I divides P; I = 1 is the cyclic layout of the documentation):
//!
//! ```text
//! owner(i) = floor(i / I) mod c
//! row(i)   = floor(i / (I * c)) * I + i mod I        I = 1: floor(i / c)
//! ```
//!
//! A request starts at a widened page, so position and slot agree modulo I * c and ownership may
//! be asked of either.
//!
//! Worked example, c = 4, P = 2, W = 8, pages \[7, 3\]: position 9 lies in page 3 at offset 1, slot
//! 25; owner 25 mod 4 = 1, row floor(25 / 4) = 6, the first row of physical page 3 on rank 1.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use crate::units::{PageId, Rank, Row, Slot, TokenPos};

/// Largest DCP size that a stripe accepts.
pub const MAX_DCP: u32 = 1024;
/// Largest number of rows of a physical page that a stripe accepts.
pub const MAX_PAGE_ROWS: u32 = 1 << 16;

/// Why a stripe cannot be made or asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StripeError {
    /// The DCP size is zero or absurd.
    #[error("dcp size {dcp} is out of range: it must be 1..={MAX_DCP}")]
    DcpSize {
        /// The refused size.
        dcp: u32,
    },
    /// The page size is zero or absurd.
    #[error("page size {rows} is out of range: it must be 1..={MAX_PAGE_ROWS} rows")]
    PageRows {
        /// The refused number of rows.
        rows: u32,
    },
    /// The interleave does not divide the page.
    #[error("interleave {interleave} does not divide the page size of {rows} rows")]
    Interleave {
        /// The refused interleave.
        interleave: u32,
        /// Rows of a physical page.
        rows: u32,
    },
    /// The rank is not in the group.
    #[error("dcp rank {rank} is not below the dcp size {dcp}")]
    Rank {
        /// The refused rank.
        rank: u32,
        /// The DCP size.
        dcp: u32,
    },
}

/// How one widened page space is divided among the c ranks of a DCP group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "StripeFields", into = "StripeFields")]
pub struct Stripe {
    dcp: u32,
    page_rows: u32,
    interleave: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StripeFields {
    dcp: u32,
    page_rows: u32,
    #[serde(default = "one")]
    interleave: u32,
}

const fn one() -> u32 {
    1
}

impl TryFrom<StripeFields> for Stripe {
    type Error = StripeError;
    fn try_from(f: StripeFields) -> Result<Self, StripeError> {
        Self::with_interleave(f.dcp, f.page_rows, f.interleave)
    }
}

impl From<Stripe> for StripeFields {
    fn from(s: Stripe) -> Self {
        Self {
            dcp: s.dcp,
            page_rows: s.page_rows,
            interleave: s.interleave,
        }
    }
}

impl Stripe {
    /// A cyclic stripe (I = 1) over `dcp` ranks with physical pages of `page_rows` rows.
    ///
    /// # Errors
    /// A size of zero or above [`MAX_DCP`] or [`MAX_PAGE_ROWS`].
    pub const fn new(dcp: u32, page_rows: u32) -> Result<Self, StripeError> {
        Self::with_interleave(dcp, page_rows, 1)
    }

    /// A stripe whose ownership changes every `interleave` tokens.
    ///
    /// # Errors
    /// As [`Stripe::new`], and an interleave that does not divide `page_rows`.
    pub const fn with_interleave(
        dcp: u32,
        page_rows: u32,
        interleave: u32,
    ) -> Result<Self, StripeError> {
        if dcp == 0 || dcp > MAX_DCP {
            return Err(StripeError::DcpSize { dcp });
        }
        if page_rows == 0 || page_rows > MAX_PAGE_ROWS {
            return Err(StripeError::PageRows { rows: page_rows });
        }
        if interleave == 0 || !page_rows.is_multiple_of(interleave) {
            return Err(StripeError::Interleave {
                interleave,
                rows: page_rows,
            });
        }
        Ok(Self {
            dcp,
            page_rows,
            interleave,
        })
    }

    /// c, the number of ranks of the group.
    #[must_use]
    pub const fn dcp(self) -> u32 {
        self.dcp
    }

    /// P, the rows of a physical page on one rank.
    #[must_use]
    pub const fn page_rows(self) -> u32 {
        self.page_rows
    }

    /// I, the tokens after which ownership moves to the next rank.
    #[must_use]
    pub const fn interleave(self) -> u32 {
        self.interleave
    }

    /// W = P * c, the tokens of a widened page.
    #[must_use]
    pub const fn widened_page(self) -> u64 {
        self.page_rows as u64 * self.dcp as u64
    }

    /// Whether slots and rows coincide: one rank, nothing to translate.
    #[must_use]
    pub const fn is_identity(self) -> bool {
        self.dcp == 1
    }

    /// The same pages held by one rank alone: slots are rows.
    #[must_use]
    pub const fn alone(self) -> Self {
        Self { dcp: 1, ..self }
    }

    /// The ranks of the group, in order.
    pub fn ranks(self) -> impl ExactSizeIterator<Item = Rank> + DoubleEndedIterator {
        (0..self.dcp).map(Rank::new)
    }

    /// Checks that `rank` is a rank of this group.
    ///
    /// # Errors
    /// A rank that is not below c.
    pub const fn check_rank(self, rank: Rank) -> Result<Rank, StripeError> {
        if rank.get() < self.dcp {
            Ok(rank)
        } else {
            Err(StripeError::Rank {
                rank: rank.get(),
                dcp: self.dcp,
            })
        }
    }

    const fn cycle(self) -> u64 {
        self.interleave as u64 * self.dcp as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below c, a u32"
    )]
    const fn owner_of(self, index: u64) -> Rank {
        Rank::new((index / self.interleave as u64 % self.dcp as u64) as u32)
    }

    const fn row_of(self, index: u64) -> u64 {
        let i = self.interleave as u64;
        index / self.cycle() * i + index % i
    }

    /// The rank that owns a position.
    #[must_use]
    pub const fn owner_of_position(self, position: TokenPos) -> Rank {
        self.owner_of(position.get())
    }

    /// The rank that owns a slot.
    #[must_use]
    pub const fn owner_of_slot(self, slot: Slot) -> Rank {
        self.owner_of(slot.get())
    }

    /// The row of a slot on its owner. On every other rank the slot has no row.
    #[must_use]
    pub const fn row_on_owner(self, slot: Slot) -> Row {
        Row::new(self.row_of(slot.get()))
    }

    /// The row of `slot` on `rank`, if `rank` owns it.
    #[must_use]
    pub fn localize(self, rank: Rank, slot: Slot) -> Option<Row> {
        (self.owner_of_slot(slot) == rank).then(|| self.row_on_owner(slot))
    }

    /// The slot that stands at `row` of `rank`: the inverse of [`Stripe::localize`]. Saturates: a
    /// row so far out has no slot.
    #[must_use]
    pub const fn slot_of(self, rank: Rank, row: Row) -> Slot {
        let i = self.interleave as u64;
        let whole = (row.get() / i).saturating_mul(self.cycle());
        Slot::new(whole.saturating_add(rank.get() as u64 * i + row.get() % i))
    }

    /// Rows that `rank` owns of the first `length` tokens. A negative length has none.
    ///
    /// I = 1: `floor(L / c) + [r < L mod c]`. The sum over the ranks is L.
    #[must_use]
    pub const fn local_len(self, rank: Rank, length: i64) -> u64 {
        if length <= 0 {
            return 0;
        }
        let length = length.unsigned_abs();
        let i = self.interleave as u64;
        let tail = length % self.cycle();
        let before = rank.get() as u64 * i;
        let extra = tail.saturating_sub(before);
        length / self.cycle() * i + if extra < i { extra } else { i }
    }

    /// Rows that `rank` owns of the `length` tokens from position `start` on.
    #[must_use]
    pub const fn local_len_from(self, rank: Rank, start: TokenPos, length: i64) -> u64 {
        if length <= 0 {
            return 0;
        }
        let start = start.get().cast_signed();
        self.local_len(rank, start.saturating_add(length)) - self.local_len(rank, start)
    }

    /// The first position at or after `start` that `rank` owns.
    ///
    /// I = 1: `start + ((r - start) mod c)` with floor-mod. Saturates.
    #[must_use]
    pub const fn first_owned(self, rank: Rank, start: TokenPos) -> TokenPos {
        let s = start.get();
        if self.owner_of(s).get() == rank.get() {
            return start;
        }
        let i = self.interleave as u64;
        let phase = s % self.cycle();
        let wanted = rank.get() as u64 * i;
        let ahead = (wanted + self.cycle() - phase) % self.cycle();
        TokenPos::new(s.saturating_add(ahead))
    }

    /// Local rows that query `query` of `queries` sees on `rank` when the sequence, the queries
    /// included, has `global_length` tokens. They are a prefix of the rank's rows.
    ///
    /// Query t sits at position G - s + t and sees positions up to its own.
    #[must_use]
    pub const fn visible_rows(
        self,
        rank: Rank,
        global_length: i64,
        queries: u32,
        query: u32,
    ) -> u64 {
        let behind = queries as i64 - 1 - query as i64;
        self.local_len(rank, global_length.saturating_sub(behind))
    }

    /// The widened page that holds a slot, as a plain number (slots of 2^32 pages or more have
    /// none).
    #[must_use]
    pub const fn page_number(self, slot: Slot) -> u64 {
        slot.get() / self.widened_page()
    }

    /// The slots of a widened page.
    #[must_use]
    pub const fn page_slots<T>(self, page: PageId<T>) -> Range<u64> {
        let first = page.get() as u64 * self.widened_page();
        first..first + self.widened_page()
    }

    /// The rows of a page on every rank.
    #[must_use]
    pub const fn page_row_range<T>(self, page: PageId<T>) -> Range<u64> {
        let first = page.get() as u64 * self.page_rows as u64;
        first..first + self.page_rows as u64
    }

    /// The slot of a position in a request that stands on `pages`, if the pages reach that far.
    #[must_use]
    pub fn slot_at<T>(self, pages: &[PageId<T>], position: TokenPos) -> Option<Slot> {
        let w = self.widened_page();
        let page = pages.get(usize::try_from(position.get() / w).ok()?)?;
        Some(Slot::new(u64::from(page.get()) * w + position.get() % w))
    }

    /// Widened pages that hold `tokens` tokens, the last one perhaps in part.
    #[must_use]
    pub const fn pages_for(self, tokens: u64) -> u64 {
        tokens.div_ceil(self.widened_page())
    }

    /// Widened pages that `tokens` tokens fill wholly.
    #[must_use]
    pub const fn whole_pages(self, tokens: u64) -> u64 {
        tokens / self.widened_page()
    }

    /// Most widened pages that a prompt of `tokens` tokens may hit, so that one token is left to
    /// compute: floor((L - 1) / W), and 0 for an empty prompt.
    #[must_use]
    pub const fn hit_limit(self, tokens: u64) -> u64 {
        tokens.saturating_sub(1) / self.widened_page()
    }

    /// The largest number of tokens not above `tokens` that is a multiple of I * c.
    #[must_use]
    pub const fn round_down_to_cycle(self, tokens: u64) -> u64 {
        tokens / self.cycle() * self.cycle()
    }

    /// Tokens of a cycle, I * c: the smallest span of which every rank owns the same number.
    #[must_use]
    pub const fn cycle_tokens(self) -> u64 {
        self.cycle()
    }

    /// Cycles that hold `tokens` tokens, the last one perhaps in part.
    #[must_use]
    pub const fn cycles_for(self, tokens: u64) -> u64 {
        tokens.div_ceil(self.cycle())
    }

    /// Index of a position among the rows that its owner holds of its request. I = 1:
    /// `floor(p / c)`.
    #[must_use]
    pub const fn local_index(self, position: TokenPos) -> u64 {
        self.row_of(position.get())
    }

    /// Offset of a slot in its widened page.
    #[must_use]
    pub const fn offset_in_page(self, slot: Slot) -> u64 {
        slot.get() % self.widened_page()
    }

    /// Whether `tokens` tokens from a page's start end at a page's end.
    #[must_use]
    pub const fn is_whole_pages(self, tokens: u64) -> bool {
        tokens.is_multiple_of(self.widened_page())
    }

    /// Tokens after which the pages of both stripes begin together: lcm(W, W').
    #[must_use]
    pub const fn common_span(self, other: Self) -> u64 {
        let (mut a, mut b) = (self.widened_page(), other.widened_page());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        self.widened_page() / a * other.widened_page()
    }
}

/// The share of one of `dcp` ranks in `total` things, if all shares are whole and equal.
#[must_use]
pub const fn whole_share(total: u32, dcp: u32) -> Option<u32> {
    match total.checked_rem(dcp) {
        Some(0) => total.checked_div(dcp),
        _ => None,
    }
}

/// The DCP rank of a rank of an attention-TP group: groups are `dcp` consecutive ranks. A size
/// of 0 has none.
#[must_use]
pub const fn rank_in_group(attention_tp_rank: u32, dcp: u32) -> Option<Rank> {
    match attention_tp_rank.checked_rem(dcp) {
        Some(rank) => Some(Rank::new(rank)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brute(stripe: Stripe, rank: Rank, start: u64, len: u64) -> u64 {
        (start..start + len)
            .filter(|&p| stripe.owner_of_position(TokenPos::new(p)) == rank)
            .count() as u64
    }

    #[test]
    fn lengths_and_first_owned_equal_counting_for_every_interleave() {
        for dcp in [1, 2, 3, 4, 8, 16] {
            for interleave in [1, 2, 8] {
                let stripe = Stripe::with_interleave(dcp, 16, interleave).unwrap();
                for start in [0u64, 1, 2, 5, 7, 13, 31] {
                    for len in 0..70u64 {
                        let mut sum = 0;
                        for rank in stripe.ranks() {
                            let got = stripe.local_len_from(
                                rank,
                                TokenPos::new(start),
                                len.cast_signed(),
                            );
                            assert_eq!(got, brute(stripe, rank, start, len));
                            sum += got;
                        }
                        assert_eq!(sum, len);
                    }
                    for rank in stripe.ranks() {
                        let first = stripe.first_owned(rank, TokenPos::new(start)).get();
                        let want =
                            (start..).find(|&p| stripe.owner_of_position(TokenPos::new(p)) == rank);
                        assert_eq!(
                            Some(first),
                            want,
                            "c={dcp} I={interleave} r={rank} s={start}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn slot_and_row_are_inverse_and_stay_in_their_page() {
        for (dcp, rows, interleave) in [(1, 4, 1), (3, 5, 1), (4, 8, 2), (8, 64, 8), (2, 6, 6)] {
            let stripe = Stripe::with_interleave(dcp, rows, interleave).unwrap();
            for slot in 0..stripe.widened_page() * 5 {
                let slot = Slot::new(slot);
                let rank = stripe.owner_of_slot(slot);
                let row = stripe.localize(rank, slot).unwrap();
                assert_eq!(stripe.slot_of(rank, row), slot);
                let page =
                    PageId::<crate::L1>::new(u32::try_from(stripe.page_number(slot)).unwrap());
                assert!(stripe.page_row_range(page).contains(&row.get()));
            }
        }
    }

    /// Seen to fail if slots are added up without a look at their size.
    #[test]
    fn the_largest_numbers_have_answers() {
        let most = u64::MAX;
        for (dcp, rows, interleave) in [(1, 1, 1), (3, 5, 1), (1024, 1 << 16, 1 << 16)] {
            let stripe = Stripe::with_interleave(dcp, rows, interleave).unwrap();
            for rank in [Rank::new(0), Rank::new(dcp - 1), Rank::new(u32::MAX)] {
                assert!(stripe.slot_of(rank, Row::new(most)).get() > most / 2);
                let last = TokenPos::new(most);
                assert_eq!(stripe.first_owned(rank, last), last);
                assert!(stripe.local_len(rank, i64::MAX) <= i64::MAX.unsigned_abs());
                let span =
                    |start, length| stripe.local_len_from(rank, TokenPos::new(start), length);
                assert!(span(most, i64::MAX) <= most / 2);
                assert_eq!(span(most / 2, i64::MIN), 0);
                assert_eq!(stripe.visible_rows(rank, i64::MIN, u32::MAX, 0), 0);
                assert!(stripe.visible_rows(rank, i64::MAX, 0, u32::MAX) <= most / 2);
            }
            let page = PageId::<crate::L1>::new(u32::MAX);
            assert!(stripe.page_slots(page).end > stripe.page_row_range(page).start);
            assert_eq!(stripe.slot_at(&[page], TokenPos::new(most)), None);
            assert!(stripe.pages_for(most) >= stripe.whole_pages(most));
        }
    }

    #[test]
    fn refuses_impossible_stripes_with_the_numbers() {
        assert_eq!(Stripe::new(0, 64), Err(StripeError::DcpSize { dcp: 0 }));
        assert_eq!(Stripe::new(4, 0), Err(StripeError::PageRows { rows: 0 }));
        let error = Stripe::with_interleave(4, 64, 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "interleave 3 does not divide the page size of 64 rows"
        );
        let stripe = Stripe::new(4, 64).unwrap();
        assert!(stripe.check_rank(Rank::new(4)).is_err());
    }
}
